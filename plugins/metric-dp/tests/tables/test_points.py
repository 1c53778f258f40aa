"""Points files of every kind give the same places; names of columns are the file's own, in faults too."""

import json

import geopandas as gpd
import numpy as np
import polars as pl
import pytest
import shapely

from privopt.declare import load_problem
from privopt.errors import InputError
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.space.wkb import check_degrees, geometries_of

REST = '[distance]\nkind = "haversine"\n[privacy]\nepsilon = 1.0\n[utility]\nkind = "distance"\n'
STATES, COUNTIES = ["AL", "AL", "GA"], ["Lee", "Dale", "Lee"]
LAT, LON = [32.6, 31.4, 31.8], [-85.4, -85.6, -84.1]
IDS = ["AL/Lee", "AL/Dale", "GA/Lee"]


def places(folder, records, text=REST):
    (folder / "p.toml").write_text(f"[records]\n{records}\n{text}", "utf-8")
    return MetricInstance.of(load_problem(MetricProblem, folder / "p.toml"), "p.toml").data.records


def frame():
    return pl.DataFrame({"state": STATES, "county": COUNTIES, "latitude": LAT, "lng": LON, "other": [[1], [2], [3]]})


@pytest.fixture
def files(tmp_path):
    """Return the same three places in each format."""
    table = frame()
    table.write_parquet(tmp_path / "c.parquet")
    table.drop("other").write_csv(tmp_path / "c.csv")
    points = gpd.GeoDataFrame({"state": STATES, "county": COUNTIES}, geometry=gpd.points_from_xy(LON, LAT), crs=4326)
    points.to_parquet(tmp_path / "g.parquet")
    points.to_file(tmp_path / "g.geojson", driver="GeoJSON")
    return tmp_path


@pytest.mark.parametrize(
    ("file", "columns"),
    [
        ("c.csv", ', lat = "latitude", lon = "lng"'),
        ("c.parquet", ', lat = "latitude", lon = "lng"'),
        ("g.parquet", ', geometry = "geometry"'),
        ("g.geojson", ""),
    ],
)
def test_every_format_gives_the_same_places(files, file, columns):
    read_places = places(files, f'points = "{file}"\ncolumns = {{ id = ["state", "county"]{columns} }}')
    assert list(read_places.ids) == IDS
    assert np.array_equal(read_places.coordinates, np.column_stack([LAT, LON]))
    assert read_places.kind == "geographic"


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (
            'points = "c.csv"\ncolumns = { id = "county", lat = "latitude", lon = "lng" }',
            "row 4, column county",
        ),
        (
            'points = "c.csv"\ncolumns = { id = "fips" }',
            "no column 'fips'",
        ),
        ('points = "c.csv"\ncolumns = { id = "county" }', "lat,lon or x,y"),
        (
            'points = "c.parquet"\ncolumns = { id = "other", lat = "latitude", lon = "lng" }',
            "column other: expected",
        ),
        ('points = "c.csv"\ncolumns = { id = "county", geometry = "g" }', "not Parquet"),
        (
            'points = "c.parquet"\ncolumns = { id = "county", geometry = "g" }',
            "no column 'g'",
        ),
        ('points = "c.parquet"\ncolumns = { id = "county", geometry = "lng" }', "well-known binary"),
        ('count = 3\ncolumns = { id = "county" }', "columns only"),
        (
            'points = "c.csv"\ncolumns = { label = "county" }',
            "records.columns.label: expected",
        ),
        ('points = "bad.geojson"', "FeatureCollection of points"),
        ('points = "line.geojson"', "column lat: expected"),
        ('points = "bad.parquet"', "bad.parquet: expected"),
    ],
)
def test_faults_name_the_columns_of_the_file(files, records, words):
    (files / "bad.geojson").write_text('{"type": "Feature"}')
    (files / "bad.parquet").write_bytes(b"PAR1 and no more")
    line = {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}
    feature = {"type": "Feature", "id": 7, "properties": {}, "geometry": line}
    (files / "line.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": [feature]}))
    with pytest.raises(InputError) as excinfo:
        places(files, records)
    assert words in str(excinfo.value)


def test_features_without_property_id_use_their_own(tmp_path):
    point = {"type": "Point", "coordinates": [12.4, 41.9, 30.0]}
    features = [{"type": "Feature", "id": n, "properties": {}, "geometry": point} for n in ("a", "b")]
    (tmp_path / "f.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    read_places = places(tmp_path, 'points = "f.geojson"')
    assert (list(read_places.ids), read_places.coordinates.tolist()) == (["a", "b"], [[41.9, 12.4]] * 2)


def test_refuses_geoparquet_in_metres(tmp_path):
    gpd.GeoDataFrame({"id": ["a"]}, geometry=[shapely.Point(1e6, 5e6)], crs=3857).to_parquet(tmp_path / "m.parquet")
    with pytest.raises(InputError, match=r"EPSG:4326.*EPSG:3857"):
        places(tmp_path, 'points = "m.parquet"\ncolumns = { geometry = "geometry" }')


def test_other_tables_may_be_parquet(tmp_path):
    pl.DataFrame({"id": [1, 2], "lat": [41.9, 41.91], "lon": [12.4, 12.4]}).write_parquet(tmp_path / "p.parquet")
    pl.DataFrame({"id": [2, 1], "p": [0.25, 0.75]}).write_parquet(tmp_path / "prior.parquet")
    text = REST + 'prior = "prior.parquet"\n'
    (tmp_path / "p.toml").write_text(f'[records]\npoints = "p.parquet"\n{text}')
    data = MetricInstance.of(load_problem(MetricProblem, tmp_path / "p.toml"), "p.toml").data
    assert (list(data.records.ids), data.prior.tolist()) == (["1", "2"], [0.75, 0.25])


def test_feature_without_id_is_a_fault(tmp_path):
    shape = {"type": "Point", "coordinates": [12.5, 41.9]}
    features = [{"type": "Feature", "properties": {"id": None}, "geometry": shape}]
    (tmp_path / "f.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    with pytest.raises(InputError, match=r"row 2, column id"):
        places(tmp_path, 'points = "f.geojson"')


def test_areas_are_no_points(tmp_path):
    squares = [shapely.Point(12.4, 41.9), shapely.box(12, 41, 13, 42)]
    gpd.GeoDataFrame({"id": ["a", "b"]}, geometry=squares, crs=4326).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"row 3, column geometry: .*centroid"):
        places(tmp_path, 'points = "a.parquet"\ncolumns = { geometry = "geometry" }')


def test_reads_or_refuses_any_metadata():
    text = json.dumps({"columns": {"g": {"crs": {"id": "EPSG:4326"}}}})
    with pytest.raises(InputError, match="unnamed system"):
        check_degrees(text, "g", "t")
    for geo in ("[]", "x", '{"columns": 3}', '{"columns": {"g": {"covering": {"bbox": {"xmin": []}}}}}'):
        with pytest.raises(ValueError, match="not GeoParquet's"):
            geometries_of(geo)
