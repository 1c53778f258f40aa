"""Checks on the loss: its value and bound, its dependence on epsilon, and its agreement between equivalent problems.

A check that does not apply to a mechanism is skipped with a reason of type ``Elsewhere``.
"""

from __future__ import annotations

import math
from typing import Any, Final

from privopt.testing.checks.base import CONSTANT_RUNS, Elsewhere, Trial, check, require_field
from privopt.testing.checks.neighbours import format_changes
from privopt.testing.noise import answer_truthfully, watch_noise
from privopt.testing.problems import GeneratedProblem, Variant
from privopt.testing.under_trial import Subject

SUM_TOLERANCE: Final = 1e-9
"""The largest relative difference that rounding can cause between two computations of the same sum."""


def is_same_sum(first: float, second: float) -> bool:
    """Return whether two sums are equal up to rounding errors due to a different order of summation."""
    return abs(first - second) <= SUM_TOLERANCE * max(1.0, abs(first), abs(second))


@check("objective-reported", min_examples=12)
def objective_reported(trial: Trial) -> None:
    """Check that the reported objective is the release's loss, and that the gap follows from the bound.

    The loss is recomputed with the mechanism's own utility. If the objective is maximised, the gap is not compared with
    the bound.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    objective = run.stated.objective
    value = objective.value
    utility = trial.subject.mechanism.utility(run.problem, trial.subject.method.name)
    recomputed = utility.evaluate(run.release)
    if recomputed is not None and not is_same_sum(value, recomputed):
        trial.fail(
            f"objective.value is {value!r}; for the release the mechanism's utility gives {recomputed!r}", problem
        )
    if not objective.unit or objective.unit != utility.unit:
        trial.fail(f"objective.unit is {objective.unit!r}; the mechanism's utility is in {utility.unit!r}", problem)
    bound, gap = objective.lower_bound, objective.gap
    if bound is None and gap is not None:
        trial.fail(f"objective.gap is {gap!r} without a bound", problem)
    if bound is not None and not utility.maximise:
        # As in Bounds.of, the gap is relative to the value and never negative.
        expected_gap = max(0.0, (value - bound) / max(abs(value), 1e-12))
        if gap is None or not is_same_sum(gap, expected_gap):
            trial.fail(f"objective.gap is {gap!r}; value and bound give {expected_gap!r}", problem)


@check("lower-bound")
def lower_bound(trial: Trial) -> None:
    """Check that the reported bound does not contradict the objective of a release found by other means.

    That objective comes from the profile's ``best_known``. A lower bound must not be above it. If the objective is
    maximised, an upper bound must not be below it.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    bound = run.stated.objective.lower_bound
    if bound is None or math.isinf(bound):
        trial.be_idle(Elsewhere("its releases state no bound"))
        return
    # The profile finds a release by other means, such as brute force, and returns its loss.
    find_best_known = trial.subject.profile.best_known
    known_value = None if find_best_known is None else find_best_known(run.problem, run.stated)
    if known_value is None:
        # If `best_known` returns None for all drawn problems, the check does not apply to the mechanism.
        known_nowhere = Elsewhere("the profile's `best_known` finds no release for the problems drawn")
        trial.be_idle("the profile has no `best_known`" if find_best_known is None else known_nowhere)
        return
    maximise = trial.subject.mechanism.utility(run.problem, trial.subject.method.name).maximise
    excess = known_value - bound if maximise else bound - known_value
    if excess > SUM_TOLERANCE * max(1.0, abs(known_value)):
        bound_side, direction = ("upper", "below") if maximise else ("lower", "above")
        trial.fail(
            f"the {bound_side} bound {bound!r} lies {direction} {known_value!r}, the loss of a release of the profile",
            problem,
        )


def loss_tolerance(subject: Subject, *values: float) -> float:
    """Return the largest allowed difference between two losses that should be equal, in the same units as the losses.

    This covers the optimality gaps of both solves, the profile's relative tolerance, and rounding errors. The losses
    are given as ``values``.
    """
    # The factor is 2 because each solve can miss the optimum by the method's relative gap.
    return (2 * max(subject.method.gap, 1e-6) + subject.profile.tolerance) * max(map(abs, values)) + SUM_TOLERANCE


def _has_stricter(subject: Subject) -> str | None:
    """Return the reason why the loss cannot be compared with a stricter problem's loss, or None if it can be."""
    if subject.noisy:
        return Elsewhere("the loss depends on the noise drawn")
    return require_field("stricter")(subject)


@check("loss-monotone", needs=_has_stricter)
def loss_monotone(trial: Trial) -> None:
    """Check that the loss does not increase when less privacy is requested.

    The profile's ``stricter`` returns a version of a problem that requests more privacy. Any release for that version
    also satisfies the original problem's guarantee, so the original problem's loss must not be higher.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    make_stricter = trial.subject.profile.stricter
    assert make_stricter is not None  # otherwise the check is skipped (``needs``)
    stricter = make_stricter(problem)
    if stricter is None:
        trial.be_idle("the profile's `stricter` has no stricter problem")
        return
    # The stricter problem's release is not written, because only its loss is needed.
    loose, tight = trial.run(problem), trial.run(stricter, written=False)
    maximise = trial.subject.mechanism.utility(loose.problem, trial.subject.method.name).maximise
    loose_value, tight_value = (run.stated.objective.value for run in (loose, tight))
    excess = tight_value - loose_value if maximise else loose_value - tight_value
    if excess > loss_tolerance(trial.subject, loose_value, tight_value):
        trial.fail(
            f"the loss is {loose_value!r} for this problem and {tight_value!r} where more privacy is asked for; "
            f"expected no higher loss for less privacy. The stricter one:\n{format_changes(problem, stricter)}",
            problem,
        )


def _quiet_loss(trial: Trial, problem: GeneratedProblem, **options: Any) -> float:
    """Solve a problem with all noise set to 0, to make the result deterministic, and return its loss.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        problem: The problem to solve.
        options: Options for :class:`privopt.interfaces.SolveContext`.
    """
    subject, loaded = trial.subject, trial.subject.load(problem)
    with watch_noise(answer_truthfully):
        outcome = subject.outcome(loaded, **options)
    value: Any = subject.mechanism.utility(loaded, subject.method.name).evaluate(outcome.release)
    return float(value)


def _has_own_noise(trial: Trial, *problems: GeneratedProblem) -> bool:
    """Return whether any problem's loss still varies when the noise from :mod:`privopt.numbers.noise` is set to 0.

    Args:
        trial: A single run of the check.
        problems: The problems. Each one is solved several times.
    """
    return any(len({_quiet_loss(trial, problem) for _ in range(CONSTANT_RUNS)}) > 1 for problem in problems)


def _check_agreement(trial: Trial, problem: GeneratedProblem, variant: Variant, **options: Any) -> None:
    """Fail if a variant's objective is not the original problem's objective times the variant's factor.

    Differences within the solvers' and the profile's tolerances are allowed.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        problem: The original problem.
        variant: The equivalent problem, and the factor between the objectives.
        options: Options for solving the variant, such as another solver.
    """
    # A random loss would differ by chance, so solve both problems without noise.
    if trial.subject.noisy:
        value, variant_value = _quiet_loss(trial, problem), _quiet_loss(trial, variant.problem, **options)
    else:
        run, variant_run = trial.run(problem), trial.attempt(variant.problem, **options)
        if variant_run.error is not None:
            trial.fail(f"{variant.change}, and then it was not solved: {variant_run.error}", problem)
        value, variant_value = run.stated.objective.value, variant_run.stated.objective.value
    if abs(variant_value / variant.factor - value) > loss_tolerance(
        trial.subject, value, variant_value / variant.factor
    ):
        if trial.subject.noisy and _has_own_noise(trial, problem, variant.problem):
            trial.be_idle("the loss depends on noise that does not come from privopt.numbers.noise")
            return
        message = f"the objective went from {value!r} to {variant_value!r}; expected {value * variant.factor!r}"
        trial.fail(f"{variant.change}: {message}", problem)


def _check_variant(name: str, summary: str, min_examples: int = 15) -> None:
    """Register a check that compares a problem's objective with the objective of one of its variants.

    A variant is an equivalent problem made by the profile. The objectives must agree after the variant's factor is
    applied.

    Args:
        name: The name of the variant in ``Profile.variants``, which is also the check's name.
        summary: The check's docstring.
        min_examples: The minimum number of problems to draw, even if the check runs out of time.
    """

    def find_reason(subject: Subject) -> str | None:
        """Return the reason why the check cannot run on the method under test, or None if it can."""
        return None if name in subject.profile.variants else f"the profile has no variant {name!r}"

    def check_variant(trial: Trial) -> None:
        # The docstring is set below.
        problem = trial.problem()
        variant = trial.subject.profile.variants[name](problem, trial.chance(problem))
        if variant is None:
            trial.be_idle(f"the profile's variant {name!r} changes none of the problems drawn")
        else:
            _check_agreement(trial, problem, variant)

    check_variant.__doc__ = summary
    check(name, min_examples=min_examples, needs=find_reason)(check_variant)


_check_variant("relabelling", "Check that other ids change nothing.")
_check_variant("reordering", "Check that another order of the input changes nothing.")
_check_variant(
    "units", "Check that another unit of length, with epsilon converted, changes only the unit of the loss.", 5
)


@check("backends-agree")
def backends_agree(trial: Trial) -> None:
    """Check that CBC and HiGHS find the same objective, within the requested gap.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    run = trial.run(problem)
    # CBC is the default solver. If result.json does not name it, the method uses no linear program solver.
    if "cbc" not in str(run.stated.solver.get("name", "")).lower():
        trial.be_idle(Elsewhere("CBC solved none of the problems drawn"))
        return
    _check_agreement(trial, problem, Variant(problem=problem, change="HiGHS solved it, after CBC"), solver="highs")
