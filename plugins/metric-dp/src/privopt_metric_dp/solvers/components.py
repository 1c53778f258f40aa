"""Reduce an instance without changing its optimum, and map solutions back to the original instance.

Records at distance 0 are merged, implied pairs are dropped (Theorem 3.1 in the bounded metric-DP paper), and connected
components are solved one by one (Property 3.1 in the same paper).
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
from privopt_metric_dp.proof.lagrangian_bound import Few, Multipliers
from privopt_metric_dp.solvers.instance import Instance, one_output
from privopt_metric_dp.solvers.solver import Part, PartOffers
from privopt_metric_dp.space.pairs import has_implied_pairs, reduce_pairs

__all__ = ["MergedInstance", "ReducedInstance", "drop_implied_pairs", "merge_records"]

MERGE_BELOW = 1e-9
"""The largest log ratio that is treated as 0. The relative change in the optimum is below this value."""

RELATIVE_SLACK = 1e-9
"""The relative amount by which a path may be longer than the distance between its ends and still imply their pair."""

BLOCK_COLUMNS, BLOCK_ENTRIES = 128, 4_000_000
"""The maximum numbers of outputs and of array entries when multipliers are mapped back in blocks.

An entry belongs to a pair and an output. Each block requires about five arrays with at most this many entries."""

INSIDE, SKIPPED = -1, -2
"""The values in `MergedInstance.pair` for a pair within a group, and for a pair that was skipped.

A pair is skipped if it is longer than another pair between the same two groups."""


@frozen(kw_only=True, eq=False)
class MergedInstance:
    """An instance whose records at distance 0 have been merged into groups.

    Attributes:
        original: The original instance.
        instance: The merged instance, with one record per group.
        group: Array of shape (N,) with the index of each original record's group.
        pair: Array of shape (P,) with the index of the merged pair for each original pair. It is `INSIDE` for a pair
            within a group, and `SKIPPED` if a shorter pair connects the same two groups.
        flipped: Boolean array of shape (P,) that indicates whether the merged pair has its two records in reverse
            order.
    """

    original: Instance
    instance: Instance
    group: Ints
    pair: Ints
    flipped: NDArray[np.bool_]

    def lift(self, multipliers: Multipliers) -> Multipliers:
        """Convert multipliers for the merged instance to multipliers for the original one that prove the same bound."""
        # `original_pair` is the inverse of `pair` and contains the original pair of each merged one. Pairs within
        # groups, and pairs that are longer than another one, have no merged pair.
        stored_pairs = np.flatnonzero(self.pair >= 0)
        original_pair = np.empty(len(stored_pairs), dtype=np.int64)
        original_pair[self.pair[stored_pairs]] = stored_pairs
        # The sign of a multiplier says to which of the pair's two rows it belongs.
        sign = np.where(self.flipped[original_pair], -1, 1)
        between_groups = multipliers.map_rows(lambda pairs, values: (original_pair[pairs], values * sign[pairs]))
        return Multipliers(rows=lambda: self._add_inner_multipliers(between_groups), many=multipliers.many)

    def _add_inner_multipliers(self, multipliers: Multipliers) -> Iterator[Few]:
        """Yield the multipliers for every output, including multipliers for the pairs within groups.

        The multipliers on a spanning tree of each group are chosen so that all reduced costs in the group are shifted
        to its first record.

        Args:
            multipliers: The multipliers for the original pairs between groups.

        Yields:
            The index of an output, the indices of its pairs, and the multipliers for these pairs.
        """
        tree, (i, j) = _spanning_trees(self), self.original.pairs.T
        # The exponent is capped because infinity times a multiplier of 0 would be NaN. Rows with larger exponents are
        # never tight.
        growth = np.exp(np.minimum(self.original.lengths, 600.0))[:, None]
        # `ahead` is the next output that has multipliers. Outputs are processed in blocks of `step`.
        rows, step = multipliers.rows(), max(1, min(BLOCK_COLUMNS, BLOCK_ENTRIES // max(1, len(i))))
        ahead = next(rows, None)
        for k0 in range(0, self.original.outputs, step):
            reduced = self.original.cost[:, k0 : k0 + step].copy()
            net = np.zeros((len(i), reduced.shape[1]))
            while ahead is not None and ahead[0] < k0 + step:  # outputs come in ascending order
                net[ahead[1], ahead[0] - k0] = ahead[2]
                ahead = next(rows, None)
            forward, backward = np.maximum(net, 0.0), np.maximum(-net, 0.0)
            np.add.at(reduced, i, forward - growth * backward)
            np.add.at(reduced, j, backward - growth * forward)
            # A multiplier f for the row z_child <= E z_parent adds f to the child's reduced cost and subtracts E f from
            # its parent's. Each f is chosen so that the child's reduced cost becomes 0. It moves to the parent, up to
            # the factor E, which is nearly 1.
            for child, parent, p in tree:  # leaves first
                upward, downward = np.maximum(-reduced[child], 0), np.maximum(reduced[child], 0) / growth[p]
                # A positive number belongs to the row z_i <= E z_j, so the sign depends on whether the child is i or j.
                net[p] = upward - downward if i[p] == child else downward - upward
                reduced[parent] += downward - growth[p] * upward
            for column, values in enumerate(net.T, start=k0):
                pairs = np.flatnonzero(values)
                yield column, pairs, values[pairs]


def _spanning_trees(merged: MergedInstance) -> list[tuple[int, int, int]]:
    """Return the edges of a spanning tree for each group of merged records, leaves first.

    Each edge is a tuple of a child, its parent, and the index of their pair in the original instance.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order

    n = merged.original.records
    # Pairs with lengths near 0 connect each group. Longer pairs within a group are not used.
    inner_pairs = np.flatnonzero((merged.pair == INSIDE) & (merged.original.lengths <= MERGE_BELOW))
    roots = np.unique(merged.group, return_index=True)[1]  # made children of an extra node, so that one search suffices
    tree_edges = np.concatenate([merged.original.pairs[inner_pairs], np.column_stack([roots, np.full(len(roots), n)])])
    graph = csr_array((np.ones(len(tree_edges)), tree_edges.T), shape=(n + 1, n + 1))
    order, parent = breadth_first_order(graph, n, directed=False)
    number = {
        (i, j): p for p, (i, j) in zip(inner_pairs.tolist(), merged.original.pairs[inner_pairs].tolist(), strict=True)
    }
    # Breadth-first order has parents before children, so its reverse has leaves first. The extra node n is left out.
    edges = [(child, int(parent[child])) for child in order[:0:-1].tolist()]
    return [
        (child, parent_node, number[min(child, parent_node), max(child, parent_node)])
        for child, parent_node in edges
        if parent_node != n
    ]


def merge_records(instance: Instance) -> MergedInstance | None:
    """Return the instance with records at distance 0 merged, or None if no two records are at distance 0.

    Pairs whose log ratio is at most `MERGE_BELOW` count as being at distance 0. Records at distance 0 must have equal
    rows, so they are replaced by a single record with the sum of their costs.
    """
    is_near = instance.lengths <= MERGE_BELOW
    if not is_near.any():
        return None
    # Groups are the connected components of near pairs, so two records in a group may be farther apart than the records
    # of a near pair.
    label = components(instance.records, instance.pairs[is_near])
    groups = int(label.max()) + 1
    cost = np.zeros((groups, instance.outputs))
    np.add.at(cost, label, instance.cost)
    group_pairs = label[instance.pairs]
    sorted_pairs = np.sort(group_pairs, axis=1)
    # Only the shortest pair between two groups matters. Pairs within a group are left out.
    shortest = shortest_rows(sorted_pairs, instance.distances)
    # Only the shortest pairs become merged pairs. The others are marked.
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
    """Drop pairs that are implied by paths of other pairs, up to a relative slack of `RELATIVE_SLACK`.

    The slack is needed because rounding often makes a sum of road lengths slightly larger than the distance. For 1,000
    road nodes, 9,058 pairs remain without slack, and 1,444 with it. If any pairs are dropped, epsilon is divided by
    ``1 + RELATIVE_SLACK``, so that a mechanism for the remaining pairs satisfies the privacy constraint of every pair
    at the given epsilon. Bounds must be evaluated at the given epsilon.

    Returns:
        The smaller instance, and the indices of the remaining pairs.

    Raises:
        OutOfTime: The time limit expired during the search for implied pairs.
    """
    # A sample of the pairs shows whether searching for implied ones is worth the time.
    if not has_implied_pairs(instance.pairs, instance.distances, slack=RELATIVE_SLACK):
        return instance, np.arange(len(instance.pairs))
    rows = np.flatnonzero(reduce_pairs(instance.pairs, instance.distances, slack=RELATIVE_SLACK))
    if len(rows) == len(instance.pairs):
        return instance, rows
    epsilon = instance.epsilon / (1 + RELATIVE_SLACK)
    return evolve(instance, pairs=instance.pairs[rows], distances=instance.distances[rows], epsilon=epsilon), rows


def _extract_component(instance: Instance, label: Ints, c: int) -> tuple[Instance, Ints]:
    """Return the instance for one connected component, and the indices of its pairs in the whole instance.

    Args:
        instance: The whole instance.
        label: Array of shape (N,) with the index of each record's component.
        c: The index of the component to extract.
    """
    members = np.flatnonzero(label == c)
    rows = np.flatnonzero(label[instance.pairs[:, 0]] == c)
    # The index of each record within the component.
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
    """An instance reduced to smaller ones, whose mechanisms and multipliers can be mapped back to the original.

    Records at distance 0 are merged, implied pairs are dropped, and each connected component becomes a part.

    Attributes:
        instance: The original instance.
        parts: The connected parts, in the order of their first records.
        _merged: The result of merging records, or None if none were merged.
        _merged_instance: The instance after records were merged.
        _small, _rows: The merged instance without implied pairs, and the indices of its pairs in `_merged_instance`.
        _label: Array of shape (N,) with the part index of each record in `_small`.
        _numbers: The indices in `_small` of each part's pairs.
    """

    def __init__(self, instance: Instance) -> None:
        """Reduce an instance.

        Raises:
            OutOfTime: The time limit expired during the search for implied pairs.
        """
        self.instance, self._merged = instance, merge_records(instance)
        self._merged_instance = instance if self._merged is None else self._merged.instance
        self._small, self._rows = drop_implied_pairs(self._merged_instance)
        self._label = components(self._small.records, self._small.pairs)
        count = int(self._label.max()) + 1
        # A single component is the whole instance, whose records and pairs keep their indices.
        single_part = [(self._small, np.arange(len(self._small.pairs)))]
        cut = [_extract_component(self._small, self._label, c) for c in range(count)] if count > 1 else single_part
        self.parts = tuple(Part(small) for small, _ in cut)
        self._numbers = [number for _, number in cut]

    def mechanism(self, zs: Sequence[Floats]) -> Floats:
        """Join mechanisms for the parts into a mechanism for the whole instance.

        Args:
            zs: One mechanism per part, in the order of the parts.

        Returns:
            Array of shape (N, K) with probabilities for all records of the original instance.
        """
        z = np.zeros(self._small.cost.shape)
        for c, part_matrix in enumerate(zs):
            z[self._label == c] = part_matrix
        # Merged records get equal rows.
        return z if self._merged is None else z[self._merged.group]

    def multipliers(self, proofs: Sequence[Multipliers]) -> Multipliers:
        """Join multipliers for the parts into multipliers for the whole instance.

        Args:
            proofs: The multipliers for each part, in the order of the parts.
        """
        joined = proofs[0] if len(proofs) == 1 else self._join_parts(proofs)
        if self._small is not self._merged_instance:
            # When pairs were dropped, the parts were solved at a slightly smaller epsilon (`RELATIVE_SLACK`). The rows
            # of the merged instance allow more. The multipliers are therefore scaled, which preserves most of the
            # bound, and re-indexed for that instance's pairs.
            joined = joined.freer((self._merged_instance.epsilon - self._small.epsilon) * self._small.distances).among(
                self._rows
            )
        return joined if self._merged is None else self._merged.lift(joined)

    def _join_parts(self, proofs: Sequence[Multipliers]) -> Multipliers:
        """Join the multipliers for all parts output by output, with pairs indexed as in the reduced instance.

        Args:
            proofs: The multipliers for each part, in the order of the parts.
        """

        def rows() -> Iterator[Few]:
            """Yield the multipliers of each output from all parts, in ascending order of outputs."""
            part_rows = [proof.among(number).rows() for number, proof in zip(self._numbers, proofs, strict=True)]
            # Every part yields its outputs in ascending order, so merging brings together one output's multipliers from
            # all parts.
            for k, parts in groupby(merge(*part_rows, key=itemgetter(0)), key=itemgetter(0)):
                _, pairs, values = zip(*parts, strict=True)
                yield k, np.concatenate(pairs), np.concatenate(values)

        return Multipliers(rows=rows, many=sum(proof.many for proof in proofs))

    def views(self, offers: PartOffers) -> list[PartOffers]:
        """For each part, return a view of the search that turns offers for the part into offers for the whole instance.

        Each offer for a part is combined with the best offers so far for the other parts. Initially, the best offer for
        each part is a mechanism that always reports the same output.

        Args:
            offers: The search that receives results for the whole instance.
        """
        if len(self.parts) == 1:
            # This view maps offers for the only part to the whole instance. With the name "", offers keep the names of
            # their methods.
            return [
                offers.through(
                    "",
                    candidate=lambda z: self.mechanism([z]),
                    proof=lambda multipliers: self.multipliers([multipliers]),
                )
            ]
        views: list[_PartOffers] = []

        def offer(origin: str) -> None:
            """Join the best offers for all parts and offer the result.

            Args:
                origin: The name of the method that improved one of the parts.
            """
            # Candidates from a relaxation do not count here, because the repair raises their values. `firm` contains a
            # part's best candidate with a final value.
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
    """Join the results for all parts, computing any deferred ones first.

    Args:
        join: A function that takes a list of the parts' candidates, or of their proofs, and joins them.
        results: One result per part, or a :class:`Later` that computes it.
    """
    return join([evaluate(result) for result in results])


class _PartOffers(Offers[Floats, Multipliers]):
    """The search for one of several parts of an instance, which measures the gap of that part alone.

    Candidates for a relaxation of the part, which may violate some constraints, are not passed on until they have been
    repaired.

    Attributes:
        firm: The best bound, and the best candidate with a final value. The value of a candidate for a relaxation is
            not final, because the repair increases it.
    """

    def __init__(self, instance: Instance, outer: PartOffers, offer: Callable[[str], None]) -> None:
        """Create the search for a part.

        Args:
            instance: The part's instance.
            outer: The search for the whole instance.
            offer: A function that takes the name of a method, joins the best offers for all parts, and offers the
                result under this name.
        """
        super().__init__(outer.gap)
        # Every part begins with a candidate and a bound, so that even the first offer for one part leads to an offer
        # for the whole instance. `best` and `firm` are two objects because better offers change each of them in place,
        # and `firm` accepts fewer of them.
        constant = one_output(instance)
        self.best, self.firm = (
            BestOffer(constant.z, constant.objective, constant.multipliers, constant.lower_bound) for _ in range(2)
        )
        self.noise, self._outer, self._offer = instance.noise, outer, offer

    def _take(self, offer: Offer[Floats, Multipliers]) -> None:
        """Store an offer. If it improves the part's best offer, offer the joined result for the whole instance."""
        super()._take(offer)
        if self.firm.take(offer.firm_part):
            self._offer(offer.origin)

    @property
    def has_reached_gap(self) -> bool:
        """Whether this part has reached the gap, according to the values reported by its solvers."""
        return is_within_gap(self.firm.value, self.firm.bound, self.gap, self.noise)

    def note(self, step: str, **figures: object) -> None:
        """Add a step to the list of steps kept by the search for the whole instance.

        Args:
            step: The step in words.
            figures: Statistics to record, keyed by name.
        """
        self._outer.note(step, **figures)
