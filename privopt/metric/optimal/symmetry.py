"""Symmetries of an instance: permutations of records and outputs that change nothing.

The LP is convex, so the average of an optimal mechanism over its symmetries is optimal too: one
column for each orbit of outputs and one row multiplier for each orbit of records are enough. A grid
has 8 symmetries, and its LP shrinks accordingly (columns by 8, row sums by 8).

Found by individualisation and refinement on the graph of required pairs, then verified on the costs:
a set of permutations is only ever used when all costs and distances agree to `TOLERANCE`.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Bools, Floats, Ints, Unsigned
from privopt.errors import StoppedError
from privopt.exact.multipliers import Few, Multipliers
from privopt.execution.limits import check_end, ending_at
from privopt.metric.optimal.instance import Instance
from privopt.metric.optimal.reduce import adjacency

__all__ = ["Symmetry", "find_symmetry"]

TOLERANCE = 1e-12
LARGEST = 64
BLOCK = 4_000_000


@frozen(kw_only=True, eq=False)
class Symmetry:
    """A group of symmetries with its orbits.

    Attributes:
        records: ``(G, N)`` image of each record under each member of the group.
        outputs: ``(G, K)`` image of each output.
        orbit: ``(N,)`` orbit of each record.
        representatives: ``(R,)`` one output of each orbit.
    """

    records: Ints
    outputs: Ints
    orbit: Ints
    representatives: Ints

    @classmethod
    def trivial(cls, instance: Instance) -> Symmetry:
        """The group of the identity alone."""
        n, k = np.arange(instance.records), np.arange(instance.outputs)
        return cls(records=n[None], outputs=k[None], orbit=n, representatives=k)

    @property
    def size(self) -> Ints:
        """``(O,)`` number of records in each orbit."""
        return np.bincount(self.orbit)

    def average(self, values: Floats) -> Floats:
        """Mean over each orbit of records, given back to its members."""
        if self.order == 1:
            return values
        return np.asarray((np.bincount(self.orbit, values) / self.size)[self.orbit])

    def reduced(self, instance: Instance) -> Instance:
        """The instance with the representatives' outputs alone."""
        return instance if self.order == 1 else evolve(instance, cost=instance.cost[:, self.representatives])

    @property
    def order(self) -> int:
        """Number of symmetries."""
        return len(self.records)

    def lift(self, columns: Floats) -> Floats:
        """Mechanism ``(N, K)`` from the columns ``(N, R)``, each the sum over its orbit of outputs."""
        if self.order == 1:
            return columns
        z = np.zeros((self.records.shape[1], self.outputs.shape[1]))
        for records, outputs in zip(self.records, self.outputs, strict=True):
            z[np.ix_(records, outputs[self.representatives])] += columns / self.order
        return z

    def origin(self) -> tuple[Ints, Ints]:
        """For each output the place of its orbit's representative, and a member that takes it there."""
        place = np.zeros(self.outputs.shape[1], dtype=np.int64)
        member = np.full(self.outputs.shape[1], -1, dtype=np.int64)
        for g in range(self.order - 1, -1, -1):
            image = self.outputs[g][self.representatives]
            place[image], member[image] = np.arange(len(image)), g
        return place, member

    def lift_multipliers(self, instance: Instance, columns: Multipliers) -> Multipliers:
        """Multipliers of all outputs from those of the representatives."""
        if self.order == 1:
            return columns
        n, pairs = instance.records, instance.pairs
        number = pairs[:, 0] * n + pairs[:, 1]

        def moved(g: int) -> tuple[Ints, Bools]:
            """Where a symmetry takes each pair, and whether it turns it round."""
            first, second = self.records[g][pairs[:, 0]], self.records[g][pairs[:, 1]]
            return np.searchsorted(number, np.minimum(first, second) * n + np.maximum(first, second)), first > second

        if (given := columns.few) is not None:

            def few() -> Iterator[Few]:
                known = {k: (rows, backward, values) for k, rows, backward, values in given()}
                place, member = self.origin()
                moves = {g: moved(g) for g in np.unique(member).tolist()}
                for k, (source, g) in enumerate(zip(place.tolist(), member.tolist(), strict=True)):
                    if source in known:
                        rows, backward, values = known[source]
                        to, turned = moves[g]
                        yield k, to[rows], backward ^ turned[rows], values

            return Multipliers.sparse(few, len(pairs))

        def blocks() -> Iterator[tuple[int, int, Floats, Floats]]:
            parts = list(columns.blocks())
            forward = np.concatenate([part[2] for part in parts], axis=1)
            backward = np.concatenate([part[3] for part in parts], axis=1)
            place, member = self.origin()
            step = max(1, min(instance.outputs, BLOCK // max(1, len(pairs))))
            for k0 in range(0, instance.outputs, step):
                k1 = min(instance.outputs, k0 + step)
                f = np.zeros((len(pairs), k1 - k0))
                b = np.zeros_like(f)
                for g in np.unique(member[k0:k1]):
                    check_end()
                    here = np.flatnonzero(member[k0:k1] == g)
                    source = place[k0:k1][here]
                    to, turns = moved(g)
                    turned = turns[:, None]
                    f[np.ix_(to, here)] = np.where(turned, backward[:, source], forward[:, source])
                    b[np.ix_(to, here)] = np.where(turned, forward[:, source], backward[:, source])
                yield k0, k1, f, b

        return Multipliers(blocks=blocks)


def _mix(value: Unsigned) -> Unsigned:
    value = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(value ^ (value >> np.uint64(31)), dtype=np.uint64)


def _classes(values: Floats) -> Unsigned:
    """Number equal values (to 1e-9 of the largest) alike, in increasing order."""
    order = np.argsort(values, kind="stable")
    scale = max(float(np.abs(values).max(initial=0)), 1e-300)
    steps = np.diff(values[order]) > 1e-9 * scale
    result = np.zeros(len(values), dtype=np.uint64)
    result[order[1:]] = np.cumsum(steps).astype(np.uint64)
    return result


class _Search:
    """Individualisation and refinement; gives up after a fixed amount of work."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.start, self.other, length, _ = adjacency(instance)
        check_end()
        self.label = _mix(_classes(length) + np.uint64(1))
        self.budget = min(400, int(3e8 / max(1, len(self.other))))
        self.complete = False

    def refine(self, colour: Unsigned) -> Unsigned:
        check_end()
        self.budget -= 1
        cells = len(np.unique(colour))
        while cells < len(colour):
            spread = _mix(colour[self.other] + self.label)
            total = np.add.reduceat(spread, self.start[:-1])
            fresh = _mix(colour * np.uint64(3) + total)
            count = len(np.unique(fresh))
            if count == cells:
                break
            colour, cells = fresh, count
        return colour

    def split(self, colour: Unsigned, record: int) -> Unsigned:
        colour = colour.copy()
        colour[record] = _mix(colour[record : record + 1] + np.uint64(7))[0]
        return self.refine(colour)

    def run(self) -> list[Ints]:
        cost = self.instance.cost
        mean = _classes(cost.sum(axis=1)) * np.uint64(1 << 20) + _classes((cost**2).sum(axis=1))
        base: list[int] = []
        stages = [self.refine(_mix(mean + np.uint64(1)))]
        while len(np.unique(stages[-1])) < len(cost):
            _, inverse, count = np.unique(stages[-1], return_inverse=True, return_counts=True)
            size = np.where(count[inverse] > 1, count[inverse], len(cost) + 1)
            base.append(int(size.argmin()))
            if len(base) > 8 or self.budget <= 0:
                return []
            stages.append(self.split(stages[-1], base[-1]))
        self.base, self.stages = base, stages
        self.sorted = [np.sort(stage) for stage in stages]
        self.found: list[Ints] = []
        self.complete = self._descend(0, stages[0])
        return self.found

    def _descend(self, depth: int, colour: Unsigned) -> bool:
        if not np.array_equal(np.sort(colour), self.sorted[depth]):
            return True
        if depth == len(self.base):
            image = np.empty(len(colour), dtype=np.int64)
            image[np.argsort(self.stages[depth])] = np.argsort(colour)
            self.found.append(image)
            return len(self.found) < LARGEST
        for record in np.flatnonzero(colour == self.stages[depth][self.base[depth]]):
            if self.budget <= 0 or not self._descend(depth + 1, self.split(colour, int(record))):
                return False
        return True


def _outputs_image(cost: Floats, records: Ints, probe: Floats) -> Ints | None:
    """Images of the outputs that go with images of the records, or None."""
    image = np.empty(cost.shape[1], dtype=np.int64)
    before, after = probe @ cost, probe @ cost[records]
    image[np.argsort(before)] = np.argsort(after)
    scale = float(np.abs(cost).max())
    step = max(1, 2_000_000 // cost.shape[1])
    for a in range(0, len(cost), step):
        part = cost[np.ix_(records[a : a + step], image)]
        if np.abs(part - cost[a : a + step]).max() > TOLERANCE * scale:
            return None
    return image


def _keeps_pairs(instance: Instance, records: Ints) -> bool:
    n = instance.records
    i, j = instance.pairs.T
    number = i * n + j
    a, b = records[i], records[j]
    moved = np.minimum(a, b) * n + np.maximum(a, b)
    to = np.minimum(np.searchsorted(number, moved), len(number) - 1)
    same = np.abs(instance.distances[to] - instance.distances) <= TOLERANCE * instance.distances.max()
    return bool((number[to] == moved).all() and same.all())


def _verified(instance: Instance, images: list[Ints]) -> list[tuple[Ints, Ints]]:
    """The images that keep pairs and costs, with their outputs' images; products of verified ones are not looked at."""
    probe = np.random.default_rng(1).uniform(1, 2, instance.records)
    members = [(np.arange(instance.records), np.arange(instance.outputs))]
    known = {members[0][0].tobytes()}
    for records in images:
        check_end()
        if records.tobytes() in known or not _keeps_pairs(instance, records):
            continue
        outputs = _outputs_image(instance.cost, records, probe)
        if outputs is None:
            continue
        fresh = [(records, outputs)]
        while fresh and len(members) <= LARGEST:
            a = fresh.pop()
            if a[0].tobytes() in known:
                continue
            known.add(a[0].tobytes())
            members.append(a)
            for b in tuple(members):
                fresh += [(a[0][b[0]], a[1][b[1]]), (b[0][a[0]], b[1][a[1]])]
    return members


def find_symmetry(instance: Instance, *, deadline: float | None = None) -> Symmetry:
    """Find the symmetries of a connected instance, at most `LARGEST`; the trivial group where none, or no time."""
    try:
        with ending_at(deadline):
            search = _Search(instance)
            images = search.run()
            members = _verified(instance, images) if search.complete else []
    except StoppedError:
        return Symmetry.trivial(instance)
    if len(members) < 2 or not _is_group(members):
        return Symmetry.trivial(instance)
    records = np.stack([m[0] for m in members])
    outputs = np.stack([m[1] for m in members])
    orbit = np.unique(records.min(axis=0), return_inverse=True)[1]
    return Symmetry(records=records, outputs=outputs, orbit=orbit, representatives=np.unique(outputs.min(axis=0)))


def _is_group(members: list[tuple[Ints, Ints]]) -> bool:
    known = {records.tobytes() + outputs.tobytes() for records, outputs in members}
    return all(a[0][b[0]].tobytes() + a[1][b[1]].tobytes() in known for a in members for b in members)
