"""Calendar periods: the day, week or month, in a time zone, in which a row's own time lies."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final, Self
from zoneinfo import ZoneInfo

import narwhals as nw
from attrs import field, frozen

from privopt.declare.column_texts import TABLE, texts_of
from privopt.errors import Fault, InputError, UsageError, cut
from privopt.ledger.iso_times import read_iso_time

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


SYSTEMS_OWN: Final = frozenset({"localtime", "posixrules", "Factory"})
"""Names that mean another zone on another machine, or none."""


def _week_name(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"{year:04d}-W{week:02d}"


PERIODS: Final[dict[str, Callable[[date], str]]] = {
    "day": lambda day: day.isoformat(),
    "week": _week_name,
    "month": lambda day: f"{day.year:04d}-{day.month:02d}",
}
"""How each kind of period is called: 2026-03-29, 2026-W13 (ISO 8601), 2026-03."""


_FIRST_DAY: Final = {"day": "", "week": "-1", "month": "-01"}
"""What is added to a period's name for the ISO 8601 date of its first day."""


def _check_period(instance: object, attribute: object, value: str) -> None:
    if value not in PERIODS:
        raise UsageError(f"per must be one of {', '.join(PERIODS)}, got {cut(repr(value))}")


def _check_zone(instance: object, attribute: object, value: str) -> None:
    try:
        is_known = ZoneInfo(value).key not in SYSTEMS_OWN
    except (OSError, ValueError, KeyError):  # ZoneInfoNotFoundError is a KeyError; a name may be a path, or none
        is_known = False
    if not is_known:
        raise UsageError(f"zone must be a time zone such as Europe/Rome or UTC, got {cut(repr(value))}")


@frozen
class Calendar:
    """The periods of the calendar in one time zone.

    >>> Calendar("week", "Europe/Rome").period_at(datetime(2026, 3, 29, 22, 30, tzinfo=UTC))
    '2026-W14'

    Attributes:
        per: ``"day"``, ``"week"`` (ISO 8601, from Monday) or ``"month"``.
        zone: name in the IANA database of time zones.

    Raises:
        UsageError: a period or a zone that is not known.
    """

    per: str = field(validator=_check_period)
    zone: str = field(default="UTC", validator=_check_zone)

    @property
    def text(self) -> str:
        """The calendar as an entry of a limit has it, such as ``day Europe/Rome``."""
        return f"{self.per} {self.zone}"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Read what :attr:`text` wrote; None for an entry without a calendar."""
        per, _, zone = text.partition(" ")
        return cls(per, zone) if per in PERIODS else None

    def period_at(self, moment: date | datetime) -> str:
        """Name the period of a moment. With an offset it is an instant, without one a time of the calendar's zone."""
        if isinstance(moment, datetime):
            if moment.tzinfo is not None:
                moment = moment.astimezone(ZoneInfo(self.zone))
            moment = moment.date()
        return PERIODS[self.per](moment)

    def check(self, period: str) -> None:
        """Refuse a text that does not name a period of this calendar.

        Raises:
            UsageError: It does not.
        """
        try:
            # Only the canonical name of a period is accepted: another one would have an account of its own.
            is_valid = PERIODS[self.per](date.fromisoformat(period + _FIRST_DAY[self.per])) == period
        except ValueError:
            is_valid = False
        if not is_valid:
            raise UsageError(
                f"period must be a {self.per} such as {self.period_at(date(2026, 3, 29))}, got {cut(period)}"
            )

    def period_now(self, micros: int) -> str:
        """Name the period of an instant, in microseconds since 1970, UTC."""
        return self.period_at(_EPOCH + timedelta(microseconds=micros))

    def __str__(self) -> str:
        return f"{self.per} ({self.zone})"


def periods_of(column: nw.Series[Any], calendar: Calendar) -> list[str | None]:
    """Name the period of each row of a column of times; None if a row has no usable time.

    Args:
        column: ISO 8601 text, dates, or timestamps. Those without an offset are times of the calendar's zone.
        calendar: whose periods.

    Raises:
        InputError: a column of numbers, which may count from anywhere.
    """
    if column.dtype.is_numeric() or column.dtype in (nw.Boolean, nw.Duration, nw.Time):
        expectation = "dates and times as ISO 8601 text (2026-05-01T09:00:00+02:00), dates or timestamps"
        raise InputError([Fault(TABLE, f"column {column.name}", "numbers", expectation)])
    if column.dtype in (nw.Date, nw.Datetime):
        try:
            moments = [value if isinstance(value, date) and value == value else None for value in column.to_list()]
        except (ValueError, OverflowError):
            expectation = "dates and times of the years 1 to 9999"
            raise InputError(
                [Fault(TABLE, f"column {column.name}", "a time outside these years", expectation)]
            ) from None
    else:
        texts = texts_of(column).to_list()
        time_by_text = {text: read_iso_time(text) for text in dict.fromkeys(texts) if text is not None}
        iso_times = [None if text is None else time_by_text[text] for text in texts]
        moments = [None if iso_time is None else iso_time.second for iso_time in iso_times]
    # no cache by moment: the two times of an hour that clocks repeat are equal and are different instants
    return [None if moment is None else _period_or_none(calendar, moment) for moment in moments]


def _period_or_none(calendar: Calendar, moment: date) -> str | None:
    try:
        return calendar.period_at(moment)
    except (OverflowError, ValueError):  # within a day of the first or last year; pandas' missing time
        return None
