"""Tables as people have them: several positions a row, blanks, a file too many, a disk too small."""

import json
import sqlite3
import struct
from contextlib import closing

import pandas as pd
import polars as pl
import pytest

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
    made = po.solve("exponential", po.metric_problem(places, distance="haversine", epsilon="2/km"))
    return po.open(made.save(tmp_path_factory.mktemp("town") / "out"))


def said(line):
    return str(line.message)


def test_the_other_end_of_a_trip_is_warned_of_and_protected_beside_the_first(release, tmp_path):
    book = tmp_path / "rides.ledger"
    with pytest.warns(po.PrivoptWarning) as told:
        half = release.apply(
            pl.DataFrame(TRIPS), lat="start_lat", lon="start_lon", ledger=book, subject="rider", sticky=True
        )
    assert "columns endLat, endLng stay as they are and are named like positions" in "".join(map(said, told))
    with pytest.raises(
        InputError, match=r"column report: expected no such column .*a prefix.*, got a column of that name"
    ):
        release.apply(half, lat="endLat", lon="endLng")
    with pytest.raises(UsageError, match=r"prefix must be .*, got nothing"):
        release.apply(half, lat="endLat", lon="endLng", prefix=" ")
    with pytest.warns(po.PrivoptWarning) as told:  # of the ledger alone
        both = release.apply(half, lat="endLat", lon="endLng", prefix="end", ledger=book, subject="rider", sticky=True)
    assert not [line for line in told if "named like" in said(line)]
    assert both.columns == [*BOTH[:6], "sticky", *BOTH[6:], "end_sticky"]
    assert po.Ledger(book).account("ann").spent == 4
    for column in ("report", "end_report"):  # each column of reports has marks of its own
        with pytest.raises(InputError, match=rf"column {column[:-6]}sticky: expected .*, got reports that repeat"):
            release.estimate(both, column=column)
        assert release.estimate(both, column=column, subject="rider").n == 2
    assert release.estimate(both.drop("end_sticky"), column="end_report").n == 2
    renamed = both.select("rider", "sticky", "end_report")
    with pytest.raises(InputError, match=r"column sticky: expected .*, got reports that repeat"):
        release.estimate(renamed, column="end_report")


def test_an_index_that_is_named_like_positions_is_warned_of(release):
    frame = pd.DataFrame({"id": ["a", "b"]}, index=pd.Index([41.9, 41.91], name="latitude"))
    with pytest.warns(po.PrivoptWarning, match="column latitude stays as it is and is named like positions"):
        release.apply(frame, id="id")


def test_columns_that_tell_the_place_in_words_are_warned_of(release):
    bikes = ["start_station_name", "start_station_id", "end_station_name", "end_station_id", "home_address", "postcode"]
    plain = ["ride_id", "rideable_type", "started_at", "stop_time", "platform", "email_address"]
    table = {"id": ["a", "b"]} | {name: [1, 2] for name in [*bikes, *plain]}
    with pytest.warns(po.PrivoptWarning) as told:
        release.apply(table, id="id")
    (line,) = map(said, told)
    assert f"columns {', '.join(bikes)} stay as they are and are named like places" in line
    with pytest.warns(po.PrivoptWarning, match="column end_station_id stays as it is and is named like places"):
        release.apply({"start_station_id": ["a"], "end_station_id": ["b"]}, id="start_station_id")


WHERE = [{"x": 12.4, "y": 41.9}, {"x": 12.41, "y": 41.9}]
BOXES = [{"minX": 12.4, "miny": 41.9, "maxx": 12.4, "maxy": 41.9}] * 2


def test_fields_of_structures_and_copies_of_the_secret_are_warned_of(release):
    table = {"lat": [41.9, 41.91], "lon": [12.4, 12.4], "there": WHERE, "around": BOXES, "ends": [WHERE, WHERE]}
    table |= {"note": [{"mood": "good"}] * 2, "north": [41.9, 41.91], "once": [12.4, 12.4], "n": [1, 2]}
    for frame in (pl.DataFrame(table), pd.DataFrame(table).drop(columns="ends")):
        with pytest.warns(po.PrivoptWarning) as told:
            release.apply(frame, lat="lat", lon="lon")
        lines = "".join(map(said, told))
        assert "column north stays as it is and is equal to what is protected" in lines  # once: of any column
        ends = [] if isinstance(frame, pd.DataFrame) else ["ends.x", "ends.y"]
        fields = ["there.x", "there.y", "around.minX", "around.miny", "around.maxx", "around.maxy", *ends]
        assert f"columns {', '.join(fields)} stay as they are and are named like positions" in lines


@pytest.mark.parametrize("rows", [1, 1000])
def test_drops_a_copy_of_geometries_in_any_parts(release, tmp_path, monkeypatch, rows):
    points = [struct.pack("<BIdd", 1, 1, east, 41.9) for east in (12.4, 12.41, 12.4)]
    table = {"geometry": points, "raw": points, "other": [*points[:2], points[1]]}
    pl.DataFrame(table).write_parquet(tmp_path / "t.parquet")
    monkeypatch.setattr(files, "BATCH_ROWS", rows)
    done = apply(release.opened.folder, tmp_path / "t.parquet", tmp_path / "o.parquet", Secret.of(geometry="geometry"))
    assert done.dropped[0] == "raw"
    assert [line for line in done.warnings if "column raw was dropped" in line]


def test_a_table_is_not_written_over_itself(release, tmp_path, privopt):
    table = tmp_path / "t.csv"
    table.write_text("id\na\n")
    (tmp_path / "link").symlink_to(tmp_path)
    done = privopt("apply", release.opened.folder, table, "--id=id", "--force", "--out", tmp_path / "link" / "t.csv")
    assert (done.returncode, table.read_text()) == (2, "id\na\n")
    assert "is read, so nothing is written over it" in done.stderr


def test_what_was_charged_for_nothing_is_said(release, tmp_path, privopt):
    table, book = tmp_path / "t.csv", tmp_path / "b.ledger"
    table.write_text("id,who\nA,ann\nB,bob\nC,\n")
    given = ("apply", release.opened.folder, table, "--id=id", "--ledger", book, "--subject=who")
    done = privopt(*given, "--out", tmp_path / "o.csv")
    assert done.returncode == 2
    assert "no row could be reported: 2 unknown id, 1 no subject; charged all the same: 2 rows" in done.stderr
    with pytest.raises(UsageError, match="; charged all the same: 2 rows"):
        release.apply(pl.read_csv(table), id="id", ledger=book, subject="who")
    with po.Ledger(book) as ledger:
        assert [each.reports for each in ledger.accounts()] == [2, 2]


def test_a_changed_ledger_is_refused_in_memory_too(release, tmp_path):
    book, rides = tmp_path / "b.ledger", {"id": ["a"] * 9, "who": ["ann"] * 9}
    release.apply(rides, id="id", ledger=book, subject="who")
    with closing(sqlite3.connect(book)) as connection, connection:
        connection.execute("UPDATE entries SET time = time - 1 WHERE number = 5")
    with pytest.raises(DoesNotHoldError, match="entry 5"):
        release.apply(rides, id="id", ledger=str(book), subject="who")


def test_a_row_of_commas_is_a_row_and_a_blank_line_is_none(release, tmp_path, monkeypatch):
    monkeypatch.setattr(files, "SAMPLE_ROWS", 2)
    monkeypatch.setattr(files, "BATCH_ROWS", 3)
    text = 'n, id ,note\r\n1,a,"x\r\n\r\ny"\r\n,,\r\n\r\n2,b,\r\n3,a,""\r\n,,\r\n4,a,\r\n\r\n,,\r\n\r\n'
    (tmp_path / "t.csv").write_bytes(text.encode())
    done = apply(release.opened.folder, tmp_path / "t.csv", tmp_path / "o.csv", Secret.of(id="id"))
    assert done.to_json() == {"rows": 7, "reported": 4, "refused": {"unknown id": 3}}
    found = pl.read_csv(tmp_path / "o.csv", infer_schema=False)
    assert found["n"].to_list() == ["1", None, "2", "3", None, "4", None]
    assert found["note"].to_list()[0] == "x\r\n\r\ny"


def test_a_header_with_blanks_is_read_alike_everywhere(release, tmp_path, privopt):
    (tmp_path / "p.csv").write_text("id, lat, lon\na,41.9,12.4\nb,41.9,12.41\nc,41.91,12.4\n")
    made = privopt("init", "exponential", "--points", tmp_path / "p.csv", "--out", tmp_path / "p.toml")
    assert made.returncode == 0, made.stderr
    assert po.solve("exponential", tmp_path / "p.toml").opened.release.records.tolist() == ["a", "b", "c"]
    out = tmp_path / "o.csv"
    done = privopt("apply", release.opened.folder, tmp_path / "p.csv", "--lat=lat", "--lon=lon", "--out", out)
    assert done.returncode == 0, done.stderr
    assert pl.read_csv(out).columns == ["id", "report", "report_lat", "report_lon"]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_full_disk_is_said_in_a_line(release, tmp_path, monkeypatch, ending):
    def full(*given, **more):
        error = OSError(28, "No space left on device")
        raise pl.exceptions.ComputeError(str(error)) if ending == "parquet" else error

    (tmp_path / "t.csv").write_text("id\na\n")
    monkeypatch.setattr(pl.DataFrame, f"write_{ending}", full)
    with pytest.raises(StoppedError, match="No space left on device; nothing written"):
        apply(release.opened.folder, tmp_path / "t.csv", tmp_path / f"o.{ending}", Secret.of(id="id"))
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def test_one_name_in_several_spellings_is_one_sender(release, tmp_path):
    reports = pl.DataFrame({"report": ["a", "b", "c"], "who": ["Zo\u00eb", " Zoe\u0308 ", "7"]})
    with pytest.warns(po.PrivoptWarning, match="1 report omitted"):
        assert release.estimate(reports, subject="who").n == 2
    release.apply(reports.rename({"report": "id"}), id="id", ledger=tmp_path / "b.ledger", subject="who")
    with po.Ledger(tmp_path / "b.ledger") as ledger:
        assert [each.reports for each in ledger.accounts()] == [1, 2]


def test_positions_a_world_away_are_told_to_the_owner_alone(release, tmp_path, privopt):
    rows = "41.9,12.4\n12.4,41.9\n0,0\n41.95,12.4\n"  # one swapped, one missing, one 4 km off
    (tmp_path / "t.csv").write_text(f"lat,lon\n{rows}")
    given = ("apply", release.opened.folder, tmp_path / "t.csv", "--lat=lat", "--lon=lon", "--json")
    done = privopt(*given, "--out", tmp_path / "o.csv")
    first, *_ = done.stderr.splitlines()
    assert "o.csv: MOST OF THE TABLE IS OUTSIDE THE MAP: 3 of 4 positions more than 1.465 km from every record" in first
    assert "(the farthest 4,82" in done.stderr
    assert json.loads(done.stdout) == {"rows": 4, "reported": 4, "refused": {}}
    done = privopt(*given, "--max-snap=5", "--out", tmp_path / "p.csv")
    assert "p.csv: 1 of 2 positions more than" in done.stderr
    near = pl.DataFrame({"lat": [41.9, 41.905], "lon": [12.4, 12.41], "who": ["ann", "ann"]})
    assert release.apply(near, lat="lat", lon="lon").height == 2  # warnings are errors here
    far = pl.DataFrame({"lat": [0.0, 0.0], "lon": [0.0, 0.0], "who": ["ann", "ann"]})
    with pytest.warns(po.PrivoptWarning) as told:
        release.apply(far, lat="lat", lon="lon", ledger=tmp_path / "b.ledger", subject="who", sticky=True)
    assert [line for line in map(said, told) if "2 of 2 positions more than" in line]


def test_drops_columns_that_state_the_position_unless_kept(release, tmp_path):
    table = pl.DataFrame({"lat": [41.901234, 41.9], "lon": [12.401234, 12.41]}).with_columns(
        note=pl.format("met at {}, {}", "lat", "lon"), spot=pl.format("POINT ({} {})", "lon", "lat"), fare=pl.lit(3)
    )
    table.write_csv(tmp_path / "t.csv")
    secret = Secret.of(lat="lat", lon="lon")
    done = apply(release.opened.folder, tmp_path / "t.csv", tmp_path / "o.csv", secret, ApplyOptions(keep=("note",)))
    assert done.to_json()["dropped"] == ["spot"]
    assert pl.read_csv(tmp_path / "o.csv").columns[:2] == ["note", "fare"]
    assert [line for line in done.warnings if "note stays and states the secret" in line]
    with pytest.warns(po.PrivoptWarning) as told:
        made = release.apply(table, lat="lat", lon="lon", keep=["note"])
    assert "column spot was dropped" in "".join(str(warning.message) for warning in told)
    assert made.columns[:2] == ["note", "fare"]


def test_ids_that_pandas_wrote_as_decimals_are_those_of_records(tmp_path):
    records = po.records(
        {"id": ["1", "132", "138"], "lat": [45.0, 45.1, 45.2], "lon": [7.0, 7.0, 7.0]}, id="id", lat="lat", lon="lon"
    )
    problem = po.metric_problem(records, distance="haversine", epsilon="1/km")
    table = pd.DataFrame({"n": [1, 2, 3], "id": ["1.0", "132.0", "138.00"]})
    with pytest.warns(po.PrivoptWarning):
        made = po.solve("exponential", problem).apply(table, id="id", seed=1)
    assert made["report"].notna().all()
