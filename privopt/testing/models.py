"""Small linear programs, and conditions that an optimum must meet."""

from __future__ import annotations

from typing import Final, NoReturn

import numpy as np
from hypothesis import strategies as st

from privopt.arrays import Floats
from privopt.dsl.form import StandardForm
from privopt.testing.checks.base import CheckFailedError

SOLVER_TOLERANCE: Final = 1e-6
"""Room for a solver's own tolerances, relative to the models' numbers, which are all small."""


@st.composite
def linear_programs(draw: st.DrawFn, columns: int = 4, rows: int = 4, integers: bool = False) -> StandardForm:
    """Draw small linear programs over bounded boxes, of whole numbers: equations, ranges, free rows, either sense.

    Feasible by construction: the rows' sides are set around a point of the box. With ``integers`` that point is whole,
    and so are some of the columns.
    """
    n, m = draw(st.integers(1, columns)), draw(st.integers(0, rows))
    whole = st.integers(-4, 4)
    point = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=np.float64)
    A = np.array(draw(st.lists(whole, min_size=n * m, max_size=n * m)), dtype=np.float64).reshape(m, n)
    sides = draw(st.lists(st.tuples(st.sampled_from("LGER"), st.integers(0, 3)), min_size=m, max_size=m))
    lower, upper = np.full(m, -np.inf), np.full(m, np.inf)
    for row, (kind, slack) in enumerate(sides):
        at = float(A[row] @ point)
        if kind in "LER":
            upper[row] = at if kind == "E" else at + slack
        if kind in "GER":
            lower[row] = at if kind == "E" else at - slack
    kinds = draw(st.lists(st.booleans(), min_size=n, max_size=n)) if integers else [False] * n
    return StandardForm(
        c=np.array(draw(st.lists(whole, min_size=n, max_size=n)), dtype=np.float64),
        sense=draw(st.sampled_from(["min", "max"])),
        A=A,
        row_lower=lower,
        row_upper=upper,
        col_lower=np.zeros(n),
        col_upper=point + draw(st.integers(0, 2)),
        integrality=np.array(kinds, dtype=np.uint8),
    )


@st.composite
def split_programs(draw: st.DrawFn) -> tuple[StandardForm, list[list[int]]]:
    """Return a small linear program, feasible and bounded, and blocks of its columns that no row joins.

    One or two columns are in no block; each row holds those and the columns of one block at most.
    """
    outer, sizes = draw(st.integers(1, 2)), draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    starts = np.cumsum([outer, *sizes])
    blocks = [list(range(a, b)) for a, b in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True)]
    n = int(starts[-1])
    point = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=np.float64)
    rows, lower = [], []
    for block in [*blocks, []]:
        for _ in range(draw(st.integers(1, 2))):
            row = np.zeros(n)
            for column in [*range(outer), *block]:
                row[column] = draw(st.integers(-3, 3))
            rows.append(row)
            lower.append(float(row @ point) - draw(st.integers(0, 2)))
    form = StandardForm(
        c=np.array(draw(st.lists(st.integers(-4, 4), min_size=n, max_size=n)), dtype=np.float64),
        sense=draw(st.sampled_from(["min", "max"])),
        A=np.array(rows),
        row_lower=np.array(lower),
        row_upper=np.full(len(rows), np.inf),
        col_lower=np.zeros(n),
        col_upper=point + 2.0,
        integrality=np.zeros(n, dtype=np.uint8),
    )
    return form, blocks


def fail(what: str, form: StandardForm) -> NoReturn:
    """Fail a check: say what is wrong, and on which model."""
    shown = [f"{form.sense} {form.c.tolist()}"]
    shown += [
        f"{low:g} <= {row} <= {up:g}"
        for row, low, up in zip(form.A.toarray().tolist(), form.row_lower, form.row_upper, strict=True)
    ]
    shown.append(f"columns from {form.col_lower.tolist()} to {form.col_upper.tolist()}")
    if form.is_mip:
        shown.append(f"integer columns {np.flatnonzero(form.integrality).tolist()}")
    raise CheckFailedError(f"{what}\nsmallest model found:\n" + "\n".join(shown), None)


def kkt_faults(form: StandardForm, vector: Floats, duals: Floats | None, reduced: Floats | None) -> list[str]:
    """List conditions of Karush, Kuhn and Tucker that a vector and its multipliers miss, in words.

    Multipliers are the change of the objective for a unit of a row's side. For a minimum they are at least 0 if the row
    is at its lower side, at most 0 at its upper one, 0 between. Reduced costs likewise for bounds of columns.
    """
    faults = []
    activity = np.asarray(form.A @ vector)
    weight = float(np.abs(form.A.toarray()).sum(axis=1).max(initial=0.0))
    room = SOLVER_TOLERANCE * (1.0 + float(np.abs(vector).max(initial=0.0)) * (1.0 + weight))
    for what, values, low, high in (
        ("row", activity, form.row_lower, form.row_upper),
        ("column", vector, form.col_lower, form.col_upper),
    ):
        for n, (value, a, b) in enumerate(zip(values.tolist(), low.tolist(), high.tolist(), strict=True)):
            if not a - room <= value <= b + room:
                faults.append(f"{what} {n} is {value:.9g}, outside [{a:g}, {b:g}]")
    sign = 1.0 if form.sense == "min" else -1.0
    if duals is None or form.is_mip:
        return faults
    left = form.c - np.asarray(form.A.T @ duals)
    if reduced is not None and np.abs(left - reduced).max(initial=0.0) > room:
        n = int(np.argmax(np.abs(left - reduced)))
        faults.append(f"reduced cost of column {n} is {reduced[n]:.9g}; c - A'y gives {left[n]:.9g}")
    for what, values, low, high, price in (
        ("row", activity, form.row_lower, form.row_upper, sign * duals),
        ("column", vector, form.col_lower, form.col_upper, sign * left),
    ):
        for n, y in enumerate(price.tolist()):
            if y > room and values[n] > low[n] + room:
                faults.append(f"{what} {n} has the price {sign * y:.6g}, but is not at its lower side")
            if y < -room and values[n] < high[n] - room:
                faults.append(f"{what} {n} has the price {sign * y:.6g}, but is not at its upper side")
    return faults
