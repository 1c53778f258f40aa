"""The statistical attack: samples of two inputs distinguish them no better than epsilon allows."""

from __future__ import annotations

import math
import re
import time
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.testing.checks.base import Elsewhere, Trial, at_one, check
from privopt.testing.checks.neighbours import has_neighbours, neighbours_of, news, stated_distribution
from privopt.testing.checks.samples import CONFIDENCE, come_otherwise, required
from privopt.testing.efforts import EFFORTS
from privopt.testing.judging import judge
from privopt.testing.judging.bounds import seen_from
from privopt.testing.judging.choose_events import propose
from privopt.testing.judging.outputs import Table
from privopt.testing.noise import watched
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Subject, missing_traits

MAX_PAIRS: Final = 12
"""Pairs of inputs that the attack chooses from."""

MAX_PROBLEMS: Final = 3
"""Problems that it chooses from, where each draw is a solve."""

OF_SAMPLES: Final = 20
"""Times an effort's draws that the judge has of a sampler: at ci it finds what shows in an event of probability .01."""

PILOT_DIVISOR: Final = 10
"""The choice of a pair takes this part of an effort's draws, from all pairs together, and as many again."""

OF_RUNS: Final = 2
"""The same for a first look at releases, which accuses nobody."""

LEAST_DRAWS: Final = 4_000
"""Draws that the judge asks for, at least."""

MOST_DRAWS: Final = 1_000_000
"""Draws of a sampler that one problem takes, at most."""

EVENT_PROBABILITY: Final = 0.25
"""How likely the event is, under one of the two inputs, that the stated power speaks of."""

SUSPICION_CONFIDENCE: Final = 0.5
"""Confidence at which what the first look shows is worth a longer one."""

MAX_LONGER_FACTOR: Final = 25
"""Times the first draws that a suspicion is worth, shared by the methods of a mechanism."""

MAX_CPU_SECONDS: Final = 20.0
"""Of a processor, that they share likewise: for one check at effort ci, less where draws are fewer."""

FRESH_DRAWS: Final = 100
MAX_REPEAT_CHANCE: Final = 1e-9
"""So many draws are asked for twice, and how likely they may be the same in the same order by chance."""

FURTHER_PROBLEMS: Final = 8
"""Further problems among which one is looked for whose outcome is unsure, where each draw is a solve."""

MAX_OUTCOME_PROBABILITY: Final = 0.75
"""How likely its likeliest outcome is best: neither certain nor as likely as all others."""

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
        trial.pass_over("the release names no `records`, and the profile has no `alike`")
    curve = subject.notion.curve(subject.claimed(run.problem)) or ((float(subject.epsilon(run.problem)), 0.0),)
    apart = _tried(pairs, distances, curve[0][0])
    if not apart:
        return
    partners: dict[str, list[str]] = {names[one]: [] for one, _ in apart}
    for one, two in apart:
        partners[names[one]].append(names[two])
    far = {(names[one], names[two]): distance for (one, two), distance in apart.items()}
    draws = min(OF_SAMPLES * trial.effort.draws, MOST_DRAWS)

    def many(name: str, count: int) -> list[Any]:
        return [_with_numbers(str(output)) for output in run.release.sample(name, count)]

    judged = partial(judge, None, list(partners), partners.__getitem__, subject.kind, many=many)
    for epsilon, delta in curve:
        verdict = judged(
            epsilon=epsilon,
            delta=delta,
            distance=lambda one, two: far[one, two],
            confidence=1 - (1 - CONFIDENCE) / len(curve),
            draws=draws,
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


@lru_cache(1 << 16)
def _with_numbers(output: str) -> tuple[object, ...]:
    """Return an output with the numbers that are in it: one object for each, which the judge reads once."""
    return output, *map(float, NUMBER.findall(output))


# --- what takes a run for each draw --------------------------------------------------------------------


def _attack_runs(trial: Trial, problem: GeneratedProblem) -> None:
    """Judge releases of a problem and its neighbours: a first look shows what is worth a long one."""
    subject = trial.subject
    slow = subject.profile.draws is None
    if slow and trial.effort.name != "nightly" and not trial.once_only("thousands of solves"):
        return
    problems = [problem] + [trial.problem() for _ in range((MAX_PROBLEMS - 1) * slow)]
    pairs = [
        (at_one(each), at_one(neighbour))
        for each in problems
        for neighbour in neighbours_of(trial, each, MAX_PAIRS // len(problems))
    ]
    if not pairs:
        return
    few = max(40, trial.effort.draws // (PILOT_DIVISOR * len(pairs)))
    for count, kept in ((few, 3), (4 * few, 1)):
        if len(pairs) > kept:
            order = np.argsort([-_promise(trial, each, count) for each in pairs], kind="stable")
            pairs = [pairs[place] for place in order[:kept].tolist()]
    pair = pairs[0]
    loaded = [trial.subject.load(each) for each in pair]
    if not slow:
        _check_fresh(trial, loaded[0], pair[0])
    curve = subject.notion.curve(subject.claimed(loaded[0]))
    if not curve:
        trial.pass_over(f"a guarantee of kind {subject.kind} with no epsilon implies none")
    first = max(LEAST_DRAWS, OF_RUNS * trial.effort.draws)

    def many(place: int, count: int) -> list[Any]:
        return [*_draws(trial, loaded[place], count)]

    judged = partial(judge, None, [0, 1], None, subject.kind, many=many, distance=lambda *_: 1.0)
    for epsilon, delta in curve:
        claim: dict[str, Any] = {"epsilon": epsilon, "delta": delta, "seed": trial.chance(problem).getrandbits(32)}
        started = time.process_time()
        look = judged(**claim, draws=first, confidence=SUSPICION_CONFIDENCE)
        pace = (time.process_time() - started) / look.draws
        used = 0.0 if trial.history.failed_at is not None else trial.history.once.get("looked longer", 0.0)
        seconds = MAX_CPU_SECONDS * min(1.0, trial.effort.draws / EFFORTS["ci"].draws) / subject.siblings - used
        longer = max(first, int(min(MAX_LONGER_FACTOR * first / subject.siblings, seconds / max(pace, 1e-9))))
        error = (1 - CONFIDENCE) / len(curve)
        if look.violated:
            trial.history.once["looked longer"] = used + longer * pace
            verdict = judged(**claim, draws=longer, confidence=1 - error)
            if verdict.violated:
                beside = f" beside a delta of {delta:.4g}" if delta else ""
                trial.fail(
                    f"from {verdict.draws:,} releases, this problem and a neighbour of it differ by a log ratio of at "
                    f"least {verdict.epsilon_lower:.4g}{beside}; epsilon allows {epsilon:.4g}. {verdict.event}. The "
                    f"neighbour:\n{news(*pair)}",
                    pair[0],
                )
        # a fifth of the draws, or more, is tested of each input; half of the error is the last round's, of three tests
        seen = (look.by_event[f"{EVENT_PROBABILITY:g}"], seen_from(epsilon, EVENT_PROBABILITY, longer // 5, error / 6))
        trial.history.powers.append(math.inf if None in seen else max(filter(None, seen)))


def _check_fresh(trial: Trial, loaded: Any, problem: GeneratedProblem) -> None:
    """Refuse draws that come again: events are chosen on some, and tested on others."""
    first, again = (_draws(trial, loaded, FRESH_DRAWS) for _ in range(2))
    _, counts = np.unique(first, axis=0, return_counts=True)
    chance = float(np.square(counts / FRESH_DRAWS).sum()) ** FRESH_DRAWS
    if chance < MAX_REPEAT_CHANCE and np.array_equal(first, again):
        trial.fail("Profile.draws gave the same draws twice: they must be fresh ones at each call", problem)


def _promise(trial: Trial, pair: tuple[GeneratedProblem, GeneratedProblem], count: int) -> float:
    """Return how great a log ratio a few draws of two neighbours promise; nothing is claimed by it."""
    one, two = ([*_draws(trial, trial.subject.load(each), count)] for each in pair)
    width = Table.of([*one, *two]).numbers.shape[1]
    return propose(Table.of(one, width), Table.of(two, width), 1.0, 0.0)[0].score


def _draws(trial: Trial, loaded: Any, count: int) -> NDArray[Any]:
    subject = trial.subject
    if subject.profile.draws is not None:
        return _columns(subject.profile.draws(loaded, subject.method.name, count))
    assert subject.profile.observed is not None  # needs
    seen = []
    for _ in range(count):
        with watched():
            outcome = subject.outcome(loaded)
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
        likeliest = [stated_distribution(trial.subject, trial.subject.load(each)).max() for each in asked]
        problem = asked[int(np.argmin(np.abs(np.array(likeliest) - MAX_OUTCOME_PROBABILITY)))]
    loaded = trial.subject.load(problem)
    stated = stated_distribution(trial.subject, loaded)
    draws = _draws(trial, loaded, trial.effort.draws)
    wrong = come_otherwise(draws[:, 0].astype(int).tolist(), dict(enumerate(stated.tolist())))
    if wrong is not None:
        trial.fail(f"outcome {wrong} by the profile's `probabilities`", problem)
