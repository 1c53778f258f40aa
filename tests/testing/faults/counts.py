"""Right mechanisms that add noise to counts: local DP, and pure DP over regions and sizes."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from attrs import evolve, frozen
from hypothesis import strategies as st

from privopt.declare import File, key
from privopt.declare.schema import positive
from privopt.declare.tables import Column, check_ids, duplicate_faults, read_table
from privopt.errors import Fault, InputError
from privopt.interfaces import (
    Certificate,
    Guarantee,
    Mechanism,
    NoisyCounts,
    Outcome,
    PrivacyConstraint,
    Release,
    Result,
    UtilityLoss,
)
from privopt.interfaces.additive import NoiseCall, certify_noise
from privopt.numbers.noise import discrete_laplace, stated_scale
from privopt.testing import GeneratedProblem, Profile, Variant, csv_bytes, to_toml


@frozen(kw_only=True)
class Counts:
    """The table [counts]."""

    table: File = key(help="CSV: id,count", secret=True)
    ids: File = key(help="CSV: id, public")


@frozen(kw_only=True)
class Budget:
    """The table [privacy]."""

    epsilon: Fraction = key(help="privacy budget", unit="per person", check=positive)


@frozen(kw_only=True)
class CountProblem:
    """People at places."""

    counts: Counts = key(help="how many people are where")
    privacy: Budget = key(help="how much may leak")


@frozen(kw_only=True, eq=False)
class CountInstance:
    """People at places, counted; in a published copy only the places are known."""

    declared: CountProblem
    names: Any
    listed: Any = None
    loaded: Any = None

    @classmethod
    def of(cls, declared: CountProblem) -> CountInstance:
        source = declared.counts
        names = read_table(source.ids, [Column(name="id", kind="id")])["id"]
        again = duplicate_faults(source.ids.name, names)
        if again:
            raise InputError(again)
        if source.table.absent:
            return cls(declared=declared, names=names)
        columns = [Column(name="id", kind="id"), Column(name="count", kind="count", least=0)]
        table = read_table(source.table, columns)
        if sorted(table["id"].tolist()) != sorted(names.tolist()):
            raise InputError([Fault(source.table.name, "column id", "other ids", f"those of {source.ids.name}")])
        place = check_ids(source.table, table["id"], names, "id", "an id")
        counts = np.empty_like(table["count"])
        counts[place] = table["count"]
        return cls(declared=declared, names=names, listed=table["id"], loaded=counts)


@frozen(kw_only=True, eq=False)
class CountRelease(Release):
    """Noisy counts, and the scale of each call of the noise."""

    ids: tuple[str, ...]
    noisy: tuple[int, ...]
    scales: tuple[Fraction, ...]

    number: ClassVar[Callable[[str], Fraction]] = staticmethod(stated_scale)

    def write(self, folder: Path) -> None:
        rows = list(zip(self.ids, self.noisy, strict=True))
        (folder / "noisy.csv").write_bytes(csv_bytes(["id", "noisy"], rows))
        (folder / "scales.txt").write_text("".join(f"{scale}\n" for scale in self.scales), "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> CountRelease:
        with (folder / "noisy.csv").open() as stream:
            rows = list(csv.reader(stream))[1:]
        scales = tuple(cls.number(line.strip()) for line in (folder / "scales.txt").read_text("utf-8").splitlines())
        return cls(ids=tuple(row[0] for row in rows), noisy=tuple(int(row[1]) for row in rows), scales=scales)


@frozen(kw_only=True)
class Additive(PrivacyConstraint):
    """Laplace noise in so many calls, each of which one person changes by 1 at most."""

    epsilon: Fraction
    kind: str = "local-dp"
    calls: int = 1

    @property
    def guarantee(self) -> Guarantee:
        return Guarantee(
            kind=self.kind, epsilon=self.epsilon, unit="per person", scope="one person", statement="One person more."
        )

    def measure(self, release: Any) -> Certificate:
        other = [] if len(release.scales) == self.calls else [f"expected {self.calls} calls, got {len(release.scales)}"]
        return certify_noise(self.guarantee, [NoiseCall(scale=scale) for scale in release.scales], failures=other)


@frozen(kw_only=True)
class TotalNoisy(UtilityLoss):
    """Sum of the noisy counts: a figure that anyone can compute from the release."""

    unit: str = "people"

    def evaluate(self, release: CountRelease) -> float:
        return float(sum(release.noisy))


class RightCounts(Mechanism):
    """Local DP: each place adds noise to its own count."""

    problem_class = CountProblem
    release_class: Any = CountRelease
    kit = "faults.counts:COUNTS"

    def load(self, declared: CountProblem, file: str) -> CountInstance:
        return CountInstance.of(declared)

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint:
        return Additive(epsilon=problem.declared.privacy.epsilon)

    def utility(self, problem: Any, method: str) -> UtilityLoss:
        return TotalNoisy()

    def noisy(self, problem: Any, context: Any) -> tuple[Any, tuple[Fraction, ...]]:
        """Noisy counts, and the scales of the noise."""
        noisy, record = discrete_laplace(problem.loaded, problem.declared.privacy.epsilon, seed=context.seed)
        return noisy, (record.scale,)

    def solve(self, problem: Any, context: Any) -> Outcome:
        noisy, scales = self.noisy(problem, context)
        ids = tuple(problem.names.tolist())
        release = self.release_class(ids=ids, noisy=tuple(int(n) for n in noisy), scales=scales)
        truth = {"counts": problem.loaded, "error": int(np.abs(noisy - problem.loaded).sum())}
        return Outcome(release=release, seeded=context.seed is not None, truth=truth)

    def verify(self, problem: Any, release: CountRelease, result: Result) -> list[str]:
        return [] if list(release.ids) == problem.names.tolist() else ["noisy.csv: other ids than the problem's"]


def count_problem(counts: tuple[int, ...], epsilon: str, ids: tuple[str, ...] = ()) -> GeneratedProblem:
    ids = ids or tuple(f"place-{'abcdefgh'[n]}" for n in range(len(counts)))
    return GeneratedProblem(
        toml=to_toml({"counts": {"table": "counts.csv", "ids": "ids.csv"}, "privacy": {"epsilon": Decimal(epsilon)}}),
        files={
            "counts.csv": csv_bytes(["id", "count"], list(zip(ids, counts, strict=True))),
            "ids.csv": csv_bytes(["id"], [[name] for name in ids]),
        },
        secrets=[str(count).encode() for count in counts if count > 10**6],
        facts={"counts": counts, "epsilon": epsilon, "ids": ids},
    )


EPSILONS = st.sampled_from(["1.0", "0.5", "2.0", "0.1", "0.3", "5.0"])


def count_vectors(count: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.lists(st.integers(0, 9), min_size=count, max_size=count).map(tuple)


@st.composite
def count_problems(draw: st.DrawFn) -> GeneratedProblem:
    counts = draw(st.integers(1, 4).flatmap(count_vectors))
    if draw(st.booleans()):
        counts = (*counts[:-1], 4_000_000 + 7 * draw(st.integers(0, 99_999)))
    return count_problem(counts, draw(EPSILONS))


def one_person_more_or_less(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    counts, epsilon = problem.facts["counts"], problem.facts["epsilon"]
    for place, count in enumerate(counts):
        for other in (count + 1, count - 1):
            if other >= 0:
                yield count_problem((*counts[:place], other, *counts[place + 1 :]), epsilon, problem.facts["ids"])


def places_in_another_order(problem: GeneratedProblem, chance: Any) -> Variant:
    order = chance.sample(range(len(problem.facts["counts"])), len(problem.facts["counts"]))
    counts, ids = (tuple(problem.facts[name][n] for n in order) for name in ("counts", "ids"))
    changed = count_problem(counts, problem.facts["epsilon"], ids)
    return Variant(problem=changed, change="places were put in another order")


COUNTS = Profile(
    problems=count_problems(),
    neighbours=one_person_more_or_less,
    observed=lambda release: release.noisy,
    variants={"reordering": places_in_another_order},
    skip={"verify-catches": "any numbers may be what noise made of the counts"},
)


@frozen(kw_only=True, eq=False)
class ReachRelease(CountRelease):
    """How far noise reaches is stated."""

    part: ClassVar[float] = 1.0

    def channel(self) -> NoisyCounts:
        scale = float(self.scales[0])
        return NoisyCounts(inputs=self.ids, reach=lambda share: math.ceil(-math.log(share) * scale) * self.part)


class RightReach(RightCounts):
    """Says how far the noise of each count reaches."""

    release_class = ReachRelease


class _HalfReachRelease(ReachRelease):
    part = 0.5


class HalfTheReach(RightCounts):
    """Says that noise reaches half as far as it does."""

    release_class = _HalfReachRelease


# --- regions and sizes -------------------------------------------------------------------------------


class RightRegions(RightCounts):
    """Pure DP: cumulative counts by size in each region; one move changes one of them by 1 at each of two levels.

    Ids read "region/size", sizes within a region in order.
    """

    kit = "faults.counts:REGIONS"
    sensitivity = 1

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint:
        return Additive(epsilon=problem.declared.privacy.epsilon, kind="pure-dp", calls=2)

    def noisy(self, problem: Any, context: Any) -> tuple[Any, tuple[Fraction, ...]]:
        half = problem.declared.privacy.epsilon / 2
        sizes = _sizes(problem)
        groups = problem.loaded.reshape(-1, sizes)
        leaves, low = discrete_laplace(self.levels(groups), half, seed=context.seed)
        seed = None if context.seed is None else context.seed + 1
        root, high = discrete_laplace(groups.sum(axis=0).cumsum(), half, seed=seed)
        inner = self.back(leaves, groups.shape)
        inner[-1] += (np.diff(root, prepend=0) - inner.sum(axis=0)) // len(inner)  # closer to the root, for a use of it
        return inner.ravel(), (low.scale, high.scale)

    def levels(self, groups: Any) -> Any:
        """Return what the lower level adds its noise to."""
        return groups.cumsum(axis=1)

    def back(self, noisy: Any, shape: Any) -> Any:
        return np.diff(noisy.reshape(shape), axis=1, prepend=0)


def _sizes(problem: Any) -> int:
    return len({name.split("/")[1] for name in problem.names.tolist()})


def region_problem(groups: Any, epsilon: str) -> GeneratedProblem:
    groups = np.asarray(groups)
    ids = tuple(f"region-{'abcd'[r]}/{s + 1}" for r in range(groups.shape[0]) for s in range(groups.shape[1]))
    made = count_problem(tuple(int(n) for n in groups.ravel()), epsilon, ids)
    return evolve(made, facts={**made.facts, "groups": groups})


@st.composite
def region_problems(draw: st.DrawFn) -> GeneratedProblem:
    regions, sizes = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    groups = np.array(draw(count_vectors(regions * sizes))).reshape(regions, sizes)
    if draw(st.booleans()):
        groups[0, 0] = 4_000_000 + 7 * draw(st.integers(0, 99_999))
    return region_problem(groups, draw(EPSILONS))


def one_group_changes_size(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    groups = problem.facts["groups"]
    for region, size in np.argwhere(groups > 0).tolist():
        for other in (size - 1, size + 1):
            if 0 <= other < groups.shape[1]:
                moved = groups.copy()
                moved[region, size] -= 1
                moved[region, other] += 1
                yield region_problem(moved, problem.facts["epsilon"])


REGIONS = Profile(
    problems=region_problems(),
    neighbours=one_group_changes_size,
    observed=lambda release: release.noisy,
    skip={"verify-catches": "any numbers may be what noise made of the counts"},
)
