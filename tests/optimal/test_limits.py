"""A limit that comes early: never worse than what is cheap, with a bound that is proved."""

from __future__ import annotations

import time

import numpy as np
import pytest
from attrs import evolve
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from toys import grid_text

from privopt.errors import StoppedError
from privopt.execution.clock import EXIT, GRACE, OVER
from privopt.execution.limits import check_end, ending_at
from privopt.interfaces import SolveContext
from privopt.run import solve as solving
from privopt.run.options import Options
from privopt.run.solve import solve as solve_problem
from privopt.run.verify import verify
from privopt_metric_dp.mechanisms import fallback as reserve
from privopt_metric_dp.mechanisms import optimal_lp as lp
from privopt_metric_dp.mechanisms.optimal_lp import solve_structured
from privopt_metric_dp.problem import data as data_module
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.proof import (
    one_step_bound as nearby,
)
from privopt_metric_dp.proof import (
    row_proof as rows,
)
from privopt_metric_dp.proof import (
    tree_proof as trees,
)
from privopt_metric_dp.solvers import (
    Instance,
    auto,
    dual_bound,
    solve,
    star,
)
from privopt_metric_dp.solvers import (
    components as reduce,
)
from privopt_metric_dp.solvers import exponential as exponential_module
from privopt_metric_dp.solvers.exponential import exponential
from privopt_metric_dp.solvers.path_graph import make_graph
from privopt_metric_dp.solvers.quick_star import known_at_once
from privopt_metric_dp.solvers.star import make_star
from privopt_metric_dp.solvers.symmetry import Symmetry, find_symmetry
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
    assert not make_star(made, find_symmetry(made)).feasible
    return made


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seconds", [-1.0, 0.05])
def test_a_bound_at_a_limit_is_no_less_than_every_records_cheapest_output(scattered, excess, method, seconds):
    shifted = evolve(scattered, cost=scattered.cost + 0.25 / 40)  # the cheapest outputs cost something
    found = solve(shifted, method=method, deadline=time.monotonic() + seconds, gap=1e-12)
    assert excess(shifted, found.z) < 1e-8
    assert found.lower_bound >= 0.25 * (1 - 1e-9)
    proved, _ = dual_bound(shifted, found.multipliers)
    assert proved == pytest.approx(found.lower_bound, rel=1e-9)
    assert found.lower_bound <= found.objective


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("seconds", [0.0, 0.05])
def test_a_limit_never_leaves_more_loss_than_the_exponential_mechanism(tmp_path, method, seconds):
    from privopt.declare import load_problem

    (tmp_path / "problem.toml").write_text(GRID)
    problem = MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml"))
    data = problem.data
    cost, z = data.weighted, exponential(data.to_outputs, float(data.epsilon))
    context = SolveContext(method=method, gap=1e-12, deadline=time.monotonic() + seconds)
    found = solve_structured(problem.data, context)
    assert found.stopped
    assert float((cost * found.z).sum()) <= float((cost * z).sum())
    assert found.multipliers is not None
    assert found.solver["path"]


def test_pricing_in_column_generation_looks_at_the_clock(scattered, monkeypatch):
    from privopt_metric_dp.solvers import column_generation

    asked, price = [], column_generation.price_all

    def priced(*arguments, deadline=None, **options):
        asked.append(deadline)
        return price(*arguments, deadline=deadline, **options)

    monkeypatch.setattr(column_generation, "price_all", priced)
    limit = time.monotonic() + 60.0
    column_generation.solve_column_generation(scattered, deadline=limit)
    assert asked
    assert set(asked) == {limit}


def test_an_interrupt_without_a_limit_leaves_what_is_known_at_once(scattered):
    def interrupt(phase, iteration, lower, upper):
        raise KeyboardInterrupt

    found = solve(scattered, gap=1e-12, progress=interrupt)
    assert found.status == "stopped"
    known = known_at_once(scattered, find_symmetry(scattered), make_star(scattered, find_symmetry(scattered)), None)
    assert found.objective <= known.objective
    assert known.method == "calibrated-star"
    assert found.lower_bound >= known.lower_bound > 0.0


@given(
    points=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)), min_size=2, max_size=9, unique=True),
    epsilon=st.floats(0.01, 3.0),
    outputs=st.integers(2, 5),
    seed=st.integers(0, 99),
)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
def test_what_is_known_at_once_is_a_mechanism_and_its_bound_holds(full_optimum, excess, points, epsilon, outputs, seed):
    place = np.array(points, dtype=float) / 10
    i, j = np.triu_indices(len(place), 1)
    made = Instance(
        cost=np.random.default_rng(seed).random((len(place), outputs)),
        pairs=np.stack([i, j], axis=1),
        distances=np.hypot(*(place[i] - place[j]).T),
        epsilon=epsilon,
    )
    symmetry = find_symmetry(made)
    optimum = full_optimum(made)
    for known in (make_star(made, symmetry), None):
        found = known_at_once(made, symmetry, known, None)
        assert excess(made, found.z) < 1e-9
        assert found.objective >= optimum - 1e-7
        assert found.lower_bound <= optimum + 1e-7
        assert found.lower_bound >= made.cost.min(axis=1).sum() - 1e-12


def test_pricing_under_a_limit_takes_few_pivots_over_many_pairs(grid_instance, monkeypatch):
    instance = grid_instance(6, "all", 0.3)
    graph = make_graph(instance)
    prices = instance.cost.min(axis=1) + instance.cost.mean(axis=1)
    anchors = instance.cost.argmin(axis=0)
    free = star.price_all(graph, instance, prices, star.star_trees(graph, anchors))
    monkeypatch.setattr(star, "VISITS", 3 * len(graph.other))
    far = time.monotonic() + 1e6
    held = star.price_all(graph, instance, prices, star.star_trees(graph, anchors), deadline=far)
    assert held.pivots < free.pivots
    symmetry = Symmetry.trivial(instance)
    assert star.anchored_bound(symmetry, prices, held) <= star.anchored_bound(symmetry, prices, free) + 1e-9


def interrupt(*_arguments, **_options):
    raise KeyboardInterrupt


def test_an_interrupt_in_a_long_method_leaves_what_was_found_before(scattered, monkeypatch):
    begun = []
    for name in ("solve_interior_point", "solve_column_generation", "solve_spanner"):
        monkeypatch.setattr(auto, name, lambda *_arguments, **_options: begun.append(1) or interrupt())
    found = solve(scattered, gap=1e-12)
    assert found.status == "stopped"
    assert "(interrupted)" in found.details["path"]
    begun.clear()
    size = scattered.records  # twice, far from one another: the second is no longer begun
    twice = Instance(
        cost=np.concatenate([scattered.cost, scattered.cost]) / 2,
        pairs=np.concatenate([scattered.pairs, scattered.pairs + size]),
        distances=np.tile(scattered.distances, 2),
        epsilon=scattered.epsilon,
    )
    assert solve(twice, gap=1e-12).status == "stopped"
    assert len(begun) == 1


@pytest.mark.parametrize("where", ["solve_interior_point", "make_star"])
@pytest.mark.parametrize("method", ["auto", "full"])
def test_an_interrupt_leaves_the_certified_release_of_before(tmp_path, monkeypatch, method, where):
    (tmp_path / "problem.toml").write_text(GRID)
    monkeypatch.setattr(auto, where, interrupt)
    monkeypatch.setattr(auto, "solve_column_generation", interrupt)
    monkeypatch.setattr(lp, "_solve_model", interrupt)
    solved = solve_problem("optimal-lp", tmp_path / "problem.toml", tmp_path / "out", Options(method=method, gap=1e-12))
    assert solved.stopped
    assert verify(tmp_path / "out").verdict == "proved"


def test_the_share_of_the_reserve_is_looked_for_where_there_is_time(tmp_path, monkeypatch):
    from privopt.declare import load_problem

    (tmp_path / "problem.toml").write_text(GRID)
    data = MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml")).data
    for seconds in (1e-3, 1e3):
        made = reserve.Reserve(data, SolveContext(method="auto", deadline=time.monotonic() + seconds))
        made.make()
        assert made.release is not None
        assert ("(0.5 of" in made.path) == (seconds < 1.0)


def test_multipliers_that_cannot_be_read_in_time_are_not_begun(tmp_path, monkeypatch):
    (tmp_path / "problem.toml").write_text(GRID)
    monkeypatch.setattr("privopt_metric_dp.proof.make_proof.READ", 1e9)
    asked = Options(method="interior-point", time_limit=600.0)
    solved = solve_problem("optimal-lp", tmp_path / "problem.toml", tmp_path / "out", asked)
    assert solved.stopped
    assert 0.5 < solved.result.objective.lower_bound < solved.result.objective.value  # by nearby records
    assert "no time to prove more" in solved.result.solver["path"]
    assert verify(tmp_path / "out").verdict == "proved"


def test_a_step_that_takes_longer_than_its_share_leaves_what_was_at_hand(tmp_path, monkeypatch):
    """Repair of a steeper one, and of what a method found, look at the clock: 400 scattered points had no release."""
    from privopt.declare import load_problem

    (tmp_path / "problem.toml").write_text(GRID)
    data = MetricInstance.of(load_problem(MetricProblem, tmp_path / "problem.toml")).data
    whole = reserve.MatrixRelease.from_matrix

    def endless(z, data, context):
        while made.release is not None:
            check_end()
        return whole(z, data, context)

    monkeypatch.setattr(reserve, "SMALL", 0)
    monkeypatch.setattr(reserve.MatrixRelease, "from_matrix", endless)
    monkeypatch.setattr(time, "monotonic", time.process_time)  # a busy machine's other work is no time of this
    began = time.monotonic()
    made = reserve.Reserve(data, SolveContext(method="auto", deadline=began + 2.0, end=began + 60.0))
    made.make()
    assert time.monotonic() - began < 2.0
    assert "(0.5 of" in made.path


def test_the_pairs_of_many_are_reduced_no_longer_than_a_limit(monkeypatch):
    place = np.random.default_rng(5).random((40, 2))
    i, j = np.triu_indices(len(place), 1)
    pairs, lengths = np.stack([i, j], axis=1), np.hypot(*(place[i] - place[j]).T)
    whole = pairs_module.reduce_pairs(pairs, lengths)
    monkeypatch.setattr(pairs_module, "_ASKED", 50)
    assert (pairs_module.reduce_pairs(pairs, lengths) == whole).all()
    with ending_at(time.monotonic() - 1.0), pytest.raises(StoppedError):
        pairs_module.reduce_pairs(pairs, lengths)
    made = Instance(
        cost=np.hypot(*(place[:, None] - place[None]).transpose(2, 0, 1)), pairs=pairs, distances=lengths, epsilon=1.0
    )
    with pytest.raises(StoppedError):
        solve(made, deadline=time.monotonic() - 1.0)


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
    monkeypatch.setattr(data_module, "REDUCED", 0)
    monkeypatch.setattr(exponential_module, "_differences", stop)
    solved = solve_problem(
        mechanism, tmp_path / "problem.toml", tmp_path / "out", Options(method=method, gap=1e-12, time_limit=600.0)
    )
    assert solved.stopped
    monkeypatch.undo()
    assert verify(tmp_path / "out").verdict == "proved"


@pytest.mark.parametrize("method", ["auto", "star", "full"])
def test_a_stop_before_any_method_states_more_than_nothing(tmp_path, monkeypatch, method):
    """At a limit of 20 s 2,000 vectors had a bound of 0: what nearby records prove is there before a method begins."""
    (tmp_path / "problem.toml").write_text(GRID)

    def late(*given, **named):
        raise StoppedError("the time limit came")

    monkeypatch.setattr(auto, "solve", late)
    monkeypatch.setattr(lp, "_solve_model", late)
    asked = Options(method=method, time_limit=600.0)
    solved = solve_problem("optimal-lp", tmp_path / "problem.toml", tmp_path / "out", asked)
    assert solved.stopped
    assert 0.5 < solved.result.objective.lower_bound < solved.result.objective.value
    assert verify(tmp_path / "out").verdict == "proved"


class Clock:
    """Seconds of work that pass at once: those that steps of a large problem on a slow machine took."""

    def __init__(self, monkeypatch):
        self.late, self._patch, self._now = 0.0, monkeypatch, time.monotonic
        monkeypatch.setattr(time, "monotonic", lambda: self._now() + self.late)

    def slow(self, home, name, seconds):
        done = getattr(home, name)

        def slowly(*given, **more):
            self.late += seconds
            return done(*given, **more)

        self._patch.setattr(home, name, staticmethod(slowly) if isinstance(home, type) else slowly)


@pytest.mark.parametrize(("certifying", "listing", "bounded"), [(60.0, 15.0, True), (175.0, 45.0, False)])
def test_what_is_certified_late_is_written_with_a_bound_or_without(tmp_path, monkeypatch, certifying, listing, bounded):
    """Seconds of 5,000 vectors under a limit of 250, at loads of 5 and more; what lies in between looks at no clock."""
    (tmp_path / "problem.toml").write_text(GRID)
    clock = Clock(monkeypatch)
    clock.slow(reserve, "exponential", certifying)
    clock.slow(nearby, "neighbours", listing)
    clock.slow(trees, "growth_of", 2 * listing)
    clock.slow(rows, "growth_of", listing / 2)
    clock.slow(solving, "verify", certifying / 2)  # reads back
    began = time.monotonic()
    found = solve_problem("optimal-lp", tmp_path / "problem.toml", tmp_path / "out", Options(time_limit=250.0))
    assert time.monotonic() - began <= OVER * 250.0 + GRACE - EXIT
    assert found.stopped
    assert (found.result.objective.lower_bound is not None) == bounded
    assert verify(tmp_path / "out").verdict == "proved"
