"""Errors to expect against real ones, 30 releases each: a synthetic census, and flights from New York (public)."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from attrs import evolve

from hierarchical_dp_paper.generate import Census, census
from hierarchical_dp_paper.trials import task_of
from privopt.declare import File
from privopt_hierarchical_dp.counts import read_counts
from privopt_hierarchical_dp.expected import expected_errors
from privopt_hierarchical_dp.fitting import fit
from privopt_hierarchical_dp.methods import level_budgets, sensitivity
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, Privacy
from privopt_hierarchical_dp.release import HierarchyRelease

FLIGHTS = Path(__file__).parent / "data" / "flights.parquet"
METHODS = ("cumulative-smoothed", "cumulative-dp", "hierarchical-dp", "top-down")
EPSILONS = ("0.1", "0.5", "1")


def ratios(data: Census, method: str, epsilon: str, runs: int) -> np.ndarray:
    """Expected over real L1 errors by level, means of so many releases, a trial each."""
    size = data.leaves.shape[1]
    problem = HierarchyProblem(
        hierarchy=HierarchyTable(counts=File(name="c.csv", path=None), sizes=size),
        privacy=Privacy(epsilon=Fraction(epsilon)),
    )
    budgets = level_budgets(Fraction(epsilon), method, data.tree.depth, None)
    real, expected = [], []
    for run in range(runs):
        task = task_of(method, data, data.levels, Fraction(epsilon), shares=budgets, seed=1000 + run)
        found = fit(evolve(task, gap=1e-3))[0].counts
        real.append([np.abs(a - b).sum() for a, b in zip(found, data.levels, strict=True)])
        tops = [level.sum(axis=1) for level in data.levels]
        release = HierarchyRelease(
            tree=data.tree,
            counts=found,
            noisy=task.noisy,
            totals=tops if task.totals is not None else tops[:1],
            scales=tuple(sensitivity(method, 1) / budget for budget in budgets),
        )
        expected.append(expected_errors(release, problem, method, 1, seed=7000 + run).errors[0])
    ratio: np.ndarray = np.mean(expected, axis=0) / np.mean(real, axis=0)
    print(method, epsilon, ratio.round(3), np.mean(real, axis=0).round())
    return ratio


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_on_a_synthetic_census(method, epsilon):
    found = ratios(census(sizes=60), method, epsilon, 30)
    assert ((found > 0.9) & (found < 1.1)).all()


@pytest.mark.slow
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_on_flights(method, epsilon):
    groups = read_counts(FLIGHTS, 60)
    found = ratios(Census(tree=groups.tree, leaves=groups.leaves), method, epsilon, 30)
    assert ((found > 0.9) & (found < 1.1)).all()


def test_on_a_few_flights():
    groups = read_counts(FLIGHTS, 60)
    data = Census(tree=groups.tree, leaves=groups.leaves)
    for method in ("cumulative-dp", "hierarchical-dp"):
        found = ratios(data, method, "0.5", 4)
        assert ((found > 0.8) & (found < 1.25)).all()
