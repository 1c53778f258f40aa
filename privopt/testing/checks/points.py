"""The check of promises between any two points of a region: the kit draws points between records and compares them.

Everything is in exact rationals and by the kit's own reckoning: neither the certificate nor the code that snaps
positions is asked.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import Any, Final

import hypothesis
import numpy as np
from attrs import frozen

from privopt.metric.everywhere.region import MM_PER_KM, Plane, Region, Streets
from privopt.testing.checks.base import Trial, check

__all__ = ["Excess", "greatest_excess", "street_share"]

TRIES: Final = 60
NEAR: Final = (Fraction(1), Fraction(1, 10**3), Fraction(1, 10**9))
"""How near to a corner, a side or each other points are drawn, as a share of their simplex."""


@frozen(kw_only=True)
class Excess:
    """Two points whose outputs are told apart better than allowed.

    Attributes:
        one, two: simplex and shares of its corners.
        output: number of the output.
        ratio: of its probabilities, as a double.
        km: length of a way between the two points.
        over: log ratio less what is allowed.
    """

    one: tuple[int, tuple[Fraction, ...]]
    two: tuple[int, tuple[Fraction, ...]]
    output: int
    ratio: float
    km: float
    over: float


def street_share(part: Fraction, reach: Fraction, steps: int) -> Fraction:
    """How likely the far end of a street is drawn at a part of the way: linear between the points of C2, mirrored.

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
    weights: Sequence[Sequence[int]], region: Region, epsilon: Fraction, chance: Random, tries: int = TRIES
) -> Excess | None:
    """The worst of many pairs of points, near borders first; None where every one is as like as is promised.

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
    """How far |log p / q| lies above epsilon times the root of a squared length; 0 where it does not."""
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


def _pairs(region: Region, epsilon: Fraction, chance: Random, tries: int) -> Iterator[tuple[Point, Point, Fraction]]:
    """Two points each of one simplex, and the square of the length of the straight way between them in km."""
    count = len(region.simplices)
    for number in range(tries):
        simplex = number if number < count else chance.randrange(count)
        if isinstance(region, Streets):
            length = Fraction(float(region.km[simplex]))
            one, two = _on_street(chance), _on_street(chance)
            two = one + (two - one) * chance.choice(NEAR)
            reach = epsilon * length
            far = [street_share(part, reach, region.steps) for part in (one, two)]
            squared = ((one - two) * length) ** 2
            yield (simplex, (1 - far[0], far[0])), (simplex, (1 - far[1], far[1])), squared
        elif isinstance(region, Plane):
            corners = region.vertices[region.simplices[simplex]].tolist()
            start, end, near = _in_triangle(chance), _in_triangle(chance), chance.choice(NEAR)
            end = tuple(s + (e - s) * near for s, e in zip(start, end, strict=True))
            step = [s - e for s, e in zip(start, end, strict=True)]
            along = [sum((s * c[axis] for s, c in zip(step, corners, strict=True)), Fraction(0)) for axis in (0, 1)]
            yield (simplex, start), (simplex, end), (along[0] ** 2 + along[1] ** 2) / MM_PER_KM**2


def _on_street(chance: Random) -> Fraction:
    part = Fraction(chance.randrange(1001), 1000) * chance.choice(NEAR)
    return chance.choice((part, 1 - part))


def _in_triangle(chance: Random) -> tuple[Fraction, ...]:
    """Shares of three corners: anywhere, near a side, near a corner."""
    parts = [Fraction(chance.randrange(1, 1000)), *(chance.randrange(1000) * chance.choice(NEAR) for _ in range(2))]
    chance.shuffle(parts)
    return tuple(part / sum(parts, Fraction(0)) for part in parts)


@check("every-point", families={"odds"}, share=0.5)
def every_point(trial: Trial) -> None:
    """Between any two points of a region, where that is promised, odds change by at most exp(epsilon d)."""
    problem = trial.problem().without_key("privacy.neighbours_within").with_key("privacy.everywhere", True)
    run = trial.attempt(problem)
    if run.error is not None or run.result is None or run.result.guarantee.scope != "everywhere":
        hypothesis.reject()  # no region, or a mechanism that says so
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
