"""Meshes are conforming, cover what they should, and keep all places as corners; what cannot be is refused by name."""

import json
import math

import numpy as np
import pytest
import shapely
from attrs import evolve
from hypothesis import given
from hypothesis import strategies as st

from privopt.declare.schema import File
from privopt.errors import InputError, UsageError
from privopt.numbers.distances import haversine
from privopt_metric_dp.region.geojson import mesh_over, polygons_of
from privopt_metric_dp.region.mesh import lattice, plane_of, refine_plane, refined_places, twice_areas
from privopt_metric_dp.space.places import Space, grid_points
from privopt_metric_dp.space.projection import Projection, degrees_in_units


def file_of(document, name="region.geojson"):
    return File(name=name, path=None, kept=json.dumps(document).encode())


def polygon(*rings):
    return {"type": "Polygon", "coordinates": [[*map(list, ring), list(ring[0])] for ring in rings]}


SQUARE = [(0, 0), (2, 0), (2, 2), (0, 2)]
HOLE = [(0.7, 0.7), (1.5, 0.7), (1.5, 1.5), (0.7, 1.5)]
FAR = [(5, 5), (6, 5), (5.5, 6)]


def check_conforming(vertices, triangles):
    """Counter-clockwise; each side belongs to one triangle, or to two that lie on its two sides; nothing overlaps."""
    assert (twice_areas(vertices[triangles]) > 0).all()
    sides = triangles[:, [[0, 1], [1, 2], [2, 0]]].reshape(-1, 2)
    assert len(np.unique(sides, axis=0)) == len(sides)
    areas = shapely.polygons(vertices[triangles].astype(float))
    assert shapely.area(areas).sum() == pytest.approx(shapely.union_all(areas).area, rel=1e-6)
    assert len(np.unique(vertices, axis=0)) == len(vertices)
    assert set(np.unique(triangles).tolist()) == set(range(len(vertices)))


@given(st.integers(0, 10**6), st.floats(0.05, 3.0), st.integers(3, 25))
def test_lattice_covers_the_region(seed, side_km, corners):
    chance = np.random.default_rng(seed)
    angles = np.sort(chance.uniform(0, 2 * np.pi, corners))
    ring = np.column_stack([np.cos(angles), np.sin(angles)]) * chance.uniform(0.3, 1, corners)[:, None] * 3e6
    rings = [np.concatenate([part, part[:1]]) for part in (ring, 0.3 * ring)]
    shape = shapely.Polygon(rings[0], [rings[1]])
    if not shape.is_valid or shape.area < 1e9:
        return
    vertices, triangles = lattice([rings], side_km * 1e6)
    check_conforming(vertices, triangles)
    triangle_shapes = shapely.polygons(vertices[triangles].astype(float))
    assert shape.difference(shapely.union_all(triangle_shapes).buffer(3)).area == 0
    assert shapely.intersects(triangle_shapes, shape.buffer(3)).all()
    lengths = np.linalg.norm(vertices[triangles] - vertices[triangles[:, [1, 2, 0]]], axis=2)
    assert np.abs(lengths - side_km * 1e6).max() <= 2


def test_holes_and_several_parts():
    collection = {
        "type": "FeatureCollection",
        "features": [
            {"type": "Feature", "properties": {}, "geometry": polygon(SQUARE, HOLE)},
            {
                "type": "Feature",
                "properties": {},
                "geometry": {"type": "MultiPolygon", "coordinates": [polygon(FAR)["coordinates"]]},
            },
        ],
    }
    space = mesh_over(file_of(collection), 0.1, planar=True, file="p.toml", key="records.mesh.side_km")
    vertices = np.rint(space.coordinates * 1e6).astype(np.int64)
    check_conforming(vertices, space.triangles)
    covered = shapely.union_all(shapely.polygons(space.coordinates[space.triangles]))
    assert not covered.contains(shapely.Point(1.1, 1.1))
    assert covered.contains(shapely.Polygon(SQUARE, [HOLE]).buffer(-1e-5))
    assert len(shapely.get_parts(covered)) == 2
    assert plane_of(space).size == len(space)
    assert list(space.ids[:2]) == ["0", "1"]


def test_region_on_the_earth_is_projected():
    region = file_of(polygon([(12.4, 41.8), (12.6, 41.8), (12.6, 41.95), (12.4, 41.95)]))
    space = mesh_over(region, 1.0, planar=False, file="p.toml", key="k")
    assert space.kind == "planar"
    earth_points = space.projection.to_earth(np.rint(space.coordinates * 1e6).astype(np.int64))
    assert np.abs(earth_points.mean(axis=0) - [41.875, 12.5]).max() < 0.02
    plane_points = space.projection.to_plane(degrees_in_units(earth_points))
    assert np.abs(plane_points - space.coordinates * 1e6).max() <= 7


@given(st.integers(0, 10**6), st.floats(-75, 75), st.floats(-180, 180), st.floats(0.01, 6))
def test_projected_distances_never_exceed_great_circles(seed, lat, lon, reach):
    chance = np.random.default_rng(seed)
    degrees = np.column_stack([lat + reach * chance.uniform(-1, 1, 12), lon + 2 * reach * chance.uniform(-1, 1, 12)])
    degrees[:, 1] = (degrees[:, 1] + 180) % 360 - 180
    units = degrees_in_units(degrees)
    exact = units / 1e7
    plane = Projection.of(exact, "places").to_plane(units) / 1e6
    i, j = np.triu_indices(12, 1)
    # a millimetre and a half for rounding positions in the plane, and rounding of great circles down
    assert (np.linalg.norm(plane[i] - plane[j], axis=1) <= haversine(exact[i], exact[j]) * (1 + 1e-9) + 1.5e-6).all()


@given(
    st.integers(0, 10**6), st.floats(-84, 84), st.floats(-180, 180), st.floats(1, 300), st.sampled_from([0, 1e-4, 1, 9])
)
def test_no_triangle_of_a_mesh_is_stretched(seed, lat, lon, side_km, tall):
    """Between any two points of the triangles that are kept, also beyond the rim, great circles are the longer."""
    chance = np.random.default_rng(seed)
    corners = np.column_stack([lon + chance.uniform(0, 20, 6), np.clip(lat + tall * chance.uniform(-1, 1, 6), -89, 89)])
    try:
        space = mesh_over(file_of(polygon(corners.tolist())), side_km, planar=False, file="p.toml", key="k")
        vertices = plane_of(space).vertices
    except InputError:  # too near a pole, too wide, too many triangles
        return
    shares = chance.dirichlet([0.3] * 3, (2, len(space.triangles)))  # near corners and sides
    points = np.concatenate([vertices, *np.rint(np.einsum("qsv,svx->qsx", shares, vertices[space.triangles]))])
    points = np.rint(points[chance.choice(len(points), min(len(points), 150), replace=False)]).astype(np.int64)
    earth = space.projection.to_earth(points)
    i, j = np.triu_indices(len(points), 1)
    planar = np.linalg.norm((points[i] - points[j]) / 1e6, axis=1)
    # haversine is rounded down, and the way back to degrees is in doubles
    assert (planar <= haversine(earth[i], earth[j]) * (1 + 1e-9) + 1e-6).all()
    assert space.projection.covers(vertices)


def test_mesh_reaches_north_of_its_polygon():
    """83.9 degrees north with sides of 60 km: most of what is kept lies beyond the ring."""
    ring = [(10, 83.9), (30, 83.9), (30, 83.9001), (10, 83.9001)]
    space = mesh_over(file_of(polygon(ring)), 60, planar=False, file="p.toml", key="k")
    vertices = plane_of(space).vertices
    earth = space.projection.to_earth(vertices)
    assert earth[:, 0].max() > 84.1
    assert np.abs(earth[:, 0]).max() < space.projection.parallel
    i, j = np.triu_indices(len(vertices), 1)
    assert (np.linalg.norm((vertices[i] - vertices[j]) / 1e6, axis=1) <= haversine(earth[i], earth[j]) + 1e-6).all()
    rim = Projection.of(np.array(ring)[:, ::-1], "ring alone")
    assert not rim.covers(vertices)
    with pytest.raises(InputError, match="stretches"):
        plane_of(evolve(space, projection=rim))


def test_refuses_the_poles():
    with pytest.raises(InputError, match="poles"):
        Projection.of(np.array([[86.0, 0.0], [86.0, 40.0]]), "places")


def places(*points):
    return Space(ids=[f"p{n}" for n in range(len(points))], coordinates=points, kind="planar", source="points.csv")


@pytest.mark.parametrize(
    ("points", "keywords"),
    [
        ([(0, 0), (1, 1)], "2 places"),
        ([(0, 0), (1, 1), (2, 2), (3, 3)], "on one line"),
        ([(0, 0), (1, 0), (0, 1), (1e-8, 0)], "of 'p0'"),
        ([(0, 0), (1, 0), (5e6, 1)], "at most 4,000,000 km"),
        ([(0, 0), (1, 0), (5000, 1)], "1,000 km across"),
    ],
)
def test_refuses_places_that_span_no_plane(points, keywords):
    with pytest.raises(InputError, match=keywords):
        plane_of(places(*points))


def test_refuses_grid_of_one_row():
    with pytest.raises(InputError, match="2 rows and 2 columns"):
        plane_of(grid_points(1, 5, 1.0))


@given(st.integers(0, 10**6), st.integers(3, 40))
def test_all_points_stay_corners(seed, count):
    chance = np.random.default_rng(seed)
    points = chance.uniform(0, 10, (count, 2))
    if chance.random() < 0.5:
        points = np.unique(np.round(points, 0), axis=0)  # many on one line, or on one circle
    if np.linalg.matrix_rank(points - points[0]) < 2:
        return
    plane = plane_of(places(*points.tolist()))
    check_conforming(plane.vertices, plane.simplices)
    finer, added = refine_plane(plane, 5e6)
    check_conforming(finer.vertices, finer.simplices)
    assert (finer.vertices[: plane.size] == plane.vertices).all()
    assert len(added) == finer.size - plane.size
    edge_points = finer.vertices[finer.edges]
    assert np.linalg.norm(edge_points[:, 0] - edge_points[:, 1], axis=1).max() <= 5e6


def test_refined_places_have_new_ids():
    grid = grid_points(2, 2, 1.0)
    finer, plane = refined_places(grid, 0.8)
    assert finer.ids[:5] == ("r0c0", "r0c1", "r1c0", "r1c1", "r0c0~r0c1~1")
    assert len(finer) == plane.size == 9
    refined, place_space = refined_places(grid, 2.0)
    assert refined.ids == grid.ids
    assert place_space.size == 4


@pytest.mark.parametrize(
    ("document", "keywords"),
    [
        ({"type": "Point", "coordinates": [0, 0]}, "'Point'"),
        ([1, 2], "no GeoJSON object"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [0, 1]]]}, "3 positions"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 1], [0, 1]]]}, "whose ends differ"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, "x"], [0, 0]]]}, "list of positions"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [1, 0], [1, 91], [0, 0]]]}, "planar = true"),
        ({"type": "FeatureCollection", "features": []}, "no polygon"),
        ({"type": "Polygon", "coordinates": []}, "Polygon: .*no ring"),
        ({"type": "MultiPolygon", "coordinates": [[]]}, "MultiPolygon: .*no ring"),
        ({"type": "Polygon", "coordinates": [[[0, 0], [10**400, 0], [0, 1], [0, 0]]]}, "list of positions"),
        ({"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": None}]}, "features"),
    ],
)
def test_refuses_invalid_regions(document, keywords):
    with pytest.raises(InputError, match=keywords):
        polygons_of(file_of(document))


@pytest.mark.parametrize("side_km", [1e300, 1_001.0, 1e-4])
@pytest.mark.parametrize("planar", [True, False])
def test_refuses_sides_that_make_no_mesh(side_km, planar):
    region = file_of(polygon(SQUARE))
    with pytest.raises(InputError, match=r"records\.mesh\.side_km"):
        mesh_over(region, side_km, planar=planar, file="p.toml", key="records.mesh.side_km")


def test_refuses_too_many_triangles():
    region = file_of(polygon([(0, 0), (900, 0), (900, 900), (0, 900)]))
    with pytest.raises(InputError, match="fewer than 1,000,000"):
        mesh_over(region, 0.01, planar=True, file="p.toml", key="records.mesh.side_km")
    assert math.isclose(len(mesh_over(region, 100.0, planar=True, file="p.toml", key="k")), 120, rel_tol=0.3)


def test_added_places_hold_no_leftovers():
    """Compiled distances once read what coordinates leave out beyond the end of an array."""
    coordinates = np.array([[0.0, 0.0], [1.0, 0.0], [0.4, 0.9]])
    places = Space(ids="abc", coordinates=coordinates, kind="planar", off=1e-17, rests=np.full((3, 2), 1e-18))
    assert refined_places(places, 0.2)[0].rests is None
    with pytest.raises(UsageError, match="rests have shape"):
        evolve(places, ids="abcd", coordinates=np.zeros((4, 2)) + np.arange(4)[:, None])
