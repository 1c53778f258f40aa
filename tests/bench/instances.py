"""The instances of the solver benchmark: unit grids and the published Rome cells."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

Problem = dict[str, Any]


def grid(side: int, pairs: str, epsilon: float) -> Problem:
    x, y = np.meshgrid(np.arange(side), np.arange(side), indexing="ij")
    points = np.stack([x.ravel(), y.ravel()], axis=1).astype(float)
    n = len(points)
    cost = np.empty((n, n))
    ends, lengths = [], []
    for i in range(n):
        distance = np.hypot(*(points - points[i]).T)
        cost[i] = distance / n
        j = np.flatnonzero(distance < (1.5 if pairs == "8nb" else np.inf))
        j = j[j > i]
        ends.append(np.stack([np.full(len(j), i), j], axis=1))
        lengths.append(distance[j])
    return {
        "cost": cost,
        "pairs": np.concatenate(ends),
        "distances": np.concatenate(lengths),
        "epsilon": epsilon,
        "coordinates": points,
    }


def rome(cells: int, epsilon: float) -> Problem | None:
    """First cells of the published 40 x 40 file: graph distances and mean travel cost over the whole cell graph."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    place = os.environ.get("PRIVOPT_DATA")
    folder = (Path(place) if place else Path(__file__).parents[3] / "shared" / "data") / "lrgeo_rome"
    if not folder.exists():
        return None
    with (folder / "reget_rome_cell_node40x40.csv").open() as file:
        rows = list(csv.DictReader(file))
    number = {row["grid_index"]: i for i, row in enumerate(rows)}
    edges: dict[tuple[int, int], float] = {}
    with (folder / "reget_rome_cost_thrhold_2.csv").open() as file:
        for row in csv.DictReader(file):
            u, v = number[row["u_index"]], number[row["v_index"]]
            if u != v:
                edges[u, v] = min(float(row["length"]), edges.get((u, v), np.inf))
    ends = np.array(list(edges))
    graph = csr_array((np.array(list(edges.values())), (ends[:, 0], ends[:, 1])), shape=(len(rows), len(rows)))
    far = dijkstra(graph, directed=False, indices=np.arange(cells))
    cost = np.stack([np.abs(row - far).mean(axis=1) for row in far]) / cells
    i, j = np.triu_indices(cells, 1)
    points = np.array([[float(r["x"]) * np.cos(np.radians(41.9)), float(r["y"])] for r in rows[:cells]])
    return {
        "cost": cost,
        "pairs": np.stack([i, j], axis=1),
        "distances": far[i, j],
        "epsilon": epsilon,
        "coordinates": points,
    }


def scattered(count: int, spacing: float) -> Problem:
    """Random points of a square of side 1, all pairs; epsilon times the root of area / count is ``spacing``."""
    points = np.random.default_rng(0).random((count, 2))
    i, j = np.triu_indices(count, 1)
    far = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    return {
        "cost": far / count,
        "pairs": np.stack([i, j], axis=1),
        "distances": far[i, j],
        "epsilon": spacing * count**0.5,
        "coordinates": points,
    }
