"""Compute the matrix entries of linear terms, by expanding sums to arrays of positions and evaluating coefficients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy import sparse

from privopt.arrays import Floats, Ints
from privopt.dsl.linear import Coefficients, Places, SummedIndices, Term, index_values
from privopt.dsl.symbols import Index
from privopt.errors import ModelError


def bind_indices(binding: SummedIndices, places: Places, rows: Ints, size: int) -> tuple[dict[Index, Ints], Ints, int]:
    """Expand matrix entries over a sum, by repeating each entry once for every index tuple that the sum runs over.

    Args:
        binding: The summed indices, and the tuples that they are restricted to, if any.
        places: The positions of the indices bound so far, as one array of shape (size,) for each index.
        rows: (size,) The row that each entry belongs to.
        size: The number of entries so far.

    Returns:
        The positions of all indices, the row that each entry belongs to, and the number of entries.
    """
    bound = dict(places)
    restriction = binding.restriction
    joined_indices: set[Index] = set()
    if restriction is not None:
        # Outer indices already have values in each row. Inner ones get their values from the tuples, even if a sum
        # around this one runs over the same index.
        outer = [i for i in restriction.indices if i not in binding.over]
        inner = [i for i in restriction.indices if i in binding.over]
        joined_indices = set(inner)
        columns = dict(zip(restriction.indices, restriction.positions, strict=True))
        shape = tuple(len(i.index_set) for i in outer)
        # Join the rows and the tuples on the outer indices. With the tuples sorted by these, those that match a row
        # form one range.
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
        # Counts 0, 1, 2, ... within the range of each entry, like a loop over the entry's tuples.
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


def location_text(places: Places, entry: int) -> str:
    """Return a suffix for messages that lists the labels of an entry's indices, such as " at i = 'a'".

    The suffix is empty if the entry has no indices.

    Args:
        places: For each index, an array of shape (entries,) with the positions of its values.
        entry: The position of the entry.
    """
    location = ", ".join(f"{i} = {i.index_set.labels[int(p[entry])]!r}" for i, p in places.items())
    return f" at {location}" if location else ""


def term_entries(
    term: Term,
    places: Places,
    size: int,
    where: str,
    coefficients: Coefficients,
    *,
    allow_infinite: bool = False,
) -> tuple[Ints, Ints | None, Floats]:
    """Return the rows, columns and values of a term's matrix entries. The columns are None for a constant term.

    Args:
        term: ``coefficient * variable[indices]``, with the sums that enclose it.
        places: For each of the rows' indices, an array of shape (size,) with the positions of its values.
        size: The number of rows.
        where: The part of the model to name in error messages: a family of rows or "objective".
        coefficients: The cache of compiled coefficients. A missing one is added.
        allow_infinite: Whether a constant may be infinite.

    Raises:
        ModelError: A value is NaN, or is infinite when this is not allowed.
    """
    # The row's other indices do not affect the term, so their positions need not be copied.
    needed = term.free_indices() | {i for b in term.bindings for i in b.over}
    bound: Places = {i: p for i, p in places.items() if i in needed}
    rows = np.arange(size)
    for binding in term.bindings:
        bound, rows, size = bind_indices(binding, bound, rows, size)
    values = coefficients.get(term.coefficient, where)(bound, size)
    # An infinite constant means that the row has no bound on one side, or that no point satisfies it.
    is_valid = ~np.isnan(values) if term.variable is None and allow_infinite else np.isfinite(values)
    if not is_valid.all():
        entry = int(np.flatnonzero(~is_valid)[0])
        subject = "the constant" if term.variable is None else "the coefficient of"
        actual = f"{values[entry]}{location_text(bound, entry)}"
        raise ModelError(f"{where}: {subject} {term} must be finite, got {actual}")
    if term.variable is None:
        return rows, None, values
    return rows, term_columns(term, bound, size, where), values


def term_columns(term: Term, places: Places, size: int, where: str) -> Ints:
    """Return the column index of a term's variable for each index tuple as an array of shape (size,).

    Args:
        term: The term, which must contain a variable.
        places: For each index, an array of shape (size,) with the positions of its values.
        size: The number of index tuples.
        where: The part of the model to name in error messages: a family of rows or "objective".
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


def terms_matrix(
    terms: Sequence[Term],
    places: Places,
    size: int,
    n: int,
    where: str,
    coefficients: Coefficients,
    *,
    allow_infinite: bool = False,
) -> tuple[Any, Floats]:
    """Return the CSR matrix of a sum of terms, and the constant of each row.

    The matrix has shape (size, n), and the constants have shape (size,).

    Args:
        terms: The terms.
        places: For each index, an array of shape (size,) with the position of its value in each row.
        size, n: The number of rows, and the number of columns in the model.
        where: The part of the model to name in error messages: a family of rows or "objective".
        coefficients: The cache of compiled coefficients. Missing ones are added.
        allow_infinite: Whether constants may be infinite.
    """
    rows, columns, values = [], [], []
    constant = np.zeros(size)
    for term in terms:
        r, c, v = term_entries(term, places, size, where, coefficients, allow_infinite=allow_infinite)
        if c is None:
            # Infinities of opposite signs give NaN, for which the form raises an error that names the row.
            with np.errstate(invalid="ignore"):
                constant += np.bincount(r, weights=v, minlength=size)
        else:
            rows.append(r)
            columns.append(c)
            values.append(v)
    # Solvers expect 32-bit indices, so 64-bit ones are used only where needed.
    kind = np.int32 if max(n, size, sum(map(len, rows))) < 2**31 else np.int64
    triple = [np.concatenate(x) if x else np.zeros(0) for x in (rows, columns, values)]
    return _sum_duplicates(triple[2], triple[0].astype(kind), triple[1].astype(kind), (size, n)), constant


def _sum_duplicates(values: Any, rows: Ints, columns: Ints, shape: tuple[int, int]) -> Any:
    """Return a CSR matrix in which entries with the same row and column are added up.

    If such entries cancel out up to rounding errors, their sum becomes exactly 0.

    Args:
        values, rows, columns: (entries,) The value, row and column of each entry, in any order.
        shape: The number of rows and the number of columns of the matrix.
    """
    matrix = sparse.csr_matrix((values, (rows, columns)), shape=shape)
    if matrix.nnz < len(values):
        # Both matrices are summed in the same way, so their entries correspond.
        magnitude = sparse.csr_matrix((np.abs(values), (rows, columns)), shape=shape)
        # Rounding errors are proportional to the sum of absolute values. 2**-50 is eight times the unit roundoff.
        matrix.data[np.abs(matrix.data) <= 2.0**-50 * magnitude.data] = 0.0
    return matrix
