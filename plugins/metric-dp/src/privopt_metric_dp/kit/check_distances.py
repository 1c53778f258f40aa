"""Check the distances of a certificate, computed without the mechanism under trial."""

from __future__ import annotations

import math
from collections.abc import Iterable

from privopt.testing.checks.base import Elsewhere, Trial, check, has
from privopt.testing.under_trial import Run, Subject
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

__all__: list[str] = []

RELATIVE_TOLERANCE = 1e-9
"""Relative difference that two computations of a distance may have."""


def _can_compare(subject: Subject) -> str | None:
    return None if issubclass(subject.mechanism_class.problem_class, MetricProblem) else has("alike")(subject)


@check("distances", of={"matrix", "odds"}, needs=_can_compare)
def distances(trial: Trial) -> None:
    """Check that pairs that must be alike are at most as far apart in the mechanism's own data as they are."""
    problem = trial.problem()
    run = trial.run(problem)
    data = getattr(run.problem, "data", None)
    if not isinstance(data, MetricData):
        trial.pass_over(Elsewhere("its data are not those of a metric problem, whose distances are compared"))
    if data.region is not None or run.stated.guarantee.scope == "own-matrix":
        return
    distance_by_pair = {frozenset(pair): d for *pair, d in _name_pairs(data)}
    index_by_id = {name: number for number, name in enumerate(data.records.ids)}
    for first, second, expected in _exact_distances(trial.subject, run):
        if first not in index_by_id or second not in index_by_id:
            trial.fail(
                f"the pair {first}, {second} must be alike, and the mechanism's data does not know both", problem
            )
        i, j = index_by_id[first], index_by_id[second]
        actual = distance_by_pair.get(frozenset((first, second)), float(data.metric.between([i], [j])[0]))
        if actual > expected * (1 + RELATIVE_TOLERANCE):
            trial.fail(
                f"{first} and {second} are {expected:g} apart, and {actual:g} in the mechanism's own data: whatever is "
                f"certified by it keeps {actual / expected if expected else math.inf:.6g} times the epsilon claimed",
                problem,
            )


def _name_pairs(data: MetricData) -> Iterable[tuple[str, str, float]]:
    ids = [str(name) for name in data.records.ids]
    for (i, j), d in zip(data.pairs.tolist(), data.distances.tolist(), strict=True):
        yield ids[i], ids[j], d


def _exact_distances(subject: Subject, run: Run) -> Iterable[tuple[str, str, float]]:
    """Pairs and distances by the profile, or as a metric problem's file says without the mechanism's own reading."""
    if subject.profile.alike is not None:
        return subject.profile.alike(run.problem)
    return _name_pairs(MetricInstance.of(subject.declared(run.given)).data)
