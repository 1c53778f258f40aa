"""Attacks that a curious server can use to locate users from their uploads.

They often succeed, although sections 4.2 and 4.7 of Qiu et al., PoPETs 2025, claim that the server cannot locate users
(see "What is corrected" in docs/papers/lr-geo.md).
"""

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
"""The largest relative difference at which two distances count as equal."""
TABLED_ENTRIES: Final = 16_000_000
"""The largest number of entries (records times outputs) for which the fingerprint attack is run."""


def attack_server(data: MetricData, options: LRGeoOptions, clients: Sequence[Client]) -> dict[str, float | None]:
    """Run each attack on the packages of the given users, and return its success rate.

    If an attack leaves n equally good candidates, one of which is right, it counts as 1 / n of a success.

    Args:
        data: The public map.
        options: The radii, which are public.
        clients: The users with their packages. Their secrets are used only to decide whether a guess is right.

    Returns:
        The success rate of each attack, between 0 and 1:

        - ``zero_columns_name_the_set``: distances of 0 to outputs identify all records in the package.
        - ``unique_graph_centre``: only the user is within the radius of all records in the package.
        - ``user_located``: the two attacks above together identify the user's record.
        - ``fingerprint_of_one_row``: one row of distances identifies its record. None if the map is too large.
    """
    # A fixed seed, because a repeated audit must yield the same figures.
    chance = np.random.default_rng(0)
    named_count = centred_count = located_count = fingerprint_count = 0.0
    # Distances are sorted, as the attack does not rely on knowing to which output each distance belongs.
    table = np.sort(data.to_outputs, axis=1) if data.cost.size <= TABLED_ENTRIES else None
    # An output at distance 0 identifies a record only if the outputs are the records.
    outputs_are_records = data.outputs is data.records
    for client in clients:
        package, records = client.package, client.around.records
        names_all = outputs_are_records and bool((_rows_by_zeros(package) == records[client.order]).all())
        named_count += names_all
        # The user is in the centre of its LR set, because the set contains only records within the radius of the user.
        centre = _graph_centre(package, options.radius, data.within)
        is_in_centre = int(np.flatnonzero(client.order == client.around.user_row)[0]) in centre.tolist()
        centred_count += is_in_centre and len(centre) == 1
        located_count += is_in_centre / len(centre) if names_all and len(centre) else 0.0
        if table is not None:
            # Pick a random row of the package. Its sorted distances show which records it may belong to.
            row = int(chance.integers(len(records)))
            candidates = _records_like(package.reach[row], table)
            # A guess among n equally good candidates is right with probability 1 / n.
            fingerprint_count += records[client.order[row]] in candidates and 1.0 / len(candidates)
    count = len(clients)
    return {
        "zero_columns_name_the_set": named_count / count,
        "unique_graph_centre": centred_count / count,
        "user_located": located_count / count,
        "fingerprint_of_one_row": None if table is None else fingerprint_count / count,
    }


def _rows_by_zeros(package: Package) -> Ints:
    """Return the index of an output at distance 0 for each of the n rows, or -1 if there is none.

    If the outputs are the records, this output is the row's record.
    """
    zero = package.reach == 0
    return np.where(zero.any(axis=1), zero.argmax(axis=1), -1)


def _graph_centre(package: Package, radius: float, within: float | None) -> Ints:
    """Return the indices of the rows whose records are within path distance ``radius`` of all others in a package.

    A package contains the records within that distance of the user, so the user's row is always among them. If it is
    the only one, the server has located the user.

    Args:
        package: The upload to attack.
        radius: Gamma, in the problem's unit of distance.
        within: The largest distance between the records of a required pair, or None if all pairs are required.
    """
    from scipy.sparse.csgraph import dijkstra

    i, j = np.triu_indices(len(package.distances), 1)
    lengths = package.distances[i, j]
    is_required = np.isfinite(lengths) if within is None else lengths <= within
    graph = edge_matrix(len(package.distances), np.column_stack([i, j])[is_required], lengths[is_required])
    distances = dijkstra(graph, directed=False)
    return np.flatnonzero((distances <= radius * (1 + DISTANCE_TOLERANCE)).all(axis=1))


def _records_like(row: Floats, table: Floats) -> Ints:
    """Return the indices of the records whose distances to the outputs match a row of unlabelled distances.

    Args:
        row: (K,) The distances in any order.
        table: (N, K) The distances from each record to the outputs, sorted in each row.
    """
    sorted_row = np.sort(row)
    errors = np.abs(table - sorted_row).max(axis=1)
    return np.flatnonzero(errors <= DISTANCE_TOLERANCE * max(1.0, float(sorted_row[-1])))
