"""The standard form of a compiled model: arrays, with the labels of the formula.

Solvers and their processes get this form. Results are reported back under its names.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
from attrs import field, frozen
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.sets import IndexSet
from privopt.errors import ModelError

__all__ = ["FamilyBlock", "Floats", "StandardForm", "VariableBlock", "round_integer_bounds"]

BOUND_ROUNDING = 1e-9
"""A bound of an integer column this close to an integer, relative to it if above 1, means that integer."""

FamilyKind = Literal["rows", "privacy", "indicator", "piecewise", "block"]


def _float_vector(value: ArrayLike) -> Floats:
    return read_only(np.ascontiguousarray(value, dtype=np.float64))


def _flag_vector(value: ArrayLike) -> NDArray[np.uint8]:
    return read_only(np.ascontiguousarray(value, dtype=np.uint8))


def _csr_matrix(value: ArrayLike | sparse.csr_matrix) -> sparse.csr_matrix:
    """Convert to a read-only CSR matrix without duplicates or stored zeros."""
    matrix = sparse.csr_matrix(value, dtype=np.float64)
    matrix.sum_duplicates()
    if not matrix.data.all():
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


@frozen(eq=False, kw_only=True)
class FamilyBlock:
    """Rows ``start`` to ``stop`` of a form: one symbolic constraint over its index tuples.

    Attributes:
        name: the family's name.
        start, stop: its rows, half open.
        indices: names of its indices, in the order of ``forall``.
        sets: the set that each index runs over.
        positions: for each index, the place (from 0) of each row, shape (stop - start,).
        kind: "rows", "privacy" (z_i <= exp(log_ratio) z_j), "indicator", "piecewise" or "block".
        log_ratio: privacy rows only: eps d of each row, shape (stop - start,), natural logarithms. The matrix
            holds exp of it where a double can; this array holds it always.
        left, right: privacy rows only: the columns of z_i and of z_j, shape (stop - start,).
    """

    name: str
    start: int
    stop: int
    indices: tuple[str, ...] = ()
    sets: tuple[IndexSet, ...] = ()
    positions: tuple[Ints, ...] = ()
    kind: FamilyKind = "rows"
    log_ratio: Floats | None = None
    left: Ints | None = None
    right: Ints | None = None

    def __len__(self) -> int:
        return self.stop - self.start

    def label(self, row: int) -> tuple[Hashable, ...]:
        """Return the labels of a row, which is counted from the start of the family."""
        if not self.indices and len(self) > 1:
            return (row,)
        return tuple(s.labels[int(p[row])] for s, p in zip(self.sets, self.positions, strict=True))

    def row_name(self, row: int) -> str:
        """Return the row's name in the formula's words, such as ``geo-ind[i='a', j='b', k='a']``."""
        label = self.label(row)
        if not label:
            return self.name
        names = self.indices if len(self.indices) == len(label) else ("row",) * len(label)
        return f"{self.name}[{', '.join(f'{n}={x!r}' for n, x in zip(names, label, strict=True))}]"

    def rows(self, labels: Sequence[Hashable]) -> Ints:
        """Return the rows (from the start of the family) with these labels.

        Raises:
            ModelError: No row has them.
        """
        if not self.indices:
            rows = np.array([r for r in range(len(self)) if self.label(r) == tuple(labels)], dtype=np.int64)
        else:
            if len(labels) != len(self.indices):
                raise ModelError(f"family {self.name} has {len(self.indices)} indices, got {len(labels)} labels")
            is_match = np.ones(len(self), dtype=bool)
            for index_set, places, label in zip(self.sets, self.positions, labels, strict=True):
                is_match &= places == index_set.position(label)
            rows = np.flatnonzero(is_match)
        if rows.size == 0:
            raise ModelError(f"family {self.name} has no row {tuple(labels)!r}")
        return rows


@frozen(eq=False, kw_only=True)
class VariableBlock:
    """Columns ``start`` to ``stop`` of a form: one variable over the product of its sets, row-major."""

    name: str
    start: int
    sets: tuple[IndexSet, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the sets; () for a scalar."""
        return tuple(len(s) for s in self.sets)

    @property
    def stop(self) -> int:
        """One past the last column."""
        return self.start + int(np.prod(self.shape, dtype=np.int64))

    def flat(self, labels: Sequence[Hashable]) -> int:
        """Return the offset inside the block of the column with these labels."""
        if len(labels) != len(self.sets):
            raise ModelError(f"variable {self.name} has {len(self.sets)} indices, got {len(labels)} labels")
        offset = 0
        for index_set, label in zip(self.sets, labels, strict=True):
            offset = offset * len(index_set) + index_set.position(label)
        return offset

    def column_name(self, offset: int) -> str:
        """Return the column's name in the formula's words, such as ``z['a', 'b']``."""
        if not self.sets:
            return self.name
        places = np.unravel_index(offset, self.shape)
        return f"{self.name}[{', '.join(repr(s.labels[int(p)]) for s, p in zip(self.sets, places, strict=True))}]"


@frozen(eq=False, kw_only=True)
class StandardForm:
    """Optimise ``c x + c0`` subject to ``row_lower <= A x <= row_upper``, ``col_lower <= x <= col_upper``.

    Arrays only, read-only, and picklable: this is what crosses to a solver or another process.

    Attributes:
        c: objective, shape (n,), as the user wrote it (not negated if it is maximised).
        c0: constant of the objective.
        sense: "min" or "max".
        A: scipy CSR matrix, shape (m, n). Privacy rows are ``z_i - exp(L) z_j <= 0``, with L cut at
            ``LARGEST_LOG`` so that the matrix is finite (a smaller factor is stricter).
        row_lower, row_upper: shape (m,), with infinities.
        col_lower, col_upper: shape (n,), with infinities.
        integrality: shape (n,), uint8: 1 if the column takes integers only.
        families: what the rows are, in order.
        variables: what the columns are, in order.
    """

    c: Floats = field(converter=_float_vector)
    c0: float = 0.0
    sense: Literal["min", "max"] = "min"
    A: sparse.csr_matrix = field(converter=_csr_matrix)
    row_lower: Floats = field(converter=_float_vector)
    row_upper: Floats = field(converter=_float_vector)
    col_lower: Floats = field(converter=_float_vector)
    col_upper: Floats = field(converter=_float_vector)
    integrality: NDArray[np.uint8] = field(converter=_flag_vector)
    families: tuple[FamilyBlock, ...] = ()
    variables: tuple[VariableBlock, ...] = ()

    def __attrs_post_init__(self) -> None:
        m, n = self.A.shape
        sizes = {"c": n, "col_lower": n, "col_upper": n, "integrality": n, "row_lower": m, "row_upper": m}
        for name, size in sizes.items():
            shape = getattr(self, name).shape
            if shape != (size,):
                raise ModelError(f"{name} must have shape ({size},) for a matrix of shape {(m, n)}, got {shape}")
        for name in ("c", "col_lower", "col_upper", "row_lower", "row_upper"):
            if np.isnan(getattr(self, name)).any():
                raise ModelError(f"{name} holds a NaN at place {np.flatnonzero(np.isnan(getattr(self, name)))[0]}")
        self._check_infinite_sides()
        if not np.isfinite(self.A.data).all():
            entry = int(np.flatnonzero(~np.isfinite(self.A.data))[0])
            row = int(np.searchsorted(self.A.indptr, entry, side="right")) - 1
            raise ModelError(
                f"{self.row_name(row)}: the coefficient of "
                f"{self.column_name(int(self.A.indices[entry]))} must be finite, got {self.A.data[entry]}"
            )
        if not np.isfinite(self.c).all():
            column = int(np.flatnonzero(~np.isfinite(self.c))[0])
            raise ModelError(
                f"objective: the coefficient of {self.column_name(column)} must be finite, got {self.c[column]}"
            )

    def _check_infinite_sides(self) -> None:
        """Refuse a lower bound or side of +inf, and an upper one of -inf: nothing satisfies them."""
        for kind, side in (("row", "lower"), ("row", "upper"), ("col", "lower"), ("col", "upper")):
            name_of = self.row_name if kind == "row" else self.column_name
            values = getattr(self, f"{kind}_{side}")
            is_impossible = np.isposinf(values) if side == "lower" else np.isneginf(values)
            if is_impossible.any():
                number = int(np.flatnonzero(is_impossible)[0])
                no_bound = "-inf" if side == "lower" else "inf"
                raise ModelError(
                    f"{name_of(number)}: the {side} {'side' if kind == 'row' else 'bound'} is {values[number]}, which "
                    f"no number satisfies; write {no_bound} or None for no bound"
                )

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return int(self.A.shape[0]), int(self.A.shape[1])

    @property
    def is_mip(self) -> bool:
        """Whether any column is integer."""
        return bool(self.integrality.any())

    def family(self, name: str) -> FamilyBlock:
        """Return the family of this name, or raise a ``ModelError`` that lists the names."""
        for block in self.families:
            if block.name == name:
                return block
        names = ", ".join(b.name for b in self.families) or "none"
        raise ModelError(f"no family is called {name!r}; there are {names}")

    def variable(self, name: str) -> VariableBlock:
        """Return the variable of this name, or raise a ``ModelError`` that lists the names."""
        for block in self.variables:
            if block.name == name:
                return block
        names = ", ".join(b.name for b in self.variables) or "none"
        raise ModelError(f"no variable is called {name!r}; there are {names}")

    def row_name(self, row: int) -> str:
        """Return the row's name in the formula's words, or its number if no family covers it."""
        for block in self.families:
            if block.start <= row < block.stop:
                return block.row_name(row - block.start)
        return f"row {row}"

    def column_name(self, column: int) -> str:
        """Return the column's name in the formula's words, or its number if no variable covers it."""
        for block in self.variables:
            if block.start <= column < block.stop:
                return block.column_name(column - block.start)
        return f"column {column}"


def round_integer_bounds(lower: Floats, upper: Floats, is_integer: NDArray[Any]) -> tuple[Floats, Floats]:
    """Round the bounds of integer columns inwards, to the first and the last integer between them.

    Solvers take fractional bounds of integer columns and answer wrongly: HiGHS calls models with them infeasible.

    Args:
        lower, upper: Bounds of the columns, shape (n,).
        is_integer: Nonzero where a column takes integers only, shape (n,).

    Returns:
        The bounds; where no integer lies between them, the lower one is above the upper one.
    """
    is_integer_column = np.asarray(is_integer) != 0
    if not is_integer_column.any():
        return lower, upper
    # 0.1 * 30 = 3.0000000000000004 is meant to be 3
    with np.errstate(invalid="ignore"):
        min_integers = np.ceil(lower - np.clip(BOUND_ROUNDING * np.abs(lower), BOUND_ROUNDING, 1e-6))
        max_integers = np.floor(upper + np.clip(BOUND_ROUNDING * np.abs(upper), BOUND_ROUNDING, 1e-6))
    min_integers, max_integers = (
        np.where(np.isfinite(lower), min_integers, lower),
        np.where(np.isfinite(upper), max_integers, upper),
    )
    min_integers, max_integers = min_integers + 0.0, max_integers + 0.0  # no negative zeros
    return np.where(is_integer_column, min_integers, lower), np.where(is_integer_column, max_integers, upper)
