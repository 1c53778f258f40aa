"""From a solver's matrix to integer weights that can be proved.

A solver's "optimal" holds its rows to 1e-7 or so: where z_jk should be 1e-9 it is 0, and the ratio is infinite. The
repair makes a mechanism of it whose every row sums to exactly 2**63, and proves it:

A matrix whose rounded rows keep every inequality already is left as it is (:func:`_as_it_is`). Any other:

1. records nearer than eps d = 1e-6 get equal rows (:func:`.merge`);
2. the max-times closure at eps' = eps (1 - tau) (``_closure``);
3. rows are brought back to sum 1 without leaving the cone of the privacy rows (:func:`_to_sum_one`). Dividing each row
   by its own sum would leave it: the sums differ, by more than the slack where eps d is small;
4. integers by rounding and a closure that rounds up, so that weights as small as 1 need no floor: the inequality is
   made to hold between the integers themselves. The difference of a row's sum is then shared among its greatest
   entries, in proportion, by a relative 1e-13 or less, which tau covers (:func:`_to_integers`);
5. the certificate. Where it fails tau is raised and all is done again.

Three facts carry steps 2 to 4. The matrices with ``z_i <= exp(eps' d) z_j`` are a cone in each column: sums, scalings
and maxima stay inside. A row of a closed matrix may fall to what its neighbours require. And let sums s_i and a scale S
satisfy ``S >= s_j + (s_j - s_i) / (exp(eps' d_ij) - 1)`` for every pair. Then the deficits r_i = S - s_i are in the
cone themselves, so z + r q^T, over S, is in it for every distribution q, with rows that sum to 1.
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
from privopt_metric_dp.matrix.closure import Graph, close, lower
from privopt_metric_dp.matrix.merge_records import MAX_EXPONENT, merge, quotient

__all__ = ["RepairedWeights", "mend", "repair", "rounded"]

#: Records nearer than this (eps d) get equal rows: the first where all goes well, the others where the noise of the
#: matrix drowns what tells near records apart, so that too much mass would have to be moved.
MERGED_WITHIN = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)
#: Share of mass that may be moved without a second thought.
MOVED_MASS = 1e-7
#: Relative errors of sums and products that tau must cover, with room.
ROUNDING_ERROR = 2e-14
_RAISE, _LARGEST_TAU = 8.0, 0.5
#: Rounds that bring rows far from sum 1 (or empty) near it, before the careful work starts.
_COARSE_ROUNDS = 3


@frozen(kw_only=True, eq=False)
class RepairedWeights:
    """Integer weights, certified, and what it took.

    Attributes:
        weights: (N, K) uint64, read-only, rows summing to exactly 2**63.
        tau: the slack that certification took: the closure is at eps (1 - tau).
        merged: records that share their row with an earlier one because they lie too near (eps d = 1e-6 as a rule).
        measured: the certificate.
        loss_before: sum of loss times the matrix that came in (negatives cut, rows divided by their sums); None
            without a loss.
        loss_after: the same of the weights.
    """

    weights: Unsigned = field(repr=False)
    tau: float
    merged: int
    measured: Measurements
    loss_before: float | None = None
    loss_after: float | None = None

    @property
    def details(self) -> dict[str, float | None]:
        """What result.json says of it."""
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
    """Make any near-feasible matrix a certified mechanism.

    Args:
        z: (N, K) finite; zeros where a solver had to put 1e-9, noise and small negatives are welcome.
        pairs: (P, 2) required pairs, undirected; P may be 0.
        distances: (P,) each double the rational that it is; 0 asks for equal rows.
        epsilon: exact, above 0.
        loss: (N, K) cost times prior: steers what is lowered and where mass goes, and prices the repair.
        gap: relative gap asked of the release; tau starts a thousandth of it or lower.

    Returns:
        The weights with their certificate.

    Raises:
        SolverError: entries that are not finite.
        CertificationError: no tau up to 1/2 gave a certificate.
        OutOfTime: the end came before an attempt gave a certificate.
        UsageError: arguments that cannot be meant so.
    """
    given = _finite(z, loss)
    if epsilon <= 0:
        raise UsageError(f"epsilon must be above 0, got {epsilon}")
    pairs, distances = check_pairs(pairs, distances, len(given))
    sums = given.sum(axis=1)
    loss_before = None if loss is None else _priced(loss, given, np.where(sums > 0, sums, 1.0))
    whole = _as_it_is(given, pairs, distances, epsilon)
    if whole is not None:
        after = None if loss is None else _priced(loss, whole.weights, float(TOTAL))
        return evolve(whole, loss_before=loss_before, loss_after=after)
    best, least, refused = None, np.inf, None
    for within in MERGED_WITHIN:
        if best is not None and clock().left == 0.0:
            break
        try:
            found, moved = _repair_within(within, given, loss, pairs, distances, epsilon, gap)
        except CertificationError as error:
            refused = error
            continue
        price = moved if loss is None else _priced(loss, found.weights, float(TOTAL))
        if best is not None and price >= least:
            break
        best, least = found, price
        if moved <= MOVED_MASS:
            break
    if best is None:
        raise CertificationError(*refused.args if refused else ()) from refused
    return evolve(best, loss_before=loss_before, loss_after=None if loss is None else least)


def _finite(z: Floats, loss: Floats | None) -> Floats:
    """Return the matrix with negative entries cut to 0.

    Raises:
        SolverError: entries that are not finite.
        UsageError: it is not a matrix, or the loss has another shape.
    """
    given = np.ascontiguousarray(z, dtype=np.float64)
    if given.ndim != 2 or not given.size:
        raise UsageError(f"the matrix must have shape (N, K), neither of them 0, got {given.shape}")
    if not np.isfinite(given).all():
        raise SolverError("the solver returned a matrix with entries that are not finite")
    if loss is not None and loss.shape != given.shape:
        raise UsageError(f"loss must have shape {given.shape}, got {loss.shape}")
    return np.maximum(given, 0.0) if given.min() < 0.0 else given


def _priced(loss: Floats, matrix: Floats | Unsigned, sums: Floats | float) -> float:
    """Sum of loss times a matrix whose rows have these sums."""
    return float((np.einsum("ik,ik->i", loss, matrix) / sums).sum())


def mend(z: Floats, cost: Floats, pairs: Ints, exponents: Floats) -> Floats:
    """Return steps 2 and 3 of the repair alone, in doubles: a mechanism near a matrix that keeps its rows roughly.

    Args:
        z: (N, K) finite, at least 0.
        cost: (N, K) prior included: what lies dearest above the closure is lowered first.
        pairs: (P, 2) distinct required pairs.
        exponents: (P,) eps d, all above 0.

    Returns:
        (N, K) rows that sum to 1, inside the rows of privacy at (1 - 1e-9) eps up to rounding.
    """
    graph = Graph(pairs, np.minimum(exponents, MAX_EXPONENT), len(z))
    return _to_sum_one(np.array(z, dtype=np.float64, order="C"), cost, graph, 1e-9)[0]


def rounded(z: Floats) -> Unsigned:
    """Round rows of a matrix (N, K), none of them all 0, over their sums, to integers that sum to 2**63."""
    weights = np.empty(z.shape, dtype=np.uint64)

    def fill(start: int, stop: int) -> None:
        part = z[start:stop] / z[start:stop].sum(axis=1, keepdims=True)
        part *= float(TOTAL)
        weights[start:stop] = np.rint(part, out=part)

    in_threads(fill, len(z))
    missing = np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
    for row, units in zip(weights, missing.view(np.int64).tolist(), strict=True):
        _give(row, units)
    return weights


def _as_it_is(matrix: Floats, pairs: Ints, distances: Floats, epsilon: Fraction) -> RepairedWeights | None:
    """Return the rows over their sums, rounded, if doubles prove every inequality; None if one is in doubt."""
    if not matrix.any(axis=1).all():
        return None
    weights = rounded(matrix)
    measured = certify_in_doubles(weights, pairs, distances, epsilon)
    if measured is None or not measured.holds:
        return None
    return RepairedWeights(weights=read_only(weights), tau=0.0, merged=0, measured=measured)


def _repair_within(
    within: float,
    matrix: Floats,
    loss: Floats | None,
    pairs: Ints,
    distances: Floats,
    epsilon: Fraction,
    gap: float,
) -> tuple[RepairedWeights, float]:
    """Return the repair with records nearer than ``within`` on one row; and the share of mass that had to be moved."""
    label, exponents = merge(pairs, distances, epsilon, len(matrix), within)
    start, graph, cost = quotient(matrix, loss, pairs, exponents, label)
    tau = _first_tau(graph, gap)
    while tau <= _LARGEST_TAU:
        check("the matrix was repaired")
        rows, moved = _to_sum_one(start.copy(), cost, graph, tau)
        small = _to_integers(rows, graph, tau)
        weights = small[label]
        measured = certify(weights, pairs, distances, epsilon)
        if measured.holds:
            merged = len(matrix) - len(small)
            return RepairedWeights(weights=read_only(weights), tau=tau, merged=merged, measured=measured), moved
        tau *= _RAISE
    raise CertificationError(
        f"no slack up to {_LARGEST_TAU} made the repaired matrix certify: {measured.failed} of {len(pairs)} pairs fail"
    )


def _first_tau(graph: Graph, gap: float) -> float:
    """Return tau as small as the roundings allow: its cost in loss is a few times tau, relative."""
    shortest = float(graph.exponents.min()) if len(graph.exponents) else 1.0
    return min(_LARGEST_TAU, max(min(1e-9, 1e-3 * gap), ROUNDING_ERROR / shortest))


def _drift(sums: Floats, graph: Graph) -> float:
    """Greatest |log sum_i - log sum_j| / (eps d): what dividing each row by its sum would take from the slack."""
    if not len(graph.first):
        return 0.0
    logs = np.log(sums)
    return float((np.abs(logs[graph.first] - logs[graph.second]) / graph.exponents).max())


def _to_sum_one(z: Floats, cost: Floats, graph: Graph, tau: float) -> tuple[Floats, float]:
    """Return a closed matrix with rows that sum to 1, up to a drift that tau covers; and the share of mass moved."""
    for left in reversed(range(_COARSE_ROUNDS)):
        close(z, graph, tau, whole=False)
        _fill_empty(z, graph)
        sums = z.sum(axis=1)
        if not left or np.abs(sums - 1.0).max() <= 0.01:
            break  # closed: what follows needs that
        z = _over(z, sums)
    for _ in range(2):
        sums = z.sum(axis=1)
        if _drift(sums, graph) <= tau / 4:
            return _over(z, sums), 0.0
        z /= _component_minimum(sums, graph)[:, None]  # one factor a component: stays in the cone
        lower(z, z.sum(axis=1) - 1.0, cost, graph, tau)
    return _share_deficits(z, cost, graph, tau)


def _over(z: Floats, sums: Floats) -> Floats:
    """Divide each row by its sum."""
    rows: Floats = z / sums[:, None]
    return rows


def _component_minimum(sums: Floats, graph: Graph) -> Floats:
    """For each record the least sum in its component."""
    least = np.full(graph.components, np.inf)
    np.minimum.at(least, graph.labels, sums)
    spread: Floats = least[graph.labels]
    return spread


def _fill_empty(z: Floats, graph: Graph) -> None:
    """Components without any mass become uniform."""
    mass = np.zeros(graph.components)
    np.add.at(mass, graph.labels, z.sum(axis=1))
    z[mass[graph.labels] == 0] = 1.0


def _share_deficits(z: Floats, cost: Floats, graph: Graph, tau: float) -> tuple[Floats, float]:
    """Bring sums to 1 by adding to each component one output in amounts that are in the cone (third fact above)."""
    sums = z.sum(axis=1)
    if _drift(sums, graph) <= tau / 4:
        return _over(z, sums), 0.0
    steps = np.expm1((1.0 - tau) * graph.exponents)
    i, j = graph.first, graph.second
    wanted = np.maximum(sums[j] + (sums[j] - sums[i]) / steps, sums[i] + (sums[i] - sums[j]) / steps)
    scale = np.zeros(graph.components)
    np.maximum.at(scale, graph.labels, sums)
    np.maximum.at(scale, graph.labels[i], wanted)
    deficits = scale[graph.labels] - sums
    priced = np.zeros((graph.components, z.shape[1]))
    np.add.at(priced, graph.labels, cost * deficits[:, None])
    z[np.arange(len(z)), priced.argmin(axis=1)[graph.labels]] += deficits
    return _over(z, z.sum(axis=1)), float((deficits / scale[graph.labels]).max())


def _to_integers(z: Floats, graph: Graph, tau: float) -> Unsigned:
    """Integers with rows of exactly 2**63 that satisfy the rows of privacy between themselves."""
    for _ in range(6):
        units = np.rint(z * float(TOTAL))
        close(units, graph, tau, whole=True)
        weights = units.astype(np.uint64)
        rest = (np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)).view(np.int64)
        shares = rest / float(TOTAL)
        if np.abs(shares).max() <= 1e-15 * z.shape[1] or _drift(1.0 - shares, graph) <= tau / 8:
            break
        z = units / units.sum(axis=1, keepdims=True)
    for row, missing in zip(weights, rest.tolist(), strict=True):
        _give(row, missing)
    return weights


def _give(row: Unsigned, missing: int) -> None:
    """Add ``missing`` units (or take them, where negative) to the row's greatest entries, in proportion."""
    greatest = int(row.argmax())
    large = np.flatnonzero(row >= row[greatest] // np.uint64(16))
    values = row[large].astype(np.float64)
    given = np.trunc(missing * (values / values.sum())).astype(np.int64)
    row[large] += given.view(np.uint64)  # wraps for negative amounts, as two's complement means it to
    row[greatest] += np.array(missing - int(given.sum())).astype(np.int64).view(np.uint64)
