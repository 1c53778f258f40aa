"""Compile families of constraints to sparse rows: NumPy, one CSR block a family. No Python loop over rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from attrs import evolve, frozen
from scipy import sparse

from privopt.arrays import Floats, Ints, read_only
from privopt.dsl.form import FamilyBlock, StandardForm, round_integer_bounds
from privopt.dsl.linear import Coefficient, Places, SummedIndices, Term, index_values, split_exponential
from privopt.dsl.lowering import Block, Family, negative, privacy_terms, variable_block
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
    """Return all families of a model as one ``StandardForm``."""
    n = sum(v.size for v in variables)
    empty = np.zeros(0)
    col_lower = np.concatenate([v.lower for v in variables]) if variables else empty
    col_upper = np.concatenate([v.upper for v in variables]) if variables else empty
    integrality = (
        np.concatenate([np.full(v.size, v.integer, dtype=np.uint8) for v in variables]) if variables else empty
    )
    col_lower, col_upper = round_integer_bounds(col_lower, col_upper, integrality)
    cost, constant = _objective(objective, n)
    parts, start = [], 0
    for family in families:
        rows = _ready(family, n) if isinstance(family, Block) else _family(family, n, col_lower, col_upper)
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


def _objective(terms: Sequence[Term], n: int) -> tuple[Floats, float]:
    cost, constant = np.zeros(n), 0.0
    for term in terms:
        _, columns, values = _entries(term, {}, 1, "objective")
        if columns is None:
            constant += float(values.sum())
        else:
            cost += np.bincount(columns, weights=values, minlength=n)
    return cost, constant


def _tuples(family: Family) -> tuple[dict[Index, Ints], int]:
    """Places of every index for every row: restricted tuples first, the rest run over their whole sets."""
    places = dict(zip(family.restricted, family.tuples, strict=True))
    size = len(family.tuples[0]) if family.tuples else 1
    for index in family.forall:
        if index in places:
            continue
        n = len(index.index_set)
        places = {i: np.repeat(p, n) for i, p in places.items()}
        places[index] = np.tile(np.arange(n), size)
        size *= n
    return {i: places[i] for i in family.forall}, size


def _bind(binding: SummedIndices, places: Places, rows: Ints, size: int) -> tuple[dict[Index, Ints], Ints, int]:
    """Repeat rows over the tuples that a sum runs over."""
    bound = dict(places)
    kept = binding.restriction
    done: set[Index] = set()
    if kept is not None:
        outer = [i for i in kept.indices if i in places]
        inner = [i for i in kept.indices if i not in places]
        done = set(inner)
        columns = dict(zip(kept.indices, kept.positions, strict=True))
        shape = tuple(len(i.index_set) for i in outer)
        if outer:
            key = np.ravel_multi_index(tuple(columns[i] for i in outer), shape)
            wanted = np.ravel_multi_index(tuple(places[i] for i in outer), shape)
        else:
            key, wanted = np.zeros(len(kept.positions[0]), np.int64), np.zeros(size, np.int64)
        order = np.argsort(key, kind="stable")
        key = key[order]
        first, last = np.searchsorted(key, wanted, "left"), np.searchsorted(key, wanted, "right")
        counts = last - first
        repeat = np.repeat(np.arange(size), counts)
        offset = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        chosen = order[np.repeat(first, counts) + offset]
        bound = {i: p[repeat] for i, p in bound.items()} | {i: columns[i][chosen] for i in inner}
        rows, size = rows[repeat], len(repeat)
    for index in binding.over:
        if index in done:
            continue
        n = len(index.index_set)
        bound = {i: np.repeat(p, n) for i, p in bound.items()}
        bound[index] = np.tile(np.arange(n), size)
        rows, size = np.repeat(rows, n), size * n
    return bound, rows, size


def _entries(term: Term, places: Places, size: int, where: str) -> tuple[Ints, Ints | None, Floats]:
    """Row, column and value of every entry of a term; column None for a constant."""
    needed = term.free() | {i for b in term.bindings for i in b.over}
    bound: Places = {i: p for i, p in places.items() if i in needed}
    rows = np.arange(size)
    for binding in term.bindings:
        bound, rows, size = _bind(binding, bound, rows, size)
    values = Coefficient(term.coefficient, where)(bound, size)
    if not np.isfinite(values).all():
        at = int(np.flatnonzero(~np.isfinite(values))[0])
        here = ", ".join(f"{i} = {i.index_set.labels[int(p[at])]!r}" for i, p in bound.items())
        what = "the constant" if term.variable is None else "the coefficient of"
        raise ModelError(f"{where}: {what} {term} must be finite, got {values[at]}{f' at {here}' if here else ''}")
    if term.variable is None:
        return rows, None, values
    return rows, _columns(term, bound, size, where), values


def _columns(term: Term, places: Places, size: int, where: str) -> Ints:
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


def _matrix(terms: Sequence[Term], places: Places, size: int, n: int, where: str) -> tuple[Any, Floats]:
    """CSR matrix of the terms, and the constant of every row."""
    rows, columns, values = [], [], []
    constant = np.zeros(size)
    for term in terms:
        r, c, v = _entries(term, places, size, where)
        if c is None:
            constant += np.bincount(r, weights=v, minlength=size)
        else:
            rows.append(r)
            columns.append(c)
            values.append(v)
    kind = np.int32 if max(n, size, sum(map(len, rows))) < 2**31 else np.int64
    triple = [np.concatenate(x) if x else np.zeros(0) for x in (rows, columns, values)]
    return _summed(triple[2], triple[0].astype(kind), triple[1].astype(kind), (size, n)), constant


def _summed(values: Any, rows: Ints, columns: Ints, shape: tuple[int, int]) -> Any:
    """Entries of one place added up; sums that are nothing but the rounding of terms that cancel are dropped."""
    matrix = sparse.csr_matrix((values, (rows, columns)), shape=shape)
    if matrix.nnz < len(values):
        magnitude = sparse.csr_matrix((np.abs(values), (rows, columns)), shape=shape)
        matrix.data[np.abs(matrix.data) <= 2.0**-50 * magnitude.data] = 0.0
    return matrix


def _family(family: Family, n: int, col_lower: Floats, col_upper: Floats) -> _Rows:
    places, size = _tuples(family)
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
        made = _privacy(family, pair, places, size, n, col_lower, block)
        if made is not None:
            return made
    where = f"family {family.name}"
    matrix, constant = _matrix(family.terms, places, size, n, where)
    infinite = np.full(size, np.inf)
    lower = -infinite if family.operator == "<=" else -constant
    upper = infinite if family.operator == ">=" else -constant
    rows = _Rows(matrix, lower, upper, block)
    return _indicator(family, rows, places, n, col_lower, col_upper) if family.kind == "indicator" else rows


def _privacy(
    family: Family,
    pair: tuple[Term, Term],
    places: Places,
    size: int,
    n: int,
    col_lower: Floats,
    block: FamilyBlock,
) -> _Rows | None:
    """Rows ``z_i <= exp(L) z_j`` with L kept apart; None where signs or bounds make them something else."""
    where = f"family {family.name}"
    pair = pair if family.operator == "<=" else (negative(pair[0]), negative(pair[1]))
    factors, logs, columns = [], [], []
    for term in pair:
        factor, log = split_exponential(term.coefficient)
        factors.append(Coefficient(factor, where)(places, size))
        logs.append(Coefficient(log, where)(places, size))
        columns.append(_columns(term, places, size, where))
    left, right = (0, 1) if size and factors[0][0] > 0 else (1, 0)
    fits = bool((factors[left] > 0).all() and (factors[right] < 0).all() and (col_lower[columns[right]] >= 0).all())
    if not fits:
        if family.privacy:
            raise ModelError(
                f"{where}: privacy rows must be z_i <= exp(...) z_j with positive factors and z_j >= 0, got other rows"
            )
        return None
    ratio = (logs[right] + np.log(-factors[right])) - (logs[left] + np.log(factors[left]))
    if np.isnan(ratio).any():
        raise ModelError(f"{block.row_name(int(np.flatnonzero(np.isnan(ratio))[0]))}: exponent is NaN")
    ratio = np.minimum(ratio, np.finfo(float).max)
    return _ratio_rows(columns[left], columns[right], ratio, n, evolve(block, kind="privacy"))


def _ratio_rows(left: Ints, right: Ints, ratio: Floats, n: int, block: FamilyBlock) -> _Rows:
    size = len(ratio)
    indices = np.stack([left, right], axis=1).ravel()
    data = np.stack([np.ones(size), -np.exp(np.minimum(ratio, LARGEST_LOG))], axis=1)
    data[(left == right) & (ratio >= 0)] = 0.0  # z <= exp(L) z says nothing
    data = data.ravel()
    matrix = sparse.csr_matrix((data, indices, np.arange(0, 2 * size + 1, 2)), shape=(size, n))
    block = evolve(block, log_ratio=read_only(ratio), left=read_only(left), right=read_only(right))
    return _Rows(matrix, np.full(size, -np.inf), np.zeros(size), block)


def activity_bounds(matrix: sparse.csr_matrix, col_lower: Floats, col_upper: Floats) -> tuple[Floats, Floats]:
    """Return the least and greatest value of each row of ``matrix @ x`` for x inside its bounds."""
    positive, negative_part = matrix.maximum(0), matrix.minimum(0)
    positive.eliminate_zeros()
    negative_part.eliminate_zeros()

    def product(part: sparse.csr_matrix, vector: Floats) -> Floats:
        # 0 * inf must count as 0: only stored entries take part
        done = part.copy()
        done.data = done.data * vector[done.indices]
        return np.asarray(done.sum(axis=1)).ravel()

    least = product(positive, col_lower) + product(negative_part, col_upper)
    greatest = product(positive, col_upper) + product(negative_part, col_lower)
    return least, greatest


def _indicator(family: Family, rows: _Rows, places: Places, n: int, col_lower: Floats, col_upper: Floats) -> _Rows:
    """Big-M rows; M is what the bounds say the row can miss its side by while the switch is off."""
    size = len(rows.lower)
    where = f"family {family.name}"
    switch, offset = _matrix(family.switch, places, size, n, f"{where}, binary")
    column, sign = _switch_columns(switch, offset, family, col_lower, col_upper)
    off_value = np.where(sign > 0, 0.0, 1.0)
    own = np.asarray(rows.matrix[np.arange(size), column]).ravel()
    rest = (rows.matrix - sparse.csr_matrix((own, (np.arange(size), column)), shape=(size, n))).tocsr()
    least, greatest = activity_bounds(rest, col_lower, col_upper)
    parts = []
    for side, extreme in ((rows.lower, least), (rows.upper, greatest)):
        if not np.isfinite(side).any():
            continue
        down = side is rows.lower
        miss = side - (extreme + own * off_value) if down else (extreme + own * off_value) - side
        if not np.isfinite(miss).all():
            _no_big_m(family, rows, rest, down, int(np.flatnonzero(~np.isfinite(miss))[0]), col_lower, col_upper)
        big = np.maximum(miss, 0.0)
        # switch s = sign * h + (0 or 1):  row - M s >= side - M   (or row + M s <= side + M)
        step = np.where(sign > 0, -big, big) if down else np.where(sign > 0, big, -big)
        bump = big * (1.0 - off_value)
        matrix = rows.matrix + sparse.csr_matrix((step, (np.arange(size), column)), shape=(size, n))
        bound = side - bump if down else side + bump
        infinite = np.full(size, np.inf)
        parts.append((matrix, bound if down else -infinite, infinite if down else bound))
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
    what = f"family {family.name}: implies({family.shown.binary}, ...): expected a binary h[...] or 1 - h[...]"
    switch.eliminate_zeros()
    if (np.diff(switch.indptr) != 1).any():
        raise ModelError(what)
    column, sign = switch.indices.astype(np.int64), switch.data
    plain = ((sign == 1) & (offset == 0)) | ((sign == -1) & (offset == 1))
    variables = [t.variable for t in family.switch if t.variable is not None]
    binary = all(v.integer for v in variables) and (col_lower[column] >= 0).all() and (col_upper[column] <= 1).all()
    if not plain.all() or not binary:
        raise ModelError(what)
    return column, sign


def _no_big_m(
    family: Family, rows: _Rows, rest: Any, down: bool, row: int, col_lower: Floats, col_upper: Floats
) -> None:
    entries = slice(rest.indptr[row], rest.indptr[row + 1])
    columns, values = rest.indices[entries], rest.data[entries]
    far = np.where((values > 0) == down, col_lower[columns], col_upper[columns])
    culprit = int(columns[np.flatnonzero(~np.isfinite(far))[0]])
    names = [
        t.variable
        for t in family.terms
        if t.variable is not None and t.variable.start <= culprit < t.variable.start + t.variable.size
    ]
    column = variable_block(names[0]).column_name(culprit - names[0].start)
    side = "lower" if far[~np.isfinite(far)][0] < 0 else "upper"
    raise ModelError(f"{rows.block.row_name(row)}: no big-M: {column} has no {side} bound; give it one")


def _ready(block: Block, n: int) -> _Rows:
    source = block.matrix.tocoo()
    matrix = sparse.csr_matrix((source.data, (source.row, block.columns[source.col])), shape=(source.shape[0], n))
    made = FamilyBlock(name=block.name, start=0, stop=source.shape[0], kind="block")
    return _Rows(matrix, block.lower, block.upper, made)
