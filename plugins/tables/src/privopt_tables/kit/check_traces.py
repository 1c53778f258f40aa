"""Check reports along traces: charges cover what they reveal, and draws follow the stated distribution.

The law is summed up by the kit (:mod:`privopt_tables.kit.trace_law`), from the numbers that the release holds.
Traces go from record to record: those through any point of a region are not tried here.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from fractions import Fraction
from random import Random
from typing import TYPE_CHECKING, Any, Final

import attrs
import hypothesis
import narwhals as nw
import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare.column_texts import KEPT
from privopt.testing.checks.base import Trial, check
from privopt.testing.checks.samples import plausible
from privopt.testing.problems import GeneratedProblem
from privopt_metric_dp.kit.spaces import close_paths
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.traces.draw_trace import Walker
from privopt_tables.kit.trace_law import LEAST_PROBABILITY, Law, Reports, cost_of
from privopt_tables.options import ApplyOptions
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import Secret

if TYPE_CHECKING:
    from privopt.testing.under_trial import Run
    from privopt_metric_dp.problem.data import MetricData

__all__ = ["draws_traces", "traces"]

TRACE_LENGTH: Final = 4
TRACE_DRAWS: Final = 20_000
TRACE_PAIRS: Final = 8
"""Pairs of traces that are compared."""

MAX_SEQUENCES: Final = 600
"""Sequences of reports that are summed up for one trace, at most."""

MIN_CHANCE: Final = 1e-8
"""Probability of a draw's deviation below which it is not a chance."""

MIN_EXPECTED_DRAWS: Final = 50.0
"""Draws expected of a sequence that is counted by itself: of rarer ones chi-square finds far too little chance."""

RELATIVE_TOLERANCE: Final = 1e-9
"""By how much doubles may miss, as a share."""


@frozen(kw_only=True, eq=False)
class _TraceSetting:
    """Where traces go.

    Attributes:
        law: of reports along traces of places.
        apart: (P, P) between places; infinite where nothing is promised.
        names: of places, for messages.
        columns: of a table that has them, by column.
    """

    law: Law
    apart: Floats
    names: list[str]
    columns: Mapping[str, list[Any]]


def draws_traces(release: type[Any]) -> bool:
    """Return whether a class of releases has a ``walker`` of its own, which draws reports along a trace."""
    fields = {each.name for each in attrs.fields(release)} if attrs.has(release) else set()
    return getattr(release, "walker", MatrixRelease.walker) is not MatrixRelease.walker or "walker" in fields


@check("traces", version=3, of={"traces"}, share=0.3)
def traces(trial: Trial) -> None:
    """Check that reports of two traces are as alike as their charges allow, and that draws follow that distribution."""
    problem = trial.problem()
    _try(trial, problem, trial.run(problem))


def _try(trial: Trial, problem: GeneratedProblem, run: Run) -> None:
    walker, data = getattr(run.release, "walker", None), run.problem.data
    if not isinstance(walker, Walker):
        trial.fail("the release has no walker, which draws the reports of traces", problem)
    outputs = walker.weights.shape[1]
    length = next((n for n in (TRACE_LENGTH, 3) if outputs * (outputs + 1) ** (n - 1) <= MAX_SEQUENCES), 0)
    if not length:
        hypothesis.reject()
    if data.region is not None:
        trial.pass_over("its traces go through any point of a region, and records alone are tried")
    count, chance = data.shape[0], trial.chance(problem)
    far = np.full((count, count), np.inf)
    i, j = data.pairs.T
    far[i, j] = far[j, i] = data.distances
    np.fill_diagonal(far, 0.0)
    names = list(data.records.ids)
    ground = _TraceSetting(law=Law.of(walker), apart=close_paths(far), names=names, columns={"id": names})
    _compare_noise(trial, problem, walker, ground)
    _compare_traces(trial, problem, walker, ground, length, chance)
    _compare_draws(trial, problem, run.release, data, ground, length, chance)


def _compare_noise(trial: Trial, problem: GeneratedProblem, walker: Walker, here: _TraceSetting) -> None:
    """Check that noise hides by how many steps two places differ, and a segment costs what its parts do."""
    terms, numbers, steps = walker.terms, walker.prediction, walker.prediction.steps
    parts = (("threshold", numbers.threshold, terms.threshold), ("test", numbers.test, terms.test))
    for one, row in enumerate(here.apart):
        differ = np.abs(steps - steps[one]).max(axis=1, initial=0)
        for name, rate, epsilon in parts:
            over = float(rate) * differ - float(epsilon) * row * (1.0 + RELATIVE_TOLERANCE)
            two = int(over.argmax())
            if over[two] > RELATIVE_TOLERANCE * float(rate):
                trial.fail(
                    f"prediction: {here.names[one]} and {here.names[two]}, {row[two]:.9g} apart, differ "
                    f"by {differ[two]:,} steps to an output; the noise of the {name} has rate {float(rate):.6g} a "
                    f"step, which tells {float(rate) * differ[two]:.6g}, above {float(epsilon) * row[two]:.6g}",
                    problem,
                )
    epsilon = Fraction(trial.subject.epsilon(trial.subject.load(problem)))
    whole = max(terms.report, epsilon) + terms.threshold + 2 * terms.test
    if terms.segment < whole:
        trial.fail(
            f"a segment that ends in a fresh report costs {float(terms.segment):g}, expected {float(whole):g}: "
            f"the fresh report {float(epsilon):g}, the threshold {float(terms.threshold):g} and twice the test "
            f"{float(terms.test):g}",
            problem,
        )


def _compare_traces(
    trial: Trial, problem: GeneratedProblem, walker: Walker, ground: _TraceSetting, length: int, chance: Random
) -> None:
    count = len(ground.names)
    for number in range(TRACE_PAIRS):
        one = [chance.randrange(count) for _ in range(length)]
        if number % 2:  # a stay
            one = one[:1] * length
        two = [_twin(place, count) for place in one] if number % 4 else [chance.randrange(count) for _ in one]
        apart = ground.apart[one, two]
        if not np.isfinite(apart).all():
            continue
        law, other = ground.law.every(one), ground.law.every(two)
        for seen in law:
            ratio, bound = _ratio(law[seen], other[seen]), float(cost_of(walker.terms, seen, apart))
            if ratio > bound + RELATIVE_TOLERANCE * (1.0 + bound):
                trial.fail(
                    f"traces {_names(ground, one)} and {_names(ground, two)}: reports {seen} have log ratio "
                    f"{ratio:.9g}, above {bound:.9g}",
                    problem,
                )


def _twin(place: int, count: int) -> int:
    return min(place ^ 1, count - 1)


def _names(ground: _TraceSetting, trace: list[int]) -> str:
    return ", ".join(ground.names[place] for place in trace)


def _ratio(one: float, two: float) -> float:
    return 0.0 if min(one, two) < LEAST_PROBABILITY else abs(math.log(one / two))


def _compare_draws(
    trial: Trial,
    problem: GeneratedProblem,
    release: Any,
    data: MetricData,
    ground: _TraceSetting,
    length: int,
    chance: Random,
) -> None:
    trace = [chance.randrange(len(ground.names)) for _ in range(length)]
    if trial.history.examples % 4 > 1:  # a stay: what a vertex drawn again for each row would tell adds up
        trace = trace[:1] * length
    found, spent = _drawn(release, data, ground, trace, chance.getrandbits(60))
    terms = release.walker.terms
    whole = terms.report + terms.threshold + 2 * terms.test
    for seen, cost in spent.items():
        least = terms.report + whole * (sum(not kept for kept, _ in seen) - 1 + seen[-1][0])
        if cost < least:
            trial.fail(
                f"trace {_names(ground, trace)}: reports {seen} were charged {cost}, expected at least {least}", problem
            )
    chances = _tail(found, ground.law.every(trace))
    if chances < MIN_CHANCE:
        trial.fail(
            f"trace {_names(ground, trace)}: {TRACE_DRAWS:,} draws of its reports are not of the law that "
            f"prediction and weights give (probability {chances:.2g}): the most frequent were {found.most_common(3)}",
            problem,
        )


def _drawn(
    release: Any, data: MetricData, ground: _TraceSetting, trace: list[int], seed: int
) -> tuple[Counter[Reports], dict[Reports, Fraction]]:
    """Count how often each sequence came for a table's subjects, and the least that one was charged for it."""
    secret = Secret.of(**{name: name for name in ground.columns})
    protector = PositionProtector.of(release, data, secret, ApplyOptions(seed=seed, subject="who"))
    rows, subjects = np.repeat(trace, TRACE_DRAWS), np.tile(np.arange(TRACE_DRAWS), len(trace))
    table = pl.DataFrame(
        {"who": subjects, **{name: pl.Series(ends).gather(rows) for name, ends in ground.columns.items()}}
    )
    made = protector.protect(nw.from_native(table, eager_only=True))
    place = {name: number for number, name in enumerate(release.outputs.tolist())}
    outputs = np.array([place[name] for name in made[protector.report_columns[0]].to_list()]).reshape(
        len(trace), TRACE_DRAWS
    )
    kept = made[KEPT].to_numpy().reshape(len(trace), TRACE_DRAWS)
    found: Counter[Reports] = Counter()
    least: dict[Reports, Fraction] = {}
    assert protector.tracer is not None  # a release that draws traces
    spent = [protector.tracer.limit.spent.get(str(subject), Fraction(0)) for subject in range(TRACE_DRAWS)]
    for subject, (marks, numbers) in enumerate(zip(kept.T.tolist(), outputs.T.tolist(), strict=True)):
        seen = tuple(zip(marks, numbers, strict=True))
        found[seen] += 1
        least[seen] = min(least.get(seen, spent[subject]), spent[subject])
    return found, least


def _tail(observed: Counter[Reports], law: Mapping[Reports, float]) -> float:
    """Probability of a deviation as great, by chi-square over sequences that are expected often."""
    from scipy.stats import chisquare

    if any(seen not in law for seen in observed):
        return 0.0
    expected = np.array([law[seen] * TRACE_DRAWS for seen in law])
    counts = np.array([observed[seen] for seen in law], dtype=np.float64)
    usual = expected >= MIN_EXPECTED_DRAWS
    rest = float(expected[~usual].sum())
    if rest < MIN_EXPECTED_DRAWS and not plausible(int(counts[~usual].sum()), TRACE_DRAWS, rest / TRACE_DRAWS):
        return 0.0
    got, wanted = counts[usual], expected[usual]
    if rest >= MIN_EXPECTED_DRAWS:
        got, wanted = np.append(got, counts[~usual].sum()), np.append(wanted, rest)
    return float(chisquare(got, wanted * got.sum() / wanted.sum()).pvalue) if len(got) > 1 else 1.0
