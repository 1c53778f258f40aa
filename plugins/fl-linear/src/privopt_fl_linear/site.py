"""The public data: locations, their facility costs, and assignments of locations to facilities.

Source: Pfisterer, Hillebrand, Suppakitpaisarn, section 3.2 (Algorithm 1).
"""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, read_only
from privopt_fl_linear.metric import Metric

__all__ = ["Assignment", "Site", "connection_cost", "cost_parts", "sum_counts"]


@frozen(eq=False)
class Assignment:
    """The facility that serves each of n locations.

    A facility is identified by the index of its location, so that the function h of the paper maps locations to
    locations.

    Attributes:
        facility: (n,) The location h(v) of the facility that serves location v.
        opened: (m,) The locations with a facility, in ascending order. This is the image of h, which the paper calls M
            (or I after reconnection). The paper's other definition, ``{v : h(v) = v}``, is wrong if there are ties.
        position: (n,) The position in ``opened`` of each entry of ``facility``.
        sizes: (m,) The number |L_v| of locations that each open facility serves.
    """

    facility: Ints
    opened: Ints
    position: Ints
    sizes: Ints

    @classmethod
    def from_facilities(cls, facility: Ints) -> Assignment:
        """Create an assignment from the (n,) array ``facility``, computing the other attributes from it."""
        opened, position, sizes = np.unique(facility, return_inverse=True, return_counts=True)
        return cls(*(read_only(np.asarray(a, dtype=np.int64)) for a in (facility, opened, position.reshape(-1), sizes)))


@frozen(kw_only=True, eq=False)
class Site:
    """A problem's public data: n locations, identified by index, and the cost of a facility at each of them.

    Attributes:
        metric: The distances between the locations.
        cost: (n,) The non-negative cost of capacity for one client at a facility at each location. Serving a client
            also costs its distance from the facility, in the same units.
        opening: (n,) The non-negative fixed cost of opening a facility at each location, or None if there are no fixed
            costs.
        candidates: The indices of the locations that may have a facility, in ascending order, or None if any location
            may have one.
        capacity: (n,) The maximum number of clients that a facility at each location can serve, infinite where it is
            unlimited. None if it is unlimited everywhere.
        source: The name of the locations file, used in error messages.
    """

    metric: Metric
    cost: Floats
    opening: Floats | None = None
    candidates: Ints | None = None
    capacity: Floats | None = None
    source: str = "locations"

    @property
    def size(self) -> int:
        """The number of locations."""
        return self.metric.size

    @property
    def allowed_sites(self) -> Ints:
        """The indices of the locations that can have a facility, in ascending order."""
        return np.arange(self.size) if self.candidates is None else self.candidates

    @property
    def opening_cost(self) -> Floats:
        """The (n,) cost of opening a facility at each location, or zeros if the problem has no opening costs."""
        return np.zeros(self.size) if self.opening is None else self.opening

    @property
    def capacity_bounds(self) -> Floats:
        """The (n,) maximum number of clients that a facility at each location can serve, infinite if unlimited."""
        return np.full(self.size, math.inf) if self.capacity is None else self.capacity

    def connect(self, facilities: Ints | None = None) -> Assignment:
        """Connect each location to its cheapest facility (Algorithm 1).

        The facility of location v is at the location u that minimises cost_u + d(u, v), where d is the distance. Ties
        go to the lowest location index. Without opening costs and capacity bounds, this is optimal for any counts.

        Args:
            facilities: The indices of the locations with a facility, in ascending order. By default, these are all
                locations that can have one.
        """
        places = self.allowed_sites if facilities is None else facilities
        return Assignment.from_facilities(self.metric.cheapest(places, self.cost))


def sum_counts(assignment: Assignment, counts: NDArray[np.int64] | Floats) -> Floats:
    """Return the sum of the counts over the locations of each facility, as an (m,) array.

    Sums are exact for integers and correctly rounded for floats, so they do not depend on the order of the locations.

    Args:
        assignment: The facility that serves each location.
        counts: (n,) The number of clients at each location. Noisy counts may be negative.
    """
    # A stable sort keeps each facility's locations in order.
    ordered = counts[np.argsort(assignment.position, kind="stable")]
    starts = np.concatenate([[0], np.cumsum(assignment.sizes)])
    # reduceat adds up the entries from each start to the next. Integer sums are exact.
    if np.issubdtype(ordered.dtype, np.integer):
        return np.add.reduceat(ordered.astype(np.int64), starts[:-1]).astype(np.float64)
    # In doubles, sums of whole numbers below 2**52 are exact in any order. Other sums need fsum.
    if bool((ordered == np.rint(ordered)).all()) and float(np.abs(ordered).sum()) < 2.0**52:
        return np.asarray(np.add.reduceat(ordered, starts[:-1]), dtype=np.float64)
    return np.array([math.fsum(ordered[a:b]) for a, b in pairwise(starts)])


def connection_cost(metric: Metric, assignment: Assignment, counts: NDArray[np.int64] | Floats) -> float:
    """Return the total distance between clients and their facilities for the given counts.

    This is the sum of counts_v d(v, h(v)) over all locations v, where h(v) is the facility of v and d is the distance.
    Each product is rounded to a double, and the sum of the products is correctly rounded.

    Args:
        metric: The distances between the locations.
        assignment: The facility that serves each location.
        counts: (n,) The number of clients at each location.
    """
    return math.fsum(counts * metric.distances_between(np.arange(metric.size), assignment.facility))


def cost_parts(
    site: Site, assignment: Assignment, capacities: Floats, counts: NDArray[np.int64] | Floats
) -> dict[str, float]:
    """Return a plan's ``capacity``, ``connection`` and ``opening`` costs and their ``total``, keyed by these names.

    ``opening`` is missing if the problem has no opening costs.

    Args:
        site: The distances and costs.
        assignment: The facility that serves each location.
        capacities: (m,) The capacity of each open facility, in clients.
        counts: (n,) The number of clients at each location.
    """
    parts = {
        "capacity": math.fsum(capacities * site.cost[assignment.opened]),
        "connection": connection_cost(site.metric, assignment, counts),
    }
    if site.opening is not None:
        parts["opening"] = math.fsum(site.opening[assignment.opened])
    return parts | {"total": math.fsum(parts.values())}
