"""Shortest paths along roads, computed in exact arithmetic.

Lengths are integers in units of 2**-256 km unless stated otherwise.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Container, Hashable, Iterable
from fractions import Fraction
from typing import TypeVar

from privopt.checker.exact import BITS, need, rational
from privopt.checker.files import Problem

__all__ = ["Lengths", "Network", "Road", "read_roads", "shortest", "ways"]

Node = TypeVar("Node", bound=Hashable)

Road = tuple[str, str, Fraction]
"""The ids of the two nodes connected by a road, and the road's length in km."""

Lengths = Callable[[str, list[str]], list[int | None]]
"""A function that takes an end node and start nodes, and returns the length of the shortest path from each start.

A length is None if there is no path.
"""


def shortest(
    start: Node,
    neighbours: Callable[[Node], Iterable[tuple[Node, int]]],
    max_length: float = math.inf,
) -> dict[Node, int]:
    """Compute the shortest path lengths from a start node with Dijkstra's algorithm.

    Args:
        start: The start node.
        neighbours: A function that returns a node's neighbours, each with the non-negative length of the edge to it.
        max_length: The maximum path length. Nodes farther away are omitted.

    Returns:
        The length of the shortest path to each reachable node, including the start node itself.
    """
    lengths: dict[Node, int] = {}
    queue: list[tuple[int, Node]] = [(0, start)]
    while queue:
        length, node = heapq.heappop(queue)
        if node in lengths:
            continue  # a shorter path has already been found
        lengths[node] = length
        for neighbour, step in neighbours(node):
            if neighbour not in lengths and length + step <= max_length:
                heapq.heappush(queue, (length + step, neighbour))
    return lengths


class Network:
    """A road network with exact shortest paths.

    Methods return lengths as integers in units of 2**-256 km, rounded down, except :meth:`pieces`, which uses another
    unit.

    Attributes:
        _shared: The common denominator of all road lengths in km.
        _incoming: For each node, the nodes from which a road leads to it, with the roads' lengths in units of 1 /
            ``_shared`` km. If roads are two-way, these are all of the node's neighbours.
    """

    def __init__(self, roads: list[Road], *, one_way: bool = False) -> None:
        """Build the adjacency lists of the network. Roads are two-way unless ``one_way`` is True."""
        # Over a common denominator, lengths are integers, so sums along paths are exact and rounded only once.
        shared = self._shared = math.lcm(*{length.denominator for _, _, length in roads})
        incoming = self._incoming = {name: list[tuple[str, int]]() for road in roads for name in road[:2]}
        for tail, head, length in roads:
            incoming[head].append((tail, int(length * shared)))
        for tail, head, length in [] if one_way else roads:
            incoming[tail].append((head, int(length * shared)))

    def _round_down(self, length: int) -> int:
        """Convert a length from units of 1 / ``_shared`` km to units of 2**-256 km, rounded down."""
        return (length << BITS) // self._shared

    def lengths(self, end: str, starts: list[str]) -> list[int | None]:
        """Return the shortest path length from each start node to an end node, or None if there is no path.

        Lengths are in units of 2**-256 km, rounded down.
        """
        lengths = shortest(end, self._incoming.__getitem__)
        return [self._round_down(lengths[name]) if name in lengths else None for name in starts]

    def nodes_within(self, start: str, max_length: int) -> dict[str, int]:
        """Return the distances to all nodes within ``max_length`` of a start node, both in units of 2**-256 km."""
        # The search goes a little beyond the limit, because lengths are rounded down only afterwards.
        unscaled = shortest(start, self._incoming.__getitem__, ((max_length + 1) * self._shared >> BITS) + 1)
        lengths = {name: self._round_down(length) for name, length in unscaled.items()}
        return {name: length for name, length in lengths.items() if length <= max_length}

    def first(self, start: str, stops: Container[str]) -> dict[str, int]:
        """Return the shortest path length from a node to each stop, over paths that do not pass through other stops.

        Stops that cannot be reached in this way are omitted, and so is the start node itself.
        """

        # A path cannot continue from a stop other than the start, so it ends at the first stop that it reaches.
        def steps_from(name: str) -> list[tuple[str, int]]:
            """Return the edges along which a path may continue from a node. Paths end at stops other than the start."""
            return self._incoming[name] if name == start or name not in stops else []

        lengths = shortest(start, steps_from)
        return {name: self._round_down(lengths[name]) for name in lengths if name in stops and name != start}

    def pieces(self, priced: list[str]) -> dict[str, tuple[int, int, int, int]]:
        """Find the nodes that lie strictly inside a piece of street between two priced nodes.

        No other street branches off inside a piece. Roads must be two-way.

        Args:
            priced: The nodes at the ends of pieces, which are the outputs in a proof over all streets.

        Returns:
            A mapping from each such node to a tuple of the two ends of its piece as indices in ``priced``, the node's
            distance from the first end, and the length of the piece. Unlike in other methods, lengths are exact and in
            units of 1 / ``_shared`` km.
        """
        # The index of each priced node.
        number = {name: k for k, name in enumerate(priced)}
        neighbours: dict[str, dict[str, int]] = {}
        for name, steps in self._incoming.items():
            lengths = neighbours.setdefault(name, {})
            for neighbour, length in steps:
                if neighbour != name:
                    # Only the shortest of parallel roads counts. A road from a node to itself is on no shortest path.
                    lengths[neighbour] = min(length, lengths.get(neighbour, length))
        pieces: dict[str, tuple[int, int, int, int]] = {}
        for start, tail_number in number.items():
            for current, length in neighbours[start].items():
                # Follow the street from this end to a priced node, a crossing or a dead end.
                previous, interior = start, list[tuple[str, int]]()
                while current not in number and len(neighbours[current]) == 2:
                    interior.append((current, length))
                    (further,) = neighbours[current].keys() - {previous}
                    length += neighbours[current][further]
                    previous, current = current, further
                if current in number:
                    for name, distance in interior:
                        if 0 < distance < length:
                            # Each piece is found from both of its ends, and the first time counts.
                            pieces.setdefault(name, (tail_number, number[current], distance, length))
        return pieces


def ways(roads: list[Road], *, one_way: bool = False) -> Lengths:
    """Return a function that computes shortest path lengths along roads, like :meth:`Network.lengths`."""
    return Network(roads, one_way=one_way).lengths


def read_roads(problem: Problem, file: object) -> list[Road]:
    """Read roads from a table with the columns ``from``, ``to`` and ``km``.

    Args:
        problem: The published problem.
        file: The file name of the table.

    Returns:
        The ids of each road's two ends, and its length in km.

    Raises:
        RefusedError: A length is negative.
    """
    columns = problem.columns(file)
    cells = zip(columns["from"], columns["to"], columns["km"], strict=True)
    roads = [(tail, head, rational(km)) for tail, head, km in cells]
    need(min(km for _, _, km in roads) >= 0, f"problem/{file}: a length below 0", 2)
    return roads
