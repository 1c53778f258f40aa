"""How much the rows of a triangle's corners may differ: ratios along its sides that bound the gradient inside.

On a triangle with corner values z_A <= z_B, z_C of one output the gradient is greatest for its least value where p =
z_B / z_A - 1 and q = z_C / z_A - 1 are extreme. Rows held to z_b <= (1 + a) z_a along all three sides leave (p, q) in a
polygon. It is 0 <= p <= a_AB, 0 <= q <= a_AC, q - p <= a_BC (1 + p), p - q <= a_BC (1 + q). And

    (2 area)^2 |grad z|^2 / z_A^2 = p^2 |AC|^2 + q^2 |AB|^2 - 2 p q AB . AC

is convex, so it is greatest at a corner of that polygon: rationals, if the a are. The ratios suffice if no corner of
the polygon, for A, B and C in turn, exceeds (2 area epsilon)^2. They do with a = s epsilon l for s = the sine of the
smallest angle (mathematics: C3), exactly so for equilateral and right isosceles triangles. The largest common s lies
between that and the cosine of half the largest angle, and is searched for.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from privopt.arrays import Floats, Ints

__all__ = ["common_factors", "proved", "sufficient_ratios"]

Pick = Callable[[Any, Any], Any]

_BISECTION_STEPS = 50
_RELATIVE_MARGIN = 1e-11
"""Relative distance kept from the largest factor, many times what the doubles of the search lose."""


def sufficient_ratios(corners: Ints, epsilon: Fraction) -> Floats:
    """Return ratios a of the sides opposite each corner that suffice, proved in rationals.

    Args:
        corners: (S, 3, 2) millimetres, counter-clockwise.
        epsilon: per km.

    Returns:
        (S, 3) doubles, each meant as the rational that it is.
    """
    sides = corners[:, [2, 0, 1]] - corners[:, [1, 2, 0]]  # from B to C, C to A, A to B
    shapes, which = np.unique(sides.reshape(-1, 6), axis=0, return_inverse=True)
    unique = shapes.reshape(-1, 3, 2)
    per_mm = epsilon / 10**6
    factors = common_factors(unique, float(per_mm))
    lengths = _side_lengths(unique)
    ratios = factors[:, None] * (1.0 - _RELATIVE_MARGIN) * float(per_mm) * lengths
    for row, shape in enumerate(unique.tolist()):
        while not proved(shape, ratios[row], per_mm):
            ratios[row] *= 1.0 - 1e-6
    all_ratios: Floats = ratios[which.reshape(-1)]
    return all_ratios


def common_factors(sides: Ints, per_mm: float) -> Floats:
    """Return (S,) the largest s for which a = s epsilon l suffices on all three sides (S, 3, 2), as doubles."""
    vectors = sides.astype(np.float64)
    lengths = _side_lengths(sides)
    double_area = vectors[:, 0, 0] * vectors[:, 1, 1] - vectors[:, 0, 1] * vectors[:, 1, 0]
    lower, upper = np.zeros(len(sides)), np.ones(len(sides))
    for _ in range(_BISECTION_STEPS):
        middle = (lower + upper) / 2
        worst = np.zeros(len(sides))
        for a in range(3):  # the corner with the least value; b and c follow it
            b, c = (a + 1) % 3, (a + 2) % 3
            along_b, along_c, across = (middle * per_mm * lengths[:, opposite] for opposite in (c, b, a))
            square_b, square_c = (lengths[:, opposite] ** 2 for opposite in (c, b))
            dot = -(vectors[:, b] * vectors[:, c]).sum(axis=1)
            for p, q in _polygon_corners(along_b, along_c, across, np.minimum, np.maximum):
                worst = np.maximum(worst, p**2 * square_c + q**2 * square_b - 2 * p * q * dot)
        is_sufficient = np.sqrt(worst) <= per_mm * double_area
        lower, upper = np.where(is_sufficient, middle, lower), np.where(is_sufficient, upper, middle)
    return lower


def _side_lengths(sides: Ints) -> Floats:
    """(S, 3) by square roots, which every machine rounds alike."""
    x, y = sides[:, :, 0].astype(np.float64), sides[:, :, 1].astype(np.float64)
    return np.asarray(np.sqrt(x * x + y * y), dtype=np.float64)


def _polygon_corners(along_b: Any, along_c: Any, across: Any, minimum: Pick, maximum: Pick) -> list[tuple[Any, Any]]:
    """Corners of the polygon of (p, q), clipped to the box: every one of them lies in it.

    Of arrays of doubles or of rationals, as ``minimum`` and ``maximum`` of two such numbers are.
    """
    none = 0 * along_b
    top_b = minimum(along_b, along_c + across * (1 + along_c))  # the largest p and q that the polygon has
    top_c = minimum(along_c, along_b + across * (1 + along_b))
    return [
        (top_b, maximum(none, (top_b - across) / (1 + across))),
        (top_b, minimum(along_c, top_b + across * (1 + top_b))),
        (maximum(none, (top_c - across) / (1 + across)), top_c),
        (minimum(along_b, top_c + across * (1 + top_c)), top_c),
        (none, minimum(along_c, across)),
        (minimum(along_b, across), none),
    ]


def proved(sides: list[list[int]], ratios: Floats, per_mm: Fraction) -> bool:
    """Check in rationals whether ratios along a triangle's sides keep its gradient.

    Args:
        sides: from B to C, C to A, A to B, in millimetres.
        ratios: (3,) a of those sides.
        per_mm: epsilon.
    """
    square = [x * x + y * y for x, y in sides]
    double_area = sides[0][0] * sides[1][1] - sides[0][1] * sides[1][0]
    exact = [Fraction(float(a)) for a in ratios]
    if double_area <= 0 or min(exact) <= 0:
        return double_area > 0
    limit = (per_mm * double_area) ** 2
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        dot = -(sides[b][0] * sides[c][0] + sides[b][1] * sides[c][1])
        for p, q in _polygon_corners(exact[c], exact[b], exact[a], min, max):
            if p * p * square[b] + q * q * square[c] - 2 * p * q * dot > limit:
                return False
    return True
