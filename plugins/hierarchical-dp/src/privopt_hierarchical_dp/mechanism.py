"""The mechanisms hierarchical-dp and hierarchical-tables, which publish counts fitted to noisy tables.

Both are subclasses of :class:`CountsMechanism` and differ in their problem files and :mod:`designs <.design>`. True
counts are read in only two places: by a design's ``draw`` method, which adds the noise, and by ``errors``, whose result
is for the owner only. Everything after the noise is post-processing and costs no privacy budget.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from attrs import AttrsInstance, evolve

from privopt.errors import Fault, InputError, StoppedError
from privopt.execution.clock import clock, limit
from privopt.interfaces import Mechanism, Outcome, Plan, PrivacyConstraint, Result, SolveContext
from privopt.numbers.exp_log_bounds import float_down, float_up
from privopt.numbers.noise import NoiseRecord
from privopt_hierarchical_dp.design import Design, FitOptions
from privopt_hierarchical_dp.exact_levels import list_exact_levels
from privopt_hierarchical_dp.fits.qip import Fit
from privopt_hierarchical_dp.instance import Instance, read_groups, read_tables
from privopt_hierarchical_dp.least_squares import SLACK_GROUPS
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.loss import PostProcessing
from privopt_hierarchical_dp.methods import DEFAULT_METHOD, METHODS
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC
from privopt_hierarchical_dp.privacy import MeasuredNoise, PublishedChain
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.publication import count_noisy_cells, find_wrong_lines, publication_files
from privopt_hierarchical_dp.region_names import warn_of_alike_regions
from privopt_hierarchical_dp.region_tables import Form
from privopt_hierarchical_dp.relations import SIZES, TABLE_RELATIONS
from privopt_hierarchical_dp.release import (
    ERRORS,
    INSIDE,
    NOISY,
    HierarchyRelease,
    Tables,
    errors_of,
    numbers_of,
)
from privopt_hierarchical_dp.sizes import SizesDesign
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tree import add_up

__all__ = ["CountsMechanism", "HierarchicalDP", "HierarchicalTables"]

SMALLEST_GAP: Final = 1e-4
"""The smallest relative gap requested from a fit. If the user asks for a smaller one, it is increased to this value."""
BYTES_PER_COUNT: Final = 500.0
"""The peak memory, in bytes, per region and size, including noise, fit, files and proof."""
BYTES_PER_CELL: Final = 600.0
"""The peak memory, in bytes, per region and cell of each of several tables."""
BOUND_TOLERANCE: Final = Fraction(1, 10**9)
"""The relative amount by which a fit's lower bound is reduced before it is published.

Another machine may round sums of doubles differently, but must still reach the published bound.
"""


SHOWN_CONTRADICTIONS: Final = 3
"""The maximum number of contradicted bounds that get their own warning."""


class CountsMechanism(Mechanism[Instance, HierarchyRelease]):
    """A mechanism that publishes tables of counts over a hierarchy of regions under pure DP, zCDP or approximate DP.

    Subclasses define the problem file and the :class:`.design.Design`, which determines what is measured and how it is
    fitted.
    """

    release_class = HierarchyRelease
    secret: ClassVar[str]
    """A description of the secret input that the problem file must name."""

    def privacy(self, problem: Instance, method: str) -> PrivacyConstraint[HierarchyRelease]:
        """Return the privacy constraint, which certifies the noise that the method adds to each table and level."""
        return MeasuredNoise(design=problem.design(method))

    def notion(self, problem: Instance, method: str) -> str | None:
        """Return the privacy notion declared in the problem as ``privacy.kind``."""
        kind: str = problem.declared.privacy.kind
        return kind

    def utility(self, problem: Instance, method: str) -> PostProcessing:
        """Return the utility loss: the weighted squared distance between a release and its noisy values."""
        design = problem.design(method)
        return PostProcessing(design=design, unit=f"{design.layout.noun} squared")

    def check_problem(self, problem: Instance, method: str) -> None:
        """Check that the method can solve the problem.

        Raises:
            InputError: The problem is a published copy without secret input, the method cannot solve it, or noisy
                values might not fit in 64 bits.
            UsageError: The problem is too large for the method.
        """
        design = problem.design(method)
        if problem.truth is None:
            actual = f"no {design.layout.noun}, as in a published copy"
            raise InputError([Fault(design.file, "hierarchy", actual, self.secret)])
        design.check()
        if problem.declared.publish.coefficient_of_variation is not None and not design.has_intervals:
            actual = f"a number with method {method}, which has no intervals"
            raise InputError([Fault(design.file, "publish.coefficient_of_variation", actual, "no such key")])

    def solve(self, problem: Instance, context: SolveContext) -> Outcome[HierarchyRelease]:
        """Add noise to the true counts, fit consistent counts to the noisy values, and build the release."""
        assert problem.truth is not None  # check_problem has ensured this
        design = problem.design(context.method)
        with context.time_phase("build"):
            # The release depends on the true counts only through these noisy values and the exact public totals.
            counts = [add_up(design.tree, leaves) for leaves in problem.truth.leaves]
            public = numbers_of(counts)[: design.exact]
            noisy, records = design.draw(counts, seed=context.seed)
        how = FitOptions(gap=max(context.gap, SMALLEST_GAP), backend=context.solver, report=context.report)
        with context.time_phase("solve"):
            fitted, stopped = _fit_in_time(partial(design.fit, noisy, public), how, context)
        # A fit, such as an integer program, may also report that a limit ended it early.
        stopped |= bool(fitted.details.get("stopped"))
        release = HierarchyRelease(
            tree=design.tree,
            layout=design.layout,
            counts=fitted.counts,
            noisy=noisy,
            totals=public,
            # The scales are those recorded by the sampler rather than those of the design, because the certificate must
            # be valid for the noise that was drawn.
            scales=[[None if record is None else Fraction(record.scale) for record in levels] for levels in records],
            law=design.law,
            truth=counts,
            split=design.searched_split,
        )
        table_ends = design.compute_ends(release)
        # Interval ends are rounded outwards to preserve the confidence level.
        bounds = (
            None
            if table_ends is None
            else [[level.round_outwards() for level in level_ends] for level_ends in table_ends]
        )
        release = evolve(release, bounds=bounds)
        rules = problem.declared.publish
        if table_ends is not None and rules.coefficient_of_variation is not None:
            files = publication_files(release, table_ends, rules, problem.declared.confidence)
            release = evolve(release, publication=files)
        loss = self.utility(problem, context.method)
        bound = _certified_bound(loss, release, (fitted.lower_bound, fitted.proved), tolerance=BOUND_TOLERANCE)
        details: dict[str, Any] = {"noise": _noise_records(design.layout.forms, records), **fitted.details}
        remaining_seconds = context.remaining
        if (
            bound is not None
            and remaining_seconds is not None
            and (stopped or remaining_seconds < context.times["solve"])
        ):
            # The folder is verified before it is published, and verifying a bound repeats the fit. If there is no time
            # for this, the bound is only stated among the details.
            details, bound = {"lower_bound": bound, **details}, None
        return Outcome(
            release=release,
            lower_bound=bound,
            solver={"name": fitted.solver, "iterations": fitted.iterations},
            details=details,
            stopped=stopped,
            seeded=any(record is not None and record.seeded for levels in records for record in levels),
            truth=self.errors(problem, release, counts),
        )

    def errors(self, problem: Instance, release: HierarchyRelease, true: Tables) -> dict[str, Any]:
        """Compare a release with the true counts and return its errors. Only the owner may see the result.

        Args:
            problem: The problem.
            release: The release.
            true: The true counts by table and level.

        Returns:
            A dictionary with the L1 error and the fraction of intervals that contain the true count, for each table and
            level. It also contains the total of the true counts, and the number of regions whose true total is outside
            the public bounds.
        """
        errors: dict[str, list[int]] = {}
        hold_rates: dict[str, list[float]] = {}
        for number, (form, true_counts) in enumerate(zip(release.layout.forms, true, strict=True)):
            pairs = list(zip(release.counts[number], true_counts, strict=True))
            errors[form.title] = [int(np.abs(a - b).sum()) for a, b in pairs]
            # The zip is not strict, because the list is empty for methods without intervals.
            hold_rates[form.title] = [
                float(((lower <= b.reshape(lower.shape)) & (b.reshape(lower.shape) <= upper)).mean())
                for (_, b), (lower, upper) in zip(pairs, release.bounds[number] if release.bounds else (), strict=False)
            ]
        # Public bounds may be wrong. The release satisfies them whatever the true totals.
        limits = problem.public.limits
        return {
            release.layout.noun: int(true[0][0].sum()),
            ERRORS: errors,
            INSIDE: hold_rates,
            "regions_out_of_bounds": 0 if limits is None else len(limits.find_violations(numbers_of(true))),
        }

    def details(
        self, problem: Instance, release: HierarchyRelease, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return details for ``result.json``, such as budgets, noise scales and interval widths by table and level.

        Args:
            problem: The problem.
            release: The release.
            method: The name of the method.
            recorded: Not used, because all details are computed from the release.
        """
        design, tables = problem.design(method), {}
        for number, form in enumerate(release.layout.forms):
            tables[form.title] = {
                "cells": int(np.prod(form.shape)),
                "budgets": [str(budget) for budget in design.budgets[number]],
                release.law.scales_name: [str(scale or "") for scale in release.scales[number]],
                "weights": [float(design.weight(number, level)) for level in range(release.tree.depth)],
            }
            if release.bounds is not None:
                widths = [float(np.mean(upper - lower)) for lower, upper in release.bounds[number]]
                tables[form.title]["mean_width_by_level"] = widths
            if release.publication:
                tables[form.title]["too_noisy_cells"] = count_noisy_cells(release.publication, form)
        return {
            "levels": [{"regions": width} for width in release.tree.widths],
            "relation": problem.declared.privacy.relation,
            "exact": list_exact_levels(design.exact),
            "sensitivity": design.delta,
            "tables": tables,
            "confidence": problem.declared.confidence,
            **design.facts(release),
        }

    def verify(self, problem: Instance, release: HierarchyRelease, result: Result) -> list[str]:
        """Check the counts, intervals, unmeasured levels, estimated totals and public bounds in a published release.

        Returns:
            One message for each failed check.
        """
        design = problem.design(result.method)
        if overflows := release.past_sums():
            return overflows  # otherwise the sums below would overflow
        complaints = release.complaints()
        # Methods that round each count separately may be inconsistent, but negative counts are never allowed.
        if not design.valid and not any("negative" in line for line in complaints):
            complaints = []
        shapes = design.shape_faults(release)
        if not shapes:
            complaints += _check_intervals(design, release) + _check_unmeasured_levels(design, release)
            complaints += _check_publication(design, release)
        lines = [] if shapes else design.find_misestimates(release)
        for where, number, expectation in (
            [] if design.limits is None else design.limits.find_violations(release.numbers)
        ):
            lines.append(f"{where} has {number} {release.layout.noun}; hierarchy.bounds allows {expectation}")
        return complaints + [f"{release.layout.forms[0].file}: {line}" for line in lines]

    def proved_bound(self, problem: Instance, release: HierarchyRelease, result: Result, folder: Path) -> float | None:
        """Return the lower bound on the loss proved by the released noisy values, or None if they prove none."""
        # `verify` reports overflowing sums and wrong shapes. Such a release does not allow any bound to be computed.
        design, application = problem.design(result.method), result.asked
        if release.past_sums() or design.shape_faults(release):
            return None
        bound = design.bound(release, FitOptions(gap=max(application.gap, SMALLEST_GAP), backend=application.solver))
        return _certified_bound(self.utility(problem, result.method), release, bound)

    def plan(self, declared: AttrsInstance, file: str, context: SolveContext) -> Plan:
        """Return a forecast of the errors by table and level, computed from public inputs alone."""
        from privopt_hierarchical_dp.plan import plan

        assert isinstance(declared, (HierarchyProblem, TablesProblem))  # problem_class
        return plan(declared, file, context)

    def warnings(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[str]:
        """Return warnings about similar region names, contradicted bounds, and the publication of all regions' totals.

        If the problem includes its secrets, the owner is also warned about columns and rows that were not read.
        """
        lines = list(problem.truth.unread) if problem.truth is not None else []
        lines += warn_of_alike_regions(release.tree)
        contradictions = problem.design(result.method).find_contradictions(release)
        lines += [
            f"hierarchy.bounds: region {entry.region!r} has a bound of {entry.bound}, but the noisy values give "
            f"{entry.estimate}: the bound is off by {abs(entry.estimate - entry.bound)}, where the noise has a "
            f"standard error of {entry.standard_error:.3g}; the release satisfies the bound"
            for entry in contradictions[:SHOWN_CONTRADICTIONS]
        ]
        if len(contradictions) > SHOWN_CONTRADICTIONS:
            others = len(contradictions) - SHOWN_CONTRADICTIONS
            lines.append(f"hierarchy.bounds: the noisy values contradict the bounds of {others} regions more")
        if len(release.totals) == release.tree.depth:
            lines.append(problem.declared.relation.exposure_warning)
        return lines

    def audit(self, problem: Instance, release: HierarchyRelease, result: Result) -> Mapping[str, Any]:
        """Return the claimed epsilon, and the largest privacy loss between neighbours at the release's noise scales.

        The claimed epsilon is None if the guarantee does not state one. The privacy loss is None for Gaussian noise,
        for which it is unbounded.
        """
        epsilon = None if self.notion(problem, result.method) is None else problem.declared.privacy.epsilon
        claimed, achieved = None if epsilon is None else float(epsilon), None
        if release.law is GEOMETRIC:  # the likelihood ratio of Gaussian noise is unbounded
            achieved = float_up(problem.design(result.method).real_loss(release))
        return {"epsilon": {"claimed": claimed, "achieved": achieved}}


class HierarchicalDP(CountsMechanism):
    """A mechanism that publishes a single table, which counts groups by size over a hierarchy of regions."""

    problem_class: ClassVar[type] = HierarchyProblem
    secret = "counts or units"
    scope: ClassVar[str] = SIZES.statement(totals=True, max_quantity=1, kind="pure-dp")
    kit: ClassVar[str] = "privopt_hierarchical_dp.kit:PROFILE"
    reporting: ClassVar[str] = "privopt_hierarchical_dp.report:CountsReport"

    def load(self, declared: HierarchyProblem, file: str) -> Instance:
        """Read the public files of a problem and its secret file of counts or units."""
        return read_groups(declared, file)

    def reopen(self, declared: HierarchyProblem, file: str, folder: Path) -> tuple[Instance, HierarchyRelease]:
        """Read a published release together with its problem. Secrets are not published, so the problem contains none.

        Args:
            declared: The contents of the published problem file.
            file: The name of the problem file, used in error messages.
            folder: The release folder. If no public table lists the regions, they are taken from the released counts.
        """
        declared.check_keys(file)
        regions = declared.hierarchy.regions
        listed = None if regions is None else read_regions(regions).tree
        release = HierarchyRelease.read(folder, (declared, listed))
        return Instance(public=SizesDesign.of(declared, DEFAULT_METHOD, release.tree, file)), release

    def privacy(self, problem: Instance, method: str) -> PrivacyConstraint[HierarchyRelease]:
        """Return the privacy constraint of a method. For the published chain, it guarantees nothing."""
        is_chain = METHODS[method].query == "chain"
        return PublishedChain(design=problem.design(method)) if is_chain else super().privacy(problem, method)

    def notion(self, problem: Instance, method: str) -> str | None:
        """Return ``privacy.kind``, or None for the chain as printed in the paper, which has no guarantee."""
        return None if METHODS[method].query == "chain" else super().notion(problem, method)

    def bytes_needed(self, problem: Instance, method: str) -> float:
        """Estimate the peak memory in bytes, based on measurements per count (tests/run/test_memory.py)."""
        return BYTES_PER_COUNT * problem.public.tree.regions * float(problem.declared.hierarchy.sizes)

    def warnings(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[str]:
        """Return the base class's warnings, together with warnings about wasteful choices in the problem file.

        The owner is warned if the budget split in the file leads to much larger expected errors than the method's own
        split. Another warning is given if the method measures cumulative counts although counts would need less noise.
        """
        from privopt_hierarchical_dp.plan import describe_waste

        lines = super().warnings(problem, release, result)
        design = problem.design(result.method)
        # There is no forecast for the published chain, which is not private.
        if problem.truth is not None and problem.declared.settings.budget and METHODS[result.method].query != "chain":
            lines = [*lines, *describe_waste(design)]
        relation, max_quantity = problem.declared.relation, problem.declared.settings.max_quantity
        # The sensitivity of this method's queries, and that of methods that measure counts.
        delta, counts_delta = design.delta, relation.sensitivity("counts", max_quantity)
        if METHODS[result.method].query != "cumulative" or delta <= counts_delta:
            return lines
        return [
            *lines,
            f"one change that the guarantee covers moves up to {delta} of the numbers that {result.method} measures, "
            "so all of them get more noise; hierarchical-dp and top-down measure counts, of which it moves "
            f"{counts_delta}; privopt plan shows the errors of each method",
        ]

    def errors(self, problem: Instance, release: HierarchyRelease, true: Tables) -> dict[str, Any]:
        """Return the base class's errors together with further errors by level. Only the owner may see the result.

        Args:
            problem: The problem, with its secrets.
            release: The release.
            true: For the single table and each level, a (regions, sizes) array with the true counts.

        Returns:
            The errors, and the number of groups of size 0 that were left out of the counts.
        """
        assert problem.truth is not None  # solve
        # The largest error in any region's total, by level.
        totals = [int(np.abs(a - b).max()) for a, b in zip(release.numbers, numbers_of(true), strict=True)]
        first_size = problem.declared.hierarchy.first_size
        errors_by_level = [errors_of(a, b, first_size) for a, b in zip(release.counts[0], true[0], strict=True)]
        return {
            **super().errors(problem, release, true),
            **{f"{name}_by_level": [level[name] for level in errors_by_level] for name in errors_by_level[0]},
            "l1_error": sum(level["l1_error"] for level in errors_by_level),
            "largest_error_of_a_region_total_by_level": totals,
            "groups_of_size_0_left_out": problem.truth.empty,
            "regions_by_level": list(release.tree.widths),
        }


class HierarchicalTables(CountsMechanism):
    """A mechanism that publishes several tables of the same individuals over a hierarchy, under one budget."""

    problem_class: ClassVar[type] = TablesProblem
    secret = "records"
    scope: ClassVar[str] = TABLE_RELATIONS["individuals"].statement("pure-dp")
    kit: ClassVar[str] = "privopt_hierarchical_dp.kit:TABLES_PROFILE"
    reporting: ClassVar[str] = "privopt_hierarchical_dp.report:CountsReport"

    def load(self, declared: TablesProblem, file: str) -> Instance:
        """Read a problem's public files and individual records, and search for a budget split if the file sets none."""
        from privopt_hierarchical_dp.plan import choose_split

        problem = read_tables(declared, file)
        if declared.has_split or problem.public.faults():
            return problem
        return evolve(problem, public=problem.public.with_searched_split(choose_split(problem.public)))

    def warnings(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[str]:
        """Return the base class's warnings, plus one for the owner if the file's budget split is wasteful."""
        from privopt_hierarchical_dp.plan import describe_waste

        lines = super().warnings(problem, release, result)
        if problem.truth is None or not problem.declared.has_split:
            return lines
        return [*lines, *describe_waste(problem.public)]

    def reopen(self, declared: TablesProblem, file: str, folder: Path) -> tuple[Instance, HierarchyRelease]:
        """Read a published release together with its problem. Secrets are not published, so the problem contains none.

        Args:
            declared: The contents of the published problem file.
            file: The name of the problem file, used in error messages.
            folder: The release folder.
        """
        public = TablesDesign.of(declared, file)
        release = HierarchyRelease.read(folder, (declared, public.tree))
        # If the file gives no split, `solve` searched for one and published it with the noisy values.
        if release.split is not None and not declared.has_split:
            public = public.with_searched_split(release.split)
        return Instance(public=public), release

    def bytes_needed(self, problem: Instance, method: str) -> float:
        """Estimate the peak memory in bytes, based on measurements per cell (tests/run/test_memory.py)."""
        design = problem.design(method)
        return BYTES_PER_CELL * design.tree.regions * sum(float(np.prod(form.shape)) for form in design.layout.forms)

    def draft(
        self,
        table: Path,
        out: Path,
        *,
        force: bool,
        count: str | None = None,
        persons: bool = False,
        totals: Sequence[str] = (),
        keep_totals: bool = False,
    ) -> Sequence[str]:
        """Write a problem file for a table of individuals, and return sentences that describe what was guessed.

        The options are those of ``privopt init``, which are documented in :func:`.tables.draft.init`.
        """
        from privopt_hierarchical_dp.tables.draft import init

        return init(table, out, force=force, count=count, persons=persons, totals=totals, keep_totals=keep_totals)


def _fit_in_time(fit: Callable[[FitOptions], Fit], how: FitOptions, context: SolveContext) -> tuple[Fit, bool]:
    """Fit the noisy values within the time limit, falling back to the fastest method after a timeout or an interrupt.

    Args:
        fit: The function that fits the noisy values with given options.
        how: The options of the fit.
        context: The context of the run, which provides the remaining time.

    Returns:
        The fit, and whether it ended early.

    Raises:
        StoppedError: Even the fastest method failed, for example because the import of a library was interrupted.
    """
    # The context managers suppress an interrupt and the expiry of the time limit. In either case, control continues
    # with the fast fit below.
    with suppress(KeyboardInterrupt), limit(context.remaining):
        fitted = fit(how)
        return fitted, clock().left == 0.0
    try:
        with limit(0.0):  # projections in fast methods stop at their first check of the clock
            return fit(evolve(how, at_once=True)), True
    except Exception as error:
        raise StoppedError("stopped before anything could be fitted; nothing written") from error
    # This line is reached if the time limit ended the fast fit as well.
    raise StoppedError("stopped before anything could be fitted; nothing written")


def _noise_records(forms: Sequence[Form], records: Sequence[Sequence[NoiseRecord | None]]) -> Any:
    """Return the sampler and the number of draws for each table and level, in the form used by ``result.json``.

    For hierarchical-dp, the result is a list with one entry per level. For hierarchical-tables, it is a mapping from
    table names to such lists. The entry of an unmeasured level is None.

    Args:
        forms: The published tables.
        records: For each table and level, the sampler's record, or None if the table was not measured there.
    """
    records_by_table = {
        form.name: [None if record is None else {"engine": record.engine, "draws": record.draws} for record in levels]
        for form, levels in zip(forms, records, strict=True)
    }
    return records_by_table.get("", records_by_table)


def _certified_bound(
    loss: PostProcessing,
    release: HierarchyRelease,
    fitted: tuple[Fraction | float | None, bool],
    *,
    tolerance: Fraction = Fraction(0),
) -> float | None:
    """Return a proved lower bound on the loss of all valid releases from the same noisy values.

    The result is None if the fit does not prove a bound. If no total is public, the bound is valid for releases with
    the same estimated totals. If the fit is proved to be optimal (up to rounding errors), the bound is the loss itself.

    Args:
        loss: The utility loss of this problem.
        release: The release.
        fitted: The bound computed by the fit in double precision, and whether the fit is proved to be optimal.
        tolerance: The relative amount by which the bound is lowered.
    """
    fitted_bound, is_optimal = fitted
    if fitted_bound is None:
        return None
    value = loss.exactly(release)
    # The fit's bound is a sum of doubles, so it is lowered by 1e-12 to allow for rounding errors.
    bound = max(Fraction(0), Fraction(fitted_bound) * (1 - Fraction(1, 10**12)) * (1 - tolerance))
    # The optimum in doubles and the exact loss differ only by rounding errors, unless the claim of optimality is wrong.
    is_reached = is_optimal and fitted_bound > value * (1 - Fraction(1, 10**9))
    # A valid bound cannot exceed the loss of a valid release, so rounding errors must not raise it above the loss.
    return float_down(value if is_reached else min(bound, value))


def _check_unmeasured_levels(design: Design, release: HierarchyRelease) -> list[str]:
    """Check that values of unmeasured tables and levels equal those derived by :meth:`.Design.fill_unmeasured`.

    Returns:
        A message for each table and level whose values differ.
    """
    filled_tables = design.fill_unmeasured(release.noisy, release.scales, release.totals)
    complaint = "has no noise, and its values are neither exact numbers nor the sums of the level below"
    return [
        f"{NOISY}: {form.part(level)} {complaint} (0 where another table has noise)"
        for form, noisy_levels, filled_levels in zip(release.layout.forms, release.noisy, filled_tables, strict=True)
        for level, (noisy, filled) in enumerate(zip(noisy_levels, filled_levels, strict=True), start=1)
        if (noisy != filled).any()
    ]


def _check_publication(design: Design, release: HierarchyRelease) -> list[str]:
    """Compare the tables in ``publish/`` with tables recomputed from the released counts and the noise scales.

    Returns:
        For each table with a wrong line, a message about the first such line.
    """
    rules, table_ends = design.problem.publish, design.compute_ends(release)
    if rules.coefficient_of_variation is None or table_ends is None or release.bounds is None:
        return []
    return find_wrong_lines(release, table_ends, rules, design.problem.confidence)


def _check_intervals(design: Design, release: HierarchyRelease) -> list[str]:
    """Compare the published intervals with intervals recomputed from the noisy values.

    If an end is within `SLACK_GROUPS` of an integer before rounding, both ways of rounding it are accepted, because
    machines round sums of doubles differently.

    Returns:
        For each table and level, messages about the first wrong lower end and the first wrong upper end.
    """
    if release.bounds is None:
        return []
    recomputed, lines = design.compute_ends(release), []
    if recomputed is None:
        return [f"{form.intervals}: the method has no intervals" for form in release.layout.forms]
    for form, bounds, level_ends in zip(release.layout.forms, release.bounds, recomputed, strict=True):
        for level, (stated_edges, ends) in enumerate(zip(bounds, level_ends, strict=True)):
            # A published end must lie between the rounded ends with the tolerance added and with it subtracted.
            widest, narrowest = (ends.round_outwards(by) for by in (SLACK_GROUPS, -SLACK_GROUPS))
            for edge, values, *allowed in zip(("low", "high"), stated_edges, widest, narrowest, strict=True):
                differences = np.argwhere((values < np.minimum(*allowed)) | (values > np.maximum(*allowed)))
                for region, cell in differences[:1].tolist():
                    where = f"region {release.tree.name_of(level, region)!r}{form.cell(cell)}"
                    complaint = f"{edge} is {values[region, cell]}; the noisy values give {allowed[0][region, cell]}"
                    lines.append(f"{form.intervals}: {where}: {complaint}")
    return lines
