"""The nearest place by cells, by the tree alone, and by all distances: they agree up to ties."""

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from privopt_tables import nearest_places
from privopt_tables.nearest_places import NearestPlaces, to_tree_points

LAYOUTS = ("town", "cluster and a far place", "line", "globe", "poles", "antimeridian", "one place", "twins", "tiny")


def make_places(rng, layout, kind, count):
    """Return places (N, 2) of a layout that makes the cells of the map hard to choose, in degrees or in km."""
    if layout == "one place":
        count = 1
    places = np.array([41.9, 12.5]) + rng.normal(0, 0.03, (count, 2))
    match layout:
        case "cluster and a far place":
            places[0] += 40.0
        case "line":
            places[:, rng.integers(2)] = 7.0
        case "globe":
            places = rng.uniform([-90, -180], [90, 180], (count, 2))
        case "poles":
            places = np.column_stack(
                [rng.choice([-1, 1], count) * rng.uniform(89, 90, count), rng.uniform(0, 360, count)]
            )
        case "antimeridian":
            places[:, 1] = (places[:, 1] + 167.5 + 180.0) % 360.0 - 180.0
        case "twins":
            places[count // 2 :] = places[: count - count // 2]
        case "tiny":
            places = np.array([41.9, 12.5]) + rng.normal(0, 1e-9, (count, 2))
    return places if kind == "geographic" or layout != "globe" else places * 1e4


@given(
    st.sampled_from(LAYOUTS),
    st.sampled_from(["geographic", "planar"]),
    st.integers(1, 80),
    st.floats(0.0, 3.0),
    st.integers(0, 2**32 - 1),
)
@example("one place", "geographic", 1, 1.0, 0)
@example("poles", "geographic", 50, 1.0, 0)
@example("antimeridian", "geographic", 50, 1.0, 0)
@settings(deadline=None)
def test_cells_find_a_nearest_place(layout, kind, count, spread, seed):
    rng = np.random.default_rng(seed)
    places = make_places(rng, layout, kind, count)
    # Positions at places, between them, at the corners of their box, and beyond it.
    low, high = places.min(axis=0), places.max(axis=0)
    positions = np.concatenate(
        [
            places,
            (places + places[::-1]) / 2,
            np.array([[x, y] for x in (low[0], high[0]) for y in (low[1], high[1])]),
            rng.uniform(low - spread * (high - low + 1e-9), high + spread * (high - low + 1e-9), (200, 2)),
        ]
    )
    if kind == "geographic":
        positions[:, 0] = np.clip(positions[:, 0], -90, 90)
    with patch.object(nearest_places, "MIN_POSITIONS_PER_PLACE", 0):
        distances, nearest = NearestPlaces(coordinates=places, kind=kind).query(positions)
    points, stored = to_tree_points(positions, kind), to_tree_points(places, kind)
    all_distances = np.sqrt(((points[:, None] - stored[None]) ** 2).sum(axis=2))
    rounding = 1e-9 * max(1.0, np.abs(stored).max() / 6371)
    assert distances == pytest.approx(all_distances.min(axis=1), abs=rounding)
    assert all_distances[np.arange(len(points)), nearest] == pytest.approx(all_distances.min(axis=1), abs=rounding)


def test_many_positions_are_compared_within_cells():
    """As many positions as a large table has: the cells are used, most of them list few places, and both ways agree."""
    rng = np.random.default_rng(0)
    places = make_places(rng, "town", "geographic", 500)
    positions = places[rng.integers(500, size=50_000)] + rng.normal(0, 0.001, (50_000, 2))
    finder = NearestPlaces(coordinates=places, kind="geographic")
    distances, nearest = finder.query(positions)
    assert 0 < finder._grid.counts[finder._grid.cells(positions)].mean() < 4
    by_tree = finder._tree.query(to_tree_points(positions, "geographic"))
    assert (by_tree[1] == nearest).all()
    assert distances == pytest.approx(by_tree[0], abs=1e-9)
    # A small part that follows is compared in the same way.
    assert (finder.query(positions[:7])[1] == nearest[:7]).all()


@given(
    st.sampled_from(["geographic", "planar"]),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([1e-3, 1.0, 1e9]),
    st.integers(0, 2**32 - 1),
)
@example("planar", 7, 7, 1.0, 0)
@settings(deadline=None)
def test_equally_near_places_do_not_depend_on_other_positions(kind, height, width, spacing, seed):
    """Between places of a grid many are equally near: cells choose as the tree does, or a report would change."""
    rng = np.random.default_rng(seed)
    spacing = 0.01 if kind == "geographic" else spacing
    places = spacing * rng.permutation([[row, column] for row in range(height) for column in range(width)])
    positions = spacing * rng.integers(-1, 2 * max(height, width) + 1, (300, 2)) / 2
    with patch.object(nearest_places, "MIN_POSITIONS_PER_PLACE", 0):
        finder = NearestPlaces(coordinates=places, kind=kind)
        by_cells = finder.query(positions)
    by_tree = finder._tree.query(to_tree_points(positions, kind))
    assert (by_cells[1] == by_tree[1]).all()
    assert by_cells[0] == pytest.approx(by_tree[0], rel=1e-9, abs=1e-9)
