"""Explain why a model is infeasible, by naming the families, rows and variables that clash.

Families are left out one by one, as in the deletion filter for irreducible infeasible subsystems.
"""

from __future__ import annotations

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Indices
from privopt.backends._highs_calls import (
    BEARING,
    ROW_TOLERANCE,
    load_arrays,
    new_solver,
    outcome_of,
    problem_arrays,
    run_solver,
    settings_of,
    solve_arrays,
)
from privopt.dsl.condition import ScaledForm, condition
from privopt.dsl.form import StandardForm, round_integer_bounds
from privopt.dsl.outcome import Outcome
from privopt.execution.clock import clock, limit

MAX_SHOWN_NAMES = 6
"""The largest number of rows or variables named in a message. Any others are counted but not named."""


@frozen(kw_only=True)
class Clash:
    """Families of constraints that cannot be satisfied together.

    Attributes:
        families: The names of the families. If ``irreducible`` is true, the model becomes feasible when any of them is
            left out.
        rows: The names of rows in these families that contradict one another. Leaving out any of them resolves this
            contradiction. Empty if HiGHS found no such rows in time, or if the linear relaxation is feasible.
        bounds: The names of columns whose bounds contribute to the clash.
        irreducible: Whether all unnecessary families were removed within the time limit.
        confirmed: Whether HiGHS found the model, solved without costs, to be infeasible within the time limit.
        contradicted: Whether HiGHS found a feasible point. If so, the model is not infeasible after all.
    """

    families: tuple[str, ...]
    rows: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    irreducible: bool = True
    confirmed: bool = True
    contradicted: bool = False

    def __str__(self) -> str:
        """Return a phrase that names the clashing families, rows and bounds, for use in error messages."""
        if not self.confirmed:
            return "the solver finds no point that satisfies all rows (a second solver does not confirm it)"
        names = " and ".join(self.families) if self.families else "the bounds of the variables alone"
        text = f"{names} clash" if len(self.families) > 1 else f"{names} cannot be satisfied"
        if self.rows:
            text += f", already in rows {_abbreviate_names(self.rows)}"
        if self.bounds:
            text += f" with the bounds of {_abbreviate_names(self.bounds)}"
        return text


def _abbreviate_names(names: tuple[str, ...]) -> str:
    """Join the first few names with commas, and append the number of names that are left out."""
    suffix = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
    return ", ".join(names[:MAX_SHOWN_NAMES]) + suffix


def find_clash(form: StandardForm, *, time_limit: float = 20.0) -> Clash:
    """Find the families of constraints that clash in an infeasible model, by leaving out one family at a time.

    Rows are named only if the linear relaxation is infeasible. They come from HiGHS's irreducible infeasible subsystem.

    Args:
        form: The infeasible model.
        time_limit: The time limit of the search in seconds. If it is reached, the result may include families that do
            not contribute to the clash.
    """
    result: Clash | None = None
    # If the time is up, the block ends without an error and leaves the result None.
    with limit(time_limit):
        result = _find_clash(form)
    return result or Clash(families=tuple(b.name for b in form.families), irreducible=False, confirmed=False)


def _find_clash(form: StandardForm) -> Clash:
    """Find the families, rows and bounds that clash, subject to the time limits that currently apply."""
    # A lower bound above the upper bound is a clash that involves no rows.
    lower, upper = round_integer_bounds(form.col_lower, form.col_upper, form.integrality)
    crossed_columns = np.flatnonzero(lower > upper)
    if len(crossed_columns):
        return Clash(families=(), bounds=tuple(form.column_name(int(column)) for column in crossed_columns))
    # Costs are dropped, so that "optimal" only means that a feasible point exists. The probes set the linear costs to
    # 0.
    conditioned = condition(evolve(form, Q=None, col_lower=lower, col_upper=upper), BEARING)
    probe = _Probe(conditioned)
    relaxed_outcome = outcome = probe.find_outcome()
    if relaxed_outcome is Outcome.OPTIMAL and form.is_mip:
        probe = _IntegerProbe(conditioned)
        outcome = probe.find_outcome()
    if outcome is not Outcome.INFEASIBLE:
        return Clash(
            families=tuple(b.name for b in form.families),
            irreducible=False,
            confirmed=False,
            contradicted=outcome in (Outcome.OPTIMAL, Outcome.FEASIBLE),
        )
    needed_families, is_irreducible = _reduce_families(probe, conditioned)
    rows, bounds = _find_subsystem(conditioned, needed_families) if relaxed_outcome is Outcome.INFEASIBLE else ((), ())
    return Clash(families=tuple(needed_families), rows=rows, bounds=bounds, irreducible=is_irreducible)


class _Probe:
    """The linear relaxation of a model without costs, solved repeatedly with different rows disabled.

    A row is disabled by setting its bounds to infinity.

    Attributes:
        arrays: The model, as returned by ``problem_arrays``, with all costs 0.
        solver: The HiGHS instance. Each solve starts from the result of the previous one.
    """

    def __init__(self, conditioned: ScaledForm) -> None:
        """Load the relaxation into a HiGHS instance."""
        self.arrays = problem_arrays(conditioned)
        # These are copied because an _IntegerProbe changes them in place.
        self.arrays |= {name: self.arrays[name].copy() for name in ("row_lower", "row_upper")}
        self.arrays["c"] = np.zeros_like(conditioned.c)
        self.load_solver()

    @property
    def remaining_seconds(self) -> float:
        """The number of seconds left for the next solve under the current time limits, but at least 0.1."""
        return max(clock().left, 0.1)

    def load_solver(self) -> None:
        """Load the relaxation into a HiGHS instance, in which it can be changed and solved repeatedly."""
        self.solver = new_solver()
        load_arrays(self.solver, self.arrays | {"integrality": np.zeros_like(self.arrays["integrality"])})

    def set_row_bounds(self, rows: Indices, lower: Floats, upper: Floats) -> None:
        """Set the bounds of some rows. Infinite bounds disable a row."""
        self.solver.changeRowsBounds(len(rows), rows, lower, upper)

    def find_outcome(self) -> Outcome | None:
        """Solve the model in its current state and return the outcome, or None if HiGHS gave up."""
        # HiGHS's clock is not reset between an instance's solves.
        self.solver.setOptionValue("time_limit", self.solver.getRunTime() + self.remaining_seconds)
        run_solver(self.solver)
        return outcome_of(self.solver)


class _IntegerProbe(_Probe):
    """A `_Probe` that keeps integer columns and solves from scratch each time, in a process that can be killed."""

    def load_solver(self) -> None:
        """Do nothing, because each solve loads the model again."""

    def set_row_bounds(self, rows: Indices, lower: Floats, upper: Floats) -> None:
        """Set the bounds of some rows for subsequent solves. Infinite bounds disable a row."""
        self.arrays["row_lower"][rows], self.arrays["row_upper"][rows] = lower, upper

    def find_outcome(self) -> Outcome | None:
        """Solve the model in its current state in a worker process. The outcome is None if HiGHS gave up."""
        settings = settings_of(tolerance=ROW_TOLERANCE, threads=1, seed=0) | {"time_limit": self.remaining_seconds}
        return solve_arrays(self.arrays, settings).outcome


def _reduce_families(probe: _Probe, conditioned: ScaledForm) -> tuple[list[str], bool]:
    """Disable each family in turn if the model is still infeasible without it, and return the remaining families.

    This procedure is known as a deletion filter.

    Args:
        probe: The infeasible model. Families that are not needed for the clash remain disabled in it.
        conditioned: The scaled form, which provides the bounds of the rows.

    Returns:
        The names of the remaining families in the model's order, and whether all unnecessary families were removed.
    """
    form = conditioned.form
    families, is_complete = [], True
    # Large families are tried first, because later solves are cheaper without them.
    for block in sorted(form.families, key=len, reverse=True):
        if clock().left == 0.0:
            families.append(block.name)
            is_complete = False
            continue
        rows = np.arange(block.start, block.stop, dtype=np.int32)
        if not len(rows):
            continue
        infinite = np.full(len(rows), np.inf)
        # If the model is still infeasible without the family, the family is not needed for the clash.
        probe.set_row_bounds(rows, -infinite, infinite)
        outcome = probe.find_outcome()
        if outcome is not Outcome.INFEASIBLE:
            # If the solve was stopped, it remains unknown whether the family is needed.
            is_complete = is_complete and outcome is Outcome.OPTIMAL
            families.append(block.name)
            probe.set_row_bounds(rows, conditioned.row_lower[rows], conditioned.row_upper[rows])
    order = [b.name for b in form.families]
    return sorted(families, key=order.index), is_complete


def _find_subsystem(conditioned: ScaledForm, families: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the rows and columns of an irreducible infeasible subsystem of the clashing families.

    A model can be infeasible for several reasons. The rows of all other families are therefore disabled, so that the
    rows found are infeasible for the same reason as the families.

    Args:
        conditioned: The scaled form, whose linear relaxation is infeasible.
        families: The names of the families that clash.

    Returns:
        The names of the rows, and the names of the columns whose bounds contribute to the infeasibility. Both are empty
        if HiGHS finds no subsystem in time, or if the model is too large to search.
    """
    form = conditioned.form
    remaining_seconds = clock().left
    # For a large matrix, the search would take too long for an error message.
    if remaining_seconds < 0.5 or form.A.nnz > 2_000_000:
        return (), ()
    solver = new_solver()
    solver.setOptionValue("iis_time_limit", remaining_seconds)
    solver.setOptionValue("time_limit", remaining_seconds)
    # Search the whole linear program (2) for an irreducible subsystem (4).
    solver.setOptionValue("iis_strategy", 2 + 4)
    arrays = problem_arrays(conditioned, integers=False)
    is_lifted = np.ones(len(arrays["row_lower"]), dtype=np.bool_)
    for block in form.families:
        is_lifted[block.start : block.stop] = block.name not in families
    arrays["row_lower"] = np.where(is_lifted, -np.inf, arrays["row_lower"])
    arrays["row_upper"] = np.where(is_lifted, np.inf, arrays["row_upper"])
    load_arrays(solver, arrays)
    _, iis = solver.getIis()
    if not iis.valid_:
        return (), ()
    rows = tuple(form.row_name(int(r)) for r in iis.row_index_)
    columns = np.array(iis.col_index_, dtype=np.int64)
    bound_kinds = np.array([int(b) for b in iis.col_bound_], dtype=np.int64)
    # HiGHS marks a column with 2 or more if one of its bounds is part of the subsystem.
    bounded = columns[bound_kinds > 1] if len(bound_kinds) == len(columns) else columns
    return rows, tuple(form.column_name(int(c)) for c in bounded)
