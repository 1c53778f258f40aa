"""Evaluate the bounds of the paper's theorems: coefficients that need no secret, and values at known counts.

Each bound has the form: expected cost <= factor * OPT + additive + additive_per_mean_client * b_avg, with the paper's
margin (which the exact margin never exceeds). OPT is the optimum without privacy, b_v the number of clients of location
v, and b_avg its mean. With m = (2 / epsilon) ln(2 n / alpha), and g the minimum of sqrt|L_v| over the opened facilities
(gamma := g / ln n, so the hypothesis on the balls is not needed):

* Theorem 4 (Algorithm 2, every b_v >= 1): factor 1 + m.
* Theorem 7 (Algorithm 3, every b_v >= 1): factor 1 + m / g, plus delta n (4 b_avg + m / g).
* Section 6.1 (b_v >= 0, f > 0): factor 1 + (m / g) eta / nu, plus 4 delta n b_avg, with nu clients per location and eta
  = fmax / fmin.
* Theorem 11 (b_v >= 1 with probability at least p > 1 / gamma): factor 1 + m / ln n, plus delta n b_avg (4 + m / ln n).
  This is from its proof; the printed statement differs.
* Theorem 13 (b_v >= 1 with constant probability, |L_v| >= gamma^2 ln(n)^3): factor 1 + m / (gamma ln n), plus delta n
  b_avg (4 + m / (gamma ln n)).

Theorems 11 and 13 hold if sqrt|L_v| <= N_v / ln n, or sqrt|L_v| <= N_v / (gamma ln n), at every facility, where N_v is
its number of clients (Theorems 10 and 12: with probability 1 - 1/n for large n). With known counts this event itself is
checked.

Lemma 2's 4 delta for reconnection is 2 delta with the greedy order (`reconnection.reconnect`). The bounds use the
printed 4, and ``reconnection_per_client`` uses 2. "Expected" is over all noise. Given that nothing overflows, the mean
is slightly larger, because an overflow is the event of low noise (with one location and alpha = 0.9, Theorem 4 is
exceeded by 17 %).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt_fl_linear.site import Assignment

__all__ = ["bounds", "values"]

EVERYWHERE = "every location has at least one client"


def bounds(
    *, method: str, n: int, epsilon: float, alpha: float, delta: float, assignment: Assignment
) -> dict[str, Any]:
    """Return the coefficients of every bound that applies to a method, each with its hypothesis, by name.

    Args:
        method: ``"laplace"`` or ``"reconnection"``.
        n: Number of locations.
        epsilon: Privacy budget of one client.
        alpha: Failure probability of the margins.
        delta: Reconnection radius, 0 for ``"laplace"``.
        assignment: The facility that serves each location.
    """
    # m, g and gamma are those of the module's docstring; gamma of Theorem 13 has another power of ln n.
    m = 2.0 / epsilon * math.log(2.0 * n / alpha)
    g = math.sqrt(float(assignment.sizes.min()))
    log_n = math.log(n) if n > 1 else math.nan
    bounds_by_name: dict[str, Any] = {}
    if method == "laplace":
        bounds_by_name["theorem-4"] = _bound(1.0 + m, 0.0, 0.0, EVERYWHERE)
    else:
        bounds_by_name["theorem-7"] = _bound(
            1.0 + m / g, delta * n * m / g, 4.0 * delta * n, EVERYWHERE, gamma=g / log_n
        )
    bounds_by_name["section-6.1"] = {
        "factor_excess_without_eta_over_nu": m / g,
        "additive": 0.0,
        "additive_per_mean_client": 4.0 * delta * n,
        "gamma": g / log_n,
        "hypothesis": "facility costs above 0; factor = 1 + excess * eta / nu, eta = greatest / least facility cost, "
        "nu = clients / locations",
    }
    excess = m / log_n
    bounds_by_name["theorem-11"] = _bound(
        1.0 + excess,
        0.0,
        delta * n * (4.0 + excess),
        "a location has a client with probability p > 1/gamma, independently; n large; with probability 1 - 1/n",
        gamma=g / log_n,
    )
    gamma = g / log_n**1.5
    excess = m / (gamma * log_n)
    bounds_by_name["theorem-13"] = _bound(
        1.0 + excess,
        0.0,
        delta * n * (4.0 + excess),
        "a location has a client with constant probability, independently; n large; with probability 1 - 1/n",
        gamma=gamma,
    )
    return bounds_by_name


def _bound(factor: float, additive: float, per_client: float, hypothesis: str, gamma: float | None = None) -> Any:
    """Return the coefficients of a bound as a dictionary.

    Args:
        factor: Factor of the optimum.
        additive: Term that does not depend on the counts.
        per_client: Factor of the mean count.
        hypothesis: The condition of the bound, in words.
        gamma: The theorem's gamma, if it has one.
    """
    bound: dict[str, Any] = {"factor": factor, "additive": additive, "additive_per_mean_client": per_client}
    if gamma is not None:
        bound["gamma"] = gamma
    return bound | {"hypothesis": hypothesis}


def values(
    bounds_by_name: dict[str, Any],
    *,
    counts: NDArray[Any],
    cost: Floats,
    optimum: float,
    assignment: Assignment,
    served: Floats,
) -> dict[str, Any]:
    """Return nu, eta, the value of each bound, and whether its hypothesis holds. The true counts make this secret.

    Args:
        bounds_by_name: The coefficients from `bounds`.
        counts: (n,) true counts.
        cost: (n,) facility cost of one client at each location.
        optimum: Cost of Algorithm 1 at the true counts.
        assignment: The facility that serves each location.
        served: (m,) true counts N_v of each opened facility.
    """
    n = len(counts)
    mean = float(np.mean(counts))
    min_cost = float(cost.min())
    eta = float(cost.max()) / min_cost if min_cost > 0 else math.inf
    everywhere = bool((counts >= 1).all())
    root = np.sqrt(assignment.sizes)
    log_n = math.log(n) if n > 1 else math.nan
    findings: dict[str, Any] = {
        "mean_clients": mean,
        "nu": mean,
        "eta": eta,
        "empty_locations": int((counts == 0).sum()),
    }
    for name, bound in bounds_by_name.items():
        if name == "section-6.1":
            factor = 1.0 + bound["factor_excess_without_eta_over_nu"] * (eta / mean if mean > 0 else math.inf)
            applies = mean > 0 and min_cost > 0
        else:
            factor = bound["factor"]
            applies = everywhere
        if name == "theorem-11":
            applies = bool((root * log_n <= served).all())
        elif name == "theorem-13":
            applies = bool((root * bound["gamma"] * log_n <= served).all())
        added = bound["additive"] + bound["additive_per_mean_client"] * mean
        findings[name] = {"applies": applies, "factor": factor, "value": factor * optimum + added if applies else None}
    return findings
