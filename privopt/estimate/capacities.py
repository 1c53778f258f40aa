"""Leakage of a channel by quantitative information flow: an attacker's gain before and after a report.

After Alvim, Chatzikokolakis, McIver, Morgan, Palamidessi and Smith, The Science of Quantitative Information Flow, 2020
(chapters 3 to 7); libqif computes the same figures. Channels are (N, K), priors (N,), gains (W, N): what guess w earns
where record i is the truth.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, slices
from privopt.errors import SolverError

__all__ = [
    "Vulnerability",
    "error_beyond",
    "min_capacity_bits",
    "min_entropy_leakage_bits",
    "shannon_capacity_bits",
    "vulnerability",
]

BLOCK: Final = 1 << 24
"""Entries of a block, at most."""


@frozen(kw_only=True)
class Vulnerability:
    """What an attacker's best guess earns.

    Attributes:
        prior: without a report.
        posterior: with one, expected.
    """

    prior: float
    posterior: float

    @property
    def leakage_bits(self) -> float:
        """log2 of their ratio; infinite where only a report makes any gain, 0 where nothing does."""
        if self.prior > 0:
            return math.log2(self.posterior / self.prior) if self.posterior > 0 else -math.inf
        return math.inf if self.posterior > 0 else 0.0


def vulnerability(channel: Floats, prior: Floats, gains: Floats) -> Vulnerability:
    """Return the g-vulnerability before and after a report: max_w sum_i p_i g_wi, and sum_k max_w sum_i p_i z_ik g_wi.

    Args:
        channel: (N, K).
        prior: (N,) summing to 1.
        gains: (W, N).
    """
    weighted = gains * prior
    best = [(weighted @ channel[:, part]).max(axis=0) for part in slices(channel.shape[1], len(gains), BLOCK)]
    return Vulnerability(prior=float(weighted.sum(axis=1).max()), posterior=math.fsum(np.concatenate(best).tolist()))


def min_entropy_leakage_bits(channel: Floats, prior: Floats) -> float:
    """log2 of how much likelier the best guess of the record is right with a report than without."""
    found = math.fsum((prior[:, None] * channel).max(axis=0).tolist())
    return math.log2(found / float(prior.max()))


def min_capacity_bits(channel: Floats) -> float:
    """Return the greatest min-entropy leakage of any prior, and g-leakage of any gain: log2 sum_k max_i z_ik."""
    return math.log2(math.fsum(channel.max(axis=0).tolist()))


def shannon_capacity_bits(channel: Floats, *, gap: float = 1e-9, steps: int = 200_000) -> float:
    """Return the greatest mutual information of record and report, in bits (accelerated Blahut-Arimoto).

    Args:
        channel: (N, K).
        gap: how far it may be below the truth, in bits.
        steps: of the method, at most.
    """
    z = channel[:, channel.any(axis=0)]
    with np.errstate(divide="ignore", invalid="ignore"):
        own = np.where(z > 0, z * np.log2(z), 0.0).sum(axis=1)
    p, power = np.full(len(z), 1.0 / len(z)), 1.0
    before = -math.inf
    for _ in range(steps):
        worth = own - z @ np.log2(p @ z)
        low, high = float(p @ worth), float(worth.max())
        if high - low <= gap:
            return max(0.0, low)
        power = min(power * 1.1, 64.0) if low >= before else 1.0  # power 1 never falls
        before = low
        p = p * np.exp2(power * (worth - high))
        p /= p.sum()
    raise SolverError(f"the capacity's gap is {high - low:.3g} bits after {steps:,} steps, wanted {gap:g}")


def error_beyond(channel: Floats, prior: Floats, distances: Floats, radius: float) -> float:
    """Return the probability that the best guess of a place is farther than a radius from the truth.

    Args:
        channel: (N, K).
        prior: (N,) summing to 1.
        distances: (N, N) between records, which are what is guessed.
        radius: in their unit; 0 for the record itself.
    """
    found = vulnerability(channel, prior, (distances <= radius).astype(np.float64))
    return min(1.0, max(0.0, 1.0 - found.posterior))
