"""The exact order of a column's times: different times stay different, and none is guessed."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl

from privopt.arrays import Ints
from privopt.declare.column_texts import TABLE, texts_of
from privopt.declare.iso_times import read_iso_time
from privopt.errors import Fault, InputError, cut

__all__ = ["ranks_of"]

_WANTED: Final = "whole numbers, or ISO 8601 dates and times (2026-05-01T09:00:00.5Z), all of one form"
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,60}", re.ASCII)


def ranks_of(column: nw.Series[Any]) -> Ints:
    """Return (B,) the rank of each row's time: numbers, dates and times in their order, texts by what they say.

    Raises:
        InputError: a row without a time, text that says none, or times of several forms, which have no order.
    """
    texts = texts_of(column)
    if texts.null_count():
        raise _fault(column, int(texts.is_null().arg_true()[0]), "nothing", "when the row was")
    if column.dtype.is_numeric() or (column.dtype.is_temporal() and column.dtype != nw.Time):
        return np.asarray(column.rank("dense").to_numpy(), dtype=np.int64)
    said = texts.unique(maintain_order=True)
    read = [_read(text) for text in said.to_list()]
    forms = [None if each is None else each[0] for each in read]
    odd = next((text for text, form in zip(said.to_list(), forms, strict=True) if form is None), None)
    if odd is None:
        odd = next((text for text, form in zip(said.to_list(), forms, strict=True) if form != forms[0]), None)
    if odd is not None:
        raise _fault(column, int((texts == odd).arg_true()[0]), cut(repr(odd)), _WANTED)
    times = [each[1] for each in read if each is not None]
    rank = {time: number for number, time in enumerate(sorted(set(times)))}
    return np.asarray(texts.replace_strict(said, [rank[time] for time in times], return_dtype=pl.Int64), dtype=np.int64)


def _fault(column: nw.Series[Any], row: int, got: str, wanted: str) -> InputError:
    """Return a fault of the row of that number from 0; the header is row 1, as everywhere."""
    return InputError([Fault(TABLE, f"row {row + 2:,}, column {column.name}", got, wanted)])


def _read(text: str) -> tuple[str, Fraction] | None:
    """Return the form of a time, and a number in whose order times of that form are; None where it says none."""
    if _WHOLE.fullmatch(text):
        return "number", Fraction(int(text))
    found = read_iso_time(text)
    if found is None:
        return None
    moment = found.moment
    since = moment.replace(tzinfo=moment.tzinfo or UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = Fraction(86_400 * since.days + since.seconds) + found.beyond
    return "zone" if moment.tzinfo else "no zone", seconds
