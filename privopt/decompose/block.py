"""Solve one Benders subproblem (block) at a point, on the worker that keeps the block loaded in its solver.

A block is an independent linear program once the complicating columns z, which join the blocks, have fixed values. |Y|
is the number of these columns. Block l has n_l columns and m_l rows.
"""

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
"""The fraction of the way from the query to the core point at which a block is solved a second time, for another
cut."""


@frozen(eq=False, kw_only=True)
class BlockAnswer:
    """The result of solving a block at a point.

    Attributes:
        outcome: How the solve ended: optimal, infeasible, unbounded or stopped.
        x: The values of the block's columns, as an array of shape (n_l,), if the outcome is optimal.
        value: The scaled cost of the block's columns, or infinity if there is no solution.
        cuts: The cuts proved by the multipliers.
        basis: The basis from which the block's next solve can start.
        seconds: The time spent in the solver, in seconds.
        iterations: The number of solver iterations.
    """

    outcome: Outcome
    x: Floats | None = None
    value: float = np.inf
    cuts: tuple[Cut, ...] = ()
    basis: Basis | None = None
    seconds: float = 0.0
    iterations: int = 0


def _session_of(token: str, piece: Piece, solver: str) -> Session:
    """Return the solver session that this worker keeps for a block, creating it if necessary.

    Args:
        token: The run's identifier, which keeps the worker's sessions for different runs apart.
        piece: The block's rows and columns.
        solver: The solver's name.
    """
    state = worker_state()
    key = ("benders", token, piece.number)
    if key not in state:
        state[key] = get(solver).session(piece.form)
    session: Session = state[key]
    return session


def _set_row_sides(session: Session, piece: Piece, z: Floats) -> None:
    """Set the bounds of the session's rows for complicating columns fixed at ``z``.

    Args:
        session: The session in which the block is loaded.
        piece: The block's rows and columns.
        z: (|Y|,) The values of the complicating columns.
    """
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
    """Solve a block with the complicating columns fixed at ``z``, and return the answer with its cuts.

    Args:
        token: The run's identifier, which keeps the worker's sessions for different runs apart.
        piece: The block's rows and columns.
        solver: The solver's name.
        z: (|Y|,) The values of the complicating columns.
        core: (|Y|,) A feasible point, or None. If it is given and time is left, a second cut is computed at a point
            moved slightly from ``z`` towards it (Magnanti and Wong 1981, in the form of Sherali and Lunday 2013). If
            the core is in the interior of the feasible region, no other cut dominates the second one. The first cut,
            which is computed at ``z``, is then only kept if it is higher at ``z`` than the second one.
        basis: The basis to start from. If None, the solve starts from the session's last basis.

    Raises:
        SolverError: The solver failed, or its multipliers do not prove a cut.
    """
    session = _session_of(token, piece, solver)
    _set_row_sides(session, piece, z)
    answer = session.solve(basis=basis)
    final_basis = session.basis
    seconds, iterations = answer.seconds, answer.iterations
    if answer.outcome is Outcome.INFEASIBLE:
        cut = _feasibility_cut(piece, answer.ray, z) or _elastic_cut(piece, solver, z)
        # If the block violates its rows only because of rounding, no cut can be proved, and the run queries elsewhere.
        cuts = [cut] if cut is not None else []
        return BlockAnswer(
            outcome=answer.outcome, cuts=tuple(cuts), basis=final_basis, seconds=seconds, iterations=iterations
        )
    if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
        return BlockAnswer(outcome=answer.outcome, seconds=seconds, iterations=iterations)
    # Solvers may violate the bounds by a tolerance. The cost is that of the clipped point.
    x = np.clip(answer.x, piece.form.col_lower, piece.form.col_upper)
    plain_cut = cut_of(piece, answer.duals)
    cuts = [plain_cut] if plain_cut is not None else []
    # A degenerate block has many optimal multipliers. Those for a point slightly towards the core give a cut that is
    # also the highest at that point. They require a second solve, which is omitted if no time is left.
    if core is not None and clock().left > 0.0:
        _set_row_sides(session, piece, z + CORE_POINT_STEP * (core - z))
        core_answer = session.solve(basis=final_basis)
        seconds, iterations = seconds + core_answer.seconds, iterations + core_answer.iterations
        core_cut = cut_of(piece, core_answer.duals) if core_answer.duals is not None else None
        if core_cut is not None:
            # The cut from the second solve replaces the plain one only if it is as high at the query. Otherwise, both
            # are used.
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
    """Return the feasibility cut proved by a dual ray of the block at ``z``, or None if the ray proves no cut.

    Args:
        piece: The block's rows and columns.
        ray: (m_l,) A dual ray, that is, multipliers of the block's rows that prove the block infeasible at ``z``. None
            if there is no ray. Solvers differ in the sign of rays, so both signs are tried.
        z: (|Y|,) The values of the complicating columns.
    """
    if ray is None:
        return None
    for sign in (1.0, -1.0):
        # A ray may have any length. It is scaled so that tolerances mean the same for every block.
        size = float(np.abs(ray).max(initial=0.0)) or 1.0
        cut = cut_of(piece, sign * ray / size, feasibility=True)
        if cut is not None and cut.value(z) > 0:
            return cut
    return None


def _elastic_cut(piece: Piece, solver: str, z: Floats) -> Cut | None:
    """Return a feasibility cut at ``z`` from the block's elastic form, for use if the solver's ray is too inexact.

    In the elastic form, every row may be violated at a cost. The multipliers at its optimum prove that the block has no
    solution. If they do not prove a cut, the result is None.

    Args:
        piece: The block's rows and columns.
        solver: The solver's name.
        z: (|Y|,) The values of the complicating columns.
    """
    lower, upper = piece.sides(z)
    ray = elastic_ray(evolve(piece.form, row_lower=lower, row_upper=upper), get(solver))
    return _feasibility_cut(piece, ray, z)


def relax_block(token: str, piece: Piece, solver: str) -> BlockAnswer:
    """Solve a block without the rows that contain complicating columns, to get a constant lower bound on its cost.

    The bound becomes the block's first cut. If the remaining rows have no solution, the block is infeasible for all
    values of the complicating columns, and there is no cut.

    Args:
        token: The run's identifier, which keeps the worker's sessions for different runs apart.
        piece: The block's rows and columns.
        solver: The solver's name.
    """
    session = _session_of(token, piece, solver)
    # Without its coupling rows, a block does not depend on z, so its bound is a constant cut.
    # `coupling` contains the rows' coefficients for the complicating columns.
    is_coupled = np.diff(piece.coupling.indptr) > 0
    session.change_row_bounds(
        np.arange(len(is_coupled)),
        np.where(is_coupled, -np.inf, piece.form.row_lower),
        np.where(is_coupled, np.inf, piece.form.row_upper),
    )
    answer = session.solve()
    # The coupling rows have no bounds now, so nonzero multipliers on them can only be rounding errors.
    constant_cut = None if answer.duals is None else cut_of(piece, np.where(is_coupled, 0.0, answer.duals))
    return BlockAnswer(
        outcome=answer.outcome,
        cuts=() if constant_cut is None else (constant_cut,),
        seconds=answer.seconds,
        iterations=answer.iterations,
    )
