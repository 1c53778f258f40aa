"""Columns of sentences, word by word: what stays of a sentence is protected words and masks between single spaces."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import field, frozen

from privopt.arrays import Ints
from privopt.declare.column_texts import texts_of
from privopt.declare.exact_text import exact_text
from privopt.errors import UsageError
from privopt.interfaces import Guarantee
from privopt.ledger.batches import Coins, secrets_of
from privopt.numbers.sampling import RowStreams, draw_each, seeded
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_tables.charge_rows import RowCharger
from privopt_tables.nearest_record import REASONS
from privopt_tables.options import ApplyOptions, check_options
from privopt_tables.rows.protector import SEEDED, RowProtector
from privopt_tables.secret_columns import Secret

__all__ = ["MASK", "WordProtector", "split_words", "vocabulary", "word_number"]

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
    """Return the words of a text, in order, in any script.

    A word is a longest run of letters, marks and digits (Unicode's categories L, M, N) in the text's normal form C.
    Inside it may be apostrophes, the typographic one as the plain one, and the joiners of some scripts. All other signs
    separate words. Scripts that do not part words (Chinese, Japanese, Thai) need spaces between them first.

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


MASK: Final = "[mask]"
"""What represents a word that no record is, with ``--unknown mask``."""

_NO_TEXT, _NO_WORD = map(REASONS.index, ("no text", "no known word"))


@frozen(kw_only=True, eq=False)
class WordProtector(RowProtector):
    """Draws one report for each known word of a sentence.

    Which rows are charged, and how much, follows from how many known words each has: that is public (``drop``), or the
    pattern of known and unknown words is (``mask``).

    Attributes:
        release: whose records are words.
        numbers: of its records, by word.
        masks: whether a mask replaces an unknown word; it is dropped otherwise.
        word_counts: how many words were reported, dropped and masked so far.
    """

    release: MatrixRelease
    numbers: dict[str, int]
    masks: bool
    word_counts: dict[str, int] = field(factory=lambda: {"words": 0, "dropped": 0, "masked": 0})

    @classmethod
    def of(
        cls,
        release: MatrixRelease,
        secret: Secret,
        asked: ApplyOptions,
        charging: RowCharger | None = None,
        coins: Coins | None = None,
    ) -> WordProtector:
        """Prepare for tables.

        Args:
            release: to draw from.
            secret: the column of sentences.
            asked: how.
            charging: charges each row by its words; to be opened before the first row.
            coins: of the batch, where there is one.

        Raises:
            UsageError: options that a sentence cannot have.
        """
        beside = {
            "max-snap": asked.max_snap is not None,
            "prefix": asked.prefix is not None,
            "positions": bool(asked.positions),
            "sticky": asked.charge is not None and asked.charge.sticky,
        }
        if found := [name for name, here in beside.items() if here]:
            raise UsageError(f"{found[0]} must be omitted with text, whose words are reported each by itself")
        if release.walker is not None:
            raise UsageError("text must be of words that are reported one by one, got a release that reports traces")
        if asked.unknown not in ("drop", "mask"):
            raise UsageError(f"unknown must be drop or mask, got {asked.unknown!r}")
        check_options((), asked, traces=False)
        return cls(
            release=release,
            secret=secret,
            positions=((None, secret),),
            charging=charging,
            numbers=vocabulary(release.records.tolist()),
            masks=asked.unknown == "mask",
            source=seeded(asked.seed),
            marked=asked.seed is not None,
            coins=coins,
        )

    @property
    def added(self) -> tuple[str, ...]:
        """The mark of a table that a seed drew: sentences stay in their column."""
        return (SEEDED,) if self.marked else ()

    @property
    def price(self) -> str | None:
        """What a known word costs the row's subject."""
        return None if self.charging is None else self.charging.price("known word")

    @property
    def sequence(self) -> str | None:
        """What holds of all words of a subject, where they are charged."""
        return None if self.charging is None else self.charging.sequence_of_words

    @property
    def counts(self) -> dict[str, int]:
        """Words that were reported, dropped, and masked where they are."""
        return {name: count for name, count in self.word_counts.items() if name != "masked" or self.masks}

    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Draw for the known words of rows whose subjects were charged, where they are to be."""
        texts = texts_of(frame[self.secret.columns[0]]).to_list()
        words = [[word_number(self.numbers, word) for word in split_words(text or "")] for text in texts]
        known = np.array([sum(number >= 0 for number in row) for row in words], dtype=np.int64)
        none = (known == 0) if not self.masks else np.array([not row for row in words], dtype=bool)
        reason = np.where(none, _NO_WORD, -1)
        reason[[text is None for text in texts]] = _NO_TEXT
        if self.charging is not None:
            granted, why = self.charging.granted(frame, known)
            reason = np.where(granted, reason, why)
        self.refuse(reason)
        good = np.flatnonzero(reason < 0)
        made: list[str | None] = [None] * len(words)
        reports = iter(self._drawn(words, good, first))
        for row in good.tolist():
            parts = [next(reports) if number >= 0 else MASK for number in words[row] if number >= 0 or self.masks]
            made[row] = " ".join(parts)
            unknown = len(words[row]) - int(known[row])
            self.word_counts["words"] += int(known[row])
            self.word_counts["masked" if self.masks else "dropped"] += unknown
        order = [name for name in frame.columns if name not in self.secret.also]
        marks = [pl.Series(SEEDED, [True] * len(made), dtype=pl.Boolean)] if self.marked else []
        text = pl.Series(self.secret.columns[0], made, dtype=pl.String)
        return self.with_columns(frame, [text, *marks]).select(*order, *self.added)

    def _drawn(self, words: list[list[int]], rows: Ints, first: int) -> list[str]:
        """Return a report for each known word of some rows, one after another.

        Args:
            words: records of the words of each row, -1 for an unknown word.
            rows: numbers of the rows to draw for.
            first: number of the first row in the whole table.
        """
        places = [(row, at) for row in rows.tolist() for at, number in enumerate(words[row]) if number >= 0]
        records = np.array([words[row][at] for row, at in places], dtype=np.int64)
        source = self.source
        if self.coins is not None:
            coins, secrets = self.coins, secrets_of([self.release.records[records].tolist()])

            def read(place: int, start: int, count: int) -> bytes:
                row, at = places[place]
                return coins.stream(
                    "output", (first + row).to_bytes(8, "big"), f"word {at}", secrets[place], start, count
                )

            source = RowStreams(read, np.arange(len(places)))
        drawn: list[str] = self.release.outputs[draw_each(self.release.weights, records, source=source)].tolist()
        return drawn

    def notes(self, guarantee: Guarantee) -> tuple[str, ...]:
        """Say what is public of a sentence, and what its words add up to."""
        if self.masks:
            alike = "pattern of known and unknown words"
            public = "the words' number, their order and the masks stay visible"
        else:
            alike = "number of known words"
            public = "how many known words a sentence has, and their order, stay visible"
        each = "" if guarantee.epsilon is None else f" epsilon {exact_text(Fraction(guarantee.epsilon))} times"
        sentence = (
            f"what holds of a sentence adds up over its words,{each} the sum of their distances, between tables whose "
            f"rows have, row by row, the same {alike}: {public}"
        )
        return (*super().notes(guarantee), sentence)
