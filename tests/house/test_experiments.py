"""What the papers' experiments share: a table that is gone on with, one command, pictures of what is there."""

import csv
import importlib
import os
from pathlib import Path

import pytest

from experiments import pictures
from experiments.command import Study
from experiments.tables import Sheet, number, read_rows, split, summary, write_rows
from privopt.errors import InputError, UsageError

PLUGINS = sorted(path.parent for path in (Path(__file__).parents[2] / "plugins").glob("*/experiments"))


def test_a_row_that_is_there_is_not_computed_again(tmp_path):
    sheet = Sheet(tmp_path / "new" / "t.csv", ["cells"], ["cost"])
    sheet.once({"cells": 3}, lambda: [{"cost": 0.12345678912}])
    assert read_rows(tmp_path / "new" / "t.csv") == [{"cells": "3", "cost": "0.123456789"}]
    again = Sheet(tmp_path / "new" / "t.csv", ["cells"], ["cost"])
    assert again.has(cells=3.0)
    again.once({"cells": 3}, lambda: pytest.fail("asked for again"))
    again.once({"cells": 4}, lambda: [{"cost": 1}, {"cost": None}])
    assert [row["cost"] for row in again.where(cells=4)] == ["1", ""]


def test_a_sheet_with_other_columns_is_refused(tmp_path):
    file = tmp_path / "runs.csv"
    Sheet(file, ["a"], ["b"]).add({"a": 1, "b": 2})
    with pytest.raises(InputError, match="line 1"):
        Sheet(file, ["a"], ["c"])


def test_a_value_for_no_column_is_refused(tmp_path):
    with pytest.raises(ValueError, match="no column 'c'"):
        Sheet(tmp_path / "t.csv", ["a"], ["b"]).add({"a": 1, "c": 2})
    with pytest.raises(ValueError, match="'c'"):
        write_rows(tmp_path / "t.csv", ["a"], [{"a": 1, "c": 2}])
    assert not (tmp_path / "t.csv").exists()


def test_means_leave_out_what_is_no_number():
    assert summary([1.0, 3.0, number("> 120")]) == (2.0, pytest.approx(2**0.5))
    assert summary([5.0]) == (5.0, 0.0)
    assert list(split([{"k": "b"}, {"k": "a"}, {"k": "b"}], "k")) == ["b", "a"]


@pytest.fixture
def study(tmp_path):
    """Return a study of two parts that says what it ran."""
    ran = []

    def part(name):
        def do(plan):
            ran.append(name)
            sheet = Sheet(plan.out / f"{name}.csv", ["x"], ["y"])
            sheet.once({"x": 1}, lambda: [{"y": plan.seed}])

        return do

    def paint(rows):
        figure, axes = pictures.panels()
        pictures.curves(axes[0, 0], rows, "x", "y", "x")
        pictures.dress(axes[0, 0], "title", "x", "y")
        return figure

    made = Study(
        plugin="toy",
        about="A toy.",
        parts={"one": part("one"), "two": part("two")},
        plan=lambda given: given,
        draw=lambda plan: pictures.draw(plan.out, {"figure1": ("one", paint), "figure2": ("none", paint)}),
        options=lambda parser: parser.add_argument("--seed", type=int, default=1),
        fixed=("size", "seed"),
    )
    return made, ran, tmp_path / "out"


def test_parts_are_run_in_order_and_chosen_by_name(study):
    made, ran, out = study
    assert made.run(["--out", str(out)]) == 0
    assert ran == ["one", "two"]
    assert made.run(["--only", "two", "--out", str(out)]) == 0
    assert ran == ["one", "two", "two"]
    with pytest.raises(SystemExit):
        made.run(["--only", "three", "--out", str(out)])


def test_pictures_are_drawn_of_tables_that_are_newer(study):
    made, ran, out = study
    made.run(["--only", "one", "--out", str(out)])
    picture = out / "figure1.png"
    first = picture.stat().st_mtime_ns
    assert not (out / "figure2.png").exists()
    made.run(["--only", "--out", str(out)])
    assert ran == ["one"]
    assert picture.stat().st_mtime_ns == first
    os.utime(out / "one.csv", ns=(first + 1, first + 1))
    bytes_before = picture.read_bytes()
    made.run(["--only", "--out", str(out)])
    assert picture.stat().st_mtime_ns > first
    assert picture.read_bytes() == bytes_before


def test_rows_of_another_seed_or_size_are_not_mixed_with(study, capsys):
    made, _, out = study
    assert made.run(["--quick", "--out", str(out)]) == 0
    assert made.run(["--out", str(out)]) == UsageError.exit_code
    assert "rows were made with size quick, not usual; expected another --out" in capsys.readouterr().err
    assert made.run(["--quick", "--seed", "2", "--out", str(out)]) == UsageError.exit_code
    with (out / "one.csv").open() as stream:
        assert list(csv.DictReader(stream)) == [{"x": "1", "y": "1"}]


@pytest.mark.parametrize("plugin", [path.name for path in PLUGINS])
def test_every_paper_is_run_by_the_same_command(plugin, capsys):
    made = importlib.import_module(f"{plugin.replace('-', '_')}_paper.command")
    assert made.STUDY.plugin == plugin
    with pytest.raises(SystemExit) as ended:
        made.main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    assert shown.startswith(f"usage: python plugins/{plugin}/experiments")
    for option in ("--out", "--only", "--quick", "--full"):
        assert option in shown
    for part in made.STUDY.parts.values():
        assert part.__doc__
