"""Reports over time: what sticky and fresh ones tell, what stays cost."""

import json

import numpy as np
import pytest
from click.testing import CliRunner
from helpers.kept_reports import compare_losses, grid_streets, walks
from helpers.toys import grid_text

import privopt
from privopt.command.cli import cli
from privopt.interfaces.reporting import open_reporting
from privopt_metric_dp.attacks.many_reports import over_time


def solve_grid(tmp_path, mechanism, settings="", *, size, cell, epsilon):
    problem = tmp_path / "problem.toml"
    problem.write_text(grid_text(size, size, cell, epsilon) + settings)
    return privopt.solve(mechanism, problem)


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """Planar Laplace at epsilon 2 per km over cells of 200 m."""
    return solve_grid(tmp_path_factory.mktemp("city"), "planar-laplace", size=15, cell=0.2, epsilon=2.0)


def test_many_fresh_reports_reveal_the_place(city):
    findings = over_time(city.opened.release, city.opened.problem.data)
    assert findings["reports"] == [1, 10, 100, 1000]
    likely = findings["likelihood"]
    assert likely["fresh"]["median"][-1] < 0.05
    assert likely["fresh"]["median"][0] > 0.4
    assert likely["fresh"]["median"][1] < likely["fresh"]["median"][0]
    for errors in likely["sticky"].values():
        assert errors == pytest.approx([errors[0]] * 4)
    # After one report the two kinds are the same report, and so are the points of the figure.
    assert [errors[0] for errors in likely["sticky"].values()] == [errors[0] for errors in likely["fresh"].values()]


def test_equal_numbers_of_reports_have_equal_figures(city):
    """The page asks for 1,000 reports, papers for 50, and audit for any number."""
    release, data = city.opened.release, city.opened.problem.data
    many, few = over_time(release, data), over_time(release, data, max_reports=50)
    assert few["reports"] == [1, 10, 50]
    for kind, errors in few["likelihood"].items():
        for quantile, values in errors.items():
            assert values[:2] == many["likelihood"][kind][quantile][:2]
    # The only report of a place is the first one, repeated or not.
    assert few["likelihood"]["sticky"]["median"][0] == few["likelihood"]["fresh"]["median"][0]
    assert city.audit()["statistical"] == city.audit()["statistical"]


def test_stored_reports_reveal_less(tmp_path):
    release = solve_grid(tmp_path, "predictive", size=7, cell=0.5, epsilon=1.0).opened
    findings = over_time(release.release, release.problem.data)
    assert findings["likelihood"]["predicted"]["p95"][-1] > findings["likelihood"]["fresh"]["p95"][-1]
    assert findings["likelihood"]["predicted"]["median"][2] > findings["likelihood"]["fresh"]["median"][2]


def test_option_adds_one_key(tmp_path):
    release = solve_grid(tmp_path, "exponential", size=3, cell=1.0, epsilon=1.0)
    folder = release.save(tmp_path / "release")
    without_traces, with_traces = (
        json.loads(CliRunner().invoke(cli, ["audit", str(folder), "--json", *arguments], catch_exceptions=False).stdout)
        for arguments in ([], ["--over-time", "20"])
    )
    assert set(with_traces) - set(without_traces) == {"over_time"}
    assert with_traces["over_time"]["reports"] == [1, 10, 20]
    completed = CliRunner().invoke(cli, ["audit", str(folder), "--over-time"], catch_exceptions=False).stdout
    assert "likelihood: sticky: median" in completed


def test_report_shows_many_reports(tmp_path, undrawn):
    release = solve_grid(tmp_path, "exponential", size=3, cell=1.0, epsilon=1.0)
    opened_release = release.opened
    report_arguments = opened_release.problem, opened_release.release, opened_release.result
    assert any(
        "many reports" in section.title
        for section in open_reporting(opened_release.mechanism).report(*report_arguments)
    )
    assert "over-time" in open_reporting(opened_release.mechanism).figures(*report_arguments)


def test_findings_are_reproducible(tmp_path):
    release = solve_grid(tmp_path, "exponential", size=3, cell=1.0, epsilon=1.0)
    assert release.audit(over_time=10)["over_time"] == release.audit(over_time=10)["over_time"]


SIDE, KM = 7, 1.0


@pytest.mark.filterwarnings("ignore:the best guess at the")
def test_stays_cost_half_of_independent_reports(tmp_path):
    streets, street_ends = grid_streets(SIDE, KM)
    rows = "\n".join(f"{tail},{head},{KM}" for tail, head in street_ends)
    (tmp_path / "roads.csv").write_text(f"from,to,km\n{rows}\n")
    (tmp_path / "points.csv").write_text("id\n" + "\n".join(str(n) for n in range(SIDE**2)) + "\n")
    text = (
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
        '[utility]\nkind = "distance"\n[privacy]\nepsilon = 2\n[predictive]\n'
    )
    walk = walks(streets, 40, 4, 60, 1.0, np.random.default_rng(1))
    comparison = compare_losses(tmp_path, text, np.arange(SIDE**2), walk, intervals=(1, 2), gap=1e-3)
    assert comparison.fresh < 0.05
    assert comparison.independent[0] <= comparison.even[0] < comparison.constant
    assert comparison.predicted[0] <= 0.3 * comparison.independent[0]
    assert comparison.predicted[1] <= 0.3 * comparison.independent[1]
