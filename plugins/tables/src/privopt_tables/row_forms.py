"""Read subjects and times of rows in the forms in which people write them."""

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
"""What programs write for a missing value, in lower case."""

UNIX_UNITS: Final = {"unix": 0, "unix-ms": 3, "unix-us": 6, "unix-ns": 9}
"""Epochs by name, and the decimals of a second in which they count."""

_TOKENS: Final = {"YYYY": "%Y", "YY": "%y", "DD": "%d", "HH": "%H", "SS": "%S"}
_TOKEN: Final = re.compile(r"YYYY|YY|MM|DD|HH|SS|%.", re.DOTALL)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def is_null_word(texts: pl.Series) -> pl.Series:
    """Check for each text whether it is a word for a missing value; False for null."""
    return texts.str.to_lowercase().is_in(list(NULL_WORDS)).fill_null(False)


def _time_pattern(time_format: str) -> str:
    """Return the pattern of :meth:`datetime.strptime` for ``DD/MM/YYYY HH:MM``; MM after HH means minutes."""
    has_hour = False

    def token(match: re.Match[str]) -> str:
        nonlocal has_hour
        found = match[0]
        has_hour = has_hour or found in ("HH", "%H", "%I")
        return ("%M" if has_hour else "%m") if found == "MM" else _TOKENS.get(found, found)

    return _TOKEN.sub(token, time_format)


def _check_time_format(instance: object, attribute: object, value: str | None) -> None:
    if value is None or value in UNIX_UNITS:
        return
    pattern = _time_pattern(value)
    try:
        moment = datetime(2026, 11, 29, 14, 35, 46, tzinfo=UTC)
        days = datetime.strptime(moment.strftime(pattern), pattern).date()
    except ValueError:
        days = None
    if days != moment.date():
        wanted = f"the form of a date such as DD/MM/YYYY HH:MM, or one of {', '.join(UNIX_UNITS)}"
        raise UsageError(f"time-format must be {wanted}, got {cut(repr(value))}")


@frozen
class RowForms:
    """The forms of a table's subjects and times.

    Attributes:
        time_format: ``DD/MM/YYYY HH:MM`` and the like, a pattern of strptime, or a name in :data:`UNIX_UNITS`; None for
            ISO 8601.
        null_names: Whether NULL, NA, None and the like are names of subjects.
    """

    time_format: str | None = field(default=None, validator=_check_time_format)
    null_names: bool = False

    def subjects(self, column: nw.Series[Any]) -> pl.Series:
        """Return the subject of each row in its one form, null for nobody."""
        names = subjects_of(column)
        if self.null_names:
            return names
        return pl.select(pl.when(~is_null_word(names)).then(names)).to_series().alias(names.name)

    def times(self, column: nw.Series[Any]) -> nw.Series[Any]:
        """Return a column of times as ISO 8601 texts; as it is without a format. Unreadable times become the text ?."""
        if self.time_format is None or column.dtype.is_temporal():
            return column
        texts = texts_of(column)
        forms = {text: _iso_text(text, self.time_format) for text in texts.drop_nulls().unique().to_list()}
        read = texts.replace_strict(forms, default=None, return_dtype=pl.String).alias(column.name)
        return nw.from_native(read, series_only=True)


def _iso_text(text: str, time_format: str) -> str:
    """Return a time as ISO 8601 text; ``?``, which is none, if it is not of this form."""
    try:
        if time_format not in UNIX_UNITS:
            return datetime.strptime(text, _time_pattern(time_format)).isoformat()
        number = Decimal(text)
        if not number.is_finite():
            return "?"
        # rounded down, so that an instant before midnight stays in its day
        micros = int((number.scaleb(6 - UNIX_UNITS[time_format])).to_integral_value("ROUND_FLOOR"))
        return (_EPOCH + timedelta(microseconds=micros)).isoformat()
    except (ValueError, OverflowError, InvalidOperation):
        return "?"
