"""Convert table columns to strings and to subjects' names, and name the columns that ``apply`` adds.

A subject is the person (or device) that a row is about.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import narwhals as nw
import numpy as np
from attrs import evolve

from privopt.arrays import Ints, Series
from privopt.declare.frames import type_name
from privopt.declare.name_forms import MAX_TEXT_CHARACTERS, fault_of, fold_subject_name
from privopt.declare.tables import plain_texts
from privopt.errors import Fault, InputError

STICKY: Final = "sticky"
"""The name of the column that marks a table in which later rows may repeat a subject's stored report."""


REPORT: Final = "report"
"""The name of the column that contains the reports. It is also the prefix for the names of their coordinate columns."""


KEPT: Final = "kept"
"""The name of the column that says whether a report repeats the subject's previous report."""


FIRST: Final = "report_first"
"""The name of the column that marks each subject's earliest report. Estimates use only these reports, because whether a
later report is drawn or repeated depends on earlier ones, whereas the earliest is always drawn."""


TABLE: Final = "table"
"""The name used in faults for a table in memory, or for a table whose file is unknown."""


def prefix_name(prefix: str | None, name: str) -> str:
    """Return the name of an added column: ``<prefix>_<name>``, or just ``name`` if the prefix is None."""
    return name if prefix is None else f"{prefix}_{name}"


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Insert a file name into the faults of errors raised inside a ``with`` block.

    Code that only has access to a table's columns uses the placeholder :data:`TABLE` in its faults. The placeholder is
    replaced here with the name of the file.
    """
    try:
        yield
    except InputError as error:
        raise InputError(
            [evolve(fault, file=file) if fault.file == TABLE else fault for fault in error.faults]
        ) from None


def texts_of(column: nw.Series[Any]) -> Series:
    """Convert a column to strings in normal form, without surrounding blanks.

    Missing and blank cells become null. Whole numbers are written without a decimal point.

    Raises:
        InputError: The column has values that cannot be names, such as lists or bytes.

    >>> texts_of(nw.new_series("id", [7.0, None, 3.5], backend="polars")).to_list()
    ['7', None, '3.5']
    """
    import polars as pl

    # Such values cannot be names, because two cells with the same items could be written differently.
    if isinstance(column.dtype, (nw.List, nw.Array, nw.Struct, nw.Binary, nw.Duration)):
        actual = f"values of type {type_name(column.dtype)}"
        raise InputError([Fault(TABLE, f"column {column.name}", actual, "text or numbers")])
    native = column.to_native()
    if column.dtype.is_float():
        # Single-precision numbers are not converted to doubles, which would change the text from 0.1 to
        # 0.10000000149011612.
        double = np.float32 if column.dtype == nw.Float32 else np.float64
        doubles = native if isinstance(native, pl.Series) else pl.Series(column.to_numpy().astype(double))
        native = plain_texts(doubles.fill_nan(None)).alias(column.name)
    elif not isinstance(native, pl.Series) or native.dtype == pl.Object:
        # polars cannot convert Python objects to text.
        missing = column.is_null().to_list()
        texts = [
            None if is_missing else str(value) for value, is_missing in zip(column.to_list(), missing, strict=True)
        ]
        native = pl.Series(column.name, texts, dtype=pl.String)
    text = plain_texts(native).str.strip_chars()
    return pl.select(pl.when(text != "").then(text)).to_series().alias(column.name)


def number_ids(texts: Series, numbers: Mapping[str, int]) -> Ints:
    """Return the index of each string among the known ids, or -1 if it is not one of them.

    In a column with missing cells, pandas writes the whole number 132 as 132.0. The string 132.0 is therefore read as
    the id 132, unless there is an id 132.0.

    >>> import polars as pl
    >>> number_ids(pl.Series(["132.0", "7", None, "7.5"]), {"132": 0, "7": 1}).tolist()
    [0, 1, -1, -1]

    Args:
        texts: The B strings to look up.
        numbers: A mapping from each id to its index.

    Returns:
        Array of shape (B,) with the indices.
    """
    import polars as pl

    integer_texts = texts.str.replace(r"^(-?\d+)\.0+$", "${1}")
    exact_numbers, integer_numbers = (
        np.asarray(column.replace_strict(numbers, default=-1, return_dtype=pl.Int64), dtype=np.int64)
        for column in (texts, integer_texts)
    )
    return np.where(exact_numbers < 0, integer_numbers, exact_numbers)


def subjects_of(column: nw.Series[Any]) -> Series:
    """Convert a column to subjects' names in normal form (:func:`fold_subject_name`). Missing names become null.

    Raises:
        InputError: Some names are too long or contain forbidden characters. The message does not quote the names.
    """
    import polars as pl

    texts = texts_of(column)
    # Each distinct text is converted only once, because a table usually has far fewer subjects than rows.
    forms = {text: fold_subject_name(text) or None for text in texts.drop_nulls().unique(maintain_order=True).to_list()}
    # The message gives only the kind of fault and the number of rows, because a name may be a person's.
    faults = {text: fault for text, name in forms.items() if name and (fault := fault_of(name))}
    if faults:
        actual = f"{next(iter(faults.values()))} ({texts.is_in(list(faults)).sum():,} such rows)"
        expectation = f"names of at most {MAX_TEXT_CHARACTERS:,} characters that can be seen"
        raise InputError([Fault(TABLE, f"column {texts.name}", actual, expectation)])
    return texts.replace_strict(forms, default=None, return_dtype=pl.String).alias(texts.name)
