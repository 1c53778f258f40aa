"""Solve the facility-location integer program: a capacity for each facility, known counts, opening costs if any.

Algorithm 1 is tested against it, and so are facilities with a fixed part of their cost, for which the best facility of
a location depends on the other locations. With rectangular matrices it is the uncapacitated facility location problem
of the OR-Library.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Unpack

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.dsl.solution import SolveOptions
from privopt.errors import Fault, InputError, SolverError

if TYPE_CHECKING:
    from privopt.dsl import Model

__all__ = ["MOST_PAIRS", "Location", "facility_location_model", "solve_facility_location"]

MOST_PAIRS = 40_000
"""Largest number of pairs of a facility and a location, enough for 200 locations that may all hold a facility."""


@frozen(kw_only=True, eq=False)
class Location:
    """A solution of the integer program.

    Attributes:
        facility: (C,) the facility of each location.
        capacities: (F,) clients served by each facility, 0 for a closed one.
        opened: The facilities in use, ascending.
        objective: Cost of exactly this solution.
        bound: The solver's lower bound.
        solver: Name and version of the solver.
        status: ``"optimal"`` or ``"feasible"``.
    """

    facility: Ints
    capacities: Floats
    opened: Ints
    objective: float
    bound: float | None
    solver: str
    status: str


def facility_location_model(
    facility_cost: Floats,
    clients: Floats,
    distances: Floats,
    opening_cost: Floats | None = None,
) -> Model:
    """Return the integer program that minimises opening, capacity and connection costs.

    Args:
        facility_cost: (F,) cost of the capacity for one client.
        clients: (C,) known numbers of clients of the locations, >= 0.
        distances: (F, C) connection cost of one client. It need not be a metric.
        opening_cost: (F,) fixed cost of opening a facility. None for no such costs.

    >>> print(facility_location_model([1, 2], [3, 4], [[0, 5], [5, 0]]))  # doctest: +NORMALIZE_WHITESPACE
    facility-location: minimize sum(f[u]*k[u] for u in F) + sum(b[v]*d[u, v]*x[u, v] for u in F, v in V)
      served: sum(x[u, v] for u in F) == 1  for v in V
      capacity: sum(b[v]*x[u, v] for v in V) <= k[u]  for u in F
      x[F, V] binary
      k[F] >= 0
    """
    from privopt.dsl import Eq, Index, IndexSet, Le, Model, total

    d_table = np.asarray(distances, dtype=np.float64)
    facilities, locations = IndexSet("F", d_table.shape[0]), IndexSet("V", d_table.shape[1])
    u, v = Index("u", facilities), Index("v", locations)
    m = Model("facility-location")
    f, b, d = m.param("f", np.asarray(facility_cost)), m.param("b", np.asarray(clients)), m.param("d", d_table)
    x = m.variable("x", facilities, locations, kind="binary")
    k = m.variable("k", facilities)
    cost = total(f[u] * k[u], over=u) + total(b[v] * d[u, v] * x[u, v], over=(u, v))
    m.require("served", Eq(total(x[u, v], over=u), 1), forall=v)
    m.require("capacity", Le(total(b[v] * x[u, v], over=v), k[u]), forall=u)
    if opening_cost is not None:
        y = m.variable("y", facilities, kind="binary")
        o = m.param("o", np.asarray(opening_cost))
        m.require("opened", Le(x[u, v], y[u]), forall=(u, v))
        cost = cost + total(o[u] * y[u], over=u)
    m.minimize(cost)
    return m


def solve_facility_location(
    facility_cost: Floats,
    clients: Floats,
    distances: Floats,
    opening_cost: Floats | None = None,
    *,
    backend: str = "cbc",
    **options: Unpack[SolveOptions],
) -> Location:
    """Solve the integer program, and compute the cost of the solution again from its assignment.

    Args:
        facility_cost, clients, distances, opening_cost: See `facility_location_model`.
        backend, options: Arguments of `privopt.dsl.Model.solve`.

    Raises:
        InputError: There are more than `MOST_PAIRS` pairs of a facility and a location.
        SolverError: The solver states a lower cost than its solution has.
    """
    d = np.asarray(distances, dtype=np.float64)
    if d.size > MOST_PAIRS:
        expectation = f"at most {MOST_PAIRS} pairs, for the integer program is solved exactly or not at all"
        raise InputError(
            [Fault("locations", "opening_cost", f"{d.shape[0]} facilities for {d.shape[1]} locations", expectation)]
        )
    f, b = np.asarray(facility_cost, dtype=np.float64), np.asarray(clients, dtype=np.float64)
    solution = facility_location_model(f, b, d, opening_cost).solve(backend, **options)
    # Solvers return binary variables up to a tolerance, so the largest one names the facility.
    facility = np.asarray(np.argmax(solution.value("x"), axis=0), dtype=np.int64)
    capacities = np.array([math.fsum(b[facility == u]) for u in range(len(f))])
    opened_facilities = np.unique(facility)
    parts = [*(f * capacities), *(b * d[facility, np.arange(len(b))])]
    if opening_cost is not None:
        parts += np.asarray(opening_cost, dtype=np.float64)[opened_facilities].tolist()
    objective = math.fsum(parts)
    if objective > solution.objective + 1e-6 * (1.0 + abs(objective)):
        raise SolverError(f"{solution.solver} claims cost {solution.objective!r}, its answer costs {objective!r}")
    return Location(
        facility=facility,
        capacities=capacities,
        opened=opened_facilities,
        objective=objective,
        bound=solution.bound,
        solver=solution.solver,
        status=solution.status,
    )
