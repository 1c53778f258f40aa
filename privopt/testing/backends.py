"""Checks of solvers of linear programs, and of decompositions: optimality by their multipliers and by other means.

::

    from privopt.testing.backends import check_backend

    def test_acme():
        assert [r for r in check_backend("acme") if r.status == "failed"] == []

What a decomposer's ``solve`` returns must have ``x``, ``objective`` and ``bound`` (None without one).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from itertools import product
from typing import Any, Final

import hypothesis
import numpy as np
from attrs import evolve
from hypothesis import strategies as st

from privopt.arrays import Floats
from privopt.backends import Backend, Outcome, Result, get
from privopt.dsl.form import StandardForm
from privopt.errors import InfeasibleError, PrivoptError
from privopt.interfaces import Decomposer, SolveContext
from privopt.testing.efforts import Effort, effort
from privopt.testing.fingerprints import fingerprint
from privopt.testing.models import SOLVER_TOLERANCE, Program, fail, kkt_faults, linear_programs, split_programs
from privopt.testing.runner import CheckResult, run_examples
from privopt.testing.under_trial import error_text

Solve = Callable[[Program], Result]
"""A solver under trial, or a decomposer whose answers are put as a solver's."""


def _optimal(solve: Solve, program: Program) -> tuple[Result, Floats]:
    form, before = program.form, fingerprint(program.form)
    try:
        result = solve(program)
    except PrivoptError as error:
        fail(f"it raised {error_text(error)}", program)
    if fingerprint(form) != before:
        fail("solve changed the form it was given", program)
    if result.outcome is not Outcome.OPTIMAL or result.x is None:
        fail(f"a bounded, feasible model is called {result.outcome.value}; expected optimal", program)
    return result, result.x


def _kkt(duals: bool, solve: Solve, data: st.DataObject) -> None:
    program = data.draw(linear_programs())
    result = _meets_conditions(solve, program)
    if duals and program.form.shape[0] and result.duals is None:
        fail("the backend declares multipliers, and gives none for an LP solved to optimality", program)


def _meets_conditions(solve: Solve, program: Program) -> Result:
    """Check that an answer is feasible, has the value that it says, and is proved by its multipliers if it has any."""
    form = program.form
    result, x = _optimal(solve, program)
    for fault in kkt_faults(form, x, result.duals, result.reduced):
        fail(fault, program)
    value = float(form.c @ x) + form.c0
    if result.objective is None or abs(result.objective - value) > SOLVER_TOLERANCE * (1 + abs(value)):
        fail(f"the objective is said to be {result.objective!r}; at its vector it is {value!r}", program)
    return result


def _optimum(solve: Solve, data: st.DataObject) -> None:
    program = data.draw(linear_programs())
    _agrees(program, _optimal(solve, program)[0], _by_scipy(program.form), "by SciPy")


def _by_scipy(form: StandardForm) -> float | None:
    from scipy.optimize import linprog

    sign = 1.0 if form.sense == "min" else -1.0
    A = form.A.toarray()
    upper, lower = np.isfinite(form.row_upper), np.isfinite(form.row_lower)
    sides = np.concatenate([form.row_upper[upper], -form.row_lower[lower]])
    rows = np.vstack([A[upper], -A[lower]])
    box = list(zip(form.col_lower, form.col_upper, strict=True))
    solved = linprog(sign * form.c, A_ub=rows if len(rows) else None, b_ub=sides if len(rows) else None, bounds=box)
    return sign * solved.fun + form.c0 if solved.status == 0 else None


def _agrees(
    program: Program, result: Result, optimum: float | None, how: str, tolerance: float = SOLVER_TOLERANCE
) -> None:
    """Check an objective against the optimum found otherwise, and that its bound is on the right side of that."""
    if optimum is None:
        return
    if result.objective is None or abs(optimum - result.objective) > tolerance * (1 + abs(optimum)):
        fail(f"the optimum is {optimum!r} {how}; the solver says {result.objective!r}", program)
    if result.bound is not None:
        over = result.bound - optimum if program.form.sense == "min" else optimum - result.bound
        if over > SOLVER_TOLERANCE * (1 + abs(optimum)):
            fail(f"the bound {result.bound!r} is on the wrong side of the optimum {optimum!r}", program)


def _integers(solve: Solve, data: st.DataObject) -> None:
    program = data.draw(linear_programs(columns=3, rows=3, integers=True))
    form = program.form
    hypothesis.assume(bool((form.integrality == 1).all()))
    result, x = _optimal(solve, program)
    if not np.array_equal(x, np.round(x)):
        fail(f"integer columns came out as {x.tolist()}", program)
    points = np.array([*product(*(range(int(b) + 1) for b in form.col_upper.tolist()))], dtype=np.float64)
    activity = points @ form.A.toarray().T
    feasible = ((activity >= form.row_lower - 1e-9) & (activity <= form.row_upper + 1e-9)).all(axis=1)
    values = points[feasible] @ form.c
    best = float(values.min() if form.sense == "min" else values.max())
    _agrees(program, result, best, "over all whole points")


def _infeasible(programs: st.SearchStrategy[Program], solve: Solve, data: st.DataObject) -> None:
    program = data.draw(programs)
    form, columns = program.form, program.blocks[0] if program.blocks else list(range(program.form.shape[1]))
    row = np.zeros((1, form.shape[1]))
    row[0, columns] = 1.0
    beyond = float(form.col_upper[columns].sum()) + data.draw(st.integers(1, 3))
    sides = np.append(form.row_lower, beyond), np.append(form.row_upper, math.inf)
    clash = evolve(form, A=np.vstack([form.A.toarray(), row]), row_lower=sides[0], row_upper=sides[1])
    outcome = solve(Program(clash, program.blocks)).outcome
    if outcome is not Outcome.INFEASIBLE:
        fail(f"a model without solution is called {outcome.value}", Program(clash, program.blocks))


def _repeats(integers: bool, solve: Solve, data: st.DataObject) -> None:
    program = data.draw(linear_programs(integers=integers))
    (_, one), (_, two) = _optimal(solve, program), _optimal(solve, program)
    if not np.array_equal(one, two):
        fail(f"the same model gave {one.tolist()} and then {two.tolist()}", program)


def _whole(solve: Solve, data: st.DataObject) -> None:
    program = data.draw(split_programs())
    result = evolve(_meets_conditions(solve, program), bound=None)
    _agrees(program, result, _by_scipy(program.form), "of the whole", 10 * SOLVER_TOLERANCE)


def _bound(solve: Solve, data: st.DataObject) -> None:
    program = data.draw(split_programs())
    result, optimum = _optimal(solve, program)[0], _by_scipy(program.form)
    _agrees(program, evolve(result, objective=optimum), optimum, "of the whole")


Examples = Callable[[Solve, st.DataObject], None]

BACKEND_CHECKS: Final = ("kkt", "optimum", "integers", "infeasible", "repeats")
DECOMPOSER_CHECKS: Final[Mapping[str, Examples]] = {
    "whole": _whole,
    "bound": _bound,
    "infeasible": partial(_infeasible, split_programs()),
}


def check_backend(backend: Backend | str, *, how: Effort | str | None = None, seed: int = 0) -> list[CheckResult]:
    """Run every check of solvers on a backend.

    Args:
        backend: itself, or its name.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of the models drawn.
    """
    tried = get(backend) if isinstance(backend, str) else backend
    can, how = tried.capabilities, effort(how)
    examples: tuple[Examples, ...] = (
        partial(_kkt, can.duals),
        _optimum,
        _integers,
        partial(_infeasible, linear_programs()),
        partial(_repeats, can.mip),
    )
    results = []
    for name, example in zip(BACKEND_CHECKS, examples, strict=True):
        if name == "integers" and not can.mip:
            results.append(CheckResult(check=name, version=1, status="skipped", reason="takes no integers"))
        else:
            results.append(run_examples(name, partial(example, lambda program: tried.solve(program.form)), how, seed))
    return results


def check_decomposer(decomposer: Decomposer, *, how: Effort | str | None = None, seed: int = 0) -> list[CheckResult]:
    """Run every check of decompositions: the optimum of the whole, bounds on their side of it, whatever the blocks.

    Args:
        decomposer: to try.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of the models drawn.
    """

    def solve(program: Program) -> Result:
        """Put the decomposer's answer as a solver's."""
        try:
            answer: Any = decomposer.solve(
                program.form, program.blocks, SolveContext(method="under-trial", solver="highs")
            )
        except InfeasibleError:
            return Result(outcome=Outcome.INFEASIBLE, solver="under trial")
        x = np.asarray(answer.x, dtype=np.float64)
        bound = None if answer.bound is None else float(answer.bound)
        objective = float(answer.objective)
        return Result(outcome=Outcome.OPTIMAL, solver="under trial", x=x, objective=objective, bound=bound)

    how = effort(how)
    return [run_examples(name, partial(check, solve), how, seed) for name, check in DECOMPOSER_CHECKS.items()]
