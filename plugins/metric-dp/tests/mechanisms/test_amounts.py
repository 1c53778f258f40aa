"""Amounts with units become numbers of the problem's unit, rounded to the side of privacy."""

import tomllib
from decimal import Decimal
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

import privopt as po

KM_PER = {"m": Fraction(1, 1000), "mi": Fraction(1_609_344, 1_000_000)}


@given(st.integers(1, 5_000), st.sampled_from(sorted(KM_PER)))
@settings(max_examples=25)
def test_hiding_distance_is_never_rounded_down(hundredths, unit):
    """A pair at exactly the distance that was asked for must stay protected."""
    length = Decimal(hundredths) / 100
    problem = po.metric_problem(
        po.grid(2, 2, 0.5), distance="euclidean", epsilon=1, neighbours_within=f"{length} {unit}"
    )
    exact = Fraction(length) * KM_PER[unit]
    stated_limit = Fraction(tomllib.loads(problem.toml)["privacy"]["neighbours_within"])
    assert exact <= stated_limit <= exact * (1 + Fraction(1, 2**51))
