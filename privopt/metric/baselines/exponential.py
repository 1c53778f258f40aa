"""The exponential mechanism of metric DP (McSherry and Talwar 2007, with the distance as score)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats
from privopt.errors import Fault, InputError

if TYPE_CHECKING:
    from privopt.metric.data import MetricData

__all__ = ["exponential", "exponential_loss"]

_BLOCK = 1 << 22


def exponential(distances: npt.ArrayLike, epsilon: float, *, source: str = "distance") -> Floats:
    """z_ik proportional to exp(-epsilon d_ik / 2).

    One half of epsilon goes to the entries, one half to the rows' sums: where |d_ik - d_jk| <= d_ij
    (the triangle inequality) z_ik <= exp(epsilon d_ij) z_jk. LR-Geo prints the cost in place of the
    distance, which does not give that.

    >>> exponential([[0.0, 2.0], [2.0, 0.0]], 1.0).round(4).tolist()
    [[0.7311, 0.2689], [0.2689, 0.7311]]

    Args:
        distances: (N, K) from records to outputs, at least 0; an infinite one gets probability 0.
        epsilon: above 0, per unit of distance.
        source: what faults are reported against.

    Returns:
        (N, K), rows sum to 1 within rounding. Entries beyond epsilon (d - nearest) / 2 = 745 underflow to 0:
        the repair that every release goes through raises them.

    Raises:
        InputError: NaN or negative distances, or a record that reaches no output.
    """
    d = np.asarray(distances, dtype=np.float64)
    bad = np.argwhere(~(d >= 0))
    faults = [Fault(source, f"row {r}, column {c}", repr(float(d[r, c])), "at least 0") for r, c in bad[:20].tolist()]
    nearest = d.min(axis=1, keepdims=True)
    if not faults:
        lost = np.flatnonzero(np.isinf(nearest))[:20].tolist()
        faults = [Fault(source, f"row {r}", "no output within reach", "at least one") for r in lost]
    if faults:
        raise InputError(faults)
    weights = np.exp((-0.5 * epsilon) * (d - nearest))
    shares: Floats = weights / weights.sum(axis=1, keepdims=True)
    return shares


def exponential_loss(data: MetricData) -> float | None:
    """Expected loss of the exponential mechanism; None where distances to outputs are unknown, or all infinite."""
    if not data.crossed:
        return None
    count, losses = len(data.records), []
    step = max(1, _BLOCK // max(1, len(data.outputs)))
    for start in range(0, count, step):
        rows = np.arange(start, min(count, start + step))
        reach = data.metric.to_outputs(rows)
        if not np.isfinite(reach.min(axis=1)).all():
            return None
        losses.append(np.einsum("ik,ik->i", exponential(reach, float(data.epsilon)), data.weighted[rows]))
    return math.fsum(np.concatenate(losses).tolist())
