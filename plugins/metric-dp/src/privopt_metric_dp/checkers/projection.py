"""A map projection of the earth, in whole millimetres (docs/guide/everywhere.md)."""

from __future__ import annotations

import math
from fractions import Fraction

from privopt.checker.exact import RADIUS_KM, need, radians

__all__ = ["Point", "Projection", "in_millimetres"]

Point = tuple[int, int]
"""Millimetres to the east and north."""

UNITS = 10**7
"""Of a degree."""

TURN = 360 * UNITS

FARTHEST = 2.0**50
"""Millimetres that a coordinate may have, either way."""


def in_millimetres(x: float, y: float) -> Point:
    """Return a place in km in whole millimetres, half to even."""
    east, north = (round(max(-FARTHEST, min(km * 1e6, FARTHEST))) for km in (x, y))
    return east, north


class Projection:
    """The earth on a plane, no way longer than on it: x = R cos(phi*) longitude, y = R latitude.

    phi* is the highest latitude that a great circle reaches between points of a box: tan phi* = tan
    top / cos half, for a box that reaches up to latitude ``top`` and ``half`` its width to either
    side.

    Attributes:
        south, middle: latitude and longitude of the origin, in 1e-7 degrees.
        up, right: 2**-24 millimetres that such a unit is long, northwards and eastwards.
    """

    def __init__(self, degrees: list[tuple[float, float]], margin: float = 0.0) -> None:
        """Choose the plane of positions in degrees, with a margin of ``margin`` millimetres.

        Raises:
            RefusedError: paths between them may come near a pole.
        """
        units = [(round(lat * 1e7), round(lon * 1e7)) for lat, lon in degrees]
        reference = units[0][1]
        east = [_wrap_longitude(lon - reference) for _, lon in units]
        self.south, north = min(units)[0], max(units)[0]
        self.middle = reference + (min(east) + max(east)) // 2
        per_unit = Fraction(math.pi) * RADIUS_KM * 2**24 * 10**6 / (180 * UNITS)  # of 2**-24 mm, rounded down
        self.up, margin_units = math.floor(per_unit), Fraction(margin) * 2**24
        height_margin = width_margin = (
            math.ceil(margin_units / self.up) + 1
        )  # the region reaches as far beyond its points
        while True:
            max_latitude = max(height_margin - self.south, north + height_margin) / 1e7
            half_width = ((max(east) - min(east) + 1) // 2 + width_margin) / 1e7
            need(max(max_latitude, half_width) < 90, "problem: ways that come near a pole", 2)
            tangent = math.tan(math.radians(max_latitude)) / math.cos(math.radians(half_width))
            parallel = (math.floor(math.degrees(math.atan(tangent)) * 1e6) + 2) / 1e6
            need(parallel <= 85, "problem: ways that come near a pole", 2)
            narrower = Fraction(math.cos(math.radians(parallel)) * (1.0 - 1e-12))
            self.right = math.floor(per_unit * narrower)
            if (needed := math.ceil(margin_units / self.right) + 1) <= width_margin:
                break
            width_margin = needed + needed // 1000

    def millimetres(self, lat: float, lon: float) -> Point:
        """Return the point of the plane for a position in degrees."""
        east = _wrap_longitude(round(lon * 1e7) - self.middle)
        north = round(lat * 1e7) - self.south
        return east * self.right + 2**23 >> 24, north * self.up + 2**23 >> 24

    def doubles(self, lat: float, lon: float) -> tuple[float, float]:
        """Return the same as doubles."""
        x, y = self.millimetres(lat, lon)
        return float(x), float(y)

    def radians(self, x: Fraction, y: Fraction) -> tuple[int, int]:
        """Return latitude and longitude of a point in millimetres."""
        north = y * 2**24 / self.up + self.south
        east = x * 2**24 / self.right + self.middle
        return radians(north / UNITS), radians(east / UNITS)


def _wrap_longitude(longitude: int) -> int:
    """Return a longitude from -180 to 180 degrees."""
    return (longitude + TURN // 2) % TURN - TURN // 2
