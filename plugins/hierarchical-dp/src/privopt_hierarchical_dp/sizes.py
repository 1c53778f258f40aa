"""The design of hierarchical-dp: one table of groups by size, with the queries, fits and checks of its methods."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import isfinite
from typing import Any, Final

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import number_of
from privopt_hierarchical_dp.bounds import Limits, read_limits
from privopt_hierarchical_dp.design import DEFAULT, Design, FitOptions
from privopt_hierarchical_dp.exact_levels import require_levels
from privopt_hierarchical_dp.fits import qip
from privopt_hierarchical_dp.fits.as_published import chain_query
from privopt_hierarchical_dp.fits.fit import Fit, FitInput, fit, fit_at_once
from privopt_hierarchical_dp.forecast import errors_of_counts, errors_of_cumulative, leaves_alone
from privopt_hierarchical_dp.least_squares import (
    UNMEASURED,
    Ends,
    Estimate,
    Noise,
    intervals,
    least_squares_below,
)
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
from privopt_hierarchical_dp.relations import SIZES, Relation, describe_exact_levels
from privopt_hierarchical_dp.release import NOISY, HierarchyRelease, Tables, violations
from privopt_hierarchical_dp.shares import Split, normalize_shares
from privopt_hierarchical_dp.totals import (
    added_by_estimates,
    estimated_totals,
    noisy_totals,
    to_cumulative,
    total_complaint,
)
from privopt_hierarchical_dp.tree import Tree

__all__ = ["SizesDesign", "compute_query", "objective_weights"]

BOUNDS: Final = {
    True: " Bounds on numbers of groups are public; inputs that contradict them are refused, with all that are alike.",
    False: " Bounds on numbers of groups are public; releases are moved into them, whether or not the input is within.",
}
"""The sentence about public bounds, keyed by whether neighbouring inputs always have the same numbers of groups."""
EXACT_BOUNDS: Final = (
    " Bounds on numbers of groups are public. Inputs whose exact numbers contradict them are refused, with all that "
    "are alike; numbers that are not exact are moved into them, whether or not the input is within."
)
"""The sentence about public bounds if neighbouring inputs have the same numbers of groups only at some levels."""
PROGRAM_SCALE: Final = 1 << 20
"""The largest noise scale allowed for integer programs. Squares of wider noise would be inexact in double precision."""


def objective_weights(given_weights: Sequence[Fraction] | None, budgets: Sequence[Fraction]) -> tuple[Fraction, ...]:
    """Return the weight of each level in the objective.

    A measured level has its given weight or, by default, a weight of 1, as in Fioretto et al. (2021). An unmeasured
    level has a weight of 0.

    Weighting by inverse variance led to larger errors in experiments (see plugins/hierarchical-dp/README.md). Because
    counts cannot be negative, a fit clips negative noise and is therefore biased upwards, and a large weight on the
    leaves propagates the sum of these biases up the tree.

    Args:
        given_weights: The weights in the problem file, from the root down, or None if the file specifies none.
        budgets: The part of the budget spent at each level, or 0 for a level that is not measured.
    """
    weights = given_weights if given_weights is not None else (Fraction(1),) * len(budgets)
    return tuple(weight if budget else Fraction(0) for weight, budget in zip(weights, budgets, strict=True))


def compute_query(method: str, counts: Sequence[Ints], *, totals: bool, relation: Relation = SIZES) -> list[Ints]:
    """Compute the true values to which a method adds noise.

    Depending on the method, these are the counts themselves, cumulative counts, or the chain of Fioretto et al. (2021),
    a single vector of cumulative counts that runs through all regions at a level.

    A cumulative count is the number of groups of size s or less. If the regions' totals may differ between neighbouring
    inputs, it is the number of groups of size s or more instead, because adding a group could change every number of
    groups of size s or less.

    Args:
        method: The name of the method.
        counts: For each level, an array of shape (regions, sizes) with the true counts.
        totals: Whether the regions' totals are published exactly. If so, the last cumulative count is not measured,
            because it equals the total.
        relation: The neighbouring relation.

    Returns:
        For each level, an array of shape (regions, sizes) or (regions, sizes - 1).
    """
    query = METHODS[method].query
    if query == "counts":
        return [np.asarray(level, dtype=np.int64) for level in counts]
    if query == "chain":
        return chain_query(counts)
    if not relation.exact and not totals:
        # Summing from the right makes column s the number of groups of size s or more.
        return [np.cumsum(np.asarray(level)[:, ::-1], axis=1, dtype=np.int64)[:, ::-1].copy() for level in counts]
    cumulative = [np.cumsum(level, axis=1, dtype=np.int64) for level in counts]
    # The last cumulative count is the total. If that is known, measuring it would only add noise.
    return [np.ascontiguousarray(level[:, :-1]) for level in cumulative] if totals else cumulative


@frozen(kw_only=True, eq=False)
class SizesDesign(Design):
    """The design of a release of the hierarchical-dp mechanism with a given method: the queries, the noise and the fit.

    Attributes:
        problem: The contents of the problem file.
        totals: Whether the number of groups in every region is published exactly.
    """

    problem: HierarchyProblem
    totals: bool

    @classmethod
    def of(
        cls,
        problem: HierarchyProblem,
        method: str,
        tree: Tree,
        file: str = "problem.toml",
        limits: Limits | None = None,
    ) -> SizesDesign:
        """Build the design for a method, reading the public bounds if necessary.

        Args:
            problem: The parsed problem file.
            method: The name of the method.
            tree: The region tree.
            file: The name of the problem file, for error messages.
            limits: The public bounds. If None, they are read from the file named in the problem, if there is one.

        Raises:
            InputError: The table of bounds cannot be read, or a level declared as exact does not exist.
            InfeasibleError: The bounds contradict one another.
        """
        table, settings, relation, rule = problem.hierarchy, problem.settings, problem.relation, METHODS[method]
        require_levels(table.exact, tree.depth, file)
        exact_levels = relation.exact_levels
        # Totals may be published only if they are the same for neighbouring inputs.
        wants_totals = rule.totals == "always" or (rule.totals == "option" and bool(settings.region_totals))
        totals = exact_levels == tree.depth if exact_levels else relation.exact and wants_totals
        # How many levels, from the root down, have exact totals: all, those named in the problem file, the root's, or
        # none.
        exact = tree.depth if totals else exact_levels or int(relation.exact)
        # A group can be replaced only by a group in the same region on the deepest exact level. The noise hides where
        # the group is only if that region contains several leaves.
        hides_moves = relation.name == "groups" and (not exact or tree.widths[-1] > tree.widths[exact - 1])
        promise = relation.statement(
            totals=totals,
            max_quantity=settings.max_quantity,
            kind=problem.privacy.kind,
            listed=table.regions is not None,
            exact_levels=exact,
        )
        noun = "unit" if relation.vacant else "group"
        query_name = "counts" if rule.query == "counts" else "cumulative counts"
        total_sentence = f"The number of all {noun}s is exact." if exact else f"No number of {noun}s is exact."
        if exact > 1:
            total_sentence = f"{describe_exact_levels(exact, noun + 's')}."
        # Bounds are checked for the totals on which all neighbours agree: those of all regions, whether or not they are
        # published, or those on exact levels.
        is_checked_in_part = exact_levels > 0 and not relation.exact
        bounds_sentence = EXACT_BOUNDS if is_checked_in_part else BOUNDS[relation.exact]
        all_totals_sentence = f"Every region's number of {noun}s is exact."
        return cls(
            problem=problem,
            file=file,
            method=method,
            tree=tree,
            limits=limits or read_limits(table.bounds, tree),
            split=(normalize_shares(settings.budget or default_shares(method, tree.depth)), (Fraction(1),)),
            delta=sensitivity(method, settings.max_quantity, relation, totals=totals),
            totals=totals,
            exact=exact,
            # With a single size class and exact numbers of groups, neighbours have equal counts, so there is nothing to
            # hide.
            hides=hides_moves or table.classes > 1 or not (exact or relation.exact),
            valid=rule.valid,
            # The sentence about bounds is omitted (multiplied by False) if there are none.
            statement=promise + bounds_sentence * (table.bounds is not None),
            claimed={"region_totals_exact": totals},
            in_words=(
                f"{query_name} of {noun}s by size in every region",
                all_totals_sentence if totals else total_sentence,
            ),
            parts=tuple(f"level {level} ({width})" for level, width in enumerate(tree.widths, start=1)),
        )

    def with_method(self, method: str) -> SizesDesign:
        """Return the design for the same problem with a different method."""
        is_same_method = method == self.method
        return self if is_same_method else SizesDesign.of(self.problem, method, self.tree, self.file, self.limits)

    @property
    def default_split(self) -> tuple[Split, Split]:
        """The default budget split: the method's default level shares, and the whole budget for the only table."""
        return normalize_shares(default_shares(self.method, self.tree.depth)), (Fraction(1),)

    @property
    def rule(self) -> Method:
        """The method's entry in `METHODS`: its query, its fit, and how it uses region totals."""
        return METHODS[self.method]

    @property
    def relation(self) -> Relation:
        """The neighbouring relation."""
        return self.problem.relation

    @property
    def order(self) -> Order:
        """The contents of measured columns: counts, or cumulative counts starting at the smallest or largest size."""
        return order_of(self.method, totals=self.totals, relation=self.relation)

    @property
    def weights(self) -> tuple[Fraction, ...]:
        """The weight of each level in the loss.

        An unmeasured level has a weight of 0. For the method that publishes a chain of cumulative counts across all
        regions at a level, all weights are 1.
        """
        if self.rule.query == "chain":
            return (Fraction(1),) * self.tree.depth
        return objective_weights(self.problem.settings.level_weights, self.budgets[0])

    def compute_queries(self, counts: Tables) -> Tables:
        """Compute the values measured by the method, given the true counts.

        Args:
            counts: For each level of the single table, an array of shape (regions, sizes) with the true counts.
        """
        return [compute_query(self.method, counts[0], totals=self.totals, relation=self.relation)]

    def real_loss(self, release: HierarchyRelease) -> Fraction:
        """Return the exact privacy loss between neighbouring inputs.

        This is at most the budget, except for the method that publishes the chain of Fioretto et al. (2021), a single
        vector of cumulative counts across all regions at a level. A single change can alter one or more entries in
        every region, but the paper calibrates the noise for a single region, so the loss exceeds the budget.
        """
        if self.rule.query != "chain":
            return super().real_loss(release)
        # The loss on a level is its budget times its number of regions. `budgets[0]` is that of the only table.
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
        """Fit consistent counts with the design's method, after estimating any totals that are not public.

        Args:
            noisy: The noisy values for each level of the single table.
            totals: The totals that are published exactly, as one array of shape (regions,) per level that has them,
                from the root down. Empty if no totals are published exactly.
            how: The options for the fit.
            root: The total of the whole hierarchy, if it is already known. It is ignored if the exact totals include
                the root's. If None, a total that is not public is estimated.
        """
        has_totals, offset, has_limits = self.totals, Fraction(0), self.limits is not None
        values, group_totals = list(noisy[0]), list(totals)
        # If the totals below the root are exact on some levels only, the others are estimated to be consistent with
        # them.
        has_some_totals = not has_totals and self.exact > 1
        if not has_totals and (not self.relation.exact or has_limits or has_some_totals):
            # An exact root total must be preserved. Otherwise, `bound` passes the root total of the release that is
            # checked.
            root = int(group_totals[0][0]) if self.exact else root
            scales, limits = self.scales[0], self.limits
            group_totals = estimated_totals(
                self.tree,
                values,
                law=self.law,
                scales=scales,
                order=self.order,
                root=root,
                limits=limits,
                known=group_totals,
            )
            # Noisy counts have no column for the total, so a fit to counts needs only the root's total if there are no
            # bounds.
            has_totals = self.order != "counts" or has_limits or has_some_totals
            if self.order != "counts":
                # The estimated totals replace the measured ones. The distance between the two is a part of the loss
                # that no fit can change, so it is added to the fit's lower bound.
                offset = added_by_estimates(group_totals, values, self.order, self.weights)
                values = (
                    to_cumulative(values, group_totals) if self.order == "more" else [level[:, :-1] for level in values]
                )
        fit_input = FitInput(
            method=self.method,
            tree=self.tree,
            noisy=values,
            estimated=not self.relation.exact and not self.exact and not has_limits,
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
        """Refit the noisy values of a release, and return the lower bound on the loss proved by this fit.

        Args:
            release: The release to check.
            how: The options for the fit.

        Returns:
            The lower bound (None if the method proves none), and whether the fit is proved to be optimal.
        """
        # The root's total is taken from the release, because an estimate halfway between two integers may be rounded
        # differently on another machine, which would change the bound.
        root = int(release.counts[0][0].sum())
        fitted = self.fit(release.noisy, release.totals, how, root=root)
        return fitted.lower_bound, fitted.proved

    def weight(self, table: int, level: int) -> Fraction:
        """Return the weight of a level in the loss, scaled so that the largest is 1.

        Args:
            table: The index of the table. There is only one, so the argument is ignored.
            level: The index of the level (0 for the root).
        """
        return self.weights[level] / max(self.weights)

    @property
    def has_intervals(self) -> bool:
        """Whether the method provides intervals for the counts.

        The only method without intervals is the one that publishes a chain of cumulative counts across all regions at a
        level.
        """
        return self.rule.query != "chain"

    def compute_ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Compute confidence intervals for the true counts by least squares, from released values alone.

        Returns:
            The intervals of the single table at each level, as estimates with half-widths, before rounding. None if the
            method provides no intervals.
        """
        if not self.has_intervals:
            return None
        level_ends = intervals(
            release.tree,
            release.noisy[0],
            release.counts[0],
            release.totals,
            noise=self.noise_of(release.scales)[0],
            cumulative=self.rule.query == "cumulative",
            confidence=self.problem.confidence,
            descending=self.order == "more",
        )
        return [level_ends]

    def estimate_numbers(self, release: HierarchyRelease) -> list[Estimate]:
        """Estimate the total of every region by least squares.

        Returns:
            One estimate per level, of shape (regions, 1).
        """
        # A total is either one noisy cumulative count or a sum of noisy counts, whose variances and fourth cumulants
        # add up.
        terms = self.relation.classes if self.order == "counts" else 1
        noise = [
            Noise(variance=terms * moments.variance, fourth=terms * moments.fourth)
            for moments in self.noise_of(release.scales)[0]
        ]
        return least_squares_below(self.tree, noisy_totals(release.noisy[0], self.order), noise, release.totals)

    def facts(self, release: HierarchyRelease) -> dict[str, Any]:
        """Return facts for result.json, such as the number of inconsistent counts.

        For the method that publishes a chain of cumulative counts across all regions at a level, the facts include its
        actual privacy loss.
        """
        facts = {"region_totals_exact": self.totals, "constraint_violations": violations(self.tree, release.counts)}
        # The chain's vector runs over all |R_l| regions of level l, so moving one group changes |R_l| entries (see
        # "Corrections" in docs/papers/hierarchical-dp.md).
        if self.rule.query != "chain":
            return facts
        changed = [self.problem.settings.max_quantity * width for width in self.tree.widths]
        real = float(self.real_loss(release))
        return {**facts, "real_epsilon": real, "entries_changed_by_one_individual": changed}

    def check(self) -> None:
        """Check that the method can solve the problem, before any noise is drawn.

        Raises:
            InputError: The problem file specifies exact totals, bounds, a budget share of 0, a noise distribution or a
                neighbouring relation that the method does not support; no value would be protected; or the noise is too
                wide.
            UsageError: The problem is too large for an integer program.
        """
        super().check()
        if self.rule.program:
            qip.refuse(self.tree, self.relation.classes, self.method, self.rule.program)
            # Integer programming solvers compute in doubles, which would round the squares of wider noise.
            self.check_noise(PROGRAM_SCALE, self.method)

    def faults(self) -> list[tuple[str, str, str]]:
        """Return the key, the actual value and the expected value of every setting the method does not support."""
        problem, method, rule, relation = self.problem, self.method, self.rule, self.relation
        # The chain is kept exactly as the paper printed it, for comparison, so it supports no other noise or relation.
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
        exact_levels = relation.exact_levels
        if exact_levels and rule.totals == "always" and exact_levels < self.tree.depth:
            expectation = f"level_{self.tree.depth} among them ({method} publishes every region's number exactly)"
            faults.append(("hierarchy.exact", f"levels down to level_{exact_levels}", expectation))
        if exact_levels > 1 and rule.totals == "never":
            expectation = f'["level_1"] or no such key ({method} does not use region totals)'
            faults.append(("hierarchy.exact", f"levels down to level_{exact_levels}", expectation))
        if self.limits is not None and rule.totals == "never":
            expectation = f"no bounds ({method} does not use region totals, which bounds are kept by)"
            faults.append(("hierarchy.bounds", "a file", expectation))
        return [*faults, *self._totals_faults()]

    def _totals_faults(self) -> list[tuple[str, str, str]]:
        """Check that the ``region_totals`` key is compatible with the method and the neighbouring relation.

        Returns:
            A list with a single tuple of the key, its actual value and the expected value, or an empty list if there is
            no fault.
        """
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
        """Return a message for each level whose number of columns differs from what the method measures."""
        # In the order "inner", the totals are known, so the last cumulative count is not measured.
        width = self.relation.classes - (self.order == "inner")
        return super().shape_faults(release) + [
            f"{NOISY}: level_{level + 1} has {number_of(values.shape[1], 'column')}; the method measures {width}"
            for level, values in enumerate(release.noisy[0])
            if values.shape[1] != width
        ]

    def find_misestimates(self, release: HierarchyRelease) -> list[str]:
        """Return a message for each level whose released totals differ from estimates recomputed from the noisy values.

        Nothing is checked if the method's releases need not be consistent, if all totals are public, or if only the
        root's total is public and there are no bounds.

        Returns:
            At most one message for the root's total, and at most one for each level.
        """
        if not self.valid or self.totals or (self.relation.exact and self.limits is None and self.exact < 2):
            return []
        tree, totals, noisy = release.tree, [level.sum(axis=1) for level in release.counts[0]], release.noisy[0]
        noise_options: dict[str, Any] = {
            "law": release.law,
            "scales": release.scales[0],
            "order": order_of(self.method, totals=False, relation=self.relation),
            "limits": self.limits,
        }
        known = release.totals if self.exact > 1 else []
        # The region totals are recomputed for the root's released total, which is checked separately: if its estimate
        # lies halfway between two integers, another machine may round it differently.
        root = int(totals[0][0])
        lines = []
        if not self.exact:
            lines = total_complaint(tree, noisy, released=root, **noise_options)
        # Only methods that always use totals are bound to the regions' estimated totals, unless bounds or exact levels
        # bind all methods to them.
        has_region_totals = self.limits is not None or self.exact > 1 or self.rule.totals == "always"
        recomputed = estimated_totals(tree, noisy, root=root, known=known, **noise_options) if has_region_totals else []
        return lines + [
            f"region {tree.name_of(level, region)!r} has {number_of(int(numbers[region]), 'group')}; "
            f"the noisy values give {int(targets[region])}"
            for level, (numbers, targets) in enumerate(zip(totals, recomputed, strict=False))
            for region in np.flatnonzero(numbers != targets).tolist()[:1]
        ]

    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Forecast the sum of absolute errors of the counts at each level, assuming that the method's fit is linear.

        Args:
            noise: For the single table, the moments of the noise on one value at each level.
            tables: The budget shares of the tables. Ignored, because there is only one table.
        """
        shape, size = self.alike, self.relation.classes
        weights = None
        # Level weights apply only to fits that minimise the weighted objective. Smoothing uses least squares instead,
        # which weights by precision (None).
        if self.rule.fit != "fit_smoothed":
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
        """Forecast the sum of absolute errors at each level if only the counts of the leaves are measured."""
        # This baseline measures counts whatever the method, so it uses the sensitivity of counts.
        delta = self.relation.sensitivity("counts", self.problem.settings.max_quantity)
        noise = self.law.moments(self.law.ideal_scale(self.problem.privacy.budget, delta))
        return self.relation.classes * errors_of_counts(self.alike, leaves_alone(noise, self.tree.depth))
