"""Roads in several parts: the message names the places, and what it advises works. Records at one place are told."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.mentions import assert_mentions
from hypothesis import given
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_metric_dp.space.road_parts import describe_parts
from privopt_metric_dp.space.roads import Roads

POINTS = "id,lat,lon\na,45,7\nb,45,7.05\nc,45.02,7.02\ni,45,7.1\nj,45.01,7.1\n"
ROADS = "from,to,km\na,b,4\nb,c,4\ni,j,1.2\n"


@pytest.fixture
def islands(tmp_path):
    """Return a function that solves a problem of three places on land, two on an island."""
    (tmp_path / "p.csv").write_text(POINTS)
    (tmp_path / "r.csv").write_text(ROADS)

    def solve_islands(privacy="", utility='kind = "distance"'):
        (tmp_path / "p.toml").write_text(
            '[records]\npoints = "p.csv"\n[distance]\nkind = "graph"\nedges = "r.csv"\n'
            f"[privacy]\nepsilon = 0.5\n{privacy}\n[utility]\n{utility}\n"
        )
        return solve("exponential", tmp_path / "p.toml", tmp_path / "out", Options(force=True))

    solve_islands.folder = tmp_path
    return solve_islands


@pytest.mark.parametrize("privacy", ["", "neighbours_within = 5"])
@pytest.mark.parametrize("utility", ['kind = "distance"', 'kind = "travel-cost"'])
def test_message_names_places_and_a_valid_remedy(islands, privacy, utility):
    with pytest.raises(InputError) as excinfo:
        islands(privacy, utility)
    words = str(excinfo.value)
    assert_mentions(words, "2 of 5 places", "i, j")
    assert "road or ferry" in words
    assert "each part" in words
    (islands.folder / "r.csv").write_text(ROADS + "b,i,4.5\n")
    assert verify(islands(privacy, utility).folder).complaints == ()


def test_each_part_can_be_a_problem(islands):
    (islands.folder / "p.csv").write_text("".join(POINTS.splitlines(keepends=True)[:4]))
    assert verify(islands().folder).complaints == ()


def test_loss_from_a_table_works_for_islands(islands):
    np.save(islands.folder / "c.npy", 5.0 * (1.0 - np.eye(5)))
    release = islands("neighbours_within = 5", 'kind = "matrix"\ncost = "c.npy"')
    assert verify(release.folder).complaints == ()


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), min_size=1, max_size=9), st.booleans())
def test_names_the_unconnected_places(pairs, directed):
    roads = Roads([str(a) for a, _ in pairs], [str(b) for _, b in pairs], [1.0] * len(pairs), directed=directed)
    travel = roads.travel(roads.nodes, roads.nodes)
    reach = np.isfinite(travel) & np.isfinite(travel.T)
    text = describe_parts(roads, roads.nodes)
    outside_count = int(text.split()[0])
    assert outside_count == len(roads) - reach.sum(axis=1).max()
    if 0 < outside_count <= 5:
        is_connected = np.array([name not in text.rpartition(": ")[2].split(", ") for name in roads.nodes])
        assert reach[np.ix_(is_connected, is_connected)].all()
        assert not reach[np.ix_(is_connected, ~is_connected)].any()


def test_coincident_records_are_mentioned(tmp_path):
    (tmp_path / "p.csv").write_text("id,lat,lon\nh1,45,7\nh2,45,7\nh3,45,7\ns,45,7.01\nt,45.004,7.02\n")
    (tmp_path / "p.toml").write_text(
        '[records]\npoints = "p.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 2.0\n'
        '[utility]\nkind = "distance"\n'
    )
    meaning = " ".join(solve("exponential", tmp_path / "p.toml", tmp_path / "out", Options()).meaning)
    assert "3 of 5 places" in meaning
    assert "lie apart, h1" in meaning
