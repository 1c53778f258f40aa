"""One instance, many settings: what the experiments and the tests of the promise are made of.

Experiments are seeded, so the noise comes from NumPy's generator: what they compute is no release.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats
from privopt_fl_linear.margins import Kind, MarginRule
from privopt_fl_linear.plan import add_margins
from privopt_fl_linear.reconnection import Candidate, Policy, choose_policy, list_radii, reconnect
from privopt_fl_linear.site import Assignment, Site, connection_cost, sum_counts

__all__ = ["Setting", "Trial", "draw_noise"]

KINDS: tuple[Kind, ...] = ("paper", "exact")


def draw_noise(rng: np.random.Generator, n: int, epsilon: float) -> Any:
    """Return (n,) discrete Laplace draws of scale 1 / epsilon, seeded."""
    success = -math.expm1(-epsilon)
    return rng.geometric(success, n) - rng.geometric(success, n)


@frozen(kw_only=True)
class Setting:
    """Privacy budget and failure probability of one run."""

    epsilon: float = 0.1
    alpha: float = 0.1

    def rule(self, n: int, kind: Kind) -> MarginRule:
        """Return the margins of one kind."""
        return MarginRule(n=n, epsilon=self.epsilon, kind=kind)


@frozen(kw_only=True, eq=False)
class Trial:
    """An instance with its connections, ready to be priced under many settings.

    Attributes:
        site: the locations.
        deltas: reconnection radii; None stands for Algorithm 2.
        assignments: the connection of each.
    """

    site: Site
    deltas: tuple[float | None, ...]
    assignments: tuple[Assignment, ...]
    _added: dict[Any, Floats] = field(factory=dict, repr=False)

    @classmethod
    def of(cls, site: Site, deltas: Sequence[float | None]) -> Trial:
        """Compute the connections."""
        base = site.connect()
        connections = tuple(base if d is None else reconnect(site, base, d) for d in deltas)
        return cls(site=site, deltas=tuple(deltas), assignments=connections)

    @property
    def base(self) -> Assignment:
        """Algorithm 1's connection."""
        for delta, assignment in zip(self.deltas, self.assignments, strict=True):
            if delta is None:
                return assignment
        return self.site.connect()

    def optimum(self, counts: Any) -> float:
        """Cost of Algorithm 1 at the true counts."""
        base = self.base
        capacity = math.fsum(sum_counts(base, counts) * self.site.cost[base.opened])
        return capacity + connection_cost(self.site.metric, base, counts)

    def margins(self, connection: int, kind: Kind, setting: Setting, level: float | None = None) -> Floats:
        """Margins of one connection, kept."""
        alpha = setting.alpha if level is None else level
        key = connection, kind, setting, alpha
        if key not in self._added:
            rule = setting.rule(self.site.size, kind)
            self._added[key] = rule.margins(self.assignments[connection].sizes, alpha)
        return self._added[key]

    def price(self, counts: Any, noise: Any, setting: Setting) -> Any:
        """Price every connection with both margins.

        Returns (connections, 2, 2): by margin (paper, exact) the normalised cost at the true counts and whether some
        facility overflows.
        """
        optimum = self.optimum(counts)
        prices = np.empty((len(self.assignments), len(KINDS), 2))
        for index, assignment in enumerate(self.assignments):
            true, lost = sum_counts(assignment, counts), sum_counts(assignment, noise)
            connection = connection_cost(self.site.metric, assignment, counts)
            cost = self.site.cost[assignment.opened]
            for margin_number, kind in enumerate(KINDS):
                capacity = add_margins(true + lost, self.margins(index, kind, setting))
                total = math.fsum(capacity * cost) + connection
                prices[index, margin_number] = total / optimum if optimum > 0 else math.nan, (true > capacity).any()
        return prices

    def auto(self, setting: Setting) -> tuple[Policy, list[Candidate]]:
        """Return the rule by which ``delta = "auto"`` chooses here, with exact margins, and all its candidates."""
        rule = setting.rule(self.site.size, "exact")
        choices = list_radii(self.site, self.base, rule, setting.alpha)
        return choose_policy(choices, rule, setting.alpha), choices

    def price_auto(self, chooser: Policy, counts: Any, noise: Any, setting: Setting) -> tuple[float, bool]:
        """Normalised cost and overflow of ``auto``."""
        choice = chooser.choose_radius(float(counts.sum() + noise.sum()))
        rule = setting.rule(self.site.size, "exact")
        added = rule.margins(choice.assignment.sizes, chooser.level)
        true = sum_counts(choice.assignment, counts)
        capacity = add_margins(true + sum_counts(choice.assignment, noise), added)
        total = math.fsum(capacity * self.site.cost[choice.assignment.opened])
        total += connection_cost(self.site.metric, choice.assignment, counts)
        return total / self.optimum(counts), bool((true > capacity).any())
