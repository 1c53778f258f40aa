"""Pairs that others imply: sums of lengths that miss a distance by last bits."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

from privopt.run.solve import solve as solve_problem
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers import Instance, dual_bound, solve
from privopt_metric_dp.solvers.components import drop_implied_pairs
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.solver import make_graph, shortest_paths
from privopt_metric_dp.space import pairs as space_pairs


def street(length: int, seed: int, epsilon: float = 1.0) -> Instance:
    """Every pair of a street with random gaps between its nodes, at its path distance in doubles."""
    rng = np.random.default_rng(seed)
    steps = np.full((length, length), np.inf)
    steps[np.arange(length - 1), np.arange(1, length)] = rng.random(length - 1) + 0.1
    table = shortest_path(steps, directed=False)
    table *= 1 + rng.uniform(-4, 0, table.shape) * 2.0**-53
    table = np.minimum(table, table.T)
    i, j = np.triu_indices(length, 1)
    return Instance(cost=table / length, pairs=np.stack([i, j], axis=1), distances=table[i, j], epsilon=epsilon)


def test_rounded_path_sums_keep_the_road():
    instance = street(60, 0)
    reduced, rows = drop_implied_pairs(instance)
    assert len(rows) == 59
    assert reduced.epsilon < instance.epsilon


@settings(max_examples=15)
@given(length=st.integers(3, 9), seed=st.integers(0, 999), epsilon=st.sampled_from([0.1, 1.0, 6.0]))
@example(length=3, seed=589, epsilon=1.0)  # an entry of 1e-15
def test_remaining_pairs_keep_all_and_their_bound(full_optimum, length, seed, epsilon):
    instance = street(length, seed, epsilon)
    answer = solve(instance, method=InteriorPoint(), gap=1e-7)
    i, j = instance.pairs.T
    for a, b in ((i, j), (j, i)):
        limits = np.exp(instance.lengths)[:, None] * answer.z[b] * (1 + 1e-13) + 1e-14  # the repair takes the rest away
        assert (answer.z[a] <= limits).all()
    optimum = full_optimum(instance)
    assert answer.lower_bound <= dual_bound(instance, answer.multipliers)[0] <= optimum * (1 + 1e-8)
    assert answer.objective >= optimum * (1 - 1e-8)


def words(size: int, dimensions: int, epsilon: float) -> Instance:
    """Every pair of random points in many dimensions."""
    points = np.random.default_rng(0).normal(size=(size, dimensions))
    table = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    i, j = np.triu_indices(size, 1)
    return Instance(cost=table / size, pairs=np.stack([i, j], axis=1), distances=table[i, j], epsilon=epsilon)


def test_pairs_of_many_words_are_not_reduced(monkeypatch):
    monkeypatch.setattr(space_pairs, "_MIN_SAMPLED_RECORDS", 50)
    instance = words(60, 30, 0.3)
    reduced, rows = drop_implied_pairs(instance)
    assert reduced is instance
    assert len(rows) == len(instance.pairs)
    direct = make_graph(instance)
    assert direct.direct
    searched = evolve(direct, direct=False)
    sources = np.array([0, 17, 59])
    for table, direct_table in zip(
        shortest_paths(direct, sources, trees=True), shortest_paths(searched, sources, trees=True), strict=True
    ):
        np.testing.assert_allclose(table, direct_table, rtol=1e-15)
    assert len(drop_implied_pairs(street(60, 0))[1]) == 59


def test_searches_for_one_way_shortcuts(monkeypatch):
    monkeypatch.setattr(space_pairs, "_MIN_SAMPLED_RECORDS", 50)
    instance = words(60, 30, 0.3)
    longer = instance.distances.copy()
    longer[:59] *= 3.0  # of the first record, which is in every sample
    assert not make_graph(evolve(instance, distances=longer)).direct


@pytest.mark.parametrize("epsilon", [8.0, 14.0])
def test_slightly_smaller_epsilon_keeps_the_gap(tmp_path, epsilon):
    (tmp_path / "problem.toml").write_text(
        "[records]\ngrid = { rows = 5, cols = 5, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
        f"[privacy]\nepsilon = {epsilon}\n[utility]\nkind = 'distance'\n"
    )
    objective = solve_problem("optimal-lp", tmp_path / "problem.toml", tmp_path / "out").result.objective
    assert objective.value - objective.lower_bound <= 1e-6 * objective.value


def test_claimed_optimum_is_not_called_optimal():
    class Poor:
        name = "poor"

        def peak_bytes(self, part):
            return 0.0

        def solve(self, part, offers):
            z = np.full(part.instance.cost.shape, 1.0 / part.instance.outputs)
            zero = Multipliers.zero()
            loss = part.instance.loss(z)
            offers.offer(self.name, candidate=z, value=loss, bound=loss, proof=zero)

    answer = solve(street(5, 0), method=Poor())
    assert answer.status == "feasible"
    assert answer.lower_bound == 0.0


@pytest.mark.parametrize("epsilon", [300.0, 1500.0, 1e5])
@pytest.mark.parametrize("method", ["auto", "interior-point"])
def test_bound_is_a_number_for_any_epsilon(epsilon, method):
    instance = street(6, 0, epsilon)
    shifted = evolve(instance, cost=instance.cost + 0.25 / 6)
    answer = solve(shifted, method=method)
    assert answer.lower_bound <= answer.objective
    assert answer.lower_bound >= 0.25 * (1 - 1e-12)
    huge = np.full((len(instance.pairs), 6), 1e300)
    assert dual_bound(shifted, Multipliers.from_arrays(huge, huge))[0] == pytest.approx(0.25)
    assert evolve(answer, lower_bound=-np.inf).gap == np.inf
    assert evolve(answer, lower_bound=np.nan).gap == np.inf


@pytest.mark.filterwarnings("error")
def test_overflowing_product_proves_nothing():
    instance = Instance(cost=np.eye(2), pairs=[[0, 1]], distances=[705.0], epsilon=1.0)
    pair, f = np.array([0]), np.array([1e5])
    steep = Multipliers(rows=lambda: iter([(0, pair, f), (1, pair, -f)]))
    assert dual_bound(instance, steep)[0] == 0.0
