"""Exact distances as balls (``flint.arb``) that contain them, at the current precision.

Doubles are rounded down from them. Where a comparison lies between a double and the exact distance, these decide: a
Euclidean distance is the root of a rational, the length of a way a rational, a great circle is enclosed to any
precision. What the finest precision tried leaves open counts as not proved.
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
"""Most signs, and greatest power of ten, of a decimal that is made a rational; the checker reads no more either."""


def decimal_of(text: str) -> Fraction | None:
    """Read the rational that a decimal, or a fraction "p/q", means; None of one too long to be looked at."""
    if "/" in text:
        return Fraction(text)
    number = Decimal(text)
    power = number.as_tuple().exponent
    if len(text) > MAX_DECIMAL_DIGITS or not isinstance(power, int) or abs(power) > MAX_DECIMAL_DIGITS:
        return None
    return Fraction(number)


def place_of(space: Space, i: int) -> list[Fraction] | None:
    """Read the coordinates of place i as they are meant (with a ``corner``: km from it); None if they are not known."""
    if space.written is None:
        return None if space.coordinates is None or space.off else [Fraction(x) for x in space.coordinates[i].tolist()]
    found = [decimal_of(text) for text in space.written[i].tolist()]
    return None if None in found else [x for x in found if x is not None]


def at_most(distance: float | Fraction, ball: Ball) -> bool:
    """Prove that a rational is at most the number that a ball encloses; False where it is not, or no proof is found."""
    return sign_of(lambda: ball() - ball_of(Fraction(distance))) in (0, 1)


def is_above(ball: Ball, limit: Fraction) -> bool:
    """Prove that the number that a ball encloses is above a rational; False if it is not, or no proof is found."""
    return sign_of(lambda: ball() - ball_of(limit)) == 1


def between_bounds(low: float, high: float) -> Ball:
    """Enclose a number that is known only to lie between two doubles."""
    return lambda: ball_of(Fraction(low)).union(ball_of(Fraction(high)))


def root_of(one: Sequence[Fraction], other: Sequence[Fraction]) -> Ball:
    """Enclose the Euclidean distance of two points."""
    square = sum(((x - y) ** 2 for x, y in zip(one, other, strict=True)), Fraction(0))
    return lambda: ball_of(square).sqrt()


def great_circle_of(space: Space, i: int, j: int, radius: float) -> Ball | None:
    """Enclose the great circle between two places in degrees, or of a grid on the earth; None where they are not known.

    h = sin(d / 2R)^2 and 1 - h are sums of terms of at least 0, so that neither end of the half circle is ill placed.
    Steps of a grid are as long as they are written, those to the east at the latitude of its corner.
    """
    one, other = place_of(space, i), place_of(space, j)
    if one is None or other is None:
        return None
    apart = [x - y for x, y in zip(one, other, strict=True)]  # exactly 0 at the same place

    def ball() -> arb:
        import flint

        degree = flint.arb.pi() / 180
        if space.corner is None:
            lat, other_lat = (ball_of(place[0]) * degree for place in (one, other))
            north, east = (ball_of(x) * degree for x in apart)
        else:
            south = ball_of(space.corner[0]) * degree
            lat, other_lat = (south + ball_of(place[0] / Fraction(radius)) for place in (one, other))
            north, east = (ball_of(x / Fraction(radius)) for x in apart)
            east /= south.cos()
        cosines = lat.cos() * other_lat.cos()
        near = (north / 2).sin() ** 2 + cosines * (east / 2).sin() ** 2
        left = ((lat + other_lat) / 2).sin() ** 2 + cosines * (east / 2).cos() ** 2
        return 2 * flint.arb(radius) * flint.arb.atan2(near.sqrt(), left.sqrt())

    return ball


class Ways:
    """Shortest paths over undirected roads, in whole numbers.

    Args:
        roads: (E,) pairs of node numbers, each with a rational length of at least 0; the shortest of parallel ones
            counts.
        size: number of nodes.

    Attributes:
        unit: lengths are whole numbers of one over it.
        after: for each node the others that roads lead to, with the length.
    """

    def __init__(self, roads: Sequence[tuple[int, int, Fraction]], size: int) -> None:
        self.unit = lcm(*{length.denominator for _, _, length in roads})
        self.after: list[dict[int, int]] = [{} for _ in range(size)]
        for tail, head, length in roads:
            if tail != head:
                steps = int(length * self.unit)
                for one, other in ((tail, head), (head, tail)):
                    self.after[one][other] = min(steps, self.after[one].get(other, steps))

    def between(self, ends: Sequence[Sequence[int]]) -> list[Fraction | None]:
        """Find the length between each two nodes, None without a path; one search for all pairs of a first node."""
        goals: dict[int, set[int]] = {}
        for start, end in ends:
            goals.setdefault(start, set()).add(end)
        found = {start: self._to(start, wanted) for start, wanted in goals.items()}
        return [found[start].get(end) for start, end in ends]

    def _to(self, start: int, goals: set[int]) -> dict[int, Fraction]:
        found, open_, done = dict[int, Fraction](), [(0, start)], set[int]()
        while open_ and len(found) < len(goals):
            length, here = heappop(open_)
            if here in done:
                continue
            done.add(here)
            if here in goals:
                found[here] = Fraction(length, self.unit)
            for there, step in self.after[here].items():
                if there not in done:
                    heappush(open_, (length + step, there))
        return found
