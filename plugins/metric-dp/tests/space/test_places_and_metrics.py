"""Places, distances and grids."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt.numbers.distances import euclidean, haversine, upper_distances
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.metrics import EuclideanMetric, HaversineMetric, Metric
from privopt_metric_dp.space.places import Space, grid_points

latitudes = st.floats(-90, 90)
longitudes = st.floats(-180, 180)
places = st.lists(st.tuples(latitudes, longitudes), min_size=2, max_size=6)
plane = st.lists(st.tuples(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6)), min_size=2, max_size=6)


def space(points: object, kind: str = "planar") -> Space:
    coordinates = np.asarray(points, dtype=float)
    return Space(ids=[f"p{n}" for n in range(len(coordinates))], coordinates=coordinates, kind=kind)  # type: ignore[arg-type]


def same_doubles(metric: Metric) -> None:
    n, k = metric.size, metric.output_size
    table = metric.table()
    assert table.shape == (n, n)
    assert (table == table.T).all()
    assert (np.diagonal(table) == 0).all()
    i, j = np.triu_indices(n, 1)
    assert (metric.between(i, j) == table[i, j]).all()
    assert (metric.between(j, i) == table[i, j]).all()
    assert all(metric.between(a, b) == table[a, b] for a, b in zip(i[:50], j[:50], strict=True))
    assert (metric.rows([n - 1, 0]) == table[[n - 1, 0]]).all()
    outputs = metric.to_outputs()
    assert outputs.shape == (n, k)
    assert (metric.to_outputs([1]) == outputs[[1]]).all()
    if metric.own_outputs:
        assert (outputs == table).all()


@given(places)
def test_haversine_is_one_double(points: list[tuple[float, float]]) -> None:
    same_doubles(HaversineMetric(space(points, "geographic")))


@given(plane)
def test_euclidean_is_one_double(points: list[tuple[float, float]]) -> None:
    same_doubles(EuclideanMetric(space(points)))


@pytest.mark.parametrize("kind", ["planar", "geographic", "vector"])
def test_blocks_hold_the_same_doubles(kind: str) -> None:
    rng = np.random.default_rng(5)
    width = 7 if kind == "vector" else 2
    scale = 80.0 if kind == "geographic" else 1000.0
    points, outputs = rng.uniform(-scale, scale, (700, width)), rng.uniform(-scale, scale, (300, width))
    metric = HaversineMetric if kind == "geographic" else EuclideanMetric
    same_doubles(metric(space(points, kind)))
    crossed = metric(space(points, kind), space(outputs, kind))
    same_doubles(crossed)
    formula = haversine if kind == "geographic" else euclidean
    assert (crossed.to_outputs() == formula(points[:, None], outputs[None])).all()
    assert crossed.to_outputs()[5, 7] == formula(points[5], outputs[7])


def sphere_distance(start: tuple[float, float], end: tuple[float, float]) -> mpmath.mpf:
    """Return the great-circle distance of the coordinates as they are written, to 50 digits."""
    north = Fraction(start[0]) - Fraction(end[0])
    east = (Fraction(start[1]) - Fraction(end[1])) % 360
    with mpmath.workdps(50):
        turns = (north, min(east, 360 - east), 90 - abs(Fraction(start[0])), 90 - abs(Fraction(end[0])))
        a, b, c, d = (mpmath.mpf(t.numerator) / t.denominator * mpmath.pi / 180 for t in turns)
        h = mpmath.sin(a / 2) ** 2 + mpmath.sin(c) * mpmath.sin(d) * mpmath.sin(b / 2) ** 2
        return 2 * 6371 * mpmath.asin(mpmath.sqrt(min(h, 1)))


def check_never_above(start: tuple[float, float], end: tuple[float, float]) -> None:
    distance = float(haversine(start, end))
    exact = sphere_distance(start, end)
    assert distance <= exact
    assert exact <= float(upper_distances(np.array(distance)))
    assert exact - distance <= 1.3e-14 * exact + 1e-139


@given(latitudes, st.floats(-180, 180), st.floats(-15, 2), st.floats(-1, 1), st.floats(-1, 1))
def test_nearly_opposite_points_lose_no_digits(lat, lon, power, north, east):
    check_never_above(
        (lat, lon), (max(-90.0, min(90.0, -lat + north * 10.0**power)), lon + 180.0 + min(0.0, east) * 10.0**power)
    )


@given(latitudes, st.floats(-180, 360), latitudes, st.floats(-180, 360))
def test_haversine_is_never_above_the_distance(lat_a: float, lon_a: float, lat_b: float, lon_b: float) -> None:
    check_never_above((lat_a, lon_a), (lat_b, lon_b))


close = st.floats(-1e-3, 1e-3)


@given(st.floats(-89.9, 89.9), st.floats(-179, 179), close, close)
def test_near_places_keep_relative_precision(lat: float, lon: float, north: float, east: float) -> None:
    check_never_above((lat, lon), (lat + north, lon + east))


@given(st.floats(0, 1e-3), st.floats(0, 1e-3), longitudes, longitudes)
def test_places_near_a_pole_keep_precision(one: float, two: float, east: float, west: float) -> None:
    check_never_above((90 - one, east), (90 - two, west))
    check_never_above((one - 90, east), (two - 90, west))


@given(latitudes, st.floats(0, 1e-3), st.floats(0, 1e-3))
def test_places_across_date_line_keep_precision(lat: float, a: float, b: float) -> None:
    check_never_above((lat, 180 - a), (lat, b - 180))
    check_never_above((lat, 360 - a), (lat, b))


coordinate = st.floats(-1e6, 1e6) | st.integers(-1000, 1000).map(float) | st.decimals(-9, 9, places=3).map(float)


@given(st.integers(1, 9).flatmap(lambda n: st.tuples(*[st.lists(coordinate, min_size=n, max_size=n)] * 2)))
def test_euclidean_is_the_greatest_double_below(points: tuple[list[float], list[float]]) -> None:
    distance = euclidean(*points)
    square = sum(((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(*points, strict=True)), Fraction(0))
    exact_distance = Fraction(float(distance))
    assert exact_distance**2 <= square <= Fraction(float(upper_distances(distance))) ** 2
    if square > Fraction(1, 10**278):
        assert Fraction(math.nextafter(math.nextafter(float(distance), math.inf), math.inf)) ** 2 > square
    root = math.isqrt(square.numerator)
    if square.denominator == 1 and root**2 == square < 2**53:
        assert exact_distance == root  # exact where a double can be


def test_equal_places_are_at_distance_zero() -> None:
    assert haversine([10, -180], [10, 180]) == 0
    assert haversine([90, 5], [90, 77]) == 0
    assert haversine([-90, 5], [-90, -77]) == 0
    assert haversine([3, 355], [3, -5]) == 0


def test_grid_is_row_major_from_the_south() -> None:
    grid = grid_points(2, 3, 0.5)
    assert grid.ids == ("r0c0", "r0c1", "r0c2", "r1c0", "r1c1", "r1c2")
    assert grid.coordinates is not None
    assert grid.coordinates[4].tolist() == [0.5, 0.5]
    with pytest.raises(ValueError, match="read-only"):
        grid.coordinates[0, 0] = 1.0


def test_geographic_grid_steps_at_its_south_west() -> None:
    points = grid_points(3, 4, 1.0, (41.66, 12.24)).coordinates
    assert points is not None
    degree = 6371.0 * math.pi / 180
    assert points[0].tolist() == [41.66, 12.24]
    assert points[4] == pytest.approx([41.66 + 1 / degree, 12.24], rel=1e-14)
    assert points[1] == pytest.approx([41.66, 12.24 + 1 / (degree * math.cos(math.radians(41.66)))], rel=1e-14)
    assert haversine(points[0], points[1]) == pytest.approx(1.0, rel=1e-8)


@pytest.mark.parametrize(
    ("rows", "cols", "cell", "corner", "keywords"),
    [
        (0, 2, 1.0, None, "records.grid.rows"),
        (2, True, 1.0, None, "records.grid.cols"),
        (2, 2, math.nan, None, "records.grid.cell_km"),
        (2, 2, -1.0, None, "records.grid.cell_km"),
        (2, 2, 1.0, (90.0, 0.0), "records.grid.south_west"),
        (2, 2, 1.0, (0.0, math.nan), "records.grid.south_west"),
        (2, 2, 9000.0, (45.0, 0.0), "pole"),
        (1, 7, 9000.0, (0.0, 0.0), "round the earth"),
    ],
)
def test_refuses_invalid_grids(rows: int, cols: int, cell: float, corner: object, keywords: str) -> None:
    with pytest.raises(InputError, match=keywords):
        grid_points(rows, cols, cell, corner)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("ids", "points", "kind", "keywords"),
    [
        (["a", "a"], [[0, 0], [1, 1]], "planar", "id 'a'"),
        (["a", "b"], [[0, 0], [1, math.nan]], "planar", "id 'b'"),
        (["a", "b"], [[0, 0], [1, math.inf]], "planar", "id 'b'"),
        (["a", "b"], [[0, 0], [91, 0]], "geographic", "id 'b'"),
        (["a", "b"], [[0, 0], [0, -181]], "geographic", "id 'b'"),
        (["a", "b"], [[0, 0]], "planar", "shape"),
        (["a"], [[0, 0, 0]], "planar", "shape"),
        ([], None, "plain", "no records"),
        (["a"], None, "planar", "no coordinates"),
        (["a"], [[0, 0]], "plain", "ids alone"),
    ],
)
def test_refuses_invalid_spaces(ids: list[str], points: object, kind: str, keywords: str) -> None:
    with pytest.raises(InputError, match=keywords):
        Space(ids=ids, coordinates=points, kind=kind, source="points.csv")  # type: ignore[arg-type]


def test_many_faults_are_counted() -> None:
    points = np.full((100, 2), np.nan)
    with pytest.raises(InputError) as excinfo:
        space(points)
    assert len(excinfo.value.faults) == 21
    assert "80 more" in str(excinfo.value)


def test_metrics_refuse_places_of_another_kind() -> None:
    flat, round_ = space([[0, 0], [1, 1]]), space([[0, 0], [1, 1]], "geographic")
    with pytest.raises(InputError, match="for euclidean"):
        EuclideanMetric(round_)
    with pytest.raises(InputError, match="for haversine"):
        HaversineMetric(flat)
    with pytest.raises(InputError, match="3 coordinates"):
        EuclideanMetric(space([[0.0, 0.0]], "vector"), space([[0.0, 0.0, 0.0]], "vector"))


def test_matrix_metric_reads_its_table() -> None:
    rng = np.random.default_rng(1)
    table = rng.uniform(1, 2, (5, 5))
    table = np.triu(table, 1) + np.triu(table, 1).T
    same_doubles(MatrixMetric(table))
    crossed = MatrixMetric(table, rng.uniform(0, 3, (5, 2)))
    same_doubles(crossed)
    assert not crossed.own_outputs


def test_asymmetric_last_bit_rounds_down() -> None:
    table = np.array([[0.0, 1.0], [np.nextafter(1.0, 2), 0.0]])
    assert MatrixMetric(table).between(1, 0) == 1.0


@pytest.mark.parametrize(
    ("table", "keywords"),
    [
        ([[0.0, 1.0], [2.0, 0.0]], "row 0, column 1"),
        ([[0.0, math.nan], [1.0, 0.0]], "row 0, column 1"),
        ([[0.0, -1.0], [-1.0, 0.0]], "row 0, column 1"),
        ([[0.0, math.inf], [math.inf, 0.0]], "row 0, column 1"),
        ([[0.0, 1.0], [1.0, 3.0]], "row 1, column 1"),
        ([[0.0, 1.0]], "shape"),
        ([["a", "b"], ["c", "d"]], "array of"),
    ],
)
def test_refuses_matrices_that_are_no_distances(table: object, keywords: str) -> None:
    with pytest.raises(InputError, match=keywords):
        MatrixMetric(table, source="d.npy")  # type: ignore[arg-type]


@pytest.mark.parametrize("crossed", [[[1.0], [2.0]], [[1.0], [-1.0], [2.0]], [[math.nan], [0.0], [0.0]]])
def test_refuses_output_matrices_of_other_shape(crossed: object) -> None:
    table = np.ones((3, 3)) - np.eye(3)
    with pytest.raises(InputError, match=r"o\.npy"):
        MatrixMetric(table, crossed, output_source="o.npy")  # type: ignore[arg-type]


def test_distances_to_outputs_are_one_shared_table() -> None:
    points = np.random.default_rng(0).normal(size=(150, 5))
    metric = EuclideanMetric(Space(ids=[str(i) for i in range(150)], coordinates=points, kind="vector"))
    i, j = np.triu_indices(150, 1)
    pair_distances = metric.between(i, j)
    table = metric.to_outputs()
    assert metric.to_outputs() is table
    assert not table.flags.writeable
    np.testing.assert_array_equal(table[i, j], pair_distances)
    np.testing.assert_array_equal(table, table.T)
    np.testing.assert_array_equal(metric.to_outputs([3, 149]), table[[3, 149]])
    np.testing.assert_array_equal(metric.between(i, j), pair_distances)
