"""Spanners and fewer outputs: what bounds the optimum and what is private, on small maps."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.execution.clock import Clock, clock, limit
from privopt.search.incumbent import Incumbent
from privopt.search.offers import Offers, evaluate
from privopt_metric_dp.proof.lagrangian_bound import Multipliers, lower_bound
from privopt_metric_dp.solvers import Instance, dual_bound, solve, spanner
from privopt_metric_dp.solvers.auto import InDoubles, run_ladder
from privopt_metric_dp.solvers.few_outputs import FewOutputs, sample_outputs
from privopt_metric_dp.solvers.instance import one_output
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.solver import Part
from privopt_metric_dp.solvers.spanner import FewPairs, make_spanner

maps = {
    "size": st.integers(4, 12),
    "outputs": st.integers(2, 12),
    "seed": st.integers(0, 9999),
    "epsilon": st.sampled_from([0.1, 0.5, 1.5, 5.0]),
    "neighbours": st.sampled_from([None, 2, 3]),
}


def points(size: int, outputs: int, seed: int, epsilon: float, neighbours: int | None) -> Instance:
    """Random points of a square with random priors; every pair, or those of so many nearest neighbours."""
    rng = np.random.default_rng(seed)
    places = rng.random((size, 2)) * np.sqrt(size)
    table = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    is_near = np.ones_like(table, dtype=bool)
    if neighbours is not None:
        is_near = table <= np.sort(table, axis=1)[:, [neighbours]]
    i, j = np.nonzero(np.triu(is_near | is_near.T, 1))
    return Instance(
        cost=rng.dirichlet(np.full(size, 2.0))[:, None] * table[:, rng.permutation(size)[:outputs]],
        pairs=np.stack([i, j], axis=1),
        distances=table[i, j],
        epsilon=epsilon,
        coordinates=places,
    )


def over_few_pairs(part, memory):
    """Spanners, and all pairs for what they leave."""
    yield from (FewPairs(InteriorPoint()), InteriorPoint())


def check(instance, answer, excess, optimum):
    assert excess(instance, answer.z) < 1e-9
    assert answer.objective == pytest.approx(instance.loss(answer.z))
    assert answer.lower_bound <= optimum * (1 + 1e-7) + 1e-12
    assert answer.objective >= optimum * (1 - 1e-7) - 1e-12
    proved_bound, _ = dual_bound(instance, answer.multipliers)
    assert proved_bound == pytest.approx(answer.lower_bound, rel=1e-7, abs=1e-10)


@settings(max_examples=12)
@given(**maps, gap=st.sampled_from([1e-1, 1e-2, 1e-4]))
def test_spanner_bounds_the_optimum(full_optimum, excess, size, outputs, seed, epsilon, neighbours, gap):
    instance = points(size, outputs, seed, epsilon, neighbours)
    optimum = full_optimum(instance)
    answer = solve(instance, method=over_few_pairs, gap=gap)
    check(instance, answer, excess, optimum)
    assert answer.status == "optimal"


@settings(max_examples=25)
@given(**maps, count=st.integers(1, 5))
def test_few_outputs_serve_all_records(full_optimum, excess, size, outputs, seed, epsilon, neighbours, count):
    instance = points(size, outputs, seed, epsilon, neighbours)
    offers = Offers(1e-3)
    FewOutputs(count, InteriorPoint()).solve(Part(instance), offers)
    z = evaluate(offers.best.candidate)
    assert z.shape == instance.cost.shape
    assert (z.sum(axis=0) > 0).sum() <= count
    assert excess(instance, z) < 1e-9
    assert instance.loss(z) >= full_optimum(instance) * (1 - 1e-7) - 1e-12


def test_sampled_outputs_are_far_apart(grid_instance):
    instance = grid_instance(6, "8nb", 1.0)
    sampled = sample_outputs(instance, 4)
    distances = np.linalg.norm(instance.coordinates[sampled][:, None] - instance.coordinates[sampled], axis=2)
    assert len(sampled) == 4
    assert distances[np.triu_indices(4, 1)].min() >= 3.0
    assert sample_outputs(instance, 99).tolist() == list(range(36))


def test_spanner_of_scattered_points_is_sparse(excess):
    instance = points(60, 60, 0, 0.5, None)
    sparse_instance, is_kept = make_spanner(instance, 0.1)
    assert is_kept.mean() < 0.3
    assert sparse_instance.epsilon == instance.epsilon
    answer = solve(instance, method=FewPairs(InteriorPoint()), gap=3e-2)
    assert answer.details["spanner_pairs"] < 0.5 * answer.details["pairs"]
    assert answer.gap < 3e-2
    assert excess(instance, answer.z) < 1e-9


def test_needs_less_memory_than_the_full_program():
    part, inner = Part(points(80, 80, 0, 0.5, None)), InteriorPoint()
    full_bytes = inner.peak_bytes(part)
    assert inner.peak_bytes(Part(make_spanner(part.instance, 0.1)[0])) < 0.7 * full_bytes
    assert FewOutputs(20, inner).peak_bytes(part) < 0.6 * full_bytes


SCATTERED = {"size": 110, "outputs": 12, "seed": 5, "epsilon": 0.5, "neighbours": None}


@pytest.mark.parametrize("seconds", [None, 1e6])
def test_early_offers_need_no_limit(excess, seconds):
    """A run that is interrupted at its first step over all pairs has a good mechanism and a good bound."""

    phases = []

    def stop(phase, *_figures):
        phases.append(phase)
        if phase == "interior-point" and phases.count(phase) == 1:
            raise KeyboardInterrupt

    instance = points(**SCATTERED)
    answer = solve(instance, gap=1e-6, progress=stop, search_time=Clock(seconds, clock()))
    assert answer.status == "stopped"
    assert answer.gap < 0.05
    assert excess(instance, answer.z) < 1e-9


class Interrupted(InteriorPoint):
    """A solver that is interrupted before its first step."""

    def solve(self, part, offers):
        raise KeyboardInterrupt


def test_first_bound_needs_no_limit():
    """A bound from trees is offered before the first solver that takes long."""
    instance, offers = points(**SCATTERED), Offers(1e-6)
    with pytest.raises(KeyboardInterrupt):
        run_ladder(Part(instance), offers, lambda: 8e9, lambda part, room: iter([Interrupted()]))
    assert offers.best.bound > one_output(instance).lower_bound
    assert offers.best.bound > 0.3 * offers.best.value


@pytest.mark.parametrize(
    ("gap", "stretches"), [(0.05, []), (1e-2, []), (1e-3, [0.3]), (1e-6, [0.3, 0.1]), (1e-9, [0.3, 0.1])]
)
def test_coarse_spanners_take_little_of_a_run_without_limit(gap, stretches):
    listed = spanner._list_stretches(gap, has_limit=False)
    assert [stretch for stretch in listed if stretch in spanner.COARSE] == stretches
    assert listed == sorted(listed, reverse=True)
    assert set(listed) <= set(spanner._list_stretches(gap, has_limit=True))


def test_limited_spanners_get_finer_and_fit(monkeypatch, excess):
    part, pair_counts, original_solve = Part(points(**SCATTERED)), [], InteriorPoint.solve

    def count_and_solve(self, part, offers):
        pair_counts.append(len(part.instance.pairs))
        original_solve(self, part, offers)

    monkeypatch.setattr(InteriorPoint, "solve", count_and_solve)
    with limit(1e6):
        offers = Incumbent(InDoubles(part.instance), 1e-2)
        FewPairs(InteriorPoint()).solve(part, offers)
    assert offers.confirm()
    assert pair_counts == sorted(pair_counts)
    assert len(pair_counts) > 1
    pair_counts.clear()
    monkeypatch.setattr(
        "privopt_metric_dp.solvers.spanner.TIME_FACTOR", 1e12
    )  # whatever comes next would not end in time
    with limit(1e6):
        incumbent = Incumbent(InDoubles(part.instance), 1e-2)
        FewPairs(InteriorPoint()).solve(part, incumbent)
    while incumbent.certify() or incumbent.prove():
        pass
    assert len(pair_counts) == 1
    assert excess(part.instance, incumbent.best_certified.release) < 1e-8
    assert 0.0 < incumbent.best_proved.bound <= offers.best_certified.value <= incumbent.best_certified.value


@given(**maps, part=st.integers(0, 99))
@settings(max_examples=40)
def test_sparse_multipliers_prove_like_zeros(size, outputs, seed, epsilon, neighbours, part):
    instance = points(size, min(size, outputs), seed, epsilon, neighbours)
    rng, total, width = np.random.default_rng(part), len(instance.pairs), instance.outputs
    rows = np.flatnonzero(rng.random(total) < 0.5)
    values = rng.random((2, len(rows), width)) * (rng.random((2, len(rows), width)) < 0.6) / 10
    dense = np.zeros((2, total, width))
    dense[:, rows] = values
    dense_bound, prices = dual_bound(instance, Multipliers.from_arrays(dense[0], dense[1]))
    sparse = Multipliers.from_arrays(values[0], values[1]).among(rows)
    net = dense - np.minimum(dense[0], dense[1])
    assert (np.stack(sparse.arrays(total, width)) == net).all()
    bound, sparse_prices = dual_bound(instance, sparse)
    assert bound == pytest.approx(dense_bound, rel=1e-12, abs=1e-14)
    assert sparse_prices == pytest.approx(prices, rel=1e-9, abs=1e-12)
    reduced = sparse.freer(np.full(total, 0.1))
    assert np.stack(reduced.arrays(total, width)) == pytest.approx(net * np.exp(-0.1), rel=1e-15)
    exact = Fraction(instance.epsilon)
    dense_exact = lower_bound(instance.cost, instance.pairs, instance.distances, exact, Multipliers.from_arrays(*dense))
    exact_bound = lower_bound(instance.cost, instance.pairs, instance.distances, exact, sparse)
    assert exact_bound == pytest.approx(dense_exact, rel=1e-12)
