"""The design of hierarchical-dp: one table of groups by size, with the queries, fits and checks of its methods."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isfinite
from typing import Any, Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.bounds import Limits, read_limits
from privopt_hierarchical_dp.design import DEFAULT, Design, FitOptions
from privopt_hierarchical_dp.fits import qip
from privopt_hierarchical_dp.fits.as_published import chain_query
from privopt_hierarchical_dp.fits.fit import Fit, FitInput, fit, fit_at_once
from privopt_hierarchical_dp.forecast import errors_of_counts, errors_of_cumulative, leaves_alone
from privopt_hierarchical_dp.least_squares import UNMEASURED, Ends, Noise, intervals
from privopt_hierarchical_dp.methods import (
    METHODS,
    Method,
    Order,
    default_shares,
    order_of,
    sensitivity,
)
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.relations import SIZES, Relation
from privopt_hierarchical_dp.release import NOISY, HierarchyRelease, Tables, violations
from privopt_hierarchical_dp.shares import normalize_shares
from privopt_hierarchical_dp.totals import added_by_estimates, estimated_totals, to_cumulative, total_complaint
from privopt_hierarchical_dp.tree import Tree

__all__ = ["SizesDesign", "compute_query", "objective_weights"]

BOUNDS: Final = {
    True: " Bounds on numbers of groups are public; inputs that contradict them are refused, with all that are alike.",
    False: " Bounds on numbers of groups are public; releases are moved into them, whether or not the input is within.",
}
"""Sentences on public bounds, by whether all neighbouring inputs have the same numbers of groups."""
PROGRAM_SCALE: Final = 1 << 20
"""Widest noise for integer programs: squares of noise of this scale are still exact in doubles."""


def objective_weights(given_weights: Sequence[Fraction] | None, budgets: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return the weights of the levels: as given, or all 1 as in the paper's models; 0 for unmeasured levels.

    Inverse variances gave larger errors in experiments. Counts cannot be negative, so a fit cuts off noise below zero
    and is biased upwards. A heavy weight of the leaves carries the sum of these biases up the tree (README has the
    figures).
    """
    weights = given_weights if given_weights is not None else (Fraction(1),) * len(budgets)
    return tuple(weight if budget else Fraction(0) for weight, budget in zip(weights, budgets, strict=True))


def compute_query(method: str, counts: Sequence[Ints], *, totals: bool, relation: Relation = SIZES) -> list[Ints]:
    """Compute the values to which noise is added: counts, cumulative counts or the published chain, for each level.

    Cumulative counts are those of groups of size s or less. If no number of groups is public, they are those of size s
    or more, because a new group would change all of the former.

    Args:
        method: The name of the method.
        counts: For each level (R_l, N) the true counts.
        totals: Whether the regions' totals are published exactly. Size N then needs no noise: (R_l, N - 1).
        relation: The neighbouring relation.
    """
    query = METHODS[method].query
    if query == "counts":
        return [np.asarray(level, dtype=np.int64) for level in counts]
    if query == "chain":
        return chain_query(counts)
    if not relation.exact:
        return [np.cumsum(np.asarray(level)[:, ::-1], axis=1, dtype=np.int64)[:, ::-1].copy() for level in counts]
    cumulative = [np.cumsum(level, axis=1, dtype=np.int64) for level in counts]
    return [np.ascontiguousarray(level[:, :-1]) for level in cumulative] if totals else cumulative


@frozen(kw_only=True, eq=False)
class SizesDesign(Design):
    """The design of a release by a method of hierarchical-dp."""

    problem: HierarchyProblem
    totals: bool
    """Whether every region's number of groups is published exactly."""

    @classmethod
    def of(
        cls,
        problem: HierarchyProblem,
        method: str,
        tree: Tree,
        file: str = "problem.toml",
        limits: Limits | None = None,
    ) -> SizesDesign:
        """Make the design of a method.

        Args:
            problem: The declared problem.
            method: The name of the method.
            tree: The regions.
            file: The name of the problem file, for faults.
            limits: The public bounds, if they were read before; else they are read.

        Raises:
            InputError: The table of bounds cannot be read.
            InfeasibleError: The bounds contradict one another.
        """
        table, settings, relation, rule = problem.hierarchy, problem.settings, problem.relation, METHODS[method]
        wants_totals = rule.totals == "always" or (rule.totals == "option" and bool(settings.region_totals))
        totals = relation.exact and wants_totals
        promise = relation.statement(
            totals=totals,
            max_quantity=settings.max_quantity,
            kind=problem.privacy.kind,
            listed=table.regions is not None,
        )
        noun = "unit" if relation.vacant else "group"
        query_name = "counts" if rule.query == "counts" else "cumulative counts"
        total_sentence = f"The number of all {noun}s is exact." if relation.exact else f"No number of {noun}s is exact."
        all_totals_sentence = f"Every region's number of {noun}s is exact."
        return cls(
            problem=problem,
            file=file,
            method=method,
            tree=tree,
            limits=limits or read_limits(table.bounds, tree),
            split=(normalize_shares(settings.budget or default_shares(method, tree.depth)), (Fraction(1),)),
            delta=sensitivity(method, settings.max_quantity, relation),
            totals=totals,
            exact=tree.depth if totals else int(relation.exact),
            hides=not relation.exact or table.classes > 1,
            valid=rule.valid,
            statement=promise + BOUNDS[relation.exact] * (table.bounds is not None),
            claimed={"region_totals_exact": totals},
            in_words=(
                f"{query_name} of {noun}s by size in every region",
                all_totals_sentence if totals else total_sentence,
            ),
            parts=tuple(f"level {level} ({width})" for level, width in enumerate(tree.widths, start=1)),
        )

    def with_method(self, method: str) -> SizesDesign:
        """Return the design of another method for the same problem."""
        is_same_method = method == self.method
        return self if is_same_method else SizesDesign.of(self.problem, method, self.tree, self.file, self.limits)

    @property
    def rule(self) -> Method:
        """The method's entry: its query, its fit and what it can keep."""
        return METHODS[self.method]

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return self.problem.relation

    @property
    def order(self) -> Order:
        """The meaning of the measured columns: counts, or numbers of groups of size s or less, or more."""
        return order_of(self.method, totals=self.totals, relation=self.relation)

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """The weights of the levels in the loss."""
        if self.rule.query == "chain":
            return (Fraction(1),) * self.tree.depth
        return objective_weights(self.problem.settings.level_weights, self.budgets[0])

    def compute_queries(self, counts: Tables) -> Tables:
        """Compute counts, cumulative counts or the published chain, as the method measures them."""
        return [compute_query(self.method, counts[0], totals=self.totals, relation=self.relation)]

    def real_loss(self, release: HierarchyRelease) -> Fraction:
        """Return the exact privacy loss of one change; in the published chain it touches every region of a level."""
        if self.rule.query != "chain":
            return super().real_loss(release)
        # One change of the chain changes as many entries of a level as it has regions; the noise is for one of them.
        parts = zip(self.budgets[0], self.tree.widths, strict=True)
        return sum((budget * width for budget, width in parts), Fraction(0))

    def fit(
        self,
        noisy: Tables,
        totals: Sequence[Ints],
        how: FitOptions = DEFAULT,
        *,
        root: int | None = None,
    ) -> Fit:
        """Fit by the method. Numbers of groups that are not public are estimated from the noisy values first.

        Args:
            noisy, totals, how: As for every design.
            root: The whole hierarchy's number of groups, if it was estimated before.
        """
        has_totals, offset, has_limits = self.totals, Fraction(0), self.limits is not None
        values, group_totals = list(noisy[0]), list(totals)
        if not self.relation.exact or (has_limits and not has_totals):
            root = int(group_totals[0][0]) if self.relation.exact else root
            scales, limits = self.scales[0], self.limits
            group_totals = estimated_totals(
                self.tree, values, law=self.law, scales=scales, order=self.order, root=root, limits=limits
            )
            has_totals = self.order != "counts" or has_limits
            if self.order != "counts":
                # The estimated totals take the place of the measured ones, at a distance from these that no fit can
                # change: it is added to the fit's bound, since the loss includes it.
                offset = added_by_estimates(group_totals, values, self.order, self.weights)
                values = (
                    to_cumulative(values, group_totals) if self.order == "more" else [level[:, :-1] for level in values]
                )
        fit_input = FitInput(
            method=self.method,
            tree=self.tree,
            noisy=values,
            estimated=not self.relation.exact and not has_limits,
            total=int(group_totals[0][0]),
            totals=group_totals if has_totals else None,
            weights=self.weights,
            noise=tuple(self.noise_of(self.scales)[0]),
            gap=how.gap,
            backend=how.backend,
        )
        fitted: Fit = (fit_at_once if how.at_once else fit)(fit_input)
        fit_bound = fitted.lower_bound
        bound = None if fit_bound is None or not isfinite(fit_bound) else Fraction(fit_bound) + offset
        return evolve(fitted, counts=[fitted.counts], lower_bound=bound)

    def bound(self, release: HierarchyRelease, how: FitOptions) -> tuple[Fraction | float | None, bool]:
        """Fit the noisy values once more; return the lower bound on the loss, and whether it is reached."""
        # The released root is used, so that rounding a half the other way cannot change the bound.
        root = int(release.counts[0][0].sum())
        fitted = self.fit(release.noisy, release.totals, how, root=root)
        return fitted.lower_bound, fitted.proved

    def weight(self, table: int, level: int) -> Fraction:
        """Return the weight of a level in the loss; the largest weight is 1."""
        return self.weights[level] / max(self.weights)

    def compute_ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Compute intervals by least squares; None for the published chain."""
        if self.rule.query == "chain":
            return None
        level_ends = intervals(
            release.tree,
            release.noisy[0],
            release.counts[0],
            release.totals,
            noise=self.noise_of(release.scales)[0],
            cumulative=self.rule.query == "cumulative",
            confidence=self.problem.confidence,
        )
        return [level_ends]

    def facts(self, release: HierarchyRelease) -> dict[str, Any]:
        """Return violations of consistency, and for the published chain its real privacy loss."""
        facts = {"region_totals_exact": self.totals, "constraint_violations": violations(self.tree, release.counts)}
        if self.rule.query != "chain":
            return facts
        changed = [self.problem.settings.max_quantity * width for width in self.tree.widths]
        real = float(self.real_loss(release))
        return {**facts, "real_epsilon": real, "entries_changed_by_one_individual": changed}

    def check(self) -> None:
        """Check before anything is drawn that the method can solve the problem.

        Raises:
            InputError: The method must or cannot publish the totals, was not published with this noise or relation, or
                the noise is too wide.
            UsageError: The problem is too large for an integer program.
        """
        super().check()
        if self.rule.program:
            qip.refuse(self.tree, self.relation.classes, self.method, self.rule.program)
            # Solvers of integer programs compute in doubles, in which squares of wider noise would be rounded.
            self.check_noise(PROGRAM_SCALE, self.method)

    def faults(self) -> list[tuple[str, str, str]]:
        """Return the key, the actual value and the expectation of everything that the method cannot do."""
        problem, method, rule, relation = self.problem, self.method, self.rule, self.relation
        reason = f"{method} is as it was printed"
        faults = []
        if not self.hides:
            actual = f'"{relation.name}" where groups have one size alone: every number of groups would be exact'
            expectation = '"individuals" or "groups", which hide numbers of groups, or groups of two sizes or more'
            faults.append(("privacy.relation", actual, expectation))
        if rule.query == "chain":
            if self.law is not GEOMETRIC:
                expectation = f"pure-dp ({reason}, with double geometric noise)"
                faults.append(("privacy.kind", problem.privacy.kind, expectation))
            if not relation.exact:
                expectation = f'"sizes" ({reason}, with the exact number of groups)'
                faults.append(("privacy.relation", f'"{relation.name}"', expectation))
            if not all(self.budgets[0]):
                faults.append(("hierarchical-dp.budget", "a share of 0", f"shares above 0 ({reason})"))
        if self.limits is not None and rule.totals == "never":
            expectation = f"no bounds ({method} does not use region totals, which bounds are kept by)"
            faults.append(("hierarchy.bounds", "a file", expectation))
        return [*faults, *self._totals_faults()]

    def _totals_faults(self) -> list[tuple[str, str, str]]:
        """Return the faults of ``region_totals``."""
        region_totals, key, method = self.problem.settings.region_totals, "hierarchical-dp.region_totals", self.method
        if region_totals and not self.relation.exact:
            expectation = f'false or no such key (no number of groups is exact under relation "{self.relation.name}")'
            return [(key, "true", expectation)]
        if region_totals is False and self.relation.exact and self.rule.totals == "always":
            expectation = f"true or no such key ({method} publishes every region's number of groups exactly)"
            return [(key, "false", expectation)]
        if region_totals and self.rule.totals == "never":
            return [(key, "true", f"false or no such key ({method} does not use region totals)")]
        return []

    def shape_faults(self, release: HierarchyRelease) -> list[str]:
        """Return a line for each level that has another number of columns than the method measures."""
        width = self.relation.classes - (self.order == "inner")
        return super().shape_faults(release) + [
            f"{NOISY}: level_{level + 1} has {values.shape[1]} columns; the method measures {width}"
            for level, values in enumerate(release.noisy[0])
            if values.shape[1] != width
        ]

    def find_misestimates(self, release: HierarchyRelease) -> list[str]:
        """Return a line for each estimated total that differs from the one that the noisy values give."""
        if not self.valid or self.totals or (self.relation.exact and self.limits is None):
            return []
        tree, totals, noisy = release.tree, [level.sum(axis=1) for level in release.counts[0]], release.noisy[0]
        noise_options: dict[str, Any] = {
            "law": release.law,
            "scales": release.scales[0],
            "order": order_of(self.method, totals=False, relation=self.relation),
            "limits": self.limits,
        }
        root = int(totals[0][0])
        lines = []
        if not self.relation.exact:
            lines = total_complaint(tree, noisy, released=root, **noise_options)
        has_region_totals = self.limits is not None or self.rule.totals == "always"
        recomputed = estimated_totals(tree, noisy, root=root, **noise_options) if has_region_totals else []
        return lines + [
            f"region {names[region]!r} has {int(numbers[region])} groups; the noisy values give {int(targets[region])}"
            for names, numbers, targets in zip(tree.names, totals, recomputed, strict=False)
            for region in np.flatnonzero(numbers != targets).tolist()[:1]
        ]

    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Return the expected sums of absolute errors of the method's linear fit, by level."""
        shape, size = self.tree, self.relation.classes
        weights = None
        # Weights of the levels only apply to fits that minimise the weighted objective.
        if self.rule.fit != "fit_smoothed":  # that one is least squares
            level_weights = self.problem.settings.level_weights or (Fraction(1),) * self.tree.depth
            weights = [
                0.0 if level_noise is UNMEASURED else float(w)
                for level_noise, w in zip(noise[0], level_weights, strict=True)
            ]
        if self.rule.query == "cumulative":
            return errors_of_cumulative(shape, noise[0], size, weights, known_levels=self.exact)
        is_top_down = self.rule.fit == "fit_top_down"
        return size * errors_of_counts(
            shape, noise[0], weights, part=1 / size, known_levels=self.exact, down=is_top_down
        )

    def leaves_only(self) -> Floats:
        """Return the expected errors by level if the counts of the leaves have all of the budget and are added up."""
        delta = self.relation.sensitivity("counts", self.problem.settings.max_quantity)
        noise = self.law.moments(self.law.ideal_scale(self.problem.privacy.budget, delta))
        return self.relation.classes * errors_of_counts(self.tree, leaves_alone(noise, self.tree.depth))
