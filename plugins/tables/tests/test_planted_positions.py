"""A secret that is planted in a random form in a random column is found, and innocent columns are not.

The encoders are written from the formats' specifications, or are pyproj's; none uses the decoders under test.
"""

import json
import math
import struct
from urllib.parse import quote

import narwhals as nw
import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyproj import Transformer

from privopt_tables.find_positions import RowSecrets, find_position_columns

BASE32 = "0123456789bcdefghjkmnpqrstuvwxyz"
PLUS = "23456789CFGHJMPQRVWX"
FIRST = ["amber", "brisk", "cedar", "delta", "eager", "fable", "grain", "haste", "ivory", "jolly", "kneel", "lemon"]


def geohash(lat, lon, length):
    """Interleave the bits of both fractions, longitude first."""
    bits = 5 * length
    numbers = [int((lon + 180) / 360 * 2 ** ((bits + 1) // 2)), int((lat + 90) / 180 * 2 ** (bits // 2))]
    sizes = [(bits + 1) // 2, bits // 2]
    numbers = [min(number, 2**size - 1) for number, size in zip(numbers, sizes, strict=True)]
    text = "".join(str(numbers[k % 2] >> (sizes[k % 2] - 1 - k // 2) & 1) for k in range(bits))
    return "".join(BASE32[int(text[k : k + 5], 2)] for k in range(0, bits, 5))


def plus_code(lat, lon, digits=10):
    """Write both angles in base 20, and one further digit of a 5 by 4 grid."""
    up = min(round((lat + 90) * 8000 * 5 - 0.5), 180 * 40000 - 1)
    across = round(((lon + 180) % 360) * 8000 * 4 - 0.5) % (360 * 32000)
    last = PLUS[up % 5 * 4 + across % 4]
    up, across, code = up // 5, across // 4, ""
    for _ in range(5):
        code = PLUS[up % 20] + PLUS[across % 20] + code
        up, across = up // 20, across // 20
    return code[:8] + "+" + code[8:] + (last if digits == 11 else "")


def tile(lat, lon, zoom):
    x = int((lon + 180) / 360 * 2**zoom)
    y = int((0.5 - math.log(math.tan(math.pi / 4 + math.radians(lat) / 2)) / (2 * math.pi)) * 2**zoom)
    return min(x, 2**zoom - 1), y


def quadkey(lat, lon, zoom):
    x, y = (f"{number:0{zoom}b}" for number in tile(lat, lon, zoom))
    return "".join(str(int(a) + 2 * int(b)) for a, b in zip(x, y, strict=True))


def maidenhead(lat, lon, pairs):
    text, across, up = "", (lon + 180) / 20, (lat + 90) / 10
    for index, base in enumerate((18, 10, 24, 10, 24)[:pairs]):
        first, second = min(int(across), base - 1), min(int(up), base - 1)
        start = "0" if base == 10 else "A"
        text += chr(ord(start) + first) + chr(ord(start) + second)
        step = (10, 24, 10, 24, 1)[index]
        across, up = (across - first) * step, (up - second) * step
    return text


def polyline(points, precision):
    text, before = "", (0, 0)
    for point in points:
        now = tuple(int(math.copysign(math.floor(abs(v) * 10**precision + 0.5), v)) for v in point)
        for old, new in zip(before, now, strict=True):
            value = (new - old) * 2
            value = -value - 1 if value < 0 else value
            while True:
                chunk, value = value % 32, value // 32
                text += chr((chunk + 32 if value else chunk) + 63)
                if not value:
                    break
        before = now
    return text


def sexagesimal(angle, signs, form, decimals=1):
    total = round(abs(angle) * 3600, decimals)
    degrees, rest = divmod(total, 3600)
    minutes, seconds = divmod(round(rest, decimals), 60)
    return form.format(d=int(degrees), m=int(minutes), s=seconds, sign=signs[angle < 0], w=decimals)


def degrees_minutes(angle, signs, form):
    total = round(abs(angle) * 60, 4)
    return form.format(d=int(total // 60), m=total % 60, sign=signs[angle < 0])


def both(write):
    return lambda lat, lon: write(lat, "NS") + " " + write(lon, "EW")


def utm(lat, lon):
    zone = int((lon + 180) // 6) % 60 + 1
    to = _utm_transformer(zone, lat < 0)
    east, north = to.transform(lon, lat)
    return zone, east, north


_CACHE = {}


def _utm_transformer(zone, south):
    key = (32700 if south else 32600) + zone
    if key not in _CACHE:
        _CACHE[key] = Transformer.from_crs(4326, key, always_xy=True)
    return _CACHE[key]


def mercator(lat, lon):
    if 3857 not in _CACHE:
        _CACHE[3857] = Transformer.from_crs(4326, 3857, always_xy=True)
    return _CACHE[3857].transform(lon, lat)


def mgrs(lat, lon, form):
    zone, east, north = utm(lat, lon)
    band = "CDEFGHJKLMNPQRSTUVWX"[min(int((lat + 80) // 8), 19)]
    return form.format(
        z=zone, b=band, e=int(east % 1e5), n=int(north % 1e5), e4=int(east % 1e5 // 10), n4=int(north % 1e5 // 10)
    )


def cut(number, decimals):
    return math.trunc(number * 10**decimals) / 10**decimals


def polygon(lon, lat):
    corners = [(lon, lat), (lon + 0.01, lat), (lon + 0.01, lat - 0.01), (lon, lat)]
    return "POLYGON ((" + ", ".join(f"{x:.6f} {y:.6f}" for x, y in corners) + "))"


ANYWHERE = {
    "degrees": lambda lat, lon: f"{lat:.6f}, {lon:.6f}",
    "five decimals swapped": lambda lat, lon: f"({lon:.5f},{lat:.5f})",
    "four decimals": lambda lat, lon: f"{lat:.4f} {lon:.4f}",
    "three decimals": lambda lat, lon: f"{lat:.3f};{lon:.3f}",
    "three decimals, cut": lambda lat, lon: f"{cut(lat, 3)}|{cut(lon, 3)}",
    "latitude alone": lambda lat, lon: lat,
    "longitude alone": lambda lat, lon: round(lon, 5),
    "latitude in text": lambda lat, lon: f"{lat:.6f}",
    "single precision": lambda lat, lon: float(np.float32(lat)),
    "decimal commas": lambda lat, lon: f"{lat:.5f} {lon:.5f}".replace(".", ","),
    "decimal commas, semicolon": lambda lat, lon: f"{lat:.6f};{lon:.6f}".replace(".", ","),
    "E7": lambda lat, lon: round(lat * 1e7),
    "E6 of longitude": lambda lat, lon: round(lon * 1e6),
    "E5": lambda lat, lon: f"{round(lat * 1e5)},{round(lon * 1e5)}",
    "E6": lambda lat, lon: f"{round(lat * 1e6)} / {round(lon * 1e6)}",
    "sexagesimal": both(lambda a, s: sexagesimal(a, s, "{d}°{m}'{s:.{w}f}\"{sign}")),
    "sexagesimal with primes": both(lambda a, s: sexagesimal(a, s, "{sign} {d}° {m:02d}′ {s:.{w}f}″", 2)),
    "sexagesimal with letters": both(lambda a, s: sexagesimal(a, s, "{d}d{m}m{s:.{w}f}s{sign}")),
    "sexagesimal with blanks": lambda lat, lon: ", ".join(
        sexagesimal(a, s, "{d} {m:02d} {s:04.{w}f} {sign}") for a, s in ((lat, "NS"), (lon, "EW"))
    ),
    "sexagesimal with colons": both(lambda a, s: sexagesimal(a, s, "{sign}{d}:{m:02d}:{s:05.{w}f}", 2)),
    "minutes": both(lambda a, s: degrees_minutes(a, s, "{sign} {d}° {m:.4f}'")),
    "NMEA": both(lambda a, s: degrees_minutes(a, s, "{d:03d}{m:07.4f},{sign}")),
    "packed": both(lambda a, s: sexagesimal(a, s, "{d:03d}{m:02d}{s:05.{w}f}{sign}", 2)),
    "WKT": lambda lat, lon: f"POINT ({lon:.6f} {lat:.6f})",
    "WKT of a line": lambda lat, lon: f"LINESTRING ({lon} {lat}, {lon + 0.03} {lat + 0.02}, {lon + 0.05} {lat})",
    "WKT of a polygon": lambda lat, lon: polygon(lon, lat),
    "EWKT": lambda lat, lon: f"SRID=4326;POINT({lon} {lat})",
    "WKB": lambda lat, lon: struct.pack("<BIdd", 1, 1, lon, lat),
    "WKB in digits": lambda lat, lon: struct.pack(">BIdd", 0, 1, lon, lat).hex().upper(),
    "EWKB in digits": lambda lat, lon: struct.pack("<BIIdd", 1, 0x20000001, 4326, lon, lat).hex(),
    "WKB of a line": lambda lat, lon: struct.pack("<BII4d", 1, 2, 2, lon, lat, lon + 0.01, lat + 0.01).hex(),
    "GeoJSON": lambda lat, lon: json.dumps({"type": "Point", "coordinates": [lon, lat]}),
    "GeoJSON feature": lambda lat, lon: json.dumps(
        {"type": "Feature", "properties": {"n": 3}, "geometry": {"type": "Point", "coordinates": [lon, lat, 212.0]}}
    ),
    "JSON": lambda lat, lon: json.dumps({"at": {"latE7": round(lat * 1e7), "lngE7": round(lon * 1e7)}, "n": 3}),
    "polyline 5": lambda lat, lon: polyline([(lat, lon), (lat + 0.01, lon + 0.02), (lat, lon + 0.03)], 5),
    "polyline 6": lambda lat, lon: polyline([(lat, lon), (lat - 0.013, lon - 0.004)], 6),
    "end of a polyline": lambda lat, lon: polyline([(lat - 0.01, lon), (lat, lon)], 5),
    "geohash 7": lambda lat, lon: geohash(lat, lon, 7),
    "geohash 9": lambda lat, lon: "cell " + geohash(lat, lon, 9),
    "plus code": plus_code,
    "plus code of 11 digits": lambda lat, lon: plus_code(lat, lon, 11).lower(),
    "short plus code": lambda lat, lon: plus_code(lat, lon)[4:] + " Town",
    "maidenhead of 8": lambda lat, lon: maidenhead(lat, lon, 4),
    "maidenhead of 10": lambda lat, lon: maidenhead(lat, lon, 5).lower(),
    "URL": lambda lat, lon: f"https://maps.example.org/?q={lat:.5f}%2C{lon:.5f}&z=15",
    "URL with an at": lambda lat, lon: f"https://maps.example.org/maps/@{lat:.6f},{lon:.6f},17z",
    "URL, escaped": lambda lat, lon: "https://m.example.org/p?w=" + quote(f"POINT ({lon:.6f} {lat:.6f})", safe=""),
    "geo URI": lambda lat, lon: f"geo:{lat:.5f},{lon:.5f};u=35",
    "sentence": lambda lat, lon: f"Found 3 rings at {lat:.5f} and {lon:.5f} on 2026-05-01, 10:30.",
    "list": lambda lat, lon: [lon, lat],
    "structure": lambda lat, lon: {"name": "a", "geo": {"a": lat, "b": lon}},
    "list of points": lambda lat, lon: [[lon, lat], [lon + 0.01, lat + 0.02]],
    "radians": lambda lat, lon: f"{math.radians(lat):.7f} {math.radians(lon):.7f}",
    "semicircles": lambda lat, lon: f"{round(lat / 180 * 2**31)},{round(lon / 180 * 2**31)}",
    "turned longitude": lambda lat, lon: f"{lat:.5f},{lon % 360:.5f}",
}
"""Forms of any position on the globe."""

WITHOUT_POLES = {
    "mercator": lambda lat, lon: "{:.1f};{:.1f}".format(*mercator(lat, lon)),
    "mercator in groups": lambda lat, lon: "{:,.1f}; {:,.1f}".format(*mercator(lat, lon)),
    "northing alone": lambda lat, lon: round(mercator(lat, lon)[1]),
    "UTM": lambda lat, lon: "{}N {:.0f} {:.0f}".format(*utm(lat, lon)),
    "UTM in metres": lambda lat, lon: "{1:.1f},{2:.1f}".format(*utm(lat, lon)),
    "MGRS": lambda lat, lon: mgrs(lat, lon, "{z}{b}KL{e:05d}{n:05d}"),
    "MGRS with blanks": lambda lat, lon: mgrs(lat, lon, "{z}{b} KL {e4:04d} {n4:04d}"),
    "quadkey": lambda lat, lon: quadkey(lat, lon, 17),
    "tile": lambda lat, lon: "/".join(map(str, (16, *tile(lat, lon, 16)))) + ".png",
}
"""Forms of positions up to 80 degrees from the equator."""

WORDS = {"three words": None}

PLANE = {
    "km": lambda x, y: f"{x:.3f} {y:.3f}",
    "km swapped": lambda x, y: f"({y:.4f};{x:.4f})",
    "km with commas": lambda x, y: f"{x:.4f} {y:.4f}".replace(".", ","),
    "metres": lambda x, y: f"{x * 1e3:.0f},{y * 1e3:.0f}",
    "x in metres": lambda x, y: round(x * 1e3, 1),
    "y in km": lambda x, y: y,
    "feet": lambda x, y: f"{x / 0.0003048:.1f} {y / 0.0003048:.1f}",
    "US survey feet": lambda x, y: f"{x * 3937 / 1.2:.1f} {y * 3937 / 1.2:.1f}",
    "miles": lambda x, y: f"{x / 1.609344:.4f}/{y / 1.609344:.4f}",
    "centimetres": lambda x, y: round(y * 1e5),
    "WKT in km": lambda x, y: f"POINT ({x} {y})",
    "WKT in metres": lambda x, y: f"POINT ({x * 1e3:.2f} {y * 1e3:.2f})",
    "WKB in metres": lambda x, y: struct.pack("<BIdd", 1, 1, x * 1e3, y * 1e3),
    "WKB in km": lambda x, y: struct.pack("<BIdd", 1, 1, x, y).hex(),
    "list": lambda x, y: [x, y],
    "structure": lambda x, y: {"e": x * 1e3, "n": y * 1e3},
}
"""Forms of x and y in km."""

RECORD = {
    "id": lambda name: name,
    "sentence": lambda name: f"picked up at {name}, late",
    "path": lambda name: f"/zones/{name}/index",
    "number": lambda name: float(name) if name.isdigit() else name,
    "list": lambda name: ["x", name],
    "case": lambda name: name.upper(),
}
"""Forms of a record's id."""


def integers(rng, low, high, count):
    return rng.integers(low, high, count).tolist()


INNOCENT = {
    "price": lambda rng, n, ids: np.round(rng.gamma(2.0, 10.0 ** rng.uniform(0, 3), n), 2).tolist(),
    "price in text": lambda rng, n, ids: [f"{p:.2f} EUR" for p in rng.gamma(2.0, 20.0, n)],
    "price in groups": lambda rng, n, ids: [f"{p:,.2f}" for p in rng.gamma(2.0, 10.0 ** rng.uniform(2, 6), n)],
    "age": lambda rng, n, ids: integers(rng, 0, 95, n),
    "time": lambda rng, n, ids: [
        str(np.datetime64("2026-01-01T00:00:00") + np.timedelta64(s, "s")) for s in integers(rng, 0, 10**7, n)
    ],
    "date": lambda rng, n, ids: [str(np.datetime64("2020-01-01") + d) for d in integers(rng, 0, 2000, n)],
    "epoch": lambda rng, n, ids: integers(rng, 1_700_000_000, 1_800_000_000, n),
    "clock": lambda rng, n, ids: [f"{a:02d}:{b:02d}:{c:02d}" for a, b, c in rng.integers(0, 24, (n, 3)).tolist()],
    "phone": lambda rng, n, ids: [f"+39 {a} {b}" for a, b in rng.integers(100_000, 9_999_999, (n, 2)).tolist()],
    "phone in digits": lambda rng, n, ids: integers(rng, 3_000_000_000, 3_999_999_999, n),
    "other people's record": lambda rng, n, ids: rng.choice(ids, n).tolist(),
    "count": lambda rng, n, ids: rng.poisson(10.0 ** rng.uniform(0, 3), n).tolist(),
    "order": lambda rng, n, ids: np.arange(n).tolist(),
    "boolean": lambda rng, n, ids: (rng.random(n) < 0.4).tolist(),
    "word": lambda rng, n, ids: rng.choice(["cash", "card", "no charge", "3", "1-5"], n).tolist(),
    "free text": lambda rng, n, ids: [
        f"{a} with {b} bags, paid {c:.2f}, room {d}"
        for a, b, c, d in zip(
            rng.choice(FIRST, n), integers(rng, 1, 9, n), rng.gamma(2.0, 20.0, n), integers(rng, 1, 400, n), strict=True
        )
    ],
    "ZIP code": lambda rng, n, ids: [f"{z:05d}" for z in integers(rng, 501, 99950, n)],
    "hash": lambda rng, n, ids: [rng.bytes(8).hex() for _ in range(n)],
    "long hash": lambda rng, n, ids: [rng.bytes(32).hex() for _ in range(n)],
    "UUID": lambda rng, n, ids: [
        f"{b[:8]}-{b[8:12]}-4{b[13:16]}-a{b[17:20]}-{b[20:]}" for b in (rng.bytes(16).hex() for _ in range(n))
    ],
    "measurement": lambda rng, n, ids: rng.normal(0, 10.0 ** rng.uniform(-2, 4), n).tolist(),
    "score": lambda rng, n, ids: rng.random(n).tolist(),
    "percentage": lambda rng, n, ids: [f"{100 * p:.1f} %" for p in rng.random(n)],
    "address of a computer": lambda rng, n, ids: [".".join(map(str, p)) for p in rng.integers(1, 255, (n, 4)).tolist()],
    "version": lambda rng, n, ids: [".".join(map(str, p)) for p in rng.integers(0, 20, (n, 3)).tolist()],
    "number plate": lambda rng, n, ids: [
        f"{a}{b:03d}{c}"
        for a, b, c in zip(
            rng.choice(["AB", "FG", "XK"], n), integers(rng, 0, 999, n), rng.choice(["CD", "EE", "PQ"], n), strict=True
        )
    ],
    "order number": lambda rng, n, ids: [f"2026-{k:07d}" for k in integers(rng, 0, 10**7, n)],
    "web address": lambda rng, n, ids: [
        f"https://www.example.org/item?id={k}&lang=en" for k in integers(rng, 0, 10**6, n)
    ],
    "two sizes": lambda rng, n, ids: [f"{a:.1f} x {b:.1f} cm" for a, b in rng.uniform(1, 200, (n, 2)).tolist()],
    "constant": lambda rng, n, ids: [float(rng.integers(0, 90))] * n,
}
"""Columns that say nothing of where a row is, given ids of records."""


def globe(rng, count):
    """Return positions around a random centre: anywhere, or near the equator, Greenwich, a pole or 180 degrees."""
    lat, lon = rng.uniform([-78, -180], [78, 180])
    kind = rng.integers(6)
    if kind == 0:
        lat = rng.normal(0, 0.05)
    elif kind == 1:
        lon = rng.normal(0, 0.05)
    elif kind == 2:
        lon = 180.0 + rng.normal(0, 0.02)
    elif kind == 3:
        lat = rng.choice([-1, 1]) * rng.uniform(85.5, 89.5)
    spread = 10.0 ** rng.uniform(-1.5, 0.3)
    points = np.array([lat, lon]) + spread * rng.uniform(-0.5, 0.5, (count, 2))
    points[:, 0] = np.clip(points[:, 0], -89.9, 89.9)
    points[:, 1] = (points[:, 1] + 180.0) % 360.0 - 180.0
    points = np.round(points, 6)
    return points, bool(np.abs(points[:, 0]).max() < 80)


def plane(rng, count):
    """Return x and y in km around a random centre, some on both sides of zero."""
    centre = rng.uniform(-600, 600, 2) * rng.choice([0.0, 1.0], 2)
    return np.round(centre + 10.0 ** rng.uniform(0.3, 1.7) * rng.uniform(-0.5, 0.5, (count, 2)), 6)


def draw_case(seed, innocent=None):
    """Return a random case: its name, the frame with a planted column b beside an innocent one, and the secrets."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(15, 120))
    names = [f"s{k}" for k in range(int(rng.integers(5, 200)))] if rng.random() < 0.5 else list(map(str, range(1, 266)))
    # Some records are far more frequent than others, as in every city.
    weights = rng.dirichlet(np.full(len(names), 0.3))
    ids = rng.choice(names, count, p=weights).tolist()
    kind = rng.choice(["globe", "plane", "record"], p=[0.65, 0.2, 0.15])
    texts = {"texts": (ids,), "text_chance": 1 / len(names)}
    if kind == "globe":
        points, has_no_pole = globe(rng, count)
        forms = ANYWHERE | WITHOUT_POLES | WORDS if has_no_pole else ANYWHERE
        name = list(forms)[int(rng.integers(len(forms)))]
        if name == "three words":
            cells = [".".join(rng.choice(FIRST, 3)) for _ in range(count)]
        else:
            cells = [forms[name](lat, lon) for lat, lon in points.tolist()]
        if rng.random() < 0.2:
            points = np.column_stack([points[:, 0], points[:, 1] % 360])
        secret = RowSecrets(positions=points, is_geographic=True, **texts)
    elif kind == "plane":
        points = plane(rng, count)
        name = list(PLANE)[int(rng.integers(len(PLANE)))]
        cells = [PLANE[name](x, y) for x, y in points.tolist()]
        secret = RowSecrets(positions=points, is_geographic=False, **texts)
    else:
        name = list(RECORD)[int(rng.integers(len(RECORD)))]
        cells = [RECORD[name](text) for text in ids]
        secret = RowSecrets(positions=None, is_geographic=True, **texts)
    if rng.random() < 0.3:  # rows without a value
        cells = [None if rng.random() < 0.4 else cell for cell in cells]
    innocent_name = list(INNOCENT)[int(rng.integers(len(INNOCENT)))]
    common = rng.choice(names, 10_000, p=weights)
    columns = {"a": INNOCENT[innocent_name](rng, count, common), "b": pl.Series(cells, strict=False)}
    frame = nw.from_native(pl.DataFrame(columns, strict=False), eager_only=True)
    return f"{kind}: {name}", innocent_name, frame, secret


def search(seed):
    """Return what was planted, whether it was found, the innocent column's kind, and whether it was dropped."""
    planted, innocent, frame, secret = draw_case(seed)
    names = {leak.name for leak in find_position_columns(frame, [secret], ["a", "b"])}
    return planted, "b" in names, innocent, "a" in names


def check_rates(seeds):
    results = [search(seed) for seed in seeds]
    missed = sorted(planted for planted, is_found, _, _ in results if not is_found)
    dropped = sorted(innocent for _, _, innocent, is_dropped in results if is_dropped)
    assert len(missed) <= 0.01 * len(results), missed
    assert len(dropped) <= 0.01 * len(results), dropped


def test_finds_what_is_planted_and_no_innocent_column():
    check_rates(range(200))


@pytest.mark.slow
@settings(max_examples=12, deadline=None)
@given(st.integers(1, 10**9))
def test_finds_what_is_planted_whatever_is_drawn(seed):
    check_rates(range(seed * 10_000, seed * 10_000 + 300))
