"""Repeatable batches of ``apply``. After a crash, the same command gives each row the report that was charged for it.

All random bytes in a batch are derived from one 32-byte key, which is drawn from the operating system's entropy and
durably stored before the first charge. The key is stored next to the ledger, in the folder ``FILE.batches/``, which
only its owner can enter. Until it is deleted, the key is as sensitive as the true data, because anyone who has it can
test any candidate for a row's secret against the row's report. Privacy relies on SHAKE-256 under a secret key being a
pseudo-random function.

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
from privopt.files.new_folder import claim_folder
from privopt.files.regular import flush, open_private, private_folder
from privopt.files.release_folder import sha256
from privopt.ledger.subject_names import key_at

_KEY_BYTES: Final = 32

LONGEST_NAME: Final = 200
"""The maximum number of characters in a batch's name."""

_LABEL: Final = b"privopt batch 1"
"""A label included in everything that is hashed under a batch's key.

It ensures that no other use of the key produces the same hashes."""
_KEY, _RECORD, _LOCK, _OPEN = "key", "record.json", "lock", "open"
"""The files in a batch's folder: its key, its record, the lock file and, while workers may read the key, the token."""


def encode_parts(parts: Iterable[bytes]) -> bytes:
    """Join byte strings, each preceded by its length, so that different lists never produce the same result."""
    return b"".join(len(part).to_bytes(8, "big") + part for part in parts)


@frozen
class Coins:
    """The random bytes of a batch, with one reproducible stream per draw.

    Attributes:
        prefix: The batch's key and name, and the release, encoded by :func:`encode_parts`.
    """

    prefix: bytes = field(repr=False)

    def stream(self, purpose: str, row: bytes, position: str, secret: bytes, start: int, count: int) -> bytes:
        """Return some bytes of the random stream for one draw.

        Args:
            purpose: A label for what is drawn, which is unique among the row's draws for the same position.
            row: The row's name, which is either its index in the table as 8 bytes or its encoded subject and id.
            position: The position's name, which is empty if each row has only one position.
            secret: The canonical bytes of the row's secret. A different secret gives different random bytes.
            start, count: The index of the first byte to return, and the number of bytes.
        """
        parts = (purpose.encode(), row, position.encode("utf-8"), secret)
        # SHAKE-256 cannot seek, so the bytes before ``start`` are computed again. That is cheap for the few bytes that
        # a draw needs.
        return hashlib.shake_256(self.prefix + encode_parts(parts)).digest(start + count)[start:]


@define
class Digest:
    """A keyed digest of a table's rows that depends neither on their order nor on how the table is partitioned.

    Attributes:
        key: The batch's key.
        total: The sum of the HMACs so far, modulo 2^256.
    """

    key: bytes = field(repr=False)
    total: int = 0

    def add(self, *parts: bytes) -> None:
        """Add the HMAC of the given parts to the total. The parts describe a row or the options of a command."""
        self.add_number(self.mac(*parts))

    def mac(self, *parts: bytes) -> int:
        """Return the HMAC of the given parts as an integer below 2^256."""
        return int.from_bytes(hmac.digest(self.key, encode_parts((_LABEL, *parts)), "sha256"), "big")

    def add_number(self, number: int) -> None:
        """Add the HMAC of one row, or the sum of several rows' HMACs, to the total modulo 2^256."""
        # A sum does not depend on the order of the rows. Unlike XOR, it does not cancel a row that occurs twice.
        self.total = (self.total + number) % (1 << 256)

    def add_sum(self, text: str) -> None:
        """Add the total of another digest, given as that digest's :attr:`text`."""
        self.add_number(int(text, 16))

    @property
    def text(self) -> str:
        """The sum of the HMACs, as hexadecimal digits."""
        return f"{self.total:064x}"


@frozen(kw_only=True)
class BatchAccess:
    """Access to a batch's key for worker processes, valid during the ``with`` block of :meth:`Batch.open_folder`.

    An instance can be pickled and does not contain the key. It works in any process that can read the batch's folder.

    Attributes:
        name: The batch's name.
        folder: The batch's folder, as an absolute path.
        token: A random string stored in the batch's folder during the block. Each block has a different one.
    """

    name: str
    folder: Path
    token: str = field(repr=False)

    def read_key(self) -> bytes:
        """Return the batch's key.

        Raises:
            UsageError: The batch's ``with`` block has ended, or this process cannot read the batch's folder.
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
        """Return the batch's random streams for a release, like :meth:`Batch.coins`.

        Args:
            key: The batch's key from :meth:`read_key`. It must not be pickled.
            release: The SHA-256 of the release's SHA256SUMS file.
        """
        return Coins(encode_parts((key, _LABEL, self.name.encode("utf-8"), release.encode())))


@define(kw_only=True, eq=False)
class Batch:
    """A repeatable run of ``apply`` whose key and record are stored in a folder next to a ledger.

    While the folder is open (:meth:`open_folder`), no other process can run the batch.

    Attributes:
        ledger: The ledger's file.
        name: The batch's name.
        target: The file to which the batch's table is written.
        folder: The folder containing the batch's key and record.
        _lock: The descriptor of the lock file, or -1 before :meth:`open_folder`.
        _fresh: Whether this object created the key, in which case the key is deleted again unless the batch begins.
    """

    ledger: Path
    name: str
    target: Path = field(default=Path())
    folder: Path = field(init=False)
    _lock: int = field(init=False, default=-1, repr=False)
    _fresh: bool = field(init=False, default=False, repr=False)

    def __attrs_post_init__(self) -> None:
        """Check the name, and derive the folder's path from it."""
        if not self.name.strip() or len(self.name) > LONGEST_NAME or not self.name.isprintable():
            expectation = f"a name of 1 to {LONGEST_NAME} printable characters"
            raise UsageError(f"batch must be {expectation}, got {cut(repr(self.name))}")
        self.target = self.target.absolute()
        # The name is hashed, because it can contain characters that file names cannot, such as a slash.
        digest = hashlib.sha256(self.name.encode("utf-8")).hexdigest()[:32]
        self.folder = self.ledger.with_name(f"{self.ledger.name}.batches") / digest

    @contextmanager
    def open_folder(self) -> Iterator[Self]:
        """Create the batch's folder if necessary, and lock it for the duration of a ``with`` block.

        If the batch does not begin in the block, a key created in it is deleted again.

        Raises:
            UsageError: Another process is running the batch, the ledger's folder is missing, or other users can enter
                the batch's folder.
            StoppedError: The folder cannot be written.
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
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock)
            raise UsageError(f"batch {cut(self.name)}: another process runs it; wait for its end") from None
        # Only the process that holds the lock may end the workers' access or delete the key, so the lock is released
        # last.
        try:
            yield self
        finally:
            (self.folder / _OPEN).unlink(missing_ok=True)  # workers must not draw after the block, however it ended
            # If there is no record, nothing was charged under the key that was created in this block.
            if self._fresh and not self.record:
                self._delete_key()
            os.close(self._lock)

    # --- its record -------------------------------------------------------------------------------------------

    @property
    def record(self) -> dict[str, Any]:
        """The record of the batch, with its state, digest and target. It is empty before the batch begins.

        The state is ``begun``, ``writing``, ``finished`` or ``forgotten``.

        Raises:
            DoesNotHoldError: The record cannot be read or belongs to another batch.
        """
        try:
            content = json.loads((self.folder / _RECORD).read_bytes())
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise DoesNotHoldError(f"{self.folder / _RECORD}: changed: no record of a batch") from error
        # A folder that was renamed or copied can contain another batch's record.
        if not isinstance(content, dict) or content.get("name") != self.name:
            raise DoesNotHoldError(f"{self.folder / _RECORD}: changed: the record of another batch")
        return content

    def _write_record(self, record: dict[str, Any]) -> None:
        """Replace the record durably and atomically."""
        target = self.folder / _RECORD
        # The record is first written to a temporary folder and then renamed, so that a crash leaves either the old
        # record or the new one.
        with claim_folder(target) as work:
            new = work / "new"
            with open_private(new) as stream:
                stream.write(json.dumps({"name": self.name, **record}).encode())
            new.replace(target)
        flush(self.folder)

    def _close_batch(self, record: dict[str, Any]) -> None:
        """Record that the batch has ended, and delete the key. The record is kept so that the name cannot be reused."""
        self._write_record(record)
        self._delete_key()

    def check_open(self) -> None:
        """Check that the batch is still open.

        Raises:
            UsageError: The batch has been finished or forgotten.
        """
        state = self.record.get("state")
        if state in ("finished", "forgotten"):
            self._delete_key()  # the process may have been killed before it deleted the key
            raise UsageError(f"batch {cut(self.name)} must be new or unfinished, got one that is {state}: name another")

    # --- its key ----------------------------------------------------------------------------------------------

    def key(self) -> bytes:
        """Return the batch's 32-byte key, creating one if the batch has neither a key nor a record.

        Raises:
            UsageError: The batch has been finished or forgotten.
            DoesNotHoldError: The batch has begun, but its key is missing.
        """
        self.check_open()
        path = self.folder / _KEY
        if self.record and not path.exists():
            raise DoesNotHoldError(f"{path}: changed: the key of a batch that began is gone")
        self._fresh = self._fresh or not path.exists()
        return key_at(path, make=True)

    def grant_access(self) -> BatchAccess:
        """Allow other processes of this user to read the key until the :meth:`open_folder` block ends."""
        access = BatchAccess(name=self.name, folder=self.folder.absolute(), token=os.urandom(16).hex())
        self.key()  # creates a missing key, which read_key does not
        with open_private(self.folder / _OPEN) as stream:
            stream.write(access.token.encode("ascii"))
        return access

    def fingerprint(self) -> str:
        """Return a fingerprint that identifies the key without revealing it."""
        return hmac.new(self.key(), encode_parts((_LABEL, b"fingerprint")), hashlib.sha256).hexdigest()[:32]

    def purpose(self, charged: Iterable[str]) -> str:
        """Return the purpose recorded in the ledger for this batch's charges.

        It consists of the batch's name and the fingerprint of its key.

        Args:
            charged: All purposes in the ledger.

        Raises:
            UsageError: The ledger has charges for a batch with this name but a different key. That key is gone, so the
                reports drawn with it cannot be redrawn.
        """
        prefix = f"batch {self.name} "
        purpose = prefix + self.fingerprint()
        # Lengths are compared too, because the prefix for a batch "a" also begins the purpose of a batch "a b".
        other_purposes = [
            text for text in charged if text.startswith(prefix) and len(text) == len(purpose) and text != purpose
        ]
        if other_purposes:
            raise UsageError(f"batch {cut(self.name)} must be new: {self.ledger} has charges of one whose key is gone")
        return purpose

    def coins(self, release: str) -> Coins:
        """Return the batch's random streams for a release.

        Args:
            release: The SHA-256 of the release's SHA256SUMS file. It ensures that no two releases get the same bytes.
        """
        return Coins(encode_parts((self.key(), _LABEL, self.name.encode("utf-8"), release.encode())))

    def begin(self, digest: Digest) -> None:
        """Durably record the digest of the batch's data, or compare it with the recorded one if the batch has begun.

        This must be called before the first charge.

        Args:
            digest: The digest of the table, the release and the options.

        Raises:
            UsageError: The batch began with different data, a different release or different options.
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
        """Durably record that the complete file ``finished`` is about to be renamed to the target."""
        self._write_record({**self.record, "state": "writing", "sha256": sha256(finished)})

    @property
    def left_target(self) -> bool:
        """Whether the target file was written by an unfinished run of the batch and has not changed since."""
        record = self.record
        # The checksum was recorded before the rename, so a table that was changed afterwards is not mistaken for this
        # one.
        is_own_target = record.get("state") == "writing" and record.get("target") == str(self.target)
        return is_own_target and self.target.is_file() and sha256(self.target) == record.get("sha256")

    def finish(self, counts: dict[str, Any], source: str, options: dict[str, Any]) -> None:
        """Record the result and delete the key. Call this only after the table has been durably written.

        Args:
            counts: Counts about the table, such as the number of rows and the number of refused rows by reason.
            source: A description of the table's sources, which must reveal nothing secret.
            options: The options used to create the table, as JSON values that reveal nothing secret.
        """
        final_state = {"state": "finished", "sha256": sha256(self.target), "counts": counts, "source": source}
        final_state["options"] = options
        self._close_batch({**self.record, **final_state})

    def end(self) -> None:
        """Record the end of a batch whose reports are stored elsewhere, and delete its key."""
        self._close_batch({**self.record, "state": "finished"})

    @property
    def counts(self) -> dict[str, Any] | None:
        """The counts of a finished batch whose table is unchanged, or None for any other batch."""
        record = self.record
        if record.get("state") != "finished" or not self.target.is_file():
            return None
        self._delete_key()  # the process may have been killed before it deleted the key
        return record["counts"] if sha256(self.target) == record["sha256"] else None

    def forget(self) -> bool:
        """Delete the key of an unfinished batch, so that it can never be repeated. Its charges are kept.

        Returns:
            Whether there was a key to delete. This is always False for a batch that has ended.

        Raises:
            UsageError: There is no batch with this name.
        """
        record = self.record
        if record.get("state") in ("finished", "forgotten"):
            self._delete_key()
            return False
        has_key = (self.folder / _KEY).exists()
        if not has_key and not record:
            raise UsageError(f"batch {cut(self.name)} must be one of {self.ledger}, got an unknown name")
        self._close_batch({**record, "state": "forgotten"})
        return has_key

    def _delete_key(self) -> None:
        """Delete the key durably, if there is one."""
        (self.folder / _KEY).unlink(missing_ok=True)
        flush(self.folder)


def count_batch_keys(ledger: Path) -> int:
    """Return the number of a ledger's unfinished batches, i.e. those whose key still exists."""
    return sum(1 for _ in ledger.with_name(f"{ledger.name}.batches").glob(f"*/{_KEY}"))


def row_names(frame: nw.DataFrame[Any], columns: tuple[str, str]) -> list[bytes]:
    """Return a name for each row, which encodes the row's subject and id.

    Ids need only be unique among a subject's rows. A row's random bytes are derived from its name
    (:meth:`Coins.stream`), so they do not depend on the order of rows.

    Args:
        frame: The table.
        columns: The names of the subject and id columns.

    Raises:
        InputError: A row with a subject has no id.
    """
    subjects, ids = subjects_of(frame[columns[0]]), texts_of(frame[columns[1]])
    if (ids.is_null() & subjects.is_not_null()).any():
        raise InputError([Fault(TABLE, f"column {columns[1]}", "nothing", "an id of each row")])
    # The lengths are encoded too, so that different pairs have different names.
    pairs = zip(subjects.fill_null("").to_list(), ids.fill_null("").to_list(), strict=True)
    return [encode_parts((subject.encode("utf-8"), row_id.encode("utf-8"))) for subject, row_id in pairs]


def secrets_of(columns: Sequence[Sequence[object]]) -> list[bytes]:
    """Encode each row's secret as canonical bytes.

    Args:
        columns: The columns that make up the secret. Their cells are strings, numbers or None.
    """
    return [encode_parts(_canonical(value) for value in row) for row in zip(*columns, strict=True)]


def _canonical(value: object) -> bytes:
    """Encode a cell as bytes beginning with a code for its type. A double is encoded as its shortest decimal form."""
    if value is None:
        return b"\x00"
    if isinstance(value, float):
        return b"\x02" + repr(value + 0.0).encode()  # -0.0 + 0.0 is 0.0, so equal numbers have equal bytes
    return b"\x01" + str(value).encode("utf-8", "surrogateescape")
