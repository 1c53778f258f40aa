"""Bounds on the ratios of probabilities along a triangle's sides that are sufficient for privacy inside the triangle.

Let z_A, z_B and z_C be the probabilities of one output at the corners, with z_A the smallest. Let p = z_B / z_A - 1 and
q = z_C / z_A - 1. Each side has a ratio a, such as a_AB for the side AB. Suppose that the probabilities at the two ends
of each side differ by at most a factor of 1 + a. Then (p, q) lies in the polygon 0 <= p <= a_AB, 0 <= q <= a_AC,
q - p <= a_BC (1 + p), p - q <= a_BC (1 + q). The expression

    (2 area)^2 |grad z|^2 / z_A^2 = p^2 |AC|^2 + q^2 |AB|^2 - 2 p q AB . AC

is convex, so it attains its maximum at a corner of that polygon. The corners are rational if the ratios are. Each
corner of the triangle is taken in turn as A, the corner with the smallest probability. The ratios are sufficient if, in
each case, the expression is at most (2 area epsilon)^2 at every corner of the polygon.

The ratios used are a = s epsilon l, where l is the length of the side and s is a factor common to all three sides.
These are sufficient if s is the sine of the smallest angle (docs/guide/everywhere.md, "Triangles"). For equilateral and
right isosceles triangles, no larger s is sufficient. In general, the largest s lies between this sine and the cosine of
half the largest angle, and is found by bisection.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from privopt.arrays import Floats, Ints

__all__ = ["common_factors", "prove_ratios", "sufficient_ratios"]

Pick = Callable[[Any, Any], Any]
"""The type of a function that returns the smaller or the larger of two numbers or arrays."""

_BISECTION_STEPS = 50
_RELATIVE_MARGIN = 1e-11
"""The relative amount by which factors found in floating point are reduced.

It far exceeds the rounding errors in the search."""
_MIN_SEARCH_EPSILON, _MAX_SEARCH_EPSILON = 1e-30, 1e30
"""The smallest and largest epsilon per millimetre for which factors are searched for.

Beyond these limits, factors do not change in double precision, and squares would underflow or overflow."""


def sufficient_ratios(corners: Ints, epsilon: Fraction) -> Floats:
    """Return ratios for the sides of each triangle that are sufficient for privacy inside the triangle.

    Suppose that the probabilities z of an output at the two ends of each side differ by at most a factor of 1 + a,
    where a is the ratio for that side. The ratios are sufficient if this implies |grad z| <= epsilon min z inside the
    triangle (see the module docstring). Sufficiency is proved in rational arithmetic.

    Args:
        corners: Array of shape (S, 3, 2) with the corners of each triangle in millimetres, counter-clockwise.
        epsilon: Epsilon per km.

    Returns:
        Array of shape (S, 3) with the ratio for the side opposite each corner. The doubles are taken to be exact.
    """
    sides = corners[:, [2, 0, 1]] - corners[:, [1, 2, 0]]  # vectors from B to C, C to A, A to B
    # Meshes often consist of only a few shapes, so each distinct shape is solved and proved once.
    shapes, which = np.unique(sides.reshape(-1, 6), axis=0, return_inverse=True)
    unique = shapes.reshape(-1, 3, 2)
    per_mm = epsilon / 10**6
    factors = common_factors(unique, min(max(float(per_mm), _MIN_SEARCH_EPSILON), _MAX_SEARCH_EPSILON))
    lengths = _side_lengths(unique)
    ratios = factors[:, None] * (1.0 - _RELATIVE_MARGIN) * float(per_mm) * lengths
    # The floating-point search only proposes ratios. Those that cannot be proved are reduced until they can.
    for row, shape in enumerate(unique.tolist()):
        while not prove_ratios(shape, ratios[row], per_mm):
            # Smaller ratios are stricter, and at 0 all rows are equal, so the loop ends for every triangle with a
            # positive area. The step to the next double is for the smallest doubles, which the factor does not change.
            ratios[row] = np.minimum(ratios[row] * (1.0 - 1e-6), np.nextafter(ratios[row], 0.0))
    all_ratios: Floats = ratios[which.reshape(-1)]
    return all_ratios


def common_factors(sides: Ints, per_mm: float) -> Floats:
    """Return the largest factor s for each triangle such that the ratios a = s epsilon l are sufficient.

    Here l is the length of a side. See :func:`sufficient_ratios` for the definition of sufficient ratios.

    Args:
        sides: Array of shape (S, 3, 2) with the vectors along each triangle's sides in millimetres, from B to C, C to
            A, and A to B.
        per_mm: Epsilon per millimetre.

    Returns:
        Array of shape (S,) with the factors as doubles, found by bisection between 0 and 1.
    """
    vectors = sides.astype(np.float64)
    lengths = _side_lengths(sides)
    double_area = vectors[:, 0, 0] * vectors[:, 1, 1] - vectors[:, 0, 1] * vectors[:, 1, 0]
    lower, upper = np.zeros(len(sides)), np.ones(len(sides))
    for _ in range(_BISECTION_STEPS):
        middle = (lower + upper) / 2
        worst = np.zeros(len(sides))
        for a in range(3):  # index of the corner with the smallest value; b and c are the next two
            b, c = (a + 1) % 3, (a + 2) % 3
            # Side a is opposite corner a, so the sides from a to b and from a to c have the indices c and b.
            along_b, along_c, across = (middle * per_mm * lengths[:, opposite] for opposite in (c, b, a))
            square_b, square_c = (lengths[:, opposite] ** 2 for opposite in (c, b))
            # AB . AC. The side opposite b leads from c to a, hence the minus sign.
            dot = -(vectors[:, b] * vectors[:, c]).sum(axis=1)
            for p, q in _polygon_corners(along_b, along_c, across, np.minimum, np.maximum):
                # (2 area)^2 |grad z|^2 / z_A^2, as in the module's docstring.
                worst = np.maximum(worst, p**2 * square_c + q**2 * square_b - 2 * p * q * dot)
        # |grad z| / z_A <= epsilon, multiplied by twice the area.
        is_sufficient = np.sqrt(worst) <= per_mm * double_area
        lower, upper = np.where(is_sufficient, middle, lower), np.where(is_sufficient, upper, middle)
    return lower


def _side_lengths(sides: Ints) -> Floats:
    """Return the lengths of each triangle's sides as an array of shape (S, 3).

    Unlike hypot, the square root used here is rounded identically on every machine.
    """
    x, y = sides[:, :, 0].astype(np.float64), sides[:, :, 1].astype(np.float64)
    return np.asarray(np.sqrt(x * x + y * y), dtype=np.float64)


def _polygon_corners(along_b: Any, along_c: Any, across: Any, minimum: Pick, maximum: Pick) -> list[tuple[Any, Any]]:
    """Return the corners, except (0, 0), of the polygon for (p, q) defined in the module docstring.

    Args:
        along_b, along_c, across: The ratios a_AB, a_AC and a_BC, as arrays of doubles or as rationals.
        minimum, maximum: The functions that return the smaller and the larger of two such values.
    """
    # Each corner is clipped to the polygon. If the polygon has fewer corners, the extra ones are other points in it,
    # which is harmless.
    zero = 0 * along_b  # 0 of the type and shape of the arguments
    top_b = minimum(along_b, along_c + across * (1 + along_c))  # the largest p and the largest q in the polygon
    top_c = minimum(along_c, along_b + across * (1 + along_b))
    return [
        (top_b, maximum(zero, (top_b - across) / (1 + across))),
        (top_b, minimum(along_c, top_b + across * (1 + top_b))),
        (maximum(zero, (top_c - across) / (1 + across)), top_c),
        (minimum(along_b, top_c + across * (1 + top_c)), top_c),
        (zero, minimum(along_c, across)),
        (minimum(along_b, across), zero),
    ]


def prove_ratios(sides: list[list[int]], ratios: Floats, per_mm: Fraction) -> bool:
    """Decide exactly whether the ratios for a triangle's sides are sufficient (see :func:`sufficient_ratios`).

    Args:
        sides: The vectors along the sides from B to C, C to A, and A to B, in millimetres.
        ratios: Array of shape (3,) with the ratios a for these sides. The doubles are taken to be exact.
        per_mm: Epsilon per millimetre.
    """
    square = [x * x + y * y for x, y in sides]
    double_area = sides[0][0] * sides[1][1] - sides[0][1] * sides[1][0]
    exact = [Fraction(float(a)) for a in ratios]
    if double_area <= 0 or min(exact) < 0:
        return False
    limit = (per_mm * double_area) ** 2
    for a in range(3):
        b, c = (a + 1) % 3, (a + 2) % 3
        # AB . AC, where A is the corner with the smallest value. Side b leads from C to A, hence the minus sign.
        dot = -(sides[b][0] * sides[c][0] + sides[b][1] * sides[c][1])
        for p, q in _polygon_corners(exact[c], exact[b], exact[a], min, max):
            # (2 area)^2 |grad z|^2 / z_A^2, as in the module's docstring.
            if p * p * square[b] + q * q * square[c] - 2 * p * q * dot > limit:
                return False
    return True
