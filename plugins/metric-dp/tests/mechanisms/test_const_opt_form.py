"""Closed forms: the exponential mechanism, and rows that share their entries by distance."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from helpers.whole_program import optimum
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt_metric_dp.mechanisms.const_opt import FORMS, const_opt_model, tied_form
from privopt_metric_dp.solvers.exponential import exponential, largest_share
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.metrics import EuclideanMetric, Metric
from privopt_metric_dp.space.pairs import required_pairs
from privopt_metric_dp.space.places import Space


def metric_of(points: list[tuple[float, float]], outputs: list[tuple[float, float]] | None = None) -> Metric:
    def space(places: list[tuple[float, float]]) -> Space:
        return Space(ids=[str(n) for n in range(len(places))], coordinates=places, kind="planar")

    return EuclideanMetric(space(points), None if outputs is None else space(outputs))


def max_excess(z: np.ndarray, pairs: np.ndarray, distances: np.ndarray, epsilon: float) -> float:
    """Greatest excess z_ik - exp(eps d_ij) z_jk, relative to the greater of the two, over pairs and outputs."""
    excess = [0.0]
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        for row, other_row in ((z[i], z[j]), (z[j], z[i])):
            limit = np.exp(epsilon * d) * other_row
            excess.append(float(((row - limit) / np.maximum(np.maximum(row, limit), 1e-12)).max()))
    return max(excess)


def solve_form(metric: Metric, epsilon: float, radius: float, cost: np.ndarray) -> tuple[np.ndarray, float]:
    pairs, distances = required_pairs(metric)
    form = tied_form(metric.to_outputs(), epsilon, radius, pairs, distances)
    n, k = form.free.shape
    data = SimpleNamespace(
        records=SimpleNamespace(ids=[f"r{i}" for i in range(n)]),
        outputs=SimpleNamespace(ids=[f"o{i}" for i in range(k)]),
        weighted=cost / n,
        metric=metric,
        epsilon=epsilon,
    )
    solution = const_opt_model(form, data).solve("highs")
    return form.matrix(solution.value("z"), solution.value("y")), solution.objective


def optimal_loss(metric: Metric, epsilon: float, cost: np.ndarray) -> float:
    """Return the expected loss of the optimal mechanism, by scipy."""
    pairs, distances = required_pairs(metric)
    return optimum(cost / len(cost), pairs, epsilon * distances)


point = st.tuples(st.integers(0, 30).map(lambda v: v / 10), st.integers(0, 30).map(lambda v: v / 10))


@settings(max_examples=15)
@given(
    st.lists(point, min_size=2, max_size=6, unique=True),
    st.one_of(st.none(), st.lists(point, min_size=1, max_size=5, unique=True)),
    st.sampled_from([0.2, 1.0, 3.0]),
    st.sampled_from([0.0, 0.7, 1.5, 9.0]),
)
def test_lies_between_optimum_and_exponential(
    points: list[tuple[float, float]], outputs: list[tuple[float, float]] | None, epsilon: float, radius: float
) -> None:
    metric = metric_of(points, outputs)
    cost = metric.to_outputs()
    z, objective = solve_form(metric, epsilon, radius, cost)
    pairs, distances = required_pairs(metric)
    assert z.sum(axis=1) == pytest.approx(1, abs=1e-6)
    assert max_excess(z, pairs, distances, epsilon) < 1e-5
    assert (z * cost).sum() / len(z) == pytest.approx(objective, abs=1e-6)
    assert objective >= optimal_loss(metric, epsilon, cost) - 1e-6
    assert objective <= (exponential(cost, epsilon) * cost).sum() / len(z) + 1e-6
    if radius == 9.0:
        assert objective == pytest.approx(optimal_loss(metric, epsilon, cost), abs=1e-6)


@given(st.lists(point, min_size=2, max_size=8, unique=True), st.floats(0.1, 20), st.floats(0, 3), st.integers(0, 99))
def test_weights_within_rows_keep_every_pair(
    points: list[tuple[float, float]], epsilon: float, radius: float, seed: int
) -> None:
    metric = metric_of(points)
    pairs, distances = required_pairs(metric)
    form = tied_form(metric.table(), epsilon, radius, pairs, distances)
    weights = np.random.default_rng(seed).uniform(0, 1, (len(FORMS), metric.size))
    tied = np.where(form.free, np.nan, form.matrix(np.zeros(form.free.shape), weights))
    low = np.einsum("fk,fik->ik", weights, np.exp(form.lower_exponents))
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        log_ratios = np.log(tied[i]) - np.log(tied[j])
        assert (np.abs(log_ratios[np.isfinite(log_ratios)]) <= epsilon * d * (1 + 1e-9) + 1e-9).all()
        for a, b in ((i, j), (j, i)):
            edge = form.free[a] & ~form.free[b]
            high = np.einsum("fk,fk->k", weights, np.exp(np.where(edge, form.upper_exponents[:, a], 0)))
            assert (high[edge] <= np.exp(epsilon * d) * tied[b][edge] * (1 + 1e-9)).all()
            assert (low[a][edge] >= np.exp(-epsilon * d) * tied[b][edge] * (1 - 1e-9)).all()
    assert {tuple(row) for row in form.rows.tolist()} == {
        (a, b, k)
        for i, j in pairs.tolist()
        for a, b in ((i, j), (j, i))
        for k in range(metric.size)
        if form.free[a, k] and form.free[b, k]
    }


def test_repairs_broken_triangles() -> None:
    table = np.array([[0.0, 1.0, 9.0], [1.0, 0.0, 1.0], [9.0, 1.0, 0.0]])
    metric = MatrixMetric(table)
    pairs, distances = required_pairs(metric)
    form = tied_form(table, 1.0, 0.0, pairs, distances)
    exponent_gaps = np.abs(form.exponents[:, pairs[:, 0]] - form.exponents[:, pairs[:, 1]])
    assert (exponent_gaps <= distances[None, :, None] + 1e-12).all()
    z, _ = solve_form(metric, 1.0, 0.0, table)
    assert max_excess(z, pairs, distances, 1.0) < 1e-5


def test_record_without_outputs_is_a_fault() -> None:
    with pytest.raises(InputError, match="row 1"):
        tied_form(np.array([[0.0], [np.inf]]), 1.0, 1.0, np.zeros((0, 2), dtype=np.int64), np.zeros(0))


@given(st.lists(st.tuples(st.floats(0, 10), st.floats(0, 10)), min_size=2, max_size=8), st.floats(0.01, 100))
def test_rows_sum_to_one_and_keep_the_ratio(points: list[tuple[float, float]], epsilon: float) -> None:
    x = np.array(points)
    d = np.sqrt(((x[:, None] - x[None]) ** 2).sum(axis=2))
    z = exponential(d, epsilon)
    assert z.sum(axis=1) == pytest.approx(1)
    with np.errstate(divide="ignore"):
        logs = np.log(z)
    finite = np.isfinite(logs)[:, None] & np.isfinite(logs)[None] & (z > 1e-290)[:, None] & (z > 1e-290)[None]
    log_ratios = np.where(finite, np.where(finite, logs[:, None], 0) - np.where(finite, logs[None], 0), 0)
    assert (log_ratios <= epsilon * d[:, :, None] * (1 + 1e-9) + 1e-9).all()


def test_far_outputs_underflow_harmlessly() -> None:
    z = exponential(np.array([[5000.0, 5001.0, 8000.0]]), 1.0)
    assert z[0, 2] == 0
    assert z[0, :2] == pytest.approx([1 / (1 + np.exp(-0.5)), 1 / (1 + np.exp(0.5))])


def test_unreachable_outputs_get_nothing() -> None:
    assert exponential(np.array([[0.0, np.inf]]), 1.0).tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("table", [[[np.inf, np.inf]], [[np.nan, 1.0]], [[-1.0, 1.0]]])
def test_refuses_tables_that_are_no_distances(table: object) -> None:
    with pytest.raises(InputError, match="distance: row 0"):
        exponential(table, 1.0)  # type: ignore[arg-type]


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.3, 1.0, 4.0]))
def test_largest_share_is_the_largest_valid(seed, epsilon):
    rng = np.random.default_rng(seed)
    metric = metric_of(*(list(map(tuple, rng.uniform(0, 3, (count, 2)).tolist())) for count in (6, 5)))
    table, (pairs, distances) = metric.to_outputs(), required_pairs(metric)
    epsilon_share = largest_share(table, epsilon, pairs, distances)
    assert epsilon_share >= 0.5
    assert max_excess(exponential(table, epsilon, share=epsilon_share), pairs, distances, epsilon) <= 1e-12
    assert max_excess(exponential(table, epsilon, share=1.001 * epsilon_share), pairs, distances, epsilon) > 0
