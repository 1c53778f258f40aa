"""How a ledger names subjects: as they are called, or by a keyed hash of that."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import unicodedata
from pathlib import Path
from typing import Final, Self

from attrs import field, frozen

from privopt.errors import Fault, InputError, StoppedError, UsageError, cut
from privopt.files import Unreadable, read_bytes
from privopt.run.ledger.entries import LONGEST

__all__ = ["Names", "key_at"]

_BYTES: Final = 32


@frozen
class Names:
    """What a ledger calls each subject.

    >>> Names().of("anna"), len(Names(key=bytes(32)).of("anna"))
    ('anna', 64)

    Attributes:
        key: 32 bytes, under which names are hashed (HMAC-SHA256); None where they are not.
    """

    key: bytes | None = field(default=None, repr=False)

    @classmethod
    def by(cls, path: Path | None, *, make: bool) -> Self:
        """Names hashed with the key in a file; with None, names as they are.

        Raises:
            InputError, UsageError, StoppedError: see :func:`key_at`.
        """
        return cls() if path is None else cls(key_at(path, make=make))

    @property
    def label(self) -> str:
        """What the ledger says of it: a fingerprint of the key, never the key."""
        if self.key is None:
            return "plain"
        return f"hmac-sha256 {hmac.new(self.key, b'privopt ledger', hashlib.sha256).hexdigest()[:32]}"

    def of(self, subject: str) -> str:
        """A subject's name in the ledger.

        Raises:
            UsageError: no text, or an empty or an endless one.
        """
        if not isinstance(subject, str) or not 0 < len(subject) <= LONGEST:
            raise UsageError(f"subject: found {cut(repr(subject))}, wanted text of 1 to {LONGEST:,} characters")
        try:
            raw = subject.encode("utf-8")
        except UnicodeEncodeError:
            raise UsageError(f"subject: found {cut(repr(subject))}, wanted text that UTF-8 can hold") from None
        return subject if self.key is None else hmac.new(self.key, raw, hashlib.sha256).hexdigest()

    def spelt(self, subject: str) -> tuple[str, ...]:
        r"""The names that a subject may have in the ledger, the one of new subjects first.

        Accents may be letters of their own (NFD) or not (NFC), and look the same. Ledgers from before names were
        brought to one form hold them as they were given.

        >>> Names().spelt("Zoe\u0308") == ("Zo\u00eb", "Zoe\u0308"), Names().spelt("anna")
        (True, ('anna',))

        Raises:
            UsageError: see :meth:`of`.
        """
        given = self.of(subject)
        if subject.isascii():
            return (given,)
        ways = (unicodedata.normalize("NFC", subject), subject, unicodedata.normalize("NFD", subject))
        return tuple(dict.fromkeys(self.of(way) for way in ways if len(way) <= LONGEST))


def key_at(path: Path, *, make: bool) -> bytes:
    """The 32 bytes of a key in a file, in hexadecimal; its owner's alone.

    Args:
        path: of the file.
        make: draw one from the operating system's entropy where there is none.

    Raises:
        InputError: there is none, or something else.
        UsageError: others may read it, or its folder is not there.
        StoppedError: it cannot be written.
    """
    if make and not path.exists():
        _draw(path)
    try:
        text = read_bytes(path, largest=1024).decode("ascii", "replace").strip()
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.found, "the key under which subjects are hashed")]) from None
    mode = path.stat().st_mode & 0o777
    if mode & 0o077:
        raise UsageError(f"{path}: found mode {mode:04o}, wanted 0600: who reads the key can name every subject")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _BYTES:
        raise InputError([Fault(str(path), "", "no key", f"{2 * _BYTES} hexadecimal digits")])
    return key


def _draw(path: Path) -> None:
    """A new key: whole before it has its name; where another process is first, its key stays."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        handle = os.open(new, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.write(handle, f"{secrets.token_hex(_BYTES)}\n".encode("ascii"))
            os.fsync(handle)
        finally:
            os.close(handle)
        try:
            os.link(new, path)
        except FileExistsError:
            return
        finally:
            new.unlink()
    except FileNotFoundError:
        raise UsageError(f"{path}: found no folder {path.parent}, wanted one for the key") from None
    except OSError as error:
        raise StoppedError(f"{path}: {error.strerror or error}; nothing written") from error
