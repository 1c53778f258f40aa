"""Pairs of inputs to try: from lists, Hypothesis strategies or functions, the same ones for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any, Final, TypeAlias

import numpy as np
from attrs import define, field

from privopt.errors import UsageError

Inputs: TypeAlias = object
"""A sequence of inputs, a Hypothesis strategy of them, or a function of a NumPy generator that makes one."""
MOST_PAIRS: Final = 2_000
"""Pairs that are listed at most; more are sampled."""
MAX_NEIGHBOURS: Final = 50
"""Neighbours of one input that are looked at, at most."""


def _strategy(value: object) -> bool:
    from hypothesis.strategies import SearchStrategy

    return isinstance(value, SearchStrategy)


def _examples(strategy: Any, count: int, seed: int) -> list[Any]:
    """Return the draws of a strategy, the same for the same seed."""
    from hypothesis import HealthCheck, Phase, given, settings
    from hypothesis import seed as seeded

    found: list[Any] = []

    @seeded(seed)
    @settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(example: object) -> None:
        found.append(example)

    collect()
    return found


def _some(inputs: Inputs, count: int, chance: np.random.Generator, what: str) -> list[Any]:
    if _strategy(inputs):
        return _examples(inputs, count, int(chance.integers(2**31)))
    if callable(inputs):
        return [inputs(chance) for _ in range(count)]
    if isinstance(inputs, Iterable) and not isinstance(inputs, str | bytes):
        return list(inputs)
    raise UsageError(f"{what} must be a list, a Hypothesis strategy or a function of a generator, got {inputs!r}")


@define(eq=False)
class Pairs:
    """A supply of pairs (a, b, odds): inputs, and by how much the log odds may change per unit of the claim.

    Attributes:
        inputs: see :data:`Inputs`.
        neighbours: function of an input -> the inputs that the claim makes alike with it, or a strategy of these; None:
            any two inputs.
        odds: of two inputs, above 0.
        chance: chooses.
    """

    inputs: Inputs
    neighbours: Callable[[Any], Any] | None
    odds: Callable[[Any, Any], float]
    chance: np.random.Generator
    _listed: list[tuple[Any, Any, float]] = field(factory=list, init=False)

    @property
    def endless(self) -> bool:
        """Whether more inputs can be made."""
        return _strategy(self.inputs) or callable(self.inputs)

    def take(self, count: int) -> list[tuple[Any, Any, float]]:
        """Return up to ``count`` pairs that were not taken before."""
        while len(self._listed) < count:
            before = len(self._listed)
            found = list(islice(self._draw_pairs(count), MOST_PAIRS))
            self._listed += [found[place] for place in self.chance.permutation(len(found)).tolist()]
            if not self.endless:
                self.inputs = []
            if len(self._listed) == before:
                break
        taken, self._listed = self._listed[:count], self._listed[count:]
        return taken

    def _draw_pairs(self, count: int) -> Iterator[tuple[Any, Any, float]]:
        inputs = _some(self.inputs, 2 * count, self.chance, "inputs")
        if self.neighbours is None:
            every = list(islice(combinations(range(len(inputs)), 2), 50 * MOST_PAIRS))
            order = self.chance.permutation(len(every)).tolist() if len(every) > MOST_PAIRS else range(len(every))
            pairs: Iterable[tuple[Any, Any]] = ((inputs[every[p][0]], inputs[every[p][1]]) for p in order)
        else:
            pairs = self._near(inputs)
        for a, b in pairs:
            limit = self.odds(a, b)
            if not limit >= 0 or not math.isfinite(limit):
                raise UsageError(
                    f"the odds that the claim allows must be finite, got {limit!r} between {a!r} and {b!r}"
                )
            yield a, b, limit

    def _near(self, inputs: Sequence[Any]) -> Iterator[tuple[Any, Any]]:
        assert self.neighbours is not None
        for number, a in enumerate(inputs):
            near = self.neighbours(a)
            found = _examples(near, 5, number) if _strategy(near) else list(islice(near, MAX_NEIGHBOURS))
            yield from ((a, b) for b in found)
