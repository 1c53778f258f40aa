"""The distance that a map proposes: one with enough addresses inside, whatever the length of its streets."""

from __future__ import annotations

import re
import tomllib
from itertools import product

import numpy as np
import pytest

from privopt_tables.studies import draft_problem
from privopt_tables.studies.draft_problem import init_from_map
from privopt_tables.studies.street_map import KM_PER_ADDRESS, StreetMap

SIDE = 12
KM = 0.1
DEGREE = KM / 111.19


def town(addresses_by_place=(), *, km=KM):
    """Return junctions of a grid, with streets both ways, and some addresses at each junction."""
    places = {f"{row}-{column}": (41.0 + row * DEGREE, 12.0 + column * DEGREE / np.cos(np.radians(41.0)))
              for row, column in product(range(SIDE), repeat=2)}  # fmt: skip
    lengths = {}
    for row, column in product(range(SIDE), repeat=2):
        for other_row, other_column in ((row + 1, column), (row, column + 1)):
            if max(other_row, other_column) < SIDE:
                ends = f"{row}-{column}", f"{other_row}-{other_column}"
                lengths |= {ends: km, ends[::-1]: km}
    addresses = [
        (lat + 1e-5, lon - 1e-5)
        for (lat, lon), count in zip(places.values(), addresses_by_place, strict=False)
        for _ in range(count)
    ]
    return StreetMap(places=places, km=lengths, addresses=tuple(addresses))


def proposed(tmp_path, streets):
    """Return the distance of the drafted problem, and its notes."""
    drafted = init_from_map("optimal-lp", streets, tmp_path / "p.toml", force=True)
    epsilon = tomllib.loads((tmp_path / "p.toml").read_text())["privacy"]["epsilon"]
    radius = float(re.search(r"hides anyone within ([0-9.]+) km", " ".join(drafted.notes))[1])
    # Epsilon is rounded down, so that the odds change by a factor of at most 4 at that distance.
    assert np.exp(epsilon * radius) <= 4.0
    assert np.exp(epsilon * radius) > 3.9
    return radius, " ".join(drafted.notes)


def share_hidden(streets, counts, radius, address_count):
    """Return the share of junctions with so many addresses within a distance by road, counted one by one."""
    positions = np.array([tuple(map(int, name.split("-"))) for name in streets.places])
    km = KM * np.abs(positions[:, None] - positions[None]).sum(axis=2)
    return np.mean([counts[row <= radius + 1e-9].sum() >= address_count for row in km])


@pytest.mark.parametrize("per_place", [3, 12])
def test_most_places_have_enough_addresses_within(tmp_path, per_place):
    rng = np.random.default_rng(1)
    counts = rng.integers(0, 2 * per_place, SIDE**2)
    streets = town(counts)
    measured = streets.count_addresses()
    assert measured.is_counted
    np.testing.assert_array_equal(measured.counts, counts)
    address_count = min(draft_problem.HIDING_ADDRESSES, counts.sum() / 4)
    radius, notes = proposed(tmp_path, streets)
    assert "as the map has them" in notes
    assert share_hidden(streets, counts, radius, address_count) >= draft_problem.HIDDEN_SHARE
    # A street less does not do.
    assert share_hidden(streets, counts, radius - 1.01 * KM, address_count) < draft_problem.HIDDEN_SHARE


def test_denser_addresses_need_less_distance(tmp_path):
    sparse, _ = proposed(tmp_path, town([14] * SIDE**2))
    dense, _ = proposed(tmp_path, town([60] * SIDE**2))
    assert dense < sparse


def test_maps_without_house_numbers_have_estimates(tmp_path):
    streets = town()
    measured = streets.count_addresses()
    assert not measured.is_counted
    # All streets together: two directions are one street.
    assert measured.counts.sum() == pytest.approx(sum(streets.km.values()) / 2 / KM_PER_ADDRESS)
    radius, notes = proposed(tmp_path, streets)
    assert "estimated from the length of streets" in notes
    assert radius > 3 * KM
