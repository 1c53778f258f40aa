"""Multipliers of representatives, lifted to all outputs: the same whole or edge by edge."""

from __future__ import annotations

import numpy as np

from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.instance import Instance
from privopt_metric_dp.solvers.symmetry import find_symmetry
from privopt_metric_dp.space.metrics import EuclideanMetric
from privopt_metric_dp.space.pairs import required_pairs
from privopt_metric_dp.space.places import grid_points


def test_few_multipliers_lift_as_whole_ones_do():
    grid = grid_points(5, 5, 1.0)
    metric = EuclideanMetric(grid)
    pairs, distances = required_pairs(metric, 1.5)
    instance = Instance(
        cost=metric.table() / 25, pairs=pairs, distances=distances, epsilon=1.0, coordinates=grid.coordinates
    )
    symmetry, rng = find_symmetry(instance), np.random.default_rng(0)
    known = len(symmetry.representatives)
    assert (symmetry.order, known) == (8, 6)
    both = np.where(rng.random((2, len(pairs), known)) < 0.2, rng.random((2, len(pairs), known)), 0.0)

    def few():
        for k in range(known):
            side, rows = np.nonzero(both[:, :, k])
            yield k, rows, side.astype(np.bool_), both[side, rows, k]

    whole = symmetry.lift_multipliers(instance, Multipliers.whole(both[0], both[1]))
    sparse = symmetry.lift_multipliers(instance, Multipliers.sparse(few, len(pairs)))
    assert sparse.few is not None
    for one, other in zip(whole.arrays(len(pairs), 25), sparse.arrays(len(pairs), 25), strict=True):
        assert (one == other).all()
        assert one.any()
