"""Public tables lie in problem/ as CSV, whatever they were read from, and the problem file there names them."""

from __future__ import annotations

import io
import json
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from helpers.examples import EXAMPLES

from privopt import checker
from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify

PROBLEM = """[records]
points = "{points}"{columns}
[distance]
kind = "haversine"
[privacy]
epsilon = 1.0
[utility]
kind = "distance"
prior = "sub/prior.parquet"  # "sub/prior.parquet" is the name in this comment too
"""


PRIOR = [0.1, 0.3, 0.2, 0.2, 0.2]


def point(lat: float, lon: float) -> bytes:
    return b"\x01\x01\x00\x00\x00" + np.array([lon, lat]).tobytes()


def places(rng) -> pl.DataFrame:
    return pl.DataFrame(
        {"id": [f"a,{i}" for i in range(5)], "lat": 41 + rng.random(5), "lon": 12 + rng.random(5), "more": [[1]] * 5}
    )


def geojson(frame: pl.DataFrame) -> bytes:
    rows = [
        {"type": "Feature", "properties": {"id": i}, "geometry": {"type": "Point", "coordinates": [lon, lat]}}
        for i, lat, lon, _ in frame.rows()
    ]
    return json.dumps({"type": "FeatureCollection", "features": rows}).encode()


def geoparquet(frame: pl.DataFrame) -> bytes:
    table = frame.select("id").with_columns(
        pl.Series("where", [point(lat, lon) for lat, lon in frame.select("lat", "lon").rows()])
    )
    stream = io.BytesIO()
    geo = {"version": "1.0.0", "primary_column": "where", "columns": {"where": {"encoding": "WKB", "crs": None}}}
    del geo["columns"]["where"]["crs"]  # left out: longitude and latitude
    table.write_parquet(stream, metadata={"geo": json.dumps(geo)})
    return stream.getvalue()


def parquet(frame: pl.DataFrame) -> bytes:
    stream = io.BytesIO()
    frame.write_parquet(stream)
    return stream.getvalue()


@pytest.mark.parametrize(
    ("name", "make", "columns", "published_name"),
    [
        ("points.parquet", parquet, "", "points.csv"),
        ("points.geojson", geojson, "", "points.csv"),
        ("../outside/points.parquet", geoparquet, '\ncolumns = { geometry = "where" }', "external/points.csv"),
    ],
)
def test_publishes_tables_of_other_forms_as_csv(tmp_path, name, make, columns, published_name):
    frame = places(np.random.default_rng(2))
    home = tmp_path / "home"
    for part in (home / "sub", tmp_path / "outside"):
        part.mkdir(parents=True)
    (home / name).write_bytes(make(frame))
    (home / "sub" / "prior.parquet").write_bytes(
        parquet(pl.DataFrame({"id": frame["id"], "p": [0.1, 0.3, 0.2, 0.2, 0.2]}))
    )
    (home / "problem.toml").write_text(PROBLEM.format(points=name, columns=columns))
    folder = solve("exponential", home / "problem.toml", tmp_path / "out", Options()).folder
    files = {path.relative_to(folder / "problem").as_posix() for path in (folder / "problem").rglob("*.*")}
    assert files == {"problem.toml", published_name, "sub/prior.csv"}
    text = (folder / "problem" / "problem.toml").read_text()
    assert '"sub/prior.parquet" is' in text
    assert tomllib.loads(text)["records"]["points"] == published_name
    assert (folder / "problem" / published_name).read_text().splitlines()[1].startswith('"a,0",')
    assert verify(folder).complaints == ()
    data = load_release(folder).problem.data
    assert data.records.coordinates.tolist() == frame.select("lat", "lon").to_numpy().tolist()
    assert data.prior.tolist() == PRIOR


def test_faults_name_the_given_file(tmp_path):
    frame = places(np.random.default_rng(2)).with_columns(lat=pl.Series([99.0] * 5))
    (tmp_path / "points.parquet").write_bytes(parquet(frame))
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "prior.parquet").write_bytes(parquet(pl.DataFrame({"id": frame["id"], "p": [0.2] * 5})))
    (tmp_path / "problem.toml").write_text(PROBLEM.format(points="points.parquet", columns=""))
    with pytest.raises(InputError, match=r"points\.parquet"):
        solve("exponential", tmp_path / "problem.toml", tmp_path / "out", Options())


def test_row_without_id_is_a_fault(tmp_path: Path):
    (tmp_path / "points.parquet").write_bytes(parquet(pl.DataFrame({"id": ["a", None, "c"]})))
    roads = pl.DataFrame({"from": ["a"], "to": ["c"], "km": [1.0]})
    (tmp_path / "roads.parquet").write_bytes(parquet(roads))
    text = PROBLEM.format(points="points.parquet", columns="").replace(
        '"haversine"', '"graph"\nedges = "roads.parquet"'
    )
    (tmp_path / "problem.toml").write_text("\n".join(line for line in text.splitlines() if "prior" not in line))
    with pytest.raises(InputError, match="row 3, column id"):
        solve("exponential", tmp_path / "problem.toml", tmp_path / "out", Options())


@pytest.mark.parametrize("is_name_taken", [False, True])
def test_replacement_of_a_secret_table_is_csv(tmp_path, is_name_taken):
    problem = EXAMPLES["fl-linear"].write(tmp_path / "problem")
    name = "../towns.parquet" if is_name_taken else "towns.parquet"
    secret = parquet(pl.read_csv(problem.parent / "locations.csv").head(6))
    (problem.parent / name).write_bytes(secret)
    problem.write_text(problem.read_text().replace("locations.csv", name) + '# "towns.parquet"\n')
    published_name = "external/towns.csv" if is_name_taken else "towns.csv"
    folder = solve("fl-linear", problem, tmp_path / "out", Options()).folder
    assert {path.relative_to(folder / "problem").as_posix() for path in (folder / "problem").rglob("*.*")} == {
        "problem.toml",
        published_name,
    }
    text = (folder / "problem" / "problem.toml").read_text()
    assert tomllib.loads(text)["locations"]["points"] == published_name
    assert '# "towns.parquet"' in text
    assert "noisy_clients" in (folder / "problem" / published_name).read_text().splitlines()[0]
    assert (folder / "private" / "problem" / published_name).with_suffix(".parquet").read_bytes() == secret
    assert verify(folder).complaints == ()
    second_folder = solve("fl-linear", folder / "problem" / "problem.toml", tmp_path / "again", Options()).folder
    assert (second_folder / "capacities.csv").read_bytes() == (folder / "capacities.csv").read_bytes()


def test_secret_table_without_public_one_keeps_its_name(tmp_path):
    problem = EXAMPLES["hierarchical-dp"].write(tmp_path / "problem")
    secret = parquet(pl.read_csv(problem.parent / "counts.csv"))
    (problem.parent / "counts.parquet").write_bytes(secret)
    problem.write_text(problem.read_text().replace("counts.csv", "counts.parquet"))
    folder = solve("hierarchical-dp", problem, tmp_path / "out", Options()).folder
    assert [path.name for path in (folder / "problem").iterdir()] == ["problem.toml"]
    assert (folder / "private" / "problem" / "counts.parquet").read_bytes() == secret
    assert verify(folder).complaints == ()


POINTS = "id,x,y\na,0,0\nb,1,0\nc,0,1\n"


@pytest.mark.parametrize(
    "points",
    [
        "\r\n" + POINTS,
        POINTS.replace("a,0", "a\rz,0"),
        POINTS.replace("a,0", '"a\rz",0'),
    ],
)
def test_ambiguous_table_is_published_in_one_form(tmp_path, points):
    """What users' tables may hold is solved, and the copy is read alike by verify and the checker."""
    (tmp_path / "points.csv").write_text(points, newline="")
    with (tmp_path / "c.npy").open("wb") as stream:
        np.lib.format.write_array(stream, np.eye(3), version=(2, 0))
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1.0\n'
    (tmp_path / "problem.toml").write_text(text + '[utility]\nkind = "matrix"\ncost = "c.npy"\n')
    folder = solve("exponential", tmp_path / "problem.toml", tmp_path / "out", Options()).folder
    assert (folder / "problem" / "c.npy").read_bytes()[6:8] == b"\x01\x00"
    assert verify(folder).verdict == "proved"
    assert checker.check(folder, str) == 0


def test_publishes_scores_in_one_form(tmp_path):
    problem = EXAMPLES["photo-censor"].write(tmp_path / "problem")
    scores = np.load(problem.parent / "scores.npy").astype(str).tolist()
    scores[0][0], scores[1][1] = "-Infinity", f'"{scores[1][1]}"'
    lines = [",".join(f"c{j}" for j in range(len(scores[0]))), *map(",".join, scores)]
    (problem.parent / "scores.csv").write_text("\r\n".join(lines) + "\r\n", newline="")
    problem.write_text(problem.read_text().replace("scores.npy", "scores.csv"))
    folder = solve("photo-censor", problem, tmp_path / "out", Options()).folder
    assert verify(folder).verdict == "proved"
    assert checker.check(folder, str) == 0
