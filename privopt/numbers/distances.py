"""Euclidean and great-circle distances, rounded down: never above the distance of the coordinates as written.

A double that exceeds the distance by one bit would claim more privacy than the user asked for. The formulas use only
additions, multiplications, divisions and square roots, which IEEE 754 rounds correctly. They avoid a library's sine,
whose last bit may depend on the processor and on the position in an array. So each distance is the same double on every
machine and in every block. Below, u = 2^-53.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats, Ints
from privopt.execution.compiled import jit
from privopt.numbers.exp_log_bounds import two_product, two_sum

EARTH_RADIUS_KM: Final = 6371.0
_RADIANS: Final = math.pi / 180.0
_WIDE: Final = 16, 1024  # with this many columns, squares are summed in plain doubles, without their rounding errors

# (1 - cos x) / 2 = sum_k (-1)^(k+1) x^2k / (2 (2k)!), and asin(s) / s = sum_k c_k s^2k.
_HAVERSINE_TERMS = tuple((-1.0) ** (k + 1) / (2.0 * math.factorial(2 * k)) for k in range(1, 16))
_ARCSINE_TERMS = tuple(math.comb(2 * k, k) / (4.0**k * (2 * k + 1)) for k in range(13))


def euclidean(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """Return Euclidean distance over the last axis, rounded down; the other axes broadcast.

    >>> float(euclidean([0.0, 0.0], [3.0, 4.0]))
    5.0

    Args:
        a, b: (..., dim), in one unit; the result, of shape (...), has the same.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    row_numbers = [np.arange(x[..., 0].size).reshape(x.shape[:-1]) for x in (a, b)]
    i, j = np.broadcast_arrays(*row_numbers)
    distances = np.empty(i.shape)
    rows_a, rows_b = (np.ascontiguousarray(x.reshape(-1, x.shape[-1])) for x in (a, b))
    no_rests = np.zeros((0, rows_a.shape[1]))
    distances_of_pairs(rows_a, rows_b, no_rests, no_rests, i.flatten(), j.flatten(), distances.reshape(-1))
    return distances


def haversine(a: npt.ArrayLike, b: npt.ArrayLike) -> Floats:
    """Return great-circle distance in km over the last axis (lat, lon in degrees), R = 6371.0 km, rounded down.

    >>> round(float(haversine([0.0, 0.0], [0.0, 90.0])), 6)  # a quarter of the equator
    10007.543398

    Args:
        a, b: (..., 2); the other axes broadcast. Below the exact value by at most 1.3e-14 of it.
    """
    a, b = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    return great_circle(
        a[..., 0], a[..., 1], cosine_of_latitude(a[..., 0]), b[..., 0], b[..., 1], cosine_of_latitude(b[..., 0])
    )


def directions(degrees: Floats) -> Floats:
    """Return points (N, 3) of the unit sphere at latitudes and longitudes (N, 2); chords order as great circles do."""
    lat, lon = np.radians(degrees).T
    return np.column_stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)])


def upper_distances(distances: Floats) -> Floats:
    """Return upper bounds of the exact distances, from the distances that these formulas rounded down."""
    upper_bounds: Floats = distances * (1.0 + 2.0**-46) + 1e-139
    return upper_bounds


@jit(inline="always")
def _root_below(total: float, total_rest: float, size: float, error: float) -> float:  # pragma: no cover - compiled
    """Return the greatest double proved at most the root of total + rest, whose error is below ``error`` times size."""
    total, total_rest = two_sum(total, total_rest)
    root = 0.0 if total < 1e-280 else math.sqrt(total)
    for _ in range(2):  # it is off by less than two units in the last place
        square, square_rest = two_product(root, root)
        excess, excess_rest = two_sum(total - square, -square_rest)  # total - square is exact: they are that close
        error_bound = error * size + 2.0**-51 * abs(excess_rest) + (1e-300 if size > 0.0 else 0.0)
        if root > 0.0 and excess + (excess_rest + total_rest) < error_bound:
            root = np.nextafter(root, 0.0)
    return root


@jit(inline="always")
def _is_wide(dim: int, rests: int) -> bool:  # pragma: no cover - compiled
    """Tell whether squares of ``dim`` columns are summed in plain doubles; never if coordinates have rests."""
    return rests == 0 and _WIDE[0] <= dim <= _WIDE[1]


@jit(inline="always")
def _root_of_plain(total: float, dim: int) -> float:  # pragma: no cover - compiled
    """Return a lower bound of the root of a sum of squares, summed in doubles in blocks of 16 columns.

    A square is off by 3 u of it at most, the sums by 15 + dim / 16 times u; the root halves that, and it and the
    product add 2 u.
    """
    return 0.0 if total < 1e-280 else math.sqrt(total) * (1.0 - (dim / 32.0 + 16.0) * 2.0**-53)


@jit()
def _plain_roots_of_square(
    points: Floats, across: Floats, start: int, stop: int, table: Floats
) -> None:  # pragma: no cover - compiled
    """:func:`distances_of_block` by plain sums."""
    n, dim = points.shape
    sums, block_sums, block_columns = np.empty(64), np.empty(64), np.zeros((dim, 64))
    for first in range(start // 64 * 64, n, 64):
        count = min(64, n - first)
        block_columns[:, :count] = across[:, first : first + count]  # stays in the cache for all rows
        for i in range(start, min(stop, first + count)):
            sums[:] = 0.0
            for block in range(0, dim, 16):
                block_sums[:] = 0.0
                for axis in range(block, min(block + 16, dim)):
                    x, column = points[i, axis], block_columns[axis]
                    for lane in range(64):
                        step = x - column[lane]
                        block_sums[lane] += step * step
                for lane in range(64):
                    sums[lane] += block_sums[lane]
            for lane in range(max(0, i - first), count):
                table[i, first + lane] = table[first + lane, i] = _root_of_plain(sums[lane], dim)


@jit(few=lambda a, b, a_rest, b_rest, i, *_: bool(i.size * a.shape[1] <= 1_000))
def distances_of_pairs(
    a: Floats, b: Floats, a_rest: Floats, b_rest: Floats, i: Ints, j: Ints, out: Floats
) -> None:  # pragma: no cover - compiled
    """Set out[p] to the greatest double that is proved to be at most the distance of points a[i[p]] and b[j[p]].

    Rounding errors of the operations are carried along, so the result is exact on grids of whole numbers. For vectors
    of 16 to 1,024 columns that would be slow: their squares are summed in plain doubles, and the largest possible error
    is subtracted, at most 6e-15 of the distance at 300 columns. Distances below 1e-140 become 0.

    Args:
        a, b: (N, dim), (M, dim) coordinates.
        a_rest, b_rest: what these omit, of their shapes; both of shape (0, dim): nothing.
        i, j: (P,) rows of them.
        out: (P,), written to.
    """
    error = (6.0 * a.shape[1] + 10.0) * 2.0**-53  # at most 6 operations a column on what was omitted, each off by u
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
    """Write the distances from rows start to stop - 1 to themselves and to all later rows.

    They equal those of :func:`distances_of_pairs` bit for bit; 64 rows are processed side by side.

    Args:
        points: (N, dim) coordinates.
        across: (dim, N) the same, each column in one piece.
        rests: (dim, N) what they omit; (dim, 0): nothing.
        start, stop: rows.
        table: (N, N), written to in both halves.
    """
    n, dim = points.shape
    if _is_wide(dim, rests.shape[1]):
        _plain_roots_of_square(points, across, start, stop, table)
        return
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
    """sum_k terms[k] t^k by Horner's rule."""
    total = np.full(t.shape, terms[-1])
    for term in terms[-2::-1]:
        total *= t
        total += term
    return total


def _half_versine(degrees: Floats) -> Floats:
    """Return (1 - cos x) / 2 = sin(x / 2)^2 for x in [0, 180] degrees, within (2 e + 32) u of it.

    The relative error of x is e u: constant, product and square make it (2 e + 5) u of x^2, which the function does not
    amplify. Horner's rule adds 3 u for small x, at most 26 u up to 180 degrees where terms of both signs meet, and the
    last product u.
    """
    t = np.square(degrees * _RADIANS)
    return _evaluate_series(_HAVERSINE_TERMS, t) * t


def cosine_of_latitude(latitude: Floats) -> Floats:
    """Return the cosine of latitudes in degrees, off by at most 9 u of it, exactly 0 at the poles.

    Beyond 45 degrees it is the sine of the angle to the pole, which a double holds exactly.
    """
    latitude = np.abs(np.asarray(latitude, dtype=np.float64))
    equator_part, pole_part = np.minimum(latitude, 45.0), 2.0 * (90.0 - np.maximum(latitude, 45.0))
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
    """Evaluate the haversine formula, rounded down; symmetric bit for bit, since every step treats a and b alike.

    To differences of latitude and longitude, a less b, what the doubles omit of them is added (``lat_rest``,
    ``lon_rest``): they are off by 2 u and 3 u of themselves then, also across the meridian of 180 degrees. So h = sin(d
    / 2R)^2 is off by at most 60 u of it, and by the further error ``error`` of the product of cosines, a part of it.
    Less 64 u and ``error`` it is below the exact one. From there on, halving the angle three times, the series and the
    products err by less than 12 u: less 16 u the distance is below, too.

    Beyond a quarter of the circumference h is near 1 and determines d badly. There the distance to the point opposite b
    is subtracted from half the circumference: cos(d / 2R)^2 has the sum of latitudes, and the half turn less the turn,
    in place of their differences. Those are off, rests omitted too, by 6 pi u in radians, which moves no distance by
    more. Formulas err by 53 u of the square, so by 40 u of an angle of pi / 2 at most: less 90 u of the radius the
    distance is below.
    """
    east, west = np.maximum(lon_a, lon_b), np.minimum(lon_a, lon_b)
    array_two_sum: Callable[[Floats, Floats], tuple[Floats, Floats]] = cast("Any", two_sum).py_func
    turn, turn_rest = array_two_sum(east, -west)
    turn_correction = turn_rest + np.where(lon_a >= lon_b, lon_rest, -np.asarray(lon_rest))
    turn = np.abs(
        np.where(turn > 180.0, (360.0 - turn) - turn_correction, turn + turn_correction)
    )  # 360 - turn is exact
    h = _half_versine(np.abs((lat_a - lat_b) + lat_rest)) + (cos_a * cos_b) * _half_versine(turn)
    is_far = h > 0.5
    h = np.where(h < 1e-290, 0.0, np.minimum(h * (1.0 - 2.0**-47 - error), 1.0))
    if is_far.any():  # more than a quarter of the way round: by what is left to the point opposite
        opposite_h = _half_versine(np.abs(lat_a + lat_b)) + (cos_a * cos_b) * _half_versine(np.abs(180.0 - turn))
        h = np.where(is_far, np.minimum(opposite_h, 1.0), h)
    for _ in range(3):  # halve the angle until the series of the arcsine converges fast
        h = h / (2.0 * (1.0 + np.sqrt(1.0 - h)))
    distances = (16.0 * EARTH_RADIUS_KM) * (np.sqrt(h) * _evaluate_series(_ARCSINE_TERMS, h))
    half_circumference = math.pi * EARTH_RADIUS_KM - 90.0 * 2.0**-53 * EARTH_RADIUS_KM
    return np.where(is_far, half_circumference - distances, distances * (1.0 - 2.0**-49))
