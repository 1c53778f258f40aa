"""Theorems 4.6 and 4.7: what LR-Geo's cost lies between, over users' whole matrices.

Above: the matrices that users hold, at the costs that were uploaded. Below: the relaxed problem (31)-(32), without the
exponential form, each user by itself, at the costs of Equation (33). Its multipliers prove it, whatever a solver's
tolerance.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt_lr_geo.client import Client
from privopt_lr_geo.estimate import Costs
from privopt_lr_geo.lr_sets import Surroundings
from privopt_lr_geo.problem import LRGeoInstance
from privopt_metric_dp.matrix.release import MatrixRelease

__all__ = ["cost_bounds", "relaxed_bound", "undominated"]

GAP = 1e-3


def undominated(cost: Floats) -> NDArray[np.int64]:
    """Columns that no other column equals or undercuts in every row: without the rest the relaxed optimum is the same.

    Mass of a dominated column can move to the better one: sums of columns keep every privacy row.
    """
    order = np.argsort(cost.sum(axis=0), kind="stable")
    kept: list[int] = []
    for column in order.tolist():
        if not kept or not (cost[:, kept] <= cost[:, column, None]).all(axis=0).any():
            kept.append(column)
    return np.sort(np.array(kept, dtype=np.int64))


def relaxed_bound(
    problem: LRGeoInstance, around: Surroundings, floors: Floats, *, gap: float = GAP, deadline: float | None = None
) -> float:
    """Lower bound on any matrix of a user's LR set that keeps Geo-Ind there, at the true costs (Theorem 4.7).

    Args:
        problem: the map and epsilon.
        around: the user's LR set.
        floors: (n, K) at most the true costs, not weighted by the prior.
        gap: up to which the relaxed problem is solved; the bound holds whatever it is.
        deadline: as of ``time.monotonic``.

    Raises:
        StoppedError: the deadline came before any bound.
    """
    from privopt_metric_dp.solvers import Instance, solve

    data, floors = problem.data, problem.data.prior[around.records, None] * floors
    points = data.records.coordinates
    instance = Instance(
        cost=floors[:, undominated(floors)],
        pairs=around.pairs,
        distances=around.lengths,
        epsilon=float(data.epsilon),
        coordinates=None if points is None else points[around.records],
    )
    return max(0.0, solve(instance, gap=gap, deadline=deadline).lower_bound)


def cost_bounds(
    problem: LRGeoInstance,
    clients: Sequence[Client],
    costs: Costs,
    matrices: Mapping[str, MatrixRelease] | None,
    *,
    seconds: float,
) -> dict[str, Any] | None:
    """Bounds in the unit of the loss, per report of somebody in the LR sets, and the approximation ratio.

    Args:
        problem: the map.
        clients: the users to look at; those that no time is left for are left out.
        costs: where they have theirs from.
        matrices: each user's own, by id; None: no bounds.
        seconds: to spend on lower bounds.
    """
    from privopt.errors import StoppedError

    if matrices is None:
        return None
    data, deadline = problem.data, time.monotonic() + seconds
    lower = upper = actual = weight = 0.0
    done = 0
    for client in clients:
        if done and time.monotonic() >= deadline:
            break
        try:
            below = relaxed_bound(problem, client.around, costs.floors(client.around.records), deadline=deadline)
        except StoppedError:
            break
        records = client.around.records
        z = matrices[str(data.records.ids[client.around.user])].probabilities
        lower += below
        upper += float((client.costs * z).sum())
        actual += float((data.weighted[records] * z).sum())
        weight += float(data.prior[records].sum())
        done += 1
    if not done:
        return None
    return {
        "lower": lower / weight,
        "value": actual / weight,
        "upper": upper / weight,
        "approximation_ratio": upper / lower if lower > 0 else None,
        "users": done,
        "unit": data.loss_unit,
    }
