"""A mechanism that chooses one place instead of adding noise to numbers: right, and with one fault each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from hypothesis import strategies as st

from faults.counts import COUNTS, Additive, RightCounts, count_problem
from privopt.errors import Fault, InputError
from privopt.interfaces import Certificate, Outcome, Release, UtilityLoss
from privopt.testing import GeneratedProblem


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


@frozen(kw_only=True)
class Chooses(Additive):
    """Nothing is added to anything: that the choice was made so is declared."""

    def measure(self, release: Any) -> Certificate:
        return Certificate(
            holds=True,
            evidence="declared",
            kind=self.kind,
            worst=float(self.epsilon),
            allowed=float(self.epsilon),
            checked=1,
            arithmetic="none",
            rests_on="that the choice was made so",
        )


class RightChoice(RightCounts):
    """The exponential mechanism: a place with many people, more likely the more there are."""

    release_class = Chosen
    kit = "faults.choice:CHOICE"
    factor = 0.5

    def privacy(self, problem: Any, method: str) -> Chooses:
        return Chooses(epsilon=problem.declared.privacy.epsilon)

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


class RightFlips(RightChoice):
    """Permute-and-flip (McKenna and Sheldon 2020): places in a random order, each taken with exp(eps (q - max) / 2)."""

    kit = "faults.choice:FLIPS"
    sharp = 1.0

    def chosen(self, problem: Any, chance: Any) -> int:
        keep = flip_rates(problem, self.sharp)
        order = chance.permutation(len(keep)).tolist()
        return next(place for place in order if chance.random() <= keep[place])


def flip_rates(problem: Any, sharp: float) -> Any:
    """How likely each place is kept when it comes up."""
    counts = np.asarray(problem.loaded, dtype=float)
    return np.exp(0.5 * sharp * float(problem.declared.privacy.epsilon) * (counts - counts.max()))


def flip_shares(problem: Any, sharp: float) -> list[float]:
    """Exact distribution of permute-and-flip, over all orders."""
    keep = flip_rates(problem, sharp).tolist()
    orders = list(permutations(range(len(keep))))
    found = [0.0] * len(keep)
    for order in orders:
        rest = 1.0
        for place in order:
            found[place] += rest * keep[place] / len(orders)
            rest *= 1 - keep[place]
    return found


def one_person_moves(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    """From one place to another, so that one score falls and another rises."""
    counts, epsilon = problem.facts["counts"], problem.facts["epsilon"]
    for start, end in permutations(range(len(counts)), 2):
        if counts[start]:
            moved = [count - (place == start) + (place == end) for place, count in enumerate(counts)]
            yield count_problem(tuple(moved), epsilon, problem.facts["ids"])


CHOICE = evolve(
    COUNTS,
    observed=lambda release: release.number,
    probabilities=lambda problem, method: shares(problem.loaded, 0.5 * float(problem.declared.privacy.epsilon)),
    skip={"verify-catches": "any place may be what was chosen"},
)
SHARP = evolve(
    CHOICE, probabilities=lambda problem, method: shares(problem.loaded, 2.0 * float(problem.declared.privacy.epsilon))
)
FLIPS = evolve(CHOICE, neighbours=one_person_moves, probabilities=lambda problem, method: flip_shares(problem, 1.0))
FAR_FLIPS = evolve(
    FLIPS,
    problems=st.builds(
        lambda counts, epsilon: count_problem(tuple(counts), epsilon),
        st.lists(st.integers(0, 5) | st.integers(40, 1000) | st.just(4_000_007), min_size=2, max_size=4),
        st.sampled_from(["1.0", "0.5", "20.0", "0.00001"]),
    ),
)
"""Ties, and counts hundreds apart, as ``privopt new --kind selection`` draws them."""


class FlipsAtThrice(RightFlips):
    """States what permute-and-flip at epsilon draws, and draws at 3 epsilon."""

    kit = "faults.choice:FAR_FLIPS"
    sharp = 3.0


class FarFlips(RightFlips):
    """Right: draws what it states, also where counts are far apart."""

    kit = "faults.choice:FAR_FLIPS"


LITTLE = evolve(
    CHOICE,
    problems=st.builds(lambda count: count_problem((count, 5), "0.0000001"), st.integers(0, 9)),
    probabilities=lambda problem, method: shares(problem.loaded, 2.004 * float(problem.declared.privacy.epsilon)),
)
