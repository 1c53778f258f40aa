"""Compile families of constraints to sparse rows of a ``StandardForm``.

Each family becomes one CSR block. Its index tuples are expanded to arrays of positions (by repeat and tile, like a join
of tables), and NumPy evaluates the coefficients on these arrays. No Python loop runs over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from attrs import define, evolve, field, frozen
from scipy import sparse

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.form import SEMICONTINUOUS, FamilyBlock, StandardForm, round_integer_bounds
from privopt.dsl.linear import Coefficients, Places, SummedIndices, Term, index_values, split_exponential
from privopt.dsl.lowering import Block, Family, Implication, negate_term, privacy_terms, variable_block
from privopt.dsl.quadratic import QuadraticPart, QuadraticTerm, check_convexity, merge_parts
from privopt.dsl.symbols import Index, Param, Variable
from privopt.errors import ModelError

LARGEST_LOG = 700.0
"""Cap on the exponent L of a privacy row ``z_i <= exp(L) z_j`` in the matrix, because exp overflows above 709.8.

``FamilyBlock.log_ratio`` has the uncut L."""


@frozen(eq=False)
class _Rows:
    """The rows of one family, before the rows of all families are stacked.

    Attributes:
        matrix: CSR, shape (rows, columns of the whole model).
        lower, upper: Sides of the rows, shape (rows,); infinite if a row has no such side.
        block: Name and labels of the rows. Its ``start`` and ``stop`` count from this family's first row.
    """

    matrix: Any
    lower: Floats
    upper: Floats
    block: FamilyBlock


RowsKey = tuple[object, ...]
"""The number of columns and the revisions of the parameters that the rows of a family depend on. If the formula and the
bounds are unchanged, equal keys mean equal rows."""


@define(eq=False)
class CompiledParts:
    """The results of a model's last compilation, from which the next one takes unchanged rows.

    Attributes:
        coefficients: The NumPy functions of the model's coefficients.
        form: The last compiled form; None before the first compilation.
        objective: The terms of the objective that was compiled.
        keys: For each family name, the family that was compiled and its key; None if it must be compiled every time.
    """

    coefficients: Coefficients = field(factory=Coefficients)
    form: StandardForm | None = None
    objective: Sequence[Term] = ()
    keys: dict[str, tuple[Family | Block, RowsKey | None]] = field(factory=dict)

    def drop_old_coefficients(self, families: Sequence[Family | Block], objective: Sequence[Term]) -> None:
        """Drop the functions of families and objectives that are no longer the model's, as they would pile up."""
        current = {id(family) for family in families}
        for family, _ in self.keys.values():
            if id(family) not in current:
                self.coefficients.drop(f"family {family.name}")
                self.coefficients.drop(_switch_location(family))
        if self.objective is not objective:
            self.coefficients.drop("objective")


def compile_model(
    variables: Sequence[Variable],
    families: Sequence[Family | Block],
    objective: Sequence[Term],
    sense: Literal["min", "max"],
    parts: CompiledParts | None = None,
    quadratic: Sequence[QuadraticTerm] = (),
) -> StandardForm:
    """Compile a model to one ``StandardForm``: arrays of costs, bounds and sparse rows.

    Args:
        variables: All variables, in the order of their columns.
        families: Families of constraints, and blocks of ready rows; their rows follow one another in this order.
        objective: Terms of the objective; their sum is optimised.
        sense: Whether the objective is minimised or maximised.
        parts: The results of the model's last compilation; they are updated. Only families whose formula, parameters or
            bounds have changed since are compiled again. None to compile all families.
        quadratic: Quadratic terms of the objective.

    Raises:
        ModelError: A number is not finite, a privacy row or a big-M cannot be stated, or a quadratic objective has the
            wrong curvature.
    """
    parts = CompiledParts() if parts is None else parts
    n = sum(v.size for v in variables)
    empty = np.zeros(0)
    for variable in variables:
        variable.check_bounds()
    col_lower = np.concatenate([v.lower for v in variables]) if variables else empty
    col_upper = np.concatenate([v.upper for v in variables]) if variables else empty
    integrality = (
        np.concatenate([np.full(v.size, _domain_code(v), dtype=np.uint8) for v in variables]) if variables else empty
    )
    # Before the rows, because the big-M of an indicator row follows from these bounds.
    col_lower, col_upper = round_integer_bounds(col_lower, col_upper, integrality)
    parts.drop_old_coefficients(families, objective)
    # The objective is compiled like a family of a single row.
    cost, constant = _compile_objective(objective, n, parts.coefficients)
    part = _compile_quadratic(quadratic, n, parts.coefficients) if quadratic else None
    has_old_bounds = (
        parts.form is not None
        and np.array_equal(parts.form.col_lower, col_lower)
        and np.array_equal(parts.form.col_upper, col_upper)
    )
    rows_of_families: list[_Rows] = []
    keys: dict[str, tuple[Family | Block, RowsKey | None]] = {}
    start = 0
    for family in families:
        key = _rows_key(family, n)
        old_family, old_key = parts.keys.get(family.name, (None, None))
        is_same = family is old_family and key is not None and key == old_key
        if is_same and (has_old_bounds or not _depends_on_bounds(family)) and parts.form is not None:
            rows = _old_rows(parts.form, family.name)
        elif isinstance(family, Block):
            rows = _place_block(family, n)
        else:
            # A semicontinuous column may also be 0, whatever its lower bound.
            lowest = np.where(integrality == SEMICONTINUOUS, 0.0, col_lower)
            rows = _compile_family(family, n, lowest, col_upper, parts.coefficients)
        count = rows.matrix.shape[0]
        # Each family numbers its rows from 0. Here they get their numbers among all rows.
        rows_of_families.append(evolve(rows, block=evolve(rows.block, start=start, stop=start + count)))
        start += count
        keys[family.name] = (family, key)
    matrix = (
        sparse.vstack([p.matrix for p in rows_of_families], format="csr")
        if rows_of_families
        else sparse.csr_matrix((0, n))
    )
    form = StandardForm(
        c=cost if part is None else cost + part.linear,
        c0=constant if part is None else constant + part.constant,
        Q=None if part is None else part.matrix,
        sense=sense,
        A=matrix,
        row_lower=np.concatenate([p.lower for p in rows_of_families]) if rows_of_families else empty,
        row_upper=np.concatenate([p.upper for p in rows_of_families]) if rows_of_families else empty,
        col_lower=col_lower,
        col_upper=col_upper,
        integrality=integrality,
        families=tuple(p.block for p in rows_of_families),
        variables=tuple(variable_block(v) for v in variables),
    )
    if part is not None:
        check_convexity(part, sense, form.column_name)
    parts.form, parts.objective, parts.keys = form, objective, keys
    return form


def _domain_code(variable: Variable) -> int:
    """Return the code of a variable's columns in ``StandardForm.integrality``."""
    return SEMICONTINUOUS if variable.kind == "semicontinuous" else int(variable.integer)


def _rows_key(family: Family | Block, n: int) -> RowsKey | None:
    """Return the key of a family, or None if its rows must be compiled every time."""
    if isinstance(family, Block):
        return None  # it is placed in less time than its arrays could be compared
    params: set[Param] = set().union(*(t.coefficient.atoms(Param) for t in family.all_terms))
    if any(callable(p.source) for p in params):
        return None  # a function may return other numbers each time
    # The columns of a variable that stands for an absolute value or an extremum move if others are added.
    starts = tuple(t.variable.start for t in family.all_terms if t.variable is not None)
    return n, starts, frozenset((p, p.revision) for p in params)


def _switch_location(family: Family | Block) -> str:
    """Return the place that error messages about the binary of an implication name."""
    return f"family {family.name}, binary"


def _depends_on_bounds(family: Family | Block) -> bool:
    """Return whether the rows of a family depend on the bounds of the variables."""
    return isinstance(family, Family) and (family.kind == "indicator" or privacy_terms(family) is not None)


def _old_rows(form: StandardForm, name: str) -> _Rows:
    """Return the rows that a family has in an earlier form."""
    block = form.family(name)
    rows = slice(block.start, block.stop)
    return _Rows(form.A[rows], form.row_lower[rows], form.row_upper[rows], block)


def _compile_objective(terms: Sequence[Term], n: int, coefficients: Coefficients) -> tuple[Floats, float]:
    """Return the coefficients of the model's ``n`` columns in the objective, shape (n,), and its constant."""
    cost, constant = np.zeros(n), 0.0
    for term in terms:
        # No index is free in an objective, so each term is evaluated as if for a single row.
        _, columns, values = _term_entries(term, {}, 1, "objective", coefficients)
        if columns is None:
            constant += float(values.sum())
        else:
            # A column may occur in several entries of a term: indexed addition would count only one of them.
            cost += np.bincount(columns, weights=values, minlength=n)
    return cost, constant


def _compile_quadratic(terms: Sequence[QuadraticTerm], n: int, coefficients: Coefficients) -> QuadraticPart:
    """Return the numbers of the quadratic terms of an objective over ``n`` columns."""
    where, parts = "objective", []
    for term in terms:
        places: Places = {}
        rows, size = np.arange(1), 1
        for binding in term.bindings:
            places, rows, size = _bind_indices(binding, places, rows, size)
        weights = coefficients.get(term.coefficient, where)(places, size)
        left, left_constant = _terms_matrix(term.left, places, size, n, where, coefficients)
        right, right_constant = (
            (left, left_constant) if term.is_square else _terms_matrix(term.right, places, size, n, where, coefficients)
        )
        product = left.T @ sparse.diags(weights) @ right
        is_positive, is_negative = bool((weights >= 0).all()), bool((weights <= 0).all())
        parts.append(
            QuadraticPart(
                (product + product.T).tocsr(),
                left.T @ (weights * right_constant) + right.T @ (weights * left_constant),
                float((weights * left_constant) @ right_constant),
                int(is_positive) - int(is_negative) if term.is_square else 0,
            )
        )
    return merge_parts(parts)


def _row_positions(family: Family) -> tuple[dict[Index, Ints], int]:
    """Expand a family to its rows: one row for each tuple of index values.

    Indices restricted by ``where`` take the given tuples; the others run over their whole sets.

    Returns:
        The positions (from 0) of the values of each index, shape (rows,), and the number of rows.
    """
    places = dict(zip(family.restricted, family.tuples, strict=True))
    size = len(family.tuples[0]) if family.tuples else 1
    for index in family.forall:
        if index in places:
            continue
        n = len(index.index_set)
        # The product with one more set: every tuple so far is repeated n times, next to all positions of the set.
        places = {i: np.repeat(p, n) for i, p in places.items()}
        places[index] = np.tile(np.arange(n), size)
        size *= n
    return {i: places[i] for i in family.forall}, size


def _bind_indices(binding: SummedIndices, places: Places, rows: Ints, size: int) -> tuple[dict[Index, Ints], Ints, int]:
    """Expand entries over the tuples that a sum runs over: each entry is repeated once for each tuple.

    Args:
        binding: The summed indices, and the tuples that they are restricted to, if any.
        places: Positions of the indices that are bound so far, one array of shape (size,) for each index.
        rows: The row that each entry belongs to, shape (size,).
        size: Number of entries so far.

    Returns:
        The positions of all indices, the row that each entry belongs to, and the number of entries.
    """
    bound = dict(places)
    restriction = binding.restriction
    joined_indices: set[Index] = set()
    if restriction is not None:
        # Outer indices are bound by the row already; inner ones get their values from the tuples.
        outer = [i for i in restriction.indices if i in places]
        inner = [i for i in restriction.indices if i not in places]
        joined_indices = set(inner)
        columns = dict(zip(restriction.indices, restriction.positions, strict=True))
        shape = tuple(len(i.index_set) for i in outer)
        # A join on the indices that the restriction shares with the rows: its tuples are sorted by these, so that each
        # row finds its tuples as one range.
        if outer:
            tuple_keys = np.ravel_multi_index(tuple(columns[i] for i in outer), shape)
            row_keys = np.ravel_multi_index(tuple(places[i] for i in outer), shape)
        else:
            tuple_keys, row_keys = np.zeros(len(restriction.positions[0]), np.int64), np.zeros(size, np.int64)
        order = np.argsort(tuple_keys, kind="stable")
        tuple_keys = tuple_keys[order]
        starts, ends = np.searchsorted(tuple_keys, row_keys, "left"), np.searchsorted(tuple_keys, row_keys, "right")
        counts = ends - starts
        repeat = np.repeat(np.arange(size), counts)
        # 0, 1, 2, ... within the range of each entry, as in a loop over its tuples.
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        tuple_numbers = order[np.repeat(starts, counts) + offset]
        bound = {i: p[repeat] for i, p in bound.items()} | {i: columns[i][tuple_numbers] for i in inner}
        rows, size = rows[repeat], len(repeat)
    # Indices without a restriction run over their whole sets.
    for index in binding.over:
        if index in joined_indices:
            continue
        n = len(index.index_set)
        bound = {i: np.repeat(p, n) for i, p in bound.items()}
        bound[index] = np.tile(np.arange(n), size)
        rows, size = np.repeat(rows, n), size * n
    return bound, rows, size


def _term_entries(
    term: Term,
    places: Places,
    size: int,
    where: str,
    coefficients: Coefficients,
    *,
    allow_infinite: bool = False,
) -> tuple[Ints, Ints | None, Floats]:
    """Return the row, column and value of every matrix entry of a term; the columns are None for a constant.

    Args:
        term: ``coefficient * variable[indices]`` with its sums.
        places: The positions of the values of each index of the rows, shape (size,).
        size: Number of rows.
        where: The place that an error message names: the family or "objective".
        coefficients: The NumPy functions of the model's coefficients; a missing one is added.
        allow_infinite: Whether a constant may be infinite.
    """
    # Other indices of the row do not change the term, and would only be copied.
    needed = term.free_indices() | {i for b in term.bindings for i in b.over}
    bound: Places = {i: p for i, p in places.items() if i in needed}
    rows = np.arange(size)
    for binding in term.bindings:
        bound, rows, size = _bind_indices(binding, bound, rows, size)
    values = coefficients.get(term.coefficient, where)(bound, size)
    # An infinite constant of a row is a side that it does not have, or one that no number satisfies.
    is_valid = ~np.isnan(values) if term.variable is None and allow_infinite else np.isfinite(values)
    if not is_valid.all():
        entry = int(np.flatnonzero(~is_valid)[0])
        location = ", ".join(f"{i} = {i.index_set.labels[int(p[entry])]!r}" for i, p in bound.items())
        subject = "the constant" if term.variable is None else "the coefficient of"
        raise ModelError(
            f"{where}: {subject} {term} must be finite, got {values[entry]}{f' at {location}' if location else ''}"
        )
    if term.variable is None:
        return rows, None, values
    return rows, _term_columns(term, bound, size, where), values


def _term_columns(term: Term, places: Places, size: int, where: str) -> Ints:
    """Return the model's column of a term's variable for each index tuple, shape (size,).

    Args:
        term: The term, which has a variable.
        places: The positions of the values of each index, shape (size,).
        size: Number of index tuples.
        where: The place that an error message names: the family or "objective".
    """
    variable = term.variable
    assert variable is not None
    if not variable.sets:
        return np.full(size, variable.start, dtype=np.int64)
    return variable.columns(
        *(
            index_values(x, s, places, size, f"{where}: {variable.name}")
            for x, s in zip(term.indices, variable.sets, strict=True)
        )
    )


def _terms_matrix(
    terms: Sequence[Term],
    places: Places,
    size: int,
    n: int,
    where: str,
    coefficients: Coefficients,
    *,
    allow_infinite: bool = False,
) -> tuple[Any, Floats]:
    """Return the CSR matrix of a sum of terms, shape (size, n), and the constant of every row, shape (size,).

    ``size`` is the number of rows, and ``n`` is the number of columns of the model. Error messages name ``where``.
    Constants may be infinite if ``allow_infinite``.
    """
    rows, columns, values = [], [], []
    constant = np.zeros(size)
    for term in terms:
        r, c, v = _term_entries(term, places, size, where, coefficients, allow_infinite=allow_infinite)
        if c is None:
            # Infinities of both signs give NaN, which the form refuses by the name of the row.
            with np.errstate(invalid="ignore"):
                constant += np.bincount(r, weights=v, minlength=size)
        else:
            rows.append(r)
            columns.append(c)
            values.append(v)
    # Solvers take indices of 32 bits, so that longer ones are used only if they are needed.
    kind = np.int32 if max(n, size, sum(map(len, rows))) < 2**31 else np.int64
    triple = [np.concatenate(x) if x else np.zeros(0) for x in (rows, columns, values)]
    return _sum_duplicates(triple[2], triple[0].astype(kind), triple[1].astype(kind), (size, n)), constant


def _sum_duplicates(values: Any, rows: Ints, columns: Ints, shape: tuple[int, int]) -> Any:
    """Return a CSR matrix in which entries of the same row and column are added up.

    If the entries cancel and only a rounding error is left, the sum becomes 0.

    Args:
        values, rows, columns: Value, row and column of each entry, in any order, shape (entries,).
        shape: Numbers of rows and columns of the matrix.
    """
    matrix = sparse.csr_matrix((values, (rows, columns)), shape=shape)
    if matrix.nnz < len(values):
        # Both matrices are summed in the same way, so their entries correspond.
        magnitude = sparse.csr_matrix((np.abs(values), (rows, columns)), shape=shape)
        # The sum of absolute values is the scale of the rounding error; 2**-50 is eight units of rounding.
        matrix.data[np.abs(matrix.data) <= 2.0**-50 * magnitude.data] = 0.0
    return matrix


def _compile_family(family: Family, n: int, col_lower: Floats, col_upper: Floats, coefficients: Coefficients) -> _Rows:
    """Compile one symbolic family to its rows.

    Privacy rows and indicator rows are built by functions of their own, because their coefficients are not simply those
    of the formula.

    Args:
        family: The family.
        n: Number of columns of the model.
        col_lower, col_upper: Bounds of the columns, shape (n,).
        coefficients: The NumPy functions of the model's coefficients; missing ones are added.
    """
    places, size = _row_positions(family)
    block = FamilyBlock(
        name=family.name,
        start=0,
        stop=size,
        indices=tuple(i.name for i in family.forall),
        sets=tuple(i.index_set for i in family.forall),
        positions=tuple(read_only(p) for p in places.values()),
        kind=family.kind,
    )
    pair = privacy_terms(family)
    if pair is not None:
        privacy_rows = _privacy_rows(family, pair, places, size, n, col_lower, block, coefficients)
        # None means that a family of that shape is no privacy family after all, and is compiled like any other.
        if privacy_rows is not None:
            return privacy_rows
    where = f"family {family.name}"
    # A big-M needs finite sides.
    is_row = family.kind == "rows"
    matrix, constant = _terms_matrix(family.terms, places, size, n, where, coefficients, allow_infinite=is_row)
    infinite = np.full(size, np.inf)
    # Terms are left side minus right side, so that the constant moves to the side of the row.
    lower = -infinite if family.operator == "<=" else -constant
    upper = infinite if family.operator == ">=" else -constant
    if family.upper_terms:
        # Only constants, so that the matrix is empty.
        _, upper_constant = _terms_matrix(
            family.upper_terms, places, size, n, where, coefficients, allow_infinite=is_row
        )
        upper = -upper_constant
        crossed = np.flatnonzero(lower > upper)
        if crossed.size:
            row = int(crossed[0])
            excess = lower[row] - upper[row]
            raise ModelError(f"{block.row_name(row)}: its lower side is above its upper one by {excess}")
    rows = _Rows(matrix, lower, upper, block)
    if family.kind != "indicator":
        return rows
    return _indicator_rows(family, rows, places, n, col_lower, col_upper, coefficients)


def _privacy_rows(
    family: Family,
    pair: tuple[Term, Term],
    places: Places,
    size: int,
    n: int,
    col_lower: Floats,
    block: FamilyBlock,
    coefficients: Coefficients,
) -> _Rows | None:
    """Return rows ``z_i <= exp(L) z_j`` with their exponents L stored separately, or None if they are not such rows.

    Rows in which a factor has the wrong sign, or in which ``z_j`` may be negative, are no privacy rows.

    Args:
        family: The family, for its operator, name and ``privacy`` flag.
        pair: The two terms of the family: one in ``z_i``, one in ``z_j``.
        places: The positions of the values of each index in every row, shape (size,).
        size: Number of rows.
        n: Number of columns of the model.
        col_lower: Lower bounds of the columns, shape (n,).
        block: Names and labels of the rows.

    Raises:
        ModelError: The family is declared ``privacy=True`` but does not consist of privacy rows.
    """
    where = f"family {family.name}"
    # A row >= 0 is turned into a row <= 0, so that only one direction must be handled.
    pair = pair if family.operator == "<=" else (negate_term(pair[0]), negate_term(pair[1]))
    factors, logs, columns = [], [], []
    for term in pair:
        factor, log = split_exponential(term.coefficient)
        factors.append(coefficients.get(factor, where)(places, size))
        logs.append(coefficients.get(log, where)(places, size))
        columns.append(_term_columns(term, places, size, where))
    # The written order of the terms is free: the left one is the one with a positive factor.
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
    # The row f_i e^(l_i) z_i + f_j e^(l_j) z_j <= 0, with f_j < 0, says z_i <= e^ratio z_j. In
    # logarithms, because e^ratio may be more than a double holds.
    ratio = (logs[right_number] + np.log(-factors[right_number])) - (logs[left_number] + np.log(factors[left_number]))
    if np.isnan(ratio).any():
        raise ModelError(f"{block.row_name(int(np.flatnonzero(np.isnan(ratio))[0]))}: exponent is NaN")
    # An infinite exponent is cut at the largest double: that is stricter, and finite.
    ratio = np.minimum(ratio, np.finfo(float).max)
    return _ratio_rows(columns[left_number], columns[right_number], ratio, n, evolve(block, kind="privacy"))


def _ratio_rows(left_columns: Ints, right_columns: Ints, ratio: Floats, n: int, block: FamilyBlock) -> _Rows:
    """Return privacy rows ``x[left] - exp(ratio) x[right] <= 0`` for pairs of columns.

    Args:
        left_columns, right_columns: The two columns of each row, shape (rows,).
        ratio: Natural logarithm of each row's factor, shape (rows,). It is cut at ``LARGEST_LOG`` in the matrix, but
            not in the block.
        n: Number of columns of the model.
        block: Names and labels of the rows.
    """
    size = len(ratio)
    indices = np.stack([left_columns, right_columns], axis=1).ravel()
    # Two entries a row, in row order, so that the CSR arrays need no sorting.
    data = np.stack([np.ones(size), -np.exp(np.minimum(ratio, LARGEST_LOG))], axis=1)
    data[(left_columns == right_columns) & (ratio >= 0)] = 0.0  # z <= exp(L) z says nothing
    data = data.ravel()
    matrix = sparse.csr_matrix((data, indices, np.arange(0, 2 * size + 1, 2)), shape=(size, n))
    block = evolve(block, log_ratio=read_only(ratio), left=read_only(left_columns), right=read_only(right_columns))
    return _Rows(matrix, np.full(size, -np.inf), np.zeros(size), block)


def activity_bounds(matrix: sparse.csr_matrix, col_lower: Floats, col_upper: Floats) -> tuple[Floats, Floats]:
    """Return the smallest and the largest value of each row of ``matrix @ x``, shape (rows,), for x within its bounds.

    ``col_lower`` and ``col_upper`` are the bounds of the columns, shape (n,), infinite if a column has no bound.
    """
    positive, negative_part = matrix.maximum(0), matrix.minimum(0)
    positive.eliminate_zeros()
    negative_part.eliminate_zeros()

    def product(part: sparse.csr_matrix, vector: Floats) -> Floats:
        """Return ``part @ vector``, shape (rows,), from the stored entries only, because 0 * inf would give NaN."""
        weighted = part.copy()
        weighted.data = weighted.data * vector[weighted.indices]
        return np.asarray(weighted.sum(axis=1)).ravel()

    # A positive coefficient is smallest at the lower bound of its column, a negative one at the upper bound.
    min_activity = product(positive, col_lower) + product(negative_part, col_upper)
    max_activity = product(positive, col_upper) + product(negative_part, col_lower)
    return min_activity, max_activity


def _indicator_rows(
    family: Family,
    rows: _Rows,
    places: Places,
    n: int,
    col_lower: Floats,
    col_upper: Floats,
    coefficients: Coefficients,
) -> _Rows:
    """Convert rows that must hold only if a binary switch is on to big-M rows, which must always hold.

    M is the most by which the bounds of the columns allow a row to be violated while the switch is off. It is computed
    for each row, because a smaller M gives a tighter relaxation.

    Args:
        family: The family; its ``switch`` has the terms of the binary ``h`` or ``1 - h``.
        rows: The rows without the switch.
        places: The positions of the values of each index in every row.
        n: Number of columns of the model.
        col_lower, col_upper: Bounds of the columns, shape (n,).
        coefficients: The NumPy functions of the model's coefficients; missing ones are added.
    """
    size = len(rows.lower)
    switch, offset = _terms_matrix(family.switch, places, size, n, _switch_location(family), coefficients)
    column, sign = _switch_columns(switch, offset, family, col_lower, col_upper)
    # The value of h at which the switch is off: 0 for the switch h, 1 for the switch 1 - h.
    off_value = np.where(sign > 0, 0.0, 1.0)
    # With the switch fixed at its off value, the extremes of the other terms bound how far the row can miss its side.
    switch_coefficients = np.asarray(rows.matrix[np.arange(size), column]).ravel()
    other_terms = (
        rows.matrix - sparse.csr_matrix((switch_coefficients, (np.arange(size), column)), shape=(size, n))
    ).tocsr()
    min_activity, max_activity = activity_bounds(other_terms, col_lower, col_upper)
    parts = []
    # A row with two sides (an equation) gives one big-M row for each side.
    for row_bounds, activity in ((rows.lower, min_activity), (rows.upper, max_activity)):
        if not np.isfinite(row_bounds).any():
            continue
        is_lower = row_bounds is rows.lower
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
        # switch s = sign * h + (0 or 1):  row - M s >= side - M   (or row + M s <= side + M)
        step = np.where(sign > 0, -big_m, big_m) if is_lower else np.where(sign > 0, big_m, -big_m)
        bump = big_m * (1.0 - off_value)
        matrix = rows.matrix + sparse.csr_matrix((step, (np.arange(size), column)), shape=(size, n))
        bound = row_bounds - bump if is_lower else row_bounds + bump
        infinite = np.full(size, np.inf)
        parts.append((matrix, bound if is_lower else -infinite, infinite if is_lower else bound))
    block = rows.block
    # An equation has a row for each of its sides, so each index tuple stands for two rows.
    if len(parts) == 2:
        block = evolve(block, positions=tuple(read_only(np.tile(p, 2)) for p in block.positions))
    return _Rows(
        sparse.vstack([p[0] for p in parts], format="csr"),
        np.concatenate([p[1] for p in parts]),
        np.concatenate([p[2] for p in parts]),
        evolve(block, stop=len(parts) * size),
    )


def _switch_columns(
    switch: Any, offset: Floats, family: Family, col_lower: Floats, col_upper: Floats
) -> tuple[Ints, Floats]:
    """Return the binary column of each row's switch, and refuse switches other than ``h`` and ``1 - h``.

    Args:
        switch, offset: CSR matrix (rows, columns) and constants (rows,) of the expression that was given as the binary.
        family: The family, for messages and for the variables of the switch.
        col_lower, col_upper: Bounds of the columns; a binary must lie within 0 and 1.

    Returns:
        The column of each row's ``h``, and its sign: 1 for ``h``, -1 for ``1 - h``.
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
    family: Family, rows: _Rows, other_terms: Any, is_lower: bool, row: int, col_lower: Floats, col_upper: Floats
) -> None:
    """Raise an error that names the column whose missing bound leaves a row without a finite big-M.

    Args:
        family: The indicator family.
        rows: Its rows.
        other_terms: Its matrix without the switch column.
        is_lower: Whether the big-M is missing for the row's lower side, not for its upper side.
        row: Number of the row within the family.
        col_lower, col_upper: Bounds of all columns.
    """
    entries = slice(other_terms.indptr[row], other_terms.indptr[row + 1])
    columns, values = other_terms.indices[entries], other_terms.data[entries]
    # The bound that decides each term's extreme: the lower one of a positive coefficient for a lower side.
    bounds = np.where((values > 0) == is_lower, col_lower[columns], col_upper[columns])
    culprit = int(columns[np.flatnonzero(~np.isfinite(bounds))[0]])
    variables = [
        t.variable
        for t in family.terms
        if t.variable is not None and t.variable.start <= culprit < t.variable.start + t.variable.size
    ]
    column = variable_block(variables[0]).column_name(culprit - variables[0].start)
    bound_name = "lower" if bounds[~np.isfinite(bounds)][0] < 0 else "upper"
    raise ModelError(f"{rows.block.row_name(row)}: no big-M: {column} has no {bound_name} bound; give it one")


def _place_block(block: Block, n: int) -> _Rows:
    """Return the rows of a block, whose columns are some of the model's, as rows over all ``n`` columns."""
    # Columns of the block may repeat columns of the model; building a CSR matrix adds such entries up.
    source = block.matrix.tocoo()
    matrix = sparse.csr_matrix((source.data, (source.row, block.columns[source.col])), shape=(source.shape[0], n))
    family_block = FamilyBlock(name=block.name, start=0, stop=source.shape[0], kind="block")
    return _Rows(matrix, block.lower, block.upper, family_block)
