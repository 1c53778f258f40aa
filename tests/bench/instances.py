"""The instances of the solver benchmark: unit grids, scattered points, the published Rome cells and streets."""

from __future__ import annotations

import csv
import os
from pathlib import Path
from typing import Any

import numpy as np

Problem = dict[str, Any]


def grid(size: int, pairs: str, epsilon: float) -> Problem:
    x, y = np.meshgrid(np.arange(size), np.arange(size), indexing="ij")
    points = np.stack([x.ravel(), y.ravel()], axis=1).astype(float)
    n = len(points)
    cost = np.empty((n, n))
    edges, lengths = [], []
    for i in range(n):
        distance = np.hypot(*(points - points[i]).T)
        cost[i] = distance / n
        j = np.flatnonzero(distance < (1.5 if pairs == "8nb" else np.inf))
        j = j[j > i]
        edges.append(np.stack([np.full(len(j), i), j], axis=1))
        lengths.append(distance[j])
    return {
        "cost": cost,
        "pairs": np.concatenate(edges),
        "distances": np.concatenate(lengths),
        "epsilon": epsilon,
        "coordinates": points,
    }


def rome(cells: int, epsilon: float) -> Problem | None:
    """First cells of the published 40 x 40 file: graph distances and mean travel cost over the whole cell graph."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    data_folder = os.environ.get("PRIVOPT_DATA")
    folder = (Path(data_folder) if data_folder else Path(__file__).parents[3] / "shared" / "data") / "lrgeo_rome"
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
    edge_array = np.array(list(edges))
    graph = csr_array(
        (np.array(list(edges.values())), (edge_array[:, 0], edge_array[:, 1])), shape=(len(rows), len(rows))
    )
    distances = dijkstra(graph, directed=False, indices=np.arange(cells))
    cost = np.stack([np.abs(row - distances).mean(axis=1) for row in distances]) / cells
    i, j = np.triu_indices(cells, 1)
    points = np.array([[float(r["x"]) * np.cos(np.radians(41.9)), float(r["y"])] for r in rows[:cells]])
    return {
        "cost": cost,
        "pairs": np.stack([i, j], axis=1),
        "distances": distances[i, j],
        "epsilon": epsilon,
        "coordinates": points,
    }


def streets(places: int, outputs: int, epsilon: float, gap: float = 1e-6) -> Problem | None:
    """Rome's published streets about their first node; outputs as far apart as possible, the way for a cost."""
    from bench_places import ROME, rome_roads
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, dijkstra

    if not ROME.exists():
        return None
    roads = sorted((min(a, b), max(a, b), km) for a, b, km in rome_roads())
    roads = [
        road
        for road, previous_road in zip(roads, [(-1, -1, 0.0), *roads], strict=False)
        if road[:2] != previous_road[:2]
    ]
    edges, lengths = np.array([road[:2] for road in roads]), np.array([road[2] for road in roads])
    count = int(edges.max()) + 1
    nearest_nodes = breadth_first_order(csr_array((lengths, edges.T), shape=(count, count)), 0, directed=False)[0][
        :places
    ]
    number = np.full(count, -1)
    number[nearest_nodes] = np.arange(len(nearest_nodes))
    is_inside = (number[edges] >= 0).all(axis=1)
    pairs, lengths = np.sort(number[edges[is_inside]], axis=1), lengths[is_inside]
    order = np.lexsort(pairs.T[::-1])
    pairs, lengths = pairs[order], lengths[order]
    graph = csr_array((lengths, pairs.T), shape=(len(nearest_nodes), len(nearest_nodes)))
    min_distances, cost = np.full(len(nearest_nodes), np.inf), []
    for _ in range(outputs):
        cost.append(dijkstra(graph, directed=False, indices=int(min_distances.argmax())))
        min_distances = np.minimum(min_distances, cost[-1])
    return {
        "cost": np.stack(cost, axis=1) / len(nearest_nodes),
        "pairs": pairs,
        "distances": lengths,
        "epsilon": epsilon,
        "gap": gap,
    }


def scatter_points(count: int, spacing: float) -> Problem:
    """Random points of a square of side 1, all pairs; epsilon times the root of area / count is ``spacing``."""
    points = np.random.default_rng(0).random((count, 2))
    i, j = np.triu_indices(count, 1)
    distances = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    return {
        "cost": distances / count,
        "pairs": np.stack([i, j], axis=1),
        "distances": distances[i, j],
        "epsilon": spacing * count**0.5,
        "coordinates": points,
    }
