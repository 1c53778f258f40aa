"""Right mechanisms that look odd: no check may blame them."""

from __future__ import annotations

import random
import time
import uuid
from fractions import Fraction
from typing import Any

import numpy as np
from attrs import evolve, frozen

from faults.answers import RightAnswers
from faults.counts import RightCounts
from faults.drawn import MileRelease, RightMiles
from privopt.interfaces import Outcome
from privopt.numbers import TOTAL, draw_laplace
from privopt.numbers.noise import discrete_laplace
from privopt.numbers.sampling import make_source


class Constant(RightCounts):
    """Publishes the same numbers whatever the counts: nothing is drawn, and nothing told."""

    def noisy(self, problem: Any, context: Any) -> Any:
        return np.zeros(len(problem.loaded), dtype=np.int64), (1 / problem.declared.privacy.epsilon,)


class OneAnswer(RightAnswers):
    """Reports the first answer whatever the true one."""

    def rows(self, problem: Any, factor: float = 1.0) -> Any:
        rows = np.zeros((problem.answers, problem.answers), dtype=np.uint64)
        rows[:, 0] = TOTAL
        return rows


class OwnSampler(RightCounts):
    """Draws by a sampler that the kit cannot silence, and states the total of the noisy counts as its loss."""

    def noisy(self, problem: Any, context: Any) -> Any:
        source = make_source(context.seed)
        rate = problem.declared.privacy.epsilon
        return problem.loaded + draw_laplace(len(problem.loaded), rate, source=source), (1 / rate,)


class BeyondWords(RightCounts):
    """Noisy counts in units of 10**-30, so that no machine word holds them."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        noisy = tuple(n * 10**30 for n in outcome.release.noisy)
        return evolve(outcome, release=evolve(outcome.release, noisy=noisy))


class AddedAfter(RightCounts):
    """Draws noise by itself and adds it to the counts."""

    def noisy(self, problem: Any, context: Any) -> Any:
        nothing = np.zeros(len(problem.loaded), dtype=np.int64)
        drawn, record = discrete_laplace(nothing, problem.declared.privacy.epsilon, seed=context.seed)
        return problem.loaded + drawn, (record.scale,)


class TwiceTheNoise(RightCounts):
    """Draws at twice the scale that its epsilon needs."""

    def noisy(self, problem: Any, context: Any) -> Any:
        noisy, record = discrete_laplace(problem.loaded, problem.declared.privacy.epsilon / 2, seed=context.seed)
        return noisy, (record.scale,)


class Stamped(RightCounts):
    """Says which run it was, on what day, how long it took, and throws a coin."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome, chance = super().solve(problem, context), random.SystemRandom()
        if context.seed is not None:
            return outcome
        told = {"run": str(uuid.uuid4()), "day": time.strftime("%F"), "second": int(time.time())}
        told["coin"] = chance.random() < 0.5
        return evolve(outcome, details={"told": told})


class AnyOrder(RightCounts):
    """Writes its rows in an order drawn anew each time."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        chance = random.SystemRandom() if context.seed is None else random.Random(context.seed)
        order = chance.sample(range(len(problem.names)), len(problem.names))
        ids, noisy = (tuple(part[n] for n in order) for part in (outcome.release.ids, outcome.release.noisy))
        return evolve(outcome, release=evolve(outcome.release, ids=ids, noisy=noisy))

    def verify(self, problem: Any, release: Any, result: Any) -> list[str]:
        return [] if sorted(release.ids) == sorted(problem.names.tolist()) else ["noisy.csv: other ids"]


@frozen(kw_only=True, eq=False)
class _InDecimals(MileRelease):
    def sample(self, input_id: str, count: int) -> list[str]:
        here = self.place(input_id)
        fine = draw_laplace(count, self.rate / 1024)
        return [repr(float(here + Fraction(int(shift), 1024))) for shift in fine.tolist()]


class InDecimals(RightMiles):
    """Shifts by parts of a mile, written as decimals: hardly any output comes twice."""

    release_class = _InDecimals
