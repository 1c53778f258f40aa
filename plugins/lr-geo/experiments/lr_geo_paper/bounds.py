"""Theorems 4.6 and 4.7: bounds on LR-Geo's cost, over users' whole matrices.

Above: the matrices that users hold, at the costs that were uploaded. Below: the relaxed problem (31)-(32), without the
exponential form, each user by itself, at the costs of Equation (33). Its multipliers prove it, whatever a solver's
tolerance.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.errors import StoppedError
from privopt.execution.clock import check, limit
from privopt_lr_geo.client import Client
from privopt_lr_geo.estimate import TableCosts, estimate_costs
from privopt_lr_geo.lr_sets import LRSet
from privopt_lr_geo.problem import LRGeoInstance
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["cost_bounds", "relaxed_bound"]

GAP: Final = 1e-3
"""Up to which the relaxed problem is solved; the bound holds whatever it is."""


def relaxed_bound(problem: LRGeoInstance, around: LRSet, floors: Floats) -> float:
    """Return a lower bound on any matrix of a user's LR set that keeps Geo-Ind there, at the true costs (Theorem 4.7).

    Args:
        problem: the map and epsilon.
        around: the user's LR set.
        floors: (n, K) at most the true costs, not weighted by the prior.

    Raises:
        StoppedError: the innermost scope of time ended before any bound.
    """
    from privopt_metric_dp.solvers import Instance, solve

    check("a bound was found")
    data, floors = problem.data, problem.data.prior[around.records, None] * floors
    points = data.records.coordinates
    instance = Instance(
        cost=floors[:, _undominated_columns(floors)],
        pairs=around.pairs,
        distances=around.lengths,
        epsilon=float(data.epsilon),
        coordinates=None if points is None else points[around.records],
    )
    return max(0.0, solve(instance, gap=GAP).lower_bound)


def _floors(data: MetricData, costs: TableCosts | None, records: Ints) -> Floats:
    """Return (n, K) no more than the true costs; with a table Equation (33) over the whole map."""
    if costs is None:
        return data.cost[records]
    all_rows = costs.table.rows(np.arange(len(costs.cells.coordinates)))
    return estimate_costs(costs.places, costs.cells, records, all_rows).lower


def _undominated_columns(cost: Floats) -> Ints:
    """Columns that no other column equals or undercuts in every row: without the rest the relaxed optimum is the same.

    Mass of a dominated column can move to the better one: sums of columns keep every privacy row.
    """
    columns_kept: list[int] = []
    for column in np.argsort(cost.sum(axis=0), kind="stable").tolist():
        if not columns_kept or not (cost[:, columns_kept] <= cost[:, column, None]).all(axis=0).any():
            columns_kept.append(column)
    return np.sort(np.array(columns_kept, dtype=np.int64))


def cost_bounds(
    problem: LRGeoInstance,
    clients: Sequence[Client],
    costs: TableCosts | None,
    matrices: Mapping[str, MatrixRelease] | None,
    *,
    seconds: float,
) -> dict[str, Any] | None:
    """Return bounds in the unit of the loss, per report of a person in the LR sets, and the approximation ratio.

    Args:
        problem: the map.
        clients: the users to look at; those that no time is left for are omitted.
        costs: the table that they have costs from, if any.
        matrices: each user's own, by id; None: no bounds.
        seconds: to spend on lower bounds.
    """
    if matrices is None:
        return None
    data, sums, weight, users = problem.data, np.zeros(3), 0.0, 0
    with limit(seconds):
        for client in clients:
            records = client.around.records
            try:
                lower_bound = relaxed_bound(problem, client.around, _floors(data, costs, records))
            except StoppedError:
                break
            z = matrices[str(data.records.ids[client.around.user])].probabilities
            sums += lower_bound, float((data.weighted[records] * z).sum()), float((client.costs * z).sum())
            weight += float(data.prior[records].sum())
            users += 1
    if not users:
        return None
    lower, value, upper = (sums / weight).tolist()
    ratio = upper / lower if lower > 0 else None
    figures = {"lower": lower, "value": value, "upper": upper, "approximation_ratio": ratio}
    return {**figures, "users": users, "unit": data.loss_unit}
