"""Recognise the names of totals, counts and ids, in many languages, in tables from statistical offices."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from polars import Series
else:  # the core works without polars
    Series = Any

__all__ = ["find_total_names", "is_count_name", "is_id_name", "is_total_name", "may_be_totals"]

_SPECIAL_LETTERS: Final = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe"})
"""Replacements for letters that Unicode normalisation does not decompose."""

_CAMEL_CASE: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")
"""Matches the position between two words in camel case, as in ``personID``."""


def is_total_name(name: str) -> bool:
    """Return whether a name denotes a total in any of the known languages.

    >>> [is_total_name(name) for name in ("Total", "_T", "Both sexes", "Iš viso", "Ogółem", "North", "18-64")]
    [True, True, True, True, True, False, False]
    """
    words = _split_words(name)
    totals, nouns = _words_of("totals"), _words_of("nouns")
    if " ".join(words) in totals:
        return True
    return any(word in totals for word in words) and all(word in totals or word in nouns for word in words)


def may_be_totals(names: Series) -> Series:
    """Return a mask of the names that may denote totals and must be examined with :func:`is_total_name`.

    This fast test excludes most names: those with digits, and ASCII names that contain no word for a total.
    """
    words = sorted({word for name in _words_of("totals") for word in name.split() if word.isascii()})
    # Names with non-ASCII letters may turn into known words when their accents are removed.
    is_ascii = names.str.len_bytes() == names.str.len_chars()
    has_word = names.str.contains(f"(?i)(?:^|[^a-z])(?:{'|'.join(words)})(?:$|[^a-z])")
    return (~is_ascii | has_word) & ~names.str.contains("[0-9]")


def find_total_names(siblings: Collection[str], *, allow_letters: bool = True) -> list[str]:
    """Return the values whose names mark them as totals of the other values.

    A total needs other values to sum over, so the list is empty if all values have such names or if there is only one
    value.

    Args:
        siblings: All values of an attribute, or all regions with the same parent.
        allow_letters: Whether a single letter, such as ``T``, may mark a total. It never does if S and U are also among
            the values, because the letters are then evidently codes.
    """
    letters = {name.casefold() for name in siblings if len(name) == 1}
    is_alphabet = {"s", "u"} <= letters
    totals = [
        name for name in siblings if is_total_name(name) and (len(name) > 1 or (allow_letters and not is_alphabet))
    ]
    # If all values had such names, there would be no values to sum over.
    return totals if len(totals) < len(siblings) else []


def is_count_name(name: str) -> bool:
    """Return whether a column's name suggests that it contains the number of individuals represented by each row.

    >>> [is_count_name(name) for name in ("OBS_VALUE", "n", "TotalPop2021", "Einwohner", "age", "number of rooms")]
    [True, True, True, True, False, False]
    """
    words = [word for word in _split_words(_CAMEL_CASE.sub(" ", name)) if not word.isdecimal()]
    counts = _words_of("counts")
    # "number of rooms" contains a word for counts, but "rooms" is not among the nouns for what is counted.
    nouns = _words_of("nouns")
    return any(word in counts for word in words) and all(word in counts or word in nouns for word in words)


def is_id_name(name: str) -> bool:
    """Return whether a column's name suggests that its values identify individuals.

    >>> [is_id_name(name) for name in ("id", "personID", "resp_nr", "uuid", "patient", "code", "municipality", "name")]
    [True, True, True, True, True, False, False, False]
    """
    words = [word for word in _split_words(_CAMEL_CASE.sub(" ", name)) if not word.isdecimal()]
    return any(word in _words_of("ids") for word in words)


@cache
def _words_of(table: str) -> frozenset[str]:
    """Return the words of all languages in one table of ``table_words.toml``, normalised by :func:`_split_words`.

    Args:
        table: The name of the table: ``totals``, ``counts``, ``nouns`` or ``ids``.
    """
    text = files("privopt.declare").joinpath("table_words.toml").read_text("utf-8")
    lists = tomllib.loads(text)[table].values()
    return frozenset(" ".join(_split_words(word)) for words in lists for word in words)


def _split_words(name: str) -> list[str]:
    """Split a name into words and numbers, ignoring case, accents and punctuation.

    Digits form separate words, so ``pop2021`` gives ``pop`` and ``2021``.
    """
    folded = unicodedata.normalize("NFKC", name).casefold().translate(_SPECIAL_LETTERS)
    unaccented = "".join(c for c in unicodedata.normalize("NFD", folded) if not unicodedata.combining(c))
    return re.findall(r"[^\W\d_]+|\d+", unaccented)
