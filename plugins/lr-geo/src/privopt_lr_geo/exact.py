"""Method exact: a guarantee over the whole population, and nothing uploaded.

The server publishes the star's column weights, one number an output, and each user computes its own row
(mathematics: W x = 1, W_is = exp(-epsilon D_is)). Where no weights x >= 0 exist, the optimal mechanism is computed and
the whole matrix is published: a row that a user asked for would tell where it is.

Where that does not come in time, weights are found at a smaller rate, some of them 0, with which rows nearly sum to
one. Each user divides its row by its sum r_i; where rate + max |log r_i - log r_j| / d_ij <= epsilon, over pairs that
imply all others, the promise holds all the same. At half of epsilon it always does. (400 cells of Rome: loss 1.053 km
at epsilon 1 per km, the optimum's .916, the exponential mechanism's 1.715; at epsilon 2 .499, .489 and .996.)
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from privopt.errors import SolverError, StoppedError
from privopt.exact import certify
from privopt_lr_geo.local import Ways
from privopt_lr_geo.rows import TOTAL, ColumnWeights, steady_exp

if TYPE_CHECKING:
    from privopt.interfaces import SolveContext
    from privopt.metric.data import MetricData

__all__ = ["Found", "certified_pairs", "exponential_loss", "population_loss", "solve_exact", "whole_matrix"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Weights = NDArray[np.uint64]

SLACKS: Final = (1e-6, 1e-5, 1e-4)
"""tau of rate = epsilon (1 - tau), tried in this order."""
ROOM: Final = 8.0
"""The smallest positive weight is at least this many times what a rounding by one may be."""
SHALLOWEST: Final = 14.0
"""Log-ratios may not be cut below this: the far outputs would take a share that shows."""
LEAST: Final = 1e-4
"""Weights below this are dropped where rows are normalised."""
HALVINGS: Final = 7
"""Steps of the search for the rate."""
BLOCK: Final = 1 << 22
MANY: Final = 20_000_000_000
"""Pairs times outputs beyond which only those pairs are certified that imply the others exactly."""


@frozen(kw_only=True, eq=False)
class Found:
    """What the exact method publishes.

    Attributes:
        public: column weights, or None where the whole matrix is published.
        whole: (N, K) the matrix.
        details: how it was found.
    """

    public: ColumnWeights | None
    whole: Weights
    details: dict[str, Any]
    solver: dict[str, Any]
    stopped: bool = False


def blocks(count: int, width: int) -> list[Ints]:
    """Row numbers in blocks of a few million entries."""
    step = max(1, BLOCK // max(1, width))
    return [np.arange(start, min(count, start + step)) for start in range(0, count, step)]


def whole_matrix(public: ColumnWeights, ways: Ways) -> Weights:
    """Every record's row, computed as its user would. Memory: 8 N K bytes."""
    count = len(ways.data.records)
    whole = np.empty((count, public.outputs), dtype=np.uint64)
    for rows in blocks(count, max(count, public.outputs)):
        whole[rows] = public.rows(ways.rows(rows))
    return whole


def certified_pairs(data: MetricData) -> tuple[Ints, Floats, str]:
    """The pairs that the certificate stands on, and a word on it."""
    if len(data.pairs) * len(data.outputs) <= MANY:
        return data.pairs, data.distances, "every required pair"
    return data.pairs[data.needed], data.distances[data.needed], "the required pairs that imply all others exactly"


def solve_exact(data: MetricData, context: SolveContext) -> Found:
    """Column weights where they exist and do at least as well as the exponential mechanism; else the whole matrix.

    Raises:
        StoppedError: a limit came first.
        SolverError: no method gave a mechanism.
    """
    ways = Ways(data)
    context.report("path distances")
    if (data.distances == 0).any():
        return _optimal(data, context, "no column weights: records at distance 0", None)
    distances = np.empty((len(data.records),) * 2)
    for rows in blocks(*distances.shape):
        distances[rows] = ways.rows(rows)
        context.check()
    try:
        found = _star(data, distances, context)
        own, plain = population_loss(found.whole, data), exponential_loss(data)
        if plain is None or own <= plain:
            return found
        reason = f"column weights would cost {own:.6g}, the exponential mechanism {plain:.6g}"
    except SolverError as error:
        reason = f"no column weights at all of epsilon: {error}"
    spare = _normalised(data, distances, context)
    del distances
    return _optimal(data, context, reason, spare)


def _star(data: MetricData, distances: Floats, context: SolveContext) -> Found:
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
) -> Found | None:
    """Every record's row, certified; None where it does not hold."""
    pairs, lengths, _ = certified_pairs(data)
    whole = np.empty(data.shape, dtype=np.uint64)
    for rows in blocks(len(distances), max(data.shape)):
        whole[rows] = public.rows(distances[rows])
    with context.timed("repair"):
        measured = certify(whole, pairs, lengths, data.epsilon, executor=context.executor)
    if not measured.holds:
        return None
    whole.setflags(write=False)
    return Found(public=public, whole=whole, details=details, solver={"name": "star"})


def _normalised(data: MetricData, distances: Floats, context: SolveContext) -> Found | None:
    """Column weights at the greatest rate at which what normalising rows takes is left of epsilon; None in vain."""
    i, j = data.pairs[data.needed].T
    lengths = data.distances[data.needed]
    slack = SLACKS[-1]
    step = float(data.epsilon) * float(lengths.min()) if lengths.size else 1.0
    cap = math.log(float(TOTAL) * LEAST * slack * step / ROOM)
    if cap < SHALLOWEST:
        return None
    allowed = float(data.epsilon) * (1.0 - slack)

    def tried(rate: float) -> tuple[Floats, float]:
        """Weights, and what normalising takes of epsilon."""
        context.report(f"column weights at {rate:.4g} per {data.unit}")
        kernel = np.exp(-np.minimum(distances * rate, cap))
        x = _positive(kernel)
        sums = np.log(kernel @ x)
        return x, float((np.abs(sums[i] - sums[j]) / lengths).max(initial=0.0))

    low, high = 0.5, 1.0
    rate = low * allowed
    x, _ = tried(rate)
    for _ in range(HALVINGS):
        if context.remaining == 0.0:
            break
        middle = (low + high) / 2
        found, taken = tried(middle * allowed)
        if middle * allowed + taken <= allowed:
            low, rate, x = middle, middle * allowed, found
        else:
            high = middle
    kernel = np.exp(-np.minimum(distances * rate, cap))
    serves = _serve(kernel, data, data.prior / (kernel @ x))
    public = ColumnWeights(weights=x, serves=serves, outputs=len(data.outputs), rate=rate, cap=cap)
    details = {"published": "column_weights", "rate": rate, "cap": cap, "columns_used": int((x > 0).sum())}
    return _published(public, distances, data, context, details)


def _positive(kernel: Floats) -> Floats:
    """x >= 0 with kernel x near 1: columns are dropped until the others' weights are positive."""
    x = np.zeros(len(kernel))
    used = np.arange(len(kernel))
    while len(used):
        found = _solve_ones(kernel[np.ix_(used, used)])
        if (found > LEAST).all():
            x[used] = found
            return x
        used = used[found > LEAST]
    return np.full(len(kernel), 1.0 / len(kernel))


def _weights(distances: Floats, rate: float, slack: float) -> tuple[Floats, float, Floats]:
    """x >= 0 with W x = 1 up to a share of the slack, the cap on log-ratios, and W.

    Raises:
        SolverError: negative, or not to be had that exactly.
    """
    cap = math.log(float(TOTAL) * 1e-2 * slack / ROOM)
    for _ in range(4):
        if cap < SHALLOWEST:
            raise SolverError("some weight is too small to be rounded")
        kernel = np.empty_like(distances)
        for rows in blocks(len(distances), len(distances)):
            kernel[rows] = steady_exp(-np.minimum(distances[rows] * rate, cap))
        x = _solve_ones(kernel)
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


def _solve_ones(kernel: Floats) -> Floats:
    """x with kernel x = 1: conjugate gradients while they converge fast, else a factorisation."""
    x: Floats = np.zeros(len(kernel))
    r: Floats = np.ones(len(kernel))
    p: Floats = r.copy()
    rr = float(r @ r)
    for _ in range(200):
        q = kernel @ p
        curvature = float(p @ q)
        if curvature <= 0:
            break
        step = rr / curvature
        x = x + step * p
        r = r - step * q
        new = float(r @ r)
        if new <= 1e-26 * len(kernel):
            return x
        p = np.asarray(r + (new / rr) * p)
        rr = new
    try:
        direct = np.asarray(np.linalg.solve(kernel, np.ones(len(kernel))), dtype=np.float64)
        if not np.isfinite(direct).all():
            raise SolverError("the kernel is singular")
        return np.asarray(direct + np.linalg.solve(kernel, 1.0 - kernel @ direct))
    except np.linalg.LinAlgError:
        raise SolverError("the kernel is singular") from None


def _serve(kernel: Floats, data: MetricData, weight: Floats) -> Ints:
    """For each column the output of least cost, records weighed as told.

    Single precision where that saves minutes: no privacy hangs on it.
    """
    kind: Any = np.float32 if kernel.size > BLOCK else np.float64
    cost = (weight[:, None] * data.cost).astype(kind)
    serves = np.empty(len(kernel), dtype=np.int64)
    for rows in blocks(len(kernel), len(kernel)):
        serves[rows] = (kernel[rows].astype(kind) @ cost).argmin(axis=1)
    return serves


def _optimal(data: MetricData, context: SolveContext, reason: str, spare: Found | None) -> Found:
    """The optimal mechanism; where a limit stops it above ``spare`` or the exponential mechanism, the best of them."""
    from privopt import __version__
    from privopt.metric.matrix import MatrixRelease
    from privopt.metric.optimal import Instance, solve

    instance = Instance(
        cost=data.weighted,
        pairs=data.pairs[data.needed],
        distances=data.distances[data.needed],
        epsilon=float(data.epsilon),
        coordinates=data.records.coordinates,
    )
    try:
        context.check()
        found = solve(
            instance,
            gap=context.gap / 2,
            deadline=context.deadline,
            progress=lambda lower, upper, iteration, phase: context.report(phase, iteration, lower, upper),
        )
    except StoppedError:
        if spare is None:
            raise
        return evolve(spare, details={**spare.details, "reason": reason}, stopped=True)
    release = MatrixRelease.from_matrix(found.z, data, context)
    stopped = found.status == "stopped"
    own, plain = population_loss(release.weights, data), exponential_loss(data)
    details: dict[str, Any] = {
        "reason": reason,
        "population_lower_bound": found.lower_bound,
        "trajectory": found.trajectory,
    }
    if spare is not None and population_loss(spare.whole, data) < min(own, math.inf if plain is None else plain):
        return evolve(spare, details={**spare.details, **details}, stopped=stopped)
    if plain is not None and own > plain:
        from privopt.metric.baselines.exponential import exponential

        details["reason"] = f"{reason}; {found.method} was stopped above the exponential mechanism's loss"
        release = MatrixRelease.from_matrix(exponential(data.to_outputs, float(data.epsilon)), data, context)
    solver = {"name": found.method, "version": __version__, "iterations": found.iterations}
    return Found(
        public=None, whole=release.weights, details={"published": "weights", **details}, solver=solver, stopped=stopped
    )


def population_loss(weights: Weights, data: MetricData) -> float:
    """Prior-weighted loss over all records."""
    rows = [
        data.prior[part] * np.einsum("ik,ik->i", weights[part].astype(np.float64), data.cost[part])
        for part in blocks(*weights.shape)
    ]
    return math.fsum(np.concatenate(rows).tolist()) / TOTAL


def exponential_loss(data: MetricData) -> float | None:
    """The same of the exponential mechanism; None where distances to outputs are unknown."""
    if not data.crossed:
        return None
    rows = []
    for part in blocks(*data.shape):
        reach = data.metric.to_outputs(part)
        z = np.exp(-0.5 * float(data.epsilon) * (reach - reach.min(axis=1, keepdims=True)))
        rows.append(data.prior[part] * np.einsum("ik,ik->i", z, data.cost[part]) / z.sum(axis=1))
    return math.fsum(np.concatenate(rows).tolist())
