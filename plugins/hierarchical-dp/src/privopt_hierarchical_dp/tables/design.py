"""The design of hierarchical-tables: several tables of individuals, with their budgets, fit, intervals and checks."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, Faults
from privopt_hierarchical_dp.bounds import read_limits
from privopt_hierarchical_dp.design import DEFAULT, Design, FitOptions
from privopt_hierarchical_dp.fits.qip import Fit
from privopt_hierarchical_dp.forecast import errors_of_counts, leaves_alone
from privopt_hierarchical_dp.least_squares import Ends, Noise, ends_of, least_squares
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.noise_distributions import Scale
from privopt_hierarchical_dp.release import HierarchyRelease, Tables
from privopt_hierarchical_dp.shares import normalize_shares
from privopt_hierarchical_dp.tables.fit import effects_of, fit_tables, least_objective, noise_of_margin, noisy_numbers
from privopt_hierarchical_dp.tables.margins import TOTAL, Domain
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.totals import total_complaint
from privopt_hierarchical_dp.tree import Regions

__all__ = ["TablesDesign"]

BOUNDS: Final = (
    " Bounds on numbers of individuals are public. Inputs whose exact numbers contradict them are refused, with all "
    "that are alike; numbers that are not exact are moved into them, whether or not the input is within."
)
LEAF_PARTS: Final = 128
"""The leaves have all but one of so many parts of the budget, unless the problem file says otherwise.

Errors of the leaves are in proportion to 1 / share, and what is measured above them hardly helps them. What is left
keeps the errors of hierarchies with very many leaves from growing with their number: no level's are more than 2 % above
those of the leaves alone, for an epsilon of a table up to 2.
"""
MOST_CELLS: Final = 1 << 27
"""Cells of all tables and regions that are held at once: a gigabyte for each copy."""


@frozen(kw_only=True, eq=False)
class TablesDesign(Design):
    """The design of a release of several tables.

    Attributes:
        regions: The hierarchy, and the position of each leaf.
    """

    problem: TablesProblem
    regions: Regions = field(repr=False)

    @classmethod
    def of(cls, problem: TablesProblem, file: str, method: str = "margins") -> TablesDesign:
        """Read the public files of a problem and make its design.

        Raises:
            InputError: Names do not fit together, the regions form no tree, the shares are not one for each level, or
                there are more cells than memory is meant for.
            InfeasibleError: The bounds contradict one another.
        """
        problem.check_keys(file)
        hierarchy, domain = problem.hierarchy, problem.domain
        regions = read_regions(hierarchy.regions, once=True)
        tree, faults = regions.tree, []
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
        exact = tree.depth if relation.exact is None else relation.exact
        hides_moves = (
            relation.exact is not None and tree.widths[-1] > exact
        )  # between regions whose numbers are not exact
        table_descriptions = ", ".join(f"{name} (by {', '.join(own.by) or 'region alone'})" for name, own in by)
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
            split=(normalize_shares(shares), normalize_shares([own.share for _, own in by])),
            delta=relation.sensitivity,
            exact=exact,
            hides=hides_moves or exact == 0 or max(cells_of) > 1,
            statement=relation.statement(problem.privacy.kind) + BOUNDS * (hierarchy.bounds is not None),
            claimed={"tables": list(hierarchy.tables)},
            in_words=(
                f"the tables {table_descriptions} of all individuals in every region of {tree.depth} levels",
                relation.public,
            ),
            parts=tuple(
                f"{name}, level {level} ({width * own})"
                for level, width in enumerate(tree.widths, start=1)
                for name, own in zip(hierarchy.tables, cells_of, strict=True)
            ),
            regions=regions,
        )

    def weights_of(self, shares: Sequence[Fraction]) -> tuple[float, ...]:
        """Return the weights of values for shares of the budget, in proportion to about 1 / variance, at most 1."""
        precision = [
            self.law.precision(self.law.ideal_scale(budget_share, 1) if budget_share else None)
            for budget_share in shares
        ]
        return tuple(float(value / max(precision)) for value in precision)

    @cached_property
    def domain(self) -> Domain:
        """The attributes and tables, weighed by their shares of the budget."""
        return evolve(self.problem.domain, weights=self.weights_of(self.split[1]))

    @cached_property
    def level_weights(self) -> tuple[float, ...]:
        """The weights of the levels by their shares of the budget; the largest is 1."""
        return self.weights_of(self.split[0])

    def _level_scales(self, scales: Sequence[Sequence[Scale]]) -> list[Scale]:
        """Return for each level the scale of one table that was measured there; None if there is none."""
        return [next((scale for scale in level if scale is not None), None) for level in zip(*scales, strict=True)]

    def fit(self, noisy: Tables, totals: Sequence[Ints], how: FitOptions = DEFAULT) -> Fit:
        """Fit real numbers by least squares over all margins, then whole numbers, one margin after another."""
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
        bound, solver = self._least_objective(noisy, counts), "least squares, ADMM and error diffusion"
        return Fit(counts=counts, solver=solver, iterations=len(self.domain.steps), lower_bound=bound)

    def _least_objective(self, noisy: Tables, counts: Tables) -> Fraction:
        """Return a lower bound on the loss of all tables that add up and agree; ``counts`` are any such tables."""
        differences = [
            [a - b for a, b in zip(*paired_levels, strict=True)] for paired_levels in zip(noisy, counts, strict=True)
        ]
        return Fraction(least_objective(self.tree, self.domain, self.level_weights, differences))

    def bound(self, release: HierarchyRelease, how: FitOptions) -> tuple[Fraction | float | None, bool]:
        """Return the least-squares bound on the loss, computed again; None if the release is inconsistent."""
        return (None if release.complaints() else self._least_objective(release.noisy, release.counts)), False

    def weight(self, table: int, level: int) -> Fraction:
        """Return the weight of a table on a level in the loss: its precision; the largest is 1."""
        return Fraction(self.level_weights[level]) * Fraction(self.domain.weights[table])

    def compute_ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Compute intervals by least squares over all tables and levels."""
        domain, ends_by_table, effects = self.domain, [], effects_of(self.domain, release.noisy)
        by_level = list(zip(*self.noise_of(release.scales), strict=True))
        for table, counts in zip(domain.tables, release.counts, strict=True):
            released = [counts_of_level.reshape(len(counts_of_level), -1) for counts_of_level in counts]
            means = [
                domain.margin(level, table).reshape(counts_of_level.shape)
                for level, counts_of_level in zip(effects, released, strict=True)
            ]
            estimates = least_squares(self.tree, means, [noise_of_margin(domain, table, level) for level in by_level])
            ends_by_table.append(ends_of(estimates, released, release.totals, self.problem.confidence))
        return ends_by_table

    def facts(self, release: HierarchyRelease) -> dict[str, Any]:
        """Return the margins in the order in which they are fitted."""
        attributes = list(self.problem.hierarchy.attributes)
        return {"fitted": [[attributes[attribute] for attribute in step.margin] for step in self.domain.steps]}

    def faults(self) -> list[tuple[str, str, str]]:
        """Return a fault if the relation hides nothing."""
        if self.hides:
            return []
        actual = f'"{self.problem.privacy.relation}" where no table has two cells to tell apart: every number would be '
        expectation = '"individuals", which hides numbers of individuals, or a table of two cells or more'
        return [("privacy.relation", f"{actual}exact", expectation)]

    def find_misestimates(self, release: HierarchyRelease) -> list[str]:
        """Return a line if the estimated number of individuals differs from the one that the noisy values give."""
        if release.totals:
            return []
        return total_complaint(
            release.tree,
            noisy_numbers(self.domain, release.noisy),
            law=release.law,
            scales=self._level_scales(release.scales),
            order="less",
            limits=self.limits,
            released=int(release.counts[0][0].sum()),
        )

    def need_shares(self, tables: Sequence[float] | Floats) -> list[bool]:
        """Return for each table whether it needs a share: no other table with a share has all of its attributes."""
        margins = self.domain.tables
        return [
            not any(
                set(margin) < set(other_margin) and bool(other_share)
                for number, (other_margin, other_share) in enumerate(zip(margins, tables, strict=True))
                if number != table
            )
            for table, margin in enumerate(margins)
        ]

    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Return the expected sums of absolute errors of least squares over all tables and levels."""
        # A search over shares calls this with shares that differ from those of the design.
        weights = self.weights_of([Fraction(float(table_share)) for table_share in tables])
        shape, domain = self.tree, evolve(self.domain, weights=weights)
        by_level = list(zip(*noise, strict=True))
        leaves, by_table = by_level[-1], []
        number = noise_of_margin(domain, TOTAL, leaves).variance
        for table in domain.tables:
            level_noise = [noise_of_margin(domain, table, level) for level in by_level]
            part = number / (level_noise[-1].variance * domain.cells(table) ** 2)
            by_table.append(
                domain.cells(table) * errors_of_counts(shape, level_noise, part=part, known_levels=self.exact)
            )
        return np.ravel(by_table, order="F")

    def leaves_only(self) -> Floats:
        """Return the expected errors if only the leaves' tables are measured.

        A table without a share is added up from the smallest table that has all of its attributes.
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
            times = domain.cells(domain.tables[source]) // domain.cells(table)
            noise = self.law.moments(scales[source])
            summed = Noise(variance=times * noise.variance, fourth=times * noise.fourth)
            leaf_noise = leaves_alone(summed, self.tree.depth)
            by_table.append(domain.cells(table) * errors_of_counts(self.tree, leaf_noise))
        return np.ravel(by_table, order="F")
