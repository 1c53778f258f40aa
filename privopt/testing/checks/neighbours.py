"""Checks that compare neighbours: the sensitivity, the noise scale, and exact outcome distributions.

A noise call is a call to :mod:`privopt.numbers.noise` that adds noise to an array of values. Its privacy loss follows
from the noise scale and the difference between the noiseless values for a problem and for its neighbour. The loss is
computed in exact arithmetic. The losses of all calls in a run add up, even if a call depends on earlier ones (adaptive
composition).
"""

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
from privopt.testing.checks.base import Elsewhere, Trial, check, require_field
from privopt.testing.noise import (
    Answer,
    Call,
    TooManyCallsError,
    answer_truthfully,
    replay_answers,
    shift_one_call,
    watch_noise,
)
from privopt.testing.problems import GeneratedProblem
from privopt.testing.profile import Query
from privopt.testing.under_trial import Subject, error_text

PROBABILITY_TOLERANCE: Final = 1e-9
"""The rounding error allowed for doubles: absolute in sums of probabilities, and relative in log ratios and
fractions."""

LOG_RATIO_ERROR: Final = 1e-14
"""The absolute rounding error in the logarithm of a ratio between doubles."""

MAX_NEIGHBOURS: Final = 60
"""The maximum number of neighbours to try for a problem. Each one requires a run of the mechanism."""

NEIGHBOURS_IF_CONSTANT: Final = 6
"""The number of neighbours to try if they are unlikely to reveal a fault."""

NO_SCALE: Final = Fraction(1, 2**20)
"""The factor by which the noise scale is multiplied in a run that should have almost no noise."""


has_neighbours = require_field("neighbours")
"""A :attr:`Check.needs` function that returns the reason why neighbours cannot be compared, or None if they can be."""


def neighbours_of(trial: Trial, problem: GeneratedProblem, limit: int = MAX_NEIGHBOURS) -> list[GeneratedProblem]:
    """Return a problem's neighbours under its guarantee, or a random sample of them if there are more than ``limit``.

    Args:
        trial: A single run of the check. The profile of its subject lists the neighbours.
        problem: The problem.
        limit: The largest number of neighbours to return.
    """
    list_neighbours = trial.subject.profile.neighbours
    assert list_neighbours is not None  # has_neighbours
    # Some neighbouring relations have infinitely many neighbours, so truncate the list before sampling.
    neighbours = list(islice(list_neighbours(problem), limit * 8))
    return neighbours if len(neighbours) <= limit else trial.chance(problem).sample(neighbours, limit)


def format_changes(problem: GeneratedProblem, neighbour: GeneratedProblem) -> str:
    """Return the first six lines in which a neighbour differs from its problem, for use in messages.

    If no corresponding lines differ, for instance because lines were only added at the end, the whole neighbour is
    returned.
    """
    old_lines, new_lines = problem.show().splitlines(), neighbour.show().splitlines()
    changed_lines = [f"  {b}   (was: {a})" for a, b in zip(old_lines, new_lines, strict=False) if a != b]
    return "\n".join(changed_lines[:6]) or f"  {neighbour.show()}"


def queries_of(subject: Subject, problem: object) -> Sequence[Query]:
    """Return the queries to which a method adds noise for a loaded problem, with their true values and noise scales.

    If the profile does not list the queries, they are obtained by solving the problem and recording its noise calls.
    """
    if subject.profile.queries is not None:
        return subject.profile.queries(problem, subject.method.name)
    return _record_calls(subject, problem)


def _record_calls(subject: Subject, problem: object, answer: Answer = answer_truthfully) -> Sequence[Call]:
    """Solve a loaded problem once, and return the noise calls with their true values and noise scales.

    Args:
        subject: The method under test.
        problem: The loaded problem.
        answer: A function that returns each call's noisy values. The default returns the true values.
    """
    with watch_noise(answer) as calls:
        subject.outcome(problem)
    return calls


# --- noise that is added to numbers ------------------------------------------------------------------


def _adds_noise(subject: Subject) -> str | None:
    """Return the reason why the method's sensitivity cannot be checked, or None if it can be."""
    if subject.profile.probabilities is not None:
        return Elsewhere("it chooses an outcome, whose distribution is known: see the check exact-epsilon")
    return has_neighbours(subject)


@check("sensitivity", version=5, of={"noise"}, needs=_adds_noise, min_examples=10)
def sensitivity(trial: Trial) -> None:
    """Check that the noise is large enough for the difference between the true values of neighbouring inputs.

    For each neighbour, the exact privacy losses of all noise calls are added up and compared with the claimed budget.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    subject = trial.subject
    loaded = trial.subject.load(problem)
    claim = subject.claim_of(loaded)
    if subject.notion.budget_of(claim) is None:
        trial.pass_over(f"a guarantee of kind {claim.kind} allows noise no number to spend")
    neighbours = neighbours_of(trial, problem)
    try:
        queries = queries_of(subject, loaded)
        if not queries:
            message = (
                "no noise was drawn through privopt.numbers.noise, and the profile has neither `queries` nor "
                "`probabilities`"
            )
            if subject.profile.draws is None and subject.profile.observed is None:
                trial.fail(f"{message}, nor anything to attack by; yet {subject.kind} is claimed", problem)
            trial.pass_over(f"{message}: see the check epsilon-attack")
        has_changed = _check_budget(trial, problem, queries, neighbours)
        # A profile computes queries without drawing noise, so shifted noise would not change them.
        if subject.profile.queries is None:
            _check_shifted_budget(trial, problem, queries, neighbours)
    except TooManyCallsError as error:
        trial.fail(str(error), problem)
    except PrivoptError:  # the solves check reports a rejected problem
        hypothesis.reject()
    if not neighbours:
        trial.be_idle()
    elif not has_changed:
        trial.pass_over("no neighbour changes what noise is added to: see the check epsilon-attack")


def _check_shifted_budget(
    trial: Trial, problem: GeneratedProblem, usual: Sequence[Query], neighbours: Sequence[GeneratedProblem]
) -> None:
    """Fail if the privacy loss exceeds the budget when a noise call returns values far from the true ones.

    A mechanism could, for instance, draw again if a value looks implausible, which would spend more budget. Neighbours
    get the same noisy values as the problem, so the losses of the calls add up (adaptive composition).

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        problem: The problem.
        usual: The problem's noise calls when true values are returned.
        neighbours: The problem's neighbours.
    """
    subject, chance = trial.subject, trial.chance(problem)
    even_sign, odd_sign = chance.choice((-1, 1)), chance.choice((-1, 1))
    # For each shift: the signs for values with even and odd indices, the size in noise scales, an amount added to that
    # size, and a description for the message.
    for signs, scales, extra, description in (
        ((-1, -1), 64, 1000, "far lower"),
        ((1, 1), 64, 1000, "far higher"),
        ((even_sign, odd_sign), 6, 0, "farther off"),
    ):
        number = chance.randrange(len(usual))
        try:
            shifted_calls = _record_calls(
                subject, trial.subject.load(problem), shift_one_call(number, signs, scales=scales, more=extra)
            )
        except TooManyCallsError:
            raise
        except Exception:  # a mechanism may fail with such rare noise (64 scales: once in exp(64) times)
            continue
        shapes = [[(q.scale, len(q.values)) for q in calls] for calls in (usual, shifted_calls)]
        # If the calls have the usual number and scales, the mechanism probably did not react to the shift, so a few
        # neighbours are enough.
        tested = neighbours if shapes[0] != shapes[1] else neighbours[:NEIGHBOURS_IF_CONSTANT]
        remark = (
            f"where noise call {number + 1} comes out {description}, noise is drawn {len(shifted_calls)} times, and "
        )
        _check_budget(trial, problem, shifted_calls, tested, replay_answers(shifted_calls), remark)


def _check_budget(
    trial: Trial,
    problem: GeneratedProblem,
    calls: Sequence[Query],
    neighbours: Sequence[GeneratedProblem],
    answer: Answer | None = None,
    remark: str = "",
) -> bool:
    """Fail if the privacy loss between a problem and any of its neighbours exceeds the budget.

    Returns whether any neighbour's noise calls differ from the problem's.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        problem: The problem.
        calls: The noise calls for the problem, with their true values.
        neighbours: The problem's neighbours.
        answer: A function that returns the noisy values for the neighbours' calls. If None, the neighbours' ordinary
            queries are used (:func:`queries_of`).
        remark: A prefix for the failure message, such as a note on how the noise was shifted. May be empty.
    """
    subject = trial.subject
    budget = subject.notion.budget_of(subject.claim_of(trial.subject.load(problem)))
    assert budget is not None  # sensitivity() has passed over notions without a budget
    has_changed = False
    for neighbour in neighbours:
        loaded = trial.subject.load(neighbour)
        other_calls = queries_of(subject, loaded) if answer is None else _record_calls(subject, loaded, answer)
        # Calls are compared one by one, so a neighbour must have the same number of calls, each with the same number of
        # values.
        counts, other_counts = ([len(q.values) for q in query_list] for query_list in (calls, other_calls))
        if counts != other_counts:
            trial.fail(
                f"{remark}noise is added to {counts} values, but to {other_counts} for a neighbour: the number of "
                f"values is not kept secret. The neighbour:\n{format_changes(problem, neighbour)}",
                problem,
            )
        spent, lines = _privacy_loss(subject, calls, other_calls)
        has_changed = has_changed or bool(lines)
        if spent > budget or any(is_excess for _, is_excess in lines):
            parts = "\n".join(f"  {line}" for line, _ in lines)
            trial.fail(
                f"{remark}one neighbour costs {float(spent):.6g}, that is {float(spent / budget):.4g} times the "
                f"{'epsilon' if subject.notion.odds else 'budget'} of {float(budget):g} claimed:\n{parts}\n"
                f"the neighbour:\n{format_changes(problem, neighbour)}",
                problem,
            )
    return has_changed


def _privacy_loss(
    subject: Subject, calls: Sequence[Query], others: Sequence[Query]
) -> tuple[Fraction, list[tuple[str, bool]]]:
    """Return the exact privacy loss between two inputs, and a line for each call that distinguishes them.

    Args:
        subject: The method under test, whose notion determines the cost of a call.
        calls: The noise calls for the first input.
        others: The noise calls for the second input. There must be as many as in ``calls``.

    Returns:
        The sum of the losses in the units of the notion's budget (epsilon or rho), and a list of pairs. Each pair
        consists of a line for messages and a flag, which is True if the line describes a fault regardless of the sum.
    """
    # By basic composition, the losses of the calls add up, in the unit of the notion's budget.
    total, lines = Fraction(0), []
    for query, other in zip(calls, others, strict=True):
        changes = [abs(_to_fraction(a) - _to_fraction(b)) for a, b in zip(query.values, other.values, strict=True)]
        square = sum((change * change for change in changes), Fraction(0))
        shift = Shift(law=query.law, scale=query.scale, change=sum(changes, Fraction(0)), square=square)
        if shift.change:
            spent = subject.notion.cost_of_call(shift)
            is_gaussian = query.law == "gaussian"
            cost = shift.square if is_gaussian else shift.change
            claim_text = "" if query.sensitivity is None else f" (claimed: {query.sensitivity})"
            words = ("squares of changes add up to", "variance") if is_gaussian else ("changes by", "scale")
            line = f"{query.name}: {words[0]} {float(cost):g} in total{claim_text}, "
            line += f"noise of {words[1]} {float(query.scale):g}"
            if spent is None:
                line += f": {query.law} noise does not satisfy {subject.kind}"
            total += spent or 0
            lines.append((line, spent is None or (query.sensitivity is not None and cost > query.sensitivity)))
        # If the scale depends on the secret, it reveals something about it, whatever the values are.
        if (query.law, query.scale) != (other.law, other.scale):
            lines.append((f"{query.name}: the scale itself changes, {query.scale} to {other.scale}", True))
    return total, lines


def _to_fraction(value: Any) -> Fraction:
    """Convert a Python number or NumPy scalar to an exact rational."""
    return Fraction(value.item() if isinstance(value, np.generic) else value)


def _used_share(trial: Trial, problem: GeneratedProblem, certificate: Certificate) -> Fraction:
    """Return the fraction of the privacy budget that a run used, in (0, 1].

    The own-scale check needs this fraction, because a mechanism that spends less than its budget can still be private
    at half the noise scale.

    If the certificate says that more than half was used, the result is 1. Otherwise, it is the larger of the fraction
    in the certificate and the largest privacy loss found for a few neighbours, as a fraction of the budget.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        problem: The problem that the run solved.
        certificate: The run's certificate, which contains the budget used (``worst``) and the budget ``allowed``.
    """
    certified_share = (
        1.0
        if certificate.worst is None or not certificate.allowed
        else min(1.0, certificate.worst / certificate.allowed)
    )
    # The certificate rounds up, so it may turn one half into slightly more.
    if certified_share > 0.5 * (1 + PROBABILITY_TOLERANCE):
        return Fraction(1)
    subject, loaded, used_share = trial.subject, trial.subject.load(problem), Fraction(certified_share)
    budget = subject.notion.budget_of(subject.claim_of(loaded))
    if budget and subject.profile.neighbours is not None:
        queries = queries_of(subject, loaded)
        for neighbour in neighbours_of(trial, problem, NEIGHBOURS_IF_CONSTANT):
            used_share = max(
                used_share,
                _privacy_loss(subject, queries, queries_of(subject, trial.subject.load(neighbour)))[0] / budget,
            )
    return min(Fraction(1), used_share) or Fraction(1)  # 0 would leave no scale to halve, so it counts as 1


@check("own-scale", version=2, of={"noise"}, private=True, share=0.3, min_examples=3)
def own_scale(trial: Trial) -> None:
    """Check that the certificate fails if noise is drawn at half the necessary scale, or at a scale near 0.

    If the certificate still holds, it was computed from the intended scale rather than the actual one.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    drawn_share = _used_share(trial, problem, trial.run(problem).stated.certificate) / 2
    share_text = (
        "half the requested scale"
        if drawn_share == Fraction(1, 2)
        else f"{float(drawn_share):.3g} of the requested scale"
    )
    # At these scales, a run spends at least twice its budget, which a correct certificate does not permit.
    for factor, words in ((drawn_share, share_text), (min(drawn_share, NO_SCALE), "next to no scale at all")):
        with watch_noise(factor=factor) as calls:
            run = trial.attempt(problem, fresh=("scale", factor))
        if not calls:
            trial.pass_over(
                "no noise was drawn through privopt.numbers.noise, so that none can be drawn at another scale"
            )
        if run.error is None:
            trial.fail(
                f"the noise was drawn at {words}, as its record says ({float(calls[0].scale):g}), and the certificate "
                "holds all the same: measure() looks at the intended scale, not at the one that was drawn; expected "
                "the release to carry NoiseRecord.scale, and measure() to take it from there",
                problem,
            )
        if not isinstance(run.error, PrivoptError):
            trial.fail(f"the noise was drawn at {words}, and solve raised {error_text(run.error)}", problem)


# --- mechanisms that choose an outcome ---------------------------------------------------------------


def _has_distribution(subject: Subject) -> str | None:
    """Return the reason why neighbours' distributions cannot be compared, or None if they can be."""
    if subject.profile.probabilities is None:
        return Elsewhere("the profile has no `probabilities`")
    return has_neighbours(subject)


@check("exact-epsilon", version=2, of={"odds"}, needs=_has_distribution, share=4.0, min_examples=40)
def exact_epsilon(trial: Trial) -> None:
    """Check that the profile's probabilities differ between neighbours by a factor of at most exp(epsilon).

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    loaded = trial.subject.load(problem)
    epsilon = float(trial.subject.epsilon(loaded))
    probabilities = stated_distribution(trial.subject, loaded)
    list_neighbours = trial.subject.profile.neighbours
    assert list_neighbours is not None  # otherwise the check is skipped (``needs``)
    has_neighbour = False
    for neighbour in list_neighbours(problem):
        has_neighbour = True
        other_probabilities = stated_distribution(trial.subject, trial.subject.load(neighbour))
        if len(probabilities) != len(other_probabilities):
            trial.fail(
                f"one of {len(probabilities)} outcomes is chosen, but one of {len(other_probabilities)} for a "
                f"neighbour. The neighbour:\n{format_changes(problem, neighbour)}",
                problem,
            )
        # The index of the outcome with the largest ratio, and a sentence, or None if all ratios are allowed.
        finding = excess(probabilities, other_probabilities, epsilon, symmetric=trial.subject.notion.symmetric)
        if finding is not None:
            trial.fail(
                f"outcome {finding[0]} is chosen with probability {probabilities[finding[0]]:.6g}, but with "
                f"{other_probabilities[finding[0]]:.6g} for a neighbour: {finding[1]}. The "
                f"neighbour:\n{format_changes(problem, neighbour)}",
                problem,
            )
    if not has_neighbour:
        trial.be_idle()


def stated_distribution(subject: Subject, loaded: object) -> NDArray[np.float64]:
    """Return the probabilities given in a profile for a mechanism's m outcomes, as an array of shape (m,).

    Raises:
        UsageError: The numbers are not a probability distribution.
    """
    assert subject.profile.probabilities is not None  # callers have checked it
    probabilities = np.asarray(subject.profile.probabilities(loaded, subject.method.name), dtype=np.float64)
    # This rejects NaN as well, because NaN <= x is false for every x.
    sums_to_one = abs(probabilities.sum() - 1) <= PROBABILITY_TOLERANCE
    if probabilities.ndim != 1 or (probabilities < 0).any() or not sums_to_one:
        raise UsageError(
            f"the profile's `probabilities` must be one number for each outcome, with sum 1, got {probabilities}"
        )
    return probabilities


def excess(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    allowed: float,
    delta: float = 0.0,
    *,
    symmetric: bool = True,
) -> tuple[int, str] | None:
    """Return the output at which two distributions differ most, or None if the difference is allowed.

    Args:
        first: The outputs' probabilities for one input.
        second: The outputs' probabilities for the other input.
        allowed: The largest allowed log ratio.
        delta: The claimed delta. If it is not 0, it is compared with the hockey-stick divergence over all outputs.
        symmetric: Whether the bound applies in both directions. If False, it bounds only the first input's
            probabilities in terms of the second's.

    Returns:
        The index of the output with the greatest log ratio, and a clause that describes the difference. If ``delta`` is
        not 0, the index is 0 and has no meaning, because the divergence covers all outputs. The result is None if the
        difference is allowed, up to rounding errors.
    """
    if delta:
        # The limit of 700 prevents an overflow of exp. The hockey-stick divergence is the smallest delta with which the
        # claim would hold.
        factor = math.exp(min(allowed, 700.0))
        # Both directions, or only the first one.
        directions = ((first, second), (second, first))[: 1 + symmetric]
        needed_delta = max(float(np.maximum(p - factor * q, 0.0).sum()) for p, q in directions)
        return (
            (0, f"delta is {needed_delta:.6g}")
            if needed_delta > delta * (1 + PROBABILITY_TOLERANCE) + LOG_RATIO_ERROR
            else None
        )
    # Without symmetry, outputs that are less likely for the first input show nothing.
    ratios = [
        _log_ratio(p, q) if symmetric or p > q else 0.0 for p, q in zip(first.tolist(), second.tolist(), strict=True)
    ]
    max_index = max(range(len(ratios)), key=ratios.__getitem__)
    if ratios[max_index] <= allowed * (1 + PROBABILITY_TOLERANCE) + LOG_RATIO_ERROR:
        return None
    times = f", {ratios[max_index] / allowed:.4g} times what is allowed" if allowed else ""
    return max_index, f"their log ratio is {ratios[max_index]:.6g}{times}"


def _log_ratio(p: float, q: float) -> float:
    """Return the absolute value of the log ratio of two probabilities, which is infinite if only one of them is 0."""
    return 0.0 if p == q else math.inf if not (p and q) else abs(math.log(p) - math.log(q))
