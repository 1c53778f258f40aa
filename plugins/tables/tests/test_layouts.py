"""Tables in the layouts in which people have them go through init, solve, apply and report."""

import json

import polars as pl
import pytest
from helpers.charging import run_command
from helpers.mentions import assert_mentions
from hypothesis import given
from hypothesis import strategies as st

from privopt.declare.frames import table_of
from privopt.declare.name_forms import normal_form
from privopt.declare.schema import File
from privopt.errors import InputError
from privopt_metric_dp.problem.read_points import Columns, read_points
from privopt_tables.foreign_tables import find_position_column, read_foreign_table
from privopt_tables.position_texts import read_position
from privopt_tables.studies.draft_columns import ColumnChoice, convert_table

PLACES = [(45.0 + 0.013 * (n % 4), 7.0 + 0.017 * (n // 4)) for n in range(12)]
"""Latitudes and longitudes."""


def csv_of(header, row):
    return "\n".join([header, *(row(n, lat, lon) for n, (lat, lon) in enumerate(PLACES))]) + "\n"


def geojson_of(crs=None):
    features = [
        {"type": "Feature", "properties": {"id": f"s{n}"}, "geometry": {"type": "Point", "coordinates": [lon, lat]}}
        for n, (lat, lon) in enumerate(PLACES)
    ]
    crs_part = {} if crs is None else {"crs": {"type": "name", "properties": {"name": crs}}}
    return json.dumps({"type": "FeatureCollection", **crs_part, "features": features})


GPX = (
    '<?xml version="1.0"?><gpx xmlns="http://www.topografix.com/GPX/1/1">'
    + "".join(f'<wpt lat="{lat}" lon="{lon}"><name>s{n}</name></wpt>' for n, (lat, lon) in enumerate(PLACES))
    + "</gpx>"
)
GAZETTEER = csv_of(
    "USPS\tGEOID\tINTPTLAT\tINTPTLONG" + " " * 30, lambda n, lat, lon: f"AL\t010{n:02d}\t{lat}\t {lon}" + " " * 20
)
TRACK = csv_of("TRIP_ID,CALL_TYPE,POLYLINE", lambda n, lat, lon: f'{n},B,"[[{lon},{lat}],[{lon + 0.01},{lat}]]"')

TIMELINES = {
    "android": {
        "semanticSegments": [
            {
                "startTime": "2026-05-01T09:00:00.000+02:00",
                "timelinePath": [
                    {"point": f"{lat}°, {lon}°", "time": f"2026-05-01T09:{n:02d}:00.000+02:00"}
                    for n, (lat, lon) in enumerate(PLACES[:9])
                ],
            },
            {
                "startTime": "2026-05-01T10:00:00.000+02:00",
                "visit": {"topCandidate": {"placeLocation": {"latLng": f"{PLACES[9][0]}°, {PLACES[9][1]}°"}}},
            },
            {
                "startTime": "2026-05-01T11:00:00.000+02:00",
                "activity": {
                    name: {"latLng": f"{lat}°, {lon}°"}
                    for name, (lat, lon) in zip(("start", "end"), PLACES[10:], strict=True)
                },
            },
        ]
    },
    "ios": [
        {"startTime": "2026-05-01T09:00:00Z", "visit": {"topCandidate": {"placeLocation": f"geo:{lat},{lon}"}}}
        for lat, lon in PLACES[:10]
    ]
    + [
        {
            "startTime": "2026-05-01T11:00:00Z",
            "activity": {
                name: f"geo:{lat},{lon}" for name, (lat, lon) in zip(("start", "end"), PLACES[10:], strict=True)
            },
        }
    ],
    "records": {
        "locations": [
            {"latitudeE7": round(lat * 1e7), "longitudeE7": round(lon * 1e7), "timestamp": f"2026-05-01T09:{n:02d}:00Z"}
            for n, (lat, lon) in enumerate(PLACES)
        ]
    },
}

LAYOUTS = {
    "citi-bike-old": (
        "t.csv",
        csv_of(
            "bikeid,start station id,start station latitude,start station longitude,usertype",
            lambda n, lat, lon: f"{n % 5},{n},{lat},{lon},x",
        ),
        ["--lat", "start station latitude", "--lon", "start station longitude"],
    ),
    "citi-bike-new": (
        "t.csv",
        csv_of("ride_id,start_lat,start_lng,member_casual", lambda n, lat, lon: f"R{n},{lat},{lon},member"),
        ["--lat", "start_lat", "--lon", "start_lng"],
    ),
    "darwin-core": (
        "t.csv",
        csv_of("occurrenceID,decimalLatitude,decimalLongitude", lambda n, lat, lon: f"o{n},{lat},{lon}"),
        ["--lat", "decimalLatitude", "--lon", "decimalLongitude"],
    ),
    "gazetteer": ("t.txt", GAZETTEER, ["--lat", "INTPTLAT", "--lon", "INTPTLONG"]),
    "opendatasoft": (
        "t.csv",
        csv_of("station_id,geo_point_2d,capacity", lambda n, lat, lon: f's{n},"{lat}, {lon}",{n}'),
        ["--geometry", "geo_point_2d"],
    ),
    "timeline-geo": (
        "t.csv",
        csv_of("id,point,activity", lambda n, lat, lon: f'v{n},"geo:{lat},{lon}",walk'),
        ["--geometry", "point"],
    ),
    "timeline-degrees": (
        "t.csv",
        csv_of("id,point,activity", lambda n, lat, lon: f'v{n},"{lat}°, {lon}°",walk'),
        ["--geometry", "point"],
    ),
    "porto": ("t.csv", TRACK, ["--geometry", "POLYLINE"]),
    "geojson": ("t.geojson", geojson_of("urn:ogc:def:crs:OGC:1.3:CRS84"), ["--lat", "lat", "--lon", "lon"]),
    "gpx": ("t.gpx", GPX, ["--lat", "lat", "--lon", "lon"]),
}


LAYOUTS |= {
    f"timeline-{name}": ("t.json", json.dumps(document), ["--lat", "lat", "--lon", "lon"])
    for name, document in TIMELINES.items()
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_layout_works_from_init_to_report(layout, tmp_path):
    name, contents, columns = LAYOUTS[layout]
    table = tmp_path / name
    table.write_text(contents)
    problem, output_folder, safe = tmp_path / "p.toml", tmp_path / "out", tmp_path / "safe.csv"
    for command in (
        ("init", "exponential", "--points", table, "--within", "3", "--out", problem),
        ("solve", "exponential", problem, "--out", output_folder, "--quiet"),
        ("apply", output_folder, table, *columns, "--out", safe, "--quiet"),
        ("report", output_folder),
    ):
        code, _, err = run_command(*command)
        assert code == 0, err
    rows = pl.read_csv(safe, infer_schema=False)
    assert rows.height == len(PLACES)
    assert rows["report"].null_count() == 0
    assert not {*columns} & {*rows.columns}


def test_init_uses_named_columns(tmp_path):
    table, problem = tmp_path / "t.csv", tmp_path / "p.toml"
    table.write_text(csv_of("spot,breite,laenge", lambda n, lat, lon: f"s{n},{lat},{lon}"))
    init = ["init", "exponential", "--points", table, "--lon", "laenge"]
    code, _, err = run_command(*init, "--lat", "breite", "--id", "spot", "--out", problem)
    assert code == 0, err
    assert '"breite"' in problem.read_text()
    code, _, err = run_command(*init, "--lat", "nord", "--out", tmp_path / "q.toml")
    assert code == 2
    assert "column nord" in err


@pytest.mark.parametrize(
    ("contents", "expectation"),
    [
        ("id\tlat\tlon\tn\n1\t45.1\t7.5\ta\n\n2\t7.5\tb\n", r"row 4: expected 4 fields .* got 3 fields"),
        ("id\tlat\tlon\n1\t45.1\t7.5\t\n", r"row 2: expected 3 fields .* got 4 fields"),
        ("id\tlat\tlat\tlon\n1\t45.1\t45.2\t7.5\n", r"header: expected columns that differ in name, got twice lat"),
        ("anna7\t45.1\t45.1\n", r"got twice a first row that looks like data"),
        ("id\tlat\r1\t45.1\r", r"expected lines that end in .n or .r.n, got lines that end in .r"),
    ],
)
def test_tab_separated_rows_have_the_fields_of_the_header(contents, expectation, tmp_path):
    """A field that is missing would move later ones into other columns, and a position with them."""
    (tmp_path / "t.tsv").write_text(contents)
    with pytest.raises(InputError, match=expectation):
        read_foreign_table(tmp_path / "t.tsv")


def test_tab_separated_lines_of_separators_below_a_table_are_no_rows(tmp_path):
    (tmp_path / "t.tsv").write_text("id\tlat\n1\t45.1\n\t\n2\t45.2\n\t\n \t \r\n  \n")
    assert read_foreign_table(tmp_path / "t.tsv").rows() == [("1", "45.1"), (None, None), ("2", "45.2")]


@given(
    st.lists(st.lists(st.text("ab5. \"',;\x85\u2028é"), min_size=3, max_size=3), max_size=5),
    st.lists(st.integers(0, 2), min_size=6, max_size=6),
    st.sampled_from(["\n", "\r\n"]),
)
def test_tab_separated_cells_are_read_as_written(tmp_path_factory, rows, blank_counts, end):
    table = [["lat", "lon", "n"], *rows]
    lines = ["\t".join(row) + end + end * blank for row, blank in zip(table, blank_counts, strict=False)]
    path = tmp_path_factory.getbasetemp() / "t.tsv"
    path.write_bytes("".join(lines).encode())
    frame = read_foreign_table(path)
    assert frame.columns == table[0]
    cells = [[normal_form(cell).strip() or None for cell in row] for row in rows]
    # Rows of ASCII blanks below the table are none.
    while cells and not "".join(rows[len(cells) - 1]).strip(" "):
        cells.pop()
    assert [[cell and normal_form(cell) for cell in row] for row in frame.rows()] == cells


@pytest.mark.parametrize("crs", ["EPSG:25832", "urn:ogc:def:crs:EPSG::3857", "x"])
def test_refuses_geojson_in_other_systems(crs, tmp_path):
    (tmp_path / "p.geojson").write_text(geojson_of(crs))
    with pytest.raises(InputError, match="crs"):
        convert_table(tmp_path / "p.geojson", ColumnChoice())
    with pytest.raises(InputError, match="crs"):
        read_points(File(name="p.geojson", path=None, kept=geojson_of(crs).encode()), Columns(), ids_alone=False)


@pytest.mark.parametrize("command", ["init", "apply", "solve"])
def test_messages_never_show_the_first_row(command, tmp_path, town):
    table = tmp_path / "t.csv"
    table.write_text("anna7,45.1234,7.5678\nbert8,45.2,7.6\n")
    text = '[records]\npoints = "t.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 1\n'
    (tmp_path / "p.toml").write_text(text + '[utility]\nkind = "distance"\n')
    options = {
        "init": ("init", "exponential", "--points", table, "--out", tmp_path / "q.toml"),
        "apply": ("apply", town, table, "--x", "x", "--y", "y", "--out", tmp_path / "o.csv"),
        "solve": ("solve", "exponential", tmp_path / "p.toml", "--out", tmp_path / "o"),
    }
    code, _, err = run_command(*options[command])
    assert code == 2
    assert "header" in err
    assert "anna7" not in err
    assert "45.1234" not in err


LATITUDES = st.integers(-9_000_000, 9_000_000).map(lambda units: units / 1e5)
LONGITUDES = st.integers(-18_000_000, 18_000_000).map(lambda units: units / 1e5)
FORMS = [
    "{lat:.5f}, {lon:.5f}",
    "{lat:.5f},{lon:.5f}",
    "({lat:.5f}, {lon:.5f})",
    "{lat:.5f}°, {lon:.5f}°",
    "geo:{lat:.5f},{lon:.5f}",
    "geo:{lat:.5f},{lon:.5f},12;u=35",
    "POINT ({lon:.5f} {lat:.5f})",
    "SRID=4326;POINT({lon:.5f} {lat:.5f})",
    "[[{lon:.5f}, {lat:.5f}], [0, 0]]",
    '{{"type": "Point", "coordinates": [{lon:.5f}, {lat:.5f}]}}',
    '{{"lon": {lon:.5f}, "lat": {lat:.5f}}}',
]


@given(LATITUDES, LONGITUDES, st.sampled_from(FORMS))
def test_reads_a_position_in_each_form(lat, lon, form):
    lat, lon = lat / 10, lon / 10
    position = read_position(form.format(lat=lat, lon=lon))
    assert position == (float(f"{lat:.5f}"), float(f"{lon:.5f}"))


@given(st.text(max_size=20))
def test_ignores_text_outside_degrees(text):
    position = read_position(text)
    assert position is None or text.strip() == "[]" or (abs(position[0]) <= 90 and -180 <= position[1] <= 360)


@pytest.mark.parametrize(("count", "is_found"), [(10, True), (30, True), (9, False)])
def test_nine_positions_in_ten_make_a_column_of_positions(count, is_found):
    # One cell in ten, or one in nine, is no position.
    cells = ["52.1, 4.3"] * (count - max(1, count // 10)) + ["unknown place"] * max(1, count // 10)
    assert find_position_column(pl.DataFrame({"where": cells})) == ("where" if is_found else None)


def test_init_refuses_metres_of_utm_as_kilometres(tmp_path):
    path = tmp_path / "stops.csv"
    path.write_text("id,x,y\n" + "".join(f"s{n},{594_000 + 250 * n}.5,{5_763_000 + 130 * n}\n" for n in range(12)))
    exit_code, _, stderr = run_command(
        "init", "optimal-lp", "--points", path, "--out", tmp_path / "p.toml", "--within", "1"
    )
    assert exit_code == 2
    assert_mentions(stderr, "stops.csv: column x", "column y", "divide metres by 1,000")
    assert "594" not in stderr
    assert not (tmp_path / "p.toml").exists()


@pytest.mark.parametrize("cells", [[[1.0], [2.0], [3.0]], [float("inf"), 1.0, 2.0], [True, False, True]])
def test_init_refuses_coordinates_that_are_no_numbers(tmp_path, cells):
    path = tmp_path / "stops.parquet"
    pl.DataFrame({"id": ["a", "b", "c"], "x": cells, "y": [0.0, 1.0, 2.0]}).write_parquet(path)
    exit_code, _, stderr = run_command(
        "init", "optimal-lp", "--points", path, "--out", tmp_path / "p.toml", "--within", "1"
    )
    assert exit_code == 2
    assert "column x" in stderr
    assert not (tmp_path / "p.toml").exists()


@given(blank_rows=st.integers(1, 40), separators=st.sampled_from([",,", " , ,", "\t,,,", ","]))
def test_blank_rows_below_a_table_are_no_rows(blank_rows, separators):
    rows = csv_of("id,lat,lon", lambda n, lat, lon: f"s{n},{lat},{lon}")
    contents = (rows + (separators + "\n") * blank_rows).encode()
    assert table_of(File(name="stops.csv", path=None, kept=contents)).height == len(PLACES)
    # Between rows they are rows, whose cells are missing.
    contents = (rows + ",,\n" * blank_rows + "s99,45.0,7.3\n").encode()
    assert table_of(File(name="stops.csv", path=None, kept=contents)).height == len(PLACES) + blank_rows + 1
