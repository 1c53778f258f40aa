"""Measure what an attacker learns from a release whose channel is public."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats, Ints, slices
from privopt.interfaces import Channel, Guarantee, Release
from privopt.interfaces.notions import LocalDP
from privopt.numbers.binomial import epsilon_lower

__all__ = ["attack_channel", "attack_two", "bayes_error", "entropy_bits"]

MAX_COMPARISONS: Final = 4_000_000_000
"""Comparisons of two probabilities up to which all pairs of secrets are compared: some 4 s of one core, as 500 secrets
and reports took 0.12 s."""

BLOCK: Final = 1 << 22
"""Probabilities that are compared at once."""

ATTACK_CONFIDENCE: Final = 0.999
SECRET_DRAWS: Final = 20_000
"""Draws for each of the two secrets that the statistical attack compares."""


def attack_channel(channel: Channel, release: Release, guarantee: Guarantee) -> dict[str, Any]:
    """Measure the keys of ``privopt audit --json`` that a channel gives.

    Args:
        channel: how likely each report is for each secret, as the release states it.
        release: that draws, where it can: draws are held against what the channel states.
        guarantee: what is claimed: epsilon per unit of distance, or for any two secrets.

    Returns:
        ``epsilon`` (``achieved`` is None where distances are unknown and the claim is per unit of them),
        ``bayes_error``, ``entropy_bits`` and ``statistical``.
    """
    z = np.asarray(channel.probabilities, dtype=np.float64)
    count = len(z)
    prior = np.full(count, 1.0 / count) if channel.prior is None else np.asarray(channel.prior, dtype=np.float64)
    per_distance = guarantee.unit.startswith("per ") and guarantee.kind != LocalDP.kind  # that is of any two secrets
    known = channel.distances is not None or not per_distance
    achieved, pair = (None, None)
    if known and count > 1 and z.size * count <= MAX_COMPARISONS:
        achieved, pair = _steepest(channel, z, per_distance=per_distance)
    claimed = None if guarantee.epsilon is None else float(guarantee.epsilon)
    drawn = None if pair is None else _sampled(channel, release, pair, per_distance=per_distance)
    return {
        "epsilon": {"claimed": claimed, "achieved": achieved, "unit": guarantee.unit},
        "bayes_error": bayes_error(z, prior),
        "entropy_bits": entropy_bits(z, prior),
        "statistical": drawn,
    }


def bayes_error(probabilities: Floats, prior: Floats) -> float:
    """Return the probability that an attacker who guesses the likeliest record of each output is wrong.

    Args:
        probabilities: (N, K).
        prior: (N,) summing to 1.
    """
    best = np.zeros(probabilities.shape[1])
    for part in slices(probabilities.shape[1], len(probabilities), BLOCK):
        best[part] = (prior[:, None] * probabilities[:, part]).max(axis=0)
    return float(min(1.0, max(0.0, 1.0 - math.fsum(best.tolist()))))


def entropy_bits(probabilities: Floats, prior: Floats) -> float:
    """Return the entropy of the released output under the prior, in bits.

    Args:
        probabilities: (N, K).
        prior: (N,) summing to 1.
    """
    marginal = prior @ probabilities
    positive = marginal[marginal > 0]
    return float(max(0.0, -(positive * np.log2(positive)).sum()))


def _apart(channel: Channel, row: int, *, per_distance: bool) -> Floats:
    """Return the distances of a secret to all secrets; 1 where the claim is for any two."""
    if not per_distance or channel.distances is None:
        return np.ones(len(channel.inputs))
    return np.asarray(channel.distances(np.array([row]))[0], dtype=np.float64)


def _steepest(channel: Channel, z: Floats, *, per_distance: bool) -> tuple[float, tuple[int, int]]:
    """Return the greatest log ratio over distance, and the secrets that have it.

    It is infinite where a report is possible for one secret alone, or where secrets at distance 0 differ.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(z)
    greatest, pair = 0.0, (0, 1)
    for row in range(len(z) - 1):
        spread = np.zeros(len(z) - row - 1)
        for part in slices(len(spread), z.shape[1], BLOCK):
            with np.errstate(invalid="ignore"):
                apart = np.abs(logs[row + 1 + part.start : row + 1 + part.stop] - logs[row])
            apart[np.isnan(apart)] = 0.0  # impossible for both
            spread[part] = apart.max(axis=1, initial=0.0)
        far = _apart(channel, row, per_distance=per_distance)[row + 1 :]
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(spread > 0, spread / far, 0.0)
        worst = int(slope.argmax())
        if slope[worst] > greatest:
            greatest, pair = float(slope[worst]), (row, row + 1 + worst)
    return greatest, pair


def _sampled(channel: Channel, release: Release, pair: tuple[int, int], *, per_distance: bool) -> dict[str, Any] | None:
    """Return a lower bound on epsilon from draws alone, for two secrets; None where the release draws nothing."""
    if type(release).sample is Release.sample:
        return None
    numbers = {name: number for number, name in enumerate(channel.outputs)}
    one, two = (str(channel.inputs[row]) for row in pair)
    drawn = [
        np.array([numbers.setdefault(report, len(numbers)) for report in release.sample(name, SECRET_DRAWS)])
        for name in (one, two)
    ]
    far = float(_apart(channel, pair[0], per_distance=per_distance)[pair[1]])
    return attack_two(drawn, [one, two], far)


def attack_two(drawn: Sequence[Ints], names: Sequence[str], far: float) -> dict[str, Any]:
    """Return a lower bound on epsilon from draws alone.

    Args:
        drawn: reports of each of two secrets, as many of both.
        names: of the secrets.
        far: their distance; 1 where the claim is for any two.
    """
    least = epsilon_lower(drawn[0], drawn[1], ATTACK_CONFIDENCE)
    if least > 0:  # at distance 0 any difference is one too many
        least = least / far if far > 0 else math.inf
    return {
        "epsilon_lower": least,
        "confidence": ATTACK_CONFIDENCE,
        "draws": 2 * len(drawn[0]),
        "records": list(names),
    }
