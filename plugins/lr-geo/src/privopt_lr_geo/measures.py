"""What users with matrices of their own leave open: violations across users, measured and as the paper bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt_lr_geo.lr_sets import Surroundings
from privopt_metric_dp.attacks import matrix_figures as attack
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["MOST_COMPARISONS", "across_users", "comparisons", "proposition_bound"]


TOLERANCE: Final = 1e-9
"""An excess up to this, relative, is left by the repair and not counted as a violation."""
MOST_COMPARISONS: Final = 2_000_000_000
"""Pairs of rows times outputs beyond which the users' own rows alone are compared."""


def _pairs_of_rows(data: MetricData, record: Ints) -> tuple[Ints, Floats]:
    """Rows of the same record, or of a required pair of records, as pairs of rows, and their distances."""
    order = np.argsort(record, kind="stable")
    first = np.searchsorted(record[order], np.arange(len(data.records)))
    count = np.bincount(record, minlength=len(data.records))
    here = (count[data.pairs] > 0).all(axis=1)
    pairs, lengths = data.pairs[here], data.distances[here]
    many = np.flatnonzero(count > 1)
    same = [np.column_stack(np.triu_indices(int(count[i]), 1)) + first[i] for i in many.tolist()]
    i, j = pairs.T if len(pairs) else np.zeros((2, 0), dtype=np.int64)
    each = count[i] * count[j]
    left = np.repeat(np.arange(len(pairs)), each)
    inside = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
    ends = np.column_stack([first[i[left]] + inside // count[j[left]], first[j[left]] + inside % count[j[left]]])
    found = np.concatenate([*same, ends]).astype(np.int64).reshape(-1, 2)
    zeros = np.zeros(sum(map(len, same)))
    return order[found], np.concatenate([zeros, lengths[left]])


def comparisons(data: MetricData, record: Ints) -> int:
    """How many inequalities there are between rows of these records (M,), each row of a record's as often as it is."""
    count = np.bincount(record, minlength=len(data.records))
    i, j = data.pairs.T if len(data.pairs) else np.zeros((2, 0), dtype=np.int64)
    return int((count * (count - 1) // 2).sum() + (count[i] * count[j]).sum()) * len(data.outputs)


def across_users(data: MetricData, own: MatrixRelease, matrices: Mapping[str, MatrixRelease] | None) -> dict[str, Any]:
    """GV ratio (Equation (34)) and error (35) over the required pairs, same places of different users included.

    Rows of all users' matrices are compared with each other where they are at hand and not too many, else the rows
    that users really report from.
    """
    every = {"": own} if matrices is None else matrices
    record = data.records.numbers(name for part in every.values() for name in part.records.tolist())
    over = "own rows" if matrices is None else "all rows of all users' matrices"
    if comparisons(data, record) > MOST_COMPARISONS:
        every, over = {"": own}, "own rows"
        record = data.records.numbers(own.records.tolist())
    pairs, lengths = _pairs_of_rows(data, record)
    z = np.concatenate([part.probabilities for part in every.values()])
    step = 1 << 16
    blocks = [(pairs[s : s + step], lengths[s : s + step]) for s in range(0, len(pairs), step)]
    found = attack.violations(z, blocks, float(data.epsilon), tolerance=TOLERANCE)
    return {
        "ratio": found.ratio,
        "error": found.error,
        "mean_error": found.mean_error,
        "violated": found.violated,
        "checked": found.checked,
        "over": over,
        "tolerance": TOLERANCE,
    }


def proposition_bound(around: Sequence[Surroundings], tied: Sequence[NDArray[np.bool_]]) -> float:
    """Proposition 4.5, Equation (30). It counts all pairs of rows: with a finite gamma it bounds nothing.

    Args:
        around: each user's LR set.
        tied: (n, K) for each, q_ik = 1.
    """
    rows = sum(len(part.records) for part in around)
    outputs = tied[0].shape[1]
    counts = [part.sum(axis=0).astype(np.float64) for part in tied]
    total = np.sum(counts, axis=0)
    # sum over n < m of sum_k counts_n counts_m
    across = (float((total**2).sum()) - sum(float((count**2).sum()) for count in counts)) / 2
    inside = sum(len(part.records) * (len(part.records) - 1) for part in around) * outputs
    if rows < 2:
        return 0.0
    return max(0.0, 1.0 - float(2 * across + inside) / float(rows * (rows - 1) * outputs))
