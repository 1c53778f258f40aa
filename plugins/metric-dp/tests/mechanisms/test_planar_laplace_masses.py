"""Planar Laplace noise integrated over Voronoi cells."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.grids import by_pairs
from hypothesis import given
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.spatial import Voronoi, cKDTree

from privopt.errors import InputError
from privopt.numbers.distances import haversine
from privopt_metric_dp.solvers.planar_laplace import planar_laplace, project, voronoi_cells
from privopt_metric_dp.space.places import Space, grid_points


def space(points: object, kind: str = "planar") -> Space:
    coordinates = np.asarray(points, dtype=float)
    return Space(ids=[f"p{n}" for n in range(len(coordinates))], coordinates=coordinates, kind=kind)  # type: ignore[arg-type]


def simulate_masses(position: np.ndarray, sites: np.ndarray, epsilon: float, draws: int) -> np.ndarray:
    """Frequencies of the nearest site under simulated noise: radius Gamma(2, 1 / epsilon), any direction."""
    rng = np.random.default_rng(7)
    radius, angle = rng.gamma(2, 1 / epsilon, draws), rng.uniform(0, 2 * math.pi, draws)
    points = position + np.column_stack([radius * np.cos(angle), radius * np.sin(angle)])
    return np.bincount(cKDTree(sites).query(points)[1], minlength=len(sites)) / draws


RNG = np.random.default_rng(11)
LAYOUTS = {
    "one": [[0.3, 0.1]],
    "two": [[0.0, 0.0], [1.0, 0.0]],
    "on a line": [[0, 0], [1, 1], [2, 2], [3.5, 3.5]],
    "square, four cells in a corner": [[0, 0], [1, 0], [0, 1], [1, 1]],
    "scattered": RNG.normal(size=(40, 2)),
    "clustered": np.concatenate([RNG.normal(size=(15, 2)) * 1e-6, RNG.normal(size=(15, 2))]),
}
PLACES = [[0.5, 0.5], [0.5, 0.2], [0.0, 0.0], [-2.0, 3.0], [0.31, -0.7]]


@by_pairs("layout, epsilon", LAYOUTS, [0.2, 3.0])
def test_masses_match_simulated_noise(layout: str, epsilon: float) -> None:
    sites = np.asarray(LAYOUTS[layout], dtype=float)
    z = planar_laplace(space(PLACES), space(sites), epsilon)
    assert z.sum(axis=1) == pytest.approx(1, abs=1e-12)
    assert (z >= 0).all()
    draws = 100_000
    for row, position in zip(z, np.array(PLACES), strict=True):
        frequencies = simulate_masses(position, sites, epsilon, draws)
        error = np.abs(frequencies - row) / np.sqrt((row * (1 - row) + 1e-4) / draws)
        if layout == "two" and position[0] == 0.5:
            assert row == pytest.approx([0.5, 0.5], abs=1e-14)
        assert error.max() < 6


@pytest.mark.filterwarnings("ignore::scipy.integrate.IntegrationWarning")
def test_masses_agree_with_quadrature() -> None:
    grid, epsilon = grid_points(5, 5, 1.0), 1.7
    position = np.array([1.3, 2.2])
    row = planar_laplace(space([position]), grid, epsilon)[0]
    for cell in (6, 11, 12, 13, 17, 18):
        (a, c), cell_side = np.asarray(grid.coordinates)[cell] - 0.5 - position, 1.0

        def split(low: float) -> list[float] | None:
            return [0.0] if low < 0 < low + 1.0 else None

        def strip(u: float, c: float = c, cell_side: float = cell_side) -> float:
            density = lambda v: epsilon**2 / (2 * math.pi) * math.exp(-epsilon * math.hypot(u, v))  # noqa: E731
            return float(quad(density, c, c + cell_side, points=split(c), epsabs=1e-14, epsrel=1e-12)[0])

        mass = quad(strip, a, a + cell_side, points=split(a), epsabs=1e-13, epsrel=1e-11)[0]
        assert row[cell] == pytest.approx(mass, rel=1e-11)


def test_symmetry_and_corner_of_four_cells() -> None:
    grid = grid_points(5, 5, 1.0)
    middle = planar_laplace(grid, grid, 0.8)[12].reshape(5, 5)
    for rotated in (middle.T, middle[::-1], middle[:, ::-1]):
        assert middle == pytest.approx(rotated, rel=1e-12)
    corner = planar_laplace(space([[1.5, 1.5]]), space(np.asarray(grid_points(4, 4, 1.0).coordinates)), 0.8)[0]
    assert corner.reshape(4, 4)[:2, :2] == pytest.approx(corner.reshape(4, 4)[2:, 2:][::-1, ::-1], rel=1e-12)
    assert planar_laplace(space([[0.5, 0.5]]), space([[0, 0], [1, 0], [0, 1], [1, 1]]), 2.0) == pytest.approx(0.25)


def test_far_cells_keep_relative_precision() -> None:
    sites = space([[0.0, 0.0], [100.0, 0.0]])
    mass = planar_laplace(space([[0.0, 0.0]]), sites, 1.0)[0, 1]  # the half plane x > 50
    density = lambda t: (1 + 50 / math.cos(t)) * math.exp(50 - 50 / math.cos(t))  # noqa: E731
    tail = quad(density, -1.5, 1.5, points=[0.0], epsabs=0, epsrel=1e-12)[0] * math.exp(-50) / (2 * math.pi)
    assert mass == pytest.approx(tail, rel=1e-10)


def test_masses_are_private() -> None:
    points = np.random.default_rng(2).uniform(0, 5, (25, 2))
    z = planar_laplace(space(points), space(points), 1.5)
    distances = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    excess = np.abs(np.log(z)[:, None] - np.log(z)[None]).max(axis=2) - 1.5 * distances
    assert excess.max() < 1e-9


def test_outputs_at_one_place_share_their_cell() -> None:
    z = planar_laplace(space([[0.2, 0.1]]), space([[0, 0], [1, 0], [0, 0]]), 1.0)[0]
    single_masses = planar_laplace(space([[0.2, 0.1]]), space([[0, 0], [1, 0]]), 1.0)[0]
    assert z == pytest.approx([single_masses[0] / 2, single_masses[1], single_masses[0] / 2])


def test_outputs_nearly_at_one_place() -> None:
    step = 2.0**-52
    sites = [[0, 0], [1, 1], [1 + step, 1 + step], [1, 1 + 3 * step], [-2, 5]]
    z = planar_laplace(space([[0.5, 0.5], [1, 1]]), space(sites), 0.7)
    assert z.sum(axis=1) == pytest.approx(1)
    merged_masses = planar_laplace(space([[0.5, 0.5], [1, 1]]), space([[0, 0], [1, 1], [-2, 5]]), 0.7)
    assert z[:, [1, 2, 3]].sum(axis=1) == pytest.approx(merged_masses[:, 1], rel=1e-9)


def test_geographic_places_are_projected() -> None:
    grid = grid_points(4, 4, 1.0, (41.66, 12.24))
    flat = grid_points(4, 4, 1.0)
    assert planar_laplace(grid, grid, 0.5) == pytest.approx(planar_laplace(flat, flat, 0.5), rel=2e-3)
    across = grid_points(4, 4, 1.0, (0.0, 179.99))
    assert planar_laplace(across, across, 0.5) == pytest.approx(planar_laplace(flat, flat, 0.5), rel=1e-5)


def test_projection_keeps_distances_near_centre() -> None:
    points = np.array([41.9, 12.5]) + np.random.default_rng(3).uniform(-0.2, 0.2, (30, 2))
    plane = project(points)
    distances = np.sqrt(((plane[:, None] - plane[None]) ** 2).sum(axis=2))
    assert distances == pytest.approx(haversine(points[:, None], points[None]), rel=1e-4)


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=20, unique=True))
def test_cells_cover_their_box_once(points: list[tuple[int, int]]) -> None:
    sites = np.array(points, dtype=float) * 0.1
    corners, start = voronoi_cells(sites, far=50.0)
    total = 0.0
    for k in range(len(sites)):
        cell = corners[start[k] : start[k + 1]]
        ring = np.concatenate([cell, cell[:1]])
        cross = ring[:-1, 0] * ring[1:, 1] - ring[:-1, 1] * ring[1:, 0]
        assert (cross >= -1e-9).all()  # convex, counter-clockwise, around its site
        total += cross.sum() / 2
        gaps = np.sqrt(((cell[:, None] + sites[k] - sites[None]) ** 2).sum(axis=2))
        assert (gaps[:, k] <= gaps.min(axis=1) + 1e-9).all()  # no corner is nearer to another site
    assert total == pytest.approx(100.0**2, rel=0.05)  # boxes are centred on the sites, so nearly


def test_cells_have_the_corners_of_qhull() -> None:
    sites = np.random.default_rng(4).uniform(0, 1, (200, 2))
    corners, start = voronoi_cells(sites, far=100.0)
    diagram = Voronoi(sites)
    for k in range(len(sites)):
        region = diagram.regions[diagram.point_region[k]]
        if -1 in region:
            continue
        mine = corners[start[k] : start[k + 1]] + sites[k]
        qhull_corners = diagram.vertices[region]
        assert len(mine) == len(qhull_corners)
        assert cKDTree(mine).query(qhull_corners)[0].max() < 1e-9


def test_refuses_places_that_are_no_points() -> None:
    vectors = space([[0, 0], [1, 1]], "vector")
    with pytest.raises(InputError, match="in a plane"):
        planar_laplace(vectors, vectors, 1.0)
    with pytest.raises(InputError, match="as the records"):
        planar_laplace(space([[0, 0]]), space([[0, 0]], "geographic"), 1.0)
