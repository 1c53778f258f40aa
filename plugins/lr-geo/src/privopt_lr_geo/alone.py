"""What each user can do by itself: the exponential mechanism over its LR set, in closed form.

Its rows depend on records and outputs alone, so rows of the same place by different users are equal.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privopt_lr_geo.client import Client
from privopt_lr_geo.package import Answer
from privopt_metric_dp.solvers.exponential import exponential

__all__ = ["exponential_answers", "program_value"]


def exponential_answers(clients: Sequence[Client], epsilon: float) -> list[Answer] | None:
    """A matrix for each client, rows in its order; None where some record reaches no output."""
    if not all(np.isfinite(client.around.reach.min(axis=1)).all() for client in clients):
        return None
    return [Answer(z=exponential(client.around.reach, epsilon)[client.order]) for client in clients]


def program_value(clients: Sequence[Client], answers: Sequence[Answer]) -> float:
    """CLR-Geo's objective of some matrices: the users' prior-weighted costs, summed over their LR sets."""
    return float(
        sum((client.costs[client.order] * answer.z).sum() for client, answer in zip(clients, answers, strict=True))
    )
