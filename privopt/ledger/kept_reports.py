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
from pathlib import Path
from typing import Final, Self

from attrs import define, field

from privopt.errors import DoesNotHoldError, Fault, InputError, StoppedError, UsageError
from privopt.ledger.balances import Mark
from privopt.ledger.ledger import Ledger
from privopt.ledger.log_file import Form, connected, create_file, translate_errors, writing
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


@define
class KeptReports:
    """The kept reports next to a ledger; made where there are none.

    Attributes:
        folder: where they lie.
        ledger: that charged them, open.
        make: False to refuse a folder that is not there.

    Raises:
        UsageError: the folder may be entered by others, or is none.
        InputError: they are another ledger's.
        InputError, DoesNotHoldError, StoppedError: see :func:`privopt.ledger.log_file.connected`.
    """

    folder: Path
    ledger: Ledger
    make: bool = True
    _key: bytes = field(init=False, repr=False)
    _connection: sqlite3.Connection = field(init=False, repr=False)

    @classmethod
    def for_ledger(cls, ledger: Ledger, *, make: bool = True) -> Self:
        """Return the kept reports that belong to a ledger."""
        return cls(ledger.path.with_name(f"{ledger.path.name}.sticky"), ledger, make)

    def __attrs_post_init__(self) -> None:
        if not self.make and not self.folder.is_dir():
            raise UsageError(f"{self.folder} must be the folder of the reports that apply --sticky keeps, got none")
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoppedError(f"{self.folder}: {error.strerror or error}; nothing written") from error
        mode = self.folder.stat().st_mode & 0o777
        if mode & 0o077:
            raise UsageError(f"{self.folder} must have mode 0700, got {mode:04o}: only its owner may read it")
        self._key = key_at(self.folder / "key", make=True)
        if not self._path.exists():
            create_file(self._path, FORM, self._begin)
        self._connection = connected(self._path, FORM)
        try:
            self._check_ledger()
        except BaseException:
            self.close()
            raise

    def _begin(self, connection: sqlite3.Connection) -> None:
        beginning = self.ledger.beginning
        connection.execute("INSERT INTO ledger VALUES (?, ?)", (beginning, self._sealed(beginning)))

    def _check_ledger(self) -> None:
        """Refuse those of another ledger: what that charged, this one did not."""
        with translate_errors(self._path, "the database's own check"):
            rows = self._connection.execute("SELECT * FROM ledger").fetchall()
        if len(rows) != 1 or not self._is_sealed(rows[0]):
            raise DoesNotHoldError(f"{self._path}: changed: which ledger's they are")
        if rows[0][0] != self.ledger.beginning:
            found, wanted = "kept reports of another ledger", f"those of {self.ledger.path}, or no such folder"
            raise InputError([Fault(str(self.folder), "", found, wanted)])

    @property
    def _path(self) -> Path:
        return self.folder / "reports"

    def close(self) -> None:
        """Close the file."""
        with translate_errors(self._path, "the database's own check"):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _hashed(self, *parts: str) -> bytes:
        return hmac.new(self._key, json.dumps(parts).encode("ascii"), hashlib.sha256).digest()

    def _sealed(self, *values: bytes | int) -> bytes:
        texts = [value.hex() if isinstance(value, bytes) else str(value) for value in values]
        return hmac.new(self._key, json.dumps(["seal", *texts]).encode("ascii"), hashlib.sha256).digest()

    def _is_sealed(self, row: tuple[object, ...]) -> bool:
        *values, seal = row
        known = [value for value in values if isinstance(value, (bytes, int))]
        whole = len(known) == len(values) and isinstance(seal, bytes)
        return whole and hmac.compare_digest(self._sealed(*known), bytes(seal))  # type: ignore[call-overload]

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
        with writing(self._connection, self._path):
            digests: dict[tuple[str, str], bytes] = {}
            others = [(subject, each) for (subject, _), of in zip(visits, near or (), strict=False) for each in of]
            for visit in (*visits, *others):
                if visit not in digests:
                    digests[visit] = self._hashed(mechanism, *visit)
            held = Visits(keys=[digests[visit] for visit in visits])
            if near is not None:
                held.near = [
                    [digests[subject, each] for each in of] for (subject, _), of in zip(visits, near, strict=True)
                ]
            marks: dict[bytes, Mark] = {}
            for digest in digests.values():
                row = self._connection.execute("SELECT * FROM reports WHERE place = ?", (digest,)).fetchone()
                if row is None:
                    continue
                if not self._is_sealed(row):
                    raise DoesNotHoldError(f"{self._path}: changed: a kept report is not as it was written")
                held.reports[digest], marks[digest] = row[2], (row[3], row[4])
            standing = self.ledger.standing(marks.values())
            for digest in [digest for digest, mark in marks.items() if mark not in standing]:
                held.uncharged[digest] = held.reports.pop(digest)
            held.entries = {digest: mark[0] for digest, mark in marks.items() if digest in held.reports}
            yield held
            whose = {digest: self._hashed("subject", subject) for (subject, _), digest in digests.items()}
            rows = [(digest, whose[digest], report, *mark) for digest, (report, mark) in held.new.items()]
            self._connection.executemany(
                "INSERT OR REPLACE INTO reports VALUES (?, ?, ?, ?, ?, ?)", [(*row, self._sealed(*row)) for row in rows]
            )

    def forget(self, subject: str) -> int:
        """Remove what is kept of a subject, bytes and all: its next visits are drawn, and charged, again.

        Returns:
            How many reports were removed.
        """
        with writing(self._connection, self._path):
            gone = self._connection.execute(
                "DELETE FROM reports WHERE subject = ?", (self._hashed("subject", subject),)
            )
        with translate_errors(self._path, "the database's own check"):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return gone.rowcount


@define(kw_only=True, eq=False)
class Visits:
    """Visits and what is kept of them.

    Attributes:
        keys: of each visit, equal for the same subject and place.
        reports: what is kept, by key.
        uncharged: what was kept whose charge the ledger does not hold, as one that was restored from a backup: it is
            charged again before it is repeated.
        new: what was charged now, and by which entry.
        near: of each visit, keys of further places whose kept report is given too; empty for none.
        entries: of the ledger by which what is kept was charged, by key: the earliest is given.
    """

    keys: list[bytes]
    reports: dict[bytes, int] = field(factory=dict)
    uncharged: dict[bytes, int] = field(factory=dict)
    new: dict[bytes, tuple[int, Mark]] = field(factory=dict)
    near: list[list[bytes]] = field(factory=list)
    entries: dict[bytes, int] = field(factory=dict)
    _given: list[bytes] = field(factory=list, init=False)

    @property
    def first(self) -> list[int]:
        """Find the visits to be charged, by number: no report is kept of their place, nor of one nearby.

        Of several places the report that was kept earliest is given: before these visits, or at an earlier one of them,
        which counts whether its charge is granted or not. So it follows from places alone which visits are charged.
        """
        seen: dict[bytes, int] = {}
        self._given = []
        for number, key in enumerate(self.keys):
            keys = [key, *(self.near[number] if self.near else ())]
            kept = [each for each in keys if each in self.reports]
            asked = [each for each in keys if each in seen]
            if kept:
                self._given.append(min(kept, key=self.entries.__getitem__))
            elif asked:
                self._given.append(min(asked, key=seen.__getitem__))
            else:
                self._given.append(key)
                seen[key] = number
        return list(seen.values())

    def keep(self, number: int, report: int, mark: Mark) -> None:
        """Keep the report of a visit that was charged; an earlier one of its place stays."""
        key = self.keys[number]
        self.new[key] = self.uncharged.get(key, report), mark

    def report(self, number: int) -> int | None:
        """Return what is reported of a visit, once :attr:`first` was asked for; None where nothing was charged."""
        key = self._given[number]
        return self.new[key][0] if key in self.new else self.reports.get(key)
