"""Checks of the loss: as reported, its bound, and how it moves with the privacy asked for."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any, Final

import numpy as np

from privopt.testing.checks.base import Elsewhere, Trial, check, has
from privopt.testing.under_trial import Run, Subject

SUM_TOLERANCE: Final = 1e-9
"""Relative difference that two computations of the same sum may have."""


def _near(one: float, two: float, tolerance: float = SUM_TOLERANCE) -> bool:
    return abs(one - two) <= tolerance * max(1.0, abs(one), abs(two))


@check("objective-reported", min_examples=12)
def objective_reported(trial: Trial) -> None:
    """Check that the objective reported is the loss of the release."""
    problem = trial.problem()
    run = trial.run(problem)
    stated = run.stated.objective
    value = stated.value
    utility = trial.subject.mechanism.utility(run.problem, trial.subject.method.name)
    found, how = _expected_loss(run, utility.unit), "prior, cost and weights give"
    if found is None:
        found, how = utility.evaluate(run.release), "the mechanism's utility gives"
    if found is not None and not _near(value, found):
        trial.fail(f"objective.value is {value!r}; for the release {how} {found!r}", problem)
    if not stated.unit or stated.unit != utility.unit:
        trial.fail(f"objective.unit is {stated.unit!r}; the mechanism's utility is in {utility.unit!r}", problem)
    bound, gap = stated.lower_bound, stated.gap
    if bound is None and gap is not None:
        trial.fail(f"objective.gap is {gap!r} without a bound", problem)
    if bound is not None and not utility.maximise:
        wanted = max(0.0, (value - bound) / max(abs(value), 1e-12))
        if gap is None or not _near(gap, wanted):
            trial.fail(f"objective.gap is {gap!r}; value and bound give {wanted!r}", problem)


def _expected_loss(run: Run, unit: str) -> float | None:
    """Return an obfuscation matrix's expected loss over all its problem's records, in exact rationals; None for others.

    A mechanism whose loss is in another unit than the problem's is judged by a loss of its own.
    """
    data, weights = getattr(run.problem, "data", None), getattr(run.release, "weights", None)
    cost = getattr(data, "cost", None)
    if data is None or weights is None or cost is None or np.shape(weights) != np.shape(cost) or data.loss_unit != unit:
        return None
    total = Fraction(0)
    for i, row in enumerate(np.asarray(weights).tolist()):
        share = Fraction(float(data.prior[i]))
        total += share * sum((int(w) * Fraction(float(c)) for w, c in zip(row, cost[i], strict=True)), Fraction(0))
    return float(total / 2**63)


@check("lower-bound")
def lower_bound(trial: Trial) -> None:
    """Check that the lower bound is at most the loss of a private release found by other means."""
    problem = trial.problem()
    run = trial.run(problem)
    bound = run.stated.objective.lower_bound
    if bound is None or math.isinf(bound):
        return
    known, how = _best_known(trial.subject, run)
    if known is None:
        return
    maximise = trial.subject.mechanism.utility(run.problem, trial.subject.method.name).maximise
    wrong = known - bound if maximise else bound - known
    if wrong > SUM_TOLERANCE * max(1.0, abs(known)):
        side, way = ("upper", "below") if maximise else ("lower", "above")
        trial.fail(f"the {side} bound {bound!r} lies {way} {known!r}, the loss of {how}", problem)


def _best_known(subject: Subject, run: Run) -> tuple[float | None, str]:
    make = subject.profile.best_known
    return (None if make is None else make(run.problem, run.stated)), "a release that the profile found"


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
            f"the loss is {easy!r} for this problem and {hard!r} where more privacy is asked for "
            f"({_difference(problem, stricter)}); expected no higher loss for less privacy",
            problem,
        )


def _difference(one: Any, two: Any) -> str:
    old, new = one.toml.splitlines(), two.toml.splitlines()
    changed = [line for line in new if line not in old]
    return "; ".join(changed) or "another file"
