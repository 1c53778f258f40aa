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
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, sparse

from fl_linear_paper.cost_table import Table
from fl_linear_paper.trials import draw_noise
from privopt.declare import File, load_problem
from privopt.errors import InfeasibleError, InputError
from privopt.interfaces import SolveContext
from privopt.run.options import Options
from privopt.run.solve import solve
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


def by_highs(cost, opening, weight, room, *, whole=True):
    """Return the textbook program, by SciPy's HiGHS."""
    F, C = cost.shape
    x = sparse.eye(F * C, format="csr")
    served = sparse.hstack([sparse.hstack([sparse.eye(C)] * F), sparse.csr_matrix((C, F))])
    linked = sparse.hstack([x, -sparse.kron(sparse.eye(F), np.ones((C, 1)))])
    rooms = sparse.hstack([sparse.kron(sparse.eye(F), weight[None, :]), -sparse.diags(room)])
    rows = [
        optimize.LinearConstraint(served, 1, 1),
        optimize.LinearConstraint(linked, -np.inf, 0),
        optimize.LinearConstraint(rooms, -np.inf, 0),
    ]
    kinds = np.concatenate([np.full(F * C, int(whole)), np.ones(F)])
    found = optimize.milp(
        np.concatenate([cost.ravel(), opening]), constraints=rows, integrality=kinds, bounds=(0, 1),
        options={"mip_rel_gap": 1e-9},
    )  # fmt: skip
    return found.fun if found.status == 0 else None


def assign(cost, opening, weight, capacity, *, most=None, solver="highs", gap=1e-6):
    """Without bounds first, then within them."""
    relaxed = open_facilities(Table(cost), opening, max_facilities=most, gap=gap)
    context = SolveContext(method="optimal", solver=solver, gap=gap)
    return assign_within_bounds(Table(cost), opening, weight, capacity, relaxed, most, context)


def load(found, weight, room):
    used = np.bincount(found.facility, weights=weight, minlength=len(room))
    assert (used <= room).all()
    return used


TRIED = ("cap74", "cap104")
"""Of the smaller size, which HiGHS solves too, and of a larger one; the others are slow tests."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in TRIED)) for name in BEASLEY]
)
def test_or_library_with_capacities_of_15000(or_library, name):
    opening, cost, weight = or_library(name)
    room = np.full(len(opening), 15_000.0)
    start = time.process_time()
    found = assign(cost, opening, weight, room)
    assert time.process_time() - start < 60
    load(found, weight, room)
    assert found.status == "optimal"
    assert found.objective >= BEASLEY[name] * (1 - 1e-8)
    assert found.bound <= found.objective * (1 + 1e-12)
    if len(opening) == 16:
        assert by_highs(cost, opening, weight, room, whole=False) == pytest.approx(BEASLEY[name], rel=1e-8)
        assert found.objective == pytest.approx(by_highs(cost, opening, weight, room), rel=2e-6)
    with pytest.raises(InfeasibleError, match="needs a capacity of 12912, and no facility has more than 5000"):
        assign(cost, opening, weight, room / 3)  # cap41 and its like split customers


@given(
    st.integers(0, 10**6),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(0, 9),
    st.sampled_from(["highs", "cbc"]),
)
@settings(max_examples=60)
def test_against_all_assignments(seed, facilities, customers, most, exponent, solver):
    rng = np.random.default_rng(seed)
    cost, opening = rng.integers(0, 9, (facilities, customers)) * 1.0, rng.integers(0, 9, facilities) * 1.0
    opening[rng.random(facilities) < 0.4] *= 10.0**exponent
    weight, room = rng.integers(0, 5, customers) * 1.0, rng.integers(0, 9, facilities) * 1.0
    room[rng.random(facilities) < 0.2] = np.inf
    best = math.inf
    for chosen in itertools.product(range(facilities), repeat=customers):
        used = sorted(set(chosen))
        loads = np.bincount(chosen, weights=weight, minlength=facilities)
        if len(used) <= most and (loads <= room).all():
            best = min(best, opening[used].sum() + cost[chosen, np.arange(customers)].sum())
    if math.isinf(best):
        with pytest.raises(InfeasibleError, match="capacity bounds"):
            assign(cost, opening, weight, room, most=most)
        return
    found = assign(cost, opening, weight, room, most=most, solver=solver, gap=1e-9)
    load(found, weight, room)
    assert len(found.opened) <= most
    assert found.objective == pytest.approx(best, rel=1e-9, abs=1e-6)
    assert best - 1e-6 * (1 + best) <= found.bound <= best + 1e-6


@pytest.mark.parametrize("solver", ["highs", "cbc"])
def test_a_place_too_dear_to_open_changes_no_plan_and_no_bound(tmp_path, solver):
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

    def make(bounds, more="delta = 0.3", *, noisy=None):
        count = "clients" if noisy is None else "noisy_clients"
        rows = [f"id,x,y,facility_cost,opening_cost,capacity,{count}"]
        counts = clients if noisy is None else noisy
        rows += [f"v{i:02d},{xy[i, 0]},{xy[i, 1]},{cost[i]},{opening[i]},{bounds[i]},{counts[i]}" for i in range(40)]
        (tmp_path / "sites.csv").write_text("\n".join(rows) + "\n")
        (tmp_path / "p.toml").write_text(TOML.format(more))
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


def test_a_release_keeps_its_bounds_and_verifies(villages):
    bounds = np.where(np.arange(40) % 4 == 0, 260, 60)
    folder, result = run(villages(bounds, "mean_clients = 30\ndelta = 0.3"), gap=0.01)
    built = capacities(folder)
    assert all(size <= bounds[int(name[1:])] for name, size in built.items())
    details = result["details"]
    assert details["chosen_by_noise"] is True
    assert details["delta"] is None
    assert details["failure_probability"] == {"promised": 0.1, "level": 0.05}
    told = details["told"]["reports"]
    assert 0.985 * told["objective"] <= told["bound"] <= told["objective"]
    assert details["told"]["plans"]["chosen"] == "reports"
    assert verify(folder).complaints == ()
    again, same = run(folder / "problem" / "p.toml", out="again", gap=0.01)  # the server's side, from what is published
    assert capacities(again) == built
    assert same["details"]["chosen_by_noise"] is True
    table = folder / "problem" / "sites.csv"
    least = min(built.values())
    for forged in (table.read_text().replace(",260,", f",{least - 1},"), table.read_text().replace(",260,", ",900,")):
        table.write_text(forged)
        mend(folder)
        assert not verify(folder).holds  # a bound that is passed; a plan that need not have been left


def test_bounds_that_nothing_reaches_leave_the_plan_as_it_is(villages):
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


def test_without_privacy_the_optimum_within_the_bounds(villages):
    bounds = np.where(np.arange(40) % 4 == 0, 260, 60)
    folder, result = run(villages(bounds), "optimal")
    assert all(size <= bounds[int(name[1:])] for name, size in capacities(folder).items())
    told, value = result["details"]["told"], result["objective"]["value"]
    assert value * (1 - 1e-6) <= told["lower_bound"] <= value * (1 + 1e-12)
    assert verify(folder).complaints == ()


def test_what_is_missing_is_said_and_the_code_is_3(villages):
    for bounds, words in ((np.full(40, 20), "are missing"), (np.r_[np.full(39, 10), 9000], "are missing")):
        more = "most_facilities = 1" if bounds[-1] == 9000 else ""
        with pytest.raises(InfeasibleError, match=words) as caught:
            run(villages(bounds if bounds[-1] == 20 else np.full(40, 300), more))
        assert "a second draw spends epsilon again, and failure_probability again" in str(caught.value)
    with pytest.raises(InputError, match="column capacity"):
        run(villages(["-1"] * 40))


@pytest.mark.slow
def test_no_facility_overflows_at_the_rate_promised(villages):
    """The release's whole way, 20 times: at half the promise, for the other half is the public plan's."""
    path = villages(np.where(np.arange(40) % 4 == 0, 260, 60), "mean_clients = 30\ndelta = 0.3")
    server = (
        FLLinear().load(load_problem(FLProblem, File.read(path, wanted="a problem")), "p.toml").make_server("laplace")
    )
    rng, failed, draws = np.random.default_rng(6), 0, 20
    for _ in range(draws):
        noisy = villages.clients + draw_noise(rng, 40, 0.5)
        plan = serve(server, noisy, SolveContext(method="laplace", gap=0.1))
        failed += bool((sum_counts(plan.assignment, villages.clients) > plan.capacities).any())
    assert failed <= 0.05 * draws + 3 * math.sqrt(0.05 * 0.95 * draws)
