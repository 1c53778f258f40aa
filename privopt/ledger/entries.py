"""Costs and limits, exactly; entries of a ledger as text, and the hash that chains each to the one before."""

from __future__ import annotations

import hashlib
import json
import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

from attrs import evolve, field, frozen
from attrs.validators import in_

from privopt.declare.exact_text import exact_text
from privopt.declare.name_forms import MAX_TEXT_CHARACTERS
from privopt.errors import UsageError, cut
from privopt.ledger.periods import Calendar

__all__ = ["EPSILON", "PAIR", "RHO", "UNITS", "AccountKey", "Amount", "Cost", "Limit", "amount_of", "sum_text"]

BEGINNING: Final = bytes(32)
"""The hash before the first entry's."""

MICROSECONDS_PER_HOUR: Final = 3_600_000_000
"""Microseconds of an hour: times are whole microseconds since 1970, UTC."""

EPSILON, RHO, PAIR = "epsilon", "rho", "(epsilon, delta)"
NUMBERS: Final = {EPSILON: ("epsilon",), RHO: ("rho",), PAIR: ("epsilon", "delta")}
"""What notions add up, by unit: pure DP epsilon, zero-concentrated DP rho, approximate DP both of its numbers. A
subject has an account in each."""

UNITS: Final = tuple(NUMBERS)

_AMOUNT: Final = re.compile(r"\d{1,40}(\.\d{1,40})?|\d{1,40}/0*[1-9]\d{0,39}", re.ASCII)

Amount = str | int | Fraction
"""How a caller may say an amount: no double, for it would not be what was meant."""

Sum = tuple[Fraction, ...]
"""What charges come to: one number, or epsilon and delta."""


@lru_cache(maxsize=4096)
def sum_of(text: str) -> Sum:
    """Return a sum from its text in an entry."""
    return tuple(Fraction(part) for part in text.split(";"))


def zero_sum(unit: str) -> Sum:
    """Return the sum of no charges in a unit."""
    return (Fraction(0),) * len(NUMBERS[unit])


def added(one: Sum, other: Sum) -> Sum:
    """Return sums added up, number by number."""
    return tuple(a + b for a, b in zip(one, other, strict=True))


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
        if tuple(self._numbers) not in NUMBERS.values():
            found = " and ".join(self._numbers) or "nothing"
            raise UsageError(f"epsilon must be an amount above 0, or of rho, or of epsilon and delta, got {found}")

    @property
    def _numbers(self) -> dict[str, Fraction]:
        numbers = {"epsilon": self.epsilon, "rho": self.rho, "delta": self.delta}
        return {name: value for name, value in numbers.items() if value is not None}

    @property
    def amount(self) -> Sum:
        """What is added to the account."""
        return tuple(self._numbers.values())

    def times(self, count: int) -> Cost:
        """Return the cost of several reports."""
        numbers: dict[str, Any] = {name: count * value for name, value in self._numbers.items()}
        return evolve(self, **numbers)

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
        return micros_of(self.hours)


def micros_of(hours: Amount | None) -> int | None:
    """Return a window's length in microseconds, rounded up; None for all time."""
    return None if hours is None else math.ceil(amount_of(hours, "window") * MICROSECONDS_PER_HOUR)


class AccountKey(NamedTuple):
    """The account of a subject in a unit and a period.

    Attributes:
        subject: as the ledger names it.
        unit: one of `UNITS`.
        period: of the calendar; empty where the limit is not by the calendar.
    """

    subject: str
    unit: str = EPSILON
    period: str = ""


class Terms(NamedTuple):
    """What many entries have in common.

    Attributes:
        kind: ``"charge"``, ``"limit"``, ``"names"``, which says how subjects are named, or ``"begin"``.
        unit: one of `UNITS`, of a charge or a limit.
        relation: :attr:`Cost.unit` of a charge.
        notion, mechanism, purpose: see :class:`Cost`.
        amount: charged, or the limit, as exact text; delta after a semicolon.
        within: of a limit: the hours of its window, as exact text, or its calendar (``day Europe/Rome``); empty for
            ever.
    """

    kind: str
    unit: str = ""
    relation: str = ""
    notion: str = ""
    mechanism: str = ""
    amount: str = ""
    within: str = ""
    purpose: str = ""

    @classmethod
    def of_cost(cls, cost: Cost) -> Terms:
        """Return the terms of a charge."""
        return cls(
            kind="charge",
            unit=cost.account,
            relation=cost.unit,
            notion=cost.notion,
            mechanism=cost.mechanism,
            amount=";".join(map(exact_text, cost.amount)),
            purpose=cost.purpose,
        )

    @property
    def cost(self) -> Cost:
        """What a charge cost."""
        numbers: dict[str, Any] = dict(zip(NUMBERS[self.unit], sum_of(self.amount), strict=True))
        return Cost(unit=self.relation, notion=self.notion, mechanism=self.mechanism, purpose=self.purpose, **numbers)

    @classmethod
    def of_limit(cls, limit: Limit) -> Terms:
        """Return the terms of a limit."""
        within = "" if limit.hours is None else exact_text(limit.hours)
        if limit.calendar is not None:
            within = limit.calendar.text
        return cls(kind="limit", unit=limit.account, amount=";".join(map(exact_text, limit.sum)), within=within)

    @property
    def limit(self) -> Limit:
        """The limit that was set."""
        calendar = Calendar.from_text(self.within)
        amount, *delta = sum_of(self.amount)
        return Limit(
            amount=amount,
            delta=delta[0] if delta else None,
            hours=None if calendar else self.within or None,
            calendar=calendar,
            account=self.unit,
        )


@lru_cache(maxsize=1 << 16)
def _quoted(values: tuple[str, ...]) -> str:
    return json.dumps(values)[1:-1]


class Entry(NamedTuple):
    """An entry as it is stored.

    Attributes:
        number: from 1.
        account: number of the account that it charges; None for none.
        time: microseconds since 1970, UTC.
        terms: number of the terms.
        total: what the account has spent with it, as text.
        charges: of the account, with it.
        hash: of it.
    """

    number: int
    account: int | None
    time: int
    terms: int
    total: str
    charges: int
    hash: bytes

    def hashed(self, previous: bytes, account: AccountKey | None, terms: Terms) -> bytes:
        """Return its hash: SHA-256 of its canonical text, a JSON array that begins with the hash before.

        Args:
            previous: the hash of the entry before; :data:`BEGINNING` for the first.
            account: that it charges; None for none: three empty texts in the array.
            terms: what it says.
        """
        whose = _quoted(account or ("", "", ""))
        head = f'["{previous.hex()}", {self.number}, {self.time}, {whose}, {_quoted(terms)}'
        return hashlib.sha256(f'{head}, "{self.total}", {self.charges}]'.encode("utf-8", "surrogateescape")).digest()

    def follows(self, previous: object, account: AccountKey | None, terms: Terms | None) -> bool:
        """Return whether it is as it was written after an entry of that hash; SQLite would hold anything in a field."""
        numbers = (self.number, self.time, self.terms, self.charges, self.account or 0)
        plain = isinstance(self.total, str) and all(isinstance(n, int) for n in numbers)
        if not plain or not isinstance(previous, bytes) or terms is None or (account is None) != (self.account is None):
            return False
        return self.hash == self.hashed(previous, account, terms)
