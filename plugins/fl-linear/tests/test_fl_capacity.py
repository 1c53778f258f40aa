"""Bounds on what a facility may be built for: the program, the margins of any set, and the release."""

from __future__ import annotations

import csv
import itertools
import json
import math
import time

import numpy as np
import pytest
from helpers.mended_sums import mend
from helpers.mentions import assert_mentions
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse

from fl_linear_paper.cost_table import Table
from fl_linear_paper.trials import draw_noise
from privopt.declare import File, load_problem
from privopt.errors import InfeasibleError, InputError
from privopt.interfaces import SolveContext
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_fl_linear.capacity import assign_within_bounds
from privopt_fl_linear.mechanism import FLLinear
from privopt_fl_linear.opening import open_facilities
from privopt_fl_linear.problem import FLProblem
from privopt_fl_linear.serve import serve
from privopt_fl_linear.site import sum_counts

BEASLEY = {  # cap61, 64, 91, 94, 121, 124: optima where a customer may be split, so bounds of those where none is
    "cap71": 932615.750,
    "cap74": 1045650.250,
    "cap101": 796648.438,
    "cap104": 946051.325,
    "cap131": 793439.563,
    "cap134": 946051.325,
}


def solve_by_highs(cost, opening, weight, capacity, *, is_integer=True):
    """Return the textbook program, by SciPy's HiGHS."""
    F, C = cost.shape
    x = sparse.eye(F * C, format="csr")
    served = sparse.hstack([sparse.hstack([sparse.eye(C)] * F), sparse.csr_matrix((C, F))])
    linked = sparse.hstack([x, -sparse.kron(sparse.eye(F), np.ones((C, 1)))])
    rooms = sparse.hstack([sparse.kron(sparse.eye(F), weight[None, :]), -sparse.diags(capacity)])
    rows = [
        optimize.LinearConstraint(served, 1, 1),
        optimize.LinearConstraint(linked, -np.inf, 0),
        optimize.LinearConstraint(rooms, -np.inf, 0),
    ]
    kinds = np.concatenate([np.full(F * C, int(is_integer)), np.ones(F)])
    solution = optimize.milp(
        np.concatenate([cost.ravel(), opening]), constraints=rows, integrality=kinds, bounds=(0, 1),
        options={"mip_rel_gap": 1e-9},
    )  # fmt: skip
    return solution.fun if solution.status == 0 else None


def assign(cost, opening, weight, capacity, *, max_facilities=None, solver="highs", gap=1e-6):
    """Without bounds first, then within them."""
    relaxed = open_facilities(Table(cost), opening, max_facilities=max_facilities, gap=gap)
    context = SolveContext(method="optimal", solver=solver, gap=gap)
    return assign_within_bounds(Table(cost), opening, weight, capacity, relaxed, max_facilities, context)


def check_loads(assignment, weight, capacity):
    loads = np.bincount(assignment.facility, weights=weight, minlength=len(capacity))
    assert (loads <= capacity).all()
    return loads


TRIED = ("cap74", "cap104")
"""Of the smaller size, which HiGHS solves too, and of a larger one; the others are slow tests."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in TRIED)) for name in BEASLEY]
)
def test_or_library_with_capacities_of_15000(or_library, name):
    opening, cost, weight = or_library(name)
    capacity = np.full(len(opening), 15_000.0)
    start = time.process_time()
    assignment = assign(cost, opening, weight, capacity)
    assert time.process_time() - start < 60
    check_loads(assignment, weight, capacity)
    assert assignment.status == "optimal"
    assert assignment.objective >= BEASLEY[name] * (1 - 1e-8)
    assert assignment.bound <= assignment.objective * (1 + 1e-12)
    if len(opening) == 16:
        assert solve_by_highs(cost, opening, weight, capacity, is_integer=False) == pytest.approx(
            BEASLEY[name], rel=1e-8
        )
        assert assignment.objective == pytest.approx(solve_by_highs(cost, opening, weight, capacity), rel=2e-6)
    with pytest.raises(InfeasibleError, match=r"12912.*no facility.*5000"):
        assign(cost, opening, weight, capacity / 3)  # cap41 and its like split customers


@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 9),
    st.sampled_from(["highs", "cbc"]),
)
@settings(max_examples=60)
def test_matches_all_assignments(seed, facilities, customers, most, exponent, solver):
    rng = np.random.default_rng(seed)
    cost, opening = rng.integers(0, 9, (facilities, customers)) * 1.0, rng.integers(0, 9, facilities) * 1.0
    opening[rng.random(facilities) < 0.4] *= 10.0**exponent
    weight, capacity = rng.integers(0, 5, customers) * 1.0, rng.integers(0, 9, facilities) * 1.0
    capacity[rng.random(facilities) < 0.2] = np.inf
    best = math.inf
    for candidate in itertools.product(range(facilities), repeat=customers):
        used_facilities = sorted(set(candidate))
        loads = np.bincount(candidate, weights=weight, minlength=facilities)
        if len(used_facilities) <= most and (loads <= capacity).all():
            best = min(best, opening[used_facilities].sum() + cost[candidate, np.arange(customers)].sum())
    if math.isinf(best):
        with pytest.raises(InfeasibleError, match="capacity bounds"):
            assign(cost, opening, weight, capacity, max_facilities=most)
        return
    assignment = assign(cost, opening, weight, capacity, max_facilities=most, solver=solver, gap=1e-9)
    check_loads(assignment, weight, capacity)
    assert len(assignment.opened) <= most
    assert assignment.objective == pytest.approx(best, rel=1e-9, abs=1e-6)
    assert best - 1e-6 * (1 + best) <= assignment.bound <= best + 1e-6


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_prohibitive_opening_cost_changes_nothing(tmp_path, solver):
    """With a cost of 1e9 for one place, both solvers once opened others at three times the cost, with a false bound."""
    rng = np.random.default_rng(3)
    rows = [
        f"v{i:02d},{rng.uniform(0, 10):.2f},{rng.uniform(0, 10):.2f},{rng.uniform(0.1, 0.5):.2f},"
        f"{rng.integers(5, 31)},{rng.uniform(20, 60):.1f},1,{rng.integers(30, 46)}"
        for i in range(10)
    ]
    answers = []
    for dear in ("0", "1e5", "1e9"):
        table = [row if i else f"{row.rsplit(',', 3)[0]},{dear},{int(dear != '0')},45" for i, row in enumerate(rows)]
        header = "id,x,y,facility_cost,clients,opening_cost,candidate,capacity"
        (tmp_path / "sites.csv").write_text("\n".join([header, *table]) + "\n")
        (tmp_path / "p.toml").write_text(TOML.format(""))
        _, result = run(tmp_path / "p.toml", "optimal", solver=solver, gap=1e-9)
        answers.append((result["objective"]["value"], result["details"]["told"]["lower_bound"]))
    assert answers[1] == pytest.approx(answers[0], rel=1e-9)
    assert answers[2] == pytest.approx(answers[0], rel=1e-9)
    assert all(bound <= value for value, bound in answers)


TOML = '[locations]\npoints = "sites.csv"\n[privacy]\nepsilon = 0.5\n[fl-linear]\n{}\n'


@pytest.fixture
def villages(tmp_path):
    """Return a function that writes 40 villages with bounds, and maybe opening costs."""
    rng = np.random.default_rng(2)
    xy, cost = rng.random((40, 2)).round(3), rng.uniform(0.1, 0.3, 40).round(3)
    clients, opening = rng.poisson(30, 40), rng.integers(2, 9, 40)

    def make(bounds, settings="delta = 0.3", *, noisy=None):
        count = "clients" if noisy is None else "noisy_clients"
        rows = [f"id,x,y,facility_cost,opening_cost,capacity,{count}"]
        counts = clients if noisy is None else noisy
        rows += [f"v{i:02d},{xy[i, 0]},{xy[i, 1]},{cost[i]},{opening[i]},{bounds[i]},{counts[i]}" for i in range(40)]
        (tmp_path / "sites.csv").write_text("\n".join(rows) + "\n")
        (tmp_path / "p.toml").write_text(TOML.format(settings))
        return tmp_path / "p.toml"

    make.clients = clients
    return make


def run(path, method="reconnection", out="out", **options):
    folder = path.parent / out
    solve("fl-linear", path, folder, Options(method=method, force=True, allow_unsafe=True, **options))
    return folder, json.loads((folder / "result.json").read_text())


def capacities(folder):
    with (folder / "capacities.csv").open() as file:
        return {row["id"]: float(row["capacity"]) for row in csv.DictReader(file)}


def test_release_keeps_bounds_and_verifies(villages):
    bounds = np.where(np.arange(40) % 4 == 0, 260, 60)
    folder, result = run(villages(bounds, "mean_clients = 30\ndelta = 0.3"), gap=0.01)
    built = capacities(folder)
    assert all(size <= bounds[int(name[1:])] for name, size in built.items())
    details = result["details"]
    assert details["chosen_by_noise"] is True
    assert details["delta"] is None
    assert details["failure_probability"] == {"promised": 0.1, "level": 0.05}
    reports = details["told"]["reports"]
    assert 0.985 * reports["objective"] <= reports["bound"] <= reports["objective"]
    assert details["told"]["plans"]["chosen"] == "reports"
    assert verify(folder).complaints == ()
    # the server's side, from what is published
    second_folder, second_result = run(folder / "problem" / "p.toml", out="../../again", gap=0.01)
    assert capacities(second_folder) == built
    assert second_result["details"]["chosen_by_noise"] is True
    table = folder / "problem" / "sites.csv"
    min_capacity = min(built.values())
    published_text = table.read_text()
    assert ",260.0," in published_text
    # A facility may not be larger than its bound. With a higher bound the reports need not have chosen the plan, but
    # everything claimed still holds, because margins of plans chosen by reports hold for every plan.
    for bound, complaint in ((min_capacity - 1, "larger than its capacity allows"), (900.0, None)):
        table.write_text(published_text.replace(",260.0,", f",{bound},"))
        mend(folder)
        complaints = verify(folder).complaints
        assert complaints == () if complaint is None else complaint in complaints[0]


def test_unreached_bounds_leave_the_plan_unchanged(villages):
    bounds = [""] * 39 + ["5000"]
    noisy = villages.clients + draw_noise(np.random.default_rng(5), 40, 0.5)
    free, loose = (
        run(villages(b, 'delta = 0.3\nmean_clients = 30\nsites = "prior"', noisy=noisy)) for b in ([""] * 40, bounds)
    )
    with (free[0] / "connections.csv").open() as file:
        assert "facility" in file.readline()
    assert free[1]["details"]["facilities"] == loose[1]["details"]["facilities"]
    assert loose[1]["details"]["chosen_by_noise"] is False
    assert loose[1]["details"]["failure_probability"]["level"] == 0.05
    assert "reports" not in loose[1]["details"]["told"]
    assert (loose[0] / "problem" / "sites.csv").read_text().splitlines()[1].split(",")[5] == ""
    assert verify(loose[0]).complaints == ()


def test_optimal_stays_within_the_bounds(villages):
    bounds = np.where(np.arange(40) % 4 == 0, 260, 60)
    folder, result = run(villages(bounds), "optimal")
    assert all(size <= bounds[int(name[1:])] for name, size in capacities(folder).items())
    findings, value = result["details"]["told"], result["objective"]["value"]
    assert value * (1 - 1e-6) <= findings["lower_bound"] <= value * (1 + 1e-12)
    assert verify(folder).complaints == ()


def test_missing_capacity_exits_with_3(villages):
    for bounds, words in ((np.full(40, 20), "are missing"), (np.r_[np.full(39, 10), 9000], "are missing")):
        extra_settings = "most_facilities = 1" if bounds[-1] == 9000 else ""
        with pytest.raises(InfeasibleError, match=words) as excinfo:
            run(villages(bounds if bounds[-1] == 20 else np.full(40, 300), extra_settings))
        assert_mentions(str(excinfo.value), "another draw", "epsilon again", "failure_probability too")
    with pytest.raises(InputError, match="column capacity"):
        run(villages(["-1"] * 40))


@pytest.mark.slow
def test_overflows_at_the_promised_rate(villages):
    """The release's whole way, 20 times: at half the promise, for the other half is the public plan's."""
    path = villages(np.where(np.arange(40) % 4 == 0, 260, 60), "mean_clients = 30\ndelta = 0.3")
    server = (
        FLLinear()
        .load(load_problem(FLProblem, File.read(path, expectation="a problem")), "p.toml")
        .make_server("laplace")
    )
    rng, overflow_count, draws = np.random.default_rng(6), 0, 20
    for _ in range(draws):
        noisy = villages.clients + draw_noise(rng, 40, 0.5)
        plan = serve(server, noisy, SolveContext(method="laplace", gap=0.1))
        overflow_count += bool((sum_counts(plan.assignment, villages.clients) > plan.capacities).any())
    assert overflow_count <= 0.05 * draws + 3 * math.sqrt(0.05 * 0.95 * draws)
