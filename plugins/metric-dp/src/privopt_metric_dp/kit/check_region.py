"""A randomised check of guarantees that cover any two points in a region.

A region is divided into simplices, which are either streets (with two ends) or triangles. A position is snapped to a
random corner of its simplex, and the report is drawn from that corner's matrix row. The check computes the
probabilities of reports in exact rationals. It uses neither the certificate nor the mechanism's code for snapping
positions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache
from random import Random
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.testing.checks.base import Elsewhere, Trial, check
from privopt.testing.under_trial import Subject, error_text
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.region.region import MM_PER_KM, Plane, Region, Streets

__all__ = ["Excess", "greatest_excess", "locate_all", "street_share"]

RANDOM_TRIES: Final = 120
"""The default number of attempts to draw a pair of points."""
NEARNESS: Final = (Fraction(1), Fraction(1, 10**3), Fraction(1, 10**9))
"""Factors for bringing a point closer to a corner, a side or another point. One of them is drawn at random."""


@frozen(kw_only=True)
class Excess:
    """A violation of the guarantee: two points at which the probabilities of an output differ too much.

    Attributes:
        first, second: The two points, each as the index of a simplex (a street or triangle) and the weights of its
            corners.
        output: The index of the output.
        ratio: The larger probability of the output at the two points divided by the smaller one.
        km: The length in km of a path between the two points.
        over: The logarithm of the ratio minus its largest allowed value, which is epsilon times ``km``.
    """

    first: tuple[int, tuple[Fraction, ...]]
    second: tuple[int, tuple[Fraction, ...]]
    output: int
    ratio: float
    km: float
    over: float


def street_share(part: Fraction, reach: Fraction, steps: int) -> Fraction:
    """Return the probability that a position on a street is snapped to its far end rather than its near end.

    The probability is an S-shaped, piecewise linear function of the position, with the same number of pieces in each
    half of the street (docs/guide/everywhere.md, "Streets").

    Args:
        part: The position on the street, from 0 at the near end to 1 at the far end.
        reach: The product of epsilon and the length of the street.
        steps: The number of linear pieces in each half, or 0 if the probability equals the position.
    """
    if steps == 0 or reach == 0:
        return part
    # The curve is symmetric about the middle of the street.
    if part > Fraction(1, 2):
        return 1 - street_share(1 - part, reach, steps)
    # The share is linear on each of the n pieces of the first half. From piece to piece, the slope grows by a factor of
    # 1 + t, which is as fast as the guarantee allows.
    piece, fraction = divmod(part * 2 * steps, 1)
    start, end = _piece_share(reach, steps, int(piece)), _piece_share(reach, steps, int(piece) + 1)
    return start + fraction * (end - start)


@lru_cache(1 << 10)
def _piece_share(reach: Fraction, steps: int, piece: int) -> Fraction:
    """Return the probability that a position at the start of a linear piece is snapped to the far end of the street.

    Args:
        reach: The product of epsilon and the length of the street.
        steps: The number of pieces in the first half of the street.
        piece: The index of the piece, counted from 0 at the near end. Piece ``steps`` starts in the middle of the
            street.
    """
    t = reach / (2 * steps)
    return ((1 + t) ** piece - 1) / (2 * ((1 + t) ** steps - 1))


def greatest_excess(
    weights: Sequence[Sequence[int]], region: Region, epsilon: Fraction, chance: Random, tries: int = RANDOM_TRIES
) -> Excess | None:
    """Return the worst violation of the guarantee among random pairs of points, or None if there is none.

    Args:
        weights: The integer weights of all outputs, for each vertex of the region.
        region: The region covered by the guarantee.
        epsilon: Epsilon per km of the path between two points.
        chance: The random number generator used to draw the points.
        tries: The number of attempts to draw a pair of points.
    """
    worst: Excess | None = None
    # A point consists of a simplex and a weight for each corner. Its row is the weighted mean of the corners' rows,
    # because the weights are the probabilities with which the position is snapped to the corners.
    for first, second, squared in _draw_pairs(region, epsilon, chance, tries):
        (first_row, first_unit), (second_row, second_unit) = (
            _mix_rows(weights, region, simplex, shares) for simplex, shares in (first, second)
        )
        squared_limit = epsilon**2 * squared
        for k, (first_weight, second_weight) in enumerate(zip(first_row, second_row, strict=True)):
            # In a common unit, the two weights can be compared as integers.
            p, q = first_weight * second_unit, second_weight * first_unit
            excess = _log_excess(p, q, squared_limit)
            if excess > 0 and (worst is None or excess > worst.over):
                ratio = math.inf if not (p and q) else float(Fraction(max(p, q), min(p, q)))
                worst = Excess(first=first, second=second, output=k, ratio=ratio, km=math.sqrt(squared), over=excess)
    return worst


def _mix_rows(
    rows: Sequence[Sequence[int]], region: Region, simplex: int, shares: Sequence[Fraction]
) -> tuple[list[int], int]:
    """Return the weights of all outputs at a point, averaged over the random corner to which the point is snapped.

    Args:
        rows: The integer weights of all outputs, for each vertex of the region.
        region: The region that contains the point.
        simplex: The index of the simplex that contains the point.
        shares: The probability that the point is snapped to each corner of the simplex. They sum to 1.

    Returns:
        The weights as integers, and the denominator by which to divide them.
    """
    corners = region.simplices[simplex].tolist()
    columns = zip(*(rows[corner] for corner in corners), strict=True)
    unit = math.lcm(*(share.denominator for share in shares))
    parts = [share.numerator * (unit // share.denominator) for share in shares]
    return [sum(part * weight for part, weight in zip(parts, column, strict=True)) for column in columns], unit


def _log_excess(p: int, q: int, squared_limit: Fraction) -> float:
    """Return the amount by which |log(p / q)| exceeds the allowed log ratio, or 0 if it does not.

    Args:
        p, q: The non-negative weights of an output at two points, over a common denominator.
        squared_limit: The square of the allowed log ratio, which is epsilon times the length of a path between the
            points and may be irrational.
    """
    import mpmath

    if p == q:
        return 0.0
    if not (p and q):
        return math.inf
    larger, smaller = max(p, q), min(p, q)
    # Most pairs can be decided with integers, because ratio <= 1 + epsilon d implies ratio <= exp(epsilon d).
    if (larger - smaller) ** 2 * squared_limit.denominator <= smaller**2 * squared_limit.numerator:
        return 0.0
    ratio = Fraction(larger, smaller)
    with mpmath.workdps(80):
        allowed = mpmath.sqrt(_to_mpf(squared_limit))
        # With 80 digits, rounding errors are far below 10^-60, so a smaller excess counts as 0.
        excess = mpmath.log(_to_mpf(ratio)) - allowed
        return float(excess) if excess > mpmath.mpf(10) ** -60 else 0.0


def _to_mpf(value: Fraction) -> Any:
    """Convert a rational to an mpmath number at the current working precision."""
    import mpmath

    return mpmath.mpf(value.numerator) / value.denominator


Point = tuple[int, tuple[Fraction, ...]]
"""The index of the simplex that contains a point, and the probability of being snapped to each of its corners."""
Pair = tuple[Point, Point, Fraction]
"""Two points in a region, and the square of the length of a path between them in km^2."""


def _draw_pairs(region: Region, epsilon: Fraction, chance: Random, tries: int) -> Iterator[Pair]:
    """Yield random pairs of points, alternately in the same simplex and in different ones.

    Args:
        region: The streets or the triangulated plane from which points are drawn.
        epsilon: Epsilon per km, which determines the snapping probabilities on streets.
        chance: The random number generator used to draw the points.
        tries: The number of attempts. An attempt across the side of a triangle may yield several pairs or none.
    """
    count = len(region.simplices)
    for number in range(tries):
        # Both kinds of pairs are tried once for every simplex in order. After that, simplices are drawn at random.
        simplex = number // 2 if number // 2 < count else chance.randrange(count)
        across = number % 2 == 1
        if isinstance(region, Streets):
            yield (
                _draw_walk(region, epsilon, chance, simplex)
                if across
                else _draw_on_street(region, epsilon, chance, simplex)
            )
        elif isinstance(region, Plane):
            yield from (
                _draw_crossings(region, chance, simplex) if across else [_draw_inside_triangle(region, chance, simplex)]
            )


def _draw_on_street(region: Streets, epsilon: Fraction, chance: Random, street: int) -> Pair:
    """Draw two points on the same street, which are sometimes very close together.

    Args:
        region: The streets from which points are drawn.
        epsilon: Epsilon per km.
        chance: The random number generator used to draw the points.
        street: The index of the street.

    Returns:
        The two points, and the square of their distance along the street in km^2.
    """
    first, second = _draw_part(chance), _draw_part(chance)
    second = first + (second - first) * chance.choice(NEARNESS)
    squared = ((first - second) * Fraction(float(region.km[street]))) ** 2
    return _point_at(region, epsilon, street, first), _point_at(region, epsilon, street, second), squared


def _point_at(region: Streets, epsilon: Fraction, street: int, part: Fraction) -> Point:
    """Return the point at a position on a street, with the probabilities of being snapped to the two ends.

    Args:
        region: The streets, one of which contains the point.
        epsilon: Epsilon per km.
        street: The index of the street.
        part: The position, from 0 at the near end to 1 at the far end.
    """
    far_share = street_share(part, epsilon * Fraction(float(region.km[street])), region.steps)
    return street, (1 - far_share, far_share)


def _draw_walk(region: Streets, epsilon: Fraction, chance: Random, street: int) -> Pair:
    """Draw a random walk that starts on a given street and passes through one to three junctions.

    Args:
        region: The streets that the walk may use.
        epsilon: Epsilon per km.
        chance: The random number generator used to draw the walk.
        street: The index of the street on which the walk starts.

    Returns:
        The start and the end of the walk, and the square of its length in km^2.
    """
    start = _draw_part(chance)
    first, position, end, way = _point_at(region, epsilon, street, start), start, 1, Fraction(0)
    for streets_left in range(chance.choice((1, 1, 2, 3)), 0, -1):
        # If a walk turns back, it is longer than the shortest path. Its length is still an upper bound, so no false
        # faults are reported.
        end = chance.randrange(2)  # the end at which the walk leaves this street
        way += abs(end - position) * Fraction(float(region.km[street]))
        corner = int(region.simplices[street, end])
        street = int(chance.choice(np.flatnonzero((region.simplices == corner).any(axis=1)).tolist()))
        begin = int(chance.choice(np.flatnonzero(region.simplices[street] == corner).tolist()))
        # The walk enters the next street at the end `begin` (0 or 1). It stops at a random position in the last street.
        position = abs(begin - _draw_part(chance)) if streets_left == 1 else Fraction(begin)
        way += abs(position - begin) * Fraction(float(region.km[street]))
    return first, _point_at(region, epsilon, street, position), way**2


def _draw_inside_triangle(region: Plane, chance: Random, triangle: int) -> Pair:
    """Draw two points in the same triangle, which are sometimes very close together.

    Args:
        region: The triangulated plane.
        chance: The random number generator used to draw the points.
        triangle: The index of the triangle.

    Returns:
        The two points, and the square of their distance in km^2.
    """
    start, end = _draw_barycentric(chance), _draw_barycentric(chance)
    end = _interpolate(start, end, chance.choice(NEARNESS))
    return (
        (triangle, start),
        (triangle, end),
        _squared_km(_to_place(region, triangle, start), _to_place(region, triangle, end)),
    )


def _draw_crossings(region: Plane, chance: Random, triangle: int) -> Iterator[Pair]:
    """Yield pairs of points on either side of a random point, which usually lies on the border of a triangle.

    Every other triangle that contains this border point can yield two pairs. The first pair represents the border point
    twice, once as a point of each triangle. The second pair consists of one point in each of the two triangles, such
    that the line between them passes through the border point.

    Args:
        region: The triangulated plane.
        chance: The random number generator used to draw the points.
        triangle: The index of the triangle.
    """
    # The border point is a corner, a point on a side or a point inside, depending on how many corners have a positive
    # weight.
    used_corners = chance.sample(range(3), chance.choice((1, 2, 2, 2, 3)))
    parts = [
        chance.randrange(1, 1000) * chance.choice(NEARNESS) if corner in used_corners else Fraction(0)
        for corner in range(3)
    ]
    border = tuple(part / sum(parts, Fraction(0)) for part in parts)
    border_place = _to_place(region, triangle, border)
    # A straight line leads from a point in this triangle (start) through the border point and beyond it (end).
    start_shares = _interpolate(border, _draw_barycentric(chance), chance.choice(NEARNESS))
    start = _to_place(region, triangle, start_shares)
    step = chance.choice((Fraction(1), *NEARNESS))
    end_place = (
        border_place[0] + step * (border_place[0] - start[0]),
        border_place[1] + step * (border_place[1] - start[1]),
    )
    for neighbour, neighbour_shares in locate_all(region, border_place):
        if neighbour == triangle:
            continue
        # As a point of either triangle, the border point must have the same row, or it would have two distributions.
        yield (triangle, border), (neighbour, neighbour_shares), Fraction(0)
        ahead = _barycentric(region, neighbour, end_place)
        if min(ahead) >= 0:
            yield (triangle, start_shares), (neighbour, ahead), _squared_km(start, end_place)


Place = tuple[Fraction, Fraction]
"""The exact coordinates (x, y) of a point, in millimetres like the coordinates of the region's vertices."""


def _interpolate(a: Sequence[Fraction], b: Sequence[Fraction], part: Fraction) -> tuple[Fraction, ...]:
    """Return the point a + part (b - a) on the line through a and b."""
    return tuple(s + (e - s) * part for s, e in zip(a, b, strict=True))


def _to_place(region: Plane, triangle: int, shares: Sequence[Fraction]) -> Place:
    """Convert barycentric coordinates in a triangle to exact coordinates in millimetres.

    Args:
        region: The triangulated plane.
        triangle: The index of the triangle.
        shares: The barycentric coordinates of the point.
    """
    corners = region.vertices[region.simplices[triangle]].tolist()
    x, y = (sum((s * c[axis] for s, c in zip(shares, corners, strict=True)), Fraction(0)) for axis in (0, 1))
    return x, y


def _squared_km(a: Place, b: Place) -> Fraction:
    """Return the squared distance in km^2 between two points whose coordinates are in millimetres."""
    return ((a[0] - b[0]) ** 2 + (a[1] - b[1]) ** 2) / MM_PER_KM**2


def _barycentric(region: Plane, triangle: int, point: Place) -> tuple[Fraction, ...]:
    """Return the barycentric coordinates of a point in a triangle, some of which are negative if it lies outside.

    Args:
        region: The triangulated plane.
        triangle: The index of the triangle.
        point: The exact coordinates of the point in millimetres.
    """
    corners = region.vertices[region.simplices[triangle]].tolist()
    (ax, ay), (bx, by), (cx, cy) = ((x - point[0], y - point[1]) for x, y in corners)
    # Barycentric coordinates are proportional to the signed areas of the triangles that the point forms with two
    # corners each.
    parts = (bx * cy - by * cx, cx * ay - cy * ax, ax * by - ay * bx)
    total = sum(parts)
    # A degenerate triangle contains no point, so all coordinates are negative.
    return tuple(part / total for part in parts) if total else (Fraction(-1),) * 3


def locate_all(region: Plane, point: Place) -> Iterator[tuple[int, tuple[Fraction, ...]]]:
    """Yield the index of each triangle that contains a point, with the point's barycentric coordinates there.

    A point on a side between two triangles lies in both, and a vertex often lies in more than two.

    Args:
        region: The triangulated plane.
        point: The exact coordinates of the point in millimetres.
    """
    corners = region.vertices[region.simplices]
    lower, upper = corners.min(axis=1), corners.max(axis=1)
    # Bounding boxes exclude most triangles before anything is computed in rationals. They have integer corners, so the
    # point's coordinates can be rounded for the comparison.
    in_range = [
        (lower[:, axis] <= math.ceil(coordinate)) & (upper[:, axis] >= math.floor(coordinate))
        for axis, coordinate in enumerate(point)
    ]
    for triangle in np.flatnonzero(in_range[0] & in_range[1]).tolist():
        shares = _barycentric(region, triangle, point)
        if min(shares) >= 0:
            yield triangle, shares


def _draw_part(chance: Random) -> Fraction:
    """Draw a position on a street, as a fraction between 0 and 1 that is often very close to 0 or 1."""
    part = Fraction(chance.randrange(1001), 1000) * chance.choice(NEARNESS)
    return chance.choice((part, 1 - part))


def _draw_barycentric(chance: Random) -> tuple[Fraction, ...]:
    """Draw the barycentric coordinates of a point in a triangle, sometimes very close to a side or corner."""
    # The first part is positive, so the sum is never 0.
    parts = [Fraction(chance.randrange(1, 1000)), *(chance.randrange(1000) * chance.choice(NEARNESS) for _ in range(2))]
    chance.shuffle(parts)
    return tuple(part / sum(parts, Fraction(0)) for part in parts)


def _takes_regions(subject: Subject) -> str | None:
    """Return None if a mechanism accepts metric problems, or else the reason why :func:`every_point` does not apply."""
    if issubclass(subject.mechanism_class.problem_class, MetricProblem):
        return None
    return Elsewhere("its problems have no `privacy.everywhere`")


@check("every-point", of={"matrix", "odds"}, needs=_takes_regions, min_examples=20)
def every_point(trial: Trial) -> None:
    """Check a guarantee that covers every point of a region, by comparing random pairs of points.

    The probabilities of an output at two points at distance d may differ by at most a factor of exp(epsilon d). The
    check applies to releases that claim this for a problem with ``privacy.everywhere``.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    # A limit on the distances between neighbours cannot be combined with a guarantee between any two points.
    problem = trial.problem().without_key("privacy.neighbours_within").with_key("privacy.everywhere", True)
    # The check needs only the release's rows, so nothing is written. A run that fails is passed over.
    run = trial.attempt(problem, written=False)
    if run.error is not None:  # the problem has no region, or the mechanism rejects regions
        trial.pass_over(f"no generated problem was solved with privacy.everywhere = true: {error_text(run.error)}")
    if run.stated.guarantee.scope != "everywhere":
        trial.pass_over("the guarantee is not between any two points, though the problem has privacy.everywhere = true")
    data, chance = run.problem.data, trial.chance(problem)
    epsilon = Fraction(trial.subject.epsilon(run.problem))
    rows = [[int(w) for w in row] for row in np.asarray(run.release.weights).tolist()]
    if data.region is None:
        # Without a region, a position would be replaced by the nearest record, so probabilities would jump halfway
        # between two records with different rows.
        i, j = _nearest_rows(data, rows)
        if i != j:
            first, second = run.release.records[i], run.release.records[j]
            trial.fail(
                f"two points on either side of the midpoint between records {first} and {second}, however close, have "
                "different rows, because nothing snaps them at random: no epsilon is satisfied",
                problem,
            )
        return
    excess = greatest_excess(rows, data.region, epsilon, chance)
    if excess is not None:
        points = excess.first, excess.second
        first, second = (_describe_point(run.release.records, data.region, point) for point in points)
        trial.fail(
            f"two points {excess.km:.6g} km apart, one {first} and one {second}: output "
            f"{run.release.outputs[excess.output]} is {excess.ratio:.12g} times as likely at one as at the other, "
            f"which is more than exp({float(epsilon):g} d)",
            problem,
        )


def _describe_point(records: Any, region: Any, point: tuple[int, Sequence[Fraction]]) -> str:
    """Describe the position of a point in a region for a message.

    Args:
        records: The ids of the release's rows.
        region: The region, whose simplices are streets or triangles.
        point: The index of the simplex that contains the point, and the weight of each corner.
    """
    corners = ", ".join(str(records[corner]) for corner in region.simplices[point[0]].tolist())
    shares = ", ".join(f"{float(share):.9g}" for share in point[1])
    return f"between records {corners} with shares {shares}"


def _nearest_rows(data: Any, rows: list[list[int]]) -> tuple[int, int]:
    """Find the two closest records that form a required pair and have different rows.

    Args:
        data: The data of the problem.
        rows: The weights of all outputs, for each record.

    Returns:
        The indices of the two records, or (0, 0) if the rows are equal in every required pair.
    """
    pairs, distances = np.asarray(data.pairs), np.asarray(data.distances)
    for p in np.argsort(distances, kind="stable").tolist():
        i, j = pairs[p].tolist()
        if rows[i] != rows[j]:
            return i, j
    return 0, 0
