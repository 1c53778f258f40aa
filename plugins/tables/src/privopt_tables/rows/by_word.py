"""Protect columns of sentences word by word. Known words are replaced by reports. Unknown words are dropped or masked.

A protected sentence consists of the reports and masks in the order of the words, separated by single spaces.
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
from privopt.declare.toml_text import exact_text
from privopt.errors import UsageError
from privopt.interfaces import Guarantee
from privopt.ledger.batches import Coins, secrets_of
from privopt.numbers.sampling import RowStreams, make_source
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_tables.charge_rows import RowCharger
from privopt_tables.nearest_record import REASONS
from privopt_tables.options import ApplyOptions, check_options
from privopt_tables.rows.protector import SEEDED, RowProtector
from privopt_tables.secret_columns import Secret

__all__ = ["MASK", "WordProtector", "split_words", "vocabulary", "word_number"]

_JOINERS: Final = "\u200c\u200d"
"""Invisible characters that occur inside words in some scripts."""
_APOSTROPHES: Final = dict.fromkeys(map(ord, "\u2019\u02bc\uff07"), "'")
"""Replacements for typographic apostrophes, for ``str.translate``."""


class _Separators(dict[int, str]):
    """A table for ``str.translate`` that maps every character that cannot be part of a word to a space."""

    def __missing__(self, code: int) -> str:
        """Return the character with the given code point if it can be part of a word, or a space otherwise.

        Letters, marks and digits (Unicode categories L, M, N), apostrophes and joiners can be part of a word.
        """
        character = chr(code)
        is_of_word = unicodedata.category(character)[0] in "LMN" or character in "'" + _JOINERS
        # The result is stored, so that each character is looked up in the Unicode database only once.
        self[code] = character if is_of_word else " "
        return self[code]


_SEPARATORS: Final = _Separators(_APOSTROPHES)


def split_words(text: str) -> list[str]:
    """Return the words of a text in order, whatever its script.

    A word is a maximal run of letters, marks and digits (Unicode categories L, M, N) in the text's normal form C. It
    may contain apostrophes, which are converted to plain ones, and the joiners used in some scripts. All other
    characters separate words. Text in scripts without spaces between words (Chinese, Japanese, Thai) must be segmented
    first.

    >>> split_words("She's 30, said: 'a cat-owner'!")
    ["She's", '30', 'said', 'a', 'cat', 'owner']
    """
    pieces = unicodedata.normalize("NFC", text).translate(_SEPARATORS).split()
    return [word for piece in pieces if (word := piece.strip("'" + _JOINERS))]


def vocabulary(ids: Iterable[str]) -> dict[str, int]:
    """Return a mapping from words to the indices of their records.

    The words are the ids in Unicode normal form C, with plain apostrophes, and their case-folded forms. If a
    case-folded form is also the id of another record, it is mapped to that record. If several ids share a form, the
    form is mapped to the first of their records.

    Args:
        ids: The records' ids, in order.
    """
    numbers: dict[str, int] = {}
    folded: dict[str, int] = {}
    for number, name in enumerate(ids):
        word = unicodedata.normalize("NFC", name).translate(_APOSTROPHES)
        numbers.setdefault(word, number)
        folded.setdefault(word.casefold(), number)
    # An exact id takes precedence over the case-folded form of another id.
    return folded | numbers


def word_number(numbers: Mapping[str, int], word: str) -> int:
    """Return the index of a word's record, or -1 if neither the word nor its case-folded form has one.

    Args:
        numbers: The result of :func:`vocabulary`.
        word: The word to look up.
    """
    return numbers.get(word, numbers.get(word.casefold(), -1))


MASK: Final = "[mask]"
"""The string that replaces an unknown word if unknown words are masked (``--unknown mask``)."""

_NO_TEXT, _NO_WORD = map(REASONS.index, ("no text", "no known word"))


@frozen(kw_only=True, eq=False)
class WordProtector(RowProtector):
    """A protector that draws a report for each known word in a sentence.

    If there is a ledger, a row is charged once for each of its known words. This reveals nothing new, because the
    protected table also shows the number of known words. If unknown words are masked, the table also reveals where they
    are in the sentence.

    Attributes:
        release: The matrix to draw from, whose records are words.
        record_numbers: The records' indices, keyed by word.
        is_masking: Whether unknown words are masked rather than dropped.
        word_counts: The numbers of words reported, dropped and masked so far, under the keys ``words``, ``dropped`` and
            ``masked``.
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
        """Create a protector for sentences, after checking the options.

        Args:
            release: The matrix to draw from, whose records are words.
            secret: The column of sentences.
            options: The options for applying the release.
            charger: The object that charges the rows, which must be open before the first row is protected. If None,
                nothing is charged.
            coins: The source of the batch's random bytes. None if there is no batch.

        Raises:
            UsageError: The release reports traces, or an option is invalid or cannot be used with sentences.
        """
        # These options concern positions, or need rows that contain a single record.
        excluded = {
            "max-snap": options.max_snap is not None,
            "prefix": options.prefix is not None,
            "positions": bool(options.positions),
            "sticky": options.charge is not None and options.charge.sticky,
        }
        if option_names := [name for name, is_given in excluded.items() if is_given]:
            raise UsageError(f"{option_names[0]} must be omitted with text, whose words are reported each by itself")
        # Only releases that report traces have a walker.
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
            source=make_source(options.seed),
            is_seeded=options.seed is not None,
            coins=coins,
        )

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The name of the column that marks reports as drawn with a seed. Empty if there is no seed.

        No column of reports is added, because protected sentences stay in their own column.
        """
        return (SEEDED,) if self.is_seeded else ()

    @property
    def price(self) -> str | None:
        """A sentence that states what a subject is charged for each known word, or None if nothing is charged."""
        return None if self.charger is None else self.charger.price("known word")

    @property
    def sequence(self) -> str | None:
        """A sentence that states the guarantee for all of a subject's words together, or None if nothing is charged."""
        return None if self.charger is None else self.charger.sequence_of_words

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of words reported, dropped and masked so far.

        The keys are ``words``, ``dropped`` and, if unknown words are masked, ``masked``.
        """
        return {name: count for name, count in self.word_counts.items() if name != "masked" or self.is_masking}

    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Return the rows with protected sentences, and count the rows that do not get one.

        With a ledger, reports are drawn only for rows that were charged.

        Args:
            frame: Rows of the table.
            first: The index of the frame's first row in the whole table.
        """
        # The sentences are read before the charge, because the charge depends on how many known words they contain. The
        # guarantee holds between sentences with the same number of them, so the charge may reveal that number.
        texts = texts_of(frame[self.secret.columns[0]]).to_list()
        words = [[word_number(self.record_numbers, word) for word in split_words(text or "")] for text in texts]
        known_counts = np.array([sum(number >= 0 for number in row) for row in words], dtype=np.int64)
        # Without masks, a sentence that contains only unknown words would become empty.
        is_empty = (known_counts == 0) if not self.is_masking else np.array([not row for row in words], dtype=bool)
        reason = np.where(is_empty, _NO_WORD, -1)
        reason[[text is None for text in texts]] = _NO_TEXT
        if self.charger is not None:
            is_granted, charge_reason = self.charger.charge_table(frame, known_counts)
            reason = np.where(is_granted, reason, charge_reason)
        self.count_refusals(reason, first)
        usable_rows = np.flatnonzero(reason < 0)
        sentences: list[str | None] = [None] * len(words)
        reports = iter(self._draw_reports(words, usable_rows, first))
        for row in usable_rows.tolist():
            parts = [next(reports) if number >= 0 else MASK for number in words[row] if number >= 0 or self.is_masking]
            sentences[row] = " ".join(parts)
            unknown_count = len(words[row]) - int(known_counts[row])
            self.word_counts["words"] += int(known_counts[row])
            self.word_counts["masked" if self.is_masking else "dropped"] += unknown_count
        # The column of protected sentences stays at the position of the original column.
        order = [name for name in frame.columns if name not in self.secret.omitted]
        marks = [pl.Series(SEEDED, [True] * len(sentences), dtype=pl.Boolean)] if self.is_seeded else []
        text = pl.Series(self.secret.columns[0], sentences, dtype=pl.String)
        return self.replace_secret(frame, [text, *marks]).select(*order, *self.added_columns)

    def _draw_reports(self, words: list[list[int]], rows: Ints, first: int) -> list[str]:
        """Draw a report for each known word in the selected rows.

        Args:
            words: The record index of each word in each row, or -1 for an unknown word.
            rows: The indices of the rows to draw for.
            first: The index of the frame's first row in the whole table.

        Returns:
            The reports for all known words in these rows, in order.
        """
        known_words = [(row, index) for row in rows.tolist() for index, number in enumerate(words[row]) if number >= 0]
        records = np.array([words[row][index] for row, index in known_words], dtype=np.int64)
        source = self.source
        if self.coins is not None:
            coins, secrets = self.coins, secrets_of([self.release.records[records].tolist()])

            def read(number: int, start: int, count: int) -> bytes:
                """Return random bytes derived from a known word, its row and its position in the sentence."""
                row, index = known_words[number]
                row_name, position = (first + row).to_bytes(8, "big"), f"word {index}"
                return coins.stream("output", row_name, position, secrets[number], start, count)

            source = RowStreams(read, np.arange(len(known_words)))
        reports: list[str] = self.release.outputs[self.release.sampler.draw_each(records, source=source)].tolist()
        return reports

    def notes(self, guarantee: Guarantee) -> tuple[str, ...]:
        """Return the base class's notes, followed by one on how the guarantee adds up over the words of a sentence."""
        if self.is_masking:
            shared = "pattern of known and unknown words"
            public = "the words' number, their order and the masks stay visible"
        else:
            shared = "number of known words"
            public = "how many known words a sentence has, and their order, stay visible"
        epsilon = "" if guarantee.epsilon is None else f" epsilon {exact_text(Fraction(guarantee.epsilon))} times"
        sentence = (
            f"the guarantee for a sentence adds up over its words,{epsilon} the sum of their distances, between "
            f"tables whose rows have, row by row, the same {shared}: {public}"
        )
        return (*super().notes(guarantee), sentence)
