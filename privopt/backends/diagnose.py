"""Explain why a model is infeasible, in terms of its families, rows and variables."""

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
    run,
    settings_of,
    solve_arrays,
)
from privopt.dsl.condition import ScaledForm, condition
from privopt.dsl.form import StandardForm, round_integer_bounds
from privopt.dsl.outcome import Outcome
from privopt.execution.clock import clock, limit

MAX_SHOWN_NAMES = 6


@frozen(kw_only=True)
class Clash:
    """Families that cannot hold together.

    Attributes:
        families: irreducible where ``irreducible``: without any one of them the rest has a solution.
        rows: rows of them that clash already, where an irreducible set was cheap to find.
        bounds: columns whose bounds take part.
        irreducible: whether the families were reduced to the end in the time given.
        confirmed: whether HiGHS finds the model infeasible too (without costs, and in the time given).
        contradicted: whether HiGHS finds a feasible point instead.
    """

    families: tuple[str, ...]
    rows: tuple[str, ...] = ()
    bounds: tuple[str, ...] = ()
    irreducible: bool = True
    confirmed: bool = True
    contradicted: bool = False

    def __str__(self) -> str:
        if not self.confirmed:
            return "the solver finds no point that satisfies all rows (a second solver does not confirm it)"
        names = " and ".join(self.families) if self.families else "the bounds of the variables alone"
        text = f"{names} clash" if len(self.families) > 1 else f"{names} cannot hold"
        if self.rows:
            text += f", already in rows {_short(self.rows)}"
        if self.bounds:
            text += f" with the bounds of {_short(self.bounds)}"
        return text


def _short(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - MAX_SHOWN_NAMES} more" if len(names) > MAX_SHOWN_NAMES else ""
    return ", ".join(names[:MAX_SHOWN_NAMES]) + more


def clash(form: StandardForm, *, time_limit: float = 20.0) -> Clash:
    """Return families of an infeasible model that clash, found by leaving each out in turn.

    Rows come from HiGHS' irreducible infeasible subsystem of the LP relaxation, where that is infeasible already.
    """
    found: Clash | None = None
    with limit(time_limit):
        found = _clash(form)
    return found or Clash(families=tuple(b.name for b in form.families), irreducible=False, confirmed=False)


def _clash(form: StandardForm) -> Clash:
    """Return the same, in what is left of the time."""
    lower, upper = round_integer_bounds(form.col_lower, form.col_upper, form.integrality)
    empty = np.flatnonzero(lower > upper)
    if len(empty):
        return Clash(families=(), bounds=tuple(form.column_name(int(column)) for column in empty))
    conditioned = condition(evolve(form, col_lower=lower, col_upper=upper), BEARING)
    relaxed = found = (probe := _Probe(conditioned)).outcome()
    if relaxed is Outcome.OPTIMAL and form.is_mip:
        found = (probe := _WholeProbe(conditioned)).outcome()
    if found is not Outcome.INFEASIBLE:
        return Clash(
            families=tuple(b.name for b in form.families),
            irreducible=False,
            confirmed=False,
            contradicted=found in (Outcome.OPTIMAL, Outcome.FEASIBLE),
        )
    kept, done = _reduce(probe, conditioned)
    rows, bounds = _subsystem(conditioned, kept) if relaxed is Outcome.INFEASIBLE else ((), ())
    return Clash(families=tuple(kept), rows=rows, bounds=bounds, irreducible=done)


class _Probe:
    """The model's relaxation without costs, some of its rows lifted."""

    def __init__(self, conditioned: ScaledForm) -> None:
        self.arrays = problem_arrays(conditioned)
        self.arrays |= {name: self.arrays[name].copy() for name in ("row_lower", "row_upper")}
        self.arrays["c"] = np.zeros_like(conditioned.c)
        self.load()

    @property
    def left(self) -> float:
        """Seconds that the next question may take."""
        return max(clock().left, 0.1)

    def load(self) -> None:
        """Load a solver that is changed and solved again."""
        self.solver = new_solver()
        load_arrays(self.solver, self.arrays | {"integrality": np.zeros_like(self.arrays["integrality"])})

    def bound(self, rows: Indices, lower: Floats, upper: Floats) -> None:
        """Change the bounds of rows."""
        self.solver.changeRowsBounds(len(rows), rows, lower, upper)

    def outcome(self) -> Outcome | None:
        """Return HiGHS's current outcome."""
        self.solver.setOptionValue("time_limit", self.solver.getRunTime() + self.left)
        run(self.solver)
        return outcome_of(self.solver)


class _WholeProbe(_Probe):
    """The same with its integers: each question is a solve from new, in a process that can be ended."""

    def load(self) -> None:
        """Nothing is kept between questions."""

    def bound(self, rows: Indices, lower: Floats, upper: Floats) -> None:
        """Change the bounds of rows."""
        self.arrays["row_lower"][rows], self.arrays["row_upper"][rows] = lower, upper

    def outcome(self) -> Outcome | None:
        """Return HiGHS's current outcome."""
        settings = settings_of(tolerance=ROW_TOLERANCE, threads=1, seed=0) | {"time_limit": self.left}
        return solve_arrays(self.arrays, settings).outcome


def _reduce(probe: _Probe, conditioned: ScaledForm) -> tuple[list[str], bool]:
    """Leave out each family that the clash does not need."""
    form = conditioned.form
    kept, done = [], True
    for block in sorted(form.families, key=len, reverse=True):
        if clock().left == 0.0:
            kept.append(block.name)
            done = False
            continue
        rows = np.arange(block.start, block.stop, dtype=np.int32)
        if not len(rows):
            continue
        infinite = np.full(len(rows), np.inf)
        probe.bound(rows, -infinite, infinite)
        found = probe.outcome()
        if found is not Outcome.INFEASIBLE:
            done = done and found is Outcome.OPTIMAL
            kept.append(block.name)
            probe.bound(rows, conditioned.row_lower[rows], conditioned.row_upper[rows])
    order = [b.name for b in form.families]
    return sorted(kept, key=order.index), done


def _subsystem(conditioned: ScaledForm, families: list[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Rows and column bounds of an irreducible infeasible subsystem, where HiGHS finds one in time."""
    form = conditioned.form
    left = clock().left
    if left < 0.5 or form.A.nnz > 2_000_000:
        return (), ()
    solver = new_solver()
    solver.setOptionValue("iis_time_limit", left)
    solver.setOptionValue("time_limit", left)
    solver.setOptionValue("iis_strategy", 2 + 4)
    load_arrays(solver, problem_arrays(conditioned, integers=False))
    _, found = solver.getIis()
    if not found.valid_:
        return (), ()
    rows = tuple(form.row_name(int(r)) for r in found.row_index_)
    columns = np.array(found.col_index_, dtype=np.int64)
    free = np.array([int(b) for b in found.col_bound_], dtype=np.int64)
    bounded = columns[free > 1] if len(free) == len(columns) else columns
    return rows, tuple(form.column_name(int(c)) for c in bounded)
