"""Exact draws of the discrete Laplace distribution, in bulk, from a stream of random words.

Canonne, Kamath and Steinke 2020 ("The Discrete Gaussian for Differential Privacy", Algorithms 1 and 2): integers,
comparisons and rejection only. The distribution of scale t / s is P(X = v) proportional to exp(-|v| s / t).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.errors import UsageError
from privopt.execution.compiled import jit
from privopt.numbers.sampling import Source

#: Numerators and denominators up to here keep every product inside 64 bits.
LARGEST_TERM = 1 << 40
_WORDS = 1 << 19
_ONE = np.uint64(1)
_NONE = np.uint64(0)


@jit()
def _below(words, at, bound):  # type: ignore[no-untyped-def]
    """Return a uniform integer below bound, and the place of the next word; negative if the words ran out."""
    refused = (_NONE - bound) % bound  # 2**64 modulo bound: without that many words the rest divides evenly
    while at < words.size:
        word = words[at]
        at += 1
        if word >= refused:
            return word % bound, at
    return _NONE, -1


@jit()
def _survives(words, at, u, t):  # type: ignore[no-untyped-def]
    """Bernoulli(exp(-u / t)) for 0 <= u <= t (Algorithm 1), and the place of the next word."""
    k = _ONE
    while True:
        value, at = _below(words, at, t * k)
        if at < 0:
            return False, at
        if value >= u:
            return (k & _ONE) == _ONE, at
        k += _ONE


@jit()
def falls(words, at, steps, s, t):  # type: ignore[no-untyped-def]
    """Draw Bernoulli(exp(-steps s / t)) for any steps >= 0 and s <= t; return it and the place of the next word.

    A product of factors of at most 1 in the exponent: most are never drawn, for the first that fails ends it.
    """
    each = t // s
    while steps > _NONE:
        part = min(steps, each)
        kept, at = _survives(words, at, part * s, t)
        if at < 0 or not kept:
            return False, at
        steps -= part
    return True, at


@jit()
def geometric(words, at, s, t):  # type: ignore[no-untyped-def]
    """Return a draw with P(m) ~ exp(-m s / t), m >= 0 (Algorithm 2 without the sign), and the next place."""
    while True:
        u, at = _below(words, at, t)
        if at < 0:
            return 0, at
        kept, at = _survives(words, at, u, t)
        if at < 0:
            return 0, at
        if not kept:
            continue
        v = _NONE
        while True:
            more, at = _survives(words, at, _ONE, _ONE)
            if at < 0:
                return 0, at
            if not more:
                break
            v += _ONE
        return np.int64((u + t * v) // s), at


@jit()
def one_laplace(words, at, s, t):  # type: ignore[no-untyped-def]
    """Draw once (Algorithm 2); return the value and the place of the next word."""
    while True:
        magnitude, at = geometric(words, at, s, t)
        if at < 0:
            return 0, at
        sign, at = _below(words, at, np.uint64(2))
        if at < 0:
            return 0, at
        if sign == _NONE:
            return magnitude, at
        if magnitude != 0:
            return -magnitude, at


@jit()
def _fill(words, s, t, drawn, done):  # type: ignore[no-untyped-def]
    """Fill drawn from done on; the words used by whole draws, and how far it got."""
    at = 0
    while done < drawn.size:
        value, after = one_laplace(words, at, s, t)
        if after < 0:
            break
        drawn[done] = value
        done += 1
        at = after
    return at, done


def draw_laplace(count: int, scale_reciprocal: Fraction, *, source: Source | None = None) -> NDArray[np.int64]:
    """Return ``count`` independent draws with P(v) proportional to exp(-|v| scale_reciprocal).

    Words are handed on in order. Where they run out in the middle of a draw, that draw starts again from its own first
    word with more words behind it: dropping it would favour draws that need few words.

    Args:
        count: how many.
        scale_reciprocal: s / t, exact, above 0, both terms at most 2**40.
        source: random bytes; the operating system's by default.
    """
    s, t = scale_reciprocal.numerator, scale_reciprocal.denominator
    if s <= 0 or max(s, t) > LARGEST_TERM:
        raise UsageError(f"the reciprocal scale {scale_reciprocal} must be above 0 with terms of at most 2**40")
    return in_bulk(count, _fill, np.uint64(s), np.uint64(t), source=source)


def in_bulk(
    count: int, fill: Callable[..., tuple[int, int]], *terms: np.uint64, source: Source | None = None
) -> NDArray[np.int64]:
    """Return ``count`` draws by a compiled filler, handed words in order.

    Args:
        count: how many.
        fill: ``(words, *terms, drawn, done) -> (used, done)``: fills drawn from done on with whole draws, and says how
            many words they took.
        terms: of the distribution.
        source: random bytes; the operating system's by default.
    """
    entropy: Any = source or os.urandom
    drawn = np.empty(count, dtype=np.int64)
    left = np.empty(0, dtype=np.uint64)
    done = 0
    while done < count:
        size = min(_WORDS, 16 * (count - done) + 256)
        words = np.concatenate([left, np.frombuffer(entropy(8 * size), dtype="<u8")])
        used, done = fill(words, *terms, drawn, done)
        left = words[used:]
    return drawn
