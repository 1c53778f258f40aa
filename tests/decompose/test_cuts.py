"""Cuts stay valid when coefficients that a solver would drop are taken out of them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privopt.decompose.master import prove_bound
from privopt.decompose.split import _move_small_terms, cut_of, split_form
from privopt.dsl.form import StandardForm

BOUNDS = st.sampled_from([-np.inf, -1e6, -3.0, 0.0, 2.0, 1e6, np.inf])


@st.composite
def small_terms(draw):
    """Draw slopes with small coefficients, bounds of their columns, and a point within the bounds."""
    count = draw(st.integers(1, 5))
    slope = np.array(draw(st.lists(st.floats(-1e-9, 1e-9).filter(bool), min_size=count, max_size=count)))
    pairs = [sorted((draw(BOUNDS), draw(BOUNDS))) for _ in range(count)]
    lower = np.array([min(low, 1e6) if low != np.inf else 0.0 for low, _ in pairs])
    upper = np.array([max(high, -1e6) if high != -np.inf else 0.0 for _, high in pairs])
    lower = np.minimum(lower, upper)
    point = np.array(
        [draw(st.floats(max(low, -1e12), min(high, 1e12))) for low, high in zip(lower, upper, strict=True)]
    )
    return slope, lower, upper, point


@given(small_terms())
def test_taking_out_small_terms_never_raises_a_cut(terms):
    slope, lower, upper, point = terms
    value = float(slope @ point)
    changed = slope.copy()
    gain = _move_small_terms(changed, np.arange(len(slope)), 2e-9, lower, upper)
    if gain == -np.inf:
        assert (np.isinf(lower) & np.isinf(upper)).any()
        return
    new_value = float(changed @ point) + gain
    assert new_value <= value + 1e-12 * max(1.0, abs(value), np.abs(changed * point).sum(), abs(gain))
    assert ((changed == 0.0) | (np.abs(changed) >= 2e-9)).all()


def test_an_unbounded_column_keeps_a_coefficient():
    slope = np.array([-1e-12])
    assert _move_small_terms(slope, np.array([0]), 2e-9, np.array([0.0]), np.array([np.inf])) == pytest.approx(0.0)
    assert slope[0] == -2e-9


def test_large_multiplier_of_another_row_excuses_no_reduced_cost():
    # The optimum is 1e6 + 100. The multiplier 1e-3 of z >= 1e6 is too large by 9e-4, and 1e6 is that of x / 1e6 >= 1.
    form = StandardForm(
        c=[1, 1e-4],
        A=[[1e-6, 0], [0, 1]],
        row_lower=[1, 1e6],
        row_upper=[np.inf, np.inf],
        col_lower=[0, 0],
        col_upper=[np.inf, np.inf],
        integrality=[0, 0],
    )
    split = split_form(form, [[0], [1]])
    assert prove_bound(split, np.array([1e6, 1e-3]))[0] == -np.inf
    assert prove_bound(split, np.array([1e6, 1e-4]))[0] == pytest.approx(1e6 + 100)
    assert cut_of(split.pieces[1], np.array([1e-3])) is None
