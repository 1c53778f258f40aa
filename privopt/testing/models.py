"""Small linear programs, and conditions that an optimum must meet."""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NoReturn

import numpy as np
from attrs import frozen
from hypothesis import strategies as st
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt.dsl.form import StandardForm
from privopt.testing.checks.base import CheckFailedError

SOLVER_TOLERANCE: Final = 1e-6
"""Room for a solver's own tolerances, relative to the models' numbers, which are all small."""


@frozen(eq=False)
class Program:
    """A linear program, feasible and bounded.

    Attributes:
        form: of it.
        blocks: of its columns, which no row joins; none where it is not made of blocks.
    """

    form: StandardForm
    blocks: list[list[int]]


@st.composite
def linear_programs(draw: st.DrawFn, columns: int = 4, rows: int = 4, integers: bool = False) -> Program:
    """Draw small linear programs over bounded boxes, of whole numbers: equations, ranges, free rows, either sense.

    Feasible by construction: the rows' sides are set around a point of the box. With ``integers`` that point is whole,
    and so are some of the columns.
    """
    n, m = draw(st.integers(1, columns)), draw(st.integers(0, rows))
    return Program(_form(draw, np.ones((m, n), dtype=bool), "LGER", integers), [])


@st.composite
def split_programs(draw: st.DrawFn) -> Program:
    """Draw small linear programs in blocks: each row holds one or two columns of no block, and those of one at most."""
    outer, sizes = draw(st.integers(1, 2)), draw(st.lists(st.integers(1, 2), min_size=1, max_size=3))
    starts = np.cumsum([outer, *sizes]).tolist()
    blocks = [list(range(a, b)) for a, b in pairwise(starts)]
    counts = [draw(st.integers(1, 2)) for _ in [*blocks, []]]
    rows = [block for block, count in zip([*blocks, []], counts, strict=True) for _ in range(count)]
    held = np.array([[column < outer or column in block for column in range(starts[-1])] for block in rows])
    return Program(_form(draw, held, "G", integers=False), blocks)


def _form(draw: st.DrawFn, held: NDArray[np.bool_], kinds: str, integers: bool) -> StandardForm:
    """Draw a program whose rows hold these columns, of these kinds: at most, at least, equal, in a range."""
    m, n = held.shape
    whole = st.integers(-4, 4)
    point = np.array(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)), dtype=np.float64)
    A = np.zeros((m, n))
    A[held] = draw(st.lists(whole, min_size=int(held.sum()), max_size=int(held.sum())))
    sides = draw(st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 3)), min_size=m, max_size=m))
    lower, upper = np.full(m, -np.inf), np.full(m, np.inf)
    for row, (kind, slack) in enumerate(sides):
        at = float(A[row] @ point)
        if kind in "LER":
            upper[row] = at if kind == "E" else at + slack
        if kind in "GER":
            lower[row] = at if kind == "E" else at - slack
    whole_columns = draw(st.lists(st.booleans(), min_size=n, max_size=n)) if integers else [False] * n
    return StandardForm(
        c=np.array(draw(st.lists(whole, min_size=n, max_size=n)), dtype=np.float64),
        sense=draw(st.sampled_from(["min", "max"])),
        A=A,
        row_lower=lower,
        row_upper=upper,
        col_lower=np.zeros(n),
        col_upper=point + draw(st.integers(0, 2)),
        integrality=np.array(whole_columns, dtype=np.uint8),
    )


def fail(what: str, program: Program) -> NoReturn:
    """Fail a check: say what is wrong, and on which model."""
    form = program.form
    shown = [f"{form.sense} {form.c.tolist()}"]
    shown += [
        f"{low:g} <= {row} <= {up:g}"
        for row, low, up in zip(form.A.toarray().tolist(), form.row_lower, form.row_upper, strict=True)
    ]
    shown.append(f"columns from {form.col_lower.tolist()} to {form.col_upper.tolist()}")
    if form.is_mip:
        shown.append(f"integer columns {np.flatnonzero(form.integrality).tolist()}")
    if program.blocks:
        shown.append(f"blocks {program.blocks}")
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
