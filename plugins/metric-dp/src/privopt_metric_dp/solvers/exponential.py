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
"""Largest number of entries in a block of distances."""
_SAFETY_SHARE = 1e-9
"""Share of a pair's epsilon d that is reserved for the rounding errors of `largest_share`."""
_BISECTION_STEPS = 20
_MAX_SHARE = 64.0
"""Largest share that is tried."""


def exponential(distances: npt.ArrayLike, epsilon: float, *, share: float = 0.5) -> Floats:
    """Return z_ik proportional to exp(-share epsilon d_ik).

    At a share of one half, the entries use one half of epsilon and the row sums the other half: if |d_ik - d_jk| <=
    d_ij (triangle inequality), then z_ik <= exp(epsilon d_ij) z_jk. The LR-Geo paper prints the cost instead of the
    distance, for which this does not follow. A share above one half may be private too (see `largest_share`).

    >>> exponential([[0.0, 2.0], [2.0, 0.0]], 1.0).round(4).tolist()
    [[0.7311, 0.2689], [0.2689, 0.7311]]

    Args:
        distances: (N, K) distances of at least 0 from records to outputs. An output at infinite distance has
            probability 0.
        epsilon: Epsilon per unit of distance, above 0.
        share: Share of epsilon in the exponents, above 0.

    Returns:
        (N, K) matrix whose rows sum to 1 up to rounding. An entry underflows to 0 if share epsilon times the excess of
        its distance over the row's smallest is above 745; the repair of every release raises such entries.

    Raises:
        InputError: A distance is negative or NaN, or a record reaches no output.
    """
    d = np.asarray(distances, dtype=np.float64)
    nearest = d.min(axis=1, keepdims=True)
    # An error names at most 20 entries or rows. The minimum of a row with a NaN is NaN, so this test finds NaN as well.
    if not (nearest >= 0).all():
        invalid = np.argwhere(~(d >= 0))[:20].tolist()
        raise InputError(
            [Fault("distance", f"row {r}, column {c}", repr(float(d[r, c])), "at least 0") for r, c in invalid]
        )
    if np.isinf(nearest).any():
        unreachable = np.flatnonzero(np.isinf(nearest))[:20].tolist()
        raise InputError([Fault("distance", f"row {r}", "no output within reach", "at least one") for r in unreachable])
    # Exponents are relative to the nearest output, so that each row has a term exp(0) and no sum underflows to 0.
    shares = np.empty(d.shape)

    def fill(start: int, stop: int) -> None:
        """Fill rows ``start`` to ``stop`` of the result."""
        part = np.subtract(d[start:stop], nearest[start:stop], out=shares[start:stop])
        part *= -share * epsilon
        np.exp(part, out=part)
        part /= part.sum(axis=1, keepdims=True)

    in_threads(fill, len(d))
    return shares


def largest_share(distances: Floats, epsilon: float, pairs: Ints, lengths: Floats) -> float:
    """Return the largest share of epsilon, at least one half, at which `exponential` satisfies every pair.

    The share is found by bisection.

    Args:
        distances: (N, K) distances from records to outputs. If one record of a pair is at infinite distance from an
            output, the other must be too.
        epsilon: Epsilon per unit of distance.
        pairs: (P, 2) required pairs, or enough of them to imply the others.
        lengths: (P,) distances of the pairs.

    Raises:
        OutOfTime: The time limit has expired.

    Notes:
        Computes P K differences once, and N K exponentials in each step.
    """
    if not len(pairs):
        return 1.0
    i, j = pairs.T
    nearest = distances.min(axis=1, keepdims=True)
    # With S_i = sum_k exp(-rate d_ik), log z_ik - log z_jk = rate (d_jk - d_ik) - (log S_i - log S_j). Over k only the
    # largest difference of distances matters, so that a step of the bisection takes N K exponentials instead of P K.
    farther, nearer = _differences(distances, i, j)
    allowed = epsilon * lengths * (1.0 - _SAFETY_SHARE)

    def is_private(trial_share: float) -> bool:
        """Return whether the mechanism at a share of epsilon satisfies every pair, with a margin for rounding."""
        rate = trial_share * epsilon
        with np.errstate(under="ignore"):
            # log S_i, relative to the nearest output so that no sum underflows to 0.
            sums = np.log(np.exp(-rate * (distances - nearest)).sum(axis=1)) - rate * nearest[:, 0]
        drift = sums[i] - sums[j]
        # The larger of both directions of the pair, z_i over z_j and the reverse.
        return bool((np.maximum(rate * nearer - drift, rate * farther + drift) <= allowed).all())

    # `lower` is always a share that is private: 1/2 by the triangle inequality, the others because they were tried. The
    # result is therefore private even if shares above it and below it are not.
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
    """Return the largest d_ik - d_jk and the largest d_jk - d_ik over the outputs k, both (P,).

    Args:
        distances: (N, K) distances from records to outputs.
        i, j: (P,) the two records of each pair.
    """
    farther, nearer = np.empty(len(i)), np.empty(len(i))
    for part in slices(len(i), distances.shape[1], _BLOCK):
        check()
        with np.errstate(invalid="ignore"):
            changes = distances[i[part]] - distances[j[part]]
        # Infinite less infinite: an output that neither record reaches has probability 0 for both.
        np.nan_to_num(changes, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)
        farther[part], nearer[part] = changes.max(axis=1), -changes.min(axis=1)
    return farther, nearer


def exponential_loss(data: MetricData) -> float | None:
    """Return the exponential mechanism's expected loss under the prior, in the unit of the costs.

    Returns None if distances to outputs are unknown, or if some record reaches no output.
    """
    if not data.crossed:  # the distances to outputs are unknown
        return None
    records, losses = np.arange(len(data.records)), []
    for part in slices(len(records), len(data.outputs), _BLOCK):
        reach = data.metric.to_outputs(records[part])
        if not np.isfinite(reach.min(axis=1)).all():
            return None
        losses.append(np.einsum("ik,ik->i", exponential(reach, float(data.epsilon)), data.weighted[part]))
    return math.fsum(np.concatenate(losses).tolist())
