"""People at listed positions: ``[utility] positions`` (proof.md: People at listed positions)."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeVar

from privopt.checker.exact import low, need, rational
from privopt.checker.files import Problem
from privopt_metric_dp.checkers.lattice import Corners
from privopt_metric_dp.checkers.metric import Metric
from privopt_metric_dp.checkers.projection import Point, Projection, in_millimetres
from privopt_metric_dp.checkers.triangles import scalar, turn

__all__ = [
    "Listed",
    "along_pieces",
    "nearest",
    "need_same_kind",
    "read_positions",
    "rim_of",
    "within",
]

Piece = TypeVar("Piece", bound=Sequence[Any])

SQUARES = 64
"""Into so many squares a region is divided each way, in which triangles are looked up."""

FARTHEST = 10**150
"""Km of a coordinate, at most."""


@dataclass(frozen=True)
class Listed:
    """A person in the table, or several at one position.

    Attributes:
        mass: their part of all weights.
        at: latitude and longitude, or x and y, as they are written.
        degrees: whether it is the former.
    """

    mass: int
    at: tuple[Fraction, Fraction]
    degrees: bool

    def place(self, projection: Projection | None) -> Point:
        """Return the position in whole millimetres, on a projection's plane where there is one."""
        first, second = map(float, self.at)
        if projection is not None and self.degrees:
            return projection.millimetres(first, second)
        return in_millimetres(first, second)


def read_positions(problem: Problem, file: object) -> list[Listed]:
    """Read a table of positions: lat and lon in degrees or x and y in km, and maybe weights.

    Raises:
        RefusedError: neither, or both; no position; a weight below 0, or all of them 0.
    """
    columns = problem.columns(file)
    named = [pair for pair in (("lat", "lon"), ("x", "y")) if columns.keys() >= {*pair}]
    need(len(named) == 1, f"problem/{file}: wanted lat and lon, or x and y, as the region has", 2)
    degrees = named == [("lat", "lon")]
    least, most = ((-90, -180), (90, 360)) if degrees else ((-FARTHEST,) * 2, (FARTHEST,) * 2)
    first, second = ([*map(rational, columns[name])] for name in named[0])
    weights = (
        [*map(rational, columns["weight"])] if "weight" in columns else [Fraction(1)] * len(first)
    )
    people: dict[tuple[Fraction, Fraction], Fraction] = {}
    for n, (x, y, weight) in enumerate(zip(first, second, weights, strict=True), 2):
        sound = least[0] <= x <= most[0] and least[1] <= y <= most[1] and weight >= 0
        need(sound, f"problem/{file}: row {n}: no position, or a weight below 0", 2)
        people[x, y] = people.get((x, y), Fraction(0)) + weight
    total = sum(people.values())
    need(total > 0, f"problem/{file}: weights of 0", 2)
    return [Listed(low(weight / total), at, degrees) for at, weight in people.items() if weight]


def need_same_kind(listed: list[Listed], *, earth: bool, projected: bool) -> None:
    """Refuse degrees without a projection, and km on the earth.

    Raises:
        RefusedError: one of these is there.
    """
    fits = all(projected if one.degrees else not earth for one in listed)
    need(fits, "utility.positions: wanted lat and lon, or x and y, as the region has", 2)


def nearest(p: Point, sides: list[tuple[Point, Point]]) -> tuple[int, Fraction]:
    """Return the first of the nearest sides to a position, and where on it the nearest point is."""
    squares = [_square(p, *side) for side in sides]
    rounded = [
        top / bottom for top, bottom in squares
    ]  # correctly: the least is among the least of these
    least = min(rounded)
    candidates = (n for n, each in enumerate(rounded) if each == least)
    n = min(candidates, key=lambda n: Fraction(*squares[n]))
    a, b = sides[n]
    length = scalar(b, a, b)
    return n, Fraction(min(max(scalar(p, a, b), 0), length), max(length, 1))


def _square(p: Point, a: Point, b: Point) -> tuple[int, int]:
    """Return the square of the distance from a position to a side, as a fraction."""
    if scalar(p, a, b) <= 0 or scalar(p, b, a) <= 0:
        return min(scalar(p, a, p), scalar(p, b, p)), 1
    return turn(a, b, p) ** 2, scalar(b, a, b)


def within(
    at: list[Point], triangles: list[Corners]
) -> Callable[[Point], tuple[Corners, list[int]] | None]:
    """Return what finds a triangle around a position, and its shares times twice the area.

    Borders belong to both sides, which mix the same corners there. Triangles are sorted into
    squares that they meet.
    """
    side = max(max(axis) - min(axis) for axis in zip(*at, strict=True)) // SQUARES + 1
    squares: dict[tuple[int, ...], list[Corners]] = {}
    for t in triangles:
        axes = zip(*(at[v] for v in t), strict=True)
        spans = [range(min(axis) // side, max(axis) // side + 1) for axis in axes]
        for square in itertools.product(*spans):
            squares.setdefault(square, []).append(t)

    def find(p: Point) -> tuple[Corners, list[int]] | None:
        for t in squares.get((p[0] // side, p[1] // side), []):
            a, b, c = (at[v] for v in t)
            shares = [turn(p, b, c), turn(p, c, a), turn(p, a, b)]
            if min(shares) >= 0:
                return t, shares
        return None

    return find


def rim_of(triangles: list[Corners]) -> list[tuple[int, int]]:
    """Return the sides of one triangle alone, in the order of triangles."""
    sides = [(t[i], t[(i + 1) % 3]) for t in triangles for i in range(3)]
    count = Counter(map(frozenset, sides))
    return [side for side in sides if count[frozenset(side)] == 1]


def along_pieces(
    metric: Metric, pieces: Sequence[Piece], listed: list[Listed]
) -> list[tuple[Piece, int, int]]:
    """Return the points of pieces that are nearest to those who are listed, and their mass.

    A piece is a straight line between known ends, in whole millimetres.

    Raises:
        RefusedError: no street has known ends.
    """
    known, earth = _known_ends(metric, pieces), metric.records.kind == "geographic"
    projection = Projection([*known.values()]) if earth and known else None
    at = {
        v: projection.millimetres(*p) if projection else in_millimetres(*p)
        for v, p in known.items()
    }
    straight = [piece for piece in pieces if {*piece[:2]} <= at.keys()]
    need(straight, "utility.positions: beside streets without coordinates", 2)
    need_same_kind(listed, earth=earth, projected=projection is not None)
    sides = [(at[piece[0]], at[piece[1]]) for piece in straight]
    found = [(*nearest(one.place(projection), sides), one.mass) for one in listed]
    return [(straight[n], low(part), mass) for n, part, mass in found]


def _known_ends(metric: Metric, pieces: Sequence[Piece]) -> dict[int, tuple[float, float]]:
    """Coordinates of vertices in doubles: of records, and evenly between them along a street."""
    place = {name: i for i, name in enumerate(metric.points)}
    known, earth = dict(enumerate(metric.records.doubles())), metric.records.kind == "geographic"
    rest = iter(pieces)
    for tail, head, _ in metric.streets:
        chain = [place[tail], next(rest)[1]]
        while chain[-1] != place[head]:
            chain.append(next(rest)[1])
        if not {chain[0], chain[-1]} <= known.keys():
            continue
        start, end = known[chain[0]], known[chain[-1]]
        up, right = end[0] - start[0], end[1] - start[1]
        if earth:
            right -= 360.0 * round(right / 360.0)  # the short way round
        for n, v in enumerate(chain[1:-1], 1):
            part = n / (len(chain) - 1)
            one, other = start[0] + part * up, start[1] + part * right
            if earth:
                other -= 360.0 * ((other > 360.0) - (other < -180.0))
            known[v] = one, other
    return known
