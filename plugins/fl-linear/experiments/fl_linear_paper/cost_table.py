"""Hold the costs of serving clients in a table of all pairs, for the OR-Library's instances and random tests."""

from __future__ import annotations

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Ints

__all__ = ["Table"]


def _table(value: Floats) -> Floats:
    return np.ascontiguousarray(value, dtype=np.float64)


@frozen(eq=False)
class Table:
    """The costs of all pairs of a facility and a client (see `privopt_fl_linear.service_costs.Costs`).

    Attributes:
        cost: (F, C) cost of serving a client from a facility, >= 0. Infinite for pairs that are not allowed.
    """

    cost: Floats = field(converter=_table)

    @property
    def shape(self) -> tuple[int, int]:
        """Numbers of facilities and of clients."""
        return self.cost.shape[0], self.cost.shape[1]

    def nearest(self, clients: Ints, count: int) -> tuple[Ints, Floats]:
        """Return the ``count`` cheapest facilities of each client and their costs, (len(clients), count) each."""
        rows = self.cost.T[clients]
        facilities = np.argsort(rows, axis=1, kind="stable")[:, :count]
        return facilities, np.take_along_axis(rows, facilities, axis=1)

    def cheapest(self, opened: Ints) -> tuple[Ints, Floats]:
        """Return the cheapest facility in ``opened`` for each client, and its cost, both (C,)."""
        facility = opened[np.argmin(self.cost[opened], axis=0)]
        return facility, self.cost[facility, np.arange(self.cost.shape[1])]
