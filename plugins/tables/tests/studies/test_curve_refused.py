"""What a mechanism of a curve cannot take is found before anything is solved, and stops nothing else."""

import numpy as np
import polars as pl
import pytest
from helpers.grids import often
from helpers.mentions import assert_mentions
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
from privopt_tables.studies.curve_pictures import draw_loss
from privopt_tables.studies.epsilon_range import parse_epsilons

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
TWO = parse_epsilons("1:2:2")


@pytest.fixture
def streets(tmp_path):
    (tmp_path / "points.csv").write_text("id,x,y\n" + "".join(f"p{n},{n},0\n" for n in range(4)))
    (tmp_path / "roads.csv").write_text("from,to,km\n" + "".join(f"p{n},p{n + 1},1.5\n" for n in range(3)))
    (tmp_path / "p.toml").write_text(STREETS)
    return File.read(tmp_path / "p.toml")


def test_refused_mechanism_stops_no_other(streets, monkeypatch):
    order = []
    original_solve = module._solve_point
    monkeypatch.setattr(module, "_solve_point", lambda *arguments: order.append("solved") or original_solve(*arguments))
    names = ["exponential", "planar-laplace", "hierarchical-dp", "optimal-lp"]
    curves = draw_curves(streets, names, TWO, announce=order.append)
    assert [(point.mechanism, point.status) for point in curves.points[::2]] == [
        ("exponential", "feasible"),
        ("planar-laplace", "refused"),
        ("hierarchical-dp", "refused"),
        ("optimal-lp", "optimal"),
    ]
    assert order == [*curves.refused, *["solved"] * 4]
    words = "planar-laplace refused: p.toml: distance.kind: expected euclidean or haversine over points or a grid"
    assert curves.refused[0].startswith(words)
    assert curves.refused[0].endswith("graph over points")
    assert curves.points[2].loss is curves.points[2].lower_bound is None
    assert curves.refused[0] in curve_page(curves, "p.toml")
    labels = [text.get_text() for text in draw_loss(curves.points, "km", "km").legends[0].get_texts()]
    assert labels == ["exponential", "optimal-lp", "proved bound"]


def test_command_exits_0_if_any_point_was_found(streets, tmp_path, privopt):
    arguments = ("curve", streets.path, "--epsilon", "1:2:2")
    completed = privopt(*arguments, "--mechanisms", "planar-laplace,exponential", "--out", tmp_path / "c.csv")
    assert completed.returncode == 0
    assert completed.stderr.count("planar-laplace refused: p.toml") == 1
    assert pl.read_csv(tmp_path / "c.csv")["status"].to_list() == ["refused"] * 2 + ["feasible"] * 2
    completed = privopt(*arguments, "--mechanisms", "planar-laplace", "--out", tmp_path / "d.csv", "--quiet")
    assert (completed.returncode, completed.stderr.count("\n")) == (2, 1)
    assert_mentions(completed.stderr, "p.toml: distance.kind", "euclidean or haversine", "got graph")
    assert not (tmp_path / "d.csv").exists()


def test_refused_epsilon_leaves_the_others(tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(2, 2))
    epsilons = [*parse_epsilons("1e-200:1:2"), *TWO[1:]]
    curves = draw_curves(File.read(tmp_path / "p.toml"), ["planar-laplace"], epsilons)
    assert [point.status for point in curves.points] == ["refused", "feasible", "feasible"]
    (message,) = curves.refused
    assert_mentions(message, "planar-laplace refused at epsilon 1E-200", "privacy.epsilon", "1e-150 to 1e+150")


def test_refusal_while_solving_stops_no_other(streets, monkeypatch):
    mechanism = type(registry().get("exponential").load())
    solve = mechanism.solve

    def refuse_late(self, problem, context):
        if problem.data.epsilon > 1:
            raise InputError([Fault("p.toml", "distance", "so much", "less")])
        return solve(self, problem, context)

    monkeypatch.setattr(mechanism, "solve", refuse_late)
    announcements = []
    curves = draw_curves(streets, ["exponential", "optimal-lp"], TWO, announce=announcements.append)
    assert [point.status for point in curves.points] == ["feasible", "refused", "optimal", "optimal"]
    assert [line.partition(":")[0] for line in announcements] == ["exponential refused at epsilon 2"]


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
def test_mechanisms_refuse_before_solving(space, streets, tmp_path):
    """Each registered one over places: what it can load and check, it does not call bad input afterwards."""
    np.save(tmp_path / "v.npy", np.eye(4))
    np.save(tmp_path / "m.npy", np.full((3, 3), 1 / 3))
    first = {"streets": "p0", "vectors": "0"}.get(space, "r0c0")
    (tmp_path / "p.toml").write_text(SPACES[space] + TABLES.format(first=first))
    source, accepted = File.read(tmp_path / "p.toml"), []
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
        accepted.append(name)
    assert accepted or space == "other notion"
    assert "given" not in accepted
