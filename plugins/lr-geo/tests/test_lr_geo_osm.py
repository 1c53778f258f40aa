"""Road networks from OpenStreetMap and GraphML."""

from __future__ import annotations

import csv

import pytest

from lr_geo_paper.cities import Settings
from privopt.declare import load_problem
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt.testing.data import data_path
from privopt_lr_geo.osm import Network, largest_part, main, read_network, through, write
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem

STREETS = """<osm version="0.6">
 <node id="1" lat="60.0" lon="25.0" version="1"/><node id="2" lat="60.001" lon="25.0" version="1"/>
 <node id="3" lat="60.002" lon="25.0" version="1"/><node id="4" lat="60.002" lon="25.002" version="1"/>
 <node id="5" lat="60.1" lon="25.1" version="1"/><node id="6" lat="60.101" lon="25.1" version="1"/>
 <way id="10" version="1"><nd ref="1"/><nd ref="2"/><nd ref="3"/><tag k="highway" v="residential"/></way>
 <way id="11" version="1"><nd ref="3"/><nd ref="4"/><tag k="highway" v="primary"/><tag k="oneway" v="yes"/></way>
 <way id="12" version="1"><nd ref="4"/><nd ref="1"/><tag k="highway" v="footway"/></way>
 <way id="13" version="1"><nd ref="5"/><nd ref="6"/><tag k="highway" v="service"/><tag k="oneway" v="-1"/></way>
 <way id="14" version="1"><nd ref="1"/><nd ref="4"/><tag k="building" v="yes"/></way>
</osm>
"""


@pytest.fixture
def streets(tmp_path):
    pytest.importorskip("osmium")
    file = tmp_path / "streets.osm"
    file.write_text(STREETS)
    return file


def pairs(network):
    return {(a, b) for a, b, _ in network.edges}


def test_streets_one_way_and_not(streets):
    found = read_network(streets)
    assert pairs(found) == {("1", "2"), ("2", "3"), ("2", "1"), ("3", "2"), ("3", "4"), ("6", "5")}
    assert {(a, b): km for a, b, km in found.edges}["1", "2"] == pytest.approx(0.1112, abs=1e-4)
    assert set(largest_part(found).places) == {"1", "2", "3", "4"}
    walked = pairs(read_network(streets, walk=True))
    assert {("4", "3"), ("4", "1"), ("1", "4"), ("5", "6")} <= walked


def test_bends_are_passed_through():
    """b bends a two-way street, d a one-way street; c ends a one-way street inside a two-way one and stays."""
    places = {name: (0.0, float(n)) for n, name in enumerate("abcde")}
    edges = [("a", "b", 1.0), ("b", "a", 1.0), ("b", "c", 2.0), ("c", "b", 2.0), ("c", "d", 3.0), ("d", "e", 4.0)]
    found = through(Network(places=places, edges=edges))
    assert set(found.places) == {"a", "c", "e"}
    assert sorted(found.edges) == [("a", "c", 3.0), ("c", "a", 3.0), ("c", "e", 7.0)]


def test_graphml(tmp_path):
    networkx = pytest.importorskip("networkx")
    graph = networkx.MultiDiGraph()
    for n, at in enumerate([(25.0, 60.0), (25.01, 60.0), (25.01, 60.01)]):
        graph.add_node(n, x=at[0], y=at[1])
    graph.add_edge(0, 1, length=600.0)
    graph.add_edge(1, 2)
    networkx.write_graphml(graph, tmp_path / "g.graphml")
    found = read_network(tmp_path / "g.graphml")
    assert found.places["1"] == (60.0, 25.01)
    assert [km for _, _, km in found.edges] == pytest.approx([0.6, 1.1119], abs=1e-3)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("roads.txt", "x", "unknown ending"),
        ("roads.osm", "<osm version='0.6'></osm>", "no roads"),
        ("roads.osm", "nothing", "unreadable"),
        ("roads.graphml", "nothing", "unreadable"),
        ("gone.osm", None, "no such file"),
    ],
)
def test_wrong_files_are_one_line(tmp_path, capsys, name, text, words):
    pytest.importorskip("osmium")
    if text is not None:
        (tmp_path / name).write_text(text)
    assert main([str(tmp_path / name), str(tmp_path / "out")]) == 2
    said = capsys.readouterr().err.strip()
    assert words in said
    assert len(said.splitlines()) == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_helsinki(tmp_path, capsys):
    """At least 500 places joined by ways; a few users solved and certified."""
    pytest.importorskip("osmium")
    file = data_path("osm_small", "Helsinki.osm.pbf")
    assert main([str(file), str(tmp_path), "--walk"]) == 0
    assert "places" in capsys.readouterr().out
    with (tmp_path / "points.csv").open() as stream:
        assert sum(1 for _ in csv.DictReader(stream)) >= 500
    assert main([str(file), str(tmp_path)]) == 0
    settings = Settings(
        epsilon="10.0",
        within=0.15,
        users="{ random = 2 }",
        radius=0.1,
        exponential_beyond=0.06,
        obfuscation_radius=0.2,
    )
    path = write(largest_part(read_network(file)), tmp_path / "cars", settings.tables())
    assert len(LRGeoInstance.of(load_problem(LRGeoProblem, path, ignore=["const-opt"])).data.records) >= 500
    result = solve("lr-geo", path, tmp_path / "out", Options(method="benders")).result
    assert result.certificate.holds
    assert verify(tmp_path / "out").complaints == ()
