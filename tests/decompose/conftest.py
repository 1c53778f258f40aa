"""Random models of blocks and complicating columns, and a chain with a known optimum."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from privopt.dsl.form import StandardForm

Model = tuple[StandardForm, list[Any]]


def block_model(seed: int) -> Model:
    """Return a model of 1 to 4 complicating columns and 1 to 3 blocks; a third of them may be infeasible."""
    rng = np.random.default_rng(seed)
    kind = ("any", "bounded", "clashing")[seed % 3]
    outer, sizes = int(rng.integers(1, 5)), rng.integers(1, 5, size=rng.integers(1, 4))
    n = outer + int(sizes.sum())
    rows, blocks, start = [], [], outer
    for size in sizes.tolist():
        columns = np.arange(start, start + size)
        blocks.append(columns)
        start += size
        for _ in range(rng.integers(1, 5)):
            row = np.zeros(n)
            row[:outer] = rng.integers(-3, 4, outer) * (rng.random(outer) < 0.6)
            row[columns] = rng.integers(-3, 4, size)
            rows.append(row)
    for _ in range(rng.integers(0, 3)):
        row = np.zeros(n)
        row[:outer] = rng.integers(-3, 4, outer)
        rows.append(row)
    matrix, m = np.array(rows), len(rows)
    activity = matrix @ rng.integers(0, 4, n)
    lower = np.where(rng.random(m) < 0.6, activity - rng.integers(0, 3, m), -np.inf)
    upper = np.where(rng.random(m) < 0.6, activity + rng.integers(0, 3, m), np.inf)
    if kind == "clashing":
        upper = upper - rng.integers(0, 6, m)
        lower = np.minimum(lower, upper)
    order = rng.permutation(n)
    position = np.argsort(order)
    upper_bounds = np.where(rng.random(n) < (0.5 if kind == "any" else 0.9), 5.0 + rng.integers(0, 5, n), np.inf)
    form = StandardForm(
        c=rng.integers(-3, 6, n)[order],
        c0=float(rng.integers(-2, 3)),
        sense="min" if rng.random() < 0.5 else "max",
        A=matrix[:, order],
        row_lower=lower,
        row_upper=upper,
        col_lower=np.zeros(n),
        col_upper=upper_bounds[order],
        integrality=np.zeros(n),
    )
    return form, [position[block] for block in blocks]


def chain(blocks: int, size: int, seed: int = 0) -> Model:
    """Blocks around one set of shared columns, feasible and bounded, that take Benders a good number of rounds."""
    rng = np.random.default_rng(seed)
    shared_count = 12
    n = shared_count + blocks * size
    rows, lower, columns = [], [], []
    for b in range(blocks):
        block_columns = np.arange(shared_count + b * size, shared_count + (b + 1) * size)
        columns.append(block_columns)
        for _ in range(2 * size):
            row = np.zeros(n)
            row[:shared_count] = rng.uniform(0, 1, shared_count)
            row[block_columns] = rng.uniform(0, 1, size) * (rng.random(size) < 0.5)
            rows.append(row)
            lower.append(float(rng.uniform(1, 3)))
    form = StandardForm(
        c=rng.uniform(0.5, 2.0, n),
        A=np.array(rows),
        row_lower=lower,
        row_upper=np.full(len(rows), np.inf),
        col_lower=np.zeros(n),
        col_upper=np.full(n, 5.0),
        integrality=np.zeros(n),
    )
    return form, columns


@pytest.fixture(scope="session")
def random_block_model() -> Callable[[int], Model]:
    return block_model


@pytest.fixture(scope="session")
def shared_model() -> Model:
    return chain(3, 8)
