"""Columns of tables as text, and as subjects; names of the columns that apply writes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import evolve

from privopt.declare.name_forms import MAX_TEXT_CHARACTERS, fault_of, folded
from privopt.declare.tables import plain_texts
from privopt.errors import Fault, InputError

STICKY: Final = "sticky"
"""The column that marks a table whose reports repeat."""


REPORT: Final = "report"


KEPT: Final = "kept"
"""The column that says which reports repeat the subject's last."""


FIRST: Final = "report_first"
"""The column that says which report is its subject's first in time, drawn whatever came of the others: estimates take
it alone, for which of the others are fresh depends on the reports before."""


TABLE: Final = "table"
"""What faults call a table that is in memory, or whose file they do not know."""


def prefixed(prefix: str | None, name: str) -> str:
    """Return the name of an added column, behind its prefix if there is one."""
    return name if prefix is None else f"{prefix}_{name}"


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Add the table's file to faults that a block raises, because code that sees only columns does not know it."""
    try:
        yield
    except InputError as error:
        raise InputError(
            [evolve(fault, file=file) if fault.file == TABLE else fault for fault in error.faults]
        ) from None


def texts_of(column: nw.Series[Any]) -> pl.Series:
    """Return a column as text in normal form, stripped; null if it is missing or blank. Whole numbers have no point.

    >>> texts_of(nw.new_series("id", [7.0, None, 3.5], backend="polars")).to_list()
    ['7', None, '3.5']
    """
    if isinstance(column.dtype, (nw.List, nw.Array, nw.Struct, nw.Binary)):
        actual = f"values of type {column.dtype}"
        raise InputError([Fault(TABLE, f"column {column.name}", actual, "text or numbers")])
    native = column.to_native()
    if column.dtype.is_float():
        double = np.float32 if column.dtype == nw.Float32 else np.float64
        doubles = native if isinstance(native, pl.Series) else pl.Series(column.to_numpy().astype(double))
        native = plain_texts(doubles.fill_nan(None)).alias(column.name)
    elif not isinstance(native, pl.Series):
        missing = column.is_null().to_list()
        texts = [
            None if is_missing else str(value) for value, is_missing in zip(column.to_list(), missing, strict=True)
        ]
        native = pl.Series(column.name, texts, dtype=pl.String)
    text = plain_texts(native).str.strip_chars()
    return pl.select(pl.when(text != "").then(text)).to_series().alias(column.name)


def subjects_of(column: nw.Series[Any]) -> pl.Series:
    """Return a column of names as text, each in its normal form (:func:`folded`); null without a name."""
    texts = texts_of(column)
    # Distinct texts only: a table has far fewer subjects than rows.
    forms = {text: folded(text) or None for text in texts.drop_nulls().unique(maintain_order=True).to_list()}
    faults = {text: fault for text, name in forms.items() if name and (fault := fault_of(name))}
    if faults:
        actual = f"{next(iter(faults.values()))} ({texts.is_in(list(faults)).sum():,} such rows)"
        expectation = f"names of at most {MAX_TEXT_CHARACTERS:,} characters that can be seen"
        raise InputError([Fault(TABLE, f"column {texts.name}", actual, expectation)])
    return texts.replace_strict(forms, default=None, return_dtype=pl.String).alias(texts.name)
