"""What privacy will cost, before anybody reports: expected costs over epsilon and alpha, from public data alone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from attrs import evolve, frozen

from privopt.errors import Fault, InputError
from privopt.interfaces import SolveContext
from privopt_fl_linear.delta import candidates, grid
from privopt_fl_linear.location import spent
from privopt_fl_linear.margins import MarginRule
from privopt_fl_linear.plans import base_of, mean_of
from privopt_fl_linear.problem import FLInstance

__all__ = ["Expected", "expected_costs"]


@frozen(kw_only=True)
class Expected:
    """What one choice of epsilon and alpha costs.

    Attributes:
        epsilon: budget of a client.
        alpha: failure probability.
        method: ``"laplace"``, or ``"reconnection"`` at its cheapest radius of the public grid (or the one stated).
        delta: that radius.
        margin: cost of the margins.
        cost: of capacity, connection and opening in all, where every location has the mean count.
        relative: cost over that of the plan without privacy.
    """

    epsilon: Fraction
    alpha: float
    method: str
    delta: float
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
        InputError: no ``mean_clients``.
    """
    if problem.declared.settings.mean_clients is None:
        wanted = "the mean count, as the public knows it: what the costs are expected at"
        raise InputError([Fault("problem", "fl-linear.mean_clients", "nothing", wanted)])
    site, asked = problem.data.site, problem.declared.settings.delta
    mean = mean_of(problem)
    base, _ = base_of(problem, SolveContext(method="laplace"))
    radii = grid(site.metric.extent) if asked == "auto" else (0.0, float(asked))
    choices = candidates(site.metric, site.cost, site.rank, base, radii, problem.rule, 0.5)
    opening = [0.0 if site.opening is None else math.fsum(site.opening[c.assignment.opened]) for c in choices]
    openly = mean * choices[0].slope + opening[0]
    found = []
    for epsilon in epsilons:
        rule: MarginRule = evolve(problem.rule, epsilon=float(spent(epsilon)))
        for alpha in alphas:
            margins = [
                math.fsum(rule.of(c.assignment, site.cost, alpha) * site.cost[c.assignment.opened]) for c in choices
            ]
            costs = [m + mean * c.slope + o for m, c, o in zip(margins, choices, opening, strict=True)]
            best = int(np.argmin(costs)) if asked == "auto" else len(choices) - 1
            for method, place in (("laplace", 0), ("reconnection", best)):
                cost = costs[place]
                found.append(
                    Expected(
                        epsilon=epsilon,
                        alpha=alpha,
                        method=method,
                        delta=choices[place].delta,
                        margin=margins[place],
                        cost=cost,
                        relative=cost / openly if openly > 0 else math.inf,
                    )
                )
    return found
