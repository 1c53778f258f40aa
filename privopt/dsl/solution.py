"""A solver's answer under the names and labels of the formula."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, TypedDict, Unpack

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, read_only
from privopt.dsl.condition import TightenedRows
from privopt.dsl.form import StandardForm
from privopt.dsl.outcome import Result
from privopt.errors import InfeasibleError, SolverError, StoppedError, UnboundedError, UsageError
from privopt.registry import registry

EXPLAIN_SECONDS = 20.0


class SolveOptions(TypedDict, total=False):
    """Options of ``Backend.solve``."""

    time_limit: float | None
    gap: float
    method: str
    threads: int
    seed: int


class Solver(Protocol):
    """A solver of compiled models. Registered ones derive from :class:`privopt.backends.Backend`."""

    def solve(self, form: StandardForm, **options: Unpack[SolveOptions]) -> Result:
        """Solve a form."""

    def explain(self, form: StandardForm, time_limit: float) -> str:
        """Return why a form has no solution."""


class SolveInterrupt(KeyboardInterrupt):
    """An interrupt came after the solver had a feasible point; ``result`` holds the checked point."""

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


@frozen(eq=False, kw_only=True)
class Solution:
    """The result of solving a model, checked against its rows.

    Attributes:
        form: the compiled model.
        status: "optimal", or "feasible" if a limit or an interrupt came first.
        x: the columns, shape (n,).
        objective: at x, in the objective's own units.
        bound: lower bound on the optimum (upper if maximised); None if none is known.
        duals: change of the objective for a unit of each row's side, shape (m,); None with integer columns.
        reduced: reduced costs, shape (n,); None with integer columns.
        seconds: in the solver.
        iterations: simplex and interior-point iterations.
        solver: its name and version.
        violation: the largest amount by which x misses a row as the solver had it.
        tightening: privacy rows that were tightened, and what that cost; None if there were none.
    """

    form: StandardForm
    status: str
    x: Floats
    objective: float
    bound: float | None
    duals: Floats | None
    reduced: Floats | None
    seconds: float
    iterations: int
    solver: str
    violation: float
    tightening: TightenedRows | None = None

    @property
    def gap(self) -> float | None:
        """``|objective - bound| / max(|objective|, 1e-12)``; None without a bound."""
        return None if self.bound is None else abs(self.objective - self.bound) / max(abs(self.objective), 1e-12)

    def value(self, name: str, labels: Sequence[Hashable] | None = None) -> Any:
        """Return the values of a variable in the shape of its sets, or one number if labels are given."""
        return self._variable_values(self.x, name, labels)

    def reduced_cost(self, name: str, labels: Sequence[Hashable] | None = None) -> Any:
        """Return the reduced costs of a variable in the shape of its sets, or one number if labels are given."""
        return self._variable_values(self._require_values(self.reduced, "reduced costs"), name, labels)

    def dual(self, family: str, labels: Sequence[Hashable] | None = None) -> Any:
        """Return the multipliers of a family, one for each row; with labels, those of its rows that have them."""
        duals = self._require_values(self.duals, "duals")
        block = self.form.family(family)
        family_duals = duals[block.start : block.stop]
        if labels is None:
            return read_only(family_duals.copy())
        selected_duals = family_duals[block.rows(labels)]
        return float(selected_duals[0]) if len(selected_duals) == 1 else read_only(selected_duals)

    def _require_values(self, values: Floats | None, quantity: str) -> Floats:
        """Return the values, or explain why the solver did not give them."""
        if values is None:
            raise UsageError(
                f"no {quantity}: {self.solver} gives them for optimal models without integer variables only"
            )
        return values

    def _variable_values(self, values: Floats, name: str, labels: Sequence[Hashable] | None) -> Any:
        """Return a variable's part of a vector over all columns."""
        block = self.form.variable(name)
        block_values = values[block.start : block.stop]
        if labels is not None:
            return float(block_values[block.flat((labels,) if isinstance(labels, str) else tuple(labels))])
        return float(block_values[0]) if not block.sets else read_only(block_values.reshape(block.shape).copy())


def solve_form(
    form: StandardForm, backend: str | Solver = "cbc", *, name: str = "model", **options: Unpack[SolveOptions]
) -> Solution:
    """Solve a compiled model with a backend object, or with the registered solver of that name.

    Raises:
        InfeasibleError, UnboundedError, StoppedError, SolverError: in the formula's words.
    """
    solver: Solver = registry().kind("solver", backend).load()() if isinstance(backend, str) else backend
    try:
        result = solver.solve(form, **options)
    except SolveInterrupt as interrupt:
        result = interrupt.result
    outcome = result.outcome.value
    # The explanation must not take longer than the solve was allowed to.
    explain_seconds = min(EXPLAIN_SECONDS, options.get("time_limit") or EXPLAIN_SECONDS)
    if outcome == "infeasible":
        tightening_note = f" (after {result.tightening.rows} privacy rows were tightened)" if result.tightening else ""
        raise InfeasibleError(f"{name} has no solution{tightening_note}: {solver.explain(form, explain_seconds)}")
    if outcome == "unbounded":
        raise UnboundedError(f"{name} is unbounded: the objective improves without end")
    if outcome == "stopped":
        raise StoppedError(
            f"{name}: {result.solver} stopped after {result.seconds:.1f} s with nothing feasible"
            f"{f' ({result.message})' if result.message else ''}"
        )
    if result.x is None or result.objective is None:
        raise SolverError(f"{name}: {result.solver} calls it {outcome} and gives no vector")
    return Solution(
        form=form,
        status=outcome,
        x=read_only(np.asarray(result.x)),
        objective=result.objective,
        bound=result.bound,
        duals=result.duals,
        reduced=result.reduced,
        seconds=result.seconds,
        iterations=result.iterations,
        solver=result.solver,
        violation=result.violation,
        tightening=result.tightening,
    )
