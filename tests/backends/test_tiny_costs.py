"""Objectives next to the smallest doubles: the same optimum as with larger costs, and bounds that hold."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from helpers.solver_forms import tiny
from hypothesis import given
from hypothesis import strategies as st

from privopt.backends import Outcome, get
from privopt.backends.tiny_costs import cost_exponent, enlarge_costs, shrink_result
from privopt.dsl.outcome import Result

FORMS = {
    "linear": {"c": [3, 2]},
    "maximised": {"c": [3, 2], "sense": "max", "row_lower": [-np.inf], "row_upper": [7]},
    "integer": {"c": [3, 2], "integrality": [1, 1], "row_lower": [7]},
    "semicontinuous": {"c": [3, 2], "integrality": [2, 0], "col_lower": [2, 0], "row_lower": [7]},
    "with a constant": {"c": [3, 2], "c0": 5},
}


@pytest.mark.parametrize("exponent", [-1060, -1074, -990])
@pytest.mark.parametrize("solver", ["highs", "cbc"])
@pytest.mark.parametrize("name", FORMS)
def test_tiny_costs_have_the_optimum_of_larger_ones(name, solver, exponent):
    form = tiny(**FORMS[name])
    expected = get(solver).solve(form)
    tiny_form = evolve(form, c=np.ldexp(form.c, exponent), c0=math.ldexp(form.c0, exponent))
    result = get(solver).solve(tiny_form)
    assert result.outcome is expected.outcome is Outcome.OPTIMAL, result.message
    assert result.objective == tiny_form.objective_at(result.x)
    assert result.objective == pytest.approx(math.ldexp(expected.objective, exponent), rel=1e-9, abs=2.0**-1074)
    assert abs(result.bound - result.objective) <= 2.0**-1074 + 1e-6 * abs(result.objective)
    assert result.bound <= result.objective if form.sense == "min" else result.bound >= result.objective


def test_tiny_quadratic_objective_has_the_optimum_of_a_larger_one():
    form = tiny(c=[-3, -2], Q=np.diag([2.0, 4.0]), row_lower=[-np.inf])
    expected = get("highs").solve(form)
    tiny_form = evolve(form, c=np.ldexp(form.c, -1060), Q=np.ldexp(form.Q.toarray(), -1060))
    result = get("highs").solve(tiny_form)
    assert result.outcome is Outcome.OPTIMAL
    assert np.allclose(result.x, expected.x, atol=1e-6)


@given(st.floats(-1e6, 1e6, allow_nan=False), st.integers(1020, 1100), st.sampled_from(["min", "max"]))
def test_bounds_are_rounded_away_from_the_optimum(bound, exponent, sense):
    form = tiny(sense=sense)
    result = shrink_result(form, Result(outcome=Outcome.STOPPED, solver="s", bound=bound), exponent)
    exact = Fraction(bound) / Fraction(2) ** exponent
    assert Fraction(result.bound) <= exact if sense == "min" else Fraction(result.bound) >= exact
    assert abs(Fraction(result.bound) - exact) < Fraction(2) ** -1074


def test_only_tiny_objectives_are_enlarged():
    for changes in ({"c": [0, 0]}, {"c": [1e-250, 0]}, {"c": [1e-310, 1e-200]}, {"c": [1e-310, 0], "c0": 1.0}):
        assert cost_exponent(tiny(**changes)) == 0
    form = tiny(c=[5e-324, 1e-310], c0=-1e-320)
    larger = enlarge_costs(form, cost_exponent(form))
    assert 0.5 <= np.abs(larger.c).max() < 1
    assert [math.ldexp(value, -cost_exponent(form)) for value in (*larger.c, larger.c0)] == [5e-324, 1e-310, -1e-320]
