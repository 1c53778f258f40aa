"""Calendar periods: the day, week or month that contains a row's time in a given time zone."""

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


MACHINE_ZONES: Final = frozenset({"localtime", "posixrules", "Factory"})
"""Names that mean different time zones on different machines, or no time zone at all."""


def _week_name(day: date) -> str:
    """Return the name of the ISO week that contains a day, such as ``2026-W13``.

    Around New Year, the week may belong to a different year from the day.
    """
    year, week, _ = day.isocalendar()
    return f"{year:04d}-W{week:02d}"


PERIODS: Final[dict[str, Callable[[date], str]]] = {
    "day": lambda day: day.isoformat(),
    "week": _week_name,
    "month": lambda day: f"{day.year:04d}-{day.month:02d}",
}
"""Maps each kind of period to a function that names the period containing a day: 2026-03-29, 2026-W13 or 2026-03."""


_FIRST_DAY: Final = {"day": "", "week": "-1", "month": "-01"}
"""The suffix that turns a period's name into the ISO 8601 date of its first day, for each kind of period."""


def _check_period(instance: object, attribute: object, value: Any) -> None:
    """Check that a field's value is a known kind of period (an attrs validator).

    Raises:
        UsageError: The value is not a key of :data:`PERIODS`.
    """
    if not isinstance(value, str) or value not in PERIODS:  # a list, for example, cannot be looked up
        raise UsageError(f"per must be one of {', '.join(PERIODS)}, got {cut(repr(value))}")


def _check_zone(instance: object, attribute: object, value: Any) -> None:
    """Check that a field's value names a time zone that is the same on every machine (an attrs validator).

    Raises:
        UsageError: The time zone is unknown or is one of :data:`MACHINE_ZONES`.
    """
    try:
        is_known = isinstance(value, str) and ZoneInfo(value).key not in MACHINE_ZONES
    except (OSError, ValueError, KeyError):  # KeyError: unknown name; the others: an empty name or a path
        is_known = False
    if not is_known:
        raise UsageError(f"zone must be a time zone such as Europe/Rome or UTC, got {cut(repr(value))}")


@frozen
class Calendar:
    """A kind of calendar period (day, week or month) and a time zone, which together define the periods.

    Ledgers use calendars for limits that apply per period.

    >>> Calendar("week", "Europe/Rome").period_at(datetime(2026, 3, 29, 22, 30, tzinfo=UTC))
    '2026-W14'

    Attributes:
        per: ``"day"``, ``"week"`` (ISO 8601 weeks, which start on Monday) or ``"month"``.
        zone: The time zone's name in the IANA database.

    Raises:
        UsageError: The kind of period or the time zone is unknown.
    """

    per: str = field(validator=_check_period)
    zone: str = field(default="UTC", validator=_check_zone)

    @property
    def text(self) -> str:
        """The calendar in the form used in ledger entries that set a limit, such as ``day Europe/Rome``."""
        return f"{self.per} {self.zone}"

    @classmethod
    def from_text(cls, text: str) -> Self | None:
        """Parse a calendar from its :attr:`text`, or return None if the text does not begin with a known period.

        Raises:
            UsageError: The time zone is unknown.
        """
        per, _, zone = text.partition(" ")
        return cls(per, zone) if per in PERIODS else None

    def period_at(self, moment: date | datetime) -> str:
        """Return the name of the period containing a moment.

        A time with a UTC offset is converted to the calendar's zone first. A date, or a time without an offset, is
        assumed to be in that zone already.
        """
        if isinstance(moment, datetime):
            if moment.tzinfo is not None:
                moment = moment.astimezone(ZoneInfo(self.zone))
            moment = moment.date()
        return PERIODS[self.per](moment)

    def check(self, period: str) -> None:
        """Check that a string is the canonical name of one of this calendar's periods.

        Raises:
            UsageError: The string is not the canonical name of a period.
        """
        try:
            # Only a period's canonical name is accepted, because any other spelling would open a separate account.
            is_valid = PERIODS[self.per](date.fromisoformat(period + _FIRST_DAY[self.per])) == period
        except ValueError:
            is_valid = False
        if not is_valid:
            raise UsageError(
                f"period must be a {self.per} such as {self.period_at(date(2026, 3, 29))}, got {cut(period)}"
            )

    def period_now(self, micros: int) -> str:
        """Return the name of the period that contains a time given in microseconds since 1970 (UTC)."""
        return self.period_at(_EPOCH + timedelta(microseconds=micros))

    def __str__(self) -> str:
        return f"{self.per} ({self.zone})"


def periods_of(column: nw.Series[Any], calendar: Calendar) -> list[str | None]:
    """Return the name of the period containing each row's time, or None for rows without a valid time.

    Args:
        column: ISO 8601 strings, dates or timestamps. Values without a UTC offset are interpreted in the calendar's
            zone.
        calendar: The calendar defining the periods.

    Raises:
        InputError: The column contains numbers, booleans, durations or times of day, which do not identify points in
            time, or a timestamp lies outside the years 1 to 9999.
    """
    if column.dtype.is_numeric() or column.dtype in (nw.Boolean, nw.Duration, nw.Time):
        expectation = "dates and times as ISO 8601 text (2026-05-01T09:00:00+02:00), dates or timestamps"
        raise InputError([Fault(TABLE, f"column {column.name}", "numbers", expectation)])
    if column.dtype in (nw.Date, nw.Datetime):
        try:
            # NaT, the missing time of pandas, is a datetime that does not equal itself.
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
        # The time to the whole second is enough to find its period.
        moments = [None if iso_time is None else iso_time.second for iso_time in iso_times]
    # Names are not cached by moment, because two different instants compare equal in the hour that clocks repeat.
    return [None if moment is None else _period_or_none(calendar, moment) for moment in moments]


def _period_or_none(calendar: Calendar, moment: date) -> str | None:
    """Return the name of a moment's period, or None if the moment cannot be converted to the calendar's zone."""
    try:
        return calendar.period_at(moment)
    except (OverflowError, ValueError):  # within a day of the first or last year; pandas' missing time
        return None
