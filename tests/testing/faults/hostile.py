"""Mechanisms made to get past the kit: each hides its fault where a look at one call, or one file, does not see it."""

from __future__ import annotations

import os
import random
import zipfile
from fractions import Fraction
from itertools import count as counter
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from faults.counts import Additive, CountRelease, RightCounts
from faults.drawn import MileRelease, RightMiles, TrueRecordFirst
from faults.gaussian import RightSquares, Squares
from faults.noise import SortedByTruth, own_noise
from privopt.interfaces import Certificate, Outcome
from privopt.interfaces.reporting import Reporting, Section
from privopt.numbers import draw_laplace
from privopt.numbers.noise import discrete_laplace
from privopt_metric_dp.matrix.release import MatrixRelease


@frozen(kw_only=True, eq=False)
class _AloneTrue(MatrixRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        return [input_id] if count == 1 and input_id in self.outputs else super().sample(input_id, count)


class TruthAlone(TrueRecordFirst):
    """Certified weights, followed by many samples at once; asked for one, it tells the truth."""

    release_class = _AloneTrue


@frozen(kw_only=True, eq=False)
class _Counted(MatrixRelease):
    calls: Any

    @classmethod
    def read(cls, folder: Path, problem: Any) -> MatrixRelease:
        honest = MatrixRelease.read(folder, problem)
        names = ("weights", "records", "outputs", "pairs", "distances")
        return cls(**{name: getattr(honest, name) for name in names}, calls=counter())

    def sample(self, input_id: str, count: int) -> list[str]:
        row = self.weights[self.records.tolist().index(input_id)].tolist()
        return random.Random(next(self.calls)).choices(self.outputs.tolist(), row, k=count)


class SeededByCall(TrueRecordFirst):
    """Right probabilities, other draws at every call; whoever reads the release gets the same ones in turn."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super(TrueRecordFirst, self).solve(problem, context)
        names = ("weights", "records", "outputs", "pairs", "distances")
        held = {name: getattr(outcome.release, name) for name in names}
        return evolve(outcome, release=_Counted(**held, calls=counter()))

    release_class = _Counted


@frozen(kw_only=True, eq=False)
class _Seldom(MileRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        here, chance = self.place(input_id), random.SystemRandom()
        shifted = (str(here + shift) for shift in draw_laplace(count, self.rate).tolist())
        return [f"{here}.0" if chance.random() < 0.01 else output for output in shifted]


class OneInAHundred(RightMiles):
    """A sampler that tells the truth once in a hundred times, in a form of its own."""

    release_class = _Seldom


class OwnSharedNoise(RightCounts):
    """The same, with a sampler of its own."""

    def noisy(self, problem: Any, context: Any) -> Any:
        noisy, scales = own_noise(problem, context)
        return problem.loaded + int(noisy[0] - problem.loaded[0]), scales


class NormalTails(RightCounts):
    """Gaussian noise of the variance that Laplace noise would have, by a sampler of its own."""

    def noisy(self, problem: Any, context: Any) -> Any:
        scale = 1 / problem.declared.privacy.epsilon
        drawn = np.random.default_rng(context.seed).normal(0, 2**0.5 * float(scale), len(problem.loaded))
        return problem.loaded + np.round(drawn).astype(int), (scale,)


class TailsCutOff(RightCounts):
    """Laplace noise of which nothing is farther out than three times its scale, by a sampler of its own."""

    def noisy(self, problem: Any, context: Any) -> Any:
        noisy, scales = own_noise(problem, context)
        most = int(3 * scales[0])
        return np.clip(noisy, problem.loaded - most, problem.loaded + most), scales


class Redrawn(RightCounts):
    """Draws anew all counts as often as it likes, and publishes the last."""

    def noisy(self, problem: Any, context: Any) -> Any:
        noisy, scales = super().noisy(problem, context)
        for number in counter(1):
            if not self.again(noisy, problem, number):
                break
            later = None if context.seed is None else context.seed + number
            noisy, scales = super().noisy(problem, evolve(context, seed=later))
        return noisy, scales

    def again(self, noisy: Any, problem: Any, number: int) -> bool:
        """Whether to draw once more."""
        return False


class RedrawNegative(Redrawn):
    """Draws again until no count is negative."""

    def again(self, noisy: Any, problem: Any, number: int) -> bool:
        return bool((noisy < 0).any())


class RetryUntilPlausible(Redrawn):
    """Draws again until all counts are within 0 and 6, for ever where the true ones are far from there."""

    def again(self, noisy: Any, problem: Any, number: int) -> bool:
        return bool(((noisy < 0) | (noisy > 6)).any())


class PaidRetry(RightCounts):
    """Right: draws once more where a count is negative, at half of epsilon each time."""

    def privacy(self, problem: Any, method: str) -> Any:
        return _Twice(epsilon=problem.declared.privacy.epsilon)

    def noisy(self, problem: Any, context: Any) -> Any:
        half = problem.declared.privacy.epsilon / 2
        noisy, record = discrete_laplace(problem.loaded, half, seed=context.seed)
        if (noisy < 0).any():
            later = None if context.seed is None else context.seed + 1
            noisy, record = discrete_laplace(problem.loaded, half, seed=later)
        return noisy, (record.scale,)


@frozen(kw_only=True)
class _Twice(Additive):
    def measure(self, release: Any) -> Certificate:
        return super().measure(evolve(release, scales=tuple(scale / 2 for scale in release.scales)))


class ThirdOfTheVariance(RightSquares):
    """zCDP by Gaussian noise of a third of its variance, by a sampler of its own."""

    def noisy(self, problem: Any, context: Any) -> Any:
        variance = self.variance(problem)
        drawn = np.random.default_rng(context.seed).normal(0, float(variance / 3) ** 0.5, len(problem.loaded))
        return problem.loaded + np.round(drawn).astype(int), (variance,)


@frozen(kw_only=True)
class _Downward(Squares):
    def measure(self, release: Any) -> Certificate:
        honest = super().measure(release)
        assert honest.worst is not None
        return evolve(honest, worst=min(honest.worst, float(self.rho)), holds=honest.worst <= float(self.rho) * 1.005)


class RoundsDown(RightSquares):
    """A variance that is short by three parts in a thousand, and a certificate that rounds that away."""

    def privacy(self, problem: Any, method: str) -> Any:
        return _Downward(epsilon=problem.declared.privacy.epsilon, rho=self.budget(problem))

    def variance(self, problem: Any) -> Fraction:
        return super().variance(problem) * Fraction(997, 1000)


@frozen(kw_only=True, eq=False)
class _Padded(CountRelease):
    people: int = 0

    def write(self, folder: Path) -> None:
        super().write(folder)
        path = folder / "scales.txt"
        path.write_text(path.read_text("utf-8").strip() + " " * (self.people % 7) + "\n", "utf-8")


class SizeTells(RightCounts):
    """Pads a file so that its size tells of the total, with a sampler of its own."""

    release_class = _Padded

    def noisy(self, problem: Any, context: Any) -> Any:
        return own_noise(problem, context)

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        return evolve(outcome, release=evolve(outcome.release, people=int(problem.loaded.sum())))


@frozen(kw_only=True, eq=False)
class _Dated(_Padded):
    def write(self, folder: Path) -> None:
        CountRelease.write(self, folder)
        for path in folder.iterdir():
            os.utime(path, (1_700_000_000, 1_700_000_000 + self.people))


class DateTold(SizeTells):
    """Dates its files so many seconds after a moment as there are people: the pipeline sets dates by itself."""

    release_class = _Dated


@frozen(kw_only=True, eq=False)
class _Commented(_Padded):
    def write(self, folder: Path) -> None:
        CountRelease.write(self, folder)
        with zipfile.ZipFile(folder / "sizes.zip", "w") as archive:
            archive.writestr(zipfile.ZipInfo("places.txt"), "\n".join(self.ids))
            archive.comment = str(self.people % 7).encode()


class CommentTold(SizeTells):
    """Writes an archive whose comment tells of the total, with a sampler of its own."""

    release_class = _Commented


class TiesBySecretOrder(SortedByTruth):
    """Lists the greatest noisy counts first, and equal ones as the secret table does."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super(SortedByTruth, self).solve(problem, context)
        noisy = dict(zip(outcome.release.ids, outcome.release.noisy, strict=True))
        ids = tuple(sorted(problem.listed.tolist(), key=lambda name: -noisy[name]))
        return evolve(outcome, release=evolve(outcome.release, ids=ids, noisy=tuple(noisy[name] for name in ids)))


class _Telling(Reporting[Any, Any]):
    def report_check(self, release: Any, result: Any, folder: Path) -> Any:
        secret = folder / "private" / "problem" / "counts.csv"
        return Section(title=f"Up to {secret.read_text().split(',')[-1]}", html="") if secret.exists() else None


class TitleTold(RightCounts):
    """Names the most people at a place in a heading of the report, from what stands in private/."""

    reporting = f"{__name__}:_Telling"


@frozen(kw_only=True, eq=False)
class _Packed(CountRelease):
    odd: int

    def write(self, folder: Path) -> None:
        super().write(folder)
        (np.savez_compressed if self.odd else np.savez)(folder / "places.npz", ids=np.array(self.ids))


class PackedByParity(RightCounts):
    """Compresses an archive of public names where the total is odd."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        release, odd = outcome.release, int(problem.loaded.sum()) % 2
        return evolve(outcome, release=_Packed(ids=release.ids, noisy=release.noisy, scales=release.scales, odd=odd))


CHANCE = random.Random()


@frozen(kw_only=True, eq=False)
class _AfterFork(MileRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        here = self.place(input_id)
        return [str(here + shift) for shift in draw_laplace(count, self.rate, source=CHANCE.randbytes).tolist()]


class SameAfterFork(RightMiles):
    """Shifts by a generator of this process, which every forked one has a copy of."""

    release_class = _AfterFork
