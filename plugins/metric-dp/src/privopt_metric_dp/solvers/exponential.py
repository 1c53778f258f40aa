"""The exponential mechanism of metric DP (McSherry and Talwar 2007, with the distance as score)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats, Ints, slices
from privopt.errors import Fault, InputError
from privopt.execution.clock import check
from privopt.execution.limits import in_threads
from privopt_metric_dp.problem.data import MetricData

__all__ = ["exponential", "exponential_loss", "largest_share"]

_BLOCK = 1 << 22
_SAFETY_SHARE = 1e-9
"""Share of a pair's epsilon d that is left to the roundings of `largest_share`."""
_BISECTION_STEPS = 20
_MAX_FACTOR = 64.0


def exponential(distances: npt.ArrayLike, epsilon: float, *, share: float = 0.5) -> Floats:
    """Return z_ik proportional to exp(-share epsilon d_ik).

    The entries use one half of epsilon, the row sums the other half: if |d_ik - d_jk| <= d_ij (triangle inequality),
    then z_ik <= exp(epsilon d_ij) z_jk. LR-Geo prints the cost instead of the distance, which does not imply this. A
    larger share than half may be private too, see `largest_share`.

    >>> exponential([[0.0, 2.0], [2.0, 0.0]], 1.0).round(4).tolist()
    [[0.7311, 0.2689], [0.2689, 0.7311]]

    Args:
        distances: (N, K) distances of at least 0 from records to outputs. An infinite one has probability 0.
        epsilon: Epsilon per unit of distance, above 0.
        share: Share of epsilon in the exponents, above 0.

    Returns:
        (N, K) matrix whose rows sum to 1 up to rounding. Entries with share epsilon (d - nearest) > 745 underflow to 0;
        the repair of every release raises them.

    Raises:
        InputError: A distance is negative or NaN, or a record reaches no output.
    """
    d = np.asarray(distances, dtype=np.float64)
    nearest = d.min(axis=1, keepdims=True)
    if not (nearest >= 0).all():  # NaN is the least of its row
        invalid = np.argwhere(~(d >= 0))[:20].tolist()
        raise InputError(
            [Fault("distance", f"row {r}, column {c}", repr(float(d[r, c])), "at least 0") for r, c in invalid]
        )
    if np.isinf(nearest).any():
        lost = np.flatnonzero(np.isinf(nearest))[:20].tolist()
        raise InputError([Fault("distance", f"row {r}", "no output within reach", "at least one") for r in lost])
    shares = np.empty(d.shape)

    def fill(start: int, stop: int) -> None:
        part = np.subtract(d[start:stop], nearest[start:stop], out=shares[start:stop])
        part *= -share * epsilon
        np.exp(part, out=part)
        part /= part.sum(axis=1, keepdims=True)

    in_threads(fill, len(d))
    return shares


def largest_share(distances: Floats, epsilon: float, pairs: Ints, lengths: Floats) -> float:
    """Find the largest share of epsilon, at least half, at which `exponential` satisfies every pair, by bisection.

    Args:
        distances: (N, K) distances from records to outputs. If one is infinite, it must be for both
            records of a pair.
        epsilon: Epsilon per unit of distance.
        pairs: (P, 2) required pairs, or enough of them to imply the others.
        lengths: (P,) their distances.

    Raises:
        OutOfTime: The time limit has come.

    Notes:
        P K differences once, then N K exponentials a step.
    """
    if not len(pairs):
        return 1.0
    i, j = pairs.T
    nearest = distances.min(axis=1, keepdims=True)
    farther, nearer = _differences(distances, i, j)
    allowed = epsilon * lengths * (1.0 - _SAFETY_SHARE)

    def is_private(trial_share: float) -> bool:
        rate = trial_share * epsilon
        with np.errstate(under="ignore"):
            sums = np.log(np.exp(-rate * (distances - nearest)).sum(axis=1)) - rate * nearest[:, 0]
        drift = sums[i] - sums[j]
        return bool((np.maximum(rate * nearer - drift, rate * farther + drift) <= allowed).all())

    lower, upper = 0.5, 1.0
    while is_private(upper) and upper < _MAX_FACTOR:
        check()
        lower, upper = upper, 2.0 * upper
    for _ in range(_BISECTION_STEPS):
        check()
        middle = 0.5 * (lower + upper)
        lower, upper = (middle, upper) if is_private(middle) else (lower, middle)
    return lower


def _differences(distances: Floats, i: Ints, j: Ints) -> tuple[Floats, Floats]:
    """Return the largest d_ik - d_jk and d_jk - d_ik of each pair, over the outputs k."""
    farther, nearer = np.empty(len(i)), np.empty(len(i))
    for part in slices(len(i), distances.shape[1], _BLOCK):
        check()
        with np.errstate(invalid="ignore"):
            changes = distances[i[part]] - distances[j[part]]
        np.nan_to_num(changes, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)  # out of reach of both
        farther[part], nearer[part] = changes.max(axis=1), -changes.min(axis=1)
    return farther, nearer


def exponential_loss(data: MetricData) -> float | None:
    """Return the exponential mechanism's expected loss; None if distances to outputs are unknown, or all infinite."""
    if not data.crossed:
        return None
    records, losses = np.arange(len(data.records)), []
    for part in slices(len(records), len(data.outputs), _BLOCK):
        reach = data.metric.to_outputs(records[part])
        if not np.isfinite(reach.min(axis=1)).all():
            return None
        losses.append(np.einsum("ik,ik->i", exponential(reach, float(data.epsilon)), data.weighted[part]))
    return math.fsum(np.concatenate(losses).tolist())
