"""Figures for the audit of a matrix: achieved epsilon, violations, and the epsilon that its samples prove.

No claim is trusted. Probabilities are doubles (weights / 2**63), so these are figures, and the certificate decides.
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
    "count_violations",
    "pair_blocks",
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
        ratio: share of violated inequalities; each pair and output counts twice, once in each direction.
        error: largest ``z_ik - exp(eps d) z_jk`` of the violated inequalities; 0 if there is none.
        mean_error: mean of the same; 0 if there is none.
        violated: number of violated inequalities.
        checked: number of inequalities.
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
        left_rows = np.repeat(np.arange(start, stop), lengths)
        right_rows = np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths) + left_rows + 1
        pairs = np.stack([left_rows, right_rows], axis=1)
        yield pairs, np.asarray(distance(left_rows, right_rows), dtype=np.float64)
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
        log_ratios, is_separate = max_log_ratios(probabilities, pairs), distances > 0
        if (log_ratios[~is_separate] > EQUAL).any():
            return math.inf
        greatest = max(greatest, float((log_ratios[is_separate] / distances[is_separate]).max(initial=0.0)))
    return greatest


def count_violations(
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
    max_excess = sum_of_excess = 0.0
    for pairs, distances in blocks:
        with np.errstate(over="ignore"):
            growth = np.exp(epsilon * distances)[:, None]
        for columns in slices(probabilities.shape[1], len(pairs), _CELLS):
            left_rows, right_rows = probabilities[pairs[:, 0], columns], probabilities[pairs[:, 1], columns]
            for a, b in ((left_rows, right_rows), (right_rows, left_rows)):
                with np.errstate(invalid="ignore"):
                    excess = a - np.where(b > 0, growth * b, 0.0)
                violating = excess[excess > tolerance * a]
                checked += excess.size
                violated += violating.size
                max_excess = max(max_excess, float(violating.max(initial=0.0)))
                sum_of_excess += float(violating.sum())
    return Violations(
        ratio=violated / checked if checked else 0.0,
        error=max_excess,
        mean_error=sum_of_excess / violated if violated else 0.0,
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
    found = count_violations(z, [(release.pairs, release.distances)], float(data.epsilon))
    return {
        "epsilon": {"claimed": float(data.epsilon), "achieved": achieved, "unit": f"per {data.unit}"},
        "gv": {"ratio": found.ratio, "error": found.error},
        "bayes_error": bayes_error(z, prior),
        "expected_loss": loss.evaluate(release),
        "entropy_bits": entropy_bits(z, prior),
        "statistical": _attack_by_samples(release),
    }


def _attack_by_samples(release: MatrixRelease) -> dict[str, Any] | None:
    """Return a lower bound on epsilon from samples of the pair whose rows differ most relative to its distance."""
    separate_pairs = np.flatnonzero(release.distances > 0)
    if not separate_pairs.size:
        return None
    z = release.probabilities
    candidates = separate_pairs[:: max(1, separate_pairs.size // MAX_CHOSEN_PAIRS)]
    i, j = release.pairs[candidates].T
    differences = np.abs(z[i] - z[j]).sum(axis=1) / release.distances[candidates]
    worst_pair = candidates[int(differences.argmax())]
    i, j = release.pairs[worst_pair].tolist()
    samples = [draw(release.weights[end], RECORD_DRAWS) for end in (i, j)]
    return attack_two(samples, [str(release.records[end]) for end in (i, j)], float(release.distances[worst_pair]))
