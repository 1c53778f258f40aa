"""Mechanisms made to get past the kit: each hides its fault where a look at one call, or one file, does not see it."""

from __future__ import annotations

import os
import random
from itertools import count as counter
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from faults.counts import Additive, CountRelease, RightCounts
from faults.drawn import MileRelease, RightMiles
from faults.noise import own_noise
from privopt.interfaces import Certificate, Outcome
from privopt.interfaces.reporting import Reporting, Section
from privopt.numbers import draw_laplace
from privopt.numbers.noise import discrete_laplace


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


class _Telling(Reporting[Any, Any]):
    def report_check(self, release: Any, result: Any, folder: Path) -> Any:
        secret = folder / "private" / "problem" / "counts.csv"
        return Section(title=f"Up to {secret.read_text().split(',')[-1]}", html="") if secret.exists() else None


class TitleTold(RightCounts):
    """Names the most people at a place in a heading of the report, from what stands in private/."""

    reporting = f"{__name__}:_Telling"


CHANCE = random.Random()


@frozen(kw_only=True, eq=False)
class _AfterFork(MileRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        here = self.place(input_id)
        return [str(here + shift) for shift in draw_laplace(count, self.rate, source=CHANCE.randbytes).tolist()]


class SameAfterFork(RightMiles):
    """Shifts by a generator of this process, which every forked one has a copy of."""

    release_class = _AfterFork


class DraftsOver(RightCounts):
    """Drafts a problem file over whatever has its name."""

    def draft(self, table: Path, out: Path, *, force: bool, **options: Any) -> list[str]:
        out.write_text(f"[counts]\ntable = {table.name!r}\n", "utf-8")
        return ["add the ids and epsilon"]


class Exits(RightCounts):
    """Ends the process, with a code that says that all went well."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        raise SystemExit(0)
