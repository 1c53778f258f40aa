"""The four kinds of data of the paper (section 4.1): grid maps, road nodes, words, Gaussian points."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np
from attrs import evolve, frozen
from numpy.typing import NDArray

from bd_mdp_paper.data import Graph, read_nodes
from privopt.errors import UsageError
from privopt_metric_dp.solvers.instance import Instance

__all__ = ["Source", "gaussian", "grid", "nodes", "radius_for", "roads", "words"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

DEGREE: Final = 8
"""Mean number of neighbours that the radius of points without a natural one is set for, at least."""

DESTINATIONS: Final = 100
"""Random places that travel costs are compared at (supplement D.1)."""


@frozen(kw_only=True, eq=False)
class Source:
    """Records that instances are made of.

    Attributes:
        name: kind of data.
        distances: (N, N) d, in the kind's own unit.
        within: eta: pairs up to this distance are required.
        travel: (N, N) path distances for the loss of Equation (48); None: the loss is the distance itself.
        coordinates: (N, dim).
    """

    name: str
    distances: Floats
    within: float
    travel: Floats | None = None
    coordinates: Floats | None = None

    @property
    def degree(self) -> float:
        """Mean number of neighbours of a record."""
        return float((self.distances <= self.within).sum() / len(self.distances) - 1)

    def loss(self, outputs: Ints, seed: int = 0) -> Floats:
        """(N, K) loss of each output: Equation (48) over random destinations, or the distance."""
        if self.travel is None:
            return self.distances[:, outputs]
        n = len(self.travel)
        destinations = np.random.default_rng([seed, 48]).integers(0, n, DESTINATIONS)
        to = self.travel[:, destinations]
        loss = np.zeros((n, len(outputs)))
        for column in to.T:
            loss += np.abs(column[:, None] - column[None, outputs])
        return loss / DESTINATIONS

    def instance(self, epsilon: float, outputs: int | None = None, seed: int = 0) -> Instance:
        """Return an instance with a uniform prior; required pairs that others imply are left out.

        Args:
            epsilon: per unit of distance.
            outputs: so many of the records, drawn at random; default: all of them.
            seed: of outputs and destinations.
        """
        n = len(self.distances)
        output_numbers = np.arange(n)
        if outputs is not None and outputs < n:
            output_numbers = np.sort(np.random.default_rng([seed, 1]).choice(n, outputs, replace=False))
        pairs = self.pairs()
        return Instance(
            cost=self.loss(output_numbers, seed) / n,
            pairs=pairs,
            distances=self.distances[pairs[:, 0], pairs[:, 1]],
            epsilon=epsilon,
            coordinates=self.coordinates,
        )

    def pairs(self, *, reduced: bool = True, slack: float = 0.0) -> Ints:
        """(P, 2) required pairs; where reduced, without those that others imply up to a relative ``slack``.

        Sums of road lengths often exceed the distance by the last bit: counts of pairs need a slack.
        """
        from privopt_metric_dp.space.pairs import reduce_pairs

        i, j = np.nonzero(np.triu(self.distances <= self.within, 1))
        pairs = np.column_stack([i, j]).astype(np.int64)
        return pairs[reduce_pairs(pairs, self.distances[i, j], slack=slack)] if reduced else pairs


def _table(points: Floats) -> Floats:
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(points, points), dtype=np.float64)


def radius_for(distances: Floats, degree: float = DEGREE) -> float:
    """Return the least distance within which records have ``degree`` neighbours in the mean, at least."""
    sorted_distances = np.sort(distances[np.triu_indices(len(distances), 1)])
    return float(sorted_distances[min(len(sorted_distances), int(np.ceil(degree * len(distances) / 2))) - 1])


def grid(rows: int, cols: int, cell_km: float = 1.0) -> Source:
    """Return a grid, pairs within 2 km; travel along the eight neighbours. Paper: 1 km, its authors' code: 1.5."""
    places = np.array([(r, c) for r in range(rows) for c in range(cols)], dtype=np.float64) * cell_km
    table = _table(places)
    i, j = np.nonzero(np.triu(table < 1.5 * cell_km, 1))
    graph = Graph(edges=np.column_stack([i, j]), lengths=table[i, j], count=len(places))
    name = "grid" if cell_km == 1.0 else f"grid-{cell_km:g}"
    return Source(name=name, distances=table, within=2.0, travel=graph.paths(), coordinates=places[:, ::-1].copy())


def gaussian(records: int, seed: int = 0, dimensions: int = 3) -> Source:
    """Points of a standard normal distribution; the radius is set for a mean degree."""
    points = np.random.default_rng(seed).normal(size=(records, dimensions))
    table = _table(points)
    return Source(name="synthetic", distances=table, within=radius_for(table), coordinates=points)


def roads(
    graph: Graph,
    records: int,
    seed: int = 0,
    within: float | None = 2.0,
    *,
    crossings: bool = False,
    name: str = "road",
) -> Source:
    """Return the nodes nearest to a centre, at their shortest paths over the whole graph; so is the travel.

    The centre is the graph's own (of the largest component) for seed 0, else a node of it drawn at random.

    Args:
        graph: the roads.
        records: how many nodes.
        seed: of the centre.
        within: eta in km; None: set for a mean degree.
        crossings: only nodes where three edges meet or more become records.
        name: of the kind.

    Raises:
        UsageError: the largest component has fewer.
    """
    degree = np.bincount(graph.edges.ravel(), minlength=graph.count)
    fit = degree >= 3 if crossings else np.ones(graph.count, dtype=np.bool_)
    rng = np.random.default_rng(0)
    sampled_nodes = rng.choice(graph.count, min(graph.count, 64), replace=False)
    reach = graph.paths(sampled_nodes)
    main = int(np.isfinite(reach).sum(axis=1).argmax())
    inside_nodes = np.flatnonzero(np.isfinite(reach[main]) & fit)
    if len(inside_nodes) < records:
        raise UsageError(f"the largest component has {len(inside_nodes)} such nodes; expected {records}")
    connected_reach = reach[np.isfinite(reach[:, inside_nodes[0]])]
    centre = int(inside_nodes[connected_reach[:, inside_nodes].max(axis=0).argmin()])
    if seed:
        centre = int(np.random.default_rng(seed).choice(inside_nodes))
    nearest_nodes = np.sort(np.argsort(np.where(fit, graph.paths(centre), np.inf), kind="stable")[:records])
    table = graph.paths(nearest_nodes)[:, nearest_nodes]
    table = np.minimum(table, table.T)
    return Source(
        name=name,
        distances=table,
        within=radius_for(table) if within is None else within,
        travel=table,
        coordinates=None if graph.coordinates is None else graph.coordinates[nearest_nodes],
    )


def nodes(file: Path, records: int | None = None, neighbours: int = 8, within: float = 2.0) -> Source:
    """Places of a file with columns lon and lat (the authors' ``rome500.csv``), at haversine distances.

    The roads between them are not published. Travel goes along a stand-in: the graph of the ``neighbours`` nearest
    of each, its components joined by their shortest links.
    """
    from privopt.numbers.distances import haversine

    points = read_nodes(file)[:records]
    table = haversine(points[:, None, ::-1], points[None, :, ::-1])
    table = np.minimum(table, table.T)
    np.fill_diagonal(table, 0.0)
    nearest_places = np.argsort(table, axis=1, kind="stable")[:, 1 : neighbours + 1]
    edge_set = {(min(a, b), max(a, b)) for a, row in enumerate(nearest_places.tolist()) for b in row}
    edges = np.array(sorted(edge_set), dtype=np.int64)
    graph = Graph(edges=edges, lengths=np.maximum(table[edges[:, 0], edges[:, 1]], 1e-6), count=len(points))
    travel = graph.paths()
    while not np.isfinite(travel).all():
        separate_distances = np.where(np.isfinite(travel), np.inf, table)
        link = np.array(np.unravel_index(separate_distances.argmin(), separate_distances.shape), dtype=np.int64)
        graph = evolve(
            graph, edges=np.vstack([graph.edges, link]), lengths=np.append(graph.lengths, separate_distances.min())
        )
        travel = graph.paths()
    return Source(name="rome500", distances=table, within=within, travel=travel, coordinates=points)


def words(vectors: Floats, records: int | None = None, seed: int = 0) -> Source:
    """Words at the Euclidean distances of their vectors; the radius is set for a mean degree.

    The first ``records`` of them for seed 0, else a random choice.
    """
    count = len(vectors) if records is None else min(records, len(vectors))
    word_numbers = np.arange(count)
    if seed:
        word_numbers = np.sort(np.random.default_rng(seed).choice(len(vectors), count, replace=False))
    table = _table(vectors[word_numbers])
    return Source(name="text", distances=table, within=radius_for(table), coordinates=vectors[word_numbers])
