"""Mechanisms that add noise to counts, with one fault each."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from faults.counts import COUNTS, REGIONS, Additive, CountRelease, RightCounts, RightRegions
from privopt.interfaces import Certificate, Outcome
from privopt.numbers.noise import discrete_laplace, stated_scale
from privopt.testing import Query, csv_bytes


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


class SecretInArchive(RightCounts):
    """Leaves the true counts in a compressed archive beside the release."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        release = outcome.release
        whole = _WithArchive(ids=release.ids, noisy=release.noisy, scales=release.scales, counts=problem.loaded)
        return evolve(outcome, release=whole)


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
        return cls(ids=tuple(problem.names.tolist()), noisy=honest.noisy, scales=honest.scales)


class NamesUnread(RightCounts):
    """Reads its release back with the problem's names in place of those that stand in it."""

    release_class = _NamesUnread


@frozen(kw_only=True, eq=False)
class _AnyScale(CountRelease):
    number = staticmethod(Fraction)


class ScaleWithoutEnd(RightCounts):
    """Works out whatever scale stands in its file."""

    release_class = _AnyScale


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


class HowItWasWritten(RightCounts):
    """Says how long the secret file was, which is another for every program that writes it."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        return evolve(outcome, details={"told": {"bytes": len(problem.declared.counts.table.here.read_bytes())}})


class AlwaysTheSameNoise(RightCounts):
    """A seed of its own: the noise is the same every time."""

    def noisy(self, problem: Any, context: Any) -> Any:
        noisy, record = discrete_laplace(problem.loaded, problem.declared.privacy.epsilon, seed=context.seed or 1)
        return noisy, (record.scale,)


@frozen(kw_only=True, eq=False)
class _InText(CountRelease):
    def write(self, folder: Path) -> None:
        rows = map("{} {}".format, self.ids, self.noisy)
        (folder / "noisy.txt").write_text("\n".join([*map(str, self.scales), *rows]), "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> CountRelease:
        scale, *lines = (folder / "noisy.txt").read_text("utf-8").splitlines()
        rows = [line.split(" ") for line in lines]
        noisy = tuple(int(count) for _, count in rows)
        return cls(ids=tuple(name for name, _ in rows), noisy=noisy, scales=(stated_scale(scale),))


class SameNoiseInText(AlwaysTheSameNoise):
    """The same, in a file that is no table."""

    release_class = _InText


class SeedNotTold(RightCounts):
    """Takes the seed and does not say so."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        return evolve(super().solve(problem, context), seeded=False)


class SecretInPublicFile(RightCounts):
    """Publishes the counts in place of the secret file."""

    def public_files(self, problem: Any, release: Any) -> dict[str, bytes]:
        rows = list(zip(problem.names.tolist(), problem.loaded.tolist(), strict=True))
        return {problem.declared.counts.table.name: csv_bytes(["id", "count"], rows)}


def _beside(outcome: Outcome, **told: Any) -> Outcome:
    return evolve(outcome, details={"told": told})


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


class OwnNoiseErrorTold(RightCounts):
    """Tells how large the error is, with a sampler of its own: another number at each run."""

    def noisy(self, problem: Any, context: Any) -> Any:
        return own_noise(problem, context)

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        return _beside(outcome, error=int(np.abs(np.array(outcome.release.noisy) - problem.loaded).sum()))


class StepsTold(RightCounts):
    """Says under the solver's figures how many counts it found above nought."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        return evolve(
            super().solve(problem, context), solver={"name": "own", "iterations": int((problem.loaded > 0).sum())}
        )


@frozen(kw_only=True)
class _AsAsked(Additive):
    def measure(self, release: Any) -> Certificate:
        return super().measure(evolve(release, scales=(1 / self.epsilon,)))


class ScaleUnseen(RightCounts):
    """Certifies the scale that was asked for, whatever was drawn at."""

    def privacy(self, problem: Any, method: str) -> Any:
        return _AsAsked(epsilon=problem.declared.privacy.epsilon)


class HalfTheCountOfCalls(RightRegions):
    """Draws two calls of noise, and counts what one of them costs."""

    def privacy(self, problem: Any, method: str) -> Any:
        return _OneCall(epsilon=problem.declared.privacy.epsilon, kind="pure-dp")


@frozen(kw_only=True)
class _OneCall(Additive):
    def measure(self, release: Any) -> Certificate:
        return super().measure(evolve(release, scales=release.scales[:1]))


__all__ = ["HALF", "REGIONS"]
