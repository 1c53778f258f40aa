"""What a curious server learns from what users upload (mathematics L6). It is enough to find them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.numbers.graphs import edge_matrix
from privopt_lr_geo.client import Client
from privopt_lr_geo.messages import Package
from privopt_lr_geo.problem import LRGeoOptions
from privopt_metric_dp.problem.data import MetricData

__all__ = ["attack_server", "circle_centres", "fingerprint", "graph_centre", "zero_columns"]


DISTANCE_TOLERANCE = 1e-9
"""Relative difference up to which two distances are taken for one."""


def zero_columns(package: Package) -> Ints:
    """(n,) the output at distance 0 from each row, -1 where there is none: it names the row's record."""
    zero = package.reach == 0
    return np.where(zero.any(axis=1), zero.argmax(axis=1), -1)


def graph_centre(package: Package, radius: float, within: float | None) -> Ints:
    """Rows within ``radius`` of all others: the user is one of them, whatever the order of rows."""
    from scipy.sparse.csgraph import dijkstra

    i, j = np.triu_indices(len(package.distances), 1)
    lengths = package.distances[i, j]
    kept = np.isfinite(lengths) if within is None else lengths <= within
    graph = edge_matrix(len(package.distances), np.column_stack([i, j])[kept], lengths[kept])
    away = dijkstra(graph, directed=False)
    return np.flatnonzero((away <= radius * (1 + DISTANCE_TOLERANCE)).all(axis=1))


def fingerprint(row: Floats, table: Floats) -> Ints:
    """Records whose distances to the outputs, put in order, are those of an unlabelled row.

    Args:
        row: (K,) in any order.
        table: (N, K) the public map's, each row sorted.
    """
    wanted = np.sort(row)
    off = np.abs(table - wanted).max(axis=1)
    return np.flatnonzero(off <= DISTANCE_TOLERANCE * max(1.0, float(wanted[-1])))


def circle_centres(records: Ints, draws: int, chance: np.random.Generator) -> Ints:
    """Centres of circles asked for with a new random member each time (the paper's protocol, repeated)."""
    return np.asarray(records[chance.integers(len(records), size=draws)])


def attack_server(
    data: MetricData, options: LRGeoOptions, clients: Sequence[Client], draws: int = 100
) -> dict[str, float | None]:
    """Success of each attack on the packages that these users upload, as shares of the users.

    A guess among several candidates counts as one part in so many.
    """
    chance = np.random.default_rng(0)
    named = centred = located = prints = circles = 0.0
    table = np.sort(data.to_outputs, axis=1) if data.cost.size <= 16_000_000 else None
    own = data.outputs is data.records
    for client in clients:
        package, records = client.package(), client.around.records
        names = zero_columns(package)
        whole = own and bool((names == records[client.order]).all())
        named += whole
        centre = graph_centre(package, options.radius, data.within)
        place = int(np.flatnonzero(client.order == client.around.own)[0])
        right = place in centre.tolist()
        centred += right and len(centre) == 1
        located += right / len(centre) if whole and len(centre) else 0.0
        if table is not None:
            row = int(chance.integers(len(records)))
            found = fingerprint(package.reach[row], table)
            prints += records[client.order[row]] in found and 1.0 / len(found)
        if data.records.coordinates is not None:
            centres = data.records.coordinates[circle_centres(records, draws, chance)].mean(axis=0)
            nearest = int(np.linalg.norm(data.records.coordinates - centres, axis=1).argmin())
            circles += nearest == client.around.user
    count = len(clients)
    return {
        "zero_columns_name_the_set": named / count,
        "unique_graph_centre": centred / count,
        "user_located": located / count,
        "fingerprint_of_one_row": None if table is None else prints / count,
        f"mean_of_{draws}_circles": None if data.records.coordinates is None else circles / count,
    }
