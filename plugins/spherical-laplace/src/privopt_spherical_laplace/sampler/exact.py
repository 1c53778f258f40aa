"""The exact sampler, which computes a position from two uniform numbers with as many bits as its rounding requires.

A position y drawn around a place x has the density exp(-epsilon d(x, y)) / Z, where d is the great-circle distance and
Z is a constant. In polar coordinates around x, on a sphere of radius R, let r be the distance between x and y, and let
t = r / R be the corresponding angle. This angle has the distribution function

    G(t) = (1 - S(t)) / (1 + exp(-pi lambda)),   S(t) = exp(-lambda t) (cos t + lambda sin t),   lambda = epsilon R,

and the bearing is uniform. Hence t = G^-1(U) and the bearing is 2 pi V, for uniform numbers U and V. At first, only n
bits of U and V are read, which leaves a box of possible pairs (U, V). The corresponding positions lie in a disc. If all
positions in the disc round to the same output, this output is the result. Otherwise, n is doubled. In this way, the
output is exactly the rounded real-valued position. Every decision is made in integer arithmetic with error bounds
(docs/reference/proof.md, "The sphere"). Numbers are in fixed point: a number q is stored as an integer near q 2^w. An
ulp is 2^-w, the value of the last fractional bit.
"""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar, Final

from attrs import field, frozen

from privopt.errors import UsageError
from privopt.numbers.sampling import Source
from privopt_spherical_laplace.sampler.fixed_point import arctangent, exp_minus, pi, sine_cosine

__all__ = ["RADIUS_KM", "Digits", "Disc", "GridCells", "NearestPoint", "Rounding", "draw_exactly", "locate"]

#: The mean radius of the Earth (IUGG), which defines the metric.
RADIUS_KM: Final = Fraction(63710088, 10000)
_WORD_BYTES = 8
_FIRST_BITS = 64  # the number of bits of U, and of V, that are read first
_EXTRA_BITS = 96  # bits carried beyond those of U and V, so that rounding errors are small compared with the box
_MAX_STEPS = 256  # the maximum number of steps in Newton's method


@frozen
class Disc:
    """A disc on the unit sphere that is proved to contain the position drawn around a place x.

    Attributes:
        bits: The number w of fractional bits in the fixed-point numbers below.
        east, north, up: The disc's centre as a unit vector, in fixed point. ``up`` is the component along the axis to
            the north pole. ``north`` is perpendicular to this axis, towards the meridian of x, and ``east`` is
            perpendicular to both.
        radius: The angular radius in radians, in fixed point. It allows for rounding errors in the centre.
        latitude, longitude: The exact coordinates of x in degrees.
    """

    bits: int
    east: int
    north: int
    up: int
    radius: int
    latitude: Fraction
    longitude: Fraction


class Rounding(ABC):
    """A rule that maps positions to outputs, which are tuples of integers.

    Attributes:
        size: The number of integers in an output.
    """

    size: ClassVar[int] = 2

    @abstractmethod
    def decide(self, disc: Disc) -> tuple[int, ...] | None:
        """Return the output shared by all positions in the disc, or None if their outputs may differ."""


def _degrees(angle: int, bits: int) -> int:
    """Convert a fixed-point angle from radians to degrees, with an error of at most 240 ulps."""
    return (angle * 180 << bits) // pi(bits)


def _bounds_of_latitude(disc: Disc) -> tuple[int, int, int]:
    """Return bounds on the latitudes in a disc, and the cosine of the latitude of its centre.

    Returns:
        The lower and upper bounds, in degrees, and the cosine. All three numbers are in fixed point.
    """
    w = disc.bits
    # The cosine is the centre's distance from the axis through the poles.
    cosine = math.isqrt(disc.east * disc.east + disc.north * disc.north)
    latitude = _degrees(arctangent(disc.up, cosine, w), w)
    # A radian is less than 60 degrees, and 512 w ulps cover the errors of the functions.
    margin = 60 * disc.radius + 512 * w
    quarter = 90 << w
    return max(latitude - margin, -quarter), min(latitude + margin, quarter), cosine


def _bounds_of_longitude(disc: Disc, cosine: int) -> tuple[int, int] | None:
    """Return lower and upper bounds on the longitudes in a disc, or None if the disc may be too close to a pole.

    The bounds are in degrees, in fixed point, and not reduced modulo 360. If sin(radius) <= cosine / 3, no longitude in
    the disc differs from the centre's by more than arcsin(sin(radius) / cosine) < 2 radius / cosine.

    Args:
        disc: The disc.
        cosine: The cosine of the latitude of the disc's centre, in fixed point.
    """
    w = disc.bits
    # This is stricter than the condition in the docstring, to allow for rounding errors.
    if 4 * disc.radius > cosine:
        return None
    angle = _degrees(arctangent(disc.east, disc.north, w), w)
    longitude = (disc.longitude.numerator << w) // disc.longitude.denominator + angle
    # A radian is less than 60 degrees, and 512 w ulps cover the errors of the functions.
    margin = 60 * ((2 * disc.radius << w) // cosine) + 512 * w
    return longitude - margin, longitude + margin


@frozen
class Digits(Rounding):
    """The rule that rounds latitude and longitude to ``digits`` decimal places of a degree.

    An output consists of the latitude and longitude in units of the last decimal place. The longitude is in [-180, 180)
    degrees, and is 0 if the latitude is rounded to a pole.
    """

    digits: int

    def decide(self, disc: Disc) -> tuple[int, ...] | None:
        """Return the rounded coordinates shared by all positions in the disc, or None if they may round differently."""
        w, scale = disc.bits, 10**self.digits
        lower, upper, cosine = _bounds_of_latitude(disc)
        # floor(bound * scale + 1/2), for a bound in fixed point. Rounding preserves order, so if both bounds round to
        # the same number, all numbers between them do.
        row = (lower * scale * 2 + (1 << w)) >> (w + 1)
        if row != (upper * scale * 2 + (1 << w)) >> (w + 1):
            return None
        if abs(row) == 90 * scale:  # a pole
            return row, 0
        bounds = _bounds_of_longitude(disc, cosine)
        if bounds is None:
            return None
        column, last_column = ((bound * scale * 2 + (1 << w)) >> (w + 1) for bound in bounds)
        # The bounds on longitudes may lie outside [-180, 180), so the column is reduced to this range.
        return (row, (column + 180 * scale) % (360 * scale) - 180 * scale) if column == last_column else None


@frozen
class GridCells(Rounding):
    """The rule that maps positions to grid cells.

    An output consists of the cell's row, counted from the south pole, and its column, counted from longitude -180.

    Attributes:
        side: The side of a cell in degrees, which must divide 90.
    """

    side: Fraction

    def decide(self, disc: Disc) -> tuple[int, ...] | None:
        """Return the row and column of the cell that contains the disc, or None if the disc may cross a boundary."""
        w, n, d = disc.bits, self.side.numerator, self.side.denominator
        lower, upper, cosine = _bounds_of_latitude(disc)
        rows = int(180 / self.side)
        # floor((bound + 90) / side), for a bound in fixed point. The north pole belongs to the last row.
        row, last_row = (min(((bound + (90 << w)) * d // n) >> w, rows - 1) for bound in (lower, upper))
        if row != last_row:
            return None
        bounds = _bounds_of_longitude(disc, cosine)
        if bounds is None:
            return None
        column, last_column = (((bound + (180 << w)) * d // n) >> w for bound in bounds)
        return (row, column % (2 * rows)) if column == last_column else None  # there are 2 * rows columns


@frozen
class NearestPoint(Rounding):
    """The rule that maps a position to the index of the nearest point.

    Attributes:
        points: The latitude and longitude of each point in degrees. The points must be distinct.
        _vectors: A cache of the points as unit vectors in fixed point, keyed by the number of fractional bits.
    """

    size: ClassVar[int] = 1

    points: tuple[tuple[Fraction, Fraction], ...]
    _vectors: dict[int, list[tuple[int, int, int]]] = field(factory=dict, eq=False, repr=False)

    def decide(self, disc: Disc) -> tuple[int, ...] | None:
        """Return the index of the point nearest to all positions in the disc, or None if there may be no such point."""
        w = disc.bits
        # The disc's axes depend on the longitude of x, so its centre is rotated into the fixed axes of `_unit_vector`.
        sine, cosine = _sine_cosine_of_degrees(disc.longitude, w)
        x = (disc.north * cosine - disc.east * sine) >> w
        y = (disc.north * sine + disc.east * cosine) >> w
        if w not in self._vectors:
            self._vectors[w] = [_unit_vector(*point, w) for point in self.points]
        chords = [math.isqrt((a - x) ** 2 + (b - y) ** 2 + (c - disc.up) ** 2) for a, b, c in self._vectors[w]]
        nearest = min(range(len(chords)), key=chords.__getitem__)
        # A chord (a straight-line distance) changes by at most the radius within the disc. The factor is 2, because two
        # chords are compared. 512 w ulps cover the errors of the vectors.
        limit = chords[nearest] + 2 * disc.radius + 512 * w
        return (nearest,) if sum(chord <= limit for chord in chords) == 1 else None


def _sine_cosine_of_degrees(degrees: Fraction, bits: int) -> tuple[int, int]:
    """Return the sine and cosine of an angle between -180 and 180 degrees, in fixed point."""
    angle = abs(degrees.numerator) * pi(bits) // (180 * degrees.denominator)
    sine, cosine = sine_cosine(angle, bits)
    return (-sine if degrees < 0 else sine), cosine


@lru_cache(maxsize=1 << 12)
def _cached_sine_cosine(degrees: Fraction, bits: int) -> tuple[int, int]:
    """Return the sine and cosine of a latitude in degrees, in fixed point.

    Results are cached, because many reports may be drawn for the same position.
    """
    return _sine_cosine_of_degrees(degrees, bits)


def _unit_vector(latitude: Fraction, longitude: Fraction, bits: int) -> tuple[int, int, int]:
    """Convert a position in degrees to a unit vector in fixed point.

    The first axis points to latitude and longitude 0, the second to longitude 90 on the equator, and the third to the
    north pole.
    """
    sine, cosine = _sine_cosine_of_degrees(latitude, bits)
    lon_sine, lon_cosine = _sine_cosine_of_degrees(longitude, bits)
    return cosine * lon_cosine >> bits, cosine * lon_sine >> bits, sine


@lru_cache(maxsize=256)
def _total(rate: Fraction, bits: int) -> int:
    """Return 1 + exp(-pi lambda) in fixed point, which is the denominator of G (see the module docstring).

    It is also the largest value of 1 - S.

    Args:
        rate: lambda = epsilon R.
        bits: The number of fractional bits in the result.
    """
    return (1 << bits) + exp_minus(rate.numerator * pi(bits) // rate.denominator, bits)


def _evaluate(angle: int, rate: Fraction, bits: int) -> tuple[int, int]:
    """Return 1 - S(t) and sin(t) exp(-lambda t) in fixed point, where S is defined in the module docstring.

    The second value is the derivative of 1 - S(t), divided by 1 + lambda^2. The error of the first value is at most
    2^38 w ulps for lambda < 2^33.

    Args:
        angle: t in radians, from 0 to pi, in fixed point.
        rate: lambda = epsilon R.
        bits: The number w of fractional bits in the angle and in both results.
    """
    n, d = rate.numerator, rate.denominator
    sine, cosine = sine_cosine(angle, bits)
    decay = exp_minus(n * angle // d, bits)
    return (1 << bits) - (decay * (cosine + n * sine // d) >> bits), decay * sine >> bits


def _invert(u: int, n: int, rate: Fraction, bits: int) -> tuple[int, int]:
    """Return an angle t and a width such that G^-1 maps [u, u + 1] / 2^n into [t - width, t + width].

    G is the distribution function of the angle (see the module docstring). The angle is found by Newton's method,
    without any guarantee of its accuracy. The width is then doubled until the signs of G - U at both ends of the
    interval prove that it is large enough.

    Args:
        u: The first n bits of the uniform number U, as an integer.
        n: The number of these bits.
        rate: lambda = epsilon R.
        bits: The number of fractional bits in t and in the width, which are in radians.
    """
    total, half_turn = _total(rate, bits), pi(bits)
    # G(t) = U is solved in the form 1 - S(t) = U total, for the middle of the interval in which U lies.
    target = (2 * u + 1) * total >> (n + 1)
    numerator, denominator = rate.numerator, rate.denominator
    slope_numerator, slope_denominator = numerator**2 + denominator**2, denominator**2  # 1 + lambda^2 as a fraction
    accuracy = 1 << (bits - n - 2)  # a quarter of the interval of U, whose length is 2^-n
    lower, upper = 0, half_turn
    angle = min((denominator << bits) // numerator, half_turn >> 1)  # near the mode of the density
    slope = 0
    for _ in range(_MAX_STEPS):
        value, density = _evaluate(angle, rate, bits)
        slope = density * slope_numerator // slope_denominator
        excess = value - target
        if abs(excess) <= accuracy:
            break
        lower, upper = (lower, angle) if excess > 0 else (angle, upper)
        # If a step would leave the bracket [lower, upper], the bracket is bisected instead.
        next_angle = angle - (excess << bits) // slope if slope > 0 else -1  # -1 is outside the bracket
        angle = next_angle if lower < next_angle < upper else (lower + upper) >> 1
    # The first width is twice the change in t over the whole interval of U, as estimated from the slope at t. `error`
    # is four times the error bound of `_evaluate`, which is 2^38 w ulps.
    width = (2 << (2 * bits - n)) // slope + 1 if slope > 0 else half_turn
    error = bits << 40
    first_target, last_target = u * total >> n, (u + 1) * total >> n
    while not (
        (angle - width <= 0 or _evaluate(angle - width, rate, bits)[0] <= first_target - error)
        and (angle + width >= half_turn or _evaluate(angle + width, rate, bits)[0] >= last_target + error)
    ):
        width *= 2
    return angle, width


def locate(u: int, v: int, n: int, latitude: Fraction, longitude: Fraction, rate: Fraction) -> Disc:
    """Return a disc that contains the position drawn around a place, given the first bits of two uniform numbers.

    The disc contains the position for all U in [u, u + 1] / 2^n and V in [v, v + 1] / 2^n.

    Args:
        u, v: The first n bits of the uniform numbers U and V, as integers.
        n: The number of bits in each.
        latitude, longitude: The coordinates of the place in degrees, from -90 to 90 and from -180 to 180.
        rate: lambda = epsilon R.
    """
    w = n + _EXTRA_BITS
    angle, width = _invert(u, n, rate, w)
    sine, cosine = sine_cosine(angle, w)
    # The bearing at the middle of [v, v + 1] / 2^n, as a number of quarter turns and the rest.
    quarter, rest = divmod(2 * v + 1, 1 << (n - 1))
    bearing_sine, bearing_cosine = sine_cosine(rest * pi(w) >> n, w)
    for _ in range(quarter):  # sin(b + 90 degrees) = cos b, cos(b + 90 degrees) = -sin b
        bearing_sine, bearing_cosine = bearing_cosine, -bearing_sine
    latitude_sine, latitude_cosine = _cached_sine_cosine(latitude, w)
    # The point at this angle and bearing from the place, in axes for which the place lies in the plane of north and
    # up.
    outward = sine * bearing_cosine >> w
    return Disc(
        bits=w,
        east=sine * bearing_sine >> w,
        north=(cosine * latitude_cosine - outward * latitude_sine) >> w,
        up=(cosine * latitude_sine + outward * latitude_cosine) >> w,
        # A change in bearing moves the position by at most sin(t) <= t times that change. The last term covers the
        # rounding errors in the centre.
        radius=width + (angle * pi(w) >> (w + n)) + (w << 8),
        latitude=latitude,
        longitude=longitude,
    )


def draw_exactly(
    latitude: Fraction,
    longitude: Fraction,
    epsilon: Fraction,
    rounding: Rounding,
    *,
    source: Source | None = None,
    words: Sequence[int] = (),
) -> tuple[int, ...]:
    """Draw one position around a place, and return the output to which it rounds.

    Args:
        latitude, longitude: The exact coordinates of the place in degrees, from -90 to 90 and from -180 to 180.
        epsilon: The rate of the noise per km, from 1e-6 to 1e6.
        rounding: The rule that maps positions to outputs.
        source: A function that returns a given number of random bytes. By default, they come from the operating system.
            The bytes are read as words of 8 bytes, least significant byte first. U and V initially have one word each.
            Each refinement doubles the number of words by appending less significant ones, first to U and then to V.
        words: The first words of U and V, if they have already been read.
    """
    entropy = source or os.urandom
    rate = epsilon * RADIUS_KM
    u, v = words or (_read_word(entropy), _read_word(entropy))
    n = _FIRST_BITS
    # While the disc may have several outputs, the number of known bits of U and V is doubled.
    while (output := rounding.decide(locate(u, v, n, latitude, longitude, rate))) is None:
        for _ in range(n // _FIRST_BITS):
            u = u << _FIRST_BITS | _read_word(entropy)
        for _ in range(n // _FIRST_BITS):
            v = v << _FIRST_BITS | _read_word(entropy)
        n *= 2
    return output


def _read_word(entropy: Source) -> int:
    """Read 64 random bits from a source as an integer.

    Raises:
        UsageError: The source does not return exactly 8 bytes.
    """
    word = entropy(_WORD_BYTES)
    # If missing bytes of an exhausted source were read as zeros, a draw might never be decided.
    if len(word) != _WORD_BYTES:
        raise UsageError(f"a source of random bytes must give {_WORD_BYTES} bytes, got {len(word)}")
    return int.from_bytes(word, "little")
