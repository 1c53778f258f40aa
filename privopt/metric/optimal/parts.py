"""Programs bigger than memory or time, by parts of the records.

Let S_1 .. S_m part the records. Every mechanism restricted to the rows of S_j is private for S_j, so the optimum is
at least the sum of the parts' optima, each with its own rows of the (prior-weighted) cost and all outputs, where
distances inside a part are shortest paths over the whole graph of required pairs. With shorter ones, of pairs that
nobody requires, it would be no bound. Parts that are each spread over the whole map keep it tight where epsilon times
spacing is small: 400 cells of Rome at epsilon 1 with two parts .8932, with four .8305, for an optimum of .9156.

A multiplier of a part's pair is one of each pair along its shortest path, grown on the way, so the bound has
multipliers of the whole program as proof. A part's mechanism extends to all records: the closure of its rows under
the whole graph (`privopt.exact.weights.mend`) is private, whatever the part.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.exact.graph import edge_matrix
from privopt.exact.multipliers import Multipliers
from privopt.exact.weights import mend
from privopt.execution.limits import allowed_threads
from privopt.interfaces import Progress
from privopt.metric.optimal.instance import Instance, Solution, dual_bound, one_output
from privopt.metric.optimal.interior_point import interior_point_bytes, solve_interior_point
from privopt.metric.optimal.reduce import solve_by_component
from privopt.metric.space.pairs import reduce_pairs

__all__ = ["interleave", "part_of", "parts_bytes", "solve_by_parts"]

SLACK: Final = 0.03
"""A part's pairs are those of a spanner of this stretch above 1: fewer pairs bound the optimum all the same."""
FARTHEST: Final = 230.0
"""Pairs of a part beyond this log-ratio are left out: their multipliers would leave the range of doubles."""


def interleave(table: Floats, count: int) -> Ints:
    """Part the records into at least `count` parts (a power of two of them), each spread over all.

    Near records are matched, nearest first, and the two of a match go to different halves; each half again.

    Args:
        table: ``(N, N)`` distances, infinite where nothing joins two records.
        count: parts wanted, at least 1.

    Returns:
        ``(N,)`` part of each record, from 0.
    """
    label = np.zeros(len(table), dtype=np.int64)
    parts = 1
    while parts < min(count, len(table)):
        for part in range(parts):
            members = np.flatnonzero(label == part)
            label[members[_other_half(table[np.ix_(members, members)])]] += parts
        parts *= 2
    return np.unique(label, return_inverse=True)[1].astype(np.int64)


def _other_half(table: Floats) -> Ints:
    """One of each two records that are matched."""
    near = table.copy()
    np.fill_diagonal(near, np.inf)
    free = np.ones(len(near), dtype=np.bool_)
    chosen = []
    for i in np.argsort(near.min(axis=1), kind="stable"):
        if free[i]:
            free[i] = False
            reach = np.where(free, near[i], np.inf)
            j = int(reach.argmin())
            if np.isfinite(reach[j]):
                free[j] = False
                chosen.append(j)
    return np.array(chosen, dtype=np.int64)


@frozen(kw_only=True, eq=False)
class Part:
    """The program of some records, and how its pairs run through the whole graph.

    Attributes:
        instance: of the members.
        members: ``(n,)`` records.
        routes: sparse ``(2 P, 2 p)``: what a multiplier of each row of the part (forward, then backward) is on each row
            of the whole.
    """

    instance: Instance
    members: Ints
    routes: Any


def part_of(instance: Instance, members: Ints) -> Part:
    """The program of some records of an instance, over few pairs at path distances of the whole graph."""
    from scipy.sparse.csgraph import dijkstra

    graph = edge_matrix(instance.records, instance.pairs, instance.distances, both=True)
    table, before = dijkstra(graph, indices=members, return_predecessors=True)
    near = table[:, members]
    i, j = np.nonzero(np.triu(near * instance.epsilon <= FARTHEST, 1))
    pairs, distances = np.column_stack([i, j]).astype(np.int64), near[i, j]
    kept = reduce_pairs(pairs, distances, slack=SLACK)
    small = Instance(
        cost=instance.cost[members],
        pairs=pairs[kept],
        distances=distances[kept],
        epsilon=instance.epsilon,
        coordinates=None if instance.coordinates is None else instance.coordinates[members],
    )
    return Part(instance=small, members=members, routes=_routes(instance, small, members, before))


def _routes(instance: Instance, small: Instance, members: Ints, before: Ints) -> Any:
    """Each row of the part as a sum of rows of the whole, along the shortest path from the pair's first record.

    ``z_0 <= exp(l_1) z_1`` and ``exp(l_1) z_1 <= exp(l_1 + l_2) z_2`` and so on add up to the row of the path's ends.
    """
    from scipy.sparse import coo_array

    n, rows, count = instance.records, len(instance.pairs), len(small.pairs)
    number = instance.pairs[:, 0] * n + instance.pairs[:, 1]
    tree, node = small.pairs[:, 0], members[small.pairs[:, 1]]
    total = small.lengths
    gone = np.zeros(count)  # log-ratio walked, from the far end of each path
    entry: list[Ints] = []
    column: list[Ints] = []
    growth: list[Floats] = []
    left = np.arange(count)
    while len(left):
        ahead = before[tree[left], node[left]].astype(np.int64)
        here = node[left]
        low, high = np.minimum(here, ahead), np.maximum(here, ahead)
        pair = np.searchsorted(number, low * n + high)
        after = gone[left] + instance.lengths[pair]
        up = here < ahead  # the row's smaller record is the one further from the path's first
        # backward row of the part: from the far end; forward row: from the first record
        entry += [np.where(up, pair, rows + pair), np.where(up, rows + pair, pair)]
        column += [count + left, left]
        growth += [np.exp(gone[left]), np.exp(np.maximum(total[left] - after, 0.0))]
        gone[left], node[left] = after, ahead
        left = left[node[left] != members[tree[left]]]
    where = (np.concatenate(entry), np.concatenate(column)) if entry else (np.zeros(0, int), np.zeros(0, int))
    values = np.concatenate(growth) if growth else np.zeros(0)
    return coo_array((values, where), shape=(2 * rows, 2 * count)).tocsr()


def _joined(instance: Instance, parts: list[Part], found: list[Multipliers]) -> Multipliers:
    """Multipliers of the whole program from those of the parts."""
    held = [
        np.concatenate(proof.arrays(len(part.instance.pairs), instance.outputs))
        for part, proof in zip(parts, found, strict=True)
    ]

    def blocks() -> Iterator[tuple[int, int, Floats, Floats]]:
        rows = len(instance.pairs)
        step = max(1, min(instance.outputs, 4_000_000 // max(1, rows)))
        for k0 in range(0, instance.outputs, step):
            k1 = min(instance.outputs, k0 + step)
            both = np.zeros((2 * rows, k1 - k0))
            for part, own in zip(parts, held, strict=True):
                both += part.routes @ np.maximum(own[:, k0:k1], 0.0)
            yield k0, k1, both[:rows], both[rows:]

    return Multipliers(blocks=blocks)


def parts_bytes(instance: Instance, count: int, threads: int = 1) -> float:
    """About how much memory parts take: programs side by side, multipliers of all, the table of distances."""
    part = part_of(instance, np.arange(0, instance.records, count))
    held = 16.0 * count * len(part.instance.pairs) * instance.outputs
    return (
        min(threads, count) * interior_point_bytes(part.instance)
        + held
        + 8.0 * (instance.records**2 + 5 * instance.cost.size)
    )


def _solve_connected(
    instance: Instance, count: int, gap: float, deadline: float | None, progress: Progress | None, threads: int
) -> Solution:
    from scipy.sparse.csgraph import dijkstra

    began, answer = time.monotonic(), one_output(instance, "parts")
    table = dijkstra(edge_matrix(instance.records, instance.pairs, instance.distances, both=True))
    label = interleave(table, count)
    parts = [part_of(instance, np.flatnonzero(label == part)) for part in range(int(label.max()) + 1)]
    workers = min(threads, len(parts))
    rounds = -(-len(parts) // workers)

    def one(number: int) -> Solution:
        until = deadline
        if deadline is not None:  # each round has its share of the time
            now = time.monotonic()
            until = now + (deadline - now) / (rounds - number // workers)
        if until is not None and time.monotonic() >= until:
            return one_output(parts[number].instance, "parts")
        return solve_interior_point(parts[number].instance, gap=gap, deadline=until, threads=threads // workers)

    with ThreadPoolExecutor(workers) as pool:
        found = list(pool.map(one, range(len(parts))))
    for part, own in zip(parts, found, strict=True):
        answer = _extended(instance, part, own, answer)
    proofs = [own.multipliers or Multipliers.zero(len(part.instance.pairs), instance.outputs)
              for part, own in zip(parts, found, strict=True)]  # fmt: skip
    multipliers = _joined(instance, parts, proofs)
    bound, _ = dual_bound(instance, multipliers)
    if bound > answer.lower_bound:
        answer = evolve(answer, lower_bound=bound, multipliers=multipliers)
    if progress is not None:
        progress("parts", 1, answer.lower_bound, answer.objective)
    late = any(own.status == "stopped" for own in found)
    reached = instance.reached(answer.objective, answer.lower_bound, gap)
    return evolve(
        answer,
        iterations=sum(own.iterations for own in found),
        trajectory=((time.monotonic() - began, answer.lower_bound, answer.objective),),
        status="optimal" if reached else "stopped" if late else "feasible",
        details={"parts": len(parts), "sum_of_bounds": sum(own.lower_bound for own in found)},
    )


def _extended(instance: Instance, part: Part, own: Solution, best: Solution) -> Solution:
    """The best so far, or a part's mechanism extended to all records where that loses less."""
    z = np.zeros(instance.cost.shape)
    z[part.members] = own.z
    z = mend(z, instance.cost, instance.pairs, instance.lengths)
    loss = instance.loss(z)
    return evolve(best, z=z, objective=loss) if loss < best.objective else best


def solve_by_parts(
    instance: Instance,
    *,
    count: int = 4,
    gap: float = 1e-2,
    deadline: float | None = None,
    progress: Progress | None = None,
    threads: int | None = None,
) -> Solution:
    """A bound from interleaved parts of the records, and the best extension of a part's mechanism to all.

    Neither comes near the other as a rule; both are true.

    Args:
        instance: the problem.
        count: parts, rounded up to a power of two.
        gap: relative gap to which each part's program is solved.
        deadline: `time.monotonic` value at which each part gives what it has.
        progress: called with lower bound, loss, 1 and phase.
        threads: workers, over parts first; by default as many as ``--jobs`` allows.
    """
    workers = threads or allowed_threads()
    return solve_by_component(
        instance, lambda part: _solve_connected(part, count, gap, deadline, progress, workers), gap, deadline=deadline
    )
