"""Forged trees of proof.npz, and forged roundings of a loss: what is changed in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["forged_trees", "forged_units"]

Arrays = dict[str, Any]


def _hung(k: int, *on: tuple[int, int]) -> Callable[[Arrays], object]:
    """Return records hung on others, in the trees of one output."""

    def change(arrays: Arrays) -> None:
        n = arrays["trees"].shape[1]
        for i, p in on:
            arrays["trees"][k, i] = 2 * ((p - i) % n)

    return change


def forged_trees(arrays: Arrays) -> Iterator[tuple[str, Callable[[Arrays], object], bool]]:
    """Yield changes, with their names, and whether the bound is raised to the value too."""
    trees = arrays["trees"]
    outputs, records = trees.shape
    for factor in (1 - 1e-9, 1 + 1e-9, 0.5, 0.9, 1.1, 100.0, -1.0, np.nan, np.inf):
        yield f"prices times {factor}", lambda a, x=factor: a.update(prices=a["prices"] * x), False
        yield f"prices times {factor}, the bound raised", lambda a, x=factor: a.update(prices=a["prices"] * x), True
    for i in np.flatnonzero(arrays["prices"] > 0)[:4].tolist():
        yield f"price {i} lower", lambda a, i=i: a["prices"].__setitem__(i, a["prices"][i] * (1 - 1e-6)), False
        yield f"price {i} higher", lambda a, i=i: a["prices"].__setitem__(i, a["prices"][i] * (1 + 1e-6)), False
    yield "a price that is none", lambda a: a["prices"].__setitem__(0, np.nan), False
    yield "prices less", lambda a: a.update(prices=a["prices"][1:]), False
    yield "prices more", lambda a: a.update(prices=np.append(a["prices"], 0.0)), False
    yield "whole prices", lambda a: a.update(prices=np.ones(records, dtype=np.int64)), False
    for k in (0, outputs - 1):
        yield f"two that hang on one another at {k}", _hung(k, (0, 1), (1, 0)), False
        yield f"all in a circle at {k}", _hung(k, *((i, (i + 1) % records) for i in range(records))), False
        yield f"three in a circle at {k}, the bound raised", _hung(k, (0, 1), (1, 2), (2, 0)), True
    yield "no trees", lambda a: a.update(trees=a["trees"] * 0), False
    changes: dict[str, Callable[[Arrays], object]] = {
        "no trees": lambda a: a.update(trees=a["trees"] * 0),
        "trees of other outputs": lambda a: a.update(trees=np.roll(a["trees"], 1, axis=0)),
        "outputs turned over": lambda a: a.update(trees=a["trees"][::-1].copy()),
        "records turned over": lambda a: a.update(trees=a["trees"][:, ::-1].copy()),
        "every record on the other side": lambda a: a.update(trees=np.where(a["trees"] > 0, a["trees"] ^ 1, 0)),
        "steps all the way round": lambda a: a["trees"].__setitem__((0, 0), 2 * records + 2),
        "a record above itself": lambda a: a["trees"].__setitem__((0, 0), 1),
    }
    for name, change in changes.items():
        yield f"{name}, the bound raised", change, True
    for i in range(records):
        yield f"record {i} on its own, the bound raised", lambda a, i=i: a["trees"][:, i].fill(0), True
    yield "an output less", lambda a: a.update(trees=a["trees"][1:]), False
    yield "records and outputs exchanged", lambda a: a.update(trees=a["trees"].T[:-1].copy()), False
    yield "signed trees", lambda a: a.update(trees=a["trees"].astype(np.int32)), False
    yield "trees of bytes", lambda a: a.update(trees=a["trees"].astype(np.uint8)), False
    yield "rows beside trees", lambda a: a.update(rows=np.zeros(0, np.uint32)), False


def forged_units(result: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield changes of a loss's rounding, and the text of result.json for each."""
    value, unit = result["objective"]["value"], result["details"]["value_unit"]

    def state_value(value: Any, unit: Any) -> dict[str, Any]:
        objective = dict(result["objective"], value=value)
        if type(value) is float and objective["gap"] is not None:
            objective["gap"] = max(0.0, (value - objective["lower_bound"]) / max(abs(value), 1e-12))
        return dict(result, objective=objective, details=dict(result["details"], value_unit=unit))

    for other_unit in (
        unit * 1.1,
        unit * 2,
        value * 2.0**-49,
        value * 2.0**-29 + 1e-9,
        1e6,
        0.0,
        -unit,
        "1e-13",
        [],
        {},
    ):
        yield f"details.value_unit = {other_unit!r}", state_value(value, other_unit)
    for direction in (-np.inf, np.inf):
        yield f"objective.value one bit towards {direction}", state_value(float(np.nextafter(value, direction)), unit)
    for steps in (-1, 1):
        yield f"objective.value {steps} units more", state_value(value + steps * unit, unit)
