"""Costs to expect: against plans whose noise is drawn."""

from __future__ import annotations

import csv
import io
from fractions import Fraction

import numpy as np
import pytest
from click.testing import CliRunner

from privopt.command.cli import cli as privopt
from privopt_fl_linear.command import cli
from privopt_fl_linear.location import noisy_counts
from privopt_fl_linear.margins import MarginRule
from privopt_fl_linear.metric import Plane
from privopt_fl_linear.plan import Server
from privopt_fl_linear.reconnection import reconnect
from privopt_fl_linear.site import Site

PROBLEM = '[locations]\npoints = "p.csv"\n[privacy]\nepsilon = 0.5\n[fl-linear]\nmean_clients = 40\n'


@pytest.fixture
def problem(tmp_path):
    rng = np.random.default_rng(3)
    points, cost = rng.random((60, 2)).round(4), rng.uniform(0.1, 0.3, 60).round(4)
    rows = [f"v{i:02d},{x},{y},{f}" for i, ((x, y), f) in enumerate(zip(points.tolist(), cost.tolist(), strict=True))]
    (tmp_path / "p.csv").write_text("\n".join(["id,x,y,facility_cost", *rows]) + "\n")
    (tmp_path / "p.toml").write_text(PROBLEM)
    return tmp_path / "p.toml", Site(metric=Plane(points), cost=cost, rank=np.arange(60))


def expect(path, *more):
    done = CliRunner().invoke(cli, ["expect", str(path), *more])
    return done, list(csv.DictReader(io.StringIO(done.stdout)))


def test_costs_to_expect_are_the_means_of_costs_with_noise(problem):
    path, site = problem
    done, rows = expect(path, "--epsilon", "0.1:1:3", "--alpha", "0.01:0.2:2")
    assert done.exit_code == 0, done.output
    assert len(rows) == 2 * 3 * 2
    base = site.connect()
    for row in rows:
        epsilon, alpha, delta = (float(row[name]) for name in ("epsilon", "alpha", "delta"))
        if row["method"] == "laplace":
            assert delta == 0.0
        made = reconnect(site, base, delta)
        server = Server(site=site, rule=MarginRule(n=60, epsilon=epsilon), alpha=alpha)
        paid = []
        for seed in range(60):
            noisy, _ = noisy_counts(np.full(60, 40), Fraction(epsilon), seed=seed)
            plan = server.prior_plan(noisy, made, delta, alpha)
            paid.append(plan.costs(site, np.full(60, 40))["total"])
        error = np.std(paid) / np.sqrt(60)
        assert abs(np.mean(paid) - float(row["cost"])) < 5 * error + 1e-6 * float(row["cost"])
    cost = [float(row["cost"]) for row in rows if row["method"] == "reconnection" and row["alpha"] == "0.01"]
    assert cost == sorted(cost, reverse=True)
    assert all(float(row["relative"]) > 1 for row in rows)


def test_bad_usage_is_a_line(problem, tmp_path):
    path, _ = problem
    for more in (["--epsilon", "1:2"], ["--epsilon", "0.1:1:3", "--alpha", "0.5:2:3"]):
        done, _ = expect(path, *more)
        assert done.exit_code == 2
        assert "Traceback" not in done.output
    path.write_text(PROBLEM.replace("mean_clients = 40", ""))
    done, _ = expect(path, "--epsilon", "0.1:1:3")
    assert done.exit_code == 2
    assert f"{path.name}: fl-linear.mean_clients: found nothing" in done.stderr


def test_plan_and_curve_name_the_command_that_tells(problem):
    path, _ = problem
    curve = ["curve", path, "--mechanisms", "fl-linear", "--epsilon", "1:2:2", "--out", path.with_name("c.csv")]
    for words in (["plan", "fl-linear", path], curve):
        done = CliRunner().invoke(privopt, [str(word) for word in words])
        assert done.exit_code == 2
        assert "privopt-fl-linear expect" in done.stderr


def test_the_table_is_written_whole_and_replaced_by_force_alone(problem, tmp_path):
    path, _ = problem
    for more, code in (([], 0), ([], 2), (["--force"], 0)):
        done, _ = expect(path, "--epsilon", "0.1:1:2", "--out", str(tmp_path / "c.csv"), *more)
        assert done.exit_code == code
    assert (tmp_path / "c.csv").read_text().startswith("method,epsilon,alpha,delta,margin_cost,cost,relative\n")
