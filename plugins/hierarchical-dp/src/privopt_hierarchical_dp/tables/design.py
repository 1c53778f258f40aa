"""The design of hierarchical-tables: budgets, fit, intervals and checks for several tables of individuals."""

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
"""By default, the leaves get (LEAF_PARTS - 1) / LEAF_PARTS of the budget.

The errors at the leaves are proportional to 1 / share, and measurements at higher levels hardly reduce them. The small
share of the upper levels keeps their errors from growing with the number of leaves. If the epsilon of a table is at
most 2, no level's errors are more than 2 % larger than if only the leaves were measured.
"""
MOST_CELLS: Final = 1 << 27
"""The maximum number of cells in all tables and regions together. An int64 array of that size takes up a gigabyte."""


@frozen(kw_only=True, eq=False)
class TablesDesign(Design):
    """The design for a release of hierarchical-tables: the queries, the noise and the fit.

    Attributes:
        problem: The contents of the problem file.
        regions: The region tree, and the paths that identify its leaves in records.
    """

    problem: TablesProblem
    regions: Regions = field(repr=False)

    @classmethod
    def of(cls, problem: TablesProblem, file: str, method: str = "margins") -> TablesDesign:
        """Build the design for a problem, after reading the public files named in the problem file.

        Args:
            problem: The parsed problem file.
            file: The name of the problem file, for error messages.
            method: The method of the mechanism.

        Raises:
            InputError: Keys of the problem file are inconsistent, a public file is invalid, the number of budget shares
                differs from the number of levels, a level declared as exact does not exist, or there are too many
                cells.
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
        # The fit computes intermediate margins, which may be larger than all tables, so their cells count as well.
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
        # The number of levels, from the root down, whose totals are published exactly.
        exact = tree.depth if relation.exact is None else relation.exact
        # A move between regions is hidden only if it changes no exact total, so a region on the deepest exact level
        # must contain several leaves. Households stay in their regions.
        hides_moves = not relation.is_of_households and exact > 0 and tree.widths[-1] > tree.widths[exact - 1]
        table_descriptions = ", ".join(f"{name} (by {', '.join(table.by) or 'region alone'})" for name, table in by)
        # By default, 1 / LEAF_PARTS of the budget is divided evenly among the levels above the leaves.
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
        """Return whether a table contains only exact totals at a level, so that there is nothing to measure.

        This is the case if totals are exact at the level and the table has a single cell per region.

        Args:
            form: The table to consider.
            level: The index of the level (0 for the root).
        """
        return level < self.exact and int(np.prod(form.shape)) == 1

    @cached_property
    def level_rates(self) -> tuple[Fraction, ...]:
        """The fraction of the total budget that a table receives per unit of its share, for each level.

        The budget of a measured table is the product of the level's rate, the table's share and the total budget. If a
        table contains only exact totals at a level, it needs no budget there, and the level's other tables receive it
        in proportion to their shares. A level without measured tables likewise leaves its budget to the other levels.
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
        # The share of a level on which no table is measured goes to the other levels.
        spent_share = sum((a * b for a, b in zip(rates, measured_shares, strict=True)), Fraction(0))
        return tuple(rate / spent_share for rate in rates) if spent_share else self.split[0]

    @property
    def budget_shares(self) -> list[Fraction]:
        """The relative budget share of every table at every level, ordered by level and then by table.

        If a table contains only exact totals at a level, its share there is 0.
        """
        shares = [
            Fraction(0) if self.shows_exact_numbers(form, level) else rate * share
            for level, rate in enumerate(self.level_rates)
            for share, form in zip(self.split[1], self.layout.forms, strict=True)
        ]
        # If nothing is measured, `faults` rejects the problem, so these budgets are never spent.
        return shares if any(shares) else super().budget_shares

    def weights_of(self, shares: Sequence[Fraction]) -> tuple[float, ...]:
        """Compute the least-squares weights of tables, or of levels, from their budget shares.

        Weights are inversely proportional to the variance of the noise. The largest weight is 1.

        Args:
            shares: The budget share of each table, or of each level. If a share is 0, nothing is measured, and the
                weight is 0.
        """
        # Only ratios matter, so the sensitivity can be taken as 1, and scales need not be those that the sampler
        # supports.
        precision = [
            self.law.precision(self.law.ideal_scale(budget_share, 1) if budget_share else None)
            for budget_share in shares
        ]
        return tuple(float(value / max(precision)) for value in precision)

    @cached_property
    def domain(self) -> Domain:
        """The attributes and tables, weighted in least squares according to the tables' budget shares."""
        return evolve(self.problem.domain, weights=self.weights_of(self.split[1]))

    @cached_property
    def level_weights(self) -> tuple[float, ...]:
        """The least-squares weight of each level, from the root down, computed from its rate. The largest is 1."""
        return self.weights_of(self.level_rates)

    def _level_scales(self, scales: Sequence[Sequence[Scale]]) -> list[Scale]:
        """Return the noise scale at each level, taken from the table that is measured at the most levels.

        Callers use only the ratios between levels, which are about the same for every table.

        Args:
            scales: The noise scale of each table at each level, or None where the table is not measured.
        """
        return list(max(scales, key=lambda table_scales: sum(scale is not None for scale in table_scales)))

    def fit(self, noisy: Tables, totals: Sequence[Ints], how: FitOptions = DEFAULT) -> Fit:
        """Fit consistent integers to noisy values, by least squares followed by rounding one margin at a time.

        Args:
            noisy: For each table and level, an array of shape (regions, ...) with the noisy values.
            totals: The totals that are published exactly, as one array of shape (regions,) per level that has them,
                from the root down. Empty if no totals are published exactly.
            how: The options for the fit. Only the gap and the progress function are used.
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
        # The minimum over real-valued tables is a lower bound for integer tables.
        bound, solver = self._least_objective(noisy, counts), "least squares, ADMM and error diffusion"
        return Fit(counts=counts, solver=solver, iterations=len(self.domain.steps), lower_bound=bound)

    def _least_objective(self, noisy: Tables, counts: Tables) -> Fraction:
        """Return a lower bound on the loss of every consistent release.

        Args:
            noisy: The noisy values by table and level.
            counts: Any tables that add up over regions and agree on shared attributes. They do not affect the bound,
                but are subtracted to keep the numbers small (see :func:`.fit.least_objective`).
        """
        differences = [
            [a - b for a, b in zip(*paired_levels, strict=True)] for paired_levels in zip(noisy, counts, strict=True)
        ]
        return Fraction(least_objective(self.tree, self.domain, self.level_weights, differences))

    def bound(self, release: HierarchyRelease, how: FitOptions) -> tuple[Fraction | float | None, bool]:
        """Recompute the least-squares lower bound on the loss from a release.

        Returns:
            The bound, or None if the released counts are inconsistent; and False, because the release is never proved
            to be optimal.
        """
        return (None if release.complaints() else self._least_objective(release.noisy, release.counts)), False

    def weight(self, table: int, level: int) -> Fraction:
        """Return the weight of a table at a given level in the loss: its precision relative to the largest precision.

        The weight is 0 if the table contains only exact totals at the level.
        """
        # An exact total replaces the measurement, so it adds nothing to the loss whatever its weight.
        if self.shows_exact_numbers(self.layout.forms[table], level):
            return Fraction(0)
        return Fraction(self.level_weights[level]) * Fraction(self.domain.weights[table])

    def compute_ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Compute confidence intervals for all cells, by table and level, from a least-squares fit to all tables."""
        domain, ends_by_table, effects = self.domain, [], effects_of(self.domain, release.noisy)
        # The noise of all tables on each level.
        by_level = list(zip(*self.noise_of(release.scales), strict=True))
        for table, counts in zip(domain.tables, release.counts, strict=True):
            # `least_squares` takes one row per region and one column per cell of the table.
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
        """Estimate the cells of a table by least squares, given exact totals for the top levels.

        The value of a cell is an equal part of its region's total plus effects that sum to 0 over the region's cells.
        Exact totals determine only the first term, so the two terms are fitted to the tree separately.

        Args:
            domain: The attributes and tables, with the weights of the tables.
            table: The margin of the table, that is, the indices of its attributes.
            effects: For each level, the effects estimated from all tables.
            by_level: For each level, the noise on one cell of each table.
            totals: For each of the top levels, an array of shape (regions,) with the exact totals.

        Returns:
            For each level, estimates of shape (regions, cells).
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
                # The two terms are uncorrelated, because they consist of different effects.
                variance=contrast.variance + number.variance / cells**2,
                # The two terms are not independent, so their fourth cumulants do not simply add up. This is an upper
                # bound (Minkowski's inequality for fourth powers), which is safe because heavier tails only widen an
                # interval.
                fourth=(contrast.fourth**0.25 + (number.fourth / cells**4) ** 0.25) ** 4,
            )
            for contrast, number in zip(contrasts, numbers, strict=True)
        ]

    def estimate_numbers(self, release: HierarchyRelease) -> list[Estimate]:
        """Estimate the total of every region by least squares over all tables.

        Returns:
            One estimate per level, of shape (regions, 1).
        """
        return least_squares_below(
            self.tree,
            [level[TOTAL].reshape(-1, 1) for level in effects_of(self.domain, release.noisy)],
            [noise_of_margin(self.domain, TOTAL, level) for level in zip(*self.noise_of(release.scales), strict=True)],
            release.totals,
        )

    def facts(self, release: HierarchyRelease) -> dict[str, Any]:
        """Return facts for result.json: how the split was chosen, and the attributes of each fitted margin."""
        attributes = list(self.problem.hierarchy.attributes)
        return {
            "split": "as plan finds it" if self.is_split_searched else "the problem file's",
            "fitted": [[attributes[attribute] for attribute in step.margin] for step in self.domain.steps],
        }

    def faults(self) -> list[tuple[str, str, str]]:
        """Return a fault if every published number would be exact under the neighbouring relation.

        In that case, there would be nothing for noise to protect.
        """
        if self.hides:
            return []
        actual = f'"{self.problem.privacy.relation}" where no table has two cells to tell apart: every number would be '
        expectation = '"individuals", which hides numbers of individuals, or a table of two cells or more'
        return [("privacy.relation", f"{actual}exact", expectation)]

    def find_misestimates(self, release: HierarchyRelease) -> list[str]:
        """Return a message if the root's released total differs from the estimate based on the noisy values.

        An exact total is not estimated. It is checked by :meth:`.HierarchyRelease.complaints` instead.
        """
        if release.totals:
            return []
        return total_complaint(
            release.tree,
            # With one value per region, the total is the last cumulative count of the order "less".
            noisy_numbers(self.domain, release.noisy),
            law=release.law,
            scales=self._level_scales(release.scales),
            order="less",
            limits=self.limits,
            released=int(release.counts[0][0].sum()),
        )

    def need_shares(self, tables: Sequence[float] | Floats) -> list[bool]:
        """Return, for each table, whether it needs a positive budget share.

        A table does not need one if another table with a positive share has all of its attributes and at least one
        more, because its counts are then sums of the other table's cells.

        Args:
            tables: The budget share of each table.
        """
        margins = self.domain.tables
        return [
            not any(
                # Only proper subsets count. Otherwise, two equal tables would each rely on the other.
                set(margin) < set(other_margin) and bool(other_share)
                for number, (other_margin, other_share) in enumerate(zip(margins, tables, strict=True))
                if number != table
            )
            for table, margin in enumerate(margins)
        ]

    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Forecast the sum of absolute errors for each table at each level, after a least-squares fit to all tables.

        Args:
            noise: For each table and level, the moments of the noise on one value.
            tables: The budget share of each table.

        Returns:
            The expected sums over all regions and cells, ordered by level and then by table.
        """
        variances, fourths = (
            np.array([[getattr(level, name) for level in levels] for levels in noise])[:, :, None]
            for name in ("variance", "fourth")
        )
        return np.asarray(self._forecast_cases(variances, fourths, np.array(tables, dtype=np.float64)[:, None])[0])

    def forecast_splits(self, levels: Floats, tables: Floats) -> Floats:
        """Forecast the errors of the linear fit for several splits of the budget in one batch.

        Args:
            levels: Array of shape (splits, levels) with the budget shares of the levels.
            tables: Array of shape (splits, tables) with the budget shares of the tables.

        Returns:
            Array of shape (splits, levels * tables) with the expected errors, ordered by level and then by table.
        """
        # Whether a table is measured on a level, with shape (tables, levels).
        is_measured = np.array(
            [
                [not self.shows_exact_numbers(form, level) for level in range(self.tree.depth)]
                for form in self.layout.forms
            ],
            dtype=np.float64,
        )
        # As in `level_rates`, but in doubles, the part of an unmeasured table goes to the measured tables on the level,
        # and the part of a level without measured tables goes to the other levels.
        measured_shares = tables @ is_measured
        rates = np.divide(levels, measured_shares, out=np.zeros_like(levels), where=measured_shares > 0.0)
        spent = (rates * measured_shares).sum(axis=1, keepdims=True)
        rates = np.divide(rates, spent, out=np.zeros_like(rates), where=spent > 0.0)
        budgets = float(self.problem.privacy.budget) * tables.T[:, None, :] * rates.T[None] * is_measured[:, :, None]
        return self._forecast_cases(*self.law.moments_of_budgets(budgets, self.delta), tables.T)

    def _forecast_cases(self, variances: Floats, fourths: Floats, tables: Floats) -> Floats:
        """Forecast the errors of the least-squares fit for several cases with different noise and budget shares.

        Args:
            variances: Array of shape (tables, levels, cases) with the variance of the noise on one cell.
            fourths: Array of shape (tables, levels, cases) with the fourth cumulant of the noise on one cell.
            tables: Array of shape (tables, cases) with the tables' budget shares, which determine their weights.

        Returns:
            Array of shape (cases, levels * tables) with the expected errors, ordered by level and then by table.
        """
        # Weights are proportional to 1 / variance: to the squared share for Laplace noise, and otherwise to the share.
        weights: Floats = (tables / tables.max(axis=0)) ** (2.0 if self.law.law == "laplace" else 1.0)
        depth, cases, known = self.tree.depth, tables.shape[1], self.exact

        def noise_of_cells(margin: Margin, *, contrasts_only: bool) -> list[Noise]:
            """Return the noise on an estimated cell of a margin, by level and case, before levels are combined."""
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
        # If some totals are exact, the part of a cell that comes from its region's total has a separate error.
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
                    # A forecast simply adds cumulants, whereas intervals use the upper bound in
                    # `_estimate_around_exact`.
                    fourth = fourth + numbers[level].fourth / cells**4
                error = evolve(estimate, variance=variance, fourth=fourth)
                errors[:, level, number] = cells * (self.alike.counts[level] @ mean_absolute(error))
        return np.asarray(errors.reshape(cases, -1))

    def leaves_only(self) -> Floats:
        """Forecast the sums of absolute errors if only the leaves are measured, in the same order as :meth:`forecast`.

        Plans are compared with this baseline. Each table is assumed to be summed from the smallest measured table that
        contains all of its attributes, which is the table itself if it has a budget share.
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
            # A cell of the smaller table is the sum of `times` independent cells in its source table.
            times = domain.cells(domain.tables[source]) // domain.cells(table)
            noise = self.law.moments(scales[source])
            summed = Noise(variance=times * noise.variance, fourth=times * noise.fourth)
            leaf_noise = leaves_alone(summed, self.tree.depth)
            by_table.append(domain.cells(table) * errors_of_counts(self.alike, leaf_noise))
        # Ordered by level and then by table, as in `forecast`.
        return np.ravel(by_table, order="F")
