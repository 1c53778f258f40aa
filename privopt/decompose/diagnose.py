"""Explain why a form is infeasible or unbounded, given that its master or one of its blocks is."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
from attrs import evolve

from privopt.backends import get
from privopt.decompose.split import Split
from privopt.dsl.solution import solve_form
from privopt.errors import SolverError, UnboundedError


def raise_unbounded_form(split: Split, solver: str, part: str, largest: float) -> NoReturn:
    """Raise the error that applies to the whole form, given that the master or a block is unbounded.

    Args:
        split: The whole form and its blocks.
        solver: The name of the solver that determines the form's status.
        part: The unbounded part, as named in the error message: "the master", or "block" and its number.
        largest: The limit on the absolute values of columns without bounds, used in the error message.

    Raises:
        UnboundedError: The form is unbounded.
        InfeasibleError: The form has no feasible point.
        SolverError: The form has an optimum, but the solver does not find it.
    """
    form = split.form
    # Without costs, this solve raises an error only if there is no feasible point, in which case the form is not
    # unbounded.
    solve_form(evolve(form, c=np.zeros_like(form.c)), solver)
    # The directions in which one can go arbitrarily far without violating a row or column bound (the recession cone),
    # with entries from -1 to 1. Finite bounds become 0. Missing bounds of rows stay missing, and those of columns
    # become -1 or 1.
    sides = [np.where(np.isfinite(bounds), 0.0, bounds) for bounds in (form.row_lower, form.row_upper)]
    lower = np.where(np.isfinite(form.col_lower), 0.0, -1.0)
    upper = np.where(np.isfinite(form.col_upper), 0.0, 1.0)
    directions = evolve(form, c0=0.0, row_lower=sides[0], row_upper=sides[1], col_lower=lower, col_upper=upper)
    # The form is unbounded if the cost decreases along some direction. A decrease of up to 1e-9 may be due to rounding.
    if solve_form(directions, solver).objective < -1e-9:
        raise UnboundedError(f"the model is unbounded ({part} is, and there are feasible points)")
    raise SolverError(f"{part} has no bound within columns of {largest:g}, although the model has one")


def explain_clash(split: Split) -> str:
    """Explain why the whole form is infeasible, by naming families of rows that cannot be satisfied together."""
    return get("highs").explain(split.form)
