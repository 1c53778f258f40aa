"""Checks of privacy from outside: sensitivity by search over neighbours, and epsilon by an attack on samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import islice
from typing import Any, Final

import hypothesis
import numpy as np
from numpy.typing import NDArray

from privopt.errors import PrivoptError, UsageError
from privopt.interfaces import SolveContext
from privopt.metric.attack import epsilon_lower
from privopt.testing.checks.base import Trial, check
from privopt.testing.checks.matrix import CONFIDENCE, plausible, required
from privopt.testing.noise import recorded, same_measurements
from privopt.testing.problems import GeneratedProblem
from privopt.testing.profile import Query
from privopt.testing.under_trial import Subject

__all__ = ["queries_of"]

ROOM: Final = 1e-9
"""By how much probabilities in doubles may miss: their sum 1, the log of their ratio epsilon."""

NEIGHBOURS: Final = 60
"""Neighbours of one problem that are searched."""


def _has_neighbours(subject: Subject) -> str | None:
    return None if subject.profile.neighbours is not None else "the profile has no `neighbours`"


def _neighbours(trial: Trial, problem: GeneratedProblem) -> list[GeneratedProblem]:
    make = trial.subject.profile.neighbours
    assert make is not None  # needs
    found = list(islice(make(problem), NEIGHBOURS * 8))
    return found if len(found) <= NEIGHBOURS else trial.chance(problem).sample(found, NEIGHBOURS)


def queries_of(subject: Subject, problem: object) -> Sequence[Query]:
    """What a method adds noise to for a loaded problem: as the profile tells it, else as its noise was called."""
    if subject.profile.queries is not None:
        return subject.profile.queries(problem, subject.method.name)
    with recorded() as calls:
        subject.mechanism.solve(problem, SolveContext(method=subject.method.name, gap=subject.method.gap))
    return calls


@check("sensitivity", version=2, families={"noise"}, needs=_has_neighbours, least=10)
def sensitivity(trial: Trial) -> None:
    """Between neighbours, what noise is added to changes by no more than the noise is scaled for.

    Of a mechanism that chooses instead of adding noise, the probabilities of what it chooses are compared.
    """
    problem = trial.problem()
    subject = trial.subject
    if subject.profile.probabilities is not None:
        _compare_choices(trial, problem)
        return
    loaded = trial.load(problem)
    epsilon = Fraction(subject.epsilon(loaded))
    try:
        before = queries_of(subject, loaded)
    except PrivoptError:
        hypothesis.reject()
    if not before:
        trial.fail(
            "no noise was drawn through privopt.noise, and the profile has neither `queries`, what noise is added to, "
            f"nor `probabilities`, of what is chosen; yet {subject.kind} is claimed",
            problem,
        )
    worst: tuple[Fraction, str] | None = None
    for neighbour in _neighbours(trial, problem):
        after = queries_of(subject, trial.load(neighbour))
        if [len(q.values) for q in before] != [len(q.values) for q in after]:
            trial.fail(
                f"noise is added to {[len(q.values) for q in before]} values, for a neighbour to "
                f"{[len(q.values) for q in after]}: the number of values is no secret kept. The neighbour:\n"
                f"{_news(problem, neighbour)}",
                problem,
            )
        spent, lines = _spent(before, after)
        over = [line for line, beyond in lines if beyond]
        if (spent > epsilon or over) and (worst is None or spent > worst[0]):
            parts = "\n".join(f"  {line}" for line, _ in lines)
            worst = (
                spent,
                (
                    f"one neighbour costs {float(spent):.6g}, that is {float(spent / epsilon):.4g} times the epsilon "
                    f"of {float(epsilon):g} claimed:\n{parts}\nthe neighbour:\n{_news(problem, neighbour)}"
                ),
            )
    if worst is not None:
        trial.fail(worst[1], problem)


def _compare_choices(trial: Trial, problem: GeneratedProblem) -> None:
    """Hold the probabilities of what is chosen against those of every neighbour."""
    loaded = trial.load(problem)
    epsilon = float(trial.subject.epsilon(loaded))
    before = _choice(trial.subject, loaded)
    for neighbour in _neighbours(trial, problem):
        after = _choice(trial.subject, trial.load(neighbour))
        if len(before) != len(after):
            trial.fail(
                f"one of {len(before)} outcomes is chosen, for a neighbour one of {len(after)}. The neighbour:\n"
                f"{_news(problem, neighbour)}",
                problem,
            )
        for place, (one, two) in enumerate(zip(before.tolist(), after.tolist(), strict=True)):
            ratio = abs(math.log(one / two)) if one and two else math.inf if one or two else 0.0
            if ratio > epsilon + ROOM * max(1.0, epsilon):
                trial.fail(
                    f"outcome {place} is chosen with probability {one:.6g}, for a neighbour with {two:.6g}: log ratio "
                    f"{ratio:.6g}, epsilon allows {epsilon:g}. The neighbour:\n{_news(problem, neighbour)}",
                    problem,
                )


def _choice(subject: Subject, loaded: Any) -> NDArray[np.float64]:
    """Probabilities of what a mechanism chooses, as its profile states them."""
    assert subject.profile.probabilities is not None  # only asked where it has them
    found = np.asarray(subject.profile.probabilities(loaded, subject.method.name), dtype=np.float64)
    if found.ndim != 1 or (found < 0).any() or abs(found.sum() - 1) > ROOM:
        raise UsageError(f"the profile's `probabilities` are {found}; wanted one number an outcome, sum 1")
    return found


def _spent(before: Sequence[Query], after: Sequence[Query]) -> tuple[Fraction, list[tuple[str, bool]]]:
    """Privacy loss between two inputs, exact, and what each call adds to it."""
    total, lines = Fraction(0), []
    for one, two in zip(before, after, strict=True):
        change = sum((abs(_exact(a) - _exact(b)) for a, b in zip(one.values, two.values, strict=True)), Fraction(0))
        if change:
            total += change / one.scale
            claimed = "" if one.sensitivity is None else f" (claimed: {one.sensitivity})"
            line = f"{one.name}: changes by {float(change):g} in total{claimed}, noise of scale {float(one.scale):g}"
            lines.append((line, one.sensitivity is not None and change > one.sensitivity))
        if one.scale != two.scale:
            lines.append((f"{one.name}: the scale itself changes, {one.scale} to {two.scale}", True))
    return total, lines


def _exact(value: Any) -> Fraction:
    return Fraction(value.item() if isinstance(value, np.generic) else value)


def _news(problem: GeneratedProblem, neighbour: GeneratedProblem) -> str:
    """Lines in which a neighbour differs."""
    old, new = problem.show().splitlines(), neighbour.show().splitlines()
    changed = [f"  {b}   (was: {a})" for a, b in zip(old, new, strict=False) if a != b]
    return "\n".join(changed[:6]) or f"  {neighbour.show()}"


# --- the statistical attack --------------------------------------------------------------------------


def _can_attack(subject: Subject) -> str | None:
    if "odds" in subject.families:
        return None
    if subject.profile.neighbours is None:
        return "the profile has no `neighbours`"
    if subject.profile.draws is None and subject.profile.observed is None:
        return "the profile has neither `draws` nor `observed`"
    return None


@check("epsilon-attack", families={"odds", "noise"}, needs=_can_attack, share=0.3, least=2)
def epsilon_attack(trial: Trial) -> None:
    """Samples of two inputs tell them apart no better than epsilon allows (Clopper-Pearson)."""
    problem = trial.problem()
    if "odds" in trial.subject.families:
        _attack_matrix(trial, problem)
    else:
        _attack_noise(trial, problem)


def _attack_matrix(trial: Trial, problem: GeneratedProblem) -> None:
    run = trial.run(problem)
    pairs, distances = required(run)
    if not len(pairs):
        return
    epsilon = Fraction(trial.subject.epsilon(run.problem))
    near = np.abs(np.log(np.maximum(distances * float(epsilon), 1e-12)))  # an attack tells most where epsilon d is 1
    pick = int(np.argmin(near))
    names = [str(run.release.records[n]) for n in pairs[pick]]
    place = {str(output): k for k, output in enumerate(run.release.outputs)}
    draws = [np.array([place.get(o, -1) for o in run.release.sample(name, trial.effort.draws)]) for name in names]
    found = epsilon_lower(draws[0], draws[1], CONFIDENCE)
    allowed = float(epsilon) * float(distances[pick])
    if found > allowed * (1 + 1e-12):
        trial.fail(
            f"from {trial.effort.draws} samples each, records {names[0]} and {names[1]} at distance "
            f"{distances[pick]:g} differ by a log ratio of at least {found:.4g}; epsilon allows {allowed:.4g}",
            problem,
        )


def _attack_noise(trial: Trial, problem: GeneratedProblem) -> None:
    slow = trial.subject.profile.draws is None and trial.effort.name != "nightly"
    if slow and not trial.once_only("thousands of solves"):
        return
    neighbours = _neighbours(trial, problem)
    if not neighbours:
        return
    pair = [problem, trial.chance(problem).choice(neighbours)]
    if problem.get("privacy.epsilon") is not None:
        pair = [each.with_key("privacy.epsilon", 1) for each in pair]  # where an attack needs the fewest draws
    loaded = [trial.load(each) for each in pair]
    epsilon = float(trial.subject.epsilon(loaded[0]))
    with same_measurements():
        one, two = (_draws(trial, each) for each in loaded)
    if trial.subject.profile.probabilities is not None:
        _drawn_as_stated(trial, pair[0], _choice(trial.subject, loaded[0]), one)
    found = _best_attack(one, two)
    if found > epsilon * (1 + 1e-12):
        trial.fail(
            f"from {len(one)} releases each, this problem and a neighbour of it differ by a log ratio of at least "
            f"{found:.4g}; epsilon allows {epsilon:.4g}. The neighbour:\n{_news(*pair)}",
            pair[0],
        )


def _drawn_as_stated(trial: Trial, problem: GeneratedProblem, stated: NDArray[np.float64], draws: NDArray[Any]) -> None:
    """Hold what was chosen, its number in the first column, against the profile's probabilities."""
    for place, probability in enumerate(stated.tolist()):
        hits = int((draws[:, 0] == place).sum())
        if not plausible(hits, len(draws), min(1.0, probability)):
            trial.fail(
                f"outcome {place} was chosen {hits} times in {len(draws)}; the profile's `probabilities` say "
                f"{probability * len(draws):.6g} times",
                problem,
            )


def _draws(trial: Trial, loaded: Any) -> NDArray[Any]:
    subject = trial.subject
    if subject.profile.draws is not None:
        return _columns(subject.profile.draws(loaded, subject.method.name, trial.effort.draws))
    assert subject.profile.observed is not None  # needs
    mechanism, seen = subject.mechanism, []
    for _ in range(trial.effort.draws // 2):
        outcome = mechanism.solve(loaded, SolveContext(method=subject.method.name, gap=subject.method.gap))
        seen.append(np.asarray(subject.profile.observed(outcome.release)).ravel())
    return _columns(seen)


def _columns(draws: Any) -> NDArray[Any]:
    array = np.asarray(draws)
    return array.reshape(len(array), -1)


def _best_attack(one: NDArray[Any], two: NDArray[Any]) -> float:
    """Greatest bound over the published numbers and their sum along the direction in which the means differ.

    The direction is learnt on a tenth of the draws, which take no further part.
    """
    cut = max(10, len(one) // 10)
    direction = one[:cut].mean(axis=0) - two[:cut].mean(axis=0)
    order = np.argsort(-np.abs(direction))[:5]
    views: Iterable[NDArray[Any]] = [np.eye(one.shape[1])[k] for k in order]
    views = [*views, np.sign(np.where(np.abs(direction) >= 0.3 * np.abs(direction).max(), direction, 0.0))]
    confidence = 1 - (1 - CONFIDENCE) / len(views)
    return max(epsilon_lower(one[cut:] @ view, two[cut:] @ view, confidence) for view in views)
