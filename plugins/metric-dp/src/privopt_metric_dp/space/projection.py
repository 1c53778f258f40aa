"""A map projection that never stretches distances, so that a guarantee per planar km also holds per km on the earth.

Let phi be the latitude and lambda the longitude of a point, in radians, and let R be the radius of the earth. The
equirectangular projection x = R cos(phi*) lambda, y = R phi has ds^2 = R^2 (cos^2 phi* dlambda^2 + dphi^2). Wherever
|phi| <= phi*, this is at most the sphere's R^2 (cos^2 phi dlambda^2 + dphi^2). Hence, a path on the earth that stays
within this range is at least as long as its planar image. phi* is chosen as the largest latitude reached by a great
circle between two points in the region. Therefore, planar distances in the region are at most great-circle distances.
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
"""The number of units per degree. Geographic positions are integer multiples of 1e-7 degrees (11 mm)."""

_UNIT_BITS = 24
"""The number of fractional bits in a scale in mm per unit. A scale times a full turn (3.6e9 units) is below 2^63."""

_TURN = 360 * UNITS_PER_DEGREE  # a full turn in units of 1e-7 degrees
_PI_DOWN = Fraction(math.pi)  # pi, rounded down to a double


def degrees_in_units(degrees: Floats) -> Ints:
    """Convert degrees to the nearest integer multiples of 1e-7 degrees."""
    return np.rint(np.asarray(degrees, dtype=np.float64) * UNITS_PER_DEGREE).astype(np.int64)


@frozen(kw_only=True)
class Projection:
    """An equirectangular projection in integer arithmetic.

    Attributes:
        origin: The latitude and longitude of the planar point (0, 0), in 1e-7 degrees.
        east, north: The number of millimetres per 1e-7 degrees of longitude and latitude, times 2^24, rounded down.
        parallel: A latitude phi* in degrees. Paths between the latitudes -phi* and phi* are not stretched.
        box: The smallest latitude, the largest latitude, and the largest difference in longitude from the origin, in
            1e-7 degrees. No great circle between two points in this box crosses the latitude phi* or -phi*.
    """

    origin: tuple[int, int]
    east: int
    north: int
    parallel: float
    box: tuple[int, int, int]

    @classmethod
    def of(cls, degrees: Floats, source: str, margin_mm: float = 0.0) -> Projection:
        """Return the projection for a region around the given points.

        Args:
            degrees: (N, 2) The latitudes and longitudes of points in the region.
            source: The name of the file that contains the points, for error messages.
            margin_mm: An upper bound, in mm in the plane, on how far the region extends beyond the points' bounding
                box.

        Raises:
            InputError: Great circles between the points come within 5 degrees of a pole.
        """
        units = degrees_in_units(degrees)
        reference = int(units[0, 1])
        # Longitudes are taken relative to the first point, in [-180, 180) degrees, so that a region may cross the 180th
        # meridian.
        east_of = (units[:, 1] - reference + _TURN // 2) % _TURN - _TURN // 2
        west, east_end = int(east_of.min()), int(east_of.max())
        south, north = int(units[:, 0].min()), int(units[:, 0].max())
        # Millimetres per 1e-7 degrees of latitude: pi R / 180 with R in mm, and pi rounded down.
        per_unit = _PI_DOWN * Fraction(EARTH_RADIUS_KM) * 10**6 / (180 * UNITS_PER_DEGREE)
        scale = math.floor(per_unit * 2**_UNIT_BITS)
        margin = Fraction(margin_mm) * 2**_UNIT_BITS
        height_margin = math.ceil(margin / scale) + 1  # at least one unit, as points are rounded by up to half of one
        width_margin = height_margin
        # A wider box has a higher phi*, at which the same margin in mm takes more degrees of longitude. So the box is
        # widened until its margin is large enough at the resulting phi*.
        while True:
            max_latitude = max(abs(south - height_margin), abs(north + height_margin)) / UNITS_PER_DEGREE
            parallel = _highest_parallel(
                max_latitude, ((east_end - west + 1) // 2 + width_margin) / UNITS_PER_DEGREE, source
            )
            # The cosine is rounded down. If it were larger, distances would be stretched, and the guarantee would not
            # hold on the earth.
            cosine = Fraction(float(cosine_of_latitude(np.array([parallel]))[0]) * (1.0 - 1e-12))
            east = math.floor(per_unit * cosine * 2**_UNIT_BITS)
            min_margin = math.ceil(margin / east) + 1
            if min_margin <= width_margin:
                break
            width_margin = min_margin + min_margin // 1000  # more than necessary, so that few rounds are needed
        middle = reference + (west + east_end) // 2
        return cls(
            origin=(south, (middle + _TURN // 2) % _TURN - _TURN // 2),
            east=east,
            north=scale,
            parallel=parallel,
            box=(south - height_margin, north + height_margin, (east_end - west + 1) // 2 + width_margin),
        )

    def covers(self, vertices: Ints) -> bool:
        """Return whether all given points lie in the projection's box, where no distance is stretched.

        Args:
            vertices: (N, 2) The x and y of each point in mm.
        """
        max_x, min_y, max_y = int(np.abs(vertices[:, 0]).max()), int(vertices[:, 1].min()), int(vertices[:, 1].max())
        # The edges of the box, relative to the origin, in 1e-7 degrees.
        south, north, half_width = self.box[0] - self.origin[0], self.box[1] - self.origin[0], self.box[2]
        # Both sides are integers in 2^-24 mm, so no rounding can admit a point outside the box.
        return (
            south * self.north <= min_y << _UNIT_BITS
            and max_y << _UNIT_BITS <= north * self.north
            and max_x << _UNIT_BITS <= half_width * self.east
        )

    def to_plane(self, units: Ints) -> Ints:
        """Convert latitudes and longitudes in 1e-7 degrees to x and y in mm, rounded to the nearest integer.

        Args:
            units: (N, 2) The latitude and longitude of each point, as integers.

        Returns:
            (N, 2) The x and y of each point, as integers.
        """
        north = units[:, 0] - self.origin[0]
        east = (units[:, 1] - self.origin[1] + _TURN // 2) % _TURN - _TURN // 2
        # Half a millimetre is added, so that the right shift rounds to the nearest millimetre.
        half = 1 << (_UNIT_BITS - 1)
        return np.column_stack([(east * self.east + half) >> _UNIT_BITS, (north * self.north + half) >> _UNIT_BITS])

    def to_earth(self, vertices: Ints) -> Floats:
        """Convert planar points in mm to latitudes and longitudes in degrees, in double precision.

        Args:
            vertices: (N, 2) The x and y of each point.

        Returns:
            (N, 2) The latitude and longitude of each point.
        """
        scale = 2.0**_UNIT_BITS / UNITS_PER_DEGREE
        north = vertices[:, 1] * (scale / self.north) + self.origin[0] / UNITS_PER_DEGREE
        east = vertices[:, 0] * (scale / self.east) + self.origin[1] / UNITS_PER_DEGREE
        return np.column_stack([north, (east + 180.0) % 360.0 - 180.0])


def _highest_parallel(max_latitude: float, half_width: float, source: str) -> float:
    """Return the largest latitude, in degrees, that a great circle between two points in a box can reach.

    This is the latitude phi* (see :class:`Projection`), rounded up.

    Args:
        max_latitude: The largest absolute latitude in the box, in degrees.
        half_width: Half the width of the box in longitude, in degrees.
        source: The name of the file, for error messages.

    Raises:
        InputError: phi* is above 85 degrees.
    """
    # The highest great circle connects the two corners at the largest latitude. Its largest latitude is half-way, at
    # atan(tan(latitude) / cos(half width)).
    reach = 90.0
    if max(max_latitude, half_width) < 90.0:
        reach = math.degrees(math.atan(math.tan(math.radians(max_latitude)) / math.cos(math.radians(half_width))))
    # phi* is rounded up by one or two millionths of a degree (11 cm each), far more than any rounding error.
    parallel = (math.floor(reach * 1e6) + 2) / 1e6
    if parallel > 85.0:
        actual = f"points between which great circles reach {reach:.4g} degrees of latitude"
        raise InputError([Fault(source, "", actual, "a region whose paths stay 5 degrees away from the poles")])
    return parallel
