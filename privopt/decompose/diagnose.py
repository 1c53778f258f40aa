"""Explain, on the whole form, why a part of it is infeasible or unbounded."""

from __future__ import annotations

import numpy as np
from attrs import evolve

from privopt.backends import get
from privopt.decompose.split import Split
from privopt.dsl.solution import solve_form
from privopt.errors import SolverError, UnboundedError


def tell_unbounded(split: Split, solver: str, what: str, largest: float) -> None:
    """Raise the error that says what it means for the whole form that ``what`` has no bound.

    Raises:
        UnboundedError, InfeasibleError: one of the two.
        SolverError: neither: there is a best point, and the solver does not see it.
    """
    form = split.form
    solve_form(evolve(form, c=np.zeros_like(form.c)), solver)
    sides = [np.where(np.isfinite(side), 0.0, side) for side in (form.row_lower, form.row_upper)]
    least = np.where(np.isfinite(form.col_lower), 0.0, -1.0)
    most = np.where(np.isfinite(form.col_upper), 0.0, 1.0)
    way = evolve(form, c0=0.0, row_lower=sides[0], row_upper=sides[1], col_lower=least, col_upper=most)
    if solve_form(way, solver).objective < -1e-9:
        raise UnboundedError(f"the model is unbounded ({what} is, and there are feasible points)")
    raise SolverError(f"{what} has no bound within columns of {largest:g}, although the model has one")


def explained(split: Split) -> str:
    """Name the families that clash."""
    return get("highs").explain(split.form)
