"""The pairs of inputs compared by the judge, drawn from lists, Hypothesis strategies or functions.

The same seed gives the same pairs.
"""

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
"""A sequence of inputs, a strategy for inputs, or a function that takes a NumPy generator and returns an input."""
MOST_PAIRS: Final = 2_000
"""The maximum number of pairs listed at a time."""
INPUTS_AT_ONCE: Final = 48
"""The number of inputs drawn at a time from a strategy or function."""
MAX_NEIGHBOURS: Final = 50
"""The maximum number of neighbours compared with each input."""


def _is_strategy(value: object) -> bool:
    """Return whether a value is a Hypothesis strategy."""
    return isinstance(value, SearchStrategy)


def _draw_examples(strategy: Any, count: int, seed: int) -> list[Any]:
    """Draw up to ``count`` examples from a Hypothesis strategy. The same seed gives the same examples."""
    examples: list[Any] = []

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
        # This is a test that never fails, which Hypothesis calls for each example.
        examples.append(example)

    collect()
    return examples


def _make_inputs(inputs: Inputs, count: int, chance: np.random.Generator, parameter_name: str) -> list[Any]:
    """Return a list of inputs: all elements of a list, or up to ``count`` draws from a strategy or a function.

    Args:
        inputs: A list of inputs, a Hypothesis strategy for inputs, or a function that takes a NumPy generator and
            returns an input.
        count: The largest number of draws.
        chance: The source of random choices.
        parameter_name: The name of the user's argument, for the error message.

    Raises:
        UsageError: ``inputs`` has none of these types.
    """
    if _is_strategy(inputs):
        return _draw_examples(inputs, count, int(chance.integers(2**31)))
    if callable(inputs):
        return [inputs(chance) for _ in range(count)]
    if isinstance(inputs, Iterable) and not isinstance(inputs, str | bytes):
        return list(inputs)
    raise UsageError(
        f"{parameter_name} must be a list, a Hypothesis strategy or a function of a generator, got {inputs!r}"
    )


def pairs_of(
    inputs: Inputs,
    neighbours: Callable[[Any], Any] | None,
    odds: Callable[[Any, Any], float],
    chance: np.random.Generator,
) -> Iterator[tuple[Any, Any, float]]:
    """Yield triples (a, b, limit): two inputs, and the log odds that the claim allows between them per unit of epsilon.

    The limit is the distance between the inputs, or 1 if the privacy notion does not depend on distances.

    Args:
        inputs: A list of inputs, a Hypothesis strategy for inputs, or a function that takes a NumPy generator and
            returns an input. With a strategy or function, the iteration never ends.
        neighbours: A function that returns an input's neighbours under the claim, or a strategy for neighbours. If
            None, any two inputs form a pair.
        odds: A function that takes two inputs and returns the log odds that the claim allows between them per unit of
            epsilon. Its result must be finite and non-negative.
        chance: The source of random choices.

    Raises:
        UsageError: The allowed log odds are negative or not finite, or ``inputs`` has none of the types above.
    """
    while True:
        batch = _make_inputs(inputs, INPUTS_AT_ONCE, chance, "inputs")
        pairs = list(
            islice(
                _list_pairs(batch, chance) if neighbours is None else _neighbour_pairs(batch, neighbours), MOST_PAIRS
            )
        )
        # Shuffle the pairs, so that a search that stops early has seen pairs from all parts of the list.
        for pair_number in chance.permutation(len(pairs)).tolist():
            a, b = pairs[pair_number]
            limit = odds(a, b)
            if not limit >= 0 or not math.isfinite(limit):
                raise UsageError(
                    f"the odds that the claim allows must be finite, got {limit!r} between {a!r} and {b!r}"
                )
            yield a, b, limit
        # A list is exhausted after one batch, but strategies and functions are not.
        if not pairs or not (_is_strategy(inputs) or callable(inputs)):
            return


def _list_pairs(inputs: Sequence[Any], chance: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """Yield all pairs of inputs at different positions, in random order if there are more than :data:`MOST_PAIRS`.

    If there are more than ``50 * MOST_PAIRS`` pairs, only the first ``50 * MOST_PAIRS`` of them are considered.
    """
    # Limit the number of pairs before shuffling, because a million inputs have too many pairs to list.
    index_pairs = list(islice(combinations(range(len(inputs)), 2), 50 * MOST_PAIRS))
    order = chance.permutation(len(index_pairs)).tolist() if len(index_pairs) > MOST_PAIRS else range(len(index_pairs))
    yield from ((inputs[index_pairs[number][0]], inputs[index_pairs[number][1]]) for number in order)


def _neighbour_pairs(inputs: Sequence[Any], neighbours: Callable[[Any], Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each input with each of its neighbours.

    For each input, at most :data:`MAX_NEIGHBOURS` neighbours are taken from a list, or at most five are drawn from a
    strategy.
    """
    for number, a in enumerate(inputs):
        neighbour_source = neighbours(a)
        neighbour_inputs = (
            _draw_examples(neighbour_source, 5, number)
            if _is_strategy(neighbour_source)
            else list(islice(neighbour_source, MAX_NEIGHBOURS))
        )
        yield from ((a, b) for b in neighbour_inputs)
