"""The one form of a subject's name, whichever way it is written."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_TEXT_CHARACTERS: Final = 1_000
"""Characters of the longest subject, unit or purpose."""

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
