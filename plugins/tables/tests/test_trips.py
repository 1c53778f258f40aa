"""Tables as people have them: several positions a row, blanks, a file too many, a disk too small."""

import json
import sqlite3
import struct
from contextlib import closing

import pandas as pd
import polars as pl
import pytest
from helpers.mentions import assert_mentions

import privopt as po
from privopt.declare import table_files as files
from privopt.errors import DoesNotHoldError, InputError, StoppedError, UsageError
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions
from privopt_tables.secret_columns import Secret

NODES = {"node": ["a", "b", "c"], "north": [41.9, 41.9, 41.91], "east": [12.4, 12.41, 12.4]}
TRIPS = {"trip": [1, 2], "start_lat": [41.9, 41.9], "start_lon": [12.4, 12.41], "endLat": [41.91, 41.9]}
TRIPS |= {"endLng": [12.4, 12.4], "rider": ["ann", "bob"], "platform": [1, 2]}
BOTH = ["trip", "rider", "platform", "report", "report_lat", "report_lon"]
BOTH += ["end_report", "end_report_lat", "end_report_lon"]


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    places = po.records(NODES, id="node", lat="north", lon="east")
    solved = po.solve("exponential", po.metric_problem(places, distance="haversine", epsilon="2/km"))
    return po.open(solved.save(tmp_path_factory.mktemp("town") / "out"))


def message_of(line):
    return str(line.message)


def test_warns_of_and_protects_the_other_end(release, tmp_path):
    book = tmp_path / "rides.ledger"
    with pytest.warns(po.PrivoptWarning) as warnings:
        half = release.apply(
            pl.DataFrame(TRIPS), lat="start_lat", lon="start_lon", ledger=book, subject="rider", sticky=True
        )
    assert_mentions("".join(map(message_of, warnings)), "columns endLat, endLng", "like positions")
    with pytest.raises(InputError, match=r"column report: .*a prefix"):
        release.apply(half, lat="endLat", lon="endLng")
    with pytest.raises(UsageError, match=r"prefix must be"):
        release.apply(half, lat="endLat", lon="endLng", prefix=" ")
    with pytest.warns(po.PrivoptWarning) as warnings:  # of the ledger alone
        result = release.apply(
            half, lat="endLat", lon="endLng", prefix="end", ledger=book, subject="rider", sticky=True
        )
    assert not [line for line in warnings if "named like" in message_of(line)]
    assert result.columns == [*BOTH[:6], "sticky", *BOTH[6:], "end_sticky"]
    assert po.Ledger(book).account("ann").spent == 4
    for column in ("report", "end_report"):  # each column of reports has marks of its own
        with pytest.raises(InputError, match=f"column {column[:-6]}sticky: expected"):
            release.estimate(result, column=column)
        assert release.estimate(result, column=column, subject="rider").n == 2
    assert release.estimate(result.drop("end_sticky"), column="end_report").n == 2
    renamed = result.select("rider", "sticky", "end_report")
    with pytest.raises(InputError, match=r"column sticky: expected"):
        release.estimate(renamed, column="end_report")


def test_warns_of_index_named_like_positions(release):
    frame = pd.DataFrame({"id": ["a", "b"]}, index=pd.Index([41.9, 41.91], name="latitude"))
    with pytest.warns(po.PrivoptWarning, match=r"column latitude stays.*positions"):
        release.apply(frame, id="id")


def test_warns_of_columns_named_like_places(release):
    bikes = ["start_station_name", "start_station_id", "end_station_name", "end_station_id", "home_address", "postcode"]
    harmless_columns = ["ride_id", "rideable_type", "started_at", "stop_time", "platform", "email_address"]
    table = {"id": ["a", "b"]} | {name: [1, 2] for name in [*bikes, *harmless_columns]}
    with pytest.warns(po.PrivoptWarning) as warnings:
        release.apply(table, id="id")
    (line,) = (text for text in map(message_of, warnings) if "named like" in text)
    assert_mentions(line, f"columns {', '.join(bikes)} stay", "like places")
    with pytest.warns(po.PrivoptWarning, match=r"column end_station_id stays.*places"):
        release.apply({"start_station_id": ["a"], "end_station_id": ["b"]}, id="start_station_id")


WHERE = [{"x": 12.4, "y": 41.9}, {"x": 12.41, "y": 41.9}]
BOXES = [{"minX": 12.4, "miny": 41.9, "maxx": 12.4, "maxy": 41.9}] * 2


def test_warns_of_structures_and_copies(release):
    table = {"lat": [41.9, 41.91], "lon": [12.4, 12.4], "there": WHERE, "around": BOXES, "ends": [WHERE, WHERE]}
    table |= {"note": [{"mood": "good"}] * 2, "north": [41.9, 41.91], "once": [12.4, 12.4], "n": [1, 2]}
    for frame in (pl.DataFrame(table), pd.DataFrame(table).drop(columns="ends")):
        with pytest.warns(po.PrivoptWarning) as warnings:
            release.apply(frame, lat="lat", lon="lon")
        lines = "".join(map(message_of, warnings))
        assert_mentions(lines, "column north stays", "equal to")  # once: of any column
        end_fields = [] if isinstance(frame, pd.DataFrame) else ["ends.x", "ends.y"]
        fields = ["there.x", "there.y", "around.minX", "around.miny", "around.maxx", "around.maxy", *end_fields]
        assert_mentions(lines, f"columns {', '.join(fields)} stay", "like positions")


@pytest.mark.parametrize("rows", [1, 1000])
def test_drops_a_copy_of_geometries(release, tmp_path, monkeypatch, rows):
    points = [struct.pack("<BIdd", 1, 1, east, 41.9) for east in (12.4, 12.41, 12.4)]
    table = {"geometry": points, "raw": points, "other": [*points[:2], points[1]]}
    pl.DataFrame(table).write_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(files, "BATCH_ROWS", rows)
    summary = apply(
        release.opened.folder, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(geometry="geometry")
    )
    assert summary.dropped[0] == "raw"
    assert any("column raw was" in line for line in summary.warnings)


def test_table_is_not_written_over_itself(release, tmp_path, privopt):
    table = tmp_path / "t.csv"
    table.write_text("id\na\n")
    (tmp_path / "link").symlink_to(tmp_path)
    completed = privopt(
        "apply", release.opened.folder, table, "--id=id", "--force", "--out", tmp_path / "link" / "t.csv"
    )
    assert (completed.returncode, table.read_text()) == (2, "id\na\n")
    assert "not overwritten" in completed.stderr


def test_states_charges_without_reports(release, tmp_path, privopt):
    table, book = tmp_path / "t.csv", tmp_path / "b.ledger"
    table.write_text("id,who\nA,ann\nB,bob\nC,\n")
    arguments = ("apply", release.opened.folder, table, "--id=id", "--ledger", book, "--subject=who")
    completed = privopt(*arguments, "--out", tmp_path / "o.csv")
    assert completed.returncode == 2
    assert_mentions(completed.stderr, "2 unknown id", "1 no subject", "charged all the same: 2 rows")
    with pytest.raises(UsageError, match="same: 2 rows"):
        release.apply(pl.read_csv(table), id="id", ledger=book, subject="who")
    with po.Ledger(book) as ledger:
        assert [account.reports for account in ledger.accounts()] == [2, 2]


def test_changed_ledger_is_refused_in_memory(release, tmp_path):
    book, rides = tmp_path / "b.ledger", {"id": ["a"] * 9, "who": ["ann"] * 9}
    release.apply(rides, id="id", ledger=book, subject="who")
    with closing(sqlite3.connect(book)) as connection, connection:
        connection.execute("UPDATE entries SET time = time - 1 WHERE number = 5")
    with pytest.raises(DoesNotHoldError, match="entry 5"):
        release.apply(rides, id="id", ledger=str(book), subject="who")


def test_row_of_commas_is_a_row(release, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SAMPLE_ROWS", 2)
    monkeypatch.setattr(files, "BATCH_ROWS", 3)
    text = 'n, id ,note\r\n1,a,"x\r\n\r\ny"\r\n,,\r\n\r\n2,b,\r\n3,a,""\r\n,,\r\n4,a,\r\n\r\n,,\r\n\r\n'
    (tmp_path / "t.csv").write_bytes(text.encode())
    summary = apply(release.opened.folder, tmp_path / "t.csv", tmp_path / "o.csv", Secret.of(id="id"))
    assert summary.to_json() == {"rows": 7, "reported": 4, "refused": {"unknown id": 3}}
    result = pl.read_csv(tmp_path / "o.csv", infer_schema=False)
    assert result["n"].to_list() == ["1", None, "2", "3", None, "4", None]
    assert result["note"].to_list()[0] == "x\r\n\r\ny"


def test_header_with_blanks_is_read_equally(release, tmp_path, privopt):
    (tmp_path / "p.csv").write_text("id, lat, lon\na,41.9,12.4\nb,41.9,12.41\nc,41.91,12.4\n")
    solved = privopt("init", "exponential", "--points", tmp_path / "p.csv", "--out", tmp_path / "p.toml")
    assert solved.returncode == 0, solved.stderr
    assert po.solve("exponential", tmp_path / "p.toml").opened.release.records.tolist() == ["a", "b", "c"]
    output_folder = tmp_path / "o.csv"
    completed = privopt(
        "apply", release.opened.folder, tmp_path / "p.csv", "--lat=lat", "--lon=lon", "--out", output_folder
    )
    assert completed.returncode == 0, completed.stderr
    assert pl.read_csv(output_folder).columns == ["id", "report", "report_lat", "report_lon"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_full_disk_is_one_line(release, tmp_path, monkeypatch, ending):
    def raise_full_disk(*arguments, **options):
        error = OSError(28, "No space left on device")
        raise pl.exceptions.ComputeError(str(error)) if ending == "parquet" else error

    (tmp_path / "t.csv").write_text("id\na\n")
    monkeypatch.setattr(pl.DataFrame, f"write_{ending}", raise_full_disk)
    with pytest.raises(StoppedError, match="No space left"):
        apply(release.opened.folder, tmp_path / "t.csv", tmp_path / f"o.{ending}", Secret.of(id="id"))
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_spellings_of_a_name_are_one_sender(release, tmp_path):
    reports = pl.DataFrame({"report": ["a", "b", "c"], "who": ["Zo\u00eb", " Zoe\u0308 ", "7"]})
    with pytest.warns(po.PrivoptWarning, match="1 report omitted"):
        assert release.estimate(reports, subject="who").n == 2
    release.apply(reports.rename({"report": "id"}), id="id", ledger=tmp_path / "b.ledger", subject="who")
    with po.Ledger(tmp_path / "b.ledger") as ledger:
        assert [account.reports for account in ledger.accounts()] == [1, 2]


def test_distant_positions_are_told_only_to_the_owner(release, tmp_path, privopt):
    rows = "41.9,12.4\n12.4,41.9\n0,0\n41.95,12.4\n"  # one swapped, one missing, one 4 km off
    (tmp_path / "t.csv").write_text(f"lat,lon\n{rows}")
    arguments = ("apply", release.opened.folder, tmp_path / "t.csv", "--lat=lat", "--lon=lon", "--json")
    completed = privopt(*arguments, "--out", tmp_path / "o.csv")
    first, *_ = completed.stderr.splitlines()
    assert_mentions(first, "o.csv", "OUTSIDE THE MAP", "3 of 4 positions", "1.465 km")
    assert "(the farthest 4,82" in completed.stderr
    assert json.loads(completed.stdout) == {"rows": 4, "reported": 4, "refused": {}}
    completed = privopt(*arguments, "--max-snap=5", "--out", tmp_path / "p.csv")
    assert "p.csv: 1 of" in completed.stderr
    near_table = pl.DataFrame({"lat": [41.9, 41.905], "lon": [12.4, 12.41], "who": ["ann", "ann"]})
    assert release.apply(near_table, lat="lat", lon="lon").height == 2  # warnings are errors here
    far_table = pl.DataFrame({"lat": [0.0, 0.0], "lon": [0.0, 0.0], "who": ["ann", "ann"]})
    with pytest.warns(po.PrivoptWarning) as warnings:
        release.apply(far_table, lat="lat", lon="lon", ledger=tmp_path / "b.ledger", subject="who", sticky=True)
    assert any("2 of 2 positions" in line for line in map(message_of, warnings))


def test_drops_columns_that_state_the_position(release, tmp_path):
    table = pl.DataFrame({"lat": [41.901234, 41.9], "lon": [12.401234, 12.41]}).with_columns(
        note=pl.format("met at {}, {}", "lat", "lon"), spot=pl.format("POINT ({} {})", "lon", "lat"), fare=pl.lit(3)
    )
    table.write_csv(tmp_path / "t.csv")
    secret = Secret.of(lat="lat", lon="lon")
    summary = apply(release.opened.folder, tmp_path / "t.csv", tmp_path / "o.csv", secret, ApplyOptions(keep=("note",)))
    assert summary.to_json()["dropped"] == ["spot"]
    assert pl.read_csv(tmp_path / "o.csv").columns[:2] == ["note", "fare"]
    assert any("note stays" in line for line in summary.warnings)
    with pytest.warns(po.PrivoptWarning) as warnings:
        result = release.apply(table, lat="lat", lon="lon", keep=["note"])
    assert "spot was dropped" in "".join(str(warning.message) for warning in warnings)
    assert result.columns[:2] == ["note", "fare"]


def test_ids_written_as_decimals_by_pandas(tmp_path):
    records = po.records(
        {"id": ["1", "132", "138"], "lat": [45.0, 45.1, 45.2], "lon": [7.0, 7.0, 7.0]}, id="id", lat="lat", lon="lon"
    )
    problem = po.metric_problem(records, distance="haversine", epsilon="1/km")
    table = pd.DataFrame({"n": [1, 2, 3], "id": ["1.0", "132.0", "138.00"]})
    with pytest.warns(po.PrivoptWarning):
        result = po.solve("exponential", problem).apply(table, id="id", seed=1)
    assert result["report"].notna().all()
