"""The balances that one transaction reads and updates; every entry it uses has its hash recomputed."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Final

from attrs import define, field

from privopt.errors import DoesNotHoldError, Fault, InputError, UsageError
from privopt.interfaces.cost import Cost, Sum
from privopt.ledger.accounts import Account, Charge
from privopt.ledger.entries import BEGINNING, AccountKey, Entry, Limit, Terms, added, sum_of, zero_sum

SCHEMA: Final = (
    "CREATE TABLE accounts (id INTEGER PRIMARY KEY, subject TEXT NOT NULL, unit TEXT NOT NULL, period TEXT NOT NULL, "
    "UNIQUE (subject, unit, period))",
    "CREATE TABLE terms (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, unit TEXT NOT NULL, relation TEXT NOT NULL, "
    "notion TEXT NOT NULL, mechanism TEXT NOT NULL, amount TEXT NOT NULL, within TEXT NOT NULL, purpose TEXT NOT NULL)",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, account INTEGER, time INTEGER NOT NULL, terms INTEGER NOT NULL, "
    "total TEXT NOT NULL, count INTEGER NOT NULL, hash BLOB NOT NULL)",
    "CREATE INDEX by_account ON entries (account, time)",
)
"""An entry that charges no one has no account. Total and count are the account's, with the entry."""

Mark = tuple[int, bytes]
"""The number and the hash of an entry."""

_ACCOUNT: Final = ", ".join(AccountKey._fields)
_TERMS: Final = ", ".join(Terms._fields)
_NEWEST: Final = "ORDER BY time DESC, number DESC LIMIT 1"
_AT_ONCE: Final = 20_000
"""Rows that are held before they are written."""


@define
class _Balance:
    """An account in a transaction: its number (None: new), what it has spent and how often, and before the window."""

    number: int | None
    total: Sum
    count: int
    before: Sum

    @property
    def spent(self) -> Sum:
        """What was spent in the window."""
        return tuple(a - b for a, b in zip(self.total, self.before, strict=True))


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
    _rows: list[Entry] = field(factory=list)
    _balances: dict[AccountKey, _Balance] = field(factory=dict)
    _terms: dict[Terms, int] = field(factory=dict)
    _head: Entry | None = None
    _now: int | None = None

    # --- what stands there --------------------------------------------------------------------------------

    def _one(self, where: str, *values: object) -> Entry | None:
        row = self.connection.execute(f"SELECT * FROM entries WHERE {where}", values).fetchone()
        if row is None:
            return None
        entry = Entry(*row)
        above = self.connection.execute("SELECT hash FROM entries WHERE number = ?", (entry.number - 1,)).fetchone()
        account = self._texts(f"SELECT {_ACCOUNT} FROM accounts WHERE id = ?", entry.account)
        before = above[0] if above else BEGINNING
        if not entry.follows(before, None if account is None else AccountKey(*account), self._terms_at(entry.terms)):
            raise DoesNotHoldError(f"{self.path}: entry {entry.number}: changed: its hash is another")
        return entry

    def _texts(self, query: str, number: int | None) -> tuple[str, ...] | None:
        """Return a row of texts; None where there is none, or something else."""
        row: tuple[str, ...] | None = self.connection.execute(query, (number,)).fetchone()
        return row if row is not None and all(isinstance(value, str) for value in row) else None

    def _terms_at(self, number: int) -> Terms | None:
        row = self._texts(f"SELECT {_TERMS} FROM terms WHERE id = ?", number)
        return None if row is None else Terms(*row)

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

    def _last_terms(self, kind: str, unit: str = "") -> Terms | None:
        """Return the last of the entries of a kind that charge no one."""
        same = "terms IN (SELECT id FROM terms WHERE kind = ? AND unit = ?)"
        entry = self._one(f"account IS NULL AND {same} {_NEWEST}", kind, unit)
        return None if entry is None else self._terms_at(entry.terms)

    def limit_of(self, unit: str) -> Limit | None:
        """Return the limit in force of a unit; None without one."""
        said = self._last_terms("limit", unit)
        return None if said is None else said.limit

    def units(self, kind: str) -> set[str]:
        """Return the units in which there is a ``"charge"``, or a ``"limit"``."""
        return {unit for (unit,) in self.connection.execute("SELECT DISTINCT unit FROM terms WHERE kind = ?", (kind,))}

    @property
    def names(self) -> str:
        """How subjects are named (:attr:`privopt.ledger.subject_names.Names.label`); empty before the first charge."""
        said = self._last_terms("names")
        return "" if said is None else said.purpose

    @property
    def relation(self) -> str | None:
        """Whom all charges are for; None before the first."""
        row = self.connection.execute("SELECT relation FROM terms WHERE kind = 'charge' LIMIT 1").fetchone()
        return None if row is None else str(row[0])

    def knows_others(self, subject: str) -> bool:
        """Return whether anybody was charged under another name."""
        other = "SELECT 1 FROM accounts WHERE subject != ? LIMIT 1"
        return self.connection.execute(other, (subject,)).fetchone() is not None

    def _balance(self, key: AccountKey, micros: int | None) -> _Balance:
        """Return an account's number, its spending and charges, and its spending before the window that ends now.

        Args:
            key: of the account.
            micros: length of the window, which holds its end and not its beginning; None for all time.
        """
        nothing = zero_sum(key.unit)
        same = " AND ".join(f"{name} = ?" for name in key._fields)
        row = self.connection.execute(f"SELECT id FROM accounts WHERE {same}", key).fetchone()
        if row is None:
            return _Balance(None, nothing, 0, nothing)
        last, old = self._one(f"account = ? {_NEWEST}", row[0]), None
        if last is None:
            raise DoesNotHoldError(f"{self.path}: changed: a subject without an entry")
        if micros is not None:
            old = self._one(f"account = ? AND time <= ? {_NEWEST}", row[0], self.now - micros)
        return _Balance(row[0], sum_of(last.total), last.charges, nothing if old is None else sum_of(old.total))

    # --- what was charged ---------------------------------------------------------------------------------

    def key_of(self, name: str, period: str | None, limit: Limit | None, unit: str) -> AccountKey:
        """Return the account of a subject, as the ledger calls it, that a charge of a unit falls on: the period's.

        Raises:
            UsageError: a period, where the limit is not by the calendar.
        """
        calendar = None if limit is None else limit.calendar
        if calendar is None:
            if period is not None:
                cure = "privopt budget FILE --set AMOUNT --per day, before the first charge"
                raise UsageError(f"{self.path}: limit must be by the calendar to charge {period}: {cure}")
            return AccountKey(name, unit)
        if period is None:
            period = calendar.period_now(self.now)
        calendar.check(period)
        return AccountKey(name, unit, period)

    def check_names(self, label: str) -> None:
        """Refuse another way of naming subjects than that of the charges so far."""
        if self.names and self.names != label:
            raise InputError([Fault(str(self.path), "subjects", label, f"{self.names}, as charged")])

    def accounts(self, unit: str) -> list[AccountKey]:
        """Return all accounts in a unit, in order."""
        query = f"SELECT {_ACCOUNT} FROM accounts WHERE unit = ? ORDER BY subject, period"
        return [AccountKey(*row) for row in self.connection.execute(query, (unit,))]

    def account(self, key: AccountKey, subject: str, micros: int | None, limit: Limit | None) -> Account:
        """Return what an account has spent, and has left.

        Args:
            key: of the account.
            subject: whose it is, in words.
            micros: length of the window whose charges count as spent; None for all time.
            limit: in force.
        """
        held, left = self._balance(key, micros), None
        if limit is not None:
            used = self._balance(key, limit.micros).spent
            left = tuple(max(Fraction(0), most - own) for most, own in zip(limit.sum, used, strict=True))
        period = key.period or None
        return Account(subject=subject, spent_sum=held.spent, left_sum=left, reports=held.count, period=period)

    def charges(self, subject: str | None) -> list[Charge]:
        """Return each charge of a subject, or of everybody, oldest first."""
        query = (
            "SELECT e.number, e.time, e.terms, a.subject, a.period FROM entries e JOIN accounts a ON a.id = e.account"
        )
        whose, values = ("", ()) if subject is None else (" WHERE subject = ?", (subject,))
        costs: dict[int, Cost] = {}
        found = []
        for entry, time, number, whom, period in self.connection.execute(f"{query}{whose} ORDER BY number", values):
            if number not in costs:
                terms = self._terms_at(number)
                if terms is None:
                    raise DoesNotHoldError(f"{self.path}: entry {entry}: changed: what it was charged for is gone")
                costs[number] = terms.cost
            found.append(Charge(number=entry, subject=whom, time=time, cost=costs[number], period=period or None))
        return found

    # --- what is added ------------------------------------------------------------------------------------

    def charge(self, key: AccountKey, terms: Terms, limit: Limit | None) -> bool:
        """Charge an account, and return True; if that would pass the limit, charge nothing and return False.

        Args:
            key: of the account.
            terms: of the entry.
            limit: in force.
        """
        held, amount = self._balances.get(key), sum_of(terms.amount)
        if held is None:
            held = self._balances[key] = self._balance(key, None if limit is None else limit.micros)
        if limit is not None:
            spent = added(held.spent, amount)
            if any(own > most for own, most in zip(spent, limit.sum, strict=True)):
                return False
        if held.number is None:
            row = self.connection.execute(f"INSERT INTO accounts ({_ACCOUNT}) VALUES (?, ?, ?)", key)
            held.number = row.lastrowid
        held.total = added(held.total, amount)
        held.count += 1
        self.add(terms, key=key, account=held.number, total=";".join(map(str, held.total)), count=held.count)
        return True

    def add(
        self,
        terms: Terms,
        *,
        key: AccountKey | None = None,
        account: int | None = None,
        total: str = "0",
        count: int = 0,
    ) -> None:
        """Add an entry after the last."""
        number, before = (1, BEGINNING) if self.head is None else (self.head.number + 1, self.head.hash)
        fields = number, account, self.now, self._number(terms), total, count
        self._head = Entry(*fields, Entry(*fields, b"").hashed(before, key, terms))
        self._rows.append(self._head)
        if len(self._rows) >= _AT_ONCE:
            self.close()

    def _number(self, terms: Terms) -> int:
        """Return the number of terms, which are entered where they are new."""
        if terms not in self._terms:
            same = " AND ".join(f"{name} = ?" for name in terms._fields)
            row = self.connection.execute(f"SELECT id FROM terms WHERE {same}", terms).fetchone()
            if row is None:
                marks = ", ".join("?" * len(terms))
                made = self.connection.execute(f"INSERT INTO terms ({_TERMS}) VALUES ({marks})", terms)
                row = (made.lastrowid,)
            self._terms[terms] = row[0]
        return self._terms[terms]

    def close(self) -> None:
        """Write what was added."""
        self.connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", self._rows)
        self._rows.clear()
