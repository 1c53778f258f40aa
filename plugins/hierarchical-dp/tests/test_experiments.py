from __future__ import annotations

import csv

import numpy as np
import pytest

from hierarchical_dp_paper import command, equal_splits, runtimes
from hierarchical_dp_paper.command import main
from hierarchical_dp_paper.generate import census, taxi


def test_small_census_is_exact():
    data = census(sizes=40, groups=500_000, individuals=1_297_000, seed=5)
    assert data.tree.widths == (1, 52, 3144)
    assert data.groups == 500_000
    assert data.individuals == 1_297_000
    assert data.leaves.min() >= 0
    tail = data.leaves.sum(axis=0)
    assert (tail[6:9] < tail[5:8]).all()
    assert tail[20:].sum() <= 60  # outliers, and next to nothing of the tail


def test_small_taxi_data_have_their_shape():
    data = taxi(sizes=5000, pickups=200_000, taxis=300, seed=5)
    assert data.tree.widths == (1, 6, 263)
    assert data.individuals == 200_000
    assert data.leaves[:, -1].sum() == 1


def test_real_counties_and_zones(request):
    from helpers.data import data_path

    data = census(sizes=20, groups=300_000, individuals=None, counties=data_path("us_counties", "co_est2019.csv"))
    assert data.tree.widths == (1, 52, 3144)
    assert data.tree.names[1][0] == "Alabama"
    zones = taxi(sizes=50, pickups=30_000, taxis=50, zones=data_path("nyc_zones", "taxi_zone_lookup.csv"))
    assert zones.tree.widths == (1, 6, 263)
    assert set(zones.tree.names[1]) == {"EWR", "Queens", "Bronx", "Manhattan", "Staten Island", "Brooklyn"}


def test_times_methods_in_a_separate_process():
    assert 0 < runtimes.seconds_within(600.0, "top-down", 4, 1, True) < 600


@pytest.mark.slow
def test_quick_experiments_write_and_resume(tmp_path, monkeypatch):
    # thirteen processes would load everything thirteen times
    monkeypatch.setattr(
        runtimes, "seconds_within", lambda limit, *arguments: runtimes._measure_seconds(*arguments, limit)
    )
    assert main(["--quick", "--out", str(tmp_path), "--runs", "1"]) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names >= {"table_7_census.csv", "table_7_taxi.csv", "splits.csv", "figure_7.csv", "figure_7.png"}
    assert "equal_splits.csv" in names
    assert names >= {f"figure_{number}_{data}.png" for number in (8, 9) for data in ("census", "taxi")}
    with (tmp_path / "table_7_census.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    by_method = {(row["method"], row["epsilon"]): row for row in rows}
    for (method, _), row in by_method.items():
        violation_count = float(row["violations"])
        assert (
            violation_count > 0
            if method == "hierarchical-relaxed"
            else violation_count == 0 or method == "cumulative-relaxed"
        )
    for epsilon in ("0.1", "0.5", "1"):
        smoothed_row, published_row = by_method["cumulative-smoothed", epsilon], by_method["cumulative-dp", epsilon]
        level_errors = [
            np.array([float(row[f"level_{level}"]) for level in (1, 2, 3)]) for row in (smoothed_row, published_row)
        ]
        assert level_errors[0].sum() <= 0.7 * level_errors[1].sum()
    with (tmp_path / "equal_splits.csv").open() as stream:
        compared = {(row["data"], row["method"]): row for row in csv.DictReader(stream)}
    assert len(compared) == 14
    for row in compared.values():
        assert all(float(row[f"{measure}_3"]) > 0 for measure in ("l1", "earth_movers", "individuals"))
    bytes_by_name = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(command, "run_methods", lambda methods, *_, **__: [pytest.fail("run again") for _ in methods])
    monkeypatch.setattr(equal_splits, "run_methods", lambda *_, **__: pytest.fail("run again"))
    monkeypatch.setattr(runtimes, "seconds_within", lambda *_: pytest.fail("run again"))
    assert main(["--quick", "--out", str(tmp_path), "--runs", "1"]) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == bytes_by_name
