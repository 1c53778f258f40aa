"""Parse secret positions from strings, and format outputs as reports with ids and coordinates."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.errors import UnknownNameError
from privopt_metric_dp.space.places import Space
from privopt_spherical_laplace.sampler.exact import Digits, GridCells, NearestPoint, Rounding

__all__ = ["coordinates_of", "decimal_text", "ids_of", "is_position", "parse_position"]


def is_position(latitude: float, longitude: float) -> bool:
    """Return whether a latitude is between -90 and 90 and a longitude between -180 and 180, inclusive."""
    return abs(latitude) <= 90.0 and abs(longitude) <= 180.0


def parse_position(text: str) -> tuple[float, float]:
    """Parse a string of the form ``LAT,LON``, and return the latitude and longitude in degrees.

    Raises:
        UnknownNameError: The string is not a position. The message does not quote it, because it may be sensitive.
    """
    try:
        latitude, longitude = map(float, text.split(","))
    except ValueError:
        latitude = longitude = math.nan
    if not is_position(latitude, longitude):
        raise UnknownNameError("position LAT,LON", text, [], is_secret=True)
    return latitude, longitude


def coordinates_of(rounding: Rounding, outputs: Ints, points: Space | None) -> Floats:
    """Return the latitude and longitude of each output in degrees, as an array of shape (n, 2).

    A grid cell is represented by the coordinates of its centre.

    Args:
        rounding: The rule that maps positions to outputs.
        outputs: An array with one output per row. For digits, a row contains the latitude and longitude in units of the
            last digit. For a grid, it contains the row and column of a cell. For points, it contains only the index of
            a point.
        points: The points that can be reported. None for digits and grids.
    """
    match rounding:
        case Digits(digits):
            return np.asarray(outputs / 10.0**digits)
        case GridCells(side):
            n, d = side.numerator, side.denominator
            # Rows are counted from the south pole and columns from longitude -180. A cell's centre is half a side
            # further.
            return np.asarray((2 * outputs + 1) * n / (2.0 * d) - np.array([90.0, 180.0]))
        case _:
            assert points is not None  # the only other rule is NearestPoint, which has points
            assert points.coordinates is not None
            return np.asarray(points.coordinates[outputs[:, 0]])


def ids_of(rounding: Rounding, outputs: Ints, points: Sequence[str]) -> list[str]:
    """Return the ids of outputs.

    The id of an output has the form ``LAT,LON`` for digits and ``ROW-COLUMN`` for a grid. For points, it is the id of
    the point.

    Args:
        rounding: The rule that maps positions to outputs.
        outputs: An array with one output per row. For digits, a row contains the latitude and longitude in units of the
            last digit. For a grid, it contains the row and column of a cell. For points, it contains only the index of
            a point.
        points: The ids of the points that can be reported. Empty for digits and grids.
    """
    match rounding:
        case Digits(digits):
            return [f"{decimal_text(a, digits)},{decimal_text(b, digits)}" for a, b in outputs.tolist()]
        case NearestPoint():
            return [points[number] for number in outputs[:, 0].tolist()]
        case _:
            return [f"{row}-{column}" for row, column in outputs.tolist()]


def decimal_text(value: int, digits: int) -> str:
    """Format ``value / 10**digits`` as a decimal with exactly ``digits`` decimal places.

    >>> decimal_text(-50, 3), decimal_text(12, 0)
    ('-0.050', '12')
    """
    whole, rest = divmod(abs(value), 10**digits)
    text = f"{whole}.{rest:0{digits}d}" if digits else str(whole)
    return f"-{text}" if value < 0 else text
