"""Read regions from GeoJSON (RFC 7946) as polygons, which may have holes and several parts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats
from privopt.declare.schema import File
from privopt.errors import Fault, InputError, reason_of
from privopt.files.archive import expect
from privopt_metric_dp.region.mesh import MOST_ACROSS, MOST_VERTICES, lattice
from privopt_metric_dp.region.region import MM_PER_KM
from privopt_metric_dp.space.places import MAX_COORDINATE, Space, check_places
from privopt_metric_dp.space.projection import Projection, degrees_in_units
from privopt_metric_dp.space.wkb import check_geojson_degrees

__all__ = ["mesh_over", "polygons_of"]

_EXPECTATION = "a Polygon, a MultiPolygon, or Features of them"


LONGEST_RIM: Final = 10 * MOST_VERTICES
"""The largest total length of all boundaries, in units of a triangle's side."""
BYTES_PER_VERTEX: Final = 600.0
"""The number of bytes of memory needed per lattice vertex and its two triangles while triangles are selected."""


def mesh_over(region: File, side_km: float, *, planar: bool, file: str, key: str) -> Space:
    """Cover a region with equilateral triangles and return their vertices as planar places with ids 0, 1, ...

    All triangles that intersect the region are selected, so every point in the region lies in one of them. Holes and
    gaps narrower than about one triangle disappear, so parts separated by a narrow gap become connected.

    Args:
        region: The GeoJSON file, with coordinates in longitude and latitude, or in km if ``planar`` is True.
        side_km: The side length of a triangle in km.
        planar: Whether coordinates are x and y in km.
        file, key: The names of the problem file and of the key that specifies the side length, for error messages.

    Raises:
        InputError: The file does not contain GeoJSON polygons, the region is too large, or the side length is too small
            or too large.
    """
    polygons = polygons_of(region, planar=planar)
    if not 1e-3 <= side_km <= MOST_ACROSS:
        raise InputError([Fault(file, key, f"{side_km:g} km", f"0.001 to {MOST_ACROSS:,} km")])
    projection = None
    if not planar:
        # GeoJSON positions begin with the longitude, but positions for projections begin with the latitude.
        boundary = np.concatenate([ring[:, ::-1] for rings in polygons for ring in rings])
        # A triangle that intersects the region extends beyond it by no more than its side length and a few millimetres
        # of rounding.
        projection = Projection.of(boundary, region.name, side_km * MM_PER_KM + 4)
    # The rings in planar millimetres.
    flat = [[_on_plane(ring, projection) for ring in rings] for rings in polygons]
    extent = np.ptp(np.concatenate([ring for rings in flat for ring in rings]), axis=0) / MM_PER_KM
    if extent.max() > MOST_ACROSS:
        expectation = f"at most {MOST_ACROSS:,} km"
        raise InputError([Fault(region.name, "", f"a region {extent.max():,.0f} km across", expectation)])
    # The product approximates the number of rows times the number of columns of the lattice, with a margin at the
    # edges.
    if (extent / side_km + 4).prod() > MOST_VERTICES:
        actual = f"{side_km:g} km over a region of {extent[0]:.4g} x {extent[1]:.4g} km"
        raise InputError([Fault(file, key, actual, f"a side that makes fewer than {MOST_VERTICES:,} vertices")])
    # The segments of all boundaries as vectors, in units of a triangle's side length.
    segments = np.concatenate([np.diff(ring, axis=0) for rings in flat for ring in rings]) / (side_km * MM_PER_KM)
    if (rim_sides := float(np.hypot(*segments.T).sum())) > LONGEST_RIM:
        raise InputError(
            [Fault(file, key, f"boundaries of {rim_sides:.3g} sides", f"a side that makes at most {LONGEST_RIM:,}")]
        )
    # The triangles between two opposite ends of a polygon have at least this many vertices. If the release has fewer
    # rows, a verifier rejects the file before the lattice is computed.
    check_places(int(max(np.ptp(rings[0], axis=0).max() for rings in flat) / (side_km * MM_PER_KM)), f"{file}: {key}")
    expect(BYTES_PER_VERTEX * (extent / side_km + 4).prod(), f"triangles of {side_km:g} km over {region.name}")
    vertices, triangles = lattice(flat, side_km * MM_PER_KM)
    check_places(len(vertices), f"{file}: {key}")
    return Space(
        ids=map(str, range(len(vertices))),
        coordinates=vertices / MM_PER_KM,
        kind="planar",
        source=region.name,
        triangles=triangles,
        projection=projection,
    )


def _on_plane(ring: Floats, projection: Projection | None) -> Floats:
    """Convert a closed ring of shape (M, 2) to millimetres in the plane.

    Its coordinates are longitudes and latitudes if there is a projection, and x and y in km otherwise.
    """
    if projection is None:
        return ring * MM_PER_KM
    return projection.to_plane(degrees_in_units(ring[:, ::-1])).astype(np.float64)


def polygons_of(region: File, *, planar: bool = False) -> list[list[Floats]]:
    """Return the polygons in a GeoJSON file, each as a list of its outer ring followed by its holes.

    As a side effect, the copy of the file that is published with a release is reduced to the polygons' coordinates.

    Args:
        region: The file.
        planar: Whether coordinates are x and y in km rather than longitude and latitude.

    Returns:
        The rings of each polygon as closed arrays of shape (M, 2), with coordinates as in the file.

    Raises:
        InputError: The file is not GeoJSON, or contains no polygons.
    """
    try:
        document = json.loads(region.contents)
    except (ValueError, RecursionError) as error:
        raise InputError(
            [Fault(region.name, "", f"text that is not JSON ({reason_of(error)})", f"GeoJSON with {_EXPECTATION}")]
        ) from None
    if isinstance(document, Mapping) and not planar:
        check_geojson_degrees(document, region.name)
    polygons = list(_iter_polygons(document, region.name, "", planar))
    if not polygons:
        raise InputError([Fault(region.name, "", "no polygon", _EXPECTATION)])
    # A release publishes the files of its problem. Properties and altitudes are not needed, so they are left out.
    bare = [[ring.tolist() for ring in rings] for rings in polygons]
    region.seen.instead = json.dumps({"type": "MultiPolygon", "coordinates": bare}).encode()
    return polygons


def _iter_polygons(shape: Any, file: str, where: str, planar: bool) -> Iterator[list[Floats]]:
    """Yield the rings of each polygon in a GeoJSON object, including those nested in collections and features.

    Args:
        shape: The parsed JSON value, which should be a GeoJSON object.
        file: The name of the file, for error messages.
        where: The path to the object within the file, for error messages.
        planar: Whether coordinates are in km.

    Raises:
        InputError: The object is not valid GeoJSON, or contains geometries other than polygons.
    """
    kind = shape.get("type") if isinstance(shape, Mapping) else None
    parts = {"FeatureCollection": "features", "GeometryCollection": "geometries"}.get(str(kind))
    if parts is not None and isinstance(shape.get(parts), list):
        for number, part in enumerate(shape[parts]):
            yield from _iter_polygons(part, file, f"{where}{parts}[{number}] ", planar)
    elif kind == "Feature":
        yield from _iter_polygons(shape.get("geometry"), file, f"{where}geometry ", planar)
    elif kind in ("Polygon", "MultiPolygon") and isinstance(shape.get("coordinates"), list):
        for rings in [shape["coordinates"]] if kind == "Polygon" else shape["coordinates"]:
            if not rings:
                raise InputError([Fault(file, f"{where}{kind}", "no ring", "an outer ring, and holes")])
            yield [
                _read_ring(ring, file, f"{where}{kind}", planar)
                for ring in (rings if isinstance(rings, list) else [rings])
            ]
    else:
        raise InputError([Fault(file, where.strip(), repr(kind) if kind else "no GeoJSON object", _EXPECTATION)])


def _read_ring(ring: Any, file: str, where: str, planar: bool) -> Floats:
    """Return a polygon's ring as an array of shape (M, 2) after checking that it is closed and within range.

    Args:
        ring: A list of positions. Only the first two numbers of each position are used.
        file: The name of the file, for error messages.
        where: The path to the polygon within the file, for error messages.
        planar: Whether coordinates are in km.

    Raises:
        InputError: The ring is not a list of positions, is not closed, or contains numbers out of range.
    """
    try:
        points = np.array([position[:2] for position in ring], dtype=np.float64).reshape(-1, 2)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise InputError([Fault(file, where, "a ring that is not a list of positions", "[[x, y], ...]")]) from None
    if len(points) < 4 or (points[0] != points[-1]).any():
        actual = f"a ring of {len(points)} positions" + ("" if len(points) < 4 else " whose ends differ")
        raise InputError([Fault(file, where, actual, "at least four, the last the same as the first")])
    # Longitudes up to 360 degrees are accepted, so that the coordinates of a region across the date line need not jump.
    limit = np.array([MAX_COORDINATE, MAX_COORDINATE] if planar else [360.0, 90.0])
    invalid = np.flatnonzero(~(np.abs(points) <= limit).all(axis=1))
    if invalid.size:
        expectation = "finite km" if planar else "a longitude and a latitude in degrees (km: planar = true)"
        raise InputError([Fault(file, where, str(points[invalid[0]].tolist()), expectation)])
    return points
