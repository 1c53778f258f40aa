"""`apply`: a table in, reports out, drawn as certified; whole or not at all; what is refused is counted."""

import json
import os
import shutil
import signal
import subprocess
import sys

import geopandas as gpd
import numpy as np
import polars as pl
import pytest
import shapely
from helpers.grids import first_alone
from helpers.mended_sums import edit
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


def test_reports_are_as_likely_as_certified(town, tmp_path):
    rng = np.random.default_rng(3)
    record = rng.integers(0, 4, 60_000)
    places = np.array([place[1:] for place in POINTS])[record] + rng.normal(0, 1e-4, (60_000, 2))
    frame = pl.DataFrame({"row": np.arange(60_000), "lat": places[:, 0], "lon": places[:, 1]})
    frame.write_parquet(tmp_path / "t.parquet")
    done = apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", POSITION)
    assert done.to_json() == {"rows": 60_000, "reported": 60_000, "refused": {}}
    found = pl.read_parquet(tmp_path / "o.parquet")
    assert found["row"].to_list() == list(range(60_000))
    release = MatrixRelease.read(town, None)
    output = np.searchsorted(release.outputs, found["report"].to_numpy().astype(str))
    for row in range(4):
        counts = np.bincount(output[record == row], minlength=4)
        assert chisquare(counts, release.weights[row] / TOTAL * counts.sum()).pvalue > 1e-6


def test_other_columns_stay_to_the_letter_and_the_secret_goes(town, tmp_path):
    text = 'who,lat,code,lon,"a,\nb"\nx,41.9,007,12.4,1.10\n\n,41.92,,12.43,"say ""hi"""\n'
    apply(town, csv_of(tmp_path / "t.csv", text), tmp_path / "o.csv", POSITION)
    found = pl.read_csv(tmp_path / "o.csv", infer_schema=False)
    assert found.columns == ["who", "code", "a,\nb", "report", "report_lat", "report_lon"]
    assert found["code"].to_list() == ["007", None]
    assert found["a,\nb"].to_list() == ["1.10", 'say "hi"']
    place = {i: (a, o) for i, a, o in POINTS}
    for name, lat, lon in found.select("report", "report_lat", "report_lon").iter_rows():
        assert (float(lat), float(lon)) == place[name]


def test_rows_without_a_report_are_counted_by_reason(town, tmp_path, privopt, monkeypatch):
    """In several batches, so that counts add up and rows keep their order."""
    bad = {"empty position": [",", "41.9,", " ,12.4"], "impossible position": ["91,12", "41,-181", "x,12.4", "inf,12"]}
    bad["too far"] = ["45,12.4"]
    rng = np.random.default_rng(0)
    rows, wanted = [], {"empty position": 0, "impossible position": 0, "too far": 0}
    for number in range(5_000):
        if rng.random() < 0.03:
            reason = str(rng.choice(list(bad)))
            wanted[reason] += 1
            rows.append(f"{number},{rng.choice(bad[reason])},bad")
        else:
            rows.append(f"{number},41.9,12.4,good")
    table = csv_of(tmp_path / "t.csv", "n,lat,lon,is\n" + "\n".join(rows) + "\n")
    done = privopt(
        "apply", town, table, "--lat=lat", "--lon=lon", "--max-snap=5", "--out", tmp_path / "o.csv", "--json"
    )
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"rows": 5_000, "reported": 5_000 - sum(wanted.values()), "refused": wanted}
    for reason, count in wanted.items():
        assert f"{count:,} {reason}" in done.stderr
    monkeypatch.setattr(files, "SAMPLE_ROWS", 100)
    monkeypatch.setattr(files, "BATCH_ROWS", 700)
    again = apply(town, table, tmp_path / "o.parquet", POSITION, ApplyOptions(max_snap=5.0))
    assert again.refused == wanted
    for found in (pl.read_csv(tmp_path / "o.csv"), pl.read_parquet(tmp_path / "o.parquet")):
        assert found["n"].cast(pl.Int64).to_list() == list(range(5_000))
        assert (found["report"].is_null() == (found["is"] == "bad")).all()
        assert (found["report_lat"].is_null() == (found["is"] == "bad")).all()


def test_planar_records_take_km(solved_toy, tmp_path):
    table = csv_of(tmp_path / "t.csv", "e,n\n0.1,0.1\n2.9,0\n")
    done = apply(solved_toy, table, tmp_path / "o.csv", Secret.of(x="e", y="n"))
    assert pl.read_csv(tmp_path / "o.csv").columns == ["report", "report_x", "report_y"]
    assert "nearest record" in done.notes[0]
    with pytest.raises(UsageError, match="must be x and y"):
        apply(solved_toy, table, tmp_path / "p.csv", Secret.of(lat="e", lon="n"))
    with pytest.raises(UsageError, match="max-snap"):
        apply(solved_toy, table, tmp_path / "p.csv", Secret.of(id="e"), ApplyOptions(max_snap=1.0))


def test_geoparquet_in_any_form_of_binary(town, tmp_path):
    points = [shapely.Point(12.43, 41.92), None, shapely.Point(12.4, 41.91, 7.0), shapely.LineString([(0, 0), (1, 1)])]
    points += [shapely.Point(), shapely.Point(12.4, 41.9)]
    table = gpd.GeoDataFrame({"n": range(6)}, geometry=points, crs=4326)
    table.to_parquet(tmp_path / "t.parquet")
    done = apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(geometry="geometry"))
    assert done.refused == {"empty position": 2, "impossible position": 1}
    big = pl.DataFrame({"g": [shapely.to_wkb(points[0], byte_order=0), shapely.to_wkb(points[2], include_srid=True)]})
    big.write_parquet(tmp_path / "big.parquet")
    assert apply(town, tmp_path / "big.parquet", tmp_path / "o2.parquet", Secret.of(geometry="g")).reported == 2
    table[:1].to_crs(3857).to_parquet(tmp_path / "metres.parquet")
    with pytest.raises(InputError, match=r"expected EPSG:4326.*, got .*points in EPSG:3857"):
        apply(town, tmp_path / "metres.parquet", tmp_path / "o3.parquet", Secret.of(geometry="geometry"))
    pl.DataFrame({"g": [1.5]}).write_parquet(tmp_path / "text.parquet")
    with pytest.raises(InputError, match="well-known binary"):
        apply(town, tmp_path / "text.parquet", tmp_path / "o3.parquet", Secret.of(geometry="g"))


def test_boxes_around_geometries_go_with_them(town, tmp_path):
    """GeoParquet's covering column says exactly where each row lies."""
    points = gpd.points_from_xy([12.401234, 12.43], [41.901234, 41.92])
    table = gpd.GeoDataFrame({"n": [1, 2]}, geometry=points, crs=4326)
    table.to_parquet(tmp_path / "t.parquet", write_covering_bbox=True)
    apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(geometry="geometry"))
    assert pl.read_parquet(tmp_path / "o.parquet").columns == ["n", "report", "report_lat", "report_lon"]
    assert b"41.901234" not in (tmp_path / "o.parquet").read_bytes()
    with pytest.raises(InputError, match=r"t.parquet: column geometry: expected .*, got geometries that would stay"):
        apply(town, tmp_path / "t.parquet", tmp_path / "p.parquet", Secret.of(id="n"))
    pl.read_parquet(tmp_path / "t.parquet").write_parquet(tmp_path / "plain.parquet")  # metadata are gone, boxes stay
    with pytest.raises(InputError, match=r"column bbox: expected .*, got boxes"):
        apply(town, tmp_path / "plain.parquet", tmp_path / "p.parquet", Secret.of(geometry="geometry"))


def test_both_ends_of_a_trip_as_geometries(town, tmp_path):
    ends = {
        name: gpd.points_from_xy([12.4, 12.43], [lat] * 2, crs=4326)
        for name, lat in (("from_", 41.9), ("there", 41.92))
    }
    trips = gpd.GeoDataFrame({"n": [1, 2], **ends}, geometry="from_")
    trips.to_parquet(tmp_path / "t.parquet", write_covering_bbox=True)
    done = apply(town, tmp_path / "t.parquet", tmp_path / "half.parquet", Secret.of(geometry="from_"))
    assert "column there stays as it is and is of geometries, which nothing protects" in done.warnings[0]
    secret = Secret.of(geometry="there")
    done = apply(town, tmp_path / "half.parquet", tmp_path / "both.parquet", secret, ApplyOptions(prefix="end"))
    assert not done.warnings
    reports = [f"{before}report{end}" for before in ("", "end_") for end in ("", "_lat", "_lon")]
    assert pl.read_parquet(tmp_path / "both.parquet").columns == ["n", *reports]
    trips["there"] = trips["there"].to_crs(3857)  # the metadata that say so do not stay
    trips.to_parquet(tmp_path / "m.parquet")
    with pytest.raises(InputError, match=r"column there: expected .*, got points in EPSG:3857"):
        apply(town, tmp_path / "m.parquet", tmp_path / "h.parquet", Secret.of(geometry="from_"))
    with pytest.raises(InputError, match=r"t.parquet: column nope: expected one of n, from_.*, got no such column"):
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


def test_what_a_table_cannot_be_is_said(town, tmp_path, privopt):
    pl.DataFrame({"id": ["a"], "many": [["a"]], "raw": [b"\xff"]}).write_parquet(tmp_path / "t.parquet")
    for secret in ("many", "raw"):
        with pytest.raises(InputError, match=f"column {secret}: expected .*, got values of type"):
            apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(id=secret))
        with pytest.raises(InputError, match=f"column {secret}: expected .*, got values of type"):
            apply(town, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(lat=secret, lon="id"))
    with pytest.raises(UsageError, match=r"column many: got values of type .*, which CSV cannot hold"):
        apply(town, tmp_path / "t.parquet", tmp_path / "o.csv", Secret.of(id="id"))
    with pytest.raises(UsageError, match="two columns, got lat twice"):
        Secret.of(lat="lat", lon="lat")
    with pytest.raises(UsageError, match="lies in"):
        apply(town, tmp_path / "t.parquet", town / "o.parquet", Secret.of(id="id"))
    with pytest.raises(UsageError, match=r"max-snap must be .*, got nan"):
        apply(town, tmp_path / "t.parquet", tmp_path / "o.csv", POSITION, ApplyOptions(max_snap=float("nan")))


def test_a_seed_repeats_and_marks(town, tmp_path, privopt):
    table = csv_of(tmp_path / "t.csv", "lat,lon\n" + "41.9,12.4\n" * 500)
    for out in ("o.csv", "p.csv"):
        done = privopt("apply", town, table, "--lat=lat", "--lon=lon", "--out", tmp_path / out, "--seed=4", "--quiet")
        assert done.returncode == 0
        assert "warning: " in done.stderr
        assert "seeded, not private" in done.stderr
    assert (tmp_path / "o.csv").read_bytes() == (tmp_path / "p.csv").read_bytes()
    assert pl.read_csv(tmp_path / "o.csv")["seeded"].all()
    fresh = [apply(town, table, tmp_path / f"{n}.csv", POSITION) and (tmp_path / f"{n}.csv").read_text() for n in "ab"]
    assert fresh[0] != fresh[1]
    assert "seeded" not in fresh[0]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lat,other\n1,2\n", "column lon: expected one of lat, other, got no such column"),
        (
            "lat,lon,report\n1,2,3\n",
            "column report: expected no such column (reports go there, or under a prefix), got a column of that name",
        ),
        ("lat,lon,lat\n1,2,3\n", "column lat: expected columns that differ in name, got this name twice"),
        ("lat,lon\n41.9,12.4\n41.9,12.4,3\n", "row 3: expected 2 fields, as the header has, got 3 fields"),
        (
            'lat,lon\n41.9,12.4\n"41.912345,12.4\n',
            "row 3: expected fields whose quotes are closed, got text that is not a row",
        ),
        ("lat,lon\r41.9,12.4\r", "expected lines that end in \\n or \\r\\n, got lines that end in \\r"),
        ('"lat"x",lon\r41.9,12.4\r', "expected lines that end in \\n or \\r\\n, got lines that end in \\r"),
        ("lat,lon\n", "no row could be reported: it has no rows"),
        ("lat,lon\n91,0\n", "no row could be reported: 1 impossible position"),
        ("", "got an empty file"),
    ],
)
def test_bad_tables_end_with_2_and_write_nothing(town, tmp_path, privopt, text, words):
    table = csv_of(tmp_path / "t.csv", text)
    done = privopt("apply", town, table, "--lat", "lat", "--lon", "lon", "--out", tmp_path / "o.csv")
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert "41.912345" not in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_bytes_that_are_no_text_are_named_by_row(town, tmp_path):
    (tmp_path / "t.csv").write_bytes(b"lat,lon,who\n41.9,12.4,x\n41.9,12.4,\xb8\n")
    with pytest.raises(InputError, match=r"t\.csv: row 3: expected text in UTF-8.*, got byte 0xb8"):
        apply(town, tmp_path / "t.csv", tmp_path / "o.csv", POSITION)
    (tmp_path / "t.parquet").write_bytes(b"PAR1 no more than that")
    with pytest.raises(InputError, match=r"t\.parquet: expected .*, got a file that is not Parquet"):
        apply(town, tmp_path / "t.parquet", tmp_path / "o.csv", POSITION)


def test_what_is_there_stays_without_force(town, tmp_path, privopt):
    table = csv_of(tmp_path / "t.csv", "lat,lon\n41.9,12.4\n")
    (tmp_path / "o.csv").write_text("mine")
    given = ("apply", town, table, "--lat", "lat", "--lon", "lon", "--out", tmp_path / "o.csv")
    done = privopt(*given)
    assert (done.returncode, (tmp_path / "o.csv").read_text()) == (2, "mine")
    assert privopt(*given, "--force").returncode == 0
    assert (tmp_path / "o.csv").read_text().startswith("report,")
    done = privopt(*given[:-1], tmp_path / "o.xlsx")
    assert (done.returncode, "must be .csv or .parquet" in done.stderr) == (2, True)
    done = privopt("apply", town, table, "--lat", "lat", "--id", "lon", "--out", tmp_path / "n.csv")
    assert (done.returncode, "must be one of id; lat and lon" in done.stderr) == (2, True)


def test_a_release_that_does_not_hold_ends_with_1(town, tmp_path, privopt):
    forged = shutil.copytree(town, tmp_path / "forged")
    edit(forged, lambda r: r["guarantee"].update(epsilon=0.1, epsilon_text="0.1"))
    table = csv_of(tmp_path / "t.csv", "lat,lon\n41.9,12.4\n")
    done = privopt("apply", forged, table, "--lat=lat", "--lon=lon", "--out", tmp_path / "o.csv")
    assert (done.returncode, "does not hold" in done.stderr) == (1, True)
    assert not (tmp_path / "o.csv").exists()


def test_a_release_without_a_matrix_ends_with_2(example, tmp_path, privopt):
    table = csv_of(tmp_path / "t.csv", "id\na\n")
    done = privopt("apply", example("fl-linear"), table, "--id", "id", "--out", tmp_path / "o.csv")
    assert (done.returncode, "mechanism.npz" in done.stderr) == (2, True)


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
def test_reports_that_a_killed_run_drew_go_with_the_next_run_whatever_it_writes(town, tmp_path, ending):
    table = tmp_path / "t.csv"
    table.write_text("lat,lon\n41.9,12.4\n")
    monday, tuesday = (tmp_path / f"{day}{ending}" for day in ("monday", "tuesday"))
    ended = subprocess.run([sys.executable, "-c", KILLED, town, table, monday], env=os.environ)
    assert ended.returncode == -signal.SIGKILL
    left = [path for path in tmp_path.rglob("*") if path.is_file() and path != table]
    assert len(left) == 1  # what was drawn, in a hidden folder
    apply(town, table, tuesday, POSITION)
    assert {path.name for path in tmp_path.iterdir()} == {"t.csv", tuesday.name}


def test_a_users_rows_are_what_positions_snap_to(example, tmp_path):
    """lr-geo releases rows of its users alone: a position whose nearest record is no user's takes nobody else's."""
    folder = example("lr-geo")
    opened = open_verified(folder)
    places = opened.problem.data.records
    rows = [f"{lat},{lon}" for lat, lon in places.coordinates.tolist()]
    table = csv_of(tmp_path / "t.csv", "\n".join(["lat,lon", *rows, ""]))
    done = apply(folder, table, tmp_path / "o.csv", POSITION)
    users = np.isin(places.ids, opened.release.records)
    assert done.refused == {"no row of its own": len(places) - users.sum()}
    found = pl.read_csv(tmp_path / "o.csv")["report"]
    assert (found.is_not_null().to_numpy() == users).all()
    assert set(found.drop_nulls()) <= set(opened.release.outputs.tolist())
    assert "nothing is promised between rows of different users" in done.notes[0]


def test_a_position_is_sampled_as_its_nearest_record(town, solved_toy, privopt):
    for folder, option, value, known in ((town, "--at", "41.9001,12.4099", "abcd"), (solved_toy, "--xy", "0.1,0", "p")):
        done = privopt("sample", folder, option, value, "-n", 3)
        assert done.returncode == 0, done.stderr
        assert all(line[0] in known for line in done.stdout.splitlines())
        assert done.stderr.count("what holds is between records") == 1
        assert "far from every record" not in done.stderr
    assert "far from every record" in privopt("sample", town, "--at", "12.4099,41.9001").stderr
    opened = open_verified(town)
    drawn = handle_of(opened).draws_at((41.9001, 12.4099), degrees=True)(20_000)
    counts = [drawn.count(name) for name in opened.release.outputs]
    assert chisquare(counts, opened.release.weights[1] / TOTAL * 20_000).pvalue > 1e-6
    for arguments, words in (
        (["--at", "95,12"], "impossible position"),
        (["--at", "nan,12"], "empty position"),
        (["--xy", "1,2"], "must be lat and lon"),
        (["--at", "1"], "two numbers"),
        (["--at", "41,12", "--input", "a"], "must be given one of --input"),
        ([], "must be given one of --input"),
    ):
        done = privopt("sample", town, *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert words in done.stderr


def test_an_interrupt_leaves_nothing(town, tmp_path, monkeypatch):
    table = csv_of(tmp_path / "t.csv", "lat,lon\n41.9,12.4\n")

    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.TableWriter, "finish", interrupted)
    with pytest.raises(StoppedError, match="interrupted"):
        apply(town, table, tmp_path / "o.csv", POSITION)
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]
