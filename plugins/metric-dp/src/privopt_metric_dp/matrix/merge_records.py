"""Merging of records that are too close to each other for separate rows, and the problem between merged classes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.numbers.graphs import components, edge_matrix, rank_by_first_use, shortest_rows
from privopt_metric_dp.matrix.closure import Graph

__all__ = ["MAX_EXPONENT", "merge_matrix", "merge_records"]

#: Exponents eps d above this are treated as this one, which makes their constraints stricter, never looser.
MAX_EXPONENT = 200.0


def merge_records(
    pairs: Ints, distances: Floats, epsilon: Fraction, records: int, merge_distance: float
) -> tuple[Ints, Floats]:
    """Group records that are close to each other into classes whose records will share a row.

    A pair is near if its eps d is below a threshold, and the classes are the connected components of the near pairs. So
    every pair between two classes is at least as long as the threshold, and sharing a row satisfies every pair inside a
    class. If all records in a long chain shared a row, the loss would rise sharply. So if a class is longer than five
    times the first threshold, its threshold is lowered by a factor of ten until it falls apart into shorter classes.

    Args:
        pairs: (P, 2) required pairs.
        distances: (P,) distances between the records of each pair.
        epsilon: Epsilon per unit of distance.
        records: N, the number of records.
        merge_distance: The first threshold on eps d, below which a pair is near.

    Returns:
        (N,) class of each record, numbered by first appearance, and (P,) eps d of each pair, capped at `MAX_EXPONENT`.
    """
    # The cap costs nothing: exp(-200) is below the resolution 2**-63 of weights. Without it, exp(-eps d) would
    # underflow to 0 from about eps d = 745.
    exponents = np.minimum(distances * float(epsilon), MAX_EXPONENT)
    label = np.zeros(records, dtype=np.int64)
    is_active = np.ones(records, dtype=bool)
    threshold = merge_distance
    # A record is active until its class is settled. Only active records are divided again at the next lower threshold.
    while True:
        is_near = (exponents < threshold) & is_active[pairs[:, 0]] & is_active[pairs[:, 1]]
        # Records at distance 0 stay together at any threshold, because their rows must be equal.
        is_near |= (distances == 0) & is_active[pairs[:, 0]]
        class_labels, is_stretched = _connect_near_records(
            pairs[is_near], exponents[is_near], records, 5 * merge_distance
        )
        # A threshold of 1e-9 or below is not lowered further, so its classes are settled however long they are.
        is_open = is_active & is_stretched if threshold > 1e-9 else np.zeros(records, dtype=bool)
        is_settled = is_active & ~is_open
        label[is_settled] = class_labels[is_settled] + label.max() + 1
        if not is_open.any():
            break
        is_active, threshold = is_open, threshold / 10
    return rank_by_first_use(label), exponents


def _connect_near_records(pairs: Ints, exponents: Floats, records: int, reach: float) -> tuple[Ints, NDArray[np.bool_]]:
    """Return the connected components of near records, and which records belong to a component that is too long.

    Args:
        pairs, exponents: (Q, 2) near pairs, and their eps d (Q,).
        records: N, the number of records.
        reach: A component is too long if the shortest path from its first record to any other is longer than this, in
            eps d.

    Returns:
        (N,) component of each record, and (N,) whether this component is too long.
    """
    from scipy.sparse.csgraph import dijkstra

    labels = components(records, pairs)
    adjacency = edge_matrix(records, pairs, exponents)
    is_far = np.zeros(records, dtype=bool)
    sizes = np.bincount(labels)
    # In a component of ten records, a path has at most nine near pairs, each shorter than the threshold. That is less
    # than twice the reach of five thresholds, so only larger components are measured.
    suspects = sizes[labels] > 10
    if suspects.any():
        first_members = np.full(len(sizes), -1, dtype=np.int64)
        # Records are written in descending order, so that the first member of each component is written last and stays.
        first_members[labels[::-1]] = np.arange(records)[::-1]
        for component in np.unique(labels[suspects]):
            path_lengths = dijkstra(adjacency, directed=False, indices=first_members[component])
            members = labels == component
            is_far[members] = path_lengths[members].max() > reach
    return labels, is_far


def merge_matrix(
    z: Floats, loss: Floats | None, pairs: Ints, exponents: Floats, label: Ints
) -> tuple[Floats, Graph, Floats]:
    """Return the problem between C classes of merged records: their rows, graph and costs.

    Args:
        z: (N, K) matrix.
        loss: (N, K) cost times prior, or None if it is not known.
        pairs: (P, 2) required pairs.
        exponents: (P,) eps d of each pair.
        label: (N,) class of each record.

    Returns:
        (C, K) mean row of each class, the graph of the shortest pairs between classes, and (C, K) cost of each entry.
    """
    classes = int(label.max()) + 1
    rows = np.zeros((classes, z.shape[1]))
    np.add.at(rows, label, z)
    rows /= np.bincount(label, minlength=classes)[:, None]
    if loss is None:
        cost = -rows  # without costs, an output that the solver made likely is assumed to be cheap
    else:
        cost = np.zeros_like(rows)
        np.add.at(cost, label, loss)
    class_pairs = np.sort(label[pairs], axis=1)
    # The shortest pair between two classes has the strictest inequality, so it implies the others. Pairs within a class
    # are left out.
    pair_rows = shortest_rows(class_pairs, exponents)
    return rows, Graph(class_pairs[pair_rows], exponents[pair_rows], classes), cost
