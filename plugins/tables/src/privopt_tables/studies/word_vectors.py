"""Read word vectors from text: GloVe, or word2vec with its header line of two counts."""

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


@frozen(kw_only=True, eq=False)
class WordVectors:
    """Words and their vectors.

    Attributes:
        words: (N,) words that differ and that a sentence can contain.
        vectors: (N, dim) their vectors, in order.
        notes: what was left out, a sentence each.
    """

    words: list[str]
    vectors: Floats
    notes: tuple[str, ...]


def is_vector_text(path: Path) -> bool:
    """Check whether a file of vectors is text: it does not begin as ``.npy`` does."""
    return not File.read(path, str(path), wanted="vectors").contents.startswith(NPY)


def read_word_vectors(path: Path) -> WordVectors:
    """Read one word and its numbers a line, between single spaces; a token may contain spaces itself.

    Tokens that repeat an earlier one are left out, and so are those that no sentence's words can be.

    Raises:
        InputError: a line without numbers, numbers that are not finite, or vectors of several lengths.
    """
    wanted = "a word and its vector: numbers between spaces, as many on each line"
    lines = text_of(File.read(path, str(path), wanted="vectors")).decode("utf-8").split("\n")
    while lines and not lines[-1].strip():
        lines.pop()
    first = lines[0].split() if lines else []
    has_header = len(first) == 2 and all(part.isascii() and part.isdigit() for part in first)
    start = 1 if has_header else 0
    if len(lines) <= start:
        raise InputError([Fault(path.name, "", "no vectors", wanted)])
    size = int(first[1]) if has_header else _vector_size(lines[start])
    words: dict[str, list[float]] = {}
    repeated, unmatchable = [], []
    for number, line in enumerate(lines[start:], start=start + 1):
        parts = line.rstrip().rsplit(" ", size) if size else []
        try:
            vector = [float(part) for part in parts[1:]]
        except ValueError:
            vector = []
        if len(vector) != size or not vector or not np.isfinite(vector).all():
            raise InputError([Fault(path.name, f"row {number:,}", "another line", f"{wanted} ({size} numbers)")])
        word = parts[0].strip()
        if split_words(word) != [word]:
            unmatchable.append(number)
        elif word in words:
            repeated.append(number)
        else:
            words[word] = vector
    notes = [
        f"{path.name}: {number_of(len(rows), 'token')} left out, {reason} (the first is in row {rows[0]:,})"
        for rows, reason in (
            (repeated, "which repeat an earlier one"),
            (
                unmatchable,
                "which no word of a sentence can be (they have spaces, or signs other than letters)",
            ),
        )
        if rows
    ]
    if has_header and int(first[0]) != len(lines) - start:
        notes.append(
            f"{path.name}: the first line announces {int(first[0]):,} words, and {len(lines) - start:,} follow"
        )
    return WordVectors(words=[*words], vectors=np.array([*words.values()], dtype=np.float64), notes=tuple(notes))


def _vector_size(line: str) -> int:
    """Return how many numbers end a line, the first token omitted."""
    size = 0
    for part in reversed(line.split()[1:]):
        try:
            float(part)
        except ValueError:
            break
        size += 1
    return size
