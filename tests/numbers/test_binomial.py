"""Quantiles of the binomial distribution, beside SciPy's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binom

from privopt.numbers.binomial import binomial_quantile


@given(st.floats(1e-6, 1 - 1e-6), st.integers(1, 20_000), st.floats(0.0, 1.0))
def test_quantile_is_that_of_scipy(probability: float, draws: int, chance: float) -> None:
    assert binomial_quantile(probability, draws, chance) == int(binom.ppf(probability, draws, chance))


@pytest.mark.parametrize("probability", [0.05, 0.1, 0.9, 0.95])
@pytest.mark.parametrize("draws", [1, 2_000, 8_000, 200_000])
@pytest.mark.parametrize("chance", [0.0, 1e-300, 1e-9, 0.25, 0.5, 1 - 1e-12, 1.0])
def test_quantiles_that_the_kit_uses(probability: float, draws: int, chance: float) -> None:
    assert binomial_quantile(probability, draws, chance) == int(binom.ppf(probability, draws, chance))
