"""Dates and times as ISO 8601 writes them, read exactly."""

from __future__ import annotations

import re
from datetime import datetime
from fractions import Fraction
from typing import Final

from attrs import frozen

_ISO: Final = re.compile(
    r"(?P<day>[0-9]{4}-[0-9]{2}-[0-9]{2})"
    r"([T ](?P<clock>[0-9]{2}:[0-9]{2}(:[0-9]{2})?)([.,](?P<part>[0-9]{1,60}))?"
    r" ?(?P<offset>Z|UTC|[+-][0-9]{2}:?[0-9]{2})?)?",
    re.ASCII,
)


@frozen
class IsoTime:
    """A date, or a date and time.

    Attributes:
        moment: to the whole second (or minute, where no seconds were written); without an offset it is naive.
        beyond: the rest, in seconds, from 0 to less than 60.
    """

    moment: datetime
    beyond: Fraction


def read_iso_time(text: str) -> IsoTime | None:
    """Read a date or time; None where the text is neither.

    >>> read_iso_time("2026-03-29T01:30:00.25+01:00").beyond
    Fraction(1, 4)
    >>> read_iso_time("2026-02-29") is None
    True
    """
    found = _ISO.fullmatch(text)
    if found is None:
        return None
    offset = (found["offset"] or "").replace("Z", "+00:00").replace("UTC", "+00:00")
    clock = found["clock"] or "00:00"
    try:
        moment = datetime.fromisoformat(f"{found['day']}T{clock}{offset}")
    except ValueError:
        return None
    unit = 60 if clock.count(":") == 1 else 1
    part = found["part"]
    return IsoTime(moment, Fraction(unit * int(part), 10 ** len(part)) if part else Fraction(0))
