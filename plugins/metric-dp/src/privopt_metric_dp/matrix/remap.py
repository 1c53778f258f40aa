"""Optimal remapping of outputs, which is post-processing and costs no privacy (Chatzikokolakis et al., PoPETs 2017).

Let p_i be the prior of record i, z_ik the probability of output k for record i, and c_iy the cost of output y for
record i. A recipient who sees output k and knows the prior minimises the expected loss by replacing k with the output y
that minimises the sum of p_i z_ik c_iy over i. Since y depends only on k, releasing y directly costs no privacy. For
each y, the columns of all outputs replaced by y are added up as integer weights, so every inequality between two rows
is preserved. Outputs that are no longer released remain as columns of zeros.
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
"""The largest difference at which two expected losses count as equal, relative to the largest possible loss.

When two outputs are merged, their expected losses and their largest possible losses both add up. Replacements that tie
before the merge therefore still tie after it.
"""

BLOCK: Final = 1 << 24
"""The maximum number of expected losses to compute at a time."""


def best_outputs(release: MatrixRelease, weighted: Floats, *, tie: float = LOSS_TOLERANCE) -> Ints:
    """Return each output's best replacement, i.e. the output that minimises the expected loss.

    An output is kept if no replacement has a smaller expected loss. If several replacements tie for the smallest loss,
    the first one is used. The computation takes N K^2 multiplications and is done in blocks.

    Args:
        release: A release with N records and K outputs.
        weighted: (N, K) The prior times the loss, p_i c_ik, for record i and output k.
        tie: The largest difference at which two replacements for an output still tie, as a fraction of the largest
            possible loss of that output.

    Returns:
        (K,) The index of each output's replacement. An output that is never released is kept.
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
        # The second term is the tolerance: `tie` times the largest possible expected loss of each output.
        max_tied_losses = min_losses + tie * (z[:, block_outputs].T @ max_losses)
        keeps_output = losses[np.arange(len(block_outputs)), block_outputs] <= max_tied_losses
        best_output[block_outputs] = np.where(
            keeps_output, block_outputs, (losses <= max_tied_losses[:, None]).argmax(axis=1)
        )
    return best_output


def remap_outputs(release: MatrixRelease, loss: UtilityLoss[MatrixRelease], data: MetricData) -> MatrixRelease:
    """Return the release with each output replaced by the output that minimises the expected loss.

    Rows still sum to 2**63, and the ids of records and outputs stay the same.

    Args:
        release: The release to remap.
        loss: The mechanism's loss, which must be an :class:`ExpectedLoss`.
        data: The problem's data, including the name of the problem file for error messages.

    Raises:
        InputError: The loss is not an :class:`ExpectedLoss`, so the optimal replacement is undefined.
    """
    best = best_outputs(release, _weighted_costs(loss, data))
    weights = np.zeros_like(release.weights)
    for k in np.flatnonzero(release.weights.any(axis=0)).tolist():
        weights[:, best[k]] += release.weights[:, k]
    return evolve(release, weights=weights)


def improvable_outputs(release: MatrixRelease, loss: UtilityLoss[MatrixRelease], data: MetricData) -> list[str]:
    """Return up to five error messages, one for each output that could be replaced to reduce the expected loss.

    Args:
        release: A release that claims to be remapped.
        loss: The mechanism's loss, which must be an :class:`ExpectedLoss`.
        data: The problem's data, including the name of the problem file for error messages.

    Raises:
        InputError: The loss is not an :class:`ExpectedLoss`, so the optimal replacement is undefined.
    """
    # The tolerance is wider than in `remap_outputs`, so that a correct release is not rejected because another machine
    # rounds differently.
    best_output = best_outputs(release, _weighted_costs(loss, data), tie=10 * LOSS_TOLERANCE)
    improvable = np.flatnonzero(best_output != np.arange(len(best_output)))[:5].tolist()
    ids = release.outputs
    return [
        f"mechanism.npz: utility.remap is claimed, but {ids[best_output[k]]} would lose less than output {ids[k]}"
        for k in improvable
    ]


def _weighted_costs(loss: UtilityLoss[MatrixRelease], data: MetricData) -> Floats:
    """Return the costs of an expected loss, multiplied by the prior.

    Args:
        loss: The mechanism's loss, which must be an :class:`ExpectedLoss`.
        data: The problem's data, including the name of the problem file for error messages.

    Returns:
        (N, K) The products p_i c_ik for each record i and output k.

    Raises:
        InputError: The loss is not an :class:`ExpectedLoss`, so the optimal replacement is undefined.
    """
    if isinstance(loss, ExpectedLoss):
        return loss.weighted
    actual = f"true with {type(loss).__name__}, a loss of the mechanism's own"
    raise InputError([Fault(data.file, "utility.remap", actual, "false, or an expected loss under the prior")])
