"""What is added to a noisy count so that the capacity suffices: the paper's margin and the exact one.

Failure at facility v is the event that the noise takes more than the margin away. The facilities' noise sums are
independent given the assignment, which is public, so with failure probability beta_v each the promise is
1 - prod(1 - beta_v) <= alpha.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from privopt_fl_linear.metric import Floats, Integers
from privopt_fl_linear.quantiles import Noise, upper_quantiles

__all__ = ["Margin", "exact_margin", "margins", "paper_margin", "shares"]

Margin = Literal["exact", "paper"]


def paper_margin(sizes: Integers, n: int, epsilon: float, alpha: float) -> Floats:
    """Return (2 / epsilon) sqrt(|L|) ln(2 n / alpha) (Algorithm 2).

    It rests on the moment generating function of Laplace(1/epsilon), which that of the discrete Laplace never exceeds
    ((cosh s - 1) / s^2 increases), so it holds for integer noise too.
    """
    margin: Floats = 2.0 / epsilon * np.sqrt(sizes) * math.log(2.0 * n / alpha)
    return margin


def shares(sizes: Integers, n: int, alpha: float) -> Floats:
    """Return each facility's failure probability beta_v = |L_v| alpha / n: Theorem 3's split of the union bound."""
    beta: Floats = sizes * (alpha / n)
    return beta


def exact_margin(sizes: Integers, n: int, epsilon: float, alpha: float, noise: Noise = "discrete") -> Floats:
    """Return the (1 - |L| alpha / n) quantile of the sum of |L| Laplace(1/epsilon) draws, rounded up."""
    unique, back = np.unique(sizes, return_inverse=True)
    quantiles: Floats = upper_quantiles(unique, shares(unique, n, alpha), epsilon, noise)[back.reshape(-1)]
    return quantiles


def margins(kind: Margin, sizes: Integers, n: int, epsilon: float, alpha: float, noise: Noise = "discrete") -> Floats:
    """Return the margin of each facility, by its kind."""
    if kind == "paper":
        return paper_margin(sizes, n, epsilon, alpha)
    return exact_margin(sizes, n, epsilon, alpha, noise)
