"""`apply`: a table in, reports out, drawn as certified; whole or not at all; what is refused is counted."""

import json
import os
import shutil
import signal
import subprocess
import sys
from decimal import Decimal

import geopandas as gpd
import numpy as np
import polars as pl
import pytest
import shapely
from helpers.grids import first_alone
from helpers.mended_sums import edit
from helpers.mentions import assert_mentions
from scipy.stats import chisquare

from privopt.api.released import handle_of
from privopt.declare import table_files as files
from privopt.errors import InputError, StoppedError, UsageError
from privopt.numbers import TOTAL
from privopt.run.solve import solve
from privopt.run.verify import open_verified
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_tables import apply as module
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions
from privopt_tables.secret_columns import Secret

TOWN = """
[records]
points = "points.csv"
[distance]
kind = "haversine"
[privacy]
epsilon = 2.0
[utility]
kind = "distance"
"""
POINTS = [("a", 41.9, 12.4), ("b", 41.9, 12.41), ("c", 41.91, 12.4), ("d", 41.92, 12.43)]
POSITION = Secret.of(lat="lat", lon="lon")


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """DIR of four places on the globe."""
    folder = tmp_path_factory.mktemp("town")
    (folder / "points.csv").write_text("id,lat,lon\n" + "".join(f"{i},{a},{o}\n" for i, a, o in POINTS))
    (folder / "p.toml").write_text(TOWN)
    return solve("exponential", folder / "p.toml", folder / "out").folder


def csv_of(path, text):
    path.write_text(text, "utf-8")
    return path


def test_reports_follow_the_law(town, tmp_path):
    rng = np.random.default_rng(3)
    record = rng.integers(0, 4, 60_000)
    places = np.array([point[1:] for point in POINTS])[record] + rng.normal(0, 1e-4, (60_000, 2))
    frame = pl.DataFrame({"row": np.arange(60_000), "lat": places[:, 0], "lon": places[:, 1]})
    frame.write_parquet(tmp_path / "t.parquet")
    summary = apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", POSITION)
    assert summary.to_json() == {"rows": 60_000, "reported": 60_000, "refused": {}}
    result = pl.read_parquet(tmp_path / "o.parquet")
    assert result["row"].to_list() == list(range(60_000))
    release = MatrixRelease.read(town, None)
    output = np.searchsorted(release.outputs, result["report"].to_numpy().astype(str))
    for row in range(4):
        counts = np.bincount(output[record == row], minlength=4)
        assert chisquare(counts, release.weights[row] / TOTAL * counts.sum()).pvalue > 1e-6


def test_other_columns_stay_unchanged(town, tmp_path):
    text = 'who,lat,code,lon,"a,\nb"\nx,41.9,007,12.4,1.10\n\n,41.92,,12.43,"say ""hi"""\n'
    apply(town, csv_of(tmp_path / "t.csv", text), tmp_path / "o.csv", POSITION)
    result = pl.read_csv(tmp_path / "o.csv", infer_schema=False)
    assert result.columns == ["who", "code", "a,\nb", "report", "report_lat", "report_lon"]
    assert result["code"].to_list() == ["007", None]
    assert result["a,\nb"].to_list() == ["1.10", 'say "hi"']
    coordinates_by_id = {i: (a, o) for i, a, o in POINTS}
    for name, lat, lon in result.select("report", "report_lat", "report_lon").iter_rows():
        assert (float(lat), float(lon)) == coordinates_by_id[name]


def test_counts_rows_without_report_by_reason(town, tmp_path, privopt, monkeypatch):
    """In several batches, so that counts add up and rows keep their order."""
    cells_by_reason = {
        "empty position": [",", "41.9,", " ,12.4"],
        "impossible position": ["91,12", "41,-181", "x,12.4", "inf,12"],
    }
    cells_by_reason["too far"] = ["45,12.4"]
    rng = np.random.default_rng(0)
    rows, expected_counts = [], {"empty position": 0, "impossible position": 0, "too far": 0}
    for number in range(5_000):
        if rng.random() < 0.03:
            reason = str(rng.choice(list(cells_by_reason)))
            expected_counts[reason] += 1
            rows.append(f"{number},{rng.choice(cells_by_reason[reason])},bad")
        else:
            rows.append(f"{number},41.9,12.4,good")
    table = csv_of(tmp_path / "t.csv", "n,lat,lon,is\n" + "\n".join(rows) + "\n")
    completed = privopt(
        "apply", town, table, "--lat=lat", "--lon=lon", "--max-snap=5", "--out", tmp_path / "o.csv", "--json"
    )
    assert completed.returncode == 0
    assert json.loads(completed.stdout) == {
        "rows": 5_000,
        "reported": 5_000 - sum(expected_counts.values()),
        "refused": expected_counts,
    }
    for reason, count in expected_counts.items():
        assert f"{count:,} {reason}" in completed.stderr
    monkeypatch.setattr(files, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(files, "BATCH_ROWS", 700)
    second_summary = apply(town, table, tmp_path / "o.parquet", POSITION, ApplyOptions(max_snap=5.0))
    assert second_summary.refused == expected_counts
    for table_written in (pl.read_csv(tmp_path / "o.csv"), pl.read_parquet(tmp_path / "o.parquet")):
        assert table_written["n"].cast(pl.Int64).to_list() == list(range(5_000))
        assert (table_written["report"].is_null() == (table_written["is"] == "bad")).all()
        assert (table_written["report_lat"].is_null() == (table_written["is"] == "bad")).all()


def test_planar_records_take_km(solved_toy, tmp_path):
    table = csv_of(tmp_path / "t.csv", "e,n\n0.1,0.1\n2.9,0\n")
    summary = apply(solved_toy, table, tmp_path / "o.csv", Secret.of(x="e", y="n"))
    assert pl.read_csv(tmp_path / "o.csv").columns == ["report", "report_x", "report_y"]
    assert "nearest record" in summary.notes[0]
    with pytest.raises(UsageError, match="x and y"):
        apply(solved_toy, table, tmp_path / "p.csv", Secret.of(lat="e", lon="n"))
    with pytest.raises(UsageError, match="max-snap"):
        apply(solved_toy, table, tmp_path / "p.csv", Secret.of(id="e"), ApplyOptions(max_snap=1.0))


def test_geoparquet_in_any_byte_order(town, tmp_path):
    points = [shapely.Point(12.43, 41.92), None, shapely.Point(12.4, 41.91, 7.0), shapely.LineString([(0, 0), (1, 1)])]
    points += [shapely.Point(), shapely.Point(12.4, 41.9)]
    table = gpd.GeoDataFrame({"n": range(6)}, geometry=points, crs=4326)
    table.to_parquet(tmp_path / "t.parquet")
    summary = apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(geometry="geometry"))
    assert summary.refused == {"empty position": 2, "impossible position": 1}
    big_endian = pl.DataFrame(
        {"g": [shapely.to_wkb(points[0], byte_order=0), shapely.to_wkb(points[2], include_srid=True)]}
    )
    big_endian.write_parquet(tmp_path / "big.parquet")
    assert apply(town, tmp_path / "big.parquet", tmp_path / "o2.parquet", Secret.of(geometry="g")).reported == 2
    table[:1].to_crs(3857).to_parquet(tmp_path / "metres.parquet")
    with pytest.raises(InputError, match=r"EPSG:4326.*EPSG:3857"):
        apply(town, tmp_path / "metres.parquet", tmp_path / "o3.parquet", Secret.of(geometry="geometry"))
    pl.DataFrame({"g": [1.5]}).write_parquet(tmp_path / "text.parquet")
    with pytest.raises(InputError, match="well-known binary"):
        apply(town, tmp_path / "text.parquet", tmp_path / "o3.parquet", Secret.of(geometry="g"))


def test_drops_boxes_of_geometries(town, tmp_path):
    """GeoParquet's covering column says exactly where each row lies."""
    points = gpd.points_from_xy([12.401234, 12.43], [41.901234, 41.92])
    table = gpd.GeoDataFrame({"n": [1, 2]}, geometry=points, crs=4326)
    table.to_parquet(tmp_path / "t.parquet", write_covering_bbox=True)
    apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(geometry="geometry"))
    assert pl.read_parquet(tmp_path / "o.parquet").columns == ["n", "report", "report_lat", "report_lon"]
    assert b"41.901234" not in (tmp_path / "o.parquet").read_bytes()
    with pytest.raises(InputError, match=r"t.parquet: column geometry"):
        apply(town, tmp_path / "t.parquet", tmp_path / "p.parquet", Secret.of(id="n"))
    pl.read_parquet(tmp_path / "t.parquet").write_parquet(tmp_path / "plain.parquet")  # metadata are gone, boxes stay
    with pytest.raises(InputError, match=r"column bbox: .*boxes"):
        apply(town, tmp_path / "plain.parquet", tmp_path / "p.parquet", Secret.of(geometry="geometry"))


def test_protects_both_ends_of_a_trip(town, tmp_path):
    end_points = {
        name: gpd.points_from_xy([12.4, 12.43], [lat] * 2, crs=4326)
        for name, lat in (("from_", 41.9), ("there", 41.92))
    }
    trips = gpd.GeoDataFrame({"n": [1, 2], **end_points}, geometry="from_")
    trips.to_parquet(tmp_path / "t.parquet", write_covering_bbox=True)
    summary = apply(town, tmp_path / "t.parquet", tmp_path / "half.parquet", Secret.of(geometry="from_"))
    assert_mentions(summary.warnings[0], "column there", "not protected")
    secret = Secret.of(geometry="there")
    summary = apply(town, tmp_path / "half.parquet", tmp_path / "both.parquet", secret, ApplyOptions(prefix="end"))
    assert not summary.warnings
    reports = [f"{prefix}report{end}" for prefix in ("", "end_") for end in ("", "_lat", "_lon")]
    assert pl.read_parquet(tmp_path / "both.parquet").columns == ["n", *reports]
    trips["there"] = trips["there"].to_crs(3857)  # the metadata that say so do not stay
    trips.to_parquet(tmp_path / "m.parquet")
    with pytest.raises(InputError, match=r"column there: .*EPSG:3857"):
        apply(town, tmp_path / "m.parquet", tmp_path / "h.parquet", Secret.of(geometry="from_"))
    with pytest.raises(InputError, match=r"t.parquet: column nope: .*no such"):
        apply(town, tmp_path / "t.parquet", tmp_path / "h.parquet", Secret.of(geometry="nope"))


def test_paths_are_names_and_no_patterns(town, tmp_path):
    csv_of(tmp_path / "t1.csv", "n,lat,lon\nother,41.9,12.4\n")
    table = csv_of(tmp_path / "t[1].csv", "n,lat,lon\nmine,41.9,12.4\n")
    apply(town, table, tmp_path / "o[1].parquet", POSITION)
    assert pl.read_parquet((tmp_path / "o[1].parquet").read_bytes())["n"].to_list() == ["mine"]
    (tmp_path / "k=1").mkdir()
    pl.DataFrame({"n": ["a"]}).write_parquet(tmp_path / "k=1" / "t.parquet")
    apply(town, tmp_path / "k=1" / "t.parquet", tmp_path / "p.parquet", Secret.of(id="n"))
    assert "k" not in pl.read_parquet(tmp_path / "p.parquet", hive_partitioning=False).columns


def test_refuses_unfit_tables(town, tmp_path, privopt):
    pl.DataFrame({"id": ["a"], "many": [["a"]], "raw": [b"\xff"]}).write_parquet(tmp_path / "t.parquet")
    for secret in ("many", "raw"):
        with pytest.raises(InputError, match=f"column {secret}: expected"):
            apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(id=secret))
        with pytest.raises(InputError, match=f"column {secret}: expected"):
            apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(lat=secret, lon="id"))
    with pytest.raises(UsageError, match=r"column many: .*CSV"):
        apply(town, tmp_path / "t.parquet", tmp_path / "o.csv", Secret.of(id="id"))
    with pytest.raises(UsageError, match="got lat twice"):
        Secret.of(lat="lat", lon="lat")
    with pytest.raises(UsageError, match="lies in"):
        apply(town, tmp_path / "t.parquet", town / "o.parquet", Secret.of(id="id"))
    with pytest.raises(UsageError, match=r"max-snap.*nan"):
        apply(town, tmp_path / "t.parquet", tmp_path / "o.csv", POSITION, ApplyOptions(max_snap=float("nan")))


def test_seed_repeats_and_is_marked(town, tmp_path, privopt):
    table = csv_of(tmp_path / "t.csv", "lat,lon\n" + "41.9,12.4\n" * 500)
    for name in ("o.csv", "p.csv"):
        completed = privopt("apply", town, table, "--lat=lat", "--lon=lon", "--out", tmp_path / name, "--seed=4")
        assert completed.returncode == 0
        assert "warning: " in completed.stderr
        assert "seeded, not private" in completed.stderr
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "p.csv").read_bytes()
    assert pl.read_csv(tmp_path / "o.csv")["seeded"].all()
    unseeded_bytes = [
        apply(town, table, tmp_path / f"{n}.csv", POSITION) and (tmp_path / f"{n}.csv").read_text() for n in "ab"
    ]
    assert unseeded_bytes[0] != unseeded_bytes[1]
    assert "seeded" not in unseeded_bytes[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lat,other\n1,2\n", "column lon: expected"),
        (
            "lat,lon,report\n1,2,3\n",
            "column report: expected",
        ),
        ("lat,lon,lat\n1,2,3\n", "column lat: expected"),
        ("lat,lon\n41.9,12.4\n41.9,12.4,3\n", "row 3: expected"),
        (
            'lat,lon\n41.9,12.4\n"41.912345,12.4\n',
            "quotes are closed",
        ),
        ("lat,lon\r41.9,12.4\r", "end in \\r"),
        ('"lat"x",lon\r41.9,12.4\r', "end in \\r"),
        ("lat,lon\n", "no rows"),
        ("lat,lon\n91,0\n", "1 impossible position"),
        ("", "empty file"),
    ],
)
def test_bad_tables_exit_2_and_write_nothing(town, tmp_path, privopt, text, words):
    table = csv_of(tmp_path / "t.csv", text)
    completed = privopt("apply", town, table, "--lat", "lat", "--lon", "lon", "--out", tmp_path / "o.csv")
    assert completed.returncode == 2, completed.stderr
    assert words in completed.stderr
    assert "Traceback" not in completed.stderr
    assert "41.912345" not in completed.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_names_row_of_invalid_bytes(town, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"lat,lon,who\n41.9,12.4,x\n41.9,12.4,\xb8\n")
    with pytest.raises(InputError, match=r"t\.csv: row 3: .*0xb8"):
        apply(town, tmp_path / "t.csv", tmp_path / "o.csv", POSITION)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no more than that")
    with pytest.raises(InputError, match=r"t\.parquet: .*not Parquet"):
        apply(town, tmp_path / "t.parquet", tmp_path / "o.csv", POSITION)


def test_existing_files_stay_without_force(town, tmp_path, privopt):
    table = csv_of(tmp_path / "t.csv", "lat,lon\n41.9,12.4\n")
    (tmp_path / "o.csv").write_text("mine")
    arguments = ("apply", town, table, "--lat", "lat", "--lon", "lon", "--out", tmp_path / "o.csv")
    completed = privopt(*arguments)
    assert (completed.returncode, (tmp_path / "o.csv").read_text()) == (2, "mine")
    assert privopt(*arguments, "--force").returncode == 0
    assert (tmp_path / "o.csv").read_text().startswith("report,")
    completed = privopt(*arguments[:-1], tmp_path / "o.xlsx")
    assert (completed.returncode, ".csv or .parquet" in completed.stderr) == (2, True)
    completed = privopt("apply", town, table, "--lat", "lat", "--id", "lon", "--out", tmp_path / "n.csv")
    assert (completed.returncode, "--lat COLUMN --lon COLUMN" in completed.stderr) == (2, True)


def test_forged_release_exits_1(town, tmp_path, privopt):
    forged_folder = shutil.copytree(town, tmp_path / "forged")
    edit(forged_folder, lambda r: r["guarantee"].update(epsilon=0.1, epsilon_text="0.1"))
    table = csv_of(tmp_path / "t.csv", "lat,lon\n41.9,12.4\n")
    completed = privopt("apply", forged_folder, table, "--lat=lat", "--lon=lon", "--out", tmp_path / "o.csv")
    assert (completed.returncode, "does not hold" in completed.stderr) == (1, True)
    assert not (tmp_path / "o.csv").exists()


def test_release_without_matrix_exits_2(example, tmp_path, privopt):
    table = csv_of(tmp_path / "t.csv", "id\na\n")
    completed = privopt("apply", example("fl-linear"), table, "--id", "id", "--out", tmp_path / "o.csv")
    assert (completed.returncode, "mechanism.npz" in completed.stderr) == (2, True)


KILLED = """
import os, signal, sys
from pathlib import Path
from privopt_tables import apply as module
from privopt_tables.secret_columns import Secret

write = module.TableWriter.write

def killed(self, batch):
    write(self, batch)
    os.kill(os.getpid(), signal.SIGKILL)

module.TableWriter.write = killed
folder, table, out = map(Path, sys.argv[1:])
module.apply(folder, table, out, Secret.of(lat="lat", lon="lon"))
"""


@first_alone("ending", [".parquet", ".csv"])
def test_reports_of_a_killed_run_are_removed(town, tmp_path, ending):
    table = tmp_path / "t.csv"
    table.write_text("lat,lon\n41.9,12.4\n")
    monday, tuesday = (tmp_path / f"{day}{ending}" for day in ("monday", "tuesday"))
    killed = subprocess.run([sys.executable, "-c", KILLED, town, table, monday], env=os.environ)
    assert killed.returncode == -signal.SIGKILL
    leftover_files = [path for path in tmp_path.rglob("*") if path.is_file() and path != table]
    assert len(leftover_files) == 1  # what was drawn, in a hidden folder
    apply(town, table, tuesday, POSITION)
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv", tuesday.name}


def test_only_rows_of_users_are_reported(example, tmp_path):
    """lr-geo releases rows of its users alone: a position whose nearest record is no user's takes nobody else's."""
    folder = example("lr-geo")
    release = open_verified(folder)
    places = release.problem.data.records
    rows = [f"{lat},{lon}" for lat, lon in places.coordinates.tolist()]
    table = csv_of(tmp_path / "t.csv", "\n".join(["lat,lon", *rows, ""]))
    summary = apply(folder, table, tmp_path / "o.csv", POSITION)
    users = np.isin(places.ids, release.release.records)
    assert list(summary.refused.items()) == [("no row of its own", len(places) - users.sum())]
    reports = pl.read_csv(tmp_path / "o.csv")["report"]
    assert (reports.is_not_null().to_numpy() == users).all()
    assert set(reports.drop_nulls()) <= set(release.release.outputs.tolist())
    assert "rows of different" in summary.notes[0]


def test_position_is_sampled_as_nearest_record(town, solved_toy, privopt):
    for folder, option, value, known_ids in (
        (town, "--at", "41.9001,12.4099", "abcd"),
        (solved_toy, "--xy", "0.1,0", "p"),
    ):
        completed = privopt("sample", folder, option, value, "-n", 3)
        assert completed.returncode == 0, completed.stderr
        assert all(line[0] in known_ids for line in completed.stdout.splitlines())
        assert completed.stderr.count("is between records") == 1
        assert "from every record" not in completed.stderr
    assert "from every record" in privopt("sample", town, "--at", "12.4099,41.9001").stderr
    release = open_verified(town)
    samples = handle_of(release).draws_at((41.9001, 12.4099), degrees=True)(20_000)
    counts = [samples.count(name) for name in release.release.outputs]
    assert chisquare(counts, release.release.weights[1] / TOTAL * 20_000).pvalue > 1e-6
    for arguments, words in (
        (["--at", "95,12"], "impossible position"),
        (["--at", "nan,12"], "empty position"),
        (["--xy", "1,2"], "must be lat and lon"),
        (["--at", "1"], "two numbers"),
        (["--at", "41,12", "--input", "a"], "must be given one of --input"),
        ([], "must be given one of --input"),
    ):
        completed = privopt("sample", town, *arguments)
        assert (completed.returncode, completed.stdout) == (2, "")
        assert words in completed.stderr


def test_interrupt_leaves_nothing(town, tmp_path, monkeypatch):
    table = csv_of(tmp_path / "t.csv", "lat,lon\n41.9,12.4\n")

    def raise_interrupt(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.TableWriter, "finish", raise_interrupt)
    with pytest.raises(StoppedError, match="interrupted"):
        apply(town, table, tmp_path / "o.csv", POSITION)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize("value", [None, Decimal("1.12")])
def test_names_and_omits_unreadable_parquet_columns(town, tmp_path, value, is_nested):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    wide_decimal = pa.decimal256(76, 38)
    fares = pa.array([[value]], pa.list_(wide_decimal)) if is_nested else pa.array([value], wide_decimal)
    parquet.write_table(pa.table({"fare": fares, "n": [7], "lat": [41.9], "lon": [12.4]}), tmp_path / "t.parquet")
    summary = apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", POSITION)
    assert any("cannot be read" in warning and "fare" in warning for warning in summary.warnings)
    protected = pl.read_parquet(tmp_path / "o.parquet")
    assert protected["n"].to_list() == [7]
    assert not {"fare", "lat", "lon"} & {*protected.columns}


def test_refuses_parquet_without_a_readable_column(town, tmp_path):
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    parquet.write_table(pa.table({"lat": pa.array([Decimal(45)], pa.decimal256(76, 38))}), tmp_path / "t.parquet")
    with pytest.raises(InputError, match=r"t\.parquet"):
        apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", POSITION)
