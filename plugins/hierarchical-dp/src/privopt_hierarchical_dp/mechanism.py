"""The mechanism: measure with noise, fit, publish."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, TypeVar

import numpy as np
from attrs import AttrsInstance, evolve

from privopt.arrays import Ints
from privopt.errors import Fault, InputError, StoppedError
from privopt.execution.clock import clock, limit
from privopt.interfaces import Mechanism, Outcome, Plan, PrivacyConstraint, Result, SolveContext, UtilityLoss
from privopt.numbers.exp_log_bounds import float_down
from privopt.numbers.noise import NoiseRecord
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.fits.fit import Fit
from privopt_hierarchical_dp.instance import HierarchyInstance, PublishedHierarchy
from privopt_hierarchical_dp.loss import PostProcessing
from privopt_hierarchical_dp.methods import METHODS, spent_on_a_neighbour
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC
from privopt_hierarchical_dp.privacy import LevelNoise, PublishedChain
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.relations import SIZES
from privopt_hierarchical_dp.release import HierarchyRelease, errors_of, violations
from privopt_hierarchical_dp.release_checks import ends_of, release_faults
from privopt_hierarchical_dp.structural_zeros import outside
from privopt_hierarchical_dp.tree import add_up, look_alike

__all__ = ["HierarchicalDP", "fit_in_time", "noise_told"]


GAP: Final = 1e-4
"""Relative gap that the fits go on to at most."""
BYTES_PER_COUNT: Final = 500.0
"""Bytes that a region's count of groups of one size takes, with its noise, fit, files and their proof."""
ROOM: Final = Fraction(1, 10**9)
"""Share by which less is stated than a fit proves: machines round its sums differently."""


class HierarchicalDP(Mechanism[PublishedHierarchy, HierarchyRelease]):
    """Counts of groups by size in a hierarchy of regions, under pure, zero-concentrated or (epsilon, delta) DP."""

    problem_class: ClassVar[type] = HierarchyProblem
    release_class = HierarchyRelease
    scope: ClassVar[str] = SIZES.statement(totals=True, most=1, kind="pure-dp")
    kit: ClassVar[str] = "privopt_hierarchical_dp.kit:PROFILE"
    reporting: ClassVar[str] = "privopt_hierarchical_dp.report:HierarchyReport"

    def load(self, declared: HierarchyProblem, file: str) -> HierarchyInstance:
        """Return the problem and its groups."""
        return HierarchyInstance.of(declared, file)

    def reopen(
        self, declared: HierarchyProblem, file: str, folder: Path
    ) -> tuple[PublishedHierarchy, HierarchyRelease]:
        """Return what is published: no counts."""
        declared.checked(file)
        problem = PublishedHierarchy(declared=declared, file=file)
        return problem, HierarchyRelease.read(folder, problem)

    def privacy(self, problem: PublishedHierarchy, method: str) -> PrivacyConstraint[HierarchyRelease]:
        """Noise on every level; the published chain claims nothing."""
        if method == "cumulative-chain-as-published":
            return PublishedChain(problem=problem)
        return LevelNoise(problem=problem, method=method)

    def notion(self, problem: PublishedHierarchy, method: str) -> str | None:
        """``privacy.kind``, but for the published chain."""
        return None if METHODS[method].query == "chain" else problem.declared.privacy.kind

    def utility(self, problem: PublishedHierarchy, method: str) -> UtilityLoss[HierarchyRelease]:
        """Return the post-processing objective at the noisy values."""
        return PostProcessing(problem=problem, method=method)

    def bytes_needed(self, problem: PublishedHierarchy, method: str) -> float:
        """Bytes of each region's counts by size (tests/run/test_memory.py, 120,000)."""
        regions = problem.groups.tree.regions if isinstance(problem, HierarchyInstance) else 0
        return BYTES_PER_COUNT * regions * problem.declared.hierarchy.sizes

    def check_problem(self, problem: PublishedHierarchy, method: str) -> None:
        """Refuse what the method cannot do, and noise that there is no room for."""
        if not isinstance(problem, HierarchyInstance):
            found = "no counts, as in a published copy"
            raise InputError([Fault(problem.file, "hierarchy", found, "counts or units")])
        problem.design(method, problem.groups.tree).check()

    def solve(self, problem: PublishedHierarchy, context: SolveContext) -> Outcome[HierarchyRelease]:
        """Measure with noise, fit, publish."""
        assert isinstance(problem, HierarchyInstance)  # check_problem
        design = problem.design(context.method, problem.groups.tree)
        with context.timed("build"):
            counts = add_up(design.tree, problem.groups.leaves)
            known = design.tree.depth if design.totals else int(design.relation.exact)
            public = [level.sum(axis=1) for level in counts[:known]]
            noisy, records = design.draw(counts, seed=context.seed)
        fitted = partial(design.fit, noisy, public, gap=max(context.gap, GAP), backend=context.solver)
        with context.timed("solve"):
            found, stopped = fit_in_time(fitted, partial(fitted, at_once=True), context)
        stopped |= bool(found.details.get("stopped"))
        release = HierarchyRelease(
            tree=design.tree,
            counts=found.counts,
            noisy=noisy,
            totals=public,
            scales=tuple(None if record is None else Fraction(record.scale) for record in records),
            law=design.law,
            truth=counts,
            first=design.problem.hierarchy.first_size,
        )
        ends = ends_of(design, release)
        release = evolve(release, bounds=None if ends is None else [level.rounded() for level in ends])
        bound = _bound(PostProcessing(problem=problem, method=design.method), release, found, room=ROOM)
        details: dict[str, Any] = {"noise": noise_told(records), **found.details}
        left = context.remaining
        if bound is not None and left is not None and (stopped or left < context.times["solve"]):
            details, bound = {"lower_bound": bound, **details}, None  # no time to fit again, as `verify` would
        return Outcome(
            release=release,
            lower_bound=bound,
            solver={"name": found.solver, "iterations": found.iterations},
            details=details,
            stopped=stopped,
            seeded=any(record is not None and record.seeded for record in records),
            truth=_truth(problem, design, release, counts),
        )

    def details(
        self, problem: PublishedHierarchy, release: HierarchyRelease, method: str, told: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Budgets, sensitivity and weights by level, and whether children add up."""
        design, tree = problem.design(method, release.tree), release.tree
        found: dict[str, Any] = {
            "levels": [{"regions": width} for width in tree.widths],
            "sizes": design.problem.hierarchy.sizes,
            "relation": design.relation.name,
            "level_budgets": [str(budget) for budget in design.budgets],
            "sensitivity": design.delta,
            design.law.stated: [str(scale or "") for scale in release.scales],
            "level_weights": [float(weight / max(design.weights)) for weight in design.weights],
            "region_totals_exact": design.totals,
            "constraint_violations": violations(tree, release.counts),
        }
        if release.bounds is not None:
            widths = [float(np.mean(high - low)) for low, high in release.bounds]
            found["intervals"] = {
                "confidence": design.problem.settings.confidence,
                "mean_width_by_level": widths,
            }
        if design.rule.query != "chain":
            return found
        most = design.problem.settings.max_quantity
        real = spent_on_a_neighbour(method, tree.widths, design.budgets, most)
        changed = [most * width for width in tree.widths]
        return {**found, "real_epsilon": float(real), "entries_changed_by_one_individual": changed}

    def verify(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> list[str]:
        """Non-negative, intervals, zeros and bounds kept; consistent where a method's releases always are."""
        return release_faults(problem.design(result.method, release.tree), release)

    def proved(
        self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result, folder: Path
    ) -> float | None:
        """Return what fitting the released noisy values once more proves."""
        design, asked = problem.design(result.method, release.tree), result.asked
        if release.past_sums() or release.shape_faults(design.method, design.totals):
            return None
        root, gap = int(release.counts[0].sum()), max(asked.gap, GAP)
        found = design.fit(release.noisy, release.totals, gap=gap, root=root, backend=asked.solver)
        return _bound(PostProcessing(problem=problem, method=design.method), release, found)

    def plan(self, declared: AttrsInstance, file: str, context: SolveContext) -> Plan:
        """Errors by level from public counts like the secret ones, or from the noise alone."""
        from privopt_hierarchical_dp.plan import plan

        assert isinstance(declared, HierarchyProblem)  # problem_class
        return plan(declared, file, context)

    def warnings(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Sequence[str]:
        """Numbers of groups that are exact; noise for many cumulative counts of whole groups; names that look alike."""
        relation, alike = problem.declared.relation, look_alike(release.tree)
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
        design = problem.design(result.method, release.tree)
        privacy = design.problem.privacy
        if design.law is not GEOMETRIC:  # no epsilon bounds the odds of every release
            claimed = None if privacy.epsilon is None else float(privacy.epsilon)
            return {"epsilon": {"claimed": claimed, "achieved": None}}
        most = design.problem.settings.max_quantity
        real = spent_on_a_neighbour(design.method, release.tree.widths, design.budgets, most, design.relation)
        claimed = None if design.rule.query == "chain" else float(privacy.budget)
        return {"epsilon": {"claimed": claimed, "achieved": float(real)}}


F = TypeVar("F")


def fit_in_time(fitted: Callable[[], F], at_once: Callable[[], F], context: SolveContext) -> tuple[F, bool]:
    """Fit noisy values, or at once where an interrupt comes; and tell whether that or a limit ended it early.

    Raises:
        StoppedError: nothing could be fitted: a library whose import was broken off may fail in any way.
    """
    with suppress(KeyboardInterrupt), limit(context.remaining):
        found = fitted()
        return found, clock().left == 0.0
    try:
        with limit(0.0):
            return at_once(), True
    except Exception as error:
        raise StoppedError("stopped before anything could be fitted; nothing written") from error
    raise StoppedError("stopped before anything could be fitted; nothing written")


def noise_told(records: Sequence[NoiseRecord | None]) -> list[dict[str, Any] | None]:
    """Return how noise was drawn, for ``details.told``; None where nothing was measured."""
    return [None if record is None else {"engine": record.engine, "draws": record.draws} for record in records]


def _bound(
    loss: PostProcessing, release: HierarchyRelease, found: Fit, *, room: Fraction = Fraction(0)
) -> float | None:
    """Return the bound that a fit proves for any valid release of the same noisy values, less a tolerance.

    Where no number of groups is exact, of any with the same ones estimated, whose offset is what these add.

    Where the fit is the proved optimum, up to what sums of doubles can be off, it is the objective itself.
    """
    if found.lower_bound is None:
        return None
    value = loss.exactly(release)
    least = Fraction(found.lower_bound) + found.offset
    bound = least * (1 - Fraction(1, 10**12))
    reached = found.proved and least > value * (1 - Fraction(1, 10**9))
    return float_down(value if reached else min(bound * (1 - room), value))


def _truth(
    problem: HierarchyInstance, design: Design, release: HierarchyRelease, true: Sequence[Ints]
) -> Mapping[str, Any]:
    """For private/truth.json: errors of the release by level, what was omitted, what contradicts public tables."""
    tree, released, limits, zeros = release.tree, release.counts, design.limits, design.zeros
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
