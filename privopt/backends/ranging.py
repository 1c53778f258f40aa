"""Ranging (sensitivity analysis) at a linear program's optimum, computed by HiGHS from the optimal basis."""

from __future__ import annotations

import numpy as np

from privopt.arrays import Floats
from privopt.backends._highs_calls import (
    BEARING,
    check_status,
    highspy_module,
    load_arrays,
    new_solver,
    outcome_of,
    problem_arrays,
    run_solver,
    set_basis,
)
from privopt.dsl.condition import condition
from privopt.dsl.form import StandardForm
from privopt.dsl.outcome import Basis, Outcome, Ranges, Ranging
from privopt.errors import SolverError


def compute_ranging(form: StandardForm, basis: Basis) -> Ranging:
    """Return the ranges within which each cost or row bound can change on its own while the basis remains optimal.

    Args:
        form: The linear program that the basis belongs to.
        basis: The optimal basis.

    Raises:
        SolverError: HiGHS does not reproduce the optimum from the basis, or cannot compute the ranges.
    """
    highspy = highspy_module()
    conditioned = condition(form, BEARING)
    solver = new_solver()
    load_arrays(solver, problem_arrays(conditioned))
    set_basis(solver, basis)
    check_status(solver.setOptionValue("solver", "simplex"), "set solver")
    run_solver(solver)
    status, records = solver.getRanging()
    if outcome_of(solver) is not Outcome.OPTIMAL or status == highspy.HighsStatus.kError or not records.valid:
        raise SolverError("highs gives no ranging of this optimum")
    n = form.shape[1]

    def read_records(record: object, count: int) -> tuple[Floats, Floats]:
        """Return the values in a HiGHS ranging record, and its objective values converted to the form's units."""
        values = np.array(record.value_, dtype=np.float64)[:count]  # type: ignore[attr-defined]
        objectives = np.array(record.objective_, dtype=np.float64)[:count]  # type: ignore[attr-defined]
        return values, objectives / conditioned.cost_scale + form.c0

    costs = [read_records(record, n) for record in (records.col_cost_dn, records.col_cost_up)]
    # "dn" and "up" are the values to which a cost may fall and rise in HiGHS's minimisation. If the form maximises, its
    # costs are negated for HiGHS, which swaps the two.
    (lower, lower_objective), (upper, upper_objective) = costs if conditioned.cost_scale > 0 else costs[::-1]
    sides = [read_records(record, form.shape[0]) for record in (records.row_bound_dn, records.row_bound_up)]
    statuses = np.array([int(s) for s in solver.getBasis().row_status], dtype=np.int64)
    return Ranging(
        costs=Ranges(
            lower=lower / conditioned.cost_scale,
            upper=upper / conditioned.cost_scale,
            lower_objective=lower_objective,
            upper_objective=upper_objective,
        ),
        sides=Ranges(
            lower=sides[0][0] / conditioned.row_scale,
            upper=sides[1][0] / conditioned.row_scale,
            lower_objective=sides[0][1],
            upper_objective=sides[1][1],
        ),
        # 1 means that the row is basic, so neither of its bounds is tight.
        is_tight=statuses != 1,
        is_at_upper=statuses == 2,
    )
