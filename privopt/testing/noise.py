"""Watching what noise is added to: the calls of :mod:`privopt.noise`, recorded, and answered without noise."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from functools import cache
from typing import Any
from unittest.mock import patch

import privopt.noise
from privopt.testing.profile import Query

__all__ = ["recorded", "same_measurements"]


@contextmanager
def recorded() -> Iterator[list[Query]]:
    """A block in which :mod:`privopt.noise` adds no noise and notes what it should have been added to.

    Only for trials: whatever is released inside is not private.
    """
    calls: list[Query] = []

    def measurement(scale_reciprocal: Fraction, kind: str) -> tuple[Any, Fraction, float]:
        def keep(values: list[Any]) -> list[Any]:
            name = f"noise call {len(calls) + 1} ({len(values)} values)"
            calls.append(Query(name=name, values=values, scale=1 / scale_reciprocal))
            return values

        return keep, 1 / scale_reciprocal, float(scale_reciprocal)

    with patch.object(privopt.noise, "_opendp", measurement), patch.object(privopt.noise, "OPENDP_DRAWS", 1 << 62):
        yield calls


@contextmanager
def same_measurements() -> Iterator[None]:
    """A block in which OpenDP's measurement for a scale is made once: drawing many times takes a third of the time."""
    with patch.object(privopt.noise, "_opendp", cache(privopt.noise._opendp)):
        yield
