"""A store of each subject's first report at each place, which is repeated at every later visit.

The store is next to the ledger, in the folder ``FILE.sticky/``, which only its owner can enter. In this folder, the
file ``reports`` contains the reports, and the file ``key`` contains the key for hashing subjects and places. Without a
key, anyone could hash a thousand candidate places and recognise the right one. Reports are not shared between places,
subjects or mechanisms.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from attrs import define, field

from privopt.errors import DoesNotHoldError, Fault, InputError, StoppedError, UsageError, number_of
from privopt.files.log_file import Form, LogFile, translated_errors
from privopt.files.regular import private_folder
from privopt.ledger.balances import Mark
from privopt.ledger.ledger import Ledger
from privopt.ledger.subject_names import key_at

FORM: Final = Form(
    name="store of reports",
    mark=0x70765332,
    schema=(
        "CREATE TABLE reports (place BLOB PRIMARY KEY, subject BLOB NOT NULL, report INTEGER NOT NULL, "
        "entry INTEGER NOT NULL, charge BLOB NOT NULL, seal BLOB NOT NULL) WITHOUT ROWID",
        "CREATE INDEX by_subject ON reports (subject)",
        "CREATE TABLE ledger (beginning BLOB NOT NULL, seal BLOB NOT NULL)",
    ),
)
"""The file format of the store, with its tables.

In the ``reports`` table, ``place`` and ``subject`` are keyed hashes. ``entry`` and ``charge`` are the number and hash
of the ledger entry that charged the report. ``seal`` is an HMAC of the row's other values.
"""

SEQUENCE: Final = (
    "the guarantee for all reports of a subject: which places they are about is protected, at epsilon times the sum "
    "of the distances between the places, each counted once; which of its visits were to the same place, and how many "
    "places there were, is not protected: equal reports, charges and refusals reveal it"
)
"""A sentence about the joint guarantee for all of a subject's stored reports."""

WITHIN: Final = (
    "a place is a cell of a fixed public map, and its report is repeated near the cell's centre: epsilon protects the "
    "position among those of one cell that are near the same centres, and anyone who knows positions at which reports "
    "were or were not renewed learns the cell and which centres are near"
)
"""An addition to :data:`SEQUENCE` saying what is protected if a stored report is also repeated near its cell."""


class KeptReports(LogFile):
    """A store of each subject's first report at each place, located in a folder next to a ledger.

    Args:
        ledger: The open ledger in which the reports are charged.
        make: Whether to create the folder if it is missing. If False, a missing folder is an error.

    Attributes:
        ledger: The open ledger.
        folder: The folder next to the ledger that contains the reports and their key.
        _key: The 32-byte key.

    Raises:
        UsageError: The folder is missing and ``make`` is False, or the path is not a folder, belongs to another user,
            or is accessible to other users.
        InputError: The reports belong to a different ledger, or the file is invalid (see
            :class:`privopt.files.log_file.LogFile`).
        DoesNotHoldError: The file was changed after it was written.
        StoppedError: The folder cannot be created, or the file cannot be read or written.
    """

    def __init__(self, ledger: Ledger, *, make: bool = True) -> None:
        """Open or create the store, and check that it belongs to the ledger."""
        self.ledger = ledger
        self.folder = ledger.path.with_name(f"{ledger.path.name}.sticky")
        if not make and not self.folder.is_dir():
            raise UsageError(f"{self.folder} must be the folder of the reports that apply --sticky keeps, got none")
        try:
            private_folder(self.folder, closed=True)
        except OSError as error:
            raise StoppedError(f"{self.folder}: {error.strerror or error}; nothing written") from error
        # The key is read first, because opening a new store calls `begin`, which writes a seal.
        self._key = key_at(self.folder / "key", make=True)
        super().__init__(self.folder / "reports", FORM)
        try:
            self._check_ledger()
        except BaseException:
            self.close()
            raise

    def begin(self, connection: sqlite3.Connection) -> None:
        """Record the ledger to which a new store belongs, identified by the hash of the ledger's first entry."""
        beginning = self.ledger.beginning
        connection.execute("INSERT INTO ledger VALUES (?, ?)", (beginning, self._make_seal(beginning)))

    def _check_ledger(self) -> None:
        """Check that the store belongs to this ledger, because reports in any other store were not charged here."""
        with self.reading() as connection:
            rows = connection.execute("SELECT * FROM ledger").fetchall()
        if len(rows) != 1 or not self._is_sealed(rows[0]):
            raise DoesNotHoldError(f"{self.path}: changed: which ledger's they are")
        if rows[0][0] != self.ledger.beginning:
            actual, expectation = "kept reports of another ledger", f"those of {self.ledger.path}, or no such folder"
            raise InputError([Fault(str(self.folder), "", actual, expectation)])

    def _keyed_hash(self, *parts: str) -> bytes:
        """Return the HMAC of a list of strings, encoded as JSON so that different lists have different hashes."""
        return hmac.new(self._key, json.dumps(parts).encode("ascii"), hashlib.sha256).digest()

    def _make_seal(self, *values: bytes | int) -> bytes:
        """Return a row's seal: an HMAC of its values, which reveals changes made without the key."""
        texts = [value.hex() if isinstance(value, bytes) else str(value) for value in values]
        return self._keyed_hash("seal", *texts)

    def _is_sealed(self, row: tuple[object, ...]) -> bool:
        """Return whether the last value in a row is a valid seal of the values before it."""
        *values, seal = row
        sealed_values = [value for value in values if isinstance(value, (bytes, int))]
        return (
            len(sealed_values) == len(values)
            and isinstance(seal, bytes)
            and hmac.compare_digest(self._make_seal(*sealed_values), seal)
        )

    @contextmanager
    def visits(
        self, mechanism: str, visits: Sequence[tuple[str, str]], near: Sequence[Sequence[str]] | None = None
    ) -> Iterator[Visits]:
        """Yield the stored reports for a sequence of visits, and then store any reports added in the ``with`` block.

        Reports are added by :meth:`Visits.keep`. No other process can draw a report for a new place until the block
        ends.

        Args:
            mechanism: The SHA-256 identifying the release in charges. Each release has its own reports.
            visits: For each visit, the subject's name in the ledger and the place. A place must be a fixed function of
                the position.
            near: For each visit, other places whose stored reports may be used. They too must be fixed functions of the
                position.
        """
        digests: dict[tuple[str, str], bytes] = {}

        def digest_of(subject: str, place: str) -> bytes:
            """Return the keyed hash of a subject and a place, which is the key of their stored report."""
            if (subject, place) not in digests:
                digests[subject, place] = self._keyed_hash(mechanism, subject, place)
            return digests[subject, place]

        # Visits to the same place share one digest, and with it one report.
        keys = [digest_of(*visit) for visit in visits]
        nearby = [
            [digest_of(subject, nearby_place) for nearby_place in nearby_places]
            for (subject, _), nearby_places in zip(visits, near or [()] * len(keys), strict=True)
        ]
        # The store is locked from the lookup to the insertion, so that two processes cannot draw two reports for one
        # place.
        with self.writing() as connection:
            stored: dict[bytes, tuple[int, Mark]] = {}
            for digest in digests.values():
                row = connection.execute("SELECT * FROM reports WHERE place = ?", (digest,)).fetchone()
                # A changed report would be repeated forever, so every row is checked when it is used.
                if row is not None and not self._is_sealed(row):
                    raise DoesNotHoldError(f"{self.path}: changed: a kept report is not as it was written")
                # The columns are place, subject, report, entry, charge and seal, as in FORM.
                if row is not None:
                    stored[digest] = row[2], (row[3], row[4])
            # A restored backup of the ledger may have lost the charge of a stored report.
            ordered_marks = self.ledger.order_marks(mark for _, mark in stored.values())
            ranks = {mark: rank for rank, mark in enumerate(ordered_marks)}
            charged_reports = {
                digest: (report, ranks[mark]) for digest, (report, mark) in stored.items() if mark in ranks
            }
            uncharged = {digest: report for digest, (report, mark) in stored.items() if mark not in ranks}
            block = Visits(keys=keys, nearby_keys=nearby, stored=charged_reports, uncharged=uncharged)
            yield block
            subject_hashes = {digest: self._keyed_hash("subject", subject) for (subject, _), digest in digests.items()}
            rows = [(digest, subject_hashes[digest], report, *mark) for digest, (report, mark) in block.new.items()]
            connection.executemany(
                "INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?, ?)",
                [(*row, self._make_seal(*row)) for row in rows],
            )

    def forget(self, subject: str) -> int:
        """Remove a subject's stored reports, so that new reports are drawn and charged for the subject's next visits.

        Args:
            subject: The subject's name in the ledger.

        Returns:
            The number of reports removed.

        Raises:
            StoppedError: The reports were removed, but their bytes remain in the write-ahead log, because another
                process is reading the store.
        """
        with self.writing() as connection:
            cursor = connection.execute(
                "DELETE FROM reports WHERE subject = ?", (self._keyed_hash("subject", subject),)
            )
        # Without this, the removed bytes would remain in the write-ahead log.
        with translated_errors(self.path):
            is_busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        # SQLite raises no error if it has waited in vain for another process.
        if is_busy:
            raise StoppedError(
                f"{self.path}: {number_of(cursor.rowcount, 'report')} removed, but another process reads this file, so "
                "that their bytes remain in its log; repeat the command after that process has ended"
            )
        return cursor.rowcount


@define(kw_only=True, eq=False)
class Visits:
    """A sequence of visits, and the stored reports for their places.

    Each visit gets the earliest report for its own place or a nearby one. This is either a report stored before these
    visits or the report of an earlier visit among them. An earlier visit counts even if its charge is refused, so that
    places alone determine which visits are charged.

    Attributes:
        keys: The key of each visit. Visits by the same subject to the same place have equal keys.
        nearby_keys: For each visit, the keys of other places whose stored reports may be used.
        stored: The stored reports, keyed like the visits, each with the rank of its charge. The oldest of these charges
            has rank 0.
        uncharged: Stored reports whose charges are missing from the ledger, for example after a backup was restored.
            Each of these is charged again before it is repeated.
        new: The reports charged in this block, keyed like ``stored``, each with the number and hash of its ledger
            entry.
        first: The indices of the visits to be charged, in order. A visit must be charged unless its place or a nearby
            one has a report, either in ``stored`` or from an earlier visit in this list.
        _given: For each visit, the key of the place whose report is used.
    """

    keys: list[bytes]
    nearby_keys: list[list[bytes]]
    stored: dict[bytes, tuple[int, int]]
    uncharged: dict[bytes, int]
    new: dict[bytes, tuple[int, Mark]] = field(factory=dict, init=False)
    first: list[int] = field(factory=list, init=False)
    _given: list[bytes] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        """Determine which place's report each visit gets, and which visits must be charged."""
        # The index of the visit that is charged for each new place, keyed by place.
        first_visits: dict[bytes, int] = {}
        for number, (key, nearby_keys) in enumerate(zip(self.keys, self.nearby_keys, strict=True)):
            stored_keys = [candidate for candidate in (key, *nearby_keys) if candidate in self.stored]
            # Earlier visits in this block count as well, so that a new place is charged and drawn only once.
            requested_keys = [candidate for candidate in (key, *nearby_keys) if candidate in first_visits]
            # The earliest report is given. Stored reports are older than all reports in this block, and are ordered by
            # their charges.
            if stored_keys:
                self._given.append(min(stored_keys, key=lambda candidate: self.stored[candidate][1]))
            elif requested_keys:
                self._given.append(min(requested_keys, key=first_visits.__getitem__))
            else:
                self._given.append(key)
                first_visits[key] = number
        self.first = list(first_visits.values())

    def keep(self, number: int, report: int, mark: Mark) -> None:
        """Store the report for visit ``number``, which was charged by the ledger entry ``mark``.

        If a report for the same place is already stored but its charge was lost, that report is kept instead.
        """
        key = self.keys[number]
        # A stored report whose charge was lost is repeated, and the newly drawn one is dropped, because a second report
        # about the place would reveal more.
        self.new[key] = self.uncharged.get(key, report), mark

    def report(self, number: int) -> int | None:
        """Return the report for visit ``number``, or None if the charge for its place was refused."""
        key = self._given[number]
        return self.new[key][0] if key in self.new else self.stored.get(key, (None,))[0]
