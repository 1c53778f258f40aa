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
    at, rest = divmod(part * 2 * steps, 1)
    ends = [((1 + t) ** (int(at) + more) - 1) / (2 * ((1 + t) ** steps - 1)) for more in (0, 1)]
    return ends[0] + rest * (ends[1] - ends[0])


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
    for one, two, squared in _pairs(region, epsilon, chance, tries):
        here, there = (_mixed(rows, region, simplex, shares) for simplex, shares in (one, two))
        for k, (p, q) in enumerate(zip(here, there, strict=True)):
            over = _over(p, q, epsilon, squared)
            if over > 0 and (worst is None or over > worst.over):
                ratio = math.inf if not (p and q) else float(max(p / q, q / p))
                worst = Excess(one=one, two=two, output=k, ratio=ratio, km=math.sqrt(squared), over=over)
    return worst


def _mixed(rows: list[list[Fraction]], region: Region, simplex: int, shares: Sequence[Fraction]) -> list[Fraction]:
    corners = region.simplices[simplex].tolist()
    every = zip(*(rows[corner] for corner in corners), strict=True)
    return [sum((s * w for s, w in zip(shares, column, strict=True)), Fraction(0)) for column in every]


def _over(p: Fraction, q: Fraction, epsilon: Fraction, squared: Fraction) -> float:
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
        allowed = mpmath.sqrt(_exact(squared)) * _exact(epsilon)
        over = mpmath.log(_exact(ratio)) - allowed
        return float(over) if over > mpmath.mpf(10) ** -60 else 0.0


def _exact(value: Fraction) -> Any:
    import mpmath

    return mpmath.mpf(value.numerator) / value.denominator


Point = tuple[int, tuple[Fraction, ...]]
Pair = tuple[Point, Point, Fraction]


def _pairs(region: Region, epsilon: Fraction, chance: Random, tries: int) -> Iterator[Pair]:
    """Yield two points, of one simplex and of two in turn, and the squared length of a path between them in km."""
    count = len(region.simplices)
    for number in range(tries):
        simplex = number // 2 if number // 2 < count else chance.randrange(count)
        across = number % 2 == 1
        if isinstance(region, Streets):
            yield _along(region, epsilon, chance, simplex) if across else _on_one(region, epsilon, chance, simplex)
        elif isinstance(region, Plane):
            yield from _across(region, chance, simplex) if across else [_in_one(region, chance, simplex)]


def _on_one(region: Streets, epsilon: Fraction, chance: Random, street: int) -> Pair:
    one, two = _part(chance), _part(chance)
    two = one + (two - one) * chance.choice(NEARNESS)
    squared = ((one - two) * Fraction(float(region.km[street]))) ** 2
    return _at(region, epsilon, street, one), _at(region, epsilon, street, two), squared


def _at(region: Streets, epsilon: Fraction, street: int, part: Fraction) -> Point:
    far = street_share(part, epsilon * Fraction(float(region.km[street])), region.steps)
    return street, (1 - far, far)


def _along(region: Streets, epsilon: Fraction, chance: Random, street: int) -> Pair:
    """Return a point of a street, and one where a walk of a few streets ends."""
    start = _part(chance)
    one, at, end, way = _at(region, epsilon, street, start), start, 1, Fraction(0)
    for left in range(chance.choice((1, 1, 2, 3)), 0, -1):
        end = chance.randrange(2)  # where this street is left
        way += abs(end - at) * Fraction(float(region.km[street]))
        corner = int(region.simplices[street, end])
        street = int(chance.choice(np.flatnonzero((region.simplices == corner).any(axis=1)).tolist()))
        begin = int(chance.choice(np.flatnonzero(region.simplices[street] == corner).tolist()))
        at = abs(begin - _part(chance)) if left == 1 else Fraction(begin)
        way += abs(at - begin) * Fraction(float(region.km[street]))
    return one, _at(region, epsilon, street, at), way**2


def _in_one(region: Plane, chance: Random, triangle: int) -> Pair:
    start, end = _in_triangle(chance), _in_triangle(chance)
    end = _between(start, end, chance.choice(NEARNESS))
    return (triangle, start), (triangle, end), _squared(_place(region, triangle, start), _place(region, triangle, end))


def _across(region: Plane, chance: Random, triangle: int) -> Iterator[Pair]:
    """Yield a point of a border, or any, as each triangle has it; one on this side and one straight across."""
    ends = chance.sample(range(3), chance.choice((1, 2, 2, 2, 3)))
    parts = [
        chance.randrange(1, 1000) * chance.choice(NEARNESS) if corner in ends else Fraction(0) for corner in range(3)
    ]
    border = tuple(part / sum(parts, Fraction(0)) for part in parts)
    place = _place(region, triangle, border)
    before = _between(border, _in_triangle(chance), chance.choice(NEARNESS))
    start = _place(region, triangle, before)
    step = chance.choice((Fraction(1), *NEARNESS))
    beyond = (place[0] + step * (place[0] - start[0]), place[1] + step * (place[1] - start[1]))
    for other, found in located(region, place):
        if other == triangle:
            continue
        yield (triangle, border), (other, found), Fraction(0)
        ahead = _shares(region, other, beyond)
        if min(ahead) >= 0:
            yield (triangle, before), (other, ahead), _squared(start, beyond)


Place = tuple[Fraction, Fraction]


def _between(one: Sequence[Fraction], two: Sequence[Fraction], part: Fraction) -> tuple[Fraction, ...]:
    return tuple(s + (e - s) * part for s, e in zip(one, two, strict=True))


def _place(region: Plane, triangle: int, shares: Sequence[Fraction]) -> Place:
    corners = region.vertices[region.simplices[triangle]].tolist()
    x, y = (sum((s * c[axis] for s, c in zip(shares, corners, strict=True)), Fraction(0)) for axis in (0, 1))
    return x, y


def _squared(one: Place, two: Place) -> Fraction:
    return ((one[0] - two[0]) ** 2 + (one[1] - two[1]) ** 2) / MM_PER_KM**2


def _shares(region: Plane, triangle: int, place: Place) -> tuple[Fraction, ...]:
    """Barycentric coordinates; a negative one where a place lies outside."""
    corners = region.vertices[region.simplices[triangle]].tolist()
    (ax, ay), (bx, by), (cx, cy) = ((x - place[0], y - place[1]) for x, y in corners)
    parts = (bx * cy - by * cx, cx * ay - cy * ax, ax * by - ay * bx)
    whole = sum(parts)
    return tuple(part / whole for part in parts) if whole else (Fraction(-1),) * 3  # a flat one holds nothing


def located(region: Plane, place: Place) -> Iterator[tuple[int, tuple[Fraction, ...]]]:
    """Yield all triangles that hold a place, each tried, and the place's shares of its corners."""
    corners = region.vertices[region.simplices]
    low, high = corners.min(axis=1), corners.max(axis=1)
    near = [(low[:, axis] <= math.ceil(at)) & (high[:, axis] >= math.floor(at)) for axis, at in enumerate(place)]
    for triangle in np.flatnonzero(near[0] & near[1]).tolist():
        shares = _shares(region, triangle, place)
        if min(shares) >= 0:
            yield triangle, shares


def _part(chance: Random) -> Fraction:
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
            one, two = run.release.records[i], run.release.records[j]
            trial.fail(
                f"two points to the left and to the right of the middle between records {one} and {two}, however "
                "near, have the rows of one and of the other, for nothing snaps them at random: no epsilon is kept",
                problem,
            )
        return
    found = greatest_excess(rows, data.region, epsilon, chance)
    if found is not None:
        shares = [", ".join(f"{float(share):.9g}" for share in point[1]) for point in (found.one, found.two)]
        corners = [str(run.release.records[v]) for v in data.region.simplices[found.one[0]].tolist()]
        trial.fail(
            f"two points {found.km:.6g} km apart, between records {', '.join(corners)} with shares {shares[0]} and "
            f"{shares[1]}: output {run.release.outputs[found.output]} is {found.ratio:.12g} times as likely, which is "
            f"more than exp({float(epsilon):g} d)",
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
