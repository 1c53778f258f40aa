"""The balances that one transaction reads and updates; every entry it uses has its hash recomputed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Final

from attrs import define, field, frozen

from privopt.errors import DoesNotHoldError, Fault, InputError, UsageError
from privopt.ledger.accounts import Account, Charge, account_name, account_parts
from privopt.ledger.entries import (
    BEGINNING,
    EPSILON,
    PAIR,
    RHO,
    Cost,
    Limit,
    Sum,
    Terms,
    added,
    chained,
    sum_of,
    unit_of,
)

SCHEMA: Final = (
    "CREATE TABLE subjects (id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE)",
    "CREATE TABLE terms (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, notion TEXT NOT NULL, mechanism TEXT NOT NULL, "
    "amount TEXT NOT NULL, unit TEXT NOT NULL, hours TEXT NOT NULL, purpose TEXT NOT NULL)",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, subject INTEGER, time INTEGER NOT NULL, terms INTEGER NOT NULL, "
    "total TEXT NOT NULL, count INTEGER NOT NULL, hash BLOB NOT NULL)",
    "CREATE INDEX by_subject ON entries (subject, time)",
)
"""An entry that charges no one has no subject. Total and count are the subject's, with the entry."""

Mark = tuple[int, bytes]
"""The number and the hash of an entry."""

SUBJECT: Final = "CASE instr(name, char(31)) WHEN 0 THEN name ELSE substr(name, 1, instr(name, char(31)) - 1) END"
"""A subject's name from that of an account, in SQL: without the period
(:func:`privopt.ledger.accounts.account_name`)."""

_FIELDS: Final = "kind, notion, mechanism, amount, unit, hours, purpose"
_AT_ONCE: Final = 20_000
"""Rows that are held before they are written."""


@frozen
class Entry:
    """An entry as it is stored.

    Attributes:
        number: from 1.
        subject: number of the subject; None for none.
        time: microseconds since 1970, UTC.
        terms: number of the terms.
        total: what the subject has spent with it, as text.
        count: its charges with it.
        hash: of it.
    """

    number: int
    subject: int | None
    time: int
    terms: int
    total: str
    count: int
    hash: bytes

    @property
    def plain(self) -> bool:
        """Whether everything is of its type; SQLite would hold anything."""
        whole = (self.number, self.time, self.terms, self.count, 0 if self.subject is None else self.subject)
        return all(isinstance(n, int) for n in whole) and isinstance(self.total, str) and isinstance(self.hash, bytes)


@define
class _Balance:
    """A name in a transaction: its number (None: new), what it has spent and how often, and before the window."""

    number: int | None
    total: Sum | None
    count: int
    before: Sum | None

    def spent(self, amount: Sum) -> Sum:
        """Return what was spent in the window, plus an amount."""
        total = amount if self.total is None else added(self.total, amount)
        return total if self.before is None else tuple(a - b for a, b in zip(total, self.before, strict=True))


@define(kw_only=True, eq=False)
class LedgerTransaction:
    """Reads and adds entries; :meth:`close` writes what was added.

    Attributes:
        connection: in a transaction.
        path: of the ledger, for messages.
        clock: nanoseconds since 1970.
    """

    connection: sqlite3.Connection
    path: Path
    clock: Callable[[], int]
    _rows: list[tuple[int, int | None, int, int, str, int, bytes]] = field(factory=list)
    _balances: dict[str, _Balance] = field(factory=dict)
    _terms: dict[Terms, int] = field(factory=dict)
    _head: Entry | None = None
    _now: int | None = None

    # --- what stands there --------------------------------------------------------------------------------

    def _one(self, where: str, *values: object) -> Entry | None:
        row = self.connection.execute(f"SELECT * FROM entries WHERE {where}", values).fetchone()
        if row is None:
            return None
        entry = Entry(*row)
        before = BEGINNING
        if entry.number != 1:
            above = self.connection.execute("SELECT hash FROM entries WHERE number = ?", (entry.number - 1,)).fetchone()
            before = above[0] if above and isinstance(above[0], bytes) else b""
        if not self._is_whole(entry, before):
            raise DoesNotHoldError(f"{self.path}: entry {entry.number}: changed: its hash is another")
        return entry

    def _is_whole(self, entry: Entry, previous: bytes) -> bool:
        name = "" if entry.subject is None else self.name_of(entry.subject)
        terms = self.terms_of(entry.terms)
        if name is None or terms is None or not entry.plain:
            return False
        made = chained(previous, entry.number, entry.time, name, terms, entry.total, entry.count)
        return made == entry.hash

    def name_of(self, number: int) -> str | None:
        """Return a subject's name; None where there is none."""
        row = self.connection.execute("SELECT name FROM subjects WHERE id = ?", (number,)).fetchone()
        return row[0] if row is not None and isinstance(row[0], str) else None

    def terms_of(self, number: int) -> Terms | None:
        """Return terms by their number; None if the number is unknown."""
        row = self.connection.execute(f"SELECT {_FIELDS} FROM terms WHERE id = ?", (number,)).fetchone()
        if row is None or not all(isinstance(value, str) for value in row):
            return None
        return Terms(**dict(zip(_FIELDS.split(", "), row, strict=True)))

    def cost_of(self, number: int, entry: int) -> Cost:
        """Return what an entry was charged for, by the number of its terms."""
        terms = self.terms_of(number)
        if terms is None:
            raise DoesNotHoldError(f"{self.path}: entry {entry}: changed: what it was charged for is gone")
        first, *delta = sum_of(terms.amount)
        rho = unit_of(terms.kind, "charge") == RHO
        return Cost(
            epsilon=None if rho else first,
            rho=first if rho else None,
            delta=delta[0] if delta else None,
            unit=terms.unit,
            notion=terms.notion,
            mechanism=terms.mechanism,
            purpose=terms.purpose,
        )

    def hash_of(self, number: int) -> bytes:
        """Return the hash of an entry; empty where there is none."""
        entry = self._one("number = ?", number)
        return b"" if entry is None else entry.hash

    @property
    def head(self) -> Entry | None:
        """The last entry; None in an empty ledger."""
        if self._head is None:
            self._head = self._one("number = (SELECT max(number) FROM entries)")
        return self._head

    @property
    def now(self) -> int:
        """The time, and never before the last entry's: a clock that is put back frees no window."""
        if self._now is None:
            last = 0 if self.head is None else self.head.time
            self._now = max(self.clock() // 1000, last)
        return self._now

    def _last_terms(self, kind: str) -> Terms | None:
        """Return the last of the entries of a kind that charge no one."""
        same = "terms IN (SELECT id FROM terms WHERE kind = ?) ORDER BY time DESC, number DESC LIMIT 1"
        entry = self._one(f"subject IS NULL AND {same}", kind)
        return None if entry is None else self.terms_of(entry.terms)

    def limit_of(self, account: str) -> Limit | None:
        """Return the limit in force of a unit; None without one."""
        said = self._last_terms("limit" if account == EPSILON else f"limit {account}")
        return None if said is None else said.stated_limit

    def units(self, what: str) -> set[str]:
        """Return the units in which there is a ``"charge"``, or a ``"limit"``."""
        query = "SELECT DISTINCT kind FROM terms WHERE kind = ? OR kind LIKE ?"
        found = self.connection.execute(query, (what, f"{what} %"))
        return {unit_of(kind, what) for (kind,) in found}

    @property
    def names(self) -> str:
        """How subjects are named (:attr:`privopt.ledger.subject_names.Names.label`); empty before the first charge."""
        said = self._last_terms("names")
        return "" if said is None else said.purpose

    @property
    def unit(self) -> str | None:
        """The unit of all charges: the first one's, with the distance behind it once one has named that."""
        last = "SELECT unit FROM terms WHERE kind LIKE 'charge%' ORDER BY id DESC LIMIT 1"
        row = self.connection.execute(last).fetchone()
        return None if row is None else str(row[0])

    def knows_others(self, name: str) -> bool:
        """Return whether anybody was charged under another name."""
        other = f"SELECT 1 FROM subjects WHERE {SUBJECT} != ? LIMIT 1"
        return self.connection.execute(other, (name,)).fetchone() is not None

    def balance(self, name: str, micros: int | None) -> _Balance:
        """Return a subject's number, its spending and charges, and its spending before the window that ends now.

        Args:
            name: as the ledger has it.
            micros: length of the window, which holds its end and not its beginning; None for all time.
        """
        row = self.connection.execute("SELECT id FROM subjects WHERE name = ?", (name,)).fetchone()
        if row is None:
            return _Balance(None, None, 0, None)
        newest = "ORDER BY time DESC, number DESC LIMIT 1"
        last = self._one(f"subject = ? {newest}", row[0])
        if last is None:
            raise DoesNotHoldError(f"{self.path}: changed: a subject without an entry")
        old = None
        if micros is not None:
            old = self._one(f"subject = ? AND time <= ? {newest}", row[0], self.now - micros)
        return _Balance(row[0], sum_of(last.total), last.count, None if old is None else sum_of(old.total))

    # --- what was charged ---------------------------------------------------------------------------------

    def account_of(self, name: str, period: str | None, limit: Limit | None, unit: str) -> str:
        """Name the account of a subject, as the ledger calls it, that a charge of a unit falls on: the period's.

        Raises:
            UsageError: a period, where the limit is not by the calendar.
        """
        calendar = None if limit is None else limit.calendar
        if calendar is None:
            if period is not None:
                cure = "privopt budget FILE --set AMOUNT --per day, before the first charge"
                raise UsageError(f"{self.path}: limit must be by the calendar to charge {period}: {cure}")
            return account_name(name, None, unit)
        if period is None:
            period = calendar.period_now(self.now)
        calendar.check(period)
        return account_name(name, period, unit)

    def check_names(self, label: str) -> None:
        """Refuse another way of naming subjects than that of the charges so far."""
        if self.names and self.names != label:
            raise InputError([Fault(str(self.path), "subjects", label, f"{self.names}, as charged")])

    def accounts(self) -> list[str]:
        """Return names of all accounts, in order."""
        return [name for (name,) in self.connection.execute("SELECT name FROM subjects ORDER BY name")]

    def account(self, name: str, subject: str, micros: int | None, limit: Limit | None) -> Account:
        """Return what an account has spent, and has left.

        Args:
            name: of the account.
            subject: whose it is, in words.
            micros: length of the window whose charges count as spent; None for all time.
            limit: in force.
        """
        _, period, unit = account_parts(name)
        none, held = (Fraction(0),) * (1 + (unit == PAIR)), self.balance(name, micros)
        spent, left = held.spent(none), None
        if limit is not None:
            used = self.balance(name, limit.micros).spent(none)
            left = tuple(max(Fraction(0), most - own) for most, own in zip(limit.sum, used, strict=True))
        return Account(
            subject=subject,
            spent=spent[0],
            left=None if left is None else left[0],
            reports=held.count,
            period=period,
            delta=spent[1] if unit == PAIR else None,
            delta_left=left[1] if left is not None and unit == PAIR else None,
        )

    def charges(self, name: str | None) -> list[Charge]:
        """Return each charge of a subject, or of everybody, oldest first."""
        values = () if name is None else (name,)
        whose = "WHERE subject_name = ? " if values else ""
        named = f"(SELECT id, name, {SUBJECT} AS subject_name FROM subjects)"
        query = f"SELECT s.name, e.terms, e.time, e.number FROM entries e JOIN {named} s ON s.id = e.subject "
        known: dict[int, Cost] = {}
        found = []
        for account, number, at, entry in self.connection.execute(f"{query}{whose}ORDER BY e.number", values):
            if number not in known:
                known[number] = self.cost_of(number, entry)
            whom, period, _ = account_parts(account)
            found.append(Charge(number=entry, subject=whom, time=at, cost=known[number], period=period))
        return found

    def purposes(self) -> list[str]:
        """Return what charges were for, each once."""
        found = self.connection.execute("SELECT DISTINCT purpose FROM terms WHERE kind LIKE 'charge%'")
        return [purpose for (purpose,) in found if isinstance(purpose, str)]

    def charges_for(self, purpose: str) -> dict[str, list[Fraction]]:
        """Return epsilon, or rho, of each charge for a purpose, oldest first, by the account's name."""
        query = (
            "SELECT s.name, t.amount FROM entries e JOIN terms t ON t.id = e.terms JOIN subjects s ON s.id = e.subject "
            "WHERE t.kind LIKE 'charge%' AND t.purpose = ? ORDER BY e.number"
        )
        amounts: dict[str, Fraction] = {}
        found: dict[str, list[Fraction]] = {}
        for name, text in self.connection.execute(query, (purpose,)):
            amount = amounts.get(text)
            if amount is None:
                amount = amounts[text] = sum_of(text)[0]
            found.setdefault(name, []).append(amount)
        return found

    # --- what is added ------------------------------------------------------------------------------------

    def charge(self, name: str, cost: Cost, terms: Terms, limit: Limit | None) -> bool:
        """Charge a subject, and return True; if that would pass the limit, charge nothing and return False.

        Args:
            name: as the ledger has it.
            cost: of the report.
            terms: of the entry.
            limit: in force.
        """
        held = self._held(name, limit)
        if limit is not None:
            spent = held.spent(cost.amount)
            if any(own > most for own, most in zip(spent, limit.sum, strict=True)):
                return False
        if held.number is None:
            held.number = self.connection.execute("INSERT INTO subjects (name) VALUES (?)", (name,)).lastrowid
        held.total = cost.amount if held.total is None else added(held.total, cost.amount)
        held.count += 1
        total = ";".join(map(str, held.total))
        self.add(terms, name=name, subject=held.number, total=total, count=held.count)
        return True

    def set_limit(self, limit: Limit) -> None:
        """Make or change the limit of a unit."""
        old = self.limit_of(limit.account)
        before = None if old is None else old.calendar
        if limit.account in self.units("charge") and before != limit.calendar:
            found, wanted = limit.calendar or "none", before or "none"
            raise UsageError(
                f"{self.path}: calendar must be {wanted}, as charged so far, got {found}: give the same --per and "
                "--zone, or begin a new ledger"
            )
        self.add(Terms.limit(limit))

    def _held(self, name: str, limit: Limit | None) -> _Balance:
        held = self._balances.get(name)
        if held is None:
            held = self.balance(name, None if limit is None else limit.micros)
            self._balances[name] = held
        return held

    def add(
        self, terms: Terms, *, name: str = "", subject: int | None = None, total: str = "0", count: int = 0
    ) -> None:
        """Add an entry after the last."""
        number, before = (1, BEGINNING) if self.head is None else (self.head.number + 1, self.head.hash)
        made = chained(before, number, self.now, name, terms, total, count)
        row = (number, subject, self.now, self._number(terms), total, count, made)
        self._rows.append(row)
        self._head = Entry(*row)
        if len(self._rows) >= _AT_ONCE:
            self.close()

    def _number(self, terms: Terms) -> int:
        """Return the number of terms, which are entered where they are new."""
        if terms not in self._terms:
            same = " AND ".join(f"{name} = ?" for name in _FIELDS.split(", "))
            row = self.connection.execute(f"SELECT id FROM terms WHERE {same}", terms.values).fetchone()
            if row is None:
                marks = ", ".join("?" * len(terms.values))
                made = self.connection.execute(f"INSERT INTO terms ({_FIELDS}) VALUES ({marks})", terms.values)
                row = (made.lastrowid,)
            self._terms[terms] = row[0]
        return self._terms[terms]

    def close(self) -> None:
        """Write what was added."""
        self.connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", self._rows)
        self._rows.clear()
