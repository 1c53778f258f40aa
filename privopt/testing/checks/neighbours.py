"""Checks of what neighbours may change: sensitivity by search, exact distributions, and the scale of the noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import islice
from typing import Any, Final

import hypothesis
import numpy as np
from numpy.typing import NDArray

from privopt.errors import PrivoptError, UsageError
from privopt.interfaces import Certificate, Shift
from privopt.testing.checks.base import Elsewhere, Trial, check, has
from privopt.testing.noise import AgainError, Answer, Call, alike, farther, truth, watched
from privopt.testing.problems import GeneratedProblem
from privopt.testing.profile import Query
from privopt.testing.under_trial import Subject, error_text

PROBABILITY_TOLERANCE: Final = 1e-9
"""By how much probabilities in doubles may miss: their sum 1, the log of their ratio epsilon as a share of it."""

LOG_RATIO_ERROR: Final = 1e-14
"""What the log of a ratio of doubles may miss by itself."""

MAX_NEIGHBOURS: Final = 60
"""Neighbours of one problem that are searched where each costs a run of the mechanism."""

NEIGHBOURS_IF_CONSTANT: Final = 6
"""Neighbours that are looked at where a problem's release is always the same."""

NO_SCALE: Final = Fraction(1, 2**20)
"""Share of the scale asked for that is next to no noise at all."""


has_neighbours = has("neighbours")
"""Why neighbours cannot be compared, or None."""


def neighbours_of(trial: Trial, problem: GeneratedProblem, limit: int = MAX_NEIGHBOURS) -> list[GeneratedProblem]:
    """Return the neighbours of a problem: all, or a choice of ``limit`` of them."""
    make = trial.subject.profile.neighbours
    assert make is not None  # has_neighbours
    found = list(islice(make(problem), limit * 8))
    return found if len(found) <= limit else trial.chance(problem).sample(found, limit)


def news(problem: GeneratedProblem, neighbour: GeneratedProblem) -> str:
    """Return the lines in which a neighbour differs from its problem."""
    old, new = problem.show().splitlines(), neighbour.show().splitlines()
    changed = [f"  {b}   (was: {a})" for a, b in zip(old, new, strict=False) if a != b]
    return "\n".join(changed[:6]) or f"  {neighbour.show()}"


def queries_of(subject: Subject, problem: object) -> Sequence[Query]:
    """Return the queries to which a method adds noise for a loaded problem: from the profile, else from its calls."""
    if subject.profile.queries is not None:
        return subject.profile.queries(problem, subject.method.name)
    return _calls(subject, problem)


def _calls(subject: Subject, problem: object, answer: Answer = truth) -> Sequence[Call]:
    """Return the calls of the noise in one solve of a loaded problem."""
    with watched(answer) as calls:
        subject.outcome(problem)
    return calls


# --- noise that is added to numbers ------------------------------------------------------------------


def _adds_noise(subject: Subject) -> str | None:
    if subject.profile.probabilities is not None:
        return Elsewhere("it chooses an outcome, whose distribution is known: see the check exact-epsilon")
    return has_neighbours(subject)


@check("sensitivity", version=5, of={"noise"}, needs=_adds_noise, min_examples=10)
def sensitivity(trial: Trial) -> None:
    """Check that between neighbours the noiseless values change by no more than the noise is scaled for."""
    problem = trial.problem()
    subject = trial.subject
    loaded = trial.subject.load(problem)
    claimed = subject.claimed(loaded)
    if subject.notion.allowed(claimed) is None:
        trial.pass_over(f"a guarantee of kind {claimed.kind} allows noise no number to spend")
    near = neighbours_of(trial, problem)
    try:
        before = queries_of(subject, loaded)
        if not before:
            nothing = (
                "no noise was drawn through privopt.numbers.noise, and the profile has neither `queries` nor "
                "`probabilities`"
            )
            if subject.profile.draws is None and subject.profile.observed is None:
                trial.fail(f"{nothing}, nor anything to attack by; yet {subject.kind} is claimed", problem)
            trial.pass_over(f"{nothing}: see the check epsilon-attack")
        moved = _hold(trial, problem, before, near)
        if subject.profile.queries is None:
            _hold_farther(trial, problem, before, near)
    except AgainError as error:
        trial.fail(str(error), problem)
    except PrivoptError:
        hypothesis.reject()
    if near and not moved:
        trial.pass_over("no neighbour changes what noise is added to: see the check epsilon-attack")


def _hold_farther(
    trial: Trial, problem: GeneratedProblem, usual: Sequence[Query], near: Sequence[GeneratedProblem]
) -> None:
    """Hold the calls to the budget where one of them comes out far off, which a mechanism may act on.

    Neighbours are answered what the problem was, so that what each call costs adds up (adaptive composition).
    """
    subject, chance = trial.subject, trial.chance(problem)
    one, other = chance.choice((-1, 1)), chance.choice((-1, 1))
    for signs, scales, more, words in (
        ((-1, -1), 64, 1000, "far lower"),
        ((1, 1), 64, 1000, "far higher"),
        ((one, other), 6, 0, "farther off"),
    ):
        number = chance.randrange(len(usual))
        try:
            first = _calls(subject, trial.subject.load(problem), farther(number, signs, scales=scales, more=more))
        except AgainError:
            raise
        except Exception:  # what comes once in exp(64) times may be beyond a mechanism
            continue
        shapes = [[(q.scale, len(q.values)) for q in calls] for calls in (usual, first)]
        tried = near if shapes[0] != shapes[1] else near[:NEIGHBOURS_IF_CONSTANT]
        told = f"where noise call {number + 1} comes out {words}, noise is drawn {len(first)} times, and "
        _hold(trial, problem, first, tried, alike(first), told)


def _hold(
    trial: Trial,
    problem: GeneratedProblem,
    calls: Sequence[Query],
    near: Sequence[GeneratedProblem],
    answer: Answer | None = None,
    remark: str = "",
) -> bool:
    """Fail where a neighbour, whose calls are answered so, costs more than the budget; return whether any costs."""
    subject = trial.subject
    budget = subject.notion.allowed(subject.claimed(trial.subject.load(problem)))
    assert budget is not None  # asked before
    moved = False
    for neighbour in near:
        loaded = trial.subject.load(neighbour)
        after = queries_of(subject, loaded) if answer is None else _calls(subject, loaded, answer)
        counts, others = ([len(q.values) for q in each] for each in (calls, after))
        if counts != others:
            trial.fail(
                f"{remark}noise is added to {counts} values, for a neighbour to {others}: the number of values is no "
                f"secret kept. The neighbour:\n{news(problem, neighbour)}",
                problem,
            )
        spent, lines = _spent(subject, calls, after)
        moved = moved or bool(lines)
        if spent > budget or any(beyond for _, beyond in lines):
            parts = "\n".join(f"  {line}" for line, _ in lines)
            trial.fail(
                f"{remark}one neighbour costs {float(spent):.6g}, that is {float(spent / budget):.4g} times the "
                f"{'epsilon' if subject.notion.odds else 'budget'} of {float(budget):g} claimed:\n{parts}\n"
                f"the neighbour:\n{news(problem, neighbour)}",
                problem,
            )
    return moved


def _spent(
    subject: Subject, calls: Sequence[Query], others: Sequence[Query]
) -> tuple[Fraction, list[tuple[str, bool]]]:
    """Privacy loss between two inputs, exact, and what each call adds to it."""
    total, lines = Fraction(0), []
    for one, two in zip(calls, others, strict=True):
        changes = [abs(_exact(a) - _exact(b)) for a, b in zip(one.values, two.values, strict=True)]
        square = sum((change * change for change in changes), Fraction(0))
        shift = Shift(law=one.law, scale=one.scale, change=sum(changes, Fraction(0)), square=square)
        if shift.change:
            spent = subject.notion.spent(shift)
            gaussian = one.law == "gaussian"
            moved = shift.square if gaussian else shift.change
            claimed = "" if one.sensitivity is None else f" (claimed: {one.sensitivity})"
            words = ("squares of changes add up to", "variance") if gaussian else ("changes by", "scale")
            line = (
                f"{one.name}: {words[0]} {float(moved):g} in total{claimed}, noise of {words[1]} {float(one.scale):g}"
            )
            if spent is None:
                line += f": {one.law} noise does not keep {subject.kind}"
            total += spent or 0
            lines.append((line, spent is None or (one.sensitivity is not None and moved > one.sensitivity)))
        if (one.law, one.scale) != (two.law, two.scale):
            lines.append((f"{one.name}: the scale itself changes, {one.scale} to {two.scale}", True))
    return total, lines


def _exact(value: Any) -> Fraction:
    return Fraction(value.item() if isinstance(value, np.generic) else value)


def _used(trial: Trial, problem: GeneratedProblem, stated: Certificate) -> Fraction:
    """Share of what is allowed that a run used: as certified, or as neighbours show where that is less than half."""
    share = 1.0 if stated.worst is None or not stated.allowed else min(1.0, stated.worst / stated.allowed)
    if share > 0.5:
        return Fraction(1)
    subject, loaded, found = trial.subject, trial.subject.load(problem), Fraction(share)
    budget = subject.notion.allowed(subject.claimed(loaded))
    if budget and subject.profile.neighbours is not None:
        before = queries_of(subject, loaded)
        for neighbour in neighbours_of(trial, problem, NEIGHBOURS_IF_CONSTANT):
            found = max(found, _spent(subject, before, queries_of(subject, trial.subject.load(neighbour)))[0] / budget)
    return min(Fraction(1), found) or Fraction(1)  # what costs nothing at all is believed nowhere


@check("own-scale", version=2, of={"noise"}, private=True, share=0.3, min_examples=3)
def own_scale(trial: Trial) -> None:
    """Check that a certificate fails if the noise was drawn at half the scale that is needed, or almost none."""
    problem = trial.problem()
    part = _used(trial, problem, trial.run(problem).stated.certificate) / 2
    much = "half the scale asked for" if part == Fraction(1, 2) else f"{float(part):.3g} of the scale asked for"
    for factor, words in ((part, much), (min(part, NO_SCALE), "next to no scale at all")):
        with watched(factor=factor) as calls:
            run = trial.attempt(problem, fresh=("scale", factor))
        if not calls:
            trial.pass_over(
                "no noise was drawn through privopt.numbers.noise, so that none can be drawn at another scale"
            )
        if run.error is None:
            trial.fail(
                f"the noise was drawn at {words}, as its record says ({float(calls[0].scale):g}), and the certificate "
                "holds all the same: measure() looks at the scale that was meant, not at the one that was drawn; "
                "expected the release to carry NoiseRecord.scale, and measure() to take it from there",
                problem,
            )
        if not isinstance(run.error, PrivoptError):
            trial.fail(f"the noise was drawn at {words}, and solve raised {error_text(run.error)}", problem)


# --- an outcome that is chosen -----------------------------------------------------------------------


def _has_distribution(subject: Subject) -> str | None:
    if subject.profile.probabilities is None:
        return Elsewhere("the profile has no `probabilities`")
    return has_neighbours(subject)


@check("exact-epsilon", version=2, of={"odds"}, needs=_has_distribution, share=4.0, min_examples=40)
def exact_epsilon(trial: Trial) -> None:
    """Check with the profile's distribution that no neighbour changes a probability by more than exp(epsilon)."""
    problem = trial.problem()
    loaded = trial.subject.load(problem)
    epsilon = float(trial.subject.epsilon(loaded))
    before = stated_distribution(trial.subject, loaded)
    make = trial.subject.profile.neighbours
    assert make is not None  # needs
    for neighbour in make(problem):
        after = stated_distribution(trial.subject, trial.subject.load(neighbour))
        if len(before) != len(after):
            trial.fail(
                f"one of {len(before)} outcomes is chosen, for a neighbour one of {len(after)}. The neighbour:\n"
                f"{news(problem, neighbour)}",
                problem,
            )
        found = excess(before, after, epsilon)
        if found is not None:
            trial.fail(
                f"outcome {found[0]} is chosen with probability {before[found[0]]:.6g}, for a neighbour with "
                f"{after[found[0]]:.6g}: {found[1]}. The neighbour:\n{news(problem, neighbour)}",
                problem,
            )


def stated_distribution(subject: Subject, loaded: object) -> NDArray[np.float64]:
    """Return the probabilities of what a mechanism chooses, as its profile states them."""
    assert subject.profile.probabilities is not None  # only asked where it has them
    found = np.asarray(subject.profile.probabilities(loaded, subject.method.name), dtype=np.float64)
    if found.ndim != 1 or (found < 0).any() or abs(found.sum() - 1) > PROBABILITY_TOLERANCE:
        raise UsageError(f"the profile's `probabilities` must be one number for each outcome, with sum 1, got {found}")
    return found


def excess(
    one: NDArray[np.float64], two: NDArray[np.float64], allowed: float, delta: float = 0.0
) -> tuple[int, str] | None:
    """Return the output at which two rows differ most, and by how much, where that is more than is allowed."""
    if delta:
        factor = math.exp(min(allowed, 700.0))
        missed = max(float(np.maximum(p - factor * q, 0.0).sum()) for p, q in ((one, two), (two, one)))
        return (0, f"delta is {missed:.6g}") if missed > delta * (1 + PROBABILITY_TOLERANCE) + LOG_RATIO_ERROR else None
    ratios = [_log_ratio(p, q) for p, q in zip(one.tolist(), two.tolist(), strict=True)]
    worst = max(range(len(ratios)), key=ratios.__getitem__)
    if ratios[worst] <= allowed * (1 + PROBABILITY_TOLERANCE) + LOG_RATIO_ERROR:
        return None
    times = f", {ratios[worst] / allowed:.4g} times what is allowed" if allowed else ""
    return worst, f"their log ratio is {ratios[worst]:.6g}{times}"


def _log_ratio(p: float, q: float) -> float:
    return 0.0 if p == q else math.inf if not (p and q) else abs(math.log(p) - math.log(q))
