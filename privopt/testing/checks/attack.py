"""The statistical attack: samples of two inputs distinguish them no better than epsilon allows.

Whom to attack is found on draws that take no further part, so that the verdict's confidence holds.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.interfaces import SolveContext
from privopt.numbers.binomial import epsilon_lower
from privopt.testing.checks.base import Elsewhere, Trial, at_one, check
from privopt.testing.checks.matrix import CONFIDENCE, plausible, required
from privopt.testing.checks.neighbours import has_neighbours, neighbours_of, news, stated_distribution
from privopt.testing.judging import judge
from privopt.testing.judging.bounds import seen_from
from privopt.testing.nature import missing_traits
from privopt.testing.noise import limited
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Subject

MAX_PAIRS: Final = 12
"""Pairs of inputs that the attack chooses from."""

MAX_PROBLEMS: Final = 3
"""Problems that it chooses from, where each draw is a solve."""

OF_A_MATRIX: Final = 8
"""Times an effort's draws that the judge has for all inputs together, where weights are held exactly besides."""

OF_A_SAMPLER: Final = 20
"""The same where draws are all that there is: at effort ci it finds what shows in an event of probability .01."""

MOST_DRAWS: Final = 1_000_000
"""Draws of a sampler that one problem takes, at most."""

PILOT_DIVISOR: Final = 10
"""The choice takes this part of the draws, from all pairs together."""

EVENT_PROBABILITY: Final = 0.25
"""How likely the event is, under one of the two inputs, that the stated power speaks of."""

SUSPICION_CONFIDENCE: Final = 0.5
"""Confidence at which what the first draws show is worth more of them."""

MAX_LOOKS: Final = 2
"""At draws, which share the error: the first, and one for longer."""

MAX_LONGER_FACTOR: Final = 25
"""Times the first draws that a suspicion is worth, shared by the methods of a mechanism."""

MAX_CPU_SECONDS: Final = 20.0
"""Of a processor, that they share likewise: for one check, at an effort of FULL_EFFORT_DRAWS or more."""

FULL_EFFORT_DRAWS: Final = 6_000
"""Draws of an effort below which a suspicion is worth as many seconds less: a third at effort dev."""

FURTHER_PROBLEMS: Final = 8
"""Further problems among which one is looked for whose outcome is unsure, where each draw is a solve."""

MAX_OUTCOME_PROBABILITY: Final = 0.75
"""How likely its likeliest outcome is best: neither certain nor as likely as all others."""

MAX_COLUMNS: Final = 24
"""Published numbers that a discriminant is made of."""

NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


def _can_attack(subject: Subject) -> str | None:
    if not subject.traits & {"odds", "tails"}:
        return Elsewhere(missing_traits()["odds"])
    if subject.traits & {"matrix", "sampler"}:
        return None
    if subject.profile.draws is None and subject.profile.observed is None:
        return "the profile has neither `draws` nor `observed`"
    return has_neighbours(subject)


@check("epsilon-attack", version=4, needs=_can_attack, share=0.3, min_examples=4)
def epsilon_attack(trial: Trial) -> None:
    """Check that samples of two inputs distinguish them no better than epsilon allows (Clopper-Pearson)."""
    problem = trial.problem()
    if trial.subject.traits & {"matrix", "sampler"}:
        _attack_samples(trial, problem)
    else:
        _attack_runs(trial, problem)


# --- what anybody can draw for a secret ---------------------------------------------------------------


def _attack_samples(trial: Trial, problem: GeneratedProblem) -> None:
    """Judge the release's own sampler, each secret with the one that may reveal most about it."""
    run, subject = trial.run(problem), trial.subject
    names, pairs, distances = required(subject, run)
    if not names:
        trial.cannot("the release names no `records`, and the profile has no `alike`")
    curve = subject.notion.curve(subject.claimed(run.problem)) or ((float(subject.epsilon(run.problem)), 0.0),)
    apart = _tried(pairs, distances, curve[0][0])
    if not apart:
        return
    partners: dict[str, list[str]] = {names[one]: [] for one, _ in apart}
    for one, two in apart:
        partners[names[one]].append(names[two])
    far = {(names[one], names[two]): distance for (one, two), distance in apart.items()}
    draws = trial.effort.draws * (OF_A_MATRIX if "matrix" in subject.traits else OF_A_SAMPLER)
    read = _Numbers()
    for epsilon, delta in curve:
        verdict = judge(
            None,
            list(partners),
            partners.__getitem__,
            subject.kind,
            epsilon=epsilon,
            delta=delta,
            distance=lambda one, two: far[one, two],
            many=lambda name, count: [read[str(output)] for output in run.release.sample(name, count)],
            confidence=1 - (1 - CONFIDENCE) / len(curve),
            draws=min(draws, MOST_DRAWS),
            seed=trial.chance(problem).getrandbits(32),
        )
        if verdict.violated:
            assert verdict.pair is not None  # what shows it
            trial.fail(
                f"from {verdict.draws:,} samples, records {verdict.pair[0]} and {verdict.pair[1]} differ by at least "
                f"{verdict.epsilon_lower:.4g} a unit of distance; epsilon allows {epsilon:.4g}. {verdict.event}",
                problem,
            )
        trial.history.powers.append(verdict.by_event[f"{EVENT_PROBABILITY:g}"] or math.inf)


def _tried(pairs: NDArray[np.int64], distances: NDArray[np.float64], epsilon: float) -> dict[tuple[int, int], float]:
    """Return, for each secret, the pair with epsilon d nearest to 1, where draws show most, and its distance."""
    found: dict[tuple[int, int], float] = {}
    known: set[int] = set()
    finite = np.flatnonzero(np.isfinite(distances))
    near = np.abs(np.log(np.maximum(distances[finite] * epsilon, 1e-12)))
    for place in finite[np.argsort(near, kind="stable")].tolist():
        one, two = pairs[place].tolist()
        if not {one, two} <= known:
            known |= {one, two}
            found[one, two] = float(distances[place])
    return found


class _Numbers(dict[str, tuple[object, ...]]):
    """Outputs with the numbers that are in them."""

    def __missing__(self, output: str) -> tuple[object, ...]:
        self[output] = (output, *map(float, NUMBER.findall(output)))
        return self[output]


# --- what takes a run for each draw --------------------------------------------------------------------


def _attack_runs(trial: Trial, problem: GeneratedProblem) -> None:
    slow = trial.subject.profile.draws is None
    if slow and trial.effort.name != "nightly" and not trial.once_only("thousands of solves"):
        return
    problems = [problem] + [trial.problem() for _ in range((MAX_PROBLEMS - 1) * slow)]
    candidates = [
        (at_one(each), at_one(neighbour))
        for each in problems
        for neighbour in neighbours_of(trial, each, MAX_PAIRS // len(problems))
    ]
    if not candidates:
        return
    few = max(40, trial.effort.draws // (PILOT_DIVISOR * len(candidates)))

    def excess(pair: tuple[GeneratedProblem, GeneratedProblem], count: int) -> float:
        one, two = (_draws(trial, trial.load(each), count) for each in pair)
        return _best_attack(one, two, confidence=0.5) if one.shape[1] == two.shape[1] else math.inf

    for count, kept in ((few, 3), (4 * few, 1)):
        if len(candidates) > kept:
            order = np.argsort([-excess(each, count) for each in candidates], kind="stable")
            candidates = [candidates[place] for place in order[:kept].tolist()]
    pair = candidates[0]
    loaded = [trial.load(each) for each in pair]
    curve = trial.subject.notion.curve(trial.subject.claimed(loaded[0]))
    if not curve:
        trial.cannot(f"a guarantee of kind {trial.subject.kind} with no epsilon implies none")
    started = time.process_time()
    one, two = (_draws(trial, each, trial.effort.draws) for each in loaded)
    pace = (time.process_time() - started) / (2 * len(one))
    if one.shape[1] != two.shape[1]:
        trial.fail(
            f"{one.shape[1]} numbers are observed of the release, {two.shape[1]} for a neighbour: how many there "
            f"are is no secret kept. The neighbour:\n{news(*pair)}",
            pair[0],
        )
    _hold(trial, pair, (one, two), curve)
    if trial.subject.notion.odds:  # what is stated is a multiple of epsilon
        error = (1 - CONFIDENCE) / (MAX_LOOKS * _views(one))
        seen = seen_from(curve[0][0], EVENT_PROBABILITY, _tested(one) // 2, error)  # one half chooses the event
        trial.history.powers.append(math.inf if seen is None else seen)
    used = 0.0 if trial.shrinking else trial.history.once.get("looked longer", 0.0)
    share = trial.subject.siblings
    seconds = MAX_CPU_SECONDS * min(1.0, trial.effort.draws / FULL_EFFORT_DRAWS) / share
    longer = min(MAX_LONGER_FACTOR * len(one) // share, int((seconds - used) / (2 * max(pace, 1e-9))))
    suspected = any(_best_attack(one, two, SUSPICION_CONFIDENCE, delta) > epsilon for epsilon, delta in curve)
    if suspected and longer > 2 * len(one):
        trial.history.once["looked longer"] = used + 2 * longer * pace
        one, two = (_draws(trial, each, longer) for each in loaded)
        _hold(trial, pair, (one, two), curve)


def _hold(
    trial: Trial,
    pair: tuple[GeneratedProblem, GeneratedProblem],
    draws: tuple[NDArray[Any], NDArray[Any]],
    curve: Sequence[tuple[float, float]],
) -> None:
    """Fail if draws of two neighbours distinguish them better than a guarantee's curve allows."""
    for epsilon, delta in curve:
        found = _best_attack(*draws, 1 - (1 - CONFIDENCE) / (MAX_LOOKS * len(curve)), delta)
        if found > epsilon * (1 + 1e-12):
            beside = f" beside a delta of {delta:.4g}" if delta else ""
            trial.fail(
                f"from {len(draws[0])} releases each, this problem and a neighbour of it differ by a log ratio of at "
                f"least {found:.4g}{beside}; epsilon allows {epsilon:.4g}. The neighbour:\n{news(*pair)}",
                pair[0],
            )


def _draws(trial: Trial, loaded: Any, count: int) -> NDArray[Any]:
    subject = trial.subject
    if subject.profile.draws is not None:
        return _columns(subject.profile.draws(loaded, subject.method.name, count))
    assert subject.profile.observed is not None  # needs
    mechanism, seen = subject.mechanism, []
    for _ in range(count):
        with limited():
            outcome = mechanism.solve(loaded, SolveContext(method=subject.method.name, gap=subject.method.gap))
        seen.append(np.asarray(subject.profile.observed(outcome.release)).ravel())
    return _columns(seen)


def _columns(draws: Any) -> NDArray[Any]:
    array = np.asarray(draws)
    if array.dtype == object:  # whole numbers beyond 64 bits
        array = array.astype(np.float64)
    return array.reshape(len(array), -1)


def _can_draw(subject: Subject) -> str | None:
    if subject.profile.probabilities is None:
        return Elsewhere("the profile has no `probabilities`")
    if subject.profile.draws is None and subject.profile.observed is None:
        return "the profile has neither `draws` nor `observed`"
    return None


@check("drawn-as-stated", version=2, of={"odds"}, needs=_can_draw, share=0.3, min_examples=4)
def drawn_as_stated(trial: Trial) -> None:
    """Check that outcomes are chosen as often as the profile's distribution says."""
    problem = trial.problem()
    if trial.subject.profile.draws is None:
        if not trial.once_only("thousands of solves"):
            return
        drawn = [problem] + [trial.problem() for _ in range(FURTHER_PROBLEMS)]
        asked = [each for one in drawn for each in (one, at_one(one))]
        likeliest = [stated_distribution(trial.subject, trial.load(each)).max() for each in asked]
        problem = asked[int(np.argmin(np.abs(np.array(likeliest) - MAX_OUTCOME_PROBABILITY)))]
    loaded = trial.load(problem)
    stated = stated_distribution(trial.subject, loaded)
    draws = _draws(trial, loaded, trial.effort.draws)
    for place, probability in enumerate(stated.tolist()):
        hits = int((draws[:, 0] == place).sum())
        if not plausible(hits, len(draws), min(1.0, probability), len(stated)):
            trial.fail(
                f"outcome {place} was chosen {hits} times in {len(draws)}; the profile's `probabilities` say "
                f"{probability * len(draws):.6g} times",
                problem,
            )


# --- the attack itself --------------------------------------------------------------------------------


def _cut(draws: NDArray[Any]) -> int:
    """Draws that only choose in which direction to look."""
    return 0 if draws.shape[1] == 1 else max(10, len(draws) // 10)


def _tested(draws: NDArray[Any]) -> int:
    return len(draws) - _cut(draws)


def _views(draws: NDArray[Any]) -> int:
    return 1 if draws.shape[1] == 1 else min(5, draws.shape[1]) + 2


def _best_attack(one: NDArray[Any], two: NDArray[Any], confidence: float = CONFIDENCE, delta: float = 0.0) -> float:
    """Greatest bound over the published numbers, and sums of them along two directions in which the means differ.

    The directions are learnt on a tenth of the draws, which take no further part.
    """
    cut, count = _cut(one), _views(one)
    if count == 1:
        return epsilon_lower(one, two, confidence, delta=delta)
    direction = one[:cut].mean(axis=0) - two[:cut].mean(axis=0)
    order = np.argsort(-np.abs(direction))[: count - 2]
    views: list[NDArray[Any]] = [np.eye(one.shape[1])[k] for k in order]
    views.append(np.sign(np.where(np.abs(direction) >= 0.3 * np.abs(direction).max(), direction, 0.0)))
    views.append(_discriminant(one[:cut], two[:cut], direction))
    shared = 1 - (1 - confidence) / count
    return max(epsilon_lower(one[cut:] @ view, two[cut:] @ view, shared, delta=delta) for view in views)


def _discriminant(one: NDArray[Any], two: NDArray[Any], direction: NDArray[Any]) -> NDArray[Any]:
    """Fisher's linear discriminant of the columns that differ most: noise that they share cancels out in it."""
    some = np.argsort(-np.abs(direction), kind="stable")[:MAX_COLUMNS]
    rest = np.concatenate([side[:, some] - side[:, some].mean(axis=0) for side in (one, two)])
    spread = rest.T @ rest / len(rest)
    ridge = 1e-9 * float(np.trace(spread)) / len(some) + 1e-12
    found = np.zeros(one.shape[1])
    found[some] = np.linalg.solve(spread + ridge * np.eye(len(some)), direction[some])
    return found
