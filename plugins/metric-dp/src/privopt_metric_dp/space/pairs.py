"""The required pairs of records, and a small subset whose constraints imply the others.

A pair is implied if some path over other pairs is no longer than the pair's distance, because the bounds along a path
multiply (Theorem 3.1 of Qiu, IJCAI 2024). Lengths are compared as exact sums of the stored doubles, because rounded
sums along a line often differ in the last bit from the distance between its ends.
"""

from __future__ import annotations

from collections.abc import Callable
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from privopt.arrays import Bools, Floats, Ints, read_only, slices
from privopt.errors import Fault, InputError
from privopt.execution.clock import check
from privopt.numbers.graphs import components, edge_matrix, shortest_rows
from privopt_metric_dp.space.metrics import Metric

__all__ = [
    "check_neighbours",
    "consistent",
    "farthest",
    "needed_pairs",
    "not_implied",
    "reduce_pairs",
    "required_pairs",
]


_ALL_PAIRS: WeakValueDictionary[int, Ints] = WeakValueDictionary()
"""All pairs of n records, keyed by n. Arrays are shared while in use, so ``verify`` can reuse the arrays made by
``solve``."""
_TRIANGLE_TOLERANCE = 1e-9  # the relative violation of the triangle inequality that is attributed to rounding
_BLOCK = 1 << 22  # the maximum number of distances in memory at a time
_MIN_SAMPLED_RECORDS = 1_000  # with more records, a sample decides whether it is worthwhile to reduce all pairs
_SAMPLE_RECORDS = 16  # the number of records in the sample
_PAIRS_PER_CHECK = 50_000  # the number of pairs between two checks of the time limit
_RARE_SHARE = 1e-2  # if at most this fraction of the pairs is implied, a search for them is not worth the time


def required_pairs(metric: Metric, within: float | None = None) -> tuple[Ints, Floats]:
    """Return the pairs of records that the guarantee must cover, and their distances.

    Args:
        metric: The distances between N records.
        within: The largest distance of a required pair, compared with distances as returned by the metric. By default,
            every pair is required.

    Returns:
        The pairs i < j in lexicographic order, of shape (P, 2), and their distances in the metric's unit, of shape
        (P,). Pairs at an infinite distance, such as places without a connecting road, impose no constraint and are
        omitted. If ``within`` is given, time and memory grow with P rather than with N^2.

    Raises:
        InputError: ``within`` is negative or not a number.
    """
    if within is not None and not within >= 0:
        raise InputError([Fault("privacy.neighbours_within", "", repr(within), "a number of at least 0")])
    if within is not None:
        pairs, distances = metric.neighbours(within)
    else:
        # A list of all pairs takes 16 bytes per pair, so it is shared by problems with the same number of records.
        shared_pairs = _ALL_PAIRS.get(metric.size)
        pairs = read_only(_list_all_pairs(metric.size)) if shared_pairs is None else shared_pairs
        _ALL_PAIRS[metric.size] = pairs
        distances = metric.between(pairs[:, 0], pairs[:, 1])
    finite = np.isfinite(distances)
    return (pairs, distances) if finite.all() else (pairs[finite], distances[finite])


def check_neighbours(metric: Metric, distances: Floats, within: float, *, file: str, unit: str) -> None:
    """Reject a neighbour distance limit that is below the smallest positive distance between records.

    With such a limit, no record would be hidden among others.

    Args:
        metric: The distances between the records.
        distances: (P,) The distances of the pairs within the limit.
        within: The limit, ``privacy.neighbours_within``.
        file, unit: The name of the problem file and the unit of distance, for the error message.

    Raises:
        InputError: No record has a neighbour at a positive distance within the limit, although not all records are at
            the same place.
    """
    if distances.any():
        return
    # All distances within the limit are 0. To find the smallest positive distance for the message, blocks of rows are
    # computed.
    min_distance, limit = np.inf, f"{within!r} {unit}"
    for part in slices(metric.size, metric.size, 1 << 21):
        rows = metric.rows(np.arange(part.start, part.stop))
        min_distance = min(min_distance, float(rows[rows > 0].min(initial=np.inf)))
    if np.isfinite(min_distance):
        actual = f"{limit}, less than the smallest positive distance between two records, {min_distance!r}"
        expectation = f"at least {min_distance!r}, so that records have neighbours"
    elif np.isinf(metric.rows(np.array([0]))).any():
        actual, expectation = f"{limit}, with no road between two records", "roads that connect records"
    else:
        return  # all records are at one place, so their rows must be equal
    raise InputError([Fault(file, "privacy.neighbours_within", actual, expectation)])


def farthest(metric: Metric, count: int) -> Ints:
    """Select ``count`` records that are far apart, starting with record 0.

    Each record is as far as possible from those selected before it (Gonzalez, 1985). The selected records are
    preliminary outputs for mechanisms that choose their outputs from the records.

    Args:
        metric: The distances between N records.
        count: The number of records to select, from 1 to N.

    Returns:
        (count,) The indices of the records in ascending order.
    """
    min_distances, selected = metric.rows(np.zeros(1, dtype=np.int64))[0], [0]
    while len(selected) < count:
        # The distance of a selected record is set to -1, below the 0 of other records at the same place, so that it is
        # not selected again.
        min_distances[selected[-1]] = -1.0
        selected.append(int(min_distances.argmax()))
        min_distances = np.minimum(min_distances, metric.rows(np.array(selected[-1:]))[0])
    return np.sort(selected)


def reduce_pairs(pairs: Ints, distances: Floats, *, slack: float = 0.0) -> Bools:
    """Return a mask of pairs to keep, such that the constraints of the kept pairs imply all others.

    Without slack, a pair is dropped only if a path over kept pairs is no longer than the pair's distance, in exact
    arithmetic. The kept pairs are then the smallest set that implies all others, up to ties at distance 0. With slack
    s, the path may be (1 + s) times as long as the pair's distance. A mechanism that satisfies the constraints for the
    kept pairs at eps / (1 + s) then satisfies them for every pair at eps.

    The time spent on a node grows with the number of pairs within reach of the node, i.e. within the length of its
    longest pair. For 4,000 records with 60 neighbours each, the total is 0.1 s. For all pairs of N records, the time
    grows roughly with N^3: 0.2 s for 400 records, 1.3 s for 800 and 12 s for 1,600.

    Args:
        pairs: (P, 2) The indices of the two distinct nodes of each pair.
        distances: (P,) The non-negative distance of each pair. Pairs at an infinite distance are dropped.
        slack: The relative slack s, far below 1.

    Returns:
        (P,) Whether to keep each pair.

    Raises:
        OutOfTime: The time limit has expired.
    """
    pairs, distances = _check_pairs(pairs, distances)
    keep = np.zeros(len(pairs), dtype=np.bool_)
    # Records at distance 0 from each other form a cluster. A spanning tree implies all other pairs within a cluster,
    # and one pair between two clusters is enough.
    forest, cluster = _merge_zeros(pairs, distances)
    keep[forest] = True
    candidates, joined = _shortest_between_clusters(cluster[pairs], distances)
    if len(candidates):
        weights = distances[candidates]
        # A detour may only use a quarter of the slack, because its edges may in turn be dropped in favour of other
        # detours. It must have at least two edges, because each pair is itself an edge.
        has_detour = _has_short_path(joined, weights, joined, _stretch_bounds(weights, slack / 4), two_edges=True)
        keep[candidates[~has_detour]] = True
    if slack > 0:
        # Even so, nested detours may exceed the slack together. So pairs whose shortest path over kept pairs has become
        # too long are restored.
        keep[not_implied(pairs[keep], distances[keep], pairs, distances, slack=slack)] = True
    return keep


def needed_pairs(
    metric: Metric, required: Callable[[], tuple[Ints, Floats]], *, within: float | None = None
) -> tuple[Ints, Floats]:
    """Reduce the required pairs to a subset whose constraints imply the others.

    The reduction starts from the set returned by :meth:`Metric.implying`, if there is one. For a road metric, that set
    consists of the pairs connected by a path that passes through no third record. Finding it takes a second for 50,000
    places.

    Args:
        metric: The distances between N records.
        required: A function that returns the required pairs and their distances. It is called only if
            :meth:`Metric.implying` returns None.
        within: The largest distance of a required pair.

    Returns:
        The kept pairs in lexicographic order, of shape (S, 2), and their distances, of shape (S,).
    """
    candidates = metric.implying(within)
    if candidates is None:
        candidates = required()
        if not has_implied_pairs(*candidates):
            return candidates
    is_needed = reduce_pairs(*candidates)
    return candidates[0][is_needed], candidates[1][is_needed]


def has_implied_pairs(pairs: Ints, distances: Floats, *, slack: float = 0.0, rare: float = _RARE_SHARE) -> bool:
    """Return whether searching for implied pairs is likely to be worthwhile.

    The result is True unless there are many records and every two of them form a pair. In such a complete set, for
    example all pairs of 5,000 word vectors, the search may take minutes and find hardly any implied pairs. The decision
    is then based on a sample of records. Keeping implied pairs makes the model larger, but no less correct.

    Args:
        pairs: (P, 2) The pairs i < j in lexicographic order.
        distances: (P,) The distance of each pair.
        slack: The relative amount by which a path may exceed the pair's distance.
        rare: The largest fraction of implied pairs in the sample for which the result is False.
    """
    n = int(pairs.max(initial=-1)) + 1
    if n <= _MIN_SAMPLED_RECORDS or len(pairs) != n * (n - 1) // 2:
        return True
    # The table's diagonal stays infinite, so that no detour begins with a step from the source to itself.
    table = np.full((n, n), np.inf)
    table[pairs[:, 0], pairs[:, 1]] = table[pairs[:, 1], pairs[:, 0]] = distances
    implied_count = 0
    for source in np.linspace(0, n - 1, _SAMPLE_RECORDS).astype(np.int64).tolist():
        detours = np.full(n, np.inf)  # the length of the shortest two-edge path from the source to each record
        for start in range(0, n, 64):  # blocks of middle records keep the sums in the processor's cache
            part = table[start : start + 64] + table[source, start : start + 64, None]
            np.minimum(detours, part.min(axis=0), out=detours)
        detours[source] = np.inf
        # 1 is subtracted for the source itself, which is counted because both of its values are infinite.
        implied_count += int((detours <= table[source] * (1.0 + slack)).sum()) - 1
    return implied_count > rare * _SAMPLE_RECORDS * n


def not_implied(subset: Ints, subset_distances: Floats, pairs: Ints, distances: Floats, *, slack: float = 0.0) -> Ints:
    """Return the row indices of the ``pairs`` that are not implied by any path over ``subset``, in exact arithmetic.

    Args:
        subset: (S, 2) The pairs that paths may use.
        subset_distances: (S,) The distance of each of these pairs.
        pairs: (P, 2) The pairs that should be implied.
        distances: (P,) The distance of each of these pairs. A pair at an infinite distance is always implied.
        slack: The relative amount by which a path may exceed the pair's distance.

    Returns:
        The sorted row indices into ``pairs``, as int64. Empty if all pairs are implied.
    """
    subset, subset_distances = _check_pairs(subset, subset_distances)
    pairs, distances = _check_pairs(pairs, distances)
    # A pair of a record with itself is implied, and a pair at an infinite distance imposes no constraint.
    finite = np.flatnonzero(np.isfinite(distances) & (pairs[:, 0] != pairs[:, 1]))
    usable = np.isfinite(subset_distances) & (subset[:, 0] != subset[:, 1])
    implied = _has_short_path(
        subset[usable],
        subset_distances[usable],
        pairs[finite],
        _stretch_bounds(distances[finite], slack),
        two_edges=False,
    )
    return finite[~implied].astype(np.int64)


def consistent(table: Floats, pairs: Ints, lengths: Floats) -> Floats:
    """Lower the entries of a table just enough to satisfy the triangle inequality for the given pairs.

    The triangle inequality requires that the rows of a pair's two records differ by at most the pair's distance in
    every column. If the table satisfies it up to rounding, it is returned unchanged. Otherwise, its entries are
    replaced by the lengths of shortest paths over the pairs.

    Args:
        table: (N, K) The distances from records to outputs, which may be infinite.
        pairs: (P, 2) The record indices of each pair.
        lengths: (P,) The distance of each pair, in the unit of the table.
    """
    for part in slices(len(pairs), table.shape[1], _BLOCK):
        i, j = pairs[part].T
        rows, other_rows = table[i], table[j]
        # Infinite entries are replaced by 0 before the subtraction, because inf - inf is NaN. If only one record of a
        # pair has a finite distance to an output, the inequality is violated.
        together = np.isfinite(rows) & np.isfinite(other_rows)
        changes = np.abs(np.where(together, rows, 0.0) - np.where(together, other_rows, 0.0))
        changes[np.isfinite(rows) != np.isfinite(other_rows)] = np.inf
        if (changes > lengths[part, None] + _TRIANGLE_TOLERANCE * np.where(together, rows + other_rows, 0.0)).any():
            return _shortest_path_lengths(table, pairs, lengths)
    return table


def _shortest_path_lengths(table: Floats, pairs: Ints, lengths: Floats) -> Floats:
    """Return the lengths of the shortest paths between records and outputs, as an array of shape (N, K).

    A path leads from an output to a record, with the length given by the table, and from there along pairs.

    Args:
        table: (N, K) The distances from records to outputs, which may be infinite.
        pairs: (P, 2) The record indices of each pair.
        lengths: (P,) The distance of each pair.
    """
    from scipy.sparse.csgraph import dijkstra

    n, outputs = table.shape
    i, k = np.nonzero(np.isfinite(table))
    # The outputs are the nodes n to n + K - 1. They only have outgoing edges, because no path may pass through an
    # output.
    edges = np.concatenate([pairs, pairs[:, ::-1], np.column_stack([n + k, i])])
    graph = edge_matrix(n + outputs, edges, np.concatenate([lengths, lengths, table[i, k]]))
    ways = dijkstra(graph, directed=True, indices=np.arange(n, n + outputs))
    return np.asarray(ways[:, :n].T, dtype=np.float64)


def _list_all_pairs(n: int) -> Ints:
    """Return all pairs i < j of n records in lexicographic order, as an array of shape (n (n - 1) / 2, 2)."""
    pairs = np.empty((n * (n - 1) // 2, 2), dtype=np.int64)
    start, records = 0, np.arange(n)
    # The array is filled record by record, because each temporary array over all pairs would take 100 MB at 5,000
    # records.
    for i in range(n):
        stop = start + n - 1 - i
        pairs[start:stop, 0], pairs[start:stop, 1] = i, records[i + 1 :]
        start = stop
    return pairs


def _check_pairs(pairs: npt.ArrayLike, distances: npt.ArrayLike) -> tuple[Ints, Floats]:
    """Convert pairs and distances to arrays of shapes (P, 2) and (P,), and validate them.

    Raises:
        InputError: The arrays differ in length, a node index is negative, or a distance is negative or not a number.
    """
    index = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    lengths = np.asarray(distances, dtype=np.float64).reshape(-1)
    faults = []
    if len(index) != len(lengths):
        faults.append(Fault("pairs", "", f"{len(lengths)} distances for {len(index)} pairs", "one distance per pair"))
    if index.size and index.min() < 0:
        faults.append(Fault("pairs", f"row {int(index.min(axis=1).argmin())}", str(index.min()), "nodes from 0"))
    # Every comparison with NaN is false, so the comparison is negated to count NaN as a fault.
    if not (lengths >= 0).all():
        row = int(np.flatnonzero(~(lengths >= 0))[0])
        faults.append(Fault("pairs", f"row {row}", f"distance {float(lengths[row])!r}", "a number of at least 0"))
    if faults:
        raise InputError(faults)
    return index, lengths


def _stretch_bounds(distances: Floats, slack: float) -> Floats:
    """Return the bounds (1 + slack) d as doubles, rounded down but never below d.

    Args:
        distances: (P,) The distances d.
        slack: The non-negative relative amount by which a path may exceed d.
    """
    return np.maximum(distances, distances * (1.0 + slack) * (1.0 - 2.0**-50))


def _merge_zeros(pairs: Ints, distances: Floats) -> tuple[Ints, Ints]:
    """Return a spanning forest of the pairs at distance 0, and the cluster to which each node belongs.

    A cluster contains the nodes that are connected by pairs at distance 0.

    Args:
        pairs: (P, 2) The node indices of each pair.
        distances: (P,) The non-negative distance of each pair.

    Returns:
        The row indices of the pairs in the forest, sorted, and the index of each node's cluster, of shape (n,).
    """
    from scipy.sparse.csgraph import minimum_spanning_tree

    n = int(pairs.max()) + 1 if pairs.size else 0
    zero = np.flatnonzero((distances == 0) & (pairs[:, 0] != pairs[:, 1]))
    if not zero.size:
        return zero, np.arange(n)
    # The weights are row indices plus 1, so that the first of several pairs that connect the same components is
    # selected.
    forest = minimum_spanning_tree(edge_matrix(n, np.sort(pairs[zero], axis=1), zero + 1.0))
    return np.sort(forest.data).astype(np.int64) - 1, components(n, pairs[zero])


def _shortest_between_clusters(joined: Ints, distances: Floats) -> tuple[Ints, Ints]:
    """Find the shortest pair between every two clusters that are joined by at least one pair.

    If several pairs are tied, the first one is used.

    Args:
        joined: (P, 2) The clusters of each pair's two nodes.
        distances: (P,) The distance of each pair. Pairs at infinite distances are ignored.

    Returns:
        The sorted row indices of the selected pairs, of shape (C,), and the two clusters joined by each pair, smaller
        index first, of shape (C, 2).
    """
    clusters = np.sort(joined, axis=1)
    finite = np.flatnonzero(np.isfinite(distances))
    selected = np.sort(finite[shortest_rows(clusters[finite], distances[finite])])
    return selected, clusters[selected]


def _has_short_path(edges: Ints, weights: Floats, goals: Ints, bounds: Floats, *, two_edges: bool) -> Bools:
    """Return whether each goal's two nodes are joined by a path no longer than the goal's bound, in exact arithmetic.

    Args:
        edges: (E, 2) The node indices of each edge. Edges are used in both directions.
        weights: (E,) The length of each edge.
        goals: (Q, 2) The two node indices of each goal.
        bounds: (Q,) The largest allowed length of a path for each goal.
        two_edges: Whether only paths with at least two edges count.
    """
    from privopt_metric_dp.space.exact_shortest_paths import limbs, short_enough

    if not len(goals):
        return np.zeros(0, dtype=np.bool_)
    n = int(max(edges.max(initial=0), goals.max())) + 1
    # The questions are grouped by source, because the compiled function performs one search per source. The source is
    # always the smaller node index, so that there are fewer sources.
    source, goal = goals.min(axis=1), goals.max(axis=1)
    order = np.argsort(source, kind="stable")
    (exact, exact_bound), units = limbs(weights, bounds)
    tail = np.concatenate([edges[:, 0], edges[:, 1]])
    head = np.concatenate([edges[:, 1], edges[:, 0]])
    doubled_weights = np.concatenate([weights, weights])
    # The function needs each node's edges in ascending order of length, so that it can stop early.
    sort = np.lexsort((doubled_weights, tail))
    graph = _row_starts(tail, n), head[sort], doubled_weights[sort], np.concatenate([exact, exact])[sort]
    question_offsets, answer = _row_starts(source, n), np.empty(len(goals), dtype=np.bool_)
    # The questions are decided in blocks of sources, because compiled code cannot check the time limit.
    spans = np.searchsorted(question_offsets, np.arange(_PAIRS_PER_CHECK, len(goals), _PAIRS_PER_CHECK)).tolist()
    start = 0
    for stop in [*dict.fromkeys(spans), n]:
        if start:
            check("implied pairs were identified")
        rows = order[question_offsets[start] : question_offsets[stop]]
        # Clipping leaves sources outside the block without questions.
        question_starts = (
            np.clip(question_offsets, question_offsets[start], question_offsets[stop]) - question_offsets[start]
        )
        answer[rows] = short_enough(
            *graph, question_starts, goal[rows], bounds[rows], exact_bound[rows], units, two_edges
        )
        start = stop
    return answer


def _row_starts(rows: Ints, n: int) -> Ints:
    """Return the row pointers of a CSR matrix, given the row indices of its entries.

    Args:
        rows: (E,) The row index of each entry, from 0 to n - 1.
        n: The number of rows.

    Returns:
        (n + 1,) The offsets. The entries in row r begin at offset[r] and end before offset[r + 1].
    """
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int64)
