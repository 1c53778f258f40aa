"""`init --osm`: streets of OpenStreetMap, connected, with positions, and what was left out counted."""

from __future__ import annotations

import polars as pl
import pytest
from helpers.data import data_path

from privopt.declare import load_problem
from privopt.errors import UsageError
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_studies.street_map import StreetMap, _without_bends, box_area, read_streets

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
    found = _without_bends(StreetMap(places=places, km=km))
    assert set(found.places) == {"a", "c", "e"}
    assert found.km == {("a", "c"): 3.0, ("c", "a"): 3.0, ("c", "e"): 7.0}


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
