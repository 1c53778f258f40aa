"""Solve one Benders subproblem (block) at a point, on the worker that keeps it warm."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats
from privopt.backends import Basis, Outcome, Session, get
from privopt.backends.session import elastic_ray
from privopt.decompose.split import Cut, Piece, cut_of
from privopt.errors import SolverError
from privopt.execution import worker_state
from privopt.execution.clock import clock

CORE_POINT_STEP = 1e-4
"""How far the point is moved towards the core for the cut that no other dominates there."""


@frozen(eq=False, kw_only=True)
class BlockAnswer:
    """What a block says of a point.

    Attributes:
        outcome: optimal, infeasible, unbounded or stopped.
        x: its own columns, where optimal. value: what they cost.
        cuts: those that its multipliers prove.
        basis: to start from next time.
        seconds: in the solver. iterations: of it.
    """

    outcome: Outcome
    x: Floats | None = None
    value: float = np.inf
    cuts: tuple[Cut, ...] = ()
    basis: Basis | None = None
    seconds: float = 0.0
    iterations: int = 0


def _session_of(token: str, piece: Piece, solver: str) -> Session:
    """Return the block's session, kept by the worker; built again where this worker does not know it."""
    state = worker_state()
    key = ("benders", token, piece.number)
    if key not in state:
        state[key] = get(solver).session(piece.form)
    kept: Session = state[key]
    return kept


def _set(session: Session, piece: Piece, z: Floats) -> None:
    lower, upper = piece.sides(z)
    session.change_row_bounds(np.arange(len(lower)), lower, upper)


def solve_block(
    token: str,
    piece: Piece,
    solver: str,
    z: Floats,
    core: Floats | None,
    basis: Basis | None,
) -> BlockAnswer:
    """Solve a block with the complicating columns at ``z``.

    Args:
        token: of the run: blocks of one run are kept apart from those of others.
        piece: the block.
        solver: name.
        z: complicating columns.
        core: a point well inside; the cut is taken a little towards it, where it is not dominated
            (Magnanti and Wong 1981, in the form of Sherali and Lunday 2013). None for the plain cut.
        basis: to start from.

    Raises:
        SolverError: the solver failed, or its multipliers prove nothing.
    """
    kept = _session_of(token, piece, solver)
    _set(kept, piece, z)
    answer = kept.solve(basis=basis)
    after = kept.basis
    seconds, iterations = answer.seconds, answer.iterations
    if answer.outcome is Outcome.INFEASIBLE:
        cut = _feasibility_cut(piece, answer.ray, z) or _elastic_cut(piece, solver, z)
        cuts = [cut] if cut is not None else []  # none where it misses by no more than rounding: then ask elsewhere
        return BlockAnswer(
            outcome=answer.outcome, cuts=tuple(cuts), basis=after, seconds=seconds, iterations=iterations
        )
    if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
        return BlockAnswer(outcome=answer.outcome, seconds=seconds, iterations=iterations)
    x = np.clip(answer.x, piece.form.col_lower, piece.form.col_upper)
    found = cut_of(piece, answer.duals)
    cuts = [found] if found is not None else []
    if core is not None and clock().left > 0.0:
        _set(kept, piece, z + CORE_POINT_STEP * (core - z))
        moved = kept.solve(basis=after)
        seconds, iterations = seconds + moved.seconds, iterations + moved.iterations
        better = cut_of(piece, moved.duals) if moved.duals is not None else None
        if better is not None:
            close = cuts and better.value(z) >= cuts[0].value(z) - 1e-7 * (1.0 + abs(cuts[0].value(z)))
            cuts = [better] if close else [*cuts, better]
    if not cuts:
        raise SolverError(f"block {piece.number}: the solver's multipliers prove no cut")
    return BlockAnswer(
        outcome=answer.outcome,
        x=x,
        value=float(piece.form.c @ x),
        cuts=tuple(cuts),
        basis=after,
        seconds=seconds,
        iterations=iterations,
    )


def _feasibility_cut(piece: Piece, ray: Any, z: Floats) -> Cut | None:
    if ray is None:
        return None
    for sign in (1.0, -1.0):
        size = float(np.abs(ray).max(initial=0.0)) or 1.0
        cut = cut_of(piece, sign * ray / size, feasibility=True)
        if cut is not None and cut.value(z) > 0:
            return cut
    return None


def _elastic_cut(piece: Piece, solver: str, z: Floats) -> Cut | None:
    """From the multipliers of the elastic form, where a ray was not exact enough."""
    lower, upper = piece.sides(z)
    ray = elastic_ray(evolve(piece.form, row_lower=lower, row_upper=upper), get(solver))
    return _feasibility_cut(piece, ray, z)


def relax_block(token: str, piece: Piece, solver: str) -> BlockAnswer:
    """Return the block without the rows that join it to the complicating columns: a constant lower bound."""
    kept = _session_of(token, piece, solver)
    joined = np.diff(piece.coupling.indptr) > 0
    kept.change_row_bounds(
        np.arange(len(joined)),
        np.where(joined, -np.inf, piece.form.row_lower),
        np.where(joined, np.inf, piece.form.row_upper),
    )
    answer = kept.solve()
    after = kept.basis
    cuts: tuple[Cut, ...] = ()
    if answer.duals is not None:
        found = cut_of(piece, np.where(joined, 0.0, answer.duals))
        cuts = (found,) if found is not None else ()
    if answer.outcome is Outcome.INFEASIBLE:
        found = cut_of(piece, np.where(joined, 0.0, _sided(piece, answer.ray, joined)), feasibility=True)
        cuts = (found,) if found is not None else ()
    return BlockAnswer(
        outcome=answer.outcome, cuts=cuts, basis=after, seconds=answer.seconds, iterations=answer.iterations
    )


def _sided(piece: Piece, ray: Any, joined: Any) -> Floats:
    """Return the ray, turned the way that proves more."""
    ways = [np.where(joined, 0.0, sign * ray) for sign in (1.0, -1.0)]
    values = []
    for way in ways:
        cut = cut_of(piece, way, feasibility=True)
        values.append(-np.inf if cut is None else cut.constant)
    return ways[int(np.argmax(values))]
