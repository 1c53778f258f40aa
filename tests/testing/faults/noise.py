"""Mechanisms that add noise to counts, with one fault each."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from faults.counts import COUNTS, REGIONS, Additive, CountRelease, RightCounts, RightRegions
from privopt.interfaces import Certificate, Outcome
from privopt.numbers.noise import discrete_laplace
from privopt.testing import Query


def own_noise(problem: Any, context: Any, factor: float = 1.0) -> Any:
    """Noisy counts by a sampler that the kit does not see, and the scale that epsilon asks for."""
    scale = 1 / problem.declared.privacy.epsilon
    drawn = np.random.default_rng(context.seed).laplace(0, factor * float(scale), len(problem.loaded))
    return problem.loaded + np.round(drawn).astype(int), (scale,)


class HalfTheNoise(RightCounts):
    """Scale for half the sensitivity, drawn by a sampler of its own; what it tells the kit is the right scale."""

    def noisy(self, problem: Any, context: Any) -> Any:
        return own_noise(problem, context, factor=0.5)


def _as_claimed(problem: Any, method: str) -> list[Query]:
    return [Query(name="counts", values=problem.loaded, scale=1 / problem.declared.privacy.epsilon, sensitivity=1)]


HALF = evolve(COUNTS, queries=_as_claimed)


@frozen(kw_only=True, eq=False)
class _DoublesRelease(CountRelease):
    """Noisy counts in doubles, written with all their digits."""

    @classmethod
    def read(cls, folder: Path, problem: Any) -> CountRelease:
        with (folder / "noisy.csv").open() as stream:
            rows = list(csv.reader(stream))[1:]
        scales = tuple(cls.number(line.strip()) for line in (folder / "scales.txt").read_text("utf-8").splitlines())
        return cls(ids=tuple(row[0] for row in rows), noisy=tuple(float(row[1]) for row in rows), scales=scales)


class LowBits(RightCounts):
    """The textbook sampler: Laplace noise in doubles of the right scale, added to each count (Mironov 2012).

    No value is too likely, but the last bits of a result near 0 tell whether the count was 0.
    """

    release_class = _DoublesRelease

    def noisy(self, problem: Any, context: Any) -> Any:
        scale = 1 / problem.declared.privacy.epsilon
        noise = np.random.default_rng(context.seed).laplace(0, float(scale), len(problem.loaded))
        return problem.loaded + noise, (scale,)

    def solve(self, problem: Any, context: Any) -> Outcome:
        noisy, scales = self.noisy(problem, context)
        release = self.release_class(ids=tuple(problem.names.tolist()), noisy=tuple(noisy.tolist()), scales=scales)
        return Outcome(release=release, seeded=context.seed is not None)


def _draw_doubles(problem: Any, method: str, count: int) -> Any:
    scale = 1 / float(problem.declared.privacy.epsilon)
    return problem.loaded + np.random.default_rng().laplace(0, scale, (count, len(problem.loaded)))


LOW_BITS = evolve(COUNTS, draws=_draw_doubles)
"""Profile that draws the textbook noise without a solve."""


class RoundedBits(LowBits):
    """The same noise, rounded to quarters, which hides the bits of the sum."""

    def noisy(self, problem: Any, context: Any) -> Any:
        noisy, scales = super().noisy(problem, context)
        return np.round(4 * noisy) / 4, scales


class HalfTheScale(RightCounts):
    """The same through privopt.numbers.noise, where the kit sees it."""

    def noisy(self, problem: Any, context: Any) -> Any:
        noisy, record = discrete_laplace(problem.loaded, 2 * problem.declared.privacy.epsilon, seed=context.seed)
        return noisy, (2 * record.scale,)


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


class NamesUnchecked(RightCounts):
    """Publishes the places beside their counts, and never compares them with the problem's."""

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return []


class SortedByTruth(RightCounts):
    """Writes the places with the most people first."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        order = np.argsort(-problem.loaded, kind="stable").tolist()
        ids, noisy = ([part[n] for n in order] for part in (outcome.release.ids, outcome.release.noisy))
        return evolve(outcome, release=evolve(outcome.release, ids=tuple(ids), noisy=tuple(noisy)))

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return []


@frozen(kw_only=True)
class _Proved(Additive):
    """Calls noise proved: the scale it measures is the one it was given."""

    def measure(self, release: Any) -> Certificate:
        return evolve(super().measure(release), evidence="proved", rests_on="")


class CalledProved(RightCounts):
    """Adds its noise, and calls that proved."""

    def privacy(self, problem: Any, method: str) -> Any:
        return _Proved(epsilon=problem.declared.privacy.epsilon)


class TrueCountsDeclared(RightCounts):
    """Publishes the true counts as noisy ones, by its word; what it tells the kit is the right scale."""

    def noisy(self, problem: Any, context: Any) -> Any:
        return problem.loaded, (1 / problem.declared.privacy.epsilon,)


class FirstAppearance(RightCounts):
    """Lists the places in the order in which the secret table names them first."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        noisy = dict(zip(outcome.release.ids, outcome.release.noisy, strict=True))
        ids = tuple(problem.listed.tolist())
        return evolve(outcome, release=evolve(outcome.release, ids=ids, noisy=tuple(noisy[name] for name in ids)))

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return []


class AlwaysTheSameNoise(RightCounts):
    """A seed of its own: the noise is the same every time."""

    def noisy(self, problem: Any, context: Any) -> Any:
        noisy, record = discrete_laplace(problem.loaded, problem.declared.privacy.epsilon, seed=context.seed or 1)
        return noisy, (record.scale,)


class SeedNotTold(RightCounts):
    """Takes the seed and does not say so."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        return evolve(super().solve(problem, context), seeded=False)


class ModeTold(RightCounts):
    """Lets everybody write the file where the total is odd: the pipeline sets permissions by itself."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        release = outcome.release
        odd = int(problem.loaded.sum()) % 2
        return evolve(outcome, release=_Mode(ids=release.ids, noisy=release.noisy, scales=release.scales, odd=odd))


@frozen(kw_only=True, eq=False)
class _Mode(CountRelease):
    odd: int

    def write(self, folder: Path) -> None:
        super().write(folder)
        for path in folder.iterdir():
            path.chmod(0o666 if self.odd else 0o644)


__all__ = ["HALF", "LOW_BITS", "REGIONS"]
