"""The names of subjects in a ledger, which are either normalised or hashed with a key."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import field, frozen

from privopt.declare.name_forms import MAX_TEXT_CHARACTERS, fault_of, fold_subject_name
from privopt.errors import Fault, InputError, UsageError, cut
from privopt.files.log_file import path_of
from privopt.files.new_folder import check_location, check_name, claim_folder
from privopt.files.regular import Unreadable, open_private, read_bytes

PLAIN: Final = "plain"
"""The label recorded in a ledger that stores subjects' names unhashed."""

_KEY_BYTES: Final = 32


def subject_name(subject: str) -> str:
    """Return the normalised name used to charge a subject (see :func:`fold_subject_name`).

    Raises:
        UsageError: The subject is not a string, is blank or too long, or contains control characters, lone surrogates,
            unassigned characters or private-use characters.
    """
    name = fold_subject_name(subject) if isinstance(subject, str) else ""
    fault = fault_of(name)
    if name and fault is None:
        return name
    expectation = f"subject must be text of 1 to {MAX_TEXT_CHARACTERS:,} characters that can be seen"
    # Names are not quoted unless they are blank, because a ledger that hashes names must not reveal them in messages.
    actual = fault or (cut(repr(subject)) if isinstance(subject, str) else f"a value of type {type(subject).__name__}")
    raise UsageError(f"{expectation}, got {actual}. Rename the subject in its table, or in the call")


@frozen
class Names:
    """A scheme for naming subjects in a ledger, either by normalised name or by a keyed hash of that name.

    >>> Names().of("anna"), len(Names(key=bytes(32)).of("anna"))
    ('anna', 64)

    Attributes:
        key: The 32-byte key used to hash names (HMAC-SHA256), or None if names are not hashed.
    """

    key: bytes | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """The string identifying this scheme in a ledger: "plain", or a fingerprint of the key."""
        if self.key is None:
            return PLAIN
        # The HMAC of a fixed text, so that equal keys have equal labels and a label does not reveal its key.
        return f"hmac-sha256 {hmac.new(self.key, b'privopt ledger', hashlib.sha256).hexdigest()[:32]}"

    def of(self, subject: str) -> str:
        """Return the name used for a subject in a ledger: the normalised name, or its HMAC in hexadecimal."""
        name = subject_name(subject)
        return name if self.key is None else hmac.new(self.key, name.encode("utf-8"), hashlib.sha256).hexdigest()


def derive_column_key(key: bytes) -> bytes:
    """Derive the key for hashing names in published tables from the key in a key file.

    The same key file may also be used to hash the names of a ledger's subjects. Because published tables use a derived
    key, a person's hash in a table differs from that person's hash in the ledger, and only someone with the key can
    link the two.
    """
    # The text starts with U+0000, which no subject's name contains. Otherwise the ledger would list the derived key as
    # the name of a subject with this name, for all its readers to see.
    return hmac.new(key, b"\0privopt column", hashlib.sha256).digest()


def hash_name(key: bytes, name: str) -> str:
    """Return the keyed hash used in place of a name in a published table, as 32 hexadecimal digits.

    Names are normalised as in a ledger, so all spellings of a subject's name have the same hash.

    >>> hash_name(bytes(32), "007") == hash_name(bytes(32), "7"), len(hash_name(bytes(32), "7"))
    (True, 32)
    """
    # With 128 bits, the probability that any two of 2**40 names share a hash is below 2**-48.
    return hmac.new(key, fold_subject_name(name).encode("utf-8"), hashlib.sha256).hexdigest()[:32]


def key_path(value: Path | str | None) -> Path | None:
    """Convert the name of a key file to a path, or return None unchanged.

    Raises:
        UsageError: The value is neither a string nor a path.
    """
    return None if value is None else path_of(value, "key")


def key_at(path: Path, *, make: bool) -> bytes:
    """Read a 32-byte key from a file that only its owner can access.

    Args:
        path: The key's file.
        make: Whether to create the file with a new random key if it is missing.

    Raises:
        InputError: The file is missing or does not contain a key.
        UsageError: Other users have access to the file, or its folder is missing.
        StoppedError: The file cannot be written.
    """
    check_name(path, str(path))
    if make and not path.exists():
        _create_key(path)
    try:
        text = read_bytes(path, largest=1024).decode("ascii", "replace").strip()
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.actual, "the key under which subjects are hashed")]) from None
    # Anyone with the key can hash a list of names to find each person's account.
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise UsageError(f"{path} must have mode 0600, got {mode:04o}: anyone who reads the key can name every subject")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise InputError([Fault(str(path), "", "no key", f"{2 * _KEY_BYTES} hexadecimal digits")])
    return key


def _create_key(path: Path) -> None:
    """Create a key file atomically. If another process has created it in the meantime, keep that process's key."""
    check_location(path, str(path))
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} of the key must exist")
    with claim_folder(path) as work:
        new = work / "key"
        with open_private(new) as stream:
            stream.write(f"{secrets.token_hex(_KEY_BYTES)}\n".encode("ascii"))
        # A hard link, unlike a rename, does not replace a key that another process has just created.
        with suppress(FileExistsError):
            os.link(new, path)
