"""Columns whose values state a row's own position are found, in whatever form; other columns are not."""

from __future__ import annotations

import json
import math
import struct
import tomllib
from importlib.resources import files

import narwhals as nw
import numpy as np
import polars as pl
import pytest

from privopt_tables.column_names import select_place_names, select_position_names
from privopt_tables.find_positions import RowSecrets, find_position_columns
from privopt_tables.position_codes import to_mercator, to_utm

CASES = 100
BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"
PLUS = "23456789CFGHJMPQRVWX"


def geohash(lat, lon, length):
    bits, boxes, values = "", [[-180.0, 180.0], [-90.0, 90.0]], (lon, lat)
    for step in range(5 * length):
        box = boxes[step % 2]
        middle = sum(box) / 2
        is_upper = values[step % 2] >= middle
        box[1 - is_upper] = middle
        bits += str(int(is_upper))
    return "".join(BASE32[int(bits[start : start + 5], 2)] for start in range(0, len(bits), 5))


def plus_code(lat, lon):
    code, northing, across, size = "", lat + 90, lon + 180, 20.0
    for _ in range(5):
        code += PLUS[int(northing // size)] + PLUS[int(across // size)]
        northing, across, size = northing % size, across % size, size / 20
    return f"{code[:8]}+{code[8:]}"


def tile(lat, lon, zoom):
    across = (lon + 180) / 360
    row_fraction = (1 - math.asinh(math.tan(math.radians(lat))) / math.pi) / 2
    return int(across * 2**zoom), int(row_fraction * 2**zoom)


def quadkey(lat, lon, zoom):
    x, y = tile(lat, lon, zoom)
    return "".join(str((x >> level & 1) + 2 * (y >> level & 1)) for level in range(zoom - 1, -1, -1))


def maidenhead(lat, lon):
    northing, across = lat + 90, lon + 180
    field = chr(65 + int(across // 20)) + chr(65 + int(northing // 10))
    square = f"{int(across % 20 // 2)}{int(northing % 10)}"
    sub = chr(97 + int(across % 2 * 12)) + chr(97 + int(northing % 1 * 24))
    return f"{field}{square}{sub}{int(across % 2 * 120 % 10)}{int(northing % 1 * 240 % 10)}"


def polyline(points, precision):
    text, previous = "", [0, 0]
    for point in points:
        for axis in (0, 1):
            number = round(point[axis] * 10**precision)
            step, previous[axis] = number - previous[axis], number
            value = step << 1 if step >= 0 else ~(step << 1)
            while value >= 32:
                text += chr((value & 31 | 32) + 63)
                value >>= 5
            text += chr(value + 63)
    return text


def sexagesimal(angle, letters):
    size = abs(angle)
    minutes = size % 1 * 60
    return f"{int(size)}°{int(minutes)}'{minutes % 1 * 60:.1f}\"{letters[angle < 0]}"


def mgrs(lat, lon):
    north, east = to_utm(np.array([[lat, lon]]), 0)[0]
    zone = int((lon + 180) // 6) + 1
    return (
        f"{zone}{'CDEFGHJKLMNPQRSTUVWX'[int((lat + 80) // 8)]}KL{int(east % 1e5 // 10):04d}{int(north % 1e5 // 10):04d}"
    )


def metres(function):
    def encode(lat, lon):
        north, east = function(np.array([[lat, lon]]))[0]
        return f"{east:.1f};{north:.1f}"

    return encode


def grouped_metres(separator, point):
    """Return an encoder of metres with a separator between groups of three digits."""

    def encode(lat, lon):
        north, east = to_mercator(np.array([[lat, lon]]))[0]
        return f"{east:,.1f} m; {north:,.1f} m".translate({ord(","): separator, ord("."): point})

    return encode


ENCODINGS = {
    "degrees": lambda lat, lon: f"{lat:.6f}, {lon:.6f}",
    "four digits": lambda lat, lon: f"{lat:.4f} {lon:.4f}",
    "three digits, cut": lambda lat, lon: f"{int(lat * 1e3) / 1e3}|{int(lon * 1e3) / 1e3}",
    "swapped": lambda lat, lon: f"({lon:.5f},{lat:.5f})",
    "latitude alone": lambda lat, lon: lat,
    "longitude alone": lambda lat, lon: round(lon, 5),
    "single precision": lambda lat, lon: float(np.float32(lon)),
    "E7": lambda lat, lon: round(lat * 1e7),
    "E6": lambda lat, lon: f"{round(lat * 1e6)},{round(lon * 1e6)}",
    "sexagesimal": lambda lat, lon: sexagesimal(lat, "NS") + " " + sexagesimal(lon, "EW"),
    "minutes": lambda lat, lon: f"N {int(lat)}° {lat % 1 * 60:.3f} E {int(lon)}° {lon % 1 * 60:.3f}",
    "NMEA": lambda lat, lon: f"{int(lat) * 100 + lat % 1 * 60:.4f},N,{int(lon) * 100 + lon % 1 * 60:09.4f},E",
    "mercator": metres(to_mercator),
    "UTM": metres(lambda points: to_utm(points, 0)),
    "the next UTM zone": metres(lambda points: to_utm(points, 1)),
    "metres in groups, English": grouped_metres(",", "."),
    "metres in groups, German": grouped_metres(".", ","),
    "metres in groups, Swiss": grouped_metres("’", "."),
    "metres in groups, French": grouped_metres("\u202f", ","),
    "metres in groups, ISO": grouped_metres(" ", "."),
    "E7 in groups": lambda lat, lon: f"{round(lat * 1e7):,}",
    "decimal commas": lambda lat, lon: f"{lat:.5f} {lon:.5f}".replace(".", ","),
    "WKT": lambda lat, lon: f"SRID=4326;POINT ({lon:.6f} {lat:.6f})",
    "WKT of a line": lambda lat, lon: f"LINESTRING ({lon} {lat}, {lon + 0.03} {lat + 0.02})",
    "WKB": lambda lat, lon: struct.pack("<BIdd", 1, 1, lon, lat),
    "WKB in digits": lambda lat, lon: struct.pack(">BIdd", 0, 1, lon, lat).hex().upper(),
    "GeoJSON": lambda lat, lon: json.dumps({"type": "Point", "coordinates": [lon, lat]}),
    "JSON": lambda lat, lon: json.dumps({"at": {"latE7": round(lat * 1e7), "lngE7": round(lon * 1e7)}, "n": 3}),
    "polyline 5": lambda lat, lon: polyline([(lat, lon), (lat + 0.01, lon + 0.02)], 5),
    "polyline 6": lambda lat, lon: polyline([(lat - 0.01, lon), (lat, lon)], 6),
    "geohash": lambda lat, lon: geohash(lat, lon, 8),
    "plus code": plus_code,
    "short plus code": lambda lat, lon: plus_code(lat, lon)[4:] + " Town",
    "MGRS": mgrs,
    "quadkey": lambda lat, lon: quadkey(lat, lon, 16),
    "tile": lambda lat, lon: "/".join(map(str, (16, *tile(lat, lon, 16)))) + ".png",
    "maidenhead": maidenhead,
    "URL": lambda lat, lon: f"https://maps.example.org/?q={lat:.5f}%2C{lon:.5f}&z=15",
    "sentence": lambda lat, lon: f"Found 3 rings at {lat:.5f} N and {lon:.5f} E on 2026-05-01, 10:30.",
    "list": lambda lat, lon: [lon, lat],
    "structure": lambda lat, lon: {"name": "a", "geo": {"a": lat, "b": lon}},
}


def random_positions(rng, count):
    centre, spread = rng.uniform([-70, -170], [70, 170]), 10.0 ** rng.uniform(-1.5, 0.5)
    centre = np.abs(centre)  # the encoders of this file take northern and eastern positions
    return np.round(centre + spread * rng.uniform(-0.5, 0.5, (count, 2)), 6)


def innocent(rng, count):
    """Return a column that says nothing of a row's position."""
    kind = rng.integers(10)
    if kind == 0:
        return np.round(rng.gamma(2.0, 8.0, count), 2).tolist()
    if kind == 1:
        start = np.datetime64("2026-01-01T00:00") + np.sort(rng.integers(0, 500_000, count)).astype("timedelta64[m]")
        return [str(time) for time in start]
    if kind == 2:
        return np.arange(count).tolist()
    if kind == 3:
        return rng.normal(0, 10.0 ** rng.uniform(-2, 4), count).tolist()
    if kind == 4:
        return [f"+39 {a} {b}" for a, b in rng.integers(100_000, 9_999_999, (count, 2)).tolist()]
    if kind == 5:
        return rng.integers(0, 90, count).tolist()
    if kind == 6:
        return [bytes(rng.integers(0, 256, 8).astype(np.uint8)).hex() for _ in range(count)]
    if kind == 7:
        return [f"order {n} of {m} items for {p:.2f} EUR" for n, m, p in rng.integers(1, 500, (count, 3)).tolist()]
    if kind == 8:
        return rng.integers(1_700_000_000, 1_800_000_000, count).tolist()
    return rng.choice(["cash", "card", "no charge", "3", "1-5"], count).tolist()


def find(rng, positions, values):
    frame = nw.from_native(pl.DataFrame({"a": innocent(rng, len(positions)), "b": pl.Series(values, strict=False)}))
    secret = RowSecrets(positions=positions, is_geographic=True)
    return [leak.name for leak in find_position_columns(frame, [secret], frame.columns)]


@pytest.mark.parametrize("form", ENCODINGS)
def test_finds_each_form(form):
    rng = np.random.default_rng(sum(form.encode()))
    sizes = (8, 40, 200)
    for count in sizes:
        positions = random_positions(rng, count)
        assert "b" in find(rng, positions, [ENCODINGS[form](lat, lon) for lat, lon in positions.tolist()]), count


def test_finds_planted_secrets_only():
    rng = np.random.default_rng(62)
    planted_count = dropped = 0
    for _ in range(CASES):
        positions = random_positions(rng, int(rng.integers(10, 60)))
        encode = ENCODINGS[list(ENCODINGS)[int(rng.integers(len(ENCODINGS)))]]
        names = find(rng, positions, [encode(lat, lon) for lat, lon in positions.tolist()])
        planted_count += "b" in names
        dropped += "a" in names
    for _ in range(CASES):
        positions = random_positions(rng, int(rng.integers(1, 60)))
        dropped += len(find(rng, positions, innocent(rng, len(positions))))
    assert planted_count >= 0.99 * CASES
    assert dropped <= 0.01 * 2 * CASES


def test_constant_place_reveals_nothing():
    positions = np.array([[45.0, 7.0]] * 3 + [[45.1, 7.1]] * 30)
    assert "b" not in find(np.random.default_rng(0), positions, ["45.0, 7.0"] * 33)


def test_finds_records_in_sentences_and_numbers():
    ids = [str(number) for number in (132, 7, 45, 61, 8, 99)]
    frame = nw.from_native(pl.DataFrame({"a": [f"zone {name}, late" for name in ids], "b": list(map(float, ids))}))
    secret = RowSecrets(positions=None, is_geographic=True, texts=(ids,), text_chance=0.01)
    assert [leak.name for leak in find_position_columns(frame, [secret], ["a", "b"])] == ["a", "b"]


NAMES = [
    "w3w",
    "mgrs",
    "utm",
    "quadkey",
    "maidenhead",
    "olc",
    "pluscode",
    "geo_point",
    "geo_point_2d",
    "geo_shape",
    "shape",
    "summary_polyline",
    "trajectory",
    "track",
    "route",
    "XCOORD",
    "X_WGS84",
    "latitud",
    "longitud",
    "Breitengrad",
    "Längengrad",
    "coordonnees",
    "coordonnées",
    "adresse",
    "strasse",
    "Straße",
    "rue",
    "comune",
    "ville",
    "locator",
    "osm_id",
    "node",
    "edge_id",
    "ip",
    "elevation",
    "precinct",
    "arrondissement",
    "locality",
    "municipality",
    "what3words",
    "timelinePath",
    "altitude",
    "POLYLINE",
    "point",
    "geohash",
    "h3",
    "plus_code",
    "the_geom",
    "latE7",
    "gps_pos",
    "PULocationID",
]


@pytest.mark.parametrize("name", [*NAMES, *map(str.upper, ("mgrs", "rue", "geo_point_2d"))])
def test_knows_names_of_real_tables(name):
    assert select_position_names([name]) or select_place_names([name])


@pytest.mark.parametrize("name", ["出発地緯度", "Широта", "долгота_конца", "μήκος", "długość", "위도", "Breitengrad"])
def test_knows_coordinates_in_other_languages(name):
    assert select_position_names([name]) == [name]


@pytest.mark.parametrize("name", ["住所", "ulica", "адрес", "straße"])
def test_knows_places_in_other_languages(name):
    assert select_place_names([name]) == [name]


def test_every_word_of_the_table_is_used():
    """Each word, written as its language writes it, makes a column leaky by itself or beside an axis."""
    table = tomllib.loads(files("privopt_tables").joinpath("column_words.toml").read_text("utf-8"))
    assert select_position_names(table["degrees"] + table["whole"]) == table["degrees"] + table["whole"]
    assert [
        name for name in table["places"] if not select_place_names([name]) and not select_position_names([name])
    ] == []
    assert select_position_names([f"x_{word}" for word in table["beside"]]) == [f"x_{word}" for word in table["beside"]]
    for pair in table["whole_pairs"]:
        assert select_position_names(["_".join(pair)])
