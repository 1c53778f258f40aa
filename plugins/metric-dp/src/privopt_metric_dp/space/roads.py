"""Road networks: shortest paths between places, and travel distances to targets.

Shortest paths are computed with scipy.sparse.csgraph. SciPy takes 4.7 s for all paths between the 3,353 nodes of the
rome99 network, and 0.9 s for all paths between the 1,331 cells of Rome. networkx takes 141 s and 38 s, respectively,
and a compiled search with Python's heap takes twice as long as SciPy.
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
from privopt.declare.tables import MAX_ROAD_KM, road_table
from privopt.errors import Fault, Faults, InputError
from privopt.execution.clock import check
from privopt.numbers.graphs import edge_matrix, shortest_rows
from privopt_metric_dp.space.exactly import Ways, decimal_of

__all__ = ["Roads", "read_roads"]

_BLOCK = 1 << 20  # lengths in memory at once; the time limit is checked between blocks
_EDGE_TOLERANCE = 1e-9  # largest relative change in an edge's length when it is rounded to the grid


class Roads:
    """A road network: nodes with string ids, and edges with lengths in km.

    >>> roads = Roads(["a", "b", "a"], ["b", "c", "c"], [1.0, 2.0, 4.0])
    >>> roads.travel(["a"], ["c", "b"]).tolist()
    [[3.0, 1.0]]

    The lengths of undirected edges are rounded down to multiples of a common unit, chosen so that the length of every
    shortest path can be represented exactly as a double. For a city, the unit is 2^-46 km, or 0.01 nm. Sums along
    shortest paths are then exact regardless of the order of summation, and the privacy constraints on
    neighbouring pairs of records imply the constraints on all other pairs without any rounding error. Rounding down
    errs on the side of privacy. If it would change any length by a relative amount of more than 1e-9, no lengths are
    rounded, and :class:`RoadMetric` subtracts a bound on the rounding errors from each sum instead.

    The declared length of an edge is the decimal number given in the file.

    Args:
        tails, heads: The ids of each edge's two nodes, in two sequences of length E.
        km: Array of shape (E,) with the lengths, from 0 to 1e150 km. If several edges connect two nodes, the shortest
            one is used.
        directed: Whether edges can be followed only from tail to head.
        source: The name of the file, for error messages.
        short: Whether ``km`` contains the declared lengths rounded down to doubles. A declared length may then exceed
            the given length by less than one unit in the last place.
        written: The declared lengths to higher precision, as two arrays of shape (E,): the doubles nearest to the
            decimals in the file, and the doubles nearest to the differences between those decimals and the first array.
        decimals: Array of shape (E,) with the declared lengths as strings.

    Attributes:
        nodes: The ids of the nodes, in the order of their first occurrence in tails, then heads.
        exact: Whether sums of lengths along shortest paths are exact.
        stretch: An upper bound on the ratio between a path's declared length and its length after rounding down.
        _graph: A CSR matrix of shape (n, n) with the edge lengths in km.
        _ends: Array of shape (2, E) with the node indices of the edges' tails and heads.
        _number: The index of each node, keyed by id.

    Raises:
        InputError: The arrays differ in length, there are no edges, or a length is not between 0 and 1e150 km. The
            message names the first edges with an invalid length.
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
        """Check the lengths, number the nodes and build the graph.

        Args:
            tails, heads: The ids of each edge's two nodes, in two sequences of length E.
            km: Array of shape (E,) with the lengths in km.
            directed: Whether edges lead from tail to head only.
            source: The name of the file, for error messages.
            short, written, decimals: How the lengths relate to the declared decimals. See :class:`Roads`.
        """
        lengths = np.asarray(km, dtype=np.float64).reshape(-1)
        if not len(tails) == len(heads) == len(lengths) or not len(lengths):
            actual = f"{len(tails)} tails, {len(heads)} heads and {len(lengths)} lengths"
            raise InputError([Fault(source, "", actual, "as many of each, at least one")])
        # `no_doubles` marks integers that were rounded when they were converted to doubles.
        is_valid = (lengths >= 0) & (lengths <= MAX_ROAD_KM)
        invalid_rows = np.flatnonzero(~is_valid | no_doubles(np.asarray(km)).reshape(-1))
        faults = Faults()
        expectation = f"a finite double of km, at least 0 and at most {MAX_ROAD_KM:g}"
        faults.add_rows(source, "km", invalid_rows.tolist(), lambda row: float(lengths[row]), expectation)
        faults.check()
        # Nodes are numbered in the order of their first occurrence, tails before heads.
        number: dict[str, int] = {}
        end_numbers = [number.setdefault(str(name), len(number)) for names in (tails, heads) for name in names]
        self.nodes = tuple(number)
        self.directed = directed
        self.source = source
        self._number = number
        end_array = np.array(end_numbers, dtype=np.int64).reshape(2, -1)
        self._ends = end_array
        self._graph, self.exact, stretch = _build_graph(end_array.T, lengths, len(number), directed)
        # A double below the declared decimal shortens the road by less than one unit in the last place.
        self.stretch = stretch * (1.0 + 2.0**-50) if short else stretch
        self._written, self._decimals = written, decimals

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def edge_nodes(self) -> Ints:
        """The indices of the nodes at the two ends of each edge, as an array of shape (E, 2)."""
        return self._ends.T

    @cached_property
    def integer_roads(self) -> tuple[Roads, Fraction] | None:
        """The same roads with lengths that are integer multiples of a unit, and this unit in km.

        The value is None if the declared lengths are unknown or have no suitable common unit.

        Sums of the integers along paths are exact. However, each declared length is known only as a sum of two doubles.
        The product of an integer and the unit may therefore differ from the declared length by a relative error of up
        to 2^-100.
        """
        counts = None if self._written is None else _count_units(*self._written)
        if counts is None:
            return None
        tails, heads = ([self.nodes[node] for node in nodes] for nodes in self._ends.tolist())
        return Roads(tails, heads, counts[0], directed=self.directed, source=self.source), counts[1]

    @cached_property
    def meant(self) -> Ways | None:
        """A solver that computes exact shortest paths for the declared lengths.

        The value is None if :attr:`streets` is None.
        """
        streets = self.streets
        return None if streets is None else Ways(streets, len(self))

    @property
    def streets(self) -> list[tuple[int, int, Fraction]] | None:
        """The roads as triples of two node indices and the exact declared length in km.

        The value is None if the roads are directed, if the declared decimals are unknown, or if one of them has too
        many digits.
        """
        # decimal_of() returns None for a decimal that is too long. Fewer decimals than roads are then left below.
        lengths = [] if self._decimals is None else [decimal_of(text) for text in self._decimals.tolist()]
        decimals = [length for length in lengths if length is not None]
        if self.directed or len(decimals) < self._ends.shape[1]:
            return None
        return [(a, b, length) for (a, b), length in zip(self._ends.T.tolist(), decimals, strict=True)]

    @property
    def doubt(self) -> float:
        """An upper bound on the relative difference between a computed path length and the sum of declared lengths."""
        # A path has fewer edges than there are nodes, and each addition has a relative error of at most 2^-53. Twice
        # that and the last factor leave a margin.
        rounding = 0.0 if self.exact else (len(self) + 2.0) * 2.0**-52
        return (self.stretch - 1.0 + rounding) * (1.0 + 2.0**-20)

    def positions(self, ids: Sequence[Any] | npt.NDArray[Any], *, source: str = "records") -> Ints:
        """Return the node index of each given id, as an array of shape (M,).

        Args:
            ids: The ids of M nodes.
            source: The name of the file that contains the ids, for error messages.

        Raises:
            InputError: Some ids do not belong to any node. The message names the first of them.
        """
        positions = [self._number.get(str(name), -1) for name in ids]
        unknown_ids = [str(name) for name, position in zip(ids, positions, strict=True) if position < 0]
        expectation = f"the id of a node in {self.source}"
        Faults(Fault(source, f"id {name!r}", "no such node", expectation) for name in unknown_ids).check()
        return np.array(positions, dtype=np.int64)

    def lengths(
        self, starts: Ints, *, limit: float = math.inf, backwards: bool = False
    ) -> Iterator[tuple[slice, Floats]]:
        """Yield the lengths of the shortest paths from the given nodes to all nodes, one block of nodes at a time.

        Args:
            starts: Array of shape (S,) with the indices of the starting nodes.
            limit: The path length in km beyond which the search stops.
            backwards: Whether to follow edges from head to tail, which yields the lengths of the paths from all nodes
                to the starting nodes.

        Yields:
            For each block of B starting nodes, the slice of ``starts`` that it covers, and an array of shape (B, n)
            with the lengths in km. A length is infinite if there is no path within the limit.

        Raises:
            StoppedError: The time limit has expired.
        """
        yield from _search_in_blocks(self._reverse_graph if backwards and self.directed else self._graph, starts, limit)

    def travel(
        self,
        ids: Sequence[Any] | npt.NDArray[Any],
        targets: Sequence[Any] | npt.NDArray[Any],
        *,
        sources: str = "records",
        targets_source: str = "utility.targets",
    ) -> Floats:
        """Return the shortest-path lengths from each of the given nodes to each target.

        On directed roads, paths follow the direction of each road.

        Args:
            ids, targets: The ids of the N starting nodes and of the T targets.
            sources, targets_source: The names of the files that contain the ids and the targets, for error messages.

        Returns:
            Array of shape (N, T) with the lengths in km. A length is infinite if the target cannot be reached.

        Raises:
            InputError: An id is not a node.
        """
        starts, stops = self.positions(ids, source=sources), self.positions(targets, source=targets_source)
        return self.table(starts, stops, from_ends=True)

    def table(self, starts: Ints, stops: Ints, *, from_ends: bool = False) -> Floats:
        """Return the shortest-path lengths in km from S starting nodes to E end nodes, as an array of shape (S, E).

        A length is infinite if no path leads to the end node.

        Args:
            starts, stops: Arrays of shape (S,) and (E,) with the indices of the starting nodes and of the end nodes.
            from_ends: Whether to search backwards from the end nodes. If sums along paths are exact, this is ignored
                and the faster direction is used.
        """
        result = np.empty((len(starts), len(stops)))
        # Exact sums do not depend on the direction, so the search begins on the side with fewer nodes. Rounded sums may
        # depend on the direction, so the caller decides.
        if (len(stops) < len(starts)) if self.exact else from_ends:
            for part, block in self.lengths(stops, backwards=True):
                result[:, part] = block[:, starts].T
        else:
            for part, block in self.lengths(starts):
                result[part] = block[:, stops]
        return result

    def between_records(self, places: Ints, limit: float) -> tuple[Ints, Floats]:
        """Find all pairs of places connected by a direct path, and the length of the shortest such path for each pair.

        A path is direct if it does not pass through a third place.

        Args:
            places: Array of shape (N,) with distinct node indices.
            limit: The largest path length in km. Longer paths are ignored.

        Returns:
            An array of shape (P, 2) with the pairs i < j of indices into ``places``, in lexicographic order, and an
            array of shape (P,) with the lengths in km.
        """
        from scipy.sparse import csr_array

        direct, branching = self._direct_roads(places)
        if not branching.size:
            is_near = direct[1] <= limit
            return direct[0][is_near], direct[1][is_near]
        # Each place gets a copy without outgoing edges, and every edge into the place is redirected to the copy. A path
        # therefore ends at the first place that it reaches. Searches start only at places adjacent to other nodes,
        # because all other places have only direct roads.
        size, graph = len(self) + len(places), self._graph
        end_of = np.arange(len(self))
        end_of[places] = np.arange(len(self), size)
        starts = np.concatenate([graph.indptr, np.full(len(places), graph.indptr[-1])])
        redirected = csr_array((graph.data, end_of[graph.indices], starts), shape=(size, size))
        pairs, lengths = [direct[0]], [direct[1]]
        for part, block in _search_in_blocks(redirected, places[branching], limit):
            # The columns after the first n belong to the copies. A finite length shows that the copy is the end of a
            # path.
            row, j = np.nonzero(np.isfinite(block[:, len(self) :]))
            i = branching[part][row]
            later = j > i
            pairs.append(np.column_stack([i, j])[later])
            lengths.append(block[row, len(self) + j][later])
        joined, path_lengths = np.concatenate(pairs), np.concatenate(lengths)
        # A pair may be connected both by a direct road and by paths over other nodes. The shortest of these is used.
        shortest = shortest_rows(joined, path_lengths)
        shortest = shortest[path_lengths[shortest] <= limit]
        return joined[shortest], path_lengths[shortest]

    def _direct_roads(self, places: Ints) -> tuple[tuple[Ints, Floats], Ints]:
        """Return the roads that connect two places, and the places with roads to other nodes.

        Args:
            places: Array of shape (N,) with distinct node indices.

        Returns:
            First, the roads that connect two places, as an array of shape (P, 2) with the pairs i < j of indices into
            ``places``, in lexicographic order, and an array of shape (P,) with the lengths in km. Second, a sorted
            array with the indices into ``places`` of the places with a road to a node that is not a place.
        """
        graph, number = self._graph, np.full(len(self), -1)
        number[places] = np.arange(len(places))
        # The entries of the CSR matrix, as edges between indices into `places`, with -1 for nodes that are not places.
        tails, heads = number[np.repeat(np.arange(len(self)), np.diff(graph.indptr))], number[graph.indices]
        pairs = np.column_stack([tails, heads])
        selected = np.flatnonzero((tails >= 0) & (heads > tails))
        selected = selected[np.lexsort((heads[selected], tails[selected]))]
        return (pairs[selected], graph.data[selected]), np.unique(tails[(tails >= 0) & (heads < 0)])

    @cached_property
    def _reverse_graph(self) -> Any:
        """The CSR matrix of the graph with all edges reversed, used to find paths leading to given nodes."""
        return self._graph.T.tocsr()


def read_roads(edges: File, *, directed: bool) -> Roads:
    """Read roads from a CSV file with the columns ``from``, ``to`` and ``km``.

    Args:
        edges: The CSV file to read.
        directed: Whether each road can be followed only from ``from`` to ``to``.

    Raises:
        InputError: The file is invalid. The message gives the rows and columns of the first errors.
    """
    table = road_table(edges)
    # "km" is rounded down, "km nearest" is the nearest double, "km rest" is the declared decimal minus the nearest
    # double, and "km written" is the decimal as text.
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
    """Express lengths as integer multiples of a power of ten.

    Args:
        km: Array of shape (E,) with the doubles nearest to the declared lengths.
        residuals: Array of shape (E,) with the doubles nearest to the differences between the declared lengths and
            ``km``.

    Returns:
        An array of shape (E,) with the multiples, as integer-valued doubles, and the unit in km. The unit is the
        largest power of ten that divides all lengths and is at most 1.

        The result is None if no power of ten from 1 down to 1e-15 divides all lengths, or if the multiples sum to 2^50
        or more, in which case sums along paths might not be exact.
    """
    for digits in range(16):
        counts = np.rint(km * 10.0**digits)
        if not counts.sum() < 2.0**50:
            return None
        # If some length is not a multiple of this power of ten, the next smaller power is tried.
        if (np.abs(km * 10.0**digits - counts) > 2.0**-51 * counts).any():
            continue
        unit = Fraction(1, 10**digits)
        # A double alone does not show whether its decimal has more digits. Therefore, the remainder of each decimal
        # must also equal the remainder of the multiple of the unit.
        remainders = [float(int(w) * unit - Fraction(x)) for w, x in zip(counts.tolist(), km.tolist(), strict=True)]
        if remainders == residuals.tolist():
            return counts, unit
    return None


def _search_in_blocks(graph: Any, starts: Ints, limit: float) -> Iterator[tuple[slice, Floats]]:
    """Yield the lengths of the shortest paths from the given nodes to all nodes, in blocks to limit memory use.

    Args:
        graph: A SciPy CSR matrix of shape (n, n) with the edge lengths in km.
        starts: Array of shape (S,) with the indices of the starting nodes.
        limit: The path length in km beyond which the search stops.

    Yields:
        For each block of B starting nodes, the slice of ``starts`` that it covers, and an array of shape (B, n) with
        the lengths in km. A length is infinite if there is no path within the limit.
    """
    from scipy.sparse.csgraph import dijkstra

    for part in slices(len(starts), graph.shape[0], _BLOCK):
        check()
        yield part, dijkstra(graph, directed=True, indices=starts[part], limit=limit)


def _build_graph(edges: Ints, lengths: Floats, n: int, directed: bool) -> tuple[Any, bool, float]:
    """Build the graph of the roads.

    The lengths of undirected roads are rounded down so that their sums along paths are exact. If this could change any
    length by more than the tolerance, no lengths are rounded.

    Args:
        edges: Array of shape (E, 2) with the node indices of each edge.
        lengths: Array of shape (E,) with the lengths in km.
        n: The number of nodes.
        directed: Whether edges can be followed only from the first node to the second.

    Returns:
        A CSR matrix of shape (n, n) with the length of the shortest edge between each pair of adjacent nodes; whether
        sums of its entries are exact; and the stretch, which is an upper bound on the ratio between the original and
        the rounded length of an edge.
    """
    # Directed roads are used only to compute losses, which do not need exact sums.
    graph = edge_matrix(n, edges, lengths, both=not directed)
    if directed:
        return graph, False, 1.0
    grid = _grid_unit(graph)
    # If rounding to the grid could change the shortest edge by more than the tolerance, lengths are not rounded.
    positive = graph.data[graph.data > 0]
    if positive.size and not positive.min() * _EDGE_TOLERANCE >= grid:
        return graph, False, 1.0
    rounded = np.floor(graph.data / grid) * grid
    stretch = float((graph.data[rounded > 0] / rounded[rounded > 0]).max(initial=1.0))
    graph.data = rounded
    # The factor 1 + 2^-51 covers the rounding of the quotient. If no length was changed, the stretch is exactly 1.
    return graph, True, stretch if stretch == 1.0 else stretch * (1.0 + 2.0**-51)


def _grid_unit(graph: Any) -> float:
    """Return a power of two such that every shortest path is shorter than 2^53 times this power.

    If all edge lengths are multiples of the result, their sums along shortest paths are exact doubles. The result is
    not always the smallest suitable power, because it is derived from upper bounds on path lengths.

    Args:
        graph: A symmetric SciPy CSR matrix of shape (n, n) with the edge lengths in km.
    """
    from scipy.sparse.csgraph import connected_components, dijkstra

    labels = connected_components(graph, directed=False)[1]
    # One node of each connected component is its centre. A single search from all centres yields the distance of each
    # node to the centre of its component.
    centres = np.unique(labels, return_index=True)[1]
    to_centre = dijkstra(graph, directed=True, indices=centres, min_only=True)
    # By the triangle inequality, the distance between two nodes in a component is at most twice the largest distance
    # from the centre. The factor 1 + 1e-6 covers the rounding of these sums.
    longest = 2.0 * float(to_centre.max()) * (1.0 + 1e-6)
    # frexp() returns an e with longest < 2^e, so the unit is 2^(e - 53). 2^-1074 is the smallest positive double.
    return max(math.ldexp(1.0, math.frexp(longest)[1] - 53), 2.0**-1074)
