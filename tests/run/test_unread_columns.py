"""What nothing reads of a public table is not published: ``problem/`` holds the columns that were asked for."""

import json
from pathlib import Path

import polars as pl
import pytest
from helpers.checker_parts import run

from privopt.run.solve import solve
from privopt.run.verify import verify

HOMES = """user_id,name, phone ,lat,lon
u1,Annabel,0176-1111,52.50,13.40
u2,"Bob, B.",0176-2222,52.51,13.41
u3,Cyd,0176-3333,52.52,13.39
"""
POINTS = '[records]\npoints = "{name}"\ncolumns = {{ id = "user_id" }}\n'
REST = '[distance]\nkind = "haversine"\n[privacy]\nepsilon = 0.5\n[utility]\nkind = "distance"\n'
HIDDEN = (b"phone", b"0176-", b"Annabel", b"owner", b"Smith")  # no four digits: a time may hold them


def file_contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def solve_and_check(folder: Path, toml: str, mechanism: str = "exponential") -> dict[str, bytes]:
    (folder / "problem.toml").write_text(toml, "utf-8")
    solve(mechanism, folder / "problem.toml", folder / "R")
    assert verify(folder / "R").verdict == "proved"
    files = file_contents(folder / "R")
    for name, contents in files.items():
        assert not [word for word in HIDDEN if word in contents], name
    return files


def check_with_checker(folder: Path) -> None:
    assert run(folder / "R")[0] == 0


def test_used_cells_keep_their_exact_text(tmp_path):
    (tmp_path / "homes.csv").write_text(HOMES, "utf-8")
    files = solve_and_check(tmp_path, POINTS.format(name="homes.csv") + REST)
    assert files["problem/homes.csv"] == b"user_id,lat,lon\nu1,52.50,13.40\nu2,52.51,13.41\nu3,52.52,13.39\n"
    check_with_checker(tmp_path)


def test_fully_used_table_has_the_common_form(tmp_path):
    raw = b"\xef\xbb\xbfuser_id, lat ,lon\r\nu1,52.50,13.40\r\nu2,52.51,13.41\r\n"
    (tmp_path / "homes.csv").write_bytes(raw)
    files = solve_and_check(tmp_path, POINTS.format(name="homes.csv") + REST)
    assert files["problem/homes.csv"] == b"user_id,lat,lon\nu1,52.50,13.40\nu2,52.51,13.41\n"
    check_with_checker(tmp_path)


def test_parquet_table(tmp_path):
    pl.read_csv(HOMES.encode()).write_parquet(tmp_path / "homes.parquet")
    files = solve_and_check(tmp_path, POINTS.format(name="homes.parquet") + REST)
    assert files["problem/homes.csv"].startswith(b"user_id,lat,lon\n")
    check_with_checker(tmp_path)


def test_columns_are_kept_for_each_key(tmp_path):
    """The same file as records and as their prior, under two names of it."""
    table = "user_id,id,phone,lat,lon,p\nu1,u1,0176-1,52.50,13.40,.5\nu2,u2,0176-2,52.51,13.41,.5\n"
    (tmp_path / "homes.csv").write_text(table, "utf-8")
    files = solve_and_check(tmp_path, POINTS.format(name="homes.csv") + REST + 'prior = "./homes.csv"\n')
    assert files["problem/homes.csv"].startswith(b"user_id,id,lat,lon,p\n")


@pytest.mark.parametrize("kind", ["points", "region"])
def test_properties_of_geojson(tmp_path, kind):
    owner = {"owner": "Smith", "id": "a"}
    ring = [[0, 0, 7.5], [2.0, 0, 7.5], [2.0, 1.5, 7.5], [0, 0, 7.5]]
    shapes = [{"type": "Polygon", "coordinates": [ring]}]
    if kind == "points":
        shapes = [
            {"type": "Point", "coordinates": coordinates} for coordinates in ([13.4, 52.5, 7.5], [13.41, 52.51, 7.5])
        ]
    features = [{"type": "Feature", "properties": {**owner, "id": str(n)}, "geometry": s} for n, s in enumerate(shapes)]
    (tmp_path / "land.geojson").write_text(json.dumps({"type": "FeatureCollection", "features": features}))
    toml = '[records]\npoints = "land.geojson"\n' + REST
    if kind == "region":
        toml = '[records.mesh]\nregion = "land.geojson"\nside_km = 1.0\nplanar = true\n'
        toml += '[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 0.5\n[utility]\nkind = "distance"\n'
    files = solve_and_check(tmp_path, toml)
    assert b"7.5" not in files[f"problem/land.{'csv' if kind == 'points' else 'geojson'}"]
