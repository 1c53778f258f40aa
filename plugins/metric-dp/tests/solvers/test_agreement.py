"""All methods against each other and the whole LP on random small metrics."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError, SolverError, UnknownNameError
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers import Instance, dual_bound, solve

METHODS = ("auto", "interior-point", "column-generation", "star")


@st.composite
def instances(draw) -> Instance:
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, k = draw(st.integers(1, 8)), draw(st.integers(1, 8))
    points = rng.integers(0, draw(st.sampled_from([2, 4, 50])), (n, 2)).astype(float)
    distance = np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1))
    is_required = rng.random((n, n)) < draw(st.sampled_from([0.3, 0.7, 1.0]))
    i, j = np.nonzero(np.triu(is_required, 1))
    cost = (
        rng.random((n, k))
        if draw(st.booleans())
        else np.hypot(*(points[:, None] - points[rng.integers(0, n, k)][None]).transpose(2, 0, 1))
    )
    prior = rng.dirichlet(np.ones(n))
    if draw(st.booleans()):
        prior[rng.integers(0, n)] = 0.0
    return Instance(
        cost=cost * prior[:, None],
        pairs=np.stack([i, j], axis=1),
        distances=distance[i, j],
        epsilon=draw(st.sampled_from([0.05, 0.3, 1.0, 3.0])) / max(1.0, float(np.median(distance))),
    )


@settings(max_examples=20)
@given(instance=instances())
def test_methods_agree_with_the_full_lp(full_optimum, excess, instance):
    reference = full_optimum(instance)
    scale = max(abs(reference), 1e-6 * float(np.abs(instance.cost).sum()), 1e-12)
    for method in METHODS:
        try:
            answer = solve(instance, method=method, gap=1e-7)
        except SolverError:
            assert method == "star"
            continue
        assert excess(instance, answer.z) < 1e-7
        assert answer.objective >= reference - 1e-6 * scale
        assert answer.lower_bound <= reference + 1e-6 * scale
        assert answer.multipliers is not None
        proved_bound, _ = dual_bound(instance, answer.multipliers)
        assert proved_bound <= reference + 1e-6 * scale
        if method != "star":
            assert answer.objective <= reference + 1e-6 * scale
            assert proved_bound >= reference - 1e-6 * scale


def small_instance(**changes) -> Instance:
    fields = {"cost": np.eye(3), "pairs": [[0, 1], [1, 2]], "distances": [1.0, 1.0], "epsilon": 1.0}
    return Instance(**{**fields, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {"cost": np.full((3, 3), np.nan)},
        {"cost": np.zeros((0, 3))},
        {"pairs": [[1, 0], [1, 2]]},
        {"pairs": [[0, 1], [1, 3]]},
        {"pairs": [[1, 2], [0, 1]]},
        {"distances": [1.0]},
        {"distances": [-1.0, 1.0]},
        {"distances": [np.inf, 1.0]},
        {"epsilon": 0.0},
        {"epsilon": np.nan},
        {"coordinates": np.zeros((2, 2))},
    ],
)
def test_refuses_faulty_instances(changes):
    with pytest.raises(InputError):
        small_instance(**changes)


def test_no_pairs_give_the_cheapest_output():
    answer = solve(small_instance(cost=[[3.0, 1.0], [2.0, 5.0], [0.0, 0.0]], pairs=[], distances=[]))
    assert answer.objective == 3.0
    assert answer.lower_bound == 3.0
    assert (
        dual_bound(
            small_instance(cost=[[3.0, 1.0], [2.0, 5.0], [0.0, 0.0]], pairs=[], distances=[]), answer.multipliers
        )[0]
        == 3
    )


def test_records_at_distance_zero_get_equal_rows():
    instance = small_instance(cost=[[0.0, 1.0], [1.0, 0.1], [0.5, 0.2]], distances=[0.0, 2.0])
    answer = solve(instance, gap=1e-8)
    np.testing.assert_array_equal(answer.z[0], answer.z[1])
    proved_bound, _ = dual_bound(instance, answer.multipliers)
    assert proved_bound == pytest.approx(answer.objective, rel=1e-7)


def test_lattice_of_merged_records_keeps_its_proof(full_optimum):
    rng = np.random.default_rng(3)
    points = np.repeat(np.arange(4.0), 2)
    i, j = np.triu_indices(8, 1)
    instance = Instance(
        cost=rng.random((8, 5)), pairs=np.stack([i, j], 1), distances=np.abs(points[i] - points[j]), epsilon=0.8
    )
    answer = solve(instance, gap=1e-8)
    proved_bound, _ = dual_bound(instance, answer.multipliers)
    assert proved_bound == pytest.approx(full_optimum(instance), rel=1e-6)


def test_interrupt_returns_the_current_answer(grid_instance):
    interrupted = set()

    def interrupt(phase, iteration, lower, upper):
        if iteration == 3 and method not in interrupted:  # once: closing steps report progress too
            interrupted.add(method)
            raise KeyboardInterrupt

    for method in ("interior-point", "column-generation"):
        answer = solve(grid_instance(8, "8nb", 0.2), method=method, progress=interrupt)
        assert answer.status == "stopped"
        assert answer.objective >= answer.lower_bound


def test_progress_never_crosses(grid_instance):
    steps = []
    solve(grid_instance(8, "8nb", 0.4), progress=lambda *step: steps.append(step))
    assert steps
    assert all(lower <= upper * (1 + 1e-9) for _, _, lower, upper in steps)


def test_unknown_method_lists_the_known():
    with pytest.raises(UnknownNameError, match="column-generation"):
        solve(small_instance(), method="column")


def test_multipliers_round_trip_as_arrays():
    instance = small_instance()
    answer = solve(instance, method="interior-point")
    restored = Multipliers.from_arrays(*answer.multipliers.arrays(len(instance.pairs), instance.outputs))
    assert dual_bound(instance, restored)[0] == pytest.approx(dual_bound(instance, answer.multipliers)[0], rel=1e-12)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("epsilon", [1e-9, 45.0, 1e5])
def test_interior_point_is_silent_at_double_limits(excess, epsilon):
    """At huge epsilon d it once divided by zero, and warned of overflows on the user's terminal."""
    places = np.array([(0.3 * i, 0.2 * (i * i % 7)) for i in range(14)])
    distance = np.hypot(*(places[:, None] - places[None]).transpose(2, 0, 1))
    i, j = np.triu_indices(14, 1)
    instance = Instance(cost=distance / 14, pairs=np.stack([i, j], axis=1), distances=distance[i, j], epsilon=epsilon)
    for method in ("interior-point", "auto"):
        answer = solve(instance, method=method, gap=1e-6)
        assert np.isfinite(answer.objective)
        assert not answer.lower_bound > answer.objective + 1e-9
        assert np.allclose(answer.z.sum(axis=1), 1)
