"""The account balances read and updated by a single ledger transaction.

Charging must not slow down as a ledger grows. A transaction therefore reads only the newest entry of an account, which
contains the cumulative total, and recomputes the hash of each entry on which it relies.
:mod:`privopt.ledger.check_chain` checks all entries.
"""

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
from privopt.ledger.entries import BEGINNING, AccountKey, Entry, Limit, Terms, add_sums, sum_of, zero_sum

SCHEMA: Final = (
    "CREATE TABLE accounts (id INTEGER PRIMARY KEY, subject TEXT NOT NULL, unit TEXT NOT NULL, period TEXT NOT NULL, "
    "UNIQUE (subject, unit, period))",
    "CREATE TABLE terms (id INTEGER PRIMARY KEY, kind TEXT NOT NULL, unit TEXT NOT NULL, relation TEXT NOT NULL, "
    "notion TEXT NOT NULL, mechanism TEXT NOT NULL, amount TEXT NOT NULL, within TEXT NOT NULL, purpose TEXT NOT NULL)",
    "CREATE TABLE entries (number INTEGER PRIMARY KEY, account INTEGER, time INTEGER NOT NULL, terms INTEGER NOT NULL, "
    "total TEXT NOT NULL, count INTEGER NOT NULL, hash BLOB NOT NULL)",
    "CREATE INDEX by_account ON entries (account, time)",
)
"""The SQL statements that create a ledger's tables and index.

An entry that charges nobody has no account. ``total`` and ``count`` describe the account's state after the entry.
Totals are stored as text, because SQLite has no rational numbers.
"""

Mark = tuple[int, bytes]
"""A ledger entry's number and hash, which together identify the entry."""

_ACCOUNT: Final = ", ".join(AccountKey._fields)
_TERMS: Final = ", ".join(Terms._fields)
NEWEST: Final = "ORDER BY time DESC, number DESC LIMIT 1"
"""The SQL clause that selects the newest entry. SQLite can find this entry through the index."""
_MAX_PENDING_ROWS: Final = 20_000
"""The number of added entries in memory that triggers a write to the database."""


@define
class _Balance:
    """The state of an account within a transaction.

    Attributes:
        number: The account's id in the ``accounts`` table, or None if the account is new.
        total: The total charged so far.
        count: The number of charges so far.
        earlier_total: The total charged before the limit's window began, or 0 if there is no window.
    """

    number: int | None
    total: Sum
    count: int
    earlier_total: Sum

    @property
    def spent(self) -> Sum:
        """The sum spent within the limit's window, or over all time if there is no window."""
        return tuple(a - b for a, b in zip(self.total, self.earlier_total, strict=True))


@define(kw_only=True, eq=False)
class LedgerTransaction:
    """A transaction in which ledger entries are read and added.

    Added entries are written by :meth:`close` at the latest.

    Attributes:
        connection: The database, in a transaction.
        path: The ledger's file, for error messages.
        clock: A function that returns the time in nanoseconds since 1970, UTC.
        _rows: Added entries that have not yet been written to the database.
        _balances: The balances of the accounts charged so far, including the added charges.
        _terms: The ids, in the ``terms`` table, of the terms used so far.
        _closed: The results of :meth:`closed_before` so far, keyed by unit.
        _head: The last entry, or None if it has not yet been read or the ledger is empty.
        _now: The time to record for added entries, in microseconds since 1970, UTC, or None until it is first needed.
    """

    connection: sqlite3.Connection
    path: Path
    clock: Callable[[], int]
    _rows: list[Entry] = field(factory=list)
    _balances: dict[AccountKey, _Balance] = field(factory=dict)
    _terms: dict[Terms, int] = field(factory=dict)
    _closed: dict[str, str] = field(factory=dict)
    _head: Entry | None = None
    _now: int | None = None

    # --- reading entries ----------------------------------------------------------------------------------

    def _find_entry(self, where: str, *values: object) -> Entry | None:
        """Return the first entry that meets a condition, or None if there is none, after checking the entry's hash.

        Args:
            where: The condition in SQL, with a question mark for each value.
            values: The values that replace the question marks.

        Raises:
            DoesNotHoldError: The entry was changed.
        """
        row = self.connection.execute(f"SELECT * FROM entries WHERE {where}", values).fetchone()
        if row is None:
            return None
        entry = Entry(*row)
        previous_row = self.connection.execute(
            "SELECT hash FROM entries WHERE number = ?", (entry.number - 1,)
        ).fetchone()
        key = None if entry.account is None else self.key_at(entry.account)
        # A missing previous entry is noticed too, because the recomputed hash then differs from the stored one.
        previous_hash = previous_row[0] if previous_row else BEGINNING
        if not entry.follows(previous_hash, key, self.terms_at(entry.terms)):
            raise DoesNotHoldError(f"{self.path}: entry {entry.number}: changed: its hash does not match")
        return entry

    def _read_texts(self, query: str, number: int | None) -> tuple[str, ...] | None:
        """Return the row found by a query for ``number``, or None if there is no row or any value is not a string.

        The values are checked because columns can contain any type in a file that has been tampered with.
        """
        row: tuple[str, ...] | None = self.connection.execute(query, (number,)).fetchone()
        return row if row is not None and all(isinstance(value, str) for value in row) else None

    def terms_at(self, number: int) -> Terms | None:
        """Return the terms with the given id, or None if the table has no valid row with this id."""
        row = self._read_texts(f"SELECT {_TERMS} FROM terms WHERE id = ?", number)
        return None if row is None else Terms(*row)

    def key_at(self, number: int) -> AccountKey | None:
        """Return the key of the account with the given id, or None if the table has no valid row with this id."""
        row = self._read_texts(f"SELECT {_ACCOUNT} FROM accounts WHERE id = ?", number)
        return None if row is None else AccountKey(*row)

    def number_of(self, key: AccountKey) -> int | None:
        """Return an account's id, or None if there is no such account."""
        condition = " AND ".join(f"{name} = ?" for name in key._fields)
        row = self.connection.execute(f"SELECT id FROM accounts WHERE {condition}", key).fetchone()
        return None if row is None else int(row[0])

    def periods(self, subject: str, unit: str) -> list[str]:
        """Return the calendar periods in which a subject was charged in the given unit, in chronological order."""
        query = "SELECT period FROM accounts WHERE subject = ? AND unit = ? ORDER BY period"
        return [period for (period,) in self.connection.execute(query, (subject, unit)) if period]

    def newest_charge(self, account: int, last: int) -> Entry | None:
        """Return an account's newest entry whose number is at most ``last``, or None if it has no such entry."""
        return self._find_charge(account, f"AND number <= ? {NEWEST}", last)

    def hash_of(self, number: int) -> bytes:
        """Return the hash of the entry with the given number, or empty bytes if there is no entry with this number."""
        entry = self._find_entry("number = ?", number)
        return b"" if entry is None else entry.hash

    @property
    def head(self) -> Entry | None:
        """The last entry, or None if the ledger is empty."""
        if self._head is None:
            self._head = self._find_entry("number = (SELECT max(number) FROM entries)")
        return self._head

    @property
    def now(self) -> int:
        """The current time in microseconds since 1970, or the last entry's time if that is later.

        Times must not decrease. Otherwise, charges made while the system clock was set back would drop out of a sliding
        window too early.
        """
        if self._now is None:
            last = 0 if self.head is None else self.head.time
            self._now = max(self.clock() // 1000, last)
        return self._now

    def _last_terms(self, kind: str, unit: str = "") -> Terms | None:
        """Return the terms of the newest entry of the given kind and unit, or None if there is no such entry."""
        # Limits, names and closed periods are stored as entries, of which the newest is in force.
        condition = "terms IN (SELECT id FROM terms WHERE kind = ? AND unit = ?)"
        entry = self._find_entry(f"account IS NULL AND {condition} {NEWEST}", kind, unit)
        return None if entry is None else self.terms_at(entry.terms)

    def limit_of(self, unit: str) -> Limit | None:
        """Return the limit currently in force for a unit, or None if there is none."""
        terms = self._last_terms("limit", unit)
        return None if terms is None else terms.limit

    def units(self, kind: str) -> set[str]:
        """Return the units for which there is an entry of the given kind (``"charge"`` or ``"limit"``).

        An entry that closes periods counts as a charge, because the closed periods contained charges.
        """
        # The query has two placeholders, so a single kind is given twice.
        kinds = ("charge", "closed") if kind == "charge" else (kind, kind)
        rows = self.connection.execute("SELECT DISTINCT unit FROM terms WHERE kind IN (?, ?)", kinds)
        return {unit for (unit,) in rows}

    def closed_before(self, unit: str) -> str:
        """Return the first calendar period that can still be charged in a unit, or "" if no period has been closed.

        Earlier periods must remain closed. A rotation does not carry over their accounts, so the budget spent in them
        could otherwise be spent again.
        """
        if unit not in self._closed:
            # An entry of kind "closed" stores the first open period as its purpose.
            terms = self._last_terms("closed", unit)
            self._closed[unit] = "" if terms is None else terms.purpose
        return self._closed[unit]

    @property
    def first_terms(self) -> Terms | None:
        """The terms of the first entry, or None if the ledger is empty.

        They identify the ledger and, if it continues another ledger, name the other one.
        """
        entry = self._find_entry("number = 1")
        return None if entry is None else self.terms_at(entry.terms)

    def first_entries(self, count: int) -> list[tuple[int, AccountKey | None, Terms]]:
        """Return the time, account and terms of up to ``count`` entries, starting with the second entry."""
        names = ", ".join([*(f"a.{name}" for name in AccountKey._fields), *(f"t.{name}" for name in Terms._fields)])
        rows = self.connection.execute(
            f"SELECT e.time, e.account, {names} FROM entries e LEFT JOIN accounts a ON a.id = e.account "
            "JOIN terms t ON t.id = e.terms WHERE e.number BETWEEN 2 AND ? ORDER BY e.number",
            (count + 1,),
        )
        width = len(AccountKey._fields)
        return [
            (time, None if account is None else AccountKey(*texts[:width]), Terms(*texts[width:]))
            for time, account, *texts in rows
        ]

    def count_entries(self) -> int:
        """Return the number of entries."""
        return 0 if self.head is None else self.head.number

    @property
    def names(self) -> str:
        """The label of the scheme used to name subjects, or "" before the first charge.

        See :attr:`.subject_names.Names.label`.
        """
        # An entry of kind "names" stores the scheme's label as its purpose.
        terms = self._last_terms("names")
        return "" if terms is None else terms.purpose

    @property
    def relation(self) -> str | None:
        """The unit shared by all charges, such as "per km" (:attr:`Cost.unit`), or None before the first charge."""
        row = self.connection.execute(
            "SELECT relation FROM terms WHERE kind IN ('charge', 'closed') ORDER BY id LIMIT 1"
        ).fetchone()
        return None if row is None else str(row[0])

    def has_others(self, subject: str) -> bool:
        """Return whether any subject other than the given one has been charged."""
        query = "SELECT 1 FROM accounts WHERE subject != ? LIMIT 1"
        return self.connection.execute(query, (subject,)).fetchone() is not None

    def _read_balance(self, key: AccountKey, micros: int | None) -> _Balance:
        """Return an account's balance, based on its newest entry and the entries around the start of the window.

        Args:
            key: The account.
            micros: The length of the window in microseconds, or None for all time. The window ends now. It includes its
                end but not its start.

        Raises:
            DoesNotHoldError: The account has no entries, or an entry was changed.
        """
        nothing = zero_sum(key.unit)
        account = self.number_of(key)
        if account is None:
            return _Balance(None, nothing, 0, nothing)
        # The newest entry has the account's total, so no other entry is needed.
        last = self._find_charge(account, NEWEST)
        if last is None:
            raise DoesNotHoldError(f"{self.path}: changed: a subject without an entry")
        # Totals are cumulative, so a single entry gives all that was spent before the window.
        earlier_total = nothing if micros is None else self._total_until(self.now - micros, account, last, nothing)
        return _Balance(account, sum_of(last.total), last.charges, earlier_total)

    def _find_charge(self, account: int, where: str, *values: int) -> Entry | None:
        """Return an account's first entry that meets an SQL condition, or None if there is none.

        The ``where`` and ``values`` arguments are the same as for :meth:`_find_entry`.
        """
        entry = self._find_entry(f"account = ? {where}", account, *values)
        # SQLite finds the row through the index but reads it from the table, so a changed index can lead to another
        # account.
        if entry is not None and entry.account != account:
            raise DoesNotHoldError(f"{self.path}: changed: the index of entry {entry.number}")
        return entry

    def _total_until(self, time: int, account: int, last: Entry, nothing: Sum) -> Sum:
        """Return an account's total up to and including a given time.

        The entries just before and just after that time are read and their counts are compared, so that any tampering
        with times is detected.

        Args:
            time: The time in microseconds since 1970, UTC.
            account, last: The account's id and its newest entry.
            nothing: The zero sum in the account's unit.

        Raises:
            DoesNotHoldError: An entry was changed.
        """
        before = self._find_charge(account, f"AND time <= ? {NEWEST}", time)
        after = self._find_charge(account, "AND time > ? ORDER BY time, number LIMIT 1", time)
        count = 0 if before is None else before.charges
        is_beside = last.charges == count if after is None else after.charges == count + 1 and after.time > time
        if not is_beside or (before is not None and before.time > time):
            raise DoesNotHoldError(f"{self.path}: changed: the times of entries up to entry {last.number}")
        return nothing if before is None else sum_of(before.total)

    # --- accounts and charges -----------------------------------------------------------------------------

    def key_of(self, name: str, period: str | None, limit: Limit | None, unit: str) -> AccountKey:
        """Return the key of the account to charge.

        Args:
            name: The subject's name in the ledger.
            period: The report's calendar period, or None for the current one. It must be None if the limit is not per
                calendar period.
            limit: The limit in force, or None if there is no limit.
            unit: The unit of the charge.

        Raises:
            UsageError: A period is given although the limit is not per calendar period, or there is no such period in
                the limit's calendar.
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

    def check_open(self) -> None:
        """Raise an error if the ledger is archived, because its accounts must then be charged in its successor.

        Raises:
            UsageError: The ledger's last entry states that the ledger was rotated.
        """
        if self.is_archived:
            raise UsageError(f"{self.path} must be a ledger in use, got one that was rotated: charge its successor")

    @property
    def is_archived(self) -> bool:
        """Whether the last entry states that the ledger was rotated."""
        terms = None if self.head is None else self.terms_at(self.head.terms)
        return terms is not None and terms.kind == "end"

    def check_names(self, label: str) -> None:
        """Check that earlier charges used the given scheme for naming subjects.

        Args:
            label: The label of the scheme (:attr:`.subject_names.Names.label`).

        Raises:
            InputError: Earlier charges used a different scheme.
        """
        if self.names and self.names != label:
            raise InputError([Fault(str(self.path), "subjects", label, f"{self.names}, as charged")])

    def accounts(self, unit: str) -> list[AccountKey]:
        """Return the keys of all accounts in a unit, ordered by subject and period."""
        query = f"SELECT {_ACCOUNT} FROM accounts WHERE unit = ? ORDER BY subject, period"
        return [AccountKey(*row) for row in self.connection.execute(query, (unit,))]

    def account(self, key: AccountKey, subject: str, micros: int | None, limit: Limit | None) -> Account:
        """Return an account's balance: the amount spent and the amount remaining under the limit.

        Args:
            key: The account.
            subject: The subject's name in the result.
            micros: The length in microseconds of a window that ends now. Only charges within it count as spent. None
                means all time.
            limit: The limit in force, or None if there is no limit.

        Raises:
            DoesNotHoldError: An entry was changed.
        """
        # The requested window applies to what was spent, and the limit's own window to what is left.
        balance, remaining = self._read_balance(key, micros), None
        if limit is not None:
            window_spent = self._read_balance(key, limit.micros).spent
            # A limit may have been lowered after the charges, but the remainder is never below 0.
            remaining = tuple(
                max(Fraction(0), limit_number - spent_number)
                for limit_number, spent_number in zip(limit.sum, window_spent, strict=True)
            )
        if key.period and key.period < self.closed_before(key.unit):
            # The charges of a closed period are in an archive, and nothing is left.
            remaining = zero_sum(key.unit)
        period = key.period or None
        return Account(
            subject=subject, spent_sum=balance.spent, left_sum=remaining, reports=balance.count, period=period
        )

    def charges(self, subject: str | None) -> list[Charge]:
        """Return the charges to a subject, or to all subjects if ``subject`` is None, oldest first.

        Args:
            subject: The subject's name in the ledger.

        Raises:
            DoesNotHoldError: The terms of a charge are missing.
        """
        query = (
            "SELECT e.number, e.time, e.terms, a.subject, a.period FROM entries e JOIN accounts a ON a.id = e.account"
        )
        # Only entries with an account are charges.
        condition, values = ("", ()) if subject is None else (" WHERE subject = ?", (subject,))
        # Many entries share the same terms, so the cost of each row of terms is parsed only once.
        costs: dict[int, Cost] = {}
        charges = []
        for number, time, terms_number, owner, period in self.connection.execute(
            f"{query}{condition} ORDER BY number", values
        ):
            if terms_number not in costs:
                terms = self.terms_at(terms_number)
                if terms is None:
                    raise DoesNotHoldError(f"{self.path}: entry {number}: changed: what it was charged for is gone")
                costs[terms_number] = terms.cost
            cost = costs[terms_number]
            charges.append(Charge(number=number, subject=owner, time=time, cost=cost, period=period or None))
        return charges

    def charges_for(self, purpose: str) -> dict[AccountKey, list[tuple[int, Fraction]]]:
        """Return the time and amount (epsilon or rho) of each charge for a purpose, grouped by account, oldest first.

        Removed entries are not detected here. If an entry was removed, the total is too low, and callers will charge
        the difference again.

        Raises:
            DoesNotHoldError: One of these entries was changed.
        """
        charges: dict[AccountKey, list[tuple[int, Fraction]]] = {}
        # There are far fewer terms than entries. If no terms have the purpose, no entry needs to be read.
        exists_query = "SELECT 1 FROM terms WHERE kind = 'charge' AND purpose = ? LIMIT 1"
        if self.connection.execute(exists_query, (purpose,)).fetchone() is None:
            return charges
        names = ", ".join([*(f"a.{name}" for name in AccountKey._fields), *(f"t.{name}" for name in Terms._fields)])
        rows = self.connection.execute(
            f"SELECT p.hash, e.*, {names} FROM entries e JOIN terms t ON t.id = e.terms LEFT JOIN accounts a ON "
            "a.id = e.account LEFT JOIN entries p ON p.number = e.number - 1 WHERE t.kind = 'charge' AND t.purpose = ? "
            "ORDER BY e.number",
            (purpose,),
        )
        width, key_width = len(Entry._fields), len(AccountKey._fields)
        for previous_hash, *values in rows:
            entry, texts = Entry(*values[:width]), values[width:]
            # If the account is missing, its key contains None instead of strings, so the recomputed hash differs.
            key, terms = AccountKey(*texts[:key_width]), Terms(*texts[key_width:])
            if entry.account is None or not entry.follows(previous_hash, key, terms):
                raise DoesNotHoldError(f"{self.path}: entry {entry.number}: changed: its hash does not match")
            charges.setdefault(key, []).append((entry.time, sum_of(terms.amount)[0]))
        return charges

    # --- adding entries -----------------------------------------------------------------------------------

    def charge(self, key: AccountKey, terms: Terms, limit: Limit | None) -> bool:
        """Charge an account, unless this would exceed the limit.

        Args:
            key: The account.
            terms: The entry's terms, which include the amount.
            limit: The limit in force, or None if there is no limit.

        Returns:
            Whether the account was charged. If not, nothing was written.
        """
        if key.period and key.period < self.closed_before(key.unit):
            return False
        balance, amount = self._balances.get(key), sum_of(terms.amount)
        if balance is None:
            balance = self._balances[key] = self._read_balance(key, None if limit is None else limit.micros)
        if limit is not None:
            # Check this before anything is written, so that a charge that would exceed the limit leaves no trace.
            spent = add_sums(balance.spent, amount)
            if any(spent_number > limit_number for spent_number, limit_number in zip(spent, limit.sum, strict=True)):
                return False
        if balance.number is None:
            row = self.connection.execute(f"INSERT INTO accounts ({_ACCOUNT}) VALUES (?, ?, ?)", key)
            balance.number = row.lastrowid
        balance.total = add_sums(balance.total, amount)
        balance.count += 1
        self.add(terms, key=key, account=balance.number, total=";".join(map(str, balance.total)), count=balance.count)
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
        """Append an entry, with a hash chaining it to the previous entry.

        Args:
            terms: The terms of the entry.
            key, account: The key and id of the charged account, or None for an entry that charges nobody.
            total: The total charged to the account, including this entry, as a string that represents it exactly.
            count: The number of charges to the account, including this entry.
        """
        number, previous_hash = (1, BEGINNING) if self.head is None else (self.head.number + 1, self.head.hash)
        fields = number, account, self.now, self._terms_number(terms), total, count
        # The hash covers all other fields, so an entry with an empty hash is created first.
        self._head = Entry(*fields, Entry(*fields, b"").compute_hash(previous_hash, key, terms))
        self._rows.append(self._head)
        # Write many rows at a time, which is faster and bounds the memory.
        if len(self._rows) >= _MAX_PENDING_ROWS:
            self.close()

    def carry(self, key: AccountKey | None, terms: Terms, time: int) -> None:
        """Append an entry carried over from an earlier ledger, keeping its original time and ignoring any limit.

        Args:
            key: The account that was charged, or None for an entry that charges nobody.
            terms: The terms of the entry.
            time: The entry's time in microseconds since 1970, UTC, which must not precede the last entry's time.
        """
        # The entry gets this time instead of the clock's.
        self._now = time
        if key is None:
            self.add(terms)
        else:
            self.charge(key, terms, None)
        self._now = None

    def _terms_number(self, terms: Terms) -> int:
        """Return the id of the given terms in the ``terms`` table, inserting the terms first if they are new."""
        if terms not in self._terms:
            condition = " AND ".join(f"{name} = ?" for name in terms._fields)
            row = self.connection.execute(f"SELECT id FROM terms WHERE {condition}", terms).fetchone()
            if row is None:
                marks = ", ".join("?" * len(terms))
                cursor = self.connection.execute(f"INSERT INTO terms ({_TERMS}) VALUES ({marks})", terms)
                row = (cursor.lastrowid,)
            self._terms[terms] = row[0]
        return self._terms[terms]

    def close(self) -> None:
        """Write any added entries that are still in memory to the database."""
        self.connection.executemany("INSERT INTO entries VALUES (?, ?, ?, ?, ?, ?, ?)", self._rows)
        self._rows.clear()
