"""Distances are never above those of the decimals that were written, nor bounds of them below."""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.declare import File
from privopt.declare.exact_text import StatedFraction
from privopt_metric_dp.problem.read_points import read_points
from privopt_metric_dp.space.metrics import EuclideanMetric, HaversineMetric
from privopt_metric_dp.space.places import Space, grid_points
from privopt_metric_dp.space.roads import RoadMetric, read_roads

planar = st.decimals(-1000, 1000, places=7) | st.decimals(-10, 10, places=1) | st.decimals("-1e-6", "1e-6", places=25)


def file(text: str) -> File:
    return File(name="table.csv", path=None, kept=text.encode())


def written(points, names: str):
    text = "id," + names + "\n" + "".join(f"p{i},{a},{b}\n" for i, (a, b) in enumerate(points))
    return read_points(file(text), None, ids_alone=False)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(planar, planar), min_size=2, max_size=5))
def test_planar_points(points) -> None:
    metric = EuclideanMetric(written(points, "x,y"))
    table = metric.table()
    for i, a in enumerate(points):
        for j, b in enumerate(points):
            square = sum(((Fraction(one) - Fraction(two)) ** 2 for one, two in zip(a, b, strict=True)), Fraction(0))
            found = float(table[i, j])
            assert found == float(metric.between(i, j)) == float(table[j, i])
            assert Fraction(found) ** 2 <= square
            assert (Fraction(float(metric.no_less(np.array(found)))) ** 2 >= square) or i == j
            assert math.sqrt(square) - found <= 1e-12


def on_the_sphere(one, two) -> mpmath.mpf:
    with mpmath.workdps(60):
        lat_a, lon_a, lat_b, lon_b = (
            mpmath.mpf(f.numerator) / f.denominator * mpmath.pi / 180 for f in map(Fraction, (*one, *two))
        )
        h = mpmath.sin((lat_a - lat_b) / 2) ** 2
        h += mpmath.cos(lat_a) * mpmath.cos(lat_b) * mpmath.sin((lon_a - lon_b) / 2) ** 2
        return 2 * 6371 * mpmath.asin(mpmath.sqrt(min(h, 1)))


near = st.tuples(st.decimals(41, 42, places=6), st.decimals(12, 13, places=15))


@settings(max_examples=60, deadline=None)
@given(st.lists(near, min_size=2, max_size=4, unique=True))
def test_points_on_the_sphere(points) -> None:
    metric = HaversineMetric(written(points, "lat,lon"))
    table = metric.table()
    for i in range(len(points)):
        for j in range(i):
            exact = on_the_sphere(points[i], points[j])
            assert table[i, j] <= exact <= metric.no_less(table[i, j : j + 1])[0]
            assert exact - table[i, j] <= 1e-10


@pytest.mark.parametrize("cell", ["0.1", "0.3", "0.7", "1", "0.5", "1e-3"])
def test_planar_grids_mean_the_decimal_of_their_cells(cell) -> None:
    side = StatedFraction(cell)
    metric = EuclideanMetric(grid_points(1, 40, side))
    for step in range(1, 40):
        found = Fraction(float(metric.between(0, step)))
        assert found <= side * step <= Fraction(float(metric.no_less(metric.between(0, step))))
        if Fraction(float(side)) == side:
            assert found == side * step  # nothing is taken off where doubles hold all


@pytest.mark.parametrize("corner", [(41.66, 12.24), (0.0, 0.0), (-89.9, 179.0), (67.123456789, -180.0)])
def test_grids_on_the_sphere_are_the_formula_s(corner) -> None:
    side, rows, cols = StatedFraction("0.3"), 3, 4
    metric = HaversineMetric(grid_points(rows, cols, side, corner))
    with mpmath.workdps(60):
        degrees = 180 / (mpmath.pi * 6371)
        lat0, lon0 = (mpmath.mpf(Fraction(c).numerator) / Fraction(c).denominator for c in corner)
        step = mpmath.mpf(side.numerator) / side.denominator * degrees
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
                found = metric.between(i, j)
                assert found <= exact <= metric.no_less(found)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.decimals("0.001", 20, places=4), min_size=1, max_size=8))
def test_roads_are_the_sums_of_their_decimals(lengths) -> None:
    rows = "".join(f"n{i},n{i + 1},{km}\n" for i, km in enumerate(lengths))
    roads = read_roads(file("from,to,km\n" + rows), directed=False)
    metric = RoadMetric(roads, Space(ids=[f"n{i}" for i in range(len(lengths) + 1)], kind="plain"))
    for i in range(len(lengths) + 1):
        for j in range(i + 1, len(lengths) + 1):
            exact = sum(map(Fraction, lengths[i:j]), Fraction(0))
            found = metric.between(i, j)
            assert Fraction(float(found)) <= exact <= Fraction(float(metric.no_less(found)))
            assert float(found) == pytest.approx(float(exact), rel=1e-9)
