"""`apply --sticky --sticky-within KM`: kept reports near their cell's centre, against the noise of GPS (T3)."""

import json
from collections import Counter
from itertools import product

import numpy as np
import polars as pl
import pytest
from helpers.charging import read_charges, run_command
from helpers.toys import grid_text

from privopt.errors import UsageError
from privopt.ledger.charge import Charge
from privopt.run.solve import solve
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions
from privopt_tables.secret_columns import Secret

POSITION = Secret.of(x="x", y="y")
HALF = 0.1 * 2**-0.5  # km, half the diagonal of cells of 100 m


@pytest.fixture(scope="module")
def cells(tmp_path_factory):
    """DIR of 12 x 12 cells of 100 m."""
    folder = tmp_path_factory.mktemp("cells")
    (folder / "p.toml").write_text(grid_text(12, 12, 0.1))
    return solve("exponential", folder / "p.toml", folder / "out").folder


def write_rows(path, names, places):
    pl.DataFrame({"who": names, "x": places[:, 0], "y": places[:, 1]}).write_csv(path)
    return path


def apply_within(cells, table, output_path, ledger, limit_km):
    charge = Charge(ledger=ledger, subject="who", sticky=True, within=limit_km)
    return apply(cells, table, output_path, POSITION, ApplyOptions(charge=charge))


def test_homes_under_noise_are_charged_about_once(cells, tmp_path):
    """Twenty homes, 1,000 starts, 15 m in each coordinate, cells of 100 m, half a diagonal and 50 m."""
    rng = np.random.default_rng(11)
    homes = rng.uniform(0.1, 1.0, (20, 2))
    names = rng.integers(0, 20, 1_000)
    places = homes[names] + rng.normal(0.0, 0.015, (1_000, 2))
    table = write_rows(tmp_path / "t.csv", [f"s{n}" for n in names], places)
    summary = apply_within(cells, table, tmp_path / "o.csv", tmp_path / "near", HALF + 0.05)
    assert len(read_charges(tmp_path / "near")) <= 1.2 * 20
    assert "learns the cell" in summary.sequence
    apply_within(cells, table, tmp_path / "p.csv", tmp_path / "own", None)
    assert len(read_charges(tmp_path / "own")) > 1.5 * 20
    parts = [write_rows(tmp_path / f"{n}.csv", [f"s{k}" for k in names[n::4]], places[n::4]) for n in range(4)]
    for number, part in enumerate(parts):  # the store knows what earlier tables kept
        apply_within(cells, part, tmp_path / f"o{number}.csv", tmp_path / "parts", HALF + 0.05)
    assert len(read_charges(tmp_path / "parts")) <= 1.2 * 20


def expected_sources(places, limit_km):
    """Whose report each row has: the earliest kept one of its own cell, or of one whose centre is near enough."""
    firsts = []
    sources = []
    for row, point in enumerate(places):
        cell = np.round(point / 0.1) * 0.1
        near_rows = [n for n, centre in firsts if np.hypot(*(point - centre)) <= limit_km or np.allclose(centre, cell)]
        if not near_rows:
            firsts.append((row, cell))
        sources.append(min(near_rows) if near_rows else row)
    return sources


def test_gives_the_earliest_near_report(cells, tmp_path):
    rng = np.random.default_rng(5)
    places = rng.uniform(0.3, 0.62, (6, 12, 2))
    table = write_rows(tmp_path / "t.csv", np.repeat([f"s{n}" for n in range(6)], 12), places.reshape(-1, 2))
    apply_within(cells, table, tmp_path / "o.csv", tmp_path / "l", HALF + 0.02)
    charges = Counter(name for name, _ in read_charges(tmp_path / "l"))
    reports = pl.read_csv(tmp_path / "o.csv")["report"].to_numpy().reshape(6, 12).tolist()
    for number, reports_of_copy in enumerate(reports):
        sources = expected_sources(places[number], HALF + 0.02)
        assert [reports_of_copy[row] for row in sources] == reports_of_copy
        assert charges[f"s{number}"] == len(set(sources))


def test_traces_of_one_pattern_are_charged_equally(cells, tmp_path):
    """All traces of three visits over a few points of a cell and of its neighbour: charges follow from cells alone."""
    points = [(0.31, 0.3), (0.29, 0.31), (0.349, 0.3), (0.351, 0.3), (0.6, 0.6)]
    traces = np.array([[*trace, points[0]] for trace in product(points, repeat=2)])
    table = write_rows(tmp_path / "t.csv", np.repeat([f"s{n}" for n in range(len(traces))], 3), traces.reshape(-1, 2))
    apply_within(cells, table, tmp_path / "o.csv", tmp_path / "l", HALF + 0.01)
    charges = Counter(name for name, _ in read_charges(tmp_path / "l"))
    for number, trace in enumerate(traces):
        assert charges[f"s{number}"] == len(set(expected_sources(trace, HALF + 0.01)))


def test_refuses_invalid_limits(cells, tmp_path):
    table = write_rows(tmp_path / "t.csv", ["anna"], np.array([[0.1, 0.1]]))
    with pytest.raises(UsageError, match=r"cell's diagonal, 0\.071"):
        apply_within(cells, table, tmp_path / "o.csv", tmp_path / "l", 0.05)
    arguments = ["apply", cells, table, "--x", "x", "--y", "y", "--out", tmp_path / "o.csv"]
    code, _, err = run_command(*arguments, "--sticky-within", "0.2")
    assert (code, "--sticky-within must be" in err) == (2, True)
    sticky_options = ["--ledger", tmp_path / "l", "--subject", "who", "--sticky", "--sticky-within", "0.2", "--json"]
    code, output, err = run_command(*arguments, *sticky_options)
    assert code == 0, err
    assert "learns the cell" in json.loads(output)["sequence"]
