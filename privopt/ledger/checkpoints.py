"""Check only what was added to a ledger since its last check, whose end is stored in a file beside it.

The time of a full check (:mod:`.check_chain`) grows with the number of entries, so nightly checks would become slower
during a period. Each check that succeeds therefore stores the number and hash of the last entry in ``LEDGER.checked``.
The next one may begin there: it recomputes the hashes and totals of the later entries, and of the newest earlier entry
of each account that they charge.

Only a full check finds changes to earlier entries that no later entry relies on. Transactions recompute the hash of
each entry that they read in any case. Anyone who can write the ledger can write the checkpoint too, but could also
write a whole new chain. Only a head (number and hash of an entry) that is stored elsewhere reveals that, and a check
against such a head is always full.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from privopt.errors import DoesNotHoldError, StoppedError, number_of
from privopt.files.log_file import Form
from privopt.files.new_folder import claim_folder
from privopt.files.regular import Unreadable, read_bytes
from privopt.interfaces import Progress
from privopt.interfaces.cost import Sum
from privopt.ledger.balances import LedgerTransaction
from privopt.ledger.check_chain import ENTRIES_PER_PROGRESS, Walk, check_chain, head_of
from privopt.ledger.entries import AccountKey, Entry, Terms, sum_of
from privopt.ledger.rotation import find_closed_head

_CHECKED: Final = re.compile(
    r"privopt ledger checked (?P<first>[0-9a-f]{64}) (?P<number>[1-9][0-9]{0,17}):(?P<hash>[0-9a-f]{64})\n"
)
"""The stored checkpoint: the hash of the ledger's first entry, then number and hash of the last checked one."""


class _Checkpoint(NamedTuple):
    """The entry up to which a ledger was checked: its number, hash and time."""

    number: int
    hash: bytes
    time: int


def check_ledger(
    book: LedgerTransaction,
    form: Form,
    *,
    head: str | None = None,
    full: bool = True,
    progress: Progress | None = None,
) -> Path | None:
    """Check a ledger, and store a checkpoint.

    Args:
        book: The ledger, open for reading.
        form: The form of a ledger's file.
        head: A head ``N:HASH`` that was kept elsewhere, of the open period or of a closed one. The check is then full.
        full: Whether to check all entries. If False, only those after the checkpoint, if there is one.
        progress: Called with the number of entries that are checked.

    Returns:
        The file of the closed period that the head is of; None if it is of the open one, or not given.

    Raises:
        DoesNotHoldError: The ledger was changed. The message names the entry.
        UsageError: The head has another form.
    """
    known_head = None if head is None else head_of(head)
    archive = None if known_head is None else find_closed_head(book, known_head, form, progress=progress)
    if archive is not None:
        # The entry is in an archive. The archives from there on were checked, and what each left to the next ledger.
        known_head = None
    checkpoint = None if full or head is not None else _read_checkpoint(book)
    if checkpoint is None:
        check_chain(book.connection, book.path, head=known_head, progress=progress)
    else:
        _check_later_entries(book, checkpoint, progress)
    _write_checkpoint(book)
    return archive


def _checkpoint_path(ledger: Path) -> Path:
    """Return the file of a ledger's checkpoint."""
    return ledger.with_name(f"{ledger.name}.checked")


def _read_checkpoint(book: LedgerTransaction) -> _Checkpoint | None:
    """Return the checkpoint, or None if there is none for the ledger's present entries.

    After a rotation, or after a backup was restored, the stored one belongs to other entries.
    """
    try:
        text = read_bytes(_checkpoint_path(book.path), largest=1000).decode("ascii", "replace")
    except (Unreadable, OSError):
        return None
    match = _CHECKED.fullmatch(text)
    if match is None:
        return None
    number = int(match["number"])
    query = "SELECT hash, time FROM entries WHERE number = ?"
    first, last = (book.connection.execute(query, (entry,)).fetchone() for entry in (1, number))
    expected = [bytes.fromhex(match[name]) for name in ("first", "hash")]
    if first is None or last is None or [first[0], last[0]] != expected:
        return None
    return _Checkpoint(number, *last)


def _write_checkpoint(book: LedgerTransaction) -> None:
    """Store the last entry as the checkpoint, if the ledger has a file. A failure only makes the next check slower."""
    head = book.head
    if head is None or not book.path.exists():
        return
    text = f"privopt ledger checked {book.hash_of(1).hex()} {head.number}:{head.hash.hex()}\n"
    path = _checkpoint_path(book.path)
    with suppress(OSError, StoppedError), claim_folder(path) as work:
        (work / "new").write_text(text, "ascii")
        (work / "new").replace(path)


def _check_later_entries(book: LedgerTransaction, checkpoint: _Checkpoint, progress: Progress | None) -> None:
    """Check the entries after a checkpoint.

    Raises:
        DoesNotHoldError: An entry was changed.
    """
    walk = _LaterWalk(book, checkpoint)
    query = "SELECT * FROM entries WHERE number > ? ORDER BY number"
    for row in book.connection.execute(query, (checkpoint.number,)):
        walk.check_entry(Entry(*row))
        if progress is not None and walk.number % ENTRIES_PER_PROGRESS == 0:
            progress(f"{number_of(walk.number, 'entry')} checked", 0, None, None)


class _LaterWalk(Walk):
    """Checks the entries after a checkpoint. Accounts, terms and earlier totals are read when an entry needs them.

    Other attributes are those of :class:`.check_chain.Walk`, of which ``accounts``, ``terms`` and ``totals`` have only
    what was read so far.

    Attributes:
        book: The ledger, open for reading.
        start: Number of the checkpoint's entry.
    """

    def __init__(self, book: LedgerTransaction, checkpoint: _Checkpoint) -> None:
        """Begin after the checkpoint's entry."""
        self.book, self.path, self.head = book, book.path, None
        self.accounts, self.terms, self.totals, self.used_terms = {}, {}, {}, set()
        self.number, self.previous_hash, self.time = checkpoint
        self.start = checkpoint.number
        # All charges of a ledger have the same relation, so that of the first one serves.
        self.relation = book.relation

    def key_of(self, entry: Entry) -> AccountKey | None:
        """Return the key of an entry's account; None if it has no account, or one that is gone."""
        if entry.account is not None and entry.account not in self.accounts:
            key = self.book.key_at(entry.account)
            if key is not None:
                self.accounts[entry.account] = key
        return super().key_of(entry)

    def terms_of(self, entry: Entry) -> Terms | None:
        """Return the terms of an entry; None if they are gone."""
        if entry.terms not in self.terms:
            terms = self.book.terms_at(entry.terms)
            if terms is not None:
                self.terms[entry.terms] = terms
        return super().terms_of(entry)

    def total_of(self, account: int, key: AccountKey) -> tuple[Sum, int]:
        """Return an account's total and number of charges so far, at first from its newest entry up to the checkpoint.

        Raises:
            DoesNotHoldError: That entry was changed.
        """
        if account not in self.totals:
            earlier = self.book.newest_charge(account, self.start)
            if earlier is not None:
                if not isinstance(earlier.total, str) or not isinstance(earlier.charges, int):
                    raise DoesNotHoldError(f"{self.path}: entry {earlier.number}: changed: its total")
                self.totals[account] = sum_of(earlier.total), earlier.charges
        return super().total_of(account, key)
