"""Normal forms for comparing names, including subjects' names, and a search for names that look alike.

A subject is the person (or device) that a row is about.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from typing import Any, Final

from privopt.errors import UsageError, number_of

MAX_TEXT_CHARACTERS: Final = 1_000
"""The maximum number of characters in a subject's name, or in other text such as a unit."""

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
"""Invisible characters that Unicode classifies as letters, marks or symbols, rather than as format characters (Cf).

All except the last one have the property Default_Ignorable_Code_Point.
"""

MAX_WARNINGS: Final = 5
"""The maximum number of groups of names quoted in warnings."""

_NUMBER: Final = re.compile(r"([+-]?\d+)(?:\.(\d*))?")
"""Matches a subject's name that is a number, with or without decimals."""
_REFUSED: Final = {"Cc": "a control character", "Cs": "half a character", "Co": "private use", "Cn": "unassigned"}
"""The Unicode categories of characters that are forbidden in subjects' names, and the words used for them in
messages."""


def normal_form(text: str) -> str:
    r"""Convert a string to Normalization Form C, the form in which ids, regions, words and column names are compared.

    >>> normal_form("Zu\u0308rich") == "Z\u00fcrich"
    True

    Source:
        Unicode Standard Annex 15.
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def normal_column(name: Any) -> Any:
    """Return a column name in :func:`normal_form`. A name that is not a string is returned unchanged."""
    return normal_form(name) if isinstance(name, str) else name


def check_distinct_columns(columns: Mapping[str, str | None]) -> None:
    """Check that no two options name the same column.

    Args:
        columns: The column named by each option, or None for an option that was omitted.

    Raises:
        UsageError: Two options name the same column.
    """
    option_by_column: dict[str, str] = {}
    for option, column in columns.items():
        if column is None:
            continue
        other_option = option_by_column.setdefault(normal_form(column), option)
        if other_option != option:
            raise UsageError(f"{other_option} and {option} must name different columns, got {column}")


def fold_subject_name(name: str) -> str:
    r"""Return the normal form of a subject's name, which is the same for all ways of writing the name.

    Names that differ only invisibly, or only because a program has rewritten them, have the same form, so that each
    person has a single budget. The form is NFKC without invisible characters or surrounding blanks. Runs of inner
    blanks become single blanks, and whole numbers are reduced to their digits. If two people's names have the same
    form, they share a budget, so they are charged more, never less.

    >>> [fold_subject_name(name) for name in ("Zoe\u0308 \ufb01eld\u200b", "007", "7.0", "7.5")]
    ['Zoë field', '7', '7', '7.5']

    Source:
        Unicode Standard Annex 15 (NFKC). The reasons for the form are in ADR 15.
    """
    if not name.isascii():
        # Removing invisible characters may bring letters and marks together, which the second normalisation composes.
        visible = (c for c in unicodedata.normalize("NFKC", name) if not _is_invisible(c))
        name = unicodedata.normalize("NFKC", "".join(visible))
    name = " ".join(name.split())
    # Programs export whole numbers as 7, 7.0 or 007, which all stand for the same subject.
    number = _NUMBER.fullmatch(name) if len(name) <= MAX_TEXT_CHARACTERS else None
    return str(int(number[1])) if number and not int(number[2] or 0) else name


def fault_of(name: str) -> str | None:
    """Return the reason why a subject's name is not allowed, or None if the name is allowed.

    Args:
        name: The name, in the form returned by :func:`fold_subject_name`.
    """
    if len(name) > MAX_TEXT_CHARACTERS:
        return f"a name of {len(name):,} characters"
    refused = next((c for c in name if unicodedata.category(c) in _REFUSED), None)
    return None if refused is None else f"a name with U+{ord(refused):04X} ({_REFUSED[unicodedata.category(refused)]})"


def find_look_alikes(names: Iterable[str]) -> list[tuple[str, ...]]:
    r"""Return groups of names that differ only in invisible characters or blanks, each in the order of ``names``.

    Such names look alike to a reader: zero-width characters, direction marks and soft hyphens are invisible, and
    different kinds and numbers of blanks are hard to tell apart.

    >>> find_look_alikes(["Bern", "Zug\u200b", "Zug", "St Gallen", "St\u00a0Gallen"])
    [('Zug\u200b', 'Zug'), ('St Gallen', 'St\xa0Gallen')]
    """
    distinct = list(dict.fromkeys(names))
    # Most lists contain no such character, which is quickly determined from the set of all their characters.
    characters = set().union(*distinct)
    has_blanks = any("  " in name for name in distinct)
    if not has_blanks and not any(_is_invisible(c) or (c.isspace() and c != " ") for c in characters):
        return []
    groups: dict[str, list[str]] = {}
    for name in distinct:
        groups.setdefault(visible_text(name), []).append(name)
    return [tuple(group) for group in groups.values() if len(group) > 1]


def show_invisible(name: str) -> str:
    r"""Return a name with invisible characters and unusual whitespace replaced by their code points.

    >>> print(show_invisible("St\u00a0Gallen\u200b"))
    St<U+00A0>Gallen<U+200B>
    """
    return "".join(f"<U+{ord(c):04X}>" if _is_invisible(c) or (c.isspace() and c != " ") else c for c in name)


def warn_of_look_alikes(names: Iterable[str], noun: str) -> list[str]:
    """Return a warning for each of the first few groups of names that look alike, and one that counts any other groups.

    Args:
        names: The names, which must be public, because the warnings quote them.
        noun: A plural noun for the names, such as ``"ids"``.
    """
    groups = find_look_alikes(names)
    lines = [
        f"{noun} {' and '.join(repr(show_invisible(name)) for name in group[:3])} look alike but are different: they "
        "differ by characters that no one sees. Rename one if they are the same"
        for group in groups[:MAX_WARNINGS]
    ]
    unlisted_count = len(groups) - MAX_WARNINGS
    return lines + (
        [f"{number_of(unlisted_count, 'more group')} of {noun} that look alike but are different"]
        if unlisted_count > 0
        else []
    )


def _is_invisible(character: str) -> bool:
    """Return whether a character is invisible and takes up no space."""
    return character in _UNSEEN or unicodedata.category(character) == "Cf"


def visible_text(name: str) -> str:
    """Return a name without invisible characters, in which each run of blanks becomes a single space."""
    if name.isascii():
        return " ".join(name.split())
    return normal_form(" ".join("".join(c for c in name if not _is_invisible(c)).split()))
