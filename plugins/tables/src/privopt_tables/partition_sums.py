"""Keyed sums over each subject's rows, used to check that a second pass over a table reads the rows that were charged.

Source: docs/adr/0028-partitions.md.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt
from attrs import define, frozen

__all__ = ["FIELD", "ChargedRows", "RowSums"]

FIELD: Final = (1 << 61) - 1
"""The prime p of the field GF(p) in which rows are summed. Its elements fit in a column of signed 64-bit integers."""


@define
class RowSums:
    """A keyed hash of the set of rows that belong to one subject.

    Each row is represented by an element of the prime field GF(p), namely its HMAC under the batch's key, modulo p. The
    hash consists of the sum of these elements and the sum of their squares. If rows are replaced by someone who does
    not know the key, the sum of the elements stays the same with a probability of only about 2^-61. The sum of squares
    makes it possible to identify a row that was replaced.

    Attributes:
        rows: The number of rows.
        total: The sum of the rows' elements.
        squares: The sum of the squares of these elements.
    """

    rows: int = 0
    total: int = 0
    squares: int = 0

    def add(self, element: int) -> None:
        """Add a row represented by the given field element."""
        self.rows += 1
        self.total = (self.total + element) % FIELD
        self.squares = (self.squares + element * element) % FIELD

    def changed_element(self, charged: RowSums) -> int | None:
        """Return the element of the new row, assuming that exactly one row was added, replaced or removed.

        Let a be the new row's element, and b the element of the row that was charged. If a row was added, b is 0. If a
        row was removed, a is 0. The two sums differ by a - b and a^2 - b^2. The quotient of these differences is a + b,
        so a can be computed.

        Args:
            charged: The sums of the rows that were charged.

        Returns:
            The new row's element, 0 if a row was removed, or None if the totals are equal. If several rows changed, the
            result is almost certainly not the element of any row.
        """
        # All computations are modulo p, where every number except 0 has an inverse, pow(number, -1, p).
        difference = (self.total - charged.total) % FIELD
        if not difference:
            return None
        sum_of_both = (self.squares - charged.squares) * pow(difference, -1, FIELD)
        return (sum_of_both + difference) * pow(2, -1, FIELD) % FIELD


@frozen(eq=False)
class ChargedRows:
    """Keyed hashes of the charged rows of S subjects.

    The hashes take 24 bytes per subject, whereas a table of all subjects' names might not fit in a worker's memory.

    Attributes:
        marks: (S,) The keyed hashes of the subjects' names, in ascending order.
        totals, squares: (S,) The sums over each subject's rows, as in :class:`RowSums`.
    """

    marks: npt.NDArray[np.uint64]
    totals: npt.NDArray[np.int64]
    squares: npt.NDArray[np.int64]

    @classmethod
    def of(cls, key: bytes, subjects: Sequence[str], totals: Sequence[int], squares: Sequence[int]) -> ChargedRows:
        """Collect the sums of all subjects, sorted by the hashes of their names.

        Args:
            key: The batch's key.
            subjects: The names of the subjects.
            totals, squares: The sums of each subject's rows, as in :class:`RowSums`.
        """
        # The probability that two given subjects share a hash is 2^-64. If they did, their rows would be rejected, so
        # nothing would leak.
        marks = np.array([_hash_subject(key, subject) for subject in subjects], dtype=np.uint64)
        order = np.argsort(marks, kind="stable")
        columns = (np.array(column, dtype=np.int64)[order] for column in (totals, squares))
        return cls(marks[order], *columns)

    def sums_of(self, key: bytes, subject: str) -> RowSums:
        """Return the two sums over a subject's charged rows, or zeros if the subject was not charged.

        The number of rows is not stored, so ``rows`` is always 0 in the result.

        Args:
            key: The batch's key, under which the subjects' names were hashed.
            subject: The name of the subject.
        """
        mark = np.uint64(_hash_subject(key, subject))
        # The marks are sorted, so a binary search finds a subject without a dictionary of millions of objects.
        row = int(np.searchsorted(self.marks, mark))
        if row == len(self.marks) or self.marks[row] != mark:
            return RowSums()
        return RowSums(total=int(self.totals[row]), squares=int(self.squares[row]))


def _hash_subject(key: bytes, subject: str) -> int:
    """Return a keyed 64-bit hash of a subject's name, which identifies the subject without storing the name."""
    return int.from_bytes(hashlib.blake2b(subject.encode("utf-8"), digest_size=8, key=key).digest(), "big")
