"""Grids of parameters of which the suite tries a part."""

from itertools import product
from typing import Any

import pytest


def by_pairs(names: str, *axes: Any) -> pytest.MarkDecorator:
    """Parametrize over a grid: in the suite each value of each axis is tried once or more, in ``make slow`` all are."""
    axes = tuple(list(axis) for axis in axes)
    tried_rows = {tuple(turn % len(axis) for axis in axes) for turn in range(max(map(len, axes)))}
    rows = [
        pytest.param(
            *(axis[index] for axis, index in zip(axes, row, strict=True)), marks=[pytest.mark.slow][row in tried_rows :]
        )
        for row in product(*map(range, map(len, axes)))
    ]
    return pytest.mark.parametrize(tuple(names.split(", ")), rows)


def often(names: str, values: Any, tried_values: Any) -> pytest.MarkDecorator:
    """Parametrize over values of which the suite tries those in ``tried``, and ``make slow`` all."""
    return pytest.mark.parametrize(
        names, [value if value in tried_values else pytest.param(value, marks=pytest.mark.slow) for value in values]
    )


def first_alone(names: str, values: Any) -> pytest.MarkDecorator:
    """Parametrize over values of which the suite tries the first, and ``make slow`` all."""
    values = list(values)
    return often(names, values, values[:1])
