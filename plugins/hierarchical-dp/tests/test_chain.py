from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hierarchical_dp_paper.tables import weighted_objective
from privopt_hierarchical_dp.fits.chain import fit_with_totals
from privopt_hierarchical_dp.fits.projection import project_jointly, simplex_rows
from privopt_hierarchical_dp.fits.qip import solve_exactly
from privopt_hierarchical_dp.fits.rounding import deal
from privopt_hierarchical_dp.least_squares import NearestSums
from privopt_hierarchical_dp.tree import Tree, add_up


def _check_valid(tree, counts, totals):
    assert counts[-1].min() >= 0
    for level, sums, total in zip(counts, add_up(tree, counts[-1]), totals, strict=True):
        np.testing.assert_array_equal(level, sums)
        np.testing.assert_array_equal(level.sum(axis=1), total)


def _cases(random_tree, count, seed):
    rng = np.random.default_rng(seed)
    case_count = 0
    while case_count < count:
        tree = random_tree(rng, int(rng.integers(2, 6)), 2)
        sizes = int(rng.integers(2, 4))
        leaves = rng.integers(0, 3, size=(tree.widths[-1], sizes))
        if tree.widths[-1] > 4 or leaves.sum() > 7:
            continue
        case_count += 1
        true = add_up(tree, leaves)
        weights = [np.full(sizes - 1, float(w)) for w in rng.integers(1, 4, size=tree.depth)]
        noisy = [np.cumsum(c, axis=1)[:, :-1] + rng.integers(-4, 5, size=(len(c), sizes - 1)) for c in true]
        yield tree, [c.sum(axis=1) for c in true], noisy, weights


def _cumulative(counts):
    return [np.cumsum(level, axis=1)[:, :-1] for level in counts]


def _brute_force(tree, totals, noisy, weights, compositions):
    sizes = noisy[0].shape[1] + 1
    options = [np.array(list(compositions(int(total), sizes))) for total in totals[-1]]
    return min(
        weighted_objective(_cumulative(add_up(tree, np.array(leaves))), noisy, weights)
        for leaves in itertools.product(*options)
    )


@pytest.mark.parametrize(
    ("count", "seed", "exact_interval"),
    [(60, 1, 6), pytest.param(500, 21, 3, marks=pytest.mark.slow)],
    ids=["some", "500"],
)
def test_model_2_with_totals_matches_brute_force(random_tree, compositions, count, seed, exact_interval):
    """``each``: the integer program, which starts from the other, is slower than the trees are many."""
    optimal_count = 0
    for case, (tree, totals, noisy, weights) in enumerate(_cases(random_tree, count, seed)):
        best = _brute_force(tree, totals, noisy, weights, compositions)
        quick = fit_with_totals(tree, noisy, totals=totals, weights=[w[0] for w in weights], cumulative=True)
        _check_valid(tree, quick.counts, totals)
        assert quick.lower_bound <= best + 1e-9
        optimal_count += abs(weighted_objective(_cumulative(quick.counts), noisy, weights) - best) < 1e-9
        if case % exact_interval == 0:
            values_with_totals = [np.concatenate([n, t[:, None]], axis=1) for n, t in zip(noisy, totals, strict=True)]
            exact = solve_exactly(
                tree,
                values_with_totals,
                start=[np.cumsum(level, axis=1) for level in quick.counts],
                total=int(totals[0][0]),
                totals=totals,
                weights=[w[0] for w in weights],
                cumulative=True,
                backend="highs",
            )
            assert exact.proved
            _check_valid(tree, [np.diff(level, axis=1, prepend=0) for level in exact.counts], totals)
            inner = [level[:, :-1] for level in exact.counts]
            assert weighted_objective(inner, noisy, weights) == pytest.approx(best, abs=1e-9)
            assert exact.lower_bound == pytest.approx(best, abs=1e-6)
    print(f"projection and error diffusion alone: {optimal_count} of {count}")
    assert optimal_count >= 0.96 * count


def test_model_1_with_totals_is_optimal(random_tree, compositions):
    rng = np.random.default_rng(2)
    for _ in range(6):
        tree = random_tree(rng, 3, 2)
        if tree.widths[-1] > 3:
            continue
        true = add_up(tree, rng.integers(0, 2, size=(tree.widths[-1], 2)))
        noisy = [level + rng.integers(-3, 4, size=level.shape) for level in true]
        totals = [level.sum(axis=1) for level in true]
        fitted = fit_with_totals(tree, noisy, totals=totals, weights=[1.0] * tree.depth, cumulative=False)
        _check_valid(tree, fitted.counts, totals)
        options = [np.array(list(compositions(int(total), 2))) for total in totals[-1]]
        flat = [np.ones(2)] * tree.depth
        best = min(
            weighted_objective(add_up(tree, np.array(leaves)), noisy, flat) for leaves in itertools.product(*options)
        )
        assert weighted_objective(fitted.counts, noisy, flat) == pytest.approx(best, abs=1e-9)


def test_projection_bound_is_true_and_tight(random_tree):
    rng = np.random.default_rng(4)
    tree = random_tree(rng, 3, 4)
    totals = [np.full(width, 0) for width in tree.widths]
    leaves = rng.integers(5, 60, size=tree.widths[-1])
    totals = add_up(tree, leaves)
    noisy = [rng.integers(-10, 70, size=(width, 12)) for width in tree.widths]
    weights = [np.ones(12)] * tree.depth
    for rows in ("monotone", "simplex"):
        projection = project_jointly(tree, noisy, weights=weights, totals=totals, rows=rows, gap=1e-7, iterations=4000)
        assert 0 <= projection.value - projection.lower_bound <= 1e-6 * projection.value


def test_simplex_rows_meet_their_sums():
    rows = simplex_rows(np.array([[3.0, -1.0, 1.0], [0.2, 0.2, 0.2]]), np.array([2.0, 3.0]))
    np.testing.assert_allclose(rows, [[2.0, 0.0, 0.0], [1.0, 1.0, 1.0]])


@settings(max_examples=150)
@given(st.data())
def test_dealing_keeps_both_margins(data):
    children, sizes = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    table = np.array(data.draw(st.lists(st.integers(0, 6), min_size=children * sizes, max_size=children * sizes)))
    table = table.reshape(children, sizes)
    shift = data.draw(st.lists(st.floats(-9, 9), min_size=table.size, max_size=table.size))
    course = np.cumsum(table, axis=1) + np.array(shift).reshape(table.shape)
    dealt = deal(course, table.sum(axis=0), table.sum(axis=1))
    assert dealt.min() >= 0
    np.testing.assert_array_equal(dealt.sum(axis=0), table.sum(axis=0))
    np.testing.assert_array_equal(dealt.sum(axis=1), table.sum(axis=1))


def test_dealing_follows_integral_course():
    table = np.array([[2, 0, 3], [1, 1, 0]])
    np.testing.assert_array_equal(deal(np.cumsum(table, axis=1), table.sum(axis=0), table.sum(axis=1)), table)
    with pytest.raises(ValueError, match="agree"):
        deal(np.cumsum(table, axis=1), np.array([1, 1, 1]), table.sum(axis=1))


def test_one_size_and_one_level():
    tree = Tree.from_paths([("alone",)])
    fitted = fit_with_totals(tree, [np.zeros((1, 0), np.int64)], totals=[np.array([4])], weights=[1.0], cumulative=True)
    assert fitted.counts[0].tolist() == [[4]]
    fitted = fit_with_totals(tree, [np.array([[9, -3]])], totals=[np.array([4])], weights=[1.0], cumulative=True)
    assert fitted.counts[0].tolist() == [[3, 0, 1]]


@pytest.mark.parametrize("weights", [(1.0, 1.0, 1.0, 1.0), (0.0, 2.0, 0.0, 0.5), (1e9, 0.3, 1.0, 1e-6)])
def test_nearest_sums_match_dense_least_squares(random_tree, weights):
    rng = np.random.default_rng(6)
    for _ in range(10):
        tree = random_tree(rng, 4)
        noisy = [rng.normal(0, 5, (width, 2)) for width in tree.widths]
        # leaves to all
        aggregation = np.concatenate([add_up(tree, np.eye(tree.widths[-1]))[level] for level in range(4)])
        scale = np.repeat(np.sqrt(weights), tree.widths)
        leaves = np.linalg.lstsq(scale[:, None] * aggregation, scale[:, None] * np.concatenate(noisy), rcond=None)[0]
        sums = NearestSums.of(tree, weights)(noisy)
        assert np.concatenate(sums) == pytest.approx(aggregation @ leaves, rel=1e-6, abs=1e-5)
