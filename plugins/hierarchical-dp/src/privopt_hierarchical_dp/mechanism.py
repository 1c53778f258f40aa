"""The mechanism: measure with noise, fit, publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from attrs import AttrsInstance, evolve

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.interfaces import Mechanism, Outcome, Plan, PrivacyConstraint, Result, SolveContext, UtilityLoss
from privopt.numbers.exp_log_bounds import float_down
from privopt.numbers.noise import NoiseRecord
from privopt.report import Section
from privopt_hierarchical_dp.bounds import limits_of
from privopt_hierarchical_dp.chain import Fit
from privopt_hierarchical_dp.fitting import falling_back, fit, fit_at_once, objective_weights, refuse_size
from privopt_hierarchical_dp.laws import GEOMETRIC, budget_of, law_of
from privopt_hierarchical_dp.loss import PostProcessing
from privopt_hierarchical_dp.methods import METHODS, draw, level_budgets, sensitivity, spent_on_a_neighbour
from privopt_hierarchical_dp.privacy import LevelNoise, PublishedChain, with_totals
from privopt_hierarchical_dp.problem import HierarchyInstance, HierarchyProblem, PublishedHierarchy
from privopt_hierarchical_dp.rechecks import elsewhere, ends_of, impossible, misestimated, narrowed, out_of_bounds
from privopt_hierarchical_dp.refusals import check_asked, check_noise
from privopt_hierarchical_dp.relations import SIZES, relation_of
from privopt_hierarchical_dp.release import HierarchyRelease, errors_of, violations
from privopt_hierarchical_dp.tasks import task_of
from privopt_hierarchical_dp.tree import add_up, look_alike
from privopt_hierarchical_dp.zeros import Zeros, outside, zeros_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["HierarchicalDP"]


GAP = 1e-4
"""Relative gap that the fits go on to at most."""
AN_ENTRY = 500.0
"""Bytes that a region's count of groups of one size takes, with its noise, fit, files and their proof."""
ROOM = Fraction(1, 10**9)
"""Share by which less is stated than a fit proves: machines round its sums differently."""


class HierarchicalDP(Mechanism[PublishedHierarchy, HierarchyRelease]):
    """Counts of groups by size in a hierarchy of regions, under pure, zero-concentrated or (epsilon, delta) DP."""

    problem_class: ClassVar[type] = HierarchyProblem
    release_class = HierarchyRelease
    scope: ClassVar[str] = SIZES.statement(totals=True, most=1, kind="pure-dp")
    kit: ClassVar[str] = "privopt_hierarchical_dp.kit:PROFILE"

    def load(self, declared: HierarchyProblem, file: str) -> HierarchyInstance:
        """The problem and its groups."""
        return HierarchyInstance.of(declared, file)

    def reopen(
        self, declared: HierarchyProblem, file: str, folder: Path
    ) -> tuple[PublishedHierarchy, HierarchyRelease]:
        """What is published: no counts."""
        declared.checked(file)
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

    def bytes_needed(self, problem: PublishedHierarchy, method: str) -> float:
        """Bytes of each region's counts by size (tests/test_memory.py, 120,000)."""
        regions = problem.groups.tree.regions if isinstance(problem, HierarchyInstance) else 0
        return AN_ENTRY * regions * problem.declared.hierarchy.sizes

    def solve(self, problem: PublishedHierarchy, context: SolveContext) -> Outcome[HierarchyRelease]:
        """Measure with noise, fit, publish.

        Raises:
            UsageError: an integer program is asked for a size that it cannot take.
            InputError: region totals are asked of a method that cannot publish them, or refused to one that must; a
                published copy, which has no counts.
        """
        if not isinstance(problem, HierarchyInstance):
            raise InputError([Fault("problem", "hierarchy", "no counts, as in a published copy", "counts or units")])
        declared, method, tree = problem.declared, context.method, problem.groups.tree
        zeros = zeros_of(declared, tree)
        with context.timed("build"):
            counts, public, noisy, records = _measured(problem, method, zeros, context.seed)
        task = evolve(
            task_of(declared, method, tree, noisy, public, gap=max(context.gap, GAP), zeros=zeros),
            backend=context.solver,
            time_limit=context.remaining,
            stopped=lambda: context.remaining == 0.0,
        )
        with context.timed("solve"):
            try:
                found, own = fit(task)
            except KeyboardInterrupt:
                with falling_back():
                    found, own = fit_at_once(task)
        stopped = bool(own.get("stopped")) or context.remaining == 0.0
        release = HierarchyRelease(
            tree=tree,
            counts=found.counts,
            noisy=noisy,
            totals=public,
            scales=tuple(Fraction(record.scale) for record in records),
            law=law_of(declared.privacy),
            truth=counts,
            first=declared.hierarchy.first_size,
        )
        ends = ends_of(declared, method, release)
        release = evolve(release, bounds=None if ends is None else [level.rounded() for level in ends])
        bound = _bound(declared, method, release, found, task.offset, room=ROOM)
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
            truth=_truth(problem, release, counts, zeros),
        )

    def details(
        self, problem: PublishedHierarchy, release: HierarchyRelease, method: str, told: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Budgets, sensitivity and weights by level, and whether children add up."""
        tree, settings = release.tree, problem.declared.settings
        law, relation = law_of(problem.declared.privacy), relation_of(problem.declared)
        budgets = level_budgets(budget_of(problem.declared.privacy), method, tree.depth, settings.budget)
        weights = objective_weights(settings.level_weights, tree.depth)
        found: dict[str, Any] = {
            "levels": [{"regions": width} for width in tree.widths],
            "sizes": problem.declared.hierarchy.sizes,
            "relation": relation.name,
            "level_budgets": [str(budget) for budget in budgets],
            "sensitivity": sensitivity(method, settings.max_quantity, relation),
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
        """Non-negative, intervals, zeros and bounds kept; consistent where a method's releases always are."""
        method = result.method
        if beyond := release.past_sums():
            return beyond
        complaints = release.complaints()
        if not METHODS[method].valid and not any("negative" in line for line in complaints):
            complaints = []
        if release.bounds is not None and not release.shape_faults(method, with_totals(problem.declared, method)):
            complaints += narrowed(release, ends_of(problem.declared, method, release))
        for check in (elsewhere, impossible, out_of_bounds):
            complaints += check(problem.declared, release)
        return complaints + (misestimated(problem.declared, method, release) if METHODS[method].valid else [])

    def proved(
        self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result, folder: Path
    ) -> float | None:
        """What fitting the released noisy values once more proves."""
        method, asked = result.method, result.asked
        if release.past_sums() or release.shape_faults(method, with_totals(problem.declared, method)):
            return None
        task = task_of(
            problem.declared,
            method,
            release.tree,
            release.noisy,
            release.totals,
            gap=max(asked.gap, GAP),
            root=int(release.counts[0].sum()),
            zeros=zeros_of(problem.declared, release.tree),
        )
        found = fit(evolve(task, backend=asked.solver))[0]
        return _bound(problem.declared, method, release, found, task.offset)

    def plan(self, declared: AttrsInstance, file: str, context: SolveContext) -> Plan:
        """Errors by level from public counts like the secret ones, or from the noise alone."""
        from privopt_hierarchical_dp.planning import plan

        assert isinstance(declared, HierarchyProblem)  # problem_class
        return plan(declared, file, context)

    def warnings(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Sequence[str]:
        """Numbers of groups that are exact; noise for many cumulative counts of whole groups; names that look alike."""
        relation, alike = relation_of(problem.declared), look_alike(release.tree)
        if len(release.totals) == release.tree.depth:
            one = "unit" if relation.vacant else "group"
            other = "" if relation.vacant else 'relation = "individuals" or '
            return [
                *alike,
                f"every region's number of {one}s is published exactly, without noise: nothing hides a {one} that "
                f'appears or vanishes, and where all have one size the counts are the true ones; {other}"groups" hides '
                "them",
            ]
        if relation.name != "groups" or METHODS[result.method].query == "counts":
            return alike
        return [
            *alike,
            f"a group that appears changes up to {relation.classes} of the numbers that {result.method} measures, and "
            "the noise is for all; hierarchical-dp and top-down measure counts, of which it changes 1",
        ]

    def audit(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Mapping[str, Any]:
        """Epsilon claimed, and what one individual's move really costs under the scales used."""
        method, settings = result.method, problem.declared.settings
        privacy = problem.declared.privacy
        if law_of(privacy) is not GEOMETRIC:  # no epsilon bounds the odds of every release
            claimed = None if privacy.epsilon is None else float(privacy.epsilon)
            return {"epsilon": {"claimed": claimed, "achieved": None}}
        budget = budget_of(privacy)
        budgets = level_budgets(budget, method, release.tree.depth, settings.budget)
        real = spent_on_a_neighbour(method, release.tree, budgets, settings.max_quantity, relation_of(problem.declared))
        claimed = None if METHODS[method].query == "chain" else float(budget)
        return {"epsilon": {"claimed": claimed, "achieved": float(real)}}

    def report(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Sequence[Section]:
        """The tree with totals, sizes with their intervals, noise scales."""
        from privopt_hierarchical_dp.report import sections

        return sections(problem.declared, release, result)

    def report_truth(
        self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result, private: Path
    ) -> Sequence[Section]:
        """The errors of this very release."""
        from privopt_hierarchical_dp.report import truth_sections

        return truth_sections(problem.declared, release, result, private)

    def figures(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Mapping[str, Figure]:
        """Tree and sizes."""
        from privopt_hierarchical_dp.report import figures

        return figures(problem.declared, release, result)


def _measured(
    problem: HierarchyInstance, method: str, zeros: Zeros | None, seed: int | None
) -> tuple[list[Ints], list[Ints], list[Ints], list[NoiseRecord]]:
    """By level the true counts, the totals that are public and the noisy values; and how the noise was drawn.

    Raises:
        UsageError, InputError: what the method cannot do, before any noise is drawn.
    """
    declared, tree = problem.declared, problem.groups.tree
    relation, totals = relation_of(declared), with_totals(declared, method)
    check_asked(declared, method, zeros, limits_of(declared.hierarchy.bounds, tree))
    refuse_size(method, tree, relation.classes)
    check_noise(declared, method, tree)
    counts = add_up(tree, problem.groups.leaves)
    public = [level.sum(axis=1) for level in counts[: tree.depth if totals else int(relation.exact)]]
    noisy, records = draw(
        method,
        counts,
        level_budgets(budget_of(declared.privacy), method, tree.depth, declared.settings.budget),
        totals=totals,
        most=declared.settings.max_quantity,
        seed=seed,
        law=law_of(declared.privacy),
        relation=relation,
        zeros=zeros,
    )
    return counts, public, noisy, records


def _bound(
    problem: HierarchyProblem,
    method: str,
    release: HierarchyRelease,
    found: Fit,
    offset: Fraction,
    *,
    room: Fraction = Fraction(0),
) -> float | None:
    """What a fit proves of the objective of any valid release of the same noisy values, less a share of room.

    Where no number of groups is exact, of any with the same ones estimated; ``offset`` is what these add.

    Where the fit is the proved optimum, up to what sums of doubles can be off, it is the objective itself.
    """
    if found.lower_bound is None:
        return None
    value = PostProcessing(problem=problem, method=method).exactly(release)
    least = Fraction(found.lower_bound) + offset
    bound = least * (1 - Fraction(1, 10**12))
    reached = found.proved and least > value * (1 - Fraction(1, 10**9))
    return float_down(value if reached else min(bound * (1 - room), value))


def _truth(
    problem: HierarchyInstance, release: HierarchyRelease, true: Sequence[Ints], zeros: Zeros | None
) -> Mapping[str, Any]:
    """For private/truth.json: errors of the release by level, what was left out, what contradicts public tables."""
    tree, released, limits = release.tree, release.counts, limits_of(problem.declared.hierarchy.bounds, release.tree)
    totals = [int(np.abs(a.sum(axis=1) - b.sum(axis=1)).max()) for a, b in zip(released, true, strict=True)]
    found = [errors_of(a, b, release.first) for a, b in zip(released, true, strict=True)]
    return {
        "groups": int(true[0].sum()),
        **{f"{name}_by_level": [level[name] for level in found] for name in found[0]},
        "l1_error": sum(level["l1_error"] for level in found),
        "largest_error_of_a_region_total_by_level": totals,
        "groups_of_size_0_left_out": problem.groups.empty,
        "groups_of_impossible_sizes": 0 if zeros is None else outside(zeros, true[-1]),
        "regions_out_of_bounds": 0 if limits is None else len(limits.broken([n.sum(axis=1) for n in true])),
        "regions_by_level": list(tree.widths),
    }
