"""Which facilities to open: against all subsets, the integer program, the OR-Library, and a city."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
import time

import numpy as np
import pytest
from helpers.data import data_path
from helpers.mended_sums import edit, mend
from hypothesis import given
from hypothesis import strategies as st

from fl_linear_paper.cost_table import Table
from privopt.declare import load_problem
from privopt.errors import InputError, StoppedError
from privopt.interfaces import SolveContext
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_fl_linear.mechanism import FLLinear
from privopt_fl_linear.opening import open_facilities, proved_bound
from privopt_fl_linear.problem import FLProblem
from privopt_fl_linear.serve import NO_MARGIN, choose_facilities
from privopt_fl_linear.service_costs import PairList

OPTIMA = {
    "cap71": 932615.75, "cap72": 977799.4, "cap73": 1010641.45, "cap74": 1034976.975,
    "cap101": 796648.4375, "cap102": 854704.2, "cap103": 893782.1125, "cap104": 928941.75,
    "cap131": 793439.5625, "cap132": 851495.325, "cap133": 893076.7125, "cap134": 928941.75,
    "capa": 17156454.4783,
}  # fmt: skip


def price(cost, opening, facilities):
    return math.fsum([*opening[list(facilities)], *cost[list(facilities)].min(axis=0)])


@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 8), st.integers(1, 8), st.booleans())
def test_matches_all_subsets(seed, facilities, customers, most, whole):
    rng = np.random.default_rng(seed)
    cost, opening = rng.uniform(0, 3, (facilities, customers)), rng.uniform(0, 4, facilities)
    if whole:  # ties, and costs of 0
        cost, opening = np.floor(cost), np.floor(opening)
    sets = [s for r in range(1, min(most, facilities) + 1) for s in itertools.combinations(range(facilities), r)]
    best = min(price(cost, opening, s) for s in sets)
    opening_result = open_facilities(Table(cost), opening, max_facilities=most, gap=1e-9)
    assert opening_result.status == "optimal"
    assert len(opening_result.opened) <= most
    assert opening_result.objective == pytest.approx(best, rel=1e-8, abs=1e-9)
    assert opening_result.bound <= best + 1e-12 * (1 + best)
    assert opening_result.bound >= best * (1 - 2e-9) - 1e-9
    assert price(cost, opening, opening_result.opened) == opening_result.objective
    state = rng.integers(0, 2, facilities)  # any prices prove a bound on every set that a state allows
    pairs = PairList(Table(cost), opening, int(rng.integers(1, facilities + 1)), 10**6).pairs
    bound = proved_bound(pairs, opening, state, most, rng.uniform(-1, 5, customers))
    allowed_prices = [price(cost, opening, s) for s in sets if set(np.flatnonzero(state == 1)) <= set(s)]
    assert all(bound <= value for value in allowed_prices)


TRIED = ("cap71", "cap104", "cap134", "capa")
"""Of each size one; the others are slow tests."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name not in TRIED)) for name in OPTIMA]
)
def test_or_library(or_library, name):
    opening, cost, _ = or_library(name)
    start = time.process_time()
    opening_result = open_facilities(Table(cost), opening)
    assert time.process_time() - start < 60
    assert opening_result.objective == pytest.approx(OPTIMA[name], rel=1e-9)
    assert opening_result.status == "optimal"
    assert OPTIMA[name] * (1 - 1e-6) - 0.01 <= opening_result.bound <= OPTIMA[name] + 0.01


def test_limit_leaves_a_set_and_a_bound():
    rng = np.random.default_rng(2)
    points = rng.random((300, 2))
    cost = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    open_facilities(Table(cost[:9, :9]), np.full(9, 0.05))  # compiled before the clock runs
    opening_result = open_facilities(Table(cost), np.full(300, 0.05), seconds=1.0)
    assert opening_result.status == "feasible"
    assert 0.0 < opening_result.bound < opening_result.objective  # how near it comes in a second is the machine's


TOML = """[locations]
points = "sites.csv"
[privacy]
epsilon = 0.1
[fl-linear]
{}
"""


@pytest.fixture
def city(tmp_path):
    """Return the 431 places of Chiang Mai with opening costs; a function that writes the problem."""
    with data_path("flldp_chiang_mai", "chiang_mai.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rng = np.random.default_rng(7)
    cost, opening = rng.uniform(0.1, 0.3, len(rows)), rng.uniform(20, 60, len(rows))
    opening[:3] = 0.0  # these exist
    lines = ["id,lat,lon,facility_cost,opening_cost,clients"]
    for row, f, o in zip(rows, cost, opening, strict=True):
        lines.append(f"{row['Node']},{row['y']},{row['x']},{f:.4f},{o:.3f},{row['Evacuees']}")
    (tmp_path / "sites.csv").write_text("\n".join(lines) + "\n")

    def make(settings):
        (tmp_path / "city.toml").write_text(TOML.format(settings))
        return tmp_path / "city.toml"

    return make


def run(path, method, **options):
    output_folder = path.parent / f"out-{method}"
    release = solve("fl-linear", path, output_folder, Options(method=method, force=True, allow_unsafe=True, **options))
    return output_folder, json.loads((output_folder / "result.json").read_text()), release


def test_city_with_opening_costs_is_optimal(city):
    path = city('mean_clients = 75\ndelta = 0.0\nsites = "prior"')
    start = time.process_time()
    output_folder, result, release = run(path, "optimal")
    assert time.process_time() - start < 60
    assert not release.stopped
    findings, value = result["details"]["told"], result["objective"]["value"]
    assert value * (1 - 1e-6) <= findings["lower_bound"] <= value
    assert result["objective"]["lower_bound"] is None  # the counts are no file of the folder, so nobody can check it
    assert verify(output_folder).complaints == ()
    page = write_report(output_folder).read_text("utf-8")
    bound = re.search(
        r"<dt>bound by the solver</dt><dd>([\d,.]+) <small>units of cost</small> <small>(.*?)</small>", page
    )
    assert float(bound[1].replace(",", "")) == pytest.approx(findings["lower_bound"], rel=1e-5)
    assert bound[2] == "not proved by the files"
    assert "optimal by the solver&#39;s bound, which is not proved" in page
    assert "proved bound" not in page
    for method in ("laplace", "reconnection"):
        output_folder, result, release = run(path, method)
        opening = result["details"]["told"]["opening"]
        assert opening["clients_assumed"] == 75.0
        assert (opening["objective"] - opening["bound"]) / opening["objective"] < 0.01
        assert sorted(opening["sites"]) == sorted({r.split(",")[1] for r in _rows(output_folder / "connections.csv")})
        assert result["guarantee"]["kind"] == "local-dp"
        assert "chosen by public data" in result["certificate"]["rests_on"]
        assert verify(output_folder).complaints == ()


def test_reports_choose_without_mean_count(city):
    output_folder, result, release = run(city("delta = 0.0"), "laplace", gap=0.01)
    details = result["details"]
    assert details["chosen_by_noise"] is True
    assert details["failure_probability"] == {"promised": 0.1, "level": 0.1}
    assert details["margin"]["kind"] == "any set"
    assert "opening" not in details["told"]
    assert details["told"]["plans"]["chosen"] == "reports"
    (line,) = [line for line in release.warnings if "mean_clients" in line]
    assert f"({details['told']['reports']['mean_reported']:,.3g} a location" in line
    assert "opening.sites" not in result["certificate"]["rests_on"]
    assert verify(output_folder).complaints == ()
    assert not [line for line in run(city("delta = 0.0"), "optimal", gap=0.05)[2].warnings if "mean_clients" in line]
    with pytest.raises(InputError, match=r"city.toml: fl-linear.mean_clients: .*got nothing"):
        run(city('sites = "prior"'), "laplace")


def test_limits_the_number_of_facilities(city):
    output_folder, result, _ = run(city('most_facilities = 5\nmean_clients = 75\nsites = "prior"'), "reconnection")
    assert 1 <= result["details"]["facilities"] <= 5
    assert verify(output_folder).complaints == ()
    text = (output_folder / "problem" / "city.toml").read_text()
    (output_folder / "problem" / "city.toml").write_text(
        text.replace("= 5", f"= {result['details']['facilities'] - 1 or 1}")
    )
    assert not verify(mend(output_folder)).holds


def test_verify_names_forged_sites(city):
    output_folder, result, _ = run(city('mean_clients = 75\ndelta = 0.0\nsites = "prior"'), "laplace")
    for sites in (["1"], ["nowhere"], [], [3], "all"):
        result["details"]["told"]["opening"]["sites"] = sites
        assert not verify(edit(output_folder, lambda claims: claims.update(result))).holds


def test_stopped_release_verifies(city):
    output_folder, result, release = run(city("mean_clients = 75\ndelta = 0.0"), "laplace", time_limit=1e-3)
    assert release.stopped
    assert result["details"]["told"]["opening"]["bound"] <= result["details"]["told"]["opening"]["objective"]
    assert verify(output_folder).complaints == ()


def test_refuses_tables_beyond_memory(city):
    with pytest.raises(StoppedError, match=r"laplace need .* --memory"):
        run(city("most_facilities = 5"), "laplace", memory=0.001)
    problem = FLLinear().load(load_problem(FLProblem, city("most_facilities = 5")), "city.toml")
    counts, context = np.ones(problem.data.site.size), SolveContext(method="laplace", memory=1e6)
    with pytest.raises(StoppedError, match=r"\([\d,]+ pairs\).*--memory"):
        choose_facilities(problem.make_server("laplace"), counts, NO_MARGIN, context, phase="")


@pytest.mark.parametrize("limit", ["", "most_facilities = 4\n"])
def test_facilities_are_candidates(tmp_path, limit):
    rng = np.random.default_rng(11)
    xy, cost = rng.random((30, 2)).round(3), rng.uniform(0.1, 0.3, 30).round(3)
    may = (rng.random(30) < 0.3).astype(int)
    names = [f"v{i:02d}" for i in range(30)]
    lines = ["id,x,y,facility_cost,candidate,clients"]
    lines += [f"{names[i]},{xy[i, 0]},{xy[i, 1]},{cost[i]},{may[i]},{rng.integers(0, 9)}" for i in range(30)]
    (tmp_path / "sites.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "p.toml").write_text(TOML.format(f"{limit}mean_clients = 4\ndelta = 0.1"))
    for method in ("optimal", "laplace", "reconnection"):
        output_folder, _, _ = run(tmp_path / "p.toml", method)
        links = [row.split(",") for row in _rows(output_folder / "connections.csv")]
        used_facilities = {link[1] for link in links}
        assert used_facilities <= {name for name, yes in zip(names, may, strict=True) if yes}
        assert verify(output_folder).complaints == ()
        if not limit and method != "reconnection":
            distance = np.sqrt(((xy[:, None] - xy[None]) ** 2).sum(axis=2))
            best = np.where(may == 1, distance + cost, np.inf).argmin(axis=1)
            assert [link[1] for link in links] == [names[u] for u in best]
    table = output_folder / "problem" / "sites.csv"
    rows = [line.split(",") for line in table.read_text().splitlines()]
    column = rows[0].index("candidate")
    forged_rows = [
        [
            *row[:column],
            "0" if row[0] in used_facilities and row[0] == max(used_facilities) else row[column],
            *row[column + 1 :],
        ]
        for row in rows
    ]
    table.write_text("\n".join(",".join(row) for row in forged_rows) + "\n")
    assert not verify(mend(output_folder)).holds


@pytest.mark.parametrize("values", [(2, 1), (0, 0)])
def test_refuses_empty_candidate_columns(tmp_path, values):
    rows = [f"{name},{x},0,.2,{value},3" for name, x, value in zip("ab", (0, 1), values, strict=True)]
    (tmp_path / "sites.csv").write_text("\n".join(["id,x,y,facility_cost,candidate,clients", *rows]) + "\n")
    (tmp_path / "p.toml").write_text(TOML.format(""))
    with pytest.raises(InputError, match="column candidate"):
        run(tmp_path / "p.toml", "laplace")


def _rows(path):
    return path.read_text().splitlines()[1:]
