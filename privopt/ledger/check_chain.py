"""Check a ledger for changes to its hash chain, its totals and the database itself."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from privopt.errors import DoesNotHoldError, UsageError, cut, number_of
from privopt.interfaces import Progress
from privopt.interfaces.cost import UNITS, Sum
from privopt.ledger.entries import BEGINNING, AccountKey, Entry, Terms, add_sums, sum_of, zero_sum

ENTRIES_PER_PROGRESS = 50_000
"""The number of entries checked between progress reports."""


def check_chain(
    connection: sqlite3.Connection, path: Path, *, head: tuple[int, str] | None = None, progress: Progress | None = None
) -> None:
    """Check that a ledger has not been changed.

    Every entry's hash and every account's total are recomputed, and SQLite's integrity check is run. The check takes
    time linear in the number of entries, and keeps a count and a total for each account in memory.

    Args:
        connection: The ledger's database. It must be in a transaction, so that no other process can write during the
            check.
        path: The ledger's file, for error messages.
        head: The number and hash of an entry known to have been written. If entries were removed from the end, the
            remaining ones still form a valid chain, so their loss is detected only if this argument is given.
        progress: A function to call with the number of entries checked so far.

    Raises:
        DoesNotHoldError: The ledger was changed. The message names the first affected entry, if known.
    """
    walk = Walk(connection, path, head)
    try:
        for row in connection.execute("SELECT * FROM entries ORDER BY number"):
            walk.check_entry(Entry(*row))
            if progress is not None and walk.number % ENTRIES_PER_PROGRESS == 0:
                progress(f"{number_of(walk.number, 'entry')} checked", 0, None, None)
        walk.check_end()
        # The hashes do not cover the index that lookups use, so SQLite compares the index with the table.
        problems = [text for (text,) in connection.execute("PRAGMA integrity_check") if text != "ok"]
    except sqlite3.DatabaseError as error:
        raise DoesNotHoldError(f"{path}: entry {walk.number + 1}: changed: {error}") from error
    if problems:
        raise DoesNotHoldError(f"{path}: changed: the database's own check: {cut('; '.join(problems[:3]))}")


def head_of(text: str) -> tuple[int, str]:
    """Parse a ledger's head, ``N:HASH``, into the number and hash of its last entry.

    Args:
        text: The string to parse.

    Raises:
        UsageError: The string does not have this form.
    """
    number, _, digest = text.partition(":")
    # Numbers of up to 18 digits fit into SQLite's integers.
    is_number = number.isascii() and number.isdecimal() and len(number) < 19
    if not (is_number and len(digest) == 64 and set(digest) <= set("0123456789abcdef")):
        raise UsageError(f"head must be N:HASH, as budget shows it, got {cut(repr(text))}")
    return int(number), digest


class Walk:
    """A sequential check of a ledger's entries.

    Attributes:
        path: The ledger's file, for error messages.
        head: The number and hash of an entry known to have been written, or None if no such entry is known.
        accounts, terms: The valid rows of the accounts and terms tables, keyed by id. Terms are the parts shared by
            many entries.
        sizes: The number of rows in each of the two tables, whether valid or not.
        totals: The total and the number of charges so far, keyed by the account's id.
        used_terms: The ids of all terms that occur in the entries checked so far.
        previous_hash, number, time: The hash, number and time of the last entry checked.
        relation: The unit of all charges, such as "per km", or None before the first charge.
    """

    def __init__(self, connection: sqlite3.Connection, path: Path, head: tuple[int, str] | None) -> None:
        """Read all of a ledger's accounts and terms.

        Args:
            connection: The ledger's database, in a transaction.
            path: The ledger's file, for error messages.
            head: The number and hash of an entry known to have been written, or None if no such entry is known.
        """
        self.path, self.head = path, head
        accounts, terms = (connection.execute(f"SELECT * FROM {table}").fetchall() for table in ("accounts", "terms"))
        self.accounts = {number: AccountKey(*texts) for number, *texts in accounts if _are_texts(texts)}
        self.terms = {number: Terms(*texts) for number, *texts in terms if _are_texts(texts)}
        # Rows with values that are not text count too. No valid entry can use them, so check_end reports them.
        self.sizes = len(accounts), len(terms)
        self.totals: dict[int, tuple[Sum, int]] = {}
        self.used_terms: set[int] = set()
        self.previous_hash, self.number, self.time = BEGINNING, 0, 0
        self.relation: str | None = None

    def key_of(self, entry: Entry) -> AccountKey | None:
        """Return the key of an entry's account, or None if the entry has no account or the account is missing."""
        return None if entry.account is None else self.accounts.get(entry.account)

    def terms_of(self, entry: Entry) -> Terms | None:
        """Return the terms of an entry, or None if they are missing."""
        return self.terms.get(entry.terms)

    def total_of(self, account: int, key: AccountKey) -> tuple[Sum, int]:
        """Return an account's total and number of charges in the entries checked so far."""
        return self.totals.get(account, (zero_sum(key.unit), 0))

    def change_error(self, entry: Entry, reason: str) -> DoesNotHoldError:
        """Return the error to raise for a changed entry, stating its number, its subject and the reason."""
        key = self.key_of(entry)
        owner_text = "" if key is None else f" (subject {cut(key.subject)})"
        return DoesNotHoldError(f"{self.path}: entry {self.number + 1}{owner_text}: changed: {reason}")

    def check_entry(self, entry: Entry) -> None:
        """Check an entry's number, hash, time, kind and total against the entries before it.

        Raises:
            DoesNotHoldError: The entry was changed.
        """
        if entry.number != self.number + 1:
            raise self.change_error(entry, f"its number must be {self.number + 1}, got {entry.number}")
        key, terms = self.key_of(entry), self.terms_of(entry)
        if terms is None or not entry.follows(self.previous_hash, key, terms):
            raise self.change_error(entry, "its hash does not match, or what it names is gone")
        if self.head is not None and entry.number == self.head[0] and entry.hash.hex() != self.head[1]:
            raise self.change_error(entry, f"its hash is not {self.head[1]}, which was kept elsewhere")
        # Transactions never write an earlier time than that of the last entry (LedgerTransaction.now).
        if entry.time < self.time:
            raise self.change_error(entry, "it is older than the one before")
        # Charges have an account, and no other kind of entry does.
        if (key is None) == (terms.kind == "charge"):
            owner = "a subject, got none" if key is None else "no subject, got one"
            raise self.change_error(entry, f"{terms.kind} must be of {owner}")
        if terms.kind == "closed":
            # The charges of closed periods are in an archive, and had the same relation.
            self.relation = terms.relation
        if key is not None and entry.account is not None:
            self._check_charge(entry, entry.account, key, terms)
        self.used_terms.add(entry.terms)
        self.previous_hash, self.number, self.time = entry.hash, entry.number, entry.time

    def _check_charge(self, entry: Entry, account: int, key: AccountKey, terms: Terms) -> None:
        """Check a charge against the earlier charges, and add it to its account's total.

        Args:
            entry: The entry of the charge.
            account, key: The id and key of the entry's account.
            terms: The entry's terms.

        Raises:
            DoesNotHoldError: The relation, unit or total of the charge does not match the earlier charges or the
                account.
        """
        if self.relation not in (None, terms.relation):
            raise self.change_error(entry, "its unit is not that of the charges before")
        self.relation = terms.relation
        if key.unit != terms.unit or key.unit not in UNITS:
            raise self.change_error(entry, f"a charge of {terms.unit} in an account of {key.unit}")
        previous_total, count = self.total_of(account, key)
        # The stored total must be correct, because a transaction relies on an account's newest total alone.
        total, count = add_sums(previous_total, sum_of(terms.amount)), count + 1
        text = ";".join(map(str, total))
        if (entry.total, entry.charges) != (text, count):
            raise self.change_error(entry, f"its total must be {text}, got {cut(str(entry.total))}")
        self.totals[account] = (total, count)

    def check_end(self) -> None:
        """Check that no entries are missing at the end, and that no accounts or rows of terms are unused.

        Raises:
            DoesNotHoldError: Entries are missing, or an account or row of terms does not occur in any entry.
        """
        if self.number == 0:
            raise DoesNotHoldError(f"{self.path}: entry 1: changed: it is missing")
        if self.head is not None and self.number < self.head[0]:
            missing = f"entries {self.number + 1} to {self.head[0]} are missing"
            raise DoesNotHoldError(f"{self.path}: entry {self.number + 1}: changed: {missing}")
        # No hash covers a row that no entry uses, so such a row was added from outside.
        if (len(self.totals), len(self.used_terms)) != self.sizes:
            raise DoesNotHoldError(f"{self.path}: changed: subjects, or terms, that no entry has")


def _are_texts(values: list[object]) -> bool:
    """Return whether all values in a row are strings. A value of any other type shows that the file was changed."""
    return all(isinstance(value, str) for value in values)
