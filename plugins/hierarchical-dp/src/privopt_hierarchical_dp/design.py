"""The base class of a release's design: budgets, noise, measurement, fit, checks and expected errors.

:mod:`.sizes` implements it for one table of groups by size, :mod:`.tables.design` for several tables of individuals.
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
    """Options of a fit. A method ignores the options that it has no use for.

    Attributes:
        gap: Relative gap at which an iteration stops.
        backend: Solver of integer programs.
        at_once: Whether to use the quickest method that gives a release of the same form.
        report: Called with the name and the number of each step.
    """

    gap: float = 1e-3
    backend: str = "cbc"
    at_once: bool = False
    report: Callable[[str, int], None] = lambda phase, number: None


DEFAULT: Final = FitOptions()


@frozen(kw_only=True, eq=False)
class Design(ABC):
    """Which values are measured with which noise, and which constraints a fit must satisfy, for one problem and method.

    Attributes:
        problem: The declared problem.
        file: The name of the problem file, for faults.
        method: The name of the method.
        tree: The regions.
        limits: Public bounds on the regions' numbers; None if there are none.
        split: Shares of the levels, and of the tables; each adds up to 1.
        delta: The sensitivity for which noise is scaled.
        exact: The number of levels, from the root's, whose numbers are published exactly.
        hides: Whether the noise hides anything. It does not if all numbers are exact and no region has two cells.
        valid: Whether releases are always consistent.
        statement: The promise of a release, in words.
        claimed: Further entries of the guarantee.
        in_words: The measured values and the exact numbers, for a report's paragraph of methods.
        parts: Names of the parts for which errors are stated: for each level every table, with the number of its
            regions or cells.
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
        """Return the design of another method for the same problem."""
        return self

    def with_split(self, levels: Sequence[Fraction], tables: Sequence[Fraction]) -> Self:
        """Return the design with other shares."""
        return evolve(self, split=(normalize_shares(levels), normalize_shares(tables)))

    @property
    def law(self) -> NoiseDistribution:
        """The distribution of the noise."""
        law: NoiseDistribution = self.problem.privacy.law
        return law

    @cached_property
    def layout(self) -> Layout:
        """The files of a release."""
        layout: Layout = self.problem.layout
        return layout

    @cached_property
    def budgets(self) -> tuple[tuple[Fraction, ...], ...]:
        """For each table, each level's part of the budget. Together they are at most the budget, exactly."""
        levels, tables = self.split
        # split_budget rounds in privacy's favour; its flat list is by level, then by table.
        parts = split_budget(self.problem.privacy.budget, [level * table for level in levels for table in tables])
        return tuple(parts[number :: len(tables)] for number in range(len(tables)))

    @cached_property
    def scales(self) -> tuple[tuple[Scale, ...], ...]:
        """The scales of the noise, for each table on each level."""
        return tuple(
            tuple(self.law.scale(budget, self.delta) for budget in table_budgets) for table_budgets in self.budgets
        )

    def noise_of(self, scales: Sequence[Sequence[Scale]]) -> list[list[Noise]]:
        """Return the moments of noise of given scales, for each table on each level."""
        return [list(map(self.law.moments, table_scales)) for table_scales in scales]

    # --- measurement --------------------------------------------------------------------------------------

    def compute_queries(self, counts: Tables) -> Tables:
        """Compute the true values to which noise is added: counts, or sums of counts."""
        return counts

    def draw(self, counts: Tables, *, seed: int | None) -> tuple[Tables, list[list[NoiseRecord | None]]]:
        """Add noise to the true counts, for each table on each level.

        Returns:
            Noisy values, and a record of each draw. A level without a part of the budget has no record, and its values
            are the sums of the level below.
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
        """Replace the values of each unmeasured level by the sums of the level below.

        Args:
            noisy: For each table, for each level (R_l, ...) its noisy values.
            measured: For each table and level a value that is true if it was measured: its part of the budget, or its
                scale.
        """
        filled = [list(levels) for levels in noisy]
        # Either all tables of a level have a part of the budget or none has, unless a table has no share at all.
        is_measured = [any(level) for level in zip(*measured, strict=True)]
        for level, start in reversed(list(enumerate(self.tree.start))):
            for levels in filled if not is_measured[level] else ():
                levels[level] = np.add.reduceat(levels[level + 1], start[:-1], axis=0)
        return filled

    def real_loss(self, release: HierarchyRelease) -> Fraction:
        """Return the exact privacy loss of one change that the relation covers, under the scales of a release."""
        losses = (self.law.spend_of(scale, self.delta) for table_scales in release.scales for scale in table_scales)
        return sum(losses, Fraction(0))

    # --- fit ----------------------------------------------------------------------------------------------

    @abstractmethod
    def fit(self, noisy: Tables, totals: Sequence[Ints], how: FitOptions = DEFAULT) -> Fit:
        """Fit consistent counts to noisy values. Projections stop where they are when the time is over.

        Args:
            noisy: For each table, for each level the noisy values.
            totals: For each of the first levels (R_l,) the exact numbers, as far as they are published.
            how: The options of the fit.
        """

    @abstractmethod
    def bound(self, release: HierarchyRelease, how: FitOptions) -> tuple[Fraction | float | None, bool]:
        """Return the lower bound on the loss that the noisy values of a release prove, and whether it is reached."""

    @abstractmethod
    def weight(self, table: int, level: int) -> Fraction:
        """Return the weight of a squared distance from a noisy value in the loss; the largest weight is 1."""

    @abstractmethod
    def compute_ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Compute the intervals of all counts, for each table on each level; None if the method has none."""

    @abstractmethod
    def facts(self, release: HierarchyRelease) -> dict[str, Any]:
        """Return further details of a release for ``result.json``."""

    # --- checks -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check before anything is drawn that the method can solve the problem, and that 64 bits hold the noise.

        Raises:
            InputError: A key of the problem that the method cannot use, or whose noise is too wide.
            UsageError: The problem is too large for an integer program.
        """
        Faults([Fault(self.file, *fault) for fault in self.faults()][:1]).check()
        self.check_noise()

    def check_noise(self, max_scale: int = LARGEST_SCALE, method: str = "") -> None:
        """Check that no part of the budget has noise wider than double geometric noise of scale ``max_scale``.

        Raises:
            InputError: The part, where it is spent, and its noise.
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
        """Return the key, the actual value and the expectation of everything that the method cannot do."""

    def shape_faults(self, release: HierarchyRelease) -> list[str]:
        """Return a line for each part of a release that has another number of values than the method measures."""
        if len(release.totals) == self.exact:
            return []
        return [f"{NOISY}: totals of {len(release.totals)} levels; those of {self.exact} are published"]

    @abstractmethod
    def find_misestimates(self, release: HierarchyRelease) -> list[str]:
        """Return a line for each estimated number that differs from the one that the noisy values give."""

    # --- forecast -----------------------------------------------------------------------------------------

    def need_shares(self, tables: Sequence[float] | Floats) -> list[bool]:
        """Return for each table whether it needs a share of the budget, given the shares of the others."""
        return [True] * len(tables)

    @abstractmethod
    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Return the expected sums of absolute errors of the linear fit, for each level every table's.

        Args:
            noise: The noise on one value, for each table on each level.
            tables: The shares of the tables.
        """

    @abstractmethod
    def leaves_only(self) -> Floats:
        """Return the expected errors if the leaves have all of the budget, for each level every table's."""


def _format_short(value: Fraction) -> str:
    """Format a rational with three digits; it may be too large or too small for a double."""
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.3g}"
