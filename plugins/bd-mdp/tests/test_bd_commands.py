"""From the command line: the toy with path costs, 200 records, stop and resume."""

from __future__ import annotations

import json
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
from helpers.command import run
from helpers.whole_program import optimum

TOML = """
[records]
{records}
[distance]
kind = "euclidean"
[privacy]
epsilon = {epsilon}
neighbours_within = 2.0
[utility]
{utility}
[bd-mdp]
{table}
"""
GRID = "grid = {{ rows = {}, cols = {}, cell_km = 1.0 }}"


def solve(folder: Path, text: str, *options: object, name: str = "p") -> dict:
    (folder / f"{name}.toml").write_text(text)
    completed = run("solve", "bd-mdp", folder / f"{name}.toml", "--out", folder / name, "--quiet", *options)
    assert completed.exit_code == 0, completed.stderr
    assert run("verify", folder / name).exit_code == 0
    return json.loads((folder / name / "result.json").read_text())


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    """100 records in two rows; loss |path(1, i) - path(1, k)| / 10 summed over the records; 10 outputs."""
    folder = tmp_path_factory.mktemp("toy")
    places = np.array([(1.5 * r, 1.5 * c) for r in range(2) for c in range(50)])
    for file, count in (("records.csv", 100), ("outputs.csv", 10)):
        lines = "".join(f"{n},{x},{y}\n" for n, (x, y) in enumerate(places[:count].tolist()))
        (folder / file).write_text("id,x,y\n" + lines)
    distances = np.linalg.norm(places[:, None] - places[None], axis=2)
    i, j = np.nonzero((distances <= 2.0) & ~np.eye(100, dtype=bool))
    graph = nx.Graph()
    graph.add_weighted_edges_from(zip(i.tolist(), j.tolist(), distances[i, j].tolist(), strict=True))
    path = nx.single_source_dijkstra_path_length(graph, 0)
    along = np.array([path[n] for n in range(100)])
    cost = np.abs(along[:, None] - along[None, :10]) / 10
    np.save(folder / "cost.npy", 100 * cost)  # the uniform prior divides by 100
    pairs = np.argwhere(np.triu(distances <= 2.0, 1))
    optimal_loss = optimum(cost, pairs, 0.5 * distances[tuple(pairs.T)])
    text = TOML.format(
        records='points = "records.csv"\n[outputs]\npoints = "outputs.csv"',
        epsilon=0.5,
        utility='kind = "matrix"\ncost = "cost.npy"',
        table="{table}",
    )
    return folder, text, optimal_loss


def test_full_model_finds_the_optimum(toy):
    folder, text, optimal_loss = toy
    result = solve(folder, text.format(table="subsets = 4"), "--method", "full", "--solver", "highs")
    assert result["objective"]["value"] == pytest.approx(optimal_loss, abs=1e-6)


@pytest.mark.parametrize(
    "table",
    ["subsets = 4", pytest.param('subsets = 4\nstart = "cold"', marks=pytest.mark.slow)],
)
def test_benders_is_within_its_gap(toy, table):
    folder, text, optimal_loss = toy
    name = f"benders-{len(table)}"
    result = solve(folder, text.format(table=table), "--solver", "highs", name=name)
    objective = result["objective"]
    assert result["status"] == "optimal"
    assert objective["gap"] <= 1e-2
    assert objective["lower_bound"] <= optimal_loss + 1e-6 <= objective["value"] + 2e-6
    assert result["details"]["told"]["trajectory"]
    for _, lower, upper in result["details"]["told"]["trajectory"]:
        lower, upper = (-np.inf if lower in (None, "-inf") else lower), upper
        assert lower <= optimal_loss + 1e-6 <= upper + 2e-6


@pytest.mark.parametrize(
    ("rows", "subsets"), [(5, 4), *(pytest.param(10, subsets, marks=pytest.mark.slow) for subsets in (4, 25))]
)
def test_hundreds_of_records_within_one_per_cent(tmp_path, rows, subsets):
    text = TOML.format(
        records=GRID.format(rows, 20),
        epsilon=1.0,
        utility='kind = "distance"',
        table=f'partition = "distance-vector"\nsubsets = {subsets}',
    )
    result = solve(tmp_path, text)
    assert result["status"] == "optimal"
    assert result["objective"]["gap"] <= 1e-2
    assert result["certificate"]["holds"] is True


def test_names_faults_of_the_table(tmp_path):
    text = TOML.format(
        records=GRID.format(2, 2), epsilon=1.0, utility='kind = "distance"', table='partition = "stars"\nsubsets = 0'
    )
    (tmp_path / "p.toml").write_text(text)
    completed = run("solve", "bd-mdp", tmp_path / "p.toml", "--out", tmp_path / "out")
    assert completed.exit_code == 2
    assert "bd-mdp.partition" in completed.stderr
    assert "bd-mdp.subsets" in completed.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_report_shows_the_decomposition(tmp_path):
    table = 'partition = "records"\nsubsets = 2\nstart = "cold"'
    text = TOML.format(records=GRID.format(2, 3), epsilon=1.0, utility='kind = "distance"', table=table)
    solve(tmp_path, text, "--solver", "highs")
    assert run("report", tmp_path / "p").exit_code == 0
    page = (tmp_path / "p" / "report.html").read_text("utf-8")
    assert "The decomposition" in page
    assert "partitioned by records" in page
