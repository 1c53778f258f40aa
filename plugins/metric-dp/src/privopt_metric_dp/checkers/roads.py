"""Shortest ways over roads, in exact arithmetic."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Hashable, Iterable
from fractions import Fraction
from typing import TypeVar

from privopt.checker.exact import BITS, need, rational
from privopt.checker.files import Problem

__all__ = ["Lengths", "Road", "read_roads", "shortest", "ways"]

Node = TypeVar("Node", bound=Hashable)

Road = tuple[str, str, Fraction]
"""From, to, length."""

Lengths = Callable[[str, list[str]], list[int | None]]
"""Lengths of the shortest ways to an end, one from each start; None where there is none."""


def shortest(
    start: Node,
    after: Callable[[Node], Iterable[tuple[Node, int]]],
    most: float = math.inf,
) -> dict[Node, int]:
    """Return lengths of shortest ways from a node, by Dijkstra's algorithm.

    Args:
        start: the node.
        after: the neighbours of a node, each with the length of the step there, at least 0.
        most: ways that are longer are left out.
    """
    found: dict[Node, int] = {}
    queue: list[tuple[int, Node]] = [(0, start)]
    while queue:
        length, here = heapq.heappop(queue)
        if here in found:
            continue
        found[here] = length
        for there, step in after(here):
            if there not in found and length + step <= most:
                heapq.heappush(queue, (length + step, there))
    return found


def ways(roads: list[Road], *, one_way: bool = False) -> Lengths:
    """Return what gives the lengths of shortest ways over roads, rounded down."""
    shared = math.lcm(*{length.denominator for _, _, length in roads})
    before: dict[str, list[tuple[str, int]]] = {name: [] for road in roads for name in road[:2]}
    for tail, head, length in roads:
        before[head].append((tail, int(length * shared)))
    for tail, head, length in [] if one_way else roads:
        before[tail].append((head, int(length * shared)))

    def lengths(end: str, starts: list[str]) -> list[int | None]:
        found = shortest(end, before.__getitem__)
        return [(found[name] << BITS) // shared if name in found else None for name in starts]

    return lengths


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
