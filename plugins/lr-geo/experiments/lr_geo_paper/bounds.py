"""Compute the bounds of Theorems 4.6 and 4.7 on LR-Geo's cost, over users' whole matrices.

The upper bound is the cost of the users' matrices at the costs that they uploaded. The lower bound is the optimum of
the relaxed problem (31)-(32), without the exponential form, for each user alone, at the costs of Equation (33). The
solver's multipliers prove it, whatever the solver's tolerance.
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
"""Relative gap up to which the relaxed problem is solved. The bound holds at any gap."""


def relaxed_bound(problem: LRGeoInstance, around: LRSet, floors: Floats) -> float:
    """Return a lower bound on the cost of any matrix that satisfies Geo-Ind in a user's LR set (Theorem 4.7).

    The bound is on the true cost, weighted by the prior.

    Args:
        problem: The map and epsilon.
        around: The user's LR set of n records.
        floors: (n, K) lower bounds on the true costs, not weighted by the prior.

    Raises:
        StoppedError: The innermost time limit was reached before any bound was found.
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
    """Return lower bounds (n, K) on the true costs of records: the costs themselves, or Equation (33) with a table.

    Args:
        data: The map, with its costs.
        costs: The cost reference table, which is queried over the whole map. None if users know the costs exactly.
        records: (n,) the records.
    """
    if costs is None:
        return data.cost[records]
    all_rows = costs.table.rows(np.arange(len(costs.cells.coordinates)))
    return estimate_costs(costs.places, costs.cells, records, all_rows).lower


def _undominated_columns(cost: Floats) -> Ints:
    """Return the columns of ``cost`` (n, K) that no other column equals or undercuts in every row, ascending.

    The relaxed optimum needs no other columns: probability of a dominated column can move to the better one, because a
    sum of two columns satisfies every privacy constraint that both satisfy.
    """
    columns_kept: list[int] = []
    # In ascending order of their sums, so that a column comes after those that dominate it.
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
    """Return bounds on the cost of a report of a person in the LR sets, and the approximation ratio.

    Args:
        problem: The map.
        clients: The users. Those for whom no time is left are omitted.
        costs: The table from which users estimate costs. None if users know them exactly.
        matrices: Each user's own matrix, by id. None for no bounds.
        seconds: Time limit of the lower bounds in seconds.

    Returns:
        ``lower``, ``value`` (at the true costs) and ``upper``, in the ``unit`` of the loss, the ``approximation_ratio``
        upper / lower (None if lower is 0), and the number of ``users``. None if no user has a bound.
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
