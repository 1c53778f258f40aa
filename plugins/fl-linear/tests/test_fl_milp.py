"""The integer program: Algorithm 1 is optimal; the OR-Library's optima."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_linear_paper.milp import solve_facility_location
from privopt.errors import InputError
from privopt_fl_linear.metric import Plane
from privopt_fl_linear.site import Site, connection_cost, sum_counts


def table(points):
    d = points[:, None, :] - points[None, :, :]
    return np.sqrt((d * d).sum(axis=2))


@given(st.integers(0, 10**6), st.integers(1, 9))
@settings(max_examples=8)
def test_algorithm_1_is_the_integer_optimum(seed, n):
    rng = np.random.default_rng(seed)
    points, cost, counts = rng.random((n, 2)), rng.uniform(0, 0.5, n), rng.integers(0, 9, n)
    metric = Plane(points)
    h = Site(metric=metric, cost=cost).connect()
    value = math.fsum(sum_counts(h, counts) * cost[h.opened]) + connection_cost(metric, h, counts)
    solution = solve_facility_location(cost, counts, table(points))
    assert solution.objective == pytest.approx(value, rel=1e-6, abs=1e-9)
    assert solution.status == "optimal"


@given(st.integers(0, 10**6))
@settings(max_examples=6)
def test_opening_costs_match_all_subsets(seed):
    rng = np.random.default_rng(seed)
    f, b, d = rng.uniform(0, 1, 4), rng.integers(0, 5, 6), rng.uniform(0, 3, (4, 6))
    opening = rng.uniform(0, 6, 4)
    best = min(
        opening[list(s)].sum() + (b * (f[:, None] + d)[list(s)].min(axis=0)).sum()
        for r in range(1, 5)
        for s in itertools.combinations(range(4), r)
    )
    for backend in ("cbc", "highs"):
        solution = solve_facility_location(f, b, d, opening, backend=backend)
        assert solution.objective == pytest.approx(best, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(("name", "optimum"), [("cap71", 932615.750), ("cap101", 796648.4375)])
def test_or_library(or_library, name, optimum):
    opening, costs, _ = or_library(name)
    facilities, customers = costs.shape
    solution = solve_facility_location(np.zeros(facilities), np.ones(customers), costs, opening)
    assert solution.objective == pytest.approx(optimum, abs=0.01)
    assert solution.bound == pytest.approx(optimum, rel=1e-6)


def test_refuses_large_programs():
    with pytest.raises(InputError, match="40000 pairs"):
        solve_facility_location(np.zeros(300), np.ones(300), np.zeros((300, 300)), np.ones(300))
