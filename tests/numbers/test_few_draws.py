"""Few draws are interpreted and many are compiled: both use the same random bytes for the same values."""

import random
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privopt.numbers import gaussian, laplace
from privopt.numbers.gaussian import LARGEST_VARIANCE, draw_gaussian
from privopt.numbers.laplace import FEW_DRAWS, LARGEST_TERM, draw_laplace

terms = st.integers(1, 50) | st.integers(1, LARGEST_TERM)


def draw_both_ways(module, draw, count, parameter, seed):
    """Return the draws of the compiled sampler and of the interpreted one."""
    compiled = module._fill
    try:
        module._fill = compiled.dispatcher()
        by_machine = draw(count, parameter, source=random.Random(seed).randbytes)
        module._fill = compiled._interpret
        return by_machine, draw(count, parameter, source=random.Random(seed).randbytes)
    finally:
        module._fill = compiled


@given(terms, terms, st.integers(0, 2**32))
def test_interpreted_laplace_draws_equal_compiled_ones(s, t, seed):
    compiled, interpreted = draw_both_ways(laplace, draw_laplace, 40, Fraction(s, t), seed)
    assert interpreted.dtype == compiled.dtype
    np.testing.assert_array_equal(interpreted, compiled)


@given(st.fractions(Fraction(1, 1000), 1000) | st.fractions(1000, LARGEST_VARIANCE), st.integers(0, 2**32))
def test_interpreted_gaussian_draws_equal_compiled_ones(variance, seed):
    compiled, interpreted = draw_both_ways(gaussian, draw_gaussian, 40, variance, seed)
    np.testing.assert_array_equal(interpreted, compiled)


@pytest.mark.parametrize(("count", "is_interpreted"), [(FEW_DRAWS, True), (FEW_DRAWS + 1, False)])
def test_few_draws_need_no_compiled_code(count, is_interpreted):
    samples = np.empty(count, dtype=np.int64)
    assert laplace._fill._is_short_call(None, 1, 1, samples, 0) is is_interpreted
    assert gaussian._fill._is_short_call(None, 1, 1, 1, samples, 0) is is_interpreted
