"""Column weights x with W x = 1, W_is = exp(-rate D_is): the star's, or positive ones at a smaller rate.

Where the star has negative weights, weights are found at a smaller rate, some of them 0, with which rows nearly sum to
one. Each user divides its row by its sum r_i; where rate + max |log r_i - log r_j| / d_ij <= epsilon, over pairs that
imply all others, the promise holds all the same. At half of epsilon it always does. (400 cells of Rome: loss 1.053 km
at epsilon 1 per km, the optimum's .916, the exponential mechanism's 1.715; at epsilon 2 .499, .489 and .996.)
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats, Ints, slices
from privopt.errors import SolverError
from privopt.execution.clock import OutOfTime, check
from privopt.numbers.sampling import TOTAL
from privopt_lr_geo.rows import BLOCK, ColumnWeights, steady_exp
from privopt_metric_dp.problem.data import MetricData

__all__ = ["SLACKS", "normalised_weights", "star_weights"]

SLACKS: Final = (1e-6, 1e-5, 1e-4)
"""tau of rate = epsilon (1 - tau), tried in this order."""
ROUNDING_TIMES: Final = 8.0
"""The smallest positive weight is at least this many times what a rounding by one may be."""
LEAST_CAP: Final = 14.0
"""Log-ratios may not be cut below this: the far outputs would take a share that shows."""
RATE_HALVINGS: Final = 7
"""Steps of the search for the rate."""
LEAST_WEIGHT: Final = 1e-4
"""Weights below this are dropped where rows are divided by their sums."""


def star_weights(data: MetricData, distances: Floats, slack: float) -> ColumnWeights:
    """Return the star's weights at epsilon (1 - slack).

    Args:
        data: the problem's.
        distances: (N, N) path distances.
        slack: relative.

    Raises:
        SolverError: they are negative, or not to be had that exactly.
    """
    rate, step = float(data.epsilon) * (1.0 - slack), slack * _step(data)
    cap = math.log(float(TOTAL) * 1e-2 * step / ROUNDING_TIMES)
    for _ in range(4):
        if cap < LEAST_CAP:
            break
        kernel = np.empty_like(distances)
        for rows in slices(len(distances), len(distances), BLOCK):
            kernel[rows] = steady_exp(-np.minimum(distances[rows] * rate, cap))
        x = _solve_ones(kernel)
        if x.min() <= 0.0:
            raise SolverError(f"{int((x <= 0).sum())} of {len(x)} are not positive")
        error = float(np.abs(kernel @ x - 1.0).max())
        if not error <= step / 16:
            raise SolverError(f"rows sum to one up to {error:.1e} only")
        allowed = math.log(float(TOTAL) * float(x.min()) * step / ROUNDING_TIMES)
        if cap <= allowed:
            serves = _cheapest_outputs(kernel, data, data.prior)
            return ColumnWeights(weights=x, serves=serves, outputs=len(data.outputs), rate=rate, cap=cap)
        cap = allowed - 0.1
    raise SolverError("some weight is too small to be rounded")


def normalised_weights(data: MetricData, distances: Floats) -> ColumnWeights | None:
    """Return weights at the greatest rate at which what normalising rows takes is left of epsilon.

    Args:
        data: the problem's.
        distances: (N, N) path distances.

    Returns:
        The best found before the innermost scope of time ended; None where not even half of epsilon will do.
    """
    pairs, lengths = data.needed
    i, j = pairs.T
    slack = SLACKS[-1]
    cap = math.log(float(TOTAL) * LEAST_WEIGHT * slack * _step(data) / ROUNDING_TIMES)
    if cap < LEAST_CAP:
        return None
    allowed = float(data.epsilon) * (1.0 - slack)

    def kernel_at(share: float) -> Floats:
        return np.asarray(np.exp(-np.minimum(distances * (share * allowed), cap)))

    best: tuple[float, Floats] | None = None
    low, high, share = 0.5, 1.0, 0.5
    for _ in range(RATE_HALVINGS + 1):
        kernel = kernel_at(share)
        try:
            x = _positive_weights(kernel)
        except (SolverError, OutOfTime):  # whoever goes on with what there is looks at the clock
            break
        sums = np.log(kernel @ x)
        taken = float((np.abs(sums[i] - sums[j]) / lengths).max(initial=0.0))
        if best is None or share * allowed + taken <= allowed:
            low, best = share, (share, x)
        else:
            high = share
        share = (low + high) / 2
    if best is None:
        return None
    share, x = best
    kernel = kernel_at(share)
    serves = _cheapest_outputs(kernel, data, data.prior / (kernel @ x))
    return ColumnWeights(weights=x, serves=serves, outputs=len(data.outputs), rate=share * allowed, cap=cap)


def _step(data: MetricData) -> float:
    """Return the least log-ratio that epsilon allows two records."""
    positive = data.distances[data.distances > 0]
    return float(data.epsilon) * float(positive.min()) if positive.size else 1.0


def _positive_weights(kernel: Floats) -> Floats:
    """Return x >= 0 with kernel x near 1: columns are dropped until the others' weights are positive.

    Raises:
        SolverError: a kernel of some of the columns is singular.
        OutOfTime: the innermost scope of time ended.
    """
    x = np.zeros(len(kernel))
    used = np.arange(len(kernel))
    while len(used):
        check("positive weights were found")
        found = _solve_ones(kernel[np.ix_(used, used)])
        if (found > LEAST_WEIGHT).all():
            x[used] = found
            return x
        used = used[found > LEAST_WEIGHT]
    return np.full(len(kernel), 1.0 / len(kernel))


def _solve_ones(kernel: Floats) -> Floats:
    """Return x with kernel x = 1, for a symmetric kernel: by conjugate gradients where they converge fast.

    Raises:
        SolverError: the kernel is singular.
    """
    from scipy.sparse.linalg import cg

    ones = np.ones(len(kernel))
    found, failed = cg(kernel, ones, rtol=1e-13, atol=0.0, maxiter=200)
    if not failed:
        return np.asarray(found)
    try:
        direct = np.asarray(np.linalg.solve(kernel, ones), dtype=np.float64)
        if not np.isfinite(direct).all():
            raise SolverError("the kernel is singular")
        return np.asarray(direct + np.linalg.solve(kernel, 1.0 - kernel @ direct))
    except np.linalg.LinAlgError:
        raise SolverError("the kernel is singular") from None


def _cheapest_outputs(kernel: Floats, data: MetricData, weight: Floats) -> Ints:
    """Return for each column the output of least cost, records weighed as given.

    Single precision where that saves minutes: no privacy hangs on it.
    """
    kind: Any = np.float32 if kernel.size > BLOCK else np.float64
    cost = (weight[:, None] * data.cost).astype(kind)
    serves = np.empty(len(kernel), dtype=np.int64)
    for rows in slices(len(kernel), len(kernel), BLOCK):
        serves[rows] = (kernel[rows].astype(kind) @ cost).argmin(axis=1)
    return serves
