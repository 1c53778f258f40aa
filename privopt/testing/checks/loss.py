"""Checks of the loss: as reported, its bound, how it moves with the privacy asked for, and runs that must agree."""

from __future__ import annotations

import math
from typing import Any, Final

from privopt.testing.checks.base import Elsewhere, Trial, check, has
from privopt.testing.checks.neighbours import news
from privopt.testing.noise import truth, watched
from privopt.testing.problems import GeneratedProblem, Variant
from privopt.testing.under_trial import Subject

SUM_TOLERANCE: Final = 1e-9
"""Relative difference that two computations of the same sum may have."""


def near(one: float, two: float) -> bool:
    """Return whether two numbers may be the same sum."""
    return abs(one - two) <= SUM_TOLERANCE * max(1.0, abs(one), abs(two))


@check("objective-reported", min_examples=12)
def objective_reported(trial: Trial) -> None:
    """Check that the objective reported is the loss of the release."""
    problem, run = trial.solved()
    stated = run.stated.objective
    value = stated.value
    utility = trial.subject.mechanism.utility(run.problem, trial.subject.method.name)
    found = utility.evaluate(run.release)
    if found is not None and not near(value, found):
        trial.fail(f"objective.value is {value!r}; for the release the mechanism's utility gives {found!r}", problem)
    if not stated.unit or stated.unit != utility.unit:
        trial.fail(f"objective.unit is {stated.unit!r}; the mechanism's utility is in {utility.unit!r}", problem)
    bound, gap = stated.lower_bound, stated.gap
    if bound is None and gap is not None:
        trial.fail(f"objective.gap is {gap!r} without a bound", problem)
    if bound is not None and not utility.maximise:
        wanted = max(0.0, (value - bound) / max(abs(value), 1e-12))
        if gap is None or not near(gap, wanted):
            trial.fail(f"objective.gap is {gap!r}; value and bound give {wanted!r}", problem)


@check("lower-bound")
def lower_bound(trial: Trial) -> None:
    """Check that the lower bound is at most the loss of a private release found by other means."""
    problem, run = trial.solved()
    bound = run.stated.objective.lower_bound
    if bound is None or math.isinf(bound):
        return
    make = trial.subject.profile.best_known
    known = None if make is None else make(run.problem, run.stated)
    if known is None:
        return
    maximise = trial.subject.mechanism.utility(run.problem, trial.subject.method.name).maximise
    wrong = known - bound if maximise else bound - known
    if wrong > SUM_TOLERANCE * max(1.0, abs(known)):
        side, way = ("upper", "below") if maximise else ("lower", "above")
        trial.fail(f"the {side} bound {bound!r} lies {way} {known!r}, the loss of a release of the profile", problem)


def tolerance(subject: Subject, *values: float) -> float:
    """Return by how much two equal losses may differ: by the gap asked for, or what the profile allows."""
    return (2 * max(subject.method.gap, 1e-6) + subject.profile.tolerance) * max(map(abs, values)) + SUM_TOLERANCE


def _has_stricter(subject: Subject) -> str | None:
    if subject.noisy:
        return Elsewhere("the loss depends on the noise drawn")
    return has("stricter")(subject)


@check("loss-monotone", needs=_has_stricter)
def loss_monotone(trial: Trial) -> None:
    """Check that a request for less privacy does not make the loss higher."""
    problem = trial.problem()
    make = trial.subject.profile.stricter
    assert make is not None  # needs
    stricter = make(problem)
    if stricter is None:
        return
    loose, tight = trial.run(problem), trial.run(stricter)
    maximise = trial.subject.mechanism.utility(loose.problem, trial.subject.method.name).maximise
    easy, hard = (run.stated.objective.value for run in (loose, tight))
    worse = hard - easy if maximise else easy - hard
    if worse > tolerance(trial.subject, easy, hard):
        trial.fail(
            f"the loss is {easy!r} for this problem and {hard!r} where more privacy is asked for; expected no higher "
            f"loss for less privacy. The stricter one:\n{news(problem, stricter)}",
            problem,
        )


def _quiet_loss(trial: Trial, problem: GeneratedProblem, **options: Any) -> float:
    """Return the objective with the noise omitted."""
    subject, loaded = trial.subject, trial.subject.load(problem)
    with watched(truth):
        outcome = subject.outcome(loaded, **options)
    value: Any = subject.mechanism.utility(loaded, subject.method.name).evaluate(outcome.release)
    return float(value)


def _agree(trial: Trial, problem: GeneratedProblem, variant: Variant, **options: Any) -> None:
    """Fail where a variant, solved with these options, has another objective than its problem, up to its factor."""
    if trial.subject.noisy:
        one, two = _quiet_loss(trial, problem), _quiet_loss(trial, variant.problem, **options)
    else:
        first, second = trial.run(problem), trial.attempt(variant.problem, **options)
        if second.error is not None:
            trial.fail(f"{variant.change}, and then it was not solved: {second.error}", problem)
        one, two = first.stated.objective.value, second.stated.objective.value
    if abs(two / variant.factor - one) > tolerance(trial.subject, one, two / variant.factor):
        went = f"the objective went from {one!r} to {two!r}; expected {one * variant.factor!r}"
        trial.fail(f"{variant.change}: {went}", problem)


def _check_variant(name: str, summary: str, min_examples: int = 15) -> None:
    """Enter the check that a variant of the profile agrees with its problem."""

    def needs(subject: Subject) -> str | None:
        return None if name in subject.profile.variants else f"the profile has no variant {name!r}"

    def agrees(trial: Trial) -> None:
        problem = trial.problem()
        variant = trial.subject.profile.variants[name](problem, trial.chance(problem))
        if variant is not None:
            _agree(trial, problem, variant)

    agrees.__doc__ = summary
    check(name, min_examples=min_examples, needs=needs)(agrees)


_check_variant("relabelling", "Check that other ids change nothing.")
_check_variant("reordering", "Check that another order of the input changes nothing.")
_check_variant(
    "units", "Check that another unit of length, with epsilon converted, changes only the unit of the loss.", 5
)


@check("backends-agree")
def backends_agree(trial: Trial) -> None:
    """Check that CBC and HiGHS find the same objective, within the gap asked for."""
    problem = trial.problem()
    first = trial.run(problem)  # by the default solver, CBC
    if "cbc" in str(first.stated.solver.get("name", "")).lower():  # else no backend was used
        _agree(trial, problem, Variant(problem=problem, change="HiGHS solved it, after CBC"), solver="highs")
