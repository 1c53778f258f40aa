"""The mechanism: measure with noise, fit, publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import AttrsInstance, evolve

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.exact.bounds import float_down
from privopt.interfaces import Mechanism, Outcome, Plan, PrivacyConstraint, Result, SolveContext, UtilityLoss
from privopt_hierarchical_dp.chain import Fit
from privopt_hierarchical_dp.fitting import Task, fit, fit_at_once, objective_weights, refuse_size
from privopt_hierarchical_dp.laws import GEOMETRIC, KINDS, budget_of, law_of
from privopt_hierarchical_dp.least_squares import SLACK, Ends, intervals
from privopt_hierarchical_dp.loss import PostProcessing
from privopt_hierarchical_dp.methods import METHODS, draw, level_budgets, sensitivity, spent_on_a_neighbour
from privopt_hierarchical_dp.privacy import LevelNoise, PublishedChain, statement, with_totals
from privopt_hierarchical_dp.problem import HierarchyInstance, HierarchyProblem, PublishedHierarchy
from privopt_hierarchical_dp.release import INTERVALS, HierarchyRelease, errors_of, violations
from privopt_hierarchical_dp.tree import Tree, add_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privopt.run.report import Section

__all__ = ["HierarchicalDP"]


LARGEST_SCALE = 1 << 40
ROOM = Fraction(1, 10**9)
"""Share by which less is stated than a fit proves: machines round its sums differently."""
PROGRAM_SCALE = 1 << 20
"""Squares of noise of this scale are still exact in doubles, which integer programs are given."""


class HierarchicalDP(Mechanism[PublishedHierarchy, HierarchyRelease]):
    """Counts of groups by size in a hierarchy of regions, under pure, zero-concentrated or (epsilon, delta) DP."""

    problem_class: ClassVar[type] = HierarchyProblem
    release_class = HierarchyRelease
    scope: ClassVar[str] = statement(totals=False, most=1)
    kit: ClassVar[str] = "privopt_hierarchical_dp.kit:PROFILE"

    def load(self, declared: HierarchyProblem, file: str) -> HierarchyInstance:
        """The problem and its groups."""
        return HierarchyInstance.of(declared, file)

    def reopen(
        self, declared: HierarchyProblem, file: str, folder: Path
    ) -> tuple[PublishedHierarchy, HierarchyRelease]:
        """What is published: no counts."""
        declared.privacy.checked(file)
        problem = PublishedHierarchy(declared=declared)
        return problem, HierarchyRelease.read(folder, problem)

    def privacy(self, problem: PublishedHierarchy, method: str) -> PrivacyConstraint[HierarchyRelease]:
        """Noise on every level; the published chain claims nothing."""
        if method == "cumulative-chain-as-published":
            return PublishedChain(problem=problem.declared)
        return LevelNoise(problem=problem.declared, method=method)

    def notion(self, problem: PublishedHierarchy, method: str) -> str | None:
        """``privacy.kind``, but for the published chain."""
        return None if METHODS[method].query == "chain" else problem.declared.privacy.kind

    def utility(self, problem: PublishedHierarchy, method: str) -> UtilityLoss[HierarchyRelease]:
        """The post-processing objective at the noisy values."""
        return PostProcessing(problem=problem.declared, method=method)

    def solve(self, problem: PublishedHierarchy, context: SolveContext) -> Outcome[HierarchyRelease]:
        """Measure with noise, fit, publish.

        Raises:
            UsageError: an integer program is asked for a size that it cannot take.
            InputError: region totals are asked of a method that cannot publish them, or refused to one that must; a
                published copy, which has no counts.
        """
        if not isinstance(problem, HierarchyInstance):
            raise InputError([Fault("problem", "hierarchy", "no counts, as in a published copy", "counts or units")])
        method = context.method
        tree, sizes = problem.groups.tree, problem.declared.hierarchy.sizes
        _check_asked(problem.declared, method)
        refuse_size(method, tree, sizes)
        law = law_of(problem.declared.privacy)
        budgets = level_budgets(
            budget_of(problem.declared.privacy), method, tree.depth, problem.declared.settings.budget
        )
        most = problem.declared.settings.max_quantity
        _check_scales(method, problem.declared.privacy.kind, budgets, sensitivity(method, most))
        with context.timed("build"):
            counts = add_up(tree, problem.groups.leaves)
            totals = with_totals(problem.declared, method)
            noisy, records = draw(method, counts, budgets, totals=totals, most=most, seed=context.seed, law=law)
        region_totals = [level.sum(axis=1) for level in counts]
        task = evolve(
            _task(problem.declared, method, tree, noisy, region_totals, context.solver, context.gap),
            time_limit=context.remaining,
            stopped=lambda: context.remaining == 0.0,
        )
        with context.timed("solve"):
            try:
                found, own = fit(task)
            except KeyboardInterrupt:
                found, own = fit_at_once(task)
        stopped = bool(own.get("stopped")) or context.remaining == 0.0
        scales = tuple(Fraction(record.scale) for record in records)
        public = region_totals if totals else region_totals[:1]
        release = HierarchyRelease(
            tree=tree, counts=found.counts, noisy=noisy, totals=public, scales=scales, law=law, truth=counts
        )
        ends = _ends(problem.declared, method, release)
        release = evolve(release, bounds=None if ends is None else [level.rounded() for level in ends])
        bound = _bound(problem.declared, method, release, found, room=ROOM)
        details: dict[str, Any] = {"noise": [{"engine": r.engine, "draws": r.draws} for r in records], **own}
        left = context.remaining
        if bound is not None and left is not None and (stopped or left < context.times["solve"]):
            details, bound = {"lower_bound": bound, **details}, None  # no time to fit again, as `verify` would
        return Outcome(
            release=release,
            lower_bound=bound,
            solver={"name": found.solver, "iterations": found.iterations},
            details=details,
            stopped=stopped,
            seeded=any(record.seeded for record in records),
            truth=_truth(tree, counts, found.counts, problem.groups.empty),
        )

    def details(
        self, problem: PublishedHierarchy, release: HierarchyRelease, method: str, told: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Budgets, sensitivity and weights by level, and whether children add up."""
        tree, settings = release.tree, problem.declared.settings
        law = law_of(problem.declared.privacy)
        budgets = level_budgets(budget_of(problem.declared.privacy), method, tree.depth, settings.budget)
        weights = objective_weights(settings.level_weights, tree.depth)
        found: dict[str, Any] = {
            "levels": [{"regions": width} for width in tree.widths],
            "sizes": problem.declared.hierarchy.sizes,
            "level_budgets": [str(budget) for budget in budgets],
            "sensitivity": sensitivity(method, settings.max_quantity),
            law.stated: [str(scale) for scale in release.scales],
            "level_weights": [float(weight / max(weights)) for weight in weights],
            "region_totals_exact": with_totals(problem.declared, method),
            "constraint_violations": violations(tree, release.counts),
        }
        if release.bounds is not None:
            widths = [float(np.mean(high - low)) for low, high in release.bounds]
            found["intervals"] = {"confidence": settings.confidence, "mean_width_by_level": widths}
        if METHODS[method].query != "chain":
            return found
        real = spent_on_a_neighbour(method, tree, budgets, settings.max_quantity)
        changed = [settings.max_quantity * width for width in tree.widths]
        return {**found, "real_epsilon": float(real), "entries_changed_by_one_individual": changed}

    def verify(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> list[str]:
        """Non-negative, and children adding up, for the methods whose releases are always valid."""
        complaints = release.complaints()
        method = result.method
        if release.bounds is not None and not release.shape_faults(method, with_totals(problem.declared, method)):
            complaints += _narrowed(release, _ends(problem.declared, method, release))
        if not METHODS[method].valid and not any("negative" in line for line in complaints):
            return [line for line in complaints if line.startswith(INTERVALS)]
        return complaints

    def proved(
        self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result, folder: Path
    ) -> float | None:
        """What fitting the released noisy values once more proves."""
        method, asked = result.method, result.asked
        if release.shape_faults(method, with_totals(problem.declared, method)):
            return None
        task = _task(problem.declared, method, release.tree, release.noisy, release.totals, asked.solver, asked.gap)
        return _bound(problem.declared, method, release, fit(task)[0])

    def plan(self, declared: AttrsInstance, file: str, context: SolveContext) -> Plan:
        """Errors by level from public counts like the secret ones, or from the noise alone."""
        from privopt_hierarchical_dp.planning import plan

        assert isinstance(declared, HierarchyProblem)  # problem_class
        return plan(declared, file, context)

    def audit(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Mapping[str, Any]:
        """Epsilon claimed, and what one individual's move really costs under the scales used."""
        method, settings = result.method, problem.declared.settings
        privacy = problem.declared.privacy
        if law_of(privacy) is not GEOMETRIC:  # no epsilon bounds the odds of every release
            claimed = None if privacy.epsilon is None else float(privacy.epsilon)
            return {"epsilon": {"claimed": claimed, "achieved": None}}
        budget = budget_of(privacy)
        budgets = level_budgets(budget, method, release.tree.depth, settings.budget)
        real = spent_on_a_neighbour(method, release.tree, budgets, settings.max_quantity)
        claimed = None if METHODS[method].query == "chain" else float(budget)
        return {"epsilon": {"claimed": claimed, "achieved": float(real)}}

    def report(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Sequence[Section]:
        """The tree with totals, errors to expect, noise scales."""
        from privopt_hierarchical_dp.report import sections

        return sections(problem.declared, release, result)

    def report_truth(
        self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result, private: Path
    ) -> Sequence[Section]:
        """The errors of this very release."""
        from privopt_hierarchical_dp.report import truth_sections

        return truth_sections(problem.declared, release, result, private)

    def figures(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Mapping[str, Figure]:
        """Tree, sizes, errors."""
        from privopt_hierarchical_dp.report import figures

        return figures(problem.declared, release, result)


def _task(
    problem: HierarchyProblem,
    method: str,
    tree: Tree,
    noisy: list[Ints],
    totals: list[Ints],
    backend: str,
    gap: float,
) -> Task:
    """What is to be fitted; ``totals`` of every level, or of the root alone where no others are published."""
    settings = problem.settings
    law = law_of(problem.privacy)
    budgets = level_budgets(budget_of(problem.privacy), method, tree.depth, settings.budget)
    delta = sensitivity(method, settings.max_quantity)
    return Task(
        method=method,
        tree=tree,
        noisy=noisy,
        total=int(totals[0][0]),
        totals=totals if with_totals(problem, method) else None,
        weights=objective_weights(settings.level_weights, tree.depth),
        noise=tuple(law.moments(law.scale(budget, delta)) for budget in budgets),
        backend=backend,
        gap=max(gap, 1e-4),
    )


def _bound(
    problem: HierarchyProblem, method: str, release: HierarchyRelease, found: Fit, *, room: Fraction = Fraction(0)
) -> float | None:
    """What a fit proves of the objective of any valid release of the same noisy values, less a share of room.

    Where the fit is the proved optimum, up to what sums of doubles can be off, it is the objective itself.
    """
    if found.lower_bound is None:
        return None
    value = PostProcessing(problem=problem, method=method).exactly(release)
    bound = Fraction(found.lower_bound) * (1 - Fraction(1, 10**12))
    reached = found.proved and found.lower_bound > value * (1 - Fraction(1, 10**9))
    return float_down(value if reached else min(bound * (1 - room), value))


def _ends(problem: HierarchyProblem, method: str, release: HierarchyRelease) -> list[Ends] | None:
    """Intervals for every count, from what is published; none for the published chain."""
    if METHODS[method].query == "chain":
        return None
    return intervals(
        release.tree,
        release.noisy,
        release.counts,
        release.totals,
        noise=[release.law.moments(scale) for scale in release.scales],
        cumulative=METHODS[method].query == "cumulative",
        confidence=problem.settings.confidence,
    )


def _narrowed(release: HierarchyRelease, again: Sequence[Ends] | None) -> list[str]:
    """Where intervals differ from those that the noisy values give; whole ends may be rounded either way."""
    if again is None:
        return [f"{INTERVALS}: the method has no intervals"]
    lines = []
    for names, stated, ends in zip(release.tree.names, release.bounds or [], again, strict=True):
        wide, tight = (ends.rounded(by) for by in (SLACK, -SLACK))
        for side, a, *allowed in zip(("low", "high"), stated, wide, tight, strict=True):
            off = np.argwhere((a < np.minimum(*allowed)) | (a > np.maximum(*allowed)))
            if len(off):
                region, size = off[0].tolist()
                lines.append(
                    f"{INTERVALS}: region {names[region]!r}, size {size + 1}: {side} is {a[region, size]}; the noisy "
                    f"values give {allowed[0][region, size]}"
                )
    return lines


def _check_asked(problem: HierarchyProblem, method: str) -> None:
    """Refuse what a method cannot do: totals that it must or cannot publish, noise that it was not published with."""
    if METHODS[method].query == "chain" and law_of(problem.privacy) is not GEOMETRIC:
        wanted = f"pure-dp: {method} is as it was printed, with double geometric noise"
        raise InputError([Fault("problem", "privacy.kind", problem.privacy.kind, wanted)])
    asked, rule = problem.settings.region_totals, METHODS[method].totals
    if asked is False and rule == "always":
        found, wanted = "false", f"true, or nothing: {method} publishes every region's number of groups exactly"
    elif asked and rule == "never":
        found, wanted = "true", f"false, or nothing: {method} does not use region totals"
    else:
        return
    raise InputError([Fault("problem", "hierarchical-dp.region_totals", found, wanted)])


def _check_scales(method: str, kind: str, budgets: Sequence[Fraction], delta: int) -> None:
    """Refuse noise that the fit's integers, or an integer program's doubles, have no room for."""
    law, (key, *_) = KINDS[kind]
    most = PROGRAM_SCALE if method in ("hierarchical", "cumulative") else LARGEST_SCALE
    for level, budget in enumerate(budgets, start=1):
        wide = law.wide(budget, delta)
        if wide > law.widest(most):
            found = f"{_short(budget)} of it on level {level}: noise of {law.word} {_short(wide)}"
            least = f"a {law.word} of at most {law.widest(most):,}"
            wanted = f"{least} ({method}): a larger {key}, or a larger share of it"
            raise InputError([Fault("problem", f"privacy.{key}", found, wanted)])


def _short(value: Fraction) -> str:
    """Three digits of a rational that may be no double."""
    return f"{Decimal(value.numerator) / Decimal(value.denominator):.3g}"


def _truth(tree: Tree, true: Sequence[Ints], released: Sequence[Ints], empty: int) -> Mapping[str, Any]:
    """For private/truth.json: errors of the release by level, and what was left out."""
    totals = [int(np.abs(a.sum(axis=1) - b.sum(axis=1)).max()) for a, b in zip(released, true, strict=True)]
    found = [errors_of(a, b) for a, b in zip(released, true, strict=True)]
    return {
        "groups": int(true[0].sum()),
        **{f"{name}_by_level": [level[name] for level in found] for name in found[0]},
        "l1_error": sum(level["l1_error"] for level in found),
        "largest_error_of_a_region_total_by_level": totals,
        "groups_of_size_0_left_out": empty,
        "regions_by_level": list(tree.widths),
    }
