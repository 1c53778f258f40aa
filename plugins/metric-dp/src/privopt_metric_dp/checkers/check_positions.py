"""Checks a folder whose loss is of people at listed positions: ``python -I check_positions.py DIR``.

With ``[utility] positions`` beside scope "everywhere" people stand where a table says. This file lies beside
``check_planes.py``, or where privopt has it, and checks all that this checks, and such folders: it reads the table,
finds the triangle or street that each position is drawn from, and hands them over to what is proved there. What is
proved and how: docs/reference/proof.md.
"""

# ruff: noqa: B905, I001  (as in checker.py)
from __future__ import annotations

import itertools, sys  # noqa: E401
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

if __package__:
    from privopt import checker
    from privopt_metric_dp.checkers import check_planes
else:  # run by itself, as python -I does
    sys.path[:0] = [str(Path(__file__).resolve().parent)]
    import check_planes  # type: ignore[import-not-found,no-redef]
    import checker  # type: ignore[import-not-found,no-redef]

Corners = check_planes.Corners
Point = check_planes.Point
dot, turn = check_planes.dot, check_planes.turn


def within(at: list[Point], triangles: list[Corners]) -> Callable[[Point], tuple[Corners, list[int]] | None]:
    """Finds a triangle that a position lies in, with barycentric coordinates times twice its area; None in none.

    Borders belong to both sides, which mix the same corners there. Triangles are sorted into squares that they meet.
    """
    side = max(max(axis) - min(axis) for axis in zip(*at)) // 64 + 1
    squares = dict[tuple[int, ...], list[Corners]]()
    for t in triangles:
        spans = [range(min(axis) // side, max(axis) // side + 1) for axis in zip(*(at[v] for v in t))]
        for square in itertools.product(*spans):
            squares.setdefault(square, []).append(t)

    def find(p: Point) -> tuple[Corners, list[int]] | None:
        for t in squares.get((p[0] // side, p[1] // side), []):
            a, b, c = (at[v] for v in t)
            if min(shares := [turn(p, b, c), turn(p, c, a), turn(p, a, b)]) >= 0:
                return t, shares
        return None

    return find


def rim_of(triangles: list[Corners]) -> list[tuple[int, int]]:
    """Sides of one triangle alone, in the order of triangles."""
    sides = [(t[i], t[(i + 1) % 3]) for t in triangles for i in range(3)]
    count = Counter(map(frozenset, sides))
    return [side for side in sides if count[frozenset(side)] == 1]


def nearest(p: Point, sides: list[tuple[Point, Point]]) -> tuple[int, Fraction]:
    """The first of the sides that are nearest to a position, and the part of the way along it where it is nearest."""

    def square(a: Point, b: Point) -> tuple[int, int]:  # of the way there, and what it is to be divided by
        if dot(p, a, b) <= 0 or dot(p, b, a) <= 0:
            return min(dot(p, a, p), dot(p, b, p)), 1
        return turn(a, b, p) ** 2, dot(b, a, b)

    squares = [square(*side) for side in sides]
    rounded = [top / bottom for top, bottom in squares]  # correctly: the least is among the least of these
    least = min(rounded)
    n = min((n for n, each in enumerate(rounded) if each == least), key=lambda n: Fraction(*squares[n]))
    a, b = sides[n]
    return n, Fraction(min(max(dot(p, a, b), 0), dot(b, a, b)), max(dot(b, a, b), 1))


class People(check_planes.Plane):
    """A region, and where in it the people of a table are."""

    def __init__(self, problem: checker.Problem) -> None:
        super().__init__(problem)
        self.listed = list[tuple[int, Any, Point]]()  # how often, where somebody stands, and as what that is read
        self.straight, self.sides = list[Any](), list[tuple[Point, Point]]()

    def losses(self, problem: checker.Problem, everywhere: Fraction | None) -> None:
        """Losses of people at listed positions, where there are any, in place of people all over the region."""
        table = problem.tables["utility"]
        if everywhere and "positions" in table and "prior" not in table:
            self.read(problem, table.pop("positions"))
        super().losses(problem, everywhere)

    def read(self, problem: checker.Problem, file: object) -> None:
        """Take the table in: degrees or km, and maybe weights."""
        columns, earth = problem.columns(file), self.records.kind == "geographic"
        named = [pair for pair in (("lat", "lon"), ("x", "y")) if columns.keys() >= {*pair}]
        projection = self.along_streets() if self.roads else self.records.projection
        degrees = named == [("lat", "lon")]
        fits = len(named) == 1 and (projection is not None if degrees else not earth)
        checker.need(fits, f"problem/{file}: wanted lat and lon, or x and y, as the region has", 2)
        least, most = ((-90, -180), (90, 360)) if degrees else ((-(10**150),) * 2, (10**150,) * 2)
        rows = [map(checker.rational, columns[name]) for name in named[0]]
        weights = map(checker.rational, columns.get("weight", ["1"] * len(columns[named[0][0]])))
        people = dict[tuple[Fraction, Fraction], Fraction]()
        for n, (x, y, weight) in enumerate(zip(*rows, weights), 2):
            sound = least[0] <= x <= most[0] and least[1] <= y <= most[1] and weight >= 0
            checker.need(sound, f"problem/{file}: row {n}: no position, or a weight below 0", 2)
            people[x, y] = people.get((x, y), Fraction(0)) + weight
        total = sum(people.values())
        checker.need(total > 0, f"problem/{file}: weights of 0", 2)
        for at, weight in people.items():
            place = (projection.millimetres if projection and degrees else check_planes.millimetres)(*map(float, at))
            stands = tuple(map(check_planes.radians, at)) if earth else tuple(Fraction(mm, 10**6) for mm in place)
            self.listed += [(checker.low(weight / total), stands, place)] if weight else []

    def along_streets(self) -> check_planes.Projection | None:
        """Pieces of streets between known ends, straight lines in millimetres; how degrees come there."""
        place, pieces = {name: i for i, name in enumerate(self.points)}, iter(self.pieces)
        known, earth = dict(enumerate(self.records.doubles())), self.records.kind == "geographic"
        for tail, head, _ in self.streets:
            chain = [place[tail], next(pieces)[1]]
            while chain[-1] != place[head]:
                chain.append(next(pieces)[1])
            if not {chain[0], chain[-1]} <= known.keys():
                continue
            start, end = known[chain[0]], known[chain[-1]]
            up, right = end[0] - start[0], end[1] - start[1]
            right -= 360.0 * round(right / 360.0) if earth else 0.0  # the short way round
            for n, v in enumerate(chain[1:-1], 1):
                part = n / (len(chain) - 1)
                one, other = start[0] + part * up, start[1] + part * right
                known[v] = one, other - 360.0 * ((other > 360.0) - (other < -180.0)) if earth else other
        projection = check_planes.Projection([*known.values()]) if earth and known else None
        flat = projection.millimetres if projection else check_planes.millimetres
        at = {v: flat(*each) for v, each in known.items()}
        self.straight = [piece for piece in self.pieces if {*piece[:2]} <= at.keys()]
        checker.need(self.straight, "utility.positions: beside streets without coordinates", 2)
        self.sides = [(at[a], at[b]) for a, b, *_ in self.straight]
        return projection

    def people(self) -> list[tuple[Any, int, int]]:
        """Points of pieces of streets, and how often somebody is there: the nearest ones to those who are listed."""
        found = [(*nearest(p, self.sides), often) for often, _, p in self.listed]
        return [(self.straight[n], checker.low(part), often) for n, part, often in found] or super().people()

    def spread(self) -> Iterator[tuple[int, tuple[int, ...], list[int], Any]]:
        """Masses, corners, shares, where ways start; outside all triangles shares are of the rim's nearest point."""
        if not self.listed:
            yield from super().spread()
            return
        find, rim = within(self.at, self.corners), rim_of(self.corners)
        ends = [(self.at[a], self.at[b]) for a, b in rim]
        for often, stands, p in self.listed:
            n, part = nearest(p, ends) if (found := find(p)) is None else (0, Fraction(0))
            corners, shares = found or (rim[n], [part.denominator - part.numerator, part.numerator])
            yield often, corners, [checker.low(Fraction(share, sum(shares))) for share in shares], self.ready(stands)


class Matrix(check_planes.Matrix):
    """A release of metric differential privacy that serves people at listed positions."""

    measure = People


def check(folder: Path, say: Callable[[str], object] = print) -> int:
    """Say of each claim whether it holds; returns the exit code."""
    return checker.check(folder, say, Matrix)


if __name__ == "__main__":
    sys.exit(check(Path(*sys.argv[1:])))
