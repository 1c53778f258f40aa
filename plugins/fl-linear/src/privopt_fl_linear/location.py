"""The location's side: it turns a count into a noisy count, and sends nothing else."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.numbers.noise import NoiseRecord, continuous_laplace, discrete_laplace, split_budget
from privopt_fl_linear.quantiles import Noise

__all__ = ["MOST_CLIENTS", "MOST_NOISY", "compute_noise_budget", "noisy_counts"]

LARGEST_TERM = 1 << 40
MOST_CLIENTS: Final = 10**12
"""The largest count that a location may have."""
MOST_NOISY: Final = 2 * MOST_CLIENTS
"""The largest absolute value of a noisy count that the server accepts: a count plus noise of the same size."""


def compute_noise_budget(epsilon: Fraction) -> Fraction:
    """Return the budget that the noise is drawn for: epsilon, or a fraction just below it with smaller terms.

    It is a public function of epsilon alone, so that both sides know the scale of the noise, which is its reciprocal.

    >>> compute_noise_budget(Fraction(1, 10))
    Fraction(1, 10)
    """
    if max(epsilon.numerator, epsilon.denominator) <= LARGEST_TERM:
        return epsilon
    return split_budget(epsilon, [1], denominator=1 << 36)[0]


def noisy_counts(
    counts: NDArray[Any], epsilon: Fraction, *, noise: Noise = "discrete", seed: int | None = None
) -> tuple[Any, NoiseRecord]:
    """Add Laplace noise of scale 1 / epsilon to each count, which gives the reports of all locations.

    Args:
        counts: (n,) whole numbers of clients.
        epsilon: Exact budget of one client at one location.
        noise: ``"discrete"`` for integers with discrete Laplace noise, ``"continuous"`` for doubles with Laplace noise.
        seed: For experiments only. Seeded noise is not private.

    Returns:
        (n,) noisy counts, int64 or float64, and the record of how they were drawn and what they spend.
    """
    draw = discrete_laplace if noise == "discrete" else continuous_laplace
    return draw(np.asarray(counts), compute_noise_budget(epsilon), seed=seed)
