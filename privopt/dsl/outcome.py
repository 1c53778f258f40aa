"""The outcome of a solve and its checked result."""

from __future__ import annotations

from enum import Enum

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt.dsl.condition import TightenedRows
from privopt.dsl.form import StandardForm


class Outcome(Enum):
    """The status of a solve. If a solver crashes or returns a wrong answer, ``SolverError`` is raised instead."""

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNBOUNDED = "unbounded"
    STOPPED = "stopped"


class Basis:
    """A simplex basis, stored as arrays of statuses so that it can be pickled."""

    __slots__ = ("_columns", "_rows")

    def __init__(self, *, columns: NDArray[np.int8], rows: NDArray[np.int8]) -> None:
        """Create a basis from statuses: 0 at the lower bound, 1 basic, 2 at the upper bound, 3 free at 0.

        Args:
            columns: (n,) The status of each column.
            rows: (m,) The status of each row.
        """
        self._columns, self._rows = columns, rows

    @property
    def columns(self) -> NDArray[np.int8]:
        """The status of each column, as an array of shape (n,)."""
        return self._columns

    @property
    def rows(self) -> NDArray[np.int8]:
        """The status of each row, as an array of shape (m,)."""
        return self._rows

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return len(self.rows), len(self.columns)

    def resized(self, rows: int) -> Basis:
        """Return this basis extended to a model with ``rows`` rows. The additional rows are marked as basic."""
        extra_count = rows - len(self.rows)
        return (
            Basis(columns=self.columns, rows=np.concatenate([self.rows, np.ones(extra_count, dtype=np.int8)]))
            if extra_count > 0
            else self
        )

    def carry_over(self, old_form: StandardForm, form: StandardForm) -> Basis:
        """Convert this basis of ``old_form`` to a basis of ``form``, a changed version of ``old_form``.

        A variable's columns keep their statuses if ``old_form`` has a variable of the same name and shape, and a
        family's rows keep theirs if ``old_form`` has a family of the same name and size. All other columns are set to
        their lower bounds, and all other rows become basic. If the result is not a valid basis, the solver repairs it.
        """
        if _layout(old_form) == _layout(form):
            return self
        columns = np.zeros(form.shape[1], dtype=np.int8)
        rows = np.ones(form.shape[0], dtype=np.int8)
        old_variables = {block.name: block for block in old_form.variables}
        for variable in form.variables:
            old = old_variables.get(variable.name)
            if old is not None and old.shape == variable.shape:
                columns[variable.start : variable.stop] = self.columns[old.start : old.stop]
        old_families = {block.name: block for block in old_form.families}
        for family in form.families:
            old_family = old_families.get(family.name)
            if old_family is not None and len(old_family) == len(family):
                rows[family.start : family.stop] = self.rows[old_family.start : old_family.stop]
        return Basis(columns=columns, rows=rows)


def _layout(form: StandardForm) -> list[tuple[str, int, int]]:
    """Return the name, start and stop of each variable and each family of rows in a form."""
    variables = [(variable.name, variable.start, variable.stop) for variable in form.variables]
    return variables + [(family.name, family.start, family.stop) for family in form.families]


@frozen(eq=False, kw_only=True)
class Ranges:
    """Ranges within which costs or row bounds can change, one at a time, while the basis remains optimal.

    Attributes:
        lower, upper: The ends of each range; infinite if the range is unbounded.
        lower_objective, upper_objective: The objective values at these ends, in the units and sense of the form.
    """

    lower: Floats
    upper: Floats
    lower_objective: Floats
    upper_objective: Floats


@frozen(eq=False, kw_only=True)
class Ranging:
    """Ranges within which a linear program's costs and row bounds can change while its basis remains optimal.

    Each range assumes that no other number changes.

    Attributes:
        costs: (n,) The range of each column's cost within which the optimal point does not change.
        sides: (m,) For each row, the range of the bound at which the row is active. Within this range, the multipliers
            do not change.
        is_tight: (m,) A mask of the rows that are active at a bound. The ranges of other rows are meaningless.
        is_at_upper: (m,) A mask of the rows that are active at their upper bound.
    """

    costs: Ranges
    sides: Ranges
    is_tight: NDArray[np.bool_]
    is_at_upper: NDArray[np.bool_]


@frozen(eq=False, kw_only=True)
class Result:
    """A solver's answer that has passed all checks.

    All numbers refer to the rows, units and sense of the compiled form.

    Attributes:
        outcome: The status of the solve. If it is optimal or feasible, x, objective and violation are set.
        x: (n,) The point, whose values are exactly within the column bounds and are exact integers in integer columns.
        objective: The value of the form's objective at x.
        bound: A bound on the optimum of the original form, before privacy rows ``z_i <= exp(...) z_j`` were tightened,
            or None if unknown.
        duals: (m,) For LPs solved to optimality, the change in the objective per unit change in each row's bound.
        reduced: (n,) For LPs solved to optimality, the reduced cost of each column.
        seconds: The time taken by the solver, in seconds.
        iterations: The number of simplex and interior-point iterations.
        solver: The name and version of the solver.
        violation: The largest amount by which x violates a scaled row.
        message: A message from the solver or from the checks.
        tightening: The privacy rows that were tightened, or None if there were none.
        basis: The optimal basis of an LP, from which a similar form can be solved faster, or None if the solver
            returned no basis.
    """

    outcome: Outcome
    solver: str
    x: Floats | None = None
    objective: float | None = None
    bound: float | None = None
    duals: Floats | None = None
    reduced: Floats | None = None
    seconds: float = 0.0
    iterations: int = 0
    violation: float = 0.0
    message: str = ""
    tightening: TightenedRows | None = None
    basis: Basis | None = None
