"""A check that compares the distances behind a certificate with distances computed independently of the mechanism."""

from __future__ import annotations

import math
from collections.abc import Iterable

from privopt.testing.checks.base import Elsewhere, Trial, check, require_field
from privopt.testing.under_trial import Run, Subject
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

__all__: list[str] = []

RELATIVE_TOLERANCE = 1e-9
"""The allowed relative difference between two computations of the same distance."""


def _can_compare(subject: Subject) -> str | None:
    """Return None if the check applies to a mechanism, and otherwise the reason why it does not."""
    return None if issubclass(subject.mechanism_class.problem_class, MetricProblem) else require_field("alike")(subject)


@check("distances", of={"matrix", "odds"}, needs=_can_compare)
def distances(trial: Trial) -> None:
    """Check that the mechanism's data does not overstate the distance of any required pair of records.

    An overstated distance d would weaken the guarantee, because the certificate allows ratios up to exp(epsilon d).

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    run = trial.run(problem)
    data = getattr(run.problem, "data", None)
    if not isinstance(data, MetricData):
        trial.pass_over(Elsewhere("its data are not those of a metric problem, so there are no distances to compare"))
    # In a region, rows are deliberately constrained by other distances. A single user's matrix contains only some
    # records.
    if data.region is not None or run.stated.guarantee.scope == "own-matrix":
        trial.be_idle(Elsewhere("a region's or a single user's rows are constrained by other distances on purpose"))
        return
    distance_by_pair = {frozenset(pair): d for *pair, d in _name_pairs(data)}
    index_by_id = {name: number for number, name in enumerate(data.records.ids)}
    # Smaller distances in the mechanism's data only make the guarantee stricter, so they are no faults.
    for first, second, expected in _independent_distances(trial.subject, run):
        if first not in index_by_id or second not in index_by_id:
            trial.fail(
                f"{first} and {second} are a required pair, but the mechanism's data lack at least one of them", problem
            )
        i, j = index_by_id[first], index_by_id[second]
        # If the pair is not required in the mechanism's data, the metric there provides the distance.
        actual = distance_by_pair.get(frozenset((first, second)), float(data.metric.between([i], [j])[0]))
        if actual > expected * (1 + RELATIVE_TOLERANCE):
            trial.fail(
                f"{first} and {second} are {expected:g} apart, and {actual:g} in the mechanism's own data: what it "
                f"certifies satisfies {actual / expected if expected else math.inf:.6g} times the claimed epsilon",
                problem,
            )


def _name_pairs(data: MetricData) -> Iterable[tuple[str, str, float]]:
    """Yield the ids of the two records in each required pair, and their distance."""
    ids = [str(name) for name in data.records.ids]
    for (i, j), d in zip(data.pairs.tolist(), data.distances.tolist(), strict=True):
        yield ids[i], ids[j], d


def _independent_distances(subject: Subject, run: Run) -> Iterable[tuple[str, str, float]]:
    """Return the required pairs as record ids, with distances computed independently of the mechanism under test.

    If the mechanism's profile defines an ``alike`` function, that function provides the pairs and distances. Otherwise,
    they are read from the problem file.
    """
    if subject.profile.alike is not None:
        return subject.profile.alike(run.problem)
    # The mechanism was given the same problem file, but its own `load` is not used here.
    return _name_pairs(MetricInstance.of(subject.read_problem(run.given)).data)
