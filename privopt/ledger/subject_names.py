"""Normal forms of subjects' names, and their names in a ledger."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
import unicodedata
from contextlib import suppress
from pathlib import Path
from typing import Final

from attrs import field, frozen

from privopt.errors import Fault, InputError, UsageError, cut
from privopt.files.regular import Unreadable, open_private, read_bytes
from privopt.files.working_folder import claimed
from privopt.ledger.entries import MAX_TEXT_CHARACTERS

PLAIN: Final = "plain"
"""What a ledger says where subjects are named as they are."""

_KEY_BYTES: Final = 32

_UNSEEN: Final = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5),  # a joiner, fillers, inherent vowels
            *(0x180B, 0x180C, 0x180D, 0x180F, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),  # variation selectors
            0x2800,  # an empty cell of Braille
        ),
    )
)
"""Characters that show nothing though they are letters, marks or signs: Unicode's Default_Ignorable_Code_Point, and
the last."""

_NUMBER: Final = re.compile(r"([+-]?\d+)(?:\.(\d*))?")
_REFUSED: Final = {"Cc": "a control character", "Cs": "half a character", "Co": "private use", "Cn": "unassigned"}


def folded(name: str) -> str:
    r"""Return the one form of a subject's name, whichever way it was written.

    Names that differ in what no one sees, or that programs write for one another, get one form, so that a person has
    one budget. The form is NFKC, without invisible characters, with single blanks and none outside, and a whole number
    as its digits. Two people whose names have one form share a budget: they are charged more, never less.

    >>> folded("Zoe\u0308 \ufb01eld\u200b"), folded("007"), folded("7.0"), folded("7.5")
    ('Zoë field', '7', '7', '7.5')

    Source:
        Unicode Standard Annex 15 (NFKC); ADR 15.
    """
    if not name.isascii():
        seen = (c for c in unicodedata.normalize("NFKC", name) if c not in _UNSEEN and unicodedata.category(c) != "Cf")
        name = unicodedata.normalize("NFKC", "".join(seen))
    name = " ".join(name.split())
    number = _NUMBER.fullmatch(name) if len(name) <= MAX_TEXT_CHARACTERS else None
    return str(int(number[1])) if number and not int(number[2] or 0) else name


def fault_of(name: str) -> str | None:
    """Return what keeps a folded name from being a subject's; None if nothing does."""
    if len(name) > MAX_TEXT_CHARACTERS:
        return f"a name of {len(name):,} characters"
    odd = next((c for c in name if unicodedata.category(c) in _REFUSED), None)
    return None if odd is None else f"a name with U+{ord(odd):04X} ({_REFUSED[unicodedata.category(odd)]})"


def subject_name(subject: str) -> str:
    """Return a subject's name in the one form under which it is charged (:func:`folded`).

    Raises:
        UsageError: not text, or text that shows nothing, is too long, or holds control characters, halves of
            characters, or characters that Unicode has not assigned or left to private use.
    """
    name = folded(subject) if isinstance(subject, str) else ""
    wrong = fault_of(name)
    if name and wrong is None:
        return name
    wanted = f"subject must be text of 1 to {MAX_TEXT_CHARACTERS:,} characters that can be seen"
    raise UsageError(f"{wanted}, got {wrong or cut(repr(subject))}. Rename the subject in its table, or in the call")


@frozen
class Names:
    """What a ledger calls each subject.

    >>> Names().of("anna"), len(Names(key=bytes(32)).of("anna"))
    ('anna', 64)

    Attributes:
        key: 32 bytes, under which names are hashed (HMAC-SHA256); None where they are not.
    """

    key: bytes | None = field(default=None, repr=False)

    @property
    def label(self) -> str:
        """What the ledger says of it: a fingerprint of the key, never the key."""
        if self.key is None:
            return PLAIN
        return f"hmac-sha256 {hmac.new(self.key, b'privopt ledger', hashlib.sha256).hexdigest()[:32]}"

    def of(self, subject: str) -> str:
        """Return what the ledger calls a subject, by the one form of its name."""
        name = subject_name(subject)
        return name if self.key is None else hmac.new(self.key, name.encode("utf-8"), hashlib.sha256).hexdigest()


def key_at(path: Path, *, make: bool) -> bytes:
    """Return the 32 bytes of a key in a file, in hexadecimal; its owner's alone.

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
        raise UsageError(f"{path} must have mode 0600, got {mode:04o}: who reads the key can name every subject")
    try:
        key = bytes.fromhex(text)
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise InputError([Fault(str(path), "", "no key", f"{2 * _KEY_BYTES} hexadecimal digits")])
    return key


def _draw(path: Path) -> None:
    """Write a new key: whole before it has its name. Where another process is first, its key stays."""
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} of the key must exist")
    with claimed(path) as work:
        new = work / "key"
        with open_private(new) as stream:
            stream.write(f"{secrets.token_hex(_KEY_BYTES)}\n".encode("ascii"))
        with suppress(FileExistsError):
            os.link(new, path)
