"""The standard form of a compiled model, which consists of arrays and of the names and labels from its formulas.

Solvers receive this form, even if they run in other processes. Results are reported using the names in the form.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Literal

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from privopt.arrays import Floats, Ints, read_only, sum_products
from privopt.dsl.sets import IndexSet
from privopt.errors import ModelError

__all__ = ["FamilyBlock", "Floats", "StandardForm", "VariableBlock", "round_integer_bounds"]

BOUND_ROUNDING = 1e-9
"""The maximum distance from an integer at which the bound of an integer column is rounded to that integer.

For bounds above 1, the distance is relative to the bound, but at most 1e-6."""

SEMICONTINUOUS = 2
"""The code for semicontinuous columns in ``StandardForm.integrality``."""

FamilyKind = Literal["rows", "privacy", "indicator", "piecewise", "block"]


def _float_vector(value: ArrayLike) -> Floats:
    """Convert a value to a read-only vector of doubles."""
    return read_only(np.ascontiguousarray(value, dtype=np.float64))


def _flag_vector(value: ArrayLike) -> NDArray[np.uint8]:
    """Convert a value to a read-only vector of bytes."""
    return read_only(np.ascontiguousarray(value, dtype=np.uint8))


def _csr_matrix(value: ArrayLike | sparse.csr_matrix) -> sparse.csr_matrix:
    """Convert a value to a read-only CSR matrix without duplicate entries or stored zeros."""
    matrix = sparse.csr_matrix(value, dtype=np.float64)
    matrix.sum_duplicates()
    if not matrix.data.all():
        # Zeros are eliminated in place, and the arrays may belong to the caller.
        matrix = matrix.copy()
        matrix.eliminate_zeros()
    # A form is immutable, because its arrays are shared and never copied.
    for part in (matrix.data, matrix.indices, matrix.indptr):
        part.flags.writeable = False
    return matrix


def _optional_matrix(value: ArrayLike | sparse.csr_matrix | None) -> sparse.csr_matrix | None:
    """Convert a value to a read-only CSR matrix, or to None if it is None or has no nonzero entries."""
    matrix = None if value is None else _csr_matrix(value)
    return matrix if matrix is not None and matrix.nnz else None


@frozen(eq=False, kw_only=True)
class FamilyBlock:
    """Rows ``start`` to ``stop - 1`` of a form, which belong to one constraint family.

    There is one row for each tuple of index values.

    Attributes:
        name: The family's name.
        start: The index of the family's first row.
        stop: The index of the row after the family's last row.
        indices: The names of the indices, in the order of ``forall``.
        sets: The sets that the indices run over.
        positions: For each index, the positions (from 0) of its values in its set, one for each row. Each array has
            shape (stop - start,).
        kind: The kind of row: "rows", "privacy" (z_i <= exp(log_ratio) z_j), "indicator", "piecewise" or "block".
        log_ratio: (stop - start,) For privacy rows, the exponent of each row, such as eps d. These are the original
            exponents. In the matrix, exponentials are computed from exponents that are capped.
        left, right: (stop - start,) For privacy rows, the column indices of z_i and z_j.
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
        """Return the labels of a row, one per index. ``row`` is counted from the start of the family."""
        # The rows of a block that was given as arrays, not as a formula, have no indices, so they are labelled by
        # position.
        if not self.indices and len(self) > 1:
            return (row,)
        return tuple(s.labels[int(p[row])] for s, p in zip(self.sets, self.positions, strict=True))

    def row_name(self, row: int) -> str:
        """Return the name of a row, such as ``geo-ind[i='a', j='b', k='a']``."""
        label = self.label(row)
        if not label:
            return self.name
        names = self.indices if len(self.indices) == len(label) else ("row",) * len(label)
        return f"{self.name}[{', '.join(f'{n}={x!r}' for n, x in zip(names, label, strict=True))}]"

    def keep_rows(self, remaining_rows: Ints) -> FamilyBlock:
        """Return a copy of this block for a form from which some rows have been deleted.

        Args:
            remaining_rows: The indices of all rows that remain in the form, including those of other blocks, in
                ascending order.
        """
        start, stop = np.searchsorted(remaining_rows, [self.start, self.stop]).tolist()
        block_rows = remaining_rows[start:stop] - self.start
        return evolve(
            self,
            start=start,
            stop=stop,
            positions=tuple(places[block_rows] for places in self.positions),
            log_ratio=None if self.log_ratio is None else self.log_ratio[block_rows],
            left=None if self.left is None else self.left[block_rows],
            right=None if self.right is None else self.right[block_rows],
        )

    def keep_columns(self, remaining_columns: Ints) -> FamilyBlock:
        """Return a copy of this block for a form from which some columns have been deleted.

        Args:
            remaining_columns: The indices of the columns that remain in the form, in ascending order.

        Raises:
            ModelError: A privacy row in this block refers to a deleted column.
        """
        if self.left is None or self.right is None:
            return self
        if not (np.isin(self.left, remaining_columns).all() and np.isin(self.right, remaining_columns).all()):
            raise ModelError(f"privacy rows of {self.name} compare a column that is deleted: delete these rows first")
        return evolve(
            self,
            left=np.searchsorted(remaining_columns, self.left),
            right=np.searchsorted(remaining_columns, self.right),
        )

    def rows(self, labels: Sequence[Hashable]) -> Ints:
        """Return the indices of the rows with the given labels, counted from the start of the family.

        Args:
            labels: The labels, one per index.

        Raises:
            ModelError: No row has these labels, or the number of labels is wrong.
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
    """Columns ``start`` to ``stop - 1`` of a form, which belong to one variable.

    There is one column for each tuple of labels from the variable's sets, in row-major order.

    Attributes:
        name: The variable's name.
        start: The index of its first column.
        sets: The sets that the indices run over. Empty for a scalar.
    """

    name: str
    start: int
    sets: tuple[IndexSet, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the sets, or () for a scalar."""
        return tuple(len(s) for s in self.sets)

    @property
    def stop(self) -> int:
        """The index of the column after the last one."""
        return self.start + int(np.prod(self.shape, dtype=np.int64))

    def flat(self, labels: Sequence[Hashable]) -> int:
        """Return the position of the column with the given labels, counted from the start of the block.

        Args:
            labels: The labels, one per set.

        Raises:
            ModelError: There is no such column.
        """
        if len(labels) != len(self.sets):
            raise ModelError(f"variable {self.name} has {len(self.sets)} indices, got {len(labels)} labels")
        offset = 0
        for index_set, label in zip(self.sets, labels, strict=True):
            # The order is row-major, as in Variable.columns.
            offset = offset * len(index_set) + index_set.position(label)
        return offset

    def column_name(self, offset: int) -> str:
        """Return a column's name, such as ``z['a', 'b']``. ``offset`` is counted from the start of the block."""
        if not self.sets:
            return self.name
        places = np.unravel_index(offset, self.shape)
        return f"{self.name}[{', '.join(repr(s.labels[int(p)]) for s, p in zip(self.sets, places, strict=True))}]"


@frozen(eq=False, kw_only=True)
class StandardForm:
    """An optimisation problem with a linear or quadratic objective, represented by arrays.

    The objective is ``c x + c0 + x' Q x / 2``, and the constraints are ``row_lower <= A x <= row_upper`` and
    ``col_lower <= x <= col_upper``.

    All arrays are read-only. Forms can be pickled, so that they can be sent to a solver in another process.

    Attributes:
        c: (n,) The coefficients of the objective. They are not negated for a maximisation.
        c0: The constant of the objective.
        sense: Whether the objective is minimised ("min") or maximised ("max").
        A: The rows as a CSR matrix of shape (m, n). Privacy rows are ``z_i - exp(L) z_j <= 0``. L is capped at
            ``MAX_LOG_RATIO`` to keep the matrix finite, which makes rows stricter, never looser.
        row_lower, row_upper: (m,) The bounds of the rows. They are infinite where a row is unbounded on that side.
        col_lower, col_upper: (n,) The bounds of the columns. They are infinite where there is no bound.
        integrality: (n,) The kind of each column, as uint8: 1 for columns that take only integer values, 2 for
            semicontinuous columns (0 or within their bounds), and 0 for all others.
        families: The row families, in the order of their rows.
        variables: The variables, in the order of their columns.
        Q: (n, n) The symmetric CSR matrix of the objective's quadratic part, or None for a linear objective.
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
    Q: sparse.csr_matrix | None = field(default=None, converter=_optional_matrix)

    def __attrs_post_init__(self) -> None:
        """Check the shapes and values of the arrays.

        Raises:
            ModelError: A shape or a value is invalid. The message names the array, the row or the column.
        """
        m, n = self.A.shape
        # c, the column bounds and integrality have one entry per column, and the row bounds have one per row.
        sizes = {"c": n, "col_lower": n, "col_upper": n, "integrality": n, "row_lower": m, "row_upper": m}
        for name, size in sizes.items():
            shape = getattr(self, name).shape
            if shape != (size,):
                raise ModelError(f"{name} must have shape ({size},) for a matrix of shape {(m, n)}, got {shape}")
        for name in ("c", "col_lower", "col_upper", "row_lower", "row_upper"):
            if np.isnan(getattr(self, name)).any():
                raise ModelError(f"{name} holds a NaN at place {np.flatnonzero(np.isnan(getattr(self, name)))[0]}")
        if self.Q is not None and self.Q.shape != (n, n):
            raise ModelError(f"Q must have shape {(n, n)} for a matrix of shape {(m, n)}, got {self.Q.shape}")
        self._check_infinite_sides()
        self._check_semicontinuous()
        if not np.isfinite(self.A.data).all():
            entry = int(np.flatnonzero(~np.isfinite(self.A.data))[0])
            # The entries of row r begin at indptr[r], so an entry's row is the one before the first row that begins
            # after it.
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
        if not np.isfinite(self.c0):
            raise ModelError(f"objective: the constant c0 must be finite, got {self.c0}")
        if self.Q is not None and not np.isfinite(self.Q.data).all():
            entry = int(np.flatnonzero(~np.isfinite(self.Q.data))[0])
            row = int(np.searchsorted(self.Q.indptr, entry, side="right")) - 1
            left, right = self.column_name(row), self.column_name(int(self.Q.indices[entry]))
            raise ModelError(f"objective: Q at {left} and {right} must be finite, got {self.Q.data[entry]}")

    def _check_infinite_sides(self) -> None:
        """Raise a ModelError if any lower bound of a row or column is +inf, or any upper bound is -inf."""
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

    def _check_semicontinuous(self) -> None:
        """Raise a ModelError for a semicontinuous column whose bounds are negative or infinite."""
        columns = self.semicontinuous_columns
        is_wrong = (self.col_lower[columns] < 0) | ~np.isfinite(self.col_upper[columns])
        if is_wrong.any():
            column = int(columns[is_wrong][0])
            raise ModelError(
                f"{self.column_name(column)}: bounds of a semicontinuous column must be finite and at least 0, got "
                f"{self.col_lower[column]} and {self.col_upper[column]}"
            )

    def objective_at(self, point: Floats) -> float:
        """Return the objective value at a point, given as an array of shape (n,)."""
        value = sum_products(self.c, point) + self.c0
        return value if self.Q is None else value + 0.5 * sum_products(point, self.Q @ point)

    def linearised_at(self, point: Floats) -> StandardForm:
        """Return a copy of this form in which the objective is replaced by its tangent at a point.

        The tangent is linear, and lies below a convex objective or above a concave one. A lower bound on the minimum of
        the returned form, or an upper bound on its maximum, is therefore valid for this form too. A form with a linear
        objective is returned unchanged.

        Args:
            point: (n,) The point at which the tangent touches the objective.
        """
        if self.Q is None:
            return self
        gradient = self.c + self.Q @ point
        return evolve(self, c=gradient, c0=self.objective_at(point) - sum_products(gradient, point), Q=None)

    def check_linear(self, subject: str) -> None:
        """Check that the objective is linear.

        Args:
            subject: The operation that requires a linear objective, used in the error message.

        Raises:
            ModelError: The objective is quadratic.
        """
        if self.Q is not None:
            raise ModelError(f"{subject} takes no quadratic objective")

    @property
    def semicontinuous_columns(self) -> Ints:
        """The indices of the semicontinuous columns."""
        return np.flatnonzero(self.integrality == SEMICONTINUOUS)

    @property
    def shape(self) -> tuple[int, int]:
        """The numbers of rows and columns."""
        return int(self.A.shape[0]), int(self.A.shape[1])

    @property
    def is_mip(self) -> bool:
        """Whether any column is integer or semicontinuous."""
        return bool(self.integrality.any())

    def family(self, name: str) -> FamilyBlock:
        """Return the family with the given name.

        Raises:
            ModelError: There is no such family. The message lists the names of all families.
        """
        for block in self.families:
            if block.name == name:
                return block
        names = ", ".join(b.name for b in self.families) or "none"
        raise ModelError(f"no family is called {name!r}; there are {names}")

    def variable(self, name: str) -> VariableBlock:
        """Return the variable with the given name.

        Raises:
            ModelError: There is no such variable. The message lists the names of all variables.
        """
        for block in self.variables:
            if block.name == name:
                return block
        names = ", ".join(b.name for b in self.variables) or "none"
        raise ModelError(f"no variable is called {name!r}; there are {names}")

    def row_name(self, row: int) -> str:
        """Return the name of a row, or "row" followed by its index if it belongs to no family."""
        for block in self.families:
            if block.start <= row < block.stop:
                return block.row_name(row - block.start)
        return f"row {row}"

    def column_name(self, column: int) -> str:
        """Return the name of a column, or "column" followed by its index if it belongs to no variable."""
        for block in self.variables:
            if block.start <= column < block.stop:
                return block.column_name(column - block.start)
        return f"column {column}"


def has_crossed_bounds(form: StandardForm) -> bool:
    """Return whether any row or column has a lower bound above its upper bound, in which case no point is feasible."""
    return bool((form.row_lower > form.row_upper).any() or (form.col_lower > form.col_upper).any())


def round_integer_bounds(lower: Floats, upper: Floats, is_integer: NDArray[Any]) -> tuple[Floats, Floats]:
    """Round the bounds of integer columns inwards to integers.

    Solvers accept fractional bounds on integer columns, but can then return wrong answers. HiGHS, for example, has
    reported feasible models with such bounds as infeasible.

    Args:
        lower, upper: (n,) The column bounds.
        is_integer: An array of shape (n,) with 1 for columns that take only integer values, and other numbers for other
            columns.

    Returns:
        The rounded lower and upper bounds. If no integer lies between a column's bounds, its rounded lower bound is
        above the upper one.
    """
    is_integer_column = np.asarray(is_integer) == 1
    if not is_integer_column.any():
        return lower, upper
    # Bounds may contain rounding errors. For example, 0.1 * 30 = 3.0000000000000004 is meant to be 3.
    with np.errstate(invalid="ignore"):
        # The tolerance is at most 1e-6, because for a bound of 1e9, a relative tolerance of 1e-9 would be a whole
        # integer.
        min_integers = np.ceil(lower - np.clip(BOUND_ROUNDING * np.abs(lower), BOUND_ROUNDING, 1e-6))
        max_integers = np.floor(upper + np.clip(BOUND_ROUNDING * np.abs(upper), BOUND_ROUNDING, 1e-6))
    min_integers, max_integers = (
        np.where(np.isfinite(lower), min_integers, lower),
        np.where(np.isfinite(upper), max_integers, upper),
    )
    min_integers, max_integers = min_integers + 0.0, max_integers + 0.0  # no negative zeros
    return np.where(is_integer_column, min_integers, lower), np.where(is_integer_column, max_integers, upper)
