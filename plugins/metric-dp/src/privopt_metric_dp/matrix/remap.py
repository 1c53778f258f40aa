"""Outputs remapped to the best guess: post-processing that costs no privacy (Chatzikokolakis et al., PoPETs 2017).

Anyone who reads output k and knows the prior would take y with the least expected loss sum_i p_i z_ik c_iy for it. To
release y in the first place is a function of the output alone. Columns are added, as integers, so every inequality
between two rows still holds. Outputs that nothing releases any more stay as columns of zeros.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Floats, Ints, slices
from privopt.errors import Fault, InputError
from privopt.interfaces import UtilityLoss
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["best_outputs", "remapped", "worse_outputs"]

LOSS_TOLERANCE: Final = 1e-9
"""Difference of two expected losses, as a part of the most to lose, up to which they are the same, not rounding apart.

The most adds up over outputs, as losses do: outputs that come together are as good as each was.
"""

BLOCK: Final = 1 << 24
"""Entries of a block of expected losses, at most."""


def best_outputs(release: MatrixRelease, weighted: Floats, *, tie: float = LOSS_TOLERANCE) -> Ints:
    """Return (K,) for each output the one with the least expected loss for its reader; itself if it is as good.

    Args:
        release: (N, K).
        weighted: (N, K) p_i c_ik: the loss of output k for record i, prior included.
        tie: up to which difference losses are the same, of what the costliest output of each record would be; of
            several the first is taken.

    Notes:
        N K^2 multiplications, in blocks.
    """
    z = release.probabilities
    count = z.shape[1]
    best = np.arange(count, dtype=np.int64)
    most = np.abs(weighted).max(axis=1)
    used = np.flatnonzero(release.weights.any(axis=0))
    for rows in slices(len(used), count, BLOCK):
        part = used[rows]
        losses = z[:, part].T @ weighted
        least = losses.min(axis=1)
        within = least + tie * (z[:, part].T @ most)
        own = losses[np.arange(len(part)), part] <= within
        best[part] = np.where(own, part, (losses <= within[:, None]).argmax(axis=1))
    return best


def remapped(release: MatrixRelease, loss: UtilityLoss[MatrixRelease], data: MetricData) -> MatrixRelease:
    """Return the release with each output replaced by its best guess; rows still sum to 2**63 and the ids stay.

    Args:
        release: any matrix.
        loss: by which guesses are judged.
        data: the problem's, for faults.

    Raises:
        InputError: a loss that is not an :class:`ExpectedLoss`, so that the best guess at one output is not known.
    """
    best = best_outputs(release, _weighted(loss, data))
    weights = np.zeros_like(release.weights)
    for k in np.flatnonzero(release.weights.any(axis=0)).tolist():
        weights[:, best[k]] += release.weights[:, k]
    return evolve(release, weights=weights)


def worse_outputs(release: MatrixRelease, loss: UtilityLoss[MatrixRelease], data: MetricData) -> list[str]:
    """Return a line for each output of a release (five at most) that another would represent at less loss."""
    best = best_outputs(release, _weighted(loss, data), tie=10 * LOSS_TOLERANCE)
    moved = np.flatnonzero(best != np.arange(len(best)))[:5].tolist()
    ids = release.outputs
    return [
        f"mechanism.npz: utility.remap is claimed, but {ids[best[k]]} would lose less than output {ids[k]}"
        for k in moved
    ]


def _weighted(loss: UtilityLoss[MatrixRelease], data: MetricData) -> Floats:
    if isinstance(loss, ExpectedLoss):
        return loss.weighted
    found = f"true beside {type(loss).__name__}, a loss of the mechanism's own"
    raise InputError([Fault(data.file, "utility.remap", found, "false, or an expected loss under the prior")])
