"""What is added to a noisy count so that the capacity suffices: the paper's margin and the exact one.

Failure at facility v is the event that the noise takes more than the margin away. With failure probability beta_v at
facility v the promise is sum over v of beta_v <= alpha, or, since the facilities' noise sums are independent once the
assignment is fixed, 1 - prod(1 - beta_v) <= alpha.
"""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_fl_linear.algorithms import Assignment
from privopt_fl_linear.quantiles import Noise, upper_quantiles

__all__ = ["Kind", "MarginRule", "Split", "exact_margin", "paper_margin"]

Kind = Literal["exact", "paper"]
Split = Literal["size", "cost"]
SIZE_PART = 0.01


def paper_margin(sizes: Ints, n: int, epsilon: float, alpha: float) -> Floats:
    """(2 / epsilon) sqrt(|L|) ln(2 n / alpha) (Algorithm 2).

    It rests on the moment generating function of Laplace(1/epsilon), which that of the discrete Laplace never exceeds
    ((cosh s - 1) / s^2 increases), so it holds for integer noise too.
    """
    return np.asarray(2.0 / epsilon * np.sqrt(sizes) * math.log(2.0 * n / alpha), dtype=np.float64)


def exact_margin(sizes: Ints, betas: Floats, epsilon: float, noise: Noise = "discrete") -> Floats:
    """The (1 - beta) quantile of the sum of |L| Laplace(1/epsilon) draws of each facility, rounded up."""
    pairs, back = np.unique(np.column_stack([sizes, betas]), axis=0, return_inverse=True)
    quantiles = upper_quantiles(pairs[:, 0].astype(np.int64), pairs[:, 1], epsilon, noise)
    return np.asarray(quantiles[back.reshape(-1)], dtype=np.float64)


@frozen(kw_only=True)
class MarginRule:
    """How margins are made.

    >>> import numpy as np
    >>> rule = MarginRule(n=1000, epsilon=0.1, noise="continuous")
    >>> rule.margins(np.array([1, 10, 100, 1000]), np.ones(4), 0.1).round(1).tolist()
    [85.2, 148.1, 330.0, 573.0]

    Attributes:
        n: number of locations.
        epsilon: privacy budget of one location's report.
        kind: ``"exact"`` or ``"paper"``.
        noise: ``"discrete"`` or ``"continuous"``.
        split: how exact margins share the failure probability out. ``"size"``: beta_v = |L_v| alpha / n, Theorem 3's.
            ``"cost"``: 1 - beta_v = (1 - alpha)^w_v, w_v = .99 f_v sqrt|L_v| / sum + .01 |L_v| / n, which weighs a
            facility by what its margin costs; equal for merged facilities, 2 to 3 % cheaper for many small ones.
    """

    n: int
    epsilon: float
    kind: Kind = "exact"
    noise: Noise = "discrete"
    split: Split = "size"

    def margins(self, sizes: Ints, cost: Floats, alpha: float) -> Floats:
        """The margin of each facility, given |L_v| and f_v, for failure probability alpha in all."""
        if self.kind == "paper":
            return paper_margin(sizes, self.n, self.epsilon, alpha)
        return exact_margin(sizes, self.shares(sizes, cost, alpha), self.epsilon, self.noise)

    def shares(self, sizes: Ints, cost: Floats, alpha: float) -> Floats:
        """Each facility's failure probability beta_v."""
        by_size = sizes / self.n
        weight = cost * np.sqrt(sizes)
        total = float(weight.sum())
        if self.split == "size" or not 0.0 < total < math.inf:
            return np.asarray(by_size * alpha, dtype=np.float64)
        shares = (1.0 - SIZE_PART) * weight / total + SIZE_PART * by_size
        return np.asarray(-np.expm1(shares * math.log1p(-alpha) * (1.0 - 1e-12)), dtype=np.float64)

    def of(self, assignment: Assignment, cost: Floats, alpha: float) -> Floats:
        """The margins of an assignment's facilities; ``cost`` is (n,), over all locations."""
        return self.margins(assignment.sizes, cost[assignment.opened], alpha)
