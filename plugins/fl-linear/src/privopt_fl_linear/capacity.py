"""Assignment of locations to facilities with limited capacity (single-source capacitated facility location).

The uncapacitated problem is solved first (`opening`). Its lower bound remains valid with capacities, and its solution
is kept if it respects them. Otherwise, one of privopt's solver backends solves a mixed-integer program. This program
has a variable for every allowed pair if there are at most `MAX_PAIRS` (facility, location) pairs in all. If there are
more, it has variables only for the cheapest facilities of each location, and the lower bound comes from the
uncapacitated problem alone.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from attrs import evolve

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import InfeasibleError, StoppedError
from privopt.execution.clock import limit
from privopt.interfaces import SolveContext
from privopt_fl_linear.opening import Facilities
from privopt_fl_linear.service_costs import Costs

__all__ = ["MAX_PAIRS", "assign_within_bounds"]

MAX_PAIRS: Final = 20_000
"""The maximum number of (facility, location) pairs in the integer program."""
LATE: Final = "capacity bounds: no plan within them was found in time; nothing written"
"""The error message if no usable solution is found within the time limit."""


def assign_within_bounds(
    costs: Costs,
    opening: Floats,
    weight: Floats,
    capacity: Floats,
    relaxed: Facilities,
    max_facilities: int | None,
    context: SolveContext,
) -> Facilities:
    """Choose which facilities to open, and assign each location to one of them without exceeding any capacity.

    Args:
        costs: The non-negative costs of serving C locations from F facilities, infinite for pairs that are not allowed.
        opening: (F,) The non-negative cost of opening each facility.
        weight: (C,) The non-negative amount of capacity that each location takes up, in clients.
        capacity: (F,) The capacity of each facility in clients. It is negative if the facility cannot be opened, and
            infinite if its capacity is unbounded.
        relaxed: The solution of the problem without capacities. It is returned unchanged if it respects the capacities.
            Its lower bound is valid either way.
        max_facilities: The maximum number of open facilities, or None for no limit.
        context: The solver, the relative gap at which it may stop, and the time limit.

    Returns:
        The solution. Facilities and locations are identified by the rows and columns of ``costs``.

    Raises:
        InfeasibleError: No assignment respects the capacities. If comparing the weights and capacities reveals why, the
            message gives the reason.
        StoppedError: No assignment was found within the time limit. Also raised if the problem is too large to consider
            more than the cheapest pairs, and these pairs alone allow no assignment.
    """
    facilities, locations = costs.shape
    max_facilities = facilities if max_facilities is None else min(max_facilities, facilities)
    if _keeps_bounds(relaxed.facility, weight, capacity):
        return relaxed
    shortage = _describe_shortage(weight, capacity, max_facilities)
    if shortage is not None:
        raise InfeasibleError(f"capacity bounds: {shortage}")
    # The program has one binary variable per pair. If this is too many, only the cheapest facilities of each location
    # are included.
    count = min(facilities, max(1, MAX_PAIRS // locations))
    facility_numbers, pair_costs = costs.nearest(np.arange(locations), count)
    table = np.full((facilities, locations), np.inf)
    table[facility_numbers, np.arange(locations)[:, None]] = pair_costs
    # A pair needs no variable if the location takes up more than the facility's whole capacity.
    pairs = np.isfinite(table) & (weight <= capacity[:, None])
    has_all_pairs = count == facilities
    try:
        facility, bound = _solve_program(table, pairs, opening, weight, capacity, max_facilities, context)
    except InfeasibleError:
        # If pairs were left out, the problem itself may still be feasible.
        if has_all_pairs:
            text = "each location's clients go to one facility, and no such plan satisfies all bounds"
            raise InfeasibleError(f"capacity bounds: {text}") from None
        text = f"over the {count} cheapest facilities of each location, no plan satisfies all bounds"
        raise StoppedError(f"capacity bounds: no plan was found: {text}; nothing written") from None
    # Solvers satisfy constraints only within a tolerance, and the solution may not be integral if a search was stopped.
    if not _keeps_bounds(facility, weight, capacity):
        raise StoppedError(LATE)
    opened = np.unique(facility)
    value = math.fsum([*opening[opened], *table[facility, np.arange(locations)]])
    # The program's bound is valid only if no pair was left out. The relaxation's bound is always valid.
    bound = min(value, max(relaxed.bound, bound if has_all_pairs and bound is not None else -math.inf))
    # The solver's tolerances do not allow a smaller gap than 1e-9, so a solution within this gap counts as optimal.
    status = "optimal" if bound >= value - max(context.gap, 1e-9) * abs(value) else "feasible"
    return evolve(
        relaxed, facility=facility, opened=opened, objective=value, bound=bound, status=status, pairs=int(pairs.sum())
    )


def _keeps_bounds(facility: Ints, weight: Floats, capacity: Floats) -> bool:
    """Return whether every facility in use has enough capacity for the clients assigned to it.

    Args:
        facility: (C,) The index of the facility that serves each location.
        weight: (C,) The capacity that each location takes up, in clients.
        capacity: (F,) The capacity of each facility in clients, negative if it cannot be opened.
    """
    opened = np.unique(facility)
    return all(math.fsum(weight[facility == i]) <= capacity[i] for i in opened.tolist())


def _describe_shortage(weight: Floats, capacity: Floats, max_facilities: int) -> str | None:
    """Return a reason why no assignment can exist, or None if simple comparisons do not reveal one.

    Two comparisons are made: the total weight of all locations with the sum of the ``max_facilities`` largest
    capacities, and the largest weight of any location with the largest capacity of any facility.

    Args:
        weight: (C,) The capacity that each location takes up, in clients.
        capacity: (F,) The capacity of each facility in clients, negative if it cannot be opened.
        max_facilities: The maximum number of open facilities.
    """
    # A facility with a negative capacity cannot be opened, so it must not reduce the total.
    needed, available = math.fsum(weight), math.fsum(np.sort(np.maximum(capacity, 0.0))[::-1][:max_facilities])
    if needed > available:
        facilities_text = f"the {max_facilities} largest" if max_facilities < len(capacity) else "all"
        missing = f"{needed - available:.10g} are missing"
        return f"room for {needed:.10g} is needed, {facilities_text} bounds hold {available:.10g}: {missing}"
    if weight.max() > capacity.max():
        return (
            f"one location needs a capacity of {weight.max():.10g}, and no facility has more than {capacity.max():.10g}"
        )
    return None


def _solve_program(
    cost: Floats,
    pairs: Bools,
    opening: Floats,
    weight: Floats,
    capacity: Floats,
    max_facilities: int,
    context: SolveContext,
) -> tuple[Ints, float | None]:
    """Solve capacitated facility location as a mixed-integer program over the allowed pairs.

    The variable x_p is 1 if the (facility, location) pair p is used, and y_u is 1 if facility u is open.

    Args:
        cost: (F, C) The cost of serving each location from each facility. Only entries in ``pairs`` are used.
        pairs: (F, C) A mask of the allowed pairs. The program has a variable for each of them.
        opening: (F,) The cost of opening each facility.
        weight: (C,) The capacity that each location takes up, in clients.
        capacity: (F,) The capacity of each facility in clients, at most 0 if it cannot be opened and infinite if it is
            unbounded.
        max_facilities: The maximum number of open facilities.
        context: The solver, the relative gap at which it may stop, and the time limit.

    Returns:
        A (C,) array with the index of each location's facility, and a proved lower bound on the cost. The bound is None
        if the solver does not provide one.

    Raises:
        InfeasibleError: No assignment that uses only these pairs respects the capacities.
        StoppedError: The time limit expired before the solver found a solution.
    """
    from scipy.sparse import coo_array, csr_array, hstack

    from privopt.dsl import Index, IndexSet, Model, total

    # Pair p consists of facility i[p] and location v[p].
    (i, v), (facilities, locations) = np.nonzero(pairs), cost.shape
    number, ones = np.arange(len(i)), np.ones(len(i))
    all_pairs, sites = IndexSet("P", len(i)), IndexSet("F", facilities)
    p, u = Index("p", all_pairs), Index("u", sites)
    model = Model("capacitated-location")
    serves, opens = model.variable("x", all_pairs, kind="binary"), model.variable("y", sites, kind="binary")
    serving_cost, opening_cost = model.param("c", cost[i, v], all_pairs), model.param("o", opening, sites)
    model.minimize(total(serving_cost[p] * serves[p], over=p) + total(opening_cost[u] * opens[u], over=u))

    def make_rows(row: Ints, values: Floats, count: int) -> csr_array:
        """Return a sparse (count, pairs) matrix whose column p has a single entry, ``values[p]`` in row ``row[p]``."""
        return csr_array(coo_array((values, (row, number)), shape=(count, len(i))))

    # Each location is served by exactly one facility.
    model.add_block("served", make_rows(v, ones, locations), columns=serves, lower=1.0, upper=1.0)
    # x <= y for each pair. For binary variables, most of these rows follow from the capacity rows, but they tighten the
    # linear relaxation.
    links = csr_array(coo_array((-ones, (number, i)), shape=(len(i), facilities)))
    model.add_block("linked", hstack([make_rows(number, ones, len(i)), links]), columns=[serves, opens], upper=0.0)
    # A capacity above the sum of all weights never binds. Capping it at the sum keeps infinite values out of the
    # coefficients.
    size = np.minimum(np.maximum(capacity, 0.0), math.fsum(weight))
    # For each facility, the weights of its locations minus its capacity (if it is open) must be at most 0.
    capacity_rows = hstack([make_rows(i, weight[v], facilities), coo_array((-size, (np.arange(facilities),) * 2))])
    model.add_block("capacity", capacity_rows, columns=[serves, opens], upper=0.0)
    if max_facilities < facilities:
        model.add_block("at most", np.ones((1, facilities)), columns=opens, upper=float(max_facilities))
    with limit(context.remaining) as scope:
        solution = model.solve(context.solver, gap=max(context.gap, 1e-9))
    if scope.expired:
        raise StoppedError(LATE)
    # Binary variables are accurate only within a tolerance, so each location is assigned to its largest variable.
    shares = np.zeros((facilities, locations))
    shares[i, v] = solution.value("x")
    return np.asarray(np.argmax(shares, axis=0), dtype=np.int64), solution.bound
