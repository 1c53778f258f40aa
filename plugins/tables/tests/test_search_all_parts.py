"""Columns that state the secret in some part of a table are dropped from all of it, before anything is written."""

import numpy as np
import polars as pl
import pytest

from privopt.declare import table_files as files
from privopt.run.solve import solve
from privopt.run.verify import open_verified
from privopt_tables.apply import apply, apply_in_memory
from privopt_tables.options import ApplyOptions
from privopt_tables.secret_columns import Secret

PROBLEM = """
[records]
points = "points.csv"
[distance]
kind = "haversine"
[privacy]
epsilon = 2.0
[utility]
kind = "distance"
"""
ROWS = 6_000
POSITION = Secret.of(lat="lat", lon="lon")

FORMS = {
    "text": (lambda lat, lon: f"at {lat:.5f}, {lon:.5f}", "order 12 of 30 for 45.20 EUR"),
    "number": (lambda lat, lon: lat, 45.2),
    "whole number": (lambda lat, lon: round(lon * 1e7), 5),
    "record": (lambda lat, lon: f"near s{round((lat - 45) / 0.1)}{round((lon - 7) / 0.1)}", "nothing"),
    "polyline": (lambda lat, lon: polyline(lat, lon), ""),
    "words": (lambda lat, lon: "///filled.count.soap", "nothing to say"),
}
"""How a row states its position, and what other rows say."""


def polyline(lat, lon):
    text = ""
    for number in (round(lat * 1e5), round(lon * 1e5)):
        value = number << 1 if number >= 0 else ~(number << 1)
        while value >= 32:
            text += chr((value & 31 | 32) + 63)
            value >>= 5
        text += chr(value + 63)
    return text


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """DIR of sixteen places on the globe."""
    folder = tmp_path_factory.mktemp("town")
    places = [f"s{row}{column},{45 + 0.1 * row:.1f},{7 + 0.1 * column:.1f}" for row in range(4) for column in range(4)]
    (folder / "points.csv").write_text("\n".join(["id,lat,lon", *places]) + "\n")
    (folder / "p.toml").write_text(PROBLEM)
    return solve("exponential", folder / "p.toml", folder / "out").folder


def table_with(form, is_leak):
    """Return a table in whose marked rows the column ``extra`` states the position; ``age`` and ``fare`` never do."""
    rng = np.random.default_rng(sum(form.encode()))
    lat, lon = 45 + np.round(rng.uniform(0, 0.3, ROWS), 6), 7 + np.round(rng.uniform(0, 0.3, ROWS), 6)
    encode, harmless = FORMS[form]
    cells = [
        encode(a, o) if leaks else harmless for a, o, leaks in zip(lat.tolist(), lon.tolist(), is_leak, strict=True)
    ]
    fare, age = np.round(rng.gamma(8, 5.5, ROWS), 2), rng.integers(18, 90, ROWS)
    return pl.DataFrame({"lat": lat, "lon": lon, "extra": cells, "fare": fare, "age": age}, strict=False)


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(files, "WHOLE", 0)
    monkeypatch.setattr(files, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(files, "BATCH_ROWS", 700)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("form", FORMS)
def test_drops_a_column_that_leaks_in_the_last_rows(form, ending, town, tmp_path, small_parts):
    table = table_with(form, np.arange(ROWS) >= ROWS - 12)
    path, output_path = tmp_path / f"t.{ending}", tmp_path / f"o.{ending}"
    table.write_csv(path) if ending == "csv" else table.write_parquet(path)
    done = apply(town, path, output_path, POSITION)
    assert done.dropped == ("extra",)
    assert any("column extra was" in line for line in done.warnings)
    columns = pl.read_csv(output_path).columns if ending == "csv" else pl.read_parquet(output_path).columns
    assert columns == ["fare", "age", "report", "report_lat", "report_lon"]
    apply(town, path, tmp_path / f"k.{ending}", POSITION, ApplyOptions(keep=("extra",)))
    assert b"extra" in (tmp_path / f"k.{ending}").read_bytes()


@pytest.mark.parametrize("form", FORMS)
def test_drops_a_column_that_leaks_in_few_rows(form, town):
    table = table_with(form, np.arange(ROWS) % 1_000 == 517)
    _, notes = apply_in_memory(open_verified(town), table, {"lat": "lat", "lon": "lon"}, ApplyOptions())
    assert any("column extra was" in note for note in notes), notes
    assert not any("fare" in note or "age" in note for note in notes)
