"""Rows whose coefficients differ from those in their formula: privacy rows, and big-M rows for implications."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from attrs import evolve, frozen
from scipy import sparse

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.duality import MAX_LOG_RATIO
from privopt.dsl.form import FamilyBlock
from privopt.dsl.linear import Coefficients, Places, Term, split_exponential
from privopt.dsl.lowering import Block, Family, Implication, negate_term, variable_block
from privopt.dsl.term_entries import term_columns, terms_matrix
from privopt.errors import ModelError


@frozen(eq=False)
class Rows:
    """The rows of one family, before the rows of all families are stacked.

    Attributes:
        matrix: (rows, n) A CSR matrix over all columns of the model.
        lower, upper: (rows,) The lower and upper bounds of the rows, infinite where a row is unbounded on that side.
        block: The name and labels of the rows. Its ``start`` and ``stop`` are counted from this family's first row.
    """

    matrix: Any
    lower: Floats
    upper: Floats
    block: FamilyBlock


def switch_location(family: Family | Block) -> str:
    """Return the prefix for error messages about the binary variable of an implication."""
    return f"family {family.name}, binary"


def build_privacy_rows(
    family: Family,
    pair: tuple[Term, Term],
    places: Places,
    size: int,
    n: int,
    col_lower: Floats,
    block: FamilyBlock,
    coefficients: Coefficients,
) -> Rows | None:
    """Return a family's rows as privacy rows ``z_i <= exp(L) z_j``, or None if they do not have this form.

    The exponents L are stored separately. The rows do not qualify if a factor has the wrong sign or ``z_j`` can be
    negative.

    Args:
        family: The family, which provides the rows' operator, name and ``privacy`` flag.
        pair: The family's two terms: one in ``z_i``, and one in ``z_j``.
        places: For each index, an array of shape (size,) with the position of its value in each row.
        size: The number of rows.
        n: The number of columns in the model.
        col_lower: (n,) The lower bounds of the columns.
        block: The name and labels of the rows.
        coefficients: The cache of compiled coefficients. Missing ones are added.

    Raises:
        ModelError: The family is declared ``privacy=True`` but does not consist of privacy rows, or an exponent is NaN.
    """
    where = f"family {family.name}"
    # A row >= 0 is converted to a row <= 0, so that only one direction needs to be handled.
    pair = pair if family.operator == "<=" else (negate_term(pair[0]), negate_term(pair[1]))
    factors, logs, columns = [], [], []
    for term in pair:
        factor, log = split_exponential(term.coefficient)
        factors.append(coefficients.get(factor, where)(places, size))
        logs.append(coefficients.get(log, where)(places, size))
        columns.append(term_columns(term, places, size, where))
    # The terms may be written in either order. The left one has a positive factor.
    left_number, right_number = (0, 1) if size and factors[0][0] > 0 else (1, 0)
    # Privacy rows may be tightened by a smaller factor, which is stricter only where z_j is not negative.
    has_privacy_shape = bool(
        (factors[left_number] > 0).all()
        and (factors[right_number] < 0).all()
        and (col_lower[columns[right_number]] >= 0).all()
    )
    if not has_privacy_shape:
        if family.privacy:
            raise ModelError(
                f"{where}: privacy rows must be z_i <= exp(...) z_j with positive factors and z_j >= 0, got other rows"
            )
        return None
    # The row f_i e^(l_i) z_i + f_j e^(l_j) z_j <= 0, with f_j < 0, means z_i <= e^ratio z_j. The ratio is computed in
    # logarithms, because e^ratio may overflow a double.
    ratio = (logs[right_number] + np.log(-factors[right_number])) - (logs[left_number] + np.log(factors[left_number]))
    if np.isnan(ratio).any():
        raise ModelError(f"{block.row_name(int(np.flatnonzero(np.isnan(ratio))[0]))}: exponent is NaN")
    # An infinite exponent is capped at the largest double, which makes the row finite and slightly stricter.
    ratio = np.minimum(ratio, np.finfo(float).max)
    return _ratio_rows(columns[left_number], columns[right_number], ratio, n, evolve(block, kind="privacy"))


def _ratio_rows(left_columns: Ints, right_columns: Ints, ratio: Floats, n: int, block: FamilyBlock) -> Rows:
    """Return privacy rows ``x[left] - exp(ratio) x[right] <= 0`` for pairs of columns.

    Args:
        left_columns, right_columns: (rows,) The two columns of each row.
        ratio: (rows,) The exponent of each row's factor. It is capped at ``MAX_LOG_RATIO`` in the matrix, but not in
            the block.
        n: The number of columns in the model.
        block: The name and labels of the rows.
    """
    size = len(ratio)
    indices = np.stack([left_columns, right_columns], axis=1).ravel()
    # Every row has two entries, stored in row order, so that the CSR arrays need no sorting.
    data = np.stack([np.ones(size), -np.exp(np.minimum(ratio, MAX_LOG_RATIO))], axis=1)
    data[(left_columns == right_columns) & (ratio >= 0)] = 0.0  # z <= exp(L) z always holds
    data = data.ravel()
    matrix = sparse.csr_matrix((data, indices, np.arange(0, 2 * size + 1, 2)), shape=(size, n))
    block = evolve(block, log_ratio=read_only(ratio), left=read_only(left_columns), right=read_only(right_columns))
    return Rows(matrix, np.full(size, -np.inf), np.zeros(size), block)


def activity_bounds(matrix: sparse.csr_matrix, col_lower: Floats, col_upper: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and largest value of each row of ``matrix @ x`` over all x within the column bounds.

    The column bounds have shape (n,) and are infinite where a column has no bound. Both results have shape (rows,).
    """
    positive, negative_part = matrix.maximum(0), matrix.minimum(0)
    positive.eliminate_zeros()
    negative_part.eliminate_zeros()

    def product(part: sparse.csr_matrix, vector: Floats) -> Floats:
        """Return ``part @ vector`` as an array of shape (rows,).

        Only stored entries are used, because 0 * inf would give NaN.
        """
        weighted = part.copy()
        weighted.data = weighted.data * vector[weighted.indices]
        return np.asarray(weighted.sum(axis=1)).ravel()

    # A term with a positive coefficient is smallest at its column's lower bound, one with a negative coefficient at the
    # upper bound.
    min_activity = product(positive, col_lower) + product(negative_part, col_upper)
    max_activity = product(positive, col_upper) + product(negative_part, col_lower)
    return min_activity, max_activity


def build_indicator_rows(
    family: Family,
    rows: Rows,
    places: Places,
    n: int,
    col_lower: Floats,
    col_upper: Floats,
    coefficients: Coefficients,
) -> Rows:
    """Convert rows to big-M rows, which enforce the original rows only if a binary switch is on.

    M is the largest amount by which a row can be violated within the column bounds while the switch is off. It is
    computed separately for each row, because a smaller M gives a tighter relaxation.

    Args:
        family: The family. Its ``switch`` contains the terms of the binary ``h`` or its complement ``1 - h``.
        rows: The rows without the switch.
        places: For each index, an array of shape (size,) with the position of its value in each row.
        n: The number of columns in the model.
        col_lower, col_upper: (n,) The column bounds.
        coefficients: The cache of compiled coefficients. Missing ones are added.

    Raises:
        ModelError: The switch is not a binary or its complement, or a missing bound leaves a row without a finite M.
    """
    size = len(rows.lower)
    switch, offset = terms_matrix(family.switch, places, size, n, switch_location(family), coefficients)
    column, sign = _switch_columns(switch, offset, family, col_lower, col_upper)
    # The value of h at which the switch is off: 0 for the switch h, 1 for the switch 1 - h.
    off_value = np.where(sign > 0, 0.0, 1.0)
    # With the switch off, the extreme values of the other terms limit how far the row can be from its bound.
    switch_coefficients = np.asarray(rows.matrix[np.arange(size), column]).ravel()
    other_terms = (
        rows.matrix - sparse.csr_matrix((switch_coefficients, (np.arange(size), column)), shape=(size, n))
    ).tocsr()
    min_activity, max_activity = activity_bounds(other_terms, col_lower, col_upper)
    parts = []
    # A row with two sides (an equation) gives one big-M row for each side.
    for is_lower, row_bounds, activity in ((True, rows.lower, min_activity), (False, rows.upper, max_activity)):
        if not np.isfinite(row_bounds).any():
            continue
        shortfall = (
            row_bounds - (activity + switch_coefficients * off_value)
            if is_lower
            else (activity + switch_coefficients * off_value) - row_bounds
        )
        if not np.isfinite(shortfall).all():
            _refuse_without_big_m(
                family,
                rows,
                other_terms,
                is_lower,
                int(np.flatnonzero(~np.isfinite(shortfall))[0]),
                col_lower,
                col_upper,
            )
        big_m = np.maximum(shortfall, 0.0)
        # With the switch s = h or s = 1 - h, the row becomes row - M s >= side - M, or row + M s <= side + M. The
        # constant 1 of 1 - h moves to the side, where it cancels M.
        switch_change = np.where(sign > 0, -big_m, big_m) if is_lower else np.where(sign > 0, big_m, -big_m)
        side_change = big_m * (1.0 - off_value)
        matrix = rows.matrix + sparse.csr_matrix((switch_change, (np.arange(size), column)), shape=(size, n))
        bound = row_bounds - side_change if is_lower else row_bounds + side_change
        infinite = np.full(size, np.inf)
        parts.append((matrix, bound if is_lower else -infinite, infinite if is_lower else bound))
    block = rows.block
    # An equation has a row for each of its sides, so each index tuple has two rows.
    if len(parts) == 2:
        block = evolve(block, positions=tuple(read_only(np.tile(p, 2)) for p in block.positions))
    return Rows(
        sparse.vstack([p[0] for p in parts], format="csr"),
        np.concatenate([p[1] for p in parts]),
        np.concatenate([p[2] for p in parts]),
        evolve(block, stop=len(parts) * size),
    )


def _switch_columns(
    switch: Any, offset: Floats, family: Family, col_lower: Floats, col_upper: Floats
) -> tuple[Ints, Floats]:
    """Find the binary column of each row's switch, which must be a binary ``h`` or its complement ``1 - h``.

    Args:
        switch, offset: The switch as a linear expression: a CSR matrix of shape (rows, n), and an array of shape
            (rows,) with the constants.
        family: The family, which provides the switch's variables and the text for messages.
        col_lower, col_upper: (n,) The column bounds. A binary must lie between 0 and 1.

    Returns:
        The column of each row's ``h``, and its sign: 1 for ``h``, -1 for ``1 - h``.

    Raises:
        ModelError: The switch is not of this form, or its variable is not binary.
    """
    assert isinstance(family.statement, Implication)
    expectation = (
        f"family {family.name}: implies({family.statement.binary}, ...): expected a binary h[...] or 1 - h[...]"
    )
    switch.eliminate_zeros()
    if (np.diff(switch.indptr) != 1).any():
        raise ModelError(expectation)
    column, sign = switch.indices.astype(np.int64), switch.data
    # h has coefficient 1 and constant 0; 1 - h has coefficient -1 and constant 1.
    is_switch = ((sign == 1) & (offset == 0)) | ((sign == -1) & (offset == 1))
    variables = [t.variable for t in family.switch if t.variable is not None]
    is_binary = all(v.integer for v in variables) and (col_lower[column] >= 0).all() and (col_upper[column] <= 1).all()
    if not is_switch.all() or not is_binary:
        raise ModelError(expectation)
    return column, sign


def _refuse_without_big_m(
    family: Family, rows: Rows, other_terms: Any, is_lower: bool, row: int, col_lower: Floats, col_upper: Floats
) -> NoReturn:
    """Raise an error that names the column whose missing bound leaves a row without a finite big-M.

    Args:
        family: The indicator family.
        rows: The family's rows.
        other_terms: The matrix of these rows without the switch column.
        is_lower: Whether the big-M is missing for the row's lower bound (True) or its upper bound (False).
        row: The index of the row within the family.
        col_lower, col_upper: (n,) The column bounds.
    """
    entries = slice(other_terms.indptr[row], other_terms.indptr[row + 1])
    columns, values = other_terms.indices[entries], other_terms.data[entries]
    # The bound that determines each term's extreme value. For a row's lower bound, that is the column's lower bound if
    # the coefficient is positive.
    bounds = np.where((values > 0) == is_lower, col_lower[columns], col_upper[columns])
    unbounded_column = int(columns[np.flatnonzero(~np.isfinite(bounds))[0]])
    variables = [
        t.variable
        for t in family.terms
        if t.variable is not None and t.variable.start <= unbounded_column < t.variable.start + t.variable.size
    ]
    column = variable_block(variables[0]).column_name(unbounded_column - variables[0].start)
    bound_name = "lower" if bounds[~np.isfinite(bounds)][0] < 0 else "upper"
    raise ModelError(f"{rows.block.row_name(row)}: no big-M: {column} has no {bound_name} bound; give it one")
