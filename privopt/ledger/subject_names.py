"""Names of subjects in a ledger: their normal form, or a keyed hash of it."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import field, frozen

from privopt.declare.name_forms import MAX_TEXT_CHARACTERS, fault_of, folded
from privopt.errors import Fault, InputError, UsageError, cut
from privopt.files.regular import Unreadable, open_private, read_bytes
from privopt.files.working_folder import claim_folder

PLAIN: Final = "plain"
"""What a ledger says where subjects are named as they are."""

_KEY_BYTES: Final = 32


def subject_name(subject: str) -> str:
    """Return a subject's name in the normal form under which it is charged (:func:`folded`).

    Raises:
        UsageError: not text, or text that shows nothing, is too long, or holds control characters, halves of
            characters, or characters that Unicode has not assigned or left to private use.
    """
    name = folded(subject) if isinstance(subject, str) else ""
    fault = fault_of(name)
    if name and fault is None:
        return name
    expectation = f"subject must be text of 1 to {MAX_TEXT_CHARACTERS:,} characters that can be seen"
    raise UsageError(
        f"{expectation}, got {fault or cut(repr(subject))}. Rename the subject in its table, or in the call"
    )


@frozen
class Names:
    """How a ledger names subjects.

    >>> Names().of("anna"), len(Names(key=bytes(32)).of("anna"))
    ('anna', 64)

    Attributes:
        key: 32 bytes, under which names are hashed (HMAC-SHA256); None if they are not.
    """

    key: bytes | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """The ledger's text for this way of naming: a fingerprint of the key, never the key."""
        if self.key is None:
            return PLAIN
        return f"hmac-sha256 {hmac.new(self.key, b'privopt ledger', hashlib.sha256).hexdigest()[:32]}"

    def of(self, subject: str) -> str:
        """Return the ledger's name for a subject."""
        name = subject_name(subject)
        return name if self.key is None else hmac.new(self.key, name.encode("utf-8"), hashlib.sha256).hexdigest()


def key_at(path: Path, *, make: bool) -> bytes:
    """Return the 32 bytes of a key from its file, which only its owner may read.

    Args:
        path: of the file.
        make: draw one from the operating system's entropy if there is none.

    Raises:
        InputError: there is none, or something else.
        UsageError: others may read it, or its folder is not there.
        StoppedError: it cannot be written.
    """
    if make and not path.exists():
        _create_key(path)
    try:
        text = read_bytes(path, largest=1024).decode("ascii", "replace").strip()
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.found, "the key under which subjects are hashed")]) from None
    # Whoever has the key can hash a list of names, and find each subject's account.
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise UsageError(f"{path} must have mode 0600, got {mode:04o}: who reads the key can name every subject")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise InputError([Fault(str(path), "", "no key", f"{2 * _KEY_BYTES} hexadecimal digits")])
    return key


def _create_key(path: Path) -> None:
    """Create a key file, completely before it has its name. If another process is first, its key stays."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} of the key must exist")
    with claim_folder(path) as work:
        new = work / "key"
        with open_private(new) as stream:
            stream.write(f"{secrets.token_hex(_KEY_BYTES)}\n".encode("ascii"))
        # A hard link, unlike a rename, does not replace a key that another process has just created.
        with suppress(FileExistsError):
            os.link(new, path)
