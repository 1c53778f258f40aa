"""The page on which epsilon is chosen: its figures are those of the curve, and its sliders lead to them."""

import json
import re

import pytest
from helpers.toys import grid_text

from privopt.declare.schema import File
from privopt.run.options import Options
from privopt_tables.studies.curve import draw_curves
from privopt_tables.studies.curve_page import curve_page, write_curves
from privopt_tables.studies.epsilon_range import epsilons_of


def content(page):
    return json.loads(re.search(r'id="points">(.*?)</script>', page)[1])


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(3, 3, 1.0, 2))
    return tmp_path / "p.toml"


def test_the_command_writes_a_page_around_the_problems_epsilon(problem, tmp_path, privopt, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = privopt("explore", problem, "--mechanisms", "exponential", "--quiet")
    assert (done.returncode, done.stdout, done.stderr) == (0, "p-explore.html\n", "")
    page = (tmp_path / "p-explore.html").read_text("utf-8")
    assert "http://" not in page.replace("http://www.w3.org", "")
    values = content(page)["values"]
    assert (len(values), values[0], values[4], values[8]) == (9, 0.5, 2, 8)
    again = privopt("explore", problem, "--quiet")
    assert (again.returncode, "--force" in again.stderr) == (2, True)
    none = privopt("explore", problem, "--mechanisms", ",", "--force", "--quiet")
    assert (none.returncode, "got none" in none.stderr) == (2, True)


def test_an_epsilon_that_is_no_binary_number_is_divided_exactly(tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(2, 2, 1.0, 0.7))
    found = write_curves(tmp_path / "p.toml", ["exponential"], None, None, tmp_path / "p.html", Options())
    assert [str(found.points[n].epsilon) for n in (0, -1)] == ["7/40", "14/5"]


def test_the_page_holds_the_best_release_and_what_is_known_before(problem):
    found = draw_curves(File.read(problem), ["exponential", "optimal-lp"], epsilons_of("1:4:3"), Options(gap=1e-6))
    held = content(curve_page(found, "p.toml"))
    best = [point for point in found.points if point.mechanism == "optimal-lp"]
    assert [one["name"] for one in held["best"]] == ["optimal-lp"] * 3
    assert [one["loss"] for one in held["best"]] == [point.loss for point in best]
    assert all(one["bound"] <= one["loss"] for one in held["best"])
    blind, far = held["before"]
    assert blind == pytest.approx(8 / 9)
    assert far == pytest.approx((4 + 4 * 2**0.5) / 9)  # from the middle of nine places
    assert all(one["wrong"] < blind and one["miss"] < far for one in held["best"])
    across = held["across"]
    assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.02)  # a geometric axis


def test_a_promise_between_neighbours_is_called_so(tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(3, 3, 1.0, 2, within=1.1))
    found = draw_curves(File.read(tmp_path / "p.toml"), ["exponential"], epsilons_of("1:2:2"))
    assert found.setting.apart == "apart, from neighbour to neighbour"
    page = curve_page(found, "p.toml")
    assert "Note: what holds is between records up to 1.1 km apart" in page
    assert "Note: what holds is between records: a position is reported as if it were its nearest record" in page


def test_the_gap_is_that_of_solve_unless_another_is_asked_for(problem, tmp_path, privopt):
    pages = []
    for gap in ([], ["--gap", "1e-6"]):
        done = privopt(
            "explore", problem, "--epsilon", "1:2:2", "--out", tmp_path / f"{len(gap)}.html", "--quiet", *gap
        )
        assert done.returncode == 0, done.stderr
        pages.append(content((tmp_path / f"{len(gap)}.html").read_text("utf-8"))["best"])
    assert pages[0] == pages[1]


def test_a_loss_is_told_in_the_readers_unit_too(problem, tmp_path):
    problem.write_text(problem.read_text() + 'per_km = { cost = 0.8, unit = "minutes" }\n')
    found = write_curves(problem, ["exponential"], "1:2:2", None, tmp_path / "p.html", Options())
    page = (tmp_path / "p.html").read_text("utf-8")
    assert content(page)["perKm"] == {"cost": 0.8, "unit": "minutes"}
    assert content(page)["best"][0]["loss"] == found.points[0].loss  # in km
