"""Measure how often, and by how much, rows from different users' matrices violate metric DP.

LR-Geo guarantees metric DP only inside each user's matrix. The measures are those of Qiu et al., PoPETs 2025.
"""

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
"""The largest relative excess over the allowed ratio that does not count as a violation.

Repairs can leave an excess this small.
"""
MOST_COMPARISONS: Final = 2_000_000_000
"""The largest number of comparisons (row pairs times outputs) for which all rows of all matrices are compared.

Above this number, only the rows from which users draw their reports are compared.
"""
BLOCK: Final = 1 << 16
"""The number of row pairs compared per batch."""


def across_users(data: MetricData, released: LRGeoRelease) -> dict[str, Any]:
    """Measure the GV (Geo-Ind violation) ratio and error between rows from different users' matrices.

    The ratio is the share of inequalities that are violated (Equation (34)), and the error is the size of the
    violations (Equation (35)). Two rows are compared if they belong to the same record or to the records of a required
    pair. If the users' matrices are available and the number of comparisons is not too large, all rows of all matrices
    are compared. Otherwise, only the rows from which users draw their reports are compared.

    Args:
        data: The map with its required pairs.
        released: The users' rows, and their matrices if available.

    Returns:
        The attributes of :class:`privopt_metric_dp.attacks.matrix_figures.Violations` by name, and two more entries:
        ``over`` says which rows were compared, and ``tolerance`` is the largest relative excess that is not counted.
    """
    matrices = released.matrices
    # Without the users' matrices, the released rows count as one matrix.
    parts: Mapping[str, MatrixRelease] = {"": released} if matrices is None else matrices
    record = data.records.numbers(name for part in parts.values() for name in part.records.tolist())
    compared_rows = "own rows" if matrices is None else "all rows of all users' matrices"
    # On large maps, the users' matrices have too many rows, so only the rows that users report from are compared.
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
    """Return the number of pairs of rows to compare, multiplied by the number of outputs.

    Args:
        data: The map with its required pairs.
        record: (R,) The index of each row's record. Several rows may belong to the same record, because users' matrices
            overlap.
    """
    count = np.bincount(record, minlength=len(data.records))
    i, j = data.pairs.reshape(-1, 2).T
    # Any two rows for the same record form a pair. For each required pair of records, so do any row for one record and
    # any row for the other.
    return int((count * (count - 1) // 2).sum() + (count[i] * count[j]).sum()) * len(data.outputs)


def _list_row_pairs(data: MetricData, record: Ints) -> tuple[Ints, Floats]:
    """List the pairs of rows that belong to the same record or to the two records of a required pair.

    Args:
        data: The map with its required pairs.
        record: (R,) The index of each row's record.

    Returns:
        A (Q, 2) array of row indices, and a (Q,) array of the distances between the rows' records.
    """
    # The rows are sorted by record, so that those for record i begin at first_rows[i]. Pairs refer to this order and
    # are translated back at the end.
    order = np.argsort(record, kind="stable")
    first_rows = np.searchsorted(record[order], np.arange(len(data.records)))
    count = np.bincount(record, minlength=len(data.records))
    has_rows = (count[data.pairs] > 0).all(axis=1)
    pairs, lengths = data.pairs[has_rows].reshape(-1, 2), data.distances[has_rows]
    # Several matrices can have a row for the same record. These are at distance 0, where metric DP would require equal
    # rows.
    repeated = np.flatnonzero(count > 1)
    same_record = [np.column_stack(np.triu_indices(int(count[i]), 1)) + first_rows[i] for i in repeated.tolist()]
    i, j = pairs.T
    pair_counts = count[i] * count[j]
    pair_numbers = np.repeat(np.arange(len(pairs)), pair_counts)
    # Every row for one record is paired with every row for the other. `offsets` numbers these row pairs from 0 within
    # each pair of records.
    offsets = np.arange(int(pair_counts.sum())) - np.repeat(np.cumsum(pair_counts) - pair_counts, pair_counts)
    row_pairs = np.column_stack(
        [
            first_rows[i[pair_numbers]] + offsets // count[j[pair_numbers]],
            first_rows[j[pair_numbers]] + offsets % count[j[pair_numbers]],
        ]
    )
    all_pairs = np.concatenate([*same_record, row_pairs]).astype(np.int64).reshape(-1, 2)
    return order[all_pairs], np.concatenate([np.zeros(sum(map(len, same_record))), lengths[pair_numbers]])
