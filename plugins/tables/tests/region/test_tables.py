"""`apply` and `sample` at every point: reports are the exact mixtures of the rows around a position."""

import json

import geopandas as gpd
import numpy as np
import polars as pl
import pytest
import shapely
from scipy.stats import chisquare

import privopt as po
from privopt.api.released import handle_of
from privopt.errors import UsageError
from privopt.numbers import TOTAL
from privopt.run.solve import solve
from privopt.run.verify import open_verified
from privopt_metric_dp.region.snap_to_region import Snapper
from privopt_tables.apply import apply
from privopt_tables.secret_columns import Secret

STREETS = "from,to,km\na,b,0.8\nb,c,0.5\nc,a,1.1\nc,d,0.3\n"
PLACES = "id,lat,lon\na,41.90,12.40\nb,41.90,12.41\nc,41.905,12.41\n"
SQUARE = {
    "type": "Polygon",
    "coordinates": [[[12.4, 41.9], [12.43, 41.9], [12.43, 41.92], [12.4, 41.92], [12.4, 41.9]]],
}
EVERYWHERE = "[privacy]\nepsilon = 2.0\neverywhere = true\n[utility]\nkind = 'distance'\n"
XY, AT = Secret.of(x="x", y="y"), Secret.of(lat="lat", lon="lon")


def made(folder, text):
    (folder / "roads.csv").write_text(STREETS)
    (folder / "points.csv").write_text(PLACES)
    (folder / "region.geojson").write_text(json.dumps(SQUARE))
    (folder / "p.toml").write_text(text + EVERYWHERE)
    return solve("exponential", folder / "p.toml", folder / "out").folder


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """3 x 3 cells of a km."""
    text = "[records]\ngrid = { rows = 3, cols = 3, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    return made(tmp_path_factory.mktemp("plane"), text)


@pytest.fixture(scope="module")
def streets(tmp_path_factory):
    """Three records with positions and a node that has none."""
    text = "[records]\npoints = 'points.csv'\n[distance]\nkind = 'graph'\nedges = 'roads.csv'\n"
    return made(tmp_path_factory.mktemp("streets"), text)


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """Return a mesh over a part of the earth: vertices are planar, positions geographic."""
    text = "[records]\nmesh = { region = 'region.geojson', side_km = 0.8 }\n[distance]\nkind = 'euclidean'\n"
    return made(tmp_path_factory.mktemp("town"), text)


def mixture(folder, positions):
    """(B, K) exact distributions at positions."""
    opened = open_verified(folder)
    data, weights = opened.problem.data, opened.release.weights
    snapped = Snapper.of(data.region, data.epsilon).snap(np.array(positions, dtype=float))
    rows = []
    for row in range(len(positions)):
        parts = zip(snapped.exact(row), snapped.corners[row].tolist(), strict=True)
        exact = sum(np.array([share * w for w in weights[corner].tolist()], dtype=object) for share, corner in parts)
        assert sum(exact) == TOTAL
        rows.append([float(value / TOTAL) for value in exact])
    return np.array(rows), opened.release.outputs.tolist()


def fits(reports, outputs, wanted):
    counts = np.array([reports.count(name) for name in outputs])
    assert counts.sum() == len(reports)
    return chisquare(counts, wanted / wanted.sum() * len(reports)).pvalue > 1e-6


@pytest.mark.parametrize(
    ("name", "secret", "positions"),
    [
        ("plane", XY, [(0.4, 0.3), (1.0, 1.0), (1.5, 0.5), (-2.0, 0.7)]),
        ("streets", AT, [(41.9003, 12.403), (41.903, 12.4101), (41.90, 12.41)]),
        ("town", AT, [(41.9111, 12.4123), (41.8, 12.41)]),
    ],
)
def test_reports_are_the_mixture_of_the_rows_around(name, secret, positions, request, tmp_path):
    """Inside, on a vertex, on a border, outside; in a street, beside one."""
    folder, count = request.getfixturevalue(name), 10_000
    wanted, outputs = mixture(folder, positions)
    every = np.repeat(np.array(positions), count, axis=0)
    columns = dict(zip(secret.columns, every.T, strict=True))
    pl.DataFrame({"n": np.arange(len(every)), **columns}).write_parquet(tmp_path / "t.parquet")
    done = apply(folder, tmp_path / "t.parquet", tmp_path / "o.parquet", secret)
    assert done.to_json() == {"rows": len(every), "reported": len(every), "refused": {}}
    found = pl.read_parquet(tmp_path / "o.parquet")
    ends = ("lat", "lon") if secret is AT else ("x", "y")
    assert found.columns == ["n", "report", *(f"report_{end}" for end in ends)]
    reports = found["report"].to_list()
    for row, exact in enumerate(wanted):
        assert fits(reports[row * count : (row + 1) * count], outputs, exact)
    assert fits(
        handle_of(open_verified(folder)).draws_at(positions[0], degrees=secret is AT)(count), outputs, wanted[0]
    )


def test_what_lies_between_records_is_hidden_too(plane):
    """A metre across the border of two cells: the nearest records differ, the reports do not."""
    (one, other), _ = mixture(plane, [(0.4995, 0.2), (0.5005, 0.2)])
    assert np.abs(np.log(one / other)).max() <= 2.0 * 0.001 * (1 + 1e-9)


def test_ids_still_mean_their_records(plane, streets, privopt):
    wanted = open_verified(streets).release
    drawn = po.open(streets).sample("b", 20_000)
    assert fits(drawn, wanted.outputs.tolist(), wanted.weights[1] / TOTAL)
    assert set(po.open(plane).apply({"id": ["r0c0", "r2c2"]}, id="id")["report"]) <= set(
        open_verified(plane).release.outputs
    )


def test_notes_say_what_holds(plane, streets, tmp_path, privopt):
    (tmp_path / "t.csv").write_text("x,y\n0.5,0.5\n9,9\n,1\n")
    done = privopt(
        "apply", plane, tmp_path / "t.csv", "--x=x", "--y=y", "--max-snap=1", "--json", "--out", tmp_path / "o.csv"
    )
    assert json.loads(done.stdout) == {"rows": 3, "reported": 1, "refused": {"empty position": 1, "too far": 1}}
    assert "between positions as they are read" in done.stderr
    (tmp_path / "t.csv").write_text("lat,lon\n41.9,12.405\n")
    done = privopt("apply", streets, tmp_path / "t.csv", "--lat=lat", "--lon=lon", "--out", tmp_path / "o2.csv")
    assert "as the nearest such point" in " ".join(done.stderr.split())
    done = privopt("sample", plane, "--xy", "0.5,0.25", "-n", 5)
    assert (done.returncode, len(done.stdout.split())) == (0, 5)
    done = privopt("sample", plane, "--at", "41,12")
    assert (done.returncode, "x and y" in done.stderr) == (2, True)


def test_a_mesh_on_the_earth_takes_its_planes_km_too(town, tmp_path):
    made = po.open(town).apply({"x": [0.1], "y": [0.2]}, x="x", y="y")
    assert set(made) == {"report", "report_x", "report_y"}
    made = po.open(town).apply({"lat": [41.91], "lon": [12.41]}, lat="lat", lon="lon")
    assert 41.8 < made["report_lat"][0] < 42.0
    assert 12.3 < made["report_lon"][0] < 12.5
    drawn = po.open(town).sample(at=(41.91, 12.41), count=4)
    assert len(drawn) == 4
    with pytest.raises(UsageError, match="must be given one of an id"):
        po.open(town).sample("1", at=(41.91, 12.41))


def test_a_seed_repeats_positions_too(plane):
    frame = {"x": [0.3] * 50, "y": [0.6] * 50}
    with pytest.warns(po.PrivoptWarning):
        one, other = (po.open(plane).apply(frame, x="x", y="y", seed=7) for _ in range(2))
    assert one == other
    assert set(one) == {"report", "report_x", "report_y", "seeded"}


def test_streets_without_places_take_ids_alone(tmp_path):
    (tmp_path / "points.csv").write_text("id\na\nb\n")
    (tmp_path / "roads.csv").write_text("from,to,km\na,b,0.8\n")
    text = "[records]\npoints = 'points.csv'\n[distance]\nkind = 'graph'\nedges = 'roads.csv'\n"
    (tmp_path / "p.toml").write_text(text + EVERYWHERE)
    release = po.open(solve("exponential", tmp_path / "p.toml", tmp_path / "out").folder)
    with pytest.raises(UsageError, match="must be id, got positions"):
        release.apply({"lat": [1.0], "lon": [1.0]}, lat="lat", lon="lon")
    assert release.sample("a")[0] in ("a", "b")


def test_a_problem_in_memory_holds_everywhere(tmp_path):
    """A polygon with a hole, and what file and memory say of the same problem."""
    hole = [[1.0, 1.0], [2.0, 1.0], [2.0, 2.0], [1.0, 2.0], [1.0, 1.0]]
    ring = [[0, 0], [3, 0], [3, 3], [0, 3], [0, 0]]
    region = {"type": "Polygon", "coordinates": [ring, hole]}
    mesh = po.mesh(region, 0.9, planar=True)
    problem = po.metric_problem(mesh, distance="euclidean", epsilon="0.5/km", everywhere=True)
    release = po.solve("exponential", problem)
    assert release.guarantee.scope == "everywhere"
    data = release.opened.problem.data
    mean = (release.opened.release.probabilities * data.weighted).sum()
    assert release.loss == pytest.approx(mean)
    assert data.prior.sum() == pytest.approx(1.0)
    fine = po.metric_problem(mesh, distance="euclidean", epsilon="0.5/km", everywhere=True, split_km="700 m")
    assert len(po.solve("exponential", fine).opened.problem.data.records) > len(data.records)
    same = gpd.GeoDataFrame(geometry=[shapely.Polygon(ring, [hole])])
    again = po.mesh(same, 0.9, planar=True)
    framed = po.metric_problem(again, distance="euclidean", epsilon="0.5/km", everywhere=True)
    assert po.solve("exponential", framed).opened.problem.data.records.ids == data.records.ids
    with pytest.raises(UsageError, match=r"region must be GeoJSON.*, got str"):
        po.mesh("region.geojson", 0.7)


@pytest.mark.parametrize(("side", "coarse"), [(2.0, True), (0.5, False)])
def test_a_mesh_that_is_coarse_for_epsilon_is_warned_of(tmp_path, side, coarse):
    text = f"[records]\ngrid = {{ rows = 3, cols = 3, cell_km = {side / 2.0} }}\n[distance]\nkind = 'euclidean'\n"
    (tmp_path / "p.toml").write_text(text + EVERYWHERE)
    lines = solve("exponential", tmp_path / "p.toml", tmp_path / "out").warnings
    assert any("split_km = 0.3" in line for line in lines) == coarse


def test_positions_that_are_none_have_no_report(plane, town):
    """Nothing, no number, beyond every place; the far end of the earth or of the plane has a nearest point."""
    given = {"x": [np.nan, np.inf, 1e200, 1e140, -1e9, 0.5], "y": [0.0, 0.0, 0.0, 0.0, 1e9, 0.5]}
    counted = "3 of 6 rows without a report: 1 empty position, 2 impossible position"
    far = pytest.warns(po.PrivoptWarning, match="2 of 3 positions more than .* from every record")
    with far, pytest.warns(po.PrivoptWarning, match=counted):
        made = po.open(plane).apply(given, x="x", y="y")
    assert [report is None for report in made["report"]] == [True, True, True, False, False, False]
    given = {"lat": [95.0, -90.0, 0.0, 41.9], "lon": [12.0, -168.0, 192.4, 372.4 - 360.0]}
    far = pytest.warns(po.PrivoptWarning, match="2 of 3 positions more than .* from every record")
    with far, pytest.warns(po.PrivoptWarning, match="1 of 4 rows without a report: 1 impossible position"):
        made = po.open(town).apply(given, lat="lat", lon="lon")
    assert [report is None for report in made["report"]] == [True, False, False, False]
