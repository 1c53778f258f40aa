"""A limit that comes early: never worse than what is cheap, with a bound that is proved."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from helpers.toys import grid_text

from privopt.declare import load_problem
from privopt.errors import StoppedError
from privopt.execution.clock import Clock, clock, limit
from privopt.interfaces import SolveContext
from privopt.run.options import Options
from privopt.run.solve import solve as solve_problem
from privopt.run.verify import verify
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.mechanisms.registered import OptimalLP
from privopt_metric_dp.problem import metric_data as data_module
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.solvers import Instance, auto, dual_bound, interior_point, solve, star
from privopt_metric_dp.solvers import components as reduce
from privopt_metric_dp.solvers import exponential as exponential_module
from privopt_metric_dp.solvers.exponential import exponential
from privopt_metric_dp.solvers.path_graph import make_graph
from privopt_metric_dp.solvers.star import make_star
from privopt_metric_dp.solvers.symmetry import find_symmetry
from privopt_metric_dp.solvers.tree_pricing import price_all
from privopt_metric_dp.space import pairs as pairs_module

METHODS = ("auto", "column-generation", "interior-point")
GRID = grid_text(9, 9, 0.5, 0.9)


@pytest.fixture(scope="module")
def scattered():
    """Points whose star has negative weights."""
    points = np.random.default_rng(3).random((40, 2)) * 3
    distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    i, j = np.triu_indices(len(points), 1)
    made = Instance(cost=distance / 40, pairs=np.stack([i, j], axis=1), distances=distance[i, j], epsilon=1.0)
    assert not make_star(made, find_symmetry(made), make_graph(made)).feasible
    return made


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "problem.toml").write_text(GRID)
    return MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml"))


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_bound_at_a_limit_is_no_less_than_every_records_cheapest_output(scattered, excess, method, seconds):
    shifted = evolve(scattered, cost=scattered.cost + 0.25 / 40)  # the cheapest outputs cost something
    found = solve(shifted, method=method, search_time=Clock(seconds, clock()), gap=1e-12)
    assert excess(shifted, found.z) < 1e-8
    assert found.lower_bound >= 0.25 * (1 - 1e-9)
    proved, _ = dual_bound(shifted, found.multipliers)
    assert proved == pytest.approx(found.lower_bound, rel=1e-9)
    assert found.lower_bound <= found.objective


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_limit_never_leaves_more_loss_than_the_exponential_mechanism(problem, method, seconds):
    data = problem.data
    z = exponential(data.to_outputs, float(data.epsilon))
    context = SolveContext(method=method, gap=1e-12, search_time=Clock(seconds, clock()))
    found = OptimalLP().solve(problem, context)
    assert found.stopped
    assert ExpectedLoss.of(data).evaluate(found.release) <= float((data.weighted * z).sum()) * (1 + 1e-6)
    assert found.lower_bound is not None
    assert found.solver["path"]


class Composed:
    """A notion that has metric DP as a part."""

    def __init__(self, part):
        self._part = part

    def __getattr__(self, name):
        return getattr(self._part, name)


class OptimalUnderAnotherNotion(OptimalLP):
    def privacy(self, problem, method=""):
        return Composed(super().privacy(problem, method))


def test_multipliers_under_another_notion_prove_nothing_and_are_no_early_stop(tmp_path):
    (tmp_path / "problem.toml").write_text(grid_text(3, 3, 0.5, 0.9))
    problem = MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml"))
    found = OptimalUnderAnotherNotion().solve(problem, SolveContext(method="full", solver="highs", gap=1e-6))
    assert not found.stopped
    assert found.proof is None


def test_pricing_looks_at_the_clock(scattered):
    graph, anchors = make_graph(scattered), scattered.cost.argmin(axis=0)
    trees = star.star_trees(graph, anchors)
    with limit(0.0) as scope:
        price_all(graph, scattered, scattered.cost.min(axis=1), trees)
    assert scope.expired


def test_an_interrupt_without_a_limit_leaves_what_was_found(scattered):
    seen = []

    def stop(phase, iteration, lower, upper):
        seen.append(phase)
        if seen.count("interior-point") == 5:
            raise KeyboardInterrupt

    found = solve(scattered, gap=1e-12, progress=stop)
    assert (found.status, found.method) == ("stopped", "interior-point")
    assert found.lower_bound > 0.0
    assert "interrupted" in found.details["path"]


def test_an_interrupt_holds_for_the_parts_after_it(scattered, monkeypatch):
    begun = []
    monkeypatch.setattr(interior_point, "_iterate", lambda *_: begun.append(1) or interrupt())
    size = scattered.records  # twice, far from one another: the second is no longer begun
    twice = Instance(
        cost=np.concatenate([scattered.cost, scattered.cost]) / 2,
        pairs=np.concatenate([scattered.pairs, scattered.pairs + size]),
        distances=np.tile(scattered.distances, 2),
        epsilon=scattered.epsilon,
    )
    assert solve(twice, gap=1e-12).status == "stopped"
    assert len(begun) == 1


@pytest.mark.parametrize("method", ["auto", "full"])
def test_an_interrupt_leaves_a_certified_release(tmp_path, problem, monkeypatch, method):
    monkeypatch.setattr(auto, "search", interrupt)
    monkeypatch.setattr("privopt_metric_dp.mechanisms.optimal_lp.optimal_model", interrupt)
    solved = solve_problem("optimal-lp", tmp_path / "problem.toml", tmp_path / "out", Options(method=method, gap=1e-12))
    assert solved.stopped
    assert verify(tmp_path / "out").verdict == "proved"


def test_the_pairs_of_many_are_reduced_no_longer_than_a_limit(monkeypatch):
    place = np.random.default_rng(5).random((40, 2))
    i, j = np.triu_indices(len(place), 1)
    pairs, lengths = np.stack([i, j], axis=1), np.hypot(*(place[i] - place[j]).T)
    whole = pairs_module.reduce_pairs(pairs, lengths)
    monkeypatch.setattr(pairs_module, "_PAIRS_PER_CHECK", 50)
    assert (pairs_module.reduce_pairs(pairs, lengths) == whole).all()
    with limit(0.0) as scope:
        pairs_module.reduce_pairs(pairs, lengths)
    assert scope.expired
    made = Instance(
        cost=np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1)), pairs=pairs, distances=lengths, epsilon=1.0
    )
    late = solve(made, search_time=Clock(0.0, clock()))
    assert (late.method, late.status) == ("constant", "stopped")


@pytest.mark.parametrize(
    ("mechanism", "method"),
    [("optimal-lp", each) for each in ("auto", "column-generation", "interior-point", "star", "full")]
    + [("bd-mdp", each) for each in ("benders", "full", "auto")]
    + [("exponential", "calibrated")],
)
def test_the_plain_exponential_is_kept_before_pairs_and_shares_are_looked_for(tmp_path, monkeypatch, mechanism, method):
    (tmp_path / "problem.toml").write_text(GRID)
    late = StoppedError("late")

    def stop(*_arguments, **_options):
        raise late

    monkeypatch.setattr(reduce, "reduce_pairs", stop)
    monkeypatch.setattr(data_module, "needed_pairs", stop)
    monkeypatch.setattr(data_module, "MAX_REDUCED_PAIRS", 0)
    monkeypatch.setattr(exponential_module, "_differences", stop)
    solved = solve_problem(
        mechanism, tmp_path / "problem.toml", tmp_path / "out", Options(method=method, gap=1e-12, time_limit=600.0)
    )
    assert solved.stopped
    monkeypatch.undo()
    assert verify(tmp_path / "out").verdict == "proved"


@pytest.mark.parametrize("method", ["auto", "star"])
def test_a_stop_before_any_method_states_more_than_nothing(tmp_path, problem, monkeypatch, method):
    """At a limit of 20 s 2,000 vectors had a bound of 0: what trees prove is there before a method begins."""

    def late(*given, **named):
        raise StoppedError("the time limit came")

    monkeypatch.setattr(auto, "_run_solver", late)
    asked = Options(method=method, time_limit=600.0)
    solved = solve_problem("optimal-lp", tmp_path / "problem.toml", tmp_path / "out", asked)
    assert solved.stopped
    assert 0.5 < solved.result.objective.lower_bound < solved.result.objective.value
    assert verify(tmp_path / "out").verdict == "proved"
