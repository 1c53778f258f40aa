"""Reduce the number of outputs, so that an artefact stays small. This increases the loss and never weakens privacy.

Reporting y in place of k is a function of the report alone. So each inequality between two rows still holds after
columns have been added up, and rows still add up to 2**63.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats, Ints, Unsigned
from privopt.errors import UsageError

__all__ = ["fewer_outputs"]


def fewer_outputs(weights: Unsigned, weighted: Floats, max_outputs: int) -> tuple[Unsigned, Ints]:
    """Keep the most frequent outputs, and replace each of the others by the kept output that loses least.

    Args:
        weights: (N, K) uint64; each row adds up to 2**63.
        weighted: (N, K) The loss of output k for record i, times the prior of i.
        max_outputs: The greatest number of outputs to keep. Outputs that are never reported are omitted in any case.

    Returns:
        (N, K') uint64 weights, and the (K',) numbers of the kept outputs, in order.

    Raises:
        UsageError: Not even one output may be kept.
    """
    if max_outputs < 1:
        raise UsageError(f"export: rows must fit into 1 MB, got {len(weights):,} records: export fewer places")
    probabilities = weights / 2.0**63
    used_outputs = np.flatnonzero(weights.any(axis=0))
    if len(used_outputs) <= max_outputs:
        return weights[:, used_outputs], used_outputs
    frequencies = probabilities[:, used_outputs].mean(axis=0)
    kept_outputs = np.sort(used_outputs[np.argsort(-frequencies, kind="stable")[:max_outputs]])
    column_by_output = {output: column for column, output in enumerate(kept_outputs.tolist())}
    joined_weights = weights[:, kept_outputs].copy()
    dropped_outputs = np.setdiff1d(used_outputs, kept_outputs)
    best_columns = (probabilities[:, dropped_outputs].T @ weighted[:, kept_outputs]).argmin(axis=1)
    for output, column in zip(dropped_outputs.tolist(), best_columns.tolist(), strict=True):
        assert output not in column_by_output
        joined_weights[:, column] += weights[:, output]
    return joined_weights, kept_outputs
