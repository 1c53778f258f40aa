"""The statistical attack, which checks that samples for two inputs do not differ by more than epsilon allows.

The judge (:mod:`privopt.testing.judging`) does the statistics. This module chooses the inputs to compare, and divides
the draws among them. A first test with few draws never fails the check, but a suspicious result leads to a longer test.
If the check does not apply to a mechanism, it is skipped with a reason of type ``Elsewhere``.
"""

from __future__ import annotations

import math
import re
import time
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.testing.checks.base import Elsewhere, Trial, at_epsilon_one, check
from privopt.testing.checks.neighbours import format_changes, has_neighbours, neighbours_of
from privopt.testing.checks.samples import CONFIDENCE, required_pairs, states_direction
from privopt.testing.efforts import EFFORTS
from privopt.testing.judging import judge
from privopt.testing.judging.bounds import visible_factor
from privopt.testing.judging.choose_events import propose_tests
from privopt.testing.judging.outputs import Table, has_fine_bits
from privopt.testing.noise import watch_noise
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Subject, missing_traits

MAX_PAIRS: Final = 12
"""The maximum number of pairs of inputs from which the attack chooses. It is twice as high if results are doubles."""

MAX_PROBLEMS: Final = 3
"""The number of problems from which the attack chooses if every draw requires a solve or results are doubles."""

SAMPLER_DRAW_FACTOR: Final = 20
"""The number of draws from a sampler, as a multiple of the effort's draws.

At effort ci, this is enough to find faults that show up in an event with probability 0.01.
"""

PILOT_DIVISOR: Final = 10
"""The number by which the effort's draws are divided to get the number of draws for the first ranking of pairs.

The quotient is split evenly among the pairs. Both inputs of a pair get the pair's share, but at least 40 draws each. If
results are doubles, these numbers are multiplied by :data:`FINE_PILOT_FACTOR`.
"""

FINE_PILOT_FACTOR: Final = 4
"""The factor by which the number of draws for choosing a pair is multiplied if results are doubles.

Events in the last bits of doubles are rarer than events in their values.
"""

FIRST_LOOK_DRAW_FACTOR: Final = 2
"""The number of draws in the first test of releases, which never fails the check, as a multiple of the effort's
draws."""

MIN_DRAWS: Final = 8_000
"""The minimum number of draws in the first test of releases.

With half as many, the judge had too few draws from which to choose its events, and missed about half of the events with
probability 0.04 that never occur for the neighbour.
"""

MAX_DRAWS: Final = 1_000_000
"""The maximum number of draws from a sampler for one problem."""

EVENT_PROBABILITY: Final = 0.25
"""The event probability, under one of the two inputs, for which the attack's power is reported."""

POWER_NOTE: Final = f"would have seen {{:g}} epsilon or more in events of probability {EVENT_PROBABILITY:g} or more"
"""The note on the power of an attack that found nothing, with a placeholder for the multiple of epsilon."""

SUSPICION_CONFIDENCE: Final = 0.5
"""The confidence in a violation at which the first test triggers a longer test."""

MAX_LONGER_FACTOR: Final = 25
"""The maximum ratio of a longer test's draws to the first test's. The limit is shared among the mechanism's methods."""

MAX_CPU_SECONDS: Final = 20.0
"""The CPU time for longer tests in one check at effort ci, in seconds, shared among the mechanism's methods.

Efforts with fewer draws get proportionally less time.
"""

FRESH_DRAWS: Final = 100
"""The number of draws in each of two series that are compared to check that they differ."""
MAX_REPEAT_CHANCE: Final = 1e-9
"""Two equal series of draws count as a fault if independent series would be equal with a probability below this."""

FURTHER_PROBLEMS: Final = 8
"""The number of additional problems drawn in search of results near 0."""

DRAWS_NEAR_ZERO: Final = 20
"""The number of draws used to estimate the size of a problem's results relative to their noise.

The estimate is only used to choose problems.
"""

# Matches a number in an output's text, such as "-1.5e3".
NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


def _can_attack(subject: Subject) -> str | None:
    """Return the reason why the attack cannot run on the method under test (``subject``), or None if it can.

    The attack requires a privacy notion that bounds odds, except possibly with probability delta. It also requires
    draws, which are either samples from a matrix or sampler, or releases for neighbouring problems.
    """
    if not subject.traits & {"odds", "tails"}:
        return Elsewhere(missing_traits()["odds"])
    if subject.traits & {"matrix", "sampler"}:
        return states_direction(subject)
    if subject.profile.draws is None and subject.profile.observed is None:
        return "the profile has neither `draws` nor `observed`"
    return has_neighbours(subject)


@check("epsilon-attack", version=7, needs=_can_attack, share=0.3, min_examples=4)
def epsilon_attack(trial: Trial) -> None:
    """Check that two inputs cannot be distinguished by their samples better than epsilon allows.

    The test is based on Clopper-Pearson bounds on the probabilities of events.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    if trial.subject.traits & {"matrix", "sampler"}:
        _attack_samples(trial, problem)
    else:
        _attack_runs(trial, problem)


# --- releases from which anybody can sample reports ---------------------------------------------------


def _attack_samples(trial: Trial, problem: GeneratedProblem) -> None:
    """Draw reports for all secrets, and fail if the reports for two secrets differ by more than the claim allows.

    Each secret is compared with those secrets for which a difference is easiest to detect
    (:func:`_most_telling_pairs`).

    Args:
        trial: A single run of the check.
        problem: The problem to solve. The reports are drawn from its release.
    """
    run, subject = trial.run(problem), trial.subject
    names, pairs, distances = required_pairs(subject, run)
    if not names:
        trial.pass_over("the release names no `records`, and the profile has no `alike`")
    symmetric = subject.notion.symmetric
    # A claim's curve is the list of pairs (epsilon, delta) that it implies. If the notion has no curve, attack only the
    # epsilon, with a delta of 0.
    curve = subject.notion.curve(subject.claim_of(run.problem)) or ((float(subject.epsilon(run.problem)), 0.0),)
    tested_pairs = _most_telling_pairs(pairs, distances, curve[0][0], symmetric=symmetric)
    if not tested_pairs:
        trial.be_idle()
        return
    partners: dict[str, list[str]] = {names[a]: [] for a, _ in tested_pairs}
    for a, b in tested_pairs:
        partners[names[a]].append(names[b])
    distance_by_names = {(names[a], names[b]): distance for (a, b), distance in tested_pairs.items()}
    draws = min(SAMPLER_DRAW_FACTOR * trial.effort.draws, MAX_DRAWS)

    def sample_many(name: str, count: int) -> list[Any]:
        """Draw ``count`` reports for a secret, each as a tuple of the report and the numbers that occur in it."""
        return [_attach_numbers(str(output)) for output in run.release.sample(name, count)]

    judge_claim = partial(judge, None, list(partners), partners.__getitem__, subject.kind, many=sample_many)
    for epsilon, delta in curve:
        verdict = judge_claim(
            epsilon=epsilon,
            delta=delta,
            distance=lambda a, b: distance_by_names[a, b],
            # The points on the curve share the error probability (union bound).
            confidence=1 - (1 - CONFIDENCE) / len(curve),
            draws=draws,
            seed=trial.chance(problem).getrandbits(32),
        )
        if verdict.violated:
            assert verdict.pair is not None  # a violation always has a pair
            trial.fail(
                f"from {verdict.draws:,} samples, records {verdict.pair[0]} and {verdict.pair[1]} differ by at least "
                f"{verdict.epsilon_lower:.4g} a unit of distance; epsilon allows {epsilon:.4g}. {verdict.event}",
                problem,
            )
        # The multiple of epsilon that would have been detected, or None if no multiple would have been.
        trial.history.note_power(verdict.by_event[f"{EVENT_PROBABILITY:g}"] or math.inf, POWER_NOTE)


def _most_telling_pairs(
    pairs: NDArray[np.int64], distances: NDArray[np.float64], epsilon: float, *, symmetric: bool
) -> dict[tuple[int, int], float]:
    """Choose the most informative pairs that together cover all secrets, and return them with their distances.

    Pairs are chosen greedily. The closer the product of epsilon and a pair's distance is to 1, the more informative the
    pair. A secret without a partner at a finite distance is not covered. If pairs are ordered, a secret that occurs in
    both positions is covered in both.

    Args:
        pairs: (P, 2) The indices of the two secrets in each pair.
        distances: (P,) The distance between the secrets in each pair.
        epsilon: The claimed epsilon per unit of distance.
        symmetric: Whether pairs are unordered.
    """
    distance_by_pair: dict[tuple[int, int], float] = {}
    covered: set[tuple[int, bool]] = set()
    # The guarantee permits distinguishing secrets at an infinite distance, so such pairs show nothing.
    finite = np.flatnonzero(np.isfinite(distances))
    # How far epsilon times the distance is from 1. The floor avoids the logarithm of 0.
    log_deviations = np.abs(np.log(np.maximum(distances[finite] * epsilon, 1e-12)))
    # Take a pair if it covers a secret that no earlier pair covers.
    for pair_number in finite[np.argsort(log_deviations, kind="stable")].tolist():
        a, b = pairs[pair_number].tolist()
        # A secret counts as covered in either position, unless the order matters.
        members = {(a, False), (b, not symmetric)}
        if not members <= covered:
            covered |= members
            distance_by_pair[a, b] = float(distances[pair_number])
    return distance_by_pair


@lru_cache(1 << 16)
def _attach_numbers(output: str) -> tuple[object, ...]:
    """Return a tuple of an output and the numbers that occur in it, so that the judge can also compare magnitudes.

    Results are cached, so equal outputs share a tuple, and the judge analyses each distinct output only once.
    """
    return output, *map(float, NUMBER.findall(output))


# --- releases for which each draw takes a run ----------------------------------------------------------


def _attack_runs(trial: Trial, problem: GeneratedProblem) -> None:
    """Draw releases for two neighbouring problems, and fail if the two samples differ by more than the claim allows.

    The most promising pair of neighbours is chosen from a few draws. A first test on that pair never fails the check.
    If its result is suspicious, a second test with many more draws decides.

    Args:
        trial: A single run of the check.
        problem: A problem. Without ``Profile.draws``, every draw requires a solve, and pairs from other generated
            problems are candidates as well.
    """
    subject = trial.subject
    is_slow = subject.profile.draws is None
    # If every draw is a solve, the attack runs only once per method, unless the effort is full.
    if is_slow and trial.effort.name != "full" and not trial.once_only("thousands of solves"):
        trial.be_idle()
        return
    # If draws are fast, the attack runs on every example's problem, so no further problems are needed.
    problems = [problem] + [trial.problem() for _ in range((MAX_PROBLEMS - 1) * is_slow)]
    pair_limit, pilot_factor = MAX_PAIRS, 1
    if has_fine_bits(draw_outcomes(trial, subject.load(at_epsilon_one(problem)), DRAWS_NEAR_ZERO)):
        # The last bits of doubles reveal most if the results are near 0, and usually concern a single number in the
        # problem. Therefore try more problems, and more neighbours of each.
        candidates = problems + [trial.problem() for _ in range(FURTHER_PROBLEMS)]
        problems = sorted(candidates, key=partial(_distance_from_zero, trial))[:MAX_PROBLEMS]
        pair_limit, pilot_factor = 2 * MAX_PAIRS, FINE_PILOT_FACTOR
    pairs = [
        (at_epsilon_one(candidate), at_epsilon_one(neighbour))
        for candidate in problems
        for neighbour in neighbours_of(trial, candidate, pair_limit // len(problems))
    ]
    if not pairs:
        trial.be_idle()
        return
    # With fewer than 40 draws from each problem in a pair, the ranking of the pairs would be nearly random.
    pilot_draws = pilot_factor * max(40, trial.effort.draws // (PILOT_DIVISOR * len(pairs)))
    # Choose the three most promising pairs with few draws, and the best of these with four times as many.
    for count, pair_count in ((pilot_draws, 3), (4 * pilot_draws, 1)):
        if len(pairs) > pair_count:
            order = np.argsort([-_promised_log_ratio(trial, candidate, count) for candidate in pairs], kind="stable")
            pairs = [pairs[index] for index in order[:pair_count].tolist()]
    pair = pairs[0]
    loaded = [trial.subject.load(candidate) for candidate in pair]
    if not is_slow:
        _check_fresh(trial, loaded[0], pair[0])
    # The curve is the list of pairs (epsilon, delta) that the claim implies.
    curve = subject.notion.curve(subject.claim_of(loaded[0]))
    if not curve:
        trial.pass_over(f"a guarantee of kind {subject.kind} with no epsilon implies none")
    first_draws = max(MIN_DRAWS, FIRST_LOOK_DRAW_FACTOR * trial.effort.draws)

    def draw_many(index: int, count: int) -> list[Any]:
        """Draw outcomes for the problem (index 0) or for its neighbour (index 1)."""
        return [*draw_outcomes(trial, loaded[index], count)]

    # The judge's inputs are the two problems, of which the second is a neighbour of the first, at distance 1.
    judge_claim = partial(
        judge, None, [0, 1], [[1], []].__getitem__, subject.kind, many=draw_many, distance=lambda *_: 1.0
    )
    for epsilon, delta in curve:
        claim: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": trial.chance(problem).getrandbits(32)}
        started = time.process_time()
        first_look = judge_claim(**claim, draws=first_draws, confidence=SUSPICION_CONFIDENCE)
        # The CPU seconds per draw, from which the number of draws in the longer test follows.
        pace = (time.process_time() - started) / first_look.draws
        # After a failure, every smaller example gets the full time again, so that the failure does not vanish for lack
        # of draws.
        used_seconds = 0.0 if trial.history.failed_at is not None else trial.history.long_test_seconds
        # Efforts with fewer draws have less time for the longer test, and a mechanism's methods share that time.
        seconds = MAX_CPU_SECONDS * min(1.0, trial.effort.draws / EFFORTS["ci"].draws) / subject.siblings - used_seconds
        longer = max(
            first_draws, int(min(MAX_LONGER_FACTOR * first_draws / subject.siblings, seconds / max(pace, 1e-9)))
        )
        error = (1 - CONFIDENCE) / len(curve)
        if first_look.violated:
            trial.history.long_test_seconds = used_seconds + longer * pace
            verdict = judge_claim(**claim, draws=longer, confidence=1 - error)
            if verdict.violated:
                delta_text = f" with a delta of {delta:.4g}" if delta else ""
                trial.fail(
                    f"from {verdict.draws:,} releases, this problem and a neighbour of it differ by a log ratio of at "
                    f"least {verdict.epsilon_lower:.4g}{delta_text}; epsilon allows {epsilon:.4g}. {verdict.event}. "
                    f"The neighbour:\n{format_changes(*pair)}",
                    pair[0],
                )
        # The multiple of epsilon that both tests would have detected. In the judge's last round, the tests use at least
        # a fifth of the draws for each input, and half of the error probability, which is split among three tests.
        factors = (
            first_look.by_event[f"{EVENT_PROBABILITY:g}"],
            visible_factor(epsilon, EVENT_PROBABILITY, longer // 5, error / 6, delta),
        )
        trial.history.note_power(math.inf if None in factors else max(filter(None, factors)), POWER_NOTE)


def _distance_from_zero(trial: Trial, problem: GeneratedProblem) -> float:
    """Return how far a problem's results are from 0, relative to the scale of their noise.

    Each number in a result is estimated by the median of a few draws, and the scale of its noise by their interquartile
    range. The smallest ratio of a number's magnitude to its scale is returned.

    Args:
        trial: A single run of the check.
        problem: The problem, which is set to epsilon 1 for the draws.
    """
    draws = draw_outcomes(trial, trial.subject.load(at_epsilon_one(problem)), DRAWS_NEAR_ZERO)
    lower, middle, upper = np.quantile(draws, (0.25, 0.5, 0.75), axis=0)
    # The smallest normal double avoids a division by 0 if a number has no noise. An overflow to infinity is correct,
    # because a huge number without noise is infinitely far from 0.
    with np.errstate(over="ignore"):
        return float(np.min(np.abs(middle) / np.maximum(upper - lower, np.finfo(float).tiny), initial=math.inf))


def _check_fresh(trial: Trial, loaded: Any, problem: GeneratedProblem) -> None:
    """Fail if two calls of ``Profile.draws`` return the same draws.

    The events to test are chosen using some draws and then tested on others. If both sets of draws were the same, the
    test would only confirm the choice.

    Args:
        trial: A single run of the check.
        loaded: The loaded problem.
        problem: The same problem before loading, to show in the message.
    """
    draws, second_draws = (draw_outcomes(trial, loaded, FRESH_DRAWS) for _ in range(2))
    _, counts = np.unique(draws, axis=0, return_counts=True)
    # The probability that two independent series are equal is that of two draws being equal (estimated), raised to the
    # number of draws.
    chance = float(np.square(counts / FRESH_DRAWS).sum()) ** FRESH_DRAWS
    if chance < MAX_REPEAT_CHANCE and np.array_equal(draws, second_draws):
        trial.fail("Profile.draws gave the same draws twice: they must be fresh ones at each call", problem)


def _promised_log_ratio(trial: Trial, pair: tuple[GeneratedProblem, GeneratedProblem], count: int) -> float:
    """Estimate, from a few draws, the largest log ratio that a test on two neighbours can be expected to show.

    The estimate is only used to rank pairs. No failure is based on it.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        pair: A problem and its neighbour.
        count: The number of draws for each problem.
    """
    first, second = ([*draw_outcomes(trial, trial.subject.load(problem), count)] for problem in pair)
    symmetric = trial.subject.notion.symmetric
    return propose_tests(*Table.pair_of(first, second), 1.0, 0.0, symmetric=symmetric)[0].score


def draw_outcomes(trial: Trial, loaded: Any, count: int) -> NDArray[Any]:
    """Return independent draws of the numbers that the profile observes in a release.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        loaded: The loaded problem.
        count: The number of draws. Without ``Profile.draws``, every draw requires a solve.

    Returns:
        Array of shape (count, m), where m is the number of observed numbers.
    """
    subject = trial.subject
    if subject.profile.draws is not None:
        return _as_rows(subject.profile.draws(loaded, subject.method.name, count))
    assert subject.profile.observed is not None  # otherwise the check is skipped (``needs``)
    observations = []
    for _ in range(count):
        with watch_noise():  # raises an error if a mechanism draws noise endlessly
            outcome = subject.outcome(loaded)
        observations.append(np.asarray(subject.profile.observed(outcome.release)).ravel())
    return _as_rows(observations)


def _as_rows(draws: Any) -> NDArray[Any]:
    """Convert draws of any shape to a two-dimensional array with one row per draw."""
    array = np.asarray(draws)
    if array.dtype == object:  # integers beyond 64 bits
        array = array.astype(np.float64)
    return array.reshape(len(array), -1)
