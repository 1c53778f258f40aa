"""Checks of solvers of linear programs, and of decompositions: small models, by multipliers and by SciPy's optimum.

Each takes the name that the kind is registered under, an effort and a seed, like the checks that plugins bring.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any, Final

import hypothesis
import numpy as np
from attrs import evolve, frozen
from hypothesis import strategies as st

from privopt.backends import Outcome, Result, get
from privopt.dsl.duality import dual_bound
from privopt.dsl.form import StandardForm
from privopt.errors import InfeasibleError
from privopt.interfaces import SolveContext
from privopt.registry import registry
from privopt.testing.checks.base import CheckFailedError
from privopt.testing.efforts import Effort
from privopt.testing.fingerprints import fingerprint
from privopt.testing.runner import CheckResult, run_examples

SOLVER_TOLERANCE: Final = 1e-6
"""Room for a solver's own tolerances, relative to the models' numbers, which are all small; tenfold of a decomposition,
which asks one several times."""


@frozen(eq=False)
class Program:
    """A linear program, feasible and bounded.

    Attributes:
        form: of it.
        blocks: of its columns, which no row joins; none where it is not made of blocks.
    """

    form: StandardForm
    blocks: list[list[int]]

    def show(self) -> str:
        """Return the model as it can be read in a message."""
        form = self.form
        shown = [f"{form.sense} {form.c.tolist()}"]
        shown += [
            f"{low:g} <= {row} <= {up:g}"
            for row, low, up in zip(form.A.toarray().tolist(), form.row_lower, form.row_upper, strict=True)
        ]
        shown.append(f"columns from {form.col_lower.tolist()} to {form.col_upper.tolist()}")
        shown.append(f"integer columns {np.flatnonzero(form.integrality).tolist()}, blocks {self.blocks}")
        return "\n".join(shown)


Solve = Callable[[Program], Result]
"""A solver under trial, or a decomposer whose answers are put as a solver's."""


@st.composite
def programs(draw: st.DrawFn, integers: bool = False, split: bool = False) -> Program:
    """Draw small linear programs over boxes, of whole numbers: equations, ranges, free rows, either sense.

    They are feasible by construction: the rows' sides are set around a whole point of the box.

    Args:
        draw: Hypothesis's own.
        integers: some of the columns are whole.
        split: in blocks: each row, a lower bound, holds the one or two columns of no block, and those of one at most.
    """
    blocks: list[list[int]] = []
    held = np.ones((draw(st.integers(0, 4)), draw(st.integers(1, 4))), dtype=bool)
    if split:
        outer, sizes = draw(st.integers(1, 2)), draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
        starts = np.cumsum([outer, *sizes]).tolist()
        blocks = [list(range(a, b)) for a, b in pairwise(starts)]
        rows = [block for block in [*blocks, []] for _ in range(draw(st.integers(1, 2)))]
        held = np.array([[column < outer or column in block for column in range(starts[-1])] for block in rows])
    m, n = held.shape
    whole = st.integers(-4, 4)
    point = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=np.float64)
    A = np.zeros((m, n))
    A[held] = draw(st.lists(whole, min_size=int(held.sum()), max_size=int(held.sum())))
    lower, upper = np.full(m, -np.inf), np.full(m, np.inf)
    for row, at in enumerate((A @ point).tolist()):
        kind, slack = draw(st.sampled_from("G" if split else "LGER")), draw(st.integers(0, 3))
        upper[row] = {"L": at + slack, "G": math.inf, "E": at, "R": at + slack}[kind]
        lower[row] = {"L": -math.inf, "G": at - slack, "E": at, "R": at - slack}[kind]
    form = StandardForm(
        c=np.array(draw(st.lists(whole, min_size=n, max_size=n)), dtype=np.float64),
        sense=draw(st.sampled_from(["min", "max"])),
        A=A,
        row_lower=lower,
        row_upper=upper,
        col_lower=np.zeros(n),
        col_upper=point + draw(st.integers(0, 2)),
        integrality=np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)) if integers else [False] * n),
    )
    return Program(form, blocks)


def _optimal(solve: Solve, models: st.SearchStrategy[Program], data: st.DataObject) -> None:
    """Solve a model: the same answer again, nothing changed in the model, and no fault in the answer."""
    program = data.draw(models)
    before = fingerprint(program.form)
    result, again = solve(program), solve(program)
    faults = list(_faults(program.form, result, SOLVER_TOLERANCE * (10 if program.blocks else 1)))
    if fingerprint(program.form) != before:
        faults.append("solve changed the form it was given")
    if not np.array_equal(np.asarray(result.x), np.asarray(again.x)):
        faults.append(f"the same model gave {result.x} and then {again.x}")
    if faults:
        _fail(faults[0], program)


def _faults(form: StandardForm, result: Result, tolerance: float) -> Iterator[str]:
    """Yield what is wrong with an answer to a model that is feasible and bounded."""
    x, optimum = result.x, _by_scipy(form)
    if result.outcome is not Outcome.OPTIMAL or x is None:
        yield f"a bounded, feasible model is called {result.outcome.value}; expected optimal"
        return
    low, high = np.append(form.row_lower, form.col_lower), np.append(form.row_upper, form.col_upper)
    found, value = np.append(form.A @ x, x), float(form.c @ x) + form.c0
    missed = np.maximum(low - found, found - high)
    if missed.max() > tolerance * (1 + abs(found).max()):
        yield f"row {int(missed.argmax())} (columns after the rows) is {found[missed.argmax()]:.9g}"
    if not np.array_equal(x[form.integrality > 0], np.round(x[form.integrality > 0])):
        yield f"integer columns came out as {x.tolist()}"
    near = partial(math.isclose, rel_tol=tolerance, abs_tol=tolerance)
    if result.objective is None or not near(result.objective, value):
        yield f"the objective is said to be {result.objective!r}; at its vector it is {value!r}"
    elif not near(value, optimum):
        yield f"the optimum is {optimum!r} by SciPy; the solver says {value!r}"
    over = 0.0 if result.bound is None else (result.bound - optimum) * (1 if form.sense == "min" else -1)
    if over > tolerance * (1 + abs(optimum)):
        yield f"the bound {result.bound!r} is on the wrong side of the optimum {optimum!r}"
    if result.duals is not None and not form.is_mip:
        proved, left = dual_bound(form, result.duals), form.c - form.A.T @ result.duals
        if not near(proved, optimum):
            yield f"its multipliers prove {proved!r}; the optimum is {optimum!r}"
        if result.reduced is not None and not np.allclose(left, result.reduced, rtol=tolerance, atol=tolerance):
            yield f"the reduced costs are {result.reduced.tolist()}; c - A'y gives {left.tolist()}"


def _by_scipy(form: StandardForm) -> float:
    from scipy.optimize import LinearConstraint, milp

    sign = 1.0 if form.sense == "min" else -1.0
    rows = [LinearConstraint(form.A, form.row_lower, form.row_upper)] if form.shape[0] else []
    box = (form.col_lower, form.col_upper)
    solved = milp(sign * form.c, integrality=form.integrality, bounds=box, constraints=rows)
    hypothesis.assume(solved.status == 0)
    return float(sign * solved.fun + form.c0)


def _infeasible(solve: Solve, models: st.SearchStrategy[Program], data: st.DataObject) -> None:
    """Solve a model with one row more, which asks for more of some columns than there can be."""
    program = data.draw(models)
    form, columns = program.form, program.blocks[0] if program.blocks else list(range(program.form.shape[1]))
    row = np.zeros((1, form.shape[1]))
    row[0, columns] = 1.0
    beyond = float(form.col_upper[columns].sum()) + data.draw(st.integers(1, 3))
    sides = np.append(form.row_lower, beyond), np.append(form.row_upper, math.inf)
    clash = Program(
        evolve(form, A=np.vstack([form.A.toarray(), row]), row_lower=sides[0], row_upper=sides[1]), program.blocks
    )
    outcome = solve(clash).outcome
    if outcome is not Outcome.INFEASIBLE:
        _fail(f"a model without solution is called {outcome.value}", clash)


def _fail(what: str, program: Program) -> None:
    raise CheckFailedError(f"{what}\nsmallest model found:\n{program.show()}", None)


def optimum(name: str, how: Effort, seed: int) -> CheckResult:
    """Hold a solver's answers to linear programs, and the multipliers that it declares, against SciPy's optimum."""
    return run_examples("optimum", partial(_optimal, _solver(name), programs()), how, seed)


def integers(name: str, how: Effort, seed: int) -> CheckResult:
    """Hold a solver's answers where some columns are whole against SciPy's optimum."""
    if not get(name).capabilities.mip:
        return CheckResult(check="integers", version=1, status="skipped", reason="takes no integers")
    return run_examples("integers", partial(_optimal, _solver(name), programs(integers=True)), how, seed)


def infeasible(name: str, how: Effort, seed: int) -> CheckResult:
    """Ask a solver for the solution of models that have none."""
    return run_examples("infeasible", partial(_infeasible, _solver(name), programs()), how, seed)


def whole(name: str, how: Effort, seed: int) -> CheckResult:
    """Hold a decomposition's answers and bounds against the optimum of the whole, whatever the blocks."""
    return run_examples("whole", partial(_optimal, _decomposer(name), programs(split=True)), how, seed)


def infeasible_whole(name: str, how: Effort, seed: int) -> CheckResult:
    """Ask a decomposition for the solution of models that have none."""
    return run_examples("infeasible", partial(_infeasible, _decomposer(name), programs(split=True)), how, seed)


def _solver(name: str) -> Solve:
    tried = get(name)

    def solve(program: Program) -> Result:
        result = tried.solve(program.form)
        owed = tried.capabilities.duals and program.form.shape[0] and not program.form.is_mip
        if owed and result.x is not None and result.duals is None:
            _fail("it declares multipliers, and gives none for an LP solved to optimality", program)
        return result

    return solve


def _decomposer(name: str) -> Solve:
    """Return a decomposition whose answers are put as a solver's."""
    tried = registry().kind("decomposer", name).load()()

    def solve(program: Program) -> Result:
        context = SolveContext(method="under-trial", solver="highs")
        try:
            answer: Any = tried.solve(program.form, program.blocks, context)
        except InfeasibleError:
            return Result(outcome=Outcome.INFEASIBLE, solver=name)
        bound = None if answer.bound is None else float(answer.bound)
        x, objective = np.asarray(answer.x, dtype=np.float64), float(answer.objective)
        return Result(outcome=Outcome.OPTIMAL, solver=name, x=x, objective=objective, bound=bound)

    return solve
