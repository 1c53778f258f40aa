"""The location's side of the protocol, which adds noise to the location's count. Only the noisy count is sent."""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.numbers.noise import NoiseRecord, continuous_laplace, discrete_laplace, split_budget
from privopt_fl_linear.quantiles import Noise

__all__ = ["MOST_CLIENTS", "MOST_NOISY", "compute_noise_budget", "noisy_counts"]

LARGEST_TERM = 1 << 40
"""The largest numerator or denominator of a budget that the compiled sampler accepts."""
MOST_CLIENTS: Final = 10**12
"""The largest count allowed for a location."""
MOST_NOISY: Final = 2 * MOST_CLIENTS
"""The largest absolute value of a noisy count that the server accepts, which is twice the largest count."""


def compute_noise_budget(epsilon: Fraction) -> Fraction:
    """Return the budget for drawing the noise: epsilon itself or a simpler fraction slightly below it.

    The budget depends only on epsilon, which is public. Both the location and the server therefore know the scale of
    the noise, which is the reciprocal of the budget.

    >>> compute_noise_budget(Fraction(1, 10))
    Fraction(1, 10)
    """
    # A fraction with larger terms is replaced by one with a denominator of at most 2**36. It is rounded down, so that
    # the noise does not become too small. split_budget() does this when there is a single share.
    if max(epsilon.numerator, epsilon.denominator) <= LARGEST_TERM:
        return epsilon
    return split_budget(epsilon, [1], denominator=1 << 36)[0]


def noisy_counts(
    counts: NDArray[Any], epsilon: Fraction, *, noise: Noise = "discrete", seed: int | None = None
) -> tuple[Any, NoiseRecord]:
    """Add independent Laplace noise of scale 1 / epsilon to each location's count, and return the noisy counts.

    Args:
        counts: (n,) The number of clients at each location, as whole numbers.
        epsilon: The exact privacy budget for one client at one location.
        noise: ``"discrete"`` for integers with discrete Laplace noise, or ``"continuous"`` for doubles with Laplace
            noise.
        seed: The seed of the noise, for experiments only, because seeded noise is not private. If None, the operating
            system's entropy is used.

    Returns:
        The (n,) noisy counts as int64 or float64, and a record of how the noise was drawn and how much budget was
        spent.
    """
    draw = discrete_laplace if noise == "discrete" else continuous_laplace
    return draw(np.asarray(counts), compute_noise_budget(epsilon), seed=seed)
