"""What is decided of a release before its noise is drawn: once, from the problem, the method and the regions."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from attrs import evolve, frozen

from privopt.arrays import Ints
from privopt.numbers.noise import NoiseRecord
from privopt_hierarchical_dp.bounds import Limits, limits_of
from privopt_hierarchical_dp.laws import Law
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.methods import METHODS, Method, draw, level_budgets, order_of, sensitivity
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.public_tables import zeros_of
from privopt_hierarchical_dp.relations import Relation
from privopt_hierarchical_dp.tree import Tree
from privopt_hierarchical_dp.zeros import Order, Zeros

__all__ = ["Design", "objective_weights", "publishes_totals"]


def publishes_totals(problem: HierarchyProblem, method: str) -> bool:
    """Whether a method publishes every region's total for this problem."""
    rule = METHODS[method].totals
    if not problem.relation.exact:
        return False
    return rule == "always" or (rule == "option" and bool(problem.settings.region_totals))


def objective_weights(given: Sequence[Fraction] | None, depth: int) -> tuple[Fraction, ...]:
    """Weights of the levels: as given, or all 1 as in the paper's models.

    Inverse variances measured worse: the constraints bias the leaves (noise below zero is cut off),
    and a heavy weight there carries the sum of the biases up (README has the figures).
    """
    return tuple(given) if given is not None else (Fraction(1),) * depth


@frozen(kw_only=True, eq=False)
class Design:
    """What is measured with which noise, and what a fit has to keep.

    Attributes:
        problem: what was asked.
        method: its name.
        tree: the regions.
        law: of the noise.
        relation: which inputs are alike.
        budgets: for each level its part of the budget.
        delta: the sensitivity that noise is scaled for.
        totals: whether every region's number of groups is published exactly.
        zeros: sizes that cannot be, and are not measured; None without any.
        limits: public bounds on numbers of groups; None without any.
    """

    problem: HierarchyProblem
    method: str
    tree: Tree
    law: Law
    relation: Relation
    budgets: tuple[Fraction, ...]
    delta: int
    totals: bool
    zeros: Zeros | None
    limits: Limits | None

    @classmethod
    def of(cls, problem: HierarchyProblem, method: str, tree: Tree) -> Design:
        """Read the public tables, and decide.

        Raises:
            InputError: tables of impossible sizes or bounds that cannot be read.
            InfeasibleError: bounds that clash.
        """
        zeros, limits = zeros_of(problem, tree), limits_of(problem.hierarchy.bounds, tree)
        return cls.from_tables(problem, method, tree, zeros=zeros, limits=limits)

    @classmethod
    def from_tables(
        cls, problem: HierarchyProblem, method: str, tree: Tree, *, zeros: Zeros | None, limits: Limits | None
    ) -> Design:
        """Decide, where the public tables were read before."""
        settings, relation = problem.settings, problem.relation
        return cls(
            problem=problem,
            method=method,
            tree=tree,
            law=problem.privacy.law,
            relation=relation,
            budgets=level_budgets(problem.privacy.budget, method, tree.depth, settings.budget),
            delta=sensitivity(method, settings.max_quantity, relation),
            totals=publishes_totals(problem, method),
            zeros=zeros,
            limits=limits,
        )

    def for_budget(self, problem: HierarchyProblem) -> Design:
        """Return the same for a problem that differs in its budget and its split alone."""
        budgets = level_budgets(problem.privacy.budget, self.method, self.tree.depth, problem.settings.budget)
        return evolve(self, problem=problem, budgets=budgets)

    @property
    def rule(self) -> Method:
        """What the method measures, and what it can keep."""
        return METHODS[self.method]

    @property
    def order(self) -> Order:
        """What is measured: counts, or numbers of groups of size s or less, or more."""
        return order_of(self.method, totals=self.totals, relation=self.relation)

    @property
    def scales(self) -> list[Fraction]:
        """Of each level's noise."""
        return [self.law.scale(budget, self.delta) for budget in self.budgets]

    @property
    def noise(self) -> tuple[Noise, ...]:
        """Moments of each level's noise."""
        return tuple(self.law.moments(scale) for scale in self.scales)

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """Of the levels in the objective."""
        return objective_weights(self.problem.settings.level_weights, self.tree.depth)

    def draw(self, counts: Sequence[Ints], *, seed: int | None) -> tuple[list[Ints], list[NoiseRecord]]:
        """Measure every level (R_l, N) of true counts with noise: the only step that reads them."""
        return draw(
            self.method,
            counts,
            self.budgets,
            totals=self.totals,
            most=self.problem.settings.max_quantity,
            seed=seed,
            law=self.law,
            relation=self.relation,
            zeros=self.zeros,
        )
