"""The server's side of CLR-Geo, which solves the joint program for the users' packages.

The program consists of Equations (20) to (22) of Qiu et al., PoPETs 2025. It is solved as a whole or by Benders
decomposition. The server sees only packages, in which records are unnamed and rows are in random order.
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
from privopt.errors import SolverError, StoppedError, number_of
from privopt.execution.resources import GB
from privopt.interfaces import SolveContext
from privopt_lr_geo.messages import Answer, Package, Terms
from privopt_lr_geo.program import Central, assemble, central_model, program_bytes

if TYPE_CHECKING:
    from privopt.dsl import Model
else:
    Model = Any

__all__ = ["NotBegunError", "ProgramSolution", "interior_start", "solve"]

SHARE_OF_TIME: Final = 0.6
"""The largest share of the remaining time that may be spent on the warm start."""
ROW_TOLERANCE: Final = 1e-7
"""The largest accepted violation of a constraint by a warm start, relative to 1 plus the sum of its absolute terms."""


class NotBegunError(StoppedError):
    """Raised before solving starts if the users' program would need more memory than is available."""


@frozen(kw_only=True, eq=False)
class ProgramSolution:
    """The server's solution of CLR-Geo, the joint program for all users.

    Attributes:
        answers: One answer per package, with rows in the package's order.
        value: The objective value of CLR-Geo, in the same unit as the packages' costs.
        lower_bound: The proved lower bound on the objective, or None if there is none.
        stopped: Whether a limit or an interrupt ended the solver.
        solver: The solver's name, version and number of iterations.
        details: The numbers of rows and columns of the program, and further statistics that depend on the method.
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
    """Solve CLR-Geo for the given packages with the method ``benders`` or ``full``, as specified by ``context.method``.

    The coefficients of Benders cuts are exponentials, which can exceed a solver's range. If ``benders`` fails for this
    reason, the program is solved as a whole, which does not require these exponentials, and the reason is added to the
    solution's ``details``.

    Args:
        packages: One package per user.
        terms: The public parameters announced by the server.
        context: The method, optimality gap and limits of the run. It is also used to show progress and to run blocks in
            parallel.
        start: The warm start for Benders decomposition. The default is the result of :func:`interior_start`.

    Raises:
        InfeasibleError: No weights y >= 0 make the rows sum to one.
        NotBegunError: The program would need more memory than ``--memory`` allows.
        StoppedError: The time limit expired before any feasible solution was found.
        SolverError: The solver failed.
    """
    central = assemble(packages, terms)
    if context.remaining == 0.0:
        raise StoppedError("the time limit was reached before anything feasible was found; nothing written")
    context.report(f"{number_of(len(packages), 'user')}, {number_of(len(central.columns), 'shared column')}")
    needed = program_bytes(central)
    if needed > context.free_memory:
        raise NotBegunError(f"needs {needed / GB:.2g} GB of {context.free_memory / GB:.2g} left")
    model = central_model(central)
    if context.method == "full":
        return _solve_whole(central, model, context)
    try:
        return _solve_by_benders(central, model.compile(), context, start)
    except SolverError as error:
        # Solving the program as a whole helps only if some exponential is too large to be a coefficient.
        if central.largest_exponent <= BEARING.log_cap:
            raise
        context.report(f"whole program, for {error}")
        solution = _solve_whole(central, model, evolve(context, solver="highs"))
        return evolve(solution, details={**solution.details, "decomposition_failed": str(error)})


def _solve_whole(central: Central, model: Model, context: SolveContext) -> ProgramSolution:
    """Solve the program as a whole, and derive a lower bound from the dual solution.

    Args:
        central: The program, as one block of arrays per user.
        model: The same program in privopt's modelling language.
        context: The solver, optimality gap and limits.
    """
    solution = model.solve(context.solver, time_limit=context.remaining, gap=context.gap)
    return _make_solution(
        central,
        solution.form,
        np.asarray(solution.x),
        bound=None if solution.duals is None else dual_bound(solution.form, np.asarray(solution.duals)),
        stopped=solution.status != "optimal",
        solver={"name": context.solver, "version": solution.solver, "iterations": solution.iterations},
    )


def _solve_by_benders(
    central: Central, form: StandardForm, context: SolveContext, start: Start | None
) -> ProgramSolution:
    """Solve the program by Benders decomposition, with a block per user and shared variables y in the master problem.

    Under a time limit, a warm start is required, because the iterations converge too slowly without one.

    Args:
        central: The program, as one block of arrays per user.
        form: The same program in standard form, with a single constraint matrix.
        context: The optimality gap, limits and checkpoint folder.
        start: The warm start. If None, the result of :func:`interior_start` is used.

    Raises:
        StoppedError: No warm start was found within the part of the time limit reserved for it.
    """
    from privopt.decompose.benders import Benders
    from privopt.decompose.checkpoint import NAME
    from privopt.version import VERSION

    blocks = []
    for n in range(len(central.pieces)):
        # A block contains the column indices of a user's own variables, the free entries z and the far mass s.
        user_variables = [form.variable(f"{name}{n}") for name in "zs"]
        blocks.append(np.concatenate([np.arange(part.start, part.stop) for part in user_variables]))
    # A resumed run needs no start, because its checkpoint already contains a point and cuts.
    resumes = context.resume and context.checkpoint is not None and (context.checkpoint / NAME).exists()
    if start is None and not resumes:
        context.report("whole program")
        remaining = context.remaining
        start = interior_start(form, None if remaining is None else SHARE_OF_TIME * remaining)
        if start is None and remaining is not None:
            raise StoppedError("the whole program was not solved in its share of the time")
    solution = Benders(solver="highs").solve(form, blocks, context, start=start)
    # The program's costs were divided by `scale`, so its values are multiplied by it.
    scale = central.scale
    return _make_solution(
        central,
        form,
        np.asarray(solution.x),
        bound=solution.bound,
        stopped=solution.status == "stopped",
        solver={"name": "benders, highs", "version": VERSION, "iterations": solution.rounds},
        trajectory=[(s, lower * scale, upper * scale) for s, lower, upper in solution.trajectory],
        benders=solution.details,
    )


def interior_start(form: StandardForm, seconds: float | None) -> Start | None:
    """Compute a warm start from the near-optimal point and multipliers found by HiGHS's interior point method.

    The method is run without crossover. For four users on Rome's 1,331 cells, it takes 4.5 s, whereas Benders
    iterations that start from the exponential form, as proposed by Qiu et al. (PoPETs 2025), still have a gap of 4.3 %
    after 240 s.

    Args:
        form: The whole program.
        seconds: The time limit in seconds, or None if there is none.

    Returns:
        The warm start, or None if the method fails, does not finish in time, or is too inaccurate.
    """
    options = {"solver": "ipm", "run_crossover": "off"}
    session = get("highs").session(form, tolerance=ROW_TOLERANCE, options=options)
    try:
        answer = session.solve(time_limit=seconds)
    except SolverError:  # the decomposition can begin without a start
        return None
    if answer.outcome is not Outcome.OPTIMAL or answer.x is None or answer.duals is None:
        return None
    # The point may violate the variables' bounds by a tolerance.
    x = np.clip(answer.x, form.col_lower, form.col_upper)
    # The value of each constraint's left-hand side, and the sum of the absolute values of its terms.
    activity, size = form.A @ x, abs(form.A) @ np.abs(x)
    miss = np.maximum(form.row_lower - activity, activity - form.row_upper)
    if (miss > ROW_TOLERANCE * (1.0 + size)).any():
        return None
    return Start(x=x, multipliers=[answer.duals])


def _make_solution(
    central: Central,
    form: StandardForm,
    x: Floats,
    *,
    bound: float | None,
    stopped: bool,
    solver: Mapping[str, Any],
    **details: Any,
) -> ProgramSolution:
    """Convert a point of the whole program into a solution with one matrix per user.

    Args:
        central: The program, as one block of arrays per user.
        form: The same program in standard form, which maps variables to positions in ``x``.
        x: The point, which contains a value for each variable.
        bound: The proved lower bound on the objective with scaled costs, or None if there is none.
        stopped: Whether a limit or an interrupt ended the solver.
        solver: The solver's name, version and number of iterations.
        details: Further statistics, which depend on the method.
    """
    # Variables may be negative within the solver's tolerance, so they are raised to 0, both here and below.
    y = np.zeros(len(central.shift))
    block = form.variable("y")
    y[central.columns] = np.maximum(x[block.start : block.stop], 0.0)
    answers = []
    for n, piece in enumerate(central.pieces):
        block = form.variable(f"z{n}")
        # Tied entries follow from y. Free entries are variables of their own.
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
