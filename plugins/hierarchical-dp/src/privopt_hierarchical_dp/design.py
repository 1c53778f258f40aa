"""The design of a release, fixed before its noise is drawn: from the problem, the method and the regions."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Final

from attrs import evolve, frozen

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.numbers.noise import NoiseRecord
from privopt_hierarchical_dp.bounds import Limits, read_limits
from privopt_hierarchical_dp.fits import qip
from privopt_hierarchical_dp.fits.fit import Fit, FitInput, fit, fit_at_once
from privopt_hierarchical_dp.least_squares import Noise
from privopt_hierarchical_dp.measurements import draw
from privopt_hierarchical_dp.methods import METHODS, Method, Order, level_budgets, order_of, sensitivity
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC, KINDS, NoiseDistribution, Scale
from privopt_hierarchical_dp.problem import HierarchyProblem, Privacy
from privopt_hierarchical_dp.relations import Relation
from privopt_hierarchical_dp.structural_zeros import Zeros, read_zeros, spread
from privopt_hierarchical_dp.totals import added_by_estimates, estimated_totals, rising
from privopt_hierarchical_dp.tree import Tree

__all__ = ["Design", "objective_weights", "refuse_wide"]

LARGEST_SCALE: Final = 1 << 40
PROGRAM_SCALE: Final = 1 << 20
"""Squares of noise of this scale are still exact in doubles, which integer programs are given."""


def objective_weights(given: Sequence[Fraction] | None, budgets: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return weights of the levels: as given, or all 1 as in the paper's models; 0 where nothing is measured.

    Inverse variances measured worse: the constraints bias the leaves (noise below zero is cut off),
    and a heavy weight there carries the sum of the biases up (README has the figures).
    """
    weights = given if given is not None else (Fraction(1),) * len(budgets)
    return tuple(weight if budget else Fraction(0) for weight, budget in zip(weights, budgets, strict=True))


@frozen(kw_only=True, eq=False)
class Design:
    """What is measured with which noise, and what a fit has to keep.

    Attributes:
        problem: what was asked.
        file: its name, for faults.
        method: its name.
        tree: the regions.
        budgets: for each level its part of the budget.
        zeros: sizes that cannot be, and are not measured; None without any.
        limits: public bounds on numbers of groups; None without any.
    """

    problem: HierarchyProblem
    file: str
    method: str
    tree: Tree
    budgets: tuple[Fraction, ...]
    zeros: Zeros | None
    limits: Limits | None

    @classmethod
    def of(cls, problem: HierarchyProblem, method: str, tree: Tree, file: str = "problem.toml") -> Design:
        """Read the public tables, and decide.

        Raises:
            InputError: tables of impossible sizes or bounds that cannot be read.
            InfeasibleError: bounds that clash.
        """
        table = problem.hierarchy
        return cls.from_tables(
            problem,
            method,
            tree,
            zeros=read_zeros(table.impossible, tree, first=table.first_size, last=table.sizes),
            limits=read_limits(table.bounds, tree),
            file=file,
        )

    @classmethod
    def from_tables(
        cls,
        problem: HierarchyProblem,
        method: str,
        tree: Tree,
        *,
        zeros: Zeros | None,
        limits: Limits | None,
        file: str = "problem.toml",
    ) -> Design:
        """Decide, where the public tables were read before."""
        budgets = level_budgets(problem.privacy.budget, method, tree.depth, problem.settings.budget)
        return cls(problem=problem, file=file, method=method, tree=tree, budgets=budgets, zeros=zeros, limits=limits)

    def for_budget(self, problem: HierarchyProblem) -> Design:
        """Return the same for a problem that differs in its budget and its split alone."""
        budgets = level_budgets(problem.privacy.budget, self.method, self.tree.depth, problem.settings.budget)
        return evolve(self, problem=problem, budgets=budgets)

    @property
    def rule(self) -> Method:
        """What the method measures, and what it can keep."""
        return METHODS[self.method]

    @property
    def law(self) -> NoiseDistribution:
        """Of the noise."""
        return self.problem.privacy.law

    @property
    def relation(self) -> Relation:
        """Which inputs are alike."""
        return self.problem.relation

    @property
    def delta(self) -> int:
        """The sensitivity that noise is scaled for."""
        return sensitivity(self.method, self.problem.settings.max_quantity, self.relation)

    @property
    def totals(self) -> bool:
        """Whether every region's number of groups is published exactly."""
        return self.problem.publishes_totals(self.method)

    @property
    def order(self) -> Order:
        """What is measured: counts, or numbers of groups of size s or less, or more."""
        return order_of(self.method, totals=self.totals, relation=self.relation)

    @cached_property
    def scales(self) -> tuple[Scale, ...]:
        """Of each level's noise."""
        return tuple(self.law.scale(budget, self.delta) for budget in self.budgets)

    @cached_property
    def noise(self) -> tuple[Noise, ...]:
        """Moments of each level's noise."""
        return tuple(map(self.law.moments, self.scales))

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """Of the levels in the objective."""
        return objective_weights(self.problem.settings.level_weights, self.budgets)

    @property
    def hides(self) -> bool:
        """Whether something is left to hide: where no region can have two sizes, its number of groups is all."""
        if not self.relation.exact:
            return True
        if self.zeros is None:
            return self.problem.hierarchy.classes > 1
        return bool(((~self.zeros.levels[-1]).sum(axis=1) > 1).any())

    def draw(self, counts: Sequence[Ints], *, seed: int | None) -> tuple[list[Ints], list[NoiseRecord | None]]:
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
            start=self.tree.start,
        )

    def fit(
        self,
        noisy: Sequence[Ints],
        totals: Sequence[Ints],
        *,
        gap: float = 1e-3,
        backend: str = "cbc",
        root: int | None = None,
        at_once: bool = False,
    ) -> Fit:
        """Make consistent counts of noisy values; projections end at the point reached when time is over.

        Args:
            noisy: for each level the noisy values.
            totals: for each level (R_l,) exact numbers of groups, or the root's alone where no others are published;
                none where none is exact: they are estimated then.
            gap: relative gap to stop at.
            backend: of integer programs.
            root: the whole hierarchy's number of groups, where it was estimated before.
            at_once: whether to take the quickest method that gives a release of the same form.
        """
        known, offset, bounded = self.totals, Fraction(0), self.limits is not None
        values, sure = list(noisy), list(totals)
        if not self.relation.exact or (bounded and not known):
            root = int(sure[0][0]) if self.relation.exact else root
            sure = estimated_totals(
                self.tree, values, law=self.law, scales=self.scales, order=self.order, root=root, limits=self.limits
            )
            known = self.order != "counts" or bounded
            if self.order != "counts":
                offset = added_by_estimates(sure, values, self.order, self.weights)
                values = rising(values, sure) if self.order == "more" else [level[:, :-1] for level in values]
        keep, zeros = None, self.zeros
        if zeros is not None:
            keep, zeros = zeros.dropped()
            values = [level[:, keep[: len(keep) - (level.shape[1] < self.relation.classes)]] for level in values]
        asked = FitInput(
            method=self.method,
            tree=self.tree,
            noisy=values,
            zeros=zeros,
            estimated=not self.relation.exact and not bounded,
            total=int(sure[0][0]),
            totals=sure if known else None,
            weights=self.weights,
            noise=self.noise,
            gap=gap,
            backend=backend,
        )
        found = (fit_at_once if at_once else fit)(asked)
        counts = found.counts if keep is None else spread(found.counts, keep, self.relation.classes)
        return evolve(found, counts=counts, offset=offset)

    def check(self) -> None:
        """Refuse what the method cannot do, and noise that there is no room for, before anything is drawn.

        Raises:
            InputError: totals that it must or cannot publish, noise or tables that it was not published with.
            UsageError: an integer program of a size that it cannot take.
        """
        for key, found, wanted in self._faults():
            raise InputError([Fault(self.file, key, found, wanted)])
        if self.rule.program:
            qip.refuse(self.tree, self.relation.classes, self.method, self.rule.program)
        most = PROGRAM_SCALE if self.rule.program else LARGEST_SCALE
        method = self.method if self.rule.program else ""
        for level, budget in enumerate(self.budgets, start=1):
            refuse_wide(
                self.problem.privacy, budget, self.delta, f"level {level}", file=self.file, most=most, method=method
            )

    def _faults(self) -> Sequence[tuple[str, str, str]]:
        """Key, what is there and what is wanted, for everything that the method cannot do."""
        problem, method, rule, relation = self.problem, self.method, self.rule, self.relation
        printed = f"{method} is as it was printed"
        faults = []
        if not self.hides:
            found = f'"{relation.name}" where groups have one size alone: every number of groups would be exact'
            wanted = '"individuals" or "groups", which hide numbers of groups; or groups of two sizes or more'
            faults.append(("privacy.relation", found, wanted))
        if rule.query == "chain":
            if self.law is not GEOMETRIC:
                wanted = f"pure-dp: {printed}, with double geometric noise"
                faults.append(("privacy.kind", problem.privacy.kind, wanted))
            if not relation.exact:
                wanted = f'"sizes": {printed}, with the exact number of groups'
                faults.append(("privacy.relation", f'"{relation.name}"', wanted))
            if not all(self.budgets):
                faults.append(("hierarchical-dp.budget", "a share of 0", f"shares above 0: {printed}"))
            if self.zeros is not None:
                faults.append(("hierarchy.impossible", "a file", f"nothing: {printed}"))
        if self.limits is not None and rule.totals == "never":
            wanted = f"nothing: {method} does not use region totals, which bounds are kept by"
            faults.append(("hierarchy.bounds", "a file", wanted))
        if self.zeros is not None and self.zeros.regional:
            able = ", ".join(name for name, row in METHODS.items() if row.zeros)
            same = f"the same for all regions ({method}, exact region totals, bounds)"
            if not rule.zeros or self.totals or self.limits is not None:
                found = "sizes that differ from region to region"
                faults.append(("hierarchy.impossible", found, f"{same}; without these {able} take others"))
        return [*faults, *self._totals_faults()]

    def _totals_faults(self) -> Sequence[tuple[str, str, str]]:
        asked, key, method = self.problem.settings.region_totals, "hierarchical-dp.region_totals", self.method
        if asked and not self.relation.exact:
            wanted = f'false, or nothing: no number of groups is exact under relation "{self.relation.name}"'
            return [(key, "true", wanted)]
        if asked is False and self.relation.exact and self.rule.totals == "always":
            wanted = f"true, or nothing: {method} publishes every region's number of groups exactly"
            return [(key, "false", wanted)]
        if asked and self.rule.totals == "never":
            return [(key, "true", f"false, or nothing: {method} does not use region totals")]
        return []


def refuse_wide(
    privacy: Privacy,
    budget: Fraction,
    delta: int,
    where: str,
    *,
    file: str,
    most: int = LARGEST_SCALE,
    method: str = "",
) -> None:
    """Refuse one part of a budget whose noise would be wider than ``most``.

    Raises:
        InputError: with the part, where it is spent, and the noise.
    """
    if not budget:
        return
    law, (key, *_) = KINDS[privacy.kind]
    wide = law.wide(budget, delta)
    if wide > law.widest(most):
        found = f"{_short(budget)} of it on {where}: noise of {law.word} {_short(wide)}"
        least = f"a {law.word} of at most {law.widest(most):,}{f' ({method})' * bool(method)}"
        raise InputError([Fault(file, f"privacy.{key}", found, f"{least}: a larger {key}, or a larger share of it")])


def _short(value: Fraction) -> str:
    """Return three digits of a rational that may be no double."""
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.3g}"
