"""The base class for the design of a release, which covers budgets, noise, fitting, checks and expected errors.

It is implemented by :mod:`.sizes` for one table of groups by size, and by :mod:`.tables.design` for several tables of
individuals.
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
"""The largest allowed scale of double geometric noise, chosen so that noisy values fit in 64 bits."""


@frozen(kw_only=True, eq=False)
class FitOptions:
    """Options of a fit. Each method ignores the options that do not apply to it.

    Attributes:
        gap: The relative gap at which iterative fits stop.
        backend: The solver for integer programs.
        at_once: Whether to use the fastest method that yields a release of the same form.
        report: A progress callback, which receives the name and the number of each step of the fit.
    """

    gap: float = 1e-3
    backend: str = "cbc"
    at_once: bool = False
    report: Callable[[str, int], None] = lambda phase, number: None


DEFAULT: Final = FitOptions()
"""The default options of a fit."""


CONTRADICTING_ERRORS: Final = 6.0
"""The number of standard errors by which an estimate must violate a bound to contradict it."""


@frozen(kw_only=True)
class Contradiction:
    """A public bound on a region's total that is contradicted by the noisy values.

    Attributes:
        region: The name of the region.
        bound: The violated lower or upper bound.
        estimate: The total estimated from the noisy values, rounded.
        standard_error: The standard error of the estimate.
    """

    region: str
    bound: int
    estimate: int
    standard_error: float


@frozen(kw_only=True, eq=False)
class Design(ABC):
    """The design of a release for one problem and method: what is measured, with what noise, and how it is fitted.

    Attributes:
        problem: The contents of the problem file.
        file: The name of the problem file, used in error messages.
        method: The name of the method.
        tree: The region tree.
        limits: The public bounds on the regions' totals, or None if the problem has none.
        split: The budget shares of the levels and of the tables. Each of these two sets of shares sums to 1.
        delta: The sensitivity to which the noise is calibrated.
        exact: The number of levels, counted from the root, at which totals are published exactly.
        hides: Whether the noise hides anything. It is False if all totals are exact and every region has a single cell.
        valid: Whether releases are always consistent.
        statement: A description of the privacy guarantee for readers of a release.
        claimed: Additional entries for the guarantee in ``result.json``.
        in_words: Descriptions of the measured values and of the exact totals, for the section on methods in a report.
        parts: The names of the parts for which errors are reported. Each part is one table at one level, and its name
            states its number of regions or cells.
        is_split_searched: Whether the split was found by the search in :mod:`.plan`.
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
        """Return the design for another method on the same problem.

        By default, all methods share the same design.
        """
        return self

    def with_split(self, levels: Sequence[Fraction], tables: Sequence[Fraction]) -> Self:
        """Return a copy with the given budget shares, normalised to sum to 1.

        Args:
            levels: The shares of the levels, from the root down.
            tables: The shares of the tables.
        """
        return evolve(self, split=(normalize_shares(levels), normalize_shares(tables)))

    @property
    def searched_split(self) -> tuple[Split, Split] | None:
        """The budget split if it was found by a search, otherwise None."""
        return self.split if self.is_split_searched else None

    def with_searched_split(self, split: tuple[Split, Split]) -> Self:
        """Return a copy with a budget split that was found by a search."""
        return evolve(self.with_split(*split), is_split_searched=True)

    @property
    def law(self) -> NoiseDistribution:
        """The noise distribution."""
        law: NoiseDistribution = self.problem.privacy.law
        return law

    @cached_property
    def layout(self) -> Layout:
        """The layout of a release's files, as determined by the problem."""
        layout: Layout = self.problem.layout
        return layout

    @cached_property
    def alike(self) -> AlikeRegions:
        """A reduced tree for forecasts, which merges regions that have the same expected errors."""
        return find_alike_regions(self.tree)

    @cached_property
    def budgets(self) -> tuple[tuple[Fraction, ...], ...]:
        """The amount of budget for each table and level. The exact sum of these amounts is at most the total budget."""
        # split_budget rounds in favour of privacy. Its list is ordered by level and then by table.
        parts, table_count = split_budget(self.problem.privacy.budget, self.budget_shares), len(self.split[1])
        # Every table_count-th entry belongs to the same table.
        return tuple(parts[number::table_count] for number in range(table_count))

    @property
    def budget_shares(self) -> list[Fraction]:
        """The relative share of the budget for each table and level, as a list ordered by level and then by table.

        The shares need not sum to 1.
        """
        levels, tables = self.split
        return [level * table for level in levels for table in tables]

    @cached_property
    def scales(self) -> tuple[tuple[Scale, ...], ...]:
        """The noise scale for each table and level, or None where the table is not measured."""
        return tuple(
            tuple(self.law.scale(budget, self.delta) for budget in table_budgets) for table_budgets in self.budgets
        )

    def noise_of(self, scales: Sequence[Sequence[Scale]]) -> list[list[Noise]]:
        """Return the variance and fourth cumulant of the noise for each table and level, given its scales."""
        return [list(map(self.law.moments, table_scales)) for table_scales in scales]

    # --- measurement --------------------------------------------------------------------------------------

    def compute_queries(self, counts: Tables) -> Tables:
        """Return the true values to which noise is added, by table and level.

        By default, these are the counts.
        """
        return counts

    def draw(self, counts: Tables, *, seed: int | None) -> tuple[Tables, list[list[NoiseRecord | None]]]:
        """Measure the true counts for each table and level, adding noise.

        Args:
            counts: For each table and level, a (regions, ...) array with the true counts.
            seed: A seed, for experiments only. If None, the noise is cryptographically secure.

        Returns:
            The noisy values and a record of each draw, both by table and level. Where a table has no budget, the record
            is None and the values are set by :meth:`fill_unmeasured`.
        """
        noisy: Tables = []
        records: list[list[NoiseRecord | None]] = []
        for table, (levels, budgets) in enumerate(zip(self.compute_queries(counts), self.budgets, strict=True)):
            measurements = [
                # Each measurement has its own random stream. If all used the same seed, levels would get identical
                # noise.
                self.law.measure(values, budget, self.delta, seed=None if seed is None else (seed, level, table))
                for level, (values, budget) in enumerate(zip(levels, budgets, strict=True))
            ]
            noisy.append([values for values, _ in measurements])
            records.append([record for _, record in measurements])
        return self.fill_unmeasured(noisy, self.budgets, numbers_of(counts)[: self.exact]), records

    def fill_unmeasured(self, noisy: Tables, measured: Sequence[Sequence[object]], totals: Sequence[Ints]) -> Tables:
        """Replace unmeasured values with values derived from public totals and noisy values.

        If no table is measured at a level above the leaves, each table's values there become sums over the level below.
        All other unmeasured values become 0. Totals that are published exactly take the place of measurements. This
        ensures that a value without noise never contains a secret count.

        Args:
            noisy: For each table and level, a (regions, ...) array with the noisy values.
            measured: For each table and level, the part of the budget or the noise scale. A false value (0 or None)
                means that the table was not measured at the level.
            totals: For each level with exact totals, from the root down, a (regions,) array with the totals.

        Returns:
            The values by table and level, as arrays of the same shapes as in ``noisy``.
        """
        filled = [
            [values if part else np.zeros_like(values) for values, part in zip(levels, parts, strict=True)]
            for levels, parts in zip(noisy, measured, strict=True)
        ]
        is_measured = [any(level) for level in zip(*measured, strict=True)]
        # Proceed from the leaves up, because several adjacent levels can be unmeasured.
        for level, start in reversed(list(enumerate(self.tree.start))):
            for levels in filled if not is_measured[level] else ():
                levels[level] = np.add.reduceat(levels[level + 1], start[:-1], axis=0)
        for levels, form in zip(filled, self.layout.forms, strict=True):
            for level, numbers in enumerate(totals):
                if self.shows_exact_numbers(form, level):
                    levels[level] = numbers.reshape(levels[level].shape)
        return filled

    def shows_exact_numbers(self, form: Form, level: int) -> bool:
        """Return whether a table contains nothing but exact totals at a level, and so is not measured there.

        Args:
            form: The table.
            level: The index of the level, which is 0 for the root.
        """
        return False

    def real_loss(self, release: HierarchyRelease) -> Fraction:
        """Return the exact privacy loss between neighbouring inputs, given the noise scales in a release."""
        losses = (self.law.spend_of(scale, self.delta) for table_scales in release.scales for scale in table_scales)
        return sum(losses, Fraction(0))

    # --- fit ----------------------------------------------------------------------------------------------

    @abstractmethod
    def fit(self, noisy: Tables, totals: Sequence[Ints], how: FitOptions = DEFAULT) -> Fit:
        """Fit consistent counts to noisy values.

        Projections stop early when the time limit is reached.

        Args:
            noisy: The noisy values by table and level.
            totals: For each level with exactly published totals, from the root down, a (regions,) array with the
                totals.
            how: The options of the fit.
        """

    @abstractmethod
    def bound(self, release: HierarchyRelease, how: FitOptions) -> tuple[Fraction | float | None, bool]:
        """Repeat the fit for a release's noisy values, and return the lower bound on the loss proved by the fit.

        Returns:
            The bound, and whether the release is proved to attain it. The bound is None if the method does not prove
            one.
        """

    @abstractmethod
    def weight(self, table: int, level: int) -> Fraction:
        """Return the weight of a table and level in the loss.

        The loss contains the squared distance between the table's values at this level and their noisy values,
        multiplied by this weight. The largest weight is 1.
        """

    @abstractmethod
    def compute_ends(self, release: HierarchyRelease) -> list[list[Ends]] | None:
        """Return the intervals of all counts by table and level, or None if the method does not provide intervals."""

    @property
    def has_intervals(self) -> bool:
        """Whether the method provides intervals for the counts."""
        return True

    @abstractmethod
    def estimate_numbers(self, release: HierarchyRelease) -> list[Estimate]:
        """Return least-squares estimates of the regions' totals at each level, with shape (regions, 1).

        The public bounds are ignored.
        """

    def find_contradictions(self, release: HierarchyRelease) -> list[Contradiction]:
        """Return the public bounds on totals that are contradicted by the noisy values, largest violations first.

        A bound is contradicted if the estimated total violates it by more than `CONTRADICTING_ERRORS` standard errors.
        Only noisy values and public totals are used, so the result may be published.
        """
        if self.limits is None or self.exact == self.tree.depth:
            return []
        contradictions = []
        for level, estimate in enumerate(self.estimate_numbers(release)):
            numbers, errors = estimate.mean[:, 0], np.sqrt(estimate.variance[:, 0])
            lower, upper = self.limits.lower[level], self.limits.upper[level]
            excess = np.maximum(lower - numbers, numbers - upper)
            # A leaf that appears again on the levels below is listed only once. Half a unit is allowed for rounding.
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
        """Return additional details of a release for ``result.json``."""

    # --- checks -------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Check that the method can solve the problem and that noisy values will fit in 64 bits.

        This is called before any noise is drawn.

        Raises:
            InputError: The method cannot use the value of a key in the problem file, or the noise is too wide.
            UsageError: The problem is too large for an integer program.
        """
        # Only the first fault is reported, because others are often consequences of it.
        Faults([Fault(self.file, *fault) for fault in self.faults()][:1]).check()
        self.check_noise()

    def check_noise(self, max_scale: int = LARGEST_SCALE, method: str = "") -> None:
        """Check that no table gets so little budget at any level that its noise would exceed a limit.

        Args:
            max_scale: The limit, given as a scale of double geometric noise. For Gaussian noise, it is converted to a
                variance.
            method: The name of the method that imposes the limit, used in the error message. Empty if all methods do.

        Raises:
            InputError: The noise is too wide. The message states the amount of budget, its table and level, and the
                noise.
        """
        # The first key that states the budget, such as epsilon, is named in the message.
        key, widest = KINDS[self.problem.privacy.kind][1][0], self.law.max_drawable_scale(max_scale)
        for level in range(self.tree.depth):
            for form, table_budgets in zip(self.layout.forms, self.budgets, strict=True):
                # A table without budget is not measured, so it needs no noise.
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
        """Return the key, the actual value and the expected value of each setting that the method does not support."""

    def shape_faults(self, release: HierarchyRelease) -> list[str]:
        """Return a message for each part of a release where the number of values is not what the method measures."""
        if len(release.totals) == self.exact:
            return []
        return [f"{NOISY}: totals of {number_of(len(release.totals), 'level')}; those of {self.exact} are published"]

    @abstractmethod
    def find_misestimates(self, release: HierarchyRelease) -> list[str]:
        """Return messages about released totals that differ from estimates recomputed from the noisy values.

        The messages may not cover every such total.
        """

    # --- forecast -----------------------------------------------------------------------------------------

    def need_shares(self, tables: Sequence[float] | Floats) -> list[bool]:
        """Return whether each table needs a positive budget share, given the shares of all tables.

        By default, every table does.
        """
        return [True] * len(tables)

    @abstractmethod
    def forecast(self, noise: Sequence[Sequence[Noise]], tables: Sequence[float] | Floats) -> Floats:
        """Return the expected absolute errors of the linear fit, summed over the values of each table at each level.

        Args:
            noise: The moments of the noise on one value, for each table and level.
            tables: The budget shares of the tables.

        Returns:
            An array of the expected sums, ordered by level and then by table.
        """

    def forecast_splits(self, levels: Floats, tables: Floats) -> Floats:
        """Return the expected errors of the linear fit for several splits of the budget.

        Args:
            levels: (splits, levels) The budget shares of the levels.
            tables: (splits, tables) The budget shares of the tables.

        Returns:
            A (splits, parts) array. Each part is a table at a level, ordered as in :meth:`forecast`.
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
        """Return the expected errors if the whole budget is spent on the leaves, in the order of :meth:`forecast`."""


def _format_short(value: Fraction) -> str:
    """Format a rational number with three significant digits, even if it is outside the range of doubles."""
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.3g}"
