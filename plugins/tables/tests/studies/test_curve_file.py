"""The file of a curve grows point by point, and the same command goes on from it; figures and a table for LaTeX."""

import shutil
import subprocess
from fractions import Fraction
from itertools import product

import numpy as np
import polars as pl
import pytest
from helpers.toys import grid_text

from privopt.declare.schema import File
from privopt.errors import InputError, UsageError
from privopt.run.task import Options
from privopt_tables.studies import curve as module
from privopt_tables.studies.curve_file import SCHEMA, PointsFile
from privopt_tables.studies.curve_page import write_curves
from privopt_tables.studies.curve_pictures import draw_figures, format_latex
from privopt_tables.studies.curve_points import Point, adversary_error
from privopt_tables.studies.epsilon_range import parse_epsilons

NAMES = ["exponential", "optimal-lp"]


class Killed(BaseException):
    """Ends a run as a kill does: nothing is tidied up."""


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(grid_text(2, 3))
    return path


def solving(monkeypatch, max_runs=None):
    """Epsilons that are solved from now on; a run is killed before one more than ``most``."""
    solved_points, original_solve = [], module._solve_point

    def record_and_solve(line, epsilon, *arguments):
        if len(solved_points) == max_runs:
            raise Killed
        solved_points.append((line.name, float(epsilon)))
        return original_solve(line, epsilon, *arguments)

    monkeypatch.setattr(module, "_solve_point", record_and_solve)
    return solved_points


def test_killed_curve_resumes(problem, tmp_path, monkeypatch):
    output_folder = tmp_path / "c.csv"
    with monkeypatch.context() as patch:
        solved_points = solving(patch, max_runs=3)
        with pytest.raises(Killed):
            write_curves(problem, NAMES, "1:4:3", output_folder, None, Options())
    assert solved_points == [("exponential", 1.0), ("exponential", 2.0), ("exponential", 4.0)]
    partial_table = pl.read_csv(output_folder)
    assert partial_table["epsilon"].to_list() == [1, 2, 4]
    with output_folder.open("a") as file:
        file.write("optimal-lp,1,0.1")  # a line that was not written whole
    solved_points = solving(monkeypatch)
    resumed = write_curves(problem, NAMES, "1:4:3", output_folder, None, Options())
    assert solved_points == [("optimal-lp", 1.0), ("optimal-lp", 2.0), ("optimal-lp", 4.0)]
    table = pl.read_csv(output_folder)
    assert table["seconds"][:3].to_list() == partial_table["seconds"].to_list()
    assert table["mechanism"].to_list() == [name for name in NAMES for _ in range(3)]
    assert table["lower_bound"].null_count() == 0  # the bounds of what came later hold for what came before
    once = write_curves(problem, NAMES, "1:4:3", tmp_path / "d.csv", None, Options())
    compared_columns = [name for name in table.columns if name != "seconds"]
    assert resumed.table()[compared_columns].equals(once.table()[compared_columns])


@pytest.mark.parametrize("partial_text", ["", "mechan"])
def test_curve_killed_in_its_first_line_resumes(problem, tmp_path, partial_text):
    output_folder = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:2:2", output_folder, None, Options())
    full_table = pl.read_csv(output_folder).drop("seconds")
    output_folder.write_text(partial_text)
    write_curves(problem, NAMES[:1], "1:2:2", output_folder, None, Options())
    assert pl.read_csv(output_folder).drop("seconds").equals(full_table)


def test_unreadable_mark_is_another_problem(problem, tmp_path):
    output_folder = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:2:2", output_folder, None, Options())
    PointsFile(path=output_folder).mark_path.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="another problem"):
        write_curves(problem, NAMES[:1], "1:2:2", output_folder, None, Options())


def test_finished_curve_grows_by_a_mechanism(problem, tmp_path, monkeypatch):
    output_folder = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:4:3", output_folder, None, Options())
    original_bytes = output_folder.read_bytes()
    solved_points = solving(monkeypatch)
    write_curves(problem, NAMES[:1], "1:4:3", output_folder, None, Options())
    assert (output_folder.read_bytes(), solved_points) == (original_bytes, [])
    write_curves(problem, NAMES, "1:4:3", output_folder, None, Options())
    assert [name for name, _ in solved_points] == ["optimal-lp"] * 3
    write_curves(problem, NAMES, "1:4:3", output_folder, None, Options(force=True))
    assert len(solved_points) == 9


def test_stopped_points_are_solved_last(problem, tmp_path, monkeypatch):
    output_folder = tmp_path / "c.csv"
    write_curves(problem, NAMES[1:], "1:4:3", output_folder, None, Options())
    lines = output_folder.read_text().splitlines()
    lines[1] = lines[1].replace("optimal,", "stopped,").replace("feasible,", "stopped,")
    output_folder.write_text("\n".join(lines[:3]) + "\n")
    solved_points = solving(monkeypatch)
    resumed = write_curves(problem, NAMES[1:], "1:4:3", output_folder, None, Options())
    assert solved_points == [("optimal-lp", 4.0), ("optimal-lp", 1.0)]
    assert {point.status for point in resumed.points} == {"optimal"}


def test_refuses_curve_of_another_problem(problem, tmp_path):
    output_folder = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:4:3", output_folder, None, Options())
    original_bytes = output_folder.read_bytes()
    with pytest.raises(UsageError, match=r"--force.*epsilon 1"):
        write_curves(problem, NAMES[:1], "2:3:2", output_folder, None, Options())
    with pytest.raises(UsageError, match="another problem, gap"):
        write_curves(problem, NAMES[:1], "1:4:3", output_folder, None, Options(gap=0.5))
    problem.write_text(grid_text(2, 2))
    with pytest.raises(UsageError, match="another problem, gap"):
        write_curves(problem, NAMES[:1], "1:4:3", output_folder, None, Options())
    assert output_folder.read_bytes() == original_bytes
    problem.write_text(grid_text(2, 3))
    output_folder.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="--force begins again"):
        write_curves(problem, NAMES[:1], "1:4:3", output_folder, None, Options())


HEADER = ",".join(SCHEMA)


@pytest.mark.parametrize(
    ("contents", "words"),
    [
        (b"id,lat,lon\na,1,2", "a file of another kind"),
        (b"no line ends here", "a file of another kind"),
        (b"PAR1\x00\xff\n\x80PAR1", "a file of another kind"),
        (",".join("abcdefghijkl").encode() + b"\n" + b",".join([b"1"] * 12) + b"\n", "a file of another kind"),
        (f"{HEADER}\nexponential{',' * 11}\nhalf a li".encode(), "a row that is no point of a curve"),
        (f"{HEADER}\n,1{',' * 10}\n".encode(), "a row that is no point of a curve"),
        (f"{HEADER}\nexponential,one{',' * 10}\n".encode(), "a row that is no point of a curve"),
        (f"{HEADER}\nexponential,1/0{',' * 10}\n".encode(), "a row that is no point of a curve"),
        (f"{HEADER}\n\xff,1\n".encode("latin-1"), "a row that is no point of a curve"),
    ],
)
def test_refuses_file_of_another_kind_unchanged(problem, tmp_path, contents, words):
    path = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:4:3", path, None, Options())
    path.write_bytes(contents)
    with pytest.raises(InputError, match=rf"^{path}.*curve wrote \(--force begins again\), got {words}$"):
        write_curves(problem, NAMES[:1], "1:4:3", path, None, Options())
    assert path.read_bytes() == contents


@pytest.mark.parametrize("size", [0, 5, len(HEADER)])
def test_resumes_from_half_a_header(problem, tmp_path, size):
    path = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:4:3", path, None, Options())
    path.write_text(HEADER[:size])
    write_curves(problem, NAMES[:1], "1:4:3", path, None, Options())
    assert pl.read_csv(path)["epsilon"].to_list() == [1, 2, 4]


def test_empty_range_is_not_the_default_range(problem, tmp_path):
    with pytest.raises(UsageError, match="expected LO:HI:N"):
        write_curves(problem, NAMES[:1], "", None, tmp_path / "page.html", Options())


@pytest.mark.parametrize("raw", [b"id,lat,lon\na,1,2\n", b"PAR1\xff", b"{}", b"\x93NUMPY"])
def test_refuses_problem_of_another_kind(problem, tmp_path, raw):
    problem.write_bytes(raw)
    with pytest.raises(InputError, match=r"^p\.toml.*TOML|^p\.toml.*records"):
        write_curves(problem, NAMES[:1], "1:4:3", tmp_path / "c.csv", None, Options())
    assert not (tmp_path / "c.csv").exists()


def test_existing_file_stays_until_a_point_exists(problem, tmp_path, monkeypatch):
    output_folder = tmp_path / "c.csv"
    output_folder.write_text("mine")
    with pytest.raises(UsageError, match=r"exists.*--force"):
        write_curves(problem, NAMES[:1], "1:4:3", output_folder, None, Options())
    solving(monkeypatch, max_runs=0)
    with pytest.raises(Killed):
        write_curves(problem, NAMES[:1], "1:4:3", output_folder, None, Options(force=True))
    assert output_folder.read_text() == "mine"
    assert not PointsFile(path=output_folder).is_begun


def test_figures_and_a_latex_table(problem, tmp_path, privopt):
    completed = privopt(
        *("curve", problem, "--mechanisms", "exponential", "--epsilon", "1:4:3", "--quiet"),
        *("--out", tmp_path / "c.csv", "--latex", tmp_path / "c.tex"),
        *("--figures", tmp_path / "figures"),
    )
    assert (completed.returncode, completed.stdout) == (0, "")
    figure_names = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert figure_names == sorted(f"{a}.{b}" for a, b in product(("loss", "adversary_error"), ("svg", "pdf", "png")))
    assert (tmp_path / "figures" / "loss.pdf").read_bytes().startswith(b"%PDF")
    text = (tmp_path / "c.tex").read_text()
    assert text.count("\\\\\n") == 1 + 3
    if shutil.which("pdflatex"):
        document = f"\\documentclass{{article}}\\begin{{document}}{text}\\end{{document}}"
        (tmp_path / "whole.tex").write_text(document)
        subprocess.run(["pdflatex", "-halt-on-error", "whole.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_latex_numbers():
    point = Point(mechanism="m_1", epsilon=Fraction(1), loss=1.23456e-9, lower_bound=None, status="feasible")
    assert r"m\_1 & 1 & $1.235 \cdot 10^{-9}$ & -- & -- & -- & -- & feasible" in format_latex([point], "km", "km")
    assert set(draw_figures([point], "km", "km")) == {"loss", "adversary_error"}


def test_adversary_error_matches_brute_force(problem):
    rng = np.random.default_rng(5)
    z, weighted = rng.dirichlet(np.ones(4), 3), rng.random((3, 4))
    guesses = product(range(4), repeat=4)
    all_errors = [sum(weighted[i, guess[k]] * z[i, k] for i in range(3) for k in range(4)) for guess in guesses]
    assert adversary_error(z, weighted) == pytest.approx(min(all_errors), rel=1e-12)
    curves = module.draw_curves(File.read(problem), NAMES, parse_epsilons("1:4:3"))
    for point in curves.points:
        assert 0 < point.adversary_error <= point.loss * (1 + 1e-12)
        assert 0 < point.epsilon_achieved <= point.epsilon
