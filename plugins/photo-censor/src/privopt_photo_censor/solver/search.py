"""Branch and bound for the best set of photos to retain, with a proof that is recorded during the search.

A case, which is a node of the search tree, fixes some locations as protected or not counted, and some photos as
retained or deleted. A case is closed when multipliers prove that too few photos can stay for a better set, or when too
few locations may still be protected. Because the requirements for a better set only become stricter, a closed case
stays closed. When no case is open, the cases prove that the incumbent is optimal. If the search is stopped, the open
cases are closed at their bounds, which proves a weaker bound.
"""

from __future__ import annotations

from copy import copy
from math import comb, floor, inf, log
from typing import Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.execution.clock import clock
from privopt_photo_censor.album import Album
from privopt_photo_censor.solver.bounds import (
    WHOLE_TOLERANCE,
    Certificate,
    Photos,
    Program,
    bound_extensions,
    exact_certificate,
)
from privopt_photo_censor.solver.incumbent import Incumbent
from privopt_photo_censor.solver.proof import LEAF, PHOTO, PLACE, Tree, make_claim
from privopt_photo_censor.solver.rounding import round_core

__all__ = ["Search"]

PROOF_EFFORT: Final = 60_000_000
"""The maximum size of a proof: the number of photos times the number of closed cases and their multipliers.

For such a proof, ``verify`` takes 3 s and the stand-alone checker 20 s on 2 shared cores. For 128 photos and top-20,
with a proof of size 4.6 million, they take 0.2 s and 1.6 s.
"""
BEAM_SETS: Final = 8
"""The beam width, i.e. the number of sets of locations kept by the beam search for a first incumbent.

With a width of 8, four albums of 64 photos (top-20) take 0.4 to 0.8 s each. With a width of 1 or 2, one of the albums
is not solved within 20 s. Without the beam search, two are not solved.
"""
NEXT_PROGRAMS: Final = 64
"""The maximum number of candidates per case to bound by a linear program. Those with the lowest bounds are chosen."""
LARGEST_SET: Final = 64
"""The maximum number of locations per set in the beam search. For larger sets, the beam search costs more time than it
saves."""
FEW_SETS: Final = 0.5
"""The exponent y in the rule for branching: the search branches on photos if there are at most x**y sets of photos for
x sets of locations."""
CORE_WORK: Final = 100_000
"""The work on linear programs before the first core is rounded, in the same units as :attr:`Program.work`.

Three times as much work is done before each subsequent core. This takes about as long as rounding a core. Most albums
of up to 128 photos are solved before the first core, because branching on photos is faster for them.
"""
NONE: Final = Certificate(inf, np.zeros(0, dtype=np.int64), np.zeros(0))
"""A certificate that proves nothing: it has no multipliers, and its bound is infinite."""


@frozen(eq=False)
class Case:
    """An open case, i.e. a node of the search tree that has been neither closed nor branched on yet.

    A location is protected by a set of retained photos if it ranks at or above the true location.

    Attributes:
        rows: (r,) The locations that must be protected, as rows of :class:`Alternates`.
        certificate: The Lagrange multipliers of some of these locations, and the bound they prove on the number of
            retained photos.
        candidates: The additional locations that may be protected, each with a certificate that bounds the number of
            photos that can be kept if this location is protected as well. The keys are rows of :class:`Alternates`.
        photos: The photos that must be kept, and the photos that may be kept.
        values: (N,) The value of each photo in the case's linear program. None if the program was not solved.
        costs: (N,) The reduced cost of each photo in this program. None if the program was not solved.
        is_bounded: Whether the candidates' certificates were computed for exactly these photos and locations.
    """

    rows: Ints
    certificate: Certificate
    candidates: dict[int, Certificate]
    photos: Photos
    values: Floats | None = None
    costs: Floats | None = None
    is_bounded: bool = False


class Search:
    """A depth-first branch-and-bound search for a better set of photos, which records its proof.

    Attributes:
        album, data: The scores, and the same scores in the form used by the solvers.
        incumbent: The best set of photos so far, and what a better set must achieve.
        program: The linear program that bounds sets of locations.
        by_photos: Whether the search branches on photos rather than on locations when both are possible.
        _root: The case in which every location may be protected.
        _open: The stack of open cases. The last one is processed next.
        _cases: The kind and item of each finished case, in preorder (see :class:`Tree`).
        _leaves: The certificates of the closed cases, in the same order.
        _effort: The size of the proof so far, in the same units as :data:`PROOF_EFFORT`.
        _stuck: Whether a case can be neither closed nor branched on, which ends the search.
        _core_count: The number of linear programs whose cores have been rounded so far.
        _rounded: The sets of locations whose linear programs have been rounded with no photo fixed by the search.
        _photos: The photos that must be kept and the photos that may be kept in the root case.
        _order: (N,) The photos in the order in which the search branches on them.
    """

    def __init__(self, album: Album, incumbent: Incumbent) -> None:
        """Open the root case, in which every location is a candidate with its own bound.

        Args:
            album: The scores. No photo may assign probability 0 to the true location.
            incumbent: The best set so far, and what a better set must achieve.
        """
        self.album, self.data, self.incumbent = album, album.alternates, incumbent
        self.program = Program(self.data)
        self._cases: list[tuple[int, int]] = []
        self._leaves: list[Certificate] = []
        self._effort = 0
        self._stuck = False
        self._core_count = 0
        self._rounded: set[tuple[int, ...]] = set()
        n = album.photos
        self._photos = Photos(self.data.keep, np.ones(n, dtype=np.bool_))
        # `reach` is the number of photos that can stay if a location alone must be protected, and -1 if it cannot be
        # protected at all.
        protectable = np.flatnonzero(incumbent.reach >= 0)
        rows = np.arange(len(incumbent.reach))
        # For each location, an upper bound on the number of photos that can stay, and the multiplier that proves it.
        certificates = zip(
            rows.tolist(),
            *(part.tolist() for part in bound_extensions(self.data, NONE, rows, self._photos)),
            strict=True,
        )
        single = {j: Certificate(bound, np.array([j]), np.array([multiplier])) for j, bound, multiplier in certificates}
        self._root = Case(NONE.rows, NONE, single, self._photos, is_bounded=True)
        self._open = [self._root]
        # The search first branches on the photos that favour the true location most. These have the smallest sums,
        # because `diff` is negative if a photo favours the true location over another one.
        self._order = np.argsort(self.data.diff[protectable].sum(axis=0), kind="stable")
        self.by_photos = self._fewer_photos()

    def _fewer_photos(self) -> bool:
        """Return whether there are far fewer sets of photos to delete than sets of locations to protect.

        Each number is estimated by a binomial coefficient "n choose k". Smaller sets count too, so k is capped at
        n / 2, beyond which the coefficients would decrease.
        """
        goal = self.incumbent
        # The photos that may be deleted, and the locations that can be protected while `need` photos stay.
        free, protectable = int((~self.data.keep).sum()), int((goal.reach >= goal.need).sum())
        photo_sets = comb(free, min(max(self.album.photos - goal.need, 0), free // 2))
        return log(photo_sets) <= FEW_SETS * log(comb(protectable, min(goal.k, protectable // 2)))

    @property
    def is_done(self) -> bool:
        """Whether the proof is complete, i.e. no cases are left open."""
        return not self._open

    def make_search_above(self, bound: int) -> Search:
        """Return a new search for a set of photos whose value exceeds ``bound``.

        The new search starts at the root case. If it ends without finding such a set, its cases prove the bound. The
        two searches share the linear program.
        """
        other = copy(self)
        other.incumbent = copy(self.incumbent)
        other.incumbent.retained = None
        other.incumbent.k, other.incumbent.need = make_claim(self.album, self.incumbent.task, bound)
        other._open, other._cases, other._leaves = [self._root], [], []
        other._effort, other._stuck, other._rounded = 0, False, set()
        other.by_photos = other._fewer_photos()
        return other

    @property
    def work(self) -> int:
        """The work done on linear programs so far, in the same units as :attr:`Program.work`."""
        return self.program.work

    def run(self, *, max_work: float = inf, first_only: bool = False) -> None:
        """Process open cases until none are left, the proof becomes too large, or the time limit is reached.

        The search also ends if a case can be neither closed nor branched on.

        Args:
            max_work: The amount of :attr:`work` after which the search pauses. To continue it, call the method again.
            first_only: Whether to stop at the first set of photos that solves the task.
        """
        polished_value = -1
        while self._open and self.work <= max_work and not (first_only and self.incumbent.retained is not None):
            # Exchanging photos is expensive, so it is tried once for each new incumbent rather than for each case.
            if self.incumbent.value > polished_value:
                self.incumbent.polish()
                polished_value = self.incumbent.value
            case = self._open.pop()
            lengths = len(self._open), len(self._cases), len(self._leaves)
            try:
                self._process_case(case)
            except BaseException:
                # The case is put back as if untouched, so that the cases recorded so far still form a proof after an
                # interrupt.
                del self._open[lengths[0] :], self._cases[lengths[1] :], self._leaves[lengths[2] :]
                self._open.append(case)
                raise
            if self._stuck or self._effort > PROOF_EFFORT or clock().left == 0.0:
                break

    def run_beam(self) -> None:
        """Find good sets of photos before the search starts, by a beam search over sets of locations to protect.

        Each step extends every set by one location, and keeps the :data:`BEAM_SETS` sets with the best bounds. When the
        sets are large enough, their linear programs are rounded to sets of photos, which are offered to the incumbent.
        """
        goal = self.incumbent
        if goal.k > LARGEST_SET:
            return
        # Only locations that let enough photos stay are promising. To limit the work, the best of them are taken.
        promising = np.flatnonzero(goal.reach >= goal.need)
        promising = promising[np.argsort(-goal.reach[promising], kind="stable")][: 16 + 4 * goal.k]
        sets = [Case(NONE.rows, NONE, {}, self._photos)]
        for _ in range(goal.k):
            grown: dict[frozenset[int], tuple[Case, int, Certificate]] = {}
            for case in sets:
                others = np.setdiff1d(promising, case.rows)
                bounds, force = bound_extensions(self.data, case.certificate, others, case.photos)
                for position in np.argsort(-bounds, kind="stable")[:BEAM_SETS].tolist():
                    j = int(others[position])
                    extended = Certificate(
                        float(bounds[position]),
                        np.append(case.rows, j),
                        np.append(case.certificate.force, force[position]),
                    )
                    # The same set may be reached by adding its locations in another order. It is kept only once.
                    grown.setdefault(frozenset((*case.rows.tolist(), j)), (case, j, extended))
            best = sorted(grown.values(), key=lambda entry: -entry[2].bound)[:BEAM_SETS]
            # The case is given the new location's certificate, so that the child's bound is computed from these
            # multipliers.
            sets = [
                evolve(child, candidates={})
                for case, j, extended in best
                if extended.bound >= goal.need
                and (child := self._add_location(evolve(case, candidates={j: extended}), j)) is not None
            ]
            if clock().left == 0.0:
                return
        for case in sets:
            self._offer_rounded(case)

    def _offer_rounded(self, case: Case) -> None:
        """Round the solution of a case's linear program to sets of photos, and offer them to the incumbent.

        The program gives each photo a value from 0 (deleted) to 1 (retained). The set of photos with value 1 is offered
        first. Then the same set is offered with one more photo, for each photo with a fractional value.
        """
        assert case.values is not None
        retained = case.values > 1.0 - WHOLE_TOLERANCE
        retained[self.data.keep] = True
        self.incumbent.offer(retained)
        # A solution has few fractional photos, and often one of them can stay.
        for i in np.argsort(-case.values, kind="stable").tolist():
            if WHOLE_TOLERANCE < case.values[i] <= 1.0 - WHOLE_TOLERANCE:
                larger = retained.copy()
                larger[i] = True
                self.incumbent.offer(larger)

    def _offer_core(self, case: Case) -> None:
        """Round the core of a case's linear program, and offer the resulting photos to the incumbent.

        The core consists of the photos with the smallest reduced costs. Nothing is done if the case's bound rules out a
        better set, or if too little work has been done since the last rounding.
        """
        goal, photos = self.incumbent, case.photos
        if case.certificate.bound < goal.need or self.work < (1 + 3 * self._core_count) * CORE_WORK:
            return
        self._core_count += 1
        # The first time that these locations are rounded, none of the photos fixed by the search are fixed in the
        # program, which leaves the widest choice.
        key = tuple(case.rows.tolist())
        if key not in self._rounded:
            self._rounded.add(key)
            photos = Photos(self._photos.must, self._photos.may & ~self.data.kills[case.rows].any(axis=0))
        certificate, values, _ = self.program.solve(case.rows, photos)
        weights = 1.0 + certificate.force @ self.data.diff[certificate.rows]
        # Under a budget, retaining more photos than needed is of no use.
        enough = floor(certificate.bound) if goal.task.budget is None else goal.need
        # HiGHS is more likely to find a large set if the size is required than if it has to be reached by improving
        # smaller sets.
        for least in dict.fromkeys((enough, goal.need)):
            retained = round_core(self.data, case.rows, weights, values, photos, (least, enough))
            if retained is not None and goal.offer(retained):
                return

    def _add_location(self, case: Case, j: int) -> Case | None:
        """Return the child of a case that requires location ``j`` to be protected too, with a new bound for this child.

        Returns None if a photo that must be kept rules out the location.
        """
        photos = case.photos.drop_photos(self.data.kills[j])
        if photos is None:
            return None
        rows, previous = np.append(case.rows, j), case.candidates.get(j, NONE)
        values: Floats | None = None
        costs: Floats | None = None
        # Only a case with as many locations as the task needs will be rounded, which takes the photos' values.
        if len(rows) >= self.incumbent.k:
            certificate, values, costs = self.program.solve(rows, photos)
        else:
            start = case.certificate if previous is NONE else previous
            certificate = self.program.bound_locations(rows, photos, start, self.incumbent.need)
        # Both certificates are valid for the child, so the smaller bound is used.
        if previous.bound < certificate.bound:
            certificate = previous
        others = {row: certificate for row, certificate in case.candidates.items() if row != j}
        return Case(rows, certificate, others, photos, values, costs)

    # The methods below record the cases in preorder, because the checker processes the tree with a stack.

    def _write_leaf(self, certificate: Certificate) -> None:
        """Record a closed case in the proof.

        Args:
            certificate: The multipliers that prove that too few photos can be kept, or :data:`NONE` if the case is
                closed because too few locations may be protected.
        """
        self._cases.append((LEAF, -1))
        self._leaves.append(certificate)
        # For each photo, a verifier evaluates a sum of 1 and a term per multiplier.
        self._effort += (1 + len(certificate.rows)) * self.album.photos

    def _rule_out(self, j: int, certificate: Certificate) -> None:
        """Record a branch on location ``j``, and close the child in which the location is protected.

        Args:
            j: The location, as a row of :class:`Alternates`.
            certificate: The multipliers that close this child.
        """
        self._cases.append((PLACE, int(self.data.location[j])))
        self._write_leaf(certificate)

    def _process_case(self, case: Case) -> None:
        """Close a case if its bounds allow it, and otherwise branch on a location or a photo.

        The outcome is recorded in the proof and on the stack of open cases.
        """
        goal = self.incumbent
        # A better set would have to retain more photos than can stay.
        if case.certificate.bound < goal.need:
            self._write_leaf(case.certificate)
            return
        if len(case.rows) >= goal.k:
            self._process_full_case(case)
            # Under a budget, a new incumbent raises goal.k, and then the case no longer has enough locations.
            if len(case.rows) >= goal.k:
                return
        case = evolve(case, candidates=dict(case.candidates)) if case.is_bounded else self._bound_candidates(case)
        # Candidates that let too few photos stay are ruled out, each by a branch in the proof.
        for j, certificate in list(case.candidates.items()):
            if certificate.bound < goal.need:
                self._rule_out(j, certificate)
                del case.candidates[j]
        # A case may run out of locations after it was opened, because goal.k grows with the incumbent under a budget.
        if len(case.rows) + len(case.candidates) < goal.k:
            self._write_leaf(NONE)  # no multipliers are needed, because too few locations are left
        elif self.by_photos and (case.photos.may & ~case.photos.must).any():
            self._branch_on_photo(case)
        else:
            self._branch_on_location(case)

    def _bound_candidates(self, case: Case) -> Case:
        """Return a copy of a case with new bounds for the candidates that the parent's bounds do not rule out.

        A candidate is an additional location that may be protected. Its bound limits the number of photos that can be
        kept if the candidate is protected. First, a cheap bound with one additional multiplier is computed for
        each candidate. Then a linear program is solved for the candidates with the lowest bounds, which are the most
        likely to be ruled out. Each candidate keeps the smallest bound that is valid for it.
        """
        goal = self.incumbent
        # `need` is the number of photos that a better set must retain, so these candidates cannot be part of one.
        excluded = {j: certificate for j, certificate in case.candidates.items() if certificate.bound < goal.need}
        rows = np.array([j for j in case.candidates if j not in excluded], dtype=np.int64)
        certificates = dict(excluded)
        certificate = case.certificate
        if len(rows):
            bounds, force = bound_extensions(self.data, certificate, rows, case.photos)
            for j, bound, multiplier in zip(rows.tolist(), bounds.tolist(), force.tolist(), strict=True):
                extended = Certificate(bound, np.append(certificate.rows, j), np.append(certificate.force, multiplier))
                certificates[j] = min(extended, case.candidates[j], key=lambda entry: entry.bound)
        # If no location is protected yet, the cheap bounds are already tight.
        if len(case.rows):
            remaining = sorted(
                (j for j in rows.tolist() if certificates[j].bound >= goal.need), key=lambda j: certificates[j].bound
            )
            for j in remaining[:NEXT_PROGRAMS]:
                if clock().left == 0.0:
                    break
                photos = case.photos.drop_photos(self.data.kills[j])
                if photos is not None:
                    certificate = certificates[j]
                    extended = self.program.bound_locations(np.append(case.rows, j), photos, certificate, goal.need)
                    certificates[j] = min(extended, certificate, key=lambda entry: entry.bound)
        if self.by_photos:
            # No set in this case retains more photos than the set of all that may stay. So that set is offered.
            goal.offer(case.photos.may)
        # If all photos are fixed, a bound may reach `need` only because of its allowance for rounding. Exact sums
        # decide then.
        if (case.photos.may == case.photos.must).all():
            for j in [j for j, certificate in certificates.items() if certificate.bound >= goal.need]:
                certificates[j] = exact_certificate(self.data, j, case.photos.may) or certificates[j]
        return Case(case.rows, case.certificate, certificates, case.photos, case.values, case.costs, is_bounded=True)

    def _branch_on_location(self, case: Case) -> None:
        """Branch on whether the candidate with the lowest bound is protected.

        The child that protects this candidate is likely to be closed soon.
        """
        j = min(case.candidates, key=lambda row: (case.candidates[row].bound, row))
        self._cases.append((PLACE, int(self.data.location[j])))
        inner = self._add_location(case, j)
        assert inner is not None  # a candidate that a kept photo rules out has the bound -1, and is gone by now
        del case.candidates[j]
        # The stack is processed from its end, so the child in which the location is protected comes first in the proof.
        self._open += [case, inner]

    def _branch_on_photo(self, case: Case, i: int | None = None) -> None:
        """Branch on whether photo ``i`` is kept. By default, the first undecided photo in ``_order`` is used."""
        free = case.photos.may & ~case.photos.must
        i = int(next(photo for photo in self._order if free[photo])) if i is None else i
        # The child in which the photo is retained is pushed last below, so that it comes first in the proof.
        self._cases.append((PHOTO, i))
        is_photo = np.arange(self.album.photos) == i
        rows = case.rows
        for photos in (
            Photos(case.photos.must, case.photos.may & ~is_photo),
            Photos(case.photos.must | is_photo, case.photos.may),
        ):
            certificate, values, costs = case.certificate, None, None
            if len(rows):
                solved, values, costs = self.program.solve(rows, photos)
                # The bound of the case is also valid for its two children.
                certificate = min(solved, certificate, key=lambda entry: entry.bound)
            self._open.append(Case(rows, certificate, dict(case.candidates), photos, values, costs))

    def _process_full_case(self, case: Case) -> None:
        """Process a case that protects as many locations as a better set must protect.

        First, sets of photos found by rounding are offered to the incumbent. Then the case is closed if its bound
        allows it. Otherwise, the search branches on a photo or, if all photos are decided, closes the case by an exact
        certificate. If there is no such certificate, the case stays open and the search ends.
        """
        goal = self.incumbent
        assert case.values is not None
        assert case.costs is not None
        self._offer_rounded(case)
        self._offer_core(case)
        if case.certificate.bound < goal.need:
            self._write_leaf(case.certificate)
            return
        # Under a budget, the offers above may have raised goal.k. Then the case has too few locations, and the caller
        # goes on with it.
        if len(case.rows) < goal.k:
            return
        free = case.photos.may & ~case.photos.must
        # Branch on the photo whose value is most fractional.
        priority = np.where(free, np.abs(case.values - np.rint(case.values)), -1.0)
        # If all values are integral, the photos have failed by their exact rank. Then branch on the smallest reduced
        # cost.
        if priority.max() <= WHOLE_TOLERANCE:
            priority = np.where(free, -np.abs(case.costs), -np.inf)
        if free.any():
            self._branch_on_photo(case, int(priority.argmax()))
            return
        exact_certificates = (exact_certificate(self.data, j, case.photos.may) for j in case.rows.tolist())
        certificate = next((certificate for certificate in exact_certificates if certificate is not None), None)
        # Without a certificate, the locations' sums are too near 0 for any allowed multiplier, and the case stays open.
        if certificate is None:
            self._open.append(case)
            self._stuck = True
        else:
            self._write_leaf(certificate)

    def make_proof(self) -> tuple[int, Tree]:
        """Return the upper bound proved so far by the search, and the tree of cases that proves it.

        The bound is on the number of photos that can be kept or, under a budget, on the number of locations that can be
        protected. Open cases are closed at their bounds, so the result is weaker if the search was stopped early.
        """
        goal = self.incumbent
        # `need` and `k` are what a better set must reach, so need - 1 and k - 1 are the incumbent's values. No closed
        # case exceeds them.
        if goal.task.budget is None:
            bound = max([goal.need - 1, *(floor(self._most_photos(case)) for case in self._open)])
        else:
            bound = max([goal.k - 1, *(self._most_locations(case) for case in self._open)])
        cases, leaves = list(self._cases), list(self._leaves)
        # The top of the stack comes next in preorder. The lists are restored afterwards, so that the search can
        # continue.
        for case in reversed(self._open):
            self._close_case(case, bound)
        tree = Tree.of(self._cases, self._leaves, self.data.location)
        self._cases, self._leaves = cases, leaves
        return bound, tree

    def _most_photos(self, case: Case) -> float:
        """Return an upper bound on the number of photos that an open case can keep while protecting k locations.

        If m of these locations have yet to be chosen, the bound is the smaller of the case's bound and the m-th largest
        bound of a candidate, or -1 if there are fewer than m candidates.
        """
        missing = self.incumbent.k - len(case.rows)
        if missing < 1:
            return case.certificate.bound
        # If `missing` candidates are added, the smallest of their bounds is at most the missing-th largest of all.
        bounds = sorted((certificate.bound for certificate in case.candidates.values()), reverse=True)
        return min(case.certificate.bound, bounds[missing - 1]) if missing <= len(bounds) else -1.0

    def _most_locations(self, case: Case) -> int:
        """Return an upper bound on the number of locations that an open case can protect while enough photos are kept.

        The bound is the number of locations that the case already protects, plus the number of candidates that allow
        enough photos to be kept. It is 0 if the case itself does not allow enough photos to be kept.
        """
        if case.certificate.bound < self.incumbent.need:
            return 0
        need = self.incumbent.need
        return len(case.rows) + sum(certificate.bound >= need for certificate in case.candidates.values())

    def _close_case(self, case: Case, bound: int) -> None:
        """Close an open case in the proof of the weaker claim that no set's value exceeds ``bound``.

        The case is closed by its own multipliers, or by ruling out candidates until too few locations may be protected.
        """
        need = bound + 1 if self.incumbent.task.budget is None else self.incumbent.need
        if case.certificate.bound < need:
            self._write_leaf(case.certificate)
            return
        for j, certificate in case.candidates.items():
            if certificate.bound < need:
                self._rule_out(j, certificate)
        # No multipliers are needed, because fewer than k locations are left.
        self._write_leaf(NONE)
