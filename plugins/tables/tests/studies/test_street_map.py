"""`init --osm`: streets of OpenStreetMap, connected, with positions, and what was left out counted."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from helpers.data import data_path
from helpers.mentions import assert_mentions
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import coo_array
from scipy.sparse.csgraph import dijkstra

from privopt.declare import load_problem
from privopt.errors import InputError, UsageError
from privopt.run.solve import solve
from privopt.run.task import Options
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


def test_one_way_and_two_way_streets(streets):
    """The way over node 99, which the file lacks, joins nothing."""
    read_map = read_streets(streets, bends=True)
    assert set(read_map.km) == {("1", "2"), ("2", "3"), ("2", "1"), ("3", "2"), ("3", "4")}
    assert read_map.km["1", "2"] == pytest.approx(0.1112, abs=1e-4)
    assert set(read_map.places) == {"1", "2", "3", "4"}
    assert [note.split()[0] for note in read_map.notes] == ["4", "1", "2"]
    assert_mentions(read_map.notes[0], "4 ways", "--walk", "6 nodes", "1 other ways")
    assert_mentions(read_map.notes[1], "1 nodes", "no position")
    assert_mentions(read_map.notes[2], "2 nodes", "largest part")
    walked = read_streets(streets, walk=True, bends=True)
    assert {("4", "3"), ("4", "1"), ("1", "4")} <= set(walked.km)


def test_takes_only_a_part_of_the_map(streets):
    box = read_streets(streets, area=box_area("59.9,24.9,60.0015,25.1"), bends=True)
    assert set(box.places) == {"1", "2"}
    assert any("4 nodes outside" in note for note in box.notes)


def test_contracts_bends():
    """Check that b bends a two-way street, d a one-way street; c ends a one-way street in a two-way one and stays."""
    places = {name: (0.0, float(n)) for n, name in enumerate("abcde")}
    km = {("a", "b"): 1.0, ("b", "a"): 1.0, ("b", "c"): 2.0, ("c", "b"): 2.0, ("c", "d"): 3.0, ("d", "e"): 4.0}
    contracted = _contract_bends(StreetMap(places=places, km=km))
    assert set(contracted.places) == {"a", "c", "e"}
    assert contracted.km == {("a", "c"): 3.0, ("c", "a"): 3.0, ("c", "e"): 7.0}


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


def test_keeps_a_junction_in_any_order_of_ways(tmp_path):
    """Once the crescent is merged with the street beside it, junction 3 has two neighbours left."""
    ways = [([1, 2, 3, 4], ROAD), ([2, 5, 6, 3], ROAD)]
    first, second = (street_map(tmp_path, CRESCENT, order) for order in (ways, ways[::-1]))
    assert set(first.places) == {"1", "2", "3", "4"}
    assert (first.places, first.km) == (second.places, second.km)


def test_keeps_the_middle_of_a_returning_street(tmp_path):
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
    neighbours = {name: set() for name in streets.places}
    for a, b in streets.km:
        neighbours[a].add(b)
        neighbours[b].add(a)
    return neighbours


def path_lengths(streets, names):
    number = {name: n for n, name in enumerate(streets.places)}
    rows, cols = zip(*((number[a], number[b]) for a, b in streets.km), strict=True)
    graph = coo_array((list(streets.km.values()), (rows, cols)), shape=(len(number),) * 2)
    node_numbers = [number[name] for name in names]
    return dijkstra(graph.tocsr(), indices=node_numbers)[:, node_numbers]


@given(street_graphs(), st.booleans())
@settings(max_examples=60)
def test_drops_only_bends(tmp_path_factory, graph, one_way):
    folder = tmp_path_factory.mktemp("maps", numbered=True)
    positions, ways, other_order = graph
    try:
        full_map = street_map(folder, positions, ways, bends=True, one_way=one_way)
    except InputError:  # no way joins two nodes, or none leads back
        return
    short = street_map(folder, positions, ways, one_way=one_way)
    neighbours = neighbours_of(full_map)
    assert {name for name, neighbour_names in neighbours.items() if len(neighbour_names) != 2} <= set(short.places)
    assert short.km.keys() >= {pair for pair in full_map.km if set(pair) <= set(short.places)}
    expected, actual = (path_lengths(streets, short.places) for streets in (full_map, short))
    assert np.allclose(expected, actual, rtol=1e-12)
    if one_way:
        assert np.isfinite(actual).all()
    shuffled = dict(sorted(positions.items(), reverse=True))
    shuffled_map = street_map(folder, shuffled, other_order, one_way=one_way)
    assert (list(shuffled_map.places.items()), list(shuffled_map.km.items())) == (
        list(short.places.items()),
        list(short.km.items()),
    )


def test_one_way_streets_keep_the_connected_part(tmp_path, privopt):
    """Node 4 is the end of a one-way street: nobody gets back from there."""
    positions = {1: (45, 7), 2: (45, 7.01), 3: (45.01, 7.01), 4: (45.01, 7)}
    (tmp_path / "one.osm").write_text(osm_text(positions, [([1, 2, 3, 1], ROAD), ([3, 4], ONE_WAY)]))
    arguments = ["init", "exponential", "--osm", tmp_path / "one.osm", "--bends", "--out", tmp_path / "one.toml"]
    two_way = privopt(*arguments)
    assert "take --one-way" in two_way.stderr
    text = (tmp_path / "one.toml").read_text()
    (tmp_path / "hand.toml").write_text(
        text.replace('kind = "distance"', 'kind = "travel-cost"\nedges = "one-roads.csv"\ndirected = true')
    )
    refusal = privopt("solve", "exponential", tmp_path / "hand.toml", "--out", tmp_path / "hand")
    assert refusal.returncode == 2
    assert_mentions(refusal.stderr, "1 of 4 places", "there and back: 4")
    completed = privopt(*arguments, "--one-way", "--force")
    assert (completed.returncode, "1 nodes without" in completed.stderr) == (0, True)
    result = solve("exponential", tmp_path / "one.toml", tmp_path / "out", Options()).result
    assert result.certificate.holds
    walked = privopt(*arguments, "--one-way", "--walk", "--force")
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
def test_ferries_are_counted_or_taken(tmp_path, tags, walk, is_taken):
    ways = [([1, 2, 3], ROAD), ([2, 4], tags), ([4, 5], ROAD)]
    without = street_map(tmp_path, ISLAND, ways, walk=walk, bends=True)
    assert set(without.places) == {"1", "2", "3"}
    assert any("1 ferry line" in note and "--ferries" in note for note in without.notes) == is_taken
    with_ferries = street_map(tmp_path, ISLAND, ways, walk=walk, bends=True, ferries=True)
    assert set(with_ferries.places) == ({"1", "2", "3", "4", "5"} if is_taken else {"1", "2", "3"})
    assert (("2", "4") in with_ferries.km) == is_taken


@pytest.mark.parametrize("name", ["Helsinki.osm.pbf", "test.osm.pbf"])
def test_real_maps_keep_their_junctions(name):
    file = data_path("osm_small", name)
    for options in ({}, {"walk": True}, {"one_way": True}):
        full_map, short = (read_streets(file, bends=bends, **options) for bends in (True, False))
        assert {node for node, neighbour_names in neighbours_of(full_map).items() if len(neighbour_names) >= 3} <= set(
            short.places
        )
    assert np.isfinite(path_lengths(short, short.places)).all()


def test_command_writes_problem_and_tables(streets, tmp_path, privopt):
    arguments = ["init", "lr-geo", "--osm", streets, "--out", tmp_path / "town.toml", "--bends"]
    completed = privopt(*arguments)
    assert completed.returncode == 0, completed.stderr
    assert_mentions(completed.stderr, "town-points.csv has 4", "town-roads.csv 5")
    assert pl.read_csv(tmp_path / "town-roads.csv").columns == ["from", "to", "km"]
    data = MetricInstance.of(load_problem(MetricProblem, tmp_path / "town.toml", ignore=["lr-geo"])).data
    assert data.records.ids == ("1", "2", "3", "4")
    assert data.records.kind == "geographic"
    completed = privopt(*arguments)
    assert (completed.returncode, "--force" in completed.stderr) == (2, True)
    (tmp_path / "town.toml").unlink()
    completed = privopt(*arguments)
    assert (completed.returncode, "town-points.csv: exists already" in completed.stderr) == (2, True)
    assert not (tmp_path / "town.toml").exists()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("roads.txt", "x", "unknown ending"),
        ("roads.osm", "<osm version='0.6'></osm>", "no streets"),
        ("roads.osm", "nothing", "unreadable"),
        ("gone.osm", None, "file not found"),
    ],
)
def test_wrong_files_are_one_line(tmp_path, privopt, name, text, words):
    if text is not None:
        (tmp_path / name).write_text(text)
    completed = privopt("init", "optimal-lp", "--osm", tmp_path / name, "--out", tmp_path / "p.toml")
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert words in completed.stderr
    assert str(tmp_path / name) in completed.stderr
    assert not list(tmp_path.glob("p*"))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "of the three"),
        (["--osm", "a.osm", "--points", "p.csv"], "of the three"),
        (["--points", "p.csv", "--box", "1,2,3,4"], "go with --osm"),
        (["--points", "p.csv", "--ferries"], "go with --osm"),
        (["--points", "p.csv", "--one-way"], "go with --osm"),
        (["--osm", "a.osm", "--roads", "r.csv"], "brings its own"),
        (["--osm", "a.osm", "--box", "3,2,1,4"], "less than N"),
        (["--osm", "a.osm", "--box", "1,2,3"], "four numbers S,W,N,E"),
        (["--osm", "a.osm", "--box", "nan,2,3,4"], "less than N"),
    ],
)
def test_refuses_contradictory_options(options, words, privopt, tmp_path):
    completed = privopt("init", "optimal-lp", *options, "--out", tmp_path / "p.toml")
    assert (completed.returncode, words in completed.stderr) == (2, True), completed.stderr


def test_boxes_are_closed_and_in_degrees():
    with pytest.raises(UsageError, match="less than E"):
        box_area("1,4,3,2")


@pytest.mark.slow
def test_helsinki(tmp_path, privopt):
    """At least 300 crossings and 5,000 nodes of ways; a problem of them solved and certified."""
    file = data_path("osm_small", "Helsinki.osm.pbf")
    completed = privopt("init", "lr-geo", "--osm", file, "--out", tmp_path / "walk.toml", "--walk", "--bends")
    assert completed.returncode == 0, completed.stderr
    assert pl.read_csv(tmp_path / "walk-points.csv").height >= 5_000
    box = "60.165,24.94,60.175,24.96"
    completed = privopt("init", "exponential", "--osm", file, "--box", box, "--out", tmp_path / "cars.toml")
    assert "nodes outside the" in completed.stderr
    points = pl.read_csv(tmp_path / "cars-points.csv")
    assert points.height >= 50
    assert points["lat"].is_between(60.165, 60.175).all()
    result = solve("exponential", tmp_path / "cars.toml", tmp_path / "out", Options()).result
    assert result.certificate.holds
    assert verify(tmp_path / "out").complaints == ()
