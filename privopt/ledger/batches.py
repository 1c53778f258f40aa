"""Batches of ``apply`` that can be repeated: after a kill, the same command gives each row the report it paid for.

All random bytes of a batch follow from one key of 32 bytes, drawn from the operating system's entropy and durable
before the first charge. The key lies next to the ledger in ``FILE.batches/``, which only its owner can enter. Until it
is deleted it is as secret as the true data, because it lets anyone test every candidate for a row's secret against the
row's report. Privacy rests on SHAKE-256 under a secret key being a pseudo-random function.

Source:
    docs/guide/repeated.md, "Batches"; ADR 24.
"""

from __future__ import annotations

import fcntl
import hashlib
import hmac
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import narwhals as nw
from attrs import define, field, frozen

from privopt.declare.column_texts import TABLE, subjects_of, texts_of
from privopt.errors import DoesNotHoldError, Fault, InputError, StoppedError, UsageError, cut
from privopt.files.regular import flush, open_private, private_folder
from privopt.files.release_folder import sha256
from privopt.files.working_folder import claim_folder
from privopt.ledger.subject_names import key_at

_KEY_BYTES: Final = 32

LONGEST_NAME: Final = 200
"""Characters of a batch's name."""

_LABEL: Final = b"privopt batch 1"
_KEY, _RECORD, _LOCK, _OPEN = "key", "record.json", "lock", "open"


def encode_parts(parts: Iterable[bytes]) -> bytes:
    """Join parts, each behind its length, so that no two lists of parts give the same bytes."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


@frozen
class Coins:
    """The random bytes of a batch: one stream for each draw, which is the same each time.

    Attributes:
        prefix: key, batch and release, encoded.
    """

    prefix: bytes = field(repr=False)

    def stream(self, purpose: str, row: bytes, position: str, secret: bytes, start: int, count: int) -> bytes:
        """Return bytes ``start`` to ``start + count`` of the stream of one draw.

        Args:
            purpose: what is drawn; no two draws of a row for one position share it.
            row: its name: 8 bytes of its number in its table, from 0; or subject and id, encoded.
            position: name of the position; empty if a row has a single one.
            secret: canonical bytes of the row's secret: a row whose secret was changed gets coins of its own.
            start, count: of the bytes.
        """
        parts = (purpose.encode(), row, position.encode("utf-8"), secret)
        return hashlib.shake_256(self.prefix + encode_parts(parts)).digest(start + count)[start:]


@define
class Digest:
    """A keyed sum over the rows of a table, in any order and any division into parts.

    Attributes:
        key: of the batch.
        total: so far; a sum of HMACs, modulo 2^256.
    """

    key: bytes = field(repr=False)
    total: int = 0

    def add(self, *parts: bytes) -> None:
        """Add a row, or the options of the command."""
        self.add_number(self.mac(*parts))

    def mac(self, *parts: bytes) -> int:
        """Return the HMAC of a row, which :meth:`add` adds, as a whole number below 2^256."""
        return int.from_bytes(hmac.digest(self.key, encode_parts((_LABEL, *parts)), "sha256"), "big")

    def add_number(self, number: int) -> None:
        """Add the HMAC of a row, or a sum of several."""
        self.total = (self.total + number) % (1 << 256)

    def add_sum(self, text: str) -> None:
        """Add the sum over other rows, in hexadecimal."""
        self.add_number(int(text, 16))

    @property
    def text(self) -> str:
        """The sum in hexadecimal."""
        return f"{self.total:064x}"


@frozen(kw_only=True)
class BatchAccess:
    """Reads the key of a batch while the block that opened it runs, in any process that can read the batch's folder.

    It can be pickled and holds no key: once the block has ended, nothing can be drawn with it.

    Attributes:
        name: The batch's name.
        folder: The batch's folder, as an absolute path.
        token: What the batch's folder holds while the block runs: random, and another in each block.
    """

    name: str
    folder: Path
    token: str = field(repr=False)

    def read_key(self) -> bytes:
        """Return the batch's key.

        Raises:
            UsageError: The block has ended, or this process cannot read the batch's folder.
        """
        try:
            is_open = (self.folder / _OPEN).read_text("ascii") == self.token
            key = bytes.fromhex((self.folder / _KEY).read_text("ascii"))
        except (OSError, ValueError):
            is_open, key = False, b""
        if not is_open or len(key) != _KEY_BYTES:
            raise UsageError(
                f"batch {cut(self.name)} must be open, got one whose block has ended, or a worker that cannot read "
                f"{self.folder}: run both passes inside the block, and put the ledger where workers can read"
            )
        return key

    def coins(self, key: bytes, release: str) -> Coins:
        """Return the batch's random bytes; see :meth:`Batch.coins`."""
        return Coins(encode_parts((key, _LABEL, self.name.encode("utf-8"), release.encode())))


@define(kw_only=True, eq=False)
class Batch:
    """One batch next to a ledger, locked by this process.

    Attributes:
        ledger: the ledger's file.
        name: of the batch.
        target: the file that its table is written to.
        folder: where its key and its record lie.
    """

    ledger: Path
    name: str
    target: Path = field(default=Path())
    folder: Path = field(init=False)
    _lock: int = field(init=False, default=-1, repr=False)
    _fresh: bool = field(init=False, default=False, repr=False)

    def __attrs_post_init__(self) -> None:
        if not self.name.strip() or len(self.name) > LONGEST_NAME or not self.name.isprintable():
            expectation = f"a name of 1 to {LONGEST_NAME} printable characters"
            raise UsageError(f"batch must be {expectation}, got {cut(repr(self.name))}")
        self.target = self.target.absolute()
        digest = hashlib.sha256(self.name.encode("utf-8")).hexdigest()[:32]
        self.folder = self.ledger.with_name(f"{self.ledger.name}.batches") / digest

    @contextmanager
    def opened(self) -> Iterator[Self]:
        """Create and lock the batch's folder. A batch that does not begin leaves no key behind.

        Raises:
            UsageError: another process runs it, there is no folder for it, or others may enter that.
            StoppedError: it cannot be written.
        """
        if not self.ledger.absolute().parent.is_dir():
            raise UsageError(f"{self.ledger}: the folder {self.ledger.parent} of the ledger must exist")
        try:
            for folder in (self.folder.parent, self.folder):
                private_folder(folder, closed=True)
            self._lock = os.open(self.folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        except OSError as error:
            raise StoppedError(f"{self.folder}: {error.strerror or error}; nothing written") from error
        try:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(f"batch {cut(self.name)}: another process runs it; wait for its end") from None
            yield self
        finally:
            (self.folder / _OPEN).unlink(missing_ok=True)  # no worker draws after the block, whatever ended it
            if self._fresh and not self.record:  # nothing was charged under a key that this run made
                self._delete_key()
            os.close(self._lock)

    # --- its record -------------------------------------------------------------------------------------------

    @property
    def record(self) -> dict[str, Any]:
        """The record of the batch: digest and target once it has begun, and how it ended; empty before.

        Raises:
            DoesNotHoldError: it is not as it was written.
        """
        try:
            content = json.loads((self.folder / _RECORD).read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise DoesNotHoldError(f"{self.folder / _RECORD}: changed: no record of a batch") from error
        if not isinstance(content, dict) or content.get("name") != self.name:
            raise DoesNotHoldError(f"{self.folder / _RECORD}: changed: the record of another batch")
        return content

    def _write_record(self, record: dict[str, Any]) -> None:
        """Write the record durably: completely or not at all."""
        target = self.folder / _RECORD
        with claim_folder(target) as work:
            new = work / "new"
            with open_private(new) as stream:
                stream.write(json.dumps({"name": self.name, **record}).encode())
            new.replace(target)
        flush(self.folder)

    def _close_batch(self, record: dict[str, Any]) -> None:
        """Record the batch's end, then delete the key. The record stays, so that the name is never used again."""
        self._write_record(record)
        self._delete_key()

    def check_open(self) -> None:
        """Refuse a batch that has ended.

        Raises:
            UsageError: it was forgotten, or finished.
        """
        state = self.record.get("state")
        if state in ("finished", "forgotten"):
            self._delete_key()  # a kill may have come before it was
            raise UsageError(f"batch {cut(self.name)} must be new or unfinished, got one that is {state}: name another")

    # --- its key ----------------------------------------------------------------------------------------------

    def key(self) -> bytes:
        """Return the batch's key; it is created if the batch has none and never began.

        Raises:
            UsageError: it is over.
            DoesNotHoldError: it began, and its key is gone.
        """
        self.check_open()
        path = self.folder / _KEY
        if self.record and not path.exists():
            raise DoesNotHoldError(f"{path}: changed: the key of a batch that began is gone")
        self._fresh = self._fresh or not path.exists()
        return key_at(path, make=True)

    def grant_access(self) -> BatchAccess:
        """Let other processes of this user read the key until the block ends."""
        access = BatchAccess(name=self.name, folder=self.folder.absolute(), token=os.urandom(16).hex())
        self.key()  # made before anybody reads it
        with open_private(self.folder / _OPEN) as stream:
            stream.write(access.token.encode("ascii"))
        return access

    def fingerprint(self) -> str:
        """Return a text that identifies the key without revealing it. Charges contain it."""
        return hmac.new(self.key(), encode_parts((_LABEL, b"fingerprint")), hashlib.sha256).hexdigest()[:32]

    def purpose(self, charged: Iterable[str]) -> str:
        """Return the purpose of the batch's charges in the ledger.

        Args:
            charged: all purposes that the ledger knows.

        Raises:
            UsageError: it holds charges of a batch of this name under another key, whose reports cannot be drawn again.
        """
        prefix = f"batch {self.name} "
        mine = prefix + self.fingerprint()
        others = [text for text in charged if text.startswith(prefix) and len(text) == len(mine) and text != mine]
        if others:
            raise UsageError(f"batch {cut(self.name)} must be new: {self.ledger} has charges of one whose key is gone")
        return mine

    def coins(self, release: str) -> Coins:
        """Return the batch's random bytes.

        Args:
            release: SHA-256 of the release's sums: no key serves two releases.
        """
        return Coins(encode_parts((self.key(), _LABEL, self.name.encode("utf-8"), release.encode())))

    def begin(self, digest: Digest) -> None:
        """Bind the batch to its data, durably, before the first charge; or check that it is bound to this data.

        Raises:
            UsageError: it began with other data, another release or other options.
        """
        record = self.record
        if not record:
            self._write_record({"state": "begun", "digest": digest.text, "target": str(self.target)})
        elif record.get("digest") != digest.text:
            raise UsageError(
                f"batch {cut(self.name)} must be of the table, release and options that it began with, got others: "
                "name another batch for them"
            )

    def begin_writing(self, finished: Path) -> None:
        """Record, durably, that a finished file is about to get the target's name."""
        self._write_record({**self.record, "state": "writing", "sha256": sha256(finished)})

    @property
    def left_target(self) -> bool:
        """Whether an unfinished run of the batch has written its target, which is unchanged."""
        record = self.record
        mine = record.get("state") == "writing" and record.get("target") == str(self.target)
        return mine and self.target.is_file() and sha256(self.target) == record.get("sha256")

    def finish(self, counts: dict[str, Any], source: str) -> None:
        """Record the result and delete the key, once the table is durable.

        Args:
            counts: of the table's rows.
            source: what it was made of, in words that reveal nothing secret.
        """
        final_state = {"state": "finished", "sha256": sha256(self.target), "counts": counts, "source": source}
        self._close_batch({**self.record, **final_state})

    def end(self) -> None:
        """Delete the key of a batch whose reports are stored by others; the record stays."""
        self._close_batch({**self.record, "state": "finished"})

    @property
    def counts(self) -> dict[str, Any] | None:
        """The counts of a finished batch whose table is unchanged; else None."""
        record = self.record
        if record.get("state") != "finished" or not self.target.is_file():
            return None
        self._delete_key()  # a kill may have come before it was
        return record["counts"] if sha256(self.target) == record["sha256"] else None

    def forget(self) -> bool:
        """Delete the key of an unfinished batch. Its charges stay.

        Returns:
            Whether there was a key.
        """
        record = self.record
        if record.get("state") in ("finished", "forgotten"):
            self._delete_key()
            return False
        has_key = (self.folder / _KEY).exists()
        if not has_key and not record:
            raise UsageError(f"batch {cut(self.name)} must be one of {self.ledger}, got a name that none has")
        self._close_batch({**record, "state": "forgotten"})
        return has_key

    def _delete_key(self) -> None:
        (self.folder / _KEY).unlink(missing_ok=True)
        flush(self.folder)


def row_names(frame: nw.DataFrame[Any], columns: tuple[str, str]) -> list[bytes]:
    """Name each row of a table by its subject and its id among the subject's rows.

    Args:
        frame: the table.
        columns: of subjects and of ids.

    Raises:
        InputError: a row with a subject has no id.
    """
    subjects, ids = subjects_of(frame[columns[0]]), texts_of(frame[columns[1]])
    if (ids.is_null() & subjects.is_not_null()).any():
        raise InputError([Fault(TABLE, f"column {columns[1]}", "nothing", "an id of each row")])
    pairs = zip(subjects.fill_null("").to_list(), ids.fill_null("").to_list(), strict=True)
    return [encode_parts((subject.encode("utf-8"), row_id.encode("utf-8"))) for subject, row_id in pairs]


def secrets_of(columns: Sequence[Sequence[object]]) -> list[bytes]:
    """Encode each row's secret as canonical bytes, from the texts or numbers of its columns."""
    return [encode_parts(_canonical(value) for value in row) for row in zip(*columns, strict=True)]


def _canonical(value: object) -> bytes:
    """Return a cell as bytes: text as it is, a number as its shortest decimal, an empty cell as a mark."""
    if value is None:
        return b"\x00"
    if isinstance(value, float):
        return b"\x02" + repr(value + 0.0).encode()  # -0.0 + 0.0 is 0.0
    return b"\x01" + str(value).encode("utf-8", "surrogateescape")
