"""Exact draws from the discrete Laplace distribution, computed from a stream of random words.

The samplers are Algorithms 1 and 2 of Canonne, Kamath and Steinke 2020 ("The Discrete Gaussian for Differential
Privacy"), which use only integers, comparisons and rejection. The distribution with scale t / s has P(X = v)
proportional to exp(-|v| s / t).

:func:`draw_laplace` is compiled and works on 64-bit words, which limits s and t to 2**40. :func:`draw_wide_laplace` has
no such limits, because it works on Python's integers, but a draw takes about 10 microseconds rather than less than one.

In the compiled functions, ``words`` is an array of random 64-bit words, and ``offset`` is the index of the next unused
word. Functions that make a single draw return the new offset as their last value, or -1 if the words ran out before the
draw was complete.
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
from privopt.numbers.integer_draws import draw_below, draw_bernoulli_exp, read_in_blocks
from privopt.numbers.sampling import Source

#: The largest numerator or denominator with which every product fits into 64 bits.
LARGEST_TERM = 1 << 40
FEW_DRAWS = 1_000
"""The largest number of draws for which the samplers are interpreted. Interpreting that many takes up to 12 ms.

Loading their compiled code takes half a second and 85 MiB."""
# The largest number of words to read from the source at a time.
_WORDS = 1 << 19
_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@jit()
def _draw_below(words, offset, bound):  # type: ignore[no-untyped-def]
    """Draw a uniform integer below ``bound``, and return it with the offset of the next unused word.

    ``words`` are random 64-bit words, which are used from index ``offset`` onwards. The returned offset is -1 if they
    ran out.
    """
    # This is 2**64 modulo bound, in 64-bit arithmetic. Words below it are rejected. The number of the other words is a
    # multiple of bound, so their remainders are uniform.
    rejection_limit = (_ZERO - bound) % bound
    while offset < words.size:
        word = words[offset]
        offset += 1
        if word >= rejection_limit:
            return word % bound, offset
    return _ZERO, -1


@jit()
def _draw_bernoulli_exp(words, offset, u, t):  # type: ignore[no-untyped-def]
    """Draw True with probability exp(-u / t), for 0 <= u <= t.

    Returns the draw and the offset of the next unused word, which is -1 if the random ``words`` ran out.

    Source: Canonne, Kamath and Steinke 2020, Algorithm 1.
    """
    # Von Neumann's method: the first k for which a draw of probability u / (t k) fails is odd with probability
    # exp(-u / t).
    k = _ONE
    while True:
        value, offset = _draw_below(words, offset, t * k)
        if offset < 0:
            return False, offset
        if value >= u:
            return (k & _ONE) == _ONE, offset
        k += _ONE


@jit()
def draw_bernoulli_exp_steps(words, offset, steps, s, t):  # type: ignore[no-untyped-def]
    """Draw True with probability exp(-steps s / t), for any steps >= 0 and s <= t.

    The probability is written as a product of factors exp(-x) with x <= 1, and a Bernoulli variable is drawn for each
    factor. The draw ends at the first variable that is False, so most factors are never needed.

    Returns the draw and the offset of the next unused word, which is -1 if the random ``words`` ran out.
    """
    # The largest number of steps for which the exponent is at most 1.
    max_part = t // s
    while steps > _ZERO:
        part = min(steps, max_part)
        is_accepted, offset = _draw_bernoulli_exp(words, offset, part * s, t)
        if offset < 0 or not is_accepted:
            return False, offset
        steps -= part
    return True, offset


@jit()
def draw_geometric(words, offset, s, t):  # type: ignore[no-untyped-def]
    """Draw m >= 0 with P(m) proportional to exp(-m s / t).

    This is Algorithm 2 of Canonne, Kamath and Steinke 2020 without the random sign. Integers u < t and v are drawn with
    probabilities proportional to exp(-u / t) and exp(-v). Then u + t v is geometric with parameter exp(-1 / t).
    Dividing it by s and rounding down gives a geometric variable with parameter exp(-s / t).

    Returns m and the offset of the next unused word, which is -1 if the random ``words`` ran out.
    """
    while True:
        u, offset = _draw_below(words, offset, t)
        if offset < 0:
            return 0, offset
        is_accepted, offset = _draw_bernoulli_exp(words, offset, u, t)
        if offset < 0:
            return 0, offset
        if not is_accepted:
            continue
        # v is geometric with parameter exp(-1): the number of draws of True before the first False.
        v = _ZERO
        while True:
            is_larger, offset = _draw_bernoulli_exp(words, offset, _ONE, _ONE)
            if offset < 0:
                return 0, offset
            if not is_larger:
                break
            v += _ONE
        return np.int64((u + t * v) // s), offset


@jit()
def draw_one_laplace(words, offset, s, t):  # type: ignore[no-untyped-def]
    """Draw a discrete Laplace value with scale t / s.

    Returns the value and the offset of the next unused word, which is -1 if the random ``words`` ran out.

    Source: Canonne, Kamath and Steinke 2020, Algorithm 2.
    """
    while True:
        magnitude, offset = draw_geometric(words, offset, s, t)
        if offset < 0:
            return 0, offset
        sign, offset = _draw_below(words, offset, np.uint64(2))
        if offset < 0:
            return 0, offset
        if sign == _ZERO:
            return magnitude, offset
        # Draw again for minus zero, because otherwise 0 would be twice as likely as it should be.
        if magnitude != 0:
            return -magnitude, offset


@jit(few=lambda words, s, t, samples, _: samples.size <= FEW_DRAWS)
def _fill(words, s, t, samples, sample_count):  # type: ignore[no-untyped-def]
    """Fill ``samples``, from index ``sample_count`` onwards, with discrete Laplace draws of scale t / s.

    ``words`` are random 64-bit words, used in order. Returns the number of words used and the number of samples now
    filled.
    """
    offset = 0
    while sample_count < samples.size:
        value, next_offset = draw_one_laplace(words, offset, s, t)
        # The words ran out. The next call repeats the draw from its first word, to which ``offset`` still points.
        if next_offset < 0:
            break
        samples[sample_count] = value
        sample_count += 1
        offset = next_offset
    return offset, sample_count


def draw_laplace(count: int, scale_reciprocal: Fraction, *, source: Source | None = None) -> NDArray[np.int64]:
    """Return ``count`` independent draws with P(v) proportional to exp(-|v| scale_reciprocal).

    Random words are used in order. If they run out in the middle of a draw, more words are appended and the draw is
    restarted from its first word. Discarding the draw instead would favour draws that need few words.

    Args:
        count: The number of draws.
        scale_reciprocal: s / t, exact and above 0, with both s and t at most 2**40.
        source: The source of random bytes. The default is the operating system's entropy.

    Raises:
        UsageError: The reciprocal scale is not above 0, or its numerator or denominator exceeds 2**40.
    """
    s, t = scale_reciprocal.numerator, scale_reciprocal.denominator
    if s <= 0 or max(s, t) > LARGEST_TERM:
        raise UsageError(f"the reciprocal scale {scale_reciprocal} must be above 0 with terms of at most 2**40")
    return draw_in_bulk(count, _fill, np.uint64(s), np.uint64(t), source=source)


def draw_in_bulk(
    count: int, fill: Callable[..., tuple[int, int]], *terms: np.uint64, source: Source | None = None
) -> NDArray[np.int64]:
    """Return ``count`` draws from a compiled sampler that consumes random words in order.

    Args:
        count: The number of draws.
        fill: A function ``(words, *terms, samples, sample_count) -> (used_words, sample_count)``. It fills ``samples``
            with complete draws from index ``sample_count`` onwards, and returns the number of words used and the new
            number of filled samples.
        terms: The parameters of the distribution.
        source: The source of random bytes. The default is the operating system's entropy.
    """
    entropy: Any = source or os.urandom
    samples = np.empty(count, dtype=np.int64)
    remaining_words = np.empty(0, dtype=np.uint64)
    sample_count = 0
    while sample_count < count:
        # Read only about as many words as needed (16 per draw are usually enough), because unused words are discarded.
        size = min(_WORDS, 16 * (count - sample_count) + 256)
        words = np.concatenate([remaining_words, np.frombuffer(entropy(8 * size), dtype="<u8")])
        used_words, sample_count = fill(words, *terms, samples, sample_count)
        # The words of an incomplete draw come first in the next round (see draw_laplace).
        remaining_words = words[used_words:]
    return samples


def draw_wide_laplace(count: int, scale_reciprocal: Fraction, *, source: Source | None = None) -> list[int]:
    """Return ``count`` independent draws with P(v) proportional to exp(-|v| scale_reciprocal), for any scale.

    Args:
        count: The number of draws.
        scale_reciprocal: s / t, exact and above 0. Both s and t may have any number of digits.
        source: The source of random bytes. The default is the operating system's entropy.

    Raises:
        UsageError: The reciprocal scale is not above 0.

    >>> len(draw_wide_laplace(3, Fraction(1, 1 << 1000)))
    3
    """
    s, t = scale_reciprocal.numerator, scale_reciprocal.denominator
    if s <= 0:
        raise UsageError(f"the reciprocal scale {scale_reciprocal} must be above 0")
    buffered_source = read_in_blocks(source or os.urandom)
    return [_draw_wide_laplace(buffered_source, s, t) for _ in range(count)]


def _draw_wide_laplace(source: Source, s: int, t: int) -> int:
    """Draw a discrete Laplace value with scale t / s from a source of random bytes.

    Source: Canonne, Kamath and Steinke 2020, Algorithm 2.
    """
    while True:
        # u + t v is geometric with parameter exp(-1 / t), where u is its remainder modulo t and v its quotient.
        u = draw_below(t, source)
        if not draw_bernoulli_exp(u, t, source):
            continue
        v = 0
        while draw_bernoulli_exp(1, 1, source):
            v += 1
        magnitude = (u + t * v) // s
        # Draw again for minus zero, because otherwise 0 would be twice as likely as it should be.
        if draw_below(2, source) == 0:
            return magnitude
        if magnitude:
            return -magnitude
