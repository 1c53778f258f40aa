"""Pairs that others imply: sums of lengths that miss a distance by last bits."""

from __future__ import annotations

import numpy as np
import pytest
from attrs import evolve
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.sparse.csgraph import shortest_path

from privopt.run.solve import solve as solve_problem
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers import Instance, dual_bound, solve
from privopt_metric_dp.solvers.components import drop_implied_pairs
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.path_graph import make_graph, shortest_paths
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


def test_path_sums_that_miss_by_last_bits_leave_the_road_alone():
    instance = street(60, 0)
    few, rows = drop_implied_pairs(instance)
    assert len(rows) == 59
    assert few.epsilon < instance.epsilon


@settings(max_examples=15)
@given(length=st.integers(3, 9), seed=st.integers(0, 999), epsilon=st.sampled_from([0.1, 1.0, 6.0]))
@example(length=3, seed=589, epsilon=1.0)  # an entry of 1e-15
def test_what_is_left_keeps_every_pair_and_its_bound_is_of_the_whole(full_optimum, length, seed, epsilon):
    instance = street(length, seed, epsilon)
    answer = solve(instance, method=InteriorPoint(), gap=1e-7)
    i, j = instance.pairs.T
    for a, b in ((i, j), (j, i)):
        most = np.exp(instance.lengths)[:, None] * answer.z[b] * (1 + 1e-13) + 1e-14  # the repair takes the rest away
        assert (answer.z[a] <= most).all()
    optimum = full_optimum(instance)
    assert answer.lower_bound <= dual_bound(instance, answer.multipliers)[0] <= optimum * (1 + 1e-8)
    assert answer.objective >= optimum * (1 - 1e-8)


def words(size: int, dimensions: int, epsilon: float) -> Instance:
    """Every pair of random points in many dimensions."""
    points = np.random.default_rng(0).normal(size=(size, dimensions))
    table = np.sqrt(((points[:, None] - points[None]) ** 2).sum(axis=2))
    i, j = np.triu_indices(size, 1)
    return Instance(cost=table / size, pairs=np.stack([i, j], axis=1), distances=table[i, j], epsilon=epsilon)


def test_every_pair_of_many_words_is_neither_reduced_nor_searched(monkeypatch):
    monkeypatch.setattr(space_pairs, "_MIN_SAMPLED_RECORDS", 50)
    instance = words(60, 30, 0.3)
    few, rows = drop_implied_pairs(instance)
    assert few is instance
    assert len(rows) == len(instance.pairs)
    direct = make_graph(instance)
    assert direct.direct
    searched = evolve(direct, direct=False)
    sources = np.array([0, 17, 59])
    for one, other in zip(
        shortest_paths(direct, sources, trees=True), shortest_paths(searched, sources, trees=True), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-15)
    assert len(drop_implied_pairs(street(60, 0))[1]) == 59


def test_one_way_shorter_than_a_pair_is_searched_for(monkeypatch):
    monkeypatch.setattr(space_pairs, "_MIN_SAMPLED_RECORDS", 50)
    instance = words(60, 30, 0.3)
    longer = instance.distances.copy()
    longer[:59] *= 3.0  # of the first record, which is in every sample
    assert not make_graph(evolve(instance, distances=longer)).direct


@pytest.mark.parametrize("epsilon", [8.0, 14.0])
def test_a_bound_found_at_a_billionth_less_of_epsilon_holds_its_gap(tmp_path, epsilon):
    (tmp_path / "problem.toml").write_text(
        "[records]\ngrid = { rows = 5, cols = 5, cell_km = 1.0 }\n[distance]\nkind = 'euclidean'\n"
        f"[privacy]\nepsilon = {epsilon}\n[utility]\nkind = 'distance'\n"
    )
    found = solve_problem("optimal-lp", tmp_path / "problem.toml", tmp_path / "out").result.objective
    assert found.value - found.lower_bound <= 1e-6 * found.value


def test_what_a_solver_claims_is_not_called_optimal():
    class Poor:
        name = "poor"

        def peak_bytes(self, part):
            return 0.0

        def solve(self, part, offers):
            z = np.full(part.instance.cost.shape, 1.0 / part.instance.outputs)
            none = Multipliers.zero()
            loss = part.instance.loss(z)
            offers.offer(self.name, candidate=z, value=loss, bound=loss, proof=none)

    found = solve(street(5, 0), method=Poor())
    assert found.status == "feasible"
    assert found.lower_bound == 0.0


@pytest.mark.parametrize("epsilon", [300.0, 1500.0, 1e5])
@pytest.mark.parametrize("method", ["auto", "interior-point"])
def test_a_bound_is_a_number_whatever_epsilon(epsilon, method):
    instance = street(6, 0, epsilon)
    shifted = evolve(instance, cost=instance.cost + 0.25 / 6)
    found = solve(shifted, method=method)
    assert found.lower_bound <= found.objective
    assert found.lower_bound >= 0.25 * (1 - 1e-12)
    huge = np.full((len(instance.pairs), 6), 1e300)
    assert dual_bound(shifted, Multipliers.whole(huge, huge))[0] == pytest.approx(0.25)
    assert evolve(found, lower_bound=-np.inf).gap == np.inf
    assert evolve(found, lower_bound=np.nan).gap == np.inf


@pytest.mark.filterwarnings("error")
def test_a_product_beyond_doubles_proves_nothing_and_says_nothing():
    instance = Instance(cost=np.eye(2), pairs=[[0, 1]], distances=[705.0], epsilon=1.0)
    one, f = np.array([0]), np.array([1e5])
    steep = Multipliers(rows=lambda: iter([(0, one, f), (1, one, -f)]))
    assert dual_bound(instance, steep)[0] == 0.0
