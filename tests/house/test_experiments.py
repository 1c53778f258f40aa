"""What the papers' experiments share: a table that is gone on with, one command, pictures of what is there."""

import csv
import importlib
import os
from pathlib import Path

import pytest
from helpers.mentions import assert_mentions

from experiments import pictures
from experiments.command import Study
from experiments.tables import Sheet, number, read_rows, split, summary, write_rows
from privopt.errors import InputError, UsageError

PLUGINS = sorted(path.parent for path in (Path(__file__).parents[2] / "plugins").glob("*/experiments"))


def test_existing_row_is_not_computed_again(tmp_path):
    sheet = Sheet(tmp_path / "new" / "t.csv", ["cells"], ["cost"])
    sheet.once({"cells": 3}, lambda: [{"cost": 0.12345678912}])
    assert read_rows(tmp_path / "new" / "t.csv") == [{"cells": "3", "cost": "0.123456789"}]
    reopened = Sheet(tmp_path / "new" / "t.csv", ["cells"], ["cost"])
    assert reopened.has(cells=3.0)
    reopened.once({"cells": 3}, lambda: pytest.fail("asked for again"))
    reopened.once({"cells": 4}, lambda: [{"cost": 1}, {"cost": None}])
    assert [row["cost"] for row in reopened.where(cells=4)] == ["1", ""]


def test_refuses_sheet_with_other_columns(tmp_path):
    file = tmp_path / "runs.csv"
    Sheet(file, ["a"], ["b"]).add({"a": 1, "b": 2})
    with pytest.raises(InputError, match="line 1"):
        Sheet(file, ["a"], ["c"])


def test_refuses_value_for_unknown_column(tmp_path):
    with pytest.raises(ValueError, match="no column 'c'"):
        Sheet(tmp_path / "t.csv", ["a"], ["b"]).add({"a": 1, "c": 2})
    with pytest.raises(ValueError, match="'c'"):
        write_rows(tmp_path / "t.csv", ["a"], [{"a": 1, "c": 2}])
    assert not (tmp_path / "t.csv").exists()


def test_means_ignore_missing_numbers():
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

    toy_study = Study(
        plugin="toy",
        about="A toy.",
        parts={"one": part("one"), "two": part("two")},
        plan=lambda arguments: arguments,
        draw=lambda plan: pictures.draw(plan.out, {"figure1": ("one", paint), "figure2": ("none", paint)}),
        options=lambda parser: parser.add_argument("--seed", type=int, default=1),
        fixed=("size", "seed"),
    )
    return toy_study, ran, tmp_path / "out"


def test_parts_run_in_order_and_by_name(study):
    toy_study, ran, output_folder = study
    assert toy_study.run(["--out", str(output_folder)]) == 0
    assert ran == ["one", "two"]
    assert toy_study.run(["--only", "two", "--out", str(output_folder)]) == 0
    assert ran == ["one", "two", "two"]
    with pytest.raises(SystemExit):
        toy_study.run(["--only", "three", "--out", str(output_folder)])


def test_redraws_pictures_of_newer_tables(study):
    toy_study, ran, output_folder = study
    toy_study.run(["--only", "one", "--out", str(output_folder)])
    picture = output_folder / "figure1.png"
    first = picture.stat().st_mtime_ns
    assert not (output_folder / "figure2.png").exists()
    toy_study.run(["--only", "--out", str(output_folder)])
    assert ran == ["one"]
    assert picture.stat().st_mtime_ns == first
    os.utime(output_folder / "one.csv", ns=(first + 1, first + 1))
    bytes_before = picture.read_bytes()
    toy_study.run(["--only", "--out", str(output_folder)])
    assert picture.stat().st_mtime_ns > first
    assert picture.read_bytes() == bytes_before


def test_does_not_mix_rows_of_other_settings(study, capsys):
    toy_study, _, output_folder = study
    assert toy_study.run(["--quick", "--out", str(output_folder)]) == 0
    assert toy_study.run(["--out", str(output_folder)]) == UsageError.exit_code
    assert_mentions(capsys.readouterr().err, "size quick", "another --out")
    assert toy_study.run(["--quick", "--seed", "2", "--out", str(output_folder)]) == UsageError.exit_code
    with (output_folder / "one.csv").open() as stream:
        assert list(csv.DictReader(stream)) == [{"x": "1", "y": "1"}]


@pytest.mark.parametrize("plugin", [path.name for path in PLUGINS])
def test_every_paper_has_the_same_command(plugin, capsys):
    command_module = importlib.import_module(f"{plugin.replace('-', '_')}_paper.command")
    assert command_module.STUDY.plugin == plugin
    with pytest.raises(SystemExit) as excinfo:
        command_module.main(["--help"])
    assert excinfo.value.code == 0
    usage = capsys.readouterr().out
    assert usage.startswith(f"usage: python plugins/{plugin}/experiments")
    for option in ("--out", "--only", "--quick", "--full"):
        assert option in usage
    for part in command_module.STUDY.parts.values():
        assert part.__doc__
