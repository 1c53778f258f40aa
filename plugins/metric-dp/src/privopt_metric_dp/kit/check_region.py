"""Check guarantees between any two points of a region: compare points drawn between records.

Everything is in exact rationals and by the kit's own computation: neither the certificate nor the code that snaps
positions is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.testing.checks.base import Elsewhere, Trial, check
from privopt.testing.under_trial import Subject, error_text
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.region.region import MM_PER_KM, Plane, Region, Streets

__all__ = ["Excess", "greatest_excess", "located", "street_share"]

RANDOM_TRIES: Final = 120
NEARNESS: Final = (Fraction(1), Fraction(1, 10**3), Fraction(1, 10**9))
"""How near to a corner, a side or each other points are drawn, as a share of their simplex."""


@frozen(kw_only=True)
class Excess:
    """Two points whose outputs are easier to distinguish than allowed.

    Attributes:
        one, two: simplex and shares of its corners.
        output: number of the output.
        ratio: of its probabilities, as a double.
        km: length of a path between the two points.
        over: log ratio less what is allowed.
    """

    one: tuple[int, tuple[Fraction, ...]]
    two: tuple[int, tuple[Fraction, ...]]
    output: int
    ratio: float
    km: float
    over: float


def street_share(part: Fraction, reach: Fraction, steps: int) -> Fraction:
    """Return the probability that the far end of a street is drawn: linear between the points of C2, mirrored.

    Args:
        part: of the way, from 0 to 1.
        reach: epsilon times the length of the street.
        steps: n; 0 for the part itself.
    """
    if steps == 0 or reach == 0:
        return part
    if part > Fraction(1, 2):
        return 1 - street_share(1 - part, reach, steps)
    t = reach / (2 * steps)
    step, fraction = divmod(part * 2 * steps, 1)
    bounds = [((1 + t) ** (int(step) + offset) - 1) / (2 * ((1 + t) ** steps - 1)) for offset in (0, 1)]
    return bounds[0] + fraction * (bounds[1] - bounds[0])


def greatest_excess(
    weights: Sequence[Sequence[int]], region: Region, epsilon: Fraction, chance: Random, tries: int = RANDOM_TRIES
) -> Excess | None:
    """Return the worst of many pairs of points, near borders first; None where every one is as like as is promised.

    Args:
        weights: a row of whole numbers for each vertex.
        region: cut into simplices.
        epsilon: per km of way.
        chance: what points are drawn by.
        tries: pairs of points.
    """
    rows = [[Fraction(weight) for weight in row] for row in weights]
    worst: Excess | None = None
    for first, second, squared in _draw_pairs(region, epsilon, chance, tries):
        first_row, second_row = (_mix_rows(rows, region, simplex, shares) for simplex, shares in (first, second))
        for k, (p, q) in enumerate(zip(first_row, second_row, strict=True)):
            excess = _log_excess(p, q, epsilon, squared)
            if excess > 0 and (worst is None or excess > worst.over):
                ratio = math.inf if not (p and q) else float(max(p / q, q / p))
                worst = Excess(one=first, two=second, output=k, ratio=ratio, km=math.sqrt(squared), over=excess)
    return worst


def _mix_rows(rows: list[list[Fraction]], region: Region, simplex: int, shares: Sequence[Fraction]) -> list[Fraction]:
    corners = region.simplices[simplex].tolist()
    columns = zip(*(rows[corner] for corner in corners), strict=True)
    return [sum((s * w for s, w in zip(shares, column, strict=True)), Fraction(0)) for column in columns]


def _log_excess(p: Fraction, q: Fraction, epsilon: Fraction, squared: Fraction) -> float:
    """Return how far |log p / q| lies above epsilon times the root of a squared length; 0 if it does not."""
    import mpmath

    if p == q:
        return 0.0
    if not (p and q):
        return math.inf
    ratio = max(p / q, q / p)
    if (ratio - 1) ** 2 <= epsilon**2 * squared:
        return 0.0  # 1 + x <= exp(x)
    with mpmath.workdps(80):
        allowed = mpmath.sqrt(_to_mpf(squared)) * _to_mpf(epsilon)
        excess = mpmath.log(_to_mpf(ratio)) - allowed
        return float(excess) if excess > mpmath.mpf(10) ** -60 else 0.0


def _to_mpf(value: Fraction) -> Any:
    import mpmath

    return mpmath.mpf(value.numerator) / value.denominator


Point = tuple[int, tuple[Fraction, ...]]
Pair = tuple[Point, Point, Fraction]


def _draw_pairs(region: Region, epsilon: Fraction, chance: Random, tries: int) -> Iterator[Pair]:
    """Yield two points, of one simplex and of two in turn, and the squared length of a path between them in km."""
    count = len(region.simplices)
    for number in range(tries):
        simplex = number // 2 if number // 2 < count else chance.randrange(count)
        across = number % 2 == 1
        if isinstance(region, Streets):
            yield _draw_walk(region, epsilon, chance, simplex) if across else _on_one(region, epsilon, chance, simplex)
        elif isinstance(region, Plane):
            yield from _draw_crossings(region, chance, simplex) if across else [_in_one(region, chance, simplex)]


def _on_one(region: Streets, epsilon: Fraction, chance: Random, street: int) -> Pair:
    first, second = _draw_part(chance), _draw_part(chance)
    second = first + (second - first) * chance.choice(NEARNESS)
    squared = ((first - second) * Fraction(float(region.km[street]))) ** 2
    return _point_at(region, epsilon, street, first), _point_at(region, epsilon, street, second), squared


def _point_at(region: Streets, epsilon: Fraction, street: int, part: Fraction) -> Point:
    far_share = street_share(part, epsilon * Fraction(float(region.km[street])), region.steps)
    return street, (1 - far_share, far_share)


def _draw_walk(region: Streets, epsilon: Fraction, chance: Random, street: int) -> Pair:
    """Return a point of a street, and one where a walk of a few streets ends."""
    start = _draw_part(chance)
    first, position, end, way = _point_at(region, epsilon, street, start), start, 1, Fraction(0)
    for streets_left in range(chance.choice((1, 1, 2, 3)), 0, -1):
        end = chance.randrange(2)  # where this street is left
        way += abs(end - position) * Fraction(float(region.km[street]))
        corner = int(region.simplices[street, end])
        street = int(chance.choice(np.flatnonzero((region.simplices == corner).any(axis=1)).tolist()))
        begin = int(chance.choice(np.flatnonzero(region.simplices[street] == corner).tolist()))
        position = abs(begin - _draw_part(chance)) if streets_left == 1 else Fraction(begin)
        way += abs(position - begin) * Fraction(float(region.km[street]))
    return first, _point_at(region, epsilon, street, position), way**2


def _in_one(region: Plane, chance: Random, triangle: int) -> Pair:
    start, end = _in_triangle(chance), _in_triangle(chance)
    end = _interpolate(start, end, chance.choice(NEARNESS))
    return (
        (triangle, start),
        (triangle, end),
        _squared_km(_to_place(region, triangle, start), _to_place(region, triangle, end)),
    )


def _draw_crossings(region: Plane, chance: Random, triangle: int) -> Iterator[Pair]:
    """Yield a point of a border, or any, as each triangle has it; one on this side and one straight across."""
    used_corners = chance.sample(range(3), chance.choice((1, 2, 2, 2, 3)))
    parts = [
        chance.randrange(1, 1000) * chance.choice(NEARNESS) if corner in used_corners else Fraction(0)
        for corner in range(3)
    ]
    border = tuple(part / sum(parts, Fraction(0)) for part in parts)
    border_place = _to_place(region, triangle, border)
    start_shares = _interpolate(border, _in_triangle(chance), chance.choice(NEARNESS))
    start = _to_place(region, triangle, start_shares)
    step = chance.choice((Fraction(1), *NEARNESS))
    end_place = (
        border_place[0] + step * (border_place[0] - start[0]),
        border_place[1] + step * (border_place[1] - start[1]),
    )
    for neighbour, neighbour_shares in located(region, border_place):
        if neighbour == triangle:
            continue
        yield (triangle, border), (neighbour, neighbour_shares), Fraction(0)
        ahead = _barycentric(region, neighbour, end_place)
        if min(ahead) >= 0:
            yield (triangle, start_shares), (neighbour, ahead), _squared_km(start, end_place)


Place = tuple[Fraction, Fraction]


def _interpolate(a: Sequence[Fraction], b: Sequence[Fraction], part: Fraction) -> tuple[Fraction, ...]:
    return tuple(s + (e - s) * part for s, e in zip(a, b, strict=True))


def _to_place(region: Plane, triangle: int, shares: Sequence[Fraction]) -> Place:
    corners = region.vertices[region.simplices[triangle]].tolist()
    x, y = (sum((s * c[axis] for s, c in zip(shares, corners, strict=True)), Fraction(0)) for axis in (0, 1))
    return x, y


def _squared_km(a: Place, b: Place) -> Fraction:
    return ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) / MM_PER_KM**2


def _barycentric(region: Plane, triangle: int, point: Place) -> tuple[Fraction, ...]:
    """Barycentric coordinates; a negative one where a place lies outside."""
    corners = region.vertices[region.simplices[triangle]].tolist()
    (ax, ay), (bx, by), (cx, cy) = ((x - point[0], y - point[1]) for x, y in corners)
    parts = (bx * cy - by * cx, cx * ay - cy * ax, ax * by - ay * bx)
    total = sum(parts)
    return tuple(part / total for part in parts) if total else (Fraction(-1),) * 3  # a flat one holds nothing


def located(region: Plane, point: Place) -> Iterator[tuple[int, tuple[Fraction, ...]]]:
    """Yield all triangles that hold a place, each tried, and the place's shares of its corners."""
    corners = region.vertices[region.simplices]
    lower, upper = corners.min(axis=1), corners.max(axis=1)
    in_range = [
        (lower[:, axis] <= math.ceil(coordinate)) & (upper[:, axis] >= math.floor(coordinate))
        for axis, coordinate in enumerate(point)
    ]
    for triangle in np.flatnonzero(in_range[0] & in_range[1]).tolist():
        shares = _barycentric(region, triangle, point)
        if min(shares) >= 0:
            yield triangle, shares


def _draw_part(chance: Random) -> Fraction:
    part = Fraction(chance.randrange(1001), 1000) * chance.choice(NEARNESS)
    return chance.choice((part, 1 - part))


def _in_triangle(chance: Random) -> tuple[Fraction, ...]:
    """Shares of three corners: anywhere, near a side, near a corner."""
    parts = [Fraction(chance.randrange(1, 1000)), *(chance.randrange(1000) * chance.choice(NEARNESS) for _ in range(2))]
    chance.shuffle(parts)
    return tuple(part / sum(parts, Fraction(0)) for part in parts)


def _takes_regions(subject: Subject) -> str | None:
    if issubclass(subject.mechanism_class.problem_class, MetricProblem):
        return None
    return Elsewhere("its problems have no `privacy.everywhere`")


@check("every-point", of={"matrix", "odds"}, needs=_takes_regions, min_examples=20)
def every_point(trial: Trial) -> None:
    """Check that between any two points of a region odds change by at most exp(epsilon d), if that is promised."""
    problem = trial.problem().without_key("privacy.neighbours_within").with_key("privacy.everywhere", True)
    run = trial.attempt(problem)
    if run.error is not None:  # no region, or a mechanism that says so
        trial.pass_over(f"no generated problem was solved with privacy.everywhere = true: {error_text(run.error)}")
    if run.stated.guarantee.scope != "everywhere":
        trial.pass_over("the guarantee is not between any two points, though the problem has privacy.everywhere = true")
    data, chance = run.problem.data, trial.chance(problem)
    epsilon = Fraction(trial.subject.epsilon(run.problem))
    rows = [[int(w) for w in row] for row in np.asarray(run.release.weights).tolist()]
    if data.region is None:
        i, j = _nearest_rows(data, rows)
        if i != j:
            first, second = run.release.records[i], run.release.records[j]
            trial.fail(
                f"two points to the left and to the right of the middle between records {first} and {second}, however "
                "near, have the rows of one and of the other, for nothing snaps them at random: no epsilon is kept",
                problem,
            )
        return
    excess = greatest_excess(rows, data.region, epsilon, chance)
    if excess is not None:
        shares = [", ".join(f"{float(value):.9g}" for value in point[1]) for point in (excess.one, excess.two)]
        corners = [str(run.release.records[v]) for v in data.region.simplices[excess.one[0]].tolist()]
        trial.fail(
            f"two points {excess.km:.6g} km apart, between records {', '.join(corners)} with shares {shares[0]} and "
            f"{shares[1]}: output {run.release.outputs[excess.output]} is {excess.ratio:.12g} times as likely, which "
            f"is more than exp({float(epsilon):g} d)",
            problem,
        )


def _nearest_rows(data: Any, rows: list[list[int]]) -> tuple[int, int]:
    """Two records next to each other with different rows; the same twice where all are alike."""
    pairs, distances = np.asarray(data.pairs), np.asarray(data.distances)
    for p in np.argsort(distances, kind="stable").tolist():
        i, j = pairs[p].tolist()
        if rows[i] != rows[j]:
            return i, j
    return 0, 0
