"""Repair a solver's matrix by turning it into integer weights that can be certified.

A solver satisfies its constraints only to about 1e-7. It may return 0 for an entry that should be 1e-9, which makes a
ratio infinite. The repair turns the matrix into a mechanism whose rows sum to exactly 2**63, and certifies it.

A matrix that satisfies every inequality after rounding is not changed any further (see :func:`_round_if_private`). Any
other matrix is repaired in these steps:

1. Two records at a distance d get equal rows if eps d < 1e-6 (:func:`.merge_records`).
2. The max-times closure raises entries until the constraints hold at eps' = eps (1 - tau) (:mod:`.closure`).
3. Rows are made to sum to 1 again within the cone of the privacy constraints (:func:`_to_sum_one`). Dividing each row
   by its sum could move the matrix out of the cone, because for small eps d the sums differ by more than the slack.
4. Entries are rounded to integers. A closure that rounds up makes the constraints hold between the integers, so even
   weights as small as 1 are possible. The error in a row's sum is distributed over its largest entries in proportion to
   their size. This changes them by a relative amount of at most 1e-13, which tau covers (:func:`_to_integers`).
5. The result is certified. If this fails, tau is raised and steps 2 to 5 are repeated.

If too much mass was moved in step 3, or if no tau leads to a certificate, all steps are repeated with a larger merge
distance (``MERGE_DISTANCES``).

Steps 2 to 4 rely on three facts. First, the columns that satisfy ``z_i <= exp(eps' d_ij) z_j`` for every pair form a
cone, which contains the sums, non-negative multiples and maxima of its elements. Second, an entry of a closed matrix
may be lowered to the largest bound imposed on it by the neighbouring rows. Third, suppose that row sums s_i and a scale
S satisfy ``S >= s_j + (s_j - s_i) / (exp(eps' d_ij) - 1)`` for every pair. Then the deficits r_i = S - s_i are in the
cone. So, for every distribution q, the columns of (z + r q^T) / S are also in the cone, and the rows of this matrix sum
to 1.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats, Ints, Unsigned, read_only
from privopt.errors import CertificationError, SolverError, UsageError
from privopt.execution.clock import check, clock
from privopt.execution.resources import in_threads
from privopt.numbers.sampling import TOTAL
from privopt_metric_dp.matrix.certify import Measurements, certify, certify_in_doubles, check_pairs
from privopt_metric_dp.matrix.closure import Graph, close_matrix, lower_rows
from privopt_metric_dp.matrix.merge_records import MAX_EXPONENT, merge_matrix, merge_records

__all__ = ["RepairedWeights", "repair", "repair_in_doubles", "round_to_weights"]

#: Thresholds on eps d, below which two records get equal rows. Usually only the first one is used. The others are tried
#: if the noise in the matrix exceeds the differences between nearby records, so that too much mass would have to be
#: moved.
MERGE_DISTANCES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
#: If the repair adds at most this share of any row's mass, no larger merge distance is tried.
MOVED_MASS = 1e-7
#: The relative rounding error of sums and products that tau must cover, including a margin.
ROUNDING_ERROR = 2e-14
#: The factor by which tau is raised if the certificate fails, and the largest tau that is tried.
_TAU_FACTOR, _MAX_TAU = 8.0, 0.5
#: The maximum number of coarse rounds, which bring row sums close to 1 even if they are 0 or far from 1.
_COARSE_ROUNDS = 3


@frozen(kw_only=True, eq=False)
class RepairedWeights:
    """Certified integer weights, with details of the repair.

    Attributes:
        weights: (N, K) The weights, as a read-only array of uint64. Each row sums to exactly 2**63.
        tau: The slack, as a fraction of epsilon. Entries were raised until the constraints held at (1 - tau) times
            epsilon. It is 0 if rounding alone was enough.
        merged: The number of records that share the row of an earlier record because the two are too close together.
            Usually, this means that epsilon times their distance is below 1e-6.
        measured: The measurements from the certification of the weights.
        loss_before: The expected loss of the input matrix, with negative entries set to 0 and each row divided by its
            sum. None if no loss was given.
        loss_after: The expected loss of the weights. None if no loss was given.
    """

    weights: Unsigned = field(repr=False)
    tau: float
    merged: int
    measured: Measurements
    loss_before: float | None = None
    loss_after: float | None = None

    @property
    def details(self) -> dict[str, float | None]:
        """The entries of result.json that describe the repair, keyed by name."""
        return {
            "tau": self.tau,
            "loss_before": self.loss_before,
            "loss_after": self.loss_after,
            "merged_records": self.merged,
        }


def repair(
    z: Floats,
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
    *,
    loss: Floats | None = None,
    gap: float = 1e-6,
) -> RepairedWeights:
    """Repair a nearly feasible matrix and turn it into certified integer weights.

    Args:
        z: (N, K) Finite entries, which may be noisy, slightly negative, or 0 where they should be tiny.
        pairs: (P, 2) The record indices of each required pair, in either order. P may be 0.
        distances: (P,) The distance of each pair. The doubles are taken to be exact. Records at distance 0 get equal
            rows.
        epsilon: The exact epsilon, above 0.
        loss: (N, K) The costs times the prior, which determine the entries to lower and the outputs that receive added
            mass. None if they are not known.
        gap: The relative optimality gap requested for the release. The slack tau starts at no more than a thousandth of
            the gap, unless rounding errors require more.

    Returns:
        The weights, with the measurements that certify them.

    Raises:
        SolverError: An entry is not finite.
        CertificationError: Certification failed for every merge distance and every tau that was tried, up to 1/2.
        OutOfTime: The time limit expired during an attempt.
        UsageError: An argument has the wrong shape or is out of range.
    """
    matrix = _check_matrix(z, loss)
    if epsilon <= 0:
        raise UsageError(f"epsilon must be above 0, got {epsilon}")
    pairs, distances = check_pairs(pairs, distances, len(matrix))
    sums = matrix.sum(axis=1)
    loss_before = None if loss is None else _total_loss(loss, matrix, np.where(sums > 0, sums, 1.0))
    # A matrix that is already private is only rounded to integers.
    unchanged = _round_if_private(matrix, pairs, distances, epsilon)
    if unchanged is not None:
        rounded_loss = None if loss is None else _total_loss(loss, unchanged.weights, float(TOTAL))
        return evolve(unchanged, loss_before=loss_before, loss_after=rounded_loss)
    # Larger merge distances are tried as long as each one costs less than the one before.
    best_repair, best_price, last_error = None, np.inf, None
    for merge_distance in MERGE_DISTANCES:
        if best_repair is not None and clock().left == 0.0:
            break
        try:
            candidate, moved_mass = _repair_within(merge_distance, matrix, loss, pairs, distances, epsilon, gap)
        except CertificationError as error:
            # A larger merge distance leaves fewer inequalities between different rows, so it may still lead to a
            # certificate.
            last_error = error
            continue
        # Without a loss, attempts are compared by the mass that they moved.
        price = moved_mass if loss is None else _total_loss(loss, candidate.weights, float(TOTAL))
        if best_repair is not None and price >= best_price:
            break
        best_repair, best_price = candidate, price
        if moved_mass <= MOVED_MASS:
            break
    if best_repair is None:
        raise CertificationError(*last_error.args if last_error else ()) from last_error
    return evolve(best_repair, loss_before=loss_before, loss_after=None if loss is None else best_price)


def _check_matrix(z: Floats, loss: Floats | None) -> Floats:
    """Validate the matrix to repair, and return it with negative entries set to 0.

    Args:
        z: The matrix to repair.
        loss: (N, K) The costs times the prior, or None.

    Raises:
        SolverError: An entry is not finite.
        UsageError: The matrix is empty or not two-dimensional, or the loss has a different shape.
    """
    matrix = np.ascontiguousarray(z, dtype=np.float64)
    if matrix.ndim != 2 or not matrix.size:
        raise UsageError(f"the matrix must have shape (N, K), neither of them 0, got {matrix.shape}")
    if not np.isfinite(matrix).all():
        raise SolverError("the solver returned a matrix with entries that are not finite")
    if loss is not None and loss.shape != matrix.shape:
        raise UsageError(f"loss must have shape {matrix.shape}, got {loss.shape}")
    return np.maximum(matrix, 0.0) if matrix.min() < 0.0 else matrix


def _total_loss(loss: Floats, matrix: Floats | Unsigned, sums: Floats | float) -> float:
    """Return the expected loss of a matrix after its rows are divided by the given sums.

    Args:
        loss: (N, K) The costs times the prior.
        matrix: (N, K) The entries of the matrix, such as integer weights.
        sums: The divisor of each row, of shape (N,), or one divisor for all rows.
    """
    return float((np.einsum("ik,ik->i", loss, matrix) / sums).sum())


def repair_in_doubles(z: Floats, cost: Floats, pairs: Ints, exponents: Floats) -> Floats:
    """Repair a matrix in floating point, without rounding it to integers or certifying it.

    This performs steps 2 and 3 of the module docstring: entries are raised until the privacy constraints hold, and then
    rows are made to sum to 1 without violating the constraints.

    Args:
        z: (N, K) Finite, non-negative entries that nearly satisfy the privacy constraints.
        cost: (N, K) The costs times the prior. The most expensive entries are lowered first.
        pairs: (P, 2) The record indices of distinct required pairs.
        exponents: (P,) Epsilon times the distance of each pair, above 0.

    Returns:
        (N, K) A matrix whose rows sum to 1 and satisfy the privacy constraints at epsilon. A small slack absorbs
        rounding errors.
    """
    graph = Graph(pairs, np.minimum(exponents, MAX_EXPONENT), len(z))
    return _to_sum_one(np.array(z, dtype=np.float64, order="C"), cost, graph, 1e-9)[0]


def round_to_weights(z: Floats) -> Unsigned:
    """Normalise the rows of a matrix and round them to integer weights with row sums of exactly 2**63.

    After rounding, the largest entries of each row are adjusted until its sum is exact.

    Args:
        z: (N, K) Non-negative entries. No row may consist of zeros only.
    """
    weights = np.empty(z.shape, dtype=np.uint64)

    def round_rows(start: int, stop: int) -> None:
        """Normalise and round rows ``start`` to ``stop - 1``."""
        row_block = z[start:stop] / z[start:stop].sum(axis=1, keepdims=True)
        row_block *= float(TOTAL)
        weights[start:stop] = np.rint(row_block, out=row_block)

    in_threads(round_rows, len(z))
    missing_units = np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
    # The differences wrap around modulo 2**64. Read as signed integers, they are negative for a row with too many
    # units.
    for row, units in zip(weights, missing_units.view(np.int64).tolist(), strict=True):
        _add_units(row, units)
    return weights


def _round_if_private(matrix: Floats, pairs: Ints, distances: Floats, epsilon: Fraction) -> RepairedWeights | None:
    """Normalise and round a matrix, and return the weights if they provably satisfy every inequality.

    The proof uses floating-point bounds rather than exact arithmetic.

    Args:
        matrix: (N, K) Non-negative entries.
        pairs: (P, 2) The record indices of each required pair.
        distances: (P,) The distance of each pair.
        epsilon: The exact epsilon.

    Returns:
        The weights with their measurements, or None if a row consists of zeros only or an inequality cannot be proved.
    """
    # A row of zeros cannot be normalised.
    if not matrix.any(axis=1).all():
        return None
    weights = round_to_weights(matrix)
    measurements = certify_in_doubles(weights, pairs, distances, epsilon)
    if measurements is None or not measurements.holds:
        return None
    return RepairedWeights(weights=read_only(weights), tau=0.0, merged=0, measured=measurements)


def _repair_within(
    merge_distance: float,
    matrix: Floats,
    loss: Floats | None,
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
    gap: float,
) -> tuple[RepairedWeights, float]:
    """Repair a matrix with a given merge distance, raising the slack tau until the result can be certified.

    Args:
        merge_distance: The threshold for merging. Two records get equal rows if epsilon times their distance is below
            it.
        matrix: (N, K) Non-negative entries.
        loss: (N, K) The costs times the prior. None if they are not known.
        pairs: (P, 2) The record indices of each required pair.
        distances: (P,) The distance of each pair.
        epsilon: The exact epsilon.
        gap: The relative optimality gap requested for the release.

    Returns:
        The certified weights, and the largest fraction of any row's mass that was added to make the row sum to 1.

    Raises:
        CertificationError: No slack up to ``_MAX_TAU`` led to a certificate.
        OutOfTime: The time limit expired before an attempt.
    """
    labels, exponents = merge_records(pairs, distances, epsilon, len(matrix), merge_distance)
    start_matrix, graph, cost = merge_matrix(matrix, loss, pairs, exponents, labels)
    tau = _first_tau(graph, gap)
    while tau <= _MAX_TAU:
        check("the matrix was repaired")
        rows, moved_mass = _to_sum_one(start_matrix.copy(), cost, graph, tau)
        merged_weights = _to_integers(rows, graph, tau)
        # `labels` maps each record to its class of merged records, whose row it gets.
        weights = merged_weights[labels]
        measurements = certify(weights, pairs, distances, epsilon)
        if measurements.holds:
            merged_count = len(matrix) - len(merged_weights)
            return RepairedWeights(
                weights=read_only(weights), tau=tau, merged=merged_count, measured=measurements
            ), moved_mass
        # The certificate is exact, so too small a slack cannot lead to a wrong release, but only costs another attempt.
        tau *= _TAU_FACTOR
    raise CertificationError(
        f"no slack up to {_MAX_TAU} made the repaired matrix certify: {measurements.failed} of {len(pairs)} pairs fail"
    )


def _first_tau(graph: Graph, gap: float) -> float:
    """Return the first slack tau to try.

    A slack of tau raises the relative loss by a small multiple of tau, so tau is chosen to be small compared with the
    gap. It is also made large enough to cover rounding errors, up to the largest allowed slack.

    Args:
        graph: The required pairs, with epsilon times the distance of each pair.
        gap: The relative optimality gap requested for the release.
    """
    shortest = float(graph.exponents.min()) if len(graph.exponents) else 1.0
    # Rounding changes a log-ratio by up to `ROUNDING_ERROR`, so tau times eps d must be at least that for every pair.
    return min(_MAX_TAU, max(min(1e-9, 1e-3 * gap), ROUNDING_ERROR / shortest))


def _max_drift(sums: Floats, graph: Graph) -> float:
    """Return the largest fraction of epsilon that any pair would lose if each row were divided by its sum.

    For a pair of rows i and j at distance d, this fraction is |log sum_i - log sum_j| / (eps d).

    Args:
        sums: (N,) The row sums, above 0.
        graph: The required pairs, with epsilon times the distance of each pair.
    """
    if not len(graph.first):
        return 0.0
    # Dividing two rows by their sums changes their log-ratio by the difference of the sums' logarithms.
    logs = np.log(sums)
    return float((np.abs(logs[graph.first] - logs[graph.second]) / graph.exponents).max())


def _to_sum_one(z: Floats, cost: Floats, graph: Graph, tau: float) -> tuple[Floats, float]:
    """Raise the entries of a matrix until the privacy constraints hold, and then make every row sum to 1.

    The privacy constraints ``z_ik <= exp((1 - tau) eps d_ij) z_jk`` for all required pairs define a cone of matrices.
    The cone is closed under addition and under multiplying all rows of a connected component by the same factor, but
    not under dividing rows by different sums. The result lies in the cone, up to errors that the slack tau covers.

    Args:
        z: (N, K) Non-negative entries, which may be modified in place.
        cost: (N, K) The cost of each entry. The most expensive entries are lowered first.
        graph: The required pairs.
        tau: The slack, as a fraction of epsilon.

    Returns:
        The new rows, of shape (N, K), and the largest fraction of added mass in any new row.
    """
    # Coarse rounds raise entries to the closure and normalise rows until all sums are within 1 % of 1.
    for remaining_rounds in reversed(range(_COARSE_ROUNDS)):
        close_matrix(z, graph, tau, is_integer=False)
        _fill_empty_components(z, graph)
        sums = z.sum(axis=1)
        if not remaining_rounds or np.abs(sums - 1.0).max() <= 0.01:
            break  # the steps below need a closed matrix, so rows are not normalised after the last closure
        z = _normalize_rows(z, sums)
    # Lowering rows may leave sums that differ so little that rows can be divided by them. If not, the matrix is scaled
    # and lowered once more.
    for _ in range(2):
        sums = z.sum(axis=1)
        # Dividing by sums that differ by so little uses up at most a quarter of the slack.
        if _max_drift(sums, graph) <= tau / 4:
            return _normalize_rows(z, sums), 0.0
        # After this division, every row sums to at least 1, so that the excess over 1 can be subtracted.
        z /= _min_sums_by_component(sums, graph)[:, None]  # with one factor per component, z stays in the cone
        lower_rows(z, z.sum(axis=1) - 1.0, cost, graph, tau)
    return _share_deficits(z, cost, graph, tau)


def _normalize_rows(z: Floats, sums: Floats) -> Floats:
    """Return a matrix with each row divided by its sum. The sums are given as an array of shape (N,)."""
    rows: Floats = z / sums[:, None]
    return rows


def _min_sums_by_component(sums: Floats, graph: Graph) -> Floats:
    """Return the smallest row sum in each record's connected component, as an array of shape (N,)."""
    # `graph.labels` has the connected component of each record.
    min_sums = np.full(graph.components, np.inf)
    np.minimum.at(min_sums, graph.labels, sums)
    sums_of_records: Floats = min_sums[graph.labels]
    return sums_of_records


def _fill_empty_components(z: Floats, graph: Graph) -> None:
    """Set all entries to 1 in each connected component that contains only zeros.

    Otherwise, the rows of these components could not be normalised.
    """
    mass = np.zeros(graph.components)
    np.add.at(mass, graph.labels, z.sum(axis=1))
    # In a closed matrix, a positive entry makes its column positive in the whole component. So no other component has a
    # row of zeros.
    z[mass[graph.labels] == 0] = 1.0


def _share_deficits(z: Floats, cost: Floats, graph: Graph, tau: float) -> tuple[Floats, float]:
    """Make rows sum to 1 by adding mass to one output per component, while keeping the matrix in the cone.

    This uses the third fact in the module docstring: if the row sums s_i of a component are raised to a large enough
    common sum S, the deficits S - s_i satisfy the privacy constraints. The smallest such S is used for each component.

    Args:
        z: (N, K) The closed matrix, modified in place.
        cost: (N, K) The cost of each entry.
        graph: The required pairs.
        tau: The slack, as a fraction of epsilon.

    Returns:
        The new rows, of shape (N, K), and the largest fraction of added mass in any new row.
    """
    sums = z.sum(axis=1)
    if _max_drift(sums, graph) <= tau / 4:
        return _normalize_rows(z, sums), 0.0
    steps = np.expm1((1.0 - tau) * graph.exponents)
    i, j = graph.first, graph.second
    # S must be at least s_j + (s_j - s_i) / (exp(eps' d_ij) - 1), for both directions of each pair.
    required_scale = np.maximum(sums[j] + (sums[j] - sums[i]) / steps, sums[i] + (sums[i] - sums[j]) / steps)
    scale = np.zeros(graph.components)
    np.maximum.at(scale, graph.labels, sums)
    np.maximum.at(scale, graph.labels[i], required_scale)
    deficits = scale[graph.labels] - sums
    # A component's deficits are added to the output for which this costs the least.
    output_costs = np.zeros((graph.components, z.shape[1]))
    np.add.at(output_costs, graph.labels, cost * deficits[:, None])
    z[np.arange(len(z)), output_costs.argmin(axis=1)[graph.labels]] += deficits
    return _normalize_rows(z, z.sum(axis=1)), float((deficits / scale[graph.labels]).max())


def _to_integers(z: Floats, graph: Graph, tau: float) -> Unsigned:
    """Round a matrix to integer weights that satisfy the privacy constraints, and make each row sum to exactly 2**63.

    Args:
        z: (N, K) Rows that sum to 1 and satisfy the constraints with a slack.
        graph: The required pairs.
        tau: The slack, as a fraction of epsilon.
    """
    # Few rounds are needed. If errors are still too large after the last one, the certificate decides whether they
    # matter.
    for _ in range(6):
        units = np.rint(z * float(TOTAL))
        close_matrix(units, graph, tau, is_integer=True)
        weights = units.astype(np.uint64)
        missing_units = (np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)).view(np.int64)
        relative_errors = missing_units / float(TOTAL)
        # Sums are close enough to 2**63 for the final correction if the relative error is at most nine units of 2**-53
        # for each entry, or if normalising would use up at most an eighth of the slack. Otherwise, rows are normalised
        # and rounded again.
        if np.abs(relative_errors).max() <= 1e-15 * z.shape[1] or _max_drift(1.0 - relative_errors, graph) <= tau / 8:
            break
        z = units / units.sum(axis=1, keepdims=True)
    for row, row_missing in zip(weights, missing_units.tolist(), strict=True):
        _add_units(row, row_missing)
    return weights


def _add_units(row: Unsigned, missing: int) -> None:
    """Add ``missing`` units to the largest entries of a row, distributed in proportion to these entries.

    Args:
        row: (K,) The weights as uint64, modified in place.
        missing: The number of units to add, which may be negative.
    """
    greatest = int(row.argmax())
    # Only entries that are at least a sixteenth of the largest one are changed, so that each relative change is small.
    large_entries = np.flatnonzero(row >= row[greatest] // np.uint64(16))
    values = row[large_entries].astype(np.float64)
    added = np.trunc(missing * (values / values.sum())).astype(np.int64)
    row[large_entries] += added.view(np.uint64)  # negative amounts wrap around, as intended in two's complement
    # The units that truncation left over are added to the largest entry.
    row[greatest] += np.array(missing - int(added.sum())).astype(np.int64).view(np.uint64)
