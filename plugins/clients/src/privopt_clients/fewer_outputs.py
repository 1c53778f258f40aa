"""Reduction of a matrix to fewer outputs, which keeps the artefact of a client small.

Replacing one output with another is post-processing, so it can increase the loss but never weakens privacy. Every
inequality between two rows remains valid when columns are added together, and rows still sum to 2**63.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats, Ints, Unsigned
from privopt.errors import UsageError

__all__ = ["fewer_outputs"]


def fewer_outputs(weights: Unsigned, weighted: Floats, max_outputs: int) -> tuple[Unsigned, Ints]:
    """Keep the most frequent outputs, and replace every other output with the kept one that increases the loss least.

    Outputs that no row can produce are always dropped.

    Args:
        weights: (N, K) The obfuscation matrix as uint64 weights that sum to 2**63 in each row.
        weighted: (N, K) The loss of each output for each record, multiplied by the record's prior.
        max_outputs: The maximum number of outputs to keep.

    Returns:
        The reduced matrix, with one column per kept output, and the indices of the kept outputs in ascending order.

    Raises:
        UsageError: ``max_outputs`` is below 1.
    """
    if max_outputs < 1:
        raise UsageError(
            f"export: rows must fit into max-bytes, but for {len(weights):,} records not even one output fits: export "
            "fewer places, or allow more bytes"
        )
    probabilities = weights / 2.0**63
    used_outputs = np.flatnonzero(weights.any(axis=0))
    if len(used_outputs) <= max_outputs:
        return weights[:, used_outputs], used_outputs
    # All records count equally here. The prior, contained in ``weighted``, only affects which output replaces a dropped
    # one.
    frequencies = probabilities[:, used_outputs].mean(axis=0)
    kept_outputs = np.sort(used_outputs[np.argsort(-frequencies, kind="stable")[:max_outputs]])
    joined_weights = weights[:, kept_outputs].copy()
    dropped_outputs = np.setdiff1d(used_outputs, kept_outputs)
    # Entry (d, k) of the product is the expected loss of reporting the kept output k whenever output d would be drawn.
    best_columns = (probabilities[:, dropped_outputs].T @ weighted[:, kept_outputs]).argmin(axis=1)
    for output, column in zip(dropped_outputs.tolist(), best_columns.tolist(), strict=True):
        # Nothing can overflow, because each row's sum stays 2**63.
        joined_weights[:, column] += weights[:, output]
    return joined_weights, kept_outputs
