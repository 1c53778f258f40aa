"""Protect columns of sentences word by word: each known word is reported, unknown words are dropped or masked.

What stays of a sentence is reports and masks between single spaces, in the order of its words.
"""

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


class _Separators(dict[int, str]):
    """A table for ``str.translate`` that turns all characters that separate words into spaces."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_of_word = unicodedata.category(character)[0] in "LMN" or character in "'" + _JOINERS
        self[code] = character if is_of_word else " "
        return self[code]


_SEPARATORS: Final = _Separators(_APOSTROPHES)


def split_words(text: str) -> list[str]:
    """Return the words of a text, in order, in any script.

    A word is a longest run of letters, marks and digits (Unicode's categories L, M, N) in the text's normal form C.
    It may have apostrophes inside, of which the typographic one counts as the plain one, and the joiners of some
    scripts. All other characters separate words. Scripts without spaces between words (Chinese, Japanese, Thai) need
    some first.

    >>> split_words("She's 30, said: 'a cat-owner'!")
    ["She's", '30', 'said', 'a', 'cat', 'owner']
    """
    pieces = unicodedata.normalize("NFC", text).translate(_SEPARATORS).split()
    return [word for piece in pieces if (word := piece.strip("'" + _JOINERS))]


def vocabulary(ids: Iterable[str]) -> dict[str, int]:
    """Return record numbers by word: each id in the normal form C, and its case-folded form if no id is written so."""
    numbers: dict[str, int] = {}
    folded: dict[str, int] = {}
    for number, name in enumerate(ids):
        word = unicodedata.normalize("NFC", name).translate(_APOSTROPHES)
        numbers.setdefault(word, number)
        folded.setdefault(word.casefold(), number)
    return folded | numbers


def word_number(numbers: Mapping[str, int], word: str) -> int:
    """Return the number of the record that a word names; -1 if it names none."""
    return numbers.get(word, numbers.get(word.casefold(), -1))


MASK: Final = "[mask]"
"""What replaces an unknown word with ``--unknown mask``."""

_NO_TEXT, _NO_WORD = map(REASONS.index, ("no text", "no known word"))


@frozen(kw_only=True, eq=False)
class WordProtector(RowProtector):
    """Draws one report for each known word of a sentence.

    Which rows are charged, and how much, follows from how many known words each has. So that number is public
    (``drop``), or the whole pattern of known and unknown words is (``mask``).

    Attributes:
        release: The matrix, whose records are words.
        record_numbers: Numbers of the records, by word.
        is_masking: Whether a mask replaces an unknown word; otherwise it is dropped.
        word_counts: Numbers of words reported, dropped and masked so far.
    """

    release: MatrixRelease
    record_numbers: dict[str, int]
    is_masking: bool
    word_counts: dict[str, int] = field(factory=lambda: {"words": 0, "dropped": 0, "masked": 0})

    @classmethod
    def of(
        cls,
        release: MatrixRelease,
        secret: Secret,
        options: ApplyOptions,
        charger: RowCharger | None = None,
        coins: Coins | None = None,
    ) -> WordProtector:
        """Prepare to protect tables.

        Args:
            release: The matrix to draw from.
            secret: The column of sentences.
            options: How the release is applied.
            charger: Charges each row by its words; it must be opened before the first row.
            coins: The batch's random bytes; None without a batch.

        Raises:
            UsageError: Options that exclude sentences.
        """
        excluded = {
            "max-snap": options.max_snap is not None,
            "prefix": options.prefix is not None,
            "positions": bool(options.positions),
            "sticky": options.charge is not None and options.charge.sticky,
        }
        if names := [name for name, is_given in excluded.items() if is_given]:
            raise UsageError(f"{names[0]} must be omitted with text, whose words are reported each by itself")
        if release.walker is not None:
            raise UsageError("text must be of words that are reported one by one, got a release that reports traces")
        if options.unknown not in ("drop", "mask"):
            raise UsageError(f"unknown must be drop or mask, got {options.unknown!r}")
        check_options((), options, traces=False)
        return cls(
            release=release,
            secret=secret,
            positions=((None, secret),),
            charger=charger,
            record_numbers=vocabulary(release.records.tolist()),
            is_masking=options.unknown == "mask",
            source=seeded(options.seed),
            is_seeded=options.seed is not None,
            coins=coins,
        )

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The mark of a table that a seed drew; sentences stay in their own column."""
        return (SEEDED,) if self.is_seeded else ()

    @property
    def price(self) -> str | None:
        """What a known word costs the row's subject; None if nothing is charged."""
        return None if self.charger is None else self.charger.price("known word")

    @property
    def sequence(self) -> str | None:
        """What holds of all words of a subject, in words; None if nothing is charged."""
        return None if self.charger is None else self.charger.sequence_of_words

    @property
    def counts(self) -> dict[str, int]:
        """Numbers of words reported, dropped and, with masks, masked."""
        return {name: count for name, count in self.word_counts.items() if name != "masked" or self.is_masking}

    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Draw for the known words of rows whose subjects were charged, if there is a ledger."""
        texts = texts_of(frame[self.secret.columns[0]]).to_list()
        words = [[word_number(self.record_numbers, word) for word in split_words(text or "")] for text in texts]
        known_counts = np.array([sum(number >= 0 for number in row) for row in words], dtype=np.int64)
        is_empty = (known_counts == 0) if not self.is_masking else np.array([not row for row in words], dtype=bool)
        reason = np.where(is_empty, _NO_WORD, -1)
        reason[[text is None for text in texts]] = _NO_TEXT
        if self.charger is not None:
            is_granted, charge_reason = self.charger.granted(frame, known_counts)
            reason = np.where(is_granted, reason, charge_reason)
        self.count_refusals(reason)
        usable_rows = np.flatnonzero(reason < 0)
        sentences: list[str | None] = [None] * len(words)
        reports = iter(self._draw_reports(words, usable_rows, first))
        for row in usable_rows.tolist():
            parts = [next(reports) if number >= 0 else MASK for number in words[row] if number >= 0 or self.is_masking]
            sentences[row] = " ".join(parts)
            unknown_count = len(words[row]) - int(known_counts[row])
            self.word_counts["words"] += int(known_counts[row])
            self.word_counts["masked" if self.is_masking else "dropped"] += unknown_count
        order = [name for name in frame.columns if name not in self.secret.also]
        marks = [pl.Series(SEEDED, [True] * len(sentences), dtype=pl.Boolean)] if self.is_seeded else []
        text = pl.Series(self.secret.columns[0], sentences, dtype=pl.String)
        return self.replace_secret(frame, [text, *marks]).select(*order, *self.added_columns)

    def _draw_reports(self, words: list[list[int]], rows: Ints, first: int) -> list[str]:
        """Draw a report for each known word of some rows, one after another.

        Args:
            words: Record numbers of the words of each row; -1 for an unknown word.
            rows: Numbers of the rows to draw for.
            first: Number of the frame's first row in the whole table.
        """
        known_words = [(row, index) for row in rows.tolist() for index, number in enumerate(words[row]) if number >= 0]
        records = np.array([words[row][index] for row, index in known_words], dtype=np.int64)
        source = self.source
        if self.coins is not None:
            coins, secrets = self.coins, secrets_of([self.release.records[records].tolist()])

            def read(number: int, start: int, count: int) -> bytes:
                row, index = known_words[number]
                row_name, position = (first + row).to_bytes(8, "big"), f"word {index}"
                return coins.stream("output", row_name, position, secrets[number], start, count)

            source = RowStreams(read, np.arange(len(known_words)))
        reports: list[str] = self.release.outputs[draw_each(self.release.weights, records, source=source)].tolist()
        return reports

    def notes(self, guarantee: Guarantee) -> tuple[str, ...]:
        """Return the base class's sentences, and one on what is public of a sentence and how its words add up."""
        if self.is_masking:
            shared = "pattern of known and unknown words"
            public = "the words' number, their order and the masks stay visible"
        else:
            shared = "number of known words"
            public = "how many known words a sentence has, and their order, stay visible"
        epsilon = "" if guarantee.epsilon is None else f" epsilon {exact_text(Fraction(guarantee.epsilon))} times"
        sentence = (
            f"what holds of a sentence adds up over its words,{epsilon} the sum of their distances, between tables "
            f"whose rows have, row by row, the same {shared}: {public}"
        )
        return (*super().notes(guarantee), sentence)
