"""Structured primal-dual interior point for the optimal mechanism.

Slacks ``s = A z`` of the privacy rows (scaled by ``exp(-eps d / 2)``) and their multipliers ``f`` are the
only inequality variables: in a connected component with two records the rows imply ``z >= 0``. A step
costs one sparse factorisation an output, and conjugate gradients for the row sums
(`privopt_metric_dp.solvers.normal_equations`). Directions are Mehrotra's predictor and corrector with weights (Colombo
and Gondzio 2008) and further centrality correctors (Gondzio 1996). Every iterate is strictly inside the
privacy rows. Its rows sum to one, or are brought there whenever the gap has halved, so stopping early gives a mechanism
all the same; any multipliers prove a bound, so that inexact steps cost progress, never truth.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from operator import methodcaller

import numpy as np
from attrs import define

from privopt.arrays import Floats
from privopt.execution.limits import allowed_threads
from privopt.interfaces import Progress
from privopt_metric_dp.proof.multipliers import Block, Multipliers
from privopt_metric_dp.solvers.components import solve_by_component
from privopt_metric_dp.solvers.elimination import eliminate
from privopt_metric_dp.solvers.instance import Instance, Solution
from privopt_metric_dp.solvers.interior_point_dense import DenseEngine
from privopt_metric_dp.solvers.interior_point_state import Engine, State, begin
from privopt_metric_dp.solvers.normal_equations import ROOMS, Coupling, couple
from privopt_metric_dp.solvers.symmetry import Symmetry, find_symmetry

__all__ = ["interior_point_bytes", "interior_point_seconds", "solve_interior_point"]

WEIGHTS = np.array([1.0, 0.75, 0.5, 0.3, 0.1])
CORRECTORS = 2
LAST_ITERATION = 150
SOUND = 1e-7
"""Row sums farther than this from one mean that the numbers have broken down."""
STRAIGHT = 1e-9
"""Row sums are brought back after a step that left them farther than this from one."""
SMALL = 1e8
"""Records to the third power times outputs up to which dense matrices do: compiling kernels for the first time takes
longer (100 records and outputs: .7 processor seconds; .1 compiled, and .5 to load it)."""
A_FLOP = 1.8e-10
"""Processor seconds of a step for each record, output and entry of the factor."""
SHARE = 1e-8
"""Residual of the coupling's solution, as a share of its right side."""
LOOSE, STRAIGHTENED = 1e-3, 1e-6
"""The same where the coupling is not formed: in a step (a predictor's ten times that), and where row sums are brought
back. Bounds hold whatever the steps were; a finer one made no fewer of them (2,032 nodes of Rome, 120 outputs)."""
LOOSE_STEP = 0.95
"""Part of the way to the border that a step goes there."""
PATIENT = 400
"""Steps of conjugate gradients there, at most, where row sums are brought back."""
FORMED, TIGHT = 4_000, 0.02
"""Records up to which, and gaps below which, the coupling is formed. At 2,032 street nodes of Rome with 120 outputs
either way took 9 s to 1 %; with all 2,032 outputs 285 s formed, and 376 s to 1.3 % otherwise; at 5,400 junctions with
960 outputs a step took 90 s formed and 23 s otherwise (all beside a load of 7 to 12 on two processors)."""


@define
class _Looked:
    """Loss and lower bound (scaled), mean complementarity, what row sums miss of one."""

    loss: float
    bound: float
    mu: float
    missing: Floats


def _look(state: State) -> _Looked:
    parts = state.each(lambda group: group.measure())
    by_orbit = np.full(len(state.y), np.inf)
    np.minimum.at(by_orbit, state.orbit, np.minimum.reduce([part.least for part in parts]))
    return _Looked(
        loss=sum(part.loss for part in parts),
        bound=float(by_orbit[state.symmetry.orbit].sum()),
        mu=sum(part.products for part in parts) / state.size,
        missing=1 - np.asarray(state.gather @ sum(part.sums for part in parts)),
    )


def _save(state: State, seen: _Looked, *, last: bool = False) -> bool:
    """Keep the mechanism of least loss with sound row sums, the multipliers of the best bound.

    Returns:
        False if row sums are unsound that every step should have left sound.
    """
    sound = float(np.abs(seen.missing).max()) <= SOUND
    mechanism, proof = sound and (last or seen.loss < state.saved_loss), seen.bound > state.bound
    for group in state.groups:
        group.keep(mechanism, proof)
    state.saved_loss = seen.loss if mechanism else state.saved_loss
    state.bound = seen.bound if proof else state.bound
    return sound or not state.formed


def _steps(ratios: Floats) -> Floats:
    """Longest steps, at most 1, that keep ratios of change to value at -1 or above."""
    return np.asarray(1 / np.maximum(1.0, -ratios))


def _predict(state: State, coupling: Coupling, missing: Floats, mu: float) -> tuple[Floats, float]:
    """Predictor: straight at the optimum, into the groups.

    Returns the step of ``y`` and the corrector's target of complementarity.
    """
    prices = state.prices(state.y)
    priced = state.sums(lambda group: group.solve(prices, 1.0))
    dy = coupling.solve(missing - priced, LOOSE if coupling.loose else SHARE)
    ahead = state.prices(state.y + dy)
    parts = np.array(state.each(lambda group: group.predict(ahead)))
    tp, td = map(float, _steps(parts[:, :2].min(axis=0)))
    fs, fds, dfs, dfds = parts[:, 2:].sum(axis=0)
    after = max(0.0, float(fs + tp * fds + td * dfs + tp * td * dfds)) / state.size
    return dy, mu * max((after / mu) ** 3, 1e-12)


def _extend(
    state: State, coupling: Coupling, add: tuple[float, float], target: float, ahead: tuple[float, float]
) -> tuple[Floats, Floats]:
    """An extra direction, for targets of complementarity alone. Returns its step of ``y``, and steps by weights."""
    state.each(lambda group: group.aim(add, target, ahead))
    nothing = state.prices(np.zeros_like(state.y))
    dy = coupling.solve(-state.sums(lambda group: group.solve_right(nothing)), LOOSE if coupling.loose else SHARE)
    prices = state.prices(dy)
    return dy, _steps(np.minimum.reduce(state.each(lambda group: group.extend(prices, WEIGHTS))))


def _direction(
    state: State, coupling: Coupling, missing: Floats, mu: float
) -> tuple[Floats, tuple[float, float], tuple[float, float]]:
    """Predictor, weighted corrector, centrality correctors.

    Returns ``dy``, the weights with which the last extra direction is still to be added, and both step lengths.
    """
    dy, target = _predict(state, coupling, missing, mu)
    change, steps = _extend(state, coupling, (0.0, 0.0), target, (0.0, 0.0))
    best = steps.argmax(axis=1)
    (wp, wd), (tp, td) = WEIGHTS[best], steps.max(axis=1)
    dy = dy + wd * change
    for _ in range(CORRECTORS):
        if min(tp, td) > 0.95:
            break
        ahead = min(1.0, tp + 0.3), min(1.0, td + 0.3)
        change, steps = _extend(state, coupling, (float(wp), float(wd)), target, ahead)
        (wp, wd), (tp2, td2) = WEIGHTS[steps.argmax(axis=1)], steps.max(axis=1)
        if tp2 < tp + 0.01 and td2 < td + 0.01:
            wp = wd = 0.0
            break
        wp, wd = wp if tp2 > tp else 0.0, wd if td2 > td else 0.0
        dy = dy + wd * change
        tp, td = max(tp, tp2), max(td, td2)
    return dy, (float(wp), float(wd)), (float(tp), float(td))


def _restore_sums(state: State, coupling: Coupling, within: float) -> None:
    """Bring the row sums back to one by the least change in the last step's own metric."""
    for _ in range(3):
        missing = 1 - state.sums(lambda group: group.row_sums())
        if np.abs(missing).max() < within:
            return
        prices = state.prices(coupling.solve(missing, *((STRAIGHTENED, PATIENT) if coupling.loose else (SHARE,))))
        if min(state.each(methodcaller("straighten", prices))) <= -1:
            return
        state.each(lambda group: group.take())


def _multipliers(state: State) -> Multipliers:
    shrink = np.exp(-state.instance.lengths / 2)[:, None] * state.scale
    proofs = [group.proof() for group in state.groups]  # of the groups no more than this is held

    def blocks() -> Iterator[Block]:
        start = 0
        for proof in proofs:
            forward, backward = proof()
            stop = start + forward.shape[1]
            yield start, stop, forward * shrink, backward * shrink
            start = stop

    return Multipliers(blocks=blocks)


def _solution(state: State, status: str, iterations: int, trajectory: list[tuple[float, float, float]]) -> Solution:
    instance = state.instance
    columns = np.concatenate([group.mechanism() for group in state.groups], axis=1)
    z = state.symmetry.lift(columns)
    z = np.maximum(z, 0)
    z /= z.sum(axis=1, keepdims=True)
    multipliers = state.symmetry.lift_multipliers(instance, _multipliers(state))
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
            **state.engine.details,
        },
    )


def _iterate(
    state: State, gap: float, progress: Progress | None, between: Callable[[State], None] | None = None
) -> tuple[str, int, list[tuple[float, float, float]]]:
    trajectory: list[tuple[float, float, float]] = []
    began, iteration = time.monotonic(), 0
    coupling: Coupling | None = None
    try:
        for iteration in range(LAST_ITERATION):
            seen = _look(state)
            if not (np.isfinite(seen.loss + seen.mu) and _save(state, seen)):
                return "feasible", iteration, trajectory
            if coupling is not None and _due(state, seen, gap):
                _restore_sums(state, coupling, 1e-14)
                seen = _look(state)
                _save(state, seen, last=True)
            lower, upper = state.bound * state.scale, seen.loss * state.scale
            trajectory.append((time.monotonic() - began, lower, upper))
            if progress is not None:
                progress("interior point", iteration, lower, upper)
            if state.instance.reached(upper, lower, gap):
                return "optimal", iteration, trajectory
            state.late()
            if between is not None:
                between(state)
            coupling = couple(state)
            dy, add, (tp, td) = _direction(state, coupling, seen.missing, seen.mu)
            keep = LOOSE_STEP if coupling.loose else 0.9 if iteration < 2 else 0.995
            step = 1.0 if tp >= 1 else keep * tp, 1.0 if td >= 1 else keep * td
            state.each(methodcaller("move", add, step))
            state.y = state.y + step[1] * dy
            if not coupling.loose:
                _restore_sums(state, coupling, STRAIGHT)
            if max(step) < 1e-4:
                return "feasible", iteration, trajectory
    except np.linalg.LinAlgError:
        return "feasible", iteration, trajectory
    except (TimeoutError, KeyboardInterrupt):
        return "stopped", iteration, trajectory
    return "feasible", LAST_ITERATION, trajectory


def _due(state: State, seen: _Looked, gap: float) -> bool:
    """Whether row sums are to be brought back to one: the gap is reached, or half of what it was at the last time."""
    half = not state.formed and seen.loss - state.bound <= (state.saved_loss - state.bound) / 2
    return half or state.instance.reached(seen.loss * state.scale, state.bound * state.scale, gap)


def interior_point_bytes(instance: Instance) -> float:
    """Memory that `solve_interior_point` takes on the processor beyond the instance; symmetry not counted.

    Doubles an output: one an entry of the factor, nine a record (costs, mechanism and the one kept, direction, extra
    one and its right side, pivots, scales, the answer), ten a pair (slacks, multipliers and those kept, direction,
    extra one). Of a coupling that is formed, singles: `ROOMS` matrices, and five more while they are put together and
    factored; of another, doubles: entries of the pattern for each of as many parts, and eight outputs' at work.
    """
    n, k, pairs = instance.records, instance.outputs, len(instance.pairs)
    if _dense(n, k):
        return 8.0 * k * (24 * pairs + 20 * n + 2 * n**2)
    lanes, entries = -(-k // 8) * 8, _entries(instance)
    coupling = 4.0 * n**2 * (ROOMS + 5) if n <= FORMED else 8.0 * (n + entries) * (ROOMS + 8 * allowed_threads())
    return 8.0 * lanes * (entries + 9 * n + 10 * pairs) + coupling


def _entries(instance: Instance) -> int:
    """Of a factor: half of all pairs fill all of it."""
    every = instance.records * (instance.records - 1) // 2
    return every if len(instance.pairs) > every // 2 else eliminate(instance).entries


def interior_point_seconds(instance: Instance, gap: float, *, threads: int = 1) -> float:
    """About how long `solve_interior_point` takes to a gap on the processor; symmetry not counted.

    Nearly all goes into the coupling, which is N times the entries of the factor for each output. 400 scattered points
    took 1.6 to 2.1e-10 processor seconds each in a step with 1,900 to 8,800 of their pairs, and 12, 18, 40, 51 steps
    to gaps of 5.4, 1.2, .25 and .06 %.
    """
    steps = 12.0 + 9.0 * math.log(max(1.0, 0.05 / gap))
    return A_FLOP * instance.records * instance.outputs * _entries(instance) * steps / threads


def _dense(records: int, outputs: int) -> bool:
    return float(records) ** 3 * outputs <= SMALL


def _engine(instance: Instance, outputs: int) -> Engine:
    """Compiled for the processor; dense where the problem, with so many outputs, is too small to compile for."""
    if _dense(instance.records, outputs):
        return DenseEngine(instance)
    from privopt_metric_dp.solvers.interior_point_simd import LaneEngine

    return LaneEngine(instance)


def _solve_connected(
    instance: Instance,
    gap: float,
    deadline: float | None,
    progress: Progress | None,
    symmetry: bool,
    threads: int,
    between: Callable[[State], None] | None = None,
) -> Solution:
    import scipy.linalg  # noqa: F401  (so that the limit below reaches its BLAS too, whatever was loaded before)
    from threadpoolctl import threadpool_limits

    def late() -> None:
        if deadline is not None and time.monotonic() >= deadline:
            raise TimeoutError

    with np.errstate(all="ignore"):
        formed = instance.records <= FORMED and gap < TIGHT
        group = find_symmetry(instance) if symmetry and formed else Symmetry.trivial(instance)
        engine = _engine(instance, len(group.representatives))
        formed = formed or engine.exact
        state = begin(instance, group, engine, formed=formed, threads=threads, late=late)
        try:
            # the outputs keep all processors busy already: threads of BLAS's own would only wait for each other
            with threadpool_limits(limits=1, user_api="blas"):
                status, iterations, trajectory = _iterate(state, gap, progress, between)
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
    symmetry: bool = True,
    threads: int | None = None,
    between: Callable[[State], None] | None = None,
) -> Solution:
    """Solve by the structured interior point.

    Args:
        instance: the problem.
        gap: relative gap to stop at.
        deadline: `time.monotonic` value at which the iterate at hand is returned.
        progress: called with lower bound, loss, iteration and phase.
        symmetry: look for symmetries and use them.
        threads: workers, by default as many as ``--jobs`` allows; the answer does not depend on it.
        between: called between steps, and may change costs (`State.recost`); the instance is connected then, and no two
            of its records are at distance 0.
    """
    workers = threads or allowed_threads()
    if between is not None:
        return _solve_connected(instance, gap, deadline, progress, False, workers, between)
    return solve_by_component(
        instance,
        lambda part: _solve_connected(part, gap, deadline, progress, symmetry, workers),
        gap,
        deadline=deadline,
    )
