"""Deletion of photos until a place is protected: right, and with one fault each."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen
from hypothesis import strategies as st

from privopt.declare import File, key
from privopt.declare.schema import at_least
from privopt.declare.tables import read_array
from privopt.errors import Fault, InfeasibleError, InputError
from privopt.interfaces import (
    Certificate,
    Guarantee,
    Mechanism,
    Outcome,
    PrivacyConstraint,
    Release,
    Result,
    UtilityLoss,
)
from privopt.testing import GeneratedProblem, Profile, Variant, csv_bytes, npy_bytes, to_toml


@frozen(kw_only=True)
class RankProblem:
    """Photos that must not give away a place."""

    scores: File = key(help=".npy (photos, places)")
    place: int = key(help="column", check=at_least(0))
    k: int = key(help="places that must rank as high", check=at_least(1))


@frozen(kw_only=True, eq=False)
class RankInstance:
    """The photos' scores, and what is asked of them."""

    declared: RankProblem
    table: Any

    @classmethod
    def of(cls, declared: RankProblem, file: str) -> RankInstance:
        table = read_array(declared.scores, (None, None), what="scores")
        if not declared.place < table.shape[1]:
            raise InputError([Fault(file, "place", str(declared.place), f"a column below {table.shape[1]}")])
        if not declared.k < table.shape[1]:
            raise InputError([Fault(file, "k", str(declared.k), f"a number below {table.shape[1]}")])
        return cls(declared=declared, table=table)


@frozen(kw_only=True, eq=False)
class Deletions(Release):
    """Which photos go."""

    deleted: tuple[int, ...]

    def write(self, folder: Path) -> None:
        (folder / "deletions.csv").write_bytes(csv_bytes(["photo", "deleted"], list(enumerate(self.deleted))))

    @classmethod
    def read(cls, folder: Path, problem: Any) -> Deletions:
        with (folder / "deletions.csv").open() as stream:
            return cls(deleted=tuple(int(row[1]) for row in list(csv.reader(stream))[1:]))


def protected(table: Any, place: int, kept: Any) -> int:
    """Other places whose exact score is at least the true one's over the kept photos."""
    sums = [sum((Fraction(float(x)) for x in table[list(kept), j]), Fraction(0)) for j in range(table.shape[1])]
    return sum(score >= sums[place] for j, score in enumerate(sums) if j != place)


@frozen(kw_only=True)
class TopK(PrivacyConstraint):
    """At least k other places rank as high."""

    problem: Any

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(kind="top-k", scope="top-k", statement=f"{self.problem.declared.k} other places rank as high.")

    def measure(self, release: Deletions) -> Certificate:
        whole = len(release.deleted) == len(self.problem.table) and set(release.deleted) <= {0, 1}
        kept = [n for n, gone in enumerate(release.deleted) if not gone] if whole else []
        rank = protected(self.problem.table, self.problem.declared.place, kept) if kept else 0
        return Certificate(
            holds=rank >= self.problem.declared.k,
            evidence="proved",
            kind="top-k",
            worst=rank,
            allowed=self.problem.declared.k,
            checked=self.problem.table.shape[1],
            arithmetic="rationals",
        )


@frozen(kw_only=True)
class Deleted(UtilityLoss):
    """Photos deleted."""

    unit: str = "photos"

    def evaluate(self, release: Deletions) -> float:
        return float(sum(release.deleted))


class RightRanks(Mechanism):
    """Fewest deletions, by trying all."""

    problem_class = RankProblem
    release_class = Deletions
    kit = "faults.ranks:RANKS"

    def load(self, declared: RankProblem, file: str) -> RankInstance:
        return RankInstance.of(declared, file)

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint:
        return TopK(problem=problem)

    def utility(self, problem: Any, method: str) -> UtilityLoss:
        return Deleted()

    def solve(self, problem: Any, context: Any) -> Outcome:
        fewest = fewest_deletions(problem)
        if fewest is None:
            raise InfeasibleError("no photos left protect the place")
        gone = tuple(int(n in fewest) for n in range(len(problem.table)))
        return Outcome(release=Deletions(deleted=gone), lower_bound=self.bound(len(fewest)))

    def bound(self, fewest: int) -> float:
        return float(fewest)


class BoundOneTooHigh(RightRanks):
    """Deletes one photo too many where that also protects, and calls it the fewest."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        fewest = fewest_deletions(problem, spare=1)
        if fewest is None:
            raise InfeasibleError("no photos left protect the place")
        gone = tuple(int(n in fewest) for n in range(len(problem.table)))
        return Outcome(release=Deletions(deleted=gone), lower_bound=float(len(fewest)))

    def proved_bound(self, problem: Any, release: Any, result: Any, folder: Any) -> float | None:
        return result.objective.lower_bound  # vouches for whatever is stated


class AnyNumberDeletes(RightRanks):
    """Takes whatever number stands beside a photo for a deletion."""

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint:
        return _AnyNumber(problem=problem)

    def utility(self, problem: Any, method: str) -> UtilityLoss:
        return _Crossed()


class _AnyNumber(TopK):
    def measure(self, release: Deletions) -> Certificate:
        return super().measure(Deletions(deleted=tuple(int(n > 0) for n in release.deleted)))


class _Crossed(Deleted):
    def evaluate(self, release: Deletions) -> float:
        return float(sum(n > 0 for n in release.deleted))


class UnitOmitted(RightRanks):
    """Reports a loss, and does not say of what."""

    def utility(self, problem: Any, method: str) -> UtilityLoss:
        return Deleted(unit="")


class CountsTheTrueOne(RightRanks):
    """Counts the true place among those that rank as high as itself."""

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint:
        return _OneTooMany(problem=problem)

    def solve(self, problem: Any, context: Any) -> Outcome:
        photos = range(len(problem.table))
        for size in range(len(problem.table)):
            for gone in combinations(photos, size):
                release = Deletions(deleted=tuple(int(n in gone) for n in photos))
                if self.privacy(problem, "").measure(release).holds:
                    return Outcome(release=release)
        raise InfeasibleError("no photos left protect the place")


class _OneTooMany(TopK):
    def measure(self, release: Deletions) -> Certificate:
        honest = super().measure(release)
        whole = len(release.deleted) == len(self.problem.table) and not all(release.deleted)
        assert honest.worst is not None
        return Certificate(
            holds=whole and honest.worst + 1 >= self.problem.declared.k,
            evidence="proved",
            kind="top-k",
            worst=honest.worst + 1,
            allowed=self.problem.declared.k,
            checked=honest.checked,
            arithmetic=honest.arithmetic,
        )


def fewest_deletions(problem: Any, spare: int = 0) -> tuple[int, ...] | None:
    photos, place = range(len(problem.table)), problem.declared.place
    found = None
    for size in range(len(problem.table)):
        for gone in combinations(photos, size):
            if protected(problem.table, place, [n for n in photos if n not in gone]) >= problem.declared.k:
                found = gone
                if spare == 0 or size + 1 == len(problem.table):
                    return gone
                spare -= 1
                break
    return found


@st.composite
def rank_problems(draw: st.DrawFn) -> GeneratedProblem:
    photos, places = draw(st.integers(1, 4)), draw(st.integers(2, 3))
    entries = draw(st.lists(st.integers(0, 12), min_size=photos * places, max_size=photos * places))
    table = -np.array(entries, dtype=np.float64).reshape(photos, places) / 4
    place, k = draw(st.integers(0, table.shape[1] - 1)), draw(st.integers(1, table.shape[1] - 1))
    return rank_problem(table, place, k)


def rank_problem(table: Any, place: int, k: int) -> GeneratedProblem:
    toml = to_toml({"scores": "s.npy", "place": place, "k": k})
    facts = {"table": table, "place": place, "k": k}
    return GeneratedProblem(toml=toml, files={"s.npy": npy_bytes(table)}, facts=facts)


def one_place_more(problem: GeneratedProblem) -> GeneratedProblem | None:
    facts = problem.facts
    more = facts["k"] + 1
    return rank_problem(facts["table"], facts["place"], more) if more < facts["table"].shape[1] else None


def photos_in_another_order(problem: GeneratedProblem, chance: Any) -> Variant:
    facts = problem.facts
    order = chance.sample(range(len(facts["table"])), len(facts["table"]))
    changed = rank_problem(facts["table"][order], facts["place"], facts["k"])
    return Variant(problem=changed, change="photos were reordered")


def rank_again(problem: Any, release: Any, result: Result) -> Iterator[str]:
    kept = [n for n, gone in enumerate(release.deleted) if not gone]
    rank = protected(np.asarray(problem.table), problem.declared.place, kept)
    if rank < problem.declared.k:
        asked = f"{problem.declared.k} were asked for"
        yield f"{rank} other places rank as high as the true one over the kept photos; {asked}"


def fewest_number(problem: Any, result: Result) -> float | None:
    fewest = fewest_deletions(problem)
    return None if fewest is None else float(len(fewest))


RANKS = Profile(
    problems=rank_problems(),
    stricter=one_place_more,
    variants={"reordering": photos_in_another_order},
    oracle=rank_again,
    best_known=fewest_number,
)
