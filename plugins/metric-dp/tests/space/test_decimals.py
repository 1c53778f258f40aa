"""Decimals and wide vectors: no distance is above the exact one of what is written."""

from __future__ import annotations

import math
from contextlib import suppress
from decimal import Decimal, localcontext
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from helpers.grids import often
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.declare import File
from privopt.declare.toml_text import StatedFraction
from privopt.errors import InputError
from privopt.numbers.distances import distances_of_block, distances_of_pairs, euclidean, upper_distances
from privopt_metric_dp.problem.read_points import read_points
from privopt_metric_dp.space.metrics import EuclideanMetric, HaversineMetric
from privopt_metric_dp.space.places import Space, grid_points
from privopt_metric_dp.space.road_metric import RoadMetric
from privopt_metric_dp.space.roads import read_roads

planar = st.decimals(-1000, 1000, places=7) | st.decimals(-10, 10, places=1) | st.decimals("-1e-6", "1e-6", places=25)


def file(text: str) -> File:
    return File(name="table.csv", path=None, kept=text.encode())


def read_written_points(points, names: str):
    text = "id," + names + "\n" + "".join(f"p{i},{a},{b}\n" for i, (a, b) in enumerate(points))
    return read_points(file(text), None, ids_alone=False)


@settings(max_examples=25)
@given(st.lists(st.tuples(planar, planar), min_size=2, max_size=5))
def test_planar_points(points) -> None:
    metric = EuclideanMetric(read_written_points(points, "x,y"))
    table = metric.table()
    for i, a in enumerate(points):
        for j, b in enumerate(points):
            square = sum(
                ((Fraction(first) - Fraction(second)) ** 2 for first, second in zip(a, b, strict=True)), Fraction(0)
            )
            distance = float(table[i, j])
            assert distance == float(metric.between(i, j)) == float(table[j, i])
            assert Fraction(distance) ** 2 <= square
            assert (Fraction(float(metric.upper_distances(np.array(distance)))) ** 2 >= square) or i == j
            assert math.sqrt(square) - distance <= 1e-12


def sphere_distance(start, end) -> mpmath.mpf:
    with mpmath.workdps(60):
        lat_a, lon_a, lat_b, lon_b = (
            mpmath.mpf(f.numerator) / f.denominator * mpmath.pi / 180 for f in map(Fraction, (*start, *end))
        )
        h = mpmath.sin((lat_a - lat_b) / 2) ** 2
        h += mpmath.cos(lat_a) * mpmath.cos(lat_b) * mpmath.sin((lon_a - lon_b) / 2) ** 2
        return 2 * 6371 * mpmath.asin(mpmath.sqrt(min(h, 1)))


near_point = st.tuples(st.decimals(41, 42, places=6), st.decimals(12, 13, places=15))


@given(st.lists(near_point, min_size=2, max_size=4, unique=True))
def test_points_on_the_sphere(points) -> None:
    metric = HaversineMetric(read_written_points(points, "lat,lon"))
    table = metric.table()
    for i in range(len(points)):
        for j in range(i):
            exact = sphere_distance(points[i], points[j])
            assert table[i, j] <= exact <= metric.upper_distances(table[i, j : j + 1])[0]
            assert exact - table[i, j] <= 1e-10


@given(
    st.tuples(st.decimals(-1000, 1000, places=9), st.decimals(-1000, 1000, places=9)),
    st.tuples(st.integers(-999, 999), st.integers(1, 999)),
    st.integers(3, 18),
    st.sampled_from([5000, 10**8, 10**14, 10**17, 10**30, 10**149]),
)
def test_planar_places_near_one_another_keep_their_distance(place, offset, places, width) -> None:
    """``verify`` allows a stored distance to be short by 1e-9 of it, however wide the map is, or it is refused."""
    near = tuple(Fraction(x) + Fraction(dx, 10**places) for x, dx in zip(place, offset, strict=True))
    far = (Decimal(width) / 3, place[1])
    points = [(f"{a:f}", f"{b:f}") for a, b in (place, far)]
    with localcontext(prec=60):
        points.insert(1, tuple(f"{Decimal(x.numerator) / x.denominator:f}" for x in near))
    square = sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(points[0], points[1], strict=True))
    space = read_written_points(points, "x,y")
    if square < Fraction(width, 10**21) ** 2 and width > 10**6:
        with suppress(InputError):
            distance = Fraction(float(EuclideanMetric(space).table()[0, 1]))
            assert square * (1 - Fraction(1, 10**9)) ** 2 <= (distance + Fraction(1, 10**24)) ** 2
        return
    distance = Fraction(float(EuclideanMetric(space).table()[0, 1]))
    assert distance**2 <= square
    assert square * (1 - Fraction(1, 10**9)) ** 2 <= (distance + Fraction(1, 10**24)) ** 2


def test_places_that_doubles_cannot_tell_apart_are_refused() -> None:
    space = read_written_points([("0.1", "0"), ("1e30", "0"), ("0.10000001", "0"), ("0.1", "0")], "x,y")
    with pytest.raises(InputError, match=r"expected places at least .* apart, since the map is so wide"):
        EuclideanMetric(space)
    EuclideanMetric(read_written_points([("0.1", "0"), ("1e30", "0"), ("0.1", "0")], "x,y"))  # one place may repeat


@given(
    st.decimals("-90", "90", places=9) | st.sampled_from([Decimal(90), Decimal(-90), Decimal("89.999999999")]),
    st.integers(1, 999),
    st.integers(0, 999),
    st.integers(4, 14),
)
def test_places_near_one_another_keep_their_distance_up_to_the_poles(latitude, north, east, places) -> None:
    with localcontext(prec=40):
        inward = -1 if latitude > 0 else 1
        near = (latitude + inward * Decimal(north).scaleb(-places), Decimal("12.5") + Decimal(east).scaleb(-places))
    points = [(f"{a:f}", f"{b:f}") for a, b in ((latitude, Decimal("12.5")), near, (Decimal(-latitude), Decimal(3)))]
    distance = HaversineMetric(read_written_points(points, "lat,lon")).table()[0, 1]
    assert_is_nearly(distance, sphere_distance(*points[:2]))


def assert_is_nearly(distance, exact) -> None:
    """Assert what ``verify`` and the stand-alone checker demand of a stored distance."""
    assert exact * (1 - mpmath.mpf("1e-9")) - mpmath.mpf("1e-24") <= distance <= exact


@pytest.mark.parametrize("cell", ["0.1", "0.3", "0.7", "1", "0.5", "1e-3"])
def test_planar_grids_mean_the_written_decimal(cell) -> None:
    cell_side = StatedFraction(cell)
    metric = EuclideanMetric(grid_points(1, 40, cell_side))
    for step in range(1, 40):
        distance = Fraction(float(metric.between(0, step)))
        assert distance <= cell_side * step <= Fraction(float(metric.upper_distances(metric.between(0, step))))
        if Fraction(float(cell_side)) == cell_side:
            assert distance == cell_side * step  # nothing is taken off where doubles hold all


@pytest.mark.parametrize(
    "corner", [(41.66, 12.24), (0.0, 0.0), (-89.9, 179.0), (67.123456789, -180.0), (0.0, 180.0), (-89.9999999, 180.0)]
)
@pytest.mark.parametrize("cell", ["1e-9", "1e-6", "0.001", "0.01", "0.3", "10"])
def test_grids_on_the_sphere_match_the_formula(corner, cell) -> None:
    cell_side, rows, cols = StatedFraction(cell), 3, 4
    if corner[0] < -89.99 and cell_side > Fraction("1e-6"):
        with pytest.raises(InputError, match="round the earth"):
            grid_points(rows, cols, cell_side, corner)
        return
    metric = HaversineMetric(grid_points(rows, cols, cell_side, corner))
    with mpmath.workdps(60):
        degrees = 180 / (mpmath.pi * 6371)
        lat0, lon0 = (mpmath.mpf(Fraction(c).numerator) / Fraction(c).denominator for c in corner)
        step = mpmath.mpf(cell_side.numerator) / cell_side.denominator * degrees
        places = [
            (lat0 + r * step, lon0 + c * step / mpmath.cos(lat0 * mpmath.pi / 180))
            for r in range(rows)
            for c in range(cols)
        ]
        for i, (lat_a, lon_a) in enumerate(places):
            for j, (lat_b, lon_b) in enumerate(places[:i]):
                a, b, east = (x * mpmath.pi / 180 for x in (lat_a, lat_b, lon_a - lon_b))
                h = mpmath.sin((a - b) / 2) ** 2 + mpmath.cos(a) * mpmath.cos(b) * mpmath.sin(east / 2) ** 2
                exact = 2 * 6371 * mpmath.asin(mpmath.sqrt(h))
                distance = metric.between(i, j)
                assert distance <= exact <= metric.upper_distances(distance)
                assert_is_nearly(distance, exact)


@given(st.lists(st.decimals("0.001", 20, places=4), min_size=1, max_size=8))
def test_roads_are_the_sums_of_their_decimals(lengths) -> None:
    rows = "".join(f"n{i},n{i + 1},{km}\n" for i, km in enumerate(lengths))
    roads = read_roads(file("from,to,km\n" + rows), directed=False)
    metric = RoadMetric(roads, Space(ids=[f"n{i}" for i in range(len(lengths) + 1)], kind="plain"))
    for i in range(len(lengths) + 1):
        for j in range(i + 1, len(lengths) + 1):
            exact = sum(map(Fraction, lengths[i:j]), Fraction(0))
            distance = metric.between(i, j)
            assert Fraction(float(distance)) <= exact <= Fraction(float(metric.upper_distances(distance)))
            assert float(distance) == pytest.approx(float(exact), rel=1e-9)


def square(points: np.ndarray) -> np.ndarray:
    table = np.empty((len(points), len(points)))
    distances_of_block(points, np.ascontiguousarray(points.T), np.zeros((points.shape[1], 0)), 0, len(points), table)
    return table


@often("dim", [15, 16, 17, 300, 1024, 1025], [15, 16, 17, 300, 1025])
@given(st.integers(0, 2**32 - 1), st.sampled_from([1e-160, 1e-70, 1.0, 1e6, 1e150]), st.sampled_from([0.0, 1e3]))
@settings(max_examples=5)
def test_no_distance_exceeds_the_exact_one(dim, seed, scale, away):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(70, dim)) * scale + away * scale  # far from the origin digits cancel
    points[1] = points[0]
    points[2] = np.nextafter(points[0], np.inf)
    table = square(points)
    assert (table == table.T).all()
    assert (np.diag(table) == 0).all()
    assert table[0, 1] == 0
    i, j = rng.integers(70, size=(2, 5))
    distances = np.empty(5)
    distances_of_pairs(points, points, np.zeros((0, dim)), np.zeros((0, dim)), i, j, distances)
    assert (distances == table[i, j]).all()
    assert (distances == euclidean(points[i], points[j])).all()
    i, j = np.append(i, [0, 2]), np.append(j, [2, 3])
    upper = upper_distances(table[i, j])
    for a, b, low, high in zip(i, j, table[i, j], upper, strict=True):
        exact = sum((Fraction(x) - Fraction(y)) ** 2 for x, y in zip(points[a], points[b], strict=True))
        assert Fraction(float(low)) ** 2 <= exact <= Fraction(float(high)) ** 2


def test_orders_and_blocks_change_nothing():
    points = np.random.default_rng(0).normal(size=(200, 50))
    permutation = np.random.default_rng(1).permutation(200)
    assert (square(points)[np.ix_(permutation, permutation)] == square(points[permutation])).all()
