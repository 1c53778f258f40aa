"""The mechanisms: measure every table with noise, fit all together, publish."""

from __future__ import annotations

from abc import abstractmethod
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
from privopt.interfaces import Mechanism, Outcome, Plan, PrivacyConstraint, Result, SolveContext, UtilityLoss
from privopt.numbers.exp_log_bounds import float_down, float_up
from privopt.numbers.noise import NoiseRecord
from privopt_hierarchical_dp.design import CountsProblem, FitOptions, TablesFit
from privopt_hierarchical_dp.instance import Instance, SizesInstance, TablesInstance
from privopt_hierarchical_dp.loss import PostProcessing
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC
from privopt_hierarchical_dp.privacy import MeasuredNoise, PublishedChain
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.relations import SIZES, TABLE_RELATIONS
from privopt_hierarchical_dp.release import (
    ERRORS,
    INSIDE,
    HierarchyRelease,
    Tables,
    errors_of,
    numbers_of,
    violations,
)
from privopt_hierarchical_dp.release_checks import release_faults
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tree import add_up, look_alike

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
    instance: ClassVar[type[Instance]]
    secret: ClassVar[str]
    """What the problem file has to name, in words."""

    def reopen(self, declared: CountsProblem, file: str, folder: Path) -> tuple[Instance, HierarchyRelease]:
        """Return what is published: nothing that is secret."""
        declared.checked(file)
        problem = self.instance(declared=declared, file=file)
        return problem, HierarchyRelease.read(folder, problem)

    def privacy(self, problem: Instance, method: str) -> PrivacyConstraint[HierarchyRelease]:
        """Return noise on every table and level."""
        return MeasuredNoise(problem=problem, method=method)

    def notion(self, problem: Instance, method: str) -> str | None:
        """Return ``privacy.kind``."""
        kind: str = problem.declared.privacy.kind
        return kind

    def utility(self, problem: Instance, method: str) -> UtilityLoss[HierarchyRelease]:
        """Return the post-processing objective at the noisy values."""
        return PostProcessing(problem=problem, method=method, unit=f"{problem.declared.layout.noun} squared")

    def check_problem(self, problem: Instance, method: str) -> None:
        """Refuse a published copy, what the method cannot do, and noise too wide for 64 bits."""
        if problem.truth is None:
            found = f"no {problem.declared.layout.noun}, as in a published copy"
            raise InputError([Fault(problem.file, "hierarchy", found, self.secret)])
        problem.design(method).check()

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
            found, stopped = _fit_in_time(partial(design.fit, noisy, public), how, context)
        stopped |= bool(found.details.get("stopped"))
        release = HierarchyRelease(
            tree=design.tree,
            layout=design.layout,
            counts=found.counts,
            noisy=noisy,
            totals=public,
            scales=[[None if own is None else Fraction(own.scale) for own in levels] for levels in records],
            law=design.law,
            truth=counts,
        )
        ends = design.ends(release)
        bounds = None if ends is None else [[level.rounded() for level in own] for own in ends]
        release = evolve(release, bounds=bounds)
        loss = self.utility(problem, context.method)
        bound = _bound(loss, release, (found.lower_bound, found.proved), tolerance=ROOM)
        details: dict[str, Any] = {"noise": _noise_records(records, by_level=design.layout.by_level), **found.details}
        left = context.remaining
        if bound is not None and left is not None and (stopped or left < context.times["solve"]):
            details, bound = {"lower_bound": bound, **details}, None  # no time to fit again, as `verify` would
        return Outcome(
            release=release,
            lower_bound=bound,
            solver=found.solver,
            details=details,
            stopped=stopped,
            seeded=any(record is not None and record.seeded for levels in records for record in levels),
            truth=self.errors(problem, release, counts),
        )

    @abstractmethod
    def errors(self, problem: Instance, release: HierarchyRelease, true: Tables) -> Mapping[str, Any]:
        """Return the release's errors, and what contradicts public tables."""

    def verify(self, problem: Instance, release: HierarchyRelease, result: Result) -> list[str]:
        """Check counts, intervals, zeros and bounds kept; consistent where a method's releases always are."""
        return release_faults(problem.design(result.method, release.tree), release)

    def proved(self, problem: Instance, release: HierarchyRelease, result: Result, folder: Path) -> float | None:
        """Return what the released noisy values prove once more."""
        design, asked = problem.design(result.method, release.tree), result.asked
        if release.past_sums() or design.shape_faults(release):
            return None
        found = design.bound(release, FitOptions(gap=max(asked.gap, LARGEST_GAP), backend=asked.solver))
        return _bound(self.utility(problem, result.method), release, found)

    def plan(self, declared: AttrsInstance, file: str, context: SolveContext) -> Plan:
        """Return errors by table and level, from what is public alone: no secret file is opened."""
        from privopt_hierarchical_dp.plan import plan

        assert isinstance(declared, (HierarchyProblem, TablesProblem))  # problem_class
        return plan(declared, file, context)

    def warnings(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[str]:
        """Return numbers that are exact, names that look alike; to the owner alone, what was not read."""
        lines = [*look_alike(release.tree), *(problem.truth.unread if problem.truth is not None else ())]
        if len(release.totals) == release.tree.depth:
            lines.append(problem.declared.relation.exposed)
        return lines

    def audit(self, problem: Instance, release: HierarchyRelease, result: Result) -> Mapping[str, Any]:
        """Return epsilon claimed, and what one individual's change really costs under the scales used."""
        epsilon = None if self.notion(problem, result.method) is None else problem.declared.privacy.epsilon
        claimed, achieved = None if epsilon is None else float(epsilon), None
        if release.law is GEOMETRIC:  # of others no epsilon bounds the odds of every release
            achieved = float_up(problem.design(result.method, release.tree).real_loss(release))
        return {"epsilon": {"claimed": claimed, "achieved": achieved}}


class HierarchicalDP(CountsMechanism):
    """Counts of groups by size in a hierarchy of regions: one table."""

    problem_class: ClassVar[type] = HierarchyProblem
    instance = SizesInstance
    secret = "counts or units"
    scope: ClassVar[str] = SIZES.statement(totals=True, max_quantity=1, kind="pure-dp")
    kit: ClassVar[str] = "privopt_hierarchical_dp.kit:PROFILE"
    reporting: ClassVar[str] = "privopt_hierarchical_dp.report:HierarchyReport"

    def load(self, declared: HierarchyProblem, file: str) -> Instance:
        """Return the problem and its groups."""
        return SizesInstance.of(declared, file)

    def privacy(self, problem: Instance, method: str) -> PrivacyConstraint[HierarchyRelease]:
        """Return noise on every level; the published chain claims nothing."""
        chain = METHODS[method].query == "chain"
        return PublishedChain(problem=problem) if chain else super().privacy(problem, method)

    def notion(self, problem: Instance, method: str) -> str | None:
        """Return ``privacy.kind``, but for the published chain."""
        return None if METHODS[method].query == "chain" else super().notion(problem, method)

    def bytes_needed(self, problem: Instance, method: str) -> float:
        """Return bytes of each region's counts by size (tests/run/test_memory.py, 120,000)."""
        regions = 0 if problem.truth is None else problem.truth.tree.regions
        return BYTES_PER_COUNT * regions * float(problem.declared.hierarchy.sizes)

    def details(
        self, problem: Instance, release: HierarchyRelease, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return budgets, sensitivity and weights by level, and whether children add up."""
        assert isinstance(problem, SizesInstance)  # instance
        design, tree = problem.design(method, release.tree), release.tree
        found: dict[str, Any] = {
            "levels": [{"regions": width} for width in tree.widths],
            "sizes": design.problem.hierarchy.sizes,
            "relation": design.relation.name,
            "level_budgets": [str(budget) for budget in design.budgets[0]],
            "sensitivity": design.delta,
            design.law.stated: [str(scale or "") for scale in release.scales[0]],
            "level_weights": [float(design.weight(0, level)) for level in range(tree.depth)],
            "region_totals_exact": design.totals,
            "constraint_violations": violations(tree, release.counts),
        }
        if release.bounds is not None:
            widths = [float(np.mean(high - low)) for low, high in release.bounds[0]]
            found["intervals"] = {"confidence": design.problem.confidence, "mean_width_by_level": widths}
        if design.rule.query != "chain":
            return found
        changed = [design.problem.settings.max_quantity * width for width in tree.widths]
        real = float(design.real_loss(release))
        return {**found, "real_epsilon": real, "entries_changed_by_one_individual": changed}

    def warnings(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[str]:
        """Warn where one change moves more cumulative counts than counts: the noise is for all."""
        lines = super().warnings(problem, release, result)
        relation, most = problem.declared.relation, problem.declared.settings.max_quantity
        moved, counts = (relation.sensitivity(query, most) for query in ("cumulative", "counts"))
        if METHODS[result.method].query != "cumulative" or moved <= counts:
            return lines
        return [
            *lines,
            f"one change that is covered moves up to {moved} of the numbers that {result.method} measures, and the "
            f"noise is for all; hierarchical-dp and top-down measure counts, of which it moves {counts}, and privopt "
            "plan shows the errors of each",
        ]

    def errors(self, problem: Instance, release: HierarchyRelease, true: Tables) -> Mapping[str, Any]:
        """Return errors by level, what was omitted, what contradicts public tables."""
        assert isinstance(problem, SizesInstance)  # instance
        assert problem.truth is not None  # solve
        design = problem.design(next(iter(METHODS)), release.tree)
        (released,), (known,) = release.counts, true
        totals = [int(np.abs(a - b).max()) for a, b in zip(release.numbers, numbers_of(true), strict=True)]
        first = design.problem.hierarchy.first_size
        found = [errors_of(a, b, first) for a, b in zip(released, known, strict=True)]
        return {
            "groups": int(known[0].sum()),
            **{f"{name}_by_level": [level[name] for level in found] for name in found[0]},
            "l1_error": sum(level["l1_error"] for level in found),
            "largest_error_of_a_region_total_by_level": totals,
            "groups_of_size_0_left_out": problem.truth.empty,
            "regions_out_of_bounds": 0 if design.limits is None else len(design.limits.broken(numbers_of(true))),
            "regions_by_level": list(release.tree.widths),
        }


class HierarchicalTables(CountsMechanism):
    """Several tables of the same individuals in a hierarchy of regions, under one budget."""

    problem_class: ClassVar[type] = TablesProblem
    instance = TablesInstance
    secret = "records"
    scope: ClassVar[str] = TABLE_RELATIONS["individuals"].statement("pure-dp")
    kit: ClassVar[str] = "privopt_hierarchical_dp.tables.kit:PROFILE"
    reporting: ClassVar[str] = "privopt_hierarchical_dp.report:TablesReport"
    drafting: ClassVar[str] = "privopt_hierarchical_dp.tables.draft:init"

    def load(self, declared: TablesProblem, file: str) -> Instance:
        """Return the problem and its individuals."""
        return TablesInstance.of(declared, file)

    def bytes_needed(self, problem: Instance, method: str) -> float:
        """Return bytes of each region's cells in every table (tests/run/test_memory.py, 120,000)."""
        design = problem.design(method)
        return BYTES_PER_CELL * design.tree.regions * sum(float(np.prod(form.shape)) for form in design.layout.forms)

    def details(
        self, problem: Instance, release: HierarchyRelease, method: str, recorded: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Return budgets, scales and intervals by table and level, and the order of the fit."""
        assert isinstance(problem, TablesInstance)  # instance
        design, declared = problem.design(method), problem.declared
        attributes, domain = list(declared.hierarchy.attributes), design.domain
        return {
            "levels": [{"regions": width} for width in release.tree.widths],
            "relation": declared.privacy.relation,
            "sensitivity": design.delta,
            "tables": {
                form.name: {
                    "by": [attributes[own] for own in form.margin],
                    "cells": domain.cells(form.margin),
                    "weight": domain.weights[number],
                    "budgets": [str(budget) for budget in design.budgets[number]],
                    release.law.stated: [str(scale or "") for scale in release.scales[number]],
                    "mean_width_by_level": [float(np.mean(high - low)) for low, high in (release.bounds or [])[number]],
                }
                for number, form in enumerate(release.layout.forms)
            },
            "fitted": [[attributes[own] for own in step.margin] for step in domain.steps],
            "confidence": declared.confidence,
        }

    def errors(self, problem: Instance, release: HierarchyRelease, true: Tables) -> Mapping[str, Any]:
        """Return errors by table and level, and how many intervals hold the true count."""
        errors: dict[str, list[int]] = {}
        inside: dict[str, list[float]] = {}
        for number, (form, bounds) in enumerate(zip(release.layout.forms, release.bounds or (), strict=True)):
            pairs = list(zip(release.counts[number], true[number], strict=True))
            errors[form.name] = [int(np.abs(a - b).sum()) for a, b in pairs]
            inside[form.name] = [
                float(((low <= b.reshape(low.shape)) & (b.reshape(low.shape) <= high)).mean())
                for (_, b), (low, high) in zip(pairs, bounds, strict=True)
            ]
        limits = problem.design("margins").limits
        return {
            "individuals": int(true[0][0].sum()),
            ERRORS: errors,
            INSIDE: inside,
            "regions_out_of_bounds": 0 if limits is None else len(limits.broken(numbers_of(true))),
        }


def _fit_in_time(
    fit: Callable[[FitOptions], TablesFit], how: FitOptions, context: SolveContext
) -> tuple[TablesFit, bool]:
    """Fit noisy values, or at once if an interrupt comes; return whether that or a limit ended it early.

    Raises:
        StoppedError: nothing could be fitted: a library whose import was broken off may fail in any way.
    """
    with suppress(KeyboardInterrupt), limit(context.remaining):
        found = fit(how)
        return found, clock().left == 0.0
    try:
        with limit(0.0):
            return fit(evolve(how, at_once=True)), True
    except Exception as error:
        raise StoppedError("stopped before anything could be fitted; nothing written") from error
    raise StoppedError("stopped before anything could be fitted; nothing written")


def _noise_records(records: Sequence[Sequence[NoiseRecord | None]], *, by_level: bool) -> list[Any]:
    """Return how noise was drawn, by level; None where nothing was measured."""
    told = [
        [None if own is None else {"engine": own.engine, "draws": own.draws} for own in levels] for levels in records
    ]
    return list(map(list, zip(*told, strict=True))) if by_level else told[0]


def _bound(
    loss: UtilityLoss[HierarchyRelease],
    release: HierarchyRelease,
    fitted: tuple[Fraction | None, bool],
    *,
    tolerance: Fraction = Fraction(0),
) -> float | None:
    """Return what a fit proves of the objective of any valid release of the noisy values, less the share ``tolerance``.

    If no number is exact, it covers any release with the same estimated numbers. If the fit is the proved optimum, up
    to the rounding of sums of doubles, it is the objective itself.
    """
    least, proved = fitted
    if least is None:
        return None
    assert isinstance(loss, PostProcessing)  # of these mechanisms
    value = loss.exactly(release)
    bound = max(Fraction(0), least * (1 - Fraction(1, 10**12)) * (1 - tolerance))
    reached = proved and least > value * (1 - Fraction(1, 10**9))
    return float_down(value if reached else min(bound, value))
