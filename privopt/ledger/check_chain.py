"""Check that a ledger is unchanged: the chain of hashes, every total, and the database's own check."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from privopt.errors import DoesNotHoldError, UsageError, cut
from privopt.interfaces import Progress
from privopt.interfaces.cost import UNITS, Sum
from privopt.ledger.entries import BEGINNING, AccountKey, Entry, Terms, added, sum_of, zero_sum

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
    try:
        for row in connection.execute("SELECT * FROM entries ORDER BY number"):
            walk.step(Entry(*row))
            if progress is not None and walk.number % _ENTRIES_PER_PROGRESS == 0:
                progress(f"{walk.number:,} entries checked", 0, None, None)
        walk.end()
        found = [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    except sqlite3.DatabaseError as error:
        raise DoesNotHoldError(f"{path}: entry {walk.number + 1}: changed: {error}") from error
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
    """Goes along the chain with what each account has spent so far."""

    def __init__(self, connection: sqlite3.Connection, path: Path, head: tuple[int, str] | None) -> None:
        self.path, self.head = path, head
        accounts, terms = (connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("accounts", "terms"))
        self.accounts = {number: AccountKey(*texts) for number, *texts in accounts if _all_text(texts)}
        self.terms = {number: Terms(*texts) for number, *texts in terms if _all_text(texts)}
        self.sizes = len(accounts), len(terms)  # those that are not all text too, which no entry can have
        self.totals: dict[int, tuple[Sum, int]] = {}
        self.seen: set[int] = set()
        self.before, self.number, self.time = BEGINNING, 0, 0
        self.relation: str | None = None

    def wrong(self, entry: Entry, why: str) -> DoesNotHoldError:
        key = None if entry.account is None else self.accounts.get(entry.account)
        whose = "" if key is None else f" (subject {cut(key.subject)})"
        return DoesNotHoldError(f"{self.path}: entry {self.number + 1}{whose}: changed: {why}")

    def step(self, entry: Entry) -> None:
        if entry.number != self.number + 1:
            raise self.wrong(entry, f"its number must be {self.number + 1}, got {entry.number}")
        key = None if entry.account is None else self.accounts.get(entry.account)
        terms = self.terms.get(entry.terms)
        if terms is None or not entry.follows(self.before, key, terms):
            raise self.wrong(entry, "its hash is another, or what it names is gone")
        if self.head is not None and entry.number == self.head[0] and entry.hash.hex() != self.head[1]:
            raise self.wrong(entry, f"its hash is another than {self.head[1]}, which was kept elsewhere")
        if entry.time < self.time:
            raise self.wrong(entry, "it is older than the one before")
        if (key is None) == (terms.kind == "charge"):
            owner = "a subject, got none" if key is None else "no subject, got one"
            raise self.wrong(entry, f"{terms.kind} must be of {owner}")
        if key is not None and entry.account is not None:
            self._add(entry, entry.account, key, terms)
        self.seen.add(entry.terms)
        self.before, self.number, self.time = entry.hash, entry.number, entry.time

    def _add(self, entry: Entry, account: int, key: AccountKey, terms: Terms) -> None:
        if self.relation not in (None, terms.relation):
            raise self.wrong(entry, "its unit is not that of the charges before")
        self.relation = terms.relation
        if key.unit != terms.unit or key.unit not in UNITS:
            raise self.wrong(entry, f"a charge of {terms.unit} in an account of {key.unit}")
        before, count = self.totals.get(account, (zero_sum(key.unit), 0))
        total, count = added(before, sum_of(terms.amount)), count + 1
        text = ";".join(map(str, total))
        if (entry.total, entry.charges) != (text, count):
            raise self.wrong(entry, f"its total must be {text}, got {cut(str(entry.total))}")
        self.totals[account] = (total, count)

    def end(self) -> None:
        if self.number == 0:
            raise DoesNotHoldError(f"{self.path}: entry 1: changed: it is missing")
        if self.head is not None and self.number < self.head[0]:
            missing = f"entries {self.number + 1} to {self.head[0]} are missing"
            raise DoesNotHoldError(f"{self.path}: entry {self.number + 1}: changed: {missing}")
        if (len(self.totals), len(self.seen)) != self.sizes:
            raise DoesNotHoldError(f"{self.path}: changed: subjects, or terms, that no entry has")


def _all_text(values: list[object]) -> bool:
    return all(isinstance(value, str) for value in values)
