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


def solve_region(folder, text):
    (folder / "roads.csv").write_text(STREETS)
    (folder / "points.csv").write_text(PLACES)
    (folder / "region.geojson").write_text(json.dumps(SQUARE))
    (folder / "p.toml").write_text(text + EVERYWHERE)
    return solve("exponential", folder / "p.toml", folder / "out").folder


@pytest.fixture(scope="module")
def plane(tmp_path_factory):
    """3 x 3 cells of a km."""
    text = "[records]\ngrid = { rows = 3, cols = 3, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    return solve_region(tmp_path_factory.mktemp("plane"), text)


@pytest.fixture(scope="module")
def streets(tmp_path_factory):
    """Three records with positions and a node that has none."""
    text = "[records]\npoints = 'points.csv'\n[distance]\nkind = 'graph'\nedges = 'roads.csv'\n"
    return solve_region(tmp_path_factory.mktemp("streets"), text)


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """Return a mesh over a part of the earth: vertices are planar, positions geographic."""
    text = "[records]\nmesh = { region = 'region.geojson', side_km = 0.8 }\n[distance]\nkind = 'euclidean'\n"
    return solve_region(tmp_path_factory.mktemp("town"), text)


def exact_mixture(folder, positions):
    """(B, K) exact distributions at positions."""
    release = open_verified(folder)
    data, weights = release.problem.data, release.release.weights
    snapped_positions = Snapper.of(data.region, data.epsilon).snap(np.array(positions, dtype=float))
    rows = []
    for row in range(len(positions)):
        parts = zip(snapped_positions.exact(row), snapped_positions.corners[row].tolist(), strict=True)
        exact = sum(
            np.array([weight_share * w for w in weights[corner].tolist()], dtype=object)
            for weight_share, corner in parts
        )
        assert sum(exact) == TOTAL
        rows.append([float(value / TOTAL) for value in exact])
    return np.array(rows), release.release.outputs.tolist()


def fits_law(reports, outputs, probabilities):
    counts = np.array([reports.count(name) for name in outputs])
    assert counts.sum() == len(reports)
    return chisquare(counts, probabilities / probabilities.sum() * len(reports)).pvalue > 1e-6


@pytest.mark.parametrize(
    ("name", "secret", "positions"),
    [
        ("plane", XY, [(0.4, 0.3), (1.0, 1.0), (1.5, 0.5), (-2.0, 0.7)]),
        ("streets", AT, [(41.9003, 12.403), (41.903, 12.4101), (41.90, 12.41)]),
        ("town", AT, [(41.9111, 12.4123), (41.8, 12.41)]),
    ],
)
def test_reports_mix_the_surrounding_rows(name, secret, positions, request, tmp_path):
    """Inside, on a vertex, on a border, outside; in a street, beside one."""
    folder, count = request.getfixturevalue(name), 10_000
    exact_rows, outputs = exact_mixture(folder, positions)
    all_positions = np.repeat(np.array(positions), count, axis=0)
    columns = dict(zip(secret.columns, all_positions.T, strict=True))
    pl.DataFrame({"n": np.arange(len(all_positions)), **columns}).write_parquet(tmp_path / "t.parquet")
    summary = apply(folder, tmp_path / "t.parquet", tmp_path / "o.parquet", secret)
    assert summary.to_json() == {"rows": len(all_positions), "reported": len(all_positions), "refused": {}}
    result = pl.read_parquet(tmp_path / "o.parquet")
    suffixes = ("lat", "lon") if secret is AT else ("x", "y")
    assert result.columns == ["n", "report", *(f"report_{end}" for end in suffixes)]
    reports = result["report"].to_list()
    for row, exact in enumerate(exact_rows):
        assert fits_law(reports[row * count : (row + 1) * count], outputs, exact)
    assert fits_law(
        handle_of(open_verified(folder)).draws_at(positions[0], degrees=secret is AT)(count), outputs, exact_rows[0]
    )


def test_positions_between_records_are_hidden(plane):
    """A metre across the border of two cells: the nearest records differ, the reports do not."""
    (row, other_row), _ = exact_mixture(plane, [(0.4995, 0.2), (0.5005, 0.2)])
    assert np.abs(np.log(row / other_row)).max() <= 2.0 * 0.001 * (1 + 1e-9)


def test_ids_still_mean_their_records(plane, streets, privopt):
    matrix = open_verified(streets).release
    samples = po.open(streets).sample("b", 20_000)
    assert fits_law(samples, matrix.outputs.tolist(), matrix.weights[1] / TOTAL)
    assert set(po.open(plane).apply({"id": ["r0c0", "r2c2"]}, id="id")["report"]) <= set(
        open_verified(plane).release.outputs
    )


def test_notes_state_what_holds(plane, streets, tmp_path, privopt):
    (tmp_path / "t.csv").write_text("x,y\n0.5,0.5\n9,9\n,1\n")
    completed = privopt(
        "apply", plane, tmp_path / "t.csv", "--x=x", "--y=y", "--max-snap=1", "--json", "--out", tmp_path / "o.csv"
    )
    assert json.loads(completed.stdout) == {"rows": 3, "reported": 1, "refused": {"empty position": 1, "too far": 1}}
    assert "positions as they" in completed.stderr
    (tmp_path / "t.csv").write_text("lat,lon\n41.9,12.405\n")
    completed = privopt("apply", streets, tmp_path / "t.csv", "--lat=lat", "--lon=lon", "--out", tmp_path / "o2.csv")
    assert "nearest such point" in " ".join(completed.stderr.split())
    completed = privopt("sample", plane, "--xy", "0.5,0.25", "-n", 5)
    assert (completed.returncode, len(completed.stdout.split())) == (0, 5)
    completed = privopt("sample", plane, "--at", "41,12")
    assert (completed.returncode, "x and y" in completed.stderr) == (2, True)


def test_mesh_on_the_earth_accepts_plane_km(town, tmp_path):
    result = po.open(town).apply({"x": [0.1], "y": [0.2]}, x="x", y="y")
    assert set(result) == {"report", "report_x", "report_y"}
    result = po.open(town).apply({"lat": [41.91], "lon": [12.41]}, lat="lat", lon="lon")
    assert 41.8 < result["report_lat"][0] < 42.0
    assert 12.3 < result["report_lon"][0] < 12.5
    samples = po.open(town).sample(at=(41.91, 12.41), count=4)
    assert len(samples) == 4
    with pytest.raises(UsageError, match="of an id"):
        po.open(town).sample("1", at=(41.91, 12.41))


def test_seed_repeats_positions(plane):
    frame = {"x": [0.3] * 50, "y": [0.6] * 50}
    with pytest.warns(po.PrivoptWarning):
        first, second = (po.open(plane).apply(frame, x="x", y="y", seed=7) for _ in range(2))
    assert first == second
    assert set(first) == {"report", "report_x", "report_y", "seeded"}


def test_streets_without_places_need_ids(tmp_path):
    (tmp_path / "points.csv").write_text("id\na\nb\n")
    (tmp_path / "roads.csv").write_text("from,to,km\na,b,0.8\n")
    text = "[records]\npoints = 'points.csv'\n[distance]\nkind = 'graph'\nedges = 'roads.csv'\n"
    (tmp_path / "p.toml").write_text(text + EVERYWHERE)
    release = po.open(solve("exponential", tmp_path / "p.toml", tmp_path / "out").folder)
    with pytest.raises(UsageError, match="got positions"):
        release.apply({"lat": [1.0], "lon": [1.0]}, lat="lat", lon="lon")
    assert release.sample("a")[0] in ("a", "b")


def test_problem_in_memory_holds_everywhere(tmp_path):
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
    region_frame = gpd.GeoDataFrame(geometry=[shapely.Polygon(ring, [hole])])
    mesh_of_frame = po.mesh(region_frame, 0.9, planar=True)
    framed = po.metric_problem(mesh_of_frame, distance="euclidean", epsilon="0.5/km", everywhere=True)
    assert po.solve("exponential", framed).opened.problem.data.records.ids == data.records.ids
    with pytest.raises(UsageError, match=r"must be GeoJSON.*str"):
        po.mesh("region.geojson", 0.7)


@pytest.mark.parametrize(("cell_km", "coarse"), [(2.0, True), (0.5, False)])
def test_warns_of_a_coarse_mesh(tmp_path, cell_km, coarse):
    text = f"[records]\ngrid = {{ rows = 3, cols = 3, cell_km = {cell_km / 2.0} }}\n[distance]\nkind = 'euclidean'\n"
    (tmp_path / "p.toml").write_text(text + EVERYWHERE)
    lines = solve("exponential", tmp_path / "p.toml", tmp_path / "out").warnings
    assert any("split_km = 0.3" in line for line in lines) == coarse


def test_invalid_positions_have_no_report(plane, town):
    """Nothing, no number, beyond every place; the far end of the earth or of the plane has a nearest point."""
    table = {"x": [np.nan, np.inf, 1e200, 1e140, -1e9, 0.5], "y": [0.0, 0.0, 0.0, 0.0, 1e9, 0.5]}
    count_warning = "3 of 6 rows without a report: 1 empty position, 2 impossible position"
    distance_warning = pytest.warns(po.PrivoptWarning, match="2 of 3 positions")
    first_row = pytest.warns(po.PrivoptWarning, match="row 3, columns")
    with distance_warning, first_row, pytest.warns(po.PrivoptWarning, match=count_warning):
        result = po.open(plane).apply(table, x="x", y="y")
    assert [report is None for report in result["report"]] == [True, True, True, False, False, False]
    table = {"lat": [95.0, -90.0, 0.0, 41.9], "lon": [12.0, -168.0, 192.4, 372.4 - 360.0]}
    distance_warning = pytest.warns(po.PrivoptWarning, match="2 of 3 positions")
    first_row = pytest.warns(po.PrivoptWarning, match="row 2, columns")
    with (
        distance_warning,
        first_row,
        pytest.warns(po.PrivoptWarning, match="1 of 4 rows"),
    ):
        result = po.open(town).apply(table, lat="lat", lon="lon")
    assert [report is None for report in result["report"]] == [True, False, False, False]
