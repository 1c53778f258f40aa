"""Reduce an instance without changing its optimum, and lift the answer back.

Records at distance 0 are merged, implied pairs are dropped (Theorem 3.1 of the bounded metric-DP paper), and connected
components are solved one by one (Property 3.1 there).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.numbers.graphs import components, shortest_rows
from privopt.search.offers import BestOffer, Later, Offer, Offers, evaluate, is_within_gap
from privopt_metric_dp.proof.multipliers import Few, Multipliers
from privopt_metric_dp.solvers.instance import Instance, one_output
from privopt_metric_dp.solvers.solver import Part, PartOffers
from privopt_metric_dp.space.pairs import has_implied_pairs, reduce_pairs

__all__ = ["MergedInstance", "ReducedInstance", "drop_implied_pairs", "merge_records"]

MERGE_BELOW = 1e-9
"""Log-ratios up to this are treated as 0: the relative change of the optimum is smaller."""

RELATIVE_SLACK = 1e-9
"""A pair counts as implied if a path is longer by at most this share."""

BLOCK_COLUMNS, BLOCK_ENTRIES = 128, 4_000_000
"""Largest number of outputs whose multipliers are lifted together, and of pairs times outputs: about five arrays."""

INSIDE, SKIPPED = -1, -2


@frozen(kw_only=True, eq=False)
class MergedInstance:
    """An instance whose records at distance 0 are merged.

    Attributes:
        original: The original instance.
        instance: The merged instance.
        group: ``(N,)`` merged record of each original record.
        pair: Merged pair of each original pair; `INSIDE` within a group, `SKIPPED` if a shorter pair joins the same two
            groups.
        flipped: Whether the merged pair runs in the opposite direction.
    """

    original: Instance
    instance: Instance
    group: Ints
    pair: Ints
    flipped: NDArray[np.bool_]

    def lift(self, multipliers: Multipliers) -> Multipliers:
        """Lift multipliers to the original instance."""
        stored_pairs = np.flatnonzero(self.pair >= 0)
        original_pair = np.empty(len(stored_pairs), dtype=np.int64)
        original_pair[self.pair[stored_pairs]] = stored_pairs
        sign = np.where(self.flipped[original_pair], -1, 1)
        between_groups = multipliers.mapped(lambda pairs, values: (original_pair[pairs], values * sign[pairs]))
        return Multipliers(rows=lambda: self._add_inner_multipliers(between_groups), many=multipliers.many)

    def _add_inner_multipliers(self, multipliers: Multipliers) -> Iterator[Few]:
        """Add multipliers inside groups: along a spanning tree, all reduced cost moves to the group's first record."""
        tree, (i, j) = _spanning_trees(self), self.original.pairs.T
        # The exponent is capped: such rows are never tight, and inf times a multiplier of 0 would be NaN.
        growth = np.exp(np.minimum(self.original.lengths, 600.0))[:, None]
        rows, step = multipliers.rows(), max(1, min(BLOCK_COLUMNS, BLOCK_ENTRIES // max(1, len(i))))
        ahead = next(rows, None)
        for k0 in range(0, self.original.outputs, step):
            reduced = self.original.cost[:, k0 : k0 + step].copy()
            net = np.zeros((len(i), reduced.shape[1]))
            while ahead is not None and ahead[0] < k0 + step:  # outputs rise
                net[ahead[1], ahead[0] - k0] = ahead[2]
                ahead = next(rows, None)
            forward, backward = np.maximum(net, 0.0), np.maximum(-net, 0.0)
            np.add.at(reduced, i, forward - growth * backward)
            np.add.at(reduced, j, backward - growth * forward)
            for child, parent, p in tree:  # leaves first
                upward, downward = np.maximum(-reduced[child], 0), np.maximum(reduced[child], 0) / growth[p]
                net[p] = upward - downward if i[p] == child else downward - upward
                reduced[parent] += downward - growth[p] * upward
            for column, values in enumerate(net.T, start=k0):
                pairs = np.flatnonzero(values)
                yield column, pairs, values[pairs]


def _spanning_trees(merged: MergedInstance) -> list[tuple[int, int, int]]:
    """Return the edges (child, parent, pair) of a spanning tree of each group, leaves first."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    n = merged.original.records
    inner_pairs = np.flatnonzero((merged.pair == INSIDE) & (merged.original.lengths <= MERGE_BELOW))
    roots = np.unique(merged.group, return_index=True)[1]  # all hang on one more node, so that one search finds them
    tree_edges = np.concatenate([merged.original.pairs[inner_pairs], np.column_stack([roots, np.full(len(roots), n)])])
    graph = csr_array((np.ones(len(tree_edges)), tree_edges.T), shape=(n + 1, n + 1))
    order, parent = breadth_first_order(graph, n, directed=False)
    number = {
        (i, j): p for p, (i, j) in zip(inner_pairs.tolist(), merged.original.pairs[inner_pairs].tolist(), strict=True)
    }
    edges = [(child, int(parent[child])) for child in order[:0:-1].tolist()]
    return [
        (child, parent_node, number[min(child, parent_node), max(child, parent_node)])
        for child, parent_node in edges
        if parent_node != n
    ]


def merge_records(instance: Instance) -> MergedInstance | None:
    """Merge records at distance 0 (log-ratio up to `MERGE_BELOW`); return None if there are none."""
    is_near = instance.lengths <= MERGE_BELOW
    if not is_near.any():
        return None
    label = components(instance.records, instance.pairs[is_near])
    groups = int(label.max()) + 1
    cost = np.zeros((groups, instance.outputs))
    np.add.at(cost, label, instance.cost)
    group_pairs = label[instance.pairs]
    sorted_pairs = np.sort(group_pairs, axis=1)
    shortest = shortest_rows(sorted_pairs, instance.distances)  # only the shortest pair between two groups matters
    pair = np.where(sorted_pairs[:, 0] == sorted_pairs[:, 1], INSIDE, SKIPPED)
    pair[shortest] = np.arange(len(shortest))
    coordinates = None
    if instance.coordinates is not None:
        coordinates = instance.coordinates[np.unique(label, return_index=True)[1]]
    small = Instance(
        cost=cost,
        pairs=sorted_pairs[shortest],
        distances=instance.distances[shortest],
        epsilon=instance.epsilon,
        coordinates=coordinates,
    )
    return MergedInstance(
        original=instance, instance=small, group=label, pair=pair, flipped=group_pairs[:, 0] > group_pairs[:, 1]
    )


def drop_implied_pairs(instance: Instance) -> tuple[Instance, Ints]:
    """Drop pairs that paths over the others imply, up to a relative slack of `RELATIVE_SLACK`.

    Sums of lengths along a road often exceed the distance by a few last bits (1,000 road nodes: exact sums leave 9,058
    pairs, the slack 1,444). If pairs are dropped, epsilon is divided by ``1 + RELATIVE_SLACK``: a mechanism for the
    remaining pairs then satisfies all pairs at the given epsilon, where bounds must be evaluated.

    Returns:
        The smaller instance and the numbers of the remaining pairs.
    """
    if not has_implied_pairs(instance.pairs, instance.distances, slack=RELATIVE_SLACK):
        return instance, np.arange(len(instance.pairs))
    rows = np.flatnonzero(reduce_pairs(instance.pairs, instance.distances, slack=RELATIVE_SLACK))
    if len(rows) == len(instance.pairs):
        return instance, rows
    epsilon = instance.epsilon / (1 + RELATIVE_SLACK)
    return evolve(instance, pairs=instance.pairs[rows], distances=instance.distances[rows], epsilon=epsilon), rows


def _extract_component(instance: Instance, label: Ints, c: int) -> tuple[Instance, Ints]:
    members = np.flatnonzero(label == c)
    rows = np.flatnonzero(label[instance.pairs[:, 0]] == c)
    position = np.zeros(instance.records, dtype=np.int64)
    position[members] = np.arange(len(members))
    small = evolve(
        instance,
        cost=instance.cost[members],
        pairs=position[instance.pairs[rows]],
        distances=instance.distances[rows],
        coordinates=None if instance.coordinates is None else instance.coordinates[members],
    )
    return small, rows


class ReducedInstance:
    """An instance with records merged, implied pairs dropped and split into connected parts, and the way back.

    A part is connected and has no implied pair and no two records at distance 0.

    Attributes:
        instance: The whole instance.
        parts: The connected parts, in order of their first records.
    """

    def __init__(self, instance: Instance) -> None:
        """Reduce an instance.

        Raises:
            OutOfTime: The time limit came while implied pairs were searched for.
        """
        self.instance, self._merged = instance, merge_records(instance)
        self._merged_instance = instance if self._merged is None else self._merged.instance
        self._small, self._rows = drop_implied_pairs(self._merged_instance)
        self._label = components(self._small.records, self._small.pairs)
        count = int(self._label.max()) + 1
        single_part = [(self._small, np.arange(len(self._small.pairs)))]
        cut = [_extract_component(self._small, self._label, c) for c in range(count)] if count > 1 else single_part
        self.parts = tuple(Part(small) for small, _ in cut)
        self._numbers = [number for _, number in cut]

    def mechanism(self, zs: Sequence[Floats]) -> Floats:
        """Join the mechanisms of the parts into the mechanism (N, K) of the whole instance."""
        z = np.zeros(self._small.cost.shape)
        for c, part_matrix in enumerate(zs):
            z[self._label == c] = part_matrix
        return z if self._merged is None else z[self._merged.group]

    def multipliers(self, proofs: Sequence[Multipliers]) -> Multipliers:
        """Join the multipliers of the parts into multipliers of the whole instance."""
        joined = proofs[0] if len(proofs) == 1 else self._join_parts(proofs)
        if (
            self._small is not self._merged_instance
        ):  # solved at an epsilon that is smaller by the share of the dropped pairs
            joined = joined.freer((self._merged_instance.epsilon - self._small.epsilon) * self._small.distances).among(
                self._rows
            )
        return joined if self._merged is None else self._merged.lift(joined)

    def _join_parts(self, proofs: Sequence[Multipliers]) -> Multipliers:
        """Merge the multipliers of all parts, output by output."""

        def rows() -> Iterator[Few]:
            part_rows = [proof.among(number).rows() for number, proof in zip(self._numbers, proofs, strict=True)]
            for k, parts in groupby(merge(*part_rows, key=itemgetter(0)), key=itemgetter(0)):
                _, pairs, values = zip(*parts, strict=True)
                yield k, np.concatenate(pairs), np.concatenate(values)

        return Multipliers(rows=rows, many=sum(proof.many for proof in proofs))

    def views(self, offers: PartOffers) -> list[PartOffers]:
        """Return the offers of each part. The other parts contribute their best offer, at first one output for all."""
        if len(self.parts) == 1:
            return [offers.through("", lambda z: self.mechanism([z]), lambda f: self.multipliers([f]))]
        views: list[_PartOffers] = []

        def offer(origin: str) -> None:
            """Offer the best of every part as one."""
            best = [view.firm for view in views]
            offers.offer(
                origin,
                candidate=Later(_join_results, self.mechanism, [part.candidate for part in best]),
                value=sum(part.value for part in best),
                bound=sum(part.bound for part in best),
                proof=Later(_join_results, self.multipliers, [part.proof for part in best]),
            )

        views += [_PartOffers(part.instance, offers, offer) for part in self.parts]
        offer("constant")
        return [*views]


def _join_results(join: Any, results: Sequence[Any]) -> Any:
    return join([evaluate(result) for result in results])


class _PartOffers(Offers[Floats, Multipliers]):
    """The offers of one part of several, with its own gap. Candidates of a relaxation wait until they are repaired."""

    def __init__(self, instance: Instance, outer: PartOffers, offer: Callable[[str], None]) -> None:
        super().__init__(outer.gap)
        constant = one_output(instance)
        self.best, self.firm = (
            BestOffer(constant.z, constant.objective, constant.multipliers, constant.lower_bound) for _ in range(2)
        )
        self.noise, self._outer, self._offer = instance.noise, outer, offer

    def _take(self, offer: Offer[Floats, Multipliers]) -> None:
        """Record an offer; if it improves the part, offer it for the whole with the best of the other parts."""
        super()._take(offer)
        if self.firm.take(offer.firm_part):
            self._offer(offer.origin)

    @property
    def reached(self) -> bool:
        """Whether the promised gap of this part is reached."""
        return is_within_gap(self.firm.value, self.firm.bound, self.gap, self.noise)

    def note(self, step: str, **figures: object) -> None:
        """Note a step in the path of the whole problem."""
        self._outer.note(step, **figures)
