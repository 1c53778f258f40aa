"""Multipliers of representatives, lifted to all outputs: each symmetry leaves them as they are."""

from __future__ import annotations

import numpy as np
import pytest

from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers.instance import Instance, dual_bound
from privopt_metric_dp.solvers.symmetry import find_symmetry
from privopt_metric_dp.space.metrics import EuclideanMetric
from privopt_metric_dp.space.pairs import required_pairs
from privopt_metric_dp.space.places import grid_points


def test_symmetries_move_lifted_multipliers():
    grid = grid_points(5, 5, 1.0)
    metric = EuclideanMetric(grid)
    pairs, distances = required_pairs(metric, 1.5)
    instance = Instance(
        cost=metric.table() / 25, pairs=pairs, distances=distances, epsilon=1.0, coordinates=grid.coordinates
    )
    symmetry, rng = find_symmetry(instance), np.random.default_rng(0)
    column_count = len(symmetry.representatives)
    assert (symmetry.order, column_count) == (8, 6)
    multiplier_arrays = np.where(
        rng.random((2, len(pairs), column_count)) < 0.2, rng.random((2, len(pairs), column_count)), 0.0
    )
    columns = Multipliers.from_arrays(multiplier_arrays[0], multiplier_arrays[1])
    lifted = symmetry.lift_multipliers(instance, columns)

    def table(multipliers, outputs):  # i, j, k: of the row z_ik <= exp(eps d) z_jk
        net_values, (forward, backward) = np.zeros((25, 25, outputs)), multipliers.arrays(len(pairs), outputs)
        net_values[pairs[:, 0], pairs[:, 1]], net_values[pairs[:, 1], pairs[:, 0]] = forward, backward
        return net_values

    column_table, lifted_table = table(columns, column_count), table(lifted, 25)
    representative, member = symmetry.origin()
    for k in range(25):
        to = symmetry.records[member[k]]
        assert (lifted_table[np.ix_(to, to, [k])][:, :, 0] == column_table[:, :, representative[k]]).all()
        assert lifted_table[:, :, k].any()
    assert dual_bound(instance, lifted)[0] >= instance.cost.min(axis=1).sum()
    assert symmetry.lift_multipliers(instance, Multipliers.zero()).arrays(len(pairs), 25)[0].sum() == pytest.approx(0.0)
