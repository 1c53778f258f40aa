"""Broken tables of positions: init, solve and apply refuse them in one line that quotes no cell, and write nothing."""

import os

import pytest
from helpers.charging import run_command
from helpers.malformed import CELLS, FILES, SENTINEL, broken_cells, csv_text
from helpers.mentions import assert_mentions

ROWS = [["id", "lat", "lon"], *([f"p{SENTINEL}{n}", f"45.{n}{SENTINEL}", f"7.{n}{SENTINEL}"] for n in range(6))]
PEOPLE = [["user_id", "lat", "lon"], *ROWS[1:]]
PROBLEM = """[records]
points = "t.csv"
[distance]
kind = "haversine"
[privacy]
epsilon = 1
[utility]
kind = "distance"
"""


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Return a release between places of the table."""
    folder = tmp_path_factory.mktemp("city")
    (folder / "t.csv").write_bytes(csv_text(ROWS))
    (folder / "p.toml").write_text(PROBLEM)
    assert run_command("solve", "exponential", folder / "p.toml", "--out", folder / "o", "--quiet")[0] == 0
    return folder / "o"


@pytest.fixture
def refuses(city, tmp_path):
    """Return a function that has a command refuse a file; it returns the message and checks that nothing is written."""
    table = tmp_path / "t.csv"
    (tmp_path / "p.toml").write_text(PROBLEM)
    commands = {
        "init": ("init", "exponential", "--points", table, "--out", tmp_path / "q.toml"),
        "solve": ("solve", "exponential", tmp_path / "p.toml", "--out", tmp_path / "o"),
        "apply": ("apply", city, table, "--lat", "lat", "--lon", "lon", "--out", tmp_path / "s.csv"),
        "apply --id": ("apply", city, table, "--id", "id", "--out", tmp_path / "s.csv"),
    }

    def run(command, contents):
        table.write_bytes(contents)
        code, output, err = run_command(*commands[command])
        assert code == 2, (code, err)
        assert "t.csv: " in err
        assert "Traceback" not in err
        assert {path.name for path in tmp_path.iterdir()} == {"t.csv", "p.toml"}
        return output + err

    return run


@pytest.mark.parametrize("command", ["init", "apply", "apply --id"])
def test_refuses_files_that_are_no_tables(refuses, command):
    for name, make in FILES.items():
        assert SENTINEL not in refuses(command, make(ROWS)), name


def test_solve_refuses_files_that_are_no_tables(refuses):
    for name, make in FILES.items():
        message = refuses("solve", make(ROWS))
        assert SENTINEL not in message or name == "a row of many fields", name


@pytest.mark.parametrize("column", [1, 2])
def test_init_names_row_and_column_of_broken_coordinates(refuses, column):
    for cell, contents in broken_cells(ROWS, column):
        message = refuses("init", contents)
        assert f"row 4, column {ROWS[0][column]}" in message, cell
        assert SENTINEL not in message, cell


def test_apply_names_the_first_broken_coordinate(city, tmp_path):
    rows = [["n", f'"{SENTINEL}"', "7.1"], *(["n", cell, "7.1"] for cell in CELLS), ["n", "45.1", "7.1"]]
    (tmp_path / "t.csv").write_bytes(csv_text([["n", "lat", "lon"], *rows]))
    options = ("--lat", "lat", "--lon", "lon", "--out", tmp_path / "s.csv")
    code, _, err = run_command("apply", city, tmp_path / "t.csv", *options)
    assert code == 0, err
    assert f"{len(CELLS) + 1} of {len(CELLS) + 2} rows without a report: " in err
    assert "row 2, columns lat, lon" in err
    comma = 3 + CELLS.index(f'"1,{SENTINEL}"')
    assert_mentions(err, f"row {comma}, columns lat, lon", "decimal comma")
    assert SENTINEL not in err


def test_init_names_ignored_cells_to_the_owner(tmp_path):
    for cell, contents in list(broken_cells(PEOPLE, 2))[::5]:
        (tmp_path / "t.csv").write_bytes(contents)
        code, _, err = run_command(
            "init", "exponential", "--points", tmp_path / "t.csv", "--out", tmp_path / "q.toml", "--force"
        )
        if code == 2:  # a number that is no longitude
            assert "column lon: expected" in err, cell
            continue
        assert_mentions(err, "1 cell of", "column lon", "row 4")
        assert "row 4" not in (tmp_path / "q.toml").read_text()
        assert SENTINEL not in err, cell


@pytest.mark.parametrize("command", ["init", "apply", "solve"])
def test_refuses_what_is_no_file(refuses, tmp_path, city, command):
    table = tmp_path / "t.csv"
    table.mkdir()
    arguments_by_command = {
        "init": ("init", "exponential", "--points", table, "--out", tmp_path / "q.toml"),
        "solve": ("solve", "exponential", tmp_path / "p.toml", "--out", tmp_path / "o"),
        "apply": ("apply", city, table, "--lat", "lat", "--lon", "lon", "--out", tmp_path / "s.csv"),
    }[command]
    code, _, err = run_command(*arguments_by_command)
    assert (code, "t.csv" in err, "folder" in err or "director" in err) == (2, True, True), err
    table.rmdir()
    os.mkfifo(table)
    code, _, err = run_command(*arguments_by_command)
    assert (code, "t.csv" in err) == (2, True), err
    table.unlink()
    code, _, err = run_command(*arguments_by_command)
    assert (code, "t.csv" in err) == (2, True), err
    table.write_bytes(csv_text(ROWS))
