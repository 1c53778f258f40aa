"""Mechanisms that add noise to counts, with one fault each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from faults.counts import COUNTS, REGIONS, Additive, CountRelease, RightCounts, RightRegions
from privopt.interfaces import Certificate, Outcome
from privopt.noise import discrete_laplace
from privopt.testing import Query, csv_bytes


class HalfTheNoise(RightCounts):
    """Scale for half the sensitivity, drawn by a sampler of its own; what it tells the kit is the right scale."""

    def noisy(self, problem: Any, context: Any) -> Any:
        own = np.random.default_rng(context.seed)
        scale = float(0.5 / problem.declared.privacy.epsilon)
        return problem.loaded + np.round(own.laplace(0, scale, len(problem.loaded))).astype(int)


def _as_claimed(problem: Any, method: str) -> list[Query]:
    return [Query(name="counts", values=problem.loaded, scale=1 / problem.declared.privacy.epsilon, sensitivity=1)]


HALF = evolve(COUNTS, queries=_as_claimed)


class HalfTheScale(RightCounts):
    """The same through privopt.noise, where the kit sees it."""

    def noisy(self, problem: Any, context: Any) -> Any:
        return discrete_laplace(problem.loaded, 2 * problem.declared.privacy.epsilon, seed=context.seed)[0]


class ChainAsPublished(RightRegions):
    """One chain over all regions, size by size: a group that changes size moves an entry of every region."""

    def levels(self, groups: Any) -> Any:
        return groups.T.ravel().cumsum()

    def back(self, noisy: Any, shape: Any) -> Any:
        return np.diff(noisy, prepend=0).reshape(shape[::-1]).T.copy()


class SecretInDetails(RightCounts):
    """Says in result.json how large the largest error was, and of which count."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        return evolve(super().solve(problem, context), details={"largest": int(problem.loaded.max())})


class SecretInArchive(RightCounts):
    """Leaves the true counts in a compressed archive beside the release."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        release = outcome.release
        return evolve(outcome, release=_WithArchive(ids=release.ids, noisy=release.noisy, counts=problem.loaded))


@frozen(kw_only=True, eq=False)
class _WithArchive(CountRelease):
    counts: Any

    def write(self, folder: Path) -> None:
        super().write(folder)
        np.savez_compressed(folder / "state.npz", counts=self.counts)


class NamesUnchecked(RightCounts):
    """Publishes the places beside their counts, and never compares them with the problem's."""

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return []


@frozen(kw_only=True, eq=False)
class _NamesUnread(CountRelease):
    @classmethod
    def read(cls, folder: Path, problem: Any) -> CountRelease:
        honest = CountRelease.read(folder, problem)
        return cls(ids=tuple(problem.names.tolist()), noisy=honest.noisy)


class NamesUnread(RightCounts):
    """Reads its release back with the problem's names in place of those that stand in it."""

    release_class = _NamesUnread

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        return evolve(outcome, release=_NamesUnread(ids=outcome.release.ids, noisy=outcome.release.noisy))


class SortedByTruth(RightCounts):
    """Writes the places with the most people first."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        order = np.argsort(-problem.loaded, kind="stable").tolist()
        ids, noisy = ([part[n] for n in order] for part in (outcome.release.ids, outcome.release.noisy))
        return evolve(outcome, release=CountRelease(ids=tuple(ids), noisy=tuple(noisy)))

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return []


@frozen(kw_only=True)
class _Proved(Additive):
    """Calls noise proved: the scale it measures is the one it was given."""

    def measure(self, release: Any, *, executor: Any = None) -> Certificate:
        return evolve(super().measure(release), evidence="proved", rests_on="")


class CalledProved(RightCounts):
    """Adds its noise, and calls that proved."""

    def privacy(self, problem: Any, method: str) -> Any:
        return _Proved(epsilon=problem.declared.privacy.epsilon)


class TrueCountsCalledProved(CalledProved):
    """Publishes the true counts as noisy ones, and calls that proved."""

    def noisy(self, problem: Any, context: Any) -> Any:
        return problem.loaded


class TrueCountsDeclared(RightCounts):
    """Publishes the true counts as noisy ones, by its word; what it tells the kit is the right scale."""

    def noisy(self, problem: Any, context: Any) -> Any:
        return problem.loaded


class FirstAppearance(RightCounts):
    """Lists the places in the order in which the secret table names them first."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        noisy = dict(zip(outcome.release.ids, outcome.release.noisy, strict=True))
        ids = tuple(problem.listed.tolist())
        return evolve(outcome, release=CountRelease(ids=ids, noisy=tuple(noisy[name] for name in ids)))

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return []


class OwnNoiseFirstAppearance(FirstAppearance):
    """The same, with a sampler of its own."""

    def noisy(self, problem: Any, context: Any) -> Any:
        own = np.random.default_rng(context.seed)
        return problem.loaded + np.round(
            own.laplace(0, float(1 / problem.declared.privacy.epsilon), len(problem.loaded))
        ).astype(int)


class HowItWasWritten(RightCounts):
    """Says how long the secret file was, which is another for every program that writes it."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        return evolve(outcome, details={"told": {"bytes": len(problem.declared.counts.table.here.read_bytes())}})


class AlwaysTheSameNoise(RightCounts):
    """A seed of its own: the noise is the same every time."""

    def noisy(self, problem: Any, context: Any) -> Any:
        return discrete_laplace(problem.loaded, problem.declared.privacy.epsilon, seed=context.seed or 1)[0]


@frozen(kw_only=True, eq=False)
class _InText(CountRelease):
    def write(self, folder: Path) -> None:
        (folder / "noisy.txt").write_text("\n".join(map("{} {}".format, self.ids, self.noisy)), "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> CountRelease:
        rows = [line.split(" ") for line in (folder / "noisy.txt").read_text("utf-8").splitlines()]
        return cls(ids=tuple(name for name, _ in rows), noisy=tuple(int(count) for _, count in rows))


class SameNoiseInText(AlwaysTheSameNoise):
    """The same, in a file that is no table."""

    release_class = _InText

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        return evolve(outcome, release=_InText(ids=outcome.release.ids, noisy=outcome.release.noisy))


class SeedNotTold(RightCounts):
    """Takes the seed and does not say so."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        return evolve(super().solve(problem, context), seeded=False)


class SecretInPublicFile(RightCounts):
    """Publishes the counts in place of the secret file."""

    def public_files(self, problem: Any, release: Any) -> dict[str, bytes]:
        rows = list(zip(problem.names.tolist(), problem.loaded.tolist(), strict=True))
        return {problem.declared.counts.table.name: csv_bytes(["id", "count"], rows)}


__all__ = ["HALF", "REGIONS"]
