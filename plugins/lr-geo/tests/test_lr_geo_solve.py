"""From the problem file to DIR and back, and what the methods have to do with one another."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from helpers.grids import by_pairs
from helpers.mended_sums import rewrite
from helpers.mentions import assert_mentions
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.declare import load_problem
from privopt.decompose.benders import Start
from privopt.errors import InputError
from privopt.interfaces import SolveContext
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_lr_geo import server
from privopt_lr_geo.messages import Package, Terms
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_metric_dp.matrix.certify import certify


def run(path, method, name="out", **options):
    output_folder = path.parent / name
    solver = "highs" if method != "exact" else "cbc"
    return solve(
        "lr-geo", path, output_folder, Options(method=method, solver=solver, force=True, **options)
    ).result, output_folder


@pytest.mark.parametrize("method", ["benders", "full", "exact"])
def test_round_trip(write, method):
    result, output_folder = run(write(), method)
    assert result.certificate.holds
    assert result.guarantee.scope == ("neighbours" if method == "exact" else "own-matrix")
    complaints = verify(output_folder).complaints
    assert complaints == ()
    with np.load(output_folder / "mechanism.npz") as archive:
        assert archive["records"].tolist() == ["r1c1", "r2c3"]
        assert archive["weights"].shape == (2, 25)
        if method != "exact":
            assert len(archive["pairs"]) == 0
    assert (output_folder / "public.npz").is_file() == (method == "exact")
    assert (output_folder / "private" / "matrices" / "r1c1.npz").is_file() == (method != "exact")
    if method != "exact":
        assert result.objective.lower_bound is None
        lp = result.details.lp
        assert lp.lower_bound <= lp.value * (1 + 1e-9)
        assert result.status == "optimal"


@pytest.mark.parametrize("method", ["full", "exact"])
def test_promise_shows_figures_and_warns_if_useless(write, method):
    def solve_report(name, **changes):
        path = write(name, rows=3, cols=3, users='"all"', **changes)
        return solve("lr-geo", path, path.parent / "told", Options(method=method, solver="highs"))

    fair = solve_report("fair", epsilon="1.0")
    assert ("own matrix: for two typical" in fair.meaning[0]) == (method == "full")
    assert "at most 1.65" in fair.meaning[0]
    assert "right place 11.1 times" in fair.meaning[1]
    assert not any("next to nothing" in line for line in fair.warnings)
    useless = solve_report("useless", epsilon="40.0")
    assert any("next to nothing" in line for line in useless.warnings)


@by_pairs("epsilon, method", ["12.0", "25.0", "60.0", "1000.0"], ["full", "benders"])
def test_exponents_beyond_doubles(write, method, epsilon):
    """Cuts have e^100 as a number, which no solver bears: the whole program, whose rows keep exponents, is solved."""
    path = write(rows=3, cols=4, cell=1.0, epsilon=epsilon, within="", users='"all"', radius=2.5, far=3.0, near=1.5)
    result, output_folder = run(path, method)
    assert result.certificate.holds
    assert verify(output_folder).complaints == ()
    assert 0.0 <= result.objective.value < 2e-5
    if method == "benders" and epsilon == "25.0":
        assert "decomposition_failed" in result.details.told


ODD = {
    "twins": "id,x,y\na,0,0\nb,0,0\nc,1,0\nd,0,1\n",
    "far": "id,x,y\na,0,0\nb,1,0\nc,1000,0\nd,1001,1\n",
    "line": "id,x,y\na,0,0\nb,1,0\nc,2,0\nd,3,0\n",
    "one": "id,x,y\na,0,0\n",
}


@by_pairs("points, epsilon, method", ODD, ["1e-6", "40.0", "20000.0"], ["benders", "full", "exact"])
def test_extreme_records_and_epsilon(tmp_path, points, epsilon, method):
    (tmp_path / "p.csv").write_text(ODD[points])
    (tmp_path / "p.toml").write_text(
        f'[records]\npoints = "p.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = {epsilon}\n'
        '[utility]\nkind = "distance"\n[lr-geo]\nusers = "all"\nradius = 2.5\nobfuscation_radius = 3.0\n'
        "exponential_beyond = 1.5\n"
    )
    result, output_folder = run(tmp_path / "p.toml", method, time_limit=600)
    assert result.certificate.holds
    assert verify(output_folder).complaints == ()


def test_command_samples_rows(write):
    from click.testing import CliRunner

    from privopt.command.cli import cli

    _, output_folder = run(write(), "exact")
    completed = CliRunner().invoke(cli, ["sample", str(output_folder), "--input", "r1c1", "-n", "20"])
    assert completed.exit_code == 0
    assert len(completed.output.split()) == 20
    assert set(completed.output.split()) <= {f"r{r}c{c}" for r in range(5) for c in range(5)}


def test_verify_needs_private_matrices(write):
    _, output_folder = run(write(), "full")
    shutil.rmtree(output_folder / "private")
    with pytest.raises(InputError, match="private"):
        verify(output_folder)


def test_ids_too_long_for_file_names(tmp_path):
    """They share more than a name can hold; each has a file of its own all the same."""
    ids = ["the same beginning, " * 40 + end for end in ("north", "south", "östlich")]
    rows = "".join(f'"{name}",{x / 2},0\n' for x, name in enumerate(ids))
    (tmp_path / "points.csv").write_text("id,x,y\n" + rows)
    (tmp_path / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1.0\n'
        '[utility]\nkind = "distance"\n[lr-geo]\nusers = "all"\nradius = 2.0\nobfuscation_radius = 2.0\n'
        "exponential_beyond = 1.0\n"
    )
    _, output_folder = run(tmp_path / "problem.toml", "full")
    names = [path.name for path in (output_folder / "private" / "matrices").iterdir()]
    assert len(names) == 3
    assert max(map(len, names)) <= 255
    assert verify(output_folder).complaints == ()


def test_verify_recomputes_rows_of_exact(write):
    """One unit moved between two outputs of one user's row: sums still right, but not what public.npz gives."""

    def move_one_unit(weights):
        weights[0, :2] += np.array([1, -1]).astype(np.uint64)  # wraps
        return weights

    _, output_folder = run(write(), "exact")
    complaints = verify(rewrite(output_folder, weights=move_one_unit)).complaints
    assert any("public.npz" in line for line in complaints)


def test_exact_for_all_users(write):
    result, output_folder = run(write(users='"all"', within=""), "exact", gap=0.05)
    assert result.guarantee.scope == "all-pairs"
    assert result.certificate.checked == 300 * 25
    population = result.details.facts["population"]
    assert population["value"] <= population["exponential"]
    assert result.details.told["published"] == "column_weights"
    with np.load(output_folder / "mechanism.npz") as archive:
        assert len(archive["pairs"]) == 300
    assert verify(output_folder).complaints == ()


def test_exact_continues_where_star_misses_gap(write, tmp_path):
    path = write(users='"all"', within="")
    star, _ = run(path, "exact", gap=0.05)
    best, output_folder = run(path, "exact")
    assert star.details.told["published"] == "column_weights"
    assert best.details.told["published"] == "weights"
    assert "misses the gap" in best.details.told["reason"]
    for result, gap in ((star, 0.05), (best, 1e-6)):
        lp = result.details.lp
        assert result.status == "optimal"
        assert lp.lower_bound <= lp.value <= lp.lower_bound + gap * lp.value
        assert lp.value == result.details.facts["population"]["value"]
    # a bound that the one run proved holds for the other: what 5 % allows is more than the optimum
    assert star.details.lp.lower_bound <= best.details.lp.value
    assert best.details.lp.lower_bound <= star.details.lp.value
    assert star.details.lp.value > best.details.lp.value * (1 + 1e-6)
    assert verify(output_folder).complaints == ()


def test_exact_reports_too_many_entries_for_bound(write, monkeypatch):
    monkeypatch.setattr("privopt_lr_geo.exact.LARGEST_MATRIX", 10)
    result, output_folder = run(write(), "exact")
    assert result.status == "feasible"
    assert result.details.lp.lower_bound is None
    assert_mentions(result.details.told["reason"], "no bound", "625", "10")
    assert verify(output_folder).complaints == ()


def test_exact_publishes_matrix_without_weights(tmp_path):
    """Three records close together beside one far away, by a table: negative star weights."""
    chance = np.random.default_rng(3)
    points = chance.random((12, 2)) * 2
    d = np.hypot(*(points[:, None] - points[None, :]).transpose(2, 0, 1))
    np.save(tmp_path / "d.npy", d)
    (tmp_path / "problem.toml").write_text(
        "[records]\ncount = 12\n[distance]\nkind = 'matrix'\nmatrix = 'd.npy'\n[privacy]\nepsilon = 0.9\n"
        "[utility]\nkind = 'distance'\n[lr-geo]\nusers = ['3', '7']\nradius = 2.0\nobfuscation_radius = 3.0\n"
        "exponential_beyond = 1.0\n"
    )
    result, output_folder = run(tmp_path / "problem.toml", "exact")
    assert result.details.told["published"] == "weights"
    with np.load(output_folder / "public.npz") as archive:
        weights = archive["weights"]
    data = LRGeoInstance.of(load_problem(LRGeoProblem, tmp_path / "problem.toml")).data
    assert certify(weights, data.pairs, data.distances, data.epsilon).holds
    assert result.details.facts["population"]["value"] <= result.details.facts["population"]["exponential"]
    assert verify(output_folder).complaints == ()


@pytest.mark.parametrize("is_late", [True, False])
def test_stopped_exact_publishes_normalised_weights(tmp_path, monkeypatch, is_late):
    """Where the optimal mechanism does not come in time: weights at a smaller rate, better than the exponential's."""
    from privopt.errors import StoppedError
    from privopt_metric_dp import solvers as optimal

    chance = np.random.default_rng(3)
    lines = "".join(f"{i},{x},{y}\n" for i, (x, y) in enumerate((chance.random((30, 2)) * 3).tolist()))
    (tmp_path / "points.csv").write_text("id,x,y\n" + lines)
    (tmp_path / "problem.toml").write_text(
        "[records]\npoints = 'points.csv'\n[distance]\nkind = 'euclidean'\n[privacy]\nepsilon = 1.0\n"
        "[utility]\nkind = 'distance'\n[lr-geo]\nusers = ['3', '7']\nradius = 2.0\nobfuscation_radius = 3.0\n"
        "exponential_beyond = 1.0\n"
    )
    if is_late:

        def never(*args, **options):
            raise StoppedError("too late")

        monkeypatch.setattr(optimal, "solve", never)
    result, output_folder = run(tmp_path / "problem.toml", "exact")
    assert result.details.told["published"] == ("column_weights" if is_late else "weights")
    assert result.certificate.holds
    assert result.guarantee.scope == "all-pairs"
    population = result.details.facts["population"]
    assert population["value"] < 0.8 * population["exponential"]
    if is_late:
        assert 0.5 <= result.details.told["rate"] < 1.0
    assert verify(output_folder).complaints == ()


def test_single_user_certifies(write):
    _, output_folder = run(write(users='["r2c2"]', radius=10.0), "full")
    with np.load(output_folder / "private" / "matrices" / "r2c2.npz") as archive:
        assert archive["weights"].shape == (25, 25)  # the radius takes in the whole map
        problem = LRGeoInstance.of(load_problem(LRGeoProblem, output_folder.parent / "problem.toml"))
        data = problem.data
        assert certify(archive["weights"], data.pairs, data.distances, data.epsilon).holds


@st.composite
def maps(draw):
    """Two or three users on a few points: packages and terms."""
    places = draw(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=4, max_size=9, unique=True))
    xy = np.array(places, dtype=float)
    d = np.hypot(*(xy[:, None] - xy[None, :]).transpose(2, 0, 1))
    r_obf = float(draw(st.integers(2, 4)))
    r_exp = float(draw(st.integers(0, 2)))
    gamma = float(draw(st.integers(2, 8)))
    packages = []
    for user in draw(st.sets(st.integers(0, len(places) - 1), min_size=2, max_size=3)):
        s = np.flatnonzero(d[user] <= 2.5)
        packages.append(Package(distances=d[np.ix_(s, s)], reach=d[s], costs=d[s] / 10, free=d[s] <= r_exp))
    epsilon = draw(st.sampled_from([0.5, 1.0, 2.0]))
    f = draw(st.sampled_from([0.5, 1.0]))
    return packages, Terms(epsilon=epsilon, within=gamma, obfuscation_radius=r_obf, exponent=f)


@settings(max_examples=12)
@given(maps(), st.sampled_from([None, Start()]))
def test_benders_and_full_agree(drawn, start):
    from privopt.errors import InfeasibleError

    packages, terms = drawn
    try:
        full_solution = server.solve(packages, terms, SolveContext(method="full", solver="highs", gap=1e-6))
    except InfeasibleError:
        with pytest.raises(InfeasibleError):
            server.solve(packages, terms, SolveContext(method="benders", gap=1e-3), start=start)
        return
    split = server.solve(packages, terms, SolveContext(method="benders", gap=1e-3), start=start)
    tolerance = 1e-6 * max(1.0, abs(full_solution.value))
    assert full_solution.lower_bound <= full_solution.value + tolerance
    assert split.lower_bound <= full_solution.value + tolerance
    assert full_solution.value <= split.value + tolerance
    assert split.value - full_solution.value <= 1e-3 * abs(split.value) + tolerance


WRONG = [
    ({"near": 2.0}, ["lr-geo.exponential_beyond", "obfuscation_radius"]),
    ({"users": '["r1c1", "r9c9"]'}, ["lr-geo.users", "r9c9", "not on the map"]),
    ({"users": '["r1c1", "r1c1"]'}, ["more than once"]),
    ({"users": "[]"}, ["lr-geo.users", "at least one"]),
    ({"users": "{ random = 26 }"}, ["lr-geo.users.random", "25"]),
    ({"radius": 0.3}, ["lr-geo.radius", "0.5"]),
    ({"radius": -1}, ["lr-geo.radius"]),
    ({"exponent": 1.5}, ["lr-geo.exponent"]),
]


@pytest.mark.parametrize(("changes", "words"), WRONG)
def test_wrong_input_is_one_line(write, changes, words):
    with pytest.raises(InputError) as excinfo:
        LRGeoInstance.of(load_problem(LRGeoProblem, write(**changes)))
    assert len(excinfo.value.faults) == 1
    for word in words:
        assert word in str(excinfo.value)


def test_refuses_zero_prior_on_user_cell(write):
    path = write()
    rows = [f"r{r}c{c},{0 if (r, c) == (1, 1) else 1 / 24}\n" for r in range(5) for c in range(5)]
    (path.parent / "prior.csv").write_text("id,p\n" + "".join(rows))
    path.write_text(path.read_text().replace('kind = "distance"', 'kind = "distance"\nprior = "prior.csv"'))
    with pytest.raises(InputError, match=r"prior of 0.*'r1c1'"):
        LRGeoInstance.of(load_problem(LRGeoProblem, path))


def test_disconnected_roads(tmp_path):
    (tmp_path / "points.csv").write_text("id\na\nb\nc\n")
    (tmp_path / "roads.csv").write_text("from,to,km\na,b,1\nc,d,1\n")
    (tmp_path / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n[privacy]\nepsilon = 1\n'
        '[utility]\nkind = "distance"\n[lr-geo]\nusers = "all"\nradius = 3\nobfuscation_radius = 2\n'
        "exponential_beyond = 1\n"
    )
    with pytest.raises(InputError, match="connected roads"):
        LRGeoInstance.of(load_problem(LRGeoProblem, tmp_path / "problem.toml"))


def test_audit_attacks_the_server(write):
    from privopt.run.audit import audit

    _, output_folder = run(write(), "full")
    findings = json.loads(json.dumps(audit(output_folder)))
    assert findings["server"]["zero_columns_name_the_set"] == 1.0
    assert findings["epsilon"]["claimed"] == 2.0
    assert 0 <= findings["gv"]["ratio"] <= 1
    _, output_folder = run(write(), "exact", "exact")
    assert "server" not in audit(output_folder)
