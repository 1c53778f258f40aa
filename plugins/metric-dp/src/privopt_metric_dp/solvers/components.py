"""Make an instance smaller without changing its optimum, and lift the answer back.

Records at distance 0 are merged, implied pairs dropped (mathematics: Theorem 3.1 of the bounded
metric-DP paper), connected components solved one by one (Property 3.1 there).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.execution.limits import ending_at
from privopt.numbers.graphs import components, neighbours, shortest_rows
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.instance import Instance, Solution, dual_bound, freer, one_output
from privopt_metric_dp.space.pairs import reduce_pairs, worth_reducing

__all__ = ["Merged", "adjacency", "drop_implied_pairs", "merge_records", "solve_by_component"]

MERGE_BELOW = 1e-9
"""Log-ratios up to this are taken for 0: the optimum moves by less than this share."""

SLACK = 1e-9
"""Pairs count as implied up to this share of their length."""

INSIDE, SKIPPED = -1, -2

Solver = Callable[[Instance], Solution]


def adjacency(instance: Instance) -> tuple[Ints, Ints, Floats, Ints]:
    """Required-pairs graph in CSR form: row starts, neighbours, log-ratios, pair of each entry."""
    start, other, pair = neighbours(instance.records, instance.pairs)
    return start, other, instance.lengths[pair], pair


@frozen(kw_only=True, eq=False)
class Merged:
    """An instance whose records at distance 0 are merged.

    Attributes:
        original: the instance before.
        instance: the instance after.
        group: ``(N,)`` merged record of each original record.
        pair: for each original pair its pair after; `INSIDE` a group, `SKIPPED` where a shorter pair
            stands between the same two groups.
        flipped: whether that pair runs the other way.
    """

    original: Instance
    instance: Instance
    group: Ints
    pair: Ints
    flipped: NDArray[np.bool_]

    def lift(self, solution: Solution) -> Solution:
        """Answer for the original instance."""
        z = solution.z[self.group]
        multipliers = solution.multipliers
        lifted = None if multipliers is None else Multipliers(blocks=lambda: self._lift_blocks(multipliers))
        return evolve(solution, z=z, objective=self.original.loss(z), multipliers=lifted)

    def _lift_blocks(self, multipliers: Multipliers) -> Iterator[tuple[int, int, Floats, Floats]]:
        tree = _spanning_trees(self)
        i, j = self.original.pairs.T
        # capped: rows that far are never tight, and inf times a multiplier of 0 would be NaN
        growth = np.exp(np.minimum(self.original.lengths, 600.0))[:, None]
        kept = np.flatnonzero(self.pair >= 0)
        number, turned = self.pair[kept], self.flipped[kept][:, None]
        for k0, k1, forward, backward in multipliers.blocks():
            f = np.zeros((len(i), k1 - k0))
            b = np.zeros_like(f)
            f[kept] = np.where(turned, backward[number], forward[number])
            b[kept] = np.where(turned, forward[number], backward[number])
            reduced = self.original.cost[:, k0:k1].copy()
            np.add.at(reduced, i, f - growth * b)
            np.add.at(reduced, j, b - growth * f)
            for child, parent, p in tree:  # leaves first: all reduced cost moves to the group's first record
                surplus = reduced[child]
                up, down = np.maximum(-surplus, 0), np.maximum(surplus, 0) / growth[p]
                own, other = (f, b) if i[p] == child else (b, f)
                own[p] += up
                other[p] += down
                reduced[parent] += down - growth[p] * up
                reduced[child] = 0
            yield k0, k1, f, b


def _spanning_trees(merged: Merged) -> list[tuple[int, int, int]]:
    """Edges (child, parent, pair) of a spanning tree of each group, leaves first."""
    neighbours: dict[int, list[tuple[int, int]]] = {}
    for p in map(int, np.flatnonzero((merged.pair == INSIDE) & (merged.original.lengths <= MERGE_BELOW))):
        a, b = map(int, merged.original.pairs[p])
        neighbours.setdefault(a, []).append((b, p))
        neighbours.setdefault(b, []).append((a, p))
    seen: set[int] = set()
    edges: list[tuple[int, int, int]] = []
    for root in sorted(neighbours):
        if root in seen:
            continue
        seen.add(root)
        queue = [root]
        for node in queue:
            for other, p in neighbours[node]:
                if other not in seen:
                    seen.add(other)
                    queue.append(other)
                    edges.append((other, node, p))
    return edges[::-1]


def merge_records(instance: Instance) -> Merged | None:
    """Merge records at distance 0 (log-ratio up to `MERGE_BELOW`); None where there are none."""
    near = instance.lengths <= MERGE_BELOW
    if not near.any():
        return None
    label = components(instance.records, instance.pairs[near])
    groups = int(label.max()) + 1
    cost = np.zeros((groups, instance.outputs))
    np.add.at(cost, label, instance.cost)
    before = label[instance.pairs]
    ends = np.sort(before, axis=1)
    chosen = shortest_rows(ends, instance.distances)  # only the shortest pair between two groups matters
    pair = np.where(ends[:, 0] == ends[:, 1], INSIDE, SKIPPED)
    pair[chosen] = np.arange(len(chosen))
    coordinates = None
    if instance.coordinates is not None:
        coordinates = instance.coordinates[np.unique(label, return_index=True)[1]]
    small = Instance(
        cost=cost,
        pairs=ends[chosen],
        distances=instance.distances[chosen],
        epsilon=instance.epsilon,
        coordinates=coordinates,
    )
    return Merged(original=instance, instance=small, group=label, pair=pair, flipped=before[:, 0] > before[:, 1])


def drop_implied_pairs(instance: Instance) -> tuple[Instance, Ints]:
    """Drop pairs that paths over the others imply, up to a share `SLACK` of their length.

    Sums of lengths along a road often exceed the distance by some last bits (1,000 road nodes: 9,058 pairs are left by
    exact sums, 1,444 here). Where pairs go, epsilon is divided by ``1 + SLACK``: what keeps the rest then keeps all at
    the epsilon given, and a bound has to be evaluated there.

    Returns:
        The smaller instance and the numbers of the pairs that are left.
    """
    if not worth_reducing(instance.pairs, instance.distances, slack=SLACK):
        return instance, np.arange(len(instance.pairs))
    kept = np.flatnonzero(reduce_pairs(instance.pairs, instance.distances, slack=SLACK))
    if len(kept) == len(instance.pairs):
        return instance, kept
    epsilon = instance.epsilon / (1 + SLACK)
    return evolve(instance, pairs=instance.pairs[kept], distances=instance.distances[kept], epsilon=epsilon), kept


def _restored(
    answer: Solution, few: Instance, instance: Instance, rows: Ints, gap: float, deadline: float | None
) -> Solution:
    """Answer for the instance whose pairs `rows` are those of `few`, bounded at the instance's own epsilon.

    Once the deadline has come the bound stays as it was found, up to `SLACK` of epsilon: who states it proves it first.
    """
    proved = answer.multipliers or Multipliers.zero(len(few.pairs), few.outputs)
    proved = freer(proved, (instance.epsilon - few.epsilon) * few.distances)
    bound = answer.lower_bound
    if deadline is None or time.monotonic() < deadline:
        bound = min(dual_bound(evolve(few, epsilon=instance.epsilon), proved)[0], answer.objective)
    multipliers = None if answer.multipliers is None else Multipliers.among(proved, rows, len(instance.pairs))
    lost = answer.status == "optimal" and not instance.reached(answer.objective, bound, gap)
    status = "feasible" if lost else answer.status
    return evolve(answer, multipliers=multipliers, lower_bound=bound, status=status)


def _shared_best(instance: Instance) -> Solution | None:
    """The answer where one output is the cheapest for every record: it alone, and the proof needs no row."""
    best = int(instance.cost.sum(axis=0).argmin())
    if (instance.cost[:, best] > instance.cost.min(axis=1)).any():
        return None
    answer = one_output(instance, "constant")
    return evolve(answer, objective=answer.lower_bound, status="optimal")


def _join(instance: Instance, label: Ints, rows: list[Ints], parts: list[Solution]) -> Solution:
    z = np.zeros((instance.records, instance.outputs))
    for c, part in enumerate(parts):
        z[label == c] = part.z

    def blocks() -> Iterator[tuple[int, int, Floats, Floats]]:
        sources = [
            part.multipliers.arrays(len(number), instance.outputs)
            for number, part in zip(rows, parts, strict=True)
            if part.multipliers
        ]
        step = max(1, min(instance.outputs, 4_000_000 // max(1, len(instance.pairs))))
        for k0 in range(0, instance.outputs, step):
            k1 = min(instance.outputs, k0 + step)
            f = np.zeros((len(instance.pairs), k1 - k0))
            b = np.zeros_like(f)
            for number, (forward, backward) in zip(rows, sources, strict=True):
                f[number], b[number] = forward[:, k0:k1], backward[:, k0:k1]
            yield k0, k1, f, b

    order = {"optimal": 0, "feasible": 1, "stopped": 2}
    largest = max(parts, key=lambda part: len(part.z))
    known = all(part.multipliers is not None for part in parts)
    return Solution(
        z=z,
        objective=instance.loss(z),
        lower_bound=sum(part.lower_bound for part in parts),
        multipliers=Multipliers(blocks=blocks) if known else None,
        method=largest.method,
        iterations=max(part.iterations for part in parts),
        trajectory=largest.trajectory if len(parts) == 1 else (),
        status=max((part.status for part in parts), key=order.__getitem__),
        details={**largest.details, "components": len(parts)},
    )


def _component(instance: Instance, label: Ints, c: int) -> tuple[Instance, Ints]:
    members = np.flatnonzero(label == c)
    rows = np.flatnonzero(label[instance.pairs[:, 0]] == c) if len(instance.pairs) else np.zeros(0, dtype=np.int64)
    place = np.zeros(instance.records, dtype=np.int64)
    place[members] = np.arange(len(members))
    small = Instance(
        cost=instance.cost[members],
        pairs=place[instance.pairs[rows]],
        distances=instance.distances[rows],
        epsilon=instance.epsilon,
        coordinates=None if instance.coordinates is None else instance.coordinates[members],
    )
    return small, rows


def solve_by_component(instance: Instance, solver: Solver, gap: float, *, deadline: float | None = None) -> Solution:
    """Reduce `instance`, give each connected part to `solver`, put together.

    The answer is "optimal" only where the whole, too, reaches the relative gap that the parts were solved to. What
    `solver` sees is connected, has no implied pair, no pair at distance 0, and no output that is the cheapest for
    every record (so at least two records and two outputs).

    Raises:
        StoppedError: the deadline (of `time.monotonic`) came before the implied pairs of many were found.
    """
    merged = merge_records(instance)
    if merged is not None:
        return merged.lift(solve_by_component(merged.instance, solver, gap, deadline=deadline))
    with ending_at(deadline):
        kept, rows = drop_implied_pairs(instance)
    label = components(kept.records, kept.pairs)
    count = int(label.max()) + 1
    if count == 1:
        answer = _shared_best(kept) or solver(kept)
    else:
        parts = [_component(kept, label, c) for c in range(count)]
        answers = [_shared_best(part) or solver(part) for part, _ in parts]
        answer = _join(kept, label, [number for _, number in parts], answers)
    return answer if kept is instance else _restored(answer, kept, instance, rows, gap, deadline)
