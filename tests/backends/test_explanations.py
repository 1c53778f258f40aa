"""An infeasible model is explained by one cause: families that clash, and rows of theirs that clash already."""

from __future__ import annotations

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

from privopt.backends.diagnose import find_clash
from privopt.dsl import IndexSet, Le, Model

COLUMNS, ROWS = 4, 8
BOUND = 5.0


def is_infeasible(matrix, right_sides, rows):
    """Ask SciPy whether no point within the bounds satisfies these rows."""
    outcome = linprog(np.zeros(COLUMNS), A_ub=matrix[rows], b_ub=right_sides[rows], bounds=(-BOUND, BOUND))
    return outcome.status == 2


@given(st.integers(0, 2**32))
@settings(max_examples=30)
def test_named_rows_clash(seed):
    draw = np.random.default_rng(seed)
    matrix = draw.integers(-3, 4, (ROWS, COLUMNS)).astype(float)
    right_sides = draw.integers(-6, 7, ROWS).astype(float)
    assume(matrix.any(axis=1).all() and is_infeasible(matrix, right_sides, list(range(ROWS))))
    model = Model("random")
    x = model.variable("x", IndexSet("N", COLUMNS), lower=-BOUND, upper=BOUND)
    model.minimize(x[0])
    for row in range(ROWS):
        left_side = sum(float(matrix[row, column]) * x[column] for column in range(COLUMNS))
        model.require(f"row{row}", Le(left_side, float(right_sides[row])))
    clash = find_clash(model.compile())
    families = [int(name.removeprefix("row")) for name in clash.families]
    rows = [int(name.removeprefix("row").partition("[")[0]) for name in clash.rows]
    assert is_infeasible(matrix, right_sides, families)
    assert set(rows) <= set(families)
    assert not rows or is_infeasible(matrix, right_sides, rows)
