"""Costs of serving clients, listed only for each client's cheapest facilities if the full table would be too large.

A pair consists of a facility and a client. It affects a Lagrangian bound only if the client's price (its Lagrange
multiplier) exceeds the pair's cost. As long as no price exceeds the cost of an omitted pair, the listed pairs prove a
bound over all pairs. Once a client's price reaches the cost of an omitted pair, more pairs are listed for this client.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt_fl_linear.site import Site

__all__ = ["Costs", "PairList", "Pairs", "SiteCosts"]


class Costs(Protocol):
    """Interface for querying the costs of serving C clients from F facilities."""

    @property
    def shape(self) -> tuple[int, int]:
        """The number F of facilities and the number C of clients."""
        ...

    def nearest(self, clients: Ints, count: int) -> tuple[Ints, Floats]:
        """Return the ``count`` cheapest facilities for each of the given clients, and their costs in ascending order.

        Facilities and clients are given by index. Both results have shape (len(clients), count).
        """
        ...

    def cheapest(self, opened: Ints) -> tuple[Ints, Floats]:
        """Return each client's cheapest facility in ``opened`` and the cost of being served there, as two (C,) arrays.

        ``opened`` contains facility indices in ascending order. Ties go to the lowest index.
        """
        ...


@frozen(kw_only=True, eq=False)
class SiteCosts:
    """Costs between the locations of a site, computed on demand from its metric.

    Serving location v from u costs ``weight[v] * (d(u, v) + scale[v] * cost[u])``.

    Attributes:
        site: The public data.
        among: (F,) The indices of the locations that can have a facility, in ascending order.
        weight: (C,) The factor for each location's cost, a non-negative number of clients.
        scale: (C,) The non-negative capacity that each location takes up, divided by its weight.
    """

    site: Site
    among: Ints
    weight: Floats
    scale: Floats

    @property
    def shape(self) -> tuple[int, int]:
        """The number F of facilities and the number C of clients."""
        return len(self.among), self.site.size

    def nearest(self, clients: Ints, count: int) -> tuple[Ints, Floats]:
        """Return the ``count`` cheapest facilities for each of the given clients, and their costs in ascending order.

        Facilities are given as positions in ``among``. Both results have shape (len(clients), count).
        """
        positions, costs = self.site.metric.nearest(clients, self.among, self.site.cost, self.scale[clients], count)
        return positions, costs * self.weight[clients, None]

    def cheapest(self, opened: Ints) -> tuple[Ints, Floats]:
        """Return each client's cheapest facility in ``opened`` and the cost of being served there, as two (C,) arrays.

        Facilities are given as positions in ``among``. If all scales are 1, the metric's own search for cheapest
        facilities is used. For points, it is much faster than comparing all pairs.
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
    """The (facility, client) pairs that are listed explicitly, with their costs, ordered by facility.

    Attributes:
        start: (F + 1,) The index of each facility's first pair, followed by the total number E of pairs.
        client: (E,) The client of each pair, in ascending order for each facility.
        cost: (E,) The cost of each pair.
        omitted_cost: (C,) A lower bound on the cost of each client's omitted pairs, infinite if none is omitted.
        fallback_cost: (C,) The cost assumed for each client if none of its listed facilities is open. It is only used
            by heuristics.
    """

    start: Ints
    client: Ints
    cost: Floats
    omitted_cost: Floats
    fallback_cost: Floats

    @property
    def arrays(self) -> tuple[Ints, Ints, Floats]:
        """The arrays ``start``, ``client`` and ``cost``, in the order expected by the compiled functions."""
        return self.start, self.client, self.cost


class PairList:
    """An extensible list of each client's cheapest (facility, client) pairs.

    Attributes:
        costs: The costs of serving C clients from F facilities.
        opening: (F,) The cost of opening each facility.
        pair_limit: The maximum total number of listed pairs.
        count: (C,) The number of facilities considered for each client, including those that are not allowed to serve
            it.
        omitted_cost: (C,) A lower bound on the cost of each client's omitted pairs, infinite if none is omitted.
        pairs: The listed pairs, ordered by facility.
    """

    def __init__(self, costs: Costs, opening: Floats, count: int, max_pairs: int) -> None:
        """List each client's pairs with its ``count`` cheapest facilities.

        Args:
            costs: The costs of all pairs.
            opening: (F,) The cost of opening each facility.
            count: The initial number of facilities per client.
            max_pairs: The limit on the total number of pairs for :meth:`extend_pairs`.
        """
        self.costs, self.opening, self.pair_limit = costs, opening, max_pairs
        facilities, clients = costs.shape
        self.count = np.zeros(clients, dtype=np.int64)
        self.omitted_cost = np.zeros(clients)
        self._facility, self._client, self._cost = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0)
        self._list_pairs(np.arange(clients), min(count, facilities))

    def _list_pairs(self, clients: Ints, count: int) -> None:
        """Replace the listed pairs of the given clients with the pairs for their ``count`` cheapest facilities."""
        facilities = self.costs.shape[0]
        facility, cost = self.costs.nearest(clients, count)
        is_other_client = ~np.isin(self._client, clients)
        # Pairs with an infinite cost are not allowed and therefore not listed.
        is_finite = np.isfinite(cost.ravel())
        self._facility = np.concatenate([self._facility[is_other_client], facility.ravel()[is_finite]])
        self._client = np.concatenate([self._client[is_other_client], np.repeat(clients, count)[is_finite]])
        self._cost = np.concatenate([self._cost[is_other_client], cost.ravel()[is_finite]])
        self.count[clients] = count
        # `nearest` returns costs in ascending order, so omitted pairs cost at least as much as the last listed one.
        self.omitted_cost[clients] = np.inf if count == facilities else cost[:, -1]
        # Sort pairs by facility and then by client, as `Pairs` requires.
        order = np.lexsort((self._client, self._facility))
        start = np.concatenate([[0], np.cumsum(np.bincount(self._facility, minlength=facilities))])
        greatest = np.zeros(len(self.omitted_cost))
        np.maximum.at(greatest, self._client, self._cost)
        # Twice the lowest cost of an omitted pair or, if none is omitted, twice the sum of the client's largest listed
        # cost and the largest opening cost. The value is deliberately high, so that heuristics prefer sets that serve
        # each client by a listed pair.
        fallback_cost = 2.0 * np.where(np.isfinite(self.omitted_cost), self.omitted_cost, greatest + self.opening.max())
        self.pairs = Pairs(
            start=start,
            client=self._client[order],
            cost=self._cost[order],
            omitted_cost=self.omitted_cost.copy(),
            fallback_cost=fallback_cost,
        )

    def extend_pairs(self, needs_more: Bools) -> bool:
        """List up to four times as many pairs for each client in the (C,) mask ``needs_more``.

        Clients with the same number of listed pairs are processed together. They keep their old pairs if the new ones
        would exceed the limit on the total number of pairs.

        Returns:
            Whether more pairs were listed for any client.
        """
        facilities, has_grown = self.costs.shape[0], False
        # Clients with equally many pairs are extended together by a single query. If their new pairs would exceed the
        # limit, they keep the old ones.
        for count in np.unique(self.count[needs_more]).tolist():
            clients = np.flatnonzero(needs_more & (self.count == count))
            new_count = min(4 * count, facilities)
            if count < facilities and len(self._cost) + (new_count - count) * len(clients) <= self.pair_limit:
                self._list_pairs(clients, new_count)
                # Remove these clients from the mask, or they would be extended again when the loop reaches their new
                # count. The mask is copied because it belongs to the caller.
                needs_more = needs_more.copy()
                needs_more[clients] = False
                has_grown = True
        return has_grown
