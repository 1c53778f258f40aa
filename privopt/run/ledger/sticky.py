"""First reports that are kept: one for each subject and place, repeated ever after (mathematics T3).

They lie in a folder beside the ledger, ``FILE.sticky/``, which is its owner's alone: ``reports`` holds what was
reported, ``key`` the key under which subjects and places are hashed, for an unkeyed hash of one of a thousand places
tells the place. Nothing is shared between places, subjects or mechanisms.
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

from privopt.errors import StoppedError, UsageError
from privopt.run.ledger.file import Form, connected, made, said_by, writing
from privopt.run.ledger.names import key_at

__all__ = ["SEQUENCE", "Sticky", "Visits"]

FORM: Final = Form(
    name="store of reports",
    mark=0x70765331,
    schema=(
        "CREATE TABLE reports (place BLOB PRIMARY KEY, subject BLOB NOT NULL, report INTEGER NOT NULL) WITHOUT ROWID",
        "CREATE INDEX by_subject ON reports (subject)",
    ),
)

SEQUENCE: Final = (
    "what holds of all reports of a subject: which places they are of is protected, epsilon times the sum of the "
    "distances between the places, each counted once; not protected is which of its visits were to the same place, and "
    "how many places there were: equal reports, charges and refusals tell it"
)
"""The guarantee of a sequence of kept reports."""


@define
class Sticky:
    """The kept reports beside a ledger; made where there are none.

    Attributes:
        folder: where they lie.
        make: False to refuse a folder that is not there.

    Raises:
        UsageError: the folder may be entered by others, or is none.
        InputError, DoesNotHoldError, StoppedError: see :func:`privopt.run.ledger.file.connected`.
    """

    folder: Path
    make: bool = True
    _key: bytes = field(init=False, repr=False)
    _connection: sqlite3.Connection = field(init=False, repr=False)

    @classmethod
    def beside(cls, ledger: Path, *, make: bool = True) -> Self:
        """Those of a ledger."""
        return cls(ledger.with_name(f"{ledger.name}.sticky"), make)

    def __attrs_post_init__(self) -> None:
        if not self.make and not self.folder.is_dir():
            raise UsageError(f"{self.folder}: found no such folder, wanted the reports that apply --sticky keeps")
        try:
            self.folder.mkdir(mode=0o700, exist_ok=True)
        except OSError as error:
            raise StoppedError(f"{self.folder}: {error.strerror or error}; nothing written") from error
        mode = self.folder.stat().st_mode & 0o777
        if mode & 0o077:
            raise UsageError(f"{self.folder}: found mode {mode:04o}, wanted 0700: what it holds is its owner's alone")
        self._key = key_at(self.folder / "key", make=True)
        if not self._path.exists():
            made(self._path, FORM, lambda connection: None)
        self._connection = connected(self._path, FORM)

    @property
    def _path(self) -> Path:
        return self.folder / "reports"

    def close(self) -> None:
        """Close the file."""
        with said_by(self._path, "the database's own check"):
            self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _hashed(self, *parts: str) -> bytes:
        return hmac.new(self._key, json.dumps(parts).encode("ascii"), hashlib.sha256).digest()

    @contextmanager
    def visits(self, mechanism: str, visits: Sequence[tuple[str, str]]) -> Iterator[Visits]:
        """The kept reports of visits; nobody else draws for a new place until the block ends, and all is durable then.

        Args:
            mechanism: what is drawn from, as charged: another one keeps reports of its own.
            visits: subject, as the ledger names it, and place, a fixed function of the position, of each.

        Raises:
            DoesNotHoldError: the store is not as it was written.
        """
        with writing(self._connection, self._path):
            digests: dict[tuple[str, str], bytes] = {}
            for visit in visits:
                if visit not in digests:
                    digests[visit] = self._hashed(mechanism, *visit)
            held = Visits(keys=[digests[visit] for visit in visits])
            query = "SELECT report FROM reports WHERE place = ?"
            for digest in digests.values():
                row = self._connection.execute(query, (digest,)).fetchone()
                if row is not None:
                    held.reports[digest] = row[0]
            yield held
            whose = {digest: self._hashed("subject", subject) for (subject, _), digest in digests.items()}
            rows = [(digest, whose[digest], report) for digest, report in held.new.items()]
            self._connection.executemany("INSERT INTO reports VALUES (?, ?, ?)", rows)

    def forget(self, subject: str) -> int:
        """Remove what is kept of a subject, bytes and all: its next visits are drawn, and charged, anew.

        Returns:
            How many reports were removed.
        """
        with writing(self._connection, self._path):
            gone = self._connection.execute(
                "DELETE FROM reports WHERE subject = ?", (self._hashed("subject", subject),)
            )
        with said_by(self._path, "the database's own check"):
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return gone.rowcount


@define(kw_only=True, eq=False)
class Visits:
    """Visits and what is kept of them.

    Attributes:
        keys: of each visit, equal for the same subject and place.
        reports: what is kept, by key.
        new: what was drawn now.
    """

    keys: list[bytes]
    reports: dict[bytes, int] = field(factory=dict)
    new: dict[bytes, int] = field(factory=dict)

    @property
    def first(self) -> list[int]:
        """The first visit, by number, of each subject to each place of which nothing is kept."""
        seen: dict[bytes, int] = {}
        for number, key in enumerate(self.keys):
            if key not in self.reports:
                seen.setdefault(key, number)
        return list(seen.values())

    def keep(self, number: int, report: int) -> None:
        """Keep the report of a visit that was charged."""
        self.new[self.keys[number]] = report

    def report(self, number: int) -> int | None:
        """What is reported of a visit; None where nothing was charged."""
        key = self.keys[number]
        return self.new.get(key, self.reports.get(key))
