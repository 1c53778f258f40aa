"""Column weights for the exact method, from which users compute their rows.

The weights x solve W x = 1 for the kernel W_is = exp(-rate D_is), where D_is is the path distance between records i and
s. Row i has the entries x_s W_is, which therefore sum to one. If all weights are positive, this is the star mechanism
at a rate of nearly epsilon.

If not, non-negative weights are computed at a smaller rate, at which rows sum to nearly one, and each user divides row
i by its sum r_i. Let d_ij be the distance between records i and j. The guarantee is met if
rate + |log r_i - log r_j| / d_ij <= epsilon for every pair in a set of pairs whose constraints imply all others. This
is always the case if the rate is at most half of epsilon.

On 400 cells of Rome with epsilon 1 per km, the loss at a smaller rate was 1.053 km. The optimum is 0.916 km, and the
exponential mechanism has a loss of 1.715 km. With epsilon 2, these losses are 0.499, 0.489 and 0.996 km.
"""

from __future__ import annotations

import math
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats, Ints, slices
from privopt.errors import SolverError
from privopt.execution.clock import OutOfTime, check
from privopt.numbers.sampling import TOTAL
from privopt_lr_geo.rows import BLOCK, MAX_EXPONENT, ColumnWeights, capped_products, steady_exp
from privopt_metric_dp.problem.data import MetricData

__all__ = ["SLACKS", "normalised_weights", "star_weights"]

SLACKS: Final = (1e-6, 1e-5, 1e-4)
"""The shares of epsilon to reserve for rounding, in the order in which they are tried."""
ROUNDING_TIMES: Final = 8.0
"""The factor by which the slack in a row's smallest entry must exceed the error of rounding to integers."""
LEAST_CAP: Final = 14.0
"""The smallest acceptable cap on exponents. With a smaller cap, distant outputs would become noticeably likely."""
RATE_HALVINGS: Final = 7
"""The number of bisection steps in the search for the rate."""
LEAST_WEIGHT: Final = 1e-4
"""The weight at or below which a column is dropped when positive weights are computed."""


def star_weights(data: MetricData, distances: Floats, slack: float) -> ColumnWeights:
    """Compute the column weights of the star mechanism at a rate of epsilon (1 - slack).

    Args:
        data: The map with its epsilon, prior and costs.
        distances: (N, N) The path distances between all records.
        slack: The fraction of epsilon that is reserved for rounding errors.

    Raises:
        SolverError: A weight is not positive or is too small to be rounded, or the weights are not accurate enough.
    """
    # `step` is the part of the log-ratio between the two closest records that the slack leaves for rounding.
    rate, step = float(data.epsilon) * (1.0 - slack), slack * _min_log_ratio(data)
    # An entry at the cap must be large compared with rounding to integers: TOTAL x exp(-cap) step >= ROUNDING_TIMES.
    # The weight x is not known yet, so 1e-2 is a first guess.
    cap = _cap_of(1e-2, step)
    for _ in range(4):
        if cap < LEAST_CAP:
            break
        kernel = np.empty_like(distances)
        for rows in slices(len(distances), len(distances), BLOCK):
            kernel[rows] = steady_exp(-capped_products(distances[rows], rate, cap))
        x = _solve_ones(kernel)
        if x.min() <= 0.0:
            raise SolverError(f"{int((x <= 0).sum())} of {len(x)} are not positive")
        error = float(np.abs(kernel @ x - 1.0).max())
        # The error must be small compared with `step`. The condition is negated so that NaN is rejected as well.
        if not error <= step / 16:
            raise SolverError(f"rows sum to one only up to {error:.1e}")
        # Now that the weights are known, find the largest cap at which the smallest entry is large compared with
        # rounding errors.
        allowed = _cap_of(float(x.min()), step)
        if cap <= allowed:
            serves = _cheapest_outputs(kernel, data, data.prior)
            return ColumnWeights(weights=x, serves=serves, outputs=len(data.outputs), rate=rate, cap=cap)
        # Another cap changes the weights a little. The margin of 0.1 keeps the next cap from being too large again.
        cap = allowed - 0.1
    raise SolverError("some weight is too small to be rounded")


def normalised_weights(data: MetricData, distances: Floats) -> ColumnWeights | None:
    """Compute non-negative column weights at a rate below epsilon, for rows that need not sum to 1.

    Users divide each row by its sum, which uses up part of epsilon. Bisection finds the largest rate that leaves enough
    of epsilon for this division.

    Args:
        data: The map with its epsilon, prior and costs.
        distances: (N, N) The path distances between all records.

    Returns:
        The best weights found within the innermost time limit, or None if none were found even at half of epsilon.
    """
    pairs, lengths = data.needed
    i, j = pairs.T
    slack = SLACKS[-1]
    cap = _cap_of(LEAST_WEIGHT, slack * _min_log_ratio(data))
    if cap < LEAST_CAP:
        return None
    allowed = float(data.epsilon) * (1.0 - slack)

    def kernel_at(rate_share: float) -> Floats:
        """Return the (N, N) kernel at the given fraction of the largest allowed rate."""
        return np.asarray(np.exp(-capped_products(distances, rate_share * allowed, cap)))

    best: tuple[float, Floats] | None = None
    # Bisect the share of epsilon that the kernel can use, which is between one half and all of it.
    lower, upper, rate_share = 0.5, 1.0, 0.5
    for _ in range(RATE_HALVINGS + 1):
        kernel = kernel_at(rate_share)
        try:
            x = _positive_weights(kernel)
        except (SolverError, OutOfTime):
            break  # the best weights so far are used, and the caller checks the clock itself
        sums = np.log(kernel @ x)
        # Dividing rows by their sums uses up a part of epsilon, which is the largest log-ratio of two sums per unit of
        # distance.
        with np.errstate(over="ignore"):  # the ratio may overflow if two records are extremely close
            used_rate = float((np.abs(sums[i] - sums[j]) / lengths).max(initial=0.0))
        # The first rate, half of epsilon, needs no check, because dividing rows by their sums costs at most the other
        # half.
        if best is None or rate_share * allowed + used_rate <= allowed:
            lower, best = rate_share, (rate_share, x)
        else:
            upper = rate_share
        rate_share = (lower + upper) / 2
    if best is None:
        return None
    rate_share, x = best
    kernel = kernel_at(rate_share)
    # Users divide their rows by the sums, so a record's costs are weighted by its prior divided by its row's sum.
    serves = _cheapest_outputs(kernel, data, data.prior / (kernel @ x))
    return ColumnWeights(weights=x, serves=serves, outputs=len(data.outputs), rate=rate_share * allowed, cap=cap)


def _cap_of(weight: float, step: float) -> float:
    """Return the largest exponent at which entries are still large compared with the error of rounding to integers.

    The result is capped at 700, beyond which :func:`steady_exp` is not accurate. If ``step`` is too small, the result
    is below ``LEAST_CAP``.

    Args:
        weight: The smallest column weight, which must be positive.
        step: The part of the log-ratio between the two closest records that is reserved for rounding. It may underflow
            to 0.
    """
    ratio = float(TOTAL) * weight * step / ROUNDING_TIMES
    return min(math.log(ratio), MAX_EXPONENT) if ratio > 0.0 else 0.0


def _min_log_ratio(data: MetricData) -> float:
    """Return the smallest log-ratio allowed by epsilon between any two records at a positive distance.

    If there are no such records, the result is 1.
    """
    positive = data.distances[data.distances > 0]
    return float(data.epsilon) * float(positive.min()) if positive.size else 1.0


def _positive_weights(kernel: Floats) -> Floats:
    """Find weights x >= 0 for which the entries of ``kernel @ x`` are close to 1.

    Columns are dropped and given the weight 0 until the system for the remaining columns has a positive solution. If no
    column remains, all weights are 1 / N, and ``kernel @ x`` need not be close to 1.

    Args:
        kernel: (N, N) A symmetric matrix with positive entries.

    Returns:
        An array of shape (N,).

    Raises:
        SolverError: The kernel for the remaining columns is singular.
        OutOfTime: The innermost time limit expired.
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
    # No column is left. With equal weights, rows have the exponential form.
    return np.full(len(kernel), 1.0 / len(kernel))


def _solve_ones(kernel: Floats) -> Floats:
    """Solve ``kernel @ x = 1`` for a symmetric (N, N) kernel.

    If conjugate gradients do not converge quickly, a direct solver with one step of iterative refinement is used.

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
        # One step of iterative refinement, because kernels of close records are nearly singular.
        return np.asarray(direct + np.linalg.solve(kernel, 1.0 - kernel @ direct))
    except np.linalg.LinAlgError:
        raise SolverError("the kernel is singular") from None


def _cheapest_outputs(kernel: Floats, data: MetricData, weight: Floats) -> Ints:
    """Return, for each of the N columns, the index of the output with the smallest expected cost.

    This is the output that should receive the column's probability. Large kernels are multiplied in single precision to
    save time. This is safe because privacy does not depend on which output a column serves.

    Args:
        kernel: (N, N) The symmetric kernel, whose columns are proportional to the records' probabilities.
        data: The map with its costs.
        weight: (N,) The weight of each record's costs, such as the prior.
    """
    kind: Any = np.float32 if kernel.size > BLOCK else np.float64
    cost = (weight[:, None] * data.cost).astype(kind)
    serves = np.empty(len(kernel), dtype=np.int64)
    for rows in slices(len(kernel), len(kernel), BLOCK):
        serves[rows] = (kernel[rows].astype(kind) @ cost).argmin(axis=1)
    return serves
