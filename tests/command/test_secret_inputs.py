"""Faults of secret inputs on the command line and in tables show no value of them, in no stream and no file."""

from __future__ import annotations

import io
import itertools
from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from helpers.secret_values import PROPERTY, SENTINEL, VALUES, run_command
from helpers.toys import write_toy
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from privopt.command.cli import cli
from privopt.run.solve import solve

TABLES = {
    "position": (["--position", "home=s,t"], "0.7"),
    "two positions": (["--position", "home=s,t", "--position", "work=t,s"], "0.7"),
    "position by id": (["--position", "home=s", "--position", "work=t"], "p1"),
    "kept column": (["--id", "t", "--keep", "s"], "p1"),
    "prefix": (["--x", "s", "--y", "t", "--prefix", "home"], "0.7"),
    "ids": (["--id", "s"], "p1"),
    "text": (["--text", "s"], "p1"),
    "planar": (["--x", "s", "--y", "t"], "0.7"),
    "planar, snapped": (["--x", "s", "--y", "t", "--max-snap", "1"], "0.7"),
    "second coordinate": (["--x", "t", "--y", "s"], "0.7"),
    "degrees for a plane": (["--lat", "s", "--lon", "t"], "0.7"),
    "missing column": (["--id", "absent"], "p1"),
    "missing coordinate": (["--x", "s", "--y", "absent"], "0.7"),
    "geometry": (["--geometry", "s"], "0.7"),
}


@pytest.fixture(scope="module")
def release(tmp_path_factory):
    folder = tmp_path_factory.mktemp("secret_inputs")
    solve("exponential", write_toy(folder / "toy"), folder / "release")
    return folder / "release"


@pytest.fixture(scope="module")
def new_folder(tmp_path_factory):
    numbers = itertools.count()
    root = tmp_path_factory.mktemp("tables")

    def make() -> Path:
        folder = root / str(next(numbers))
        folder.mkdir()
        return folder

    return make


def run(*arguments) -> tuple[int, str]:
    return run_command(cli, *arguments)


def write_rows(path: Path, *rows: tuple[str, ...]) -> Path:
    path.write_text("".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows), encoding="utf-8")
    return path


@PROPERTY
@given(value=VALUES, option=st.sampled_from(["--input", "--at", "--xy"]))
def test_sample_does_not_repeat_its_secret(release, value, option):
    assert SENTINEL not in run("sample", release, f"{option}={value}")[1]


@pytest.mark.parametrize("kind", TABLES)
@PROPERTY
@given(value=VALUES, has_good_row=st.booleans())
def test_apply_does_not_repeat_secrets(release, new_folder, kind, value, has_good_row):
    (options, good_value), folder = TABLES[kind], new_folder()
    rows = [("s", "t"), (value, "0.1"), *([(good_value, "0.1")] if has_good_row else [])]
    output = run("apply", release, write_rows(folder / "rows.csv", *rows), *options, "--out", folder / "out.csv")[1]
    assert SENTINEL not in output
    for file in folder.iterdir():
        assert file.name == "rows.csv" or SENTINEL.encode() not in file.read_bytes()


@PROPERTY
@given(value=VALUES)
def test_estimate_does_not_repeat_invalid_reports(release, new_folder, value):
    folder = new_folder()
    table = write_rows(folder / "reports.csv", ("report", "who"), ("p1", "u"), (value, "v"))
    code, output = run("estimate", release, table, "--subject", "who", "--out", folder / "shares.csv")
    assert code == 2
    assert SENTINEL not in output
    assert not (folder / "shares.csv").exists()


@PROPERTY
@given(value=VALUES)
def test_hashed_subjects_are_shown_nowhere(release, new_folder, value):
    folder = new_folder()
    table = write_rows(folder / "rows.csv", ("s", "who"), ("p1", value), ("p1", f"{value}x"), ("absent", value))
    hashed = ["--hash-subjects", folder / "key"]
    run("budget", folder / "ledger", "--set", "1", *hashed)
    options = ["--id", "s", "--subject", "who", "--ledger", folder / "ledger", *hashed, "--out", folder / "out.csv"]
    outputs = [
        run("apply", release, table, *options)[1],
        run("budget", folder / "ledger")[1],
        run("budget", folder / "ledger", "--json")[1],
        run("budget", folder / "ledger", f"--subject={value}", *hashed)[1],
    ]
    assert SENTINEL not in "".join(outputs[:3])
    for file in folder.iterdir():
        assert file.name in ("rows.csv", "out.csv") or SENTINEL.encode() not in file.read_bytes()


# --- tables that are charged: times, subjects, sticky reports ---------------------------------------------

CHARGED = {
    "time": ["--time", "s"],
    "time in a form": ["--time", "s", "--time-format", "DD/MM/YYYY HH:MM"],
    "time in seconds": ["--time", "s", "--time-format", "unix"],
    "time in milliseconds": ["--time", "s", "--time-format", "unix-ms"],
    "sticky": ["--sticky"],
    "sticky within": ["--sticky", "--sticky-within", "0.4"],
    "batch": ["--batch", "night 1"],
}


@pytest.mark.parametrize("place", [["--x", "s", "--y", "t"], ["--x", "t", "--y", "u"], ["--position", "home=t,s"]])
@pytest.mark.parametrize("kind", CHARGED)
@PROPERTY
@given(value=VALUES, has_good_row=st.booleans())
def test_apply_with_a_ledger_does_not_repeat_secrets(release, new_folder, kind, place, value, has_good_row):
    """The secret is the position, or the time: ``s`` stands for either."""
    folder = new_folder()
    good_rows = [("0.7", "0.2", "0.3", "anna")] if has_good_row else []
    rows = [("s", "t", "u", "who"), (value, "0.1", "0.2", "anna"), *good_rows]
    table = write_rows(folder / "rows.csv", *rows)
    run("budget", folder / "ledger", "--set", "5", "--per", "day")
    charged = ["--subject", "who", "--ledger", folder / "ledger", "--out", folder / "out.csv", *CHARGED[kind]]
    shown = [run("apply", release, table, *place, *charged)[1] for _ in range(2)]
    shown += [run("budget", folder / "ledger", *more)[1] for more in ([], ["--json"], ["--check"])]
    assert SENTINEL not in "".join(shown)


@PROPERTY
@given(value=VALUES, option=st.sampled_from(["--input", "--at", "--xy"]))
def test_charged_sample_does_not_repeat_its_secret(release, new_folder, value, option):
    ledger = new_folder() / "ledger"
    shown = run("sample", release, f"{option}={value}", "--ledger", ledger, "--subject", "anna")[1]
    assert SENTINEL not in shown
    assert not ledger.exists() or SENTINEL.encode() not in ledger.read_bytes()


@PROPERTY
@given(value=VALUES)
@pytest.mark.parametrize("form", ["{}", "--at 1 {}", "--input {} {}", "--{}", "-{}", "-n {}", "--inptu {}", "--at {}"])
def test_wrong_arguments_of_sample_are_not_repeated(release, form, value):
    code, shown = run("sample", release, *(word.format(value) for word in form.split()))
    assert code == 2
    assert SENTINEL not in shown


# --- Parquet ---------------------------------------------------------------------------------------------

COLUMNS = {
    "text": pa.array([SENTINEL, "p1"]),
    "double": pa.array([float(SENTINEL), 0.7]),
    "not a number": pa.array([float("nan"), float(SENTINEL)]),
    "whole": pa.array([int(SENTINEL), 1]),
    "negative": pa.array([-int(SENTINEL), 1]),
    "bytes": pa.array([SENTINEL.encode(), b"p1"]),
    "list": pa.array([[SENTINEL], ["p1"]]),
    "named part": pa.array([{SENTINEL: 1.0}, {SENTINEL: 2.0}]),
    "categories": pa.array([SENTINEL, "p1"]).dictionary_encode(),
    "decimal": pa.array([int(SENTINEL), 1]).cast(pa.decimal128(38, 2)),
    "time": pa.array([int(SENTINEL), 1], pa.timestamp("s")),
    "far time": pa.array([int(SENTINEL) * 10**10, 1], pa.timestamp("us")),
    "far day": pa.array([int(SENTINEL), 1], pa.int32()).cast(pa.date32()),
    "duration": pa.array([int(SENTINEL), 1], pa.duration("s")),
    "null": pa.array([None, None]),
    "other bytes": pa.array([f"\u00e9{SENTINEL}".encode("latin-1"), b"p1"]),
}
APPLICATIONS = [
    ["--id", "s"],
    ["--x", "s", "--y", "t"],
    ["--x", "t", "--y", "s"],
    ["--lat", "s", "--lon", "t"],
    ["--geometry", "s"],
    ["--text", "s"],
    ["--position", "home=s,t"],
    ["--x", "t", "--y", "u", "--time", "s"],
    ["--x", "t", "--y", "u"],
]


def check_parquet(release, folder, contents: bytes, options, *, is_charged: bool) -> None:
    (folder / "rows.parquet").write_bytes(contents)
    charged = ["--subject", "who", "--ledger", folder / "ledger", "--sticky"] if is_charged else []
    shown = run("apply", release, folder / "rows.parquet", *options, *charged, "--out", folder / "out.csv")[1]
    estimate = ["estimate", release, folder / "rows.parquet", "--column", "s", "--out", folder / "shares.csv"]
    shown += run(*estimate)[1]
    assert SENTINEL not in shown
    assert "Traceback" not in shown


def parquet_bytes(column: pa.Array) -> bytes:
    out = io.BytesIO()
    parquet.write_table(pa.table({"s": column, "t": [0.1, 0.2], "u": [0.3, 0.1], "who": ["a", "b"]}), out)
    return out.getvalue()


@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_of_parquet_are_not_repeated(release, new_folder, kind):
    for options in APPLICATIONS:
        for is_charged in (False, True):
            check_parquet(release, new_folder(), parquet_bytes(COLUMNS[kind]), options, is_charged=is_charged)


@PROPERTY
@given(data=st.data())
def test_broken_parquet_is_not_quoted(release, new_folder, data):
    """Statistics in a footer hold the least and the greatest value, and readers quote what they cannot read."""
    contents = bytearray(parquet_bytes(COLUMNS[data.draw(st.sampled_from(sorted(COLUMNS)))]))
    for _ in range(data.draw(st.integers(1, 4))):
        contents[data.draw(st.integers(4, len(contents) - 5))] ^= data.draw(st.integers(1, 255))
    cut = data.draw(st.one_of(st.none(), st.integers(4, len(contents))))
    options = data.draw(st.sampled_from(APPLICATIONS))
    check_parquet(release, new_folder(), bytes(contents[:cut]), options, is_charged=data.draw(st.booleans()))


@pytest.mark.parametrize("kind", ["far time", "far day", "day"])
def test_dates_beyond_all_calendars_are_left_out_of_csv(release, new_folder, kind):
    """Polars panics at them, which no ``except Exception`` catches."""
    folder, near = new_folder(), pa.array([3, 4], pa.int32()).cast(pa.date32())
    (folder / "rows.parquet").write_bytes(parquet_bytes(COLUMNS.get(kind, near)))
    place = ["--x", "t", "--y", "u", "--keep", "s"]
    code, shown = run("apply", release, folder / "rows.parquet", *place, "--out", folder / "out.csv")
    assert code == 0, shown
    table = pl.read_csv(folder / "out.csv")
    assert table["report"].null_count() == 0
    assert table["s"].null_count() == (0 if kind == "day" else 1)
