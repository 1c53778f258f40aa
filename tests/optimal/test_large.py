"""Spanners and fewer outputs: what bounds the optimum and what is private, on small maps."""

from __future__ import annotations

import time
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt_metric_dp.proof.lagrangian_bound import lower_bound
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers import Instance, auto, dual_bound, few_outputs, solve
from privopt_metric_dp.solvers import spanner as spanner_module
from privopt_metric_dp.solvers.few_outputs import (
    few_outputs_bytes,
    most_outputs,
    sample_outputs,
    solve_few_outputs,
)
from privopt_metric_dp.solvers.instance import freer
from privopt_metric_dp.solvers.interior_point import interior_point_bytes, solve_interior_point
from privopt_metric_dp.solvers.spanner import solve_spanner, spanner

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
    near = np.ones_like(table, dtype=bool)
    if neighbours is not None:
        near = table <= np.sort(table, axis=1)[:, [neighbours]]
    i, j = np.nonzero(np.triu(near | near.T, 1))
    return Instance(
        cost=rng.dirichlet(np.full(size, 2.0))[:, None] * table[:, rng.permutation(size)[:outputs]],
        pairs=np.stack([i, j], axis=1),
        distances=table[i, j],
        epsilon=epsilon,
        coordinates=places,
    )


def check(instance, answer, excess, optimum):
    assert excess(instance, answer.z) < 1e-9
    assert answer.objective == pytest.approx(instance.loss(answer.z))
    assert answer.lower_bound <= optimum * (1 + 1e-7) + 1e-12
    assert answer.objective >= optimum * (1 - 1e-7) - 1e-12
    proved, _ = dual_bound(instance, answer.multipliers)
    assert proved == pytest.approx(answer.lower_bound, rel=1e-7, abs=1e-10)


@settings(max_examples=25, deadline=None)
@given(**maps, gap=st.sampled_from([1e-1, 1e-2, 1e-4]))
def test_a_spanner_bounds_the_optimum_and_its_mended_mechanism_keeps_every_pair(
    full_optimum, excess, size, outputs, seed, epsilon, neighbours, gap
):
    instance = points(size, outputs, seed, epsilon, neighbours)
    optimum = full_optimum(instance)
    answer = solve_spanner(instance, gap=gap)
    check(instance, answer, excess, optimum)
    assert answer.status == "optimal"


@settings(max_examples=25, deadline=None)
@given(**maps, count=st.integers(1, 5))
def test_few_outputs_reach_the_optimum_over_all(full_optimum, excess, size, outputs, seed, epsilon, neighbours, count):
    instance = points(size, outputs, seed, epsilon, neighbours)
    optimum = full_optimum(instance)
    answer = solve_few_outputs(instance, count=count, gap=1e-3)
    check(instance, answer, excess, optimum)
    assert answer.status == "optimal"


def test_few_outputs_under_a_limit_are_bounded_over_all(full_optimum, excess):
    instance = points(40, 40, 3, 0.7, 4)
    optimum = full_optimum(instance)
    late = solve_few_outputs(instance, deadline=time.monotonic())
    check(instance, late, excess, optimum)
    assert late.status == "stopped"


def test_sampled_outputs_are_far_from_one_another(grid_instance):
    instance = grid_instance(6, "8nb", 1.0)
    few = sample_outputs(instance, 4)
    apart = np.linalg.norm(instance.coordinates[few][:, None] - instance.coordinates[few], axis=2)
    assert len(few) == 4
    assert apart[np.triu_indices(4, 1)].min() >= 3.0
    assert sample_outputs(instance, 99).tolist() == list(range(36))


def test_a_spanner_of_scattered_points_holds_few_pairs_and_its_gap_is_small(excess):
    instance = points(60, 60, 0, 0.5, None)
    few, kept = spanner(instance, 0.1)
    assert kept.mean() < 0.3
    assert few.epsilon == instance.epsilon
    answer = solve_spanner(instance, gap=3e-2)
    assert answer.details["spanner_pairs"] < 0.5 * answer.details["pairs"]
    assert answer.gap < 3e-2
    assert excess(instance, answer.z) < 1e-9


def test_memory_is_less_than_that_of_the_whole_program():
    instance = points(80, 80, 0, 0.5, None)
    whole = interior_point_bytes(instance)
    assert interior_point_bytes(spanner(instance, 0.1)[0]) < 0.7 * whole
    assert few_outputs_bytes(instance, 20) < 0.6 * whole
    for memory in (0.3 * whole, 0.5 * whole):
        count = most_outputs(instance, memory)
        assert few_outputs_bytes(instance, count) <= memory
        assert count == 80 or few_outputs_bytes(instance, count + 8) > memory
    assert most_outputs(instance, 1e3) == 0


def test_no_output_joins_that_does_not_fit(monkeypatch):
    instance, seen = points(30, 30, 0, 0.5, 3), []

    def seen_by(part, **options):
        seen.append(few_outputs_bytes(instance, part.outputs))
        return solve_interior_point(part, **options)

    monkeypatch.setattr(few_outputs, "solve_interior_point", seen_by)
    room = few_outputs_bytes(instance, 8)
    held = solve_few_outputs(instance, count=4, gap=1e-9, memory=room)
    assert held.status == "feasible"
    assert len(seen) > 1
    assert max(seen) <= room
    solve_few_outputs(instance, count=8, gap=1e-9)
    assert max(seen) > room


@pytest.mark.parametrize("deadline", [None, 1e6])
def test_no_program_of_few_outputs_begins_after_an_interrupt(monkeypatch, deadline):
    instance, begun = points(30, 30, 0, 0.5, 3), []

    def interrupted(part, **options):
        begun.append(part.outputs)
        return evolve(solve_interior_point(part, **options), status="stopped")

    monkeypatch.setattr(few_outputs, "solve_interior_point", interrupted)
    until = None if deadline is None else time.monotonic() + deadline
    answer = solve_few_outputs(instance, count=8, gap=1e-9, deadline=until)
    assert begun == [8]
    assert answer.status == "stopped"
    assert answer.lower_bound > 0.0


def test_a_spanner_that_does_not_fit_is_not_begun(full_optimum, excess):
    instance = points(50, 12, 0, 0.5, None)
    optimum = full_optimum(instance)
    room = interior_point_bytes(spanner(instance, 0.1)[0])
    held = solve_spanner(instance, gap=1e-6, deadline=time.monotonic() + 1e6, memory=room)
    check(instance, held, excess, optimum)
    assert held.status == "feasible"
    assert held.lower_bound > 0
    assert held.gap < 0.1


SCATTERED = {"size": 110, "outputs": 12, "seed": 5, "epsilon": 0.5, "neighbours": None}


def test_spanners_under_a_limit_come_from_coarse_to_fine_and_only_those_that_fit(monkeypatch, excess):
    instance, begun, own = points(**SCATTERED), [], spanner_module.solve_interior_point

    def counted(part, **options):
        begun.append((len(part.pairs), options["gap"]))
        return own(part, **options)

    monkeypatch.setattr(spanner_module, "solve_interior_point", counted)
    far = time.monotonic() + 1e6
    enough = solve_spanner(instance, gap=1e-2, deadline=far)
    assert enough.status == "optimal"
    assert [pairs for pairs, _ in begun] == sorted(pairs for pairs, _ in begun)
    begun.clear()
    # whatever comes after the coarsest would not end in time
    monkeypatch.setattr(spanner_module, "interior_point_seconds", lambda *_, **__: 1e9)
    few = solve_spanner(instance, gap=1e-2, deadline=time.monotonic() + 600.0)
    assert few.status == "stopped"
    assert len(begun) == 1
    assert excess(instance, few.z) < 1e-8
    assert 0.0 < few.lower_bound <= enough.objective <= few.objective
    assert few.multipliers.part is not None  # over few pairs, as whoever evaluates them sees
    assert dual_bound(instance, few.multipliers)[0] == pytest.approx(few.lower_bound, rel=1e-9)


def test_an_interior_point_that_would_not_end_in_time_gives_way_to_spanners(monkeypatch):
    monkeypatch.setattr(auto, "interior_point_seconds", lambda *_, **__: 1e9)
    found = solve(points(**SCATTERED), method="interior-point", gap=1e-2, deadline=time.monotonic() + 60.0)
    assert "interior-point (needs about 1e+09 s of" in found.details["path"]
    assert found.details["path"].endswith("spanner")
    assert found.gap < 0.1


@given(**maps, part=st.integers(0, 99))
@settings(max_examples=40, deadline=None)
def test_multipliers_of_some_pairs_prove_what_zeros_for_the_others_do(size, outputs, seed, epsilon, neighbours, part):
    instance = points(size, min(size, outputs), seed, epsilon, neighbours)
    rng, total, width = np.random.default_rng(part), len(instance.pairs), instance.outputs
    rows = np.flatnonzero(rng.random(total) < 0.5)
    both = rng.random((2, len(rows), width)) * (rng.random((2, len(rows), width)) < 0.6) / 10
    dense = np.zeros((2, total, width))
    dense[:, rows] = both
    wanted, prices = dual_bound(instance, Multipliers.whole(dense[0], dense[1]))

    def few():
        for k in range(width):
            turned, places = np.nonzero(both[:, :, k])
            yield k, places, turned.astype(bool), both[turned, places, k]

    for own in (Multipliers.whole(both[0], both[1], columns=3), Multipliers.sparse(few, len(rows))):
        made = Multipliers.among(own, rows, total)
        assert (np.stack(made.arrays(total, width)) == dense).all()
        bound, found = dual_bound(instance, made)
        assert bound == pytest.approx(wanted, rel=1e-12, abs=1e-14)
        assert found == pytest.approx(prices, rel=1e-9, abs=1e-12)
        less, gain = freer(made, np.full(total, 0.1)), freer(Multipliers.whole(*dense), np.full(total, 0.1))
        assert (np.stack(less.arrays(total, width)) == np.stack(gain.arrays(total, width))).all()
        exact = Fraction(instance.epsilon)
        whole = lower_bound(instance.cost, instance.pairs, instance.distances, exact, Multipliers.whole(*dense))
        assert lower_bound(instance.cost, instance.pairs, instance.distances, exact, made) == pytest.approx(
            whole, rel=1e-12
        )
