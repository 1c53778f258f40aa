"""The interior point: its parts against dense algebra, optima, limits and memory."""

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from privopt.execution.clock import limit
from privopt.search.incumbent import Incumbent
from privopt_metric_dp.matrix.simd import greatest, least, load, lowest, spread, store, total
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers import Instance, interior_point, solve
from privopt_metric_dp.solvers.auto import InDoubles
from privopt_metric_dp.solvers.chordal import complete
from privopt_metric_dp.solvers.components import drop_implied_pairs
from privopt_metric_dp.solvers.elimination import eliminate
from privopt_metric_dp.solvers.instance import dual_bound
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.interior_point_state import begin
from privopt_metric_dp.solvers.normal_equations import MAX_RECYCLED, SchurComplement, form
from privopt_metric_dp.solvers.solver import Part
from privopt_metric_dp.solvers.symmetry import Symmetry


def scatter_points(records: int, outputs: int, extra: int, epsilon: float, seed: int) -> Instance:
    """Random points of a square: a random tree over them and some more pairs, an uneven prior."""
    rng = np.random.default_rng(seed)
    points = rng.random((records, 2))
    edges = {(int(rng.integers(j)), j) for j in range(1, records)}
    edges |= {tuple(sorted(map(int, rng.choice(records, 2, replace=False)))) for _ in range(extra)}
    pairs = np.array(sorted(edges))
    distances = np.hypot(*(points[pairs[:, 0]] - points[pairs[:, 1]]).T) + 1e-6
    places = rng.random((outputs, 2))
    cost = np.hypot(*(points[:, None] - places[None]).transpose(2, 0, 1)) * rng.dirichlet(np.ones(records))[:, None]
    return Instance(cost=cost, pairs=pairs, distances=distances, epsilon=epsilon, coordinates=points)


@settings(max_examples=20)
@given(st.integers(3, 24), st.integers(2, 20), st.integers(0, 40), st.floats(-2, 1.6), st.integers(0, 2**32 - 1))
def test_answers_are_mechanisms_with_bounds(excess, records, outputs, extra, power, seed):
    instance = scatter_points(records, outputs, extra, 10.0**power, seed)
    answer = solve(instance, method=InteriorPoint(threads=2), gap=1e-7)
    assert excess(instance, answer.z) < 1e-9
    assert answer.multipliers is not None
    assert dual_bound(instance, answer.multipliers)[0] == pytest.approx(answer.lower_bound, rel=1e-9, abs=1e-12)
    assert answer.lower_bound <= answer.objective * (1 + 1e-12)
    assert answer.status == "optimal"


@pytest.mark.parametrize("seed", range(4))
def test_optima_match_the_full_lp(full_optimum, seed):
    instance = scatter_points(10, 9, 8, (0.3, 2.0, 8.0, 40.0)[seed], seed)
    answer = solve(instance, method=InteriorPoint(), gap=1e-8)
    optimum = full_optimum(instance)
    assert answer.objective == pytest.approx(optimum, rel=3e-8)
    assert answer.lower_bound <= optimum * (1 + 1e-9)


@given(st.integers(2, 40), st.integers(0, 60), st.integers(0, 2**32 - 1))
def test_pattern_holds_the_dense_factor(records, extra, seed):
    instance = scatter_points(records, 2, extra, 1.0, seed)
    pattern = eliminate(instance)
    rng = np.random.default_rng(seed)
    matrix = np.zeros((records, records))
    i, j = instance.pairs.T
    matrix[i, j] = matrix[j, i] = -rng.uniform(1, 2, len(i))
    matrix += np.diag(1 - matrix.sum(axis=1))
    factor = np.linalg.cholesky(matrix[np.ix_(pattern.order, pattern.order)])
    is_entry = np.eye(records, dtype=bool)
    is_entry[pattern.row, pattern.column] = True
    assert not factor[~is_entry].any()
    assert np.array_equal(pattern.row[pattern.entry], np.sort(pattern.row))
    pair_places = np.sort(pattern.place[instance.pairs], axis=1)
    assert np.array_equal(pattern.column[pattern.pair], pair_places[:, 0])
    assert np.array_equal(pattern.row[pattern.pair], pair_places[:, 1])
    size, first_members = np.ones(records, dtype=int), np.arange(records)
    for column in range(records - 1):  # subtrees are contiguous: columns side by side have the same ancestors
        parent = pattern.row[pattern.start[column]]
        size[parent] += size[column]
        first_members[parent] = min(first_members[parent], first_members[column])
    assert np.array_equal(np.arange(records) - first_members + 1, size)


def test_entries_of_a_long_ring_do_not_underflow():
    """Numbers of the factor fall along a chain; the pattern is of all that are not 0 without rounding."""
    records = 2_100
    pairs = np.array([*((i, i + 1) for i in range(records - 1)), (0, records - 1)])
    pairs = pairs[np.lexsort((pairs[:, 1], pairs[:, 0]))]
    ring = Instance(cost=np.ones((records, 2)), pairs=pairs, distances=np.ones(records), epsilon=1.0)
    assert eliminate(ring).entries == 2 * records - 3


class DenseAlgebra:
    """The same steps as those of `Outputs`, in NumPy, with a dense matrix for each output."""

    def __init__(self, instance, mu):
        (i, j), a, n = instance.pairs.T, np.exp(instance.lengths / 2), instance.records
        rows = np.zeros((2, len(a), n))
        p = np.arange(len(a))
        rows[0, p, j], rows[0, p, i], rows[1, p, i], rows[1, p, j] = a, -1 / a, a, -1 / a
        self.rows, self.cost = rows.reshape(-1, n), instance.cost / np.abs(instance.cost).max()
        self.s = self.rows @ np.full(self.cost.shape, 1 / instance.outputs)
        self.f = mu / self.s
        self.inverses = [np.linalg.inv(self.rows.T @ (w[:, None] * self.rows)) for w in (self.f / self.s).T]

    def solve(self, right):
        return np.stack([inverse @ column for inverse, column in zip(self.inverses, right.T, strict=True)], axis=1)

    def smallest(self, value, change):
        return min(0.0, (change / value).min())

    def look(self, prices, weights, add, step, target):
        """Coupling, a solve, reduced costs, ratios and sums of the predictor, the extra one's; after a move."""
        s, f, w = self.s, self.f, self.f / self.s
        ds = self.rows @ self.solve(prices[:, None] - self.cost)
        df = -f - w * ds
        targets = (target - ds * df) / s
        es = self.rows @ self.solve(prices[:, None] + self.rows.T @ targets)
        ef = targets - w * es
        ratios = [[self.smallest(s, ds + v * es) for v in weights], [self.smallest(f, df + v * ef) for v in weights]]
        new_costs = self.cost - self.rows.T @ (f + step * (df + add * ef))
        return (
            sum(self.inverses),
            self.solve(prices[:, None] - 0.7 * self.cost).sum(axis=1),
            (self.cost - self.rows.T @ f).min(axis=1),
            np.array([self.smallest(s, ds), self.smallest(f, df)]),
            np.array([(f * s).sum(), (f * ds).sum(), (df * s).sum(), (df * ds).sum()]),
            np.array(ratios),
            new_costs.min(axis=1),
        )


@settings(max_examples=15)
@given(st.integers(2, 150), st.integers(1, 20), st.floats(-1, 1.3), st.integers(0, 2**32 - 1))
def test_output_groups_match_dense_algebra(records, outputs, power, seed):
    instance = scatter_points(records, outputs, records, 10.0**power, seed)
    prices, weights = np.random.default_rng(seed).random(records), np.array([1.0, 0.3])
    state = begin(instance, Symmetry.trivial(instance), eliminate(instance), formed=True, threads=1)
    groups, order = state.groups, state.pattern.order
    inverse_order = np.argsort(order)
    mu = float((groups[0].arrays.s * groups[0].arrays.f)[0, 0])
    scale = np.maximum.reduce([group.factorise() for group in groups])
    coupling = (form(state, scale) * scale[:, None] * scale)[np.ix_(inverse_order, inverse_order)]
    group_solution = sum(group.solve(prices[order], 0.7) for group in groups)[inverse_order]
    old_measures = [group.measure() for group in groups]
    stats = np.array([group.predict(prices[order]) for group in groups])
    for group in groups:
        group.aim((0.0, 0.0), 0.1, (0.0, 0.0))
    ratios = np.minimum.reduce([group.extend(prices[order], weights) for group in groups])
    for group in groups:
        group.move((0.3, 0.5), (1e-3, 1e-3))
    min_ratios, moved_ratios = (
        np.minimum.reduce([measure[3] for measure in measures])[inverse_order]
        for measures in (old_measures, [g.measure() for g in groups])
    )
    group_results = (
        coupling,
        group_solution,
        min_ratios,
        stats[:, :2].min(axis=0),
        stats[:, 2:].sum(axis=0),
        ratios,
        moved_ratios,
    )
    dense_results = DenseAlgebra(instance, mu).look(prices, weights, 0.5, 1e-3, 0.1)
    for number, (lanes, dense) in enumerate(zip(group_results, dense_results, strict=True)):
        close = 2e-5 if number == 0 else 1e-7
        assert np.abs(lanes - dense).max() <= close * np.abs(dense).max() + 1e-13


@settings(max_examples=40)
@given(st.integers(2, 60), st.integers(1, 12), st.floats(-1, 1.0), st.integers(0, 2**32 - 1))
def test_completion_agrees_with_the_coupling(records, outputs, power, seed):
    instance = scatter_points(records, outputs, records, 10.0**power, seed)
    pattern = eliminate(instance)
    state = begin(instance, Symmetry.trivial(instance), pattern, formed=False, threads=1)
    for group in state.groups:
        group.factorise()
    columns = [sum(group.solve(unit, 0.0) for group in state.groups) for unit in np.eye(records)]
    coupling = np.stack(columns, axis=1)
    diagonal, off_diagonal = np.zeros(records), np.zeros(pattern.entries)
    for group in state.groups:
        group.add_entries(diagonal, off_diagonal)
    assert diagonal == pytest.approx(coupling.diagonal(), rel=1e-7)
    assert off_diagonal == pytest.approx(coupling[pattern.row, pattern.column], rel=1e-6, abs=1e-7 * coupling.max())
    solve_completed = complete(pattern, diagonal, off_diagonal)
    inverse = np.stack([solve_completed(unit) for unit in np.eye(records)], axis=1)
    is_entry = np.eye(records, dtype=bool)
    is_entry[pattern.row, pattern.column] = is_entry[pattern.column, pattern.row] = True
    assert not inverse[~is_entry].any()
    completed = np.linalg.inv(inverse)
    size = np.sqrt(np.outer(coupling.diagonal(), coupling.diagonal()))
    assert np.abs((completed - coupling) / size)[is_entry].max() < 1e-6
    if outputs == 1:  # M = T
        assert np.abs((completed - coupling) / size).max() < 1e-6


@settings(max_examples=12)
@given(st.integers(3, 40), st.integers(2, 20), st.integers(0, 40), st.floats(-1, 1.3), st.integers(0, 2**32 - 1))
def test_answers_without_coupling_are_mechanisms(excess, records, outputs, extra, power, seed):
    instance = scatter_points(records, outputs, extra, 10.0**power, seed)
    with pytest.MonkeyPatch.context() as patch:
        formed = solve(instance, method=InteriorPoint(symmetry=False), gap=1e-7)
        patch.setattr(interior_point, "FORMED", 0)
        answer = solve(instance, method=InteriorPoint(symmetry=False, threads=2), gap=1e-2)
    assert answer.status == "optimal"
    assert excess(instance, answer.z) < 1e-9
    assert np.abs(answer.z.sum(axis=1) - 1).max() < 1e-12
    assert dual_bound(instance, answer.multipliers)[0] == pytest.approx(answer.lower_bound, rel=1e-9, abs=1e-12)
    assert answer.lower_bound <= formed.objective * (1 + 1e-9)
    assert formed.lower_bound <= answer.objective * (1 + 1e-9)
    assert answer.objective - answer.lower_bound <= 1.0001e-2 * answer.objective


@settings(max_examples=20)
@given(st.integers(2, 12), st.integers(1, 8), st.integers(0, 10), st.floats(-1, 1.0), st.integers(0, 2**32 - 1))
def test_any_multipliers_prove_a_bound(records, outputs, extra, power, seed):
    instance = scatter_points(records, outputs, extra, 10.0**power, seed)
    rng = np.random.default_rng(seed)
    shape = 2, len(instance.pairs), outputs
    multiplier_arrays = (
        rng.exponential(instance.cost.max(), shape) * (rng.random(shape) < 0.3) * 10.0 ** rng.uniform(-4, 1)
    )
    best = solve(instance, method=InteriorPoint(), gap=1e-8).objective
    assert dual_bound(instance, Multipliers.from_arrays(*multiplier_arrays))[0] <= best * (1 + 1e-8)


def test_lanes_match_numpy():
    @njit
    def combine_lanes(x, y, weight, result):
        worst = np.inf
        summed = 0.0
        for k in range(2):
            a, b = load(x, k), load(y, k)
            value = greatest(least(a - spread(weight) * b, b), a / b)
            store(result, k, value)
            worst = min(worst, lowest(value))
            summed += total(value)
        return worst, summed

    rng = np.random.default_rng(0)
    for kind, width in ((np.float64, 16), (np.float32, 32)):
        x, y = rng.uniform(0.5, 2, (2, width)).astype(kind)
        result = np.empty(width, kind)
        worst, summed = combine_lanes(x, y, kind(0.25), result)
        expected = np.maximum(np.minimum(x - kind(0.25) * y, y), x / y)
        assert result == pytest.approx(expected, rel=1e-6)
        assert worst == result.min()
        assert summed == pytest.approx(result.sum(dtype=np.float64), rel=1e-5)


def test_limit_within_a_step_keeps_the_last_iterate(excess, grid_instance):
    part, looks = Part(grid_instance(6, "8nb", 0.3)), itertools.count()
    offer_counts = []
    for seconds in (8, 16, 24):
        offers = Incumbent(InDoubles(part.instance), 1e-9)
        with limit(seconds, now=looks.__next__) as scope:
            InteriorPoint(threads=1, symmetry=False).solve(part, offers)
        assert scope.expired
        offer_counts.append(offers.offer_count)
        offers.certify()
        offers.prove()
        assert excess(part.instance, offers.best_certified.release) < 1e-9
        assert offers.best_proved.bound <= offers.best_certified.value
    assert offer_counts == sorted(offer_counts)
    assert offer_counts[0] < offer_counts[-1]


def test_answer_is_independent_of_threads():
    instance = scatter_points(60, 150, 20, 2.0, 3)
    single_thread, two_threads, repeated = (
        solve(instance, method=InteriorPoint(threads=threads), gap=1e-6) for threads in (1, 2, 2)
    )
    assert np.array_equal(single_thread.z, two_threads.z)
    assert np.array_equal(two_threads.z, repeated.z)
    assert single_thread.lower_bound == two_threads.lower_bound == repeated.lower_bound


@pytest.mark.parametrize(
    ("size", "pairs", "formed"),
    [
        (12, "8nb", 4_000),
        (12, "8nb", 0),
        pytest.param(20, "8nb", 4_000, marks=pytest.mark.slow),
        pytest.param(12, "all", 4_000, marks=pytest.mark.slow),
    ],
)
def test_memory_is_as_stated(monkeypatch, grid_instance, size, pairs, formed):
    monkeypatch.setattr(interior_point, "FORMED", formed)
    instance = drop_implied_pairs(grid_instance(size, pairs, 0.2))[0]
    solve(grid_instance(4, pairs, 0.2), method=InteriorPoint(symmetry=False, threads=2), gap=0.5)  # compiled, loaded
    tracemalloc.start()
    try:
        solve(instance, method=InteriorPoint(symmetry=False, threads=2), gap=1e-3 if formed else 1e-1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak == pytest.approx(InteriorPoint(symmetry=False).peak_bytes(Part(instance)), rel=0.2)


def test_limit_is_checked_between_output_batches():
    instance = scatter_points(8, 20, 8, 1.0, 0)
    looks = itertools.count()
    state = begin(instance, Symmetry.trivial(instance), eliminate(instance), formed=True, threads=1)
    with limit(3, now=looks.__next__) as scope:
        state.map_groups(lambda group: group.factorise())
    assert scope.expired
    assert next(looks) <= 6


def test_unrestored_rows_end_nothing(monkeypatch):
    """8,000 places ended at 7.5 % where 5 % was asked for: the last rows did not sum to one, and an earlier stood."""
    instance, restore, roughness = scatter_points(60, 20, 30, 2.0, 1), interior_point._restore_sums, []

    def restore_late(state, coupling, tolerance):
        roughness.append(state.rough)
        if len(roughness) > 3:
            restore(state, coupling, tolerance)

    monkeypatch.setattr(interior_point, "FORMED", 0)
    monkeypatch.setattr(interior_point, "_restore_sums", restore_late)
    answer = solve(instance, method=InteriorPoint(symmetry=False), gap=5e-2)
    assert answer.status == "optimal"
    assert answer.gap <= 5e-2
    assert roughness[:3] == pytest.approx([1e-3, 1e-4, 1e-5])


class Dense:
    """A state with one group of outputs, whose coupling is a matrix; it counts the products."""

    def __init__(self, matrix):
        self.matrix, self.y, self.products = matrix, np.zeros(len(matrix)), 0

    def prices(self, y):
        return y

    def sums(self, function):
        self.products += 1
        return function(self)

    def solve(self, prices, weight):
        assert weight == 0.0
        return self.matrix @ prices


@pytest.mark.parametrize("is_loose", [True, False])
@pytest.mark.parametrize("entry", [1e308, np.inf, np.nan])
def test_overflow_is_no_solution(entry, is_loose):
    matrix = np.diag([1.0, entry])
    matrix[0, 1] = matrix[1, 0] = entry
    coupling = SchurComplement(state=Dense(matrix), rough=lambda right: right * 1e10, loose=is_loose)
    with np.errstate(all="ignore"), pytest.raises(np.linalg.LinAlgError):
        coupling.solve(np.array([1.0, 1e10]), 1e-9)


@given(st.integers(0, 2**32 - 1), st.sampled_from([5, 40, 2 * MAX_RECYCLED]))
@settings(max_examples=20, deadline=None)
def test_earlier_directions_save_products(seed, size):
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.normal(size=(size, size)))[0]
    matrix = rotation * np.geomspace(1, 1e4, size) @ rotation.T
    scale = np.diag(matrix)
    state, product_counts = Dense(matrix), []
    coupling = SchurComplement(state=state, rough=lambda right: right / scale, loose=True)
    for tolerance in (1e-3, 1e-3, 1e-6):
        right, previous_products = rng.normal(size=size), state.products
        y = coupling.solve(right, tolerance, 40 * size)
        residual = right - matrix @ y
        assert residual @ (residual / scale) <= 1.01 * tolerance**2 * (right @ (right / scale))
        product_counts.append(state.products - previous_products)
        dense_state = Dense(matrix)
        SchurComplement(state=dense_state, rough=lambda right: right / scale, loose=True).solve(
            right, tolerance, 40 * size
        )
        assert state.products - previous_products <= dense_state.products
    if size < MAX_RECYCLED:
        assert product_counts[1] < product_counts[0]
