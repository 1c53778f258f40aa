"""A check on mechanisms that choose an outcome: the outcome must be drawn from the distribution in the profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Final

import numpy as np
from numpy.typing import NDArray

from privopt.errors import InputError
from privopt.numbers.binomial import binomial_quantile
from privopt.testing.checks.attack import draw_outcomes
from privopt.testing.checks.base import Elsewhere, Trial, at_epsilon_one, check
from privopt.testing.checks.neighbours import stated_distribution
from privopt.testing.checks.samples import find_odd_frequency, is_plausible_count
from privopt.testing.judging.bounds import MIN_POWER
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Subject

FURTHER_PROBLEMS: Final = 8
"""The number of additional problems from which the most informative one is chosen, if every draw requires a solve."""

EPSILONS: Final = (Decimal(1), Decimal("0.1"), Decimal("0.01"), Decimal("0.001"))
"""The values of epsilon to try for a problem, in addition to its own.

If the outcomes' scores are far apart, the choice is noticeably random only if epsilon is small.
"""

FACTORS: Final = (1.1, 1.2, 1.5, 2.0, 3.0, 5.0, 10.0)
"""The multiples of epsilon for which a test's power is computed."""

MAX_OUTCOME_PROBABILITY: Final = 0.9
"""The largest outcome probability at which a problem without an epsilon is tested.

If an outcome is more likely than this, draws reveal too little.
"""


def _can_draw(subject: Subject) -> str | None:
    """Return the reason why outcomes cannot be compared with a known distribution, or None if they can be.

    The reason has the type ``Elsewhere`` if the check does not apply to the method under test.
    """
    if subject.profile.probabilities is None:
        return Elsewhere("the profile has no `probabilities`")
    if subject.profile.draws is None and subject.profile.observed is None:
        return "the profile has neither `draws` nor `observed`"
    return None


@check("drawn-as-stated", version=4, of={"odds"}, needs=_can_draw, share=0.3, min_examples=4)
def drawn_as_stated(trial: Trial) -> None:
    """Check that outcomes follow the profile's distribution, using a binomial test for each outcome.

    An example is skipped if its test has no power, that is, if it would detect none of the multiples of epsilon in
    :data:`FACTORS`. In that case, the distribution hardly depends on epsilon, because one outcome is nearly certain or
    all outcomes are equally likely. An example without an epsilon is skipped if one outcome is nearly certain.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problems = [trial.problem()]
    if trial.subject.profile.draws is None:
        if not trial.once_only("thousands of solves"):
            trial.be_idle()
            return
        problems += [trial.problem() for _ in range(FURTHER_PROBLEMS)]
    problem = _most_telling_problem(trial, problems)
    loaded = trial.subject.load(problem)
    probabilities = stated_distribution(trial.subject, loaded)
    if problem.get("privacy.epsilon") is not None:
        power = _visible_multiple(trial, problem, probabilities)
        if math.isinf(power):
            trial.pass_over("draws at ten times epsilon would not show at any of the problems drawn")
        trial.history.note_power(power, "would have seen draws at {:g} epsilon or more")
    elif probabilities.max() > MAX_OUTCOME_PROBABILITY:
        trial.pass_over("one outcome is nearly certain at all of the problems drawn")
    outcomes = draw_outcomes(trial, loaded, trial.effort.draws)[:, 0].tolist()
    strange = sorted(set(outcomes) - set(range(len(probabilities))))
    if strange:
        trial.fail(
            f"outcome {strange[0]} came, and `probabilities` has outcomes 0 to {len(probabilities) - 1}", problem
        )
    finding = find_odd_frequency(outcomes, dict(enumerate(probabilities.tolist())))
    if finding is not None:
        trial.fail(f"outcome {finding} by the profile's `probabilities`", problem)


def _most_telling_problem(trial: Trial, problems: Sequence[GeneratedProblem]) -> GeneratedProblem:
    """Return the problem whose distribution changes most when epsilon is doubled.

    Each problem is also tried with other values of epsilon, so the result may be a modified problem. If the problems
    have no epsilon, the result is the one whose most likely outcome has the lowest probability.

    Args:
        trial: A single run of the check.
        problems: One or more problems from which to choose.
    """
    best_problem, best_score = problems[0], -math.inf
    for problem in problems:
        stated_epsilon = problem.get("privacy.epsilon")
        epsilons = () if stated_epsilon is None else EPSILONS
        variants = [problem, *(problem.with_key("privacy.epsilon", epsilon) for epsilon in epsilons)]
        # A problem without epsilon may have a rho, which ``at_epsilon_one`` sets.
        for variant in variants if stated_epsilon is not None else [problem, at_epsilon_one(problem)]:
            distribution = _distribution_at(trial.subject, variant, 1.0)
            if distribution is None:
                continue
            changed = None if stated_epsilon is None else _distribution_at(trial.subject, variant, 2.0)
            # A different epsilon can also change the number of outcomes.
            if changed is not None and len(changed) != len(distribution):
                changed = None
            # The total variation distance between the two distributions limits what any test can detect.
            score = -float(distribution.max()) if changed is None else float(np.abs(changed - distribution).sum()) / 2
            if score > best_score:
                best_problem, best_score = variant, score
    return best_problem


def _distribution_at(subject: Subject, problem: GeneratedProblem, factor: float) -> NDArray[np.float64] | None:
    """Return a problem's distribution at a multiple of its epsilon, or None if the mechanism rejects that epsilon.

    Args:
        subject: The method under test.
        problem: The problem.
        factor: The multiple. If it is 1, the problem is loaded unchanged and need not have an epsilon.
    """
    if factor != 1.0:
        epsilon = Decimal(str(problem.get("privacy.epsilon"))) * Decimal(str(factor))
        problem = problem.with_key("privacy.epsilon", epsilon)
    try:
        return stated_distribution(subject, subject.load(problem))
    except InputError:  # the mechanism does not accept this epsilon
        return None


def _visible_multiple(trial: Trial, problem: GeneratedProblem, probabilities: NDArray[np.float64]) -> float:
    """Return the smallest multiple of epsilon at which draws would be found to deviate from the distribution.

    Only the multiples in :data:`FACTORS` are considered. The result is the first that the test would detect with
    probability 0.9, or infinity if it would detect none of them.

    Args:
        trial: A single run of the check, whose effort determines the number of draws.
        problem: The problem.
        probabilities: The problem's distribution as given in the profile.
    """
    count = trial.effort.draws
    for factor in FACTORS:
        changed = _distribution_at(trial.subject, problem, factor)
        if changed is None or len(changed) != len(probabilities):
            continue
        for stated, true in zip(probabilities.tolist(), changed.tolist(), strict=True):
            # Take the count at an unlucky quantile of the changed distribution, on the side of the given probability.
            # In nine cases out of ten, the actual count is at least as far from the expected one.
            hits = binomial_quantile(1 - MIN_POWER if true > stated else MIN_POWER, count, min(1.0, true))
            if not is_plausible_count(hits, count, min(1.0, stated), len(probabilities)):
                return factor
    return math.inf
