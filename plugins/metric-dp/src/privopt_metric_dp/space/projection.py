"""A map projection that never stretches: a guarantee per planar km is one per km of the earth.

The equirectangular projection x = R cos(phi*) lambda, y = R phi has ds^2 = R^2 (cos^2 phi* dlambda^2 + dphi^2), at most
the sphere's R^2 (cos^2 phi dlambda^2 + dphi^2) wherever |phi| <= phi*. So a path on the earth that stays below the
parallel phi* has an image that is at most as long. Planar distance is then at most the great circle's if the great
circle stays there: phi* is the largest latitude that a great circle between two points of the region reaches.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt.numbers.distances import EARTH_RADIUS_KM, cosine_of_latitude

__all__ = ["UNITS_PER_DEGREE", "Projection", "degrees_in_units"]

UNITS_PER_DEGREE = 10_000_000
"""Geographic positions are whole numbers of 1e-7 degrees (11 mm)."""

_UNIT_BITS = 24
"""Binary places of millimetres per unit: products with a whole turn, 3.6e9 units, stay below 2^63."""

_TURN = 360 * UNITS_PER_DEGREE
_PI_DOWN = Fraction(math.pi)  # the double below pi


def degrees_in_units(degrees: Floats) -> Ints:
    """Round degrees to whole numbers of 1e-7 degrees, the nearest."""
    return np.rint(np.asarray(degrees, dtype=np.float64) * UNITS_PER_DEGREE).astype(np.int64)


@frozen(kw_only=True)
class Projection:
    """Equirectangular, in whole numbers.

    Attributes:
        origin: (latitude, longitude) of (0, 0), in 1e-7 degrees.
        east, north: millimetres per 1e-7 degrees of longitude and latitude, times 2^24, rounded down.
        parallel: phi* in degrees: ways that stay below it are not stretched.
        box: least and greatest latitude, and the greatest longitude from the origin either way, in 1e-7 degrees: no
            great circle between two points of it passes phi*.
    """

    origin: tuple[int, int]
    east: int
    north: int
    parallel: float
    box: tuple[int, int, int]

    @classmethod
    def of(cls, degrees: Floats, source: str, margin_mm: float = 0.0) -> Projection:
        """Return the projection for a region with given points.

        Args:
            degrees: (N, 2) latitudes and longitudes of points of it.
            source: of the points, for faults.
            margin_mm: how far on the plane it reaches beyond the box of those points, at most.

        Raises:
            InputError: points so far apart that great circles between them come within 5 degrees of a pole.
        """
        units = degrees_in_units(degrees)
        reference = int(units[0, 1])
        east_of = (units[:, 1] - reference + _TURN // 2) % _TURN - _TURN // 2
        west, east_end = int(east_of.min()), int(east_of.max())
        south, north = int(units[:, 0].min()), int(units[:, 0].max())
        per_unit = _PI_DOWN * Fraction(EARTH_RADIUS_KM) * 10**6 / (180 * UNITS_PER_DEGREE)
        scale = math.floor(per_unit * 2**_UNIT_BITS)
        margin = Fraction(margin_mm) * 2**_UNIT_BITS
        height_margin = math.ceil(margin / scale) + 1  # at least one unit: points are read to half of one
        width_margin = height_margin
        while True:  # a wider box has a higher phi*, and there a margin is more degrees of longitude
            max_latitude = max(abs(south - height_margin), abs(north + height_margin)) / UNITS_PER_DEGREE
            parallel = _highest_parallel(
                max_latitude, ((east_end - west + 1) // 2 + width_margin) / UNITS_PER_DEGREE, source
            )
            cosine = Fraction(float(cosine_of_latitude(np.array([parallel]))[0]) * (1.0 - 1e-12))  # no more than it is
            east = math.floor(per_unit * cosine * 2**_UNIT_BITS)
            min_margin = math.ceil(margin / east) + 1
            if min_margin <= width_margin:
                break
            width_margin = min_margin + min_margin // 1000
        middle = reference + (west + east_end) // 2
        return cls(
            origin=(south, (middle + _TURN // 2) % _TURN - _TURN // 2),
            east=east,
            north=scale,
            parallel=parallel,
            box=(south - height_margin, north + height_margin, (east_end - west + 1) // 2 + width_margin),
        )

    def covers(self, vertices: Ints) -> bool:
        """Check whether points (N, 2) in millimetres lie in the box of phi*: between them nothing is stretched."""
        max_x, min_y, max_y = int(np.abs(vertices[:, 0]).max()), int(vertices[:, 1].min()), int(vertices[:, 1].max())
        south, north, half_width = (
            (self.box[0] - self.origin[0]) * self.north,
            self.box[1] - self.origin[0],
            self.box[2],
        )
        return (
            south <= min_y << _UNIT_BITS
            and max_y << _UNIT_BITS <= north * self.north
            and max_x << _UNIT_BITS <= half_width * self.east
        )

    def to_plane(self, units: Ints) -> Ints:
        """Map (latitude, longitude) in 1e-7 degrees to (N, 2) x and y in millimetres, rounded to nearest."""
        north = units[:, 0] - self.origin[0]
        east = (units[:, 1] - self.origin[1] + _TURN // 2) % _TURN - _TURN // 2
        half = 1 << (_UNIT_BITS - 1)
        return np.column_stack([(east * self.east + half) >> _UNIT_BITS, (north * self.north + half) >> _UNIT_BITS])

    def to_earth(self, vertices: Ints) -> Floats:
        """Map points (N, 2) in millimetres to (N, 2) latitudes and longitudes in degrees, to double precision."""
        scale = 2.0**_UNIT_BITS / UNITS_PER_DEGREE
        north = vertices[:, 1] * (scale / self.north) + self.origin[0] / UNITS_PER_DEGREE
        east = vertices[:, 0] * (scale / self.east) + self.origin[1] / UNITS_PER_DEGREE
        return np.column_stack([north, (east + 180.0) % 360.0 - 180.0])


def _highest_parallel(max_latitude: float, half_width: float, source: str) -> float:
    """phi* in degrees of a box whose highest latitude is ``top`` and whose half width is ``half`` degrees."""
    # two points at the top latitude, the widest apart: the great circle between them reaches highest half-way
    reach = 90.0
    if max(max_latitude, half_width) < 90.0:
        reach = math.degrees(math.atan(math.tan(math.radians(max_latitude)) / math.cos(math.radians(half_width))))
    # millionths of a degree, 11 cm: far more than the roundings of what was computed, and the same on all machines
    parallel = (math.floor(reach * 1e6) + 2) / 1e6
    if parallel > 85.0:
        actual = f"points between which great circles reach {reach:.4g} degrees of latitude"
        raise InputError([Fault(source, "", actual, "a region whose ways stay 5 degrees off the poles")])
    return parallel
