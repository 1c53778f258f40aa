"""Limits, a ledger's entries in canonical form, and the hashes that chain each entry to the previous one."""

from __future__ import annotations

import hashlib
import json
import math
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final, NamedTuple

from attrs import field, frozen

from privopt.declare.toml_text import exact_text
from privopt.errors import UsageError, cut
from privopt.interfaces.cost import EPSILON, NUMBERS, PAIR, UNITS, Amount, Cost, Sum, amount_of, sum_text
from privopt.ledger.periods import Calendar

__all__ = ["AccountKey", "Limit"]

BEGINNING: Final = bytes(32)
"""The zero bytes used in place of the previous hash in a ledger's first entry."""

MICROSECONDS_PER_HOUR: Final = 3_600_000_000
"""The number of microseconds in an hour. The times of entries are whole microseconds since 1970, UTC."""


# Results are cached, because many entries have equal amounts.
@lru_cache(maxsize=4096)
def sum_of(text: str) -> Sum:
    """Parse a sum, which is stored in entries as exact numbers separated by semicolons."""
    return tuple(Fraction(part) for part in text.split(";"))


def zero_sum(unit: str) -> Sum:
    """Return the zero sum in a unit. It has one component for epsilon or rho, and two for epsilon with delta."""
    return (Fraction(0),) * len(NUMBERS[unit])


def add_sums(first: Sum, second: Sum) -> Sum:
    """Add two sums component by component."""
    return tuple(a + b for a, b in zip(first, second, strict=True))


def _read_amount(value: Amount) -> Fraction:
    """Convert a limit's amount to an exact number. An amount of zero is valid and allows no spending."""
    return amount_of(value, "limit", zero=True)


def _read_delta(value: Amount | None) -> Fraction | None:
    """Convert a limit's delta to an exact number, or return None if there is no delta."""
    return None if value is None else _read_amount(value)


def _read_hours(value: Amount | None) -> Fraction | None:
    """Convert the hours of a window to a positive exact number, or return None if there is no window."""
    return None if value is None else amount_of(value, "window")


def _check_account(instance: object, attribute: object, value: Any) -> None:
    """Reject any value that is not in :data:`UNITS` (an attrs validator)."""
    if value not in UNITS:
        raise UsageError(f"account must be one of {', '.join(UNITS)}, got {cut(repr(value))}")


def _check_calendar(instance: object, attribute: object, value: Any) -> None:
    """Reject any value other than a :class:`Calendar` or None (an attrs validator)."""
    if value is not None and not isinstance(value, Calendar):
        raise UsageError(f"calendar must be a Calendar such as Calendar('day', 'Europe/Rome'), got {cut(repr(value))}")


@frozen(kw_only=True)
class Limit:
    """The largest amount that each subject may spend in one unit: epsilon, rho, or epsilon with delta.

    Attributes:
        amount: The largest epsilon or rho that may be spent.
        delta: The largest delta that may be spent if the unit is epsilon with delta. Otherwise, None.
        account: The unit: one of `UNITS`.
        hours: The length of a sliding window in which the amount may be spent, or None if the limit applies to all time
            or to calendar periods. The window includes its end but not its start.
        calendar: The calendar, if the limit applies to each of its periods, or None if the limit applies to all time or
            to a window.

    Raises:
        UsageError: An amount is not a valid number, the account or calendar is invalid, a delta is missing or is given
            for a unit without one, or both a window and a calendar are given.
    """

    amount: Fraction = field(converter=_read_amount)
    delta: Fraction | None = field(default=None, converter=_read_delta)
    hours: Fraction | None = field(default=None, converter=_read_hours)
    calendar: Calendar | None = field(default=None, validator=_check_calendar)
    account: str = field(default=EPSILON, validator=_check_account)

    def __attrs_post_init__(self) -> None:
        """Check that there is a delta if and only if the unit has one, and that hours and calendar are not both set."""
        if (self.delta is None) == (self.account == PAIR):
            actual = f"{sum_text(self.sum)} of {self.account}"
            raise UsageError(f"limit must have a delta with epsilon for {PAIR}, and for it alone, got {actual}")
        if self.hours is not None and self.calendar is not None:
            raise UsageError("limit must have a window or calendar periods, got both")

    @property
    def sum(self) -> Sum:
        """The amount, followed by the delta if there is one."""
        return (self.amount,) if self.delta is None else (self.amount, self.delta)

    @property
    def micros(self) -> int | None:
        """The window's length in microseconds, rounded up, or None if there is no window."""
        return micros_of(self.hours)


def micros_of(hours: Amount | None) -> int | None:
    """Convert a window's length from hours to microseconds, rounding up, or return None if there is no window."""
    # The length is rounded up, because a shorter window would forget charges too early.
    return None if hours is None else math.ceil(amount_of(hours, "window") * MICROSECONDS_PER_HOUR)


class AccountKey(NamedTuple):
    """The key of an account: a subject, a unit and a calendar period.

    Attributes:
        subject: The subject's name in the ledger.
        unit: The account's unit: one of `UNITS`.
        period: The calendar period, or "" if the limit does not apply to calendar periods.
    """

    subject: str
    unit: str = EPSILON
    period: str = ""


class Terms(NamedTuple):
    """The part of a ledger entry that may be shared by many entries, and is therefore stored only once.

    Attributes:
        kind: ``"charge"``, ``"limit"``, ``"names"`` (the scheme used to name subjects), ``"begin"`` (the first entry),
            ``"closed"`` (the calendar periods that are closed) or ``"end"`` (the last entry of an archived ledger).
        unit: One of `UNITS` for a charge, a limit or closed periods, and empty for other kinds. Any field not used by a
            kind is empty.
        relation: The :attr:`Cost.unit` of a charge. For ``"closed"``, the unit shared by all charges in the closed
            periods.
        notion, mechanism: See :class:`Cost`.
        amount: The amount of the charge or limit as exact text, followed by a semicolon and the delta if there is one.
        within: For a limit, the hours of its window as exact text, or its calendar (such as ``day Europe/Rome``). It is
            empty if the limit applies to all time.
        purpose: A string whose meaning depends on the kind: :attr:`Cost.purpose` for a charge, the scheme's label for
            ``"names"``, the first period that is still open for ``"closed"``, a string that identifies the ledger for
            ``"begin"``, and the reason why the ledger ended for ``"end"``.
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
        """Return the terms of an entry that charges a cost. The :attr:`cost` property converts them back."""
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
        """The cost charged by an entry with these terms."""
        numbers: dict[str, Any] = dict(zip(NUMBERS[self.unit], sum_of(self.amount), strict=True))
        return Cost(unit=self.relation, notion=self.notion, mechanism=self.mechanism, purpose=self.purpose, **numbers)

    @classmethod
    def of_limit(cls, limit: Limit) -> Terms:
        """Return the terms of an entry that sets a limit."""
        within = "" if limit.hours is None else exact_text(limit.hours)
        if limit.calendar is not None:
            within = limit.calendar.text
        return cls(kind="limit", unit=limit.account, amount=";".join(map(exact_text, limit.sum)), within=within)

    @property
    def limit(self) -> Limit:
        """The limit set by an entry with these terms."""
        # `within` contains the hours of a window, a calendar, or nothing.
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
def _json_text(values: tuple[str, ...]) -> str:
    """Encode strings as a JSON array without the brackets. Results are cached, because many entries share terms."""
    return json.dumps(values)[1:-1]


class Entry(NamedTuple):
    """An entry as stored in the ledger.

    Attributes:
        number: The entry's number, counted from 1.
        account: The id of the charged account in the ``accounts`` table, or None if the entry charges nobody.
        time: The entry's time in microseconds since 1970, UTC.
        terms: The id of the entry's terms in the ``terms`` table.
        total: The account's total spending, including this entry, as exact text.
        charges: The number of charges to the account so far, including this one.
        hash: The SHA-256 of the entry and the previous entry's hash (see :meth:`compute_hash`).
    """

    number: int
    account: int | None
    time: int
    terms: int
    total: str
    charges: int
    hash: bytes

    def compute_hash(self, previous: bytes, account: AccountKey | None, terms: Terms) -> bytes:
        """Return the SHA-256 of the entry's canonical text, which is a JSON array that begins with the previous hash.

        Args:
            previous: The previous entry's hash, or :data:`BEGINNING` for the first entry.
            account: The charged account, or None if the entry charges nobody. None is encoded as three empty strings.
            terms: The entry's terms.
        """
        # This text is part of the file format. If it changed, the hashes of existing ledgers would become invalid.
        account_text = _json_text(account or ("", "", ""))
        head = f'["{previous.hex()}", {self.number}, {self.time}, {account_text}, {_json_text(terms)}'
        return hashlib.sha256(f'{head}, "{self.total}", {self.charges}]'.encode("utf-8", "surrogateescape")).digest()

    def follows(self, previous: object, account: AccountKey | None, terms: Terms | None) -> bool:
        """Return whether the entry is unchanged and follows an entry with the given hash.

        Args:
            previous: The previous entry's hash.
            account, terms: The rows to which the entry's ids refer, or None if there is no valid row.
        """
        # SQLite allows values of any type in any column, so a changed file may contain values of the wrong type.
        numbers = (self.number, self.time, self.terms, self.charges, self.account or 0)
        has_valid_types = isinstance(self.total, str) and all(isinstance(n, int) for n in numbers)
        if (
            not has_valid_types
            or not isinstance(previous, bytes)
            or terms is None
            or (account is None) != (self.account is None)
        ):
            return False
        return self.hash == self.compute_hash(previous, account, terms)
