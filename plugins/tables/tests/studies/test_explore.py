"""The page on which epsilon is chosen: its figures are those of the curve, and its sliders lead to them."""

import json
import re

import pytest
from helpers.toys import grid_text

from privopt.declare.schema import File
from privopt.run.task import Options
from privopt_tables.studies.curve import draw_curves
from privopt_tables.studies.curve_page import curve_page, write_curves
from privopt_tables.studies.epsilon_range import parse_epsilons


def content(page):
    return json.loads(re.search(r'id="points">(.*?)</script>', page)[1])


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(3, 3, 1.0, 2))
    return tmp_path / "p.toml"


def test_command_writes_a_page(problem, tmp_path, privopt, monkeypatch):
    monkeypatch.chdir(tmp_path)
    completed = privopt("explore", problem, "--mechanisms", "exponential", "--quiet")
    assert (completed.returncode, completed.stdout, completed.stderr) == (0, "", "")
    page = (tmp_path / "p-explore.html").read_text("utf-8")
    assert "http://" not in page.replace("http://www.w3.org", "")
    values = content(page)["values"]
    assert (len(values), values[0], values[4], values[8]) == (9, 0.5, 2, 8)
    second_run = privopt("explore", problem, "--quiet")
    assert (second_run.returncode, "--force" in second_run.stderr) == (2, True)
    without_epsilon = privopt("explore", problem, "--mechanisms", ",", "--force", "--quiet")
    assert (without_epsilon.returncode, "got none" in without_epsilon.stderr) == (2, True)


def test_decimal_epsilon_is_divided_exactly(tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(2, 2, 1.0, 0.7))
    curves = write_curves(tmp_path / "p.toml", ["exponential"], None, None, tmp_path / "p.html", Options())
    assert [str(curves.points[n].epsilon) for n in (0, -1)] == ["7/40", "14/5"]


def test_page_holds_the_best_release(problem):
    curves = draw_curves(File.read(problem), ["exponential", "optimal-lp"], parse_epsilons("1:4:3"), Options(gap=1e-6))
    page_data = content(curve_page(curves, "p.toml"))
    best = [point for point in curves.points if point.mechanism == "optimal-lp"]
    assert [best_entry["name"] for best_entry in page_data["best"]] == ["optimal-lp"] * 3
    assert [best_entry["loss"] for best_entry in page_data["best"]] == [point.loss for point in best]
    assert all(best_entry["bound"] <= best_entry["loss"] for best_entry in page_data["best"])
    blind, blind_error = page_data["before"]
    assert blind == pytest.approx(8 / 9)
    assert blind_error == pytest.approx((4 + 4 * 2**0.5) / 9)  # from the middle of nine places
    assert all(best_entry["wrong"] < blind and best_entry["miss"] < blind_error for best_entry in page_data["best"])
    for across in page_data["across"]:  # in both drawings
        assert across[1] - across[0] == pytest.approx(across[2] - across[1], abs=0.02)  # a geometric axis


def test_promise_between_neighbours_is_named(tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(3, 3, 1.0, 2, within=1.1))
    curves = draw_curves(File.read(tmp_path / "p.toml"), ["exponential"], parse_epsilons("1:2:2"))
    assert curves.setting.apart.endswith("neighbour to neighbour")
    page = curve_page(curves, "p.toml")
    assert "up to 1.1 km" in page
    assert "epsilon is per km." in " ".join(page.split())
    assert "its nearest record" in page


def test_gap_is_that_of_solve_by_default(problem, tmp_path, privopt):
    pages = []
    for gap in ([], ["--gap", "1e-6"]):
        completed = privopt(
            "explore", problem, "--epsilon", "1:2:2", "--out", tmp_path / f"{len(gap)}.html", "--quiet", *gap
        )
        assert completed.returncode == 0, completed.stderr
        pages.append(content((tmp_path / f"{len(gap)}.html").read_text("utf-8"))["best"])
    assert pages[0] == pages[1]


def test_loss_is_shown_in_the_unit_of_the_reader(problem, tmp_path):
    problem.write_text(problem.read_text() + 'per_km = { cost = 0.8, unit = "minutes" }\n')
    curves = write_curves(problem, ["exponential"], "1:2:2", None, tmp_path / "p.html", Options())
    page = (tmp_path / "p.html").read_text("utf-8")
    assert "epsilon is per km." in " ".join(page.split())
    assert content(page)["perKm"] == {"cost": 0.8, "unit": "minutes"}
    assert content(page)["best"][0]["loss"] == curves.points[0].loss  # in km
