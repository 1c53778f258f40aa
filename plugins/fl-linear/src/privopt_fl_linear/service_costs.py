"""Costs of serving clients, as lists of each client's cheapest pairs, because a full table may be too large.

A Lagrangian bound uses a pair only if the client's price (Lagrange multiplier) exceeds the pair's cost. If no price
exceeds the cost of any omitted pair, the listed pairs prove a bound over all pairs. More pairs are listed for a client
whose price reaches the cost of an omitted pair.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt_fl_linear.site import Site

__all__ = ["Costs", "PairList", "Pairs", "SiteCosts"]


class Costs(Protocol):
    """Interface to the costs of serving clients, which can be queried for the cheapest facilities."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number of facilities and the number of clients."""
        ...

    def nearest(self, clients: Ints, count: int) -> tuple[Ints, Floats]:
        """Return the ``count`` cheapest facilities for each client in ascending order of cost, and their costs.

        Both arrays have the shape (len(clients), count).
        """
        ...

    def cheapest(self, opened: Ints) -> tuple[Ints, Floats]:
        """Return the cheapest facility in ``opened`` for each client, and its cost, both (C,).

        Ties go to the lowest index.
        """
        ...


@frozen(kw_only=True, eq=False)
class SiteCosts:
    """Costs between the locations of a site, computed on demand from its metric.

    Serving location v from u costs ``weight[v] * (d(u, v) + scale[v] * cost[u])``.

    Attributes:
        site: The public data.
        among: (F,) locations that may hold a facility, ascending.
        weight: (C,) weight of a location's distance, >= 0.
        scale: (C,) capacity that a location takes up for each unit of its weight, >= 0.
    """

    site: Site
    among: Ints
    weight: Floats
    scale: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """The number of facilities and the number of clients."""
        return len(self.among), self.site.size

    def nearest(self, clients: Ints, count: int) -> tuple[Ints, Floats]:
        """Return the ``count`` cheapest facilities for each client and their costs, each (len(clients), count).

        See `Costs.nearest`. Facilities are given as positions in ``among``.
        """
        positions, costs = self.site.metric.nearest(clients, self.among, self.site.cost, self.scale[clients], count)
        return positions, costs * self.weight[clients, None]

    def cheapest(self, opened: Ints) -> tuple[Ints, Floats]:
        """Return the cheapest facility in ``opened`` for each client, and its cost, both (C,); see `Costs.cheapest`.

        If all scales are 1, the metric's tree search is used, which is much faster than comparing all pairs.
        """
        site, everyone = self.site, np.arange(self.site.size)
        if bool((self.scale == 1.0).all()):
            facility = site.metric.cheapest(self.among[opened], site.cost)
            serving_cost = site.metric.distances_between(everyone, facility) + site.cost[facility]
            return np.searchsorted(self.among, facility), serving_cost * self.weight
        positions, costs = site.metric.nearest(everyone, self.among[opened], site.cost, self.scale, 1)
        return opened[positions[:, 0]], costs[:, 0] * self.weight


@frozen(kw_only=True, eq=False)
class Pairs:
    """The listed (facility, client) pairs with their costs, ordered by facility.

    Attributes:
        start: (F + 1,) index of each facility's first pair.
        client: (E,) clients of the pairs, ascending for each facility.
        cost: (E,) costs of the pairs.
        omitted_cost: (C,) lower bound on the cost of a client's omitted pairs. Infinite if none is omitted.
        fallback_cost: (C,) assumed cost of a client if no open facility is among its pairs. Only heuristics use it.
    """

    start: Ints
    client: Ints
    cost: Floats
    omitted_cost: Floats
    fallback_cost: Floats

    @property
    def arrays(self) -> tuple[Ints, Ints, Floats]:
        """The pairs as a tuple of arrays, for compiled functions."""
        return self.start, self.client, self.cost


class PairList:
    """A growing list of each client's cheapest (facility, client) pairs.

    Attributes:
        costs: Costs of all pairs, of C clients with F facilities.
        opening: (F,) cost of opening a facility.
        pair_limit: Maximum total number of listed pairs.
        count: (C,) number of facilities that were listed for each client, including those that may not serve it.
        omitted_cost: (C,) lower bound on the cost of a client's omitted pairs. Infinite if none is omitted.
        pairs: The listed pairs, ordered by facility.
    """

    def __init__(self, costs: Costs, opening: Floats, count: int, max_pairs: int) -> None:
        """List the ``count`` cheapest facilities for each client.

        Args:
            costs: Costs of all pairs.
            opening: (F,) cost of opening a facility.
            count: Number of facilities for each client.
            max_pairs: Maximum total number of listed pairs.
        """
        self.costs, self.opening, self.pair_limit = costs, opening, max_pairs
        facilities, clients = costs.shape
        self.count = np.zeros(clients, dtype=np.int64)
        self.omitted_cost = np.zeros(clients)
        self._facility, self._client, self._cost = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        self._list_pairs(np.arange(clients), min(count, facilities))

    def _list_pairs(self, clients: Ints, count: int) -> None:
        """Replace the listed pairs of the given clients with those of their ``count`` cheapest facilities."""
        facilities = self.costs.shape[0]
        facility, cost = self.costs.nearest(clients, count)
        is_other_client = ~np.isin(self._client, clients)
        # A pair whose cost is infinite is not allowed, and needs no entry.
        is_finite = np.isfinite(cost.ravel())
        self._facility = np.concatenate([self._facility[is_other_client], facility.ravel()[is_finite]])
        self._client = np.concatenate([self._client[is_other_client], np.repeat(clients, count)[is_finite]])
        self._cost = np.concatenate([self._cost[is_other_client], cost.ravel()[is_finite]])
        self.count[clients] = count
        # `nearest` gives ascending costs, so omitted pairs cost at least as much as the last listed one.
        self.omitted_cost[clients] = np.inf if count == facilities else cost[:, -1]
        # By facility, then by client: the order that `Pairs` promises.
        order = np.lexsort((self._client, self._facility))
        start = np.concatenate([[0], np.cumsum(np.bincount(self._facility, minlength=facilities))])
        greatest = np.zeros(len(self.omitted_cost))
        np.maximum.at(greatest, self._client, self._cost)
        # Twice the least cost of an omitted pair or, if none is omitted, twice the sum of the greatest listed cost and
        # the greatest opening cost. This is deliberately high, so that heuristics prefer sets that serve each client by
        # a listed pair.
        fallback_cost = 2.0 * np.where(np.isfinite(self.omitted_cost), self.omitted_cost, greatest + self.opening.max())
        self.pairs = Pairs(
            start=start,
            client=self._client[order],
            cost=self._cost[order],
            omitted_cost=self.omitted_cost.copy(),
            fallback_cost=fallback_cost,
        )

    def extend_pairs(self, needs_more: Bools) -> bool:
        """List four times as many pairs for the clients in the mask ``needs_more`` (C,), if all pairs fit.

        Returns:
            Whether any client got more pairs.
        """
        facilities, has_grown = self.costs.shape[0], False
        # Clients with equally many pairs are extended together, with one query. Those whose new pairs would exceed the
        # limit keep theirs.
        for count in np.unique(self.count[needs_more]).tolist():
            clients = np.flatnonzero(needs_more & (self.count == count))
            new_count = min(4 * count, facilities)
            if count < facilities and len(self._cost) + (new_count - count) * len(clients) <= self.pair_limit:
                self._list_pairs(clients, new_count)
                # Otherwise a client would be extended again when its new count comes up. The mask is copied, because it
                # belongs to the caller.
                needs_more = needs_more.copy()
                needs_more[clients] = False
                has_grown = True
        return has_grown
