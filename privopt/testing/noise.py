"""Record, and if requested replace, each call of :mod:`privopt.numbers.noise` during a trial.

A check can let the noise be drawn, let it be drawn at another scale, or answer each call itself, that is, choose the
noisy values that the call returns. With answers, a release is a function of its input, so a check can see whether
anything but the noisy values depends on the secret.
"""

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

__all__ = [
    "Answer",
    "Call",
    "TooManyCallsError",
    "answer_by_size",
    "answer_truthfully",
    "answer_with_ties",
    "replay_answers",
    "shift_one_call",
    "watch_noise",
]

_LAWS: Final[dict[Law, Literal["laplace", "gaussian"]]] = {
    "discrete-laplace": "laplace",
    "laplace": "laplace",
    "discrete-gaussian": "gaussian",
}
"""The law of a :class:`Query` for each law of the noise."""

MAX_CALLS: Final = 5_000
"""Maximum number of noise calls in one solve. The kit's problems are small, so more calls mean an endless loop."""

MAX_SHIFT: Final = 1 << 61
"""Largest shift of an answer, so that sums stay within 64 bits."""


class TooManyCallsError(Exception):
    """A solve called the noise more than :data:`MAX_CALLS` times."""


@frozen(kw_only=True, eq=False)
class Call(Query):
    """One call of the noise: its true values, scale and law, as in :class:`Query`, and what it returned.

    Attributes:
        noisy: The values that the call returned, as a flat array.
    """

    noisy: NDArray[Any]


Answer = Callable[[Sequence[Call], Query], Sequence[Any]]
"""A function ``answer(calls, query)`` that returns the noisy values of a call, given the earlier calls of the solve.

For Gaussian noise, the query's scale is the variance."""


@frozen(eq=False)
class _WatchedNoise(NoiseSource):
    """A source of noise that records each call, and rescales or replaces the noise of another source.

    Attributes:
        inner: The source that draws the noise.
        calls: The calls so far, in order.
        answer: Returns the noisy values of calls without a seed; None to draw them.
        factor: Factor by which the standard deviation of the noise is multiplied.
    """

    inner: NoiseSource
    calls: list[Call]
    answer: Answer | None
    factor: Fraction

    def draw(
        self, values: NDArray[Any], law: Law, scale: Fraction, seed: int | None
    ) -> tuple[NDArray[Any], NoiseRecord]:
        """Record the call, and return noisy values and the noise record, as :class:`NoiseSource` does.

        Args:
            values: The true values, of any shape.
            law: The distribution of the noise.
            scale: The scale of the noise; for Gaussian noise, the variance.
            seed: The seed of the noise; None for the operating system's entropy.

        Raises:
            TooManyCallsError: The limit of :data:`MAX_CALLS` is exceeded.
        """
        if len(self.calls) == MAX_CALLS:
            raise TooManyCallsError(
                f"noise is drawn again and again until some value comes: {MAX_CALLS} times in one solve"
            )
        gaussian, name = law == "discrete-gaussian", f"noise call {len(self.calls) + 1} ({values.size} values)"
        # The scale of Gaussian noise is a variance, which is multiplied by the square of the factor for the standard
        # deviation. Calls with a seed are always drawn, because their noise follows from the seed alone.
        if self.answer is None or seed is not None:
            noisy, record = self.inner.draw(values, law, scale * self.factor ** (2 if gaussian else 1), seed)
        else:
            # The record looks like that of a real draw, so that the mechanism states its usual scale.
            record = NoiseRecord("exact-integer", law, variance_above(scale) if gaussian else scale, values.size)
            query = Query(name=name, values=values, scale=record.scale, law=_LAWS[law])
            noisy = np.array(self.answer(self.calls, query), dtype=values.dtype).reshape(values.shape)
        self.calls.append(
            # A copy of the values, because a mechanism may change its array in place later on.
            Call(name=name, values=values.copy(), scale=record.scale, law=_LAWS[law], noisy=noisy.flatten())
        )
        return noisy, record


@contextmanager
def watch_noise(answer: Answer | None = None, factor: Fraction = Fraction(1)) -> Iterator[list[Call]]:
    """Record each call of :mod:`privopt.numbers.noise` in this block, which is one solve.

    Use this only in trials: a release under an answer or another factor is not private.

    Args:
        answer: Returns the values of calls without a seed, instead of a draw; for example :func:`answer_truthfully`.
        factor: Factor by which the scale of the noise is multiplied; for Gaussian noise, the standard deviation.

    Yields:
        The calls so far. Their scales are those of the draws; for Gaussian noise, the variances.

    Raises:
        TooManyCallsError: There are more than :data:`MAX_CALLS` calls, for instance in a mechanism that draws until a
            value is acceptable.
    """
    calls: list[Call] = []
    with noise_from(lambda inner: _WatchedNoise(inner, calls, answer, factor)):
        yield calls


def answer_truthfully(calls: Sequence[Call], query: Query) -> Sequence[Any]:
    """Return the true values of the query, without noise; ``calls`` are the earlier calls, which do not matter."""
    return list(query.values.tolist())


def answer_with_ties(calls: Sequence[Call], query: Query) -> Sequence[Any]:
    """Return the same number for all values of all calls, so that a ranking has only ties."""
    # Any other number would serve as well.
    return [5] * len(query.values)


def answer_by_size(calls: Sequence[Call], query: Query) -> Sequence[Any]:
    """Return numbers that depend only on the size of the call and the number of earlier calls of that size.

    With this answer a mechanism publishes the same for two inputs, unless something besides the noisy values depends on
    the input.
    """
    count = len(query.values)
    # The answers depend on no value. Calls of other sizes in between do not change them.
    earlier_count = sum(len(call.values) == count for call in calls)
    return list(np.random.default_rng([count, earlier_count + 1]).integers(0, 9, count).tolist())


def shift_one_call(call: int, signs: tuple[int, int], *, scales: int, more: int) -> Answer:
    """Return an :data:`Answer` that gives the true values, except in one call, whose values it shifts far away.

    Args:
        call: Index of the shifted call, from 0.
        signs: Directions of the shift, +1 or -1, of the values with even index and of the values with odd index.
        scales: Size of the shift as a multiple of the noise scale of the call (of the standard deviation if Gaussian).
        more: Additional shift. If it is not 0, twice the call's largest absolute value is added too.
    """

    def answer(calls: Sequence[Call], query: Query) -> Sequence[Any]:
        """Return the true values of the query, shifted if this is the chosen call; ``calls`` are the earlier calls."""
        values: list[Any] = query.values.tolist()
        if len(calls) != call:
            return values
        # The scale of Gaussian noise is its variance.
        deviation = math.sqrt(query.scale) if query.law == "gaussian" else float(query.scale)
        extra_shift = more + 2 * max(map(abs, values), default=0) if more else 0
        shift = math.ceil(min(scales * deviation + extra_shift, MAX_SHIFT))
        return [value + signs[index % 2] * shift for index, value in enumerate(values)]

    return answer


def replay_answers(earlier: Sequence[Call]) -> Answer:
    """Return an :data:`Answer` that repeats the noisy values of another run, call by call.

    Use this to compare two inputs under equal noisy values. A call that the other run did not make, or made with
    another number of values, gets its true values.

    Args:
        earlier: The calls of the other run.
    """

    def answer(calls: Sequence[Call], query: Query) -> Sequence[Any]:
        """Return the other run's noisy values of the same call, or the true values."""
        number = len(calls)
        has_same_size = number < len(earlier) and len(earlier[number].values) == len(query.values)
        return list((earlier[number].noisy if has_same_size else query.values).tolist())

    return answer
