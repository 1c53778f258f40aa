"""Model 2 with totals on 500 random trees of depth 2 to 5, against brute force; run it by its path with pytest."""

from __future__ import annotations

import itertools

import numpy as np

from hierarchical_dp_paper.tables import weighted_objective
from privopt_hierarchical_dp.chain import fit_with_totals
from privopt_hierarchical_dp.tree import Tree, add_up


def _tree(rng, depth):
    paths = [("root",)]
    for level in range(1, depth):
        paths = [(*p, f"{level}-{i}-{k}") for i, p in enumerate(paths) for k in range(rng.integers(1, 3))]
    return Tree.from_paths(paths)


def _compositions(total, parts):
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in _compositions(total - first, parts - 1):
            yield (first, *rest)


def _cumulative(counts):
    return [np.cumsum(level, axis=1)[:, :-1] for level in counts]


def test_500_trees():
    rng = np.random.default_rng(21)
    done, dealt = 0, 0
    while done < 500:
        tree, sizes = _tree(rng, int(rng.integers(2, 6))), int(rng.integers(2, 4))
        leaves = rng.integers(0, 3, size=(tree.widths[-1], sizes))
        if tree.widths[-1] > 4 or leaves.sum() > 7:
            continue
        done += 1
        true = add_up(tree, leaves)
        totals = [level.sum(axis=1) for level in true]
        weights = [np.full(sizes - 1, float(w)) for w in rng.integers(1, 4, size=tree.depth)]
        noisy = [level + rng.integers(-4, 5, size=level.shape) for level in _cumulative(true)]
        options = [np.array(list(_compositions(int(total), sizes))) for total in totals[-1]]
        best = min(
            weighted_objective(_cumulative(add_up(tree, np.array(choice))), noisy, weights)
            for choice in itertools.product(*options)
        )
        exact = fit_with_totals(tree, noisy, totals=totals, weights=[w[0] for w in weights], cumulative=True)
        assert exact.proved
        assert abs(weighted_objective(_cumulative(exact.counts), noisy, weights) - best) < 1e-9
        quick = fit_with_totals(
            tree, noisy, totals=totals, weights=[w[0] for w in weights], cumulative=True, exact_up_to=0
        )
        assert quick.lower_bound <= best + 1e-9
        dealt += abs(weighted_objective(_cumulative(quick.counts), noisy, weights) - best) < 1e-9
    print(f"integer program: 500 of 500 optimal; projection and error diffusion alone: {dealt} of 500")
