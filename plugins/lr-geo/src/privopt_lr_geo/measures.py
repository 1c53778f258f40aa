"""Measure how far rows of different users' matrices violate the inequality of metric DP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats, Ints
from privopt_lr_geo.release import LRGeoRelease
from privopt_metric_dp.attacks import matrix_figures as attack
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["across_users"]

EXCESS_TOLERANCE: Final = 1e-9
"""Relative excess that a repair may leave. It is not counted as a violation."""
MOST_COMPARISONS: Final = 2_000_000_000
"""Pairs of rows times outputs beyond which only the users' own rows are compared."""
BLOCK: Final = 1 << 16
"""Pairs of rows that are compared at once."""


def across_users(data: MetricData, released: LRGeoRelease) -> dict[str, Any]:
    """Return GV ratio (Equation (34)) and error (35) over the required pairs and over equal places of different users.

    All rows of all users' matrices are compared if they are available and not too many. Otherwise only the rows from
    which users report are.
    """
    matrices = released.matrices
    parts: Mapping[str, MatrixRelease] = {"": released} if matrices is None else matrices
    record = data.records.numbers(name for part in parts.values() for name in part.records.tolist())
    compared_rows = "own rows" if matrices is None else "all rows of all users' matrices"
    if _count_comparisons(data, record) > MOST_COMPARISONS:
        parts, compared_rows = {"": released}, "own rows"
        record = data.records.numbers(released.records.tolist())
    pairs, lengths = _list_row_pairs(data, record)
    z = np.concatenate([part.probabilities for part in parts.values()])
    blocks = [(pairs[s : s + BLOCK], lengths[s : s + BLOCK]) for s in range(0, len(pairs), BLOCK)]
    violations = attack.count_violations(z, blocks, float(data.epsilon), tolerance=EXCESS_TOLERANCE)
    names = ("ratio", "error", "mean_error", "violated", "checked")
    return {**{name: getattr(violations, name) for name in names}, "over": compared_rows, "tolerance": EXCESS_TOLERANCE}


def _count_comparisons(data: MetricData, record: Ints) -> int:
    """Count the inequalities between rows of these records (M,), repeated as they occur."""
    count = np.bincount(record, minlength=len(data.records))
    i, j = data.pairs.reshape(-1, 2).T
    return int((count * (count - 1) // 2).sum() + (count[i] * count[j]).sum()) * len(data.outputs)


def _list_row_pairs(data: MetricData, record: Ints) -> tuple[Ints, Floats]:
    """List the pairs of rows of the same record or of a required pair of records, and their distances."""
    order = np.argsort(record, kind="stable")
    first_rows = np.searchsorted(record[order], np.arange(len(data.records)))
    count = np.bincount(record, minlength=len(data.records))
    has_rows = (count[data.pairs] > 0).all(axis=1)
    pairs, lengths = data.pairs[has_rows].reshape(-1, 2), data.distances[has_rows]
    repeated = np.flatnonzero(count > 1)
    same_record = [np.column_stack(np.triu_indices(int(count[i]), 1)) + first_rows[i] for i in repeated.tolist()]
    i, j = pairs.T
    pair_counts = count[i] * count[j]
    pair_numbers = np.repeat(np.arange(len(pairs)), pair_counts)
    offsets = np.arange(int(pair_counts.sum())) - np.repeat(np.cumsum(pair_counts) - pair_counts, pair_counts)
    row_pairs = np.column_stack(
        [
            first_rows[i[pair_numbers]] + offsets // count[j[pair_numbers]],
            first_rows[j[pair_numbers]] + offsets % count[j[pair_numbers]],
        ]
    )
    all_pairs = np.concatenate([*same_record, row_pairs]).astype(np.int64).reshape(-1, 2)
    return order[all_pairs], np.concatenate([np.zeros(sum(map(len, same_record))), lengths[pair_numbers]])
