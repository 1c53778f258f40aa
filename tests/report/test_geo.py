"""Maps for GIS users: true to the release, planar and geographic told apart."""

import json
import shutil

import pytest

from privopt.errors import UsageError
from privopt.report.write_report import write_geo
from privopt.run.verify import load_release


def drawn(folder, tmp_path):
    return json.loads(write_geo(folder, tmp_path / "map.geojson").read_text("utf-8"))


@pytest.mark.parametrize("name", ["bd-mdp", "lr-geo"])
def test_a_map_has_features(name, example, tmp_path):
    flat = drawn(example(name), tmp_path)
    assert flat["type"] == "FeatureCollection"
    assert {feature["geometry"]["type"] for feature in flat["features"]} in ({"Point"}, {"Point", "LineString"})


def test_degrees_come_longitude_first_and_have_no_crs_of_their_own(example, tmp_path):
    flat = drawn(example("optimal-lp"), tmp_path)
    longitude, latitude = flat["features"][0]["geometry"]["coordinates"]
    assert (longitude, latitude) == pytest.approx((12.44, 41.86))
    assert "crs" not in flat


def test_kilometres_are_not_taken_for_degrees(example, tmp_path):
    flat = drawn(example("fl-linear"), tmp_path)
    assert flat["crs"]["properties"]["name"].startswith("ENGCRS[")  # null is read as degrees by GDAL
    assert "planar" in flat["coordinates"]


def test_properties_are_those_of_the_release(example, tmp_path):
    folder = example("optimal-lp")
    flat = drawn(folder, tmp_path)
    opened = load_release(folder)
    problem, result = opened.problem, opened.result
    facts = [feature["properties"] for feature in flat["features"]]
    assert [fact["id"] for fact in facts] == list(problem.data.records.ids)
    mean = sum(fact["prior"] * fact["expected_loss"] for fact in facts)
    assert mean == pytest.approx(result.objective.value, rel=1e-9)
    assert max(fact["share_of_epsilon"] for fact in facts) <= 1 + 1e-9
    assert sum(fact["released"] for fact in facts) == pytest.approx(1)


def test_connections_are_lines_to_the_facility(example, tmp_path):
    flat = drawn(example("fl-linear"), tmp_path)
    places = {f["properties"]["id"]: f for f in flat["features"] if f["geometry"]["type"] == "Point"}
    lines = [f for f in flat["features"] if f["geometry"]["type"] == "LineString"]
    assert lines
    for line in lines:
        ends = [places[line["properties"][name]]["geometry"]["coordinates"] for name in ("id", "facility")]
        assert line["geometry"]["coordinates"] == ends
    capacities = {name: f["properties"]["capacity"] for name, f in places.items()}
    assert all(capacities[line["properties"]["facility"]] is not None for line in lines)


def test_maps_are_public(example, tmp_path):
    whole, published = tmp_path / "whole", tmp_path / "published"
    shutil.copytree(example("fl-linear"), whole)
    shutil.copytree(example("fl-linear"), published)
    shutil.rmtree(published / "private")
    texts = [write_geo(folder, tmp_path / f"{folder.name}.geojson").read_text() for folder in (whole, published)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["words", "hierarchical-dp", "photo-censor"])
def test_what_has_no_places_is_said_so(name, example, tmp_path):
    with pytest.raises(UsageError, match="no coordinates"):
        write_geo(example(name), tmp_path / "map.geojson")
    assert list(tmp_path.iterdir()) == []


def test_another_ending_and_a_missing_folder_are_named(example, tmp_path):
    with pytest.raises(UsageError, match=r"\.shp"):
        write_geo(example("optimal-lp"), tmp_path / "map.shp")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--geo .*file is not a folder"):
        write_geo(example("optimal-lp"), tmp_path / "file" / "map.geojson")
    made = write_geo(example("optimal-lp"), tmp_path / "none" / "map.geojson")
    assert list(made.parent.iterdir()) == [made]
