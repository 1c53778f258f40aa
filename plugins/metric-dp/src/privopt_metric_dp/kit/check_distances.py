"""Check the distances of a certificate against distances computed without the mechanism under test."""

from __future__ import annotations

import math
from collections.abc import Iterable

from privopt.testing.checks.base import Elsewhere, Trial, check, require_field
from privopt.testing.under_trial import Run, Subject
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

__all__: list[str] = []

RELATIVE_TOLERANCE = 1e-9
"""Relative difference that two computations of a distance may have."""


def _can_compare(subject: Subject) -> str | None:
    """Return None if the check applies to a mechanism, otherwise the reason why not, for the report."""
    return None if issubclass(subject.mechanism_class.problem_class, MetricProblem) else require_field("alike")(subject)


@check("distances", of={"matrix", "odds"}, needs=_can_compare)
def distances(trial: Trial) -> None:
    """Check that no required pair is farther apart in the mechanism's data than it really is.

    Too large distances would make the certificate too weak, because the permitted ratio exp(epsilon d) grows with d.

    Args:
        trial: Draws problems, runs the mechanism under test on them, and records faults.
    """
    problem = trial.problem()
    run = trial.run(problem)
    data = getattr(run.problem, "data", None)
    if not isinstance(data, MetricData):
        trial.pass_over(Elsewhere("its data are not those of a metric problem, so there are no distances to compare"))
    # The rows of a region are constrained by other distances on purpose, and a single user's matrix has only some of
    # the records.
    if data.region is not None or run.stated.guarantee.scope == "own-matrix":
        trial.be_idle(Elsewhere("a region's or a single user's rows are constrained by other distances on purpose"))
        return
    distance_by_pair = {frozenset(pair): d for *pair, d in _name_pairs(data)}
    index_by_id = {name: number for number, name in enumerate(data.records.ids)}
    # Smaller distances in the mechanism's data are stricter, so only larger ones are faults.
    for first, second, expected in _independent_distances(trial.subject, run):
        if first not in index_by_id or second not in index_by_id:
            trial.fail(
                f"{first} and {second} are a required pair, but the mechanism's data lack at least one of them", problem
            )
        i, j = index_by_id[first], index_by_id[second]
        # The distance of a pair that the mechanism's data does not require comes from the metric of that data.
        actual = distance_by_pair.get(frozenset((first, second)), float(data.metric.between([i], [j])[0]))
        if actual > expected * (1 + RELATIVE_TOLERANCE):
            trial.fail(
                f"{first} and {second} are {expected:g} apart, and {actual:g} in the mechanism's own data: what it "
                f"certifies satisfies {actual / expected if expected else math.inf:.6g} times the claimed epsilon",
                problem,
            )


def _name_pairs(data: MetricData) -> Iterable[tuple[str, str, float]]:
    """Yield the ids of the two records and the distance of each required pair of a problem."""
    ids = [str(name) for name in data.records.ids]
    for (i, j), d in zip(data.pairs.tolist(), data.distances.tolist(), strict=True):
        yield ids[i], ids[j], d


def _independent_distances(subject: Subject, run: Run) -> Iterable[tuple[str, str, float]]:
    """Return the required pairs, as ids, and their distances, computed without the mechanism under test.

    They come from the profile's ``alike`` function if it has one, and otherwise from the kit's own reading of the
    problem file.
    """
    if subject.profile.alike is not None:
        return subject.profile.alike(run.problem)
    # The problem is loaded as given to the mechanism, but not by the mechanism's own `load`.
    return _name_pairs(MetricInstance.of(subject.read_problem(run.given)).data)
