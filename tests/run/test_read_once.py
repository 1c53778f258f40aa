"""A metric problem's files are read once, before anything is built of them; nothing changes it afterwards."""

from __future__ import annotations

import io
import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from attrs.exceptions import FrozenInstanceError

from privopt.declare import load_problem
from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

POINTS = "id,x,y\na,0,0\nb,1,0\nc,0,1\n"
EDGES = "from,to,km\na,b,1.1\nb,c,0.7\nc,a,0.9\n"
PRIOR = "id,p\na,0.5\nb,0.25\nc,0.25\n"
RING = {"type": "Polygon", "coordinates": [[[0, 0], [1, 0.1], [0.7, 1], [0, 0]]]}
EVEN = 1.0 - np.eye(3)

PROBLEMS = {
    "points, edges, targets, prior": (
        """
        records = { points = "points.csv" }
        distance = { kind = "graph", edges = "edges.csv" }
        privacy = { epsilon = 2.0 }
        utility = { kind = "travel-cost", edges = "ways.csv", targets = "targets.csv", prior = "prior.csv" }
        """,
        {
            "points.csv": POINTS,
            "edges.csv": EDGES,
            "ways.csv": EDGES,
            "targets.csv": "id,weight\na,1\nc,2\n",
            "prior.csv": PRIOR,
        },
    ),
    "points, outputs, prior, cost": (
        """
        records = { points = "points.csv" }
        outputs = { points = "outputs.csv" }
        distance = { kind = "euclidean" }
        privacy = { epsilon = 2.0 }
        utility = { kind = "matrix", cost = "cost.npy", prior = "prior.csv" }
        """,
        {"points.csv": POINTS, "outputs.csv": POINTS, "prior.csv": PRIOR, "cost.npy": EVEN},
    ),
    "mesh": (
        """
        records = { mesh = { region = "region.geojson", side_km = 0.6, planar = true } }
        distance = { kind = "euclidean" }
        privacy = { epsilon = 2.0 }
        utility = { kind = "distance" }
        """,
        {"region.geojson": json.dumps(RING)},
    ),
    "vectors, ids, distances": (
        """
        records = { vectors = "vectors.npy", ids = "ids.txt" }
        distance = { kind = "matrix", matrix = "distances.npy" }
        privacy = { epsilon = 2.0 }
        utility = { kind = "distance" }
        """,
        {"vectors.npy": np.eye(3), "ids.txt": "a\nb\nc\n", "distances.npy": EVEN},
    ),
    "streets": (
        """
        records = { points = "points.csv" }
        distance = { kind = "graph", edges = "edges.csv" }
        privacy = { epsilon = 1.0, everywhere = true }
        utility = { kind = "distance" }
        """,
        {"points.csv": POINTS, "edges.csv": EDGES},
    ),
}


def write(folder: Path, name: str) -> Path:
    text, files = PROBLEMS[name]
    for file, contents in files.items():
        if isinstance(contents, str):
            (folder / file).write_text(contents)
        else:
            np.save(folder / file, contents)
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


@pytest.fixture
def opened(monkeypatch):
    """Count how often a file is opened, by its path."""
    counts: Counter[str] = Counter()
    lowest, io_open = os.open, io.open

    def at_descriptor(path, *given, **named):
        counts[os.fspath(path)] += 1
        return lowest(path, *given, **named)

    def at_stream(path, *given, **named):
        counts[path if isinstance(path, int) else os.fspath(path)] += 1
        return io_open(path, *given, **named)

    monkeypatch.setattr(os, "open", at_descriptor)
    monkeypatch.setattr(io, "open", at_stream)
    monkeypatch.setattr("builtins.open", at_stream)
    return counts


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_file_is_opened_once(tmp_path, opened, name):
    """By verify three times: its sum is taken, it is read, and its sum is taken again."""
    problem, files = write(tmp_path, name), list(PROBLEMS[name][1])
    opened.clear()
    out = solve("optimal-lp", problem, tmp_path / "out").folder
    assert opened[str(problem)] == 1
    assert {file: opened[str(tmp_path / file)] for file in files} == dict.fromkeys(files, 1)
    opened.clear()
    assert verify(out).verdict == "proved"
    assert {file: opened[str(out / "problem" / file)] for file in files} == dict.fromkeys(files, 3)


def test_a_declared_problem_reads_no_table_until_it_is_loaded(tmp_path):
    problem = write(tmp_path, "points, outputs, prior, cost")
    (tmp_path / "points.csv").write_text("no table of places\n")
    declared = load_problem(MetricProblem, problem)
    with pytest.raises(InputError, match=r"points\.csv"):
        MetricInstance.of(declared, "p.toml")


def test_nothing_changes_a_loaded_problem(tmp_path):
    declared = load_problem(MetricProblem, write(tmp_path, "points, outputs, prior, cost"))
    loaded = MetricInstance.of(declared, "p.toml")
    assert loaded.declared is declared
    assert loaded.data.shape == (3, 3)
    with pytest.raises(FrozenInstanceError):
        loaded.data = loaded.data
    with pytest.raises(FrozenInstanceError):
        declared.records = declared.records
