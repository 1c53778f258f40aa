"""Maps for GIS users: true to the release, planar and geographic told apart."""

import json
import math
import shutil

import pytest

from privopt.errors import UsageError
from privopt.interfaces.reporting import Feature, Layer
from privopt.report.map_files import write_layer
from privopt.report.write_report import write_geo
from privopt.run.verify import load_release


def write_map(folder, tmp_path):
    return json.loads(write_geo(folder, tmp_path / "map.geojson").read_text("utf-8"))


@pytest.mark.parametrize("name", ["bd-mdp", "lr-geo"])
def test_map_has_features(name, example, tmp_path):
    flat = write_map(example(name), tmp_path)
    assert flat["type"] == "FeatureCollection"
    assert {feature["geometry"]["type"] for feature in flat["features"]} in ({"Point"}, {"Point", "LineString"})


def test_degrees_are_longitude_first_without_crs(example, tmp_path):
    flat = write_map(example("optimal-lp"), tmp_path)
    longitude, latitude = flat["features"][0]["geometry"]["coordinates"]
    assert (longitude, latitude) == pytest.approx((12.44, 41.86))
    assert "crs" not in flat


def test_kilometres_are_not_taken_for_degrees(example, tmp_path):
    flat = write_map(example("fl-linear"), tmp_path)
    assert flat["crs"]["properties"]["name"].startswith("ENGCRS[")  # null is read as degrees by GDAL
    assert "planar" in flat["coordinates"]


def test_properties_match_the_release(example, tmp_path):
    folder = example("optimal-lp")
    flat = write_map(folder, tmp_path)
    opened_release = load_release(folder)
    problem, result = opened_release.problem, opened_release.result
    facts = [feature["properties"] for feature in flat["features"]]
    assert [fact["id"] for fact in facts] == list(problem.data.records.ids)
    mean = sum(fact["prior"] * fact["expected_loss"] for fact in facts)
    assert mean == pytest.approx(result.objective.value, rel=1e-9)
    assert max(fact["share_of_epsilon"] for fact in facts) <= 1 + 1e-9
    assert sum(fact["released"] for fact in facts) == pytest.approx(1)


def test_numbers_have_no_more_digits_than_mean_something(example, tmp_path):
    """A centimetre of position and ten digits of a property; whole numbers and ids are as they were."""
    folder = example("optimal-lp")
    places = load_release(folder).problem.data.records.coordinates
    features = write_map(folder, tmp_path)["features"]
    for feature, (latitude, longitude) in zip(features, places.tolist(), strict=True):
        assert feature["geometry"]["coordinates"] == [round(longitude, 7), round(latitude, 7)]
        for value in feature["properties"].values():
            assert not isinstance(value, float) or value == float(f"{value:.10g}")


def write_points(tmp_path, coordinates, kind, **properties):
    features = [Feature(path=(place,), properties=properties) for place in coordinates]
    write_layer(Layer(kind=kind, features=features), tmp_path / "l.geojson")
    return json.loads((tmp_path / "l.geojson").read_text())["features"]


def test_planar_coordinates_are_rounded_by_their_extent(tmp_path):
    coordinates = [(1 / 3 * size, 2 / 3 * size) for size in (1, 2, 4)]
    for unit in (1e-12, 1.0, 1e9):
        places = [(x * unit, y * unit) for x, y in coordinates]
        for feature, place in zip(write_points(tmp_path, places, "planar"), places, strict=True):
            written = feature["geometry"]["coordinates"]
            assert written == pytest.approx(place, abs=5e-9 * unit)
            assert all(len(repr(number).partition("e")[0].replace(".", "").strip("0-")) <= 10 for number in written)
    # Places far from the origin keep their distances.
    far = write_points(tmp_path, [(5e6, 4e6), (5e6 + 1 / 3, 4e6)], "planar")
    assert far[1]["geometry"]["coordinates"] == pytest.approx([5e6 + 1 / 3, 4e6], abs=1e-8)
    assert write_points(tmp_path, [(-1e-9, 0.1)], "planar")[0]["geometry"]["coordinates"] == [0.0, 0.1]


def test_properties_keep_their_types(tmp_path):
    facts = {"share": 1 / 3, "whole": 12345678901234.0, "count": 7, "yes": True, "none": None, "id": "0.1234567890123"}
    written = write_points(tmp_path, [(12.0, 41.0)], "geographic", **facts, nan=math.nan, inf=math.inf)[0]["properties"]
    assert written == {**facts, "share": 0.3333333333, "nan": None, "inf": None}


def test_connections_are_lines_to_the_facility(example, tmp_path):
    flat = write_map(example("fl-linear"), tmp_path)
    places = {f["properties"]["id"]: f for f in flat["features"] if f["geometry"]["type"] == "Point"}
    lines = [f for f in flat["features"] if f["geometry"]["type"] == "LineString"]
    assert lines
    for line in lines:
        end_points = [places[line["properties"][name]]["geometry"]["coordinates"] for name in ("id", "facility")]
        assert line["geometry"]["coordinates"] == end_points
    capacities = {name: f["properties"]["capacity"] for name, f in places.items()}
    assert all(capacities[line["properties"]["facility"]] is not None for line in lines)


def test_maps_are_public(example, tmp_path):
    full_folder, published = tmp_path / "whole", tmp_path / "published"
    shutil.copytree(example("fl-linear"), full_folder)
    shutil.copytree(example("fl-linear"), published)
    shutil.rmtree(published / "private")
    texts = [write_geo(folder, tmp_path / f"{folder.name}.geojson").read_text() for folder in (full_folder, published)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("name", ["words", "hierarchical-dp", "photo-censor"])
def test_says_if_there_are_no_places(name, example, tmp_path):
    with pytest.raises(UsageError, match="no coordinates"):
        write_geo(example(name), tmp_path / "map.geojson")
    assert list(tmp_path.iterdir()) == []


def test_names_wrong_ending_and_missing_folder(example, tmp_path):
    with pytest.raises(UsageError, match=r"\.shp"):
        write_geo(example("optimal-lp"), tmp_path / "map.shp")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"--geo .*not a folder"):
        write_geo(example("optimal-lp"), tmp_path / "file" / "map.geojson")
    map_path = write_geo(example("optimal-lp"), tmp_path / "none" / "map.geojson")
    assert list(map_path.parent.iterdir()) == [map_path]
