"""The required pairs of records, and few of them that imply the rest.

A pair is implied if a path of other pairs is at most as long (Theorem 3.1 of Qiu, IJCAI 2024: the bounds along the path
multiply). "At most as long" is decided on the exact sums of the stored doubles: collinear distances often exceed their
sum by the last bit, and then nothing is implied.
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
"""All pairs of so many records while somebody holds them, 16 bytes each: ``verify`` asks for those of ``solve``."""
_TRIANGLE_TOLERANCE = 1e-9  # relative excess over the triangle inequality that rounding explains
_BLOCK = 1 << 22
_MIN_SAMPLED_RECORDS = 1_000  # records from which all pairs are sampled before they are reduced
_SAMPLE_RECORDS = 16  # records whose pairs are looked at
_PAIRS_PER_CHECK = 50_000  # pairs looked at between two looks at the clock
_RARE_SHARE = 1e-2  # implied pairs, as a share, that are not worth the search for them


def required_pairs(metric: Metric, within: float | None = None) -> tuple[Ints, Floats]:
    """Return pairs of records whose rows must be indistinguishable, and their distances.

    Args:
        metric: of N records.
        within: greatest distance of a pair, compared by `<=` with the stored double; default: every pair.

    Returns:
        (P, 2) with i < j in lexicographic order, and (P,) distances in the metric's unit. Pairs at an
        infinite distance (roads that are not connected) ask for nothing and are omitted. With
        `within`, time and memory go with P (trees, limited searches), not with N^2.

    Raises:
        InputError: `within` is negative or not a number.
    """
    if within is not None and not within >= 0:
        raise InputError([Fault("privacy.neighbours_within", "", repr(within), "a number of at least 0")])
    if within is not None:
        pairs, distances = metric.neighbours(within)
    else:
        held = _ALL_PAIRS.get(metric.size)
        pairs = read_only(_every_pair(metric.size)) if held is None else held
        _ALL_PAIRS[metric.size] = pairs
        distances = metric.between(pairs[:, 0], pairs[:, 1])
    finite = np.isfinite(distances)
    return (pairs, distances) if finite.all() else (pairs[finite], distances[finite])


def check_neighbours(metric: Metric, distances: Floats, within: float, *, file: str, unit: str) -> None:
    """Refuse a limit below the least positive distance: it asks for nothing, and the truth would be released.

    Args:
        metric: of the records.
        distances: (P,) of the pairs within the limit.
        within: the limit, ``privacy.neighbours_within``.
        file, unit: the problem file and the unit of distance, for the fault.

    Raises:
        InputError: records lie apart, and none of them has a neighbour elsewhere within the limit.
    """
    if distances.any():
        return
    least, limit = np.inf, f"{within!r} {unit}"
    for part in slices(metric.size, metric.size, 1 << 21):
        rows = metric.rows(np.arange(part.start, part.stop))
        least = min(least, float(rows[rows > 0].min(initial=np.inf)))
    if np.isfinite(least):
        found = f"{limit}, below the least positive distance between two records, {least!r}"
        wanted = f"at least {least!r}, so that records have neighbours to be hidden among"
    elif np.isinf(metric.rows(np.array([0]))).any():
        found, wanted = f"{limit}, and no road that joins two records", "roads between records, for neighbours"
    else:
        return  # all are at one place: their rows are equal
    raise InputError([Fault(file, "privacy.neighbours_within", found, wanted)])


def farthest(metric: Metric, count: int) -> Ints:
    """Choose ``count`` records from record 0 on, each as far as possible from earlier ones (Gonzalez 1985)."""
    near, chosen = metric.rows(np.zeros(1, dtype=np.int64))[0], [0]
    while len(chosen) < count:
        near[chosen[-1]] = -1.0  # chosen once
        chosen.append(int(near.argmax()))
        near = np.minimum(near, metric.rows(np.array(chosen[-1:]))[0])
    return np.sort(chosen)


def reduce_pairs(pairs: Ints, distances: Floats, *, slack: float = 0.0) -> Bools:
    """Mark the pairs to keep, so that those kept imply the others.

    Without slack a pair is dropped only if a path over kept pairs is at most as long, as exact sums of doubles. The
    kept pairs are then the least set with that property (up to ties at distance 0). With slack s, the path may be (1 +
    s) times as long: a mechanism that keeps eps / (1 + s) on the kept pairs keeps eps on all.

    Args:
        pairs: (P, 2) distinct nodes from 0.
        distances: (P,), at least 0; an infinite one is dropped.
        slack: s, relative, far below 1.

    Returns:
        (P,) booleans.

    Raises:
        OutOfTime: the end has come, and pairs are many.

    Notes:
        Cost: for each node, the pairs that start within its longest pair. 4,000 records with 60 neighbours
        each take 0.1 s; all pairs of N records take some N^3: 0.2 s at 400, 1.3 s at 800, 12 s at 1,600.
    """
    pairs, distances = _checked(pairs, distances)
    keep = np.zeros(len(pairs), dtype=np.bool_)
    forest, cluster = _merge_zeros(pairs, distances)
    keep[forest] = True
    candidates, joined = _shortest_between_clusters(cluster[pairs], distances)
    if len(candidates):
        weights = distances[candidates]
        local = _search(joined, weights, joined, _stretched(weights, slack / 4), two_edges=True)
        keep[candidates[~local]] = True
    if slack > 0:  # detours of detours add up: what they left too long comes back
        keep[not_implied(pairs[keep], distances[keep], pairs, distances, slack=slack)] = True
    return keep


def needed_pairs(
    metric: Metric, required: Callable[[], tuple[Ints, Floats]], *, within: float | None = None
) -> tuple[Ints, Floats]:
    """Compute `reduce_pairs` of `required_pairs(metric, within)`, from fewer pairs if the metric knows them.

    Roads do (paths that pass no third record): those of 50,000 places along streets in a second.

    Args:
        metric: of N records.
        required: gives the required pairs; not called where the metric knows fewer.
        within: greatest distance of a pair.

    Returns:
        (S, 2) pairs that are kept, in order, and (S,) distances.
    """
    few = metric.implying(within)
    if few is None:
        few = required()
        if not has_implied_pairs(*few):
            return few
    kept = reduce_pairs(*few)
    return few[0][kept], few[1][kept]


def has_implied_pairs(pairs: Ints, distances: Floats, *, slack: float = 0.0, rare: float = _RARE_SHARE) -> bool:
    """Check whether a sample of pairs has implied ones, if all pairs of many records are required; otherwise True.

    All pairs of 5,000 words take minutes to go through, and hardly any lies on a straight way over a third. Pairs that
    others imply may stay: they only make a model larger.

    Args:
        pairs, distances: (P, 2) with i < j in lexicographic order, (P,).
        slack: a way may be longer by this share.
        rare: share of implied pairs that does not count.
    """
    n = int(pairs.max(initial=-1)) + 1
    if n <= _MIN_SAMPLED_RECORDS or len(pairs) != n * (n - 1) // 2:
        return True
    table = np.full((n, n), np.inf)
    table[pairs[:, 0], pairs[:, 1]] = table[pairs[:, 1], pairs[:, 0]] = distances
    seen = 0
    for source in np.linspace(0, n - 1, _SAMPLE_RECORDS).astype(np.int64).tolist():
        way = np.full(n, np.inf)
        for start in range(0, n, 64):
            part = table[start : start + 64] + table[source, start : start + 64, None]
            np.minimum(way, part.min(axis=0), out=way)
        way[source] = np.inf
        seen += int((way <= table[source] * (1.0 + slack)).sum()) - 1  # the source itself: infinite on both sides
    return seen > rare * _SAMPLE_RECORDS * n


def not_implied(subset: Ints, subset_distances: Floats, pairs: Ints, distances: Floats, *, slack: float = 0.0) -> Ints:
    """Return rows of `pairs` that no path over `subset` implies, decided in exact arithmetic.

    Args:
        subset, subset_distances: (S, 2), (S,): pairs that hold.
        pairs, distances: (P, 2), (P,): pairs to be implied; infinite distances always are.
        slack: a path may be longer by this share.

    Returns:
        Sorted row numbers into `pairs`, int64; empty where all are implied.
    """
    subset, subset_distances = _checked(subset, subset_distances)
    pairs, distances = _checked(pairs, distances)
    finite = np.flatnonzero(np.isfinite(distances) & (pairs[:, 0] != pairs[:, 1]))
    usable = np.isfinite(subset_distances) & (subset[:, 0] != subset[:, 1])
    implied = _search(
        subset[usable],
        subset_distances[usable],
        pairs[finite],
        _stretched(distances[finite], slack),
        two_edges=False,
    )
    return finite[~implied].astype(np.int64)


def consistent(table: Floats, pairs: Ints, lengths: Floats) -> Floats:
    """Return the greatest table (N, K) below the given one in which a pair's ends differ by at most its length.

    It is the given one where that obeys the triangle inequality up to rounding; else the shortest paths over the pairs
    take the place of entries. Entries may be infinite.
    """
    for part in slices(len(pairs), table.shape[1], _BLOCK):
        i, j = pairs[part].T
        one, other = table[i], table[j]
        together = np.isfinite(one) & np.isfinite(other)
        apart = np.abs(np.where(together, one, 0.0) - np.where(together, other, 0.0))
        apart[np.isfinite(one) != np.isfinite(other)] = np.inf
        if (apart > lengths[part, None] + _TRIANGLE_TOLERANCE * np.where(together, one + other, 0.0)).any():
            return _shortest_ways(table, pairs, lengths)
    return table


def _shortest_ways(table: Floats, pairs: Ints, lengths: Floats) -> Floats:
    from scipy.sparse.csgraph import dijkstra

    n, outputs = table.shape
    i, k = np.nonzero(np.isfinite(table))
    edges = np.concatenate([pairs, pairs[:, ::-1], np.column_stack([n + k, i])])
    graph = edge_matrix(n + outputs, edges, np.concatenate([lengths, lengths, table[i, k]]))
    ways = dijkstra(graph, directed=True, indices=np.arange(n, n + outputs))
    return np.asarray(ways[:, :n].T, dtype=np.float64)


def _every_pair(n: int) -> Ints:
    pairs = np.empty((n * (n - 1) // 2, 2), dtype=np.int64)
    start, every = 0, np.arange(n)
    for i in range(n):  # no array next to the pairs: a hundred million bytes each at 5,000 records
        stop = start + n - 1 - i
        pairs[start:stop, 0], pairs[start:stop, 1] = i, every[i + 1 :]
        start = stop
    return pairs


def _checked(pairs: npt.ArrayLike, distances: npt.ArrayLike) -> tuple[Ints, Floats]:
    index = np.asarray(pairs, dtype=np.int64).reshape(-1, 2)
    lengths = np.asarray(distances, dtype=np.float64).reshape(-1)
    faults = []
    if len(index) != len(lengths):
        faults.append(Fault("pairs", "", f"{len(lengths)} distances for {len(index)} pairs", "one distance a pair"))
    if index.size and index.min() < 0:
        faults.append(Fault("pairs", f"row {int(index.min(axis=1).argmin())}", str(index.min()), "nodes from 0"))
    if not (lengths >= 0).all():
        row = int(np.flatnonzero(~(lengths >= 0))[0])
        faults.append(Fault("pairs", f"row {row}", f"distance {float(lengths[row])!r}", "a number of at least 0"))
    if faults:
        raise InputError(faults)
    return index, lengths


def _stretched(distances: Floats, slack: float) -> Floats:
    """Doubles between d and (1 + slack) d, never above the exact product."""
    return np.maximum(distances, distances * (1.0 + slack) * (1.0 - 2.0**-50))


def _merge_zeros(pairs: Ints, distances: Floats) -> tuple[Ints, Ints]:
    """Return a spanning forest of the pairs at distance 0 (rows), and the cluster of each node."""
    from scipy.sparse.csgraph import minimum_spanning_tree

    n = int(pairs.max()) + 1 if pairs.size else 0
    zero = np.flatnonzero((distances == 0) & (pairs[:, 0] != pairs[:, 1]))
    if not zero.size:
        return zero, np.arange(n)
    # by row numbers, from 1: of the rows that would join two parts the first does
    forest = minimum_spanning_tree(edge_matrix(n, np.sort(pairs[zero], axis=1), zero + 1.0))
    return np.sort(forest.data).astype(np.int64) - 1, components(n, pairs[zero])


def _shortest_between_clusters(joined: Ints, distances: Floats) -> tuple[Ints, Ints]:
    """Of the pairs between two clusters the shortest (first row among equals), rows and end clusters."""
    ends = np.sort(joined, axis=1)
    finite = np.flatnonzero(np.isfinite(distances))
    chosen = np.sort(finite[shortest_rows(ends[finite], distances[finite])])
    return chosen, ends[chosen]


def _search(edges: Ints, weights: Floats, goals: Ints, bounds: Floats, *, two_edges: bool) -> Bools:
    """For each goal pair, whether a path over `edges` is at most as long as its bound, exactly."""
    from privopt_metric_dp.space.exact_shortest_paths import limbs, short_enough

    if not len(goals):
        return np.zeros(0, dtype=np.bool_)
    n = int(max(edges.max(initial=0), goals.max())) + 1
    source, goal = goals.min(axis=1), goals.max(axis=1)
    order = np.argsort(source, kind="stable")
    (exact, exact_bound), units = limbs(weights, bounds)
    tail = np.concatenate([edges[:, 0], edges[:, 1]])
    head = np.concatenate([edges[:, 1], edges[:, 0]])
    both = np.concatenate([weights, weights])
    sort = np.lexsort((both, tail))
    graph = _starts(tail, n), head[sort], both[sort], np.concatenate([exact, exact])[sort]
    ask, answer = _starts(source, n), np.empty(len(goals), dtype=np.bool_)
    spans = np.searchsorted(ask, np.arange(_PAIRS_PER_CHECK, len(goals), _PAIRS_PER_CHECK)).tolist()
    first = 0
    for last in [*dict.fromkeys(spans), n]:
        if first:
            check("implied pairs were told from the others")
        rows = order[ask[first] : ask[last]]
        asked = np.clip(ask, ask[first], ask[last]) - ask[first]  # of these sources alone
        answer[rows] = short_enough(*graph, asked, goal[rows], bounds[rows], exact_bound[rows], units, two_edges)
        first = last
    return answer


def _starts(rows: Ints, n: int) -> Ints:
    return np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))]).astype(np.int64)
