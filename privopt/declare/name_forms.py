"""The normal form of names, in which they are compared; the form of a subject's name; names that look alike."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import Any, Final

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

MAX_WARNINGS: Final = 5
"""Groups of names that warnings quote."""

_NUMBER: Final = re.compile(r"([+-]?\d+)(?:\.(\d*))?")
_REFUSED: Final = {"Cc": "a control character", "Cs": "half a character", "Co": "private use", "Cn": "unassigned"}


def normal_form(text: str) -> str:
    r"""Return a text in Unicode's Normalization Form C, in which ids, regions, words and names of columns are compared.

    >>> normal_form("Zu\u0308rich") == "Z\u00fcrich"
    True

    Source:
        Unicode Standard Annex 15.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def normal_column(name: Any) -> Any:
    """Return a column's name in :func:`normal_form`. A value that is not text (None) is unchanged."""
    return normal_form(name) if isinstance(name, str) else name


def folded(name: str) -> str:
    r"""Return the normal form of a subject's name, however it was written.

    Names that differ in what no one sees, or that programs write for one another, get one form, so that a person has
    one budget. The form is NFKC, without invisible characters, with single blanks and none outside, and a whole number
    as its digits. Two people whose names have one form share a budget: they are charged more, never less.

    >>> folded("Zoe\u0308 \ufb01eld\u200b"), folded("007"), folded("7.0"), folded("7.5")
    ('Zoë field', '7', '7', '7.5')

    Source:
        Unicode Standard Annex 15 (NFKC); ADR 15.
    """
    if not name.isascii():
        visible = (c for c in unicodedata.normalize("NFKC", name) if not _is_invisible(c))
        name = unicodedata.normalize("NFKC", "".join(visible))
    name = " ".join(name.split())
    # Programs export whole numbers as 7, 7.0 or 007: all are one subject.
    number = _NUMBER.fullmatch(name) if len(name) <= MAX_TEXT_CHARACTERS else None
    return str(int(number[1])) if number and not int(number[2] or 0) else name


def fault_of(name: str) -> str | None:
    """Return why a folded name cannot be a subject's name; None if it can."""
    if len(name) > MAX_TEXT_CHARACTERS:
        return f"a name of {len(name):,} characters"
    refused = next((c for c in name if unicodedata.category(c) in _REFUSED), None)
    return None if refused is None else f"a name with U+{ord(refused):04X} ({_REFUSED[unicodedata.category(refused)]})"


def find_look_alikes(names: Iterable[str]) -> list[tuple[str, ...]]:
    r"""Group names that differ only in characters that no one sees, each group in the order of the names.

    Zero-width characters, marks of direction, soft hyphens, kinds and numbers of blanks make no difference to a reader.

    >>> find_look_alikes(["Bern", "Zug\u200b", "Zug", "St Gallen", "St\u00a0Gallen"])
    [('Zug\u200b', 'Zug'), ('St Gallen', 'St\xa0Gallen')]
    """
    distinct = list(dict.fromkeys(names))
    # Most lists have no such character at all, which a set of their characters says in a fraction of the time.
    characters = set().union(*distinct)
    has_blanks = any("  " in name for name in distinct)
    if not has_blanks and not any(_is_invisible(c) or (c.isspace() and c != " ") for c in characters):
        return []
    groups: dict[str, list[str]] = {}
    for name in distinct:
        groups.setdefault(_visible_text(name), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def show_invisible(name: str) -> str:
    r"""Return a name with what no one sees in it written as its code.

    >>> print(show_invisible("St\u00a0Gallen\u200b"))
    St<U+00A0>Gallen<U+200B>
    """
    return "".join(f"<U+{ord(c):04X}>" if _is_invisible(c) or (c.isspace() and c != " ") else c for c in name)


def warn_of_look_alikes(names: Iterable[str], noun: str) -> list[str]:
    """Return a warning for each group of names that look alike; the first few groups only.

    Args:
        names: Public names: the warnings quote them.
        noun: What they name, in the plural (``"ids"``).
    """
    groups = find_look_alikes(names)
    lines = [
        f"{noun} {' and '.join(repr(show_invisible(name)) for name in group[:3])} look alike but are different: they "
        "differ by characters that no one sees. Rename one if they are the same"
        for group in groups[:MAX_WARNINGS]
    ]
    unlisted_count = len(groups) - MAX_WARNINGS
    return lines + (
        [f"{unlisted_count:,} more groups of {noun} look alike but are different"] if unlisted_count > 0 else []
    )


def _is_invisible(character: str) -> bool:
    """Return whether a character shows nothing and takes no space."""
    return character in _UNSEEN or unicodedata.category(character) == "Cf"


def _visible_text(name: str) -> str:
    """Return a name without invisible characters, every run of blanks one space."""
    if name.isascii():
        return " ".join(name.split())
    return normal_form(" ".join("".join(c for c in name if not _is_invisible(c)).split()))
