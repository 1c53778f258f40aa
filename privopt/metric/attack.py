"""What an attacker gets from a release: the numbers of an audit, as functions of arrays.

Nothing here trusts a claim. Probabilities are doubles (of weights / 2**63); verdicts are for the certificate to give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike, NDArray

from privopt.arrays import Floats, Ints, slices
from privopt.errors import UsageError
from privopt.exact.sample import draw

if TYPE_CHECKING:
    from privopt.interfaces import UtilityLoss
    from privopt.metric.data import MetricData
    from privopt.metric.matrix import MatrixRelease

__all__ = [
    "Violations",
    "achieved_epsilon",
    "audit_matrix",
    "bayes_error",
    "clopper_pearson",
    "entropy_bits",
    "epsilon_lower",
    "expected_loss",
    "pair_blocks",
    "violations",
]

#: Pairs (B, 2) and their distances (B,).
PairBlock = tuple[Ints, Floats]

_PAIRS = 1 << 16
_CELLS = 1 << 22

CONFIDENCE: Final = 0.999
DRAWS: Final = 100_000
"""Draws for each of the two records that the statistical attack compares."""

SEARCHED: Final = 20_000
"""Required pairs that the attack chooses from, at most."""


@frozen(kw_only=True)
class Violations:
    """Geo-Ind violations as the LR-Geo paper counts them (Equations (34) and (35)).

    Attributes:
        ratio: violated inequalities over all inequalities; each pair and output counts twice, once each way.
        error: the greatest ``z_ik - exp(eps d) z_jk`` over those violated; 0 where none is.
        mean_error: the mean of the same; 0 where none is.
        violated: how many.
        checked: of how many.
    """

    ratio: float
    error: float
    mean_error: float
    violated: int
    checked: int


def pair_blocks(
    records: int, distance: Callable[[Ints, Ints], ArrayLike], *, block: int = _PAIRS
) -> Iterable[PairBlock]:
    """All pairs i < j of ``records`` in blocks, in lexicographic order.

    Args:
        records: N.
        distance: distances of index arrays, element by element.
        block: pairs at a time, about.
    """
    start = 0
    while start < records - 1:
        stop, count = start, 0
        while stop < records - 1 and (count == 0 or count + records - 1 - stop <= block):
            count += records - 1 - stop
            stop += 1
        lengths = np.arange(records - 1 - start, records - 1 - stop, -1)
        first = np.repeat(np.arange(start, stop), lengths)
        second = np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths) + first + 1
        pairs = np.stack([first, second], axis=1)
        yield pairs, np.asarray(distance(first, second), dtype=np.float64)
        start = stop


def achieved_epsilon(probabilities: Floats, blocks: Iterable[PairBlock]) -> float:
    """Greatest |log z_ik / z_jk| / d over the pairs of all blocks and all outputs.

    Infinite where 0 stands against a positive probability, or records at distance 0 differ. Pass every pair, also
    those that no promise covers: this is what an attacker sees.

    Args:
        probabilities: (N, K).
        blocks: pairs and distances, in any cut.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(probabilities)
    greatest = 0.0
    for pairs, distances in blocks:
        spread = np.zeros(len(pairs))
        for part in slices(logs.shape[1], len(pairs), _CELLS):
            left, right = logs[pairs[:, 0], part], logs[pairs[:, 1], part]
            with np.errstate(invalid="ignore"):
                difference = np.abs(left - right)
            difference[np.isneginf(left) & np.isneginf(right)] = 0.0
            np.maximum(spread, difference.max(axis=1, initial=0.0), out=spread)
        apart = distances > 0
        if spread[~apart].any():
            return math.inf
        greatest = max(greatest, float((spread[apart] / distances[apart]).max(initial=0.0)))
    return greatest


def violations(
    probabilities: Floats, blocks: Iterable[PairBlock], epsilon: float, *, tolerance: float = 1e-12
) -> Violations:
    """GV ratio and GV error over the given pairs (LR-Geo, Equations (34) and (35)).

    Args:
        probabilities: (N, K).
        blocks: pairs and distances that should satisfy the inequality.
        epsilon: in 1 / unit of distance.
        tolerance: an excess up to this times z_ik is rounding, not violation.
    """
    violated = checked = 0
    worst = total = 0.0
    for pairs, distances in blocks:
        with np.errstate(over="ignore"):
            growth = np.exp(epsilon * distances)[:, None]
        for part in slices(probabilities.shape[1], len(pairs), _CELLS):
            left, right = probabilities[pairs[:, 0], part], probabilities[pairs[:, 1], part]
            for a, b in ((left, right), (right, left)):
                with np.errstate(invalid="ignore"):
                    excess = a - np.where(b > 0, growth * b, 0.0)
                broken = excess[excess > tolerance * a]
                checked += excess.size
                violated += broken.size
                worst = max(worst, float(broken.max(initial=0.0)))
                total += float(broken.sum())
    return Violations(
        ratio=violated / checked if checked else 0.0,
        error=worst,
        mean_error=total / violated if violated else 0.0,
        violated=violated,
        checked=checked,
    )


def bayes_error(probabilities: Floats, prior: Floats) -> float:
    """Probability that the attacker who guesses the likeliest record of each output is wrong.

    Args:
        probabilities: (N, K).
        prior: (N,) summing to 1.
    """
    best = np.zeros(probabilities.shape[1])
    for part in slices(probabilities.shape[1], len(probabilities), _CELLS):
        best[part] = (prior[:, None] * probabilities[:, part]).max(axis=0)
    return float(min(1.0, max(0.0, 1.0 - math.fsum(best.tolist()))))


def expected_loss(probabilities: Floats, cost: Floats, prior: Floats) -> float:
    """``sum_ik p_i c_ik z_ik``, in the unit of cost.

    Args:
        probabilities: (N, K).
        cost: (N, K), not weighted by the prior.
        prior: (N,) summing to 1.
    """
    return math.fsum((prior * np.einsum("ik,ik->i", cost, probabilities)).tolist())


def entropy_bits(probabilities: Floats, prior: Floats) -> float:
    """Entropy of the released output under the prior, in bits.

    Args:
        probabilities: (N, K).
        prior: (N,) summing to 1.
    """
    marginal = prior @ probabilities
    positive = marginal[marginal > 0]
    return float(max(0.0, -(positive * np.log2(positive)).sum()))


def epsilon_lower(draws_a: ArrayLike, draws_b: ArrayLike, confidence: float = 0.95, *, delta: float = 0.0) -> float:
    """A lower bound on the privacy loss between two inputs, from draws alone.

    One half of the draws picks events that tell the inputs apart: for each of the two directions, the set of outputs
    whose ratio is at least some threshold, at the threshold whose own bound is best. The other half tests it:
    Clopper-Pearson, the probability of the event bounded from below under one input and from above under the other.
    Two directions and two bounds each share 1 - confidence. So with probability at least ``confidence`` the mechanism
    really loses what is returned, whatever it is. Numbers are taken as one line: the events are half-lines or sets of
    values seen.

    Args:
        draws_a: (n,) outputs under one input, integers or reals.
        draws_b: (m,) outputs under another.
        confidence: in (0, 1).
        delta: what (epsilon, delta)-DP allows beside: it is taken off the probability bounded from below.

    Returns:
        The bound, at least 0.

    Raises:
        UsageError: fewer than 4 draws of either, or a confidence out of range.
    """
    a, b = np.asarray(draws_a).ravel(), np.asarray(draws_b).ravel()
    if min(a.size, b.size) < 4:
        raise UsageError(f"{a.size} and {b.size} draws; wanted at least 4 of each")
    if not 0 < confidence < 1:
        raise UsageError(f"confidence is {confidence}; wanted a number between 0 and 1")
    alpha = (1.0 - confidence) / 4.0
    bound = 0.0
    for left, right in ((a, b), (b, a)):
        member = _learned_event(left[0::2], right[0::2], alpha, delta)
        sides = member(left[1::2]), member(right[1::2])
        hits, others = (int(side.sum()) for side in sides)
        bound = max(bound, float(_log_ratio_bound(hits, sides[0].size, others, sides[1].size, alpha, delta)))
    return bound


def _log_ratio_bound(hits: ArrayLike, n: int, others: ArrayLike, m: int, alpha: float, delta: float) -> Floats:
    """log (lower bounds of the first probabilities less delta / upper bounds of the second), each at 1 - alpha."""
    low, high = clopper_pearson(hits, n, alpha)[0], clopper_pearson(others, m, alpha)[1]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.maximum(low - delta, 0.0)) - np.log(high))


def clopper_pearson(hits: ArrayLike, draws: ArrayLike, error: float) -> tuple[Floats, Floats]:
    """Lower and upper bounds of probabilities, each of which fails with probability ``error`` at most.

    >>> low, high = clopper_pearson(0, 100, 0.05)
    >>> float(low), round(float(high), 4)
    (0.0, 0.0295)

    Source: Clopper, Pearson, Biometrika 26, 1934.
    """
    from scipy.special import betaincinv

    k, n = np.asarray(hits, dtype=np.float64), np.asarray(draws, dtype=np.float64)
    low = np.where(k > 0, betaincinv(np.maximum(k, 0.5), n - k + 1, error), 0.0)
    high = np.where(k < n, betaincinv(k + 1, np.maximum(n - k, 0.5), 1.0 - error), 1.0)
    return low, high


Event = Callable[[NDArray[np.generic]], NDArray[np.bool_]]


def _learned_event(left: NDArray[np.generic], right: NDArray[np.generic], alpha: float, delta: float) -> Event:
    """The event that promises the best bound on draws like these: a set of values seen, or a half-line.

    Half of the draws orders the values by likelihood ratio, the other half says how far down that order to go: where
    every value is seen once, an order judged by the draws that made it would look perfect.
    """
    values, inverse = np.unique(np.concatenate([left, right]), return_inverse=True)
    sides = inverse[: left.size], inverse[left.size :]
    seen = np.stack([np.bincount(side[0::2], minlength=values.size) for side in sides])
    judged = np.stack([np.bincount(side[1::2], minlength=values.size) for side in sides])
    sizes = judged.sum(axis=1)
    ratio = (seen[0] + 0.5) * sizes[1] / ((seen[1] + 0.5) * sizes[0])
    upwards = np.arange(values.size)
    best, event = -np.inf, _event("set", values, upwards[:0])
    for ordering, kind in ((np.argsort(-ratio, kind="stable"), "set"), (upwards, "below"), (upwards[::-1], "above")):
        hits, others = np.cumsum(judged[:, ordering], axis=1)
        scores = _log_ratio_bound(hits, int(sizes[0]), others, int(sizes[1]), alpha, delta)
        if scores.max() > best:
            best, event = scores.max(), _event(kind, values, ordering[: int(scores.argmax()) + 1])
    return event


def _event(kind: str, values: NDArray[np.generic], chosen: Ints) -> Event:
    picked = values[np.sort(chosen)]
    if kind == "below":
        return lambda draws: np.asarray(draws <= picked[-1])
    if kind == "above":
        return lambda draws: np.asarray(draws >= picked[0])
    return lambda draws: np.isin(draws, picked)


def audit_matrix(release: MatrixRelease, data: MetricData, loss: UtilityLoss[MatrixRelease]) -> dict[str, Any]:
    """What an attacker gets from a matrix, and what it costs by the mechanism's own loss.

    ``epsilon.achieved`` is over every pair of records, also those that are not required, per unit of
    distance; GV ratio and error (LR-Geo, Equations (34) and (35)) are over the required pairs. With a region it is over
    any two of its points, as positions are snapped, and the others are over the edges between its vertices.
    """
    z, prior = release.probabilities, data.prior
    if data.region is not None:
        from privopt.metric.everywhere.certificate import steepest

        achieved = steepest(release.weights, data.region, data.epsilon)
        release = release.along_edges(data)
    else:
        achieved = achieved_epsilon(z, pair_blocks(len(release.records), data.metric.between))
    found = violations(z, [(release.pairs, release.distances)], float(data.epsilon))
    return {
        "epsilon": {"claimed": float(data.epsilon), "achieved": achieved, "unit": f"per {data.unit}"},
        "gv": {"ratio": found.ratio, "error": found.error},
        "bayes_error": bayes_error(z, prior),
        "expected_loss": loss.evaluate(release),
        "entropy_bits": entropy_bits(z, prior),
        "statistical": _sampled(release),
    }


def _sampled(release: MatrixRelease) -> dict[str, Any] | None:
    """A lower bound on epsilon from draws alone, for the required pair whose rows differ most for their distance."""
    apart = np.flatnonzero(release.distances > 0)
    if not apart.size:
        return None
    z = release.probabilities
    chosen = apart[:: max(1, apart.size // SEARCHED)]
    i, j = release.pairs[chosen].T
    spread = np.abs(z[i] - z[j]).sum(axis=1) / release.distances[chosen]
    worst = chosen[int(spread.argmax())]
    i, j = release.pairs[worst].tolist()
    bound = epsilon_lower(draw(release.weights[i], DRAWS), draw(release.weights[j], DRAWS), CONFIDENCE)
    return {
        "epsilon_lower": bound / float(release.distances[worst]),
        "confidence": CONFIDENCE,
        "draws": 2 * DRAWS,
        "records": [str(release.records[i]), str(release.records[j])],
    }
