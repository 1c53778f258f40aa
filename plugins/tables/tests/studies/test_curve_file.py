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
from privopt.run.options import Options
from privopt_tables.studies import curve as module
from privopt_tables.studies.curve_file import PointsFile
from privopt_tables.studies.curve_page import write_curves
from privopt_tables.studies.curve_pictures import figures_of, latex_of
from privopt_tables.studies.curve_points import Point, adversary_error
from privopt_tables.studies.epsilon_range import epsilons_of

NAMES = ["exponential", "optimal-lp"]


class Killed(BaseException):
    """Ends a run as a kill does: nothing is tidied up."""


@pytest.fixture
def problem(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text(grid_text(2, 3))
    return path


def solving(monkeypatch, most=None):
    """Epsilons that are solved from now on; a run is killed before one more than ``most``."""
    asked, solved = [], module._solved

    def seen(line, epsilon, *given):
        if len(asked) == most:
            raise Killed
        asked.append((line.name, float(epsilon)))
        return solved(line, epsilon, *given)

    monkeypatch.setattr(module, "_solved", seen)
    return asked


def test_a_killed_curve_is_gone_on_with(problem, tmp_path, monkeypatch):
    out = tmp_path / "c.csv"
    with monkeypatch.context() as patch:
        asked = solving(patch, most=3)
        with pytest.raises(Killed):
            write_curves(problem, NAMES, "1:4:3", out, None, Options())
    assert asked == [("exponential", 1.0), ("exponential", 2.0), ("exponential", 4.0)]
    begun = pl.read_csv(out)
    assert begun["epsilon"].to_list() == [1, 2, 4]
    with out.open("a") as file:
        file.write("optimal-lp,1,0.1")  # a line that was not written whole
    asked = solving(monkeypatch)
    found = write_curves(problem, NAMES, "1:4:3", out, None, Options())
    assert asked == [("optimal-lp", 1.0), ("optimal-lp", 2.0), ("optimal-lp", 4.0)]
    table = pl.read_csv(out)
    assert table["seconds"][:3].to_list() == begun["seconds"].to_list()
    assert table["mechanism"].to_list() == [name for name in NAMES for _ in range(3)]
    assert table["lower_bound"].null_count() == 0  # the bounds of what came later hold for what came before
    once = write_curves(problem, NAMES, "1:4:3", tmp_path / "d.csv", None, Options())
    same = [name for name in table.columns if name != "seconds"]
    assert found.table()[same].equals(once.table()[same])


@pytest.mark.parametrize("left", ["", "mechan"])
def test_a_curve_killed_in_its_first_line_is_gone_on_with(problem, tmp_path, left):
    out = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:2:2", out, None, Options())
    whole = pl.read_csv(out).drop("seconds")
    out.write_text(left)
    write_curves(problem, NAMES[:1], "1:2:2", out, None, Options())
    assert pl.read_csv(out).drop("seconds").equals(whole)


def test_a_curve_whose_mark_is_no_text_is_of_another_problem(problem, tmp_path):
    out = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:2:2", out, None, Options())
    PointsFile(path=out).mark.write_bytes(b"\xff")
    with pytest.raises(UsageError, match="another problem"):
        write_curves(problem, NAMES[:1], "1:2:2", out, None, Options())


def test_a_finished_curve_is_as_it_was_and_grows_by_a_mechanism(problem, tmp_path, monkeypatch):
    out = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:4:3", out, None, Options())
    before = out.read_bytes()
    asked = solving(monkeypatch)
    write_curves(problem, NAMES[:1], "1:4:3", out, None, Options())
    assert (out.read_bytes(), asked) == (before, [])
    write_curves(problem, NAMES, "1:4:3", out, None, Options())
    assert [name for name, _ in asked] == ["optimal-lp"] * 3
    write_curves(problem, NAMES, "1:4:3", out, None, Options(force=True))
    assert len(asked) == 9


def test_what_a_limit_stopped_is_solved_again_after_what_was_not_reached(problem, tmp_path, monkeypatch):
    out = tmp_path / "c.csv"
    write_curves(problem, NAMES[1:], "1:4:3", out, None, Options())
    lines = out.read_text().splitlines()
    lines[1] = lines[1].replace("optimal,", "stopped,").replace("feasible,", "stopped,")
    out.write_text("\n".join(lines[:3]) + "\n")
    asked = solving(monkeypatch)
    found = write_curves(problem, NAMES[1:], "1:4:3", out, None, Options())
    assert asked == [("optimal-lp", 4.0), ("optimal-lp", 1.0)]
    assert {point.status for point in found.points} == {"optimal"}


def test_a_curve_of_another_problem_is_refused(problem, tmp_path):
    out = tmp_path / "c.csv"
    write_curves(problem, NAMES[:1], "1:4:3", out, None, Options())
    before = out.read_bytes()
    with pytest.raises(UsageError, match=r"--force replaces it: it was begun with exponential at epsilon 1"):
        write_curves(problem, NAMES[:1], "2:3:2", out, None, Options())
    with pytest.raises(UsageError, match="another problem, gap or solver"):
        write_curves(problem, NAMES[:1], "1:4:3", out, None, Options(gap=0.5))
    problem.write_text(grid_text(2, 2))
    with pytest.raises(UsageError, match="another problem, gap or solver"):
        write_curves(problem, NAMES[:1], "1:4:3", out, None, Options())
    assert out.read_bytes() == before
    problem.write_text(grid_text(2, 3))
    out.write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match="--force begins again"):
        write_curves(problem, NAMES[:1], "1:4:3", out, None, Options())


def test_a_file_that_stands_there_stays_until_there_is_a_point(problem, tmp_path, monkeypatch):
    out = tmp_path / "c.csv"
    out.write_text("mine")
    with pytest.raises(UsageError, match="exists already; --force replaces it"):
        write_curves(problem, NAMES[:1], "1:4:3", out, None, Options())
    solving(monkeypatch, most=0)
    with pytest.raises(Killed):
        write_curves(problem, NAMES[:1], "1:4:3", out, None, Options(force=True))
    assert out.read_text() == "mine"
    assert not PointsFile(path=out).begun


def test_figures_and_a_table_for_latex(problem, tmp_path, privopt):
    done = privopt(
        *("curve", problem, "--mechanisms", "exponential", "--epsilon", "1:4:3", "--quiet"),
        *("--out", tmp_path / "c.csv", "--latex", tmp_path / "c.tex"),
        *("--figures", tmp_path / "figures"),
    )
    assert (done.returncode, done.stdout) == (0, "")
    drawn = sorted(path.name for path in (tmp_path / "figures").iterdir())
    assert drawn == sorted(f"{a}.{b}" for a, b in product(("loss", "adversary_error"), ("svg", "pdf", "png")))
    assert (tmp_path / "figures" / "loss.pdf").read_bytes().startswith(b"%PDF")
    text = (tmp_path / "c.tex").read_text()
    assert text.count("\\\\\n") == 1 + 3
    if shutil.which("pdflatex"):
        whole = f"\\documentclass{{article}}\\begin{{document}}{text}\\end{{document}}"
        (tmp_path / "whole.tex").write_text(whole)
        subprocess.run(["pdflatex", "-halt-on-error", "whole.tex"], cwd=tmp_path, check=True, capture_output=True)


def test_numbers_of_latex():
    point = Point(mechanism="m_1", epsilon=Fraction(1), loss=1.23456e-9, lower_bound=None, status="feasible")
    assert r"m\_1 & 1 & $1.235 \cdot 10^{-9}$ & -- & -- & -- & -- & feasible" in latex_of([point], "km", "km")
    assert set(figures_of([point], "km", "km")) == {"loss", "adversary_error"}


def test_an_adversary_errs_as_a_search_over_all_guesses_says(problem):
    rng = np.random.default_rng(5)
    z, weighted = rng.dirichlet(np.ones(4), 3), rng.random((3, 4))
    guesses = product(range(4), repeat=4)
    every = [sum(weighted[i, guess[k]] * z[i, k] for i in range(3) for k in range(4)) for guess in guesses]
    assert adversary_error(z, weighted) == pytest.approx(min(every), rel=1e-12)
    found = module.draw_curves(File.read(problem), NAMES, epsilons_of("1:4:3"))
    for point in found.points:
        assert 0 < point.adversary_error <= point.loss * (1 + 1e-12)
        assert 0 < point.epsilon_achieved <= point.epsilon
