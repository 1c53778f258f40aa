"""Several tables of individuals: what is measured of them, their fit, their intervals."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Final

import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.errors import Fault, Faults, InputError
from privopt_hierarchical_dp.bounds import read_limits
from privopt_hierarchical_dp.design import DEFAULT, Design, FitOptions, TablesFit
from privopt_hierarchical_dp.forecast import errors_of_counts, leaves_alone, shape_of
from privopt_hierarchical_dp.least_squares import Ends, Noise
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.noise_distributions import Scale
from privopt_hierarchical_dp.release import HierarchyRelease, Tables
from privopt_hierarchical_dp.shares import Split, normed
from privopt_hierarchical_dp.tables.fit import ends_of, fit_tables, least_objective, noise_of_margin, noisy_numbers
from privopt_hierarchical_dp.tables.margins import TOTAL, Domain
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tables.read import read_impossible
from privopt_hierarchical_dp.totals import total_complaint
from privopt_hierarchical_dp.tree import Regions

__all__ = ["TablesDesign"]

MOST_CELLS: Final = 1 << 27
"""Cells of all tables and regions that are held at once: a gigabyte for each copy."""


@frozen(kw_only=True, eq=False)
class TablesDesign(Design):
    """What is measured of several tables, and what their fit has to keep.

    Attributes:
        regions: the hierarchy, and each leaf's place.
        zeros: for each table the impossible cells.
    """

    problem: TablesProblem
    regions: Regions = field(repr=False)
    zeros: tuple[Bools, ...] = field(repr=False)

    @classmethod
    def of(cls, problem: TablesProblem, file: str, method: str = "margins") -> TablesDesign:
        """Read the public tables, and decide.

        Raises:
            InputError: names that do not fit together, regions that form no tree, shares that are not one a level, or
                more cells than can be held.
            InfeasibleError: bounds that clash.
        """
        problem.checked(file)
        hierarchy, domain = problem.hierarchy, problem.domain
        regions, _ = read_regions(hierarchy.regions, once=True)
        tree, faults = regions.tree, []
        if hierarchy.budget is not None and len(hierarchy.budget) != tree.depth:
            found = f"{len(hierarchy.budget)} numbers"
            faults.append(Fault(file, "hierarchy.budget", found, f"{tree.depth} numbers, one for each level"))
        cells = tree.regions * sum(map(domain.cells, {*domain.tables, *(s.margin for s in domain.steps)}))
        if cells > MOST_CELLS:
            wanted = (
                f"at most {MOST_CELLS:,}: fewer values or regions, or no tables whose attributes form a ring "
                "(a with b, b with c, c with a), for they are fitted as one table by all of these"
            )
            faults.append(Fault(file, "hierarchy.tables", f"{cells:,} cells in all regions", wanted))
        Faults(faults).check()
        zeros = tuple(read_impossible(problem, name) for name in hierarchy.tables)
        if not all(own.any() for own in domain.allowed(zeros).values()):
            raise InputError([Fault(file, "hierarchy.tables", "only impossible cells", "a possible one")])
        return cls(
            problem=problem,
            file=file,
            method=method,
            tree=tree,
            limits=read_limits(hierarchy.bounds, tree),
            regions=regions,
            zeros=zeros,
        )

    @cached_property
    def domain(self) -> Domain:
        """Return attributes and tables."""
        return self.problem.domain

    @cached_property
    def _able(self) -> tuple[Bools, ...]:
        """Return for each table the possible cells, given those of all others."""
        allowed = self.domain.allowed(self.zeros)
        return tuple(allowed[table] for table in self.domain.tables)

    @property
    def delta(self) -> int:
        """Return the sensitivity of one table on one level."""
        return self.problem.relation.sensitivity

    @property
    def exact(self) -> int:
        """Return what the relation fixes."""
        exact = self.problem.relation.exact
        return self.tree.depth if exact is None else exact

    @property
    def hides(self) -> bool:
        """Return whether a change that the relation covers can be seen in some table."""
        exact = self.problem.relation.exact
        if exact == 0 or (exact is not None and self.tree.widths[-1] > exact):
            return True
        return any(int(able.sum()) > 1 for able in self._able)

    def where(self, table: int, level: int) -> Bools | None:
        """Return possible cells by the table's own file."""
        shape = (self.tree.widths[level], *self.zeros[table].shape)
        return np.broadcast_to(~self.zeros[table], shape)

    def _level_scales(self, scales: Sequence[Sequence[Scale]]) -> list[Scale]:
        """Return for each level the scale of a table that was measured there, which weighs it; None without any."""
        return [next((own for own in level if own is not None), None) for level in zip(*scales, strict=True)]

    def fit(self, noisy: Tables, totals: Sequence[Ints], how: FitOptions = DEFAULT) -> TablesFit:
        """Fit least squares over margins, then whole numbers, one margin after another."""
        levels = self.problem.level_weights(self.tree.depth)
        counts = fit_tables(
            self.tree,
            self.domain,
            noisy,
            levels=levels,
            totals=totals,
            zeros=self.zeros,
            law=self.law,
            scales=self._level_scales(self.scales),
            gap=how.gap,
            limits=self.limits,
            progress=how.report,
        )
        return TablesFit(
            counts=counts,
            solver={"name": "least squares, ADMM and error diffusion", "iterations": len(self.domain.steps)},
            lower_bound=self._least_objective(noisy, counts),
        )

    def _least_objective(self, noisy: Tables, counts: Tables) -> Fraction:
        """Return what no tables that add up and agree can go below; any such ones keep differences within doubles."""
        off = [[a - b for a, b in zip(*own, strict=True)] for own in zip(noisy, counts, strict=True)]
        return Fraction(least_objective(self.tree, self.domain, self.problem.level_weights(self.tree.depth), off))

    def bound(self, release: HierarchyRelease, how: FitOptions) -> tuple[Fraction | None, bool]:
        """Return what least squares over the noisy values gives once more."""
        return (None if release.complaints() else self._least_objective(release.noisy, release.counts)), False

    def weight(self, table: int, level: int) -> Fraction:
        """Return the precision of the noise, the best 1."""
        return Fraction(self.problem.level_weights(self.tree.depth)[level]) * Fraction(self.domain.weights[table])

    def ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Return intervals of least squares over all tables and levels."""
        return ends_of(
            self.tree,
            self.domain,
            release.noisy,
            release.counts,
            totals=release.totals,
            zeros=self.zeros,
            noise=self.noise_of(release.scales),
            confidence=self.problem.confidence,
        )

    def faults(self) -> list[tuple[str, str, str]]:
        """Return a fault where the relation hides nothing."""
        if self.hides:
            return []
        found = f'"{self.problem.privacy.relation}" where no table has two cells to tell apart: every number would be '
        wanted = '"individuals", which hides numbers of individuals, or a table of two cells or more'
        return [("privacy.relation", f"{found}exact", wanted)]

    def impossible(self, table: int, level: int) -> Bools | None:
        """Return impossible cells, given those of all tables."""
        return np.broadcast_to(~self._able[table], (self.tree.widths[level], *self.zeros[table].shape))

    def misestimated(self, release: HierarchyRelease) -> list[str]:
        """Return whether the number of individuals, where not public, is what the noisy values give."""
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

    @property
    def split(self) -> tuple[Split, Split]:
        """Return shares of the levels and tables, as the problem file has them."""
        tables = self.problem.hierarchy.tables.values()
        return normed(self.problem.level_shares(self.tree.depth)), normed([table.share for table in tables])

    def with_split(self, levels: Split, tables: Split) -> TablesDesign:
        """Return the same with other shares of levels and tables."""
        hierarchy = self.problem.hierarchy
        named = zip(hierarchy.tables.items(), tables, strict=True)
        own = {name: evolve(table, share=share) for (name, table), share in named}
        hierarchy = evolve(hierarchy, budget=tuple(levels), tables=own)
        return evolve(self, problem=evolve(self.problem, hierarchy=hierarchy))

    def needed(self, tables: Sequence[float] | Floats) -> list[bool]:
        """Return whether no table that has a share holds all attributes of one: else that one is a sum of its cells."""
        every = self.domain.tables
        return [
            not any(
                set(own) < set(other) and bool(share)
                for number, (other, share) in enumerate(zip(every, tables, strict=True))
                if number != table
            )
            for table, own in enumerate(every)
        ]

    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Return sums of absolute errors of least squares over all tables and levels."""
        weights = self.problem.weights_of([Fraction(float(share)) for share in tables])
        shape, domain = shape_of(self.tree), evolve(self.domain, weights=weights)
        by_level = list(zip(*noise, strict=True))
        leaves, by_table = by_level[-1], []
        number = noise_of_margin(domain, TOTAL, leaves).variance
        for table, able in zip(domain.tables, self._able, strict=True):
            own = [noise_of_margin(domain, table, level) for level in by_level]
            part = number / (own[-1].variance * domain.cells(table) ** 2)
            by_table.append(int(able.sum()) * errors_of_counts(shape, own, part=part, known=self.exact))
        return np.ravel(by_table, order="F")

    def leaves_only(self) -> Floats:
        """Return errors of the leaves' tables; one without a share is added up from the smallest that holds it."""
        domain = self.domain
        scales = [self.law.scale(self.problem.privacy.budget * share, self.delta) for share in self.split[1]]
        by_table = []
        for table, able in zip(domain.tables, self._able, strict=True):
            holding = [n for n, own in enumerate(domain.tables) if scales[n] is not None and set(table) <= set(own)]
            source = min(holding, key=lambda number: domain.cells(domain.tables[number]))
            times = domain.cells(domain.tables[source]) // domain.cells(table)
            noise = self.law.moments(scales[source])
            summed = Noise(variance=times * noise.variance, fourth=times * noise.fourth)
            alone = leaves_alone(summed, self.tree.depth)
            by_table.append(int(able.sum()) * errors_of_counts(shape_of(self.tree), alone))
        return np.ravel(by_table, order="F")

    @property
    def parts(self) -> tuple[str, ...]:
        """Return tables and levels, with the possible cells of all regions."""
        return tuple(
            f"{name}, level {level} ({width * int(able.sum())})"
            for level, width in enumerate(self.tree.widths, start=1)
            for name, able in zip(self.problem.hierarchy.tables, self._able, strict=True)
        )
