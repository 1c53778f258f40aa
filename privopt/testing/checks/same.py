"""Checks that compare runs which must agree: with other ids, orders, units and solvers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from privopt.interfaces import SolveContext
from privopt.testing.checks.base import Trial, check
from privopt.testing.checks.loss import tolerance
from privopt.testing.noise import recorded
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Subject


def _has(variant: str) -> Callable[[Subject], str | None]:
    def needs(subject: Subject) -> str | None:
        return None if variant in subject.profile.variants else f"the profile has no variant {variant!r}"

    return needs


def _agree(trial: Trial, name: str) -> None:
    problem = trial.problem()
    variant = trial.subject.profile.variants[name](problem, trial.chance(problem))
    if variant is None:
        return
    if trial.subject.noisy:
        one, two = (_quiet_loss(trial, each) for each in (problem, variant.problem))
    else:
        first, second = trial.run(problem), trial.attempt(variant.problem)
        if second.error is not None:
            trial.fail(f"{variant.change}, and then it was not solved: {second.error}", problem)
        one, two = first.stated.objective.value, second.stated.objective.value
    two /= variant.factor
    if abs(two - one) > tolerance(trial.subject, one, two):
        trial.fail(
            f"{variant.change}: the objective went from {one!r} to {two * variant.factor!r}; expected "
            f"{one * variant.factor!r}",
            problem,
        )


def _quiet_loss(trial: Trial, problem: GeneratedProblem) -> float:
    """Objective with the noise omitted."""
    subject = trial.subject
    loaded = trial.load(problem)
    with recorded():
        outcome = subject.mechanism.solve(loaded, SolveContext(method=subject.method.name, gap=subject.method.gap))
    value: Any = subject.mechanism.utility(loaded, subject.method.name).evaluate(outcome.release)
    return float(value)


@check("relabelling", min_examples=15, needs=_has("relabelling"))
def relabelling(trial: Trial) -> None:
    """Check that other ids change nothing."""
    _agree(trial, "relabelling")


@check("reordering", min_examples=15, needs=_has("reordering"))
def reordering(trial: Trial) -> None:
    """Check that another order of the input changes nothing."""
    _agree(trial, "reordering")


@check("units", needs=_has("units"))
def units(trial: Trial) -> None:
    """Check that another unit of length, with epsilon converted, changes only the unit of the loss."""
    _agree(trial, "units")


@check("backends-agree")
def backends_agree(trial: Trial) -> None:
    """Check that CBC and HiGHS find the same objective, within the gap asked for."""
    problem = trial.problem()
    first = trial.run(problem)  # by the default solver, CBC
    if "cbc" not in str(first.stated.solver.get("name", "")).lower():
        return  # no backend was used
    second = trial.attempt(problem, solver="highs")
    if second.error is not None:
        trial.fail(f"CBC solves it, HiGHS does not: {second.error}", problem)
    one, two = first.stated.objective.value, second.stated.objective.value
    if abs(one - two) > tolerance(trial.subject, one, two):
        trial.fail(f"the objective is {one!r} by CBC and {two!r} by HiGHS", problem)
