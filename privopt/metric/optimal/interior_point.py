"""Structured primal-dual interior point for the optimal mechanism.

Slacks ``s = A z`` of the privacy rows (scaled by ``exp(-eps d / 2)``) and their multipliers ``f`` are the
only inequality variables: in a connected component with two records the rows imply ``z >= 0``. A step
costs one block-tridiagonal Cholesky an output (`privopt.metric.optimal.blocks`) and one dense Cholesky for
the row sums. Directions are Mehrotra's predictor and corrector with weights (Colombo and Gondzio 2008)
and further centrality correctors (Gondzio 1996). Every iterate is strictly inside the privacy rows and
its rows sum to one, so stopping early gives a mechanism all the same.
"""

from __future__ import annotations

import os
import time
from typing import Any

import numpy as np

from privopt.arrays import Floats
from privopt.exact.bound import Multipliers
from privopt.metric.optimal.arrays import Arrays, chosen_arrays
from privopt.metric.optimal.blocks import factorise
from privopt.metric.optimal.instance import Instance, Progress, Solution
from privopt.metric.optimal.interior_state import Chunk, State, begin
from privopt.metric.optimal.reduce import solve_by_component
from privopt.metric.optimal.symmetry import Symmetry, find_symmetry

__all__ = ["solve_interior_point"]

WEIGHTS = (1.0, 0.75, 0.5, 0.3, 0.1)
CORRECTORS = 4
LAST_ITERATION = 150
SOUND = 1e-7
"""Row sums farther than this from one mean that the numbers have broken down."""


def _bounds(state: State) -> tuple[float, float, float]:
    """Loss, lower bound (scaled) and mean complementarity of the iterate."""

    def one(chunk: Chunk) -> tuple[float, Any, float]:
        reduced = chunk.cost - state.rows.transpose @ chunk.f
        least = state.arrays.get(reduced).min(axis=1)
        return float((chunk.cost * chunk.z).sum()), least, float((chunk.f * chunk.s).sum())

    parts = state.each(one)
    least = np.min([part[1] for part in parts], axis=0)
    orbit = state.symmetry.orbit
    by_orbit = np.full(len(state.y), np.inf)
    np.minimum.at(by_orbit, orbit, least)
    return sum(p[0] for p in parts), float(by_orbit[orbit].sum()), sum(p[2] for p in parts) / state.size


def _save(state: State, loss: float, bound: float) -> bool:
    """Keep the mechanism of least loss with sound row sums, the multipliers of the best bound; False if unsound."""
    if bound > state.bound:
        state.proof, state.bound = [chunk.f for chunk in state.chunks], bound
    off = float(np.abs(1 - state.sums([chunk.z.sum(1) for chunk in state.chunks])).max())
    if off <= SOUND and loss < state.saved_loss:
        state.saved, state.saved_loss = [chunk.z for chunk in state.chunks], loss
    return off <= SOUND


def _factorise(state: State) -> Any:
    """Factor all outputs' matrices.

    Returns the Cholesky factor of the coupling and the row sums of the predictor at the prices at hand.
    """
    pairs = len(state.instance.pairs)
    prices = state.row_values(state.y)

    def one(chunk: Chunk) -> tuple[Any, Any]:
        chunk.w = chunk.f / chunk.s
        off = -(chunk.w[:pairs] + chunk.w[pairs:])
        chunk.factors = factorise(state.layout, state.arrays, off, (state.rows.squares @ chunk.w) * (1 + 1e-14))
        columns = state.orbit_columns
        coupling = chunk.factors.coupling_all() if columns is None else chunk.factors.coupling(columns)
        return coupling, chunk.factors.solve(prices - chunk.cost).sum(1)

    parts = state.each(one)
    coupling = sum(state.arrays.get(part[0]) for part in parts)
    if state.orbit_columns is None:
        natural = np.empty_like(coupling)
        natural[np.ix_(state.layout.order, state.layout.order)] = coupling
        coupling = natural
    from scipy.linalg import cho_factor

    if not np.isfinite(coupling).all():
        raise np.linalg.LinAlgError("the coupling has left the range of doubles")
    return cho_factor(coupling, lower=True), state.sums([part[1] for part in parts])


def _affine(state: State, factor: Any, priced: Floats) -> Floats:
    """Predictor: straight at the optimum. Sets each chunk's direction; returns the step of ``y``."""
    from scipy.linalg import cho_solve

    missing = 1 - state.sums([chunk.z.sum(1) for chunk in state.chunks])
    dy = np.asarray(cho_solve(factor, missing - priced))
    prices = state.row_values(state.y + dy)

    def one(chunk: Chunk) -> None:
        assert chunk.factors is not None
        chunk.dz = chunk.factors.solve(prices - chunk.cost)
        chunk.ds = state.rows.forward @ chunk.dz
        chunk.df = -chunk.f - chunk.w * chunk.ds

    state.each(one)
    return dy


def _correct(state: State, factor: Any) -> Floats:
    """Direction for the complementarity targets ``chunk.rc`` alone, into ``chunk.extra``."""
    from scipy.linalg import cho_solve

    def first(chunk: Chunk) -> Any:
        assert chunk.factors is not None
        chunk.rc = chunk.rc / chunk.s
        right = state.rows.transpose @ chunk.rc
        chunk.extra = (right, None, None)
        return chunk.factors.solve(right).sum(1)

    dy = np.asarray(cho_solve(factor, -state.sums(state.each(first))))
    prices = state.row_values(dy)

    def second(chunk: Chunk) -> None:
        assert chunk.factors is not None
        assert chunk.extra is not None
        dz = chunk.factors.solve(chunk.extra[0] + prices)
        ds = state.rows.forward @ dz
        chunk.extra = (dz, ds, chunk.rc - chunk.w * ds)

    state.each(second)
    return dy


def _steps(state: State) -> tuple[float, float]:
    longest = state.arrays.longest
    parts = state.each(lambda c: (longest(c.s, c.ds, c.ds, (0.0,))[0], longest(c.f, c.df, c.df, (0.0,))[0]))
    return min(1.0, *(float(p[0]) for p in parts)), min(1.0, *(float(p[1]) for p in parts))


def _weighted_steps(state: State) -> tuple[tuple[float, float], tuple[float, float]]:
    """Best weight and step, primal and dual, of direction plus weight times extra direction."""

    longest = state.arrays.longest

    def one(chunk: Chunk) -> tuple[Floats, Floats]:
        assert chunk.extra is not None
        _, es, ef = chunk.extra
        return longest(chunk.s, chunk.ds, es, WEIGHTS), longest(chunk.f, chunk.df, ef, WEIGHTS)

    primal, dual = np.minimum(np.min(state.each(one), axis=0), 1.0)
    p, d = int(primal.argmax()), int(dual.argmax())
    return (WEIGHTS[p], float(primal[p])), (WEIGHTS[d], float(dual[d]))


def _add_extra(state: State, primal: float, dual: float) -> None:
    def one(chunk: Chunk) -> None:
        assert chunk.extra is not None
        ez, es, ef = chunk.extra
        chunk.dz = chunk.dz + primal * ez
        chunk.ds = chunk.ds + primal * es
        chunk.df = chunk.df + dual * ef

    state.each(one)


def _direction(state: State, factor: Any, priced: Floats, mu: float) -> tuple[Floats, float, float]:
    """Predictor, weighted corrector, centrality correctors. Returns ``dy`` and both step lengths."""
    dy = _affine(state, factor, priced)
    tp, td = _steps(state)
    after = sum(state.each(lambda c: float(((c.f + td * c.df) * (c.s + tp * c.ds)).sum()))) / state.size
    target = mu * max((after / mu) ** 3, 1e-12)

    def mehrotra(chunk: Chunk) -> None:
        chunk.rc = target - chunk.ds * chunk.df

    state.each(mehrotra)
    dy_c = _correct(state, factor)
    (wp, tp), (wd, td) = _weighted_steps(state)
    _add_extra(state, wp, wd)
    dy = dy + wd * dy_c
    for _ in range(CORRECTORS):
        if min(tp, td) > 0.95:
            break
        aim_p, aim_d = min(1.0, tp + 0.3), min(1.0, td + 0.3)

        def centre(chunk: Chunk, aim_p: float = aim_p, aim_d: float = aim_d) -> None:
            v = (chunk.f + aim_d * chunk.df) * (chunk.s + aim_p * chunk.ds)
            wanted = state.arrays.clip(v, 0.1 * target, 10 * target)
            chunk.rc = state.arrays.clip(wanted - v, -10 * target, np.inf)

        state.each(centre)
        dy_c = _correct(state, factor)
        (wp, tp2), (wd, td2) = _weighted_steps(state)
        if tp2 < tp + 0.01 and td2 < td + 0.01:
            break
        wp, wd = wp if tp2 > tp else 0.0, wd if td2 > td else 0.0
        _add_extra(state, wp, wd)
        dy = dy + wd * dy_c
        tp, td = max(tp, tp2), max(td, td2)
    return dy, tp, td


def _restore_sums(state: State, factor: Any, within: float) -> None:
    """Bring the row sums back to one by the least change in the last step's own metric."""
    from scipy.linalg import cho_solve

    for _ in range(3):
        missing = 1 - state.sums([chunk.z.sum(1) for chunk in state.chunks])
        if np.abs(missing).max() < within:
            return
        prices = state.row_values(np.asarray(cho_solve(factor, missing)))

        def one(chunk: Chunk, prices: Any = prices) -> float:
            assert chunk.factors is not None
            chunk.dz = chunk.factors.solve(prices + 0 * chunk.cost)
            chunk.ds = state.rows.forward @ chunk.dz
            return float(state.arrays.longest(chunk.s, chunk.ds, chunk.ds, (0.0,))[0])

        if min(state.each(one)) <= 1:
            return
        for chunk in state.chunks:
            chunk.z, chunk.s = chunk.z + chunk.dz, chunk.s + chunk.ds


def _solution(state: State, status: str, iterations: int, trajectory: list[tuple[float, float, float]]) -> Solution:
    get, instance = state.arrays.get, state.instance
    columns = np.concatenate([get(z) for z in state.saved], axis=1)
    z = state.symmetry.lift(columns)
    z = np.maximum(z, 0)
    z /= z.sum(axis=1, keepdims=True)
    pairs = len(instance.pairs)
    shrink = np.exp(-instance.lengths / 2)[:, None] * state.scale
    f = np.concatenate([get(part) for part in state.proof], axis=1)
    own = Multipliers.whole(f[:pairs] * shrink, f[pairs:] * shrink)
    multipliers = state.symmetry.lift_multipliers(instance, own)
    return Solution(
        z=z,
        objective=instance.loss(z),
        lower_bound=state.bound * state.scale,
        multipliers=multipliers,
        method="interior-point",
        iterations=iterations,
        trajectory=tuple(trajectory),
        status=status,
        details={
            "symmetries": state.symmetry.order,
            "blocks": state.layout.blocks,
            "widest_block": int(np.diff(state.layout.bounds).max()),
        },
    )


def _iterate(
    state: State, gap: float, deadline: float | None, progress: Progress | None
) -> tuple[str, int, list[tuple[float, float, float]]]:
    trajectory: list[tuple[float, float, float]] = []
    began, iteration = time.monotonic(), 0
    factor: Any = None
    try:
        for iteration in range(LAST_ITERATION):
            loss, bound, mu = _bounds(state)
            if not (np.isfinite(loss + mu) and _save(state, loss, bound)):
                return "feasible", iteration, trajectory
            lower, upper = state.bound * state.scale, loss * state.scale
            trajectory.append((time.monotonic() - began, lower, upper))
            if progress is not None:
                progress(lower, upper, iteration, "interior point")
            if state.instance.reached(upper, lower, gap):
                if factor is not None:
                    _restore_sums(state, factor, 1e-14)
                _save(state, -np.inf, bound)
                return "optimal", iteration, trajectory
            if deadline is not None and time.monotonic() >= deadline:
                return "stopped", iteration, trajectory
            try:
                factor, priced = _factorise(state)
            except np.linalg.LinAlgError:
                return "feasible", iteration, trajectory
            dy, tp, td = _direction(state, factor, priced, mu)
            keep = 0.9 if iteration < 2 else 0.995
            tp, td = (1.0 if t >= 1 else keep * t for t in (tp, td))

            def move(chunk: Chunk, tp: float = tp, td: float = td) -> None:
                chunk.z = chunk.z + tp * chunk.dz
                chunk.s = chunk.s + tp * chunk.ds
                chunk.f = chunk.f + td * chunk.df

            state.each(move)
            state.y = state.y + td * dy
            _restore_sums(state, factor, 1e-10)
            if max(tp, td) < 1e-4:
                return "feasible", iteration, trajectory
    except KeyboardInterrupt:
        return "stopped", iteration, trajectory
    return "feasible", LAST_ITERATION, trajectory


def _solve_connected(
    instance: Instance,
    gap: float,
    deadline: float | None,
    progress: Progress | None,
    arrays: Arrays,
    symmetry: bool,
    threads: int,
) -> Solution:
    import scipy.linalg  # noqa: F401  (so that its BLAS is told too, whatever was loaded before)
    from threadpoolctl import threadpool_limits

    with np.errstate(over="ignore", invalid="ignore"):
        group = find_symmetry(instance) if symmetry else Symmetry.trivial(instance)
        state = begin(instance, group, arrays, threads)
        try:
            # the outputs keep all processors busy already: threads of BLAS's own would only wait for each other
            with threadpool_limits(limits=None if state.pool is None else 1, user_api="blas"):
                status, iterations, trajectory = _iterate(state, gap, deadline, progress)
            return _solution(state, status, iterations, trajectory)
        finally:
            if state.pool is not None:
                state.pool.shutdown()


def solve_interior_point(
    instance: Instance,
    *,
    gap: float = 1e-6,
    deadline: float | None = None,
    progress: Progress | None = None,
    arrays: Arrays | None = None,
    symmetry: bool = True,
    threads: int | None = None,
) -> Solution:
    """Solve by the structured interior point.

    Args:
        instance: the problem.
        gap: relative gap to stop at.
        deadline: `time.monotonic` value at which the iterate at hand is returned.
        progress: called with lower bound, loss, iteration and phase.
        arrays: array library; by default that of `PRIVOPT_DEVICE` (NumPy where it is not set).
        symmetry: look for symmetries and use them.
        threads: workers, by default the number of processors, at most 8.

    Raises:
        UsageError: `PRIVOPT_DEVICE` names a device that cannot be had.
    """
    library = arrays or chosen_arrays()
    workers = threads or min(8, os.cpu_count() or 1)
    return solve_by_component(
        instance, lambda part: _solve_connected(part, gap, deadline, progress, library, symmetry, workers)
    )
