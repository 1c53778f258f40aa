"""What the core gives plugins: tables by columns, arrays by name, faults, noise, programs, logs, reports, variants."""

from __future__ import annotations

import random
from fractions import Fraction
from pathlib import Path

import click
import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis.strategies import nothing

from privopt.command.exit_codes import DOES_NOT_HOLD
from privopt.command.program import JSON, program, say_result
from privopt.declare.columns import read_columns, write_columns
from privopt.declare.tables import Column, File, read_table
from privopt.errors import MOST_FAULTS, DoesNotHoldError, Faults, InputError, UsageError
from privopt.files.archive import read_arrays
from privopt.files.durable_log import DurableLog
from privopt.interfaces import Guarantee, Mechanism, Reporting
from privopt.interfaces.additive import NoiseCall, certify_noise
from privopt.interfaces.reporting import Section, open_reporting
from privopt.testing import GeneratedProblem, Profile, csv_bytes, export_again, npy_bytes, relabel, reorder

COLUMNS = [
    Column(name="photo", kind="text"),
    Column(name="deleted", whole=True, one_of=(0, 1)),
    Column(name="lat", least=-90.0, most=90.0, unit="degrees", optional=True),
]


def test_table_round_trips(tmp_path):
    names = [" a,b.jpg", '"q"', "", "ä\n"]
    lat = np.nextafter([0.1, -90.0, 89.0, 1 / 3], 0)
    write_columns(tmp_path / "t.csv", {"photo": names, "deleted": [0, 1, 1, 0], "lat": lat})
    table = read_columns(tmp_path / "t.csv", COLUMNS)
    assert table["photo"].to_list() == names
    assert table["deleted"].to_numpy().dtype == np.int64
    assert (table["lat"].to_numpy() == lat).all()


@pytest.mark.parametrize(
    ("text", "keywords"),
    [
        ("photo,deleted,more\na,0,1\n", "got photo,deleted,more"),
        ("deleted,photo\n0,a\n", "got deleted,photo"),
        ("photo,deleted\na,2\n", "row 2, column deleted"),
        ("photo,deleted\na,0.5\n", "row 2, column deleted"),
        ("photo,deleted,lat\na,0,91\n", "90, got 91"),
        ("photo,deleted\na,0,1\n", "row 2: expected"),
        (None, "file not found"),
    ],
)
def test_refuses_tables_of_another_form(tmp_path, text, keywords):
    if text is not None:
        (tmp_path / "t.csv").write_text(text, "utf-8")
    with pytest.raises(InputError) as excinfo:
        read_columns(tmp_path / "t.csv", COLUMNS)
    assert keywords in str(excinfo.value)


def test_link_is_no_table_of_a_release(tmp_path):
    write_columns(tmp_path / "t.csv", {"photo": ["a"], "deleted": [0]})
    (tmp_path / "link.csv").symlink_to(tmp_path / "t.csv")
    with pytest.raises(InputError, match="a link"):
        read_columns(tmp_path / "link.csv", COLUMNS)


SHAPES = {"level_1": (np.int64, (2, None)), "scales": (np.str_, (1,))}
RATE = {"rate": (np.float64, ())}


def test_reads_arrays_by_name_type_and_shape(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", level_1=np.zeros((2, 3), np.int64), scales=np.array(["7/2"]))
    arrays = read_arrays(tmp_path / "a.npz", SHAPES, optional=RATE)
    assert sorted(arrays) == ["level_1", "scales"]
    assert not arrays["level_1"].flags.writeable


@pytest.mark.parametrize(
    ("arrays", "keywords"),
    [
        ({}, "level_1: expected int64"),
        ({"level_1": np.zeros((2, 3))}, "got float64 of"),
        (
            {"level_1": np.zeros((3, 3), np.int64)},
            "shape (3, 3)",
        ),
        (
            {"level_1": np.zeros((2, 3), np.int64), "more": np.zeros(1)},
            "more: expected arrays",
        ),
        (
            {"level_1": np.zeros((2, 3), np.int64), "rate": np.zeros(1)},
            "rate: expected float64",
        ),
    ],
)
def test_refuses_other_arrays(tmp_path, arrays, keywords):
    np.savez(tmp_path / "a.npz", scales=np.array(["7/2"]), **arrays)
    with pytest.raises(InputError) as excinfo:
        read_arrays(tmp_path / "a.npz", SHAPES, optional=RATE)
    assert keywords in str(excinfo.value)


def test_does_not_unpack_oversized_arrays(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", rate=np.zeros(10**6))
    with pytest.raises(InputError, match="bytes of arrays"):
        read_arrays(tmp_path / "a.npz", RATE)


def test_faults_beyond_the_limit_are_counted():
    rows_seen = []
    faults = Faults()
    faults.add_rows("a.csv", "n", range(100), lambda row: rows_seen.append(row) or row, "none")
    assert rows_seen == list(range(MOST_FAULTS))
    last = faults.listed[-1]
    assert (last.file, last.actual.split()[0], last.is_description) == ("a.csv", "80", True)
    with pytest.raises(InputError):
        faults.check()
    Faults().check()


cli = program("privopt-toy", "Toys.")


@cli.command()
@click.argument("number", type=int)
@JSON
def count(number: int, as_json: bool) -> int | None:
    """Count."""
    if number < 0:
        raise UsageError("below 0")
    if number > 9:
        raise ValueError("a fault of the plugin")
    say_result({"count": number}, f"{number} toys", as_json=as_json)
    return None if number else DOES_NOT_HOLD


@pytest.mark.parametrize(
    ("arguments", "code", "stdout"),
    [
        (["3"], 0, "3 toys\n"),
        (["3", "--json"], 0, '{\n  "count": 3\n}\n'),
        (["0"], 1, "0 toys\n"),
        (["--", "-1"], 2, ""),
        (["10"], 5, ""),
        (["-h"], 0, None),
    ],
)
def test_plugin_program_uses_common_exit_codes(arguments, code, stdout):
    completed = CliRunner().invoke(cli, ["count", *arguments])
    assert completed.exit_code == code
    assert stdout is None or completed.stdout == stdout


def add_and_fail(path):
    with DurableLog(path, name="file of messages", mark=7) as log, log.adding():
        log.add("two")
        raise ZeroDivisionError


def test_log_keeps_only_complete_additions(tmp_path):
    path = tmp_path / "sent"
    with DurableLog(path, name="file of messages", mark=7) as log, log.adding():
        log.add("one")
    with pytest.raises(ZeroDivisionError):
        add_and_fail(path)
    with DurableLog(path, name="file of messages", mark=7) as log:
        assert log.texts() == ["one"]
    with pytest.raises(DoesNotHoldError):
        DurableLog(path, name="file of others", mark=8)
    assert path.stat().st_mode & 0o777 == 0o600


class Shown(Reporting):
    """A report of one section."""

    def report(self, problem, release, result):
        """One section."""
        return [Section(title="here", html="")]


class Reported(Mechanism):
    """A mechanism whose report is named."""

    problem_class = release_class = object
    reporting = f"{__name__}:Shown"

    def privacy(self, problem, method): ...
    def utility(self, problem, method): ...
    def solve(self, problem, context): ...


def test_header_may_be_an_empty_table():
    file = File(name="t.csv", path=None, kept=b"photo,deleted\n")
    assert read_table(file, COLUMNS, min_rows=0)["deleted"].shape == (0,)
    with pytest.raises(InputError, match="a header alone"):
        read_table(file, COLUMNS)


def test_refuses_noise_of_another_law():
    guarantee = Guarantee(kind="pure-dp", epsilon=Fraction(1))
    with pytest.raises(UsageError, match=r"level 2: law .*'staircase'"):
        certify_noise(guarantee, [NoiseCall(scale=Fraction(1), law="staircase", name="level 2")])  # type: ignore[arg-type]


def test_refuses_unused_variants():
    with pytest.raises(UsageError, match=r"relabelling, reordering, units.*'export'"):
        Profile(problems=nothing(), variants={"export": relabel({})})


def test_finds_a_report_by_its_name():
    assert [section.title for section in open_reporting(Reported()).report(None, None, None)] == ["here"]
    assert open_reporting(Reported()).geo(None, None, None) is None


def test_variants_mean_the_same():
    rows = [["a", "b", "1"], ["b", "c", "2"], ["c", "", "3"]]
    files = {"t.csv": csv_bytes(["id", "to", "n"], rows), "m.npy": npy_bytes(np.arange(9).reshape(3, 3))}
    problem = GeneratedProblem(toml="", files=files)
    renamed = relabel({"t.csv": ("id", "to"), "absent.csv": ("id",)})(problem, random.Random(0)).problem
    cells = [row[:2] for row in renamed.rows("t.csv")[1:]]
    assert cells[0][1] == cells[1][0]
    assert cells[1][1] == cells[2][0]
    assert {name for row in cells for name in row} == {"place 0", "place 1", "place 2", ""}
    assert relabel({"t.csv": ("id",)}, unless=lambda values: True)(problem, random.Random(0)) is None
    reordered = reorder("t.csv", arrays={"m.npy": (0, 1)})(problem, random.Random(1)).problem
    order = [int(row[2]) - 1 for row in reordered.rows("t.csv")[1:]]
    assert sorted(order) == [0, 1, 2] != order
    path = Path("m.npy")
    assert reordered.files[path.name] == npy_bytes(np.arange(9).reshape(3, 3)[np.ix_(order, order)])
    exported = export_again("t.csv")(problem, random.Random(0)).problem
    assert exported.files["t.csv"].startswith(b'\xef\xbb\xbf"id","to","n"\r\n')
