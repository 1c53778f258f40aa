"""Reduction of a matrix to fewer outputs, so that a client's artefact stays small.

Replacing one output with another is post-processing, so it may increase the loss but never weakens privacy. When
columns are added up, every inequality between two rows still holds, and rows still sum to 2**63.
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats, Ints, Unsigned
from privopt.errors import UsageError

__all__ = ["fewer_outputs"]


def fewer_outputs(weights: Unsigned, weighted: Floats, max_outputs: int) -> tuple[Unsigned, Ints]:
    """Keep the most frequent outputs, and replace every other output with the kept one that increases the loss least.

    Outputs that are never reported are always dropped.

    Args:
        weights: (N, K) The obfuscation matrix as uint64 weights, which sum to 2**63 in each row.
        weighted: (N, K) The loss of each output for each record, times the record's prior.
        max_outputs: The largest number K' of outputs to keep.

    Returns:
        The reduced matrix, of shape (N, K'), and the (K',) ascending indices of the kept outputs.

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
    # All records count equally here. The prior, which is part of ``weighted``, only decides which output replaces a
    # dropped one.
    frequencies = probabilities[:, used_outputs].mean(axis=0)
    kept_outputs = np.sort(used_outputs[np.argsort(-frequencies, kind="stable")[:max_outputs]])
    joined_weights = weights[:, kept_outputs].copy()
    dropped_outputs = np.setdiff1d(used_outputs, kept_outputs)
    # Entry (d, k) of the product is the expected loss if kept output k is reported in place of dropped output d.
    best_columns = (probabilities[:, dropped_outputs].T @ weighted[:, kept_outputs]).argmin(axis=1)
    for output, column in zip(dropped_outputs.tolist(), best_columns.tolist(), strict=True):
        # Sums of integers are exact, and row sums remain 2**63, so nothing overflows.
        joined_weights[:, column] += weights[:, output]
    return joined_weights, kept_outputs
