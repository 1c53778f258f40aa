"""Optimal remapping of outputs, which is post-processing and costs no privacy (Chatzikokolakis et al., PoPETs 2017).

A reader who sees output k and knows the prior p would replace it by the output y with the smallest expected loss, the
sum over records i of p_i z_ik c_iy. Since y depends on the output alone, releasing y directly costs no privacy. The
columns of the outputs that become y are added as integer weights, so every inequality between two rows still holds.
Outputs that are no longer released remain as columns of zeros.
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

__all__ = ["best_outputs", "improvable_outputs", "remap_outputs"]

LOSS_TOLERANCE: Final = 1e-9
"""Expected losses that differ by at most this, relative to the largest possible loss, count as equal.

Like the losses themselves, the largest possible loss adds up when two outputs are joined. So outputs that tie before
they are joined still tie afterwards.
"""

BLOCK: Final = 1 << 24
"""Largest number of expected losses that are computed at a time."""


def best_outputs(release: MatrixRelease, weighted: Floats, *, tie: float = LOSS_TOLERANCE) -> Ints:
    """Return, for each output, the output that a reader should use in its place for the smallest expected loss.

    An output is kept if no other output would have a smaller loss in its place. If several outputs tie for the smallest
    loss, the first one is used.

    Args:
        release: A release with N records and K outputs.
        weighted: (N, K) p_i c_ik, the loss of output k for record i times the prior.
        tie: Tolerance within which the losses of two replacements for an output count as equal, relative to the largest
            possible loss of the output.

    Returns:
        (K,) indices of the replacements. An output that is never released is kept.

    Notes:
        This takes N K^2 multiplications, in blocks.
    """
    z = release.probabilities
    count = z.shape[1]
    best_output = np.arange(count, dtype=np.int64)
    max_losses = np.abs(weighted).max(axis=1)
    used_outputs = np.flatnonzero(release.weights.any(axis=0))
    for rows in slices(len(used_outputs), count, BLOCK):
        block_outputs = used_outputs[rows]
        losses = z[:, block_outputs].T @ weighted
        min_losses = losses.min(axis=1)
        # The second term is the tolerance, `tie` times the largest possible expected loss of each output.
        max_tied_losses = min_losses + tie * (z[:, block_outputs].T @ max_losses)
        keeps_output = losses[np.arange(len(block_outputs)), block_outputs] <= max_tied_losses
        best_output[block_outputs] = np.where(
            keeps_output, block_outputs, (losses <= max_tied_losses[:, None]).argmax(axis=1)
        )
    return best_output


def remap_outputs(release: MatrixRelease, loss: UtilityLoss[MatrixRelease], data: MetricData) -> MatrixRelease:
    """Return the release with each output replaced by its best guess. Rows still sum to 2**63, and no id changes.

    Args:
        release: The release to remap.
        loss: The loss that determines the best guess.
        data: The problem's data, whose file an error message names.

    Raises:
        InputError: The loss is not an :class:`ExpectedLoss`, and only an expected loss defines a best guess.
    """
    best = best_outputs(release, _weighted_costs(loss, data))
    weights = np.zeros_like(release.weights)
    for k in np.flatnonzero(release.weights.any(axis=0)).tolist():
        weights[:, best[k]] += release.weights[:, k]
    return evolve(release, weights=weights)


def improvable_outputs(release: MatrixRelease, loss: UtilityLoss[MatrixRelease], data: MetricData) -> list[str]:
    """Return error messages for outputs that another output should have replaced, at most five.

    Args:
        release: A release that claims to be remapped.
        loss: The loss that determines the best guess.
        data: The problem's data.

    Raises:
        InputError: The loss is not an :class:`ExpectedLoss`, and only an expected loss defines a best guess.
    """
    # The tolerance is wider than that of the remapping, so that a correct release is not refused because another
    # machine rounds differently.
    best_output = best_outputs(release, _weighted_costs(loss, data), tie=10 * LOSS_TOLERANCE)
    improvable = np.flatnonzero(best_output != np.arange(len(best_output)))[:5].tolist()
    ids = release.outputs
    return [
        f"mechanism.npz: utility.remap is claimed, but {ids[best_output[k]]} would lose less than output {ids[k]}"
        for k in improvable
    ]


def _weighted_costs(loss: UtilityLoss[MatrixRelease], data: MetricData) -> Floats:
    """Return the costs (N, K) of an expected loss, with each row multiplied by the prior of its record.

    Args:
        loss: The mechanism's loss.
        data: The problem's data, whose file an error message names.

    Raises:
        InputError: The loss is not an :class:`ExpectedLoss`, and only an expected loss defines a best guess.
    """
    if isinstance(loss, ExpectedLoss):
        return loss.weighted
    actual = f"true with {type(loss).__name__}, a loss of the mechanism's own"
    raise InputError([Fault(data.file, "utility.remap", actual, "false, or an expected loss under the prior")])
