"""Exact distances as balls (``flint.arb``) that contain them, at the current precision.

The doubles of a metric are rounded down from the exact distances. If a comparison falls between the two, these balls
decide it: a Euclidean distance is the square root of a rational, the length of a path is a rational, and a great
circle can be enclosed to any precision. What stays open at the finest precision counts as not proved.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from heapq import heappop, heappush
from math import lcm
from typing import TYPE_CHECKING, Any, Final

from privopt.numbers.exp_log_bounds import Ball, ball_of, sign_of
from privopt_metric_dp.space.places import Space

if TYPE_CHECKING:
    from flint import arb
else:
    arb = Any

__all__ = ["Ways", "at_most", "between_bounds", "decimal_of", "great_circle_of", "is_above", "place_of", "root_of"]

MAX_DECIMAL_DIGITS: Final = 999
"""Largest number of characters, and largest power of ten, of a decimal that is converted to a rational.

The independent checker has the same limit.
"""


def decimal_of(text: str) -> Fraction | None:
    """Convert a decimal, or a fraction "p/q", to a rational; return None if it exceeds :data:`MAX_DECIMAL_DIGITS`."""
    if "/" in text:
        return Fraction(text)
    number = Decimal(text)
    power = number.as_tuple().exponent
    if len(text) > MAX_DECIMAL_DIGITS or not isinstance(power, int) or abs(power) > MAX_DECIMAL_DIGITS:
        return None
    return Fraction(number)


def place_of(space: Space, i: int) -> list[Fraction] | None:
    """Return the exact coordinates of place i, or None if they are not known. In a space with a corner, km from it."""
    if space.written is None:
        return None if space.coordinates is None or space.off else [Fraction(x) for x in space.coordinates[i].tolist()]
    coordinates = [decimal_of(text) for text in space.written[i].tolist()]
    return None if None in coordinates else [x for x in coordinates if x is not None]


def at_most(distance: float | Fraction, ball: Ball) -> bool:
    """Prove that a rational is at most the number that a ball encloses; return False if there is no proof."""
    return sign_of(lambda: ball() - ball_of(Fraction(distance))) in (0, 1)


def is_above(ball: Ball, limit: Fraction) -> bool:
    """Prove that the number that a ball encloses is above a rational; return False if there is no proof."""
    return sign_of(lambda: ball() - ball_of(limit)) == 1


def between_bounds(lower: float, upper: float) -> Ball:
    """Return a ball around all numbers between two doubles."""
    return lambda: ball_of(Fraction(lower)).union(ball_of(Fraction(upper)))


def root_of(a: Sequence[Fraction], b: Sequence[Fraction]) -> Ball:
    """Enclose the Euclidean distance between two points."""
    square = sum(((x - y) ** 2 for x, y in zip(a, b, strict=True)), Fraction(0))
    return lambda: ball_of(square).sqrt()


def great_circle_of(space: Space, i: int, j: int, radius: float) -> Ball | None:
    """Enclose the great-circle distance between two geographic places, or return None if they are not known exactly.

    The haversine h = sin(d / 2R)^2 and 1 - h are sums of non-negative terms, so the formula is well conditioned both
    for close and for antipodal points. The steps of a grid have their declared length; steps to the east are measured
    at the latitude of its corner.
    """
    a, b = place_of(space, i), place_of(space, j)
    if a is None or b is None:
        return None
    differences = [x - y for x, y in zip(a, b, strict=True)]  # exactly 0 at the same place

    def ball() -> arb:
        import flint

        degree = flint.arb.pi() / 180
        if space.corner is None:
            lat, other_lat = (ball_of(point[0]) * degree for point in (a, b))
            north, east = (ball_of(x) * degree for x in differences)
        else:
            south = ball_of(space.corner[0]) * degree
            lat, other_lat = (south + ball_of(point[0] / Fraction(radius)) for point in (a, b))
            north, east = (ball_of(x / Fraction(radius)) for x in differences)
            east /= south.cos()
        cosines = lat.cos() * other_lat.cos()
        haversine = (north / 2).sin() ** 2 + cosines * (east / 2).sin() ** 2
        complement = ((lat + other_lat) / 2).sin() ** 2 + cosines * (east / 2).cos() ** 2
        return 2 * flint.arb(radius) * flint.arb.atan2(haversine.sqrt(), complement.sqrt())

    return ball


class Ways:
    """Shortest paths over undirected roads, in integers.

    Args:
        roads: (E,) pairs of node numbers, each with a rational length of at least 0. Of parallel roads the shortest
            counts.
        size: Number of nodes.

    Attributes:
        unit: Lengths are integer multiples of 1 / unit.
        after: For each node, the length of the road to each of its neighbours.
    """

    def __init__(self, roads: Sequence[tuple[int, int, Fraction]], size: int) -> None:
        self.unit = lcm(*{length.denominator for _, _, length in roads})
        self.after: list[dict[int, int]] = [{} for _ in range(size)]
        for tail, head, length in roads:
            if tail != head:
                steps = int(length * self.unit)
                for node, neighbour in ((tail, head), (head, tail)):
                    self.after[node][neighbour] = min(steps, self.after[node].get(neighbour, steps))

    def between(self, pairs: Sequence[Sequence[int]]) -> list[Fraction | None]:
        """Return the shortest length between each pair of nodes, None without a path; one search per first node."""
        goals: dict[int, set[int]] = {}
        for start, end in pairs:
            goals.setdefault(start, set()).add(end)
        lengths_by_start = {start: self._search_from(start, ends_of_start) for start, ends_of_start in goals.items()}
        return [lengths_by_start[start].get(end) for start, end in pairs]

    def _search_from(self, start: int, goals: set[int]) -> dict[int, Fraction]:
        lengths, queue, settled = dict[int, Fraction](), [(0, start)], set[int]()
        while queue and len(lengths) < len(goals):
            length, node = heappop(queue)
            if node in settled:
                continue
            settled.add(node)
            if node in goals:
                lengths[node] = Fraction(length, self.unit)
            for neighbour, step in self.after[node].items():
                if neighbour not in settled:
                    heappush(queue, (length + step, neighbour))
        return lengths
