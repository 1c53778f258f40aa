"""The bulk sampler, which decides nearly all draws in floating point, and passes the others to the exact sampler.

Both samplers make the same draws from the same random bytes. Every margin below exceeds the proved error bounds of both
samplers. Therefore, a draw is decided here only if the exact sampler, given the same 128 bits, would return the same
output without reading further bits.

Decisions rely only on additions, multiplications, divisions, square roots and comparisons, which are correctly rounded
under IEEE 754. Library functions such as sine may be less accurate on another machine, so they are used only to propose
a distance and a cell, which are then verified.
"""

from __future__ import annotations

import math
import os
from fractions import Fraction
from typing import Final, TypeVar

import numpy as np
from attrs import frozen
from scipy.spatial import cKDTree

from privopt.arrays import Bools, Floats, Ints
from privopt.numbers.sampling import Source
from privopt_spherical_laplace.sampler.exact import (
    RADIUS_KM,
    Digits,
    GridCells,
    NearestPoint,
    Rounding,
    draw_exactly,
)

__all__ = ["draw_positions", "propose_scaled_distance"]

N = TypeVar("N", Floats, float)

CHUNK: Final = 1 << 14
"""The number of draws whose first random words are read together. A different number would change seeded draws."""
_TAIL: Final = 2.0**-20
"""The smallest U, and the smallest 1 - U, for which a draw is decided in doubles."""
_QUANTILE_MARGIN: Final = 2.0**-46
"""The margin by which U must lie inside the proved interval for G. The error in the computed G is below 2^-48."""
_POSITION_MARGIN: Final = 2.0**-46
"""The margin for positions on the unit sphere. The error in computed positions is below 2^-48."""
_NEWTON_STEPS: Final = 40
"""The maximum number of steps in Newton's method."""

# The parts of _QUARTER add up to pi / 2 within 2^-122, and those of _LOG_TWO to ln 2 within 2^-86. Each first part has
# at most 33 bits, so that its products with small integers are exact. The polynomials are for exp(x) in powers of x,
# and for sin(x) / x and cos(x) in powers of x^2, with the coefficient of the highest power first.
_QUARTER: Final = (1.57079632673412561417e00, 6.07710050630396597660e-11, 2.02226624879595063154e-21)
_LOG_TWO: Final = (6.93147180369123816490e-01, 1.90821492927058770002e-10)
_EXP_TERMS: Final = tuple(1.0 / math.factorial(k) for k in range(15, -1, -1))
_SINE_TERMS: Final = tuple((-1.0) ** k / math.factorial(2 * k + 1) for k in range(9, -1, -1))
_COSINE_TERMS: Final = tuple((-1.0) ** k / math.factorial(2 * k) for k in range(10, -1, -1))


def _polynomial(coefficients: tuple[float, ...], x: Floats) -> Floats:
    """Evaluate a polynomial at each x by Horner's method. The coefficient of the highest power comes first."""
    total = np.full_like(x, coefficients[0])
    for coefficient in coefficients[1:]:
        total *= x
        total += coefficient
    return total


def _exp_minus(x: Floats) -> Floats:
    """Return exp(-x) for 0 <= x <= 64 with a relative error below 2^-50."""
    # exp(-x) = 2^-halvings exp(rest), where |rest| < 0.35, so that Taylor's series needs few terms. ln 2 is subtracted
    # in two parts, so that no digits are lost.
    halvings = np.rint(x / _LOG_TWO[0])
    rest = (halvings * _LOG_TWO[0] - x) + halvings * _LOG_TWO[1]
    return np.ldexp(_polynomial(_EXP_TERMS, rest), -halvings.astype(np.int64))


def _sine_cosine(angle: Floats) -> tuple[Floats, Floats]:
    """Return the sine and cosine of angles in radians, for |angle| <= 16, with absolute errors below 2^-50."""
    # Quarter turns are subtracted, so that |rest| <= pi / 4. Their number then determines the sign and whether sine and
    # cosine are swapped.
    quarters = np.rint(angle / (math.pi / 2))
    rest = ((angle - quarters * _QUARTER[0]) - quarters * _QUARTER[1]) - quarters * _QUARTER[2]
    square = rest * rest
    sine, cosine = rest * _polynomial(_SINE_TERMS, square), _polynomial(_COSINE_TERMS, square)
    turn = quarters.astype(np.int64) & 3
    odd = (turn & 1).astype(bool)
    sine, cosine = np.where(odd, cosine, sine), np.where(odd, sine, cosine)
    return np.where(turn >= 2, -sine, sine), np.where((turn == 1) | (turn == 2), -cosine, cosine)


def propose_scaled_distance(u: Floats, rate: float) -> Floats:
    """Return approximate quantiles of the distance between a place and the position drawn around it, times epsilon.

    The results are lambda G^-1(u), where G is the distribution function of the angle between the place and the
    position. They are computed by Newton's method within a bracket, and no proof relies on them.

    Args:
        u: (n,) The levels of the quantiles, from 0 to 1.
        rate: lambda, which is epsilon times the sphere's radius.
    """
    # The equation 1 - S = u total is solved for s = lambda t (exact.py defines G and S). s need not exceed 64, because
    # exp(-64) is negligible beside 1 in doubles.
    total = 1.0 + math.exp(-math.pi * rate)
    lower, upper = np.zeros_like(u), np.full_like(u, min(math.pi * rate, 64.0))
    s = np.full_like(u, min(1.0, math.pi * rate / 2))
    with np.errstate(all="ignore"):
        for _ in range(_NEWTON_STEPS):
            sine, decay = np.sin(s / rate), np.exp(-s)
            excess = 1.0 - decay * (np.cos(s / rate) + rate * sine) - u * total
            lower, upper = np.where(excess > 0, lower, s), np.where(excess > 0, s, upper)
            # The divisor in Newton's step is the derivative of 1 - S by s. If the step leaves the bracket, the bracket
            # is bisected.
            next_s = s - excess / (decay * sine * (rate + 1.0 / rate))
            next_s = np.where((next_s > lower) & (next_s < upper), next_s, (lower + upper) / 2)
            # A root, once found, is kept. A further step would consist of rounding errors, and might lead to a
            # bisection away from the root.
            is_found = np.abs(excess) <= 2.0**-50
            s = np.where(is_found, s, next_s)
            if is_found.all():
                break
    return s


def _enclose_distance(u: Floats, rate: float) -> tuple[Floats, Floats, Bools]:
    """Return intervals that contain quantiles of the angle between a place and the position drawn around it.

    The quantile at level u is G^-1(u), where G(t) = (1 - S(t)) / (1 + exp(-pi lambda)) is the distribution function of
    the angle, S(t) = exp(-s) (cos t + lambda sin t) and s = lambda t. Each interval is proved with a margin of 2^-46 in
    u. A proof is possible only for u from 2^-20 to 1 - 2^-20.

    Args:
        u: (n,) The levels of the quantiles, from 0 to 1.
        rate: lambda, which is epsilon times the sphere's radius.

    Returns:
        Three arrays of shape (n,): angles t and widths in radians, and whether G^-1(u) is proved to lie in [t - width,
        t + width].
    """
    # The scaled distance s = lambda t.
    s = propose_scaled_distance(u, rate)
    # The derivative of 1 - S by s, with a lower limit that keeps the width finite.
    density = np.maximum(np.exp(-s) * np.sin(s / rate) * (rate + 1.0 / rate), 2.0**-60)
    # With this width, 1 - S changes by about 4 margins from the middle of the interval to either end.
    width = 4.0 * _QUANTILE_MARGIN / density
    # G = (1 - S) / (1 + exp(-pi lambda)), so G = u where 1 - S is this target.
    target = u * (1.0 + float(_exp_minus(np.array([min(math.pi * rate, 64.0)]))[0]))
    # The interval must lie within (0, pi) and within the range in which _exp_minus is accurate.
    is_proved = (u >= _TAIL) & (u <= 1.0 - _TAIL) & (s > width) & (s + width < min(math.pi * rate, 48.0))
    s = np.where(is_proved, s, 0.0)
    # 1 - S is expected to differ from the target by about 4 margins at both ends. Differences of at least 2 prove the
    # interval.
    for sign in (-1.0, 1.0):
        end = np.where(is_proved, s + sign * width, 0.0)
        sine, cosine = _sine_cosine(end / rate)
        value = 1.0 - _exp_minus(end) * (cosine + rate * sine)
        is_proved &= sign * (value - target) >= 2.0 * _QUANTILE_MARGIN
    return s / rate, width / rate, is_proved


@frozen
class _Discs:
    """Discs around n computed positions on the unit sphere, as doubles, with the same axes as :class:`.exact.Disc`.

    Attributes:
        east, north, up: (n,) The components of the discs' centres, which are unit vectors.
        margin: (n,) The required distance between a disc's centre and every border between outputs. If the centre is
            farther away, the exact sampler's disc has a single output. The margin exceeds twice the distance from the
            centre to any point in the exact sampler's disc.
        longitude: (n,) The longitude, in degrees, of the place around which each position is drawn.
        is_proved: (n,) Whether each position is proved to lie in its disc.
    """

    east: Floats
    north: Floats
    up: Floats
    margin: Floats
    longitude: Floats
    is_proved: Bools


def _make_discs(u: Floats, v: Floats, latitudes: Floats, longitudes: Floats, rate: float) -> _Discs:
    """Return discs that contain the positions drawn around n places.

    Args:
        u, v: (n,) The uniform numbers that determine the distance and the bearing.
        latitudes, longitudes: (n,) The coordinates of the places in degrees.
        rate: lambda, which is epsilon times the sphere's radius.
    """
    angle, width, is_proved = _enclose_distance(u, rate)
    sine, cosine = _sine_cosine(angle)
    bearing_sine, bearing_cosine = _sine_cosine(2 * math.pi * v)
    latitude_sine, latitude_cosine = _sine_cosine(latitudes * (math.pi / 180))
    # The point at this angle and bearing from a place, in axes for which the place lies in the plane of north and up.
    outward = sine * bearing_cosine
    return _Discs(
        east=sine * bearing_sine,
        north=cosine * latitude_cosine - outward * latitude_sine,
        up=cosine * latitude_sine + outward * latitude_cosine,
        # The exact sampler's disc lies within 5 widths of this centre. The margin is more than 10 widths, because that
        # sampler doubles the radius to bound longitudes.
        margin=12.0 * width + _POSITION_MARGIN,
        longitude=longitudes,
        is_proved=is_proved,
    )


def _decide_cells(discs: _Discs, side: float, offset: float, poles: int | None) -> tuple[Ints, Ints, Bools]:
    """Return the row and column of the cell that contains each position, and whether the cell is proved to be correct.

    All three results have the shape (n,).

    Args:
        discs: Discs that contain the n positions.
        side: The side of a cell in degrees.
        offset: The position of row and column 0, in cells. Row k begins at the latitude ``(k + offset) * side``, and
            column k at the longitude ``(k + offset) * side``.
        poles: The index of the row that is a cap around the north pole, with the single column 0. Row ``-poles`` is
            then the cap around the south pole. None if there are no caps.
    """
    axis_distance = np.sqrt(discs.east * discs.east + discs.north * discs.north)
    latitude = np.degrees(np.arctan2(discs.up, axis_distance))
    turn = np.degrees(np.arctan2(discs.east, discs.north))
    # These cells are only guesses. The comparisons below prove that a cell contains the whole disc, so no proof relies
    # on arctan2.
    rows = np.floor(latitude / side - offset)
    columns = np.floor((discs.longitude + turn) / side - offset)
    is_south, is_north = (np.zeros(len(rows), dtype=np.bool_) if poles is None else rows == k * poles for k in (-1, 1))
    # Near a pole, no column is certain. The exact sampler requires a distance of 4 radii from the axis as well.
    in_row, in_column = discs.is_proved, axis_distance > 4.0 * discs.margin
    # Step 0 is for the lower borders of the row and column, and step 1 for the upper ones. A cap has only one border.
    for step, sign, is_cap in ((0.0, 1.0, is_south), (1.0, -1.0, is_north)):
        # Each difference is the sine of the angle between the centre and the border, which is positive on the cell's
        # side.
        sine, cosine = _sine_cosine((rows + (offset + step)) * side * (math.pi / 180))
        in_row = in_row & (is_cap | (sign * (discs.up * cosine - axis_distance * sine) > discs.margin))
        sine, cosine = _sine_cosine(((columns + (offset + step)) * side - discs.longitude) * (math.pi / 180))
        in_column &= sign * (discs.east * cosine - discs.north * sine) > discs.margin
    is_cap = is_south | is_north
    # Numbers that are not proved are set to 0, because they may be NaN, which cannot be converted to an integer.
    numbers = [np.where(in_row, row, 0.0).astype(np.int64) for row in (rows, np.where(is_cap, 0.0, columns))]
    return numbers[0], numbers[1], in_row & (in_column | is_cap)


def _decide_points(discs: _Discs, rounding: NearestPoint) -> tuple[Ints, Bools]:
    """Return the index of the point nearest to each position, and whether the index is proved to be correct.

    Both results have the shape (n,).

    Args:
        discs: Discs that contain the n positions.
        rounding: The rule, which provides the coordinates of the points.
    """
    degrees = np.array([[float(a), float(b)] for a, b in rounding.points])
    sine, cosine = _sine_cosine(degrees * (math.pi / 180))
    points = np.column_stack([cosine[:, 0] * cosine[:, 1], cosine[:, 0] * sine[:, 1], sine[:, 0]])
    # The centres' axes depend on the longitudes of their places, so the centres are rotated into the axes of the
    # points.
    sine_x, cosine_x = _sine_cosine(discs.longitude * (math.pi / 180))
    centres = np.column_stack(
        [discs.north * cosine_x - discs.east * sine_x, discs.north * sine_x + discs.east * cosine_x, discs.up]
    )
    if len(points) == 1:
        return np.zeros(len(centres), dtype=np.int64), discs.is_proved
    # Chords are straight-line distances. The tree computes them by differences, squares, sums and square roots alone,
    # so their errors have the same bounds on every machine. It rejects NaN, which centres without a proof may contain.
    finite_centres = np.where(discs.is_proved[:, None], centres, 0.0)
    chords, nearest = cKDTree(points).query(finite_centres, k=2)
    # From the centre to any point in the exact sampler's disc, each of the two chords compared changes by less than
    # half a margin. That sampler requires twice its radius on top, which is less than a margin. In total, this is less
    # than 2 margins.
    is_apart = chords[:, 1] - chords[:, 0] > 4.0 * discs.margin
    return nearest[:, 0].astype(np.int64), discs.is_proved & is_apart


def _decide(discs: _Discs, rounding: Rounding) -> tuple[Ints, Bools]:
    """Return the output for each position, and whether the output is proved to be correct.

    Args:
        discs: Discs that contain the n positions.
        rounding: The rule that maps positions to outputs. For rules that are not defined in :mod:`.exact`, no output is
            proved.

    Returns:
        An array of shape (n, ``rounding.size``) with one output per row, and an array of shape (n,) indicating which
        outputs are proved.
    """
    match rounding:
        case Digits(digits):
            # Outputs are the centres of cells, so a cell begins half a side before its output. The first and the last
            # row are caps around the poles. Columns are reduced to longitudes in [-180, 180).
            scale = 10**digits
            rows, columns, is_proved = _decide_cells(discs, 1.0 / scale, -0.5, 90 * scale)
            return np.column_stack([rows, (columns + 180 * scale) % (360 * scale) - 180 * scale]), is_proved
        case GridCells(side):
            # The number of rows from the equator to a pole. In outputs, rows are counted from the south pole and
            # columns from -180 degrees.
            half = int(90 / side)
            rows, columns, is_proved = _decide_cells(discs, float(side), 0.0, None)
            return np.column_stack([rows + half, (columns + 2 * half) % (4 * half)]), is_proved
        case NearestPoint():
            numbers, is_proved = _decide_points(discs, rounding)
            return numbers[:, None], is_proved
        case _:
            return np.zeros((len(discs.up), 1), dtype=np.int64), np.zeros(len(discs.up), dtype=np.bool_)


def draw_positions(
    latitudes: Floats, longitudes: Floats, epsilon: Fraction, rounding: Rounding, *, source: Source | None = None
) -> Ints:
    """Draw one position around each place, and return the outputs to which they round.

    This is the bulk form of :func:`draw_exactly`.

    Args:
        latitudes, longitudes: (n,) The coordinates of the places in degrees, from -90 to 90 and from -180 to 180.
        epsilon: The rate of the noise per km, from 1e-6 to 1e6.
        rounding: The rule that maps positions to outputs.
        source: A function that returns a given number of random bytes. By default, they come from the operating system.
            Places are processed in chunks of 16,384. For each chunk, the first words of U and V are read for all
            places, and then additional words for the places that need them.

    Returns:
        An array of shape (n, ``rounding.size``) with one output per row.
    """
    entropy = source or os.urandom
    parts = [
        _draw_chunk(latitudes[start : start + CHUNK], longitudes[start : start + CHUNK], epsilon, rounding, entropy)
        for start in range(0, len(latitudes), CHUNK)
    ]
    return np.concatenate(parts) if parts else np.zeros((0, rounding.size), dtype=np.int64)


def _draw_chunk(latitudes: Floats, longitudes: Floats, epsilon: Fraction, rounding: Rounding, entropy: Source) -> Ints:
    """Draw a position around each of at most ``CHUNK`` places, and return the outputs to which they round.

    Draws that cannot be decided in floating point are passed to the exact sampler.

    Args:
        latitudes, longitudes: (n,) The coordinates of the places in degrees.
        epsilon: The rate of the noise per km.
        rounding: The rule that maps positions to outputs.
        entropy: A function that returns a given number of random bytes.

    Returns:
        An array of shape (n, ``rounding.size``) with one output per row.
    """
    # Each row has one word of 8 bytes for U and one for V.
    words = np.frombuffer(entropy(16 * len(latitudes)), dtype="<u8").reshape(-1, 2)
    u, v = (words * 2.0**-64).T
    with np.errstate(all="ignore"):  # rows without a proof may overflow or contain NaN
        discs = _make_discs(u, v, latitudes, longitudes, float(epsilon * RADIUS_KM))
        outputs, is_proved = _decide(discs, rounding)
    for row in np.flatnonzero(~is_proved).tolist():
        first_words = [int(word) for word in words[row]]
        place = Fraction(float(latitudes[row])), Fraction(float(longitudes[row]))
        outputs[row] = draw_exactly(*place, epsilon, rounding, source=entropy, words=first_words)
    return outputs
