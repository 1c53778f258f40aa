"""Metrics for the audit of a matrix, such as the achieved epsilon, violations, and a lower bound from samples.

The audit does not rely on any claims in a release. It represents probabilities as doubles (weights / 2**63), so its
results are approximate. Only the certificate decides whether the guarantee is met.
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
from privopt.numbers.sampling import draw, make_source
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

#: A block of pairs: an array of shape (B, 2) with record indices, and one of shape (B,) with distances.
PairBlock = tuple[Ints, Floats]

_PAIRS = 1 << 16
"""The maximum number of pairs in a block, unless a single record has more pairs."""
_CELLS = 1 << 22
"""The maximum number of comparisons (pairs times outputs) to hold in memory at once."""

EQUAL: Final = 2.0**-49
"""The largest log ratio between equal rows that can result from rounding their probabilities to doubles."""

RECORD_DRAWS: Final = 100_000
"""The number of samples from each of the two records compared in the statistical attack."""

_SEEDS: Final = (101, 102)
"""The seeds of the samples, one for each of the two records."""

MAX_CHOSEN_PAIRS: Final = 20_000
"""The approximate maximum number of pairs from which the statistical attack chooses its two records."""


@frozen(kw_only=True)
class Violations:
    """Statistics on violated privacy constraints, called Geo-Ind violations in LR-Geo (Equations (34) and (35)).

    For an obfuscation matrix z, records i and j at distance d, and an output k, the constraints are
    ``z_ik <= exp(eps d) z_jk`` and, in the other direction, ``z_jk <= exp(eps d) z_ik``.

    Attributes:
        ratio: The share of constraints that are violated.
        error: The largest ``z_ik - exp(eps d) z_jk`` over the violated constraints, or 0 if there are none.
        mean_error: The mean ``z_ik - exp(eps d) z_jk`` over the violated constraints, or 0 if there are none.
        violated: The number of violated constraints.
        checked: The number of constraints that were checked.
    """

    ratio: float
    error: float
    mean_error: float
    violated: int
    checked: int


def pair_blocks(
    records: int, distance: Callable[[Ints, Ints], ArrayLike], *, block: int = _PAIRS
) -> Iterable[PairBlock]:
    """Yield all pairs of records i < j in lexicographic order with their distances, in blocks.

    Args:
        records: The number of records.
        distance: A function that takes two index arrays of the same length and returns the distances between
            corresponding records.
        block: The maximum number of pairs in a block. A record that has more pairs gets a block of its own.
    """
    start = 0
    while start < records - 1:
        stop, count = start, 0
        # A block contains all pairs (i, j) with i < j for some records i. Record `stop` has records - 1 - stop of them.
        while stop < records - 1 and (count == 0 or count + records - 1 - stop <= block):
            count += records - 1 - stop
            stop += 1
        lengths = np.arange(records - 1 - start, records - 1 - stop, -1)
        left_rows = np.repeat(np.arange(start, stop), lengths)
        # Record i is paired with i + 1, i + 2, ..., so the second index is i + 1 plus the position within its run.
        right_rows = np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths) + left_rows + 1
        pairs = np.stack([left_rows, right_rows], axis=1)
        yield pairs, np.asarray(distance(left_rows, right_rows), dtype=np.float64)
        start = stop


def achieved_epsilon(probabilities: Floats, blocks: Iterable[PairBlock]) -> float:
    """Return the largest |log(z_ik / z_jk)| / d over the given pairs (i, j) at distance d and all outputs k.

    The result is infinite if exactly one of two compared probabilities is 0, or if two records at distance 0 have
    different rows.

    Args:
        probabilities: Array of shape (N, K) with the probabilities z.
        blocks: Blocks of pairs with their distances d. They should include pairs not covered by the guarantee, because
            an attacker can compare these as well.
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
    """Count the violated constraints z_ik <= exp(eps d) z_jk (LR-Geo, Equations (34) and (35)).

    Here d is the distance between records i and j. A pair has two constraints for each output k, one in each direction.

    Args:
        probabilities: Array of shape (N, K) with the probabilities z.
        blocks: Blocks of pairs to check with their distances d.
        epsilon: Epsilon per unit of distance.
        tolerance: The largest excess, relative to z_ik, that counts as a rounding error rather than a violation.
    """
    violated = checked = 0
    max_excess = sum_of_excess = 0.0
    for pairs, distances in blocks:
        with np.errstate(over="ignore"):
            growth = np.exp(epsilon * distances)[:, None]
        for columns in slices(probabilities.shape[1], len(pairs), _CELLS):
            left_rows, right_rows = probabilities[pairs[:, 0], columns], probabilities[pairs[:, 1], columns]
            # Each pair has a constraint in either direction.
            for a, b in ((left_rows, right_rows), (right_rows, left_rows)):
                with np.errstate(invalid="ignore"):
                    # If b is 0, so is the bound, but the product would be NaN if the factor is infinite.
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
    """Compute the metrics shown by ``privopt audit``: what an attacker gains from a matrix, and the matrix's loss.

    ``epsilon.achieved`` is the smallest epsilon per unit of distance that holds for all pairs of records, required or
    not. ``gv`` (:class:`Violations`) refers to the pairs checked by the certificate. If the guarantee covers a region,
    whose points are snapped to random vertices before reports are drawn, ``epsilon.achieved`` holds for any two points
    of the region, and ``gv`` refers to the edges between vertices.

    Args:
        release: The release, with a row for every record.
        data: The data of the problem.
        loss: The loss to evaluate on the release.

    Returns:
        The metrics by name. Probabilities are between 0 and 1, and the entropy is in bits.
    """
    z, prior = release.probabilities, data.prior
    if data.region is not None:
        from privopt_metric_dp.matrix.certify_region import max_snapping_epsilon

        achieved = max_snapping_epsilon(release.weights, data.region, data.epsilon)
        release = release.along_edges(data)
    else:
        # The log-ratio between the ends of a path is at most the sum of the log-ratios along it. If the metric knows
        # pairs that imply all others, the maximum over these is therefore the maximum over all pairs.
        implying_pairs = data.metric.implying()
        blocks = pair_blocks(len(release.records), data.metric.between) if implying_pairs is None else [implying_pairs]
        achieved = achieved_epsilon(z, blocks)
    violations = count_violations(z, [(release.pairs, release.distances)], float(data.epsilon))
    return {
        "epsilon": {"claimed": float(data.epsilon), "achieved": achieved, "unit": f"per {data.unit}"},
        "gv": {"ratio": violations.ratio, "error": violations.error},
        "bayes_error": bayes_error(z, prior),
        "expected_loss": loss.evaluate(release),
        "entropy_bits": entropy_bits(z, prior),
        "statistical": _attack_by_samples(release),
    }


def _attack_by_samples(release: MatrixRelease) -> dict[str, Any] | None:
    """Estimate a lower bound on epsilon by comparing sampled reports from two records.

    At most about ``MAX_CHOSEN_PAIRS`` pairs are considered, taken at regular intervals from the list of pairs. The two
    records are the pair whose rows differ most relative to the distance between the records. The result is None if no
    pair has a positive distance.
    """
    separate_pairs = np.flatnonzero(release.distances > 0)
    if not separate_pairs.size:
        return None
    z = release.probabilities
    # Regular steps through the list leave about `MAX_CHOSEN_PAIRS` pairs to compare.
    candidates = separate_pairs[:: max(1, separate_pairs.size // MAX_CHOSEN_PAIRS)]
    i, j = release.pairs[candidates].T
    differences = np.abs(z[i] - z[j]).sum(axis=1) / release.distances[candidates]
    # The choice depends on the weights and not on the samples, so the bound's confidence level needs no correction for
    # it.
    worst_pair = candidates[int(differences.argmax())]
    i, j = release.pairs[worst_pair].tolist()
    # With fixed seeds, the audit, the report page and the papers show the same bound.
    ends = zip((i, j), _SEEDS, strict=True)
    samples = [draw(release.weights[end], RECORD_DRAWS, source=make_source(seed)) for end, seed in ends]
    return attack_two(samples, [str(release.records[end]) for end in (i, j)], float(release.distances[worst_pair]))
