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
def open_counts(monkeypatch):
    """Count how often a file is opened, by its path."""
    counts: Counter[str] = Counter()
    lowest, io_open = os.open, io.open

    def at_descriptor(path, *arguments, **options):
        counts[os.fspath(path)] += 1
        return lowest(path, *arguments, **options)

    def at_stream(path, *arguments, **options):
        counts[path if isinstance(path, int) else os.fspath(path)] += 1
        return io_open(path, *arguments, **options)

    monkeypatch.setattr(os, "open", at_descriptor)
    monkeypatch.setattr(io, "open", at_stream)
    monkeypatch.setattr("builtins.open", at_stream)
    return counts


@pytest.mark.parametrize("name", PROBLEMS)
def test_each_file_is_opened_once(tmp_path, open_counts, name):
    """By verify three times: its sum is taken, it is read, and its sum is taken again."""
    problem, files = write(tmp_path, name), list(PROBLEMS[name][1])
    open_counts.clear()
    folder = solve("optimal-lp", problem, tmp_path / "out").folder
    assert open_counts[str(problem)] == 1
    assert {file: open_counts[str(tmp_path / file)] for file in files} == dict.fromkeys(files, 1)
    open_counts.clear()
    assert verify(folder).verdict == "proved"
    assert {file: open_counts[str(folder / "problem" / file)] for file in files} == dict.fromkeys(files, 3)


def test_declared_problem_reads_no_table(tmp_path):
    problem = write(tmp_path, "points, outputs, prior, cost")
    (tmp_path / "points.csv").write_text("no table of places\n")
    problem_declared = load_problem(MetricProblem, problem)
    with pytest.raises(InputError, match=r"points\.csv"):
        MetricInstance.of(problem_declared, "p.toml")


def test_loaded_problem_is_unchangeable(tmp_path):
    problem_declared = load_problem(MetricProblem, write(tmp_path, "points, outputs, prior, cost"))
    instance = MetricInstance.of(problem_declared, "p.toml")
    assert instance.declared is problem_declared
    assert instance.data.shape == (3, 3)
    with pytest.raises(FrozenInstanceError):
        instance.data = instance.data
    with pytest.raises(FrozenInstanceError):
        problem_declared.records = problem_declared.records
