"""Names of totals and of counts in the tables of statistical offices: is a value, region or column called so?"""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Collection
from functools import cache
from importlib.resources import files
from typing import Final

__all__ = ["find_total_names", "is_count_name", "is_total_name"]

_SPECIAL_LETTERS: Final = str.maketrans({"ł": "l", "ø": "o", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe"})
"""Letters with a stroke, which Unicode does not take apart."""

_CAMEL_CASE: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def is_total_name(name: str) -> bool:
    """Return whether a value or region is a total by its name, whichever of the known languages it is in.

    >>> [is_total_name(name) for name in ("Total", "_T", "Both sexes", "Iš viso", "Ogółem", "North", "18-64")]
    [True, True, True, True, True, False, False]
    """
    words = _split_words(name)
    totals, nouns = _words_of("totals"), _words_of("nouns")
    if " ".join(words) in totals:
        return True
    return any(word in totals for word in words) and all(word in totals or word in nouns for word in words)


def find_total_names(siblings: Collection[str], *, allow_letters: bool = True) -> list[str]:
    """Return those of several values, or of regions with one parent, that are totals of the others by their names.

    A total is one beside others: of a value without siblings, or of values that all are such names, nothing is said.

    Args:
        siblings: All values of an attribute, or all regions below one.
        allow_letters: Whether a single letter (``T``) may be a total. It is none among S and U: then letters are codes.
    """
    letters = {name.casefold() for name in siblings if len(name) == 1}
    is_alphabet = {"s", "u"} <= letters
    totals = [
        name for name in siblings if is_total_name(name) and (len(name) > 1 or (allow_letters and not is_alphabet))
    ]
    return totals if len(totals) < len(siblings) else []


def is_count_name(name: str) -> bool:
    """Return whether a column is called as columns are that say how many a row counts.

    >>> [is_count_name(name) for name in ("OBS_VALUE", "n", "TotalPop2021", "Einwohner", "age", "number of rooms")]
    [True, True, True, True, False, False]
    """
    words = [word for word in _split_words(_CAMEL_CASE.sub(" ", name)) if not word.isdecimal()]
    counts = _words_of("counts")
    nouns = _words_of("nouns")
    return any(word in counts for word in words) and all(word in counts or word in nouns for word in words)


@cache
def _words_of(table: str) -> frozenset[str]:
    """Return the words of one table, of all languages, as :func:`_split_words` writes them."""
    text = files("privopt_hierarchical_dp.tables").joinpath("table_words.toml").read_text("utf-8")
    lists = tomllib.loads(text)[table].values()
    return frozenset(" ".join(_split_words(word)) for words in lists for word in words)


def _split_words(name: str) -> list[str]:
    """Return the words of a name without case, accents, digits that end a word, and punctuation."""
    folded = unicodedata.normalize("NFKC", name).casefold().translate(_SPECIAL_LETTERS)
    unaccented = "".join(c for c in unicodedata.normalize("NFD", folded) if not unicodedata.combining(c))
    return re.findall(r"[^\W\d_]+|\d+", unaccented)
