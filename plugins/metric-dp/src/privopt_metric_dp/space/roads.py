"""Roads: shortest paths between places, as a metric and as travel to targets.

Shortest paths come from scipy.sparse.csgraph: all of rome99 (3,353 nodes) in 4.7 s, Rome's 1,331 cells in
0.9 s; networkx needs 141 s and 38 s, a compiled search with Python's heap twice scipy's time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats, Ints, no_doubles, slices
from privopt.declare.schema import File
from privopt.declare.tables import road_table
from privopt.errors import Fault, Faults, InputError
from privopt.execution.clock import check
from privopt.numbers.graphs import edge_matrix, shortest_rows
from privopt_metric_dp.space.exactly import Ways, decimal_of

__all__ = ["Roads", "read_roads"]

_BLOCK = 1 << 20  # lengths held at once; an end of time is looked for between blocks
_EDGE_TOLERANCE = 1e-9  # relative error that snapping may cause in any edge


class Roads:
    """A road network: nodes named by text, edges with lengths in km.

    >>> roads = Roads(["a", "b", "a"], ["b", "c", "c"], [1.0, 2.0, 4.0])
    >>> roads.travel(["a"], ["c", "b"]).tolist()
    [[3.0, 1.0]]

    Undirected lengths are cut down to a common grid, the finest on which every path's length is a double
    (2^-46 km for a city: 0.01 nm), unless that would change an edge by more than 1e-9. Sums along paths
    are then exact: they do not depend on the end one starts from nor on the order, and the pairs
    between neighbouring records imply all others to the last bit. Cutting down errs to privacy; where it would change
    too much, what rounding can have added to a sum is taken off it (`RoadMetric`).

    Args:
        tails, heads: (E,) node ids.
        km: (E,) lengths, finite and at least 0. Of parallel edges the shortest counts.
        directed: whether edges lead from tail to head only.
        source: name of the file that faults are reported against.
        short: whether roads may be longer than these lengths, each by less than one unit in the last place: decimals
            that were rounded down.
        written: (E,) doubles nearest to the decimals meant, and (E,) what these omit of them.
        decimals: (E,) these decimals as texts.

    Attributes:
        nodes: ids, in the order in which they first occur in tails, then heads.
        exact: whether sums along paths are exact.
        stretch: by what factor, at most, paths of the lengths meant are longer than those cut down.

    Raises:
        InputError: arrays of different lengths, no edge at all, or lengths that will not do, by row.
    """

    def __init__(
        self,
        tails: Sequence[Any] | npt.NDArray[Any],
        heads: Sequence[Any] | npt.NDArray[Any],
        km: npt.ArrayLike,
        *,
        directed: bool = False,
        source: str = "edges",
        short: bool = False,
        written: tuple[Floats, Floats] | None = None,
        decimals: npt.NDArray[np.str_] | None = None,
    ) -> None:
        lengths = np.asarray(km, dtype=np.float64).reshape(-1)
        if not len(tails) == len(heads) == len(lengths) or not len(lengths):
            actual = f"{len(tails)} tails, {len(heads)} heads and {len(lengths)} lengths"
            raise InputError([Fault(source, "", actual, "as many of each, at least one")])
        invalid_rows = np.flatnonzero(~(np.isfinite(lengths) & (lengths >= 0)) | no_doubles(np.asarray(km)).reshape(-1))
        faults = Faults()
        expectation = "a finite double of km, at least 0"
        faults.add_rows(source, "km", invalid_rows.tolist(), lambda row: float(lengths[row]), expectation)
        faults.check()
        number: dict[str, int] = {}
        end_numbers = [number.setdefault(str(name), len(number)) for names in (tails, heads) for name in names]
        self.nodes = tuple(number)
        self.directed = directed
        self.source = source
        self._number = number
        end_array = np.array(end_numbers, dtype=np.int64).reshape(2, -1)
        self._ends = end_array
        self._graph, self.exact, stretch = _graph(end_array.T, lengths, len(number), directed)
        self.stretch = stretch * (1.0 + 2.0**-50) if short else stretch
        self._written, self._decimals = written, decimals

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def ends(self) -> Ints:
        """(E, 2) numbers of the nodes at both ends of each edge."""
        return self._ends.T

    @cached_property
    def counted(self) -> tuple[Roads, Fraction] | None:
        """These roads in whole numbers of a unit (in km), with exact sums; None where their lengths have no such unit.

        Lengths meant differ from them by less than 2^-100 of themselves, which decimals of 30 digits do not.
        """
        counts = None if self._written is None else _count_units(*self._written)
        if counts is None:
            return None
        tails, heads = ([self.nodes[node] for node in nodes] for nodes in self._ends.tolist())
        return Roads(tails, heads, counts[0], directed=self.directed, source=self.source), counts[1]

    @cached_property
    def meant(self) -> Ways | None:
        """Find undirected ways over the decimals meant, exactly; None where these are not known, or too long."""
        streets = self.streets
        return None if streets is None else Ways(streets, len(self))

    @property
    def streets(self) -> list[tuple[int, int, Fraction]] | None:
        """Nodes and lengths of undirected roads, by the decimals meant; None where these are not known, or too long."""
        lengths = [] if self._decimals is None else [decimal_of(text) for text in self._decimals.tolist()]
        decimals = [length for length in lengths if length is not None]
        if self.directed or len(decimals) < self._ends.shape[1]:
            return None
        return [(a, b, length) for (a, b), length in zip(self._ends.T.tolist(), decimals, strict=True)]

    @property
    def doubt(self) -> float:
        """Part of itself by which a way may be longer or shorter than the one meant."""
        rounding = 0.0 if self.exact else (len(self) + 2.0) * 2.0**-52
        return (self.stretch - 1.0 + rounding) * (1.0 + 2.0**-20)

    def positions(self, ids: Sequence[Any] | npt.NDArray[Any], *, source: str = "records") -> Ints:
        """Return node numbers of ids.

        Raises:
            InputError: ids that no edge names, one fault each, against `source`.
        """
        positions = [self._number.get(str(name), -1) for name in ids]
        unknown_ids = [str(name) for name, position in zip(ids, positions, strict=True) if position < 0]
        expectation = f"the id of a node in {self.source}"
        Faults(Fault(source, f"id {name!r}", "no such node", expectation) for name in unknown_ids).check()
        return np.array(positions, dtype=np.int64)

    def lengths(
        self, starts: Ints, *, limit: float = math.inf, backwards: bool = False
    ) -> Iterator[tuple[slice, Floats]]:
        """Yield shortest-path lengths from nodes to every node, by blocks of starts.

        Args:
            starts: (S,) node numbers.
            limit: longer paths are not looked for.
            backwards: go against the edges: lengths from every node to the starts.

        Yields:
            The block's part of `starts`, and (B, nodes) km, infinite without a path.

        Raises:
            StoppedError: the end of the time limit has come.
        """
        yield from _search_in_blocks(self._reversed if backwards and self.directed else self._graph, starts, limit)

    def travel(
        self,
        ids: Sequence[Any] | npt.NDArray[Any],
        targets: Sequence[Any] | npt.NDArray[Any],
        *,
        sources: str = "records",
        targets_source: str = "utility.targets",
    ) -> Floats:
        """Return (N, T) km from each id to each target along the roads (one-way ones if directed).

        Args:
            ids, targets: names of nodes.
            sources, targets_source: what unknown ids are reported against.

        Raises:
            InputError: ids that are not nodes. Targets out of reach are infinite.
        """
        starts, stops = self.positions(ids, source=sources), self.positions(targets, source=targets_source)
        return self.table(starts, stops, from_ends=True)

    def table(self, starts: Ints, stops: Ints, *, from_ends: bool = False) -> Floats:
        """Return (S, E) km from nodes to nodes, from the ends if asked; from the fewer where both give the same."""
        result = np.empty((len(starts), len(stops)))
        if (len(stops) < len(starts)) if self.exact else from_ends:
            for part, block in self.lengths(stops, backwards=True):
                result[:, part] = block[:, starts].T
        else:
            for part, block in self.lengths(starts):
                result[part] = block[:, stops]
        return result

    def between_records(self, places: Ints, limit: float) -> tuple[Ints, Floats]:
        """Return pairs i < j of places joined by a path through no third place, in order, and the least length of such.

        Roads between two places are such paths; others are looked for from places next to nodes that are none.
        """
        from scipy.sparse import csr_array

        direct, branching = self._direct_roads(places)
        if not branching.size:
            is_near = direct[1] <= limit
            return direct[0][is_near], direct[1][is_near]
        size, graph = len(self) + len(places), self._graph
        end_of = np.arange(len(self))
        end_of[places] = np.arange(len(self), size)  # a way into a place ends there
        starts = np.concatenate([graph.indptr, np.full(len(places), graph.indptr[-1])])
        cut = csr_array((graph.data, end_of[graph.indices], starts), shape=(size, size))
        pairs, lengths = [direct[0]], [direct[1]]
        for part, block in _search_in_blocks(cut, places[branching], limit):
            row, j = np.nonzero(np.isfinite(block[:, len(self) :]))
            i = branching[part][row]
            later = j > i
            pairs.append(np.column_stack([i, j])[later])
            lengths.append(block[row, len(self) + j][later])
        end_of, path_lengths = np.concatenate(pairs), np.concatenate(lengths)
        shortest = shortest_rows(end_of, path_lengths)
        shortest = shortest[path_lengths[shortest] <= limit]
        return end_of[shortest], path_lengths[shortest]

    def _direct_roads(self, places: Ints) -> tuple[tuple[Ints, Floats], Ints]:
        """Roads between two places, as pairs i < j in order and lengths; and the places with a road to another node."""
        graph, number = self._graph, np.full(len(self), -1)
        number[places] = np.arange(len(places))
        tails, heads = number[np.repeat(np.arange(len(self)), np.diff(graph.indptr))], number[graph.indices]
        pairs = np.column_stack([tails, heads])
        selected = np.flatnonzero((tails >= 0) & (heads > tails))
        selected = selected[np.lexsort((heads[selected], tails[selected]))]
        return (pairs[selected], graph.data[selected]), np.unique(tails[(tails >= 0) & (heads < 0)])

    @cached_property
    def _reversed(self) -> Any:
        return self._graph.T.tocsr()


def read_roads(edges: File, *, directed: bool) -> Roads:
    """Return the roads of a CSV file with columns from, to, km.

    Raises:
        InputError: a file that will not do, by row and column.
    """
    table = road_table(edges)
    return Roads(
        table["from"],
        table["to"],
        table["km"],
        directed=directed,
        source=edges.name,
        short=bool(table["km rest"].any()),
        written=(table["km nearest"], table["km rest"]),
        decimals=table["km written"],
    )


def _count_units(km: Floats, residuals: Floats) -> tuple[Floats, Fraction] | None:
    """Lengths in whole numbers of the greatest power of ten that divides them all, where their sum stays below 2^50."""
    for digits in range(16):
        counts = np.rint(km * 10.0**digits)
        if not counts.sum() < 2.0**50:
            return None
        if (np.abs(km * 10.0**digits - counts) > 2.0**-51 * counts).any():
            continue
        unit = Fraction(1, 10**digits)
        remainders = [float(int(w) * unit - Fraction(x)) for w, x in zip(counts.tolist(), km.tolist(), strict=True)]
        if remainders == residuals.tolist():
            return counts, unit
    return None


def _search_in_blocks(graph: Any, starts: Ints, limit: float) -> Iterator[tuple[slice, Floats]]:
    """Shortest paths in a sparse matrix, see :meth:`Roads.lengths`."""
    from scipy.sparse.csgraph import dijkstra

    for part in slices(len(starts), graph.shape[0], _BLOCK):
        check()
        yield part, dijkstra(graph, directed=True, indices=starts[part], limit=limit)


def _graph(edges: Ints, lengths: Floats, n: int, directed: bool) -> tuple[Any, bool, float]:
    """Return the shortest of parallel edges as a sparse matrix, whether its path lengths are exact, and the stretch."""
    graph = edge_matrix(n, edges, lengths, both=not directed)
    if directed:
        return graph, False, 1.0
    grid = _grid(graph)
    positive = graph.data[graph.data > 0]
    if positive.size and not positive.min() * _EDGE_TOLERANCE >= grid:
        return graph, False, 1.0
    cut = np.floor(graph.data / grid) * grid
    stretch = float((graph.data[cut > 0] / cut[cut > 0]).max(initial=1.0))
    graph.data = cut
    return graph, True, stretch if stretch == 1.0 else stretch * (1.0 + 2.0**-51)


def _grid(graph: Any) -> float:
    """Return the least power of two such that all path lengths, as its multiples, stay below 2^53 of them."""
    from scipy.sparse.csgraph import connected_components, dijkstra

    labels = connected_components(graph, directed=False)[1]
    centres = np.unique(labels, return_index=True)[1]
    reach = dijkstra(graph, directed=True, indices=centres, min_only=True)
    longest = 2.0 * float(reach.max()) * (1.0 + 1e-6)
    return max(math.ldexp(1.0, math.frexp(longest)[1] - 53), 2.0**-1074)
