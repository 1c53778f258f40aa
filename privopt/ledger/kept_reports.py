"""Stored first reports: one for each subject and place, repeated ever after (docs/mathematics.md, T3).

They lie in a folder next to the ledger, ``FILE.sticky/``, which only its owner can enter. ``reports`` has the reports,
and ``key`` the key under which subjects and places are hashed: an unkeyed hash of one of a thousand places would reveal
the place. Nothing is shared between places, subjects or mechanisms.
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

from privopt.errors import DoesNotHoldError, Fault, InputError, StoppedError, UsageError
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
"""Entry and charge are number and hash of the entry that a report was charged by; a seal is the rest's HMAC."""

SEQUENCE: Final = (
    "what holds of all reports of a subject: which places they are of is protected, epsilon times the sum of the "
    "distances between the places, each counted once; not protected is which of its visits were to the same place, and "
    "how many places there were: equal reports, charges and refusals reveal it"
)
"""The guarantee of a sequence of kept reports."""

WITHIN: Final = (
    "a place is a cell of a fixed public map, and its report is given again near the cell's centre: epsilon protects "
    "the position among those of one cell that are near the same centres, and anyone who knows positions at which "
    "reports were or were not renewed learns the cell and which centres are near"
)
"""What remains of that guarantee if a kept report is given again near its cell."""


class KeptReports(LogFile):
    """The stored reports next to a ledger. The store is created if there is none.

    Args:
        ledger: that charged them, open.
        make: False to refuse a folder that is not there.

    Raises:
        UsageError: the folder is none, another user's, or others may enter it.
        StoppedError: it cannot be made.
        InputError: they are another ledger's.
        InputError, DoesNotHoldError, StoppedError: see :class:`privopt.files.log_file.LogFile`.
    """

    def __init__(self, ledger: Ledger, *, make: bool = True) -> None:
        self.ledger = ledger
        self.folder = ledger.path.with_name(f"{ledger.path.name}.sticky")
        if not make and not self.folder.is_dir():
            raise UsageError(f"{self.folder} must be the folder of the reports that apply --sticky keeps, got none")
        try:
            private_folder(self.folder, closed=True)
        except OSError as error:
            raise StoppedError(f"{self.folder}: {error.strerror or error}; nothing written") from error
        self._key = key_at(self.folder / "key", make=True)
        super().__init__(self.folder / "reports", FORM)
        try:
            self._check_ledger()
        except BaseException:
            self.close()
            raise

    def begin(self, connection: sqlite3.Connection) -> None:
        """Bind the new store to its ledger."""
        beginning = self.ledger.beginning
        connection.execute("INSERT INTO ledger VALUES (?, ?)", (beginning, self._make_seal(beginning)))

    def _check_ledger(self) -> None:
        """Refuse the store of another ledger, whose charges this ledger does not have."""
        with self.reading() as connection:
            rows = connection.execute("SELECT * FROM ledger").fetchall()
        if len(rows) != 1 or not self._is_sealed(rows[0]):
            raise DoesNotHoldError(f"{self.path}: changed: which ledger's they are")
        if rows[0][0] != self.ledger.beginning:
            actual, expectation = "kept reports of another ledger", f"those of {self.ledger.path}, or no such folder"
            raise InputError([Fault(str(self.folder), "", actual, expectation)])

    def _keyed_hash(self, *parts: str) -> bytes:
        """Return the keyed hash of texts; JSON keeps lists of parts apart."""
        return hmac.new(self._key, json.dumps(parts).encode("ascii"), hashlib.sha256).digest()

    def _make_seal(self, *values: bytes | int) -> bytes:
        """Return the seal of a row: an HMAC of its values."""
        texts = [value.hex() if isinstance(value, bytes) else str(value) for value in values]
        return self._keyed_hash("seal", *texts)

    def _is_sealed(self, row: tuple[object, ...]) -> bool:
        """Return whether a row has the seal of its values."""
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
        """Find the stored reports of visits. No other process draws for a new place until the block ends.

        Args:
            mechanism: what is drawn from, as charged: another one keeps reports of its own.
            visits: subject, as the ledger names it, and place, a fixed function of the position, of each.
            near: further places of each visit whose kept report is given too, fixed functions of the position likewise.
        """
        digests: dict[tuple[str, str], bytes] = {}

        def digest_of(subject: str, place: str) -> bytes:
            if (subject, place) not in digests:
                digests[subject, place] = self._keyed_hash(mechanism, subject, place)
            return digests[subject, place]

        # Visits to the same place share one digest, and with it one report.
        keys = [digest_of(*visit) for visit in visits]
        nearby = [
            [digest_of(subject, place) for place in of]
            for (subject, _), of in zip(visits, near or [()] * len(keys), strict=True)
        ]
        with self.writing() as connection:
            stored: dict[bytes, tuple[int, Mark]] = {}
            for digest in digests.values():
                row = connection.execute("SELECT * FROM reports WHERE place = ?", (digest,)).fetchone()
                # A changed report would be repeated ever after, so that every row is checked on use.
                if row is not None and not self._is_sealed(row):
                    raise DoesNotHoldError(f"{self.path}: changed: a kept report is not as it was written")
                if row is not None:
                    stored[digest] = row[2], (row[3], row[4])
            # A restored backup of the ledger may have lost the charge of a stored report.
            standing = self.ledger.standing(mark for _, mark in stored.values())
            charged_reports = {
                digest: (report, mark[0]) for digest, (report, mark) in stored.items() if mark in standing
            }
            uncharged = {digest: report for digest, (report, mark) in stored.items() if mark not in standing}
            block = Visits(keys=keys, near=nearby, kept=charged_reports, uncharged=uncharged)
            yield block
            subject_hashes = {digest: self._keyed_hash("subject", subject) for (subject, _), digest in digests.items()}
            rows = [(digest, subject_hashes[digest], report, *mark) for digest, (report, mark) in block.new.items()]
            connection.executemany(
                "INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?, ?)",
                [(*row, self._make_seal(*row)) for row in rows],
            )

    def forget(self, subject: str) -> int:
        """Remove the stored reports of a subject: its next visits are drawn, and charged, again.

        Returns:
            The number of removed reports.
        """
        with self.writing() as connection:
            cursor = connection.execute(
                "DELETE FROM reports WHERE subject = ?", (self._keyed_hash("subject", subject),)
            )
        # The removed bytes would remain in the write-ahead log.
        with translated_errors(self.path):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return cursor.rowcount


@define(kw_only=True, eq=False)
class Visits:
    """Visits, and the stored reports of their places.

    If several places of a visit have reports, the earliest one is given: one from before these visits, or one of an
    earlier visit among them. An earlier visit counts whether its charge is granted or not, so that places alone
    determine which visits are charged.

    Attributes:
        keys: of each visit, equal for the same subject and place.
        near: of each visit, keys of further places whose stored report is given too.
        kept: by key, the report and the number of the ledger's entry by which it was charged.
        uncharged: stored reports whose charge the ledger does not have, as after a restored backup: such a report is
            charged again before it is repeated.
        new: the reports that were charged now, and their entries.
        first: the visits to be charged, by number: no report is stored of their place, nor of one nearby.
    """

    keys: list[bytes]
    near: list[list[bytes]]
    kept: dict[bytes, tuple[int, int]]
    uncharged: dict[bytes, int]
    new: dict[bytes, tuple[int, Mark]] = field(factory=dict, init=False)
    first: list[int] = field(factory=list, init=False)
    _given: list[bytes] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        first_visits: dict[bytes, int] = {}
        for number, (key, nearby_keys) in enumerate(zip(self.keys, self.near, strict=True)):
            stored_keys = [candidate for candidate in (key, *nearby_keys) if candidate in self.kept]
            requested_keys = [candidate for candidate in (key, *nearby_keys) if candidate in first_visits]
            if stored_keys:
                self._given.append(min(stored_keys, key=lambda candidate: self.kept[candidate][1]))
            elif requested_keys:
                self._given.append(min(requested_keys, key=first_visits.__getitem__))
            else:
                self._given.append(key)
                first_visits[key] = number
        self.first = list(first_visits.values())

    def keep(self, number: int, report: int, mark: Mark) -> None:
        """Store the report of a visit that was charged. An earlier report of its place is not replaced."""
        key = self.keys[number]
        self.new[key] = self.uncharged.get(key, report), mark

    def report(self, number: int) -> int | None:
        """Return the report of a visit; None if nothing was charged."""
        key = self._given[number]
        return self.new[key][0] if key in self.new else self.kept.get(key, (None,))[0]
