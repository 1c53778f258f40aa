"""A limit that comes early: never worse than what is cheap, with a bound that is proved."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from helpers.toys import grid_text

from privopt.declare import load_problem
from privopt.errors import StoppedError
from privopt.execution.clock import Clock, check, clock, limit
from privopt.interfaces import SolveContext
from privopt.run.solve import solve as solve_problem
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.mechanisms.certifier import reserve_memory
from privopt_metric_dp.mechanisms.optimal_lp import OptimalLP
from privopt_metric_dp.problem import metric_data as data_module
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.solvers import Instance, auto, dual_bound, interior_point, solve, star
from privopt_metric_dp.solvers import components as reduce
from privopt_metric_dp.solvers import exponential as exponential_module
from privopt_metric_dp.solvers.exponential import exponential
from privopt_metric_dp.solvers.solver import make_graph
from privopt_metric_dp.solvers.star import make_star
from privopt_metric_dp.solvers.symmetry import find_symmetry
from privopt_metric_dp.solvers.tree_pricing import price_all
from privopt_metric_dp.space import pairs as pairs_module

METHODS = ("auto", "column-generation", "interior-point")
GRID = grid_text(9, 9, 0.5, 0.9)


@pytest.fixture(scope="module")
def scattered_instance():
    """Points whose star has negative weights."""
    points = np.random.default_rng(3).random((40, 2)) * 3
    distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    i, j = np.triu_indices(len(points), 1)
    instance = Instance(cost=distance / 40, pairs=np.stack([i, j], axis=1), distances=distance[i, j], epsilon=1.0)
    assert not make_star(instance, find_symmetry(instance), make_graph(instance)).feasible
    return instance


@pytest.fixture
def problem(tmp_path):
    (tmp_path / "problem.toml").write_text(GRID)
    return MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml"))


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_limited_bound_is_at_least_the_cheapest(scattered_instance, excess, method, seconds):
    # the cheapest outputs cost something
    shifted = evolve(scattered_instance, cost=scattered_instance.cost + 0.25 / 40)
    answer = solve(shifted, method=method, search_time=Clock(seconds, clock()), gap=1e-12)
    assert excess(shifted, answer.z) < 1e-8
    assert answer.lower_bound >= 0.25 * (1 - 1e-9)
    proved_bound, _ = dual_bound(shifted, answer.multipliers)
    assert proved_bound == pytest.approx(answer.lower_bound, rel=1e-9)
    assert answer.lower_bound <= answer.objective


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_limit_keeps_the_exponential_loss(problem, method, seconds):
    data = problem.data
    z = exponential(data.to_outputs, float(data.epsilon))
    context = SolveContext(method=method, gap=1e-12, search_time=Clock(seconds, clock()))
    outcome = OptimalLP().solve(problem, context)
    assert outcome.stopped
    assert ExpectedLoss.of(data).evaluate(outcome.release) <= float((data.weighted * z).sum()) * (1 + 1e-6)
    assert outcome.lower_bound is not None
    assert outcome.solver["path"]


class Composed:
    """A notion that has metric DP as a part."""

    def __init__(self, part):
        self._part = part

    def __getattr__(self, name):
        return getattr(self._part, name)


class OptimalUnderAnotherNotion(OptimalLP):
    def privacy(self, problem, method=""):
        return Composed(super().privacy(problem, method))


def test_other_notion_proves_nothing_and_is_no_stop(tmp_path):
    (tmp_path / "problem.toml").write_text(grid_text(3, 3, 0.5, 0.9))
    problem = MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml"))
    outcome = OptimalUnderAnotherNotion().solve(problem, SolveContext(method="full", solver="highs", gap=1e-6))
    assert not outcome.stopped
    assert outcome.proof is None


def test_pricing_checks_the_clock(scattered_instance):
    graph, anchors = make_graph(scattered_instance), scattered_instance.cost.argmin(axis=0)
    trees = star.star_trees(graph, anchors)
    with limit(0.0) as scope:
        price_all(graph, scattered_instance, scattered_instance.cost.min(axis=1), trees)
    assert scope.expired


def test_interrupt_keeps_what_was_found(scattered_instance):
    phases = []

    def stop(phase, iteration, lower, upper):
        phases.append(phase)
        if phase == "interior-point" and phases.count(phase) == 5:
            raise KeyboardInterrupt

    answer = solve(scattered_instance, gap=1e-12, progress=stop)
    assert (answer.status, answer.method) == ("stopped", "interior-point")
    assert answer.lower_bound > 0.0
    assert "interrupted" in answer.details["path"]


def test_interrupt_covers_later_parts(scattered_instance, monkeypatch):
    solve_count = []
    monkeypatch.setattr(interior_point, "_iterate", lambda *_: solve_count.append(1) or interrupt())
    size = scattered_instance.records  # twice, far from one another: the second is no longer begun
    doubled = Instance(
        cost=np.concatenate([scattered_instance.cost, scattered_instance.cost]) / 2,
        pairs=np.concatenate([scattered_instance.pairs, scattered_instance.pairs + size]),
        distances=np.tile(scattered_instance.distances, 2),
        epsilon=scattered_instance.epsilon,
    )
    assert solve(doubled, gap=1e-12).status == "stopped"
    assert len(solve_count) == 1


@pytest.mark.parametrize("method", ["auto", "full"])
def test_interrupt_leaves_a_certified_release(tmp_path, problem, monkeypatch, method):
    monkeypatch.setattr(auto, "search", interrupt)
    monkeypatch.setattr("privopt_metric_dp.mechanisms.optimal_lp.optimal_model", interrupt)
    release = solve_problem(
        "optimal-lp", tmp_path / "problem.toml", tmp_path / "out", Options(method=method, gap=1e-12)
    )
    assert release.stopped
    assert verify(tmp_path / "out").verdict == "proved"


def test_limit_covers_the_reduction_of_pairs(monkeypatch):
    points = np.random.default_rng(5).random((40, 2))
    i, j = np.triu_indices(len(points), 1)
    pairs, lengths = np.stack([i, j], axis=1), np.hypot(*(points[i] - points[j]).T)
    reduced = pairs_module.reduce_pairs(pairs, lengths)
    monkeypatch.setattr(pairs_module, "_PAIRS_PER_CHECK", 50)
    assert (pairs_module.reduce_pairs(pairs, lengths) == reduced).all()
    with limit(0.0) as scope:
        pairs_module.reduce_pairs(pairs, lengths)
    assert scope.expired
    instance = Instance(
        cost=np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1)), pairs=pairs, distances=lengths, epsilon=1.0
    )
    late_answer = solve(instance, search_time=Clock(0.0, clock()))
    assert (late_answer.method, late_answer.status) == ("constant", "stopped")


@pytest.mark.parametrize(
    ("mechanism", "method"),
    [("optimal-lp", solver_method) for solver_method in ("auto", "column-generation", "interior-point", "star", "full")]
    + [("bd-mdp", solver_method) for solver_method in ("benders", "full", "auto")]
    + [("exponential", "calibrated")],
)
def test_exponential_is_kept_before_reductions(tmp_path, monkeypatch, mechanism, method):
    (tmp_path / "problem.toml").write_text(GRID)
    late_error = StoppedError("late")

    def stop(*_arguments, **_options):
        raise late_error

    monkeypatch.setattr(reduce, "reduce_pairs", stop)
    monkeypatch.setattr(data_module, "needed_pairs", stop)
    monkeypatch.setattr(data_module, "MAX_REDUCED_PAIRS", 0)
    monkeypatch.setattr(exponential_module, "_differences", stop)
    release = solve_problem(
        mechanism, tmp_path / "problem.toml", tmp_path / "out", Options(method=method, gap=1e-12, time_limit=600.0)
    )
    assert release.stopped
    monkeypatch.undo()
    assert verify(tmp_path / "out").verdict == "proved"


@pytest.mark.parametrize("method", ["auto", "star"])
def test_early_stop_states_a_bound(tmp_path, problem, monkeypatch, method):
    """At a limit of 20 s 2,000 vectors had a bound of 0: what trees prove is there before a method begins."""

    def raise_stop(*arguments, **options):
        raise StoppedError("the time limit came")

    monkeypatch.setattr(auto, "_run_solver", raise_stop)
    solve_options = Options(method=method, time_limit=600.0)
    release = solve_problem("optimal-lp", tmp_path / "problem.toml", tmp_path / "out", solve_options)
    assert release.stopped
    assert 0.5 < release.result.objective.lower_bound < release.result.objective.value
    assert verify(tmp_path / "out").verdict == "proved"


def test_affordable_closed_form_is_reached_however_busy_the_machine_is(monkeypatch, grid_instance):
    """The time is over when the pairs have been reduced, and the star and its bound come all the same."""
    seconds = [0.0]
    original_drop = reduce.drop_implied_pairs

    def drop_slowly(instance):
        seconds[0] = 1_000.0
        return original_drop(instance)

    monkeypatch.setattr(reduce, "drop_implied_pairs", drop_slowly)
    instance = grid_instance(6, "all", 1.0)
    answer = solve(instance, gap=0.3, search_time=Clock(100.0, clock(), now=lambda: seconds[0]))
    assert (answer.method, answer.status) == ("star", "optimal")
    assert answer.gap <= 0.3


def test_star_that_takes_too_long_is_not_waited_for(monkeypatch, grid_instance):
    monkeypatch.setattr(star, "OPERATIONS_PER_SECOND", 1.0)
    seconds = [0.0]
    monkeypatch.setattr(reduce, "drop_implied_pairs", lambda *_: seconds.append(seconds.pop() + 1_000.0) or check())
    answer = solve(grid_instance(6, "all", 1.0), gap=0.05, search_time=Clock(100.0, clock(), now=lambda: seconds[0]))
    assert (answer.method, answer.status) == ("constant", "stopped")


def test_affordable_closed_form_is_reached_though_building_took_all_the_time(tmp_path):
    (tmp_path / "problem.toml").write_text(grid_text(9, 9, 0.5, 2.0))
    problem, seconds = MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml")), [0.0]
    search_time = Clock(100.0, clock(), now=lambda: seconds[0])
    seconds[0] = 1_000.0
    outcome = OptimalLP().solve(problem, SolveContext(method="auto", gap=0.4, search_time=search_time))
    assert not outcome.stopped
    assert outcome.solver["path"].startswith("star")
    assert outcome.lower_bound >= 0.6 * ExpectedLoss.of(problem.data).evaluate(outcome.release)


@pytest.mark.parametrize("memory", [None, 1e9])
def test_memory_is_reserved_only_if_certifying_runs_beside_the_solver(memory):
    unlimited = SolveContext(method="auto", memory=memory)
    assert reserve_memory(unlimited, 100, 10) is unlimited
    limited = reserve_memory(SolveContext(method="auto", memory=memory, search_time=Clock(60.0)), 100, 10)
    assert limited.memory is None if memory is None else limited.memory < memory
