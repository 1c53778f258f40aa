"""Euclidean and great-circle distances that never exceed the exact distances between the coordinates as written.

A double that exceeded the true distance by even one bit would give less privacy than the user asked for. The formulas
use only additions, multiplications, divisions and square roots, which IEEE 754 rounds correctly. They never call a
library's sine, whose last bit may depend on the processor and on the position in an array. Each distance is therefore
the same double on every machine and in every block of a matrix. In this module, u = 2^-53.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats, Ints
from privopt.execution.compiled import jit
from privopt.numbers.exp_log_bounds import two_product, two_sum

EARTH_RADIUS_KM: Final = 6371.0
"""The radius, in km, of the sphere used to compute great-circle distances."""
_RADIANS: Final = math.pi / 180.0
_PLURAL_IN_S: Final = re.compile("[a-z]{3,}[a-gi-rt-wy]")
"""Matches units whose plural is formed with s, such as "band", but not abbreviations ("km") or words such as "inch"."""
# Vectors with 16 to 1,024 columns count as wide. Their squares are summed in plain doubles, whose rounding errors are
# bounded rather than tracked.
_WIDE: Final = 16, 1024

# (1 - cos x) / 2 = sum_k (-1)^(k+1) x^2k / (2 (2k)!), and asin(s) / s = sum_k c_k s^2k.
_HAVERSINE_TERMS = tuple((-1.0) ** (k + 1) / (2.0 * math.factorial(2 * k)) for k in range(1, 16))
_ARCSINE_TERMS = tuple(math.comb(2 * k, k) / (4.0**k * (2 * k + 1)) for k in range(13))


def euclidean(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """Return the Euclidean distances between points, rounded down.

    >>> float(euclidean([0.0, 0.0], [3.0, 4.0]))
    5.0

    Args:
        a, b: (..., dim) coordinates in the same units. All axes but the last are broadcast.

    Returns:
        (...) The distances, in the same units as the coordinates, with the shape to which the points broadcast.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    # Broadcast the points' indices rather than the points, so that no point is copied for each pair.
    row_numbers = [np.arange(x[..., 0].size).reshape(x.shape[:-1]) for x in (a, b)]
    i, j = np.broadcast_arrays(*row_numbers)
    distances = np.empty(i.shape)
    rows_a, rows_b = (np.ascontiguousarray(x.reshape(-1, x.shape[-1])) for x in (a, b))
    # The coordinates were given as doubles, so there are no rounding errors to take into account.
    no_rests = np.zeros((0, rows_a.shape[1]))
    distances_of_pairs(rows_a, rows_b, no_rests, no_rests, i.flatten(), j.flatten(), distances.reshape(-1))
    return distances


def haversine(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """Return the great-circle distances in km between points on a sphere of radius 6371.0 km, rounded down.

    Their relative error is at most 1.3e-14.

    >>> round(float(haversine([0.0, 0.0], [0.0, 90.0])), 6)  # a quarter of the equator
    10007.543398

    Args:
        a, b: (..., 2) latitudes and longitudes in degrees. All axes but the last are broadcast.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return great_circle(
        a[..., 0], a[..., 1], cosine_of_latitude(a[..., 0]), b[..., 0], b[..., 1], cosine_of_latitude(b[..., 0])
    )


def directions(degrees: Floats) -> Floats:
    """Convert (N, 2) latitudes and longitudes in degrees to (N, 3) points on the unit sphere.

    Sorting pairs of points by the straight-line distance between them gives the same order as sorting by the
    great-circle distance.
    """
    lat, lon = np.radians(degrees).T
    radius = np.cos(lat)  # of the circle of latitude
    return np.column_stack([radius * np.cos(lon), radius * np.sin(lon), np.sin(lat)])


def upper_distances(distances: Floats) -> Floats:
    """Return upper bounds on the exact distances, given distances that were rounded down by this module's functions.

    Each distance is multiplied by a factor that covers the largest relative error of the formulas. A constant is then
    added, because small distances may have been rounded down to 0.
    """
    upper_bounds: Floats = distances * (1.0 + 2.0**-46) + 1e-139
    return upper_bounds


@jit(inline="always")
def _root_below(total: float, total_rest: float, size: float, error: float) -> float:  # pragma: no cover - compiled
    """Return the greatest double that is provably at most the square root of ``total + total_rest``.

    Args:
        total: A sum, rounded to a double.
        total_rest: The sum's rounding error: the exact sum minus ``total``.
        size: The sum of the absolute values of the terms of ``total_rest``.
        error: A bound on the error of ``total_rest``, relative to ``size``.
    """
    # Normalise, so that total_rest is at most half a unit in the last place of total.
    total, total_rest = two_sum(total, total_rest)
    # For sums below 1e-280, the products below would underflow. 0 is always a lower bound.
    root = 0.0 if total < 1e-280 else math.sqrt(total)
    # The root is off by less than two units in the last place, so two steps down are enough.
    for _ in range(2):
        square, square_rest = two_product(root, root)
        # The difference between the total and the root's square, which are so close that it is exact.
        excess, excess_rest = two_sum(total - square, -square_rest)
        # This covers the error of total_rest, the rounding of the sums in the next line, and products that underflow.
        error_bound = error * size + 2.0**-51 * abs(excess_rest) + (1e-300 if size > 0.0 else 0.0)
        if root > 0.0 and excess + (excess_rest + total_rest) < error_bound:
            root = np.nextafter(root, 0.0)
    return root


@jit(inline="always")
def _is_wide(dim: int, rests: int) -> bool:  # pragma: no cover - compiled
    """Return whether to sum the squares of ``dim`` columns in plain doubles, without tracking rounding errors.

    This is the case for 16 to 1,024 columns if all coordinates are exact.

    Args:
        dim: The number of columns.
        rests: The number of points for which the coordinates' rounding errors are given, or 0 if all coordinates are
            exact.
    """
    return rests == 0 and _WIDE[0] <= dim <= _WIDE[1]


@jit(inline="always")
def _root_of_plain(total: float, dim: int) -> float:  # pragma: no cover - compiled
    """Return a lower bound on the square root of a sum of squares that was computed in plain doubles.

    The sum is over ``dim`` columns, in blocks of 16. Each square has a relative error of at most 3 u, where u is 2^-53,
    and the summation adds at most (15 + dim / 16) u. Taking the square root halves this error. The root is multiplied
    by a factor below 1 to turn it into a lower bound. Rounding the root and this product adds 2 u.
    """
    return 0.0 if total < 1e-280 else math.sqrt(total) * (1.0 - (dim / 32.0 + 16.0) * 2.0**-53)


@jit()
def _plain_roots_of_square(
    points: Floats, across: Floats, start: int, stop: int, table: Floats
) -> None:  # pragma: no cover - compiled
    """Compute the distances from each of the points ``start`` to ``stop - 1`` to all later points.

    Squares are summed in plain doubles, without tracking rounding errors.

    Args:
        points: (N, dim) coordinates.
        across: (dim, N) transpose of ``points``, in which consecutive points are adjacent in memory.
        start, stop: The range of points whose distances are computed.
        table: (N, N) array to which the distances are written, on both sides of the diagonal.
    """
    n, dim = points.shape
    sums, block_sums, block_columns = np.empty(64), np.empty(64), np.zeros((dim, 64))
    # 64 points are processed side by side (as SIMD lanes), in blocks that begin at multiples of 64.
    for first in range(start // 64 * 64, n, 64):
        count = min(64, n - first)
        # This copy stays in the processor's cache for all rows. Lanes from ``count`` on are computed but not used.
        block_columns[:, :count] = across[:, first : first + count]
        for i in range(start, min(stop, first + count)):
            sums[:] = 0.0
            # Add up sums of 16 squares each. The error bound of _root_of_plain holds for exactly this order.
            for block in range(0, dim, 16):
                block_sums[:] = 0.0
                for axis in range(block, min(block + 16, dim)):
                    x, column = points[i, axis], block_columns[axis]
                    for lane in range(64):
                        step = x - column[lane]
                        block_sums[lane] += step * step
                for lane in range(64):
                    sums[lane] += block_sums[lane]
            # Earlier points are skipped, because the table is symmetric.
            for lane in range(max(0, i - first), count):
                table[i, first + lane] = table[first + lane, i] = _root_of_plain(sums[lane], dim)


@jit(few=lambda a, b, a_rest, b_rest, i, *_: bool(i.size * a.shape[1] <= 1_000))
def distances_of_pairs(
    a: Floats, b: Floats, a_rest: Floats, b_rest: Floats, i: Ints, j: Ints, out: Floats
) -> None:  # pragma: no cover - compiled
    """For each p, write the greatest provable lower bound on the distance between a[i[p]] and b[j[p]] to out[p].

    The sums keep track of their rounding errors, so the result is exact for integer coordinates. This would be slow for
    exact vectors with 16 to 1,024 columns. Their squares are therefore summed in plain doubles, and the result is
    reduced by the largest possible error. Its relative error is then at most 6e-15 for 300 columns. Distances below
    1e-140 become 0.

    Args:
        a, b: (N, dim), (M, dim) coordinates.
        a_rest, b_rest: The rounding errors of the coordinates (exact values minus doubles), with the same shapes as a
            and b, or with shape (0, dim) if all coordinates are exact.
        i, j: (P,) row indices into a and b.
        out: (P,) array to which the distances are written.
    """
    # At most 6 operations per column work on the rounding errors, and each has an error of u itself.
    error = (6.0 * a.shape[1] + 10.0) * 2.0**-53
    is_wide = _is_wide(a.shape[1], a_rest.shape[0])
    for p in range(i.size):
        total = rest = size = 0.0
        if is_wide:
            for first in range(0, a.shape[1], 16):
                block_sum = 0.0
                for axis in range(first, min(first + 16, a.shape[1])):
                    step = a[i[p], axis] - b[j[p], axis]
                    block_sum += step * step
                total += block_sum
            out[p] = _root_of_plain(total, a.shape[1])
            continue
        for axis in range(a.shape[1]):
            # Each variable named "rest" holds the rounding error of the double before it, so that no rounding error is
            # lost.
            step, step_rest = two_sum(a[i[p], axis], -b[j[p], axis])
            if a_rest.shape[0]:
                step, step_rest = two_sum(step, step_rest + (a_rest[i[p], axis] - b_rest[j[p], axis]))
            square, square_rest = two_product(step, step)
            square_rest += 2.0 * step * step_rest + step_rest * step_rest
            total, total_rest = two_sum(total, square)
            rest += square_rest + total_rest
            size += abs(square_rest) + abs(total_rest)
        out[p] = _root_below(total, rest, size, error)


@jit(few=lambda points, *_: bool(points.size <= 64))
def distances_of_block(
    points: Floats, across: Floats, rests: Floats, start: int, stop: int, table: Floats
) -> None:  # pragma: no cover
    """Compute the distances from each of the points ``start`` to ``stop - 1`` to all later points.

    The distances are bit-for-bit identical to the results of :func:`distances_of_pairs`.

    Args:
        points: (N, dim) coordinates.
        across: (dim, N) transpose of ``points``, in which consecutive points are adjacent in memory.
        rests: (dim, N) rounding errors of the coordinates (exact values minus doubles), or an array of shape (dim, 0)
            if all coordinates are exact.
        start, stop: The range of points whose distances are computed.
        table: (N, N) array to which the distances are written, on both sides of the diagonal.
    """
    n, dim = points.shape
    if _is_wide(dim, rests.shape[1]):
        _plain_roots_of_square(points, across, start, stop, table)
        return
    # The error bound and the operations are those of distances_of_pairs, for 64 points side by side.
    error = (6.0 * dim + 10.0) * 2.0**-53
    total, rest, size = np.empty(64), np.empty(64), np.empty(64)
    for i in range(start, stop):
        for first in range(i, n, 64):
            count = min(64, n - first)
            total[:] = rest[:] = size[:] = 0.0
            for axis in range(dim):
                x = points[i, axis]
                for lane in range(count):
                    step, step_rest = two_sum(x, -across[axis, first + lane])
                    if rests.shape[1]:
                        step_more = rests[axis, i] - rests[axis, first + lane]
                        step, step_rest = two_sum(step, step_rest + step_more)
                    square, square_rest = two_product(step, step)
                    square_rest += 2.0 * step * step_rest + step_rest * step_rest
                    total[lane], total_rest = two_sum(total[lane], square)
                    rest[lane] += square_rest + total_rest
                    size[lane] += abs(square_rest) + abs(total_rest)
            for lane in range(count):
                root = _root_below(total[lane], rest[lane], size[lane], error)
                table[i, first + lane] = table[first + lane, i] = root


def _evaluate_series(terms: tuple[float, ...], t: Floats) -> Floats:
    """Return sum_k terms[k] t^k for each entry of ``t``, using Horner's rule."""
    total = np.full(t.shape, terms[-1])
    for term in terms[-2::-1]:
        total *= t
        total += term
    return total


def _half_versine(degrees: Floats) -> Floats:
    """Return (1 - cos x) / 2 = sin(x / 2)^2 for x in [0, 180] degrees, with a relative error of at most (2 e + 32) u.

    Here u is 2^-53, and e u is the relative error of x. Converting x to radians and squaring it gives x^2 with a
    relative error of (2 e + 5) u, which is not amplified by the series. Horner's rule contributes 3 u for small x and
    at most 26 u for larger x, where it adds terms of both signs. The last product contributes u.
    """
    t = np.square(degrees * _RADIANS)
    return _evaluate_series(_HAVERSINE_TERMS, t) * t


def cosine_of_latitude(latitude: Floats, rest: Floats | float = 0.0) -> Floats:
    """Return the cosines of latitudes in degrees, with a relative error of at most 9 u, where u = 2^-53.

    The cosine is exactly 0 at the poles. Beyond 45 degrees, it is computed as the sine of the angle to the pole. This
    angle can be represented exactly as a double. Its sine is the square root of the half versine of twice the angle.

    Args:
        latitude: Latitudes in degrees.
        rest: The rounding errors of the latitudes (exact values minus doubles), in degrees. Beyond 45 degrees, they are
            included in the angle, because near a pole they can be as large as the cosine. This adds 1 u to the error.
            Up to 45 degrees, they are neglected, because they would change the cosine by a relative amount of at most
            their size in radians.
    """
    latitude = np.asarray(latitude, dtype=np.float64)
    poleward_rest = np.where(latitude < 0.0, -np.asarray(rest), rest)
    latitude = np.abs(latitude)
    equator_part, pole_part = np.minimum(latitude, 45.0), 2.0 * ((90.0 - np.maximum(latitude, 45.0)) - poleward_rest)
    return np.where(latitude <= 45.0, 1.0 - 2.0 * _half_versine(equator_part), np.sqrt(_half_versine(pole_part)))


def great_circle(
    lat_a: Floats,
    lon_a: Floats,
    cos_a: Floats,
    lat_b: Floats,
    lon_b: Floats,
    cos_b: Floats,
    *,
    lat_rest: Floats | float = 0.0,
    lon_rest: Floats | float = 0.0,
    error: float = 0.0,
) -> Floats:
    """Return great-circle distances in km, rounded down so that they never exceed the exact distances.

    The haversine formula is used. Swapping a and b gives a bit-for-bit identical result.

    Args:
        lat_a, lon_a: The latitudes and longitudes of the points a, in degrees. All arrays are broadcast.
        cos_a: The cosines of these latitudes, as returned by :func:`cosine_of_latitude`.
        lat_b, lon_b, cos_b: The same values for the points b.
        lat_rest, lon_rest: The rounding errors of the coordinates' differences a - b (exact values minus doubles), in
            degrees.
        error: A bound on any further relative error of the product of cosines.

    Notes:
        The error analysis for a distance d on a sphere of radius R is as follows, with u = 2^-53.

        Once corrected for rounding, the differences in latitude and longitude have relative errors of 2 u and 3 u, even
        across the 180-degree meridian. Hence h = sin(d / 2R)^2 has a relative error of at most 60 u plus ``error``.
        After being reduced by 64 u and ``error``, h is below its exact value. The later steps (halving the angle three
        times, the series and the products) have errors below 12 u, so a distance reduced by 16 u is also below its
        exact value.

        Beyond a quarter of the circumference, h is near 1, so small errors in h cause large errors in d. In this case,
        the distance to the point opposite b is computed and subtracted from half the circumference. For that point,
        cos(d / 2R)^2 takes the place of h. It is computed from the sum of the latitudes and from 180 degrees minus the
        difference in longitudes. The rounding errors of these two angles are not corrected, so the angles have an error
        of 6 pi u in radians, and change the distance by no more than that. The formulas have an error of 53 u in the
        square, and therefore of at most 40 u in an angle of pi / 2. Once reduced by 90 u times the radius, the distance
        is below its exact value.
    """
    # Put the longitudes in order, so that swapping a and b changes no step.
    east, west = np.maximum(lon_a, lon_b), np.minimum(lon_a, lon_b)
    array_two_sum: Callable[[Floats, Floats], tuple[Floats, Floats]] = cast("Any", two_sum).py_func
    # The difference of longitudes may cancel, so its rounding error is kept. Latitudes need no such step.
    turn, turn_rest = array_two_sum(east, -west)
    turn_correction = turn_rest + np.where(lon_a >= lon_b, lon_rest, -np.asarray(lon_rest))
    # Take the shorter way round. 360 - turn is exact.
    turn = np.abs(np.where(turn > 180.0, (360.0 - turn) - turn_correction, turn + turn_correction))
    h = _half_versine(np.abs((lat_a - lat_b) + lat_rest)) + (cos_a * cos_b) * _half_versine(turn)
    is_far = h > 0.5
    # Relative error bounds fail near the smallest doubles, so tiny values become 0, which is also a lower bound.
    h = np.where(h < 1e-290, 0.0, np.minimum(h * (1.0 - 2.0**-47 - error), 1.0))
    # More than a quarter of the way round, the distance to the opposite point is used.
    if is_far.any():
        opposite_h = _half_versine(np.abs(lat_a + lat_b)) + (cos_a * cos_b) * _half_versine(np.abs(180.0 - turn))
        h = np.where(is_far, np.minimum(opposite_h, 1.0), h)
    # Halve the angle three times, so that the arcsine series converges fast. The factor 16 below is 2 times 2^3.
    for _ in range(3):
        h = h / (2.0 * (1.0 + np.sqrt(1.0 - h)))
    distances = (16.0 * EARTH_RADIUS_KM) * (np.sqrt(h) * _evaluate_series(_ARCSINE_TERMS, h))
    half_circumference = math.pi * EARTH_RADIUS_KM - 90.0 * 2.0**-53 * EARTH_RADIUS_KM
    return np.where(is_far, half_circumference - distances, distances * (1.0 - 2.0**-49))


def plural_unit(unit: str) -> str:
    """Return the plural of a unit of distance. The checkers implement the same rule independently.

    >>> plural_unit("km"), plural_unit("band"), plural_unit("unit of distance")
    ('km', 'bands', 'units of distance')
    """
    return f"{unit}s" if _PLURAL_IN_S.fullmatch(unit) else unit.replace("unit of", "units of")


def amount_text(number: str, unit: str) -> str:
    """Return a number (given as a string) followed by its unit of distance, which is plural unless the number is 1.

    >>> amount_text("0.34", "year"), amount_text("1", "year"), amount_text("2", "km")
    ('0.34 years', '1 year', '2 km')
    """
    return f"{number} {unit if number == '1' else plural_unit(unit)}"


def distance_words(unit: str, way: str) -> str:
    """Return the words that follow "distance" to state its unit and kind, or "" for the generic "unit of distance".

    >>> distance_words("km", "by road"), distance_words("year", ""), distance_words("unit of distance", "")
    (' in km by road', ' in years', '')

    Args:
        unit: The unit, in the singular.
        way: The words for the kind of route along which the distance is measured, such as "by road", or "" for none.
    """
    return "" if unit == "unit of distance" else f" in {plural_unit(unit)}{f' {way}' if way else ''}"


def position_text(east: float, north: float, kind: str, unit: str = "km") -> str:
    """Format a position for readers of a map, to four decimal places (about ten metres for degrees).

    >>> position_text(12.4789, -41.9, "geographic"), position_text(0.5, 12.25, "planar")
    ('41.9000\u00b0 S, 12.4789\u00b0 E', 'x 0.5 km, y 12.25 km')

    Args:
        east, north: Longitude and latitude in degrees, or x and y.
        kind: ``"geographic"`` or ``"planar"``.
        unit: The unit of planar coordinates, in the singular.
    """
    if kind == "planar":
        # + 0.0 turns -0.0 into 0.
        numbers = (f"{round(value, 4) + 0.0:.10g}" for value in (east, north))
        return ", ".join(f"{axis} {amount_text(number, unit)}" for axis, number in zip("xy", numbers, strict=True))
    # Longitudes may go up to 360 degrees. Those beyond 180 are west.
    around = east - 360.0 if east > 180.0 else east
    return f"{abs(north):.4f}\u00b0 {'S' if north < 0 else 'N'}, {abs(around):.4f}\u00b0 {'W' if around < 0 else 'E'}"
