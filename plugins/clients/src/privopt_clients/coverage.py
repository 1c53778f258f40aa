"""The default distance from a release's records or region beyond which clients reject a position.

Without such a limit, a client would report one of the release's places for any position on Earth, however far away.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.numbers.distances import EARTH_RADIUS_KM
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.declared import Grid
from privopt_metric_dp.region.region import Plane, Streets

__all__ = ["reach_of"]

_ROUNDING_KM: Final = 2e-5
"""The tolerance for rounding in clients, which can move a position in the region by up to 17.2 mm."""
_MIN_REACH_KM: Final = 1.0
"""The smallest reach for points and streets."""


def reach_of(data: MetricData, grid: Grid | None) -> float:
    """Return the default distance, in km, beyond which a client rejects a position.

    The distance is measured from the nearest record, or from the region if the release protects every point in a
    region.

    - For a grid, it is half the diagonal of a cell, so that all cells are covered.
    - For a mesh, it is an upper bound on the distance from any point in a triangle to the nearest corner. If the
      release protects every point, it is only a tolerance for rounding errors.
    - For points and streets, it is the diagonal of the bounding box, but at least 1 km. This is also the distance
      beyond which ``privopt apply`` warns about a position.
    - If no record has a position, it is 0.

    Args:
        data: The records and the region.
        grid: The grid from which the records were made, or None if they were not made from a grid.
    """
    points, is_geographic = data.records.on_map, data.records.kind == "geographic"
    if isinstance(data.region, Streets):
        # For streets, the positions of the network's vertices count. Unknown ones are NaN and are dropped below.
        points, is_geographic = data.region.positions, data.region.geographic
    points = np.zeros((0, 2)) if points is None else points[np.isfinite(points).all(axis=1)]
    if not len(points):
        return 0.0
    if grid is not None:
        return _half_diagonal(float(grid.cell_km), points[:, 0] if is_geographic else np.zeros(1)) + _ROUNDING_KM
    if isinstance(data.region, Plane):
        return _ROUNDING_KM
    flat_points = _flatten(points) if is_geographic else points
    triangles = data.records.triangles
    if triangles is not None and len(triangles):
        return _covering_radius(flat_points, triangles) + _ROUNDING_KM
    return max(_MIN_REACH_KM, float(np.hypot(*np.ptp(flat_points, axis=0))))


def _half_diagonal(cell_km: float, latitudes: Floats) -> float:
    """Return half the diagonal of the widest cell of a grid, in km.

    Args:
        cell_km: The height of each cell in km, and its width at the first latitude.
        latitudes: (N,) The latitude of each cell's centre in degrees, or zeros in a plane.
    """
    cosines = np.cos(np.radians(latitudes))
    return 0.5 * math.hypot(cell_km, cell_km * float(cosines.max() / cosines[0]))


def _flatten(degrees: Floats) -> Floats:
    """Project points onto a plane without bringing any two closer together than they are on the sphere.

    Args:
        degrees: (N, 2) The latitude and longitude of each point in degrees.

    Returns:
        An (N, 2) array of planar coordinates in km. The first coordinate points north and the second east.
    """
    # Longitudes are taken relative to the first point, from -180 to 180 degrees, so that points can lie on both sides
    # of the date line.
    east = (degrees[:, 1] - degrees[0, 1] + 180.0) % 360.0 - 180.0
    widest_cosine = math.cos(math.radians(float(np.abs(degrees[:, 0]).min())))
    flat_points: Floats = np.radians(np.column_stack([degrees[:, 0], east * widest_cosine])) * EARTH_RADIUS_KM
    return flat_points


def _covering_radius(points: Floats, triangles: Ints) -> float:
    """Return an upper bound, in km, on the distance from any point in the triangles to the nearest corner.

    Args:
        points: (N, 2) The planar coordinates in km.
        triangles: (S, 3) The indices of each triangle's corners.
    """
    corners = points[triangles]
    sides = np.linalg.norm(corners - np.roll(corners, 1, axis=1), axis=2)
    # In a triangle with sides of at most s, every point is at most s / sqrt(3) from the nearest corner. The worst case
    # is the centre of an equilateral triangle.
    return float(sides.max()) / math.sqrt(3.0)
