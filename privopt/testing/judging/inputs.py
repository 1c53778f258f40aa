"""Pairs of inputs to try: from lists, Hypothesis strategies or functions, the same ones for the same seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any, Final, TypeAlias

import hypothesis
import numpy as np
from hypothesis.strategies import SearchStrategy

from privopt.errors import UsageError

Inputs: TypeAlias = object
"""A sequence of inputs, a Hypothesis strategy of them, or a function of a NumPy generator that makes one."""
MOST_PAIRS: Final = 2_000
"""Pairs that are listed at most; more are sampled."""
INPUTS_AT_ONCE: Final = 48
"""Inputs that a strategy or a function makes at once."""
MAX_NEIGHBOURS: Final = 50
"""Neighbours of one input that are looked at, at most."""


def _strategy(value: object) -> bool:
    return isinstance(value, SearchStrategy)


def _examples(strategy: Any, count: int, seed: int) -> list[Any]:
    """Return the draws of a strategy, the same for the same seed."""
    found: list[Any] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=count,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
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


def pairs_of(
    inputs: Inputs,
    neighbours: Callable[[Any], Any] | None,
    odds: Callable[[Any, Any], float],
    chance: np.random.Generator,
) -> Iterator[tuple[Any, Any, float]]:
    """Yield pairs (a, b, odds): inputs, and by how much the log odds may change per unit of the claim.

    Args:
        inputs: see :data:`Inputs`; of a strategy or a function there is no end.
        neighbours: function of an input -> the inputs that the claim makes alike with it, or a strategy of these; None:
            any two inputs.
        odds: of two inputs, above 0.
        chance: chooses.
    """
    while True:
        some = _some(inputs, INPUTS_AT_ONCE, chance, "inputs")
        found = list(islice(_any_two(some, chance) if neighbours is None else _near(some, neighbours), MOST_PAIRS))
        for place in chance.permutation(len(found)).tolist():
            a, b = found[place]
            limit = odds(a, b)
            if not limit >= 0 or not math.isfinite(limit):
                raise UsageError(
                    f"the odds that the claim allows must be finite, got {limit!r} between {a!r} and {b!r}"
                )
            yield a, b, limit
        if not found or not (_strategy(inputs) or callable(inputs)):
            return


def _any_two(inputs: Sequence[Any], chance: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    every = list(islice(combinations(range(len(inputs)), 2), 50 * MOST_PAIRS))
    order = chance.permutation(len(every)).tolist() if len(every) > MOST_PAIRS else range(len(every))
    yield from ((inputs[every[place][0]], inputs[every[place][1]]) for place in order)


def _near(inputs: Sequence[Any], neighbours: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    for number, a in enumerate(inputs):
        near = neighbours(a)
        found = _examples(near, 5, number) if _strategy(near) else list(islice(near, MAX_NEIGHBOURS))
        yield from ((a, b) for b in found)
