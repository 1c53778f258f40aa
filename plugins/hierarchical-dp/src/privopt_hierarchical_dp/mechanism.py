"""The mechanisms: measure every table with noise, fit all together, publish."""

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
from privopt_hierarchical_dp.fits.qip import Fit
from privopt_hierarchical_dp.instance import Instance, read_groups, read_tables
from privopt_hierarchical_dp.least_squares import SLACK_GROUPS
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.loss import PostProcessing
from privopt_hierarchical_dp.methods import DEFAULT_METHOD, METHODS
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC
from privopt_hierarchical_dp.privacy import MeasuredNoise, PublishedChain
from privopt_hierarchical_dp.problem import HierarchyProblem
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

LARGEST_GAP: Final = 1e-4
"""Relative gap that the fits go on to at most."""
BYTES_PER_COUNT: Final = 500.0
"""Bytes that a region's count of groups of one size takes, with its noise, fit, files and their proof."""
BYTES_PER_CELL: Final = 600.0
"""Likewise a region's cell of one of several tables."""
ROOM: Final = Fraction(1, 10**9)
"""Share by which less is stated than a fit proves: machines round its sums differently."""


class CountsMechanism(Mechanism[Instance, HierarchyRelease]):
    """Tables of counts in a hierarchy of regions, under pure, zero-concentrated or (epsilon, delta) DP."""

    release_class = HierarchyRelease
    secret: ClassVar[str]
    """What the problem file has to name, in words."""

    def privacy(self, problem: Instance, method: str) -> PrivacyConstraint[HierarchyRelease]:
        """Return noise on every table and level."""
        return MeasuredNoise(design=problem.design(method))

    def notion(self, problem: Instance, method: str) -> str | None:
        """Return ``privacy.kind``."""
        kind: str = problem.declared.privacy.kind
        return kind

    def utility(self, problem: Instance, method: str) -> PostProcessing:
        """Return the post-processing objective at the noisy values."""
        design = problem.design(method)
        return PostProcessing(design=design, unit=f"{design.layout.noun} squared")

    def check_problem(self, problem: Instance, method: str) -> None:
        """Refuse a published copy, what the method cannot do, and noise too wide for 64 bits."""
        design = problem.design(method)
        if problem.truth is None:
            actual = f"no {design.layout.noun}, as in a published copy"
            raise InputError([Fault(design.file, "hierarchy", actual, self.secret)])
        design.check()

    def solve(self, problem: Instance, context: SolveContext) -> Outcome[HierarchyRelease]:
        """Measure with noise, fit, publish."""
        assert problem.truth is not None  # check_problem
        design = problem.design(context.method)
        with context.timed("build"):
            counts = [add_up(design.tree, own) for own in problem.truth.leaves]
            public = numbers_of(counts)[: design.exact]
            noisy, records = design.draw(counts, seed=context.seed)
        how = FitOptions(gap=max(context.gap, LARGEST_GAP), backend=context.solver, report=context.report)
        with context.timed("solve"):
            fitted, stopped = _fit_in_time(partial(design.fit, noisy, public), how, context)
        stopped |= bool(fitted.details.get("stopped"))
        release = HierarchyRelease(
            tree=design.tree,
            layout=design.layout,
            counts=fitted.counts,
            noisy=noisy,
            totals=public,
            scales=[[None if own is None else Fraction(own.scale) for own in levels] for levels in records],
            law=design.law,
            truth=counts,
        )
        table_ends = design.compute_ends(release)
        bounds = None if table_ends is None else [[level.round_outwards() for level in own] for own in table_ends]
        release = evolve(release, bounds=bounds)
        loss = self.utility(problem, context.method)
        bound = _certified_bound(loss, release, (fitted.lower_bound, fitted.proved), tolerance=ROOM)
        details: dict[str, Any] = {"noise": _noise_records(design.layout.forms, records), **fitted.details}
        remaining_seconds = context.remaining
        if (
            bound is not None
            and remaining_seconds is not None
            and (stopped or remaining_seconds < context.times["solve"])
        ):
            details, bound = {"lower_bound": bound, **details}, None  # no time to fit again, as `verify` would
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
        """Return errors by table and level, shares of intervals that hold, and what contradicts bounds."""
        errors: dict[str, list[int]] = {}
        hold_rates: dict[str, list[float]] = {}
        for number, (form, true_counts) in enumerate(zip(release.layout.forms, true, strict=True)):
            pairs = list(zip(release.counts[number], true_counts, strict=True))
            errors[form.title] = [int(np.abs(a - b).sum()) for a, b in pairs]
            hold_rates[form.title] = [
                float(((lower <= b.reshape(lower.shape)) & (b.reshape(lower.shape) <= upper)).mean())
                for (_, b), (lower, upper) in zip(pairs, release.bounds[number] if release.bounds else (), strict=False)
            ]
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
        """Return budgets, scales, weights and intervals by table and level; what else the design states."""
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
        return {
            "levels": [{"regions": width} for width in release.tree.widths],
            "relation": problem.declared.privacy.relation,
            "sensitivity": design.delta,
            "tables": tables,
            "confidence": problem.declared.confidence,
            **design.facts(release),
        }

    def verify(self, problem: Instance, release: HierarchyRelease, result: Result) -> list[str]:
        """Check counts, intervals and bounds kept; consistent where a method's releases always are."""
        design = problem.design(result.method)
        if overflows := release.past_sums():
            return overflows
        complaints = release.complaints()
        if not design.valid and not any("negative" in line for line in complaints):
            complaints = []
        shapes = design.shape_faults(release)
        if not shapes:
            complaints += _check_intervals(design, release) + _check_unmeasured_levels(design, release)
        lines = [] if shapes else design.find_misestimates(release)
        for where, number, expectation in (
            [] if design.limits is None else design.limits.find_violations(release.numbers)
        ):
            lines.append(f"{where} has {number} {release.layout.noun}; hierarchy.bounds allows {expectation}")
        return complaints + [f"{release.layout.forms[0].file}: {line}" for line in lines]

    def proved(self, problem: Instance, release: HierarchyRelease, result: Result, folder: Path) -> float | None:
        """Return what the released noisy values prove once more."""
        design, application = problem.design(result.method), result.asked
        if release.past_sums() or design.shape_faults(release):
            return None
        bound = design.bound(release, FitOptions(gap=max(application.gap, LARGEST_GAP), backend=application.solver))
        return _certified_bound(self.utility(problem, result.method), release, bound)

    def plan(self, declared: AttrsInstance, file: str, context: SolveContext) -> Plan:
        """Return errors by table and level, from what is public alone: no secret file is opened."""
        from privopt_hierarchical_dp.plan import plan

        assert isinstance(declared, (HierarchyProblem, TablesProblem))  # problem_class
        return plan(declared, file, context)

    def warnings(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[str]:
        """Return numbers that are exact and regions that look alike; to the owner alone, what was not read."""
        lines = list(problem.truth.unread) if problem.truth is not None else []
        lines += warn_of_alike_regions(release.tree)
        if len(release.totals) == release.tree.depth:
            lines.append(problem.declared.relation.exposure_warning)
        return lines

    def audit(self, problem: Instance, release: HierarchyRelease, result: Result) -> Mapping[str, Any]:
        """Return epsilon claimed, and what one individual's change really costs under the scales used."""
        epsilon = None if self.notion(problem, result.method) is None else problem.declared.privacy.epsilon
        claimed, achieved = None if epsilon is None else float(epsilon), None
        if release.law is GEOMETRIC:  # of others no epsilon bounds the odds of every release
            achieved = float_up(problem.design(result.method).real_loss(release))
        return {"epsilon": {"claimed": claimed, "achieved": achieved}}


class HierarchicalDP(CountsMechanism):
    """Counts of groups by size in a hierarchy of regions: one table."""

    problem_class: ClassVar[type] = HierarchyProblem
    secret = "counts or units"
    scope: ClassVar[str] = SIZES.statement(totals=True, max_quantity=1, kind="pure-dp")
    kit: ClassVar[str] = "privopt_hierarchical_dp.kit:PROFILE"
    reporting: ClassVar[str] = "privopt_hierarchical_dp.report:CountsReport"

    def load(self, declared: HierarchyProblem, file: str) -> Instance:
        """Return the problem and its groups."""
        return read_groups(declared, file)

    def reopen(self, declared: HierarchyProblem, file: str, folder: Path) -> tuple[Instance, HierarchyRelease]:
        """Return what is published: nothing that is secret."""
        declared.check_keys(file)
        regions = declared.hierarchy.regions
        listed = None if regions is None else read_regions(regions).tree
        release = HierarchyRelease.read(folder, (declared, listed))
        return Instance(public=SizesDesign.of(declared, DEFAULT_METHOD, release.tree, file)), release

    def privacy(self, problem: Instance, method: str) -> PrivacyConstraint[HierarchyRelease]:
        """Return noise on every level; the published chain claims nothing."""
        chain = METHODS[method].query == "chain"
        return PublishedChain(design=problem.design(method)) if chain else super().privacy(problem, method)

    def notion(self, problem: Instance, method: str) -> str | None:
        """Return ``privacy.kind``, but for the published chain."""
        return None if METHODS[method].query == "chain" else super().notion(problem, method)

    def bytes_needed(self, problem: Instance, method: str) -> float:
        """Return bytes of each region's counts by size (tests/run/test_memory.py, 120,000)."""
        return BYTES_PER_COUNT * problem.public.tree.regions * float(problem.declared.hierarchy.sizes)

    def warnings(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[str]:
        """Warn where one change moves more cumulative counts than counts: the noise is for all."""
        lines = super().warnings(problem, release, result)
        relation, max_quantity = problem.declared.relation, problem.declared.settings.max_quantity
        moved, counts = (relation.sensitivity(query, max_quantity) for query in ("cumulative", "counts"))
        if METHODS[result.method].query != "cumulative" or moved <= counts:
            return lines
        return [
            *lines,
            f"one change that is covered moves up to {moved} of the numbers that {result.method} measures, and the "
            f"noise is for all; hierarchical-dp and top-down measure counts, of which it moves {counts}, and privopt "
            "plan shows the errors of each",
        ]

    def errors(self, problem: Instance, release: HierarchyRelease, true: Tables) -> dict[str, Any]:
        """Return errors by level too, and what was omitted."""
        assert problem.truth is not None  # solve
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
    """Several tables of the same individuals in a hierarchy of regions, under one budget."""

    problem_class: ClassVar[type] = TablesProblem
    secret = "records"
    scope: ClassVar[str] = TABLE_RELATIONS["individuals"].statement("pure-dp")
    kit: ClassVar[str] = "privopt_hierarchical_dp.kit:TABLES_PROFILE"
    reporting: ClassVar[str] = "privopt_hierarchical_dp.report:CountsReport"

    def load(self, declared: TablesProblem, file: str) -> Instance:
        """Return the problem and its individuals."""
        return read_tables(declared, file)

    def reopen(self, declared: TablesProblem, file: str, folder: Path) -> tuple[Instance, HierarchyRelease]:
        """Return what is published: nothing that is secret."""
        public = TablesDesign.of(declared, file)
        return Instance(public=public), HierarchyRelease.read(folder, (declared, public.tree))

    def bytes_needed(self, problem: Instance, method: str) -> float:
        """Return bytes of each region's cells in every table (tests/run/test_memory.py, 120,000)."""
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
        """Write a problem file for a table of individuals."""
        from privopt_hierarchical_dp.tables.draft import init

        return init(table, out, force=force, count=count, persons=persons, totals=totals, keep_totals=keep_totals)


def _fit_in_time(fit: Callable[[FitOptions], Fit], how: FitOptions, context: SolveContext) -> tuple[Fit, bool]:
    """Fit noisy values, or at once if an interrupt comes; return whether that or a limit ended it early.

    Raises:
        StoppedError: nothing could be fitted: a library whose import was broken off may fail in any way.
    """
    with suppress(KeyboardInterrupt), limit(context.remaining):
        fitted = fit(how)
        return fitted, clock().left == 0.0
    try:
        with limit(0.0):
            return fit(evolve(how, at_once=True)), True
    except Exception as error:
        raise StoppedError("stopped before anything could be fitted; nothing written") from error
    raise StoppedError("stopped before anything could be fitted; nothing written")


def _noise_records(forms: Sequence[Form], records: Sequence[Sequence[NoiseRecord | None]]) -> Any:
    """Return how noise was drawn, by level, of each table that has a name; None where nothing was measured."""
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
    """Return what a fit proves of the objective of any valid release of the noisy values, less the share ``tolerance``.

    If no number is exact, it covers any release with the same estimated numbers. If the fit is the proved optimum, up
    to the rounding of sums of doubles, it is the objective itself.
    """
    fitted_bound, is_optimal = fitted
    if fitted_bound is None:
        return None
    value = loss.exactly(release)
    bound = max(Fraction(0), Fraction(fitted_bound) * (1 - Fraction(1, 10**12)) * (1 - tolerance))
    is_reached = is_optimal and fitted_bound > value * (1 - Fraction(1, 10**9))
    return float_down(value if is_reached else min(bound, value))


def _check_unmeasured_levels(design: Design, release: HierarchyRelease) -> list[str]:
    """Return levels, not measured, that are not the sums of the level below."""
    wrong_levels = {
        level
        for noisy_levels, filled_levels in zip(
            release.noisy, design.fill_unmeasured(release.noisy, release.scales), strict=True
        )
        for level, (noisy, filled) in enumerate(zip(noisy_levels, filled_levels, strict=True), start=1)
        if (noisy != filled).any()
    }
    complaint = "is not measured, and its values are not the sums of the level below"
    return [f"{NOISY}: level {level} {complaint}" for level in sorted(wrong_levels)]


def _check_intervals(design: Design, release: HierarchyRelease) -> list[str]:
    """Return where intervals differ from those that the noisy values give; whole ends may be rounded either way."""
    if release.bounds is None:
        return []
    recomputed, lines = design.compute_ends(release), []
    if recomputed is None:
        return [f"{form.intervals}: the method has no intervals" for form in release.layout.forms]
    for form, bounds, level_ends in zip(release.layout.forms, release.bounds, recomputed, strict=True):
        for names, stated_edges, ends in zip(release.tree.names, bounds, level_ends, strict=True):
            widest, narrowest = (ends.round_outwards(by) for by in (SLACK_GROUPS, -SLACK_GROUPS))
            for edge, values, *allowed in zip(("low", "high"), stated_edges, widest, narrowest, strict=True):
                differences = np.argwhere((values < np.minimum(*allowed)) | (values > np.maximum(*allowed)))
                for region, cell in differences[:1].tolist():
                    where = f"region {names[region]!r}{form.cell(cell)}"
                    complaint = f"{edge} is {values[region, cell]}; the noisy values give {allowed[0][region, cell]}"
                    lines.append(f"{form.intervals}: {where}: {complaint}")
    return lines
