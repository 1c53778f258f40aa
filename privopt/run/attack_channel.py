"""Attacks on releases with a public channel: measured epsilon, Bayes error, entropy, and an attack on samples.

A channel is a matrix that gives the probability of each report for each secret. Epsilon is the largest log ratio
between the probabilities of the same report for two secrets, per unit of distance between the secrets. The Bayes error
is the probability that the best guess, the most likely secret, is wrong. The attack on samples derives a lower bound on
epsilon from reports drawn for the two secrets with the largest ratio.
"""

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
"""The maximum number of comparisons between two probabilities when all pairs of secrets are compared.

If there are more, epsilon is not measured. This many comparisons take about 4 s on one core. For 500 secrets and 500
reports, the comparisons took 0.12 s.
"""

BLOCK: Final = 1 << 22
"""The number of probabilities compared at once, which limits memory use."""

ATTACK_CONFIDENCE: Final = 0.999
"""The confidence level of the lower bound on epsilon in the attack on samples."""
SECRET_DRAWS: Final = 20_000
"""The number of reports drawn for each of the two secrets in the attack on samples."""


def attack_channel(channel: Channel, release: Release, guarantee: Guarantee) -> dict[str, Any]:
    """Return the metrics of ``privopt audit --json`` that can be computed from a channel.

    Args:
        channel: The release's channel, which gives the probability of each report for each secret.
        release: The release. If reports can be drawn from it, they are attacked as well.
        guarantee: The claimed guarantee. Its epsilon applies either per unit of distance or to any two secrets.

    Returns:
        A dictionary with the keys ``epsilon``, ``bayes_error``, ``entropy_bits`` and ``statistical``. Within
        ``epsilon``, ``achieved`` is None if there is only one secret, if there are too many pairs to compare, or if the
        claim is per unit of distance and the distances are unknown.
    """
    z = np.asarray(channel.probabilities, dtype=np.float64)
    count = len(z)
    prior = np.full(count, 1.0 / count) if channel.prior is None else np.asarray(channel.prior, dtype=np.float64)
    # The unit of local DP can also begin with "per" ("per person"), but its epsilon applies to any two secrets.
    per_distance = guarantee.unit.startswith("per ") and guarantee.kind != LocalDP.kind
    is_measurable = channel.distances is not None or not per_distance
    achieved, pair = (None, None)
    if is_measurable and count > 1 and z.size * count <= MAX_COMPARISONS:
        achieved, pair = _find_max_slope(channel, z, per_distance=per_distance)
    claimed_epsilon = None if guarantee.epsilon is None else float(guarantee.epsilon)
    statistical_attack = (
        None if pair is None else _attack_by_sampling(channel, release, pair, per_distance=per_distance)
    )
    return {
        "epsilon": {"claimed": claimed_epsilon, "achieved": achieved, "unit": guarantee.unit},
        "bayes_error": bayes_error(z, prior),
        "entropy_bits": entropy_bits(z, prior),
        "statistical": statistical_attack,
    }


def bayes_error(probabilities: Floats, prior: Floats) -> float:
    """Return the probability that an attacker who guesses the most likely record for each output is wrong.

    Args:
        probabilities: (N, K) The probability of each output given each record.
        prior: (N,) The probability of each record, summing to 1.
    """
    # 1 - sum over outputs of max over secrets of prior times probability, in blocks to limit memory use.
    best = np.zeros(probabilities.shape[1])
    for part in slices(probabilities.shape[1], len(probabilities), BLOCK):
        best[part] = (prior[:, None] * probabilities[:, part]).max(axis=0)
    return float(min(1.0, max(0.0, 1.0 - math.fsum(best.tolist()))))


def entropy_bits(probabilities: Floats, prior: Floats) -> float:
    """Return the Shannon entropy, in bits, of the released output when the record is drawn from the prior.

    Args:
        probabilities: (N, K) The probability of each output given each record.
        prior: (N,) The probability of each record, summing to 1.
    """
    marginal = prior @ probabilities
    # Outputs of probability 0 contribute 0 by convention, although their logarithm is not finite.
    positive = marginal[marginal > 0]
    return float(max(0.0, -(positive * np.log2(positive)).sum()))


def _distances_from(channel: Channel, row: int, *, per_distance: bool) -> Floats:
    """Return the distances from a secret to all secrets, as an array of shape (N,).

    Args:
        channel: The channel.
        row: The secret's row index.
        per_distance: Whether the claim is per unit of distance. If not, or if the channel has no distances, every
            distance counts as 1.
    """
    if not per_distance or channel.distances is None:
        return np.ones(len(channel.inputs))
    return np.asarray(channel.distances(np.array([row]))[0], dtype=np.float64)


def _find_max_slope(channel: Channel, z: Floats, *, per_distance: bool) -> tuple[float, tuple[int, int]]:
    """Return the largest log ratio per unit of distance, and the row indices of the two secrets that attain it.

    A log ratio compares the probabilities of the same report for two secrets. It is infinite if the report is possible
    for only one of them. The ratio per unit of distance is also infinite if two secrets at distance 0 have different
    probabilities.

    Args:
        channel: The channel, which provides the distances.
        z: (N, K) The channel's probabilities.
        per_distance: Whether the claim is per unit of distance. If not, every distance counts as 1.
    """
    with np.errstate(divide="ignore"):
        logs = np.log(z)
    greatest, pair = 0.0, (0, 1)
    # The absolute log ratio is symmetric, so each pair is compared only once.
    for row in range(len(z) - 1):
        spread = np.zeros(len(z) - row - 1)
        for part in slices(len(spread), z.shape[1], BLOCK):
            with np.errstate(invalid="ignore"):
                log_ratios = np.abs(logs[row + 1 + part.start : row + 1 + part.stop] - logs[row])
            log_ratios[np.isnan(log_ratios)] = 0.0  # from -inf minus -inf: the report is impossible for both secrets
            spread[part] = log_ratios.max(axis=1, initial=0.0)
        distances = _distances_from(channel, row, per_distance=per_distance)[row + 1 :]
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(spread > 0, spread / distances, 0.0)
        steepest = int(slope.argmax())
        if slope[steepest] > greatest:
            greatest, pair = float(slope[steepest]), (row, row + 1 + steepest)
    return greatest, pair


def _attack_by_sampling(
    channel: Channel, release: Release, pair: tuple[int, int], *, per_distance: bool
) -> dict[str, Any] | None:
    """Draw reports for two secrets, and return the audit's ``statistical`` entry, a lower bound on epsilon.

    Returns None if reports cannot be drawn from the release.

    Args:
        channel: The channel, which provides the names of the secrets and reports.
        release: The release to draw reports from.
        pair: The row indices of the two secrets.
        per_distance: Whether the claim is per unit of distance.
    """
    # A release that does not override the method of the base class cannot be sampled.
    if type(release).sample is Release.sample:
        return None
    # Reports that the channel does not list are given indices too, because the attack should notice this fault.
    numbers = {name: number for number, name in enumerate(channel.outputs)}
    first_name, second_name = (str(channel.inputs[row]) for row in pair)
    reports_by_secret = [
        np.array([numbers.setdefault(report, len(numbers)) for report in release.sample(name, SECRET_DRAWS)])
        for name in (first_name, second_name)
    ]
    distance = float(_distances_from(channel, pair[0], per_distance=per_distance)[pair[1]])
    return attack_two(reports_by_secret, [first_name, second_name], distance)


def attack_two(reports_by_secret: Sequence[Ints], names: Sequence[str], distance: float) -> dict[str, Any]:
    """Return the audit's ``statistical`` entry: a lower bound on epsilon from reports drawn for two secrets.

    Args:
        reports_by_secret: The reports drawn for each of the two secrets, as output indices. Both arrays have the same
            length.
        names: The names of the two secrets.
        distance: The distance between the secrets, or 1 if the claim applies to any two secrets.
    """
    lower_bound = epsilon_lower(reports_by_secret[0], reports_by_secret[1], ATTACK_CONFIDENCE)
    # Secrets at distance 0 must have equally distributed reports, so any difference refutes every epsilon.
    if lower_bound > 0:
        lower_bound = lower_bound / distance if distance > 0 else math.inf
    return {
        "epsilon_lower": lower_bound,
        "confidence": ATTACK_CONFIDENCE,
        "draws": 2 * len(reports_by_secret[0]),
        "records": list(names),
    }
