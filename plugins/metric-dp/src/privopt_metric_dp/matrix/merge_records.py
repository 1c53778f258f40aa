"""Merge records too near each other for separate rows: classes of them, and the problem between the classes."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.numbers.graphs import components, edge_matrix, rank_by_first_use, shortest_rows
from privopt_metric_dp.matrix.closure import Graph

__all__ = ["MAX_EXPONENT", "merge", "quotient"]

#: eps d beyond which the repair treats a pair as if it lay there: stricter, never looser.
MAX_EXPONENT = 200.0


def merge(pairs: Ints, distances: Floats, epsilon: Fraction, records: int, within: float) -> tuple[Ints, Floats]:
    """Return the class of each record, numbered by first appearance, and eps d of each pair in doubles.

    Classes are the connected components of the near pairs, so a pair between two classes is never nearer than the
    threshold: equal rows inside a class satisfy every pair there, and pairs between classes are kept. A chain of near
    records that stretches far would be flattened at a cost: there the threshold is lowered, tenfold at a time.
    """
    # capped: beyond 2**-63 a stricter row costs nothing, and exp(-745) is 0 where 1 unit must stand
    exponents = np.minimum(distances * float(epsilon), MAX_EXPONENT)
    label = np.zeros(records, dtype=np.int64)
    active = np.ones(records, dtype=bool)
    threshold = within
    while True:
        near = (exponents < threshold) & active[pairs[:, 0]] & active[pairs[:, 1]]
        near |= (distances == 0) & active[pairs[:, 0]]
        fresh, far = _classes(pairs[near], exponents[near], records, 5 * within)
        stretched = active & far if threshold > 1e-9 else np.zeros(records, dtype=bool)
        settled = active & ~stretched
        label[settled] = fresh[settled] + label.max() + 1
        if not stretched.any():
            break
        active, threshold = stretched, threshold / 10
    return rank_by_first_use(label), exponents


def _classes(pairs: Ints, exponents: Floats, records: int, reach: float) -> tuple[Ints, NDArray[np.bool_]]:
    """Components of the near pairs, and which records lie in one with members beyond ``reach`` of its first."""
    from scipy.sparse.csgraph import dijkstra

    labels = components(records, pairs)
    adjacency = edge_matrix(records, pairs, exponents)
    far = np.zeros(records, dtype=bool)
    sizes = np.bincount(labels)
    suspects = sizes[labels] > 10
    if suspects.any():
        first = np.full(len(sizes), -1, dtype=np.int64)
        first[labels[::-1]] = np.arange(records)[::-1]
        for component in np.unique(labels[suspects]):
            away = dijkstra(adjacency, directed=False, indices=first[component])
            members = labels == component
            far[members] = away[members].max() > reach
    return labels, far


def quotient(
    z: Floats, loss: Floats | None, pairs: Ints, exponents: Floats, label: Ints
) -> tuple[Floats, Graph, Floats]:
    """Return a row for each class (the mean of its members'), the nearest pair between two classes, and rows' costs."""
    classes = int(label.max()) + 1
    rows = np.zeros((classes, z.shape[1]))
    np.add.at(rows, label, z)
    rows /= np.bincount(label, minlength=classes)[:, None]
    if loss is None:
        cost = -rows  # what a solver made likely was cheap
    else:
        cost = np.zeros_like(rows)
        np.add.at(cost, label, loss)
    ends = np.sort(label[pairs], axis=1)
    kept = shortest_rows(ends, exponents)
    return rows, Graph(ends[kept], exponents[kept], classes), cost
