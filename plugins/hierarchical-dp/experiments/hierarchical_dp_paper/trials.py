"""One trial of a method on known data: noise, fit, errors by level. What the experiments are made of."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from time import perf_counter
from typing import Any

import numpy as np
from attrs import frozen

from hierarchical_dp_paper.generate import Census
from privopt_hierarchical_dp.fitting import Task, fit, noise_variance, objective_weights
from privopt_hierarchical_dp.mechanism import draw
from privopt_hierarchical_dp.methods import METHODS, level_budgets, sensitivity
from privopt_hierarchical_dp.release import violations
from privopt_hierarchical_dp.tree import Ints

__all__ = ["PAPER_TABLE_7", "Trial", "run_methods", "task_of"]

#: Table 7 of the paper: L1 errors by level (Census x 1000, Taxi x 10^4) and constraint violations.
PAPER_TABLE_7: dict[tuple[str, float, str], tuple[float, float, float, int]] = {
    ("taxi", 0.1, "hierarchical-relaxed"): (25.4, 158.7, 904.4, 18206),
    ("taxi", 0.1, "hierarchical-dp"): (26.6, 121.9, 915.7, 0),
    ("taxi", 0.1, "cumulative-relaxed"): (47.9, 153.2, 551.6, 19460),
    ("taxi", 0.1, "cumulative-dp"): (19.9, 65.6, 644.3, 0),
    ("taxi", 0.1, "cumulative-chain-as-published"): (5.5, 39.3, 537.8, 0),
    ("taxi", 0.1, "top-down"): (26.6, 93.0, 809.1, 0),
    ("taxi", 0.5, "hierarchical-relaxed"): (8.6, 81.2, 364.2, 18591),
    ("taxi", 0.5, "hierarchical-dp"): (5.5, 31.0, 408.9, 0),
    ("taxi", 0.5, "cumulative-relaxed"): (46.7, 153.5, 450.7, 19531),
    ("taxi", 0.5, "cumulative-dp"): (4.0, 16.4, 352.9, 0),
    ("taxi", 0.5, "cumulative-chain-as-published"): (1.2, 9.5, 150.6, 0),
    ("taxi", 0.5, "top-down"): (5.3, 20.3, 242.1, 0),
    ("taxi", 1.0, "hierarchical-relaxed"): (7.7, 77.2, 279.0, 18085),
    ("taxi", 1.0, "hierarchical-dp"): (3.1, 19.8, 328.5, 0),
    ("taxi", 1.0, "cumulative-relaxed"): (47.1, 154.2, 447.1, 19706),
    ("taxi", 1.0, "cumulative-dp"): (2.0, 8.7, 307.8, 0),
    ("taxi", 1.0, "cumulative-chain-as-published"): (0.5, 4.5, 78.6, 0),
    ("taxi", 1.0, "top-down"): (2.6, 10.3, 138.4, 0),
    ("census", 0.1, "hierarchical-relaxed"): (40.3, 54.3, 802.1, 1966),
    ("census", 0.1, "hierarchical-dp"): (10.3, 38.4, 825.4, 0),
    ("census", 0.1, "cumulative-relaxed"): (23.1, 64.5, 632.2, 1715),
    ("census", 0.1, "cumulative-dp"): (0.9, 23.2, 550.6, 0),
    ("census", 0.1, "cumulative-chain-as-published"): (0.2, 13.9, 603.0, 0),
    ("census", 0.1, "top-down"): (3.7, 35.0, 820.5, 0),
    ("census", 0.5, "hierarchical-relaxed"): (39.4, 37.9, 216.3, 1990),
    ("census", 0.5, "hierarchical-dp"): (2.4, 9.4, 230.8, 0),
    ("census", 0.5, "cumulative-relaxed"): (23.1, 61.0, 494.2, 1718),
    ("census", 0.5, "cumulative-dp"): (0.2, 5.8, 159.1, 0),
    ("census", 0.5, "cumulative-chain-as-published"): (0.0, 3.4, 165.3, 0),
    ("census", 0.5, "top-down"): (0.9, 8.6, 228.4, 0),
    ("census", 1.0, "hierarchical-relaxed"): (40.7, 39.2, 130.0, 1989),
    ("census", 1.0, "hierarchical-dp"): (1.2, 5.1, 128.8, 0),
    ("census", 1.0, "cumulative-relaxed"): (24.1, 63.0, 494.5, 1728),
    ("census", 1.0, "cumulative-dp"): (0.1, 3.2, 91.0, 0),
    ("census", 1.0, "cumulative-chain-as-published"): (0.0, 1.7, 86.9, 0),
    ("census", 1.0, "top-down"): (0.5, 4.6, 127.2, 0),
}


@frozen(kw_only=True, eq=False)
class Trial:
    """One run of one method.

    Attributes:
        method: its name.
        errors: for each level the L1 distance of the released counts from the true ones.
        broken: subtrees that violate consistency (#CV).
        seconds: of the post-processing alone.
    """

    method: str
    errors: tuple[int, ...]
    broken: int
    seconds: float


def task_of(
    method: str,
    data: Census,
    levels: Sequence[Ints],
    epsilon: Fraction,
    *,
    shares: Sequence[Fraction] | None,
    seed: int,
) -> Task:
    """Noise under a seed (experiments are not releases), and what the method is given after it."""
    return _task(method, data, levels, epsilon, shares, seed, {})


def _task(
    method: str,
    data: Census,
    levels: Sequence[Ints],
    epsilon: Fraction,
    shares: Sequence[Fraction] | None,
    seed: int,
    kept: dict[Any, list[Ints]],
) -> Task:
    rule = METHODS[method]
    budgets = level_budgets(epsilon, method, data.tree.depth, shares)
    totals = rule.totals == "always"
    key = (rule.query, budgets, totals)
    if key not in kept:  # methods that measure the same are given the same noise
        kept[key] = draw(method, levels, budgets, totals=totals, most=1, seed=seed)[0]
    tops = [level.sum(axis=1) for level in levels]
    delta = sensitivity(method, 1)
    return Task(
        method=method,
        tree=data.tree,
        noisy=kept[key],
        total=int(tops[0][0]),
        totals=tops if totals else None,
        weights=objective_weights(None, data.tree.depth),
        variances=tuple(noise_variance(budget, delta) for budget in budgets),
        gap=1e-3,
    )


def run_methods(
    methods: Sequence[str],
    data: Census,
    levels: Sequence[Ints],
    epsilon: Fraction,
    *,
    shares: Sequence[Fraction] | None = None,
    seed: int,
) -> list[Trial]:
    """One run of each method; those that measure the same share their noise."""
    kept: dict[Any, list[Ints]] = {}
    trials = []
    for method in methods:
        task = _task(method, data, levels, epsilon, shares, seed, kept)
        start = perf_counter()
        found, _ = fit(task)
        seconds = perf_counter() - start
        errors = tuple(int(np.abs(a - b).sum()) for a, b in zip(found.counts, levels, strict=True))
        broken = violations(data.tree, found.counts)
        trials.append(Trial(method=method, errors=errors, broken=broken, seconds=seconds))
    return trials
