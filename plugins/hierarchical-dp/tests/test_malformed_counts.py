"""Broken tables of counts: init and solve refuse them in one line that quotes no cell, and write nothing."""

from __future__ import annotations

import tomllib

import polars as pl
import pytest
from helpers.command import run
from helpers.malformed import FILES, SENTINEL, broken_cells, csv_text

COUNTS = [
    ["level_1", "level_2", "sex", "count"],
    *(["L", f"R{n // 2}", "FM"[n % 2], f"{SENTINEL}{n}"] for n in range(6)),
]
GROUPS = [
    ["level_1", "level_2", "size", "groups"],
    *(["L", f"R{n // 2}", str(1 + n % 2), f"{SENTINEL}{n}"] for n in range(6)),
]
TABLES = """[hierarchy]
regions = "r.csv"
records = "t.csv"
[hierarchy.attributes]
sex = ["F", "M"]
[hierarchy.tables.a]
by = ["sex"]
[privacy]
epsilon = 1.0
"""
SIZES = '[hierarchy]\nregions = "r.csv"\ncounts = "t.csv"\nsizes = 2\n[privacy]\nepsilon = 1.0\n'


@pytest.fixture
def refuses(tmp_path):
    """Return a function that has a command refuse a file; it returns the message and checks that nothing is written."""
    (tmp_path / "r.csv").write_text("level_1,level_2\nL,R0\nL,R1\nL,R2\n")
    (tmp_path / "tables.toml").write_text(TABLES)
    (tmp_path / "sizes.toml").write_text(SIZES)
    inputs = {path.name for path in tmp_path.iterdir()} | {"t.csv"}
    commands = {
        "init": ("init", "hierarchical-tables", "--points", tmp_path / "t.csv", "--out", tmp_path / "p.toml"),
        "tables": ("solve", "hierarchical-tables", tmp_path / "tables.toml", "--out", tmp_path / "o"),
        "sizes": ("solve", "hierarchical-dp", tmp_path / "sizes.toml", "--out", tmp_path / "o"),
    }

    def refuse(command, contents):
        (tmp_path / "t.csv").write_bytes(contents)
        completed = run(*commands[command])
        assert completed.exit_code == 2, completed.output
        assert "t.csv: " in completed.output
        assert SENTINEL not in completed.output
        assert {path.name for path in tmp_path.iterdir()} == inputs
        return completed.output

    return refuse


@pytest.mark.parametrize("command", ["init", "tables", "sizes"])
def test_refuses_files_that_are_no_tables(refuses, command):
    for make in FILES.values():
        refuses(command, make(GROUPS if command == "sizes" else COUNTS))


@pytest.mark.parametrize("command", ["init", "tables", "sizes"])
def test_broken_counts_are_named_by_row_and_column(refuses, command):
    rows = GROUPS if command == "sizes" else COUNTS
    for cell, contents in broken_cells(rows, 3):
        message = refuses(command, contents)
        assert f"row 4, column {rows[0][3]}" in message, cell


def test_header_is_no_table_to_draft_from(refuses):
    assert "a header alone" in refuses("init", csv_text(COUNTS[:1]))


@pytest.mark.parametrize("position", [0, 2, 4])
def test_unnamed_column_is_no_attribute(tmp_path, position):
    """The index of a table of pandas, or a comma at the end of each row."""
    rows = [["level_1", "level_2", "sex", "n"], *(["L", f"R{n // 2}", "FM"[n % 2], str(7 * n)] for n in range(6))]
    for filling in (lambda number: str(number), lambda number: "x", lambda number: ""):
        table = [
            [*row[:position], filling(number - 1) if number else "", *row[position:]] for number, row in enumerate(rows)
        ]
        (tmp_path / "t.csv").write_bytes(csv_text(table))
        completed = run(
            "init", "hierarchical-tables", "--points", tmp_path / "t.csv", "--out", tmp_path / "p.toml", "--force"
        )
        assert completed.exit_code == 0, completed.output
        hierarchy = tomllib.loads((tmp_path / "p.toml").read_text())["hierarchy"]
        assert (hierarchy["count"], list(hierarchy["attributes"])) == ("n", ["sex"])
        assert "(without a name)" in completed.output
        output_options = ("--out", tmp_path / "o", "--force")
        assert run("solve", "hierarchical-tables", tmp_path / "p.toml", *output_options).exit_code == 0


def test_refuses_a_cut_parquet_file(refuses, tmp_path):
    pl.DataFrame(COUNTS[1:], schema=COUNTS[0], orient="row").write_parquet(tmp_path / "whole.parquet")
    contents = (tmp_path / "whole.parquet").read_bytes()
    (tmp_path / "whole.parquet").unlink()
    for size in (4, 8, len(contents) // 2, len(contents) - 1):
        refuses("tables", contents[:size])
        refuses("init", contents[:size])
