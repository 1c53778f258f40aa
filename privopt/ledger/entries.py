"""Entries of a ledger: what they say, as text and as the hash that chains each to the one before."""

from __future__ import annotations

import hashlib
import json
import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from attrs import field, frozen

from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError, cut
from privopt.ledger.periods import Calendar

__all__ = [
    "BEGINNING",
    "LONGEST",
    "MICROS",
    "Account",
    "Amount",
    "Charge",
    "Cost",
    "Limit",
    "Terms",
    "account_name",
    "amount_of",
    "chained",
    "name_and_period",
]

BEGINNING: Final = bytes(32)
"""The hash before the first entry's."""

MICROS: Final = 3_600_000_000
"""Microseconds of an hour: times are whole microseconds since 1970, UTC."""

LONGEST: Final = 1_000
"""Characters of the longest subject, unit or purpose."""

BETWEEN: Final = "\x1f"
"""What stands between a subject's name and a period in the name of an account: no name holds a control character."""

_AMOUNT: Final = re.compile(r"\d{1,40}(\.\d{1,40})?|\d{1,40}/0*[1-9]\d{0,39}", re.ASCII)

Amount = str | int | Fraction
"""How a caller may say an amount: no double, for it would not be what was meant."""


def amount_of(value: Amount, what: str, *, zero: bool = False) -> Fraction:
    """An amount, exactly.

    >>> amount_of("0.10", "epsilon")
    Fraction(1, 10)

    Args:
        value: a rational, a whole number, or text: a decimal or a quotient. No double: it would not be what was meant.
        what: its name in messages.
        zero: whether it may be 0.

    Raises:
        UsageError: something else, or an amount below 0.
    """
    found: Fraction | None = None
    if isinstance(value, str) and _AMOUNT.fullmatch(value.strip()):
        found = Fraction(value.strip())
    elif isinstance(value, int | Fraction) and not isinstance(value, bool):
        found = Fraction(value)
    if found is None or found < 0 or (found == 0 and not zero):
        least = "of at least 0" if zero else "above 0"
        raise UsageError(f"{what}: found {cut(repr(value))}, wanted an amount {least}: 0.5 or 1/3, as text or exact")
    return found


def _epsilon(value: Amount) -> Fraction:
    return amount_of(value, "epsilon")


def _limit(value: Amount) -> Fraction:
    return amount_of(value, "limit", zero=True)


def _hours(value: Amount | None) -> Fraction | None:
    return None if value is None else amount_of(value, "window")


def _short(instance: object, attribute: object, value: str) -> None:
    name = getattr(attribute, "name", "")
    if not isinstance(value, str) or len(value) > LONGEST or not value.isprintable():
        raise UsageError(f"{name}: found {cut(repr(value))}, wanted a line of at most {LONGEST:,} characters")


@frozen(kw_only=True)
class Cost:
    """What one report, or one release, costs a subject.

    >>> Cost(epsilon="0.5", unit="per km", purpose="morning").epsilon
    Fraction(1, 2)

    Attributes:
        epsilon: exactly; text is read as a decimal or a quotient.
        unit: of epsilon, as the notion has it: a ledger has one.
        notion: name of the notion of privacy; empty where it has none.
        mechanism: SHA-256 of what is drawn from: of a folder's SHA256SUMS, or of a problem file.
        purpose: what it was charged for, in words.

    Raises:
        UsageError: an amount that is none, or text of more than a line.
    """

    epsilon: Fraction = field(converter=_epsilon)
    unit: str = field(validator=_short)
    notion: str = field(default="", validator=_short)
    mechanism: str = field(default="", validator=_short)
    purpose: str = field(default="", validator=_short)


@frozen(kw_only=True)
class Limit:
    """What each subject may spend.

    Attributes:
        amount: at most, in the ledger's unit.
        hours: the length of the windows in each of which it may be spent; a window holds its end and not its
            beginning. None: once, for ever, or by the calendar.
        calendar: the periods in each of which it may be spent.

    Raises:
        UsageError: amounts that are none, or a window beside a calendar.
    """

    amount: Fraction = field(converter=_limit)
    hours: Fraction | None = field(default=None, converter=_hours)
    calendar: Calendar | None = None

    def __attrs_post_init__(self) -> None:
        if self.hours is not None and self.calendar is not None:
            raise UsageError("limit must have a window or calendar periods, got both")

    @property
    def micros(self) -> int | None:
        """The window in microseconds, rounded up; None for ever."""
        return None if self.hours is None else math.ceil(self.hours * MICROS)


@frozen(kw_only=True)
class Terms:
    """What many entries have in common.

    Attributes:
        kind: ``"charge"``; ``"limit"``; ``"names"``, which says how subjects are named; ``"begin"``.
        notion, mechanism, unit, purpose: see :class:`Cost`.
        amount: epsilon or the limit, as exact text.
        hours: of a limit's window, as exact text, or its calendar (``day Europe/Rome``); empty for ever.
    """

    kind: str
    notion: str = ""
    mechanism: str = ""
    amount: str = ""
    unit: str = ""
    hours: str = ""
    purpose: str = ""

    @classmethod
    def charge(cls, cost: Cost) -> Terms:
        """The entry of a charge."""
        return cls(
            kind="charge",
            notion=cost.notion,
            mechanism=cost.mechanism,
            amount=exact_text(Fraction(cost.epsilon)),
            unit=cost.unit,
            purpose=cost.purpose,
        )

    @classmethod
    def limit(cls, limit: Limit) -> Terms:
        """The entry of a limit."""
        hours = "" if limit.hours is None else exact_text(Fraction(limit.hours))
        if limit.calendar is not None:
            hours = limit.calendar.text
        return cls(kind="limit", amount=exact_text(Fraction(limit.amount)), hours=hours)

    @property
    def said_limit(self) -> Limit:
        """The limit of such an entry."""
        calendar = Calendar.from_text(self.hours)
        return Limit(amount=self.amount, hours=None if calendar else self.hours or None, calendar=calendar)

    @property
    def values(self) -> tuple[str, ...]:
        """All of it, in order."""
        return (self.kind, self.notion, self.mechanism, self.amount, self.unit, self.hours, self.purpose)


@frozen(kw_only=True)
class Account:
    """What a subject has spent.

    Attributes:
        subject: as the ledger names it.
        spent: in all, or in the window that was asked for.
        left: until the limit, now; None without one.
        reports: charges in all: of each report, or of traces that are predicted of the first and of each segment.
        period: of the calendar, where the limit is by period: then all of this is of that period alone.
    """

    subject: str
    spent: Fraction
    left: Fraction | None
    reports: int
    period: str | None = None

    def to_json(self) -> dict[str, str | int | None]:
        """An item of ``subjects`` of ``privopt budget --json``."""
        return {
            "subject": self.subject,
            **({} if self.period is None else {"period": self.period}),
            "spent": exact_text(self.spent),
            "left": None if self.left is None else exact_text(self.left),
            "reports": self.reports,
        }


@frozen(kw_only=True)
class Charge:
    """One charge.

    Attributes:
        number: of its entry.
        subject: as the ledger names it.
        time: microseconds since 1970, UTC.
        cost: what was charged.
        period: that it was charged to; None where the limit is not by the calendar.
    """

    number: int
    subject: str
    time: int
    cost: Cost
    period: str | None = None


def account_name(subject: str, period: str | None) -> str:
    """Name the account of a subject in a period; the subject's own name where there are no periods."""
    return subject if period is None else f"{subject}{BETWEEN}{period}"


def name_and_period(account: str) -> tuple[str, str | None]:
    """Split what :func:`account_name` made."""
    name, between, period = account.partition(BETWEEN)
    return name, period if between else None


@lru_cache(maxsize=4096)
def _quoted(values: tuple[str, ...]) -> str:
    return json.dumps(values)[1:-1]


def chained(before: bytes, number: int, time: int, subject: str, terms: Terms, total: str, count: int) -> bytes:
    """The hash of an entry: SHA-256 of its canonical text, a JSON array that begins with the hash before.

    Args:
        before: of the entry before; :data:`BEGINNING` for the first.
        number: from 1.
        time: microseconds since 1970, UTC.
        subject: whom it charges; empty for none.
        terms: what it says.
        total: what the subject has spent with it, as text of a rational.
        count: how often the subject was charged with it.
    """
    head = f'["{before.hex()}", {number}, {time}, {json.dumps(subject)}, {_quoted(terms.values)}'
    return hashlib.sha256(f'{head}, "{total}", {count}]'.encode("utf-8", "surrogateescape")).digest()
