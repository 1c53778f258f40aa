"""Price the plans of one instance in many settings, for the experiments and for tests of the failure probability.

Experiments are seeded, and their noise comes from NumPy's generator, so their results are not releases.
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
"""Kinds of margins, in the order of the results."""


def draw_noise(rng: np.random.Generator, n: int, epsilon: float) -> Any:
    """Return (n,) discrete Laplace draws of scale 1 / epsilon, seeded."""
    # The difference of two geometric draws with this success probability is a discrete Laplace draw.
    success = -math.expm1(-epsilon)
    return rng.geometric(success, n) - rng.geometric(success, n)


@frozen(kw_only=True)
class Setting:
    """The privacy budget and the failure probability of a run.

    Attributes:
        epsilon: Budget of one client at one location.
        alpha: Probability that some capacity may be too small.
    """

    epsilon: float = 0.1
    alpha: float = 0.1

    def rule(self, n: int, kind: Kind) -> MarginRule:
        """Return the rule that computes margins of a kind for n locations."""
        return MarginRule(n=n, epsilon=self.epsilon, kind=kind)


@frozen(kw_only=True, eq=False)
class Trial:
    """An instance with its assignments, whose plans are priced in many settings.

    Attributes:
        site: The locations.
        deltas: Reconnection radii. None stands for Algorithm 2.
        assignments: The assignment of each radius.
    """

    site: Site
    deltas: tuple[float | None, ...]
    assignments: tuple[Assignment, ...]
    _added: dict[Any, Floats] = field(factory=dict, repr=False)

    @classmethod
    def of(cls, site: Site, deltas: Sequence[float | None]) -> Trial:
        """Compute the assignment of each reconnection radius (None for Algorithm 2)."""
        base = site.connect()
        connections = tuple(base if d is None else reconnect(site, base, d) for d in deltas)
        return cls(site=site, deltas=tuple(deltas), assignments=connections)

    @property
    def base(self) -> Assignment:
        """The assignment of Algorithm 1, which is also that of Algorithm 2."""
        for delta, assignment in zip(self.deltas, self.assignments, strict=True):
            if delta is None:
                return assignment
        return self.site.connect()

    def optimum(self, counts: Any) -> float:
        """Return the cost of Algorithm 1, without privacy, at the true counts (n,)."""
        base = self.base
        capacity = math.fsum(sum_counts(base, counts) * self.site.cost[base.opened])
        return capacity + connection_cost(self.site.metric, base, counts)

    def margins(self, connection: int, kind: Kind, setting: Setting, level: float | None = None) -> Floats:
        """Return the margins (m,) of an assignment's facilities, which are computed once.

        Args:
            connection: Index of the assignment.
            kind: Kind of margin.
            setting: Epsilon and the failure probability.
            level: Another failure probability. None for that of the setting.
        """
        alpha = setting.alpha if level is None else level
        key = connection, kind, setting, alpha
        if key not in self._added:
            rule = setting.rule(self.site.size, kind)
            self._added[key] = rule.margins(self.assignments[connection].sizes, alpha)
        return self._added[key]

    def price(self, counts: Any, noise: Any, setting: Setting) -> Any:
        """Price the plan of every assignment with both margins.

        Args:
            counts: (n,) true counts.
            noise: (n,) noise that is added to them.
            setting: Epsilon and the failure probability.

        Returns:
            (assignments, 2, 2) for each margin (paper, exact) the cost at the true counts, divided by the optimum
            without privacy, and whether some facility overflows (1 or 0).
        """
        optimum = self.optimum(counts)
        prices = np.empty((len(self.assignments), len(KINDS), 2))
        for index, assignment in enumerate(self.assignments):
            true, facility_noise = sum_counts(assignment, counts), sum_counts(assignment, noise)
            connection = connection_cost(self.site.metric, assignment, counts)
            cost = self.site.cost[assignment.opened]
            for margin_number, kind in enumerate(KINDS):
                capacity = add_margins(true + facility_noise, self.margins(index, kind, setting))
                total = math.fsum(capacity * cost) + connection
                prices[index, margin_number] = total / optimum if optimum > 0 else math.nan, (true > capacity).any()
        return prices

    def auto(self, setting: Setting) -> tuple[Policy, list[Candidate]]:
        """Return the rule by which delta = "auto" chooses a radius, with exact margins, and all candidate radii."""
        rule = setting.rule(self.site.size, "exact")
        choices = list_radii(self.site, self.base, rule, setting.alpha)
        return choose_policy(choices, rule, setting.alpha), choices

    def price_auto(self, chooser: Policy, counts: Any, noise: Any, setting: Setting) -> tuple[float, bool]:
        """Price the plan of delta = "auto".

        Args:
            chooser: The rule that maps the noisy total to a radius.
            counts: (n,) true counts.
            noise: (n,) noise that is added to them.
            setting: Epsilon and the failure probability.

        Returns:
            The cost at the true counts, divided by the optimum without privacy, and whether some facility overflows.
        """
        choice = chooser.choose_radius(float(counts.sum() + noise.sum()))
        rule = setting.rule(self.site.size, "exact")
        added = rule.margins(choice.assignment.sizes, chooser.level)
        true = sum_counts(choice.assignment, counts)
        capacity = add_margins(true + sum_counts(choice.assignment, noise), added)
        total = math.fsum(capacity * self.site.cost[choice.assignment.opened])
        total += connection_cost(self.site.metric, choice.assignment, counts)
        return total / self.optimum(counts), bool((true > capacity).any())
