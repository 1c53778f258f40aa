"""Problems whose outputs are chosen among the records: a grid, and a tree of streets."""

import numpy as np

from privopt.run.task import read_problem
from privopt_metric_dp.mechanisms.optimal_lp import OptimalLP
from privopt_metric_dp.problem.data import MetricInstance

GRID = "[records]\ngrid = { rows = 6, cols = 7, cell_km = 1.0 }\n"
STREETS = '[records]\npoints = "points.csv"\n'
PLANE, ROADS = '[distance]\nkind = "euclidean"\n', '[distance]\nkind = "graph"\nedges = "edges.csv"\n'
CHOOSE = "[outputs]\nchoose = 9\n"
REST = '[privacy]\nepsilon = 0.8\n[utility]\nkind = "distance"\n'


def streets(folder, *, nodes=40, left_out=6, seed=3):
    """Write a tree of streets and some more, whose last nodes are not records."""
    rng = np.random.default_rng(seed)
    road_ends = [(int(rng.integers(max(0, j - 4), j)), j) for j in range(1, nodes)]
    road_ends += [tuple(map(int, rng.choice(nodes, 2, replace=False))) for _ in range(12)]
    rows = [f"n{a},n{b},{rng.integers(1, 40) / 16}" for a, b in road_ends]
    (folder / "edges.csv").write_text("from,to,km\n" + "\n".join(rows) + "\n")
    (folder / "points.csv").write_text("id\n" + "\n".join(f"n{j}" for j in range(nodes - left_out)) + "\n")


def write_streets(folder, text):
    streets(folder)
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def data_of(folder, text):
    return MetricInstance.of(read_problem(OptimalLP(), write_streets(folder, text))).whole
