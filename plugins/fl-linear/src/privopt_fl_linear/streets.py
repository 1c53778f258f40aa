"""Distances along streets by searches that end early (`searches`), without a table of pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, doubles, read_only
from privopt.errors import Fault, InputError
from privopt.execution.limits import in_threads
from privopt.numbers.graphs import components, edge_matrix

__all__ = ["Streets"]


@frozen(eq=False, init=False)
class Streets:
    """Shortest paths over undirected edges between nodes; some nodes are the locations. No table of pairs is made.

    >>> import numpy as np
    >>> line = Streets(np.array(["a", "b", "x"]), np.array(["x", "x", "b"]), np.array([1.0, 2.0, 3.0]), ["a", "b"])
    >>> line.between(np.array([0]), np.array([1]))
    array([3.])
    """

    _start: Ints
    _node: Ints
    _length: Floats
    _places: Ints

    def __init__(self, tails: Any, heads: Any, lengths: Any, ids: Any, *, source: str = "edges") -> None:
        """Lay out the network.

        Args:
            tails, heads: (E,) ids of nodes.
            lengths: (E,) finite, >= 0; of parallel edges the shortest counts.
            ids: (n,) of the locations, nodes all.
            source: name of the edges' file, for faults.

        Raises:
            InputError: a location that is not a node, or that no way joins to the others.
        """
        names, ends = np.unique(np.concatenate([tails, heads]), return_inverse=True)
        pairs = ends.reshape(2, -1).T
        place = np.minimum(np.searchsorted(names, ids), len(names) - 1)
        lost = np.flatnonzero(names[place] != np.asarray(ids))
        wanted = "every location as a node of the network"
        if lost.size:
            faults = [Fault(source, "from, to", f"no node {ids[row]}", wanted) for row in lost[:20].tolist()]
            raise InputError(faults)
        part = components(len(names), pairs)[place]
        apart = np.flatnonzero(part != part[0])
        if apart.size:
            found = f"no way between {ids[0]} and {ids[apart[0]]}, nor to {apart.size - 1} more locations"
            raise InputError([Fault(source, "", found, "a network that joins all locations")])
        graph = edge_matrix(len(names), pairs, lengths, both=True)
        start, node, places = (read_only(np.asarray(a, dtype=np.int64)) for a in (graph.indptr, graph.indices, place))
        self.__attrs_init__(start, node, doubles(graph.data), places)

    @property
    def _graph(self) -> tuple[Ints, Ints, Floats]:
        return self._start, self._node, self._length

    @property
    def size(self) -> int:
        """Number of locations."""
        return len(self._places)

    @property
    def extent(self) -> float:
        """The greatest path length from a location in the middle of a longest path, as two searches find it."""
        everyone, here = np.arange(self.size), np.zeros(self.size, dtype=np.int64)
        ends = []
        for _ in range(2):
            ways = self.between(here, everyone)
            here = np.full(self.size, int(np.argmax(ways)))
            ends.append(self.between(here, everyone))
        middle = int(np.argmin(np.maximum(*ends)))
        return float(self.between(np.full(self.size, middle), everyone).max())

    def cheapest(self, facilities: Ints, cost: Floats, rank: Ints) -> Ints:
        """See `Metric.cheapest`; one search from all facilities at once."""
        from privopt_fl_linear import searches

        by = searches.cheapest(*self._graph, self._places[facilities], cost[facilities], rank[facilities])
        chosen: Ints = facilities[by[self._places]]
        return chosen

    def independent(self, candidates: Ints, reach: float) -> Ints:
        """See `Metric.independent`; a search within reach of each that is taken."""
        from privopt_fl_linear import searches

        taken: Ints = candidates[searches.independent(*self._graph, self._places[candidates], reach)]
        return taken

    def balls(self, centres: Ints, rank: Ints, radius: float) -> Ints:
        """See `Metric.balls`."""
        from privopt_fl_linear import searches

        ordered = centres[np.argsort(rank[centres], kind="stable")]
        owner = searches.balls(*self._graph, self._places[ordered], radius)[self._places]
        return np.where(owner >= 0, ordered[np.maximum(owner, 0)], -1)

    def crowded(self, places: Ints, radius: float, wanted: float) -> NDArray[np.bool_]:
        """See `Metric.crowded`; the count stops at ``wanted``."""
        from privopt_fl_linear import searches

        answer: NDArray[np.bool_] = searches.crowded(
            *self._graph, self._places, self._places[places], radius, float(wanted)
        )
        return answer

    def between(self, a: Ints, b: Ints) -> Floats:
        """See `Metric.between`; a search from each location of the side with fewer, until it has met its others."""
        from privopt_fl_linear import searches

        if len(np.unique(a)) > len(np.unique(b)):
            a, b = b, a
        order = np.argsort(a, kind="stable")
        sources, first = np.unique(a[order], return_index=True)
        found = np.empty(len(a))
        bounds = np.append(first, len(a))
        found[order] = searches.between(*self._graph, self._places[sources], bounds, self._places[b[order]])
        return found

    def nearest(self, places: Ints, facilities: Ints, cost: Floats, scale: Floats, count: int) -> tuple[Ints, Floats]:
        """Find facilities as `Metric.nearest` does; a search from each place ends when it has met ``count``."""
        from privopt_fl_linear import searches

        stands = np.full(len(self._start) - 1, -1)
        stands[self._places[facilities]] = np.arange(len(facilities))
        which, value = np.empty((len(places), count), dtype=np.int64), np.empty((len(places), count))
        sources, added = self._places[places], cost[facilities]

        def fill(a: int, b: int) -> None:
            which[a:b], value[a:b] = searches.nearest(*self._graph, sources[a:b], scale[a:b], stands, added, count)

        in_threads(fill, len(places))
        return which, value
