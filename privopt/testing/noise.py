"""Stand-ins for :mod:`privopt.numbers.noise` in trials: calls recorded, left without noise, or answered alike."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from functools import cache
from typing import Any, Final, Literal, ParamSpec, TypeVar
from unittest.mock import patch

import numpy as np

import privopt.numbers.noise
from privopt.arrays import Ints
from privopt.numbers.gaussian import variance_above
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
    "same_measurements",
]

P = ParamSpec("P")
T = TypeVar("T")

CALLS: Final = 5_000
"""Calls of the noise in one solve of the kit's small problems; more of them have no end."""

FAR: Final = 1 << 61
"""What a call is answered farther off by at most, so that sums stay within 64 bits."""


class AgainError(Exception):
    """One solve called the noise more often than :data:`CALLS`."""


Answer = Callable[[list[Any], Fraction, str], list[Any]]
"""``answer(values, scale, kind)``: what a call of the noise returns; kind is ``"i64"``, ``"f64"`` or ``"gaussian"``
(integers, the scale being the variance)."""


def _replaced(answer: Answer) -> AbstractContextManager[Any]:
    """A block in which every call of the noise without a seed is answered so."""

    def measurement(scale_reciprocal: Fraction, kind: str) -> tuple[Any, Fraction, float]:
        scale = 1 / scale_reciprocal
        return lambda values: answer(values, scale, kind), scale, float(scale_reciprocal)

    real = privopt.numbers.noise._gaussian

    def gaussian(values: Ints, variance: Fraction, seed: int | None) -> tuple[Ints, Fraction]:
        if seed is not None:
            return real(values, variance, seed)
        drawn = variance_above(variance)
        answered = answer(values.ravel().tolist(), drawn, "gaussian")
        return np.array(answered, dtype=np.int64).reshape(values.shape), drawn

    return patch.multiple(privopt.numbers.noise, _opendp=measurement, _gaussian=gaussian, OPENDP_DRAWS=1 << 62)


Other = Callable[[int, list[float], Fraction, str], list[float]]
"""``other(number, values, scale, kind)``: what call ``number``, from 0, returns instead of its values; of Gaussian
noise the scale is the variance."""


@contextmanager
def recorded(other: Other | None = None) -> Iterator[list[Query]]:
    """A block in which :mod:`privopt.numbers.noise` adds no noise and notes what it should have been added to.

    Only for trials: whatever is released inside is not private.

    Args:
        other: what is answered instead of the values, for mechanisms may act on what comes out.
    """
    calls: list[Query] = []

    def keep(values: list[Any], scale: Fraction, kind: str) -> list[Any]:
        number = len(calls)
        name = f"noise call {number + 1} ({len(values)} values)"
        law: Literal["laplace", "gaussian"] = "gaussian" if kind == "gaussian" else "laplace"
        calls.append(Query(name=name, values=values, scale=scale, law=law))
        return values if other is None else other(number, values, scale, kind)

    with _replaced(keep):
        yield calls


def farther(call: int, signs: tuple[int, int], *, scales: int, more: int, answers: list[list[float]]) -> Other:
    """Answers that are the values but for one call, which is answered far off: to be given to :func:`recorded`.

    Args:
        call: which one, from 0.
        signs: +1 or -1, of every other value from the first, and of the rest.
        scales: by how many scales of its noise.
        more: by how much beside, and twice the greatest value too where it is not 0.
        answers: where what each call was answered is put, for :func:`alike`.
    """

    def other(number: int, values: list[float], scale: Fraction, kind: str) -> list[float]:
        answers.append(values)
        if number != call:
            return values
        wide = math.sqrt(scale) if kind == "gaussian" else float(scale)
        beside = more + 2 * max(map(abs, values), default=0) if more else 0
        by = math.ceil(min(scales * wide + beside, FAR))
        answers[-1] = [value + signs[place % 2] * by for place, value in enumerate(values)]
        return answers[-1]

    return other


def alike(answers: Sequence[list[float]]) -> Other:
    """The answers that another run got, as long as this one calls for as many: to be given to :func:`recorded`."""

    def other(number: int, values: list[float], scale: Fraction, kind: str) -> list[float]:
        same = number < len(answers) and len(answers[number]) == len(values)
        return answers[number] if same else values

    return other


@contextmanager
def limited() -> Iterator[None]:
    """A block, one solve, in which :mod:`privopt.numbers.noise` is called :data:`CALLS` times at most.

    Raises:
        AgainError: it is called once more, as by a mechanism that draws again until it likes what comes.
    """
    module, count = privopt.numbers.noise, 0
    held = {name: getattr(module, name) for name in ("_opendp", "_gaussian", "draw_laplace")}

    def counted(real: Callable[P, T]) -> Callable[P, T]:
        def call(*args: P.args, **named: P.kwargs) -> T:
            nonlocal count
            count += 1
            if count > CALLS:
                raise AgainError(
                    f"noise is drawn again and again, depending on what came out: {CALLS} times in one solve"
                )
            return real(*args, **named)

        return call

    for name, real in held.items():  # not by unittest.mock, which takes longer than many a solve
        setattr(module, name, counted(real))
    try:
        yield
    finally:
        for name, real in held.items():
            setattr(module, name, real)


@contextmanager
def rescaled(factor: Fraction) -> Iterator[list[Fraction]]:
    """A block in which :mod:`privopt.numbers.noise` draws at ``factor`` times the scale asked for, and records that.

    Of Gaussian noise the scale is the standard deviation.

    Yields:
        The scales drawn at, call by call; of Gaussian noise the variances.
    """
    scales: list[Fraction] = []
    real, real_gaussian = privopt.numbers.noise._opendp, privopt.numbers.noise._gaussian

    def measurement(scale_reciprocal: Fraction, kind: str) -> tuple[Any, Fraction, float]:
        drawn, scale, _ = real(scale_reciprocal / factor, kind)
        scales.append(scale)
        return drawn, scale, float(1 / scale)

    def gaussian(values: Ints, variance: Fraction, seed: int | None) -> tuple[Ints, Fraction]:
        noisy, drawn = real_gaussian(values, variance * factor**2, seed)
        scales.append(drawn)
        return noisy, drawn

    with patch.multiple(privopt.numbers.noise, _opendp=measurement, _gaussian=gaussian, OPENDP_DRAWS=1 << 62):
        yield scales


@contextmanager
def noted() -> Iterator[list[list[float]]]:
    """A block in which :mod:`privopt.numbers.noise` draws as ever, and the noise itself is noted.

    Yields:
        What each call added to its values.
    """
    calls: list[list[float]] = []
    real, real_gaussian = privopt.numbers.noise._opendp, privopt.numbers.noise._gaussian

    def measurement(scale_reciprocal: Fraction, kind: str) -> tuple[Any, Fraction, float]:
        draw, scale, mapped = real(scale_reciprocal, kind)

        def drawn(values: list[Any]) -> list[Any]:
            noisy: list[Any] = draw(values)
            calls.append([float(after - before) for before, after in zip(values, noisy, strict=True)])
            return noisy

        return drawn, scale, mapped

    def gaussian(values: Ints, variance: Fraction, seed: int | None) -> tuple[Ints, Fraction]:
        noisy, drawn = real_gaussian(values, variance, seed)
        calls.append((noisy - values).ravel().astype(float).tolist())
        return noisy, drawn

    with patch.multiple(privopt.numbers.noise, _opendp=measurement, _gaussian=gaussian, OPENDP_DRAWS=1 << 62):
        yield calls


@contextmanager
def answered(*, tied: bool = False) -> Iterator[list[list[float]]]:
    """A block in which calls of :mod:`privopt.numbers.noise` return the same numbers whatever the noise is added to.

    The numbers follow from how many values each call has, and from how many calls with as many came before it. What
    a mechanism publishes inside is the same for two inputs, unless something beside the noisy values depends on them.

    Args:
        tied: one number for all, in whatever order the values came.

    Yields:
        What each call was to add noise to.
    """
    before: dict[int, int] = {}
    calls: list[list[float]] = []

    def same(values: list[Any], scale: Fraction, kind: str) -> list[Any]:
        calls.append(list(values))
        call = before[len(values)] = before.get(len(values), 0) + 1
        numbers = np.random.default_rng([len(values), call]).integers(0, 9, len(values))
        numbers = np.full(len(values), 5) if tied else numbers
        return [float(n) for n in numbers] if kind == "f64" else [int(n) for n in numbers]

    with _replaced(same):
        yield calls


@contextmanager
def same_measurements() -> Iterator[None]:
    """A block in which OpenDP's measurement for a scale is made once: drawing many times takes a third of the time."""
    with patch.object(privopt.numbers.noise, "_opendp", cache(privopt.numbers.noise._opendp)):
        yield
