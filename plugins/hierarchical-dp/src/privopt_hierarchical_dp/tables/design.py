"""The design of hierarchical-tables: budgets, fit, intervals and checks of several tables of individuals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, Faults, number_of
from privopt_hierarchical_dp.bounds import read_limits
from privopt_hierarchical_dp.design import DEFAULT, Design, FitOptions
from privopt_hierarchical_dp.exact_levels import require_levels
from privopt_hierarchical_dp.fits.qip import Fit
from privopt_hierarchical_dp.forecast import errors_of_counts, leaves_alone
from privopt_hierarchical_dp.least_squares import (
    Ends,
    Estimate,
    Noise,
    ends_of,
    least_squares,
    least_squares_below,
    mean_absolute,
)
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.noise_distributions import Scale
from privopt_hierarchical_dp.region_tables import Form
from privopt_hierarchical_dp.release import HierarchyRelease, Tables
from privopt_hierarchical_dp.shares import normalize_shares
from privopt_hierarchical_dp.tables.fit import effects_of, fit_tables, least_objective, noise_of_margin, noisy_numbers
from privopt_hierarchical_dp.tables.margins import TOTAL, Domain, Effects, Margin
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.totals import total_complaint
from privopt_hierarchical_dp.tree import Regions

__all__ = ["TablesDesign"]

BOUNDS: Final = (
    " Bounds on numbers of individuals are public. Inputs whose exact numbers contradict them are refused, with all "
    "that are alike; numbers that are not exact are moved into them, whether or not the input is within."
)
LEAF_PARTS: Final = 128
"""The leaves get (LEAF_PARTS - 1) / LEAF_PARTS of the budget, unless the problem file says otherwise.

Errors of the leaves are in proportion to 1 / share, and measurements of the levels above hardly improve them. The small
part of the upper levels keeps errors from growing with the number of leaves: no level's errors are more than 2 % above
those of measuring the leaves alone, for an epsilon of a table up to 2.
"""
MOST_CELLS: Final = 1 << 27
"""The largest total number of cells of all tables and regions. Each copy in int64 takes one gigabyte."""


@frozen(kw_only=True, eq=False)
class TablesDesign(Design):
    """The design for a release of several tables.

    Attributes:
        problem: The problem file's keys.
        regions: The hierarchy, and the position of each leaf's path among the leaves.
    """

    problem: TablesProblem
    regions: Regions = field(repr=False)

    @classmethod
    def of(cls, problem: TablesProblem, file: str, method: str = "margins") -> TablesDesign:
        """Return the design for a problem, with budget shares, sensitivity, exact levels and bounds.

        This reads the problem's public files.

        Args:
            problem: The problem file's keys.
            file: The name of the problem file, for faults.
            method: The chosen method of the mechanism.

        Raises:
            InputError: Names do not match, the regions do not form a tree, there is not one share for each level, or
                there are too many cells for the memory.
            InfeasibleError: The bounds contradict one another.
        """
        problem.check_keys(file)
        hierarchy, domain = problem.hierarchy, problem.domain
        regions = read_regions(hierarchy.regions, once=True)
        tree, faults = regions.tree, []
        require_levels(hierarchy.exact, tree.depth, file)
        if hierarchy.budget is not None and len(hierarchy.budget) != tree.depth:
            actual = f"{len(hierarchy.budget)} numbers"
            faults.append(Fault(file, "hierarchy.budget", actual, f"{tree.depth} numbers, one for each level"))
        # Margins that are fitted on the way may be larger than all tables, so they count as well.
        cells = tree.regions * sum(map(domain.cells, {*domain.tables, *(s.margin for s in domain.steps)}))
        if cells > MOST_CELLS:
            expectation = (
                f"at most {MOST_CELLS:,}: fewer values or regions, or no tables whose attributes form a ring "
                "(a with b, b with c, c with a), for they are fitted as one table by all of these"
            )
            faults.append(Fault(file, "hierarchy.tables", f"{cells:,} cells in all regions", expectation))
        Faults(faults).check()
        cells_of = list(map(domain.cells, domain.tables))
        relation, by, upper_level_count = problem.relation, hierarchy.tables.items(), tree.depth - 1
        # The number of levels, from the root, whose numbers of individuals are published without noise.
        exact = tree.depth if relation.exact is None else relation.exact
        # A move between regions is hidden only if it changes no exact number. Households stay in their regions.
        hides_moves = not relation.is_of_households and exact > 0 and tree.widths[-1] > tree.widths[exact - 1]
        table_descriptions = ", ".join(f"{name} (by {', '.join(table.by) or 'region alone'})" for name, table in by)
        # By default 1 / LEAF_PARTS of the budget is spread evenly over the levels above the leaves.
        shares = hierarchy.budget or (
            *(Fraction(1),) * upper_level_count,
            Fraction(max(1, (LEAF_PARTS - 1) * upper_level_count)),
        )
        return cls(
            problem=problem,
            file=file,
            method=method,
            tree=tree,
            limits=read_limits(hierarchy.bounds, tree),
            split=(normalize_shares(shares), normalize_shares([table.share for _, table in by])),
            delta=relation.sensitivity,
            exact=exact,
            hides=hides_moves or exact == 0 or max(cells_of) > 1,
            statement=relation.statement(problem.privacy.kind) + BOUNDS * (hierarchy.bounds is not None),
            claimed={"tables": list(hierarchy.tables)},
            in_words=(
                f"the tables {table_descriptions} of all individuals in every region of "
                f"{number_of(tree.depth, 'level')}",
                relation.public,
            ),
            parts=tuple(
                f"{name}, level {level} ({width * cell_count})"
                for level, width in enumerate(tree.widths, start=1)
                for name, cell_count in zip(hierarchy.tables, cells_of, strict=True)
            ),
            regions=regions,
        )

    def shows_exact_numbers(self, form: Form, level: int) -> bool:
        """Return whether a table counts individuals by region alone on a level whose numbers are exact."""
        return level < self.exact and int(np.prod(form.shape)) == 1

    @cached_property
    def level_rates(self) -> tuple[Fraction, ...]:
        """The budget of each level for a table of share 1, as a part of the whole budget.

        If a table shows nothing but exact numbers on a level, it has no budget there, and the other tables of the level
        share its part in proportion. So measured parts are always the product of a rate and a table's share.
        """
        levels, tables = self.split
        measured_shares = [
            sum(
                (
                    share
                    for share, form in zip(tables, self.layout.forms, strict=True)
                    if not self.shows_exact_numbers(form, level)
                ),
                Fraction(0),
            )
            for level in range(self.tree.depth)
        ]
        rates = [
            level_share / measured_share if measured_share else Fraction(0)
            for level_share, measured_share in zip(levels, measured_shares, strict=True)
        ]
        # A level without any measurement leaves its share to the others.
        spent_share = sum((a * b for a, b in zip(rates, measured_shares, strict=True)), Fraction(0))
        return tuple(rate / spent_share for rate in rates) if spent_share else self.split[0]

    @property
    def budget_shares(self) -> list[Fraction]:
        """The relative share of each part, level by level. Numbers that are exact have none."""
        shares = [
            Fraction(0) if self.shows_exact_numbers(form, level) else rate * share
            for level, rate in enumerate(self.level_rates)
            for share, form in zip(self.split[1], self.layout.forms, strict=True)
        ]
        # A problem that would measure nothing is refused by `faults`; its budgets are never spent.
        return shares if any(shares) else super().budget_shares

    def weights_of(self, shares: Sequence[Fraction]) -> tuple[float, ...]:
        """Return the weights of values in least squares, computed from their shares of the budget.

        Weights are proportional to 1 / variance of the noise. The largest weight is 1.

        Args:
            shares: A share of the budget for each table, or for each level. A share of 0 means that nothing is
                measured, and has weight 0.
        """
        # Only proportions count: the sensitivity is 1, and scales are ideal ones, not yet rounded to what can be drawn.
        precision = [
            self.law.precision(self.law.ideal_scale(budget_share, 1) if budget_share else None)
            for budget_share in shares
        ]
        return tuple(float(value / max(precision)) for value in precision)

    @cached_property
    def domain(self) -> Domain:
        """The attributes and tables, with weights computed from the tables' shares of the budget."""
        return evolve(self.problem.domain, weights=self.weights_of(self.split[1]))

    @cached_property
    def level_weights(self) -> tuple[float, ...]:
        """The weights of the levels in least squares, by their budget shares, from the root. The largest is 1."""
        return self.weights_of(self.level_rates)

    def _level_scales(self, scales: Sequence[Sequence[Scale]]) -> list[Scale]:
        """Return a noise scale for each level: that of the table measured on most levels, or None if there is none.

        Only the proportions between levels matter, which are about the same in every table.

        Args:
            scales: The scale of the noise by table and level. None if the level was not measured.
        """
        return list(max(scales, key=lambda table_scales: sum(scale is not None for scale in table_scales)))

    def fit(self, noisy: Tables, totals: Sequence[Ints], how: FitOptions = DEFAULT) -> Fit:
        """Fit consistent integers to noisy values: first least squares, then integers margin by margin.

        Args:
            noisy: The (R_l, ...) noisy values by table and level.
            totals: Exact public numbers of individuals (R_l,) of the first levels. Empty if none are public.
            how: The relative gap, and the function that receives progress.
        """
        levels = self.level_weights
        counts = fit_tables(
            self.tree,
            self.domain,
            noisy,
            levels=levels,
            totals=totals,
            law=self.law,
            scales=self._level_scales(self.scales),
            gap=how.gap,
            limits=self.limits,
            progress=how.report,
        )
        # The bound is that of real numbers, which whole ones cannot beat.
        bound, solver = self._least_objective(noisy, counts), "least squares, ADMM and error diffusion"
        return Fit(counts=counts, solver=solver, iterations=len(self.domain.steps), lower_bound=bound)

    def _least_objective(self, noisy: Tables, counts: Tables) -> Fraction:
        """Return a lower bound on the loss of all consistent tables.

        Args:
            noisy: The noisy values.
            counts: Any consistent tables, which add up over regions and agree on shared attributes. They only serve to
                keep numbers small; see :func:`.fit.least_objective`.
        """
        differences = [
            [a - b for a, b in zip(*paired_levels, strict=True)] for paired_levels in zip(noisy, counts, strict=True)
        ]
        return Fraction(least_objective(self.tree, self.domain, self.level_weights, differences))

    def bound(self, release: HierarchyRelease, how: FitOptions) -> tuple[Fraction | float | None, bool]:
        """Return the least-squares lower bound on the loss, recomputed from the files of a release.

        Returns:
            The bound, or None if the released counts are not consistent, and False, because a release need not attain
            the bound.
        """
        return (None if release.complaints() else self._least_objective(release.noisy, release.counts)), False

    def weight(self, table: int, level: int) -> Fraction:
        """Return the weight of a table on a level in the loss: its precision, scaled so that the largest is 1."""
        # The exact number takes the place of a measurement, so its distance is 0 whatever it weighs.
        if self.shows_exact_numbers(self.layout.forms[table], level):
            return Fraction(0)
        return Fraction(self.level_weights[level]) * Fraction(self.domain.weights[table])

    def compute_ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Return confidence intervals computed by least squares over all tables and levels.

        Returns:
            The intervals of all cells, by table and level.
        """
        domain, ends_by_table, effects = self.domain, [], effects_of(self.domain, release.noisy)
        # For each level the noise of all tables.
        by_level = list(zip(*self.noise_of(release.scales), strict=True))
        for table, counts in zip(domain.tables, release.counts, strict=True):
            # One row for each region and one column for each cell of the table, as :func:`least_squares` takes them.
            released = [counts_of_level.reshape(len(counts_of_level), -1) for counts_of_level in counts]
            if release.totals:
                estimates = self._estimate_around_exact(domain, table, effects, by_level, release.totals)
            else:
                means = [
                    domain.margin(level, table).reshape(counts_of_level.shape)
                    for level, counts_of_level in zip(effects, released, strict=True)
                ]
                level_noise = [noise_of_margin(domain, table, level) for level in by_level]
                estimates = least_squares(self.tree, means, level_noise)
            ends_by_table.append(ends_of(self.tree, estimates, released, release.totals, self.problem.confidence))
        return ends_by_table

    def _estimate_around_exact(
        self,
        domain: Domain,
        table: Margin,
        effects: Sequence[Effects],
        by_level: Sequence[Sequence[Noise]],
        totals: Sequence[Ints],
    ) -> list[Estimate]:
        """Return least-squares estimates of the cells of a table, given the exact numbers of the first levels.

        A cell is its part of the region's number, spread evenly over the cells, plus effects that sum to 0 over the
        region. Only the former is known exactly, so each of the two is estimated over the tree by itself.

        Args:
            domain: The attributes and tables, with the weights of the tables.
            table: The margin of the table.
            effects: The effects of each level.
            by_level: The noise of one cell of all tables, for each level.
            totals: The (R_l,) exact numbers on the first levels.

        Returns:
            The (R_l, cells) estimates on each level.
        """
        cells = domain.cells(table)
        contrasts = least_squares(
            self.tree,
            [
                domain.margin(level | {TOTAL: np.zeros_like(level[TOTAL])}, table).reshape(-1, cells)
                for level in effects
            ],
            [noise_of_margin(domain, table, level, contrasts_only=True) for level in by_level],
        )
        numbers = least_squares_below(
            self.tree,
            [level[TOTAL].reshape(-1, 1) for level in effects],
            [noise_of_margin(domain, TOTAL, level) for level in by_level],
            totals,
        )
        return [
            Estimate(
                mean=contrast.mean + number.mean / cells,
                # The two are uncorrelated, because effects are.
                variance=contrast.variance + number.variance / cells**2,
                # They share noise, so their cumulants do not add up; this is an upper bound (Minkowski's inequality of
                # fourth powers), and heavier tails only widen an interval.
                fourth=(contrast.fourth**0.25 + (number.fourth / cells**4) ** 0.25) ** 4,
            )
            for contrast, number in zip(contrasts, numbers, strict=True)
        ]

    def estimate_numbers(self, release: HierarchyRelease) -> list[Estimate]:
        """Return the (R_l, 1) least-squares estimates of the numbers of all regions, from all tables."""
        return least_squares_below(
            self.tree,
            [level[TOTAL].reshape(-1, 1) for level in effects_of(self.domain, release.noisy)],
            [noise_of_margin(self.domain, TOTAL, level) for level in zip(*self.noise_of(release.scales), strict=True)],
            release.totals,
        )

    def facts(self, release: HierarchyRelease) -> dict[str, Any]:
        """Return the margins, as names of attributes, in the order in which they were fitted, for result.json."""
        attributes = list(self.problem.hierarchy.attributes)
        return {
            "split": "as plan finds it" if self.is_split_searched else "the problem file's",
            "fitted": [[attributes[attribute] for attribute in step.margin] for step in self.domain.steps],
        }

    def faults(self) -> list[tuple[str, str, str]]:
        """Return a fault if the noise would hide nothing under the neighbouring relation."""
        if self.hides:
            return []
        actual = f'"{self.problem.privacy.relation}" where no table has two cells to tell apart: every number would be '
        expectation = '"individuals", which hides numbers of individuals, or a table of two cells or more'
        return [("privacy.relation", f"{actual}exact", expectation)]

    def find_misestimates(self, release: HierarchyRelease) -> list[str]:
        """Return a line if the released number of individuals differs from the estimate from the noisy values.

        If the total is public, nothing is estimated, and the total is checked elsewhere.
        """
        if release.totals:
            return []
        return total_complaint(
            release.tree,
            # One value for each region, so it may count as a cumulative count ("less").
            noisy_numbers(self.domain, release.noisy),
            law=release.law,
            scales=self._level_scales(release.scales),
            order="less",
            limits=self.limits,
            released=int(release.counts[0][0].sum()),
        )

    def need_shares(self, tables: Sequence[float] | Floats) -> list[bool]:
        """Return whether each table needs a budget share above 0.

        A table needs no share if another table with a share counts by all of its attributes and more, because it is
        then a sum over cells of the other table.

        Args:
            tables: The budget share of each table.
        """
        margins = self.domain.tables
        return [
            not any(
                # A proper subset: two equal tables would each wait for the other.
                set(margin) < set(other_margin) and bool(other_share)
                for number, (other_margin, other_share) in enumerate(zip(margins, tables, strict=True))
                if number != table
            )
            for table, margin in enumerate(margins)
        ]

    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Return the expected sums of absolute errors of least squares over all tables and levels, for given shares.

        Args:
            noise: The moments of the noise by table and level.
            tables: The budget share of each table.

        Returns:
            Expected sums over all regions and cells: those of all tables on level 1, then those on level 2, and so on.
        """
        variances, fourths = (
            np.array([[getattr(level, name) for level in levels] for levels in noise])[:, :, None]
            for name in ("variance", "fourth")
        )
        return np.asarray(self._forecast_cases(variances, fourths, np.array(tables, dtype=np.float64)[:, None])[0])

    def forecast_splits(self, levels: Floats, tables: Floats) -> Floats:
        """Return the expected errors of the linear fit for B splits of the budget, computed all at once.

        Args:
            levels: (B, L) The shares of the levels.
            tables: (B, T) The shares of the tables.

        Returns:
            The (B, L T) errors of all tables on level 1, then on level 2, and so on.
        """
        # (T, L): whether a table is measured on a level.
        is_measured = np.array(
            [
                [not self.shows_exact_numbers(form, level) for level in range(self.tree.depth)]
                for form in self.layout.forms
            ],
            dtype=np.float64,
        )
        # In doubles what `level_rates` computes exactly: tables that are measured on a level share the part of those
        # that are not, and levels without any measured table leave their parts to others.
        measured_shares = tables @ is_measured
        rates = np.divide(levels, measured_shares, out=np.zeros_like(levels), where=measured_shares > 0.0)
        spent = (rates * measured_shares).sum(axis=1, keepdims=True)
        rates = np.divide(rates, spent, out=np.zeros_like(rates), where=spent > 0.0)
        budgets = float(self.problem.privacy.budget) * tables.T[:, None, :] * rates.T[None] * is_measured[:, :, None]
        return self._forecast_cases(*self.law.moments_of_budgets(budgets, self.delta), tables.T)

    def _forecast_cases(self, variances: Floats, fourths: Floats, tables: Floats) -> Floats:
        """Return the (B, parts) expected errors for B cases of noise.

        Args:
            variances: (T, L, B) The variance of the noise on one cell, by table and level.
            fourths: (T, L, B) The fourth cumulants of the noise.
            tables: (T, B) The shares of the tables, which determine their weights.
        """
        # Weights are proportional to 1 / variance, which grows with the square of a share under Laplace noise.
        weights: Floats = (tables / tables.max(axis=0)) ** (2.0 if self.law.law == "laplace" else 1.0)
        depth, cases, known = self.tree.depth, tables.shape[1], self.exact

        def noise_of_cells(margin: Margin, *, contrasts_only: bool) -> list[Noise]:
            """Return the (B,) noise of one estimated cell of a margin on each level, before the tree is used."""
            squares, powers = self.domain.influence_powers(margin, weights, contrasts_only=contrasts_only)
            return [
                Noise(
                    variance=(variances[:, level] * squares).sum(axis=0),
                    fourth=(fourths[:, level] * powers).sum(axis=0),
                )
                for level in range(depth)
            ]

        tree, times = self.alike.tree, self.alike.times
        zeros = [np.zeros((width, cases)) for width in tree.widths]
        # Without exact numbers, a cell is estimated in one piece; else its part of the region's number is separate.
        numbers = (
            least_squares_below(
                tree,
                zeros,
                noise_of_cells(TOTAL, contrasts_only=False),
                [np.zeros(width, np.int64) for width in tree.widths[:known]],
                times,
            )
            if known
            else None
        )
        errors: Floats = np.zeros((cases, depth, len(self.domain.tables)))
        for number, table in enumerate(self.domain.tables):
            cells = self.domain.cells(table)
            estimates = least_squares(tree, zeros, noise_of_cells(table, contrasts_only=bool(known)), times=times)
            for level, estimate in enumerate(estimates):
                variance, fourth = estimate.variance, estimate.fourth
                if numbers is not None:
                    variance = variance + numbers[level].variance / cells**2
                    # As if the cumulants added up. Intervals use the upper bound of `_estimate_around_exact` instead.
                    fourth = fourth + numbers[level].fourth / cells**4
                error = evolve(estimate, variance=variance, fourth=fourth)
                errors[:, level, number] = cells * (self.alike.counts[level] @ mean_absolute(error))
        return np.asarray(errors.reshape(cases, -1))

    def leaves_only(self) -> Floats:
        """Return the expected sums of absolute errors if only the leaves' tables are measured.

        This is the baseline for a plan. The order is that of :meth:`forecast`. A table without a share is summed from
        the smallest measured table that has all of its attributes.
        """
        domain = self.domain
        scales = [
            self.law.scale(self.problem.privacy.budget * table_share, self.delta) for table_share in self.split[1]
        ]
        by_table = []
        for table in domain.tables:
            sources = [
                n for n, margin in enumerate(domain.tables) if scales[n] is not None and set(table) <= set(margin)
            ]
            source = min(sources, key=lambda number: domain.cells(domain.tables[number]))
            # A cell of the smaller table is the sum of `times` independent cells of its source.
            times = domain.cells(domain.tables[source]) // domain.cells(table)
            noise = self.law.moments(scales[source])
            summed = Noise(variance=times * noise.variance, fourth=times * noise.fourth)
            leaf_noise = leaves_alone(summed, self.tree.depth)
            by_table.append(domain.cells(table) * errors_of_counts(self.alike, leaf_noise))
        # Level by level, as in `forecast`.
        return np.ravel(by_table, order="F")
