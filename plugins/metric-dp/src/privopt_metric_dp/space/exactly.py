"""Enclose exact distances in balls (``flint.arb``), to any precision.

A ball is an interval that contains a real number. Here, it is represented by a function that evaluates the interval at
the current precision, so that callers can raise the precision.

A metric returns exact distances, rounded down to doubles. If a limit may lie between the double and the exact distance,
a ball is used for the comparison. A comparison that is still undecided at the highest precision counts as not proved. A
Euclidean distance is the square root of a rational, the length of a path is a rational, and the length of a
great-circle arc can be enclosed to any precision.
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
"""The maximum length, in characters, and the maximum absolute exponent of a decimal to be converted to a rational.

The stand-alone checker has the same limit.
"""


def decimal_of(text: str) -> Fraction | None:
    """Convert a decimal or a fraction "p/q" to a rational.

    Returns None if the string is a decimal whose length or exponent exceeds :data:`MAX_DECIMAL_DIGITS`.
    """
    if "/" in text:
        return Fraction(text)
    # A decimal such as 1e999999999 is a short text, but would take gigabytes as a rational. Hence the limit.
    number = Decimal(text)
    power = number.as_tuple().exponent
    if len(text) > MAX_DECIMAL_DIGITS or not isinstance(power, int) or abs(power) > MAX_DECIMAL_DIGITS:
        return None
    return Fraction(number)


def place_of(space: Space, i: int) -> list[Fraction] | None:
    """Return the exact coordinates of the place with index i, or None if they are not known.

    The coordinates are in the space's unit or in degrees. For a geographic grid, they are the distances in km north and
    east of the grid's corner.
    """
    # `written` has the coordinates as declared texts. Without these, the doubles are exact if none was rounded, that
    # is, if the largest rounding error `off` is 0.
    if space.written is None:
        return None if space.coordinates is None or space.off else [Fraction(x) for x in space.coordinates[i].tolist()]
    coordinates = [decimal_of(text) for text in space.written[i].tolist()]
    return None if None in coordinates else [x for x in coordinates if x is not None]


def at_most(distance: float | Fraction, ball: Ball) -> bool:
    """Return whether a rational number is proved to be at most the number enclosed by a ball.

    Args:
        distance: The rational, as a double or a fraction.
        ball: A function that returns an enclosing interval (``flint.arb``) at the current precision.
    """
    return sign_of(lambda: ball() - ball_of(Fraction(distance))) in (0, 1)


def is_above(ball: Ball, limit: Fraction) -> bool:
    """Return whether the number enclosed by a ball is proved to be greater than a rational limit.

    Args:
        ball: A function that returns an enclosing interval (``flint.arb``) at the current precision.
        limit: The limit with which the number is compared.
    """
    return sign_of(lambda: ball() - ball_of(limit)) == 1


def between_bounds(lower: float, upper: float) -> Ball:
    """Return a ball that contains all numbers between two doubles."""
    return lambda: ball_of(Fraction(lower)).union(ball_of(Fraction(upper)))


def root_of(a: Sequence[Fraction], b: Sequence[Fraction]) -> Ball:
    """Return a ball that encloses the Euclidean distance between two points.

    Args:
        a, b: The exact coordinates of the points, in any common unit.
    """
    square = sum(((x - y) ** 2 for x, y in zip(a, b, strict=True)), Fraction(0))
    return lambda: ball_of(square).sqrt()


def great_circle_of(space: Space, i: int, j: int, radius: float) -> Ball | None:
    """Return a ball that encloses the great-circle distance between two geographic places.

    For a distance d, the haversine h = sin(d / 2R)^2 and 1 - h are computed as sums of non-negative terms, so the
    formula is well conditioned for nearby points as well as antipodal ones. In a geographic grid, all steps have
    exactly the declared length. Steps to the east have this length at the latitude of the grid's corner.

    Args:
        space: The space that contains the places.
        i, j: The indices of the places.
        radius: The earth's radius R, which determines the unit of the distance.

    Returns:
        A function that returns an enclosing interval (``flint.arb``) at the current precision, or None if the exact
        coordinates are not known.
    """
    a, b = place_of(space, i), place_of(space, j)
    if a is None or b is None:
        return None
    differences = [x - y for x, y in zip(a, b, strict=True)]  # exactly 0 at the same place

    def ball() -> arb:
        """Evaluate the haversine formula in interval arithmetic, at the current precision."""
        import flint

        # All angles are in radians. `north` and `east` are the differences in latitude and longitude.
        degree = flint.arb.pi() / 180
        if space.corner is None:
            lat, other_lat = (ball_of(point[0]) * degree for point in (a, b))
            north, east = (ball_of(x) * degree for x in differences)
        else:
            south = ball_of(space.corner[0]) * degree
            lat, other_lat = (south + ball_of(point[0] / Fraction(radius)) for point in (a, b))
            north, east = (ball_of(x / Fraction(radius)) for x in differences)
            east /= south.cos()  # a grid's km to the east are measured along its corner's parallel
        cosines = lat.cos() * other_lat.cos()
        haversine = (north / 2).sin() ** 2 + cosines * (east / 2).sin() ** 2
        complement = ((lat + other_lat) / 2).sin() ** 2 + cosines * (east / 2).cos() ** 2
        # d = 2 R atan2(sqrt(h), sqrt(1 - h)).
        return 2 * flint.arb(radius) * flint.arb.atan2(haversine.sqrt(), complement.sqrt())

    return ball


class Ways:
    """Shortest paths over undirected roads, computed in exact integer arithmetic.

    Attributes:
        unit: The common denominator of all lengths, which are stored as integer multiples of 1 / unit.
        after: For each node, a mapping from its neighbours to the lengths of the connecting roads.
    """

    def __init__(self, roads: Sequence[tuple[int, int, Fraction]], size: int) -> None:
        """Build the mapping from each node to its neighbours.

        Args:
            roads: The undirected roads, each given by the indices of its two nodes and a non-negative rational length.
                If several roads connect two nodes, the shortest one is used.
            size: The number of nodes.
        """
        # In multiples of 1 / (common denominator of all lengths), every length is an integer, so sums need no
        # fractions.
        self.unit = lcm(*{length.denominator for _, _, length in roads})
        self.after: list[dict[int, int]] = [{} for _ in range(size)]
        for tail, head, length in roads:
            if tail != head:
                steps = int(length * self.unit)
                for node, neighbour in ((tail, head), (head, tail)):
                    self.after[node][neighbour] = min(steps, self.after[node].get(neighbour, steps))

    def shortest_lengths(self, pairs: Sequence[Sequence[int]]) -> list[Fraction | None]:
        """Return the exact length of the shortest path between each pair of nodes, or None if the pair is unconnected.

        Pairs with the same first node share a search. Lengths are in the same units as the lengths of the roads.
        """
        goals: dict[int, set[int]] = {}
        for start, end in pairs:
            goals.setdefault(start, set()).add(end)
        lengths_by_start = {start: self._search_from(start, ends_of_start) for start, ends_of_start in goals.items()}
        return [lengths_by_start[start].get(end) for start, end in pairs]

    def _search_from(self, start: int, goals: set[int]) -> dict[int, Fraction]:
        """Return the length of the shortest path from a given node to each goal.

        Lengths are in the same units as the lengths of the roads. Goals that cannot be reached are omitted.
        """
        lengths, queue, settled = dict[int, Fraction](), [(0, start)], set[int]()
        # This is Dijkstra's algorithm in integers, which ends as soon as all goals are settled.
        while queue and len(lengths) < len(goals):
            length, node = heappop(queue)
            if node in settled:
                continue  # an outdated queue entry, because the node was reached by a shorter path
            settled.add(node)
            if node in goals:
                lengths[node] = Fraction(length, self.unit)
            for neighbour, step in self.after[node].items():
                if neighbour not in settled:
                    heappush(queue, (length + step, neighbour))
        return lengths
