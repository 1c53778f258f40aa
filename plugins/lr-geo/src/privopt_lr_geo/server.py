"""The server's side: CLR-Geo over what users uploaded (Equations (20) to (22)), whole or by Benders decomposition.

It sees packages alone: no record has a name here, rows are in the users' own random order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats
from privopt.backends.highs import BEARING
from privopt.dsl.duality import dual_bound
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError, StoppedError
from privopt.execution.memory import GB
from privopt.interfaces import SolveContext
from privopt_lr_geo.package import Answer, Package, Terms
from privopt_lr_geo.program import Central, assemble, central_model, program_bytes
from privopt_lr_geo.starts import Warmth, start_of

if TYPE_CHECKING:
    from privopt.dsl import Model
else:
    Model = Any

__all__ = ["NoRoomError", "NoTimeError", "NotBegunError", "Solved", "solve"]


class NotBegunError(StoppedError):
    """The users' program was not begun."""


class NoRoomError(NotBegunError):
    """It would take more memory than there is."""


class NoTimeError(NotBegunError):
    """It would take more time than there is."""


@frozen(kw_only=True, eq=False)
class Solved:
    """What the server found.

    Attributes:
        answers: one a package, rows in its order.
        value: of CLR-Geo's objective, in the unit of the packages' costs.
        lower_bound: proved for the program solved; None without one.
        y: (K,) scaled weights.
    """

    answers: tuple[Answer, ...]
    value: float
    lower_bound: float | None
    y: Floats
    stopped: bool
    solver: dict[str, Any]
    details: dict[str, Any] = field(factory=dict)

    @property
    def gap(self) -> float | None:
        """Relative gap of the program; None without a bound."""
        if self.lower_bound is None:
            return None
        return max(0.0, self.value - self.lower_bound) / max(abs(self.value), 1e-12)


def solve(
    packages: Sequence[Package],
    terms: Terms,
    context: SolveContext,
    *,
    warmth: Warmth = "whole",
    warm_only: bool = False,
) -> Solved:
    """CLR-Geo over packages, by ``context.method`` ``benders`` or ``full``.

    A cut has exponents as numbers, and beyond what solvers can take it can be lost; ``benders`` then solves the whole
    program, where rows keep their exponents, and says so in ``details``.

    Args:
        packages: one a user.
        terms: what the server announced.
        context: method, gap, deadline, executor, progress.
        warmth: where Benders begins; see :mod:`privopt_lr_geo.starts`.
        warm_only: begin no rounds where the whole program did not come in its share of the time: from other starts
            they are above the population's mechanism for minutes.

    Raises:
        InfeasibleError: no weights y >= 0 make the rows sum to one.
        NoRoomError: the program would pass ``--memory``.
        StoppedError: the time limit came before anything feasible.
        SolverError: the solver failed.
    """
    central = assemble(packages, terms)
    context.check()
    context.report(f"{len(packages)} users, {len(central.columns):,} shared columns")
    needed = program_bytes(central)
    if not context.fits(needed):
        raise NoRoomError(f"needs {needed / GB:.2g} GB of {context.room / GB:.2g} left")
    model = central_model(central)
    if context.method == "full":
        return _full(central, model, context)
    try:
        return _benders(central, model, packages, terms, context, warmth, warm_only=warm_only)
    except SolverError as error:
        if central.largest_exponent <= BEARING.log_cap:
            raise
        context.report(f"whole program, for {error}")
        return _full(central, model, evolve(context, solver="highs"), {"decomposition_failed": str(error)})


def _full(central: Central, model: Model, context: SolveContext, why: dict[str, Any] | None = None) -> Solved:
    solution = model.solve(context.solver, time_limit=context.remaining, gap=context.gap)
    form = solution.form
    bound = None if solution.duals is None else dual_bound(form, np.asarray(solution.duals))
    return _solved(
        central,
        form,
        np.asarray(solution.x),
        bound,
        solution.status != "optimal",
        {"name": context.solver, "version": solution.solver, "iterations": solution.iterations},
        why or {},
    )


def _benders(
    central: Central,
    model: Model,
    packages: Sequence[Package],
    terms: Terms,
    context: SolveContext,
    warmth: Warmth,
    *,
    warm_only: bool,
) -> Solved:
    from privopt.decompose import Benders
    from privopt.decompose.checkpoint import NAME
    from privopt.version import VERSION

    form = model.compile()
    blocks = []
    for n in range(len(central.pieces)):
        own = [form.variable(f"{name}{n}") for name in "zs"]
        blocks.append(np.concatenate([np.arange(part.start, part.stop) for part in own]))
    # a checkpoint has the point and the cuts that a start would bring
    resumes = context.resume and context.checkpoint is not None and (context.checkpoint / NAME).exists()
    start = None if resumes else start_of(warmth, central, form, packages, terms, context, warm_only=warm_only)
    found = Benders(solver="highs").solve(form, blocks, context, start=start)
    return _solved(
        central,
        form,
        np.asarray(found.x),
        found.bound,
        found.status == "stopped",
        {"name": "benders, highs", "version": VERSION, "iterations": found.rounds},
        {
            "trajectory": [(s, low * central.scale, high * central.scale) for s, low, high in found.trajectory],
            "benders": found.details,
        },
    )


def _solved(
    central: Central,
    form: StandardForm,
    x: Floats,
    bound: float | None,
    stopped: bool,
    solver: dict[str, Any],
    details: dict[str, Any],
) -> Solved:
    y = np.zeros(len(central.shift))
    block = form.variable("y")
    y[central.columns] = np.maximum(x[block.start : block.stop], 0.0)
    answers = []
    for n, piece in enumerate(central.pieces):
        block = form.variable(f"z{n}")
        z = piece.mass * y
        if len(piece.entries):
            z[piece.entries[:, 0], piece.entries[:, 1]] = np.maximum(x[block.start : block.stop], 0.0)
        answers.append(Answer(z=z))
    return Solved(
        answers=tuple(answers),
        value=float(form.c @ x + form.c0) * central.scale,
        lower_bound=None if bound is None else bound * central.scale,
        y=y,
        stopped=stopped,
        solver=solver,
        details={"rows": form.shape[0], "columns": form.shape[1], "shared_columns": len(central.columns), **details},
    )
