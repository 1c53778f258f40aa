"""The location's side: a count in, a noisy count out, and nothing else sent."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.numbers.noise import NoiseRecord, continuous_laplace, discrete_laplace, split_budget
from privopt_fl_linear.quantiles import Noise

__all__ = ["MOST_CLIENTS", "MOST_NOISY", "noisy_counts", "spent"]

LARGEST_TERM = 1 << 40
MOST_CLIENTS: Final = 10**12
"""The largest count that a location may have."""
MOST_NOISY: Final = 2 * MOST_CLIENTS
"""The largest size of a noisy count that the server takes: a count, and as much noise."""


def spent(epsilon: Fraction) -> Fraction:
    """Return the budget that the noise is drawn for: epsilon, or a fraction just below it with smaller terms.

    Public and a function of epsilon alone, so that both sides know the scale 1 / spent(epsilon).

    >>> spent(Fraction(1, 10))
    Fraction(1, 10)
    """
    if max(epsilon.numerator, epsilon.denominator) <= LARGEST_TERM:
        return epsilon
    return split_budget(epsilon, [1], denominator=1 << 36)[0]


def noisy_counts(
    counts: NDArray[Any], epsilon: Fraction, *, noise: Noise = "discrete", seed: int | None = None
) -> tuple[Any, NoiseRecord]:
    """Add Laplace noise of scale 1 / epsilon to each count: every location's report at once.

    Args:
        counts: (n,) whole numbers of clients.
        epsilon: budget of one client at one location, exact.
        noise: ``"discrete"``: integers, discrete Laplace. ``"continuous"``: doubles, Laplace.
        seed: for experiments only: what it draws is not private.

    Returns:
        (n,) noisy counts, int64 or float64, and the record: how they were drawn and what they spend.
    """
    draw = discrete_laplace if noise == "discrete" else continuous_laplace
    return draw(np.asarray(counts), spent(epsilon), seed=seed)
