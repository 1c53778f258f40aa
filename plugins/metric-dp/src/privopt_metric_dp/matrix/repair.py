"""Repair of a solver's matrix: it becomes integer weights that can be certified.

A solver satisfies its constraints to about 1e-7: an entry that should be 1e-9 is 0, and its ratio is infinite. The
repair turns the matrix into a mechanism whose rows sum to exactly 2**63, and certifies it:

A matrix whose rounded rows keep every inequality already is left as it is (:func:`_as_it_is`). Any other:

1. Records nearer than eps d = 1e-6 get equal rows (:func:`.merge_records`).
2. The max-times closure raises entries until the constraints hold at eps' = eps (1 - tau) (:mod:`.closure`).
3. Rows are brought back to sum 1 inside the cone of the privacy constraints (:func:`_to_sum_one`). Dividing each row by
   its sum would leave the cone: for small eps d the sums differ by more than the slack.
4. Entries are rounded to integers, and a closure that rounds up makes the constraints hold between the integers, so
   weights as small as 1 need no floor. The error of a row's sum is distributed over its largest entries in proportion,
   a relative change of at most 1e-13, which tau covers (:func:`_to_integers`).
5. The result is certified. If that fails, tau is raised and steps 1 to 5 are repeated.

Steps 2 to 4 rely on three facts. First, the matrices with ``z_i <= exp(eps' d) z_j`` form a cone in each column: sums,
scalings and maxima stay inside. Second, a row of a closed matrix may be lowered to what its neighbours require. Third,
let sums s_i and a scale S satisfy ``S >= s_j + (s_j - s_i) / (exp(eps' d_ij) - 1)`` for every pair. Then the deficits
r_i = S - s_i are in the cone, so (z + r q^T) / S is in it for every distribution q, and its rows sum to 1.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats, Ints, Unsigned, read_only
from privopt.errors import CertificationError, SolverError, UsageError
from privopt.execution.clock import check, clock
from privopt.execution.limits import in_threads
from privopt.numbers.sampling import TOTAL
from privopt_metric_dp.matrix.certify import Measurements, certify, certify_in_doubles, check_pairs
from privopt_metric_dp.matrix.closure import Graph, close_matrix, lower_rows
from privopt_metric_dp.matrix.merge_records import MAX_EXPONENT, merge_matrix, merge_records

__all__ = ["RepairedWeights", "repair", "repair_in_doubles", "round_to_weights"]

#: Records nearer than this (eps d) get equal rows. The first value is the rule; the others are tried if the noise
#: of the matrix exceeds the differences of near records, so that too much mass would have to be moved.
MERGE_DISTANCES = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
#: If a repair moves at most this share of the mass, no larger merge distance is tried.
MOVED_MASS = 1e-7
#: Relative rounding errors of sums and products that tau must cover, with a margin.
ROUNDING_ERROR = 2e-14
_TAU_FACTOR, _MAX_TAU = 8.0, 0.5
#: Rounds that bring rows whose sums are far from 1 (or 0) near 1, before the exact steps.
_COARSE_ROUNDS = 3


@frozen(kw_only=True, eq=False)
class RepairedWeights:
    """Certified integer weights, with a record of the repair.

    Attributes:
        weights: (N, K) uint64, read-only, rows summing to exactly 2**63.
        tau: slack of the repair: the closure is at eps (1 - tau).
        merged: number of records that share their row with an earlier one because they are too near (eps d < 1e-6 as a
            rule).
        measured: the measurements of the certificate.
        loss_before: expected loss of the input matrix, with negatives cut and rows divided by their sums; None if no
            loss was given.
        loss_after: expected loss of the weights.
    """

    weights: Unsigned = field(repr=False)
    tau: float
    merged: int
    measured: Measurements
    loss_before: float | None = None
    loss_after: float | None = None

    @property
    def details(self) -> dict[str, float | None]:
        """The fields of the repair in result.json."""
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
    """Turn a near-feasible matrix into a certified mechanism.

    Args:
        z: (N, K) finite; zeros in place of tiny entries, noise and small negative entries are allowed.
        pairs: (P, 2) required pairs, undirected; P may be 0.
        distances: (P,) distances; each double stands for its exact value. Distance 0 requires equal rows.
        epsilon: exact, above 0.
        loss: (N, K) cost times prior. It decides which entries are lowered and which outputs get more mass.
        gap: relative optimality gap asked of the release; tau starts at a thousandth of it or below.

    Returns:
        The weights with their certificate.

    Raises:
        SolverError: An entry is not finite.
        CertificationError: No tau up to 1/2 gave a certificate.
        OutOfTime: The time limit came before an attempt gave a certificate.
        UsageError: An argument has a wrong shape or range.
    """
    matrix = _check_matrix(z, loss)
    if epsilon <= 0:
        raise UsageError(f"epsilon must be above 0, got {epsilon}")
    pairs, distances = check_pairs(pairs, distances, len(matrix))
    sums = matrix.sum(axis=1)
    loss_before = None if loss is None else _total_loss(loss, matrix, np.where(sums > 0, sums, 1.0))
    unchanged = _round_if_private(matrix, pairs, distances, epsilon)
    if unchanged is not None:
        rounded_loss = None if loss is None else _total_loss(loss, unchanged.weights, float(TOTAL))
        return evolve(unchanged, loss_before=loss_before, loss_after=rounded_loss)
    best_repair, best_price, last_error = None, np.inf, None
    for merge_distance in MERGE_DISTANCES:
        if best_repair is not None and clock().left == 0.0:
            break
        try:
            candidate, moved_mass = _repair_within(merge_distance, matrix, loss, pairs, distances, epsilon, gap)
        except CertificationError as error:
            last_error = error
            continue
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
    """Validate the matrix, and return it with negative entries cut to 0.

    Raises:
        SolverError: An entry is not finite.
        UsageError: It is no matrix, or the loss has another shape.
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
    """Return the expected loss of a matrix after its rows are divided by ``sums``."""
    return float((np.einsum("ik,ik->i", loss, matrix) / sums).sum())


def repair_in_doubles(z: Floats, cost: Floats, pairs: Ints, exponents: Floats) -> Floats:
    """Run only steps 2 and 3 of the repair, in doubles.

    Args:
        z: (N, K) finite, at least 0; it nearly satisfies the privacy constraints.
        cost: (N, K) cost times prior: the most expensive entries are lowered first.
        pairs: (P, 2) distinct required pairs.
        exponents: (P,) eps d, all above 0.

    Returns:
        (N, K) rows that sum to 1 and satisfy the privacy constraints at (1 - 1e-9) eps up to rounding.
    """
    graph = Graph(pairs, np.minimum(exponents, MAX_EXPONENT), len(z))
    return _to_sum_one(np.array(z, dtype=np.float64, order="C"), cost, graph, 1e-9)[0]


def round_to_weights(z: Floats) -> Unsigned:
    """Normalise the rows of a matrix (N, K), none of them all 0, and round them to integers that sum to 2**63."""
    weights = np.empty(z.shape, dtype=np.uint64)

    def round_rows(start: int, stop: int) -> None:
        row_block = z[start:stop] / z[start:stop].sum(axis=1, keepdims=True)
        row_block *= float(TOTAL)
        weights[start:stop] = np.rint(row_block, out=row_block)

    in_threads(round_rows, len(z))
    missing_units = np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
    for row, units in zip(weights, missing_units.view(np.int64).tolist(), strict=True):
        _add_units(row, units)
    return weights


def _round_if_private(matrix: Floats, pairs: Ints, distances: Floats, epsilon: Fraction) -> RepairedWeights | None:
    """Return the normalised and rounded matrix if doubles prove every inequality, or None."""
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
    """Repair with one row for records nearer than ``merge_distance``; return also the share of mass that was moved."""
    labels, exponents = merge_records(pairs, distances, epsilon, len(matrix), merge_distance)
    start_matrix, graph, cost = merge_matrix(matrix, loss, pairs, exponents, labels)
    tau = _first_tau(graph, gap)
    while tau <= _MAX_TAU:
        check("the matrix was repaired")
        rows, moved_mass = _to_sum_one(start_matrix.copy(), cost, graph, tau)
        merged_weights = _to_integers(rows, graph, tau)
        weights = merged_weights[labels]
        measurements = certify(weights, pairs, distances, epsilon)
        if measurements.holds:
            merged_count = len(matrix) - len(merged_weights)
            return RepairedWeights(
                weights=read_only(weights), tau=tau, merged=merged_count, measured=measurements
            ), moved_mass
        tau *= _TAU_FACTOR
    raise CertificationError(
        f"no slack up to {_MAX_TAU} made the repaired matrix certify: {measurements.failed} of {len(pairs)} pairs fail"
    )


def _first_tau(graph: Graph, gap: float) -> float:
    """Return the smallest tau that covers rounding errors; it raises the loss by a few times tau, relatively."""
    shortest = float(graph.exponents.min()) if len(graph.exponents) else 1.0
    return min(_MAX_TAU, max(min(1e-9, 1e-3 * gap), ROUNDING_ERROR / shortest))


def _max_drift(sums: Floats, graph: Graph) -> float:
    """Return the largest |log sum_i - log sum_j| / (eps d): the slack that normalising the rows would use up."""
    if not len(graph.first):
        return 0.0
    logs = np.log(sums)
    return float((np.abs(logs[graph.first] - logs[graph.second]) / graph.exponents).max())


def _to_sum_one(z: Floats, cost: Floats, graph: Graph, tau: float) -> tuple[Floats, float]:
    """Bring the rows to sum 1, up to a drift that tau covers; return also the share of mass that was moved."""
    for remaining_rounds in reversed(range(_COARSE_ROUNDS)):
        close_matrix(z, graph, tau, is_integer=False)
        _fill_empty_components(z, graph)
        sums = z.sum(axis=1)
        if not remaining_rounds or np.abs(sums - 1.0).max() <= 0.01:
            break  # the steps below need a closed matrix, so do not normalise after the last closure
        z = _normalize_rows(z, sums)
    for _ in range(2):
        sums = z.sum(axis=1)
        if _max_drift(sums, graph) <= tau / 4:
            return _normalize_rows(z, sums), 0.0
        z /= _min_sums_by_component(sums, graph)[:, None]  # one factor for each component keeps z in the cone
        lower_rows(z, z.sum(axis=1) - 1.0, cost, graph, tau)
    return _share_deficits(z, cost, graph, tau)


def _normalize_rows(z: Floats, sums: Floats) -> Floats:
    """Divide each row by its sum."""
    rows: Floats = z / sums[:, None]
    return rows


def _min_sums_by_component(sums: Floats, graph: Graph) -> Floats:
    """Return the smallest row sum in the component of each record, (N,)."""
    min_sums = np.full(graph.components, np.inf)
    np.minimum.at(min_sums, graph.labels, sums)
    sums_of_records: Floats = min_sums[graph.labels]
    return sums_of_records


def _fill_empty_components(z: Floats, graph: Graph) -> None:
    """Make the rows of components without any mass uniform."""
    mass = np.zeros(graph.components)
    np.add.at(mass, graph.labels, z.sum(axis=1))
    z[mass[graph.labels] == 0] = 1.0


def _share_deficits(z: Floats, cost: Floats, graph: Graph, tau: float) -> tuple[Floats, float]:
    """Bring sums to 1 by adding mass to one output of each component, in amounts inside the cone (third fact above)."""
    sums = z.sum(axis=1)
    if _max_drift(sums, graph) <= tau / 4:
        return _normalize_rows(z, sums), 0.0
    steps = np.expm1((1.0 - tau) * graph.exponents)
    i, j = graph.first, graph.second
    required_scale = np.maximum(sums[j] + (sums[j] - sums[i]) / steps, sums[i] + (sums[i] - sums[j]) / steps)
    scale = np.zeros(graph.components)
    np.maximum.at(scale, graph.labels, sums)
    np.maximum.at(scale, graph.labels[i], required_scale)
    deficits = scale[graph.labels] - sums
    output_costs = np.zeros((graph.components, z.shape[1]))
    np.add.at(output_costs, graph.labels, cost * deficits[:, None])
    z[np.arange(len(z)), output_costs.argmin(axis=1)[graph.labels]] += deficits
    return _normalize_rows(z, z.sum(axis=1)), float((deficits / scale[graph.labels]).max())


def _to_integers(z: Floats, graph: Graph, tau: float) -> Unsigned:
    """Round to integers whose rows sum to exactly 2**63 and that satisfy the privacy constraints."""
    for _ in range(6):
        units = np.rint(z * float(TOTAL))
        close_matrix(units, graph, tau, is_integer=True)
        weights = units.astype(np.uint64)
        missing_units = (np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)).view(np.int64)
        relative_errors = missing_units / float(TOTAL)
        if np.abs(relative_errors).max() <= 1e-15 * z.shape[1] or _max_drift(1.0 - relative_errors, graph) <= tau / 8:
            break
        z = units / units.sum(axis=1, keepdims=True)
    for row, row_missing in zip(weights, missing_units.tolist(), strict=True):
        _add_units(row, row_missing)
    return weights


def _add_units(row: Unsigned, missing: int) -> None:
    """Add ``missing`` units, which may be negative, to the row's largest entries in proportion."""
    greatest = int(row.argmax())
    large_entries = np.flatnonzero(row >= row[greatest] // np.uint64(16))
    values = row[large_entries].astype(np.float64)
    added = np.trunc(missing * (values / values.sum())).astype(np.int64)
    row[large_entries] += added.view(np.uint64)  # wraps for negative amounts, as two's complement means it to
    row[greatest] += np.array(missing - int(added.sum())).astype(np.int64).view(np.uint64)
