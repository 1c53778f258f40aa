"""The exponential mechanism for metric DP (McSherry and Talwar 2007, with the distance as score)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats, Ints, slices
from privopt.errors import Fault, InputError
from privopt.execution.clock import check
from privopt.execution.resources import in_threads
from privopt_metric_dp.problem.data import MetricData

__all__ = ["exponential", "exponential_loss", "largest_share"]

_BLOCK = 1 << 22
"""The maximum number of distances processed at a time."""
_SAFETY_SHARE = 1e-9
"""The fraction of a pair's epsilon d that `largest_share` reserves for rounding errors."""
_BISECTION_STEPS = 20
"""The number of bisection steps in `largest_share`."""
_MAX_SHARE = 64.0
"""The share at which `largest_share` stops doubling."""


def exponential(distances: npt.ArrayLike, epsilon: float, *, share: float = 0.5) -> Floats:
    """Return the matrix with entries z_ik proportional to exp(-share epsilon d_ik).

    Here, d_ik is the distance from record i to output k, and d_ij is the distance between records i and j. With a share
    of 1/2, the triangle inequality |d_ik - d_jk| <= d_ij implies z_ik <= exp(epsilon d_ij) z_jk: half of epsilon covers
    the entries before normalisation, and the other half covers the row sums. The LR-Geo paper uses the cost instead of
    the distance, but costs need not satisfy this inequality. Larger shares may also be private (see `largest_share`).

    >>> exponential([[0.0, 2.0], [2.0, 0.0]], 1.0).round(4).tolist()
    [[0.7311, 0.2689], [0.2689, 0.7311]]

    Args:
        distances: Array of shape (N, K) with non-negative distances from records to outputs. An output at an infinite
            distance gets probability 0.
        epsilon: Epsilon per unit of distance, which must be positive.
        share: The factor applied to epsilon in the exponents, which must be positive.

    Returns:
        Array of shape (N, K) whose rows sum to 1, up to rounding. An entry underflows to 0 if its distance exceeds the
        smallest distance in its row by more than about 745 / (share epsilon). The repair that precedes every release
        raises such entries.

    Raises:
        InputError: A distance is negative or NaN, or a record is at an infinite distance from all outputs.
    """
    d = np.asarray(distances, dtype=np.float64)
    nearest = d.min(axis=1, keepdims=True)
    # The minimum of a row that contains NaN is NaN, so this test finds NaN as well. An error names at most 20 entries.
    if not (nearest >= 0).all():
        invalid = np.argwhere(~(d >= 0))[:20].tolist()
        raise InputError(
            [Fault("distance", f"row {r}, column {c}", repr(float(d[r, c])), "at least 0") for r, c in invalid]
        )
    if np.isinf(nearest).any():
        unreachable = np.flatnonzero(np.isinf(nearest))[:20].tolist()
        raise InputError([Fault("distance", f"row {r}", "no output within reach", "at least one") for r in unreachable])
    # Exponents are relative to the nearest output, so that each row contains a term exp(0) and no sum underflows to 0.
    shares = np.empty(d.shape)

    def fill(start: int, stop: int) -> None:
        """Compute rows ``start`` to ``stop - 1`` of the result."""
        part = np.subtract(d[start:stop], nearest[start:stop], out=shares[start:stop])
        part *= -share * epsilon
        np.exp(part, out=part)
        part /= part.sum(axis=1, keepdims=True)

    in_threads(fill, len(d))
    return shares


def largest_share(distances: Floats, epsilon: float, pairs: Ints, lengths: Floats) -> float:
    """Search for the largest ``share`` at which the matrix of `exponential` satisfies all privacy constraints.

    The search uses bisection.

    Args:
        distances: Array of shape (N, K) with the distances from records to outputs. If one record of a pair is at an
            infinite distance from an output, the other must be too.
        epsilon: Epsilon per unit of distance.
        pairs: Array of shape (P, 2) with the pairs of records covered by the guarantee, or enough of them to imply the
            rest.
        lengths: Array of shape (P,) with the distances between the records of each pair.

    Returns:
        A share of at least one half and at most `_MAX_SHARE`, at which every pair satisfies its privacy constraint.

    Raises:
        OutOfTime: The time limit expired.

    Notes:
        P K differences are computed once, and N K exponentials are computed in each step.
    """
    if not len(pairs):
        return 1.0
    i, j = pairs.T
    nearest = distances.min(axis=1, keepdims=True)
    # With S_i = sum_k exp(-rate d_ik), log z_ik - log z_jk = rate (d_jk - d_ik) - (log S_i - log S_j). Only the largest
    # difference between distances over all k matters, so a bisection step takes N K exponentials instead of P K.
    farther, nearer = _differences(distances, i, j)
    allowed = epsilon * lengths * (1.0 - _SAFETY_SHARE)

    def is_private(trial_share: float) -> bool:
        """Return whether the mechanism with this share satisfies all constraints, with a margin for rounding errors."""
        rate = trial_share * epsilon
        with np.errstate(under="ignore"):
            # `sums` is log S_i. Exponents are relative to the nearest output, so that no sum underflows to 0.
            sums = np.log(np.exp(-rate * (distances - nearest)).sum(axis=1)) - rate * nearest[:, 0]
        drift = sums[i] - sums[j]
        # The larger of the log ratios in the pair's two directions, z_i over z_j and the reverse.
        return bool((np.maximum(rate * nearer - drift, rate * farther + drift) <= allowed).all())

    # `lower` is always a private share: 1/2 is private by the triangle inequality, and all others were tested. The
    # result is therefore private even if privacy is not monotonic in the share.
    lower, upper = 0.5, 1.0
    while is_private(upper) and upper < _MAX_SHARE:
        check()
        lower, upper = upper, 2.0 * upper
    for _ in range(_BISECTION_STEPS):
        check()
        middle = 0.5 * (lower + upper)
        lower, upper = (middle, upper) if is_private(middle) else (lower, middle)
    return lower


def _differences(distances: Floats, i: Ints, j: Ints) -> tuple[Floats, Floats]:
    """Return the largest d_ik - d_jk and the largest d_jk - d_ik over all outputs k, for each pair (i, j).

    Args:
        distances: Array of shape (N, K) with the distances from records to outputs.
        i, j: Arrays of shape (P,) with the indices of the first and the second record of each pair.

    Returns:
        Two arrays of shape (P,), with the largest d_ik - d_jk and with the largest d_jk - d_ik.
    """
    farther, nearer = np.empty(len(i)), np.empty(len(i))
    for part in slices(len(i), distances.shape[1], _BLOCK):
        check()
        with np.errstate(invalid="ignore"):
            changes = distances[i[part]] - distances[j[part]]
        # Infinity minus infinity is NaN. An output that neither record reaches has probability 0 for both, so the
        # difference is set to 0.
        np.nan_to_num(changes, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)
        farther[part], nearer[part] = changes.max(axis=1), -changes.min(axis=1)
    return farther, nearer


def exponential_loss(data: MetricData) -> float | None:
    """Return the exponential mechanism's expected loss under the prior, in the same units as the costs.

    Returns None if distances to outputs are unknown, or if some record is at an infinite distance from all outputs.
    """
    if not data.crossed:  # distances to outputs are unknown
        return None
    records, losses = np.arange(len(data.records)), []
    for part in slices(len(records), len(data.outputs), _BLOCK):
        reach = data.metric.to_outputs(records[part])
        if not np.isfinite(reach.min(axis=1)).all():
            return None
        losses.append(np.einsum("ik,ik->i", exponential(reach, float(data.epsilon)), data.weighted[part]))
    return math.fsum(np.concatenate(losses).tolist())
