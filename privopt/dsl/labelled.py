"""Match labelled numbers (from dicts, pandas or polars) to index sets by their labels, never by their position."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

import numpy as np
from scipy import sparse

from privopt.arrays import Floats
from privopt.dsl.sets import IndexSet
from privopt.errors import ModelError, number_of

MASKED_ADVICE = "a masked array (numpy.ma) may lack numbers; give one without a mask, as a.filled(0)"
"""The advice at the end of error messages about masked arrays."""


def as_doubles(values: Any) -> Floats:
    """Convert numbers to an array of doubles.

    NumPy's own conversion would silently drop imaginary parts and masks, parse strings, and count days in dates.

    Raises:
        TypeError, ValueError: The values are not real numbers, or they are a masked array.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise TypeError("a masked array")
    array = np.asarray(values)
    # NumPy would read "5" as a number.
    if array.dtype.kind in "mM":
        raise TypeError("dates")
    if array.dtype.kind in "SU" or (array.dtype == object and any(isinstance(value, str) for value in array.ravel())):
        raise TypeError("texts")
    if np.iscomplexobj(array):
        raise TypeError("complex numbers")
    try:
        return array.astype(np.float64)
    except OverflowError:  # an integer of more than 308 digits
        raise ValueError("integers beyond doubles") from None


def as_double_matrix(matrix: Any) -> Any:
    """Convert a vector or matrix to an array of doubles, or a SciPy sparse object to a CSR matrix of doubles.

    Raises:
        TypeError, ValueError: The entries are not real numbers, or they are a masked array.
    """
    if not sparse.issparse(matrix):
        return as_doubles(matrix)
    rows = matrix.tocsr()
    as_doubles(rows.data)  # rejects complex numbers, because astype would drop their imaginary parts
    return rows.astype(np.float64)


def refuse_masked(values: Any, name: str) -> None:
    """Raise a ModelError whose message begins with ``name`` if ``values`` is a masked array.

    Masked arrays are rejected because their masked entries have no value.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise ModelError(f"{name}: {MASKED_ADVICE}")


def match_labels(source: Any, sets: tuple[IndexSet, ...] | None, name: str) -> Any:
    """Arrange labelled numbers in an array, in the order of the index sets.

    Values without labels are returned unchanged.

    Args:
        source: A dict from labels (tuples of labels, if there are several sets) to numbers; a pandas Series; a pandas
            DataFrame whose rows are labelled by the first set and whose columns are labelled by the second; or a polars
            DataFrame with a column of labels for each set, followed by a column of numbers. A pandas object with the
            default index counts as unlabelled.
        sets: The index sets that the labels belong to, or None if the caller supplied no sets.
        name: The name of the variable or parameter, used as the prefix of error messages.

    Raises:
        ModelError: The numbers have labels but no sets were given, a label is not in its set, a label is missing or
            repeated, or a label's value is not a number.
    """
    refuse_masked(source, name)
    entries = _read_entries(source, sets, name)
    if entries is None:
        return source
    if not sets:
        raise ModelError(f"{name}: numbers with labels need the sets that they are matched with; give these too")
    values = np.zeros(tuple(len(s) for s in sets))
    is_given = np.zeros(values.shape, dtype=bool)
    for key, value in entries:
        # With a single set, a tuple can itself be a label.
        labels = key if isinstance(key, tuple) and (len(sets) > 1 or key not in sets[0]) else (key,)
        if len(labels) != len(sets):
            raise ModelError(f"{name}: a label must have {len(sets)} entries, got {key!r}")
        try:
            position = tuple(s.position(label) for s, label in zip(sets, labels, strict=True))
        except ModelError as error:
            raise ModelError(f"{name}: {error}") from None
        if is_given[position]:
            raise ModelError(f"{name}: the label {key!r} occurs twice")
        try:
            values[position] = value
        except (TypeError, ValueError):
            raise ModelError(f"{name}: the label {key!r} must have a number, got a {type(value).__name__}") from None
        is_given[position] = True
    if not is_given.all():
        missing = tuple(s.labels[int(p)] for s, p in zip(sets, np.argwhere(~is_given)[0], strict=True))
        raise ModelError(f"{name}: no number for the label {missing if len(sets) > 1 else missing[0]!r}")
    return values


def _read_entries(source: Any, sets: tuple[IndexSet, ...] | None, name: str) -> Iterable[tuple[Any, float]] | None:
    """Return the (label, number) pairs in a source, or None if the source has no labels.

    Raises:
        ModelError: The source is a polars table, but its number of columns is not one more than the number of ``sets``.
            The message is prefixed with ``name``.
    """
    if isinstance(source, Mapping):
        return source.items()
    library, kind = type(source).__module__.partition(".")[0], type(source).__name__
    if (library, kind) == ("polars", "DataFrame"):
        if sets is not None and source.width != len(sets) + 1:
            expectation = f"{number_of(len(sets), 'column')} of labels and one of numbers"
            raise ModelError(f"{name}: a polars table must have {expectation}, got {source.columns}")
        return [(row[0] if len(row) == 2 else row[:-1], row[-1]) for row in source.rows()]
    if (library, kind) == ("pandas", "Series"):
        return None if _is_default_index(source.index) else zip(source.index, source.to_numpy(), strict=True)
    if (library, kind) == ("pandas", "DataFrame"):
        if _is_default_index(source.index) and _is_default_index(source.columns):
            return None
        return zip(product(source.index, source.columns), source.to_numpy().ravel(), strict=True)
    return None


def _is_default_index(index: Any) -> bool:
    """Return whether a pandas index is the default index 0, 1, 2, ..."""
    return type(index).__name__ == "RangeIndex" and index.start == 0 and index.step == 1
