"""Violations between users who have their own matrices, measured."""

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
"""An excess up to this, relative, is left by the repair and not counted as a violation."""
MOST_COMPARISONS: Final = 2_000_000_000
"""Pairs of rows times outputs beyond which the users' own rows alone are compared."""
BLOCK: Final = 1 << 16
"""Pairs of rows that are compared at once."""


def across_users(data: MetricData, released: LRGeoRelease) -> dict[str, Any]:
    """Return GV ratio (Equation (34)) and error (35) over the required pairs, same places of different users included.

    Rows of all users' matrices are compared with each other where they are available and not too many, else the rows
    that users really report from.
    """
    matrices = released.matrices
    every: Mapping[str, MatrixRelease] = {"": released} if matrices is None else matrices
    record = data.records.numbers(name for part in every.values() for name in part.records.tolist())
    over = "own rows" if matrices is None else "all rows of all users' matrices"
    if _comparisons(data, record) > MOST_COMPARISONS:
        every, over = {"": released}, "own rows"
        record = data.records.numbers(released.records.tolist())
    pairs, lengths = _pairs_of_rows(data, record)
    z = np.concatenate([part.probabilities for part in every.values()])
    blocks = [(pairs[s : s + BLOCK], lengths[s : s + BLOCK]) for s in range(0, len(pairs), BLOCK)]
    found = attack.count_violations(z, blocks, float(data.epsilon), tolerance=EXCESS_TOLERANCE)
    names = ("ratio", "error", "mean_error", "violated", "checked")
    return {**{name: getattr(found, name) for name in names}, "over": over, "tolerance": EXCESS_TOLERANCE}


def _comparisons(data: MetricData, record: Ints) -> int:
    """Count the inequalities between rows of these records (M,), repeated as they occur."""
    count = np.bincount(record, minlength=len(data.records))
    i, j = data.pairs.reshape(-1, 2).T
    return int((count * (count - 1) // 2).sum() + (count[i] * count[j]).sum()) * len(data.outputs)


def _pairs_of_rows(data: MetricData, record: Ints) -> tuple[Ints, Floats]:
    """Rows of the same record, or of a required pair of records, as pairs of rows, and their distances."""
    order = np.argsort(record, kind="stable")
    first = np.searchsorted(record[order], np.arange(len(data.records)))
    count = np.bincount(record, minlength=len(data.records))
    here = (count[data.pairs] > 0).all(axis=1)
    pairs, lengths = data.pairs[here].reshape(-1, 2), data.distances[here]
    many = np.flatnonzero(count > 1)
    same = [np.column_stack(np.triu_indices(int(count[i]), 1)) + first[i] for i in many.tolist()]
    i, j = pairs.T
    each = count[i] * count[j]
    left = np.repeat(np.arange(len(pairs)), each)
    inside = np.arange(int(each.sum())) - np.repeat(np.cumsum(each) - each, each)
    ends = np.column_stack([first[i[left]] + inside // count[j[left]], first[j[left]] + inside % count[j[left]]])
    found = np.concatenate([*same, ends]).astype(np.int64).reshape(-1, 2)
    return order[found], np.concatenate([np.zeros(sum(map(len, same))), lengths[left]])
