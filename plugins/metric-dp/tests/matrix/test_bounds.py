from __future__ import annotations

import math
import sys
from fractions import Fraction

import mpmath
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.numbers.exp_log_bounds import MIN_COMPILED_SIZE, exp_bounds, exp_fixed, float_down, float_up, log_bounds


@given(
    st.floats(min_value=0, max_value=1e6, allow_subnormal=True),
    st.fractions(min_value=Fraction(1, 1000), max_value=100, max_denominator=10**6),
    st.booleans(),
)
@settings(max_examples=120)
def test_doubles_enclose_the_exponential(exp60, distance, epsilon, many):
    lower, upper = exp_bounds(np.full(1 + many * MIN_COMPILED_SIZE, distance), epsilon)
    assert np.unique(lower).size == np.unique(upper).size == 1
    exponent = epsilon * Fraction(distance)
    if exponent > 46:
        assert lower[0] > 2.0**64
        assert upper[0] == math.inf
        return
    value = exp60(exponent)
    assert Fraction(lower[0]) <= value
    if exponent < 44:
        assert value <= Fraction(upper[0])
        assert upper[0] <= math.nextafter(lower[0], math.inf)


@given(st.fractions(min_value=0, max_value=45, max_denominator=10**12), st.sampled_from([64, 96, 200]))
def test_integers_enclose_the_exponential(exponent, bits):
    low, high = exp_fixed(exponent, bits)
    with mpmath.workdps(150):
        value = mpmath.exp(mpmath.mpf(exponent.numerator) / exponent.denominator) * mpmath.mpf(2) ** bits
        assert low <= value <= high
    assert high - low <= 2


def test_many_random_arguments_and_the_ends(exp60):
    rng = np.random.default_rng(5)
    distances = np.concatenate([10 ** rng.uniform(-16, 1.65, 2000), [0.0, 5e-324, 1e-300, 2.0**-52, 44.9999, 45.0]])
    for epsilon in (Fraction(1), Fraction("0.7"), Fraction(1, 3)):
        lower, upper = exp_bounds(distances, epsilon)
        for d, low, high in zip(distances.tolist(), lower.tolist(), upper.tolist(), strict=True):
            value = exp60(epsilon * Fraction(d), 400 if d < 1e-60 else 60)
            assert Fraction(low) <= value
            assert high == math.inf or value <= Fraction(high)


def test_accepts_extreme_epsilons():
    for epsilon in (Fraction(1, 10**120), Fraction(10**120)):
        lower, upper = exp_bounds(np.array([0.0, 1.0, 1e120, 1e-120]), epsilon)
        assert (lower[0], upper[0]) == (1.0, 1.0)
        assert (lower >= 1).all()
        assert (upper >= lower).all()
    lower, upper = exp_bounds(np.array([0.0, 3.0]), Fraction(0))
    assert lower.tolist() == upper.tolist() == [1.0, 1.0]


@given(st.fractions())
def test_rounding_of_rationals_is_directed(value):
    low, high = float_down(value), float_up(value)
    assert Fraction(low) <= value <= Fraction(high)
    assert high <= math.nextafter(low, math.inf)


def test_zero_is_never_negative():
    assert [math.copysign(1.0, round_(Fraction(0))) for round_ in (float_down, float_up)] == [1.0, 1.0]


def test_values_beyond_doubles_round_outwards():
    huge, last = Fraction(10) ** 400, sys.float_info.max
    assert (float_up(huge), float_down(huge)) == (math.inf, last)
    assert (float_up(-huge), float_down(-huge)) == (-last, -math.inf)
    assert log_bounds(Fraction(2), Fraction(5e-324)) == (last, math.inf)
