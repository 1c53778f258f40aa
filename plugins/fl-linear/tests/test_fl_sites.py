"""Facilities that the noisy counts choose: the best of their program, margins for any set, the better of two plans."""

from __future__ import annotations

import csv
import itertools
import json
import math

import numpy as np
import pytest
from attrs import evolve
from helpers.data import data_path
from helpers.mended_sums import edit

from fl_linear_paper.trials import draw_noise
from privopt.interfaces import SolveContext
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_fl_linear.margins import AnySet, MarginRule
from privopt_fl_linear.metric import Plane
from privopt_fl_linear.plan import Server
from privopt_fl_linear.serve import choose_facilities, serve
from privopt_fl_linear.site import Site, sum_counts

CONTEXT = SolveContext(method="laplace")


def server_of(rng, size, *, opening=False, **options):
    cost = rng.uniform(0.1, 0.3, size)
    fixed = rng.uniform(0, 9, size) if opening else None
    site = Site(metric=Plane(rng.random((size, 2))), cost=cost, opening=fixed)
    options = {"alpha": 0.1, "delta": 0.0} | options
    return Server(site=site, rule=MarginRule(n=size, epsilon=options.pop("epsilon", 0.5)), **options)


def program_cost(site, noisy, line, facilities):
    """Cost of a set of facilities in the program that the reports' plan is the best of, a location at a time."""
    opening = np.zeros(site.size) if site.opening is None else site.opening
    total = math.fsum(opening[u] + line.start * site.cost[u] for u in facilities)
    for v in range(site.size):
        ways = site.metric.distances_between(np.array(facilities), np.full(len(facilities), v))
        clients, weight = max(noisy[v] + line.slope, 0.0), max(noisy[v], 1.0)
        total += min(
            weight * distance + clients * site.cost[u] for u, distance in zip(facilities, ways.tolist(), strict=True)
        )
    return total


@pytest.mark.parametrize("block", [0, *(pytest.param(block, marks=pytest.mark.slow) for block in range(1, 6))])
def test_chosen_plan_is_the_best_of_its_program(block):
    """Three hundred small cases, against every set of facilities."""
    for seed in range(50 * block, 50 * (block + 1)):
        rng = np.random.default_rng(seed)
        size, limit = int(rng.integers(1, 8)), int(rng.integers(1, 4))
        server = server_of(rng, size, opening=seed % 3 == 0, max_facilities=limit)
        noisy, line = (
            rng.integers(-9, 40, size),
            AnySet(start=float(rng.uniform(0, 50)), slope=float(rng.uniform(0, 9))),
        )
        chosen_plan = choose_facilities(server, noisy, line, context_of(1e-9), phase="")
        sets = [s for r in range(1, min(limit, size) + 1) for s in itertools.combinations(range(size), r)]
        best = min(program_cost(server.site, noisy, line, s) for s in sets)
        assert chosen_plan.objective == pytest.approx(best, rel=1e-8)
        assert program_cost(server.site, noisy, line, tuple(chosen_plan.opened.tolist())) == pytest.approx(
            best, rel=1e-8
        )
        assert chosen_plan.bound <= best * (1 + 1e-12)


def context_of(gap):
    return SolveContext(method="laplace", gap=gap)


@pytest.mark.parametrize("heavy", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("mean", [None, pytest.param(3.0, marks=pytest.mark.slow)])
def test_overflows_at_most_at_promised_rate(mean, heavy, rng):
    """Four of the sixteen settings of bench_sites.py, 200 runs each."""
    size, runs = 20, 200
    clients = np.minimum(rng.pareto(1.2, size) * 20, 5_000).astype(np.int64) if heavy else rng.poisson(30, size)
    server = server_of(rng, size, epsilon=1.0, mean_clients=mean, max_facilities=4)
    overflow_count, plan_names = 0, set()
    for _ in range(runs):
        served = serve(server, clients + draw_noise(rng, size, 1.0), context_of(0.01))
        overflow_count += bool((sum_counts(served.assignment, clients) > served.capacities).any())
        plan_names.add(served.recorded["plans"]["chosen"])
    assert overflow_count / runs <= 0.1 + 3 * math.sqrt(0.09 / runs)
    assert plan_names <= {"reports"} if mean is None else plan_names


def test_plans_share_the_failure_probability(rng):
    free = server_of(rng, 9)
    for options, prior, reports in (
        ({}, 0.1, 0.0),  # the paper's problem: nothing to choose
        ({"mean_clients": 3.0}, 0.1, 0.0),
        ({"max_facilities": 2, "mean_clients": 3.0}, 0.05, 0.05),
        ({"max_facilities": 2, "mean_clients": 3.0, "sites": "prior"}, 0.1, 0.0),
        ({"max_facilities": 2}, 0.0, 0.1),
    ):
        server = evolve(free, **options)
        assert (server.prior_level, server.reports_level) == pytest.approx((prior, reports))
    bounded = evolve(free, site=evolve(free.site, capacity=np.full(9, 900.0)))
    assert (bounded.prior_level, bounded.reports_level) == pytest.approx((0.05, 0.05))


def test_better_plan_wins_and_margins_stay_fixed(rng):
    server = server_of(rng, 30, epsilon=2.0, max_facilities=4, mean_clients=20.0)
    clients = rng.poisson(5, 30) + 300 * (
        server.site.metric.distances_between(np.arange(30), np.zeros(30, np.int64)) < 0.3
    )
    noisy = clients + draw_noise(rng, 30, 2.0)
    served = serve(server, noisy, CONTEXT)
    costs = served.recorded["plans"]["cost"]
    assert served.costs(server.site, noisy)["total"] == min(costs.values()) == costs["reports"]
    assert costs["prior"] == serve_prior(server, noisy)
    other_served = serve(server, noisy[::-1].copy(), CONTEXT)
    assert other_served.any_set == served.any_set
    drowned = evolve(server, rule=evolve(server.rule, epsilon=0.01))
    assert serve(drowned, noisy, CONTEXT).recorded["plans"]["chosen"] == "prior"


def test_progress_names_the_phases(rng):
    server, phases_seen = server_of(rng, 30, max_facilities=4, mean_clients=20.0, delta="auto"), []

    def progress(phase, iteration, lower, upper):
        phases_seen.append(phase)
        assert lower is None or lower <= upper

    serve(server, rng.poisson(20, 30), SolveContext(method="reconnection", progress=progress))
    phases = list(dict.fromkeys(phases_seen))
    assert [phase.split()[-1] for phase in phases] == ["count", "margins", "radii", "reports"]
    assert sum("the reports" in phase for phase in phases_seen) > 1  # while it is searched, too


def serve_prior(server, noisy):
    """Cost of the prior's plan at half of alpha."""
    prior_server = evolve(server, sites="prior", alpha=server.alpha / 2.0)
    return serve(prior_server, noisy, CONTEXT).costs(server.site, noisy)["total"]


def test_reports_beat_the_prior_in_chiang_mai():
    with data_path("flldp_chiang_mai", "chiang_mai.csv").open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    points = np.array([[float(row["x"]), float(row["y"])] for row in rows])
    points = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    clients, rng = np.array([int(row["Evacuees"]) for row in rows]), np.random.default_rng(1)
    site = Site(metric=Plane(points), cost=rng.uniform(0.1, 0.3, 431))
    rule = MarginRule(n=431, epsilon=1.0)
    server = Server(site=site, rule=rule, alpha=0.1, delta=0.0, mean_clients=75.0, max_facilities=12)
    noisy = clients + draw_noise(rng, 431, 1.0)
    served = serve(server, noisy, CONTEXT)
    prior = serve(evolve(server, sites="prior"), noisy, CONTEXT)
    assert served.recorded["reports"]["status"] == "optimal"
    assert served.costs(site, noisy)["total"] < 0.99 * prior.costs(site, noisy)["total"]
    assert served.costs(site, clients)["total"] < 0.99 * prior.costs(site, clients)["total"]


TOML = '[locations]\npoints = "sites.csv"\n[privacy]\nepsilon = 2\n[fl-linear]\nmost_facilities = 3\n{}\n'


@pytest.fixture
def town(tmp_path):
    rng = np.random.default_rng(4)
    rows = [f"v{i:02d},{rng.random():.3f},{rng.random():.3f},0.2,{300 if i < 5 else 4}" for i in range(30)]
    (tmp_path / "sites.csv").write_text("\n".join(["id,x,y,facility_cost,clients", *rows]) + "\n")

    def make(settings):
        (tmp_path / "town.toml").write_text(TOML.format(settings))
        solve("fl-linear", tmp_path / "town.toml", tmp_path / "out", Options(force=True))
        return tmp_path / "out", json.loads((tmp_path / "out" / "result.json").read_text())

    return make


def test_report_plan_verifies_with_its_own_margins(town):
    output_folder, result = town("mean_clients = 50")
    details = result["details"]
    assert details["chosen_by_noise"] is True
    assert details["told"]["plans"]["chosen"] == "reports"
    assert details["failure_probability"] == {"promised": 0.1, "level": 0.05}
    assert details["margin"]["start"] >= 0
    assert verify(output_folder).complaints == ()
    margin = details["margin"]["cost"]
    result["details"] |= {"chosen_by_noise": False, "delta": 0.0}
    result["details"]["told"]["plans"]["chosen"] = "prior"
    assert not verify(edit(output_folder, lambda claims: claims.update(result))).holds
    _, prior_result = town('mean_clients = 50\nsites = "prior"')
    assert "chosen_by_noise" not in prior_result["details"]
    assert prior_result["details"]["margin"]["cost"] < margin
    assert prior_result["details"]["failure_probability"]["level"] == 0.1
