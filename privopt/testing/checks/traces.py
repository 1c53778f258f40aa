"""The check of reports along traces: what they are charged covers what they tell, and draws follow the stated law.

The law is summed up by the kit (:mod:`privopt.testing.traces`), from the numbers that the release holds.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING, Final

import hypothesis
import numpy as np

from privopt.arrays import Floats, Ints
from privopt.exact.sample import seeded
from privopt.metric.traces.walk import Limit, State, Walker
from privopt.testing.checks.base import Trial, check
from privopt.testing.checks.matrix import plausible
from privopt.testing.traces import TAIL, Reports, cost_of, law_of

if TYPE_CHECKING:
    from privopt.metric.data import MetricData

__all__ = ["traces"]

LENGTH: Final = 4
DRAWS: Final = 20_000
SEQUENCES: Final = 600
"""Sequences of reports that are summed up for one trace, at most."""

NOISE: Final = 200_000
"""Steps of noise that a sum goes over, at most."""

DOUBT: Final = 1e-8
"""Probability of a draw's deviation below which it is no chance."""

USUAL: Final = 50.0
"""Draws expected of a sequence that is counted by itself: of rarer ones chi-square finds far too little chance."""


@check("traces", of={"traces"}, share=0.3)
def traces(trial: Trial) -> None:
    """Reports of two traces are as alike as what they are charged allows, and draws follow that law."""
    problem = trial.problem()
    run = trial.run(problem)
    walker = getattr(run.release, "walker", None)
    if not isinstance(walker, Walker):
        trial.fail("the release has no walker, which draws the reports of traces", problem)
    records, outputs = walker.weights.shape
    length = next((n for n in (LENGTH, 3) if outputs * (outputs + 1) ** (n - 1) <= SEQUENCES), 0)
    if not length or TAIL / float(walker.prediction.threshold) > NOISE:
        hypothesis.reject()
    chance = trial.chance(problem)
    one, two = ([chance.randrange(records) for _ in range(length)] for _ in range(2))
    apart = _chains(run.problem.data)[one, two]
    law, other = law_of(walker, one), law_of(walker, two)
    for seen in law if np.isfinite(apart).all() else ():
        ratio, bound = _ratio(law[seen], other[seen]), float(cost_of(walker, seen, apart))
        if ratio > bound + 1e-9 * (1.0 + bound):
            trial.fail(f"traces {one} and {two}: reports {seen} have log ratio {ratio:.9g}, above {bound:.9g}", problem)
    found, spent = _drawn(walker, one, chance.getrandbits(60))
    for seen, cost in spent.items():
        fresh = sum(not kept for kept, _ in seen)
        least = walker.terms.report + walker.terms.segment * (fresh - 1 + seen[-1][0])
        if cost < least:
            trial.fail(f"trace {one}: reports {seen} were charged {cost}, wanted at least {least}", problem)
    chances = _tail(found, law)
    if chances < DOUBT:
        trial.fail(
            f"trace {one}: {DRAWS:,} draws of its reports are not of the law that prediction and weights give "
            f"(probability {chances:.2g}): the most frequent were {found.most_common(3)}",
            problem,
        )


def _chains(data: MetricData) -> Floats:
    """(N, N) distances along chains of required pairs, infinite where there is none."""
    far = np.full((data.shape[0], data.shape[0]), np.inf)
    for i, j in (data.pairs.T, data.pairs.T[::-1]):
        far[i, j] = data.distances
    np.fill_diagonal(far, 0.0)
    for between in range(len(far)):
        far = np.minimum(far, far[:, between, None] + far[None, between])
    return far


def _ratio(one: float, two: float) -> float:
    if min(one, two) < 1e-280:  # beyond what sums of doubles tell
        return 0.0
    return abs(math.log(one / two))


def _drawn(walker: Walker, trace: list[int], seed: int) -> tuple[Counter[Reports], dict[Reports, Fraction]]:
    """How often each sequence came for many subjects at once, and the least that one of them was charged for it."""
    limit = Limit(None)
    subjects: Ints = np.tile(np.arange(DRAWS), len(trace))
    rows: Ints = np.repeat(np.array(trace, dtype=np.int64), DRAWS)
    drawn = walker.walk(rows, subjects, State(), charge=limit, source=seeded(seed))
    outputs: list[list[int]] = drawn.outputs.reshape(len(trace), DRAWS).T.tolist()
    kept: list[list[bool]] = drawn.kept.reshape(len(trace), DRAWS).T.tolist()
    found: Counter[Reports] = Counter()
    least: dict[Reports, Fraction] = {}
    for subject, (marks, numbers) in enumerate(zip(kept, outputs, strict=True)):
        seen = tuple(zip(marks, numbers, strict=True))
        found[seen] += 1
        spent = limit.spent.get(subject, Fraction(0))
        least[seen] = min(least.get(seen, spent), spent)
    return found, least


def _tail(found: Counter[Reports], law: Mapping[Reports, float]) -> float:
    """Probability of a deviation as great, by chi-square over sequences that are expected often."""
    from scipy.stats import chisquare

    if any(seen not in law for seen in found):
        return 0.0
    expected = np.array([law[seen] * DRAWS for seen in law])
    counts = np.array([found[seen] for seen in law], dtype=np.float64)
    usual = expected >= USUAL
    rest = float(expected[~usual].sum())
    if rest < USUAL and not plausible(int(counts[~usual].sum()), DRAWS, rest / DRAWS):
        return 0.0
    got, wanted = counts[usual], expected[usual]
    if rest >= USUAL:
        got, wanted = np.append(got, counts[~usual].sum()), np.append(wanted, rest)
    return float(chisquare(got, wanted * got.sum() / wanted.sum()).pvalue) if len(got) > 1 else 1.0
