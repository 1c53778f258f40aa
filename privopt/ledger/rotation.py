"""Rotation, which archives a ledger's file and starts a new ledger that continues it.

A ledger grows by one entry per report, and a full check reads every entry. Rotation keeps each file short. The first
entry of the new file contains the name of the archived file and the hash of its last entry, which continues the hash
chain. It is followed by the charges that still count. :func:`check_history` recomputes these entries from the archived
files.

To make sure that nobody's spent budget is forgotten, the following charges are carried over:

- Without a calendar, the sum of the charges for each account and notion, as a single charge with the time of the newest
  one. Charges in the limit's sliding window are carried over individually, with their original times.
- With a calendar, the accounts for the previous period and all later ones. Earlier periods are closed: this is recorded
  in an entry, and nothing more can be charged to them.

A single rename replaces the old file with the new one, so if the process is killed at any point, either the old ledger
or the new one is left under the ledger's name. The old ledger is locked while the new file is being written. Processes
that were waiting for the lock notice that the file has been replaced (:mod:`privopt.files.log_file`).
"""

from __future__ import annotations

import glob
import os
import re
import secrets
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Final, NamedTuple

from attrs import field, frozen

from privopt.errors import DoesNotHoldError, StoppedError, UsageError
from privopt.files.log_file import Form, open_archive, translated_errors, write_database
from privopt.files.new_folder import claim_folder
from privopt.files.regular import flush
from privopt.interfaces import Progress
from privopt.interfaces.cost import UNITS, Sum
from privopt.ledger.balances import LedgerTransaction
from privopt.ledger.check_chain import check_chain
from privopt.ledger.entries import AccountKey, Limit, Terms, add_sums, sum_of

__all__ = [
    "Predecessor",
    "Rotation",
    "check_history",
    "find_closed_head",
    "has_others",
    "predecessor_of",
    "predecessors",
    "rotate_file",
]

_CONTINUES: Final = re.compile(
    r"privopt ledger 1 [0-9a-f]{32} continues (?P<first>[0-9a-f]{64}) after (?P<number>[0-9]{1,18}):"
    r"(?P<hash>[0-9a-f]{64}) at (?P<micros>[0-9]{1,18}) in (?P<name>[^/\x00]{1,255})"
)
"""Matches the purpose recorded in the first entry of a ledger that continues another one."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@frozen(kw_only=True)
class Rotation:
    """The outcome of archiving a ledger's file and starting a new one that continues it.

    Attributes:
        archive: The archived file.
        head: The number and hash of the archived ledger's last entry, as ``N:HASH``.
        entries: The number of entries archived.
        carried: The number of charges carried over to the new ledger.
        closed: A mapping from each budget unit (such as ``epsilon``) that has a limit per calendar period to the first
            period that can still be charged. All earlier periods are closed.
    """

    archive: Path
    head: str
    entries: int
    carried: int
    closed: dict[str, str] = field(factory=dict)


@frozen(kw_only=True)
class Predecessor:
    """The archived ledger continued by a newer ledger, as recorded in the newer ledger's first entry.

    Attributes:
        path: The archived file.
        number, digest: The number and hexadecimal hash of the archive's last entry.
        first: The hash of the oldest archive's first entry, which identifies all ledgers in the sequence.
        micros: The time of the rotation, in microseconds since 1970, UTC.
    """

    path: Path
    number: int
    digest: str
    first: bytes
    micros: int

    @property
    def head(self) -> tuple[int, str]:
        """The number and hash of the archive's last entry."""
        return self.number, self.digest


class _Carried(NamedTuple):
    """An entry, such as a charge, written to the new ledger by a rotation.

    Attributes:
        time: The entry's time in microseconds since 1970, UTC.
        key: The account charged by the entry, or None if the entry is not a charge.
        terms: The rest of the entry, such as its kind, notion and amount.
    """

    time: int
    key: AccountKey | None
    terms: Terms


def predecessor_of(transaction: LedgerTransaction) -> Predecessor | None:
    """Return the archived ledger continued by a ledger, or None if it does not continue another one."""
    first_terms = transaction.first_terms
    match = None if first_terms is None else _CONTINUES.fullmatch(first_terms.purpose)
    if match is None:
        return None
    return Predecessor(
        path=transaction.path.with_name(match["name"]),
        number=int(match["number"]),
        digest=match["hash"],
        first=bytes.fromhex(match["first"]),
        micros=int(match["micros"]),
    )


def predecessors(transaction: LedgerTransaction, form: Form) -> Iterator[tuple[Predecessor, LedgerTransaction]]:
    """Yield the archived ledgers continued by a ledger, from newest to oldest.

    Each item is a pair: the archive as recorded by its successor, and the archive opened for reading. The iteration
    ends at the first missing archive.

    Raises:
        DoesNotHoldError: The last entry that a ledger records for its archive is not in the archive.
    """
    predecessor = predecessor_of(transaction)
    with ExitStack() as archives:
        while predecessor is not None and predecessor.path.exists():
            # All archives stay open until the end, because callers compare each one with the next newer one.
            connection = archives.enter_context(open_archive(predecessor.path, form))
            archived = LedgerTransaction(connection=connection, path=predecessor.path, clock=transaction.clock)
            if archived.hash_of(predecessor.number).hex() != predecessor.digest:
                raise DoesNotHoldError(f"{predecessor.path}: changed: not the ledger that {transaction.path} continues")
            yield predecessor, archived
            predecessor = predecessor_of(archived)


def has_others(transaction: LedgerTransaction, subject: str, form: Form) -> bool:
    """Return whether a ledger or any of its archives records a charge to a subject other than the given one.

    The result is True if an archive is missing, because it might record such a charge. Under limits per calendar
    period, a rotation does not carry over charges for closed periods, so some subjects may occur only in an archive.
    ``form`` is the log-file format of ledgers.
    """
    if transaction.has_others(subject):
        return True
    missing = predecessor_of(transaction)
    for _, archived in predecessors(transaction, form):
        if archived.has_others(subject):
            return True
        missing = predecessor_of(archived)
    return missing is not None


def find_closed_head(
    transaction: LedgerTransaction, head: tuple[int, str], form: Form, *, progress: Progress | None = None
) -> Path | None:
    """Search the archives for an entry, and return the path of the archive containing it.

    Returns None if the entry is in the open ledger, or if it was not found and no archives are missing.

    Archives are checked from the newest back to the one containing the entry. Each archive's successor must begin with
    the entries carried over from that archive. Without this check, a forged ledger that names a genuine archive would
    go undetected.

    Args:
        transaction: The open ledger.
        head: The entry's number and hexadecimal hash.
        form: The log-file format of ledgers.
        progress: A function to call with the number of entries checked so far.

    Raises:
        DoesNotHoldError: An archive was changed, an archive's successor does not begin with the entries carried over,
            or the entry was not found and an archive that might contain it is missing.
    """
    number, digest = head
    if _has_hash(transaction, number, digest):
        return None
    missing = predecessor_of(transaction)
    for predecessor, archived in _checked_archives(transaction, form, progress):
        missing = predecessor_of(archived)
        if number <= predecessor.number and _has_hash(archived, number, digest):
            return predecessor.path
    if missing is not None:
        raise DoesNotHoldError(
            f"{missing.path}: missing: without it nobody can check that what it left counts today, nor whether it has "
            f"the head {number}:{digest}; put the archive back into the folder"
        )
    return None


def _has_hash(transaction: LedgerTransaction, number: int, digest: str) -> bool:
    """Return whether a ledger contains an entry with this number and hash. The hash is not recomputed."""
    row = transaction.connection.execute("SELECT hash FROM entries WHERE number = ?", (number,)).fetchone()
    return row is not None and isinstance(row[0], bytes) and row[0].hex() == digest


def _previous_period(limit: Limit, now: int) -> str:
    """Return the name of the previous calendar period, which a rotation keeps open for rows that arrive late.

    Args:
        limit: A limit per calendar period.
        now: The current time in microseconds since 1970, UTC.
    """
    assert limit.calendar is not None  # the caller passes only limits per calendar period
    current = limit.calendar.period_now(now)
    moment = _EPOCH + timedelta(microseconds=now)
    # The loop goes back at most 31 days, and cannot skip a period, since none is much shorter than a day.
    while limit.calendar.period_at(moment) == current:
        moment -= timedelta(hours=1)
    return limit.calendar.period_at(moment)


def carried_entries(
    transaction: LedgerTransaction, limits: dict[str, Limit], now: int, last: int
) -> tuple[list[_Carried], dict[str, str]]:
    """Return the entries that a rotation carries over to the new ledger, and the periods that it leaves open.

    The entries record closed periods and charges. They depend only on the old ledger's entries, the limits and the time
    of the rotation, so anyone can recompute them.

    Args:
        transaction: The old ledger.
        limits: The limits in force, by budget unit (such as ``epsilon``).
        now: The time of the rotation, in microseconds since 1970, UTC.
        last: The number of the old ledger's last entry before the rotation.

    Returns:
        The entries, in chronological order, and a mapping from each unit with a limit per calendar period to the first
        period that remains open.
    """
    # A closed period stays closed even if the clock was set back, because this ledger no longer has its charges.
    closed = {
        unit: max(transaction.closed_before(unit), _previous_period(limit, now))
        for unit, limit in limits.items()
        if limit.calendar is not None
    }
    window_starts = {unit: now - limit.micros for unit, limit in limits.items() if limit.micros is not None}
    names = ", ".join(f"t.{name}" for name in Terms._fields)
    rows = transaction.connection.execute(
        f"SELECT e.time, a.subject, a.unit, a.period, {names} FROM entries e JOIN accounts a ON a.id = e.account "
        "JOIN terms t ON t.id = e.terms WHERE e.number <= ? ORDER BY e.number",
        (last,),
    )
    recent: list[_Carried] = []
    # For each account, notion and relation: the sum of the charges, the time of the newest one, and their number.
    sums: dict[tuple[AccountKey, str, str], tuple[Sum, int, int]] = {}
    for time, subject, unit, period, *texts in rows:
        key, terms = AccountKey(subject, unit, period), Terms(*texts)
        # The charge belongs to a closed period, so it is not carried over.
        if key.period and key.period < closed.get(unit, ""):
            continue
        # Without a window no charge counts as recent, since none is later than now.
        if time > window_starts.get(unit, now):
            recent.append(_Carried(time, key, terms))
            continue
        group = (key, terms.notion, terms.relation)
        amount = sum_of(terms.amount)
        total, _, count = sums.get(group, (tuple(Fraction(0) for _ in amount), 0, 0))
        sums[group] = (add_sums(total, amount), time, count + 1)
    carried = [
        _Carried(
            time,
            key,
            Terms(
                kind="charge",
                unit=key.unit,
                relation=group_relation,
                notion=notion,
                amount=";".join(map(str, total)),
                purpose=f"carried over: {count}",
            ),
        )
        for (key, notion, group_relation), (total, time, count) in sums.items()
    ]
    # Python's sort is stable, so entries with equal times keep the old ledger's order.
    charges = sorted([*carried, *recent], key=lambda entry: entry.time)
    start = charges[0].time if charges else now
    # If no charges are left, the relation comes from the entries that closed earlier periods.
    relation = transaction.relation or ""
    closings = [
        _Carried(start, None, Terms(kind="closed", unit=unit, relation=relation, purpose=period))
        for unit, period in sorted(closed.items())
    ]
    return [*closings, *charges], closed


def _opening_entries(transaction: LedgerTransaction, now: int, last: int) -> tuple[list[_Carried], dict[str, str]]:
    """Return the entries that follow a new ledger's first one: limits, carried entries, and the naming scheme.

    Args:
        transaction: The old ledger.
        now: The time of the rotation, in microseconds since 1970, UTC.
        last: The number of the old ledger's last entry before the rotation.

    Returns:
        The entries, and a mapping from each unit with a limit per calendar period to the first period that remains
        open.
    """
    limits = {unit: limit for unit in UNITS if (limit := transaction.limit_of(unit)) is not None}
    carried, closed = carried_entries(transaction, limits, now, last)
    start = carried[0].time if carried else now
    settings = [_Carried(start, None, Terms.of_limit(limit)) for limit in limits.values()]
    # The old ledger has charges, so it records how subjects are named. This last entry has the time of the rotation, so
    # that no later entry can have an earlier time. Otherwise, if the clock was set back, a later charge could get an
    # earlier time and leave a sliding window too early.
    naming = _Carried(now, None, Terms(kind="names", purpose=transaction.names))
    return [*settings, *carried, naming], closed


def rotate_file(
    path: Path,
    form: Form,
    clock: Callable[[], int],
    *,
    progress: Progress | None = None,
    step: Callable[[str], object] = lambda name: None,
) -> Rotation:
    """Archive a ledger's file, and start a new ledger under the same name that continues the archived one.

    Args:
        path: The ledger's file.
        form: The log-file format of ledgers.
        clock: A function that returns the current time in nanoseconds since 1970, UTC.
        progress: A function to call with the number of entries checked so far.
        step: A function to call with the name of each step before it runs, so that tests can simulate crashes.

    Raises:
        DoesNotHoldError: The ledger was changed.
        StoppedError: Another process is using the ledger, or an I/O error occurred.
        UsageError: Nothing has ever been charged to the ledger, or the path is a symbolic link.
    """
    if path.is_symlink():
        # The new ledger would replace the link, and the old one would stay in use under its own name.
        raise UsageError(f"{path} must be the ledger's own name to close a period, got a link to {path.resolve()}")
    with translated_errors(path), _open_exclusively(path) as old:
        transaction = LedgerTransaction(connection=old, path=path, clock=clock)
        check_chain(old, path, progress=progress)
        head, now = transaction.head, transaction.now
        assert head is not None  # check_chain rejects an empty ledger
        if transaction.relation is None:
            raise UsageError(f"{path}: there must be charges to close a period, got none")
        opening, closed = _opening_entries(transaction, now, head.number)
        _remove_stale_links(path)
        archive = _archive_path(path, now)
        predecessor = predecessor_of(transaction)
        if predecessor is not None and predecessor.path.exists():
            # An earlier rotation may have been killed before its last step.
            _close_archive(predecessor.path, clock)
        first_hash = transaction.hash_of(1) if predecessor is None else predecessor.first
        purpose = (
            f"privopt ledger 1 {secrets.token_hex(16)} continues {first_hash.hex()} after {head.number}:"
            f"{head.hash.hex()} at {now} in {archive.name}"
        )
        start = opening[0].time if opening else now
        entries = [_Carried(start, None, Terms(kind="begin", purpose=purpose)), *opening]
        with claim_folder(path) as work:
            step("write the new ledger")
            _write_ledger(work / "new", form, clock, entries)
            step("name the archive")
            # From here on the old file has two names, but it still is the ledger.
            _link(path, archive)
            flush(path.parent)
            step("switch")
            os.replace(work / "new", path)
            step("flush the folder")
            flush(path.parent)
    step("close the archive")
    # This step only prevents charges to the archive itself. If the process is killed before it, or the disk is full,
    # the next rotation does it.
    with translated_errors(archive):
        _close_archive(archive, clock)
    return Rotation(
        archive=archive,
        head=f"{head.number}:{head.hash.hex()}",
        entries=head.number,
        carried=sum(entry.key is not None for entry in opening),
        closed=closed,
    )


@contextmanager
def _open_exclusively(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a ledger that no other process is using, merge its write-ahead log into the main file, and lock it.

    If the block fails before the ledger's file is replaced, write-ahead logging is re-enabled.

    Raises:
        StoppedError: Another process is using the ledger.
    """
    address, file_number = f"{path.absolute().as_uri()}?mode=rw", path.stat().st_ino
    with closing(sqlite3.connect(address, uri=True, isolation_level=None, timeout=10.0)) as connection:
        connection.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
        connection.execute("PRAGMA synchronous = FULL")
        try:
            # Remove the write-ahead log, whose files would otherwise be taken for those of the new ledger. SQLite does
            # not do this while another process is connected.
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("BEGIN EXCLUSIVE")
            yield connection
        except BaseException:
            # The mode cannot change within a transaction. If another process is connected, it cannot change either, but
            # then it did not change above. After the switch, a write-ahead log would get the name of the new ledger's
            # log.
            with suppress(sqlite3.Error, OSError):
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if path.stat().st_ino == file_number:
                    connection.execute("PRAGMA journal_mode = WAL")
            raise


def _write_ledger(path: Path, form: Form, clock: Callable[[], int], entries: list[_Carried]) -> None:
    """Write the given entries, with their times, to a new ledger file, and flush the file to disk."""

    def carry_entries(connection: sqlite3.Connection) -> None:
        """Write the entries and check them, within the transaction that creates the tables."""
        transaction = LedgerTransaction(connection=connection, path=path, clock=clock)
        for entry in entries:
            transaction.carry(entry.key, entry.terms, entry.time)
        transaction.close()
        check_chain(connection, path)

    write_database(path, form, carry_entries)


def _archive_path(path: Path, now: int) -> Path:
    """Return an unused path for archiving ``path``: the same name followed by the rotation time ``now`` (UTC)."""
    moment = (_EPOCH + timedelta(microseconds=now)).strftime("%Y%m%dT%H%M%SZ")
    candidate, number = path.with_name(f"{path.name}.until-{moment}"), 1
    while candidate.exists() and not candidate.samefile(path):
        candidate, number = path.with_name(f"{path.name}.until-{moment}-{number}"), number + 1
    return candidate


def _link(path: Path, archive: Path) -> None:
    """Hard-link a ledger's file to the archive's name, unless an interrupted rotation has already done so.

    Raises:
        StoppedError: A different file already has the archive's name.
    """
    with suppress(FileExistsError):
        os.link(path, archive)
    if not archive.samefile(path):
        raise StoppedError(f"{archive}: another file has this name; nothing was changed")


def _remove_stale_links(path: Path) -> None:
    """Remove hard links to a ledger's file left behind by an interrupted rotation."""
    for link in path.parent.glob(f"{glob.escape(path.name)}.until-*"):
        if link.samefile(path):
            link.unlink()


def _close_archive(archive: Path, clock: Callable[[], int]) -> None:
    """Append an entry marking a ledger as archived, unless it is already marked, and make its file read-only."""
    # If its owner cannot write to the file, an earlier call has closed it.
    if not archive.stat().st_mode & 0o200:
        return
    with closing(sqlite3.connect(archive, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        transaction = LedgerTransaction(connection=connection, path=archive, clock=clock)
        if not transaction.is_archived:
            transaction.add(Terms(kind="end", purpose="rotated: charges go to the ledger that continues this one"))
        transaction.close()
        connection.execute("COMMIT")
    archive.chmod(0o400)


def check_history(transaction: LedgerTransaction, form: Form, *, progress: Progress | None = None) -> int:
    """Check all archived ledgers continued by a ledger, and the entries carried over from each one to its successor.

    Args:
        transaction: The open ledger, which must already have been checked.
        form: The log-file format of ledgers.
        progress: A function to call with the number of entries checked so far.

    Returns:
        The number of archived ledgers.

    Raises:
        DoesNotHoldError: An archive is missing or was changed, an archive's successor does not begin with the entries
            carried over from it, or entries were added to an archive after its rotation (other than the one marking it
            as archived).
    """
    count, oldest, missing = 0, transaction.path, predecessor_of(transaction)
    for _, archived in _checked_archives(transaction, form, progress):
        count, oldest, missing = count + 1, archived.path, predecessor_of(archived)
    if missing is not None:
        raise DoesNotHoldError(f"{missing.path}: missing: the ledger that {oldest.name} continues")
    return count


def _checked_archives(
    transaction: LedgerTransaction, form: Form, progress: Progress | None
) -> Iterator[tuple[Predecessor, LedgerTransaction]]:
    """Check each archive and the entries carried over from it to its successor, and yield the archives, newest first.

    Each item is a pair: the archive as recorded by its successor, and the archive opened for reading. The iteration
    ends at the first missing archive. See :func:`check_history` for the arguments and errors.
    """
    successor = transaction
    for predecessor, archived in predecessors(transaction, form):
        missing = predecessor_of(archived)
        check_chain(archived.connection, predecessor.path, head=predecessor.head, progress=progress)
        if predecessor.first != (archived.hash_of(1) if missing is None else missing.first):
            raise DoesNotHoldError(f"{successor.path}: entry 1: changed: {predecessor.path.name} began otherwise")
        # A rotation appends one last entry to the archive. Charges after it would not count in any ledger in use.
        if archived.count_entries() > predecessor.number + archived.is_archived:
            raise DoesNotHoldError(
                f"{predecessor.path}: entry {predecessor.number + 1}: written after the rotation, so that "
                f"{successor.path.name} does not count it"
            )
        expected, _ = _opening_entries(archived, predecessor.micros, predecessor.number)
        # Not strict, because a separate check below reports missing entries.
        for number, (entry, carried) in enumerate(zip(successor.first_entries(len(expected)), expected, strict=False)):
            if entry != carried:
                raise DoesNotHoldError(
                    f"{successor.path}: entry {number + 2}: changed: not what {predecessor.path.name} leaves"
                )
        if successor.count_entries() < len(expected) + 1:
            raise DoesNotHoldError(f"{successor.path}: changed: charges of {predecessor.path.name} are missing")
        yield predecessor, archived
        successor = archived
