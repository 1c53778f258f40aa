"""Reports: self-contained, without secrets, under their size, and no part of what the sums cover."""

import re
import shutil

import pytest

from privopt.errors import InputError, StoppedError
from privopt.report.write_report import write_figures, write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify


@pytest.fixture(scope="module")
def folder(solved_toy, tmp_path_factory):
    """DIR of the toy problem, with its report."""
    folder = shutil.copytree(solved_toy, tmp_path_factory.mktemp("toy") / "out")
    write_report(folder)
    return folder


def test_report_is_one_file_without_network(solved_toy, folder):
    path = folder / "report.html"
    text = path.read_text("utf-8")
    assert {each.name for each in folder.iterdir()} == {*(each.name for each in solved_toy.iterdir()), path.name}
    assert path.stat().st_size < 6e6
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    for word in (
        "proved on the release",
        "Certificate",
        "How large the loss is",
        "privopt verify",
        "metric-dp",
        "exponential mechanism",
    ):
        assert word in text
    assert verify(folder).complaints == ()


def test_sections_are_named_and_ids_unique(folder):
    text = (folder / "report.html").read_text("utf-8")
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    named = re.findall(r'<section aria-labelledby="(\w+)"><h[23] id="(\w+)"', text)
    assert text.count("<section") == len(named) > 8
    assert all(reference == heading for reference, heading in named)
    assert '<html lang="en">' in text
    for reference in re.findall(r"url\(#([^)]+)\)", text):
        assert reference in ids


def test_figures_are_svg_and_png(example, tmp_path):
    figure_paths = write_figures(example("photo-censor"), tmp_path / "deep" / "figures")
    assert {path.suffix for path in figure_paths} == {".svg", ".png"}
    assert all(path.stat().st_size > 1000 for path in figure_paths)


def test_failed_figures_leave_nothing(example, tmp_path, monkeypatch):
    from privopt.report import write_report as make

    saved_paths, save = [], make.save

    def full(figure, path):
        saved_paths.append(path)
        save(figure, path)
        if len(saved_paths) == 3:
            path.write_bytes(path.read_bytes()[:100])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(make, "save", full)
    (tmp_path / "old").mkdir()
    for target in (tmp_path / "new", tmp_path / "old"):
        saved_paths.clear()
        with pytest.raises(StoppedError, match=f"{target}/.*No space left"):
            write_figures(example("photo-censor"), target)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert list((tmp_path / "old").iterdir()) == []


def test_missing_folder_is_an_input_error(tmp_path):
    with pytest.raises(InputError):
        write_report(tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_reproducing_line_names_every_option(folder, toy, tmp_path):
    # far more than a worker holds after hours of other tests: what it holds counts
    options = Options(method="full", solver="highs", jobs=2, time_limit=60.0, memory=16.0, gap=1e-3)
    solved_folder = solve("optimal-lp", toy, tmp_path / "out", options).folder
    line = "solve optimal-lp problem/problem.toml --method full --solver highs --gap 0.001 --jobs 2 --time-limit 60.0"
    assert f"{line} --memory 16.0 --out again" in write_report(solved_folder).read_text("utf-8")
    assert "--jobs" not in (folder / "report.html").read_text("utf-8")
