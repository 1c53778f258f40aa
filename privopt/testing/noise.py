"""Standing in for :mod:`privopt.noise` during trials: its calls recorded, left without noise, or answered alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from fractions import Fraction
from functools import cache
from typing import Any, Literal
from unittest.mock import patch

import numpy as np

import privopt.noise
from privopt.arrays import Ints
from privopt.exact.gaussian import variance_above
from privopt.testing.profile import Query

__all__ = ["answered", "recorded", "rescaled", "same_measurements"]

Answer = Callable[[list[Any], Fraction, str], list[Any]]
"""``answer(values, scale, kind)``: what a call of the noise returns; kind is ``"i64"``, ``"f64"`` or ``"gaussian"``
(integers, the scale being the variance)."""


def _replaced(answer: Answer) -> AbstractContextManager[Any]:
    """A block in which every call of the noise without a seed is answered so."""

    def measurement(scale_reciprocal: Fraction, kind: str) -> tuple[Any, Fraction, float]:
        scale = 1 / scale_reciprocal
        return lambda values: answer(values, scale, kind), scale, float(scale_reciprocal)

    real = privopt.noise._gaussian

    def gaussian(values: Ints, variance: Fraction, seed: int | None) -> tuple[Ints, Fraction]:
        if seed is not None:
            return real(values, variance, seed)
        drawn = variance_above(variance)
        answered = answer(values.ravel().tolist(), drawn, "gaussian")
        return np.array(answered, dtype=np.int64).reshape(values.shape), drawn

    return patch.multiple(privopt.noise, _opendp=measurement, _gaussian=gaussian, OPENDP_DRAWS=1 << 62)


@contextmanager
def recorded() -> Iterator[list[Query]]:
    """A block in which :mod:`privopt.noise` adds no noise and notes what it should have been added to.

    Only for trials: whatever is released inside is not private.
    """
    calls: list[Query] = []

    def keep(values: list[Any], scale: Fraction, kind: str) -> list[Any]:
        name = f"noise call {len(calls) + 1} ({len(values)} values)"
        law: Literal["laplace", "gaussian"] = "gaussian" if kind == "gaussian" else "laplace"
        calls.append(Query(name=name, values=values, scale=scale, law=law))
        return values

    with _replaced(keep):
        yield calls


@contextmanager
def rescaled(factor: Fraction) -> Iterator[list[Fraction]]:
    """A block in which :mod:`privopt.noise` draws at ``factor`` times the scale asked for, and says so in its records.

    Of Gaussian noise the scale is the standard deviation.

    Yields:
        The scales drawn at, call by call; of Gaussian noise the variances.
    """
    scales: list[Fraction] = []
    real, real_gaussian = privopt.noise._opendp, privopt.noise._gaussian

    def measurement(scale_reciprocal: Fraction, kind: str) -> tuple[Any, Fraction, float]:
        drawn, scale, _ = real(scale_reciprocal / factor, kind)
        scales.append(scale)
        return drawn, scale, float(1 / scale)

    def gaussian(values: Ints, variance: Fraction, seed: int | None) -> tuple[Ints, Fraction]:
        noisy, drawn = real_gaussian(values, variance * factor**2, seed)
        scales.append(drawn)
        return noisy, drawn

    with patch.multiple(privopt.noise, _opendp=measurement, _gaussian=gaussian, OPENDP_DRAWS=1 << 62):
        yield scales


@contextmanager
def answered(*, tied: bool = False) -> Iterator[list[list[float]]]:
    """A block in which the calls of :mod:`privopt.noise` return the same numbers whatever noise was to be added to.

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
    with patch.object(privopt.noise, "_opendp", cache(privopt.noise._opendp)):
        yield
