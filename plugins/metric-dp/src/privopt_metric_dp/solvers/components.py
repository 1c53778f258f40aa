"""Make an instance smaller without changing its optimum, and lift the answer back.

Records at distance 0 are merged, implied pairs dropped (mathematics: Theorem 3.1 of the bounded
metric-DP paper), connected components solved one by one (Property 3.1 there).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.interfaces.offers import BestOffer, Later, Offer, Offers, evaluate, near
from privopt.numbers.graphs import components, shortest_rows
from privopt_metric_dp.proof.multipliers import Few, Multipliers
from privopt_metric_dp.solvers.instance import Instance, one_output
from privopt_metric_dp.solvers.solver import Part, PartOffers
from privopt_metric_dp.space.pairs import has_implied_pairs, reduce_pairs

__all__ = ["MergedInstance", "ReducedInstance", "drop_implied_pairs", "merge_records"]

MERGE_BELOW = 1e-9
"""Log-ratios up to this are taken for 0: the optimum moves by less than this share."""

RELATIVE_SLACK = 1e-9
"""Pairs count as implied up to this share of their length."""

BLOCK_COLUMNS = 128
"""Outputs whose multipliers are lifted together."""

INSIDE, SKIPPED = -1, -2


@frozen(kw_only=True, eq=False)
class MergedInstance:
    """An instance whose records at distance 0 are merged.

    Attributes:
        original: the instance before.
        instance: the instance after.
        group: ``(N,)`` merged record of each original record.
        pair: for each original pair its pair after; `INSIDE` a group, `SKIPPED` if a shorter pair joins the same two
            groups.
        flipped: whether that pair runs in the other direction.
    """

    original: Instance
    instance: Instance
    group: Ints
    pair: Ints
    flipped: NDArray[np.bool_]

    def lift(self, multipliers: Multipliers) -> Multipliers:
        """Lift multipliers to the original instance."""
        kept = np.flatnonzero(self.pair >= 0)
        before = np.empty(len(kept), dtype=np.int64)
        before[self.pair[kept]] = kept
        sign = np.where(self.flipped[before], -1, 1)
        outside = multipliers.mapped(lambda pairs, values: (before[pairs], values * sign[pairs]))
        return Multipliers(rows=lambda: self._inside(outside), many=multipliers.many)

    def _inside(self, multipliers: Multipliers) -> Iterator[Few]:
        """Add multipliers inside groups: all reduced cost of a group moves to its first record."""
        tree, (i, j) = _spanning_trees(self), self.original.pairs.T
        # capped: rows that far are never tight, and inf times a multiplier of 0 would be NaN
        growth = np.exp(np.minimum(self.original.lengths, 600.0))[:, None]
        known = {k: (pairs, values) for k, pairs, values in multipliers.rows()}
        for k0 in range(0, self.original.outputs, BLOCK_COLUMNS):
            reduced = self.original.cost[:, k0 : k0 + BLOCK_COLUMNS].copy()
            net = np.zeros((len(i), reduced.shape[1]))
            for column in range(reduced.shape[1]):
                pairs, values = known.get(k0 + column, (i[:0], growth[:0, 0]))
                net[pairs, column] = values
            forward, backward = np.maximum(net, 0.0), np.maximum(-net, 0.0)
            np.add.at(reduced, i, forward - growth * backward)
            np.add.at(reduced, j, backward - growth * forward)
            for child, parent, p in tree:  # leaves first
                up, down = np.maximum(-reduced[child], 0), np.maximum(reduced[child], 0) / growth[p]
                net[p] = up - down if i[p] == child else down - up
                reduced[parent] += down - growth[p] * up
            for column, values in enumerate(net.T, start=k0):
                pairs = np.flatnonzero(values)
                yield column, pairs, values[pairs]


def _spanning_trees(merged: MergedInstance) -> list[tuple[int, int, int]]:
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


def merge_records(instance: Instance) -> MergedInstance | None:
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
    return MergedInstance(
        original=instance, instance=small, group=label, pair=pair, flipped=before[:, 0] > before[:, 1]
    )


def drop_implied_pairs(instance: Instance) -> tuple[Instance, Ints]:
    """Drop pairs that paths over the others imply, up to a share `RELATIVE_SLACK` of their length.

    Sums of lengths along a road often exceed the distance by some last bits (1,000 road nodes: 9,058 pairs are left by
    exact sums, 1,444 here). Where pairs go, epsilon is divided by ``1 + RELATIVE_SLACK``: what keeps the rest then
    keeps all at the epsilon given, and a bound has to be evaluated there.

    Returns:
        The smaller instance and the numbers of the pairs that are left.
    """
    if not has_implied_pairs(instance.pairs, instance.distances, slack=RELATIVE_SLACK):
        return instance, np.arange(len(instance.pairs))
    kept = np.flatnonzero(reduce_pairs(instance.pairs, instance.distances, slack=RELATIVE_SLACK))
    if len(kept) == len(instance.pairs):
        return instance, kept
    epsilon = instance.epsilon / (1 + RELATIVE_SLACK)
    return evolve(instance, pairs=instance.pairs[kept], distances=instance.distances[kept], epsilon=epsilon), kept


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


class ReducedInstance:
    """An instance made smaller once, and the way back: records merged, implied pairs dropped, connected parts.

    A part is connected, has no implied pair, no two records at distance 0, and but for :meth:`solved` ones no output
    that is the cheapest for every record (so at least two records and two outputs).

    Attributes:
        instance: the whole.
        parts: connected ones, in order of their first records.
    """

    def __init__(self, instance: Instance) -> None:
        """Make it smaller.

        Raises:
            OutOfTime: the end came before the implied pairs of many were found.
        """
        self.instance, self._merged = instance, merge_records(instance)
        self._before = instance if self._merged is None else self._merged.instance
        self._kept, self._rows = drop_implied_pairs(self._before)
        self._label = components(self._kept.records, self._kept.pairs)
        count = int(self._label.max()) + 1
        whole = [(self._kept, np.arange(len(self._kept.pairs)))]
        cut = [_component(self._kept, self._label, c) for c in range(count)] if count > 1 else whole
        self.parts = tuple(Part(small) for small, _ in cut)
        self._numbers = [number for _, number in cut]

    def mechanism(self, zs: Sequence[Floats]) -> Floats:
        """Return the whole's mechanism (N, K) of one of each part."""
        z = np.zeros(self._kept.cost.shape)
        for c, own in enumerate(zs):
            z[self._label == c] = own
        return z if self._merged is None else z[self._merged.group]

    def multipliers(self, proofs: Sequence[Multipliers]) -> Multipliers:
        """Return the whole's multipliers of those of each part."""
        found = proofs[0] if len(proofs) == 1 else self._joined(proofs)
        if self._kept is not self._before:  # solved at an epsilon that is smaller by the share of the dropped pairs
            found = found.freer((self._before.epsilon - self._kept.epsilon) * self._kept.distances).among(self._rows)
        return found if self._merged is None else self._merged.lift(found)

    def _joined(self, proofs: Sequence[Multipliers]) -> Multipliers:
        """Return all parts' multipliers, output by output."""

        def rows() -> Iterator[Few]:
            own = [proof.among(number).rows() for number, proof in zip(self._numbers, proofs, strict=True)]
            for k, parts in groupby(merge(*own, key=itemgetter(0)), key=itemgetter(0)):
                _, pairs, values = zip(*parts, strict=True)
                yield k, np.concatenate(pairs), np.concatenate(values)

        return Multipliers(rows=rows, many=sum(proof.many for proof in proofs))

    def views(self, offers: PartOffers) -> list[PartOffers]:
        """Return what each part's solver offers to; the other parts stay at their best, or at one output for all."""
        if len(self.parts) == 1:
            return [offers.through("", lambda z: self.mechanism([z]), lambda f: self.multipliers([f]))]
        joined = _JoinedOffers(self, offers)
        views: list[PartOffers] = [_PartOffers(joined, part) for part in self.parts]
        joined.offer_best("constant", firm=True)
        return views


class _JoinedOffers:
    """The results of all parts, offered as one after each step of one of them."""

    def __init__(self, reduced: ReducedInstance, outer: PartOffers) -> None:
        self.reduced, self.outer, self.parts = reduced, outer, list[BestOffer[Floats, Multipliers]]()

    def offer_best(self, origin: str, *, firm: bool) -> None:
        """Offer the best of every part as one."""
        zs = [part.candidate for part in self.parts]
        proofs = [part.proof for part in self.parts]
        self.outer.offer(
            origin,
            candidate=Later(_all, self.reduced.mechanism, zs),
            value=sum(part.value for part in self.parts),
            bound=sum(part.bound for part in self.parts),
            proof=Later(_all, self.reduced.multipliers, proofs),
            firm=firm,
        )


def _all(join: Any, results: Sequence[Any]) -> Any:
    return join([evaluate(one) for one in results])


class _PartOffers(Offers[Floats, Multipliers]):
    """What one part of several offers; its gap is its own."""

    def __init__(self, joined: _JoinedOffers, part: Part) -> None:
        one = one_output(part.instance)
        self._joined, self.gap, self.noise = joined, joined.outer.gap, part.instance.noise
        self.best = BestOffer(one.z, one.objective, one.multipliers, one.lower_bound)
        self._firm: BestOffer[Floats, Multipliers] = BestOffer(one.z, one.objective, one.multipliers, one.lower_bound)
        joined.parts.append(self._firm)

    def _take(self, offer: Offer[Floats, Multipliers]) -> None:
        """Keep it; a relaxation's candidate waits until it is mended."""
        self.best.take(offer)
        if self._firm.take(offer.settled):
            self._joined.offer_best(offer.origin, firm=True)

    @property
    def reached(self) -> bool:
        """As promised for this part."""
        return near(self._firm.value, self._firm.bound, self.gap, self.noise)

    def confirm(self) -> bool:
        """Confirm a part's claim with the whole."""
        return self.reached

    def note(self, step: str, **figures: object) -> None:
        """Note a step at the whole problem."""
        self._joined.outer.note(step, **figures)
