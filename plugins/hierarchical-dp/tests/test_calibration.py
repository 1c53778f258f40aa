"""Errors to expect against real ones, 30 releases each: a synthetic census, and flights from New York (public).

Slow but for one; ``-k "census and zcdp"`` and the like choose data, notion or relation, budget and method.
"""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from attrs import evolve

from hierarchical_dp_paper.generate import Census, census
from privopt.declare import File
from privopt_hierarchical_dp.counts import read_counts
from privopt_hierarchical_dp.expected import expected_errors
from privopt_hierarchical_dp.fitting import fit
from privopt_hierarchical_dp.laws import budget_of, law_of
from privopt_hierarchical_dp.methods import draw, level_budgets
from privopt_hierarchical_dp.privacy import with_totals
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, Privacy
from privopt_hierarchical_dp.relations import relation_of
from privopt_hierarchical_dp.release import HierarchyRelease
from privopt_hierarchical_dp.tasks import task_of

FLIGHTS = Path(__file__).parent / "data" / "flights.parquet"
METHODS = ("cumulative-smoothed", "cumulative-dp", "hierarchical-dp", "top-down")
HALF = Fraction(1, 2)
PRIVACIES: Final = {
    **{f"pure-{epsilon}": Privacy(epsilon=Fraction(epsilon)) for epsilon in ("0.1", "0.5", "1")},
    "zcdp-1/8": Privacy(kind="zcdp", rho=Fraction(1, 8)),
    "approx-dp-0.5": Privacy(kind="approx-dp", epsilon=HALF, delta=Fraction(1, 10**6)),
    "individuals-0.5": Privacy(epsilon=HALF, relation="individuals"),
    "groups-0.5": Privacy(epsilon=HALF, relation="groups"),
}

RUNS: Final = {("census", "approx-dp-0.5", "top-down"): 90}
"""Releases where 30 have too large a standard error (1.12 at the root, 1.07 of 90)."""
OUTSIDE: Final = {
    ("flights", "groups-0.5", "cumulative-smoothed"): "noise for 60 sizes: 1.10 / 1.11 / 1.25",
}
"""What README states beside its table: strict, so that it goes once it is mended."""


def cases(data: str) -> list[Any]:
    """Each notion or relation, budget and method."""
    found = []
    for name in PRIVACIES:
        for method in METHODS:
            reason = OUTSIDE.get((data, name, method))
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            runs = RUNS.get((data, name, method), 30)
            found.append(pytest.param(method, PRIVACIES[name], runs, id=f"{name}-{method}", marks=marks))
    return found


def ratios(data: Census, method: str, privacy: Privacy, runs: int) -> np.ndarray:
    """Expected over real L1 errors by level, means of so many releases, a trial each."""
    problem = HierarchyProblem(hierarchy=HierarchyTable(sizes=data.leaves.shape[1]), privacy=privacy)
    law, relation, totals = law_of(privacy), relation_of(problem), with_totals(problem, method)
    budgets = level_budgets(budget_of(privacy), method, data.tree.depth, None)
    exact = [level.sum(axis=1) for level in data.levels[: data.tree.depth if totals else int(relation.exact)]]
    real, expected = [], []
    for run in range(runs):
        noisy, records = draw(
            method, data.levels, budgets, totals=totals, most=1, seed=1000 + run, law=law, relation=relation
        )
        found = fit(evolve(task_of(problem, method, data.tree, noisy, exact), gap=1e-3))[0].counts
        real.append([np.abs(a - b).sum() for a, b in zip(found, data.levels, strict=True)])
        scales = tuple(Fraction(record.scale) for record in records)
        release = HierarchyRelease(tree=data.tree, counts=found, noisy=noisy, totals=exact, scales=scales, law=law)
        expected.append(expected_errors(release, problem, method, 1, seed=7000 + run).errors[0])
    ratio: np.ndarray = np.mean(expected, axis=0) / np.mean(real, axis=0)
    print(method, privacy, ratio.round(3), np.mean(real, axis=0).round())
    return ratio


@pytest.mark.slow
@pytest.mark.parametrize(("method", "privacy", "runs"), cases("census"))
def test_on_a_synthetic_census(method, privacy, runs):
    found = ratios(census(sizes=60), method, privacy, runs)
    assert ((found > 0.9) & (found < 1.1)).all()


@pytest.mark.slow
@pytest.mark.parametrize(("method", "privacy", "runs"), cases("flights"))
def test_on_flights(method, privacy, runs):
    groups = read_counts(File.read(FLIGHTS), 60)
    found = ratios(Census(tree=groups.tree, leaves=groups.leaves), method, privacy, runs)
    assert ((found > 0.9) & (found < 1.1)).all()


def test_on_a_few_flights():
    groups = read_counts(File.read(FLIGHTS), 60)
    data = Census(tree=groups.tree, leaves=groups.leaves)
    for method in ("cumulative-dp", "hierarchical-dp"):
        found = ratios(data, method, PRIVACIES["pure-0.5"], 4)
        assert ((found > 0.8) & (found < 1.25)).all()
