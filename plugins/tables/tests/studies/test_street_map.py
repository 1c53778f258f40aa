"""`init --osm`: streets of OpenStreetMap, connected, with positions, and what was left out counted."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from helpers.data import data_path
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from privopt.declare import load_problem
from privopt.errors import InputError, UsageError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_tables.studies.street_map import StreetMap, _contract_bends, box_area, read_streets

STREETS = """<osm version="0.6">
 <node id="1" lat="60.0" lon="25.0" version="1"/><node id="2" lat="60.001" lon="25.0" version="1"/>
 <node id="3" lat="60.002" lon="25.0" version="1"/><node id="4" lat="60.002" lon="25.002" version="1"/>
 <node id="5" lat="60.1" lon="25.1" version="1"/><node id="6" lat="60.101" lon="25.1" version="1"/>
 <way id="10" version="1"><nd ref="1"/><nd ref="2"/><nd ref="3"/><tag k="highway" v="residential"/></way>
 <way id="11" version="1"><nd ref="3"/><nd ref="4"/><tag k="highway" v="primary"/><tag k="oneway" v="yes"/></way>
 <way id="12" version="1"><nd ref="4"/><nd ref="1"/><tag k="highway" v="footway"/></way>
 <way id="13" version="1"><nd ref="5"/><nd ref="6"/><tag k="highway" v="service"/><tag k="oneway" v="-1"/></way>
 <way id="14" version="1"><nd ref="1"/><nd ref="4"/><tag k="building" v="yes"/></way>
 <way id="15" version="1"><nd ref="3"/><nd ref="99"/><nd ref="1"/><tag k="highway" v="service"/></way>
</osm>
"""


@pytest.fixture
def streets(tmp_path):
    file = tmp_path / "streets.osm"
    file.write_text(STREETS)
    return file


def test_streets_one_way_and_not(streets):
    """The way over node 99, which the file lacks, joins nothing."""
    found = read_streets(streets, bends=True)
    assert set(found.km) == {("1", "2"), ("2", "3"), ("2", "1"), ("3", "2"), ("3", "4")}
    assert found.km["1", "2"] == pytest.approx(0.1112, abs=1e-4)
    assert set(found.places) == {"1", "2", "3", "4"}
    assert found.notes == (
        "4 ways are streets that cars use, which --walk adds footways to, with 6 nodes; 1 other ways are omitted",
        "1 nodes of them have no position in this file and are omitted",
        "2 nodes that no street joins to the largest part are omitted",
    )
    walked = read_streets(streets, walk=True, bends=True)
    assert {("4", "3"), ("4", "1"), ("1", "4")} <= set(walked.km)


def test_only_a_part_of_the_map(streets):
    box = read_streets(streets, area=box_area("59.9,24.9,60.0015,25.1"), bends=True)
    assert set(box.places) == {"1", "2"}
    assert "4 nodes outside the area asked for are omitted" in box.notes


def test_bends_are_passed_through():
    """Check that b bends a two-way street, d a one-way street; c ends a one-way street in a two-way one and stays."""
    places = {name: (0.0, float(n)) for n, name in enumerate("abcde")}
    km = {("a", "b"): 1.0, ("b", "a"): 1.0, ("b", "c"): 2.0, ("c", "b"): 2.0, ("c", "d"): 3.0, ("d", "e"): 4.0}
    found = _contract_bends(StreetMap(places=places, km=km))
    assert set(found.places) == {"a", "c", "e"}
    assert found.km == {("a", "c"): 3.0, ("c", "a"): 3.0, ("c", "e"): 7.0}


def osm_text(positions, ways):
    """Return an OSM file of nodes by id, and of ways: their nodes and tags."""
    nodes = [f'<node id="{name}" lat="{lat}" lon="{lon}"/>' for name, (lat, lon) in positions.items()]
    lines = []
    for number, (names, tags) in enumerate(ways, 1):
        refs = "".join(f'<nd ref="{name}"/>' for name in names)
        pairs = "".join(f'<tag k="{key}" v="{value}"/>' for key, value in tags.items())
        lines.append(f'<way id="{number}">{refs}{pairs}</way>')
    return "\n".join(['<osm version="0.6">', *nodes, *lines, "</osm>"])


def street_map(folder, positions, ways, **options):
    file = folder / "map.osm"
    file.write_text(osm_text(positions, ways))
    return read_streets(file, **options)


ROAD = {"highway": "residential"}
ONE_WAY = ROAD | {"oneway": "yes"}
CRESCENT = {
    1: (45, 7.000), 2: (45, 7.004), 3: (45, 7.008), 4: (45, 7.012), 5: (45.003, 7.005), 6: (45.003, 7.007),
}  # fmt: skip


def test_keeps_a_junction_whatever_the_order_of_ways(tmp_path):
    """Once the crescent is merged with the street beside it, junction 3 has two neighbours left."""
    ways = [([1, 2, 3, 4], ROAD), ([2, 5, 6, 3], ROAD)]
    first, second = (street_map(tmp_path, CRESCENT, order) for order in (ways, ways[::-1]))
    assert set(first.places) == {"1", "2", "3", "4"}
    assert (first.places, first.km) == (second.places, second.km)


def test_keeps_the_middle_of_a_street_that_returns_to_its_junction(tmp_path):
    loop = street_map(tmp_path, CRESCENT, [([1, 2], ROAD), ([2, 3, 4, 5, 6, 2], ROAD)])
    assert set(loop.places) == {"1", "2", "4"}
    ring = street_map(tmp_path, CRESCENT, [([4, 5, 6, 3, 4], ROAD)])
    assert set(ring.places) == {"3", "5"}


@st.composite
def street_graphs(draw):
    """Draw positions of up to ten nodes, and ways over them in two orders, some of them one-way."""
    count = draw(st.integers(2, 10))
    positions = {
        node: (45 + draw(st.integers(0, 9)) / 1000, 7 + node / 1000)
        for node in draw(st.permutations(range(1, count + 1)))
    }
    lines = st.lists(st.integers(1, count), min_size=2, max_size=6)
    ways = draw(st.lists(st.tuples(lines, st.sampled_from([ROAD, ROAD, ONE_WAY])), min_size=1, max_size=8))
    return positions, ways, draw(st.permutations(ways))


def neighbours_of(streets):
    found = {name: set() for name in streets.places}
    for a, b in streets.km:
        found[a].add(b)
        found[b].add(a)
    return found


def path_lengths(streets, names):
    number = {name: n for n, name in enumerate(streets.places)}
    rows, cols = zip(*((number[a], number[b]) for a, b in streets.km), strict=True)
    graph = coo_array((list(streets.km.values()), (rows, cols)), shape=(len(number),) * 2)
    chosen = [number[name] for name in names]
    return dijkstra(graph.tocsr(), indices=chosen)[:, chosen]


@given(street_graphs(), st.booleans())
@settings(max_examples=60)
def test_drops_only_bends_and_changes_no_distance(tmp_path_factory, graph, one_way):
    folder = tmp_path_factory.mktemp("maps", numbered=True)
    positions, ways, other_order = graph
    try:
        whole = street_map(folder, positions, ways, bends=True, one_way=one_way)
    except InputError:  # no way joins two nodes, or none leads back
        return
    short = street_map(folder, positions, ways, one_way=one_way)
    neighbours = neighbours_of(whole)
    assert {name for name, beside in neighbours.items() if len(beside) != 2} <= set(short.places)
    assert short.km.keys() >= {pair for pair in whole.km if set(pair) <= set(short.places)}
    expected, actual = (path_lengths(streets, short.places) for streets in (whole, short))
    assert np.allclose(expected, actual, rtol=1e-12)
    if one_way:
        assert np.isfinite(actual).all()
    shuffled = dict(sorted(positions.items(), reverse=True))
    again = street_map(folder, shuffled, other_order, one_way=one_way)
    assert (list(again.places.items()), list(again.km.items())) == (list(short.places.items()), list(short.km.items()))


def test_one_way_streets_keep_the_part_with_ways_back_and_are_solved(tmp_path, privopt):
    """Node 4 is the end of a one-way street: nobody gets back from there."""
    positions = {1: (45, 7), 2: (45, 7.01), 3: (45.01, 7.01), 4: (45.01, 7)}
    (tmp_path / "one.osm").write_text(osm_text(positions, [([1, 2, 3, 1], ROAD), ([3, 4], ONE_WAY)]))
    given = ["init", "exponential", "--osm", tmp_path / "one.osm", "--bends", "--out", tmp_path / "one.toml"]
    plain = privopt(*given)
    assert "one-way streets as the loss, take --one-way" in plain.stderr
    text = (tmp_path / "one.toml").read_text()
    (tmp_path / "hand.toml").write_text(
        text.replace('kind = "distance"', 'kind = "travel-cost"\nedges = "one-roads.csv"\ndirected = true')
    )
    refused = privopt("solve", "exponential", tmp_path / "hand.toml", "--out", tmp_path / "hand")
    assert refused.returncode == 2
    assert "1 of 4 places lie outside the largest part with ways there and back: 4" in refused.stderr
    done = privopt(*given, "--one-way", "--force")
    assert (done.returncode, "1 nodes without a way there and back" in done.stderr) == (0, True)
    result = solve("exponential", tmp_path / "one.toml", tmp_path / "out", Options()).result
    assert result.certificate.holds
    walked = privopt(*given, "--one-way", "--walk", "--force")
    assert (walked.returncode, "--walk" in walked.stderr) == (2, True)


FERRY = {"route": "ferry"}
ISLAND = {1: (45, 7), 2: (45, 7.01), 3: (45.01, 7.01), 4: (45, 7.05), 5: (45, 7.06)}


@pytest.mark.parametrize(
    ("tags", "walk", "is_taken"),
    [
        (FERRY, False, True),
        (FERRY, True, True),
        (FERRY | {"motor_vehicle": "no"}, False, False),
        (FERRY | {"motor_vehicle": "no", "motorcar": "yes"}, False, True),
        (FERRY | {"foot": "no"}, True, False),
        ({"route": "bus"}, False, False),
    ],
)
def test_ferries_are_counted_and_taken_if_asked_for(tmp_path, tags, walk, is_taken):
    ways = [([1, 2, 3], ROAD), ([2, 4], tags), ([4, 5], ROAD)]
    without = street_map(tmp_path, ISLAND, ways, walk=walk, bends=True)
    assert set(without.places) == {"1", "2", "3"}
    assert any("omitted too: 1 ferry line, which --ferries takes" in note for note in without.notes) == is_taken
    taken = street_map(tmp_path, ISLAND, ways, walk=walk, bends=True, ferries=True)
    assert set(taken.places) == ({"1", "2", "3", "4", "5"} if is_taken else {"1", "2", "3"})
    assert (("2", "4") in taken.km) == is_taken


@pytest.mark.parametrize("name", ["Helsinki.osm.pbf", "test.osm.pbf"])
def test_real_maps_keep_their_junctions_and_ways_back(name):
    file = data_path("osm_small", name)
    for options in ({}, {"walk": True}, {"one_way": True}):
        whole, short = (read_streets(file, bends=bends, **options) for bends in (True, False))
        assert {place for place, beside in neighbours_of(whole).items() if len(beside) >= 3} <= set(short.places)
    assert np.isfinite(path_lengths(short, short.places)).all()


def test_the_command_writes_a_problem_and_its_tables(streets, tmp_path, privopt):
    given = ["init", "lr-geo", "--osm", streets, "--out", tmp_path / "town.toml", "--bends"]
    done = privopt(*given)
    assert done.returncode == 0, done.stderr
    assert "town-points.csv has 4 places, town-roads.csv 5 roads" in done.stderr
    assert pl.read_csv(tmp_path / "town-roads.csv").columns == ["from", "to", "km"]
    data = MetricInstance.of(load_problem(MetricProblem, tmp_path / "town.toml", ignore=["lr-geo"])).data
    assert data.records.ids == ("1", "2", "3", "4")
    assert data.records.kind == "geographic"
    done = privopt(*given)
    assert (done.returncode, "--force" in done.stderr) == (2, True)
    (tmp_path / "town.toml").unlink()
    done = privopt(*given)
    assert (done.returncode, "town-points.csv: exists already" in done.stderr) == (2, True)
    assert not (tmp_path / "town.toml").exists()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("roads.txt", "x", "unknown ending"),
        ("roads.osm", "<osm version='0.6'></osm>", "no streets"),
        ("roads.osm", "nothing", "unreadable"),
        ("gone.osm", None, "no such file"),
    ],
)
def test_wrong_files_are_one_line(tmp_path, privopt, name, text, words):
    if text is not None:
        (tmp_path / name).write_text(text)
    done = privopt("init", "optimal-lp", "--osm", tmp_path / name, "--out", tmp_path / "p.toml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert words in done.stderr
    assert str(tmp_path / name) in done.stderr
    assert not list(tmp_path.glob("p*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "one of the three"),
        (["--osm", "a.osm", "--points", "p.csv"], "one of the three"),
        (["--points", "p.csv", "--box", "1,2,3,4"], "go with --osm"),
        (["--points", "p.csv", "--ferries"], "go with --osm"),
        (["--points", "p.csv", "--one-way"], "go with --osm"),
        (["--osm", "a.osm", "--roads", "r.csv"], "brings its own"),
        (["--osm", "a.osm", "--box", "3,2,1,4"], "S must be less than N"),
        (["--osm", "a.osm", "--box", "1,2,3"], "four numbers S,W,N,E"),
        (["--osm", "a.osm", "--box", "nan,2,3,4"], "S must be less than N"),
    ],
)
def test_options_that_do_not_go_together(options, words, privopt, tmp_path):
    done = privopt("init", "optimal-lp", *options, "--out", tmp_path / "p.toml")
    assert (done.returncode, words in done.stderr) == (2, True), done.stderr


def test_boxes_are_closed_and_in_degrees():
    with pytest.raises(UsageError, match="W less than E"):
        box_area("1,4,3,2")


@pytest.mark.slow
def test_helsinki(tmp_path, privopt):
    """At least 300 crossings and 5,000 nodes of ways; a problem of them solved and certified."""
    file = data_path("osm_small", "Helsinki.osm.pbf")
    done = privopt("init", "lr-geo", "--osm", file, "--out", tmp_path / "walk.toml", "--walk", "--bends")
    assert done.returncode == 0, done.stderr
    assert pl.read_csv(tmp_path / "walk-points.csv").height >= 5_000
    box = "60.165,24.94,60.175,24.96"
    done = privopt("init", "exponential", "--osm", file, "--box", box, "--out", tmp_path / "cars.toml")
    assert "nodes outside the area asked for are omitted" in done.stderr
    points = pl.read_csv(tmp_path / "cars-points.csv")
    assert points.height >= 50
    assert points["lat"].is_between(60.165, 60.175).all()
    result = solve("exponential", tmp_path / "cars.toml", tmp_path / "out", Options()).result
    assert result.certificate.holds
    assert verify(tmp_path / "out").complaints == ()
