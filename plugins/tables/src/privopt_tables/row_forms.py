"""Read each row's subject and time, in commonly used formats.

Subjects' names are normalised, so that all rows of a subject are charged to one account. A time in an unexpected format
is an error: its meaning is never guessed.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import narwhals as nw
import polars as pl
from attrs import field, frozen

from privopt.declare.column_texts import subjects_of, texts_of
from privopt.errors import UsageError, cut

__all__ = ["NULL_WORDS", "RowForms", "is_null_word"]

NULL_WORDS: Final = frozenset({"null", "na", "n/a", "#n/a", "none", "nan", "nil", "<na>", "nat", "\\n", "(null)"})
"""Lower-case words that programs write in place of missing values."""

UNIX_UNITS: Final = {"unix": 0, "unix-ms": 3, "unix-us": 6, "unix-ns": 9}
"""Time formats that count units since the start of 1970. Each format is mapped to the number p such that its unit is
10**-p seconds."""

# MM is not in this table, because it means the month or, after the hour, minutes.
_TOKENS: Final = {"YYYY": "%Y", "YY": "%y", "DD": "%d", "HH": "%H", "SS": "%S"}
_TOKEN: Final = re.compile(r"YYYY|YY|MM|DD|HH|SS|%.", re.DOTALL)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_null_word(texts: pl.Series) -> pl.Series:
    """Return a mask of the strings that stand for a missing value, such as NULL or NA. Nulls are False in the mask."""
    return texts.str.to_lowercase().is_in(list(NULL_WORDS)).fill_null(False)


def _time_pattern(time_format: str) -> str:
    """Convert a format such as ``DD/MM/YYYY HH:MM`` to a pattern for :meth:`datetime.strptime`.

    MM means minutes if it follows HH, and the month otherwise.
    """
    has_hour = False

    def replace_token(match: re.Match[str]) -> str:
        """Return the strptime directive for a token such as YYYY or MM."""
        nonlocal has_hour
        # MM means the month until an hour has occurred.
        token = match[0]
        has_hour = has_hour or token in ("HH", "%H", "%I")
        return ("%M" if has_hour else "%m") if token == "MM" else _TOKENS.get(token, token)

    return _TOKEN.sub(replace_token, time_format)


def _check_time_format(instance: object, attribute: object, value: str | None) -> None:
    """Reject a time format if part of a date is lost when the date is written in this format and read back.

    This is an attrs validator.

    Args:
        instance, attribute: The object and its attribute, as passed by attrs. They are not used.
        value: The format to check.

    Raises:
        UsageError: A date changes when written and read back in this format, for example because the format lacks the
            year.
    """
    if value is None or value in UNIX_UNITS:
        return
    pattern = _time_pattern(value)
    try:
        # Writing a time and reading it back shows whether the format contains day, month and year. A missing part would
        # be read as that of the default date, 1 January 1900.
        moment = datetime(2026, 11, 29, 14, 35, 46, tzinfo=UTC)
        date_read = datetime.strptime(moment.strftime(pattern), pattern).date()
    except ValueError:
        date_read = None
    if date_read != moment.date():
        expectation = f"the form of a date such as DD/MM/YYYY HH:MM, or one of {', '.join(UNIX_UNITS)}"
        raise UsageError(f"time-format must be {expectation}, got {cut(repr(value))}")


@frozen
class RowForms:
    """The formats of a table's subjects and times.

    Attributes:
        time_format: A format such as ``DD/MM/YYYY HH:MM``, a strptime pattern, or a name in :data:`UNIX_UNITS`. If
            None, times are in ISO 8601.
        null_names: Whether words such as NULL, NA and None are treated as names of subjects rather than as missing
            values.
    """

    time_format: str | None = field(default=None, validator=_check_time_format)
    null_names: bool = False

    def subjects(self, column: nw.Series[Any]) -> pl.Series:
        """Return the normalised name of each row's subject, or null for a row without a subject."""
        names = subjects_of(column)
        if self.null_names:
            return names
        return pl.select(pl.when(~is_null_word(names)).then(names)).to_series().alias(names.name)

    def times(self, column: nw.Series[Any]) -> nw.Series[Any]:
        """Convert a column of times to ISO 8601 strings.

        The column is returned unchanged if no format is set or if it already has a date or time type. A time that does
        not match the format becomes ``?``, which is later rejected as an invalid time.
        """
        if self.time_format is None or column.dtype.is_temporal():
            return column
        texts = texts_of(column)
        # Each distinct text is converted only once.
        iso_texts = {text: _iso_text(text, self.time_format) for text in texts.drop_nulls().unique().to_list()}
        times = texts.replace_strict(iso_texts, default=None, return_dtype=pl.String).alias(column.name)
        return nw.from_native(times, series_only=True)


def _iso_text(text: str, time_format: str) -> str:
    """Convert a time to an ISO 8601 string, rounded down to microseconds.

    Args:
        text: The time to convert.
        time_format: The format of ``text``, such as ``DD/MM/YYYY HH:MM``, or a name in :data:`UNIX_UNITS`.

    Returns:
        The ISO 8601 string, or ``?`` if ``text`` does not match this format.
    """
    try:
        if time_format not in UNIX_UNITS:
            return datetime.strptime(text, _time_pattern(time_format)).isoformat()
        number = Decimal(text)
        if not number.is_finite():
            return "?"
        # Times are rounded down to microseconds, so that a time just before midnight stays in its day.
        micros = int((number.scaleb(6 - UNIX_UNITS[time_format])).to_integral_value("ROUND_FLOOR"))
        return (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except (ValueError, OverflowError, InvalidOperation):
        return "?"
