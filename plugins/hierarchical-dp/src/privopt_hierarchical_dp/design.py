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
from privopt.errors import Fault, Faults, InputError, number_of
from privopt.numbers.noise import NoiseRecord, split_budget
from privopt_hierarchical_dp.alike import AlikeRegions, find_alike_regions
from privopt_hierarchical_dp.bounds import Limits
from privopt_hierarchical_dp.fits.qip import Fit
from privopt_hierarchical_dp.least_squares import Ends, Estimate, Noise
from privopt_hierarchical_dp.noise_distributions import KINDS, NoiseDistribution, Scale
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.region_tables import Form, Layout
from privopt_hierarchical_dp.release import NOISY, HierarchyRelease, Tables, numbers_of
from privopt_hierarchical_dp.shares import Split, normalize_shares
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tree import Tree

__all__ = ["CountsProblem", "Design", "FitOptions"]

CountsProblem: TypeAlias = HierarchyProblem | TablesProblem
LARGEST_SCALE: Final = 1 << 40
"""The largest scale of double geometric noise that is drawn, so that 64 bits hold the noisy values."""


@frozen(kw_only=True, eq=False)
class FitOptions:
    """Options of a fit. A method ignores options that do not apply to it.

    Attributes:
        gap: The relative gap at which an iteration stops.
        backend: The solver for integer programs.
        at_once: Whether to use the quickest method that yields a release of the same form.
        report: Function that is called with the name and number of each step.
    """

    gap: float = 1e-3
    backend: str = "cbc"
    at_once: bool = False
    report: Callable[[str, int], None] = lambda phase, number: None


DEFAULT: Final = FitOptions()
"""The options that a fit uses if none are given."""


CONTRADICTING_ERRORS: Final = 6.0
"""The number of standard errors by which an estimate must be outside a bound to contradict it."""


@frozen(kw_only=True)
class Contradiction:
    """A public bound on a region's number that is contradicted by the noisy values.

    Attributes:
        region: The region.
        bound: The bound that the estimate violates.
        estimate: The estimated number, rounded.
        standard_error: The standard error of the estimate.
    """

    region: str
    bound: int
    estimate: int
    standard_error: float


@frozen(kw_only=True, eq=False)
class Design(ABC):
    """The design of a release for one problem and method: measured values, noise, and constraints of the fit.

    Attributes:
        problem: The declared problem.
        file: The name of the problem file, for faults.
        method: The name of the method.
        tree: The regions.
        limits: Public bounds on the regions' numbers. None if the problem has no bounds.
        split: The budget shares of the levels, and those of the tables. Each of the two adds up to 1.
        delta: The sensitivity to which noise is scaled.
        exact: The number of levels, from the root down, whose numbers are published exactly.
        hides: Whether the noise hides anything. It does not if all numbers are exact and no region has two cells.
        valid: Whether releases are always consistent.
        statement: The privacy guarantee of a release as a text.
        claimed: Further entries of the guarantee in ``result.json``.
        in_words: The measured values and the exact numbers, described for the methods paragraph of a report.
        parts: Names of the parts for which errors are stated: all tables of each level, with their numbers of regions
            or cells.
        is_split_searched: Whether the problem file leaves the split to the search of :mod:`.plan`.
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
    is_split_searched: bool = False

    def with_method(self, method: str) -> Design:
        """Return the design for another method on the same problem. By default, all methods share one design."""
        return self

    def with_split(self, levels: Sequence[Fraction], tables: Sequence[Fraction]) -> Self:
        """Return the design with the given shares of the budget, which are normalised to add up to 1.

        Args:
            levels: The shares of the levels, from the root.
            tables: The shares of the tables.
        """
        return evolve(self, split=(normalize_shares(levels), normalize_shares(tables)))

    @property
    def searched_split(self) -> tuple[Split, Split] | None:
        """The split of the budget if a search found it because the problem file gives none; otherwise None."""
        return self.split if self.is_split_searched else None

    def with_searched_split(self, split: tuple[Split, Split]) -> Self:
        """Return the design with a split that a search found because the problem file gives none."""
        return evolve(self.with_split(*split), is_split_searched=True)

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
    def alike(self) -> AlikeRegions:
        """The regions for forecasts: one for all that have equal errors."""
        return find_alike_regions(self.tree)

    @cached_property
    def budgets(self) -> tuple[tuple[Fraction, ...], ...]:
        """The part of the budget that each table gets on each level. Their exact sum is at most the budget."""
        # split_budget rounds in privacy's favour; its flat list is by level, then by table.
        parts, table_count = split_budget(self.problem.privacy.budget, self.budget_shares), len(self.split[1])
        # The parts of one table are every table_count-th entry.
        return tuple(parts[number::table_count] for number in range(table_count))

    @property
    def budget_shares(self) -> list[Fraction]:
        """The relative share of each part: first all tables on level 1, then all on level 2, and so on."""
        levels, tables = self.split
        return [level * table for level in levels for table in tables]

    @cached_property
    def scales(self) -> tuple[tuple[Scale, ...], ...]:
        """The scale of each table's noise on each level; None if the table is not measured there."""
        return tuple(
            tuple(self.law.scale(budget, self.delta) for budget in table_budgets) for table_budgets in self.budgets
        )

    def noise_of(self, scales: Sequence[Sequence[Scale]]) -> list[list[Noise]]:
        """Return the variance and fourth cumulant of noise of the given scales, for each table and level."""
        return [list(map(self.law.moments, table_scales)) for table_scales in scales]

    # --- measurement --------------------------------------------------------------------------------------

    def compute_queries(self, counts: Tables) -> Tables:
        """Return the true values to which noise is added, by table and level. By default these are the counts."""
        return counts

    def draw(self, counts: Tables, *, seed: int | None) -> tuple[Tables, list[list[NoiseRecord | None]]]:
        """Add noise to the true counts of each table and level.

        Args:
            counts: The (R_l, ...) true counts by table and level.
            seed: A seed for experiments; None draws secure noise.

        Returns:
            The noisy values, and a record of each draw. A level without budget has no record;
            :meth:`fill_unmeasured` says what values it has.
        """
        noisy: Tables = []
        records: list[list[NoiseRecord | None]] = []
        for table, (levels, budgets) in enumerate(zip(self.compute_queries(counts), self.budgets, strict=True)):
            measurements = [
                # Each measurement gets its own random stream, as levels would get the same noise from a common seed.
                self.law.measure(values, budget, self.delta, seed=None if seed is None else (seed, level, table))
                for level, (values, budget) in enumerate(zip(levels, budgets, strict=True))
            ]
            noisy.append([values for values, _ in measurements])
            records.append([record for _, record in measurements])
        return self.fill_unmeasured(noisy, self.budgets, numbers_of(counts)[: self.exact]), records

    def fill_unmeasured(self, noisy: Tables, measured: Sequence[Sequence[object]], totals: Sequence[Ints]) -> Tables:
        """Return the values with those without noise replaced by what follows from public numbers and other values.

        Where no table is measured on a level, the values are the sums of the level below. Where another table is, or
        on the leaves, they are 0. A number that is published exactly takes the place of its own measurement. So no
        value without noise can carry a secret count.

        Args:
            noisy: The (R_l, ...) noisy values by table and level.
            measured: The part of the budget or the scale, by table and level. Truthy if the level was measured.
            totals: The (R_l,) exact numbers on the first levels.
        """
        filled = [
            [values if part else np.zeros_like(values) for values, part in zip(levels, parts, strict=True)]
            for levels, parts in zip(noisy, measured, strict=True)
        ]
        is_measured = [any(level) for level in zip(*measured, strict=True)]
        # From the leaves up: a level that is not measured may lie above another one.
        for level, start in reversed(list(enumerate(self.tree.start))):
            for levels in filled if not is_measured[level] else ():
                levels[level] = np.add.reduceat(levels[level + 1], start[:-1], axis=0)
        for levels, form in zip(filled, self.layout.forms, strict=True):
            for level, numbers in enumerate(totals):
                if self.shows_exact_numbers(form, level):
                    levels[level] = numbers.reshape(levels[level].shape)
        return filled

    def shows_exact_numbers(self, form: Form, level: int) -> bool:
        """Return whether a table has only exact numbers on a level, in which case it is not measured there.

        Args:
            form: The table.
            level: The level, counted from 0.
        """
        return False

    def real_loss(self, release: HierarchyRelease) -> Fraction:
        """Return the exact privacy loss between neighbouring inputs under the noise scales of a release."""
        losses = (self.law.spend_of(scale, self.delta) for table_scales in release.scales for scale in table_scales)
        return sum(losses, Fraction(0))

    # --- fit ----------------------------------------------------------------------------------------------

    @abstractmethod
    def fit(self, noisy: Tables, totals: Sequence[Ints], how: FitOptions = DEFAULT) -> Fit:
        """Fit consistent counts to noisy values. Projections stop early when the time limit is reached.

        Args:
            noisy: The noisy values by table and level.
            totals: The (R_l,) exact numbers on each of the first levels, as far as they are published.
            how: The options of the fit.
        """

    @abstractmethod
    def bound(self, release: HierarchyRelease, how: FitOptions) -> tuple[Fraction | float | None, bool]:
        """Return the lower bound on the loss that the noisy values prove, and whether the release attains it."""

    @abstractmethod
    def weight(self, table: int, level: int) -> Fraction:
        """Return the weight in the loss of squared distances from noisy values. The largest weight is 1."""

    @abstractmethod
    def compute_ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Return the intervals of all counts by table and level, or None if the method has no intervals."""

    @property
    def has_intervals(self) -> bool:
        """Whether the method's counts have intervals."""
        return True

    @abstractmethod
    def estimate_numbers(self, release: HierarchyRelease) -> list[Estimate]:
        """Return the (R_l, 1) least-squares estimates of the numbers of all regions, without regard to bounds."""

    def find_contradictions(self, release: HierarchyRelease) -> list[Contradiction]:
        """Return the bounds on numbers that the noisy values contradict by more than noise, the largest first.

        This uses noisy values and public numbers alone, so it may be published.
        """
        if self.limits is None or self.exact == self.tree.depth:
            return []
        contradictions = []
        for level, estimate in enumerate(self.estimate_numbers(release)):
            numbers, errors = estimate.mean[:, 0], np.sqrt(estimate.variance[:, 0])
            lower, upper = self.limits.lower[level], self.limits.upper[level]
            excess = np.maximum(lower - numbers, numbers - upper)
            # A leaf that is repeated on the levels below is listed once. Half a group is allowed for rounding.
            is_new = self.tree.first_here(level)
            for region in np.flatnonzero((excess > CONTRADICTING_ERRORS * errors + 0.5) & is_new).tolist():
                bound = int(lower[region] if numbers[region] < lower[region] else upper[region])
                contradictions.append(
                    Contradiction(
                        region=self.tree.name_of(level, region),
                        bound=bound,
                        estimate=round(float(numbers[region])),
                        standard_error=float(errors[region]),
                    )
                )
        return sorted(contradictions, key=lambda entry: (-abs(entry.estimate - entry.bound), entry.region))

    @abstractmethod
    def facts(self, release: HierarchyRelease) -> dict[str, Any]:
        """Return further details of a release for ``result.json``."""

    # --- checks -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check before anything is drawn that the method can solve the problem, and that 64 bits hold the noise.

        Raises:
            InputError: A key of the problem has a value that the method cannot use, or the noise is too wide.
            UsageError: The problem is too large for an integer program.
        """
        # Only the first fault is reported, because others often follow from it.
        Faults([Fault(self.file, *fault) for fault in self.faults()][:1]).check()
        self.check_noise()

    def check_noise(self, max_scale: int = LARGEST_SCALE, method: str = "") -> None:
        """Check that no part of the budget needs noise wider than double geometric noise of scale ``max_scale``.

        Args:
            max_scale: The limit. For Gaussian noise it is converted to a variance.
            method: The name of the method that has the limit, for the message.

        Raises:
            InputError: The noise is too wide. The message names the part of the budget, where it is spent, and its
                noise.
        """
        key, widest = KINDS[self.problem.privacy.kind][1][0], self.law.max_drawable_scale(max_scale)
        for level in range(self.tree.depth):
            for form, table_budgets in zip(self.layout.forms, self.budgets, strict=True):
                # A part of 0 is not measured, so it needs no noise.
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
        """Return the key, the actual value and the expected value of every setting that the method cannot use."""

    def shape_faults(self, release: HierarchyRelease) -> list[str]:
        """Return a line for each part of a release whose number of values differs from what the method measures."""
        if len(release.totals) == self.exact:
            return []
        return [f"{NOISY}: totals of {number_of(len(release.totals), 'level')}; those of {self.exact} are published"]

    @abstractmethod
    def find_misestimates(self, release: HierarchyRelease) -> list[str]:
        """Return a line for each estimated number that differs from the estimate recomputed from the noisy values."""

    # --- forecast -----------------------------------------------------------------------------------------

    def need_shares(self, tables: Sequence[float] | Floats) -> list[bool]:
        """Return whether each table needs a share of the budget, given all tables' shares. By default all need one."""
        return [True] * len(tables)

    @abstractmethod
    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Return the expected sums of absolute errors of the linear fit, for all tables of each level.

        Args:
            noise: The noise on one value, for each table and level.
            tables: The shares of the tables.
        """

    def forecast_splits(self, levels: Floats, tables: Floats) -> Floats:
        """Return the expected errors of the linear fit, as :meth:`forecast`, for B splits of the budget.

        Args:
            levels: (B, L) The shares of the levels.
            tables: (B, T) The shares of the tables.

        Returns:
            The (B, parts) errors, where each table on each level is a part, or (B, L) if there is one table.
        """
        total, errors = self.problem.privacy.budget, []
        for level_shares, table_shares in zip(levels, tables, strict=True):
            parts = [[total * Fraction(float(level * table)) for level in level_shares] for table in table_shares]
            scales = [
                [self.law.ideal_scale(part, self.delta) if part else None for part in table_parts]
                for table_parts in parts
            ]
            errors.append(self.forecast(self.noise_of(scales), table_shares))
        return np.array(errors)

    @abstractmethod
    def leaves_only(self) -> Floats:
        """Return the expected errors if the leaves get the whole budget, for all tables of each level."""


def _format_short(value: Fraction) -> str:
    """Return a rational as a text with three significant digits, even if it is out of the range of doubles."""
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.3g}"
