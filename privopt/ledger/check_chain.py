"""Check that a ledger is unchanged: the chain of hashes, every total, and the database's own check."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from privopt.errors import DoesNotHoldError, UsageError, cut
from privopt.interfaces import Progress
from privopt.ledger.accounts import account_parts
from privopt.ledger.balances import Entry, LedgerTransaction
from privopt.ledger.entries import BEGINNING, Sum, Terms, added, chained, continues, sum_of, unit_of

_ENTRIES_PER_PROGRESS = 50_000
"""Entries between reports of progress."""


def check_chain(
    connection: sqlite3.Connection, path: Path, *, head: tuple[int, str] | None = None, progress: Progress | None = None
) -> None:
    """Recompute the hash of every entry, every subject's total, and ask SQLite for its own check.

    Time is linear in entries; a number and a rational a subject are held.

    Args:
        connection: of the ledger, in a transaction, so that no one writes between.
        path: for messages.
        head: number and hash of an entry that is known to have been written. Entries cut off at the end leave a valid
            chain, and only this shows the loss.
        progress: called with how many entries are done.
    """
    walk = _Walk(connection, path, head)
    last = 0
    try:
        for row in connection.execute("SELECT * FROM entries ORDER BY number"):
            walk.step(Entry(*row))
            last = row[0]
            if progress is not None and last % _ENTRIES_PER_PROGRESS == 0:
                progress(f"{last:,} entries checked", 0, None, None)
        walk.end()
        found = [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    except sqlite3.DatabaseError as error:
        raise DoesNotHoldError(f"{path}: entry {last + 1}: changed: {error}") from error
    if found:
        raise DoesNotHoldError(f"{path}: changed: the database's own check: {cut('; '.join(found[:3]))}")


def head_of(text: str) -> tuple[int, str]:
    """Return number and hash of a head, ``N:HASH``."""
    number, _, digest = text.partition(":")
    whole = number.isascii() and number.isdecimal() and len(number) < 19
    if not (whole and len(digest) == 64 and set(digest) <= set("0123456789abcdef")):
        raise UsageError(f"head must be N:HASH, as budget shows it, got {cut(repr(text))}")
    return int(number), digest


class _Walk:
    """Goes along the chain with what each subject has spent so far."""

    def __init__(self, connection: sqlite3.Connection, path: Path, head: tuple[int, str] | None) -> None:
        self.path, self.head = path, head
        rows = connection.execute("SELECT id, name FROM subjects")
        self.names: dict[int, str] = {number: name for number, name in rows if isinstance(name, str)}
        reader = LedgerTransaction(connection=connection, path=path, clock=lambda: 0)
        numbers = [number for (number,) in connection.execute("SELECT id FROM terms ORDER BY id")]
        self.terms = {number: reader.terms_of(number) for number in numbers}
        self.amounts: dict[int, Sum] = {}
        self.totals: dict[int, tuple[Sum, int]] = {}
        self.seen: set[int] = set()
        self.before, self.number, self.time = BEGINNING, 0, 0
        self.unit: str | None = None

    def wrong(self, entry: Entry, why: str) -> DoesNotHoldError:
        name = None if entry.subject is None else self.names.get(entry.subject)
        whose = "" if name is None else f" (subject {cut(name)})"
        return DoesNotHoldError(f"{self.path}: entry {self.number + 1}{whose}: changed: {why}")

    def step(self, entry: Entry) -> None:
        if entry.number != self.number + 1:
            raise self.wrong(entry, f"its number must be {self.number + 1}, got {entry.number}")
        name = "" if entry.subject is None else self.names.get(entry.subject)
        terms = self.terms.get(entry.terms)
        if name is None or terms is None or not entry.plain:
            raise self.wrong(entry, "its subject, or what it was charged for, is none")
        if entry.hash != chained(self.before, entry.number, entry.time, name, terms, entry.total, entry.count):
            raise self.wrong(entry, "its hash is another")
        if self.head is not None and entry.number == self.head[0] and entry.hash.hex() != self.head[1]:
            raise self.wrong(entry, f"its hash is another than {self.head[1]}, which was kept elsewhere")
        if entry.time < self.time:
            raise self.wrong(entry, "it is older than the one before")
        if (entry.subject is None) == terms.kind.startswith("charge"):
            raise self.wrong(
                entry,
                f"{terms.kind} must be of {'a subject, got none' if entry.subject is None else 'no subject, got one'}",
            )
        if entry.subject is not None:
            self._add(entry, entry.subject, terms)
        self.seen.add(entry.terms)
        self.before, self.number, self.time = entry.hash, entry.number, entry.time

    def _add(self, entry: Entry, subject: int, terms: Terms) -> None:
        if self.unit is not None and not continues(terms.unit, self.unit):
            raise self.wrong(entry, "its unit is not that of the charges before")
        self.unit = terms.unit
        unit = unit_of(terms.kind, "charge")
        if account_parts(self.names[subject])[2] != unit:
            raise self.wrong(entry, f"a charge of {unit} in an account of another unit")
        if entry.terms not in self.amounts:
            self.amounts[entry.terms] = sum_of(terms.amount)
        before, count = self.totals.get(subject, (None, 0))
        amount = self.amounts[entry.terms]
        total, count = amount if before is None else added(before, amount), count + 1
        text = ";".join(map(str, total))
        if (entry.total, entry.count) != (text, count):
            raise self.wrong(entry, f"its total must be {text}, got {cut(str(entry.total))}")
        self.totals[subject] = (total, count)

    def end(self) -> None:
        if self.number == 0:
            raise DoesNotHoldError(f"{self.path}: entry 1: changed: it is missing")
        if self.head is not None and self.number < self.head[0]:
            missing = f"entries {self.number + 1} to {self.head[0]} are missing"
            raise DoesNotHoldError(f"{self.path}: entry {self.number + 1}: changed: {missing}")
        if len(self.totals) != len(self.names) or len(self.seen) != len(self.terms):
            raise DoesNotHoldError(f"{self.path}: changed: subjects, or terms, that no entry has")
