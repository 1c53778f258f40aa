"""The search for the best photos to keep, which writes its proof as it goes (mathematics P5, Q3).

A case says of some locations that they are protected or do not count, and of some photos that they stay or go. It ends
when multipliers show that fewer photos than the target can stay, or when too few locations are left. The target only
ever grows, so a case once ended stays ended. When no case is open, the cases prove that the incumbent is best. When
time is short, open cases are closed at their bounds, for a weaker claim.
"""

from __future__ import annotations

from math import comb, floor, inf, log
from typing import Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.execution.clock import clock
from privopt_photo_censor.album import Album
from privopt_photo_censor.solver.bounds import WHOLE_TOLERANCE, Certificate, Photos, Program, along, exact_certificate
from privopt_photo_censor.solver.incumbent import Incumbent
from privopt_photo_censor.solver.proof import LEAF, PHOTO, PLACE, Tree

__all__ = ["Search"]

PROOF_EFFORT: Final = 60_000_000
"""Photos times leaves and their multipliers of a proof, at most: so many take `verify` 3 s, and the stand-alone checker
20 s (128 photos, top-20: .2 and 1.6 s for 4.6 million; 2 shared cores)."""
BEAM_SETS: Final = 8
"""Sets of locations that are grown side by side before the search, for a first incumbent. With 8 four albums of 64
photos, top-20, take .4 to .8 s each; with 1 or 2 one of them is not proved in 20 s, with none two (at a load of 6)."""
NEXT_PROGRAMS: Final = 64
"""Programs solved for the locations next to a case, at most, those with the lowest bounds first."""
LARGEST_SET: Final = 64
"""Sets of more locations are not grown: their programs take longer than what they find is worth."""
FEW_SETS: Final = 0.5
"""The search branches on photos where there are fewer sets of them than this power of the sets of locations."""
NONE: Final = Certificate(inf, np.zeros(0, dtype=np.int64), np.zeros(0))


@frozen(eq=False)
class Case:
    """An open case.

    Attributes:
        rows: (r,) the protected locations.
        inside: multipliers of some of them, and what they bound.
        open: the locations that may still count, each with multipliers next to those protected.
        photos: those that stay, and those that may.
        values: of the photos, in the program that gave `inside`; None where none did.
        costs: reduced costs, likewise.
        looked: whether the bounds of `open` are for these photos and locations.
    """

    rows: Ints
    inside: Certificate
    open: dict[int, Certificate]
    photos: Photos
    values: Floats | None = None
    costs: Floats | None = None
    looked: bool = False


class Search:
    """Cases met so far, and those that are open."""

    def __init__(self, album: Album, incumbent: Incumbent) -> None:
        """Open the first case: every location may count, each with the bound that it has alone."""
        self.album, self.data, self.incumbent = album, album.reduced, incumbent
        self.program = Program(self.data)
        self._cases: list[tuple[int, int]] = []
        self._leaves: list[Certificate] = []
        self._effort = 0
        self._stuck = False
        n = album.photos
        self._photos = Photos(self.data.keep, np.ones(n, dtype=np.bool_))
        able = np.flatnonzero(incumbent.reach >= 0)
        rows = np.arange(len(incumbent.reach))
        found = zip(rows.tolist(), *(part.tolist() for part in along(self.data, NONE, rows, self._photos)), strict=True)
        single = {j: Certificate(bound, np.array([j]), np.array([force])) for j, bound, force in found}
        self._open = [Case(NONE.rows, NONE, single, self._photos, looked=True)]
        self._order = np.argsort(self.data.diff[able].sum(axis=0), kind="stable")
        self.by_photos = self._fewer_photos()

    def _fewer_photos(self) -> bool:
        """Return whether there are far fewer sets of photos than of locations."""
        goal = self.incumbent
        free, able = int((~self.data.keep).sum()), int((goal.reach >= goal.need).sum())
        photos = comb(free, min(max(self.album.photos - goal.need, 0), free // 2))
        return log(photos) <= FEW_SETS * log(comb(able, min(goal.k, able // 2)))

    @property
    def done(self) -> bool:
        """Whether nothing is open."""
        return not self._open

    def run(self) -> None:
        """Go on until nothing is open, or time is over after a case."""
        found = -1
        while self._open:
            if self.incumbent.value > found:
                self.incumbent.polish()
                found = self.incumbent.value
            case = self._open.pop()
            begun = len(self._open), len(self._cases), len(self._leaves)
            try:
                self._meet(case)
            except BaseException:  # as if this case had not been met: what is proved so far stands
                del self._open[begun[0] :], self._cases[begun[1] :], self._leaves[begun[2] :]
                self._open.append(case)
                raise
            if self._stuck or self._effort > PROOF_EFFORT or clock().left == 0.0:
                break

    def beam(self) -> None:
        """Look for incumbents: sets of locations grown by their bounds, each then solved."""
        goal = self.incumbent
        if goal.k > LARGEST_SET:
            return
        able = np.flatnonzero(goal.reach >= goal.need)
        able = able[np.argsort(-goal.reach[able], kind="stable")][: 16 + 4 * goal.k]
        sets = [Case(NONE.rows, NONE, {}, self._photos)]
        for _ in range(goal.k):
            grown: dict[frozenset[int], tuple[float, Case, int]] = {}
            for case in sets:
                others = np.setdiff1d(able, case.rows)
                bounds, _ = along(self.data, case.inside, others, case.photos)
                for place in np.argsort(-bounds, kind="stable")[:BEAM_SETS].tolist():
                    j = int(others[place])
                    grown.setdefault(frozenset((*case.rows.tolist(), j)), (float(bounds[place]), case, j))
            best = sorted(grown.values(), key=lambda each: -each[0])[:BEAM_SETS]
            sets = [made for bound, case, j in best if bound >= goal.need and (made := self._with(case, j)) is not None]
            if clock().left == 0.0:
                return
        for case in sets:
            self._dive(case)

    def _dive(self, case: Case) -> None:
        """Offer photos near the program's of a full set: fractional ones gone, and then one by one fewer."""
        assert case.values is not None
        kept = case.values > 1.0 - WHOLE_TOLERANCE
        kept[self.data.keep] = True
        self.incumbent.offer(kept)
        for i in np.argsort(-case.values, kind="stable").tolist():
            if WHOLE_TOLERANCE < case.values[i] <= 1.0 - WHOLE_TOLERANCE:
                more = kept.copy()
                more[i] = True
                self.incumbent.offer(more)

    def _with(self, case: Case, j: int) -> Case | None:
        """Return the case in which location ``j`` is protected too; None where a photo that stays rules it out."""
        photos = case.photos.without(self.data.kills[j])
        if photos is None:
            return None
        rows = np.append(case.rows, j)
        inside, values, costs = self.program.solve(rows, photos)
        known = case.open.get(j, NONE)
        if known.bound < inside.bound:
            inside = known
        others = {other: each for other, each in case.open.items() if other != j}
        return Case(rows, inside, others, photos, values, costs)

    # The walk: what is written is in the order in which cases are met.

    def _close(self, by: Certificate) -> None:
        self._cases.append((LEAF, -1))
        self._leaves.append(by)
        self._effort += (1 + len(by.rows)) * self.album.photos

    def _rule_out(self, j: int, by: Certificate) -> None:
        """Write that location ``j`` cannot be protected too, so that it does not count."""
        self._cases.append((PLACE, int(self.data.location[j])))
        self._close(by)

    def _meet(self, case: Case) -> None:
        """Close a case, or branch."""
        goal = self.incumbent
        if case.inside.bound < goal.need:
            self._close(case.inside)
            return
        if len(case.rows) >= goal.k:
            self._meet_full(case)
            if len(case.rows) >= goal.k:
                return
        case = evolve(case, open=dict(case.open)) if case.looked else self._look(case)
        for j, by in list(case.open.items()):
            if by.bound < goal.need:
                self._rule_out(j, by)
                del case.open[j]
        if len(case.rows) + len(case.open) < goal.k:
            self._close(NONE)
        elif self.by_photos and (case.photos.may & ~case.photos.must).any():
            self._branch_on_photo(case)
        else:
            self._branch_on_location(case)

    def _look(self, case: Case) -> Case:
        """Bound the locations that may still count, where the bounds that they have do not rule them out."""
        goal = self.incumbent
        known = {j: by for j, by in case.open.items() if by.bound < goal.need}
        rows = np.array([j for j in case.open if j not in known], dtype=np.int64)
        found = dict(known)
        inside = case.inside
        if len(rows):
            bounds, force = along(self.data, inside, rows, case.photos)
            for j, bound, own in zip(rows.tolist(), bounds.tolist(), force.tolist(), strict=True):
                made = Certificate(bound, np.append(inside.rows, j), np.append(inside.force, own))
                found[j] = min(made, case.open[j], key=lambda each: each.bound)
        if len(case.rows):
            left = sorted((j for j in rows.tolist() if found[j].bound >= goal.need), key=lambda j: found[j].bound)
            for j in left[:NEXT_PROGRAMS]:
                if clock().left == 0.0:
                    break
                photos = case.photos.without(self.data.kills[j])
                if photos is not None:
                    made, _, _ = self.program.solve(np.append(case.rows, j), photos)
                    found[j] = min(made, found[j], key=lambda each: each.bound)
        if self.by_photos:
            goal.offer(case.photos.may)
        if (case.photos.may == case.photos.must).all():
            for j in [j for j, by in found.items() if by.bound >= goal.need]:
                found[j] = exact_certificate(self.data, j, case.photos.may) or found[j]
        return Case(case.rows, case.inside, found, case.photos, case.values, case.costs, looked=True)

    def _branch_on_location(self, case: Case) -> None:
        """Branch on the location with the lowest bound first, all others as candidates: those with many die soon."""
        j = min(case.open, key=lambda each: (case.open[each].bound, each))
        self._cases.append((PLACE, int(self.data.location[j])))
        inner = self._with(case, j)
        assert inner is not None  # its certificate would have ruled it out
        del case.open[j]
        self._open += [case, inner]

    def _branch_on_photo(self, case: Case, i: int | None = None) -> None:
        free = case.photos.may & ~case.photos.must
        i = int(next(each for each in self._order if free[each])) if i is None else i
        self._cases.append((PHOTO, i))
        one = np.arange(self.album.photos) == i
        rows = case.rows
        for photos in (
            Photos(case.photos.must, case.photos.may & ~one),
            Photos(case.photos.must | one, case.photos.may),
        ):
            inside, values, costs = self.program.solve(rows, photos) if len(rows) else (case.inside, None, None)
            self._open.append(Case(rows, inside, dict(case.open), photos, values, costs))

    def _meet_full(self, case: Case) -> None:
        """Meet a full set of locations: offer the program's photos, else branch on one."""
        goal = self.incumbent
        assert case.values is not None
        assert case.costs is not None
        self._dive(case)
        if case.inside.bound < goal.need:
            self._close(case.inside)
            return
        if len(case.rows) < goal.k:
            return
        free = case.photos.may & ~case.photos.must
        split = np.where(free, np.abs(case.values - np.rint(case.values)), -1.0)
        if split.max() <= WHOLE_TOLERANCE:
            split = np.where(free, -np.abs(case.costs), -np.inf)
        if free.any():
            self._branch_on_photo(case, int(split.argmax()))
            return
        made = (exact_certificate(self.data, j, case.photos.may) for j in case.rows.tolist())
        by = next((by for by in made if by is not None), None)
        if by is None:  # a sum is so near 0 that no multiplier tells: what is open has a weaker bound
            self._open.append(case)
            self._stuck = True
        else:
            self._close(by)

    # What is proved.

    def proof(self) -> tuple[int, Tree]:
        """Return the bound that the cases prove, open ones closed at what they have, and the tree of them.

        The bound is of the most photos that can stay, or under a budget of the most locations that can be protected.
        """
        goal = self.incumbent
        if goal.task.budget is None:
            bound = max([goal.need - 1, *(floor(self._most_photos(case)) for case in self._open)])
        else:
            bound = max([goal.k - 1, *(self._most_locations(case) for case in self._open)])
        cases, leaves = list(self._cases), list(self._leaves)
        for case in reversed(self._open):
            self._close_at(case, bound)
        tree = Tree.of(self._cases, self._leaves, self.data.location)
        self._cases, self._leaves = cases, leaves
        return bound, tree

    def _most_photos(self, case: Case) -> float:
        """Return what bounds the photos of an open case: the program's, or that of the last location it needs."""
        missing = self.incumbent.k - len(case.rows)
        if missing < 1:
            return case.inside.bound
        bounds = sorted((by.bound for by in case.open.values()), reverse=True)
        return min(case.inside.bound, bounds[missing - 1]) if missing <= len(bounds) else -1.0

    def _most_locations(self, case: Case) -> int:
        """Return how many locations an open case could gather."""
        if case.inside.bound < self.incumbent.need:
            return 0
        return len(case.rows) + sum(by.bound >= self.incumbent.need for by in case.open.values())

    def _close_at(self, case: Case, bound: int) -> None:
        """Close an open case for the claim that no set passes ``bound``."""
        need = bound + 1 if self.incumbent.task.budget is None else self.incumbent.need
        if case.inside.bound < need:
            self._close(case.inside)
            return
        for j, by in case.open.items():
            if by.bound < need:
                self._rule_out(j, by)
        self._close(NONE)
