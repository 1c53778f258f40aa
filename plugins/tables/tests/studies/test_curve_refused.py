"""What a mechanism of a curve cannot take is found before anything is solved, and stops nothing else."""

import numpy as np
import polars as pl
import pytest
from helpers.grids import often
from helpers.toys import grid_text

from privopt.declare.schema import File
from privopt.errors import Fault, InputError
from privopt.interfaces import SolveContext
from privopt.registry import registry
from privopt.run.task import read_problem
from privopt_metric_dp.problem.data import MetricInstance
from privopt_tables.studies import curve as module
from privopt_tables.studies.curve import draw_curves
from privopt_tables.studies.curve_page import curve_page
from privopt_tables.studies.curve_pictures import figure_of
from privopt_tables.studies.epsilon_range import epsilons_of

STREETS = """
[records]
points = "points.csv"
[distance]
kind = "graph"
edges = "roads.csv"
[privacy]
epsilon = 1.0
[utility]
kind = "distance"
"""
TWO = epsilons_of("1:2:2")


@pytest.fixture
def streets(tmp_path):
    (tmp_path / "points.csv").write_text("id,x,y\n" + "".join(f"p{n},{n},0\n" for n in range(4)))
    (tmp_path / "roads.csv").write_text("from,to,km\n" + "".join(f"p{n},p{n + 1},1.5\n" for n in range(3)))
    (tmp_path / "p.toml").write_text(STREETS)
    return File.read(tmp_path / "p.toml")


def test_a_refused_mechanism_is_found_first_and_stops_no_other(streets, monkeypatch):
    order = []
    solved = module._solved
    monkeypatch.setattr(module, "_solved", lambda *given: order.append("solved") or solved(*given))
    names = ["exponential", "planar-laplace", "hierarchical-dp", "optimal-lp"]
    found = draw_curves(streets, names, TWO, announce=order.append)
    assert [(point.mechanism, point.status) for point in found.points[::2]] == [
        ("exponential", "feasible"),
        ("planar-laplace", "refused"),
        ("hierarchical-dp", "refused"),
        ("optimal-lp", "optimal"),
    ]
    assert order == [*found.refused, *["solved"] * 4]
    words = "planar-laplace refused: p.toml: distance.kind: expected euclidean or haversine over points or a grid"
    assert found.refused[0].startswith(words)
    assert found.refused[0].endswith("got graph over points")
    assert found.points[2].loss is found.points[2].lower_bound is None
    assert found.refused[0] in curve_page(found, "p.toml")
    labels = [text.get_text() for text in figure_of(found.points, "km", "km").axes[0].get_legend().get_texts()]
    assert labels == ["exponential", "optimal-lp"]


def test_the_command_ends_0_where_any_point_was_found(streets, tmp_path, privopt):
    given = ("curve", streets.path, "--epsilon", "1:2:2", "--quiet")
    done = privopt(*given, "--mechanisms", "planar-laplace,exponential", "--out", tmp_path / "c.csv")
    assert done.returncode == 0
    assert (
        done.stderr.count("planar-laplace refused: p.toml: distance.kind: expected euclidean or haversine over points")
        == 1
    )
    assert pl.read_csv(tmp_path / "c.csv")["status"].to_list() == ["refused"] * 2 + ["feasible"] * 2
    done = privopt(*given, "--mechanisms", "planar-laplace", "--out", tmp_path / "d.csv")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(
        "p.toml: distance.kind: expected euclidean or haversine over points or a grid, "
        "where planar noise can be drawn, "
        "got graph over points"
    )
    assert not (tmp_path / "d.csv").exists()


def test_an_epsilon_that_is_refused_leaves_the_others(tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(2, 2))
    ends = [*epsilons_of("1e-200:1:2"), *TWO[1:]]
    found = draw_curves(File.read(tmp_path / "p.toml"), ["planar-laplace"], ends)
    assert [point.status for point in found.points] == ["refused", "feasible", "feasible"]
    (said,) = found.refused
    assert said.startswith(
        "planar-laplace refused at epsilon 1E-200: p.toml: privacy.epsilon: expected 1e-150 to 1e+150 (per km), "
        "where the noise can be integrated, got 1e-200"
    )


def test_one_that_refuses_only_while_it_solves_stops_no_other(streets, monkeypatch):
    mechanism = type(registry().get("exponential").load())
    solve = mechanism.solve

    def late(self, problem, context):
        if problem.data.epsilon > 1:
            raise InputError([Fault("p.toml", "distance", "so much", "less")])
        return solve(self, problem, context)

    monkeypatch.setattr(mechanism, "solve", late)
    told = []
    found = draw_curves(streets, ["exponential", "optimal-lp"], TWO, announce=told.append)
    assert [point.status for point in found.points] == ["feasible", "refused", "optimal", "optimal"]
    assert told == ["exponential refused at epsilon 2: p.toml: distance: expected less, got so much"]


SPACES = {
    "streets": STREETS,
    "grid": grid_text(2, 3),
    "vectors": '[records]\nvectors = "v.npy"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1\n'
    '[utility]\nkind = "distance"\n',
    "everywhere": grid_text(2, 2).replace("epsilon = 1.0", "epsilon = 1.0\neverywhere = true"),
    "other notion": grid_text(2, 2).replace("[privacy]\n", '[privacy]\nkind = "pure-dp"\n'),
}
TABLES = (
    "[const-opt]\nradius = 1.0\n[given]\nmatrix = 'm.npy'\n[lr-geo]\nradius = 5.0\nobfuscation_radius = 5.0\n"
    "exponential_beyond = 5.0\nusers = ['{first}']\n"
)


@often("space", SPACES, [space for space in SPACES if space != "grid"])
def test_no_mechanism_refuses_only_when_it_solves(space, streets, tmp_path):
    """Each registered one over places: what it can load and check, it does not call bad input afterwards."""
    np.save(tmp_path / "v.npy", np.eye(4))
    np.save(tmp_path / "m.npy", np.full((3, 3), 1 / 3))
    first = {"streets": "p0", "vectors": "0"}.get(space, "r0c0")
    (tmp_path / "p.toml").write_text(SPACES[space] + TABLES.format(first=first))
    source, taken = File.read(tmp_path / "p.toml"), []
    for name in registry().mechanisms:
        registered = registry().get(name)
        mechanism, method = registered.load(), registered.method(None).name
        try:
            problem = mechanism.load(read_problem(mechanism, source), source.name)
            if not isinstance(problem, MetricInstance):
                continue
            mechanism.check_problem(problem, method)
        except InputError:
            continue
        mechanism.solve(problem, SolveContext(method=method, gap=1e-2))
        taken.append(name)
    assert taken or space == "other notion"
    assert "given" not in taken
