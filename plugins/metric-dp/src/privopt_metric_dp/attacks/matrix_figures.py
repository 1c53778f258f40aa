"""Metrics for the audit of a matrix: achieved epsilon, violations, and a lower bound on epsilon from samples.

The audit does not rely on any claim in a release. It uses probabilities as doubles (weights / 2**63), so its results
are approximate. Only the certificate decides whether the guarantee is satisfied.
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

#: A block of pairs: the indices (B, 2) of their records, and their distances (B,).
PairBlock = tuple[Ints, Floats]

_PAIRS = 1 << 16
"""Maximum number of pairs in a block, unless a single record has more pairs."""
_CELLS = 1 << 22
"""Maximum number of pairs times outputs that are compared at once."""

EQUAL: Final = 2.0**-49
"""The largest log ratio between equal rows that rounding their probabilities to doubles can cause."""

RECORD_DRAWS: Final = 100_000
"""Number of samples from each of the two records that the statistical attack compares."""

_SEEDS: Final = (101, 102)
"""The seeds with which the samples are drawn, one for each of the two records."""

MAX_CHOSEN_PAIRS: Final = 20_000
"""Approximate maximum number of pairs among which the two records for the statistical attack are chosen."""


@frozen(kw_only=True)
class Violations:
    """Statistics of violated privacy constraints, called Geo-Ind violations in LR-Geo (Equations (34) and (35)).

    Let z be the obfuscation matrix. For records i and j at distance d and each output k, the constraints are ``z_ik <=
    exp(eps d) z_jk`` and, in the other direction, ``z_jk <= exp(eps d) z_ik``.

    Attributes:
        ratio: The share of constraints that are violated.
        error: The largest ``z_ik - exp(eps d) z_jk`` over the violated constraints; 0 if there are none.
        mean_error: The mean ``z_ik - exp(eps d) z_jk`` over the violated constraints; 0 if there are none.
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
    """Yield all pairs of records i < j in lexicographic order, block by block, with their distances.

    Args:
        records: The number of records.
        distance: A function that takes two index arrays of the same length and returns the distance between each record
            in the first array and the corresponding record in the second.
        block: The maximum number of pairs in a block, unless a single record has more pairs.
    """
    start = 0
    while start < records - 1:
        stop, count = start, 0
        # A block contains all pairs (i, j) for some records i. Record `stop` has records - 1 - stop such pairs.
        while stop < records - 1 and (count == 0 or count + records - 1 - stop <= block):
            count += records - 1 - stop
            stop += 1
        lengths = np.arange(records - 1 - start, records - 1 - stop, -1)
        left_rows = np.repeat(np.arange(start, stop), lengths)
        # Record i is paired with i + 1, i + 2, ...: the position within its run, plus i + 1.
        right_rows = np.arange(count) - np.repeat(np.cumsum(lengths) - lengths, lengths) + left_rows + 1
        pairs = np.stack([left_rows, right_rows], axis=1)
        yield pairs, np.asarray(distance(left_rows, right_rows), dtype=np.float64)
        start = stop


def achieved_epsilon(probabilities: Floats, blocks: Iterable[PairBlock]) -> float:
    """Return the largest |log(z_ik / z_jk)| / d over the given pairs (i, j) at distance d and all outputs k.

    The result is infinite if exactly one of the two probabilities is 0, or if two records at distance 0 have different
    rows.

    Args:
        probabilities: Array of shape (N, K) with the probabilities z.
        blocks: Blocks of pairs and their distances d. They should include pairs that the guarantee does not cover,
            because an attacker can compare the records in those pairs too.
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

    Let d be the distance between records i and j. For each output k, a given pair has a constraint in each direction.

    Args:
        probabilities: Array of shape (N, K) with the probabilities z.
        blocks: Blocks of pairs to check, and their distances d.
        epsilon: Epsilon per unit of distance.
        tolerance: The largest excess, relative to z_ik, that counts as a rounding error rather than as a violation.
    """
    violated = checked = 0
    max_excess = sum_of_excess = 0.0
    for pairs, distances in blocks:
        with np.errstate(over="ignore"):
            growth = np.exp(epsilon * distances)[:, None]
        for columns in slices(probabilities.shape[1], len(pairs), _CELLS):
            left_rows, right_rows = probabilities[pairs[:, 0], columns], probabilities[pairs[:, 1], columns]
            # Each pair has an inequality in either direction.
            for a, b in ((left_rows, right_rows), (right_rows, left_rows)):
                with np.errstate(invalid="ignore"):
                    # If b is 0, so is the bound. The product would be NaN for an infinite factor.
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
    """Return the metrics that ``privopt audit`` shows: what an attacker gains from a matrix, and its expected loss.

    ``epsilon.achieved`` covers all pairs of records, required or not, and is stated per unit of distance. ``gv``
    (:class:`Violations`) covers the pairs that the certificate checks. If the guarantee covers a region,
    ``epsilon.achieved`` covers any two points in the region, and ``gv`` covers the edges between vertices. Points are
    snapped to random vertices before reports are drawn.

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
        # The log-ratio between the ends of a path is at most the sum of the log-ratios along it. So if the metric
        # states pairs that imply all others, these have the same maximum as all pairs.
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
    """Return a lower bound on epsilon, estimated from sampled reports of two records, for the audit.

    Among up to about ``MAX_CHOSEN_PAIRS`` pairs, the attack selects the pair of records whose rows differ most relative
    to their distance. The result is None if no pair has a positive distance.
    """
    separate_pairs = np.flatnonzero(release.distances > 0)
    if not separate_pairs.size:
        return None
    z = release.probabilities
    # Pairs at regular steps through the list, so that about `MAX_CHOSEN_PAIRS` of them are compared.
    candidates = separate_pairs[:: max(1, separate_pairs.size // MAX_CHOSEN_PAIRS)]
    i, j = release.pairs[candidates].T
    differences = np.abs(z[i] - z[j]).sum(axis=1) / release.distances[candidates]
    # The pair is chosen by the weights rather than by the samples, so the bound's confidence level needs no correction
    # for the choice.
    worst_pair = candidates[int(differences.argmax())]
    i, j = release.pairs[worst_pair].tolist()
    # With fixed seeds, audit, the report page and the papers state the same bound.
    ends = zip((i, j), _SEEDS, strict=True)
    samples = [draw(release.weights[end], RECORD_DRAWS, source=make_source(seed)) for end, seed in ends]
    return attack_two(samples, [str(release.records[end]) for end in (i, j)], float(release.distances[worst_pair]))
