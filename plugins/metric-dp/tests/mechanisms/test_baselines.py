"""No baseline is below the optimal mechanism's proved bound, and every release of all of them is certified."""

import math

import numpy as np
import pytest
from helpers.command import run
from helpers.grids import by_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

PROBLEM = """
[records]
points = "points.csv"
[outputs]
points = "outputs.csv"
[distance]
kind = "euclidean"
[privacy]
epsilon = {epsilon}
{within}
[utility]
kind = "distance"
prior = "prior.csv"
[const-opt]
radius = {radius}
"""


@st.composite
def maps(draw):
    """Return a few places on a small integer grid, some of them at one spot, outputs of their own, any prior."""
    coordinates = st.tuples(st.integers(0, 4), st.integers(0, 4))
    places = draw(st.lists(coordinates, min_size=2, max_size=7))
    outputs = draw(st.lists(coordinates, min_size=1, max_size=5, unique=True))
    mass = draw(st.lists(st.integers(0, 5), min_size=len(places), max_size=len(places)).filter(any))
    epsilon = draw(st.sampled_from(["0.05", "0.3", "1.0", "2.5", "5.0", "7.0"]))
    distances = [math.dist(start, end) for start in places for end in places if start != end]
    # else no record has a neighbour
    limits = [limit for limit in (1.5, 3.0) if not distances or limit >= min(distances)]
    limit_line = draw(st.sampled_from(["", *(f"neighbours_within = {limit}" for limit in limits)]))
    return places, outputs, mass, epsilon, limit_line, draw(st.sampled_from([0.5, 1.5, 3.0]))


def write(folder, drawn_map):
    places, outputs, mass, epsilon, limit_line, radius = drawn_map
    folder.mkdir(exist_ok=True)
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"r{n},{x},{y}\n" for n, (x, y) in enumerate(places)))
    (folder / "outputs.csv").write_text("id,x,y\n" + "".join(f"o{n},{x},{y}\n" for n, (x, y) in enumerate(outputs)))
    shares = np.array(mass) / sum(mass)
    (folder / "prior.csv").write_text("id,p\n" + "".join(f"r{n},{p!r}\n" for n, p in enumerate(shares.tolist())))
    (folder / "problem.toml").write_text(PROBLEM.format(epsilon=epsilon, within=limit_line, radius=radius))
    return folder / "problem.toml"


@pytest.mark.parametrize("examples", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_no_baseline_is_below_the_bound(tmp_path_factory, examples):
    @settings(max_examples=examples)
    @given(drawn_map=maps())
    def check_map(drawn_map):
        folder = tmp_path_factory.mktemp("map")
        problem = write(folder, drawn_map)
        bound = None
        for mechanism in ("optimal-lp", "exponential", "planar-laplace", "const-opt"):
            output_folder = folder / mechanism
            objective = solve(mechanism, problem, output_folder, Options(solver="highs")).result.objective
            assert verify(output_folder).complaints == ()
            if bound is None:
                bound = objective.lower_bound
                assert objective.value - bound <= max(1e-6 * objective.value, 1e-12)
            assert objective.value >= bound - 1e-12

    check_map()


FOUND = {
    "rounding alone made rows clash in HiGHS's presolve": (
        "const-opt",
        ([(2, 0), (4, 4), (4, 4), (2, 3), (4, 0)], [(4, 1), (1, 4)], [0, 4, 2, 0, 5], "7.0", "", 0.5),
    ),
    "prices short by 1e-9 at a record that others stand far above": (
        "optimal-lp",
        ([(2, 2), (0, 4), (2, 4), (1, 3), (4, 2), (4, 1)], [(3, 1), (2, 4)], [1, 0, 1, 5, 1, 3], "7.0", "", 3.0),
    ),
    "the anchor of one output worth 3e-4": (
        "optimal-lp",
        ([(1, 4), (2, 4), (4, 2), (2, 0), (3, 3)], [(4, 0), (2, 0), (3, 4), (0, 4)], [2, 5, 0, 1, 5], "7.0", "", 3.0),
    ),
}


@pytest.mark.parametrize("case", FOUND.values(), ids=FOUND.keys())
def test_maps_that_once_failed(tmp_path, case):
    mechanism, drawn_map = case
    objective = solve(
        mechanism, write(tmp_path / "map", drawn_map), tmp_path / "out", Options(solver="highs")
    ).result.objective
    assert verify(tmp_path / "out").complaints == ()
    if mechanism == "optimal-lp":
        assert objective.gap <= 1e-6


@pytest.mark.parametrize("mechanism", ["optimal-lp", "exponential"])
def test_audit_reports_what_an_attacker_gets(tmp_path, mechanism, toy):
    import json

    output_folder = tmp_path / "out"
    result = solve(mechanism, toy, output_folder).result
    completed = run("audit", str(output_folder), "--json")
    assert completed.exit_code == 0, completed.output
    findings = json.loads(completed.stdout)
    assert list(findings)[:6] == ["epsilon", "gv", "bayes_error", "expected_loss", "entropy_bits", "statistical"]
    assert findings["epsilon"]["claimed"] == 0.9
    assert findings["epsilon"]["achieved"] <= 0.9 + 1e-9
    assert findings["gv"] == {"ratio": 0.0, "error": 0.0}
    assert 0 < findings["bayes_error"] < 1
    assert findings["expected_loss"] == pytest.approx(result.objective.value, rel=1e-9)
    assert 0 <= findings["entropy_bits"] <= np.log2(5)
    assert 0 <= findings["statistical"]["epsilon_lower"] <= 0.9
    assert "epsilon" in run("audit", str(output_folder)).stdout


@by_pairs("mechanism, epsilon", ["optimal-lp", "exponential", "planar-laplace"], ["1e-9", "40", "700", "1e5"])
def test_certifies_tiny_and_huge_epsilons(tmp_path, mechanism, epsilon):
    points = [(0, 0), (1, 0), (0, 1), (3, 3), (3, 3)]
    problem = write(tmp_path / "map", (points, points[:4], [1, 0, 0, 0, 0], epsilon, "", 1.0))
    solve(mechanism, problem, tmp_path / "out", Options(time_limit=600))
    assert verify(tmp_path / "out").complaints == ()


@pytest.mark.parametrize("epsilon", [15.0, 40.0, 1000.0])
def test_const_opt_is_near_the_optimum(tmp_path, epsilon):
    base = "[records]\ngrid = { rows = 3, cols = 4, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    settings = f"[privacy]\nepsilon = {epsilon}\n[utility]\nkind = 'distance'\n[const-opt]\nradius = 2.0\n"
    (tmp_path / "p.toml").write_text(base + settings)
    release = solve("const-opt", tmp_path / "p.toml", tmp_path / "out", Options(solver="highs"))
    best = solve("optimal-lp", tmp_path / "p.toml", tmp_path / "best", Options()).result.objective
    assert verify(tmp_path / "out").holds
    assert best.lower_bound <= release.result.objective.value <= 1.01 * best.value + 1e-17


@pytest.mark.parametrize("epsilon", ["1e-300", "1e300"])
def test_planar_laplace_refuses_extreme_epsilons(tmp_path, epsilon):
    points = [(0, 0), (1, 0), (0, 1), (3, 3), (3, 3)]
    problem = write(tmp_path / "map", (points, points, [1, 0, 0, 0, 0], epsilon, "", 1.0))
    with pytest.raises(InputError, match=r"privacy\.epsilon: .*(1e-150 to|at most) 1e\+150"):
        solve("planar-laplace", problem, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("epsilon", ["1e-150", "1e150"])
def test_planar_laplace_certifies_at_its_limits(tmp_path, epsilon):
    points = [(0, 0), (1, 0), (0, 1), (3, 3), (3, 3)]
    problem = write(tmp_path / "map", (points, points, [1, 0, 0, 0, 0], epsilon, "", 1.0))
    solve("planar-laplace", problem, tmp_path / "out")
    assert verify(tmp_path / "out").complaints == ()


def test_single_record_is_no_early_stop(tmp_path):
    """By HiGHS one output for all costs as little as the program's answer: that was called stopped early."""
    base = "[records]\ngrid = { rows = 1, cols = 1, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
    (tmp_path / "p.toml").write_text(base + "[privacy]\nepsilon = 1.0\n[utility]\nkind = 'distance'\n")
    for solver in ("cbc", "highs"):
        release = solve("optimal-lp", tmp_path / "p.toml", tmp_path / solver, Options(method="full", solver=solver))
        assert not release.stopped
        assert release.result.status == "optimal"
