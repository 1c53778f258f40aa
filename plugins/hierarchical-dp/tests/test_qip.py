"""The integer programs against the fast exact methods, on CBC and HiGHS."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from privopt_hierarchical_dp.fits.half_prices import objective, project_counts
from privopt_hierarchical_dp.fits.qip import build, solve_exactly
from privopt_hierarchical_dp.tree import Tree, add_up


@pytest.mark.parametrize("backend", ["cbc", "highs"])
def test_model_1_program_matches_half_prices(random_tree, backend):
    rng = np.random.default_rng(12)
    for _ in range(4):
        tree = random_tree(rng, 3, 2)
        noisy = [rng.integers(-6, 12, size=(width, 3)) for width in tree.widths]
        best = project_counts(tree, noisy, total=11)
        # a start far from the optimum: the bends have to follow
        start = [np.zeros_like(level) for level in noisy]
        solution = solve_exactly(tree, noisy, start=start, total=11, backend=backend)
        assert solution.proved
        assert objective(solution.counts, noisy) == objective(best, noisy)
        assert solution.lower_bound == pytest.approx(objective(best, noisy), abs=1e-6)
        np.testing.assert_array_equal(solution.counts[0], add_up(tree, solution.counts[-1])[0])


@pytest.mark.parametrize("backend", ["cbc", "highs"])
def test_model_2_program_matches_brute_force(backend):
    rng = np.random.default_rng(13)
    tree = Tree.from_paths([("r", "a"), ("r", "b")])
    for _ in range(4):
        noisy = [rng.integers(-2, 7, size=(width, 3)) for width in tree.widths]
        total, best = 4, 10**9
        chains = [c for c in itertools.product(range(total + 1), repeat=3) if list(c) == sorted(c)]
        for left, right in itertools.product(chains, chains):
            if left[-1] + right[-1] == total:
                best = min(best, objective(add_up(tree, np.array([left, right])), noisy))
        start = [np.zeros_like(level) for level in noisy]
        solution = solve_exactly(tree, noisy, start=start, total=total, cumulative=True, backend=backend)
        assert objective(solution.counts, noisy) == best
        assert (np.diff(solution.counts[1], axis=1) >= 0).all()


def test_model_reads_like_the_paper():
    tree = Tree.from_paths([("US", "GA"), ("US", "NY")])
    noisy = [np.array([[2, 1]]), np.array([[3, 0], [0, 1]])]
    flat = {"bends": noisy, "reach": 1, "total": 4, "totals": None, "weights": [1, 1]}
    text = str(build(tree, noisy, cumulative=False, **flat)[0])
    assert "total of US" in text
    assert "consistent" in text
    text = str(build(tree, noisy, cumulative=True, **flat)[0])
    assert "rising: x[r, s] <=" in text


@pytest.mark.parametrize("cumulative", [False, True])
def test_solves_millions_of_groups(cumulative):
    """CBC once searched for minutes: a difference of 1 was lost in costs of the order of the counts' squares."""
    rng = np.random.default_rng(14)
    tree = Tree.from_paths([("r", "a", "a1"), ("r", "b", "b1")])
    leaves = rng.integers(10**6, 10**7, size=(2, 4))
    truth = add_up(tree, np.cumsum(leaves, axis=1) if cumulative else leaves)
    noisy = [level + rng.integers(-30, 30, size=level.shape) for level in truth]
    total = int(truth[0][0, -1] if cumulative else truth[0].sum())
    solutions = {
        backend: solve_exactly(tree, noisy, start=truth, total=total, cumulative=cumulative, backend=backend)
        for backend in ("cbc", "highs")
    }
    assert all(solution.proved for solution in solutions.values())
    assert objective(solutions["cbc"].counts, noisy) == objective(solutions["highs"].counts, noisy)
    if not cumulative:
        assert objective(solutions["cbc"].counts, noisy) == objective(project_counts(tree, noisy, total=total), noisy)
