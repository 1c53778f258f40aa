"""Metric mechanisms that sample otherwise than they certify, and mechanisms that have nothing but a sampler."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen
from hypothesis import strategies as st
from numpy.typing import NDArray

from faults.matrix import RightMatrix
from privopt.declare import at_least, key, positive
from privopt.errors import Fault, InputError, UsageError
from privopt.interfaces import (
    Certificate,
    Channel,
    Guarantee,
    Mechanism,
    Outcome,
    PrivacyConstraint,
    Release,
    UtilityLoss,
)
from privopt.numbers import draw_laplace
from privopt.numbers.noise import stated_scale
from privopt.numbers.sampling import make_source
from privopt.testing import GeneratedProblem, Profile, to_toml
from privopt_metric_dp.matrix.release import MatrixRelease


@frozen(kw_only=True, eq=False)
class _LeakyRelease(MatrixRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        drawn = super().sample(input_id, count)
        return sorted(drawn, key=lambda output: output != input_id)


class TrueRecordFirst(RightMatrix):
    """Right probabilities, but samples are ordered: the true record comes first."""

    release_class = _LeakyRelease

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        release = outcome.release
        names = ("weights", "records", "outputs", "pairs", "distances")
        return evolve(outcome, release=self.release_class(**{name: getattr(release, name) for name in names}))


@frozen(kw_only=True, eq=False)
class _FaithlessRelease(MatrixRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        honest = super().sample(input_id, count)
        return [input_id if input_id in self.outputs and n % 2 else output for n, output in enumerate(honest)]


class TruthHalfTheTime(TrueRecordFirst):
    """Certified weights, but every second sample is the true record."""

    release_class = _FaithlessRelease


@frozen(kw_only=True, eq=False)
class _Mixed(MatrixRelease):
    def channel(self) -> Channel:
        honest = super().channel()
        z = honest.probabilities
        return evolve(honest, probabilities=z + (z.mean(axis=0) - z) / 2**20)


class ChannelOfAnother(TrueRecordFirst):
    """Certified weights, followed by its samples; its channel states others, a millionth nearer to one another."""

    release_class = _Mixed


# --- a sampler, and no matrix ------------------------------------------------------------------------


@frozen(kw_only=True)
class Budget:
    """The table [privacy]."""

    epsilon: Fraction = key(help="privacy budget", unit="per mile", check=positive)


@frozen(kw_only=True)
class MileProblem:
    """A road with milestones."""

    miles: int = key(help="milestones, from 0", check=at_least(2))
    privacy: Budget = key(help="how much may leak")


@frozen(kw_only=True, eq=False)
class MileRelease(Release):
    """The way in which anybody shifts a milestone by noise."""

    miles: int
    rate: Fraction

    def write(self, folder: Path) -> None:
        (folder / "shift.txt").write_text(f"{self.miles} {self.rate}\n", "utf-8")

    @classmethod
    def read(cls, folder: Path, problem: Any) -> Release:
        try:
            miles, rate = (folder / "shift.txt").read_text("utf-8").split()
            return cls(miles=int(miles), rate=stated_scale(rate))
        except ValueError:
            raise InputError([Fault("shift.txt", "", "another text", "milestones and rate")]) from None

    def place(self, input_id: str) -> int:
        if input_id not in map(str, range(self.miles)):
            raise UsageError(f"milestone: expected 0 to {self.miles - 1}, got {input_id!r}")
        return int(input_id)

    def sample(self, input_id: str, count: int) -> list[str]:
        here = self.place(input_id)
        return [str(here + shift) for shift in draw_laplace(count, self.rate).tolist()]


@frozen(kw_only=True)
class Shifted(PrivacyConstraint):
    """Metric DP by discrete Laplace noise of rate epsilon."""

    epsilon: Fraction

    @property
    def guarantee(self) -> Guarantee:
        words = "The odds between two milestones change by at most exp(epsilon d)."
        return Guarantee(kind="metric-dp", epsilon=self.epsilon, unit="per mile", scope="all-pairs", statement=words)

    def measure(self, release: Any) -> Certificate:
        return Certificate(
            holds=release.rate <= self.epsilon,
            evidence="declared",
            kind="metric-dp",
            worst=float(release.rate),
            allowed=float(self.epsilon),
            checked=1,
            arithmetic="the rate itself",
            rests_on="that samples are drawn so",
        )


@frozen(kw_only=True)
class MeanShift(UtilityLoss):
    """Miles that a report is off, to first order."""

    unit: str = "miles"

    def evaluate(self, release: Any) -> float:
        return float(1 / release.rate)


class RightMiles(Mechanism):
    """Shifts a milestone by noise."""

    problem_class = MileProblem
    release_class: Any = MileRelease
    kit = "faults.drawn:MILES"

    def privacy(self, problem: Any, method: str) -> PrivacyConstraint:
        return Shifted(epsilon=problem.privacy.epsilon)

    def utility(self, problem: Any, method: str) -> UtilityLoss:
        return MeanShift()

    def solve(self, problem: Any, context: Any) -> Outcome:
        return Outcome(release=self.release_class(miles=problem.miles, rate=problem.privacy.epsilon))

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return [] if release.miles == problem.miles else ["shift.txt: another road"]


@frozen(kw_only=True, eq=False)
class _Again(MileRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        here = self.place(input_id)
        return [str(here + shift) for shift in draw_laplace(count, self.rate, source=make_source(5)).tolist()]


class SameShifts(RightMiles):
    """Shifts every milestone by the same draws, which two reports show."""

    release_class = _Again


@frozen(kw_only=True, eq=False)
class _DoublesAdded(MileRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        return [repr(self.place(input_id) + shift) for shift in self.shifts(count).tolist()]

    def shifts(self, count: int) -> NDArray[np.float64]:
        return np.random.default_rng().laplace(0, 1 / float(self.rate), count)


class LowBitsOfShifts(RightMiles):
    """The textbook sampler: shifts a milestone by Laplace noise in doubles, whose last bits tell where 0 is."""

    release_class = _DoublesAdded


@frozen(kw_only=True, eq=False)
class _EighthsAdded(_DoublesAdded):
    def shifts(self, count: int) -> NDArray[np.float64]:
        eighths: NDArray[np.float64] = draw_laplace(count, self.rate / 8) / 8
        return eighths


class EighthsOfMiles(RightMiles):
    """Right: shifts a milestone by discrete noise on a grid of eighths of a mile, on which it lies itself."""

    release_class = _EighthsAdded


def mile_problem(miles: int, epsilon: str) -> GeneratedProblem:
    return GeneratedProblem(toml=to_toml({"miles": miles, "privacy": {"epsilon": Decimal(epsilon)}}))


def miles_apart(problem: Any) -> Iterator[tuple[str, str, float]]:
    for one in range(problem.miles):
        for two in range(one):
            yield str(one), str(two), float(one - two)


MILES = Profile(
    problems=st.builds(mile_problem, st.integers(2, 5), st.sampled_from(["1.0", "0.5", "2.0"])), alike=miles_apart
)


# --- what is stated of the reports -----------------------------------------------------------------------


@frozen(kw_only=True, eq=False)
class LineRelease(MileRelease):
    """What falls off the road is reported at its end, so that the probabilities are finitely many."""

    def rows(self) -> NDArray[np.float64]:
        ratio, apart = np.exp(-float(self.rate)), np.abs(np.subtract.outer(range(self.miles), range(self.miles)))
        rows = ratio**apart / (1 + ratio)
        rows[:, 1:-1] *= 1 - ratio
        return rows

    def sample(self, input_id: str, count: int) -> list[str]:
        return [str(min(max(int(drawn), 0), self.miles - 1)) for drawn in super().sample(input_id, count)]

    def channel(self) -> Channel:
        names = [str(number) for number in range(self.miles)]
        return Channel(inputs=names, outputs=names, probabilities=self.rows())


class RightLine(RightMiles):
    """Shifts a milestone by noise, not beyond the ends, and says how likely each report is."""

    release_class = LineRelease


@frozen(kw_only=True, eq=False)
class _SquaredOdds(LineRelease):
    def rows(self) -> NDArray[np.float64]:
        rows = super().rows() ** 2
        return rows / rows.sum(axis=1, keepdims=True)


class ChannelDoubled(RightMiles):
    """Draws rightly, and states odds of twice epsilon."""

    release_class = _SquaredOdds


@frozen(kw_only=True, eq=False)
class _Hundredths(LineRelease):
    def rows(self) -> NDArray[np.float64]:
        rows = np.maximum(np.round(super().rows(), 2), 0.01)
        return rows / rows.sum(axis=1, keepdims=True)

    def sample(self, input_id: str, count: int) -> list[str]:
        row = self.rows()[self.place(input_id)]
        return [str(n) for n in random.SystemRandom().choices(range(self.miles), row.tolist(), k=count)]


class RoundedToHundredths(RightMiles):
    """Draws by probabilities rounded to hundredths, and states them: a few percent more than epsilon."""

    release_class = _Hundredths
