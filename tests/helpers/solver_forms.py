"""Models that several tests of backends share: one solved at once, one that takes minutes."""

from __future__ import annotations

from typing import Any

import numpy as np

from privopt.dsl.form import FamilyBlock, StandardForm, VariableBlock
from privopt.dsl.sets import IndexSet as Set


def tiny(**changes: object) -> StandardForm:
    fields: dict[str, Any] = {
        "c": [1, 1],
        "A": [[1, 2]],
        "row_lower": [2],
        "row_upper": [np.inf],
        "col_lower": [0, 0],
        "col_upper": [9, 9],
        "integrality": [0, 0],
        "families": (FamilyBlock(name="row", start=0, stop=1),),
        "variables": (VariableBlock(name="x", start=0, sets=(Set("X", ["a", "b"]),)),),
    }
    return StandardForm(**(fields | changes))


def hard_form() -> StandardForm:
    """Return a market-split problem: minutes for any solver."""
    rng = np.random.default_rng(5)
    a = rng.integers(0, 100, (5, 40)).astype(float)
    slack = np.kron(np.eye(5), [1.0, -1.0])
    right_sides = np.floor(a.sum(axis=1) / 2)
    return StandardForm(
        c=np.r_[np.zeros(40), np.ones(10)],
        A=np.c_[a, slack],
        row_lower=right_sides,
        row_upper=right_sides,
        col_lower=np.zeros(50),
        col_upper=np.r_[np.ones(40), np.full(10, np.inf)],
        integrality=np.r_[np.ones(40), np.zeros(10)],
    )
