"""Stand-ins for :mod:`privopt.numbers.noise` in trials: calls recorded, left without noise, or answered alike."""

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
    "AgainError",
    "Other",
    "alike",
    "answered",
    "farther",
    "limited",
    "noted",
    "recorded",
    "rescaled",
]

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


Answer = Callable[[list[Any], Fraction, Law], list[Any]]
"""``answer(values, scale, law)``: what a call of the noise returns; of Gaussian noise the scale is the variance."""


@frozen
class _FixedNoise(NoiseSource):
    """Every call without a seed is answered so; under one noise is drawn as ever."""

    inner: NoiseSource
    answer: Answer

    def draw(
        self, values: NDArray[Any], law: Law, scale: Fraction, seed: int | None
    ) -> tuple[NDArray[Any], NoiseRecord]:
        if seed is not None:
            return self.inner.draw(values, law, scale, seed)
        at = variance_above(scale) if law == "discrete-gaussian" else scale
        made = np.array(self.answer(values.ravel().tolist(), at, law), dtype=values.dtype)
        return made.reshape(values.shape), NoiseRecord("exact-integer", law, at, None, values.size)


@frozen
class _RecordingNoise(NoiseSource):
    """Draws noise as usual, at ``factor`` times the scale, and reports each call."""

    inner: NoiseSource
    told: Callable[[NDArray[Any], NoiseRecord], object]
    factor: Fraction = Fraction(1)

    def draw(
        self, values: NDArray[Any], law: Law, scale: Fraction, seed: int | None
    ) -> tuple[NDArray[Any], NoiseRecord]:
        factor = self.factor**2 if law == "discrete-gaussian" else self.factor
        noisy, record = self.inner.draw(values, law, scale * factor, seed)
        self.told(noisy - values, record)
        return noisy, record


Other = Callable[[int, list[float], Fraction, Law], list[float]]
"""``other(number, values, scale, law)``: what call ``number``, from 0, returns instead of its values; of Gaussian
noise the scale is the variance."""


@contextmanager
def recorded(other: Other | None = None) -> Iterator[list[Query]]:
    """Record in this block what :mod:`privopt.numbers.noise` should have added noise to, and add none.

    Only for trials: whatever is released inside is not private.

    Args:
        other: what is answered instead of the values, for mechanisms may act on what comes out.
    """
    calls: list[Query] = []

    def keep(values: list[Any], scale: Fraction, law: Law) -> list[Any]:
        number = len(calls)
        name = f"noise call {number + 1} ({len(values)} values)"
        calls.append(Query(name=name, values=values, scale=scale, law=_LAWS[law]))
        return values if other is None else other(number, values, scale, law)

    with noise_from(lambda inner: _FixedNoise(inner, keep)):
        yield calls


def farther(call: int, signs: tuple[int, int], *, scales: int, more: int, answers: list[list[float]]) -> Other:
    """Return answers for :func:`recorded`: the values themselves, except for one call, which is answered far off.

    Args:
        call: which one, from 0.
        signs: +1 or -1, of every other value from the first, and of the rest.
        scales: by how many scales of its noise.
        more: by how much in addition, and twice the greatest value too where it is not 0.
        answers: where what each call was answered is put, for :func:`alike`.
    """

    def other(number: int, values: list[float], scale: Fraction, law: Law) -> list[float]:
        answers.append(values)
        if number != call:
            return values
        wide = math.sqrt(scale) if law == "discrete-gaussian" else float(scale)
        beside = more + 2 * max(map(abs, values), default=0) if more else 0
        by = math.ceil(min(scales * wide + beside, FAR))
        answers[-1] = [value + signs[place % 2] * by for place, value in enumerate(values)]
        return answers[-1]

    return other


def alike(answers: Sequence[list[float]]) -> Other:
    """Return the answers that another run got, cut to as many as this one asks for: to be given to :func:`recorded`."""

    def other(number: int, values: list[float], scale: Fraction, law: Law) -> list[float]:
        same = number < len(answers) and len(answers[number]) == len(values)
        return answers[number] if same else values

    return other


@contextmanager
def limited() -> Iterator[None]:
    """Limit calls of :mod:`privopt.numbers.noise` in this block, one solve, to :data:`MAX_CALLS`.

    Raises:
        AgainError: it is called once more, as by a mechanism that draws again until it likes what comes.
    """
    count = 0

    def counted(noise: NDArray[Any], record: NoiseRecord) -> None:
        nonlocal count
        count += 1
        if count > MAX_CALLS:
            raise AgainError(f"noise is drawn again and again until some value comes: {MAX_CALLS} times in one solve")

    with noise_from(lambda inner: _RecordingNoise(inner, counted)):
        yield


@contextmanager
def rescaled(factor: Fraction) -> Iterator[list[Fraction]]:
    """Draw in this block at ``factor`` times the scale that :mod:`privopt.numbers.noise` is asked for; record that.

    Of Gaussian noise the scale is the standard deviation.

    Yields:
        The scales drawn at, call by call; of Gaussian noise the variances.
    """
    scales: list[Fraction] = []
    with noise_from(lambda inner: _RecordingNoise(inner, lambda noise, record: scales.append(record.scale), factor)):
        yield scales


@contextmanager
def noted() -> Iterator[list[list[float]]]:
    """Note the noise that :mod:`privopt.numbers.noise` draws in this block, without a change to it.

    Yields:
        What each call added to its values.
    """
    calls: list[list[float]] = []
    with noise_from(lambda inner: _RecordingNoise(inner, lambda noise, record: calls.append(noise.ravel().tolist()))):
        yield calls


@contextmanager
def answered(*, tied: bool = False) -> Iterator[list[list[float]]]:
    """Make :mod:`privopt.numbers.noise` return the same numbers in this block whatever the noise is added to.

    The numbers follow from how many values each call has, and from how many calls with as many came before it. What
    a mechanism publishes inside is the same for two inputs, unless more than the noisy values depends on them.

    Args:
        tied: one number for all, in whatever order the values came.

    Yields:
        What each call was to add noise to.
    """
    before: dict[int, int] = {}
    calls: list[list[float]] = []

    def same(values: list[Any], scale: Fraction, law: Law) -> list[Any]:
        calls.append(list(values))
        call = before[len(values)] = before.get(len(values), 0) + 1
        numbers = np.random.default_rng([len(values), call]).integers(0, 9, len(values))
        return [5] * len(values) if tied else list(numbers.tolist())

    with noise_from(lambda inner: _FixedNoise(inner, same)):
        yield calls
