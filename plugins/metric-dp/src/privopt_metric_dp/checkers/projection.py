"""A map projection from the earth to a plane, in integer millimetres (docs/guide/everywhere.md)."""

from __future__ import annotations

import math
from fractions import Fraction

from privopt.checker.exact import RADIUS_KM, need, radians

__all__ = ["Point", "Projection", "in_millimetres"]

Point = tuple[int, int]
"""A point in the plane, in integer millimetres to the east and to the north of the origin."""

UNITS = 10**7
"""The number of angular units in a degree. Positions on the earth are integers in units of 1e-7 degrees."""

TURN = 360 * UNITS
"""A full turn (360 degrees) in units of 1e-7 degrees."""

FARTHEST = 2.0**50
"""The largest absolute value of a coordinate, in millimetres."""


def in_millimetres(x: float, y: float) -> Point:
    """Convert a position from km to integer millimetres, rounding half to even and clipping at ``FARTHEST``."""
    east, north = (round(max(-FARTHEST, min(km * 1e6, FARTHEST))) for km in (x, y))
    return east, north


class Projection:
    """The projection x = R cos(phi*) longitude and y = R latitude, which makes no path longer than it is on the earth.

    Here R is the radius of the earth, and phi* is the highest latitude that a great circle between two points in the
    region's bounding box can reach. It satisfies tan(phi*) = tan(top) / cos(half), where ``top`` is the highest
    latitude in the box, north or south, and ``half`` is half of the box's width in longitude.

    Attributes:
        south, middle: The latitude and longitude of the origin, in units of 1e-7 degrees.
        up, right: The length of 1e-7 degrees northwards and eastwards, in units of 2**-24 mm, rounded down.
    """

    def __init__(self, degrees: list[tuple[float, float]], margin: float = 0.0) -> None:
        """Compute the projection for a region using the same steps as ``solve``, so that both obtain the same integers.

        Args:
            degrees: The latitude and longitude in degrees of each known position in the region.
            margin: An upper bound in millimetres on how far the region extends beyond the positions' bounding box.

        Raises:
            RefusedError: Paths in the region could come near a pole.
        """
        units = [(round(lat * 1e7), round(lon * 1e7)) for lat, lon in degrees]
        reference = units[0][1]
        # Longitudes are measured from the first position, so that a region may cross the meridian of 180 degrees.
        east = [_wrap_longitude(lon - reference) for _, lon in units]
        self.south, north = min(units)[0], max(units)[0]
        self.middle = reference + (min(east) + max(east)) // 2
        # The length of 1e-7 degrees of a great circle in 2**-24 mm. It is a little too short, because the double
        # nearest to pi is below pi.
        per_unit = Fraction(math.pi) * RADIUS_KM * 2**24 * 10**6 / (180 * UNITS)
        self.up, margin_units = math.floor(per_unit), Fraction(margin) * 2**24
        height_margin = width_margin = math.ceil(margin_units / self.up) + 1
        # Widening the box raises phi*, and then the margin takes more degrees of longitude, so this is repeated until
        # the margin fits.
        while True:
            max_latitude = max(height_margin - self.south, north + height_margin) / 1e7
            half_width = ((max(east) - min(east) + 1) // 2 + width_margin) / 1e7
            need(max(max_latitude, half_width) < 90, "problem: paths that come near a pole", 2)
            tangent = math.tan(math.radians(max_latitude)) / math.cos(math.radians(half_width))
            # This is phi* in degrees. It is rounded up to millionths, which are far above rounding errors, so that all
            # machines get the same number.
            parallel = (math.floor(math.degrees(math.atan(tangent)) * 1e6) + 2) / 1e6
            need(parallel <= 85, "problem: paths that come near a pole", 2)
            # The cosine is reduced by more than its error, because too large a cosine would stretch distances.
            narrower = Fraction(math.cos(math.radians(parallel)) * (1.0 - 1e-12))
            self.right = math.floor(per_unit * narrower)
            if (needed := math.ceil(margin_units / self.right) + 1) <= width_margin:
                break
            width_margin = needed + needed // 1000

    def millimetres(self, lat: float, lon: float) -> Point:
        """Project a latitude and longitude in degrees to a point in the plane, in integer millimetres."""
        east = _wrap_longitude(round(lon * 1e7) - self.middle)
        north = round(lat * 1e7) - self.south
        # Half a millimetre is 2**23 in units of 2**-24 mm, so the shift rounds to the nearest millimetre.
        return east * self.right + 2**23 >> 24, north * self.up + 2**23 >> 24

    def doubles(self, lat: float, lon: float) -> tuple[float, float]:
        """Project a latitude and longitude in degrees to a point in whole millimetres, and return it as doubles."""
        x, y = self.millimetres(lat, lon)
        return float(x), float(y)

    def radians(self, x: Fraction, y: Fraction) -> tuple[int, int]:
        """Return the latitude and longitude of a point given in millimetres, in radians scaled by 2**256."""
        north = y * 2**24 / self.up + self.south
        east = x * 2**24 / self.right + self.middle
        return radians(north / UNITS), radians(east / UNITS)


def _wrap_longitude(longitude: int) -> int:
    """Return the equivalent longitude in [-180, 180) degrees, in units of 1e-7 degrees."""
    return (longitude + TURN // 2) % TURN - TURN // 2
