"""The cost reference table: bounds on costs (Lemmas B.1 and B.2), circles (Proposition 4.3), Theorems 4.6 and 4.7."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from lr_geo_paper.bounds import cost_bounds
from privopt.declare import load_problem
from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release
from privopt_lr_geo import reference
from privopt_lr_geo.central import clients_of
from privopt_lr_geo.estimate import TableCosts, circle_around, costs_of, estimate_costs
from privopt_lr_geo.lr_sets import PathDistances, lr_set, reach_of
from privopt_lr_geo.messages import Request
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.reference import Cells, Places, ReferenceTable
from privopt_lr_geo.user_randomness import draw_order_and_centre

TABLES = """
[privacy]
epsilon = 1.5
neighbours_within = 1.2
[lr-geo]
users = {{ random = 3 }}
radius = 2.0
obfuscation_radius = 1.5
exponential_beyond = 0.8
{cell}
"""


def write_table(path, header, rows):
    with path.open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *rows])


@pytest.fixture
def city(tmp_path):
    """Return a map with winding roads: a 6 x 6 lattice, shaken, with detours of up to 80 % and some one-way streets."""

    def write_city(*, directed=False, cell="reference_cell_km = 0.3", geographic=False, seed=0):
        chance = np.random.default_rng(seed)
        coordinates = np.array([(r, c) for r in range(6) for c in range(6)], dtype=float) * 0.8
        coordinates += chance.uniform(-0.25, 0.25, coordinates.shape)
        names = [f"n{i}" for i in range(36)]
        if geographic:
            write_table(
                tmp_path / "points.csv", ["id", "lat", "lon"], zip(names, *(41.9 + coordinates / 111.0).T, strict=True)
            )
        else:
            write_table(tmp_path / "points.csv", ["id", "x", "y"], zip(names, *coordinates.T, strict=True))
        edges, one_way = [], []
        for i in range(36):
            for j in [i + 1] * (i % 6 < 5) + [i + 6] * (i < 30):
                km = float(np.hypot(*(coordinates[i] - coordinates[j]))) * (1.0 + 0.8 * chance.random())
                edges.append((names[i], names[j], km))
                one_way += [(names[i], names[j], km), (names[j], names[i], km * (1 + (chance.random() < 0.3)))]
        write_table(tmp_path / "roads.csv", ["from", "to", "km"], edges)
        write_table(tmp_path / "streets.csv", ["from", "to", "km"], one_way)
        targets = chance.choice(names, 9, replace=False)
        write_table(tmp_path / "targets.csv", ["id", "weight"], zip(targets, chance.random(9), strict=True))
        streets = 'edges = "streets.csv"\ndirected = true\n' if directed else ""
        (tmp_path / "problem.toml").write_text(
            '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
            f'[utility]\nkind = "travel-cost"\ntargets = "targets.csv"\n{streets}' + TABLES.format(cell=cell)
        )
        return tmp_path / "problem.toml"

    return write_city


@pytest.mark.parametrize("cell", [0.1, 0.5, 1.1])
@pytest.mark.parametrize(("directed", "geographic"), [(False, False), (True, False), (False, True)])
def test_estimates_enclose_the_cost(city, cell, directed, geographic):
    path = city(directed=directed, geographic=geographic)
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, path))
    exchange, exact = TableCosts(problem, cell), problem.data.cost
    everyone = np.arange(36)
    all_rows = exchange.table.rows(np.arange(len(exchange.cells.coordinates)))
    estimates = estimate_costs(exchange.places, exchange.cells, everyone, all_rows)
    assert (estimates.lower <= exact).all()
    assert (exact <= estimates.upper).all()
    assert (np.diag(estimates.upper) == 0).all()
    shift = exchange.cells.shift
    max_width = 2.0 * (shift[:, None] + shift) + 1e-5
    assert (estimates.upper - exact <= max_width).all()
    assert (exact - estimates.lower <= max_width).all()
    assert estimates.covered_share == 1.0


def test_straight_shifts_do_not_enclose_the_cost(city):
    """With straight-line shifts in Equations (27) and (33) Lemmas B.1 and B.2 fail against road costs."""
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, city(cell="")))
    places, exact = Places.from_problem(problem), problem.data.cost
    cells = Cells.over(places, 2.0)
    table = ReferenceTable(problem, places, cells).rows(np.arange(len(cells.coordinates)))
    beta = table.beta[np.ix_(cells.nearest, cells.nearest)].astype(float)
    straight = places.straight_km(places.coordinates, cells.coordinates[cells.nearest])
    assert (exact > beta + straight[:, None] + straight + 1e-6).any()
    assert (exact < beta - straight[:, None] - straight - 1e-6).any()
    assert (exact <= beta + cells.shift[:, None] + cells.shift + 1e-6).all()


def test_circle_covers_the_user_and_records(city):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, city(cell="")))
    data, options, paths = problem.data, problem.declared.lr_geo, PathDistances(problem.data)
    for user in range(36):
        around = lr_set(problem, paths, user)
        reach = reach_of(data, around.records)
        for seed in range(4):
            circle = circle_around(options, draw_order_and_centre(seed, user, around.records)[1])
            distances = data.metric.rows(np.array([circle.centre]))[0]
            assert circle.centre in around.records
            assert (distances[around.records] <= circle.radius).all()
            assert (distances[(reach <= options.obfuscation_radius).any(axis=0)] <= circle.radius).all()


def test_travel_bounds_the_cost_beyond_the_circle(city):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, city()))
    exchange, exact = TableCosts(problem, 0.3), problem.data.cost
    records = np.array([0, 1, 6])
    part = exchange.table.circle(Request(centre=0, radius=2.5))
    estimates = estimate_costs(exchange.places, exchange.cells, records, part)
    assert 0 < estimates.covered_share < 1
    assert (estimates.lower <= exact[records]).all()
    assert (exact[records] <= estimates.upper).all()


def test_refuses_large_table_with_its_size(city, monkeypatch):
    problem = LRGeoInstance.of(load_problem(LRGeoProblem, city()))
    exchange = TableCosts(problem, 0.3)
    monkeypatch.setattr(reference, "LARGEST_BYTES", 1000.0)
    with pytest.raises(InputError, match=r"reference_cell_km: .*\d+ cells.* GB"):
        exchange.of(np.arange(6), 0)


@pytest.mark.parametrize(
    ("old", "new"),
    [('kind = "travel-cost"\ntargets = "targets.csv"', 'kind = "distance"'), ("id,x,y", "id,u,v")],
)
def test_table_needs_travel_and_coordinates(city, old, new):
    path = city()
    for file in (path, path.parent / "points.csv"):
        file.write_text(file.read_text().replace(old, new))
    with pytest.raises(InputError, match="reference_cell_km") as excinfo:
        LRGeoInstance.of(load_problem(LRGeoProblem, path))
    assert len(excinfo.value.faults) == 1


def test_theorems_4_6_and_4_7(city):
    """Bounds hold with and without the table, and are wider with it."""
    ratios = []
    for number, cell in enumerate(["", "reference_cell_km = 0.15"]):
        path = city(cell=cell)
        output_folder = path.parent / f"out{number}"
        result = solve("lr-geo", path, output_folder, Options(method="full", solver="highs", seed=1)).result
        assert ("reference" in result.details.told) == bool(cell)
        release = load_release(output_folder)
        costs = costs_of(release.problem)
        clients = clients_of(release.problem, 0, costs)
        bounds = cost_bounds(release.problem, clients, costs, release.release.matrices, seconds=60.0)
        assert bounds["users"] == 3
        assert 0 < bounds["lower"] <= bounds["value"] * (1 + 1e-9)
        assert bounds["value"] <= bounds["upper"] * (1 + 1e-9)
        ratios.append(bounds["approximation_ratio"])
    assert 1 <= ratios[0] < ratios[1]
