"""Merge records that are too close together to have different rows, and set up the problem for the merged records."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.numbers.graphs import components, edge_matrix, rank_by_first_use, shortest_rows
from privopt_metric_dp.matrix.closure import Graph

__all__ = ["MAX_EXPONENT", "merge_matrix", "merge_records"]

#: Cap on the exponents eps d, which can only make constraints stricter.
MAX_EXPONENT = 200.0


def merge_records(
    pairs: Ints, distances: Floats, epsilon: Fraction, records: int, merge_distance: float
) -> tuple[Ints, Floats]:
    """Group records that are very close together into classes whose records will share a row.

    The exponent of a pair is epsilon times its distance. A pair is near if its exponent is below a threshold, and the
    classes are the connected components of the graph of near pairs. Pairs between two classes therefore have exponents
    of at least the threshold, and the constraints within a class are satisfied because its records share a row.

    If all records in a long chain shared a row, the loss would rise sharply. Therefore, a class that extends over more
    than five times the first threshold is split by dividing its threshold by ten, repeatedly if necessary. A threshold
    of 1e-9 or below is not divided any further.

    Args:
        pairs: Array of shape (P, 2) with the record indices of each required pair.
        distances: Array of shape (P,) with the distance between the two records of each pair.
        epsilon: Epsilon per unit of distance.
        records: N, the number of records.
        merge_distance: The first threshold.

    Returns:
        An array of shape (N,) with the class of each record, numbered by first appearance, and an array of shape (P,)
        with the exponent of each pair, capped at `MAX_EXPONENT`.
    """
    # The cap does not affect the result, because exp(-200) is far below 2**-63, the resolution of weights. Without it,
    # exp(-eps d) would underflow to 0 at about eps d = 745.
    exponents = np.minimum(distances * float(epsilon), MAX_EXPONENT)
    label = np.zeros(records, dtype=np.int64)
    is_active = np.ones(records, dtype=bool)
    threshold = merge_distance
    # A record is active until its class is final. Only active records are grouped again at the next threshold.
    while True:
        is_near = (exponents < threshold) & is_active[pairs[:, 0]] & is_active[pairs[:, 1]]
        # Records at distance 0 stay together whatever the threshold, because their rows must be equal.
        is_near |= (distances == 0) & is_active[pairs[:, 0]]
        class_labels, is_stretched = _connect_near_records(
            pairs[is_near], exponents[is_near], records, 5 * merge_distance
        )
        # A threshold of 1e-9 or below is not lowered any further, so its classes are final however long they are.
        is_open = is_active & is_stretched if threshold > 1e-9 else np.zeros(records, dtype=bool)
        is_settled = is_active & ~is_open
        label[is_settled] = class_labels[is_settled] + label.max() + 1
        if not is_open.any():
            break
        is_active, threshold = is_open, threshold / 10
    return rank_by_first_use(label), exponents


def _connect_near_records(pairs: Ints, exponents: Floats, records: int, reach: float) -> tuple[Ints, NDArray[np.bool_]]:
    """Find the connected components of the graph of near pairs, and decide which of them are too long.

    A component of at most ten records is never too long, because its paths consist of at most nine near pairs.

    Args:
        pairs: Array of shape (Q, 2) with the record indices of each near pair.
        exponents: Array of shape (Q,) with epsilon times the distance of each near pair.
        records: N, the number of records.
        reach: The path length above which a component is too long. The length of a path is the sum of its pairs'
            exponents. Only shortest paths from the component's first record are measured.

    Returns:
        An array of shape (N,) with the component of each record, and a boolean array of shape (N,) that indicates
        whether that component is too long.
    """
    from scipy.sparse.csgraph import dijkstra

    labels = components(records, pairs)
    adjacency = edge_matrix(records, pairs, exponents)
    is_far = np.zeros(records, dtype=bool)
    sizes = np.bincount(labels)
    # In a component of ten records, a path has at most nine near pairs, each shorter than the threshold, which is less
    # than twice the reach of five thresholds. Only larger components are therefore measured.
    suspects = sizes[labels] > 10
    if suspects.any():
        first_members = np.full(len(sizes), -1, dtype=np.int64)
        # Records are assigned in descending order, so that the first member of each component is assigned last.
        first_members[labels[::-1]] = np.arange(records)[::-1]
        for component in np.unique(labels[suspects]):
            path_lengths = dijkstra(adjacency, directed=False, indices=first_members[component])
            members = labels == component
            is_far[members] = path_lengths[members].max() > reach
    return labels, is_far


def merge_matrix(
    z: Floats, loss: Floats | None, pairs: Ints, exponents: Floats, label: Ints
) -> tuple[Floats, Graph, Floats]:
    """Return the rows, required pairs and costs for classes of merged records.

    Args:
        z: The matrix, as an array of shape (N, K).
        loss: Array of shape (N, K) with the costs times the prior, or None if they are not known.
        pairs: Array of shape (P, 2) with the record indices of each required pair.
        exponents: Array of shape (P,) with epsilon times the distance of each pair.
        label: Array of shape (N,) with the class of each record.

    Returns:
        An array of shape (C, K) with the mean rows of the C classes; the graph of the classes, with the shortest pair
        between any two classes as an edge; and an array of shape (C, K) with the cost of each entry. If ``loss`` is
        None, entries with larger values are taken to be cheaper.
    """
    classes = int(label.max()) + 1
    rows = np.zeros((classes, z.shape[1]))
    np.add.at(rows, label, z)
    rows /= np.bincount(label, minlength=classes)[:, None]
    if loss is None:
        cost = -rows  # without costs, outputs that the solver made likely are taken to be cheap
    else:
        cost = np.zeros_like(rows)
        np.add.at(cost, label, loss)
    class_pairs = np.sort(label[pairs], axis=1)
    # The shortest pair between two classes has the strictest constraint, which implies those of the other pairs. Pairs
    # within a class are left out.
    pair_rows = shortest_rows(class_pairs, exponents)
    return rows, Graph(class_pairs[pair_rows], exponents[pair_rows], classes), cost
