"""First reports that are kept: one for each subject and place, repeated ever after (mathematics T3).

They are in a folder next to the ledger, ``FILE.sticky/``, which only its owner can enter. ``reports`` holds what was
reported, ``key`` the key under which subjects and places are hashed: an unkeyed hash of one of a thousand places would
reveal the place. Nothing is shared between places, subjects or mechanisms.
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
    """The kept reports next to a ledger; made where there are none.

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
        """Write whose they are."""
        beginning = self.ledger.beginning
        connection.execute("INSERT INTO ledger VALUES (?, ?)", (beginning, self._sealed(beginning)))

    def _check_ledger(self) -> None:
        """Refuse those of another ledger: what that charged, this one did not."""
        with self.reading() as connection:
            rows = connection.execute("SELECT * FROM ledger").fetchall()
        if len(rows) != 1 or not self._is_sealed(rows[0]):
            raise DoesNotHoldError(f"{self.path}: changed: which ledger's they are")
        if rows[0][0] != self.ledger.beginning:
            found, wanted = "kept reports of another ledger", f"those of {self.ledger.path}, or no such folder"
            raise InputError([Fault(str(self.folder), "", found, wanted)])

    def _hashed(self, *parts: str) -> bytes:
        return hmac.new(self._key, json.dumps(parts).encode("ascii"), hashlib.sha256).digest()

    def _sealed(self, *values: bytes | int) -> bytes:
        texts = [value.hex() if isinstance(value, bytes) else str(value) for value in values]
        return self._hashed("seal", *texts)

    def _is_sealed(self, row: tuple[object, ...]) -> bool:
        *values, seal = row
        known = [value for value in values if isinstance(value, (bytes, int))]
        return len(known) == len(values) and isinstance(seal, bytes) and hmac.compare_digest(self._sealed(*known), seal)

    @contextmanager
    def visits(
        self, mechanism: str, visits: Sequence[tuple[str, str]], near: Sequence[Sequence[str]] | None = None
    ) -> Iterator[Visits]:
        """Find the kept reports of visits; no other process draws for a new place until the block ends.

        Args:
            mechanism: what is drawn from, as charged: another one keeps reports of its own.
            visits: subject, as the ledger names it, and place, a fixed function of the position, of each.
            near: further places of each visit whose kept report is given too, fixed functions of the position likewise.
        """
        digests: dict[tuple[str, str], bytes] = {}

        def digest_of(subject: str, place: str) -> bytes:
            if (subject, place) not in digests:
                digests[subject, place] = self._hashed(mechanism, subject, place)
            return digests[subject, place]

        keys = [digest_of(*visit) for visit in visits]
        nearby = [
            [digest_of(subject, place) for place in of]
            for (subject, _), of in zip(visits, near or [()] * len(keys), strict=True)
        ]
        with self.writing() as connection:
            found: dict[bytes, tuple[int, Mark]] = {}
            for digest in digests.values():
                row = connection.execute("SELECT * FROM reports WHERE place = ?", (digest,)).fetchone()
                if row is not None and not self._is_sealed(row):
                    raise DoesNotHoldError(f"{self.path}: changed: a kept report is not as it was written")
                if row is not None:
                    found[digest] = row[2], (row[3], row[4])
            standing = self.ledger.standing(mark for _, mark in found.values())
            kept = {digest: (report, mark[0]) for digest, (report, mark) in found.items() if mark in standing}
            uncharged = {digest: report for digest, (report, mark) in found.items() if mark not in standing}
            held = Visits(keys=keys, near=nearby, kept=kept, uncharged=uncharged)
            yield held
            whose = {digest: self._hashed("subject", subject) for (subject, _), digest in digests.items()}
            rows = [(digest, whose[digest], report, *mark) for digest, (report, mark) in held.new.items()]
            connection.executemany(
                "INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?, ?)", [(*row, self._sealed(*row)) for row in rows]
            )

    def forget(self, subject: str) -> int:
        """Remove what is kept of a subject, bytes and all: its next visits are drawn, and charged, again.

        Returns:
            How many reports were removed.
        """
        with self.writing() as connection:
            gone = connection.execute("DELETE FROM reports WHERE subject = ?", (self._hashed("subject", subject),))
        with translated_errors(self.path):
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return gone.rowcount


@define(kw_only=True, eq=False)
class Visits:
    """Visits and what is kept of them.

    Of several places of a visit the earliest kept report is given, of before these visits or of an earlier one of them.
    An earlier one counts whether its charge is granted or not, so places alone say which visits are charged.

    Attributes:
        keys: of each visit, equal for the same subject and place.
        near: of each visit, keys of further places whose kept report is given too.
        kept: by key, the report and the number of the ledger's entry by which it was charged.
        uncharged: what was kept whose charge the ledger does not hold, as one that was restored from a backup: it is
            charged again before it is repeated.
        new: what was charged now, and by which entry.
        first: the visits to be charged, by number: no report is kept of their place, nor of one nearby.
    """

    keys: list[bytes]
    near: list[list[bytes]]
    kept: dict[bytes, tuple[int, int]]
    uncharged: dict[bytes, int]
    new: dict[bytes, tuple[int, Mark]] = field(factory=dict, init=False)
    first: list[int] = field(factory=list, init=False)
    _given: list[bytes] = field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        seen: dict[bytes, int] = {}
        for number, (key, near) in enumerate(zip(self.keys, self.near, strict=True)):
            kept = [each for each in (key, *near) if each in self.kept]
            asked = [each for each in (key, *near) if each in seen]
            if kept:
                self._given.append(min(kept, key=lambda each: self.kept[each][1]))
            elif asked:
                self._given.append(min(asked, key=seen.__getitem__))
            else:
                self._given.append(key)
                seen[key] = number
        self.first = list(seen.values())

    def keep(self, number: int, report: int, mark: Mark) -> None:
        """Keep the report of a visit that was charged; an earlier one of its place stays."""
        key = self.keys[number]
        self.new[key] = self.uncharged.get(key, report), mark

    def report(self, number: int) -> int | None:
        """Return what is reported of a visit; None where nothing was charged."""
        key = self._given[number]
        return self.new[key][0] if key in self.new else self.kept.get(key, (None,))[0]
