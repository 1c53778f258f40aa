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
    found: dict[Node, int] = {}
    queue: list[tuple[int, Node]] = [(0, start)]
    while queue:
        length, here = heapq.heappop(queue)
        if here in found:
            continue
        found[here] = length
        for there, step in neighbours(here):
            if there not in found and length + step <= max_length:
                heapq.heappush(queue, (length + step, there))
    return found


class Network:
    """Roads over which shortest paths are computed; all lengths are rounded down."""

    def __init__(self, roads: list[Road], *, one_way: bool = False) -> None:
        """Take roads, which may all be gone both ways unless they are one-way."""
        shared = self._shared = math.lcm(*{length.denominator for _, _, length in roads})
        before = self._before = {name: list[tuple[str, int]]() for road in roads for name in road[:2]}
        for tail, head, length in roads:
            before[head].append((tail, int(length * shared)))
        for tail, head, length in [] if one_way else roads:
            before[tail].append((head, int(length * shared)))

    def _low(self, length: int) -> int:
        return (length << BITS) // self._shared

    def lengths(self, end: str, starts: list[str]) -> list[int | None]:
        """Return the lengths of shortest paths to an end; None from where there is none."""
        found = shortest(end, self._before.__getitem__)
        return [self._low(found[name]) if name in found else None for name in starts]

    def near(self, start: str, max_length: int) -> dict[str, int]:
        """Return the nodes within a length, and how far they are."""
        found = shortest(start, self._before.__getitem__, ((max_length + 1) * self._shared >> BITS) + 1)
        lengths = {name: self._low(length) for name, length in found.items()}
        return {name: length for name, length in lengths.items() if length <= max_length}

    def first(self, start: str, stops: Container[str]) -> dict[str, int]:
        """Return the stops that paths reach first, and the least length of such a path."""

        def steps_from(name: str) -> list[tuple[str, int]]:
            return self._before[name] if name == start or name not in stops else []

        found = shortest(start, steps_from)
        return {name: self._low(found[name]) for name in found if name in stops and name != start}

    def pieces(self, priced: list[str]) -> dict[str, tuple[int, int, int, int]]:
        """Return where nodes lie that are strictly inside a way without a crossing.

        Args:
            priced: the nodes that such ways join.

        Returns:
            By node: the numbers of both ends, how far it is from the first, how long the way is.
        """
        number = {name: k for k, name in enumerate(priced)}
        after: dict[str, dict[str, int]] = {}
        for name, steps in self._before.items():
            near = after.setdefault(name, {})
            for other, length in steps:
                if other != name:
                    near[other] = min(length, near.get(other, length))
        found: dict[str, tuple[int, int, int, int]] = {}
        for start, first in number.items():
            for here, length in after[start].items():
                before, inside = start, list[tuple[str, int]]()
                while here not in number and len(after[here]) == 2:
                    inside.append((here, length))
                    (further,) = after[here].keys() - {before}
                    length += after[here][further]
                    before, here = here, further
                if here in number:
                    for name, far in inside:
                        if 0 < far < length:
                            found.setdefault(name, (first, number[here], far, length))
        return found


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
    found = [(tail, head, rational(km)) for tail, head, km in cells]
    need(min(km for _, _, km in found) >= 0, f"problem/{file}: a length below 0", 2)
    return found
