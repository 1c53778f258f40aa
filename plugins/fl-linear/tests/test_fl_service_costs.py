"""Opening costs over few pairs of each client: against the integer program, all subsets, and a town without a table."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl_linear_paper.cost_table import Table
from fl_linear_paper.milp import solve_facility_location
from privopt.errors import InfeasibleError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_fl_linear.metric import Matrix, Plane, Sphere
from privopt_fl_linear.opening import open_facilities
from privopt_fl_linear.service_costs import PairList, SiteCosts
from privopt_fl_linear.site import Site


def town(seed, size):
    """Return a random tree with some more streets as its table of ways: whole lengths, every node a location."""
    rng = np.random.default_rng(seed)
    edges = [(int(rng.integers(0, v)), v) for v in range(1, size)] + rng.integers(0, size, (size // 2, 2)).tolist()
    ways = np.full((size, size), np.inf)
    for (tail, head), length in zip(edges, (rng.integers(0, 5, len(edges)) * 1.0).tolist(), strict=True):
        ways[tail, head] = ways[head, tail] = min(ways[tail, head], length)
    np.fill_diagonal(ways, 0.0)
    for _ in range(size):
        ways = np.minimum(ways, (ways[:, :, None] + ways[None]).min(axis=1))
    return rng, Matrix(ways)


def make_costs(metric, rng):
    """Costs of a site where some locations may hold a facility, and some have no clients."""
    n = metric.size
    among = np.sort(rng.choice(n, rng.integers(1, n + 1), replace=False))
    site = Site(metric=metric, cost=rng.integers(0, 4, n) * 0.5)
    weight = rng.integers(0, 4, n).astype(float)
    reach = np.array([metric.distances_between(np.full(n, u), np.arange(n)) for u in among])
    scale = rng.integers(0, 3, n) * 0.5
    costs = SiteCosts(site=site, among=among, weight=weight, scale=scale)
    return costs, reach, site.cost[among]


@given(st.integers(0, 10**6), st.integers(2, 12), st.integers(1, 3))
@settings(max_examples=12)
def test_few_pairs_reach_the_integer_optimum(seed, size, pair_count):
    rng, metric = town(seed, size)
    costs, reach, facility_costs = make_costs(metric, rng)
    opening = rng.integers(0, 9, len(facility_costs)) * 0.75
    table = (reach + facility_costs[:, None] * costs.scale) * costs.weight
    zeros, ones = np.zeros(len(facility_costs)), np.ones(costs.site.size)
    optimum = solve_facility_location(zeros, ones, table, opening, backend="highs").objective
    solution = open_facilities(costs, opening, gap=1e-9, pairs_per_client=pair_count)
    assert solution.status == "optimal"
    assert solution.objective == pytest.approx(optimum, rel=1e-7, abs=1e-9)
    assert solution.bound <= optimum * (1 + 1e-9) + 1e-9
    short = open_facilities(costs, opening, gap=1e-9, pairs_per_client=1, max_pairs=costs.shape[1])  # none may join
    assert short.bound <= optimum * (1 + 1e-9) + 1e-9
    assert short.objective >= optimum * (1 - 1e-9) - 1e-9


@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(1, 6), st.integers(1, 6), st.integers(1, 6))
def test_forbidden_pairs_match_all_subsets(seed, facilities, clients, max_facilities, pair_count):
    rng = np.random.default_rng(seed)
    cost, opening = np.floor(rng.uniform(0, 9, (facilities, clients))), rng.uniform(0, 4, facilities)
    cost[rng.random(cost.shape) < 0.5] = np.inf
    sets = [
        s for r in range(1, min(max_facilities, facilities) + 1) for s in itertools.combinations(range(facilities), r)
    ]
    best = min(opening[list(s)].sum() + cost[list(s)].min(axis=0).sum() for s in sets)
    if math.isinf(best):
        with pytest.raises(InfeasibleError):
            open_facilities(Table(cost), opening, max_facilities=max_facilities, pairs_per_client=pair_count)
        return
    solution = open_facilities(
        Table(cost), opening, max_facilities=max_facilities, gap=1e-9, pairs_per_client=pair_count
    )
    assert solution.objective == pytest.approx(best, rel=1e-8, abs=1e-9)
    assert best * (1 - 2e-9) - 1e-9 <= solution.bound <= best + 1e-12 * (1 + best)
    assert np.isfinite(cost[solution.facility, np.arange(clients)]).all()


@given(st.integers(0, 10**6), st.integers(2, 14))
@settings(max_examples=40)
def test_every_metric_lists_the_cheapest(seed, size):
    rng, ways = town(seed, size)
    points = rng.random((size, 2))
    metrics = [ways, Plane(points), Sphere(90 * points)]
    for metric in metrics:
        costs, reach, facility_costs = make_costs(metric, rng)
        table = (reach + facility_costs[:, None] * costs.scale) * costs.weight
        count = int(rng.integers(1, len(facility_costs) + 1))
        nearest, cost = costs.nearest(np.arange(costs.site.size), count)
        assert np.allclose(cost, np.sort(table, axis=0)[:count].T, rtol=1e-13)
        assert np.allclose(cost, table[nearest, np.arange(len(nearest))[:, None]], rtol=1e-13)
        pair_list = PairList(costs, np.ones(len(facility_costs)), count, 10**6)
        assert pair_list.extend_pairs(np.ones(len(nearest), np.bool_)) == (count < len(facility_costs))
        pairs = pair_list.pairs
        facility_numbers = np.repeat(np.arange(len(facility_costs)), np.diff(pairs.start))
        assert np.allclose(pairs.cost, table[facility_numbers, pairs.client], rtol=1e-13)
        is_unlisted = np.ones(table.shape, np.bool_)
        is_unlisted[facility_numbers, pairs.client] = False
        assert (np.where(is_unlisted, table, np.inf).min(axis=0) >= pairs.omitted_cost * (1 - 1e-13)).all()


@given(st.integers(0, 10**6), st.integers(1, 40))
@settings(max_examples=40)
def test_of_tied_facilities_the_first_are_listed(seed, size):
    rng = np.random.default_rng(seed)
    metric = Plane(rng.integers(0, 4, (size, 2)))
    facilities = np.flatnonzero(rng.random(size) < 0.8) if size > 1 else np.arange(1)
    facilities = facilities if len(facilities) else np.arange(size)
    count = int(rng.integers(1, len(facilities) + 1))
    nearest, sums = metric.nearest(np.arange(size), facilities, np.zeros(size), np.ones(size), count)
    table = np.array([metric.distances_between(np.full(len(facilities), v), facilities) for v in range(size)])
    order = np.argsort(table, axis=1, kind="stable")[:, :count]
    assert np.array_equal(nearest, order)
    assert np.array_equal(sums, np.take_along_axis(table, order, axis=1))


@pytest.mark.parametrize("count", [2_000, pytest.param(12_100, marks=pytest.mark.slow)])
def test_town_whose_table_does_not_fit(tmp_path, count):
    """All places may hold a facility: of 12,100, 146 million pairs, of which two million are looked at."""
    rng = np.random.default_rng(3)
    places = rng.random((count, 2)).round(5) * 15.0
    cost, noisy = rng.uniform(0.1, 0.3, count).round(4), rng.integers(-9, 40, count)
    columns = zip(places.tolist(), cost.tolist(), noisy.tolist(), strict=True)
    rows = ["id,x,y,facility_cost,opening_cost,noisy_clients"]
    rows += [f"c{v},{x},{y},{f},2.5,{b}" for v, ((x, y), f, b) in enumerate(columns)]
    (tmp_path / "sites.csv").write_text("\n".join(rows) + "\n")
    (tmp_path / "p.toml").write_text(
        '[locations]\npoints = "sites.csv"\n'
        '[privacy]\nepsilon = 0.5\n[fl-linear]\ndelta = 0.0\nmean_clients = 15\nsites = "prior"\n'
    )
    release = solve("fl-linear", tmp_path / "p.toml", tmp_path / "out", Options(method="laplace", gap=0.02))
    opening = release.result.details.told["opening"]
    assert not release.stopped
    assert opening["bound"] >= 0.98 * opening["objective"]
    assert opening["pairs"] < 400 * count
    assert verify(tmp_path / "out").complaints == ()
