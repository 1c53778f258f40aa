"""An exact parser for dates and times in ISO 8601 formats."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, timezone
from fractions import Fraction
from typing import Final

from attrs import frozen

_ISO: Final = re.compile(
    r"(?P<year>[0-9]{4})"
    r"(?:-(?P<month>[0-9]{2})-(?P<day>[0-9]{2})|(?P<basic_month>[0-9]{2})(?P<basic_day>[0-9]{2})"
    r"|-?W(?P<week>[0-9]{2})-?(?P<weekday>[1-7])"
    r"|-?(?P<ordinal>[0-9]{3}))"
    r"(?:[T ](?P<hour>[0-9]{2})(?::?(?P<minute>[0-9]{2})(?::?(?P<second>[0-9]{2}))?)?"
    r"(?:[.,](?P<part>[0-9]{1,60}))?"
    r" ?(?P<offset>Z|UTC|(?P<sign>[+\u2212-])(?P<offset_hour>[0-9]{2})(?::?(?P<offset_minute>[0-9]{2}))?)?)?",
    re.ASCII | re.IGNORECASE,
)
"""Matches a calendar, week or ordinal date, with or without separators, and optionally a time and a UTC offset."""


@frozen
class IsoTime:
    """A parsed date, or a date and time.

    Attributes:
        moment: The date and time, without any decimal fraction of the last unit. It is a naive datetime if the text has
            no offset.
        excess_seconds: A number of seconds below 3600 to add to ``moment``. It represents a decimal fraction in the
            text (such as 1800 for 10.5 hours), plus 1 for a leap second.
        is_leap_second: Whether the text denotes a leap second.
    """

    moment: datetime
    excess_seconds: Fraction
    is_leap_second: bool = False

    @property
    def second(self) -> datetime:
        """The start of the second containing the time or, for a leap second, the start of the second before it."""
        return self.moment if self.is_leap_second else self.moment + timedelta(seconds=int(self.excess_seconds))


def read_iso_time(text: str) -> IsoTime | None:
    """Parse a date or time in any common ISO 8601 format, or return None for any other string.

    Week dates (2020-W53-5), ordinal dates (2021-003), the basic form (20210103T100000Z), 24:00 and leap seconds are
    accepted.

    >>> read_iso_time("2026-03-29T01:30:00.25+01:00").excess_seconds
    Fraction(1, 4)
    >>> read_iso_time("2020-W53-5T10:00Z").moment.isoformat(), read_iso_time("2021003T24").moment.isoformat()
    ('2021-01-01T10:00:00+00:00', '2021-01-04T00:00:00')
    >>> read_iso_time("2026-02-29") is None
    True
    """
    match = _ISO.fullmatch(text)
    if match is None:
        return None
    hour, minute, second = (int(match[name] or 0) for name in ("hour", "minute", "second"))
    part = match["part"]
    # Decimals are a fraction of the last unit that is written, so 10.5 is half past ten.
    unit = 1 if match["second"] else 60 if match["minute"] else 3600
    excess_seconds = Fraction(unit * int(part), 10 ** len(part)) if part else Fraction(0)
    is_midnight = hour == 24 and minute == second == 0 and excess_seconds == 0
    # UTC inserts leap seconds after 23:59:59, which is minute 59 in every zone with an offset of whole hours.
    is_time = hour < 24 and minute < 60 and (second < 60 or (second == 60 and minute == 59))
    if not (is_midnight or is_time):
        return None
    try:
        midnight = datetime.combine(_read_date(match), time(), tzinfo=_read_offset(match))
        moment = midnight + timedelta(hours=hour, minutes=minute, seconds=min(second, 59))
    except (ValueError, OverflowError):  # a day that does not exist, or one outside the years 1 to 9999
        return None
    return IsoTime(moment, excess_seconds + (second == 60), second == 60)


def _read_date(match: re.Match[str]) -> date:
    """Return the date described by a match of :data:`_ISO`.

    Raises:
        ValueError: There is no such day.
    """
    year = int(match["year"])
    if match["week"]:
        return date.fromisocalendar(year, int(match["week"]), int(match["weekday"]))
    if match["ordinal"]:
        # Day 366 of a common year and day 000 are in another year.
        day = date(year, 1, 1) + timedelta(days=int(match["ordinal"]) - 1)
        if day.year != year:
            raise ValueError(f"a year of fewer than {match['ordinal']} days")
        return day
    return date(year, int(match["month"] or match["basic_month"]), int(match["day"] or match["basic_day"]))


def _read_offset(match: re.Match[str]) -> timezone | None:
    """Return the UTC offset in a match of :data:`_ISO`, or None if the text has no offset.

    Raises:
        ValueError: The offset is too large for a time zone, or its minutes exceed 59.
    """
    if not match["offset"]:
        return None
    if not match["sign"]:
        return UTC
    hours, minutes = int(match["offset_hour"]), int(match["offset_minute"] or 0)
    if minutes > 59:
        raise ValueError("an offset of over 59 minutes")
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(offset if match["sign"] == "+" else -offset)
