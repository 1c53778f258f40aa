"""The figures of a matrix's audit, from arrays: achieved epsilon, violations, what its draws alone prove.

Nothing here trusts a claim. Probabilities are doubles (of weights / 2**63); verdicts are for the certificate to give.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike

from privopt.arrays import Floats, Ints, slices
from privopt.interfaces import UtilityLoss
from privopt.numbers.sampling import draw
from privopt.run.attack_channel import attack_two, bayes_error, entropy_bits
from privopt_metric_dp.matrix.certify import max_log_ratios
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = [
    "Violations",
    "achieved_epsilon",
    "audit_matrix",
    "pair_blocks",
    "violations",
]

#: Pairs (B, 2) and their distances (B,).
PairBlock = tuple[Ints, Floats]

_PAIRS = 1 << 16
_CELLS = 1 << 22

EQUAL: Final = 2.0**-49
"""Log-ratio up to which rows in doubles are equal."""

RECORD_DRAWS: Final = 100_000
"""Draws for each of the two records that the statistical attack compares."""

MAX_CHOSEN_PAIRS: Final = 20_000
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
    """Yield all pairs i < j of ``records`` in blocks, in lexicographic order.

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
    """Return the greatest |log z_ik / z_jk| / d over the pairs of all blocks and all outputs.

    It is infinite if 0 meets a positive probability, or records at distance 0 differ. Pass every pair, also those that
    no guarantee covers: this is what an attacker sees.

    Args:
        probabilities: (N, K).
        blocks: pairs and distances, in any cut.
    """
    greatest = 0.0
    for pairs, distances in blocks:
        spread, apart = max_log_ratios(probabilities, pairs), distances > 0
        if (spread[~apart] > EQUAL).any():
            return math.inf
        greatest = max(greatest, float((spread[apart] / distances[apart]).max(initial=0.0)))
    return greatest


def violations(
    probabilities: Floats, blocks: Iterable[PairBlock], epsilon: float, *, tolerance: float = 1e-12
) -> Violations:
    """Return GV ratio and GV error over the given pairs (LR-Geo, Equations (34) and (35)).

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


def audit_matrix(release: MatrixRelease, data: MetricData, loss: UtilityLoss[MatrixRelease]) -> dict[str, Any]:
    """Return an attacker's gain from a matrix, and its cost by the mechanism's own loss.

    ``epsilon.achieved`` is over every pair of records, also those that are not required, per unit of
    distance; GV ratio and error (LR-Geo, Equations (34) and (35)) are over the required pairs. With a region it is over
    any two of its points, as positions are snapped, and the others are over the edges between its vertices.
    """
    z, prior = release.probabilities, data.prior
    if data.region is not None:
        from privopt_metric_dp.matrix.certify_region import max_snapping_epsilon

        achieved = max_snapping_epsilon(release.weights, data.region, data.epsilon)
        release = release.along_edges(data)
    else:
        few = data.metric.implying()  # along a way log ratios add up as its lengths do
        blocks = pair_blocks(len(release.records), data.metric.between) if few is None else [few]
        achieved = achieved_epsilon(z, blocks)
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
    """Return a lower bound on epsilon from draws alone, for the pair whose rows differ most for its distance."""
    apart = np.flatnonzero(release.distances > 0)
    if not apart.size:
        return None
    z = release.probabilities
    chosen = apart[:: max(1, apart.size // MAX_CHOSEN_PAIRS)]
    i, j = release.pairs[chosen].T
    spread = np.abs(z[i] - z[j]).sum(axis=1) / release.distances[chosen]
    worst = chosen[int(spread.argmax())]
    i, j = release.pairs[worst].tolist()
    drawn = [draw(release.weights[end], RECORD_DRAWS) for end in (i, j)]
    return attack_two(drawn, [str(release.records[end]) for end in (i, j)], float(release.distances[worst]))
