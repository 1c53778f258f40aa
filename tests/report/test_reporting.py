"""Reports: self-contained, without secrets, under their size, and no part of what the sums cover."""

import re
import shutil

import pytest

from privopt.errors import InputError, StoppedError
from privopt.report.write_report import write_figures, write_report
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify


@pytest.fixture(scope="module")
def folder(solved_toy, tmp_path_factory):
    """DIR of the toy problem, with its report."""
    folder = shutil.copytree(solved_toy, tmp_path_factory.mktemp("toy") / "out")
    write_report(folder)
    return folder


def test_a_report_is_one_file_that_needs_no_network(solved_toy, folder):
    path = folder / "report.html"
    text = path.read_text("utf-8")
    assert {each.name for each in folder.iterdir()} == {*(each.name for each in solved_toy.iterdir()), path.name}
    assert path.stat().st_size < 6e6
    assert not re.search(r'(?:src|href)="(?!data:|#)', text)
    assert "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    for word in (
        "proved on the release",
        "Certificate",
        "Loss next to bound",
        "privopt verify",
        "metric-dp",
        "exponential mechanism",
    ):
        assert word in text
    assert verify(folder).complaints == ()


def test_every_section_is_named_and_every_id_is_used_once(folder):
    text = (folder / "report.html").read_text("utf-8")
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert text.count("<section") == text.count("<h2")
    assert '<html lang="en">' in text
    for reference in re.findall(r"url\(#([^)]+)\)", text):
        assert reference in ids


def test_figures_come_as_svg_and_png(example, tmp_path):
    written = write_figures(example("photo-censor"), tmp_path / "deep" / "figures")
    assert {path.suffix for path in written} == {".svg", ".png"}
    assert all(path.stat().st_size > 1000 for path in written)


def test_figures_that_cannot_be_written_leave_nothing(example, tmp_path, monkeypatch):
    from privopt.report import write_report as make

    saved, save = [], make.save

    def full(figure, path):
        saved.append(path)
        save(figure, path)
        if len(saved) == 3:
            path.write_bytes(path.read_bytes()[:100])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr(make, "save", full)
    (tmp_path / "old").mkdir()
    for target in (tmp_path / "new", tmp_path / "old"):
        saved.clear()
        with pytest.raises(StoppedError, match=f"{target}/.*No space left on device; nothing written"):
            write_figures(example("photo-censor"), target)
    assert [path.name for path in tmp_path.iterdir()] == ["old"]
    assert list((tmp_path / "old").iterdir()) == []


def test_a_folder_that_is_none_is_an_input_error(tmp_path):
    with pytest.raises(InputError):
        write_report(tmp_path)


@pytest.mark.usefixtures("undrawn")
def test_the_line_that_reproduces_names_every_option_that_was_given(folder, toy, tmp_path):
    # far more than a worker holds after hours of other tests: what it holds counts
    given = Options(method="full", solver="highs", jobs=2, time_limit=60.0, memory=16.0, gap=1e-3)
    asked = solve("optimal-lp", toy, tmp_path / "out", given).folder
    line = "solve optimal-lp problem/problem.toml --method full --solver highs --gap 0.001 --jobs 2 --time-limit 60.0"
    assert f"{line} --memory 16.0 --out again" in write_report(asked).read_text("utf-8")
    assert "--jobs" not in (folder / "report.html").read_text("utf-8")
