"""What users can do without the server's answer: matrices that are known early, from which all take their rows.

They depend on records and outputs alone, so rows of the same place by different users are equal.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.errors import SolverError, StoppedError
from privopt.interfaces import SolveContext
from privopt.metric.baselines.exponential import exponential
from privopt_lr_geo.client import Client
from privopt_lr_geo.package import Answer

if TYPE_CHECKING:
    from privopt.metric.data import MetricData

__all__ = ["Spare", "exponential_spare", "own_loss", "population_spare", "program_value"]

SHARE_OF_TIME: Final = 0.15
"""Of the time that is left, what the population's mechanism may take before the users' program begins."""
LARGEST: Final = 4_000_000
"""Records times outputs up to which one is looked for: beyond it, dense kernels take more than such a share."""


@frozen(kw_only=True, eq=False)
class Spare:
    """Matrices at hand, one a client, rows in its order.

    Attributes:
        name: what made them.
        answers: near-feasible; users repair and certify them as they do the server's.
    """

    name: str
    answers: Sequence[Answer]


def exponential_spare(clients: Sequence[Client], epsilon: float) -> Spare | None:
    """The exponential mechanism over the LR sets, in closed form; None where some record reaches no output."""
    if not all(np.isfinite(client.around.reach.min(axis=1)).all() for client in clients):
        return None
    answers = [Answer(z=exponential(client.around.reach, epsilon)[client.order]) for client in clients]
    return Spare(name="exponential", answers=answers)


def population_spare(
    clients: Sequence[Client], data: MetricData, context: SolveContext, *, patient: bool = False
) -> Spare | None:
    """The best mechanism of all records together that a share of the time gives, by the methods of optimal-lp.

    None without a limit, on maps too large for it, and where nothing came of it. With ``patient`` it has all the time,
    for no program of the users follows.
    """
    from privopt.metric.optimal import Instance, solve

    left = context.remaining
    if (not left and not patient) or data.cost.size > LARGEST or (data.distances == 0).any():
        return None
    until = context.deadline if patient or left is None else time.monotonic() + SHARE_OF_TIME * left
    try:
        found = solve(Instance.of(data), gap=context.gap, deadline=until, memory=context.room, progress=context.report)
    except (SolverError, StoppedError):
        return None
    answers = [Answer(z=found.z[client.around.records][client.order]) for client in clients]
    return Spare(name=found.method, answers=answers)


def own_loss(clients: Sequence[Client], answers: Sequence[Answer], cost: Floats) -> float:
    """Mean over the users of the true cost (M, K) of their own rows, before any repair."""
    rows = []
    for client, answer, own in zip(clients, answers, cost, strict=True):
        row = answer.z[np.flatnonzero(client.order == client.around.own)[0]]
        rows.append(float(row @ own) / max(float(row.sum()), 1e-12))
    return float(np.mean(rows))


def program_value(clients: Sequence[Client], answers: Sequence[Answer]) -> float:
    """CLR-Geo's objective of some matrices: the users' prior-weighted costs, summed over their LR sets."""
    return float(
        sum((client.costs[client.order] * answer.z).sum() for client, answer in zip(clients, answers, strict=True))
    )
