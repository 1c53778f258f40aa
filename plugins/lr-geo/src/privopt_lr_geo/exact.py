"""Method exact: a guarantee over the whole population, and nothing uploaded.

The server publishes the star's column weights, one number an output, and each user computes its own row
(mathematics: W x = 1, W_is = exp(-epsilon D_is)). Where no weights x >= 0 exist, the optimal mechanism is computed and
the whole matrix is published: a row that a user asked for would tell where it is.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.errors import SolverError
from privopt.exact import certify
from privopt_lr_geo.local import Ways
from privopt_lr_geo.rows import TOTAL, ColumnWeights, steady_exp

if TYPE_CHECKING:
    from privopt.interfaces import SolveContext
    from privopt.problem.data import MetricData

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
    reason = "no column weights: records at distance 0" if (data.distances == 0).any() else ""
    if not reason:
        try:
            found = _star(data, ways, context)
        except SolverError as error:
            found, reason = None, f"no column weights: {error}"
        if found is not None:
            own, plain = population_loss(found.whole, data), exponential_loss(data)
            if plain is None or own <= plain:
                return found
            reason = f"column weights would cost {own:.6g}, the exponential mechanism {plain:.6g}"
    return _optimal(data, context, reason)


def _star(data: MetricData, ways: Ways, context: SolveContext) -> Found:
    count = len(data.records)
    distances = np.empty((count, count))
    for rows in blocks(count, count):
        distances[rows] = ways.rows(rows)
        context.check()
    positive = data.distances[data.distances > 0]
    step = float(data.epsilon) * float(positive.min()) if positive.size else 1.0
    serves: Ints | None = None
    pairs, lengths, _ = certified_pairs(data)
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
            serves = _serve(kernel, data)
        del kernel
        public = ColumnWeights(weights=weights, serves=serves, outputs=len(data.outputs), rate=rate, cap=cap)
        whole = np.empty(data.shape, dtype=np.uint64)
        for rows in blocks(count, max(data.shape)):
            whole[rows] = public.rows(distances[rows])
        with context.timed("repair"):
            measured = certify(whole, pairs, lengths, data.epsilon, executor=context.executor)
        if measured.holds:
            whole.setflags(write=False)
            details = {"published": "column_weights", "tau": slack, "cap": cap}
            return Found(public=public, whole=whole, details=details, solver={"name": "star"})
        trouble = f"{measured.failed} pairs did not certify"
    raise SolverError(trouble)


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


def _serve(kernel: Floats, data: MetricData) -> Ints:
    """For each column the output of least cost. Single precision where that saves minutes: no privacy hangs on it."""
    kind: Any = np.float32 if kernel.size > BLOCK else np.float64
    cost = (data.prior[:, None] * data.cost).astype(kind)
    serves = np.empty(len(kernel), dtype=np.int64)
    for rows in blocks(len(kernel), len(kernel)):
        serves[rows] = (kernel[rows].astype(kind) @ cost).argmin(axis=1)
    return serves


def _optimal(data: MetricData, context: SolveContext, reason: str) -> Found:
    from privopt import __version__
    from privopt.matrix import MatrixRelease
    from privopt.optimal import Instance, solve

    instance = Instance(
        cost=data.weighted,
        pairs=data.pairs[data.needed],
        distances=data.distances[data.needed],
        epsilon=float(data.epsilon),
        coordinates=data.records.coordinates,
    )
    found = solve(
        instance,
        gap=context.gap / 2,
        deadline=context.deadline,
        executor=context.executor,
        progress=lambda lower, upper, iteration, phase: context.report(phase, iteration, lower, upper),
    )
    release = MatrixRelease.from_matrix(found.z, data, context)
    plain = exponential_loss(data)
    if plain is not None and population_loss(release.weights, data) > plain:
        from privopt.baselines.exponential import exponential

        reason += f"; {found.method} was stopped above the exponential mechanism's loss, which is published instead"
        release = MatrixRelease.from_matrix(exponential(data.to_outputs, float(data.epsilon)), data, context)
    details = {
        "published": "weights",
        "reason": reason,
        "population_lower_bound": found.lower_bound,
        "trajectory": found.trajectory,
    }
    solver = {"name": found.method, "version": __version__, "iterations": found.iterations}
    return Found(public=None, whole=release.weights, details=details, solver=solver, stopped=found.status == "stopped")


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
