"""Record calls to :mod:`privopt.numbers.noise` during a test, and optionally replace the noise.

A check can have the noise drawn as usual or at another scale. It can also supply the noisy values returned by each
call, so that the release is a deterministic function of the input. If the runs for two inputs then differ although both
get the same noisy values, something other than these values depends on the secret.
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
"""Maps each law in :mod:`privopt.numbers.noise` to the law used for it in a :class:`Query`."""

MAX_CALLS: Final = 5_000
"""The maximum number of noise calls in one solve. The kit's problems are small, so more calls imply an endless loop."""

MAX_SHIFT: Final = 1 << 61
"""The maximum amount by which an answer is shifted, which keeps sums within 64 bits."""


class TooManyCallsError(Exception):
    """Raised if a solve draws noise more than :data:`MAX_CALLS` times."""


@frozen(kw_only=True, eq=False)
class Call(Query):
    """A recorded noise call, i.e. a :class:`Query` together with the noisy values returned.

    Attributes:
        noisy: The values returned by the call, as a flat array.
    """

    noisy: NDArray[Any]


Answer = Callable[[Sequence[Call], Query], Sequence[Any]]
"""A function ``answer(calls, query)`` that returns the noisy values for a call, given the earlier calls in the solve.

For Gaussian noise, the query's scale is the variance."""


@frozen(eq=False)
class _WatchedNoise(NoiseSource):
    """A noise source that records each call, and can rescale or replace the noise drawn by another source.

    Attributes:
        inner: The source that draws the noise.
        calls: The calls so far, in order.
        answer: A function that returns the noisy values for calls without a seed. If None, they are drawn from
            ``inner``.
        factor: The factor by which to multiply the standard deviation of the noise.
    """

    inner: NoiseSource
    calls: list[Call]
    answer: Answer | None
    factor: Fraction

    def draw(
        self, values: NDArray[Any], law: Law, scale: Fraction, seed: int | None
    ) -> tuple[NDArray[Any], NoiseRecord]:
        """Record the call, and return the noisy values and the noise record as any :class:`NoiseSource` does.

        Args:
            values: The true values, of any shape.
            law: The distribution of the noise.
            scale: The scale of the noise, which is the variance for Gaussian noise.
            seed: The seed for the noise. If None, the noise is drawn from the operating system's entropy.

        Raises:
            TooManyCallsError: There were :data:`MAX_CALLS` calls before this one.
        """
        if len(self.calls) == MAX_CALLS:
            raise TooManyCallsError(
                f"noise is drawn again and again until some value comes: {MAX_CALLS} times in one solve"
            )
        gaussian, name = law == "discrete-gaussian", f"noise call {len(self.calls) + 1} ({values.size} values)"
        # The scale of Gaussian noise is a variance, so the factor for the standard deviation is squared. Calls with a
        # seed are always drawn, because their noise follows from the seed alone.
        if self.answer is None or seed is not None:
            noisy, record = self.inner.draw(values, law, scale * self.factor ** (2 if gaussian else 1), seed)
        else:
            # The record looks like that of a real draw, so that the mechanism states its usual scale.
            record = NoiseRecord("exact-integer", law, variance_above(scale) if gaussian else scale, values.size)
            query = Query(name=name, values=values, scale=record.scale, law=_LAWS[law])
            noisy = np.array(self.answer(self.calls, query), dtype=values.dtype).reshape(values.shape)
        self.calls.append(
            # The values are copied, because a mechanism may change its array in place later.
            Call(name=name, values=values.copy(), scale=record.scale, law=_LAWS[law], noisy=noisy.flatten())
        )
        return noisy, record


@contextmanager
def watch_noise(answer: Answer | None = None, factor: Fraction = Fraction(1)) -> Iterator[list[Call]]:
    """Record each call to :mod:`privopt.numbers.noise` during a ``with`` block that contains one solve.

    This is for tests only. A release made with an ``answer`` or a ``factor`` other than 1 is not private.

    Args:
        answer: A function such as :func:`answer_truthfully` that returns the noisy values for calls without a seed. If
            None, they are drawn.
        factor: The factor by which to multiply the scale of the noise or, for Gaussian noise, its standard deviation.

    Yields:
        The list of calls so far. Their scales are those at which noise was drawn, and are variances for Gaussian noise.

    Raises:
        TooManyCallsError: There are more than :data:`MAX_CALLS` calls, for example because a mechanism draws until it
            gets an acceptable value.
    """
    calls: list[Call] = []
    with noise_from(lambda inner: _WatchedNoise(inner, calls, answer, factor)):
        yield calls


def answer_truthfully(calls: Sequence[Call], query: Query) -> Sequence[Any]:
    """Return the query's true values, without noise. Earlier calls have no effect."""
    return list(query.values.tolist())


def answer_with_ties(calls: Sequence[Call], query: Query) -> Sequence[Any]:
    """Return the same number for every value in every call, so that all values tie in any ranking."""
    # Any other number would do as well.
    return [5] * len(query.values)


def answer_by_size(calls: Sequence[Call], query: Query) -> Sequence[Any]:
    """Return numbers that depend only on the call's size and on the number of earlier calls with that size.

    With these answers, a mechanism publishes the same release for two inputs unless something other than the noisy
    values depends on the input.
    """
    count = len(query.values)
    # The answers do not depend on any values, nor on calls with other sizes in between.
    earlier_count = sum(len(call.values) == count for call in calls)
    return list(np.random.default_rng([count, earlier_count + 1]).integers(0, 9, count).tolist())


def shift_one_call(call: int, signs: tuple[int, int], *, scales: int, more: int) -> Answer:
    """Return an :data:`Answer` that shifts the true values in one call, and returns them unchanged in all others.

    Args:
        call: The index of the call to shift, counted from 0.
        signs: The direction of the shift, +1 or -1, for values with even indices and for values with odd indices.
        scales: The size of the shift, as a multiple of the call's noise scale or, for Gaussian noise, of its standard
            deviation.
        more: An amount to add to the size of the shift. If it is not 0, twice the call's largest absolute value is also
            added.
    """

    def answer(calls: Sequence[Call], query: Query) -> Sequence[Any]:
        """Return the query's true values, shifted if this is the call to shift."""
        values: list[Any] = query.values.tolist()
        if len(calls) != call:
            return values
        # For Gaussian noise, the scale is the variance.
        deviation = math.sqrt(query.scale) if query.law == "gaussian" else float(query.scale)
        extra_shift = more + 2 * max(map(abs, values), default=0) if more else 0
        shift = math.ceil(min(scales * deviation + extra_shift, MAX_SHIFT))
        return [value + signs[index % 2] * shift for index, value in enumerate(values)]

    return answer


def replay_answers(earlier: Sequence[Call]) -> Answer:
    """Return an :data:`Answer` that repeats the noisy values from another run, call by call.

    It is used to compare two inputs under equal noisy values. If the other run has no call at the same position, or if
    that call has a different number of values, the true values are returned.

    Args:
        earlier: The calls in the other run, in order.
    """

    def answer(calls: Sequence[Call], query: Query) -> Sequence[Any]:
        """Return the other run's noisy values for the same call, or the true values."""
        number = len(calls)
        has_same_size = number < len(earlier) and len(earlier[number].values) == len(query.values)
        return list((earlier[number].noisy if has_same_size else query.values).tolist())

    return answer
