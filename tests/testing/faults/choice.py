"""A mechanism that chooses one place instead of adding noise to numbers: right, and with one fault each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from faults.counts import COUNTS, RightCounts
from privopt.errors import Fault, InputError
from privopt.interfaces import Outcome, Release, UtilityLoss


@frozen(kw_only=True)
class Chosen(Release):
    """One place."""

    name: str
    number: int

    def write(self, folder: Path) -> None:
        (folder / "chosen.txt").write_text(f"{self.name}\n", "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> Chosen:
        name = (folder / "chosen.txt").read_text("utf-8").strip()
        names = problem.names.tolist()
        if name not in names:
            raise InputError([Fault("chosen.txt", "", repr(name), "one of the places")])
        return cls(name=name, number=names.index(name))


@frozen(kw_only=True)
class Places(UtilityLoss):
    """Places published: a figure that the release determines."""

    unit: str = "places"

    def evaluate(self, release: Any) -> float:
        return 1.0


def shares(counts: Any, factor: float) -> Any:
    """Probabilities of the exponential mechanism."""
    scores = factor * (np.asarray(counts, dtype=float) - np.max(counts))
    return np.exp(scores) / np.exp(scores).sum()


class RightChoice(RightCounts):
    """The exponential mechanism: a place with many people, more likely the more there are."""

    release_class = Chosen
    kit = "faults.choice:CHOICE"
    factor = 0.5

    def utility(self, problem: Any, method: str) -> UtilityLoss:
        return Places()

    def chosen(self, problem: Any, chance: Any) -> int:
        share = shares(problem.loaded, self.factor * float(problem.declared.privacy.epsilon))
        return int(chance.choice(len(share), p=share))

    def solve(self, problem: Any, context: Any) -> Outcome:
        number = self.chosen(problem, np.random.default_rng(context.seed))
        release = Chosen(name=str(problem.names[number]), number=number)
        return Outcome(release=release, seeded=context.seed is not None)

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return []


class ChoosesTooSharply(RightChoice):
    """Four times the factor, and tells the kit so."""

    kit = "faults.choice:SHARP"
    factor = 2.0


class AlwaysTheGreatest(RightChoice):
    """Chooses the place with the most people; what it tells the kit is the exponential mechanism."""

    def chosen(self, problem: Any, chance: Any) -> int:
        return int(np.argmax(problem.loaded))


CHOICE = evolve(
    COUNTS,
    observed=lambda release: release.number,
    probabilities=lambda problem, method: shares(problem.loaded, 0.5 * float(problem.declared.privacy.epsilon)),
    skip={"verify-catches": "any place may be what was chosen"},
)
SHARP = evolve(
    CHOICE, probabilities=lambda problem, method: shares(problem.loaded, 2.0 * float(problem.declared.privacy.epsilon))
)
