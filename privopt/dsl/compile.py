"""Compile families of constraints to sparse rows of a ``StandardForm``.

Each family becomes one CSR block. Its index tuples are expanded to arrays of positions (by repeat and tile, as a join
of tables does), and NumPy evaluates its coefficients on them. No Python loop runs over rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from attrs import evolve, frozen
from scipy import sparse

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.form import FamilyBlock, StandardForm, round_integer_bounds
from privopt.dsl.linear import Coefficient, Places, SummedIndices, Term, index_values, split_exponential
from privopt.dsl.lowering import Block, Family, negate_term, privacy_terms, variable_block
from privopt.dsl.symbols import Index, Variable
from privopt.errors import ModelError

LARGEST_LOG = 700.0
"""Privacy rows are in the matrix with exp(min(L, 700)): e^709.8 is where doubles end."""


@frozen(eq=False)
class _Rows:
    """Rows of one family before they join the matrix."""

    matrix: Any
    lower: Floats
    upper: Floats
    block: FamilyBlock


def compile_model(
    variables: Sequence[Variable],
    families: Sequence[Family | Block],
    objective: Sequence[Term],
    sense: Literal["min", "max"],
) -> StandardForm:
    """Compile the families of a model to one ``StandardForm``."""
    n = sum(v.size for v in variables)
    empty = np.zeros(0)
    col_lower = np.concatenate([v.lower for v in variables]) if variables else empty
    col_upper = np.concatenate([v.upper for v in variables]) if variables else empty
    integrality = (
        np.concatenate([np.full(v.size, v.integer, dtype=np.uint8) for v in variables]) if variables else empty
    )
    col_lower, col_upper = round_integer_bounds(col_lower, col_upper, integrality)
    # The objective is compiled like a family of a single row.
    cost, constant = _compile_objective(objective, n)
    parts, start = [], 0
    for family in families:
        rows = (
            _place_block(family, n) if isinstance(family, Block) else _compile_family(family, n, col_lower, col_upper)
        )
        count = rows.matrix.shape[0]
        parts.append(evolve(rows, block=evolve(rows.block, start=start, stop=start + count)))
        start += count
    matrix = sparse.vstack([p.matrix for p in parts], format="csr") if parts else sparse.csr_matrix((0, n))
    return StandardForm(
        c=cost,
        c0=constant,
        sense=sense,
        A=matrix,
        row_lower=np.concatenate([p.lower for p in parts]) if parts else empty,
        row_upper=np.concatenate([p.upper for p in parts]) if parts else empty,
        col_lower=col_lower,
        col_upper=col_upper,
        integrality=integrality,
        families=tuple(p.block for p in parts),
        variables=tuple(variable_block(v) for v in variables),
    )


def _compile_objective(terms: Sequence[Term], n: int) -> tuple[Floats, float]:
    """Return the costs of all columns, and the constant."""
    cost, constant = np.zeros(n), 0.0
    for term in terms:
        _, columns, values = _term_entries(term, {}, 1, "objective")
        if columns is None:
            constant += float(values.sum())
        else:
            cost += np.bincount(columns, weights=values, minlength=n)
    return cost, constant


def _row_positions(family: Family) -> tuple[dict[Index, Ints], int]:
    """Return the position of every index in every row, and the number of rows.

    Restricted indices take the given tuples; the others run over their whole sets.
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
    """Repeat rows over the tuples that a sum runs over.

    Returns:
        The positions of all indices, the row that each entry belongs to, and the number of entries.
    """
    bound = dict(places)
    restriction = binding.restriction
    joined_indices: set[Index] = set()
    if restriction is not None:
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


def _term_entries(term: Term, places: Places, size: int, where: str) -> tuple[Ints, Ints | None, Floats]:
    """Return the row, column and value of every entry of a term. The columns are None for a constant."""
    # Other indices of the row do not change the term, and would only be copied.
    needed = term.free_indices() | {i for b in term.bindings for i in b.over}
    bound: Places = {i: p for i, p in places.items() if i in needed}
    rows = np.arange(size)
    for binding in term.bindings:
        bound, rows, size = _bind_indices(binding, bound, rows, size)
    values = Coefficient(term.coefficient, where)(bound, size)
    if not np.isfinite(values).all():
        entry = int(np.flatnonzero(~np.isfinite(values))[0])
        location = ", ".join(f"{i} = {i.index_set.labels[int(p[entry])]!r}" for i, p in bound.items())
        subject = "the constant" if term.variable is None else "the coefficient of"
        raise ModelError(
            f"{where}: {subject} {term} must be finite, got {values[entry]}{f' at {location}' if location else ''}"
        )
    if term.variable is None:
        return rows, None, values
    return rows, _term_columns(term, bound, size, where), values


def _term_columns(term: Term, places: Places, size: int, where: str) -> Ints:
    """Return the column of a term's variable for each index tuple."""
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


def _terms_matrix(terms: Sequence[Term], places: Places, size: int, n: int, where: str) -> tuple[Any, Floats]:
    """Return the CSR matrix of the terms, and the constant of every row."""
    rows, columns, values = [], [], []
    constant = np.zeros(size)
    for term in terms:
        r, c, v = _term_entries(term, places, size, where)
        if c is None:
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
    """Add up entries of the same row and column. Sums that are only the rounding of terms that cancel become 0."""
    matrix = sparse.csr_matrix((values, (rows, columns)), shape=shape)
    if matrix.nnz < len(values):
        magnitude = sparse.csr_matrix((np.abs(values), (rows, columns)), shape=shape)
        matrix.data[np.abs(matrix.data) <= 2.0**-50 * magnitude.data] = 0.0
    return matrix


def _compile_family(family: Family, n: int, col_lower: Floats, col_upper: Floats) -> _Rows:
    """Compile one symbolic family to its rows."""
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
        privacy_rows = _privacy_rows(family, pair, places, size, n, col_lower, block)
        if privacy_rows is not None:
            return privacy_rows
    where = f"family {family.name}"
    matrix, constant = _terms_matrix(family.terms, places, size, n, where)
    infinite = np.full(size, np.inf)
    # Terms are left side minus right side, so that the constant moves to the side of the row.
    lower = -infinite if family.operator == "<=" else -constant
    upper = infinite if family.operator == ">=" else -constant
    rows = _Rows(matrix, lower, upper, block)
    return _indicator_rows(family, rows, places, n, col_lower, col_upper) if family.kind == "indicator" else rows


def _privacy_rows(
    family: Family,
    pair: tuple[Term, Term],
    places: Places,
    size: int,
    n: int,
    col_lower: Floats,
    block: FamilyBlock,
) -> _Rows | None:
    """Return rows ``z_i <= exp(L) z_j`` with L stored separately, or None if signs or bounds make them other rows."""
    where = f"family {family.name}"
    pair = pair if family.operator == "<=" else (negate_term(pair[0]), negate_term(pair[1]))
    factors, logs, columns = [], [], []
    for term in pair:
        factor, log = split_exponential(term.coefficient)
        factors.append(Coefficient(factor, where)(places, size))
        logs.append(Coefficient(log, where)(places, size))
        columns.append(_term_columns(term, places, size, where))
    # The written order of the terms is free: the left one is the one with a positive factor.
    left_number, right_number = (0, 1) if size and factors[0][0] > 0 else (1, 0)
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
    ratio = (logs[right_number] + np.log(-factors[right_number])) - (logs[left_number] + np.log(factors[left_number]))
    if np.isnan(ratio).any():
        raise ModelError(f"{block.row_name(int(np.flatnonzero(np.isnan(ratio))[0]))}: exponent is NaN")
    # An infinite exponent is cut at the largest double: that is stricter, and finite.
    ratio = np.minimum(ratio, np.finfo(float).max)
    return _ratio_rows(columns[left_number], columns[right_number], ratio, n, evolve(block, kind="privacy"))


def _ratio_rows(left_columns: Ints, right_columns: Ints, ratio: Floats, n: int, block: FamilyBlock) -> _Rows:
    """Write rows ``x[left] - exp(ratio) x[right] <= 0``."""
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
    """Return the smallest and the largest value of each row of ``matrix @ x`` for x inside its bounds."""
    positive, negative_part = matrix.maximum(0), matrix.minimum(0)
    positive.eliminate_zeros()
    negative_part.eliminate_zeros()

    def product(part: sparse.csr_matrix, vector: Floats) -> Floats:
        # 0 * inf must count as 0: only stored entries take part
        weighted = part.copy()
        weighted.data = weighted.data * vector[weighted.indices]
        return np.asarray(weighted.sum(axis=1)).ravel()

    min_activity = product(positive, col_lower) + product(negative_part, col_upper)
    max_activity = product(positive, col_upper) + product(negative_part, col_lower)
    return min_activity, max_activity


def _indicator_rows(family: Family, rows: _Rows, places: Places, n: int, col_lower: Floats, col_upper: Floats) -> _Rows:
    """Write big-M rows. M is how far a row can miss its side, by the bounds of its columns, if the switch is off."""
    size = len(rows.lower)
    where = f"family {family.name}"
    switch, offset = _terms_matrix(family.switch, places, size, n, f"{where}, binary")
    column, sign = _switch_columns(switch, offset, family, col_lower, col_upper)
    off_value = np.where(sign > 0, 0.0, 1.0)
    # With the switch fixed at its off value, the extremes of the other terms bound how far the row can miss its side.
    switch_coefficients = np.asarray(rows.matrix[np.arange(size), column]).ravel()
    other_terms = (
        rows.matrix - sparse.csr_matrix((switch_coefficients, (np.arange(size), column)), shape=(size, n))
    ).tocsr()
    min_activity, max_activity = activity_bounds(other_terms, col_lower, col_upper)
    parts = []
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
    """Return the column and the sign of each row's switch: 1 for ``h``, -1 for ``1 - h``."""
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
    """Raise an error that names the column whose missing bound leaves a row without a big-M."""
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
    """Place the columns of a ready block among all columns of the model."""
    # Columns of the block may repeat columns of the model; building a CSR matrix adds such entries up.
    source = block.matrix.tocoo()
    matrix = sparse.csr_matrix((source.data, (source.row, block.columns[source.col])), shape=(source.shape[0], n))
    family_block = FamilyBlock(name=block.name, start=0, stop=source.shape[0], kind="block")
    return _Rows(matrix, block.lower, block.upper, family_block)
