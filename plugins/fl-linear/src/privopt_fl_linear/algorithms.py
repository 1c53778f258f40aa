"""The server's three algorithms, up to the capacities: who is served by whom. Public data alone decides it.

Source: Pfisterer, Hillebrand, Suppakitpaisarn, sections 3.2 (Algorithm 1), 4 (Algorithm 2) and 5.1 (Algorithm 3).
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Bools, Floats, Ints, read_only
from privopt_fl_linear.metric import Metric

__all__ = ["Assignment", "connection_cost", "optimal_assignment", "reconnect", "served"]

EDGE_SLACK = 1e-12


@frozen(eq=False)
class Assignment:
    """Which facility serves each location.

    Attributes:
        facility: (n,) the location whose facility serves v: h(v); -1 where there are no clients to serve.
        opened: (m,) the image of h, ascending: the paper's M (or I after reconnection). ``{v : h(v) = v}``, its other
            definition, fails with ties.
        place: (n,) the position of ``facility`` in ``opened``, or -1.
        sizes: (m,) |L_v|, the number of locations that each opened facility serves.
    """

    facility: Ints
    opened: Ints
    place: Ints
    sizes: Ints

    @classmethod
    def of(cls, facility: Ints) -> Assignment:
        """Derive the rest from h."""
        served = facility >= 0
        opened, place, sizes = np.unique(facility[served], return_inverse=True, return_counts=True)
        places = np.full(len(facility), -1)
        places[served] = place.reshape(-1)
        return cls(*(read_only(np.asarray(a, dtype=np.int64)) for a in (facility, opened, places, sizes)))


def optimal_assignment(
    metric: Metric, cost: Floats, rank: Ints, among: Ints | None = None, sends: Bools | None = None
) -> Assignment:
    """h(v) = argmin_u cost_u + d(u, v): Algorithm 1's connection, optimal whatever the counts are.

    Args:
        metric: the n locations.
        cost: (n,) facility cost for one client, >= 0.
        rank: (n,) the order of the ids: ties go to the least.
        among: the facilities to choose from; left out: every location.
        sends: (n,) whether clients are there; left out: everywhere.
    """
    found = metric.cheapest(np.arange(metric.size) if among is None else among, cost, rank)
    return Assignment.of(found if sends is None else np.where(sends, found, -1))


def reconnect(metric: Metric, cost: Floats, rank: Ints, base: Assignment, delta: float) -> Assignment:
    """Merge facilities that are near each other (Algorithm 3).

    The independent set of G (edges at d <= 2 delta) is taken greedily by the lowest facility cost, ties by rank:
    Theorem 6 fails for other maximal sets. Balls of radius delta then go to their centre, all other locations to the
    cheapest facility left. A location pays at most 2 delta a client more than before (the paper proves 4): inside a
    ball f_v + d(u, v) <= f_w + d(w, u) + 2 d(u, v); outside, w has a neighbour x with f_x <= f_w that was kept, and
    f_x + d(u, x) <= f_w + d(u, w) + 2 delta.

    Edges are read with a relative slack of 1e-12, so that in doubles, too, no two balls share a location.

    Args:
        base: the optimal assignment of the same metric, cost and rank.
        delta: reconnection radius, >= 0, in the metric's unit.
    """
    order = base.opened[np.lexsort((rank[base.opened], cost[base.opened]))]
    kept = metric.independent(order, 2.0 * delta * (1.0 + EDGE_SLACK))
    facility = metric.cheapest(kept, cost, rank)
    owner = metric.balls(kept, rank, delta)
    return Assignment.of(np.where(base.facility < 0, -1, np.where(owner >= 0, owner, facility)))


def served(assignment: Assignment, counts: NDArray[np.int64] | Floats) -> Floats:
    """(m,) the sum of the counts over each facility's locations: exact for integers, correctly rounded else.

    Counts may be negative (noisy). The order of the locations does not matter.
    """
    order = np.argsort(assignment.place, kind="stable")
    ordered = counts[order][len(order) - int(assignment.sizes.sum()) :]
    starts = np.concatenate([[0], np.cumsum(assignment.sizes)])
    if np.issubdtype(ordered.dtype, np.integer):
        return np.add.reduceat(ordered.astype(np.int64), starts[:-1]).astype(np.float64)
    if bool((ordered == np.rint(ordered)).all()) and float(np.abs(ordered).sum()) < 2.0**52:
        return np.asarray(np.add.reduceat(ordered, starts[:-1]), dtype=np.float64)
    return np.array([math.fsum(ordered[a:b]) for a, b in pairwise(starts)])


def connection_cost(metric: Metric, assignment: Assignment, counts: NDArray[np.int64] | Floats) -> float:
    """sum_v counts_v d(v, h(v)), correctly rounded from the products."""
    served = np.flatnonzero(assignment.facility >= 0)
    return math.fsum(counts[served] * metric.between(served, assignment.facility[served]))
