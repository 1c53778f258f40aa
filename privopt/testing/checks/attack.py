"""The statistical attack: samples of two inputs tell them apart no better than epsilon allows, and how much would show.

Whom to attack is found on draws that take no further part, so that the verdict's confidence holds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.interfaces import SolveContext
from privopt.metric.attack import epsilon_lower
from privopt.testing.checks.base import Elsewhere, Trial, at_one, check
from privopt.testing.checks.matrix import CONFIDENCE, plausible, required
from privopt.testing.checks.neighbours import has_neighbours, neighbours_of, news, stated_distribution
from privopt.testing.nature import TRAITS
from privopt.testing.noise import same_measurements
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Subject

__all__ = ["smallest_seen"]

PAIRS: Final = 12
"""Pairs of inputs that the attack chooses from."""

PROBLEMS: Final = 3
"""Problems that it chooses from, where each draw is a solve."""

PILOT: Final = 10
"""The choice takes this part of the draws, from all pairs together."""

LIKELY: Final = 0.25
"""How likely the event is, under one of the two inputs, that the stated power speaks of."""

MISSED: Final = 0.05
"""Probability with which a mechanism that loses as much as is stated may pass all the same."""

NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE)


def _can_attack(subject: Subject) -> str | None:
    if not subject.traits & {"odds", "tails"}:
        return Elsewhere(TRAITS["odds"])
    if subject.traits & {"matrix", "sampler"}:
        return None
    if subject.profile.draws is None and subject.profile.observed is None:
        return "the profile has neither `draws` nor `observed`"
    return has_neighbours(subject)


@check("epsilon-attack", version=3, needs=_can_attack, share=0.3, least=4)
def epsilon_attack(trial: Trial) -> None:
    """Samples of two inputs tell them apart no better than epsilon allows (Clopper-Pearson)."""
    problem = trial.problem()
    if trial.subject.traits & {"matrix", "sampler"}:
        _attack_samples(trial, problem)
    else:
        _attack_runs(trial, problem)


def smallest_seen(draws: int, epsilon: float, views: int = 1) -> float:
    """The least multiple of epsilon that an attack sees with probability 0.95 where it shows in a likely event.

    Likely is what one of the inputs gives in a quarter of its draws; infinite where no multiple up to 64 would be seen.

    Args:
        draws: of each input, of which :func:`privopt.metric.attack.epsilon_lower` tests half.
        epsilon: what is allowed.
        views: that share the confidence.
    """
    from scipy.stats import binom

    tested, alpha = draws // 2, (1 - CONFIDENCE) / (4 * views)
    hits = int(binom.ppf(MISSED / 2, tested, LIKELY))
    low = _clopper_pearson(hits, tested, alpha)

    def seen(multiple: float) -> bool:
        others = int(binom.ppf(1 - MISSED / 2, tested, LIKELY * math.exp(-multiple * epsilon)))
        high = 1 - _clopper_pearson(tested - others, tested, alpha)
        return low > high * math.exp(epsilon)

    least, most = 1.0, 64.0
    if not seen(most):
        return math.inf
    for _ in range(20):
        middle = (least + most) / 2
        least, most = (least, middle) if seen(middle) else (middle, most)
    return most


def _clopper_pearson(hits: int, count: int, alpha: float) -> float:
    from scipy.special import betaincinv

    return float(betaincinv(hits, count - hits + 1, alpha)) if hits > 0 else 0.0


# --- what anybody can draw for a secret ---------------------------------------------------------------


def _attack_samples(trial: Trial, problem: GeneratedProblem) -> None:
    run = trial.run(problem)
    names, pairs, distances = required(trial.subject, run)
    if not names:
        trial.cannot("the release names no `records`, and the profile has no `alike`")
    epsilon = float(Fraction(trial.subject.epsilon(run.problem)))
    apart = np.flatnonzero(np.isfinite(distances))
    near = np.abs(np.log(np.maximum(distances[apart] * epsilon, 1e-12)))  # an attack tells most where epsilon d is 1
    chosen = apart[np.argsort(near, kind="stable")[:PAIRS]].tolist()
    if not chosen:
        return
    few = max(40, trial.effort.draws // (PILOT * len(chosen)))

    def excess(place: int) -> float:
        one, two = _samples(run.release, [names[n] for n in pairs[place]], few)
        return _best_attack(one, two, confidence=0.5) - epsilon * float(distances[place])

    pick = max(chosen, key=excess) if len(chosen) > 1 else chosen[0]
    pair, allowed = [names[n] for n in pairs[pick]], epsilon * float(distances[pick])
    one, two = _samples(run.release, pair, trial.effort.draws)
    found = _best_attack(one, two)
    if found > allowed * (1 + 1e-12):
        trial.fail(
            f"from {trial.effort.draws} samples each, records {pair[0]} and {pair[1]} at distance "
            f"{distances[pick]:g} differ by a log ratio of at least {found:.4g}; epsilon allows {allowed:.4g}",
            problem,
        )
    if allowed:
        trial.powers.append(smallest_seen(_tested(one), allowed, _views(one)))


def _samples(release: Any, names: list[str], count: int) -> list[NDArray[Any]]:
    """Draws for each of two secrets: the number of each output, and the numbers that stand in it where all have any."""
    drawn = [[str(output) for output in release.sample(name, count)] for name in names]
    known = {output: number for number, output in enumerate(sorted({*drawn[0], *drawn[1]}))}
    parts = [[float(known[output]) for output in side] for side in drawn]
    inside = {output: [float(n) for n in NUMBER.findall(output)] for output in known}
    widths = {len(numbers) for numbers in inside.values()}
    if len(widths) > 1 or 0 in widths:
        return [np.array(side).reshape(-1, 1) for side in parts]
    return [np.array([[known[o], *inside[o]] for o in side], dtype=np.float64) for side in drawn]


# --- what takes a run for each draw --------------------------------------------------------------------


def _attack_runs(trial: Trial, problem: GeneratedProblem) -> None:
    slow = trial.subject.profile.draws is None
    if slow and trial.effort.name != "nightly" and not trial.once_only("thousands of solves"):
        return
    problems = [problem] + [trial.problem() for _ in range((PROBLEMS - 1) * slow)]
    candidates = [
        (at_one(each), at_one(neighbour))
        for each in problems
        for neighbour in neighbours_of(trial, each, PAIRS // len(problems))
    ]
    if not candidates:
        return
    few = max(40, trial.effort.draws // (PILOT * len(candidates)))

    def excess(pair: tuple[GeneratedProblem, GeneratedProblem]) -> float:
        one, two = (_draws(trial, trial.load(each), few) for each in pair)
        return _best_attack(one, two, confidence=0.5) if one.shape[1] == two.shape[1] else math.inf

    with same_measurements():
        pair = max(candidates, key=excess) if len(candidates) > 1 else candidates[0]
        loaded = [trial.load(each) for each in pair]
        one, two = (_draws(trial, each, trial.effort.draws) for each in loaded)
    curve = trial.subject.notion.curve(trial.subject.claimed(loaded[0]))
    if not curve:
        trial.cannot(f"a guarantee of kind {trial.subject.kind} with no epsilon implies none")
    if one.shape[1] != two.shape[1]:
        trial.fail(
            f"{one.shape[1]} numbers are observed of the release, {two.shape[1]} for a neighbour: how many there are "
            f"is no secret kept. The neighbour:\n{news(*pair)}",
            pair[0],
        )
    for epsilon, delta in curve:
        found = _best_attack(one, two, 1 - (1 - CONFIDENCE) / len(curve), delta)
        if found > epsilon * (1 + 1e-12):
            beside = f" beside a delta of {delta:.4g}" if delta else ""
            trial.fail(
                f"from {len(one)} releases each, this problem and a neighbour of it differ by a log ratio of at least "
                f"{found:.4g}{beside}; epsilon allows {epsilon:.4g}. The neighbour:\n{news(*pair)}",
                pair[0],
            )
    if trial.subject.notion.odds:  # what is stated is a multiple of epsilon
        trial.powers.append(smallest_seen(_tested(one), curve[0][0], _views(one)))


def _draws(trial: Trial, loaded: Any, count: int) -> NDArray[Any]:
    subject = trial.subject
    if subject.profile.draws is not None:
        return _columns(subject.profile.draws(loaded, subject.method.name, count))
    assert subject.profile.observed is not None  # needs
    mechanism, seen = subject.mechanism, []
    for _ in range(count):
        outcome = mechanism.solve(loaded, SolveContext(method=subject.method.name, gap=subject.method.gap))
        seen.append(np.asarray(subject.profile.observed(outcome.release)).ravel())
    return _columns(seen)


def _columns(draws: Any) -> NDArray[Any]:
    array = np.asarray(draws)
    return array.reshape(len(array), -1)


def _can_draw(subject: Subject) -> str | None:
    if subject.profile.probabilities is None:
        return Elsewhere("the profile has no `probabilities`")
    if subject.profile.draws is None and subject.profile.observed is None:
        return "the profile has neither `draws` nor `observed`"
    return None


@check("drawn-as-stated", of={"odds"}, needs=_can_draw, share=0.3, least=4)
def drawn_as_stated(trial: Trial) -> None:
    """Outcomes are chosen as often as the profile's distribution says."""
    problem = trial.problem()
    if trial.subject.profile.draws is None and not trial.once_only("thousands of solves"):
        return
    with same_measurements():
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
    return 1 if draws.shape[1] == 1 else min(5, draws.shape[1]) + 1


def _best_attack(one: NDArray[Any], two: NDArray[Any], confidence: float = CONFIDENCE, delta: float = 0.0) -> float:
    """Greatest bound over the published numbers and their sum along the direction in which the means differ.

    The direction is learnt on a tenth of the draws, which take no further part.
    """
    cut, count = _cut(one), _views(one)
    if count == 1:
        return epsilon_lower(one, two, confidence, delta=delta)
    direction = one[:cut].mean(axis=0) - two[:cut].mean(axis=0)
    order = np.argsort(-np.abs(direction))[: count - 1]
    views: Iterable[NDArray[Any]] = [np.eye(one.shape[1])[k] for k in order]
    views = [*views, np.sign(np.where(np.abs(direction) >= 0.3 * np.abs(direction).max(), direction, 0.0))]
    shared = 1 - (1 - confidence) / count
    return max(epsilon_lower(one[cut:] @ view, two[cut:] @ view, shared, delta=delta) for view in views)
