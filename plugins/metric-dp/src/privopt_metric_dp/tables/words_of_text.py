"""The words of a sentence, in any script, and which of them a release knows.

A word is a longest run of letters, marks and digits (Unicode's categories L, M, N) in the text's normal form C. Inside
it may be apostrophes, the typographic one as the plain one, and the joiners of some scripts. All other signs separate
words. A word is the record of the same letters, else the one of the same letters in either
case. Scripts that do not part words (Chinese, Japanese, Thai) need spaces between them first.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from typing import Final

__all__ = ["split_words", "vocabulary", "word_number"]

_JOINERS: Final = "\u200c\u200d"
_APOSTROPHES: Final = dict.fromkeys(map(ord, "\u2019\u02bc\uff07"), "'")


class _Signs(dict[int, str]):
    """What each sign becomes before a text is parted at spaces."""

    def __missing__(self, code: int) -> str:
        sign = chr(code)
        stays = unicodedata.category(sign)[0] in "LMN" or sign in "'" + _JOINERS
        self[code] = sign if stays else " "
        return self[code]


_SIGNS: Final = _Signs(_APOSTROPHES)


def split_words(text: str) -> list[str]:
    """Return the words of a text, in order.

    >>> split_words("She's 30, said: 'a cat-owner'!")
    ["She's", '30', 'said', 'a', 'cat', 'owner']
    """
    parted = unicodedata.normalize("NFC", text).translate(_SIGNS).split()
    return [word for each in parted if (word := each.strip("'" + _JOINERS))]


def vocabulary(ids: Iterable[str]) -> dict[str, int]:
    """Return the number of each record by its id in the normal form C, and in either case where no id is so written."""
    numbers: dict[str, int] = {}
    folded: dict[str, int] = {}
    for number, name in enumerate(ids):
        word = unicodedata.normalize("NFC", name).translate(_APOSTROPHES)
        numbers.setdefault(word, number)
        folded.setdefault(word.casefold(), number)
    return folded | numbers


def word_number(numbers: Mapping[str, int], word: str) -> int:
    """Return the number of the record that a word is, -1 where it is none."""
    return numbers.get(word, numbers.get(word.casefold(), -1))
