"""Reports over time: what sticky and fresh ones tell, what stays cost."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.kept_reports import compared, grid_streets, walks
from helpers.toys import grid_text

import privopt
from privopt.command.cli import cli
from privopt.interfaces.reporting import open_reporting
from privopt_metric_dp.attacks.many_reports import over_time


def solved(tmp_path, mechanism, more="", *, side, cell, epsilon):
    problem = tmp_path / "problem.toml"
    problem.write_text(grid_text(side, side, cell, epsilon) + more)
    return privopt.solve(mechanism, problem)


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Planar Laplace at epsilon 2 per km over cells of 200 m."""
    return solved(tmp_path_factory.mktemp("city"), "planar-laplace", side=15, cell=0.2, epsilon=2.0)


def test_a_thousand_fresh_reports_find_the_place_and_sticky_ones_do_not(city):
    found = over_time(city.opened.release, city.opened.problem.data)
    assert found["reports"] == [1, 10, 100, 1000]
    likely = found["likelihood"]
    assert likely["fresh"]["median"][-1] < 0.05
    assert likely["fresh"]["median"][0] > 0.4
    assert likely["fresh"]["median"][1] < likely["fresh"]["median"][0]
    for errors in likely["sticky"].values():
        assert errors == pytest.approx([errors[0]] * 4)
    assert likely["sticky"]["median"][0] == pytest.approx(likely["fresh"]["median"][0], rel=0.35)


def test_kept_reports_tell_less_than_fresh_ones(tmp_path):
    release = solved(tmp_path, "predictive", side=7, cell=0.5, epsilon=1.0).opened
    found = over_time(release.release, release.problem.data)
    assert found["likelihood"]["predicted"]["p95"][-1] > found["likelihood"]["fresh"]["p95"][-1]
    assert found["likelihood"]["predicted"]["median"][2] > found["likelihood"]["fresh"]["median"][2]


def test_the_command_adds_one_key_where_it_is_asked_for(tmp_path):
    release = solved(tmp_path, "exponential", side=3, cell=1.0, epsilon=1.0)
    folder = release.save(tmp_path / "release")
    plain, more = (
        json.loads(CliRunner().invoke(cli, ["audit", str(folder), "--json", *asked], catch_exceptions=False).stdout)
        for asked in ([], ["--over-time", "20"])
    )
    assert set(more) - set(plain) == {"over_time"}
    assert more["over_time"]["reports"] == [1, 10, 20]
    shown = CliRunner().invoke(cli, ["audit", str(folder), "--over-time"], catch_exceptions=False).stdout
    assert "likelihood: sticky: median" in shown


def test_the_report_shows_it(tmp_path, undrawn):
    release = solved(tmp_path, "exponential", side=3, cell=1.0, epsilon=1.0)
    opened = release.opened
    asked = opened.problem, opened.release, opened.result
    assert "What many reports reveal" in [section.title for section in open_reporting(opened.mechanism).report(*asked)]
    assert "over-time" in open_reporting(opened.mechanism).figures(*asked)


def test_what_it_finds_is_always_the_same(tmp_path):
    release = solved(tmp_path, "exponential", side=3, cell=1.0, epsilon=1.0)
    assert release.audit(over_time=10)["over_time"] == release.audit(over_time=10)["over_time"]


SIDE, KM = 7, 1.0


def test_stays_cost_half_of_what_independent_reports_do(tmp_path):
    streets, ends = grid_streets(SIDE, KM)
    rows = "\n".join(f"{tail},{head},{KM}" for tail, head in ends)
    (tmp_path / "roads.csv").write_text(f"from,to,km\n{rows}\n")
    (tmp_path / "points.csv").write_text("id\n" + "\n".join(str(n) for n in range(SIDE**2)) + "\n")
    text = (
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
        '[utility]\nkind = "distance"\n[privacy]\nepsilon = 2\n[predictive]\n'
    )
    walk = walks(streets, 40, 4, 60, 1.0, np.random.default_rng(1))
    found = compared(tmp_path, text, np.arange(SIDE**2), walk, every=(1, 2), gap=1e-3)
    assert found.fresh < 0.05
    assert found.independent[0] <= found.even[0] < found.constant
    assert found.predicted[0] <= 0.3 * found.independent[0]
    assert found.predicted[1] <= 0.3 * found.independent[1]
