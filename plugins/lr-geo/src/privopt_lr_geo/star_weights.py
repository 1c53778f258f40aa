"""Column weights x with W x = 1, W_is = exp(-rate D_is): the star's, or positive ones at a smaller rate.

If the star has negative weights, nonnegative weights are computed at a smaller rate, with which rows nearly sum to one.
Each user divides its row by its sum r_i. If rate + max |log r_i - log r_j| / d_ij <= epsilon over pairs that imply all
others, the promise holds. At half of epsilon it always does. (400 cells of Rome: loss 1.053 km at epsilon 1 per km, the
optimum's .916, the exponential mechanism's 1.715; at epsilon 2 .499, .489 and .996.)
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
"""The smallest positive weight must be this many times as large as the error of rounding to integers."""
LEAST_CAP: Final = 14.0
"""Log-ratios are not cut below this, because far outputs would take a noticeable share."""
RATE_HALVINGS: Final = 7
"""Bisection steps of the search for the rate."""
LEAST_WEIGHT: Final = 1e-4
"""Smaller weights are dropped before rows are divided by their sums."""


def star_weights(data: MetricData, distances: Floats, slack: float) -> ColumnWeights:
    """Return the star's weights at epsilon (1 - slack).

    Args:
        data: The map, epsilon and the prior.
        distances: (N, N) path distances.
        slack: Relative slack of epsilon.

    Raises:
        SolverError: Some weight is not positive, or the weights are not exact enough.
    """
    rate, step = float(data.epsilon) * (1.0 - slack), slack * _min_log_ratio(data)
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
    """Return weights at the largest rate for which epsilon also covers the normalisation of rows, by bisection.

    Args:
        data: The map, epsilon and the prior.
        distances: (N, N) path distances.

    Returns:
        The best weights found in the innermost scope of time. None if there are none even at half of epsilon.
    """
    pairs, lengths = data.needed
    i, j = pairs.T
    slack = SLACKS[-1]
    cap = math.log(float(TOTAL) * LEAST_WEIGHT * slack * _min_log_ratio(data) / ROUNDING_TIMES)
    if cap < LEAST_CAP:
        return None
    allowed = float(data.epsilon) * (1.0 - slack)

    def kernel_at(rate_share: float) -> Floats:
        return np.asarray(np.exp(-np.minimum(distances * (rate_share * allowed), cap)))

    best: tuple[float, Floats] | None = None
    lower, upper, rate_share = 0.5, 1.0, 0.5
    for _ in range(RATE_HALVINGS + 1):
        kernel = kernel_at(rate_share)
        try:
            x = _positive_weights(kernel)
        except (SolverError, OutOfTime):  # the caller continues with the best so far, and checks the clock itself
            break
        sums = np.log(kernel @ x)
        used_rate = float((np.abs(sums[i] - sums[j]) / lengths).max(initial=0.0))
        if best is None or rate_share * allowed + used_rate <= allowed:
            lower, best = rate_share, (rate_share, x)
        else:
            upper = rate_share
        rate_share = (lower + upper) / 2
    if best is None:
        return None
    rate_share, x = best
    kernel = kernel_at(rate_share)
    serves = _cheapest_outputs(kernel, data, data.prior / (kernel @ x))
    return ColumnWeights(weights=x, serves=serves, outputs=len(data.outputs), rate=rate_share * allowed, cap=cap)


def _min_log_ratio(data: MetricData) -> float:
    """Return the smallest log-ratio that epsilon allows between two records at a positive distance."""
    positive = data.distances[data.distances > 0]
    return float(data.epsilon) * float(positive.min()) if positive.size else 1.0


def _positive_weights(kernel: Floats) -> Floats:
    """Return x >= 0 with kernel x near 1, by dropping columns until the weights of all others are positive.

    Raises:
        SolverError: The kernel of the remaining columns is singular.
        OutOfTime: The innermost scope of time ended.
    """
    x = np.zeros(len(kernel))
    columns = np.arange(len(kernel))
    while len(columns):
        check("positive weights were found")
        weights = _solve_ones(kernel[np.ix_(columns, columns)])
        if (weights > LEAST_WEIGHT).all():
            x[columns] = weights
            return x
        columns = columns[weights > LEAST_WEIGHT]
    return np.full(len(kernel), 1.0 / len(kernel))


def _solve_ones(kernel: Floats) -> Floats:
    """Return x with kernel x = 1 for a symmetric kernel, by conjugate gradients if they converge fast.

    Raises:
        SolverError: The kernel is singular.
    """
    from scipy.sparse.linalg import cg

    ones = np.ones(len(kernel))
    solution, status = cg(kernel, ones, rtol=1e-13, atol=0.0, maxiter=200)
    if not status:
        return np.asarray(solution)
    try:
        direct = np.asarray(np.linalg.solve(kernel, ones), dtype=np.float64)
        if not np.isfinite(direct).all():
            raise SolverError("the kernel is singular")
        return np.asarray(direct + np.linalg.solve(kernel, 1.0 - kernel @ direct))
    except np.linalg.LinAlgError:
        raise SolverError("the kernel is singular") from None


def _cheapest_outputs(kernel: Floats, data: MetricData, weight: Floats) -> Ints:
    """Return for each column the output of least cost, with these weights of the records.

    Large kernels use single precision, which saves minutes. Privacy does not depend on the choice.
    """
    kind: Any = np.float32 if kernel.size > BLOCK else np.float64
    cost = (weight[:, None] * data.cost).astype(kind)
    serves = np.empty(len(kernel), dtype=np.int64)
    for rows in slices(len(kernel), len(kernel), BLOCK):
        serves[rows] = (kernel[rows].astype(kind) @ cost).argmin(axis=1)
    return serves
