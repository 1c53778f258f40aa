"""Read word vectors from text files in GloVe or word2vec format.

A word2vec file begins with a header line that contains two counts. Words that :func:`.by_word.split_words` could never
find in a sentence are left out, because they would never be matched.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare.frames import text_of
from privopt.declare.schema import File
from privopt.errors import Fault, InputError, number_of
from privopt_tables.rows.by_word import split_words

__all__ = ["WordVectors", "is_vector_text", "read_word_vectors"]

NPY: Final = b"\x93NUMPY"
"""The first bytes of every .npy file (NumPy Enhancement Proposal 1)."""


@frozen(kw_only=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Attributes:
        words: The N distinct words. Each is a single word as found by :func:`.by_word.split_words`.
        vectors: (N, dim) The words' vectors.
        notes: Notes on the lines that were omitted.
    """

    words: list[str]
    vectors: Floats
    notes: tuple[str, ...]


def is_vector_text(path: Path) -> bool:
    """Return whether a file of vectors is text rather than ``.npy``, judging by its first bytes."""
    return not File.read(path, str(path), expectation="vectors").contents.startswith(NPY)


def read_word_vectors(path: Path) -> WordVectors:
    """Read word vectors from a text file in which each line contains a word and the numbers of its vector.

    Words and numbers are separated by single spaces, and a word may itself contain spaces. Repeated words are omitted,
    as are words that :func:`.by_word.split_words` would never find in a sentence.

    Args:
        path: The file, in GloVe or word2vec format.

    Raises:
        InputError: The file contains no vectors, a line has no numbers, a number is not finite, or vectors have
            different lengths.
    """
    expectation = "a word and its vector: numbers between spaces, as many on each line"
    lines = text_of(File.read(path, str(path), expectation="vectors")).decode("utf-8").split("\n")
    # Blank lines at the end of the file are not errors.
    while lines and not lines[-1].strip():
        lines.pop()
    first_parts = lines[0].split() if lines else []
    # A word2vec file begins with the number of words and the number of dimensions. In a GloVe file, a line with two
    # parts would be a word with a vector of a single number.
    has_header = len(first_parts) == 2 and all(part.isascii() and part.isdigit() for part in first_parts)
    start = 1 if has_header else 0
    if len(lines) <= start:
        raise InputError([Fault(path.name, "", "no vectors", expectation)])
    # Without a header, the first line determines the dimension.
    dimension = int(first_parts[1]) if has_header else _vector_size(lines[start])
    words: dict[str, list[float]] = {}
    repeated_rows, unmatchable_rows = [], []
    for row_number, line in enumerate(lines[start:], start=start + 1):
        # The line is split from the right, because some tokens in GloVe's Common Crawl vectors contain spaces.
        parts = line.rstrip().rsplit(" ", dimension) if dimension else []
        try:
            vector = [float(part) for part in parts[1:]]
        except ValueError:
            vector = []
        if len(vector) != dimension or not vector or not np.isfinite(vector).all():
            raise InputError(
                [Fault(path.name, f"row {row_number:,}", "another line", f"{expectation} ({dimension} numbers)")]
            )
        word = parts[0].strip()
        # WordProtector splits sentences with the same function and looks up each word that it returns.
        if split_words(word) != [word]:
            unmatchable_rows.append(row_number)
        elif word in words:
            repeated_rows.append(row_number)
        else:
            words[word] = vector
    notes = [
        f"{path.name}: {number_of(len(rows), 'token')} left out, {reason} (the first is in row {rows[0]:,})"
        for rows, reason in (
            (repeated_rows, "which repeat an earlier one"),
            (
                unmatchable_rows,
                "which no word of a sentence can be (they have spaces, or signs other than letters)",
            ),
        )
        if rows
    ]
    if has_header and int(first_parts[0]) != len(lines) - start:
        notes.append(
            f"{path.name}: the first line announces {int(first_parts[0]):,} words, and {len(lines) - start:,} follow"
        )
    return WordVectors(words=[*words], vectors=np.array([*words.values()], dtype=np.float64), notes=tuple(notes))


def _vector_size(line: str) -> int:
    """Count the numbers at the end of a line. The first part of the line is always taken to be a word."""
    size = 0
    # The numbers are counted from the right, because the word may contain spaces.
    for part in reversed(line.split()[1:]):
        try:
            float(part)
        except ValueError:
            break
        size += 1
    return size
