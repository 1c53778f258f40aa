"""What a curious server learns from what users upload (mathematics L6). It is enough to find them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.numbers.graphs import edge_matrix
from privopt_lr_geo.client import Client
from privopt_lr_geo.messages import Package
from privopt_lr_geo.problem import LRGeoOptions
from privopt_metric_dp.problem.data import MetricData

__all__ = ["attack_server"]

DISTANCE_TOLERANCE: Final = 1e-9
"""Relative difference up to which two distances are taken for one."""
TABLED_ENTRIES: Final = 16_000_000
"""Records times outputs up to which rows are looked up among those of the whole map."""


def attack_server(data: MetricData, options: LRGeoOptions, clients: Sequence[Client]) -> dict[str, float | None]:
    """Return the success of each attack on the packages that these users upload, as shares of the users.

    A guess among n candidates counts as 1 / n.
    """
    chance = np.random.default_rng(0)
    named = centred = located = prints = 0.0
    table = np.sort(data.to_outputs, axis=1) if data.cost.size <= TABLED_ENTRIES else None
    own = data.outputs is data.records
    for client in clients:
        package, records = client.package, client.around.records
        whole = own and bool((_rows_by_zeros(package) == records[client.order]).all())
        named += whole
        centre = _graph_centre(package, options.radius, data.within)
        right = int(np.flatnonzero(client.order == client.around.own)[0]) in centre.tolist()
        centred += right and len(centre) == 1
        located += right / len(centre) if whole and len(centre) else 0.0
        if table is not None:
            row = int(chance.integers(len(records)))
            found = _records_like(package.reach[row], table)
            prints += records[client.order[row]] in found and 1.0 / len(found)
    count = len(clients)
    return {
        "zero_columns_name_the_set": named / count,
        "unique_graph_centre": centred / count,
        "user_located": located / count,
        "fingerprint_of_one_row": None if table is None else prints / count,
    }


def _rows_by_zeros(package: Package) -> Ints:
    """(n,) the output at distance 0 from each row, -1 where there is none: it names the row's record."""
    zero = package.reach == 0
    return np.where(zero.any(axis=1), zero.argmax(axis=1), -1)


def _graph_centre(package: Package, radius: float, within: float | None) -> Ints:
    """Rows within ``radius`` of all others: the user is one of them, whatever the order of rows."""
    from scipy.sparse.csgraph import dijkstra

    i, j = np.triu_indices(len(package.distances), 1)
    lengths = package.distances[i, j]
    kept = np.isfinite(lengths) if within is None else lengths <= within
    graph = edge_matrix(len(package.distances), np.column_stack([i, j])[kept], lengths[kept])
    away = dijkstra(graph, directed=False)
    return np.flatnonzero((away <= radius * (1 + DISTANCE_TOLERANCE)).all(axis=1))


def _records_like(row: Floats, table: Floats) -> Ints:
    """Return records whose distances to the outputs, put in order (N, K), are those of an unlabelled row (K,)."""
    wanted = np.sort(row)
    off = np.abs(table - wanted).max(axis=1)
    return np.flatnonzero(off <= DISTANCE_TOLERANCE * max(1.0, float(wanted[-1])))
