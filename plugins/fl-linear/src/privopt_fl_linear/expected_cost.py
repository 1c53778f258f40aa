"""Expected costs over epsilon and alpha, from public data alone, before any report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import evolve, frozen

from privopt.errors import Fault, InputError
from privopt.interfaces import SolveContext
from privopt_fl_linear.location import spent
from privopt_fl_linear.problem import FLInstance
from privopt_fl_linear.serve import NO_MARGIN, choose_facilities, serve
from privopt_fl_linear.site import Assignment, cost_parts, sum_counts

__all__ = ["ExpectedCost", "expected_costs"]

GAP = 1e-3
"""Relative gap that programs are solved to."""


@frozen(kw_only=True)
class ExpectedCost:
    """The cost of one method at one epsilon and alpha.

    Attributes:
        epsilon: budget of a client.
        alpha: failure probability.
        method: ``"laplace"`` or ``"reconnection"``.
        delta: the radius; None where the plan is the reports'.
        margin: cost of the margins.
        cost: of capacity, connection and opening in all, where every location has the mean count.
        relative: cost over that of the plan without privacy.
    """

    epsilon: Fraction
    alpha: float
    method: str
    delta: float | None
    margin: float
    cost: float
    relative: float


def expected_costs(problem: FLInstance, epsilons: Sequence[Fraction], alphas: Sequence[float]) -> list[ExpectedCost]:
    """Return the expected costs of both private methods at every epsilon and alpha.

    Noise has mean 0 and margins are public, so the expected cost of a public plan is its cost at the mean counts. That
    capacities are cut at 0 is omitted, which matters only where margins pass the counts.

    Args:
        problem: with ``mean_clients``; counts are not read.
        epsilons: budgets.
        alphas: failure probabilities.

    Raises:
        InputError: no ``mean_clients``. InfeasibleError: capacity bounds that no plan keeps at the mean counts.
    """
    mean = problem.declared.settings.mean_clients
    if mean is None:
        wanted = "the mean count, as the public knows it: what the costs are expected at"
        raise InputError([Fault(problem.file, "fl-linear.mean_clients", "nothing", wanted)])
    site = problem.data.site
    counts = np.where(np.isin(np.arange(site.size), site.senders), mean, 0.0)
    found, openly = [], _cost_openly(problem, counts)
    for epsilon in epsilons:
        for alpha in alphas:
            for method in ("laplace", "reconnection"):
                server = problem.server(method)
                server = evolve(server, alpha=alpha, rule=evolve(server.rule, epsilon=float(spent(epsilon))))
                plan = serve(server, counts, SolveContext(method=method, gap=GAP)).plan
                cost = plan.costs(site, counts)["total"]
                found.append(
                    ExpectedCost(
                        epsilon=epsilon,
                        alpha=alpha,
                        method=method,
                        delta=plan.delta,
                        margin=math.fsum(plan.margins * site.cost[plan.assignment.opened]),
                        cost=cost,
                        relative=cost / openly if openly > 0 else math.inf,
                    )
                )
    return found


def _cost_openly(problem: FLInstance, counts: np.ndarray) -> float:
    """Return the cost of the plan without privacy at the counts."""
    site, server = problem.data.site, problem.server("laplace")
    assignment = site.connect()
    if not problem.nearest:
        context = SolveContext(method="optimal", gap=GAP)
        chosen = choose_facilities(server, counts, NO_MARGIN, context, phase="facilities by the mean count")
        assignment = Assignment.from_facilities(chosen.facility)
    return cost_parts(site, assignment, sum_counts(assignment, counts), counts)["total"]
