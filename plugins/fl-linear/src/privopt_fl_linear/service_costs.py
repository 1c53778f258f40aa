"""Costs of serving clients, pair by pair: few pairs of each client where a table would be too large.

A Lagrangian bound looks at a pair only where the client's price exceeds its cost. So with prices that stay at or below
what every pair omitted costs, the cheapest pairs of each client prove a bound over all pairs; a client whose price
strives beyond that gets more of them.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt_fl_linear.site import Site

__all__ = ["Costs", "PairList", "Pairs", "SiteCosts"]


class Costs(Protocol):
    """What serving clients costs, asked for by the cheapest."""

    @property
    def shape(self) -> tuple[int, int]:
        """Facilities, clients."""
        ...

    def nearest(self, clients: Ints, count: int) -> tuple[Ints, Floats]:
        """Return (len(clients), count) the facilities that serve each cheapest, in ascending order, and their costs."""
        ...

    def cheapest(self, opened: Ints) -> tuple[Ints, Floats]:
        """Return (C,) the open facility that serves each client cheapest, of equals the least, and (C,) its cost."""
        ...


@frozen(kw_only=True, eq=False)
class SiteCosts:
    """The locations of a site, by its metric; no table of them is made.

    Serving location v from u costs ``weight[v] * (d(u, v) + scale[v] * cost[u])``.

    Attributes:
        site: what is public.
        among: (F,) places for a facility, ascending.
        weight: (C,) that a location's way is weighed by, >= 0.
        scale: (C,) capacity that a location takes, a unit of its weight, >= 0.
    """

    site: Site
    among: Ints
    weight: Floats
    scale: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """Facilities, clients."""
        return len(self.among), self.site.size

    def nearest(self, clients: Ints, count: int) -> tuple[Ints, Floats]:
        """See `Costs.nearest`."""
        which, each = self.site.metric.nearest(clients, self.among, self.site.cost, self.scale[clients], count)
        return which, each * self.weight[clients, None]

    def cheapest(self, opened: Ints) -> tuple[Ints, Floats]:
        """See `Costs.cheapest`; a search from all facilities at once where all locations are scaled alike."""
        site, everyone = self.site, np.arange(self.site.size)
        if bool((self.scale == 1.0).all()):
            chosen = site.metric.cheapest(self.among[opened], site.cost)
            way = site.metric.between(everyone, chosen) + site.cost[chosen]
            return np.searchsorted(self.among, chosen), way * self.weight
        which, each = site.metric.nearest(everyone, self.among[opened], site.cost, self.scale, 1)
        return opened[which[:, 0]], each[:, 0] * self.weight


@frozen(kw_only=True, eq=False)
class Pairs:
    """The pairs that are looked at, by facility.

    Attributes:
        start: (F + 1,) where each facility's pairs begin.
        client: (E,) their clients, ascending for each facility.
        cost: (E,) what they cost.
        beyond: (C,) what every other pair of a client costs at least; infinite where it has no other.
        far: (C,) what a client is taken to cost whom no open facility has among its pairs, in searches for a set.
    """

    start: Ints
    client: Ints
    cost: Floats
    beyond: Floats
    far: Floats

    @property
    def arrays(self) -> tuple[Ints, Ints, Floats]:
        """The pairs as a tuple of arrays, for compiled functions."""
        return self.start, self.client, self.cost


class PairList:
    """Pairs of the cheapest facilities of each client, more of them where they are asked for."""

    def __init__(self, costs: Costs, opening: Floats, count: int, max_pairs: int) -> None:
        """List the ``count`` cheapest facilities of each client.

        Args:
            costs: of all pairs.
            opening: (F,) of opening a facility.
            count: cheapest facilities of each client.
            max_pairs: pairs that may be listed in all.
        """
        self.costs, self.opening, self.most = costs, opening, max_pairs
        facilities, clients = costs.shape
        self.count = np.zeros(clients, dtype=np.int64)
        self.beyond = np.zeros(clients)
        self._facility, self._client, self._cost = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        self._add(np.arange(clients), min(count, facilities))

    def _add(self, clients: Ints, count: int) -> None:
        """List ``count`` facilities of some clients, in place of those that they had."""
        facilities = self.costs.shape[0]
        which, cost = self.costs.nearest(clients, count)
        kept = ~np.isin(self._client, clients)
        there = np.isfinite(cost.ravel())
        self._facility = np.concatenate([self._facility[kept], which.ravel()[there]])
        self._client = np.concatenate([self._client[kept], np.repeat(clients, count)[there]])
        self._cost = np.concatenate([self._cost[kept], cost.ravel()[there]])
        self.count[clients] = count
        self.beyond[clients] = np.inf if count == facilities else cost[:, -1]
        order = np.lexsort((self._client, self._facility))
        start = np.concatenate([[0], np.cumsum(np.bincount(self._facility, minlength=facilities))])
        greatest = np.zeros(len(self.beyond))
        np.maximum.at(greatest, self._client, self._cost)
        far = 2.0 * np.where(np.isfinite(self.beyond), self.beyond, greatest + self.opening.max())
        self.pairs = Pairs(
            start=start, client=self._client[order], cost=self._cost[order], beyond=self.beyond.copy(), far=far
        )

    def extend(self, wanting: Bools) -> bool:
        """List four times as many for the clients (C,) that want more, while all fit; return whether any got some."""
        facilities, grown = self.costs.shape[0], False
        for count in np.unique(self.count[wanting]).tolist():
            clients = np.flatnonzero(wanting & (self.count == count))
            more = min(4 * count, facilities)
            if count < facilities and len(self._cost) + (more - count) * len(clients) <= self.most:
                self._add(clients, more)
                wanting = wanting.copy()
                wanting[clients] = False
                grown = True
        return grown
