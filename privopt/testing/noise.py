"""The noise of a trial: each call of :mod:`privopt.numbers.noise` is noted, and drawn, rescaled or answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from fractions import Fraction
from typing import Any, Final, Literal

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.numbers.gaussian import variance_above
from privopt.numbers.noise import Law, NoiseRecord, NoiseSource, noise_from
from privopt.testing.profile import Query

__all__ = ["AgainError", "Answer", "Call", "alike", "farther", "same", "tied", "truth", "watched"]

_LAWS: Final[dict[Law, Literal["laplace", "gaussian"]]] = {
    "discrete-laplace": "laplace",
    "laplace": "laplace",
    "discrete-gaussian": "gaussian",
}

MAX_CALLS: Final = 5_000
"""Calls of the noise in one solve of the kit's small problems; more of them have no end."""

FAR: Final = 1 << 61
"""What a call is answered farther off by at most, so that sums stay within 64 bits."""


class AgainError(Exception):
    """One solve called the noise more often than :data:`MAX_CALLS`."""


@frozen(kw_only=True, eq=False)
class Call(Query):
    """One call of the noise.

    Attributes:
        noisy: what it returned, as flat as the values.
    """

    noisy: NDArray[Any]


Answer = Callable[[Sequence[Call], Query], Sequence[Any]]
"""``answer(calls, query)``: what a call of the noise returns, after these calls; of Gaussian noise the query's scale is
the variance."""


@frozen(eq=False)
class _WatchedNoise(NoiseSource):
    inner: NoiseSource
    calls: list[Call]
    answer: Answer | None
    factor: Fraction

    def draw(
        self, values: NDArray[Any], law: Law, scale: Fraction, seed: int | None
    ) -> tuple[NDArray[Any], NoiseRecord]:
        if len(self.calls) == MAX_CALLS:
            raise AgainError(f"noise is drawn again and again until some value comes: {MAX_CALLS} times in one solve")
        gaussian, name = law == "discrete-gaussian", f"noise call {len(self.calls) + 1} ({values.size} values)"
        if self.answer is None or seed is not None:
            noisy, record = self.inner.draw(values, law, scale * self.factor ** (2 if gaussian else 1), seed)
        else:
            record = NoiseRecord("exact-integer", law, variance_above(scale) if gaussian else scale, None, values.size)
            query = Query(name=name, values=values, scale=record.scale, law=_LAWS[law])
            noisy = np.array(self.answer(self.calls, query), dtype=values.dtype).reshape(values.shape)
        self.calls.append(
            Call(name=name, values=values.copy(), scale=record.scale, law=_LAWS[law], noisy=noisy.flatten())
        )
        return noisy, record


@contextmanager
def watched(answer: Answer | None = None, factor: Fraction = Fraction(1)) -> Iterator[list[Call]]:
    """Note in this block, one solve, each call of :mod:`privopt.numbers.noise`.

    Only for trials: what is released inside under an answer, or another factor, is not private.

    Args:
        answer: what calls without a seed return instead of a draw: :func:`truth`, for instance.
        factor: by which the scale is multiplied that is drawn at; of Gaussian noise the standard deviation.

    Yields:
        The calls so far; their scales are those that were drawn at, of Gaussian noise the variances.

    Raises:
        AgainError: there are more than :data:`MAX_CALLS`, as of a mechanism that draws until it likes what comes.
    """
    calls: list[Call] = []
    with noise_from(lambda inner: _WatchedNoise(inner, calls, answer, factor)):
        yield calls


def truth(calls: Sequence[Call], query: Query) -> Sequence[Any]:
    """Answer with the values themselves: add no noise."""
    return list(query.values.tolist())


def tied(calls: Sequence[Call], query: Query) -> Sequence[Any]:
    """Answer with one number for all values of all calls."""
    return [5] * len(query.values)


def same(calls: Sequence[Call], query: Query) -> Sequence[Any]:
    """Answer with numbers that follow from how many values the call has, and how many such calls came before it.

    What a mechanism publishes then is the same for two inputs, unless more than the noisy values depends on them.
    """
    count = len(query.values)
    before = sum(len(call.values) == count for call in calls)
    return list(np.random.default_rng([count, before + 1]).integers(0, 9, count).tolist())


def farther(call: int, signs: tuple[int, int], *, scales: int, more: int) -> Answer:
    """Return an answer with the values themselves, except for one call, which is answered far off.

    Args:
        call: which one, from 0.
        signs: +1 or -1, of every other value from the first, and of the rest.
        scales: by how many scales of its noise.
        more: by how much in addition, and twice the greatest value too where it is not 0.
    """

    def answer(calls: Sequence[Call], query: Query) -> Sequence[Any]:
        values: list[Any] = query.values.tolist()
        if len(calls) != call:
            return values
        wide = math.sqrt(query.scale) if query.law == "gaussian" else float(query.scale)
        beside = more + 2 * max(map(abs, values), default=0) if more else 0
        by = math.ceil(min(scales * wide + beside, FAR))
        return [value + signs[place % 2] * by for place, value in enumerate(values)]

    return answer


def alike(earlier: Sequence[Call]) -> Answer:
    """Return an answer with what another run was answered, call by call, as far as calls have as many values."""

    def answer(calls: Sequence[Call], query: Query) -> Sequence[Any]:
        number = len(calls)
        fits = number < len(earlier) and len(earlier[number].values) == len(query.values)
        return list((earlier[number].noisy if fits else query.values).tolist())

    return answer
