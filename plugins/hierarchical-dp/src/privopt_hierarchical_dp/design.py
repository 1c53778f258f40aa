"""The base class of a release's design: budgets, noise, draw, consistent fit, checks and expected errors.

A release is of one table of groups by size (:mod:`.sizes`) or of several tables of individuals (:mod:`.tables.design`);
what is asked of either is asked here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Self, TypeAlias

import numpy as np
from attrs import evolve, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, Faults, InputError
from privopt.numbers.noise import NoiseRecord, split_budget
from privopt_hierarchical_dp.bounds import Limits
from privopt_hierarchical_dp.fits.qip import Fit
from privopt_hierarchical_dp.least_squares import Ends, Noise
from privopt_hierarchical_dp.noise_distributions import KINDS, NoiseDistribution, Scale
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.region_tables import Layout
from privopt_hierarchical_dp.release import NOISY, HierarchyRelease, Tables
from privopt_hierarchical_dp.shares import Split, normalize_shares
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tree import Tree

__all__ = ["CountsProblem", "Design", "FitOptions"]

CountsProblem: TypeAlias = HierarchyProblem | TablesProblem
LARGEST_SCALE: Final = 1 << 40


@frozen(kw_only=True, eq=False)
class FitOptions:
    """How a fit works; a design takes the options that its methods have.

    Attributes:
        gap: relative gap to stop at.
        backend: of integer programs.
        at_once: whether to take the quickest method that gives a release of the same form.
        report: called with what is fitted, and its number.
    """

    gap: float = 1e-3
    backend: str = "cbc"
    at_once: bool = False
    report: Callable[[str, int], None] = lambda phase, number: None


DEFAULT: Final = FitOptions()


@frozen(kw_only=True, eq=False)
class Design(ABC):
    """What is measured with which noise, and what a fit has to keep: decided once of a problem and a method.

    Attributes:
        problem: what was asked.
        file: its name, for faults.
        method: its name.
        tree: the regions.
        limits: public bounds on regions' numbers; None without any.
        split: shares of the levels, and of the tables, whose sums are 1.
        delta: sensitivity that noise is scaled for.
        exact: number of levels, from the root's, whose numbers are published exactly.
        hides: whether something is left to hide: where no region has two cells, its exact number is all.
        valid: whether releases are always consistent.
        statement: what releases promise.
        claimed: what else a guarantee says.
        in_words: what is measured, and which numbers are exact, for a report's paragraph of methods.
        parts: what errors are stated for, level by level each table, with its numbers of regions or cells.
    """

    problem: Any
    file: str
    method: str
    tree: Tree
    limits: Limits | None
    split: tuple[Split, Split]
    delta: int
    exact: int
    hides: bool
    valid: bool = True
    statement: str
    claimed: dict[str, Any]
    in_words: tuple[str, str]
    parts: tuple[str, ...]

    def with_method(self, method: str) -> Design:
        """Return what is decided of another method."""
        return self

    def with_split(self, levels: Sequence[Fraction], tables: Sequence[Fraction]) -> Self:
        """Return the same with other shares."""
        return evolve(self, split=(normalize_shares(levels), normalize_shares(tables)))

    @property
    def law(self) -> NoiseDistribution:
        """Return the distribution of the noise."""
        law: NoiseDistribution = self.problem.privacy.law
        return law

    @cached_property
    def layout(self) -> Layout:
        """Return the files of a release."""
        layout: Layout = self.problem.layout
        return layout

    @cached_property
    def budgets(self) -> tuple[tuple[Fraction, ...], ...]:
        """Return for each table each level's part of the budget: in all at most it, exactly."""
        levels, tables = self.split
        parts = split_budget(self.problem.privacy.budget, [level * table for level in levels for table in tables])
        return tuple(parts[number :: len(tables)] for number in range(len(tables)))

    @cached_property
    def scales(self) -> tuple[tuple[Scale, ...], ...]:
        """Return scales of the noise, for each table on each level."""
        return tuple(
            tuple(self.law.scale(budget, self.delta) for budget in table_budgets) for table_budgets in self.budgets
        )

    def noise_of(self, scales: Sequence[Sequence[Scale]]) -> list[list[Noise]]:
        """Return moments of noise of scales, for each table on each level."""
        return [list(map(self.law.moments, table_scales)) for table_scales in scales]

    # --- what is measured ---------------------------------------------------------------------------------

    def compute_queries(self, counts: Tables) -> Tables:
        """Return what noise is added to: counts, or sums of them."""
        return counts

    def draw(self, counts: Tables, *, seed: int | None) -> tuple[Tables, list[list[NoiseRecord | None]]]:
        """Measure true counts with noise, for each table on each level: the only step that reads them.

        Returns:
            Noisy values, those of a level that has no part of the budget the sums of the level below; and records, None
            for what was not measured.
        """
        noisy: Tables = []
        records: list[list[NoiseRecord | None]] = []
        for table, (levels, budgets) in enumerate(zip(self.compute_queries(counts), self.budgets, strict=True)):
            measurements = [
                self.law.measure(values, budget, self.delta, seed=None if seed is None else (seed, level, table))
                for level, (values, budget) in enumerate(zip(levels, budgets, strict=True))
            ]
            noisy.append([values for values, _ in measurements])
            records.append([record for _, record in measurements])
        return self.fill_unmeasured(noisy, self.budgets), records

    def fill_unmeasured(self, noisy: Tables, measured: Sequence[Sequence[object]]) -> Tables:
        """Return noisy values, those of a level that is not measured the sums of the level below.

        Args:
            noisy: for each table, for each level (R_l, ...).
            measured: likewise, what is true where it was measured: its part of the budget, or its scale.
        """
        filled = [list(levels) for levels in noisy]
        is_measured = [any(level) for level in zip(*measured, strict=True)]
        for level, start in reversed(list(enumerate(self.tree.start))):
            for levels in filled if not is_measured[level] else ():
                levels[level] = np.add.reduceat(levels[level + 1], start[:-1], axis=0)
        return filled

    def real_loss(self, release: HierarchyRelease) -> Fraction:
        """Return what one change that the relation covers costs under the scales of a release, exactly."""
        losses = (self.law.spend_of(scale, self.delta) for table_scales in release.scales for scale in table_scales)
        return sum(losses, Fraction(0))

    # --- what is made of it -------------------------------------------------------------------------------

    @abstractmethod
    def fit(self, noisy: Tables, totals: Sequence[Ints], how: FitOptions = DEFAULT) -> Fit:
        """Make consistent counts of noisy values; projections end at the point reached when time is over.

        Args:
            noisy: for each table, for each level the noisy values.
            totals: for each level (R_l,) exact numbers, of as many levels as have them.
            how: gap, solver, speed, progress.
        """

    @abstractmethod
    def bound(self, release: HierarchyRelease, how: FitOptions) -> tuple[Fraction | float | None, bool]:
        """Return what the noisy values of a release prove of its objective, and whether it is reached."""

    @abstractmethod
    def weight(self, table: int, level: int) -> Fraction:
        """Return what a squared distance from a noisy value weighs in the objective; the largest is 1."""

    @abstractmethod
    def compute_ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Return intervals for every count, for each table on each level; None without any."""

    @abstractmethod
    def facts(self, release: HierarchyRelease) -> dict[str, Any]:
        """Return what else ``result.json`` says of a release."""

    # --- what can go wrong --------------------------------------------------------------------------------

    def check(self) -> None:
        """Refuse what cannot be done, and noise too wide for 64 bits, before anything is drawn.

        Raises:
            InputError: with the key.
            UsageError: an integer program of a size that it cannot take.
        """
        Faults([Fault(self.file, *fault) for fault in self.faults()][:1]).check()
        self.check_noise()

    def check_noise(self, max_scale: int = LARGEST_SCALE, method: str = "") -> None:
        """Refuse a part of the budget whose noise would be wider than ``max_scale``.

        Raises:
            InputError: with the part, where it is spent, and the noise.
        """
        key, widest = KINDS[self.problem.privacy.kind][1][0], self.law.max_drawable_scale(max_scale)
        for level in range(self.tree.depth):
            for form, table_budgets in zip(self.layout.forms, self.budgets, strict=True):
                scale = self.law.ideal_scale(table_budgets[level], self.delta) if table_budgets[level] else Fraction(0)
                if scale > widest:
                    where, word = form.part(level + 1), self.law.word
                    part = _format_short(table_budgets[level])
                    actual = f"{part} of it on {where}: noise of {word} {_format_short(scale)}"
                    scale_limit = f"a {word} of at most {widest:,}{f' ({method})' * bool(method)}"
                    expectation = f"{scale_limit} (a larger {key}, or a larger share of it)"
                    raise InputError([Fault(self.file, f"privacy.{key}", actual, expectation)])

    @abstractmethod
    def faults(self) -> list[tuple[str, str, str]]:
        """Return key, what is there and what must be there, for everything that cannot be done."""

    def shape_faults(self, release: HierarchyRelease) -> list[str]:
        """Return whether as many values were measured as the method measures; one line for each that fails."""
        if len(release.totals) == self.exact:
            return []
        return [f"{NOISY}: totals of {len(release.totals)} levels; those of {self.exact} are published"]

    @abstractmethod
    def find_misestimates(self, release: HierarchyRelease) -> list[str]:
        """Return numbers that are not those that the noisy values give where they are not public."""

    # --- what is expected ---------------------------------------------------------------------------------

    def need_shares(self, tables: Sequence[float] | Floats) -> list[bool]:
        """Return whether a table cannot do without a share, where others have those given."""
        return [True] * len(tables)

    @abstractmethod
    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Return sums of absolute errors of the linear fit, level by level each table's, for shares of the tables."""

    @abstractmethod
    def leaves_only(self) -> Floats:
        """Return errors where the leaves have all of the budget, level by level each table's."""


def _format_short(value: Fraction) -> str:
    """Return three digits of a rational that may be no double."""
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.3g}"
