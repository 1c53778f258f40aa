"""Costs of serving clients as one table of all pairs: the OR-Library's instances, and random ones of the tests."""

from __future__ import annotations

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Ints

__all__ = ["Table"]


def _table(value: Floats) -> Floats:
    return np.ascontiguousarray(value, dtype=np.float64)


@frozen(eq=False)
class Table:
    """All pairs.

    Attributes:
        cost: (F, C) of serving a client from a facility, >= 0; infinite where it may not.
    """

    cost: Floats = field(converter=_table)

    @property
    def shape(self) -> tuple[int, int]:
        """Facilities, clients."""
        return self.cost.shape[0], self.cost.shape[1]

    def nearest(self, clients: Ints, count: int) -> tuple[Ints, Floats]:
        """See `Costs.nearest`."""
        rows = self.cost.T[clients]
        facilities = np.argsort(rows, axis=1, kind="stable")[:, :count]
        return facilities, np.take_along_axis(rows, facilities, axis=1)

    def cheapest(self, opened: Ints) -> tuple[Ints, Floats]:
        """See `Costs.cheapest`."""
        facility = opened[np.argmin(self.cost[opened], axis=0)]
        return facility, self.cost[facility, np.arange(self.cost.shape[1])]
