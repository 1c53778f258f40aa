"""Shortest paths over roads, in exact arithmetic."""

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
"""From, to, length."""

Lengths = Callable[[str, list[str]], list[int | None]]
"""Lengths of the shortest paths to an end, one from each start; None where there is none."""


def shortest(
    start: Node,
    neighbours: Callable[[Node], Iterable[tuple[Node, int]]],
    max_length: float = math.inf,
) -> dict[Node, int]:
    """Return lengths of shortest paths from a node, by Dijkstra's algorithm.

    Args:
        start: the node.
        neighbours: the neighbours of a node, each with the length of the step there, at least 0.
        max_length: ways that are longer are omitted.
    """
    lengths: dict[Node, int] = {}
    queue: list[tuple[int, Node]] = [(0, start)]
    while queue:
        length, node = heapq.heappop(queue)
        if node in lengths:
            continue
        lengths[node] = length
        for neighbour, step in neighbours(node):
            if neighbour not in lengths and length + step <= max_length:
                heapq.heappush(queue, (length + step, neighbour))
    return lengths


class Network:
    """Roads over which shortest paths are computed; all lengths are rounded down."""

    def __init__(self, roads: list[Road], *, one_way: bool = False) -> None:
        """Take roads, which may all be gone both ways unless they are one-way."""
        shared = self._shared = math.lcm(*{length.denominator for _, _, length in roads})
        incoming = self._incoming = {name: list[tuple[str, int]]() for road in roads for name in road[:2]}
        for tail, head, length in roads:
            incoming[head].append((tail, int(length * shared)))
        for tail, head, length in [] if one_way else roads:
            incoming[tail].append((head, int(length * shared)))

    def _round_down(self, length: int) -> int:
        return (length << BITS) // self._shared

    def lengths(self, end: str, starts: list[str]) -> list[int | None]:
        """Return the lengths of shortest paths to an end; None from where there is none."""
        lengths = shortest(end, self._incoming.__getitem__)
        return [self._round_down(lengths[name]) if name in lengths else None for name in starts]

    def near(self, start: str, max_length: int) -> dict[str, int]:
        """Return the nodes within a length, and how far they are."""
        unscaled = shortest(start, self._incoming.__getitem__, ((max_length + 1) * self._shared >> BITS) + 1)
        lengths = {name: self._round_down(length) for name, length in unscaled.items()}
        return {name: length for name, length in lengths.items() if length <= max_length}

    def first(self, start: str, stops: Container[str]) -> dict[str, int]:
        """Return the stops that paths reach first, and the least length of such a path."""

        def steps_from(name: str) -> list[tuple[str, int]]:
            return self._incoming[name] if name == start or name not in stops else []

        lengths = shortest(start, steps_from)
        return {name: self._round_down(lengths[name]) for name in lengths if name in stops and name != start}

    def pieces(self, priced: list[str]) -> dict[str, tuple[int, int, int, int]]:
        """Return where nodes lie that are strictly inside a way without a crossing.

        Args:
            priced: the nodes that such ways join.

        Returns:
            By node: the numbers of both ends, how far it is from the first, how long the way is.
        """
        number = {name: k for k, name in enumerate(priced)}
        neighbours: dict[str, dict[str, int]] = {}
        for name, steps in self._incoming.items():
            lengths = neighbours.setdefault(name, {})
            for neighbour, length in steps:
                if neighbour != name:
                    lengths[neighbour] = min(length, lengths.get(neighbour, length))
        pieces: dict[str, tuple[int, int, int, int]] = {}
        for start, tail_number in number.items():
            for current, length in neighbours[start].items():
                previous, interior = start, list[tuple[str, int]]()
                while current not in number and len(neighbours[current]) == 2:
                    interior.append((current, length))
                    (further,) = neighbours[current].keys() - {previous}
                    length += neighbours[current][further]
                    previous, current = current, further
                if current in number:
                    for name, distance in interior:
                        if 0 < distance < length:
                            pieces.setdefault(name, (tail_number, number[current], distance, length))
        return pieces


def ways(roads: list[Road], *, one_way: bool = False) -> Lengths:
    """Return what gives the lengths of shortest paths over roads, rounded down."""
    return Network(roads, one_way=one_way).lengths


def read_roads(problem: Problem, file: object) -> list[Road]:
    """Read a table of roads: columns from, to, km.

    Raises:
        RefusedError: a length below 0.
    """
    columns = problem.columns(file)
    cells = zip(columns["from"], columns["to"], columns["km"], strict=True)
    roads = [(tail, head, rational(km)) for tail, head, km in cells]
    need(min(km for _, _, km in roads) >= 0, f"problem/{file}: a length below 0", 2)
    return roads
