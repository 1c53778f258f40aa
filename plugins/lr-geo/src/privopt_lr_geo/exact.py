"""Method exact: a guarantee over the whole population, and nothing uploaded.

The server publishes the star's column weights, one number an output, and each user computes its own row
(mathematics: W x = 1, W_is = exp(-epsilon D_is)). Where no weights x >= 0 exist, or they miss the gap that was asked
for, the optimal mechanism is computed and the whole matrix is published: a row that a user asked for would tell where
it is.

Where the optimum does not come in time and the star has negative weights, weights are found at a smaller rate, some of
them 0, with which rows nearly sum to one. Each user divides its row by its sum r_i; where rate + max |log r_i -
log r_j| / d_ij <= epsilon, over pairs that imply all others, the promise holds all the same. At half of epsilon it
always does. (400 cells of Rome: loss 1.053 km at epsilon 1 per km, the optimum's .916, the exponential mechanism's
1.715; at epsilon 2 .499, .489 and .996.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints, Unsigned, slices
from privopt.errors import SolverError, StoppedError
from privopt.interfaces import SolveContext
from privopt.numbers.sampling import TOTAL
from privopt_lr_geo.lr_sets import PathDistances
from privopt_lr_geo.rows import BLOCK, ColumnWeights, steady_exp, whole_matrix
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.mechanisms.fallback import Reserve
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.solvers.exponential import exponential_loss

if TYPE_CHECKING:
    from privopt_metric_dp.solvers import Solution
else:
    Solution = Any

__all__ = ["PublishedWeights", "certified_pairs", "population_loss", "solve_exact"]


SLACKS: Final = (1e-6, 1e-5, 1e-4)
"""tau of rate = epsilon (1 - tau), tried in this order."""
ROOM: Final = 8.0
"""The smallest positive weight is at least this many times what a rounding by one may be."""
SHALLOWEST: Final = 14.0
"""Log-ratios may not be cut below this: the far outputs would take a share that shows."""
HALVINGS: Final = 7
"""Steps of the search for the rate."""
LARGEST: Final = 36_000_000
"""Records times outputs beyond which no bound is computed: it takes a tree over all records for each output."""
MANY: Final = 20_000_000_000
"""Pairs times outputs beyond which only those pairs are certified that imply the others exactly."""


@frozen(kw_only=True, eq=False)
class PublishedWeights:
    """What the exact method publishes.

    Attributes:
        public: column weights, or None where the whole matrix is published.
        whole: (N, K) the matrix.
        details: how it was found.
        lower_bound: proved, on the loss over all records; None where none was computed.
    """

    public: ColumnWeights | None
    whole: Unsigned
    details: dict[str, Any]
    solver: dict[str, Any]
    lower_bound: float | None = None
    stopped: bool = False


def certified_pairs(data: MetricData) -> tuple[Ints, Floats, str]:
    """The pairs that the certificate stands on, and a word on it."""
    if len(data.pairs) * len(data.outputs) <= MANY:
        return data.pairs, data.distances, "every required pair"
    return *data.needed, "the required pairs that imply all others exactly"


def solve_exact(data: MetricData, context: SolveContext) -> PublishedWeights:
    """Column weights where they meet the gap asked for; else the optimal mechanism, or the best that time allows.

    Raises:
        StoppedError: a limit came before even the exponential mechanism was certified.
        SolverError: no method gave a mechanism.
    """
    from privopt_metric_dp.mechanisms.fallback import Reserve

    reserve = Reserve(data, context)
    if context.deadline is not None:
        reserve.keep()
    try:
        found, reason = _column_weights(data, context)
    except StoppedError:
        found, reason = None, "the limit came before column weights were found"
    if found is not None and data.cost.size > LARGEST:
        reason = f"no bound: {data.cost.size:,} entries, of at most {LARGEST:,} for which one is computed"
        return evolve(found, details={**found.details, "reason": reason})
    return _bounded(data, context, reserve, found, reason)


def _column_weights(data: MetricData, context: SolveContext) -> tuple[PublishedWeights | None, str]:
    """The best column weights, None without any; and why they are not the star's."""
    if (data.distances == 0).any():
        return None, "no column weights: records at distance 0"
    paths = PathDistances(data)
    context.report("path distances")
    every = np.arange(len(data.records))
    distances = np.empty((len(every), len(every)))
    for part in slices(len(every), len(every), BLOCK):
        distances[part] = paths.rows(every[part])
        context.check()
    try:
        found = _star(data, distances, context)
    except SolverError as error:
        return _normalised(data, distances, context), f"no column weights at all of epsilon: {error}"
    own, plain = population_loss(found.whole, data), exponential_loss(data)
    if plain is None or own <= plain:
        return found, ""
    reason = f"column weights would cost {own:.6g}, the exponential mechanism {plain:.6g}"
    spare = _normalised(data, distances, context)
    if spare is None or population_loss(spare.whole, data) > own:
        spare = found
    return spare, reason


def _star(data: MetricData, distances: Floats, context: SolveContext) -> PublishedWeights:
    positive = data.distances[data.distances > 0]
    step = float(data.epsilon) * float(positive.min()) if positive.size else 1.0
    serves: Ints | None = None
    trouble = ""
    for slack in SLACKS:
        rate = float(data.epsilon) * (1.0 - slack)
        context.report(f"column weights, slack {slack:g}")
        try:
            weights, cap, kernel = _weights(distances, rate, slack * step)
        except SolverError as error:
            trouble = str(error)
            continue
        if serves is None:
            serves = _serve(kernel, data, data.prior)
        del kernel
        public = ColumnWeights(weights=weights, serves=serves, outputs=len(data.outputs), rate=rate, cap=cap)
        details = {"published": "column_weights", "tau": slack, "cap": cap}
        found = _published(public, distances, data, context, details)
        if found is not None:
            return found
        trouble = "pairs did not certify"
    raise SolverError(trouble)


def _published(
    public: ColumnWeights, distances: Floats, data: MetricData, context: SolveContext, details: dict[str, Any]
) -> PublishedWeights | None:
    """Every record's row, certified; None where it does not hold."""
    pairs, lengths, _ = certified_pairs(data)
    whole = whole_matrix(public, distances.__getitem__)
    with context.timed("repair"):
        measured = certify(whole, pairs, lengths, data.epsilon, executor=context.executor)
    if not measured.holds:
        return None
    whole.setflags(write=False)
    return PublishedWeights(public=public, whole=whole, details=details, solver={"name": "star"})


def _normalised(data: MetricData, distances: Floats, context: SolveContext) -> PublishedWeights | None:
    """Column weights at the greatest rate at which what normalising rows takes is left of epsilon; None in vain."""
    from privopt_metric_dp.solvers.quick_star import LEAST, positive_weights

    pairs, lengths = data.needed
    i, j = pairs.T
    slack = SLACKS[-1]
    step = float(data.epsilon) * float(lengths.min()) if lengths.size else 1.0
    cap = math.log(float(TOTAL) * LEAST * slack * step / ROOM)
    if cap < SHALLOWEST:
        return None
    allowed = float(data.epsilon) * (1.0 - slack)

    def tried(rate: float) -> tuple[Floats, float]:
        """Unsigned, and what normalising takes of epsilon."""
        context.report(f"column weights at {rate:.4g} per {data.unit}")
        kernel = np.exp(-np.minimum(distances * rate, cap))
        x = positive_weights(kernel, until=context.deadline)
        sums = np.log(kernel @ x)
        return x, float((np.abs(sums[i] - sums[j]) / lengths).max(initial=0.0))

    low, high = 0.5, 1.0
    rate = low * allowed
    try:
        x, _ = tried(rate)
    except StoppedError:
        return None
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        try:
            found, taken = tried(middle * allowed)
        except StoppedError:
            break
        if middle * allowed + taken <= allowed:
            low, rate, x = middle, middle * allowed, found
        else:
            high = middle
    kernel = np.exp(-np.minimum(distances * rate, cap))
    serves = _serve(kernel, data, data.prior / (kernel @ x))
    public = ColumnWeights(weights=x, serves=serves, outputs=len(data.outputs), rate=rate, cap=cap)
    details = {"published": "column_weights", "rate": rate, "cap": cap, "columns_used": int((x > 0).sum())}
    return _published(public, distances, data, context, details)


def _weights(distances: Floats, rate: float, slack: float) -> tuple[Floats, float, Floats]:
    """x >= 0 with W x = 1 up to a share of the slack, the cap on log-ratios, and W.

    Raises:
        SolverError: negative, or not to be had that exactly.
    """
    from privopt_metric_dp.solvers.quick_star import solve_ones

    cap = math.log(float(TOTAL) * 1e-2 * slack / ROOM)
    for _ in range(4):
        if cap < SHALLOWEST:
            raise SolverError("some weight is too small to be rounded")
        kernel = np.empty_like(distances)
        for rows in slices(len(distances), len(distances), BLOCK):
            kernel[rows] = steady_exp(-np.minimum(distances[rows] * rate, cap))
        x = solve_ones(kernel)
        if x.min() <= 0.0:
            raise SolverError(f"{int((x <= 0).sum())} of {len(x)} are not positive")
        error = float(np.abs(kernel @ x - 1.0).max())
        if not error <= slack / 16:
            raise SolverError(f"rows sum to one up to {error:.1e} only")
        allowed = math.log(float(TOTAL) * float(x.min()) * slack / ROOM)
        if cap <= allowed:
            return x, cap, kernel
        cap = allowed - 0.1
    raise SolverError("some weight is too small to be rounded")


def _serve(kernel: Floats, data: MetricData, weight: Floats) -> Ints:
    """For each column the output of least cost, records weighed as given.

    Single precision where that saves minutes: no privacy hangs on it.
    """
    kind: Any = np.float32 if kernel.size > BLOCK else np.float64
    cost = (weight[:, None] * data.cost).astype(kind)
    serves = np.empty(len(kernel), dtype=np.int64)
    for rows in slices(len(kernel), len(kernel), BLOCK):
        serves[rows] = (kernel[rows].astype(kind) @ cost).argmin(axis=1)
    return serves


def _bounded(
    data: MetricData, context: SolveContext, reserve: Reserve, spare: PublishedWeights | None, reason: str
) -> PublishedWeights:
    """A proved bound; ``spare`` where it meets the gap, else the best that there is."""
    from privopt_metric_dp.proof import Rows
    from privopt_metric_dp.solvers import Instance, solve

    try:
        context.check()
        found = solve(
            Instance.of(data),
            gap=context.gap / 2,
            deadline=context.deadline,
            memory=context.room,
            before=reserve.make,
            progress=context.report,
        )
    except (SolverError, StoppedError) as error:
        if spare is None:
            return _alone(reserve, error, reason)
        reason = "; ".join(part for part in (reason, f"no bound: {error}") if part)
        stopped = isinstance(error, StoppedError)
        return evolve(spare, details={**spare.details, "reason": reason}, stopped=stopped)
    context.report("bound")
    bound = None
    if found.multipliers is not None:
        bound = Rows.of(found.multipliers, data, data.weighted, over=data.needed).bound(data, data.weighted)
    own = math.inf if spare is None else population_loss(spare.whole, data)
    best = spare if spare is not None and _met(own, bound, context.gap) else None
    if best is None:
        if found.status != "optimal":
            reserve.make()
        best = _best(data, context, spare, found, reserve, reason)
    stopped = found.status == "stopped" and not _met(population_loss(best.whole, data), bound, context.gap)
    details = {**best.details, "trajectory": found.trajectory}
    return evolve(best, lower_bound=bound, details=details, stopped=stopped)


def _alone(reserve: Reserve, error: StoppedError | SolverError, reason: str) -> PublishedWeights:
    """The exponential mechanism, where nothing else came; ``error`` where not even that did."""
    from privopt.version import VERSION
    from privopt_metric_dp.mechanisms.fallback import UNWRITTEN

    reserve.make()
    if reserve.release is None:
        raise error
    path = f"exact ({str(error).replace(UNWRITTEN, '')}), {reserve.path}"
    solver = {"name": "exponential", "version": VERSION, "path": path}
    details = {"published": "weights", "reason": reason}
    stopped = isinstance(error, StoppedError)
    return PublishedWeights(public=None, whole=reserve.release.weights, details=details, solver=solver, stopped=stopped)


def _met(loss: float, bound: float | None, gap: float) -> bool:
    return bound is not None and loss - bound <= gap * max(abs(loss), 1e-12)


def _best(
    data: MetricData,
    context: SolveContext,
    spare: PublishedWeights | None,
    found: Solution,
    reserve: Reserve,
    reason: str,
) -> PublishedWeights:
    """The least loss among what the optimal mechanism's methods found, the exponential mechanism and column weights.

    Column weights are kept where the others gain no more than the gap asked for: they are one number a column.
    """
    from privopt.version import VERSION
    from privopt_metric_dp.matrix.release import MatrixRelease

    own = math.inf if spare is None else population_loss(spare.whole, data)
    reason = reason or f"column weights cost {own:.6g}, which misses the gap"
    if spare is not None and _met(own, min(found.objective, reserve.loss), context.gap):
        return evolve(spare, details={**spare.details, "reason": reason})
    path = found.details.get("path", found.method)
    if reserve.release is not None and reserve.loss <= found.objective:
        release, path = reserve.release, f"{path}, {reserve.path}"
    else:
        release = MatrixRelease.from_matrix(found.z, data, context)
    if spare is not None and _met(own, population_loss(release.weights, data), context.gap):
        return evolve(spare, details={**spare.details, "reason": reason})
    solver = {"name": found.method, "version": VERSION, "iterations": found.iterations, "path": path}
    details = {"published": "weights", "reason": reason}
    return PublishedWeights(public=None, whole=release.weights, details=details, solver=solver)


def population_loss(weights: Unsigned, data: MetricData) -> float:
    """Prior-weighted loss over all records."""
    rows = [
        data.prior[part] * np.einsum("ik,ik->i", weights[part].astype(np.float64), data.cost[part])
        for part in slices(len(weights), weights.shape[1], BLOCK)
    ]
    return math.fsum(np.concatenate(rows).tolist()) / TOTAL
