"""Solve a compiled model, and look up the answer by the names and labels in the model's formulas."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, Unpack

import numpy as np
from attrs import frozen
from numpy.typing import ArrayLike

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.condition import TightenedRows
from privopt.dsl.duality import rigorous_bound
from privopt.dsl.form import FamilyBlock, StandardForm, VariableBlock
from privopt.dsl.labelled import as_doubles, match_labels
from privopt.dsl.outcome import Basis, Ranges, Ranging, Result
from privopt.dsl.sets import IndexSet
from privopt.errors import InfeasibleError, ModelError, SolverError, StoppedError, UnboundedError, UsageError
from privopt.registry import registry
from privopt.registry.missing import describe_missing_library

if TYPE_CHECKING:
    from polars import DataFrame
else:  # loaded late
    DataFrame = Any

EXPLAIN_SECONDS = 20.0
"""The maximum time, in seconds, to spend explaining why a model is infeasible."""


class SolveOptions(TypedDict, total=False):
    """The options that ``Model.solve`` passes to ``Backend.solve``.

    Attributes:
        time_limit: The time limit in seconds, or None for no limit.
        gap: The relative gap at which the search for an integer solution may stop.
        method: The algorithm for linear programs: "auto", "simplex" or "ipm" (interior point).
        threads: The number of threads.
        seed: The seed for the solver's own random choices.
        basis: The basis from which to start a linear program, for solvers that support warm starts.
        log: Whether to show the solver's log on standard error.
    """

    time_limit: float | None
    gap: float
    method: str
    threads: int
    seed: int
    basis: Basis | None
    log: bool


class BackendOptions(SolveOptions, total=False):
    """The options of ``Backend.solve``.

    Attributes:
        start: (n,) A point from which to start the search for an integer solution, with NaN for missing values.
    """

    start: Floats | None


class Solver(Protocol):
    """Protocol for solvers of compiled models. Registered solvers derive from :class:`privopt.backends.Backend`."""

    def solve(self, form: StandardForm, **options: Unpack[BackendOptions]) -> Result:
        """Solve a compiled model and return the checked result."""

    def explain(self, form: StandardForm, time_limit: float) -> str:
        """Explain why a compiled model has no solution, taking at most ``time_limit`` seconds."""


class SolveInterrupt(KeyboardInterrupt):
    """Raised if a solver is interrupted (Ctrl-C) after it has found a feasible point.

    The attribute ``result`` contains this point, which has passed the usual checks.
    """

    def __init__(self, result: Result) -> None:
        super().__init__()
        self.result = result


@frozen(eq=False, kw_only=True)
class Solution:
    """The solution of a model, checked against the model's rows.

    Attributes:
        form: The compiled model.
        status: "optimal", or "feasible" if a limit or an interrupt ended the search early.
        x: (n,) The values of the columns.
        objective: The value of the model's objective at x.
        bound: A lower bound on the optimum (an upper bound if the objective is maximised), or None if unknown.
        duals: (m,) The change in the objective per unit change in each row's bound, or None if the solver returned
            none, as is the case if the model has integer columns or the search ended early.
        reduced: (n,) The reduced costs of the columns, or None under the same conditions as ``duals``.
        seconds: The time taken by the solver, in seconds.
        iterations: The number of simplex and interior-point iterations.
        solver: The name and version of the solver.
        violation: The largest amount by which x violates any of the rows as scaled for the solver.
        tightening: The privacy rows ``z_i <= exp(...) z_j`` that were tightened, and the cost of tightening them, or
            None if there were none.
        basis: The solver's basis, from which a changed model can be solved faster, or None if the model has integer
            columns or the solver returned no basis.
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
    basis: Basis | None = None

    @property
    def gap(self) -> float | None:
        """The relative gap ``|objective - bound| / max(|objective|, 1e-12)``, or None if no bound is known."""
        return None if self.bound is None else abs(self.objective - self.bound) / max(abs(self.objective), 1e-12)

    @property
    def rigorous_bound(self) -> float | None:
        """A bound on the optimum that follows from the dual multipliers and is valid despite all rounding errors.

        None if no finite bound follows from the multipliers, or if the objective is quadratic. A mechanism may use it
        as its ``Outcome.lower_bound``. See :func:`privopt.dsl.duality.rigorous_bound`.
        """
        # The bound of a quadratic objective relies on its convexity, which is not proved here.
        if self.duals is None or self.form.Q is not None:
            return None
        bound = rigorous_bound(self.form, self.duals)
        return bound if math.isfinite(bound) else None

    def value(self, name: str, labels: Sequence[Hashable] | None = None) -> Any:
        """Return the values of a variable, or only the value of one of its columns.

        Args:
            name: The name of the variable.
            labels: The labels of a single column, or None for all columns.

        Returns:
            An array with one axis per index set, or a number if labels are given or the variable is a scalar.

        Raises:
            ModelError: The model has no such variable or label.
        """
        return self._variable_values(self.x, name, labels)

    def reduced_cost(self, name: str, labels: Sequence[Hashable] | None = None) -> Any:
        """Return the reduced costs of a variable, or only the reduced cost of one of its columns.

        Args:
            name: The name of the variable.
            labels: The labels of a single column, or None for all columns.

        Returns:
            An array with one axis per index set, or a number if labels are given or the variable is a scalar.

        Raises:
            ModelError: The model has no such variable or label.
            UsageError: The solver returned no reduced costs.
        """
        return self._variable_values(self._require_values(self.reduced, "reduced costs"), name, labels)

    def dual(self, family: str, labels: Sequence[Hashable] | None = None) -> Any:
        """Return the dual multipliers of a family's rows, or only of the rows with the given labels.

        If the labels select a single row, its multiplier is returned as a number.

        Raises:
            ModelError: The model has no such family, or the family has no row with these labels.
            UsageError: The solver returned no multipliers.
        """
        duals = self._require_values(self.duals, "duals")
        block = self.form.family(family)
        return _select_rows(block, duals[block.start : block.stop], labels)

    def activity(self, family: str, labels: Sequence[Hashable] | None = None) -> Any:
        """Return the value ``A x`` of each row of a family at the solution. Labels select rows as in :meth:`dual`."""
        block = self.form.family(family)
        return _select_rows(block, self._activities(block), labels)

    def slack(self, family: str, labels: Sequence[Hashable] | None = None) -> Any:
        """Return the slack of each row of a family: the distance from the row's value to its nearest bound.

        The slack is 0 if a row is tight, negative if the row is violated within the solver's tolerance, and infinite if
        the row has no bounds. Labels select rows as in :meth:`dual`.
        """
        block = self.form.family(family)
        return _select_rows(block, self._slacks(block), labels)

    def _activities(self, block: FamilyBlock) -> Floats:
        """Return the activity ``A x`` of each row in a family as an array of shape (rows,)."""
        return np.asarray(self.form.A[block.start : block.stop] @ self.x)

    def _slacks(self, block: FamilyBlock) -> Floats:
        """Return the slack of each row in a family (the distance to its nearest bound) as an array of shape (rows,)."""
        activities, rows = self._activities(block), slice(block.start, block.stop)
        return np.asarray(np.minimum(activities - self.form.row_lower[rows], self.form.row_upper[rows] - activities))

    def to_frame(self, name: str) -> DataFrame:
        """Return the results for a variable or a family of constraints as a polars DataFrame.

        For a variable, there is one row for each of its columns in the model. The DataFrame has a label column for each
        of the variable's sets, followed by ``value``, ``lower``, ``upper`` and ``reduced_cost``. For a family, there is
        one row per constraint, with a label column for each index, followed by ``activity``, ``lower``, ``upper``,
        ``slack`` and ``dual``. Multipliers that the solver did not return are null.

        Args:
            name: The name of a variable or a family.

        Raises:
            ModelError: There is no variable or family with this name.
            UsageError: polars is not installed.
        """
        form = self.form
        variables = {block.name: block for block in form.variables}
        if name in variables:
            variable = variables[name]
            columns = slice(variable.start, variable.stop)
            return _make_frame(
                _column_labels(variable),
                value=self.x[columns],
                lower=form.col_lower[columns],
                upper=form.col_upper[columns],
                reduced_cost=None if self.reduced is None else self.reduced[columns],
            )
        if name not in {block.name for block in form.families}:
            names = ", ".join([*variables, *(block.name for block in form.families)])
            raise ModelError(f"no variable or family is called {name!r}; there are {names or 'none'}")
        family = form.family(name)
        rows = slice(family.start, family.stop)
        return _make_frame(
            _row_labels(family),
            activity=self._activities(family),
            lower=form.row_lower[rows],
            upper=form.row_upper[rows],
            slack=self._slacks(family),
            dual=None if self.duals is None else self.duals[rows],
        )

    def ranging(self, name: str) -> DataFrame:
        """Return ranges within which a variable's costs, or a family's row bounds, can change one at a time.

        For a variable, the table has columns for its labels, followed by ``cost``, ``lower`` and ``upper``. The point
        remains optimal while the cost is between ``lower`` and ``upper``. For a family, the table has columns for its
        labels, followed by ``side`` (the active bound of the row), ``lower`` and ``upper``. The duals do not change
        while this bound is between ``lower`` and ``upper``. In both tables, ``lower_objective`` and ``upper_objective``
        are the objective values at ``lower`` and ``upper``.

        All numbers are null for rows that are not active at a bound. If several bases are optimal, the ranges refer to
        the solver's basis.

        Args:
            name: The name of a variable or a family.

        Raises:
            ModelError: No variable or family has this name.
            UsageError: The solver returned no basis from which to compute the ranges (only HiGHS returns one, for
                linear programs solved to optimality), or polars is not installed.
        """
        if self.basis is None:
            text = f"no ranging: {self.solver} gives none here; highs gives it for optimal linear programs"
            raise UsageError(text)
        # Only HiGHS returns a basis, so it can also compute the ranges.
        ranging: Ranging = registry().kind("solver", "highs").load()().ranging(self.form, self.basis)
        form = self.form
        if name in {block.name for block in form.variables}:
            variable = form.variable(name)
            columns = slice(variable.start, variable.stop)
            return _make_frame(_column_labels(variable), cost=form.c[columns], **_ends(ranging.costs, columns))
        family = form.family(name)
        rows = slice(family.start, family.stop)
        is_tight = ranging.is_tight[rows]
        side = np.where(ranging.is_at_upper[rows], form.row_upper[rows], form.row_lower[rows])
        ends = _ends(ranging.sides, rows)
        tight_ends = {key: np.where(is_tight, values, np.nan) for key, values in ends.items()}
        return _make_frame(_row_labels(family), side=np.where(is_tight, side, np.nan), **tight_ends)

    def _require_values(self, values: Floats | None, quantity: str) -> Floats:
        """Return the values unchanged, or raise a UsageError if the solver returned none.

        The error message says for which models the solver provides this quantity.
        """
        if values is None:
            raise UsageError(
                f"no {quantity}: {self.solver} gives them for optimal models without integer variables only"
            )
        return values

    def _variable_values(self, values: Floats, name: str, labels: Sequence[Hashable] | None) -> Any:
        """Extract a variable's entries from a vector over all columns of the model.

        Args:
            values: (n,) One number for each column of the model.
            name: The name of the variable.
            labels: The labels of the column whose number is returned. If None, the numbers of all the variable's
                columns are returned, as an array with one axis per index set, or as a single number for a scalar
                variable.
        """
        block = self.form.variable(name)
        block_values = values[block.start : block.stop]
        if labels is not None:
            # A string is a sequence of characters, but here it is a single label.
            return float(block_values[block.flat((labels,) if isinstance(labels, str) else tuple(labels))])
        return float(block_values[0]) if not block.sets else read_only(block_values.reshape(block.shape).copy())


def _select_rows(block: FamilyBlock, values: Floats, labels: Sequence[Hashable] | None) -> Any:
    """Return the values of a family's rows, or only of those selected by ``labels``.

    If ``labels`` selects a single row, the result is a number.
    """
    if labels is None:
        return read_only(values.copy())
    # A string is a sequence of characters, but here it is a single label.
    selected = values[block.rows((labels,) if isinstance(labels, str) else labels)]
    return float(selected[0]) if len(selected) == 1 else read_only(selected)


def _labels_at(index_set: IndexSet, places: Ints) -> list[Any]:
    """Return the labels at the given positions in a set.

    The labels are converted to strings unless all of them have the same type and that type is ``str``, ``int``,
    ``float``, ``date`` or a subclass of one of these.
    """
    labels = [index_set.labels[place] for place in places.tolist()]
    is_simple = len({type(label) for label in labels}) == 1 and isinstance(labels[0], str | int | float | date)
    return labels if is_simple else [str(label) for label in labels]


def _column_labels(variable: VariableBlock) -> dict[str, list[Any]]:
    """Return the labels of a variable's columns, keyed by the names of the sets. Repeated names are made distinct."""
    # One array for each set, with the position of its label in every column. Columns are numbered row-major.
    places = [part.ravel() for part in np.indices(variable.shape)]
    names = _distinct_names([s.name for s in variable.sets])
    return dict(zip(names, map(_labels_at, variable.sets, places), strict=True))


def _row_labels(family: FamilyBlock) -> dict[str, list[Any]]:
    """Return the labels of a family's rows, keyed by distinct index names.

    If the family has several rows but no indices, the row positions are the labels, keyed by "row".
    """
    if not family.indices and len(family) > 1:
        return {"row": list(range(len(family)))}
    names = _distinct_names(list(family.indices))
    return dict(zip(names, map(_labels_at, family.sets, family.positions), strict=True))


def _ends(ranges: Ranges, part: slice) -> dict[str, Floats]:
    """Return table columns with the lower and upper ends of the selected ranges, and the objective values there.

    ``part`` selects the ranges.
    """
    names = ("lower", "upper", "lower_objective", "upper_objective")
    return {name: np.asarray(getattr(ranges, name)[part]) for name in names}


def _distinct_names(names: list[str]) -> list[str]:
    """Make the names of label columns distinct by numbering repeated ones: a second "X" becomes "X_2".

    The names of the value columns count as taken, so a label column called "value" becomes "value_2".
    """
    distinct: list[str] = []
    taken = {"value", "activity", "lower", "upper", "slack", "dual", "reduced_cost", "cost", "side"}
    for name in names:
        candidate, number = name, 1
        while candidate in taken:
            number += 1
            candidate = f"{name}_{number}"
        taken.add(candidate)
        distinct.append(candidate)
    return distinct


def _make_frame(labels: dict[str, list[Any]], **numbers: Floats | None) -> DataFrame:
    """Return a polars DataFrame of label columns followed by columns of numbers.

    If None is given in place of an array of numbers, the column is filled with nulls.
    """
    try:
        import polars as pl
    except ModuleNotFoundError as error:
        raise UsageError(f"tables need polars: {describe_missing_library(error)}") from None

    texts = [pl.Series(name, values) for name, values in labels.items()]
    rows = len(next(values for values in numbers.values() if values is not None))
    columns = [
        # Missing numbers are NaN in the arrays, and null in the table.
        pl.Series(name, [None] * rows if values is None else values, dtype=pl.Float64).fill_nan(None)
        for name, values in numbers.items()
    ]
    return pl.DataFrame([*texts, *columns])


def start_vector(form: StandardForm, start: Solution | Mapping[str, ArrayLike]) -> Floats:
    """Return a starting point as a vector of shape (n,), with NaN for columns whose values are not given.

    Args:
        form: The compiled model.
        start: An earlier solution, or a mapping from variable names to values, which may be labelled. From a solution,
            only variables with the same name and shape are used.

    Raises:
        ModelError: ``start`` is of another type, a name in it does not belong to a variable of the form, or the values
            do not fit the variable.
    """
    given: Any = start
    if not isinstance(given, Solution | Mapping):
        expectation = "an earlier solution, or values by the name of a variable"
        raise ModelError(f"start must be {expectation}, got a {type(given).__name__}")
    vector = np.full(form.shape[1], np.nan)
    if isinstance(start, Solution):
        old_variables = {block.name: block for block in start.form.variables}
        for block in form.variables:
            old = old_variables.get(block.name)
            if old is not None and old.shape == block.shape:
                vector[block.start : block.stop] = start.x[old.start : old.stop]
        return vector
    for name, source in start.items():
        block = form.variable(name)
        values = match_labels(source, block.sets, f"start of {name}")
        try:
            numbers = as_doubles(values)
        except (TypeError, ValueError):
            raise ModelError(f"start of {name}: must be numbers") from None
        if numbers.shape != block.shape:
            raise ModelError(f"start of {name}: must have shape {block.shape}, got {numbers.shape}")
        vector[block.start : block.stop] = numbers.ravel()
    return vector


def complete_extremum(
    form: StandardForm, start: Floats, columns: slice, lines: Sequence[str], *, is_convex: bool
) -> None:
    """Fill in the values of an absolute value, minimum or maximum in a starting point, in place.

    Users cannot supply these values, because the model itself adds the columns for these functions. A column is set to
    the largest value of its lines, or to the smallest value if the function is concave. It remains NaN if the starting
    point has no value for a column needed by one of the lines.

    Args:
        form: The compiled model.
        start: (n,) The starting point, modified in place.
        columns: The columns of the function's variable.
        lines: The names of the families that contain the function's lines.
        is_convex: Whether the columns lie above their lines.
    """
    values = np.full(columns.stop - columns.start, -np.inf if is_convex else np.inf)
    for name in lines:
        block = form.family(name)
        rows = slice(block.start, block.stop)
        line = form.A[rows].tocoo()
        is_term = (line.col >= columns.start) & (line.col < columns.stop)
        # The value of each row without the column itself. The row's bound minus this value is the height of the line.
        body = np.bincount(line.row[~is_term], line.data[~is_term] * start[line.col[~is_term]], len(block))
        heights = (form.row_lower if is_convex else form.row_upper)[rows] - body
        extreme = np.maximum if is_convex else np.minimum
        # If a needed value is missing (NaN), the result is NaN, as intended.
        with np.errstate(invalid="ignore"):
            extreme.at(values, line.col[is_term] - columns.start, heights[line.row[is_term]])
    # A column without lines is not used.
    start[columns] = np.where(np.isinf(values), 0.0, values)


def load_solver(backend: str | Solver, *, is_soon: bool = False) -> Solver:
    """Return the solver registered under a name, or a backend object unchanged.

    Args:
        backend: The name of a registered solver, or a backend object.
        is_soon: Whether a solve is about to follow. If so, the solver is told to prepare for it (``Backend.prepare``).
    """
    solver: Solver = registry().kind("solver", backend).load()() if isinstance(backend, str) else backend
    if is_soon and hasattr(solver, "prepare"):
        solver.prepare()
    return solver


def solve_form(
    form: StandardForm,
    backend: str | Solver = "cbc",
    *,
    name: str = "model",
    **options: Unpack[BackendOptions],
) -> Solution:
    """Solve a compiled model and return the solution, or raise an error that says why there is none.

    Args:
        form: The compiled model.
        backend: A backend object, or the name of a registered solver.
        name: The model's name, used in messages.
        options: Options for ``Backend.solve``. The option ``basis`` is not passed to solvers that do not support warm
            starts.

    Raises:
        InfeasibleError: No point satisfies all rows; the message names the conflicting families.
        UnboundedError: The objective improves without limit.
        StoppedError: The solver reached a limit before it found a feasible point.
        SolverError: The solver failed, or returned no point.
        UsageError: The solver does not exist or does not support this kind of model, or an option is not allowed.
    """
    solver = load_solver(backend)
    if not getattr(getattr(solver, "capabilities", None), "warm_start", False):
        options.pop("basis", None)
    try:
        result = solver.solve(form, **options)
    except SolveInterrupt as interrupt:
        # The solver had found a feasible point, so return it. Any other interrupt is propagated.
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
            f"{name}: {result.solver} stopped after {result.seconds:.1f} s without a feasible "
            f"point{f' ({result.message})' if result.message else ''}"
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
        basis=result.basis,
    )
