"""Entries of a ledger, as text and as the hash that chains each to the one before."""

from __future__ import annotations

import hashlib
import json
import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Final

from attrs import evolve, field, frozen
from attrs.validators import in_

from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError, cut
from privopt.ledger.periods import Calendar

__all__ = [
    "BEGINNING",
    "EPSILON",
    "MAX_TEXT_CHARACTERS",
    "MICROSECONDS_PER_HOUR",
    "PAIR",
    "PER_DISTANCE",
    "RHO",
    "UNITS",
    "Amount",
    "Cost",
    "Limit",
    "Sum",
    "Terms",
    "added",
    "amount_of",
    "chained",
    "continues",
    "micros_of",
    "sum_of",
    "sum_text",
    "unit_of",
]

BEGINNING: Final = bytes(32)
"""The hash before the first entry's."""

MICROSECONDS_PER_HOUR: Final = 3_600_000_000
"""Microseconds of an hour: times are whole microseconds since 1970, UTC."""

EPSILON, RHO, PAIR = "epsilon", "rho", "(epsilon, delta)"
UNITS: Final = (EPSILON, RHO, PAIR)
"""What notions add up: pure DP epsilon, zero-concentrated DP rho, approximate DP both of its numbers. A subject has an
account in each."""

MAX_TEXT_CHARACTERS: Final = 1_000
"""Characters of the longest subject, unit or purpose."""

PER_DISTANCE: Final = ("per km", "per unit of distance")
"""Units of metric differential privacy. The distance's name follows; older versions omitted it."""

_AMOUNT: Final = re.compile(r"\d{1,40}(\.\d{1,40})?|\d{1,40}/0*[1-9]\d{0,39}", re.ASCII)

Amount = str | int | Fraction
"""How a caller may say an amount: no double, for it would not be what was meant."""


Sum = tuple[Fraction, ...]
"""What charges come to: one number, or epsilon and delta."""


def continues(unit: str, earlier: str) -> bool:
    """Return whether a charge's unit goes on with those before: the same, or one that names the distance first.

    >>> continues("per km by road", "per km"), continues("per km by road", "per km as the crow flies")
    (True, False)
    """
    return unit == earlier or (earlier in PER_DISTANCE and unit.startswith(f"{earlier} "))


def unit_of(kind: str, what: str) -> str:
    """Return the unit of an entry's kind: ``"charge"`` is of epsilon, ``"charge rho"`` of rho."""
    return kind.removeprefix(what).strip() or EPSILON


def _kind(what: str, unit: str) -> str:
    return what if unit == EPSILON else f"{what} {unit}"


def sum_of(text: str) -> Sum:
    """Return a sum from its text in an entry."""
    return tuple(Fraction(part) for part in text.split(";"))


def added(*sums: Sum) -> Sum:
    """Return sums added up, number by number."""
    return tuple(sum(parts, Fraction(0)) for parts in zip(*sums, strict=True))


def sum_text(value: Sum) -> str:
    """Return a sum as exact text: one number, or ``(epsilon, delta)``.

    >>> sum_text((Fraction(1, 2),)), sum_text((Fraction(1), Fraction(1, 1000)))
    ('0.5', '(1, 0.001)')
    """
    texts = [exact_text(part) for part in value]
    return texts[0] if len(texts) == 1 else f"({', '.join(texts)})"


def amount_of(value: Amount, what: str, *, zero: bool = False) -> Fraction:
    """Return an amount, exactly.

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
        raise UsageError(f"{what} must be an amount {least}, 0.5 or 1/3, as text or exact, got {cut(repr(value))}")
    return found


def _epsilon(value: Amount | None) -> Fraction | None:
    return None if value is None else amount_of(value, "epsilon")


def _rho(value: Amount | None) -> Fraction | None:
    return None if value is None else amount_of(value, "rho")


def _delta(value: Amount | None) -> Fraction | None:
    return None if value is None else amount_of(value, "delta", zero=True)


def _limit(value: Amount) -> Fraction:
    return amount_of(value, "limit", zero=True)


def _hours(value: Amount | None) -> Fraction | None:
    return None if value is None else amount_of(value, "window")


def _short(instance: object, attribute: object, value: str) -> None:
    name = getattr(attribute, "name", "")
    if not isinstance(value, str) or len(value) > MAX_TEXT_CHARACTERS or not value.isprintable():
        raise UsageError(f"{name} must be a line of at most {MAX_TEXT_CHARACTERS:,} characters, got {cut(repr(value))}")


@frozen(kw_only=True)
class Cost:
    """What one report, or one release, costs a subject.

    >>> Cost(epsilon="0.5", unit="per km", purpose="morning").epsilon
    Fraction(1, 2)

    Attributes:
        epsilon: exactly; text is read as a decimal or a quotient. None where the notion is counted by rho.
        rho: of zero-concentrated DP, exactly.
        delta: of approximate DP, in addition to epsilon.
        unit: whom it is for, as the notion has it: the relation of neighbours. A ledger has one.
        notion: name of the notion of privacy; empty where it has none.
        mechanism: SHA-256 of what is drawn from: of a folder's SHA256SUMS, or of a problem file.
        purpose: what it was charged for, in words.

    Raises:
        UsageError: an amount that is none, neither or both of epsilon and rho, or text of more than a line.
    """

    epsilon: Fraction | None = field(default=None, converter=_epsilon)
    rho: Fraction | None = field(default=None, converter=_rho)
    delta: Fraction | None = field(default=None, converter=_delta)
    unit: str = field(validator=_short)
    notion: str = field(default="", validator=_short)
    mechanism: str = field(default="", validator=_short)
    purpose: str = field(default="", validator=_short)

    def __attrs_post_init__(self) -> None:
        if (self.epsilon is None) == (self.rho is None) or (self.delta is not None and self.epsilon is None):
            found = "both epsilon and rho" if self.epsilon is not None else "delta alone" if self.delta else "nothing"
            raise UsageError(f"epsilon must be an amount above 0, or of rho, or of epsilon and delta, got {found}")

    @property
    def amount(self) -> Sum:
        """What is added to the account."""
        if self.rho is not None:
            return (self.rho,)
        assert self.epsilon is not None  # one of both
        return (self.epsilon,) if self.delta is None else (self.epsilon, self.delta)

    def times(self, count: int) -> Cost:
        """Return the cost of several reports."""
        given = (self.epsilon, self.rho, self.delta)
        epsilon, rho, delta = (None if each is None else count * each for each in given)
        return evolve(self, epsilon=epsilon, rho=rho, delta=delta)

    @property
    def account(self) -> str:
        """One of `UNITS`: the account that it is charged to."""
        return RHO if self.rho is not None else EPSILON if self.delta is None else PAIR


@frozen(kw_only=True)
class Limit:
    """The most that each subject may spend in one of the units that notions add up.

    Attributes:
        amount: at most.
        delta: likewise, where epsilon and delta are limited.
        account: one of `UNITS`.
        hours: the length of a window; the amount may be spent in each window, which includes its end and not its start.
            None: once, for ever, or by the calendar.
        calendar: periods; the amount may be spent in each.

    Raises:
        UsageError: amounts that are none, or both a window and a calendar.
    """

    amount: Fraction = field(converter=_limit)
    delta: Fraction | None = field(default=None, converter=_delta)
    hours: Fraction | None = field(default=None, converter=_hours)
    calendar: Calendar | None = None
    account: str = field(default=EPSILON, validator=in_(UNITS))

    def __attrs_post_init__(self) -> None:
        if (self.delta is None) == (self.account == PAIR):
            found = f"{sum_text(self.sum)} of {self.account}"
            raise UsageError(f"limit must have a delta with epsilon for {PAIR}, and for it alone, got {found}")
        if self.hours is not None and self.calendar is not None:
            raise UsageError("limit must have a window or calendar periods, got both")

    @property
    def sum(self) -> Sum:
        """All of it."""
        return (self.amount,) if self.delta is None else (self.amount, self.delta)

    @property
    def micros(self) -> int | None:
        """The window in microseconds, rounded up; None for ever."""
        return None if self.hours is None else math.ceil(self.hours * MICROSECONDS_PER_HOUR)


def micros_of(hours: Amount | None) -> int | None:
    """Return a window's length in microseconds, rounded up; None for all time."""
    return None if hours is None else Limit(amount=Fraction(0), hours=hours).micros


@frozen(kw_only=True)
class Terms:
    """What many entries have in common.

    Attributes:
        kind: ``"charge"`` or ``"limit"``, with the unit behind where that is not epsilon; ``"names"``, which says how
            subjects are named; ``"begin"``.
        notion, mechanism, unit, purpose: see :class:`Cost`.
        amount: charged, or the limit, as exact text; delta after a semicolon.
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
        """Return the entry of a charge."""
        return cls(
            kind=_kind("charge", cost.account),
            notion=cost.notion,
            mechanism=cost.mechanism,
            amount=";".join(map(exact_text, cost.amount)),
            unit=cost.unit,
            purpose=cost.purpose,
        )

    @classmethod
    def limit(cls, limit: Limit) -> Terms:
        """Return the entry of a limit."""
        hours = "" if limit.hours is None else exact_text(Fraction(limit.hours))
        if limit.calendar is not None:
            hours = limit.calendar.text
        amount = ";".join(map(exact_text, limit.sum))
        return cls(kind=_kind("limit", limit.account), amount=amount, hours=hours)

    @property
    def stated_limit(self) -> Limit:
        """The limit of such an entry."""
        calendar = Calendar.from_text(self.hours)
        amount, *delta = sum_of(self.amount)
        return Limit(
            amount=amount,
            delta=delta[0] if delta else None,
            hours=None if calendar else self.hours or None,
            calendar=calendar,
            account=unit_of(self.kind, "limit"),
        )

    @property
    def values(self) -> tuple[str, ...]:
        """All of it, in order."""
        return (self.kind, self.notion, self.mechanism, self.amount, self.unit, self.hours, self.purpose)


@lru_cache(maxsize=4096)
def _quoted(values: tuple[str, ...]) -> str:
    return json.dumps(values)[1:-1]


def chained(previous: bytes, number: int, time: int, subject: str, terms: Terms, total: str, count: int) -> bytes:
    """Return the hash of an entry: SHA-256 of its canonical text, a JSON array that begins with the hash before.

    Args:
        previous: of the entry before; :data:`BEGINNING` for the first.
        number: from 1.
        time: microseconds since 1970, UTC.
        subject: whom it charges; empty for none.
        terms: what it says.
        total: what the subject has spent with it, as text of a rational.
        count: how often the subject was charged with it.
    """
    head = f'["{previous.hex()}", {number}, {time}, {json.dumps(subject)}, {_quoted(terms.values)}'
    return hashlib.sha256(f'{head}, "{total}", {count}]'.encode("utf-8", "surrogateescape")).digest()
