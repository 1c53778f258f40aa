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


def test_a_table_is_read_back_as_it_was_written(tmp_path):
    names = [" a,b.jpg", '"q"', "", "ä\n"]
    lat = np.nextafter([0.1, -90.0, 89.0, 1 / 3], 0)
    write_columns(tmp_path / "t.csv", {"photo": names, "deleted": [0, 1, 1, 0], "lat": lat})
    found = read_columns(tmp_path / "t.csv", COLUMNS)
    assert found["photo"].to_list() == names
    assert found["deleted"].to_numpy().dtype == np.int64
    assert (found["lat"].to_numpy() == lat).all()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("photo,deleted,more\na,0,1\n", "header: expected photo,deleted, got photo,deleted,more"),
        ("deleted,photo\n0,a\n", "header: expected photo,deleted, got deleted,photo"),
        ("photo,deleted\na,2\n", "row 2, column deleted: expected one of 0, 1, got 2"),
        ("photo,deleted\na,0.5\n", "row 2, column deleted: expected a whole number, got 0.5"),
        ("photo,deleted,lat\na,0,91\n", "expected a finite number (degrees) of at least -90 and at most 90, got 91"),
        ("photo,deleted\na,0,1\n", "row 2: expected 2 fields, as the header has, got 3 fields"),
        (None, "expected a table photo,deleted,lat, got no such file"),
    ],
)
def test_a_table_of_another_form_is_refused(tmp_path, text, said):
    if text is not None:
        (tmp_path / "t.csv").write_text(text, "utf-8")
    with pytest.raises(InputError) as refused:
        read_columns(tmp_path / "t.csv", COLUMNS)
    assert said in str(refused.value)


def test_a_link_is_no_table_of_a_release(tmp_path):
    write_columns(tmp_path / "t.csv", {"photo": ["a"], "deleted": [0]})
    (tmp_path / "link.csv").symlink_to(tmp_path / "t.csv")
    with pytest.raises(InputError, match="a link"):
        read_columns(tmp_path / "link.csv", COLUMNS)


SHAPES = {"level_1": (np.int64, (2, None)), "scales": (np.str_, (1,))}
RATE = {"rate": (np.float64, ())}


def test_arrays_are_read_by_name_type_and_shape(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", level_1=np.zeros((2, 3), np.int64), scales=np.array(["7/2"]))
    found = read_arrays(tmp_path / "a.npz", SHAPES, optional=RATE)
    assert sorted(found) == ["level_1", "scales"]
    assert not found["level_1"].flags.writeable


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({}, "level_1: expected int64 of shape (2, any), got no such array"),
        ({"level_1": np.zeros((2, 3))}, "level_1: expected int64 of shape (2, any), got float64 of shape (2, 3)"),
        (
            {"level_1": np.zeros((3, 3), np.int64)},
            "level_1: expected int64 of shape (2, any), got int64 of shape (3, 3)",
        ),
        (
            {"level_1": np.zeros((2, 3), np.int64), "more": np.zeros(1)},
            "more: expected arrays level_1, scales, rate, got an array that nothing reads",
        ),
        (
            {"level_1": np.zeros((2, 3), np.int64), "rate": np.zeros(1)},
            "rate: expected float64 of shape (), got float64 of shape (1)",
        ),
    ],
)
def test_other_arrays_are_refused(tmp_path, arrays, said):
    np.savez(tmp_path / "a.npz", scales=np.array(["7/2"]), **arrays)
    with pytest.raises(InputError) as refused:
        read_arrays(tmp_path / "a.npz", SHAPES, optional=RATE)
    assert said in str(refused.value)


def test_arrays_that_unpack_into_more_than_their_shapes_are_not_unpacked(tmp_path):
    np.savez_compressed(tmp_path / "a.npz", rate=np.zeros(10**6))
    with pytest.raises(InputError, match="bytes of arrays"):
        read_arrays(tmp_path / "a.npz", RATE)


def test_faults_beyond_the_limit_are_counted_and_not_made():
    asked = []
    faults = Faults()
    faults.add_rows("a.csv", "n", range(100), lambda row: asked.append(row) or row, "none")
    assert asked == list(range(MOST_FAULTS))
    last = faults.listed[-1]
    assert (last.file, last.found, last.is_description) == ("a.csv", "80 more faults of these kinds", True)
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
    ("arguments", "code", "said"),
    [
        (["3"], 0, "3 toys\n"),
        (["3", "--json"], 0, '{\n  "count": 3\n}\n'),
        (["0"], 1, "0 toys\n"),
        (["--", "-1"], 2, ""),
        (["10"], 5, ""),
        (["-h"], 0, None),
    ],
)
def test_a_program_of_a_plugin_ends_with_privopts_codes(arguments, code, said):
    done = CliRunner().invoke(cli, ["count", *arguments])
    assert done.exit_code == code
    assert said is None or done.stdout == said


def interrupted(path):
    with DurableLog(path, name="file of messages", mark=7) as log, log.adding():
        log.add("two")
        raise ZeroDivisionError


def test_what_was_added_to_a_log_stays_and_what_failed_does_not(tmp_path):
    path = tmp_path / "sent"
    with DurableLog(path, name="file of messages", mark=7) as log, log.adding():
        log.add("one")
    with pytest.raises(ZeroDivisionError):
        interrupted(path)
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


def test_a_header_alone_is_a_table_where_it_may_be_one():
    file = File(name="t.csv", path=None, kept=b"photo,deleted\n")
    assert read_table(file, COLUMNS, min_rows=0)["deleted"].shape == (0,)
    with pytest.raises(InputError, match="a header alone"):
        read_table(file, COLUMNS)


def test_noise_of_another_law_is_refused_by_name():
    claimed = Guarantee(kind="pure-dp", epsilon=Fraction(1))
    with pytest.raises(UsageError, match="level 2: law must be gaussian or laplace, got 'staircase'"):
        certify_noise(claimed, [NoiseCall(scale=Fraction(1), law="staircase", name="level 2")])  # type: ignore[arg-type]


def test_variants_that_no_check_asks_for_are_refused():
    with pytest.raises(UsageError, match="among relabelling, reordering, units, got 'export'"):
        Profile(problems=nothing(), variants={"export": relabel({})})


def test_a_report_is_found_by_its_name():
    assert [section.title for section in open_reporting(Reported()).report(None, None, None)] == ["here"]
    assert open_reporting(Reported()).geo(None, None, None) is None


def test_variants_say_the_same_otherwise():
    rows = [["a", "b", "1"], ["b", "c", "2"], ["c", "", "3"]]
    files = {"t.csv": csv_bytes(["id", "to", "n"], rows), "m.npy": npy_bytes(np.arange(9).reshape(3, 3))}
    problem = GeneratedProblem(toml="", files=files)
    renamed = relabel({"t.csv": ("id", "to"), "absent.csv": ("id",)})(problem, random.Random(0)).problem
    cells = [row[:2] for row in renamed.rows("t.csv")[1:]]
    assert cells[0][1] == cells[1][0]
    assert cells[1][1] == cells[2][0]
    assert {name for row in cells for name in row} == {"place 0", "place 1", "place 2", ""}
    assert relabel({"t.csv": ("id",)}, unless=lambda given: True)(problem, random.Random(0)) is None
    moved = reorder("t.csv", arrays={"m.npy": (0, 1)})(problem, random.Random(1)).problem
    order = [int(row[2]) - 1 for row in moved.rows("t.csv")[1:]]
    assert sorted(order) == [0, 1, 2] != order
    path = Path("m.npy")
    assert moved.files[path.name] == npy_bytes(np.arange(9).reshape(3, 3)[np.ix_(order, order)])
    again = export_again("t.csv")(problem, random.Random(0)).problem
    assert again.files["t.csv"].startswith(b'\xef\xbb\xbf"id","to","n"\r\n')
