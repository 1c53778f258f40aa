"""Check the part of a ledger added since the last check.

The time taken by a full check (:mod:`.check_chain`) grows with the number of entries, so nightly checks would become
slower and slower during a period. Each successful check therefore stores a checkpoint in ``LEDGER.checked``. It
contains the number and hash of the last entry, and a SHA-256 digest of the data that determines which earlier entries
count:

- all accounts, as listed in their index, each with the hash of its newest entry;
- all terms;
- the entries that charge nobody, i.e. limits, names of subjects and closed periods.

The next check recomputes the digest, in time linear in the number of accounts, terms and entries that charge nobody. It
then recomputes the hashes and totals of the later entries, as well as the hash of the newest earlier entry of each
account charged by them. It also looks up each later entry in the index, and rejects later accounts and terms that are
not used by any entry.

After that, everything that transactions rely on is either correct or rejected, with one exception, described below.
Transactions recompute the hash of each entry that they read. The newest entry of each account has the same hash as at
the last check. For a window, the entries just before and just after its beginning are read
(:meth:`~.LedgerTransaction._read_balance`).

The exception is an entry at the beginning of a window that was changed together with its hash. The next entry's hash is
then wrong, but only a full check recomputes it. Likewise, only a full check finds changes to earlier entries on which
nothing relies.

Anyone who can write the ledger can also write the checkpoint, and even a whole new chain. This kind of forgery can be
detected only by comparison with a head (an entry's number and hash) that was stored elsewhere. A check against a head
is always full.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from privopt.errors import DoesNotHoldError, StoppedError, cut, number_of
from privopt.files.log_file import Form
from privopt.files.new_folder import claim_folder
from privopt.files.regular import Unreadable, read_bytes
from privopt.interfaces import Progress
from privopt.interfaces.cost import Sum
from privopt.ledger.balances import NEWEST, LedgerTransaction
from privopt.ledger.check_chain import ENTRIES_PER_PROGRESS, Walk, check_chain, head_of
from privopt.ledger.entries import AccountKey, Entry, Terms, sum_of
from privopt.ledger.rotation import find_closed_head

_CHECKED: Final = re.compile(
    r"privopt ledger checked 3 (?P<first>[0-9a-f]{64}) (?P<number>[1-9][0-9]{0,17}):(?P<hash>[0-9a-f]{64})"
    r" accounts (?P<accounts>[0-9]{1,18}) terms (?P<terms>[0-9]{1,18}) (?P<digest>[0-9a-f]{64})\n"
)
"""Matches a stored checkpoint.

It consists of the hash of the ledger's first entry, the number and hash of the last checked entry, the largest row ids
in the accounts and terms tables, and the digest."""

ROWS_AT_ONCE: Final = 1000
"""The number of rows to read and digest at a time."""

_DIGESTED: Final = (
    # The rows are in the order of the index, so SQLite scans the index, and this query reads what a charge looks up.
    (
        "SELECT subject, unit, period, id, (SELECT hash FROM entries WHERE account = a.id AND number <= :number "
        f"{NEWEST}) FROM accounts a INDEXED BY sqlite_autoindex_accounts_1 WHERE id <= :accounts "
        "ORDER BY subject, unit, period"
    ),
    "SELECT * FROM terms WHERE id <= :terms ORDER BY id",
    "SELECT * FROM entries WHERE account IS NULL AND number <= :number ORDER BY time, number",
)


class _Checkpoint(NamedTuple):
    """The state of a ledger up to the last entry checked.

    Attributes:
        number, hash, time: The number, hash and time of the last entry checked.
        accounts, terms: The largest row ids in the accounts and terms tables.
        digest: The hexadecimal digest of the accounts, the terms and the entries that charge nobody.
    """

    number: int
    hash: bytes
    time: int
    accounts: int
    terms: int
    digest: str


class Checked(NamedTuple):
    """The outcome of a check.

    Attributes:
        archive: The file of the closed period containing the given head, or None if the head is in the open period or
            was not given.
        first: The number of the first entry checked, which is 1 for a full check.
    """

    archive: Path | None
    first: int


def check_ledger(
    transaction: LedgerTransaction,
    form: Form,
    *,
    head: str | None = None,
    full: bool = True,
    progress: Progress | None = None,
) -> Checked:
    """Check a ledger, and store a checkpoint.

    Args:
        transaction: The ledger, open for reading.
        form: The log-file format of ledgers.
        head: A head ``N:HASH``, stored elsewhere, of the open period or a closed one. If given, all entries are
            checked.
        full: Whether to check all entries. If False and there is a checkpoint, only the entries after it are checked.
        progress: A function to call with the number of entries checked so far.

    Returns:
        The archive containing the head, and the number of the first entry checked.

    Raises:
        DoesNotHoldError: The ledger was changed. The message states where, if known.
        UsageError: The head does not have the form ``N:HASH``.
    """
    known_head = None if head is None else head_of(head)
    archive = None if known_head is None else find_closed_head(transaction, known_head, form, progress=progress)
    if archive is not None:
        # The head's entry is in an archive. find_closed_head has already checked that archive and all newer ones.
        known_head = None
    checkpoint = None if full or head is not None else _read_checkpoint(transaction)
    if checkpoint is None:
        check_chain(transaction.connection, transaction.path, head=known_head, progress=progress)
    else:
        _check_later_entries(transaction, checkpoint, progress)
    # If there are no later entries, the stored checkpoint stays valid.
    if checkpoint is None or transaction.count_entries() > checkpoint.number:
        _write_checkpoint(transaction)
    return Checked(archive, 1 if checkpoint is None else checkpoint.number + 1)


def _checkpoint_path(ledger: Path) -> Path:
    """Return the path of a ledger's checkpoint file."""
    return ledger.with_name(f"{ledger.name}.checked")


def _read_checkpoint(transaction: LedgerTransaction) -> _Checkpoint | None:
    """Return the stored checkpoint, or None if it is missing or does not match the ledger's entries.

    After a rotation, or after a backup has been restored, the stored checkpoint belongs to different entries.
    """
    try:
        text = read_bytes(_checkpoint_path(transaction.path), largest=1000).decode("ascii", "replace")
    except (Unreadable, OSError):
        return None
    match = _CHECKED.fullmatch(text)
    if match is None:
        return None
    number = int(match["number"])
    query = "SELECT hash, time FROM entries WHERE number = ?"
    first, last = (transaction.connection.execute(query, (entry,)).fetchone() for entry in (1, number))
    expected = [bytes.fromhex(match[name]) for name in ("first", "hash")]
    if first is None or last is None or [first[0], last[0]] != expected:
        return None
    return _Checkpoint(number, last[0], last[1], int(match["accounts"]), int(match["terms"]), match["digest"])


def _write_checkpoint(transaction: LedgerTransaction) -> None:
    """Store a checkpoint at the last entry, if the ledger has a file.

    Failures are ignored, because they only make the next check slower.
    """
    head = transaction.head
    if head is None or not transaction.path.exists():
        return
    accounts, terms = (
        int(transaction.connection.execute(f"SELECT ifnull(max(id), 0) FROM {table}").fetchone()[0])
        for table in ("accounts", "terms")
    )
    text = (
        f"privopt ledger checked 3 {transaction.hash_of(1).hex()} {head.number}:{head.hash.hex()} accounts {accounts} "
        f"terms {terms} {_digest_of(transaction, head.number, accounts, terms)}\n"
    )
    path = _checkpoint_path(transaction.path)
    with suppress(OSError, StoppedError), claim_folder(path) as work:
        (work / "new").write_text(text, "ascii")
        (work / "new").replace(path)


def _digest_of(transaction: LedgerTransaction, number: int, accounts: int, terms: int) -> str:
    """Return the hexadecimal digest of the accounts, the terms and the entries that charge nobody.

    Args:
        transaction: The ledger, open for reading.
        number: The number of the last entry to include.
        accounts, terms: The largest account and terms ids to include.
    """
    digest = hashlib.sha256()
    for query in _DIGESTED:
        cursor = transaction.connection.execute(query, {"number": number, "accounts": accounts, "terms": terms})
        while rows := cursor.fetchmany(ROWS_AT_ONCE):
            # repr distinguishes the types of values, which SQLite does not enforce.
            digest.update(repr(rows).encode("utf-8", "surrogateescape"))
        digest.update(b"\n")
    return digest.hexdigest()


def _check_later_entries(transaction: LedgerTransaction, checkpoint: _Checkpoint, progress: Progress | None) -> None:
    """Check that the digest up to a checkpoint is unchanged, and check the entries after it.

    Raises:
        DoesNotHoldError: A later entry was changed, or the digest shows a change to accounts, terms, limits or the
            index.
    """
    number, _, _, accounts, terms, digest = checkpoint
    if _digest_of(transaction, number, accounts, terms) != digest:
        raise DoesNotHoldError(
            f"{transaction.path}: changed: its accounts, terms, limits or index are not those of the last check, up to "
            f"entry {number}; see what was changed: privopt budget {transaction.path}"
        )
    walk = _LaterWalk(transaction, checkpoint)
    query = "SELECT * FROM entries NOT INDEXED WHERE number > ? ORDER BY number"
    for row in transaction.connection.execute(query, (number,)):
        walk.check_entry(Entry(*row))
        if progress is not None and walk.number % ENTRIES_PER_PROGRESS == 0:
            progress(f"{number_of(walk.number, 'entry')} checked", 0, None, None)
    walk.check_end()


class _LaterWalk(Walk):
    """A check of the entries after a checkpoint, which reads accounts, terms and earlier totals on demand.

    The other attributes are inherited from :class:`.check_chain.Walk`. Of these, ``accounts``, ``terms`` and ``totals``
    contain only what has been read so far.

    Attributes:
        transaction: The ledger, open for reading.
        checkpoint: The checkpoint after which the check begins.
        numbers: The numbers of the later entries, keyed by account. The key is None for entries that charge nobody.
    """

    def __init__(self, transaction: LedgerTransaction, checkpoint: _Checkpoint) -> None:
        """Prepare to check the entries after the checkpoint.

        The base class's constructor is not called, because it would read all accounts and terms.
        """
        self.transaction, self.path, self.head = transaction, transaction.path, None
        self.accounts, self.terms, self.totals, self.used_terms = {}, {}, {}, set()
        self.number, self.previous_hash, self.time = checkpoint[:3]
        self.checkpoint, self.numbers = checkpoint, dict[int | None, list[int]]()
        # All charges in a ledger have the same relation, so the first charge's can be used.
        self.relation = transaction.relation

    def key_of(self, entry: Entry) -> AccountKey | None:
        """Return the key of an entry's account, or None if the entry has no account or the account is missing."""
        if entry.account is not None and entry.account not in self.accounts:
            key = self.transaction.key_at(entry.account)
            if key is not None:
                self.accounts[entry.account] = key
        return super().key_of(entry)

    def terms_of(self, entry: Entry) -> Terms | None:
        """Return the terms of an entry, or None if they are missing."""
        if entry.terms not in self.terms:
            terms = self.transaction.terms_at(entry.terms)
            if terms is not None:
                self.terms[entry.terms] = terms
        return super().terms_of(entry)

    def total_of(self, account: int, key: AccountKey) -> tuple[Sum, int]:
        """Return an account's total and number of charges so far, including those up to the checkpoint.

        Raises:
            DoesNotHoldError: The account's newest entry up to the checkpoint was changed.
        """
        if account not in self.totals:
            earlier = self.transaction.newest_charge(account, self.checkpoint.number)
            if earlier is not None:
                if not isinstance(earlier.total, str) or not isinstance(earlier.charges, int):
                    raise DoesNotHoldError(f"{self.path}: entry {earlier.number}: changed: its total")
                self.totals[account] = sum_of(earlier.total), earlier.charges
        return super().total_of(account, key)

    def check_entry(self, entry: Entry) -> None:
        """Check an entry against those before it, and remember its number.

        Raises:
            DoesNotHoldError: The entry was changed.
        """
        super().check_entry(entry)
        self.numbers.setdefault(entry.account, []).append(entry.number)

    def check_end(self) -> None:
        """Check that the index lists all later entries in order, and that all later accounts and terms are used.

        Raises:
            DoesNotHoldError: The index was changed, or unused accounts or terms were added.
        """
        query = "SELECT number FROM entries INDEXED BY by_account WHERE account IS ? AND time >= ? AND number > ?"
        for account, numbers in self.numbers.items():
            # No later entry is older than the last one that was checked.
            values = (account, self.checkpoint.time, self.checkpoint.number)
            rows = self.transaction.connection.execute(f"{query} ORDER BY time, number", values)
            if [number for (number,) in rows] != numbers:
                raise DoesNotHoldError(f"{self.path}: changed: the index of entry {numbers[-1]}")
        later_rows = [
            {row[0] for row in self.transaction.connection.execute(f"SELECT id FROM {table} WHERE id > ?", (last,))}
            for table, last in (("accounts", self.checkpoint.accounts), ("terms", self.checkpoint.terms))
        ]
        if not (later_rows[0] <= self.numbers.keys() and later_rows[1] <= self.used_terms):
            raise DoesNotHoldError(f"{self.path}: changed: subjects, or terms, that no entry has")
        # A charge looks up its account by name in a separate index.
        for account in later_rows[0]:
            if self.transaction.number_of(self.accounts[account]) != account:
                raise DoesNotHoldError(
                    f"{self.path}: changed: the index of subject {cut(self.accounts[account].subject)}"
                )
