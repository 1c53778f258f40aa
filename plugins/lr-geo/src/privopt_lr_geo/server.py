"""The server's side: CLR-Geo over users' uploads (Equations (20) to (22)), whole or by Benders decomposition.

It sees packages alone: no record has a name here, rows are in the users' own random order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats
from privopt.backends import Outcome, get
from privopt.backends.highs import BEARING
from privopt.decompose.benders import Start
from privopt.dsl.duality import dual_bound
from privopt.dsl.form import StandardForm
from privopt.errors import SolverError, StoppedError
from privopt.execution.memory import GB
from privopt.interfaces import SolveContext
from privopt_lr_geo.messages import Answer, Package, Terms
from privopt_lr_geo.program import Central, assemble, central_model, program_bytes

if TYPE_CHECKING:
    from privopt.dsl import Model
else:
    Model = Any

__all__ = ["NotBegunError", "ProgramSolution", "interior_start", "solve"]

SHARE_OF_TIME: Final = 0.6
"""Of the time that is left, what the warm start may take at most."""
ROW_TOLERANCE: Final = 1e-7
"""An interior point may miss rows by this, relative to what they add up; it is a start, and answers are repaired."""


class NotBegunError(StoppedError):
    """The users' program was not begun: it would take more memory than there is."""


@frozen(kw_only=True, eq=False)
class ProgramSolution:
    """What the server found.

    Attributes:
        answers: one a package, rows in its order.
        value: of CLR-Geo's objective, in the unit of the packages' costs.
        lower_bound: proved for the program solved; None without one.
        stopped: whether a limit or an interrupt ended it.
        solver: name, version and iterations.
        details: sizes, and what else there is to say.
    """

    answers: tuple[Answer, ...]
    value: float
    lower_bound: float | None
    stopped: bool
    solver: Mapping[str, Any]
    details: Mapping[str, Any] = field(factory=dict)


def solve(
    packages: Sequence[Package], terms: Terms, context: SolveContext, *, start: Start | None = None
) -> ProgramSolution:
    """Solve CLR-Geo over packages, by ``context.method`` ``benders`` or ``full``.

    A cut has exponents as numbers, and beyond what solvers can take it can be lost; ``benders`` then solves the whole
    program, where rows keep their exponents, and says so in ``details``.

    Args:
        packages: one a user.
        terms: what the server announced.
        context: method, gap, executor, progress.
        start: where Benders begins; default: :func:`interior_start`.

    Raises:
        InfeasibleError: no weights y >= 0 make the rows sum to one.
        NotBegunError: the program would pass ``--memory``.
        StoppedError: the time limit came before anything feasible.
        SolverError: the solver failed.
    """
    central = assemble(packages, terms)
    if context.remaining == 0.0:
        raise StoppedError("the time limit came before anything feasible was found; nothing written")
    context.report(f"{len(packages)} users, {len(central.columns):,} shared columns")
    needed = program_bytes(central)
    if needed > context.free_memory:
        raise NotBegunError(f"needs {needed / GB:.2g} GB of {context.free_memory / GB:.2g} left")
    model = central_model(central)
    if context.method == "full":
        return _full(central, model, context)
    try:
        return _benders(central, model.compile(), context, start)
    except SolverError as error:
        if central.largest_exponent <= BEARING.log_cap:
            raise
        context.report(f"whole program, for {error}")
        found = _full(central, model, evolve(context, solver="highs"))
        return evolve(found, details={**found.details, "decomposition_failed": str(error)})


def _full(central: Central, model: Model, context: SolveContext) -> ProgramSolution:
    found = model.solve(context.solver, time_limit=context.remaining, gap=context.gap)
    return _solved(
        central,
        found.form,
        np.asarray(found.x),
        bound=None if found.duals is None else dual_bound(found.form, np.asarray(found.duals)),
        stopped=found.status != "optimal",
        solver={"name": context.solver, "version": found.solver, "iterations": found.iterations},
    )


def _benders(central: Central, form: StandardForm, context: SolveContext, start: Start | None) -> ProgramSolution:
    """Solve by rounds; under a limit none begin without a start, for they stay far above other mechanisms.

    Raises:
        StoppedError: the start did not come in its share of the time.
    """
    from privopt.decompose.benders import Benders
    from privopt.decompose.checkpoint import NAME
    from privopt.version import VERSION

    blocks = []
    for n in range(len(central.pieces)):
        own = [form.variable(f"{name}{n}") for name in "zs"]
        blocks.append(np.concatenate([np.arange(part.start, part.stop) for part in own]))
    # a checkpoint has the point and the cuts that a start would bring
    resumes = context.resume and context.checkpoint is not None and (context.checkpoint / NAME).exists()
    if start is None and not resumes:
        context.report("whole program")
        left = context.remaining
        start = interior_start(form, None if left is None else SHARE_OF_TIME * left)
        if start is None and left is not None:
            raise StoppedError("the whole program did not come in its share of the time")
    found = Benders(solver="highs").solve(form, blocks, context, start=start)
    scale = central.scale
    return _solved(
        central,
        form,
        np.asarray(found.x),
        bound=found.bound,
        stopped=found.status == "stopped",
        solver={"name": "benders, highs", "version": VERSION, "iterations": found.rounds},
        trajectory=[(s, low * scale, high * scale) for s, low, high in found.trajectory],
        benders=found.details,
    )


def interior_start(form: StandardForm, seconds: float | None) -> Start | None:
    """Return a near-optimal point and multipliers by HiGHS's interior point without crossover.

    Four users on Rome's 1,331 cells: 4.5 s; rounds that began at the exponential form, as the paper's do, had a gap of
    4.3 % after 240 s.

    Args:
        form: the whole program.
        seconds: to spend at most; None for no limit.

    Returns:
        The start; None where the method gives none, or none in time.
    """
    options = {"solver": "ipm", "run_crossover": "off"}
    session = get("highs").session(form, tolerance=ROW_TOLERANCE, options=options)
    try:
        answer = session.solve(time_limit=seconds)
    except SolverError:  # it gave up: rounds begin without a start
        return None
    if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
        return None
    x = np.clip(answer.x, form.col_lower, form.col_upper)
    activity, size = form.A @ x, abs(form.A) @ np.abs(x)
    miss = np.maximum(form.row_lower - activity, activity - form.row_upper)
    if (miss > ROW_TOLERANCE * (1.0 + size)).any():
        return None
    return Start(x=x, multipliers=[answer.duals])


def _solved(
    central: Central,
    form: StandardForm,
    x: Floats,
    *,
    bound: float | None,
    stopped: bool,
    solver: Mapping[str, Any],
    **details: Any,
) -> ProgramSolution:
    """Return a point of the whole program as every user's matrix."""
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
    sizes = {"rows": form.shape[0], "columns": form.shape[1], "shared_columns": len(central.columns)}
    return ProgramSolution(
        answers=tuple(answers),
        value=float(form.c @ x + form.c0) * central.scale,
        lower_bound=None if bound is None else bound * central.scale,
        stopped=stopped,
        solver=solver,
        details={**sizes, **details},
    )
