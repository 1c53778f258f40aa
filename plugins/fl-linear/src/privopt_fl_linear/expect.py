"""What privacy will cost, before anybody reports: expected costs over epsilon and alpha, from public data alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import evolve, frozen

from privopt.errors import Fault, InputError
from privopt.interfaces import SolveContext
from privopt_fl_linear.algorithms import Assignment, served
from privopt_fl_linear.delta import candidates, grid
from privopt_fl_linear.location import spent
from privopt_fl_linear.margins import AnySet, MarginRule
from privopt_fl_linear.plans import assigned_at, base_of, mean_of
from privopt_fl_linear.problem import FLInstance
from privopt_fl_linear.server import costs

__all__ = ["Expected", "expected_costs"]


@frozen(kw_only=True)
class Expected:
    """What one choice of epsilon and alpha costs.

    Attributes:
        epsilon: budget of a client.
        alpha: failure probability.
        method: ``"laplace"``, or ``"reconnection"`` at its cheapest radius of the public grid (or the one stated).
        delta: that radius; None where capacity bounds leave the choice to the noisy counts.
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


def expected_costs(problem: FLInstance, epsilons: Sequence[Fraction], alphas: Sequence[float]) -> list[Expected]:
    """Expected costs of both private methods at every epsilon and alpha.

    Noise has mean 0 and margins are public, so the expected cost is that of the margins and of the mean counts; that
    capacities are cut at 0 is left out, which matters only where margins pass the counts.

    Args:
        problem: with ``mean_clients``; counts are not read.
        epsilons: budgets.
        alphas: failure probabilities.

    Raises:
        InputError: no ``mean_clients``. InfeasibleError: capacity bounds that no plan keeps at the mean counts.
    """
    if problem.declared.settings.mean_clients is None:
        wanted = "the mean count, as the public knows it: what the costs are expected at"
        raise InputError([Fault("problem", "fl-linear.mean_clients", "nothing", wanted)])
    site, asked = problem.data.site, problem.declared.settings.delta
    mean, share = mean_of(problem), 0.5 if problem.bounded else 1.0
    base, _ = base_of(problem, SolveContext(method="laplace"))
    radii = grid(site.metric.extent) if asked == "auto" else (0.0, float(asked))
    plans = candidates(site.metric, site.cost, site.rank, base, radii, problem.rule, 0.5)
    opening = [0.0 if site.opening is None else math.fsum(site.opening[c.assignment.opened]) for c in plans]
    if problem.bounded:  # the least that a plan which need not hide anything costs
        openly = _within(problem, AnySet(start=0.0, slope=0.0))[0]
    else:
        openly = mean * plans[0].slope + opening[0]
    found = []
    for epsilon in epsilons:
        rule: MarginRule = evolve(problem.rule, epsilon=float(spent(epsilon)))
        for alpha in alphas:
            priced: list[tuple[float, float, float | None]] = []
            for choice, fixed in zip(plans, opening, strict=True):
                added = rule.of(choice.assignment, site.cost, share * alpha)
                margin = math.fsum(added * site.cost[choice.assignment.opened])
                fits = site.capacity is None or bool(
                    (mean * choice.assignment.sizes + added <= site.capacity[choice.assignment.opened]).all()
                )
                priced.append((margin + mean * choice.slope + fixed if fits else math.inf, margin, choice.delta))
            for method, options in (
                ("laplace", priced[:1]),
                ("reconnection", priced if asked == "auto" else priced[-1:]),
            ):
                cost, margin, delta = min(options, key=lambda option: option[0])
                if math.isinf(cost):
                    line = rule.any_set(site.connected(), site.cost, share * alpha)
                    cost, margin = _within(problem, line)
                    delta = None
                found.append(
                    Expected(
                        epsilon=epsilon,
                        alpha=alpha,
                        method=method,
                        delta=delta,
                        margin=margin,
                        cost=cost,
                        relative=cost / openly if openly > 0 else math.inf,
                    )
                )
    return found


def _within(problem: FLInstance, line: AnySet) -> tuple[float, float]:
    """Cost, and cost of the margins, of the plan within the capacity bounds where every location has the mean."""
    site = problem.data.site
    means = np.full(site.size, mean_of(problem))
    plan = Assignment.of(assigned_at(means, problem, SolveContext(method="laplace", gap=1e-3), line).facility)
    added = line.margins(plan.sizes)
    cost = costs(site, plan, served(plan, means) + added, means)["total"]
    return cost, math.fsum(added * site.cost[plan.opened])
