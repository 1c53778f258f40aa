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
    """The answer of a block at a point.

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
    """Return the block's session from the worker's state, or create it if this worker has none."""
    state = worker_state()
    key = ("benders", token, piece.number)
    if key not in state:
        state[key] = get(solver).session(piece.form)
    session: Session = state[key]
    return session


def _set_row_sides(session: Session, piece: Piece, z: Floats) -> None:
    """Shift the rows' sides to the complicating columns at ``z``."""
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
    session = _session_of(token, piece, solver)
    _set_row_sides(session, piece, z)
    answer = session.solve(basis=basis)
    final_basis = session.basis
    seconds, iterations = answer.seconds, answer.iterations
    if answer.outcome is Outcome.INFEASIBLE:
        cut = _feasibility_cut(piece, answer.ray, z) or _elastic_cut(piece, solver, z)
        cuts = [cut] if cut is not None else []  # none if the miss is only rounding; the run then queries elsewhere
        return BlockAnswer(
            outcome=answer.outcome, cuts=tuple(cuts), basis=final_basis, seconds=seconds, iterations=iterations
        )
    if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
        return BlockAnswer(outcome=answer.outcome, seconds=seconds, iterations=iterations)
    x = np.clip(answer.x, piece.form.col_lower, piece.form.col_upper)
    plain_cut = cut_of(piece, answer.duals)
    cuts = [plain_cut] if plain_cut is not None else []
    # A degenerate block has many optimal multipliers. Those at a point moved towards the core give a Pareto-optimal
    # cut.
    if core is not None and clock().left > 0.0:
        _set_row_sides(session, piece, z + CORE_POINT_STEP * (core - z))
        core_answer = session.solve(basis=final_basis)
        seconds, iterations = seconds + core_answer.seconds, iterations + core_answer.iterations
        core_cut = cut_of(piece, core_answer.duals) if core_answer.duals is not None else None
        if core_cut is not None:
            # A cut at the core point is preferred only if it loses nothing at the query itself.
            is_close = cuts and core_cut.value(z) >= cuts[0].value(z) - 1e-7 * (1.0 + abs(cuts[0].value(z)))
            cuts = [core_cut] if is_close else [*cuts, core_cut]
    if not cuts:
        raise SolverError(f"block {piece.number}: the solver's multipliers prove no cut")
    return BlockAnswer(
        outcome=answer.outcome,
        x=x,
        value=float(piece.form.c @ x),
        cuts=tuple(cuts),
        basis=final_basis,
        seconds=seconds,
        iterations=iterations,
    )


def _feasibility_cut(piece: Piece, ray: Any, z: Floats) -> Cut | None:
    """Return the cut that a ray proves at ``z``, whatever sign the solver gives rays."""
    if ray is None:
        return None
    for sign in (1.0, -1.0):
        size = float(np.abs(ray).max(initial=0.0)) or 1.0
        cut = cut_of(piece, sign * ray / size, feasibility=True)
        if cut is not None and cut.value(z) > 0:
            return cut
    return None


def _elastic_cut(piece: Piece, solver: str, z: Floats) -> Cut | None:
    """Return a feasibility cut from the elastic form, for a ray that is not exact enough."""
    lower, upper = piece.sides(z)
    ray = elastic_ray(evolve(piece.form, row_lower=lower, row_upper=upper), get(solver))
    return _feasibility_cut(piece, ray, z)


def relax_block(token: str, piece: Piece, solver: str) -> BlockAnswer:
    """Solve the block without the rows that join it to complicating columns, for a constant lower bound."""
    session = _session_of(token, piece, solver)
    # Without its coupling rows a block does not depend on z, so that its bound is a constant cut.
    is_coupled = np.diff(piece.coupling.indptr) > 0
    session.change_row_bounds(
        np.arange(len(is_coupled)),
        np.where(is_coupled, -np.inf, piece.form.row_lower),
        np.where(is_coupled, np.inf, piece.form.row_upper),
    )
    answer = session.solve()
    final_basis = session.basis
    cuts: tuple[Cut, ...] = ()
    if answer.duals is not None:
        constant_cut = cut_of(piece, np.where(is_coupled, 0.0, answer.duals))
        cuts = (constant_cut,) if constant_cut is not None else ()
    if answer.outcome is Outcome.INFEASIBLE:
        constant_cut = cut_of(
            piece, np.where(is_coupled, 0.0, _choose_sign(piece, answer.ray, is_coupled)), feasibility=True
        )
        cuts = (constant_cut,) if constant_cut is not None else ()
    return BlockAnswer(
        outcome=answer.outcome, cuts=cuts, basis=final_basis, seconds=answer.seconds, iterations=answer.iterations
    )


def _choose_sign(piece: Piece, ray: Any, is_coupled: Any) -> Floats:
    """Return the ray with the sign that proves more."""
    signed_rays = [np.where(is_coupled, 0.0, sign * ray) for sign in (1.0, -1.0)]
    values = []
    for signed_ray in signed_rays:
        cut = cut_of(piece, signed_ray, feasibility=True)
        values.append(-np.inf if cut is None else cut.constant)
    return signed_rays[int(np.argmax(values))]
