"""Exact random draws using Python's arbitrary-precision integers, from a source of random bytes."""

from __future__ import annotations

import os
from typing import Final

from privopt.numbers.sampling import Source

__all__ = ["draw_below", "draw_bernoulli_exp", "read_in_blocks"]

_BLOCK_BYTES: Final = 1 << 10
"""The number of bytes read at a time by :func:`read_in_blocks`."""


def draw_below(bound: int, source: Source = os.urandom) -> int:
    """Draw a uniform integer from [0, bound).

    Args:
        bound: A positive integer.
        source: A function that takes a number n and returns n random bytes.
    """
    width = (bound - 1).bit_length()
    byte_count = -(-width // 8)
    while True:
        value = int.from_bytes(source(byte_count), "little") & ((1 << width) - 1)
        # Values that are too large are drawn again, which leaves the others equally likely.
        if value < bound:
            return value


def draw_bernoulli_exp(u: int, t: int, source: Source = os.urandom) -> bool:
    """Return True with probability exactly exp(-u / t), for integers 0 <= u <= t and t >= 1.

    ``source`` is a function that takes a number n and returns n random bytes.

    Source: Canonne, Kamath and Steinke 2020, Algorithm 1.
    """
    # Von Neumann's method: the first k for which a draw of probability u / (t k) fails is odd with probability
    # exp(-u / t).
    k = 1
    while draw_below(t * k, source) < u:
        k += 1
    return k % 2 == 1


def read_in_blocks(source: Source) -> Source:
    """Wrap a source of random bytes so that it is read in blocks, which saves system calls."""
    block = b""

    def read(count: int) -> bytes:
        """Return the next ``count`` bytes."""
        nonlocal block
        while len(block) < count:
            block += source(_BLOCK_BYTES)
        head, block = block[:count], block[count:]
        return head

    return read
