"""The mechanism: measure every table with noise, fit all together, publish."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final

import numpy as np
from attrs import AttrsInstance, evolve

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.interfaces import Mechanism, Outcome, Plan, PrivacyConstraint, Result, SolveContext, UtilityLoss
from privopt.numbers.exp_log_bounds import float_down, float_up
from privopt_hierarchical_dp.bounds import check_limits
from privopt_hierarchical_dp.least_squares import SLACK, Ends
from privopt_hierarchical_dp.mechanism import fit_in_time, noise_told
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC, Scale
from privopt_hierarchical_dp.tables.fit import (
    Tables,
    ends_of,
    fit_tables,
    least_objective,
    noisy_numbers,
)
from privopt_hierarchical_dp.tables.instance import TablesInstance, TablesRead, read_individuals
from privopt_hierarchical_dp.tables.margins import TOTAL, summed
from privopt_hierarchical_dp.tables.plan import check_noise, noise_of, plan_of
from privopt_hierarchical_dp.tables.privacy import (
    AllTables,
    Distance,
    difference,
    draw_tables,
    hides,
    unmeasured_tables,
)
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tables.relations import TABLE_RELATIONS
from privopt_hierarchical_dp.tables.release import ERRORS, FOLDER, INSIDE, TablesRelease, numbers_of, true_tables
from privopt_hierarchical_dp.totals import total_complaint
from privopt_hierarchical_dp.tree import add_up, look_alike

__all__ = ["HierarchicalTables"]

GAP: Final = 1e-4
"""Relative gap that each projection goes on to at most."""
ROOM: Final = 1e-9
"""Share by which less is stated than least squares gives: machines round its sums differently."""
BYTES_PER_CELL: Final = 600.0
"""Bytes that a region's cell of one table takes, with its noise, fit, files and their proof."""


class HierarchicalTables(Mechanism[TablesRead, TablesRelease]):
    """Several tables of the same individuals in a hierarchy of regions, under one budget."""

    problem_class: ClassVar[type] = TablesProblem
    release_class = TablesRelease
    scope: ClassVar[str] = TABLE_RELATIONS["individuals"].statement("pure-dp")
    kit: ClassVar[str] = "privopt_hierarchical_dp.tables.kit:PROFILE"
    reporting: ClassVar[str] = "privopt_hierarchical_dp.tables.report:TablesReport"
    drafting: ClassVar[str] = "privopt_hierarchical_dp.tables.draft:init"

    def load(self, declared: TablesProblem, file: str) -> TablesInstance:
        """Return the problem and its individuals."""
        problem = _checked(TablesRead.of(declared, file))
        found = read_individuals(problem)
        if problem.limits is not None:
            check_limits(problem.limits, _exact(found), file, "individuals")
        return found

    def reopen(self, declared: TablesProblem, file: str, folder: Path) -> tuple[TablesRead, TablesRelease]:
        """Return what is published: no individuals."""
        problem = TablesRead.of(declared, file)
        return problem, TablesRelease.read(folder, problem)

    def privacy(self, problem: TablesRead, method: str) -> PrivacyConstraint[TablesRelease]:
        """Noise on every table and level."""
        return AllTables(problem=problem.declared)

    def notion(self, problem: TablesRead, method: str) -> str | None:
        """``privacy.kind``."""
        return problem.declared.privacy.kind

    def utility(self, problem: TablesRead, method: str) -> UtilityLoss[TablesRelease]:
        """How far the noisy values had to be bent."""
        return Distance(problem=problem.declared)

    def bytes_needed(self, problem: TablesRead, method: str) -> float:
        """Bytes of each region's cells in every table (tests/run/test_memory.py, 120,000)."""
        domain = problem.declared.domain
        return BYTES_PER_CELL * problem.tree.regions * sum(domain.cells(table) for table in domain.tables)

    def check_problem(self, problem: TablesRead, method: str) -> None:
        """Refuse a published copy, which has no individuals."""
        if not isinstance(problem, TablesInstance):
            raise InputError([Fault(problem.file, "hierarchy", "no individuals, as in a published copy", "records")])

    def solve(self, problem: TablesRead, context: SolveContext) -> Outcome[TablesRelease]:
        """Measure with noise, fit, publish."""
        assert isinstance(problem, TablesInstance)  # check_problem
        declared, tree, law = problem.declared, problem.tree, problem.declared.privacy.law
        domain = declared.domain
        with context.timed("build"):
            truth = true_tables(tree, problem.leaves)
            noisy, records = draw_tables(declared, truth, seed=context.seed, zeros=problem.zeros, start=tree.start)
        scales = [tuple(None if own is None else Fraction(own.scale) for own in level) for level in records]
        totals = _exact(problem)
        fitted = partial(
            fit_tables,
            tree,
            domain,
            noisy,
            levels=declared.level_weights(tree.depth),
            totals=totals,
            zeros=problem.zeros,
            law=law,
            scales=[level_scale(level) for level in scales],
            gap=max(context.gap, GAP),
            limits=problem.limits,
            progress=context.report,
        )
        with context.timed("solve"):
            counts, stopped = fit_in_time(fitted, fitted, context)
        release = TablesRelease(
            problem=problem, counts=counts, noisy=noisy, totals=totals, scales=scales, law=law, truth=truth
        )
        release = evolve(release, bounds=[[own.rounded() for own in level] for level in _ends(release)])
        return Outcome(
            release=release,
            lower_bound=_bound(declared, release, ROOM),
            solver={"name": "least squares, ADMM and error diffusion", "iterations": len(domain.steps)},
            details={"noise": [noise_told(level) for level in records]},
            stopped=stopped,
            seeded=any(record is not None and record.seeded for level in records for record in level),
            truth=_truth(release, truth),
        )

    def details(
        self, problem: TablesRead, release: TablesRelease, method: str, told: Mapping[str, Any]
    ) -> Mapping[str, Any]:
        """Budgets, scales and intervals by table and level, and the order of the fit."""
        declared, tree = problem.declared, problem.tree
        attributes, domain = list(declared.hierarchy.attributes), declared.domain
        return {
            "levels": [{"regions": width} for width in tree.widths],
            "relation": declared.privacy.relation,
            "sensitivity": declared.relation.sensitivity,
            "tables": {
                name: {
                    "by": [attributes[own] for own in margin],
                    "cells": domain.cells(margin),
                    "weight": weight,
                    "budgets": [str(level[number]) for level in declared.budgets(tree.depth)],
                    release.law.stated: [str(level[number] or "") for level in release.scales],
                    "mean_width_by_level": [
                        float(np.mean(level[number][1] - level[number][0])) for level in release.bounds
                    ],
                }
                for number, (name, margin, weight) in enumerate(
                    zip(declared.hierarchy.tables, domain.tables, domain.weights, strict=True)
                )
            },
            "fitted": [[attributes[own] for own in step.margin] for step in domain.steps],
            "confidence": declared.hierarchy.confidence,
        }

    def verify(self, problem: TablesRead, release: TablesRelease, result: Result) -> list[str]:
        """Consistent between tables and regions, exact totals met, estimated ones and intervals worked out again."""
        if beyond := release.past_sums():
            return beyond
        lines = release.complaints()
        lines += [
            f"noisy.npz: level {level} is not measured, and its values are not the sums of the level below"
            for level in unmeasured_tables(release.noisy, release.scales, problem.tree.start)
        ]
        if not release.totals:
            lines += [f"{FOLDER}: {line}" for line in _total_complaints(release)]
        names = list(problem.declared.hierarchy.tables)
        for level, (stated, again) in enumerate(zip(release.bounds, _ends(release), strict=True)):
            for name, own, ends in zip(names, stated, again, strict=True):
                wide, tight = ends.rounded(SLACK), ends.rounded(-SLACK)
                for side, a, b, c in zip(("low", "high"), own, wide, tight, strict=True):
                    off = ((a < np.minimum(b, c)) | (a > np.maximum(b, c))).any(axis=1)
                    if off.any():
                        region = problem.tree.names[level][int(np.argmax(off))]
                        lines.append(
                            f"{FOLDER}/{name}.csv: region {region!r}: {side} is not what the noisy values give"
                        )
        return lines

    def proved(self, problem: TablesRead, release: TablesRelease, result: Result, folder: Path) -> float | None:
        """Return what least squares over the released noisy values gives once more."""
        return None if release.complaints() else _bound(problem.declared, release)

    def plan(self, declared: AttrsInstance, file: str, context: SolveContext) -> Plan:
        """Errors by table and level of least squares, from the noise alone: no secret file is opened."""
        assert isinstance(declared, TablesProblem)  # problem_class
        return plan_of(_checked(TablesRead.of(declared, file)), context.method, context)

    def warnings(self, problem: TablesRead, release: TablesRelease, result: Result) -> Sequence[str]:
        """Numbers of individuals that are exact, names that look alike; to the owner alone, what was not read."""
        lines = [*look_alike(problem.tree), *(problem.unread if isinstance(problem, TablesInstance) else ())]
        if len(release.totals) < release.tree.depth:
            return lines
        return [
            *lines,
            "every region's number of individuals is published exactly, without noise: nothing hides one who joins, "
            'leaves or moves to another region; relation = "individuals" does',
        ]

    def audit(self, problem: TablesRead, release: TablesRelease, result: Result) -> Mapping[str, Any]:
        """Epsilon claimed, and what one individual costs under the scales used."""
        privacy = problem.declared.privacy
        claimed = None if privacy.epsilon is None else float(privacy.epsilon)
        if release.law is not GEOMETRIC:  # no epsilon bounds the odds of every release
            return {"epsilon": {"claimed": claimed, "achieved": None}}
        delta = problem.declared.relation.sensitivity
        spent = sum((release.law.spent(scale, delta) for level in release.scales for scale in level), Fraction(0))
        return {"epsilon": {"claimed": claimed, "achieved": float_up(spent)}}


def _checked(problem: TablesRead) -> TablesRead:
    """Refuse a relation that hides nothing of the problem, and noise that there is no room for.

    Raises:
        InputError: with it.
    """
    if not hides(problem):
        relation = problem.declared.privacy.relation
        found = f'"{relation}" where no table has two cells to tell apart: every number would be exact'
        wanted = '"individuals", which hides numbers of individuals; or a table of two cells or more'
        raise InputError([Fault(problem.file, "privacy.relation", found, wanted)])
    check_noise(problem.declared, problem.tree.depth, problem.file)
    return problem


def level_scale(scales: Sequence[Scale]) -> Scale:
    """Return the scale of any one table that was measured on a level: levels are weighed by it; None without any."""
    return next((scale for scale in scales if scale is not None), None)


def _exact(problem: TablesInstance) -> list[Ints]:
    """Numbers of individuals that are published exactly, by level."""
    domain = problem.declared.domain
    numbers = summed(problem.leaves[0], domain.tables[0], TOTAL)
    return add_up(problem.tree, numbers)[: problem.declared.relation.exact]


def _total_complaints(release: TablesRelease) -> list[str]:
    """Whether the number of all individuals is what the noisy values give."""
    declared, released = release.problem.declared, int(release.counts[0][0].sum())
    numbers, scales = noisy_numbers(declared.domain, release.noisy), list(map(level_scale, release.scales))
    return total_complaint(
        release.tree,
        numbers,
        law=release.law,
        scales=scales,
        order="less",
        limits=release.problem.limits,
        released=released,
    )


def _ends(release: TablesRelease) -> list[list[Ends]]:
    declared = release.problem.declared
    return ends_of(
        release.tree,
        declared.domain,
        release.noisy,
        release.counts,
        totals=release.totals,
        zeros=release.problem.zeros,
        noise=noise_of(declared, release.scales),
        confidence=declared.hierarchy.confidence,
    )


def _bound(declared: TablesProblem, release: TablesRelease, room: float = 1e-12) -> float:
    """Return a lower bound over all tables that add up and agree, less a tolerance; at most the objective itself."""
    off = difference(release.noisy, release.counts)
    levels = declared.level_weights(release.tree.depth)
    least = least_objective(release.tree, declared.domain, levels, off) * (1.0 - room)
    return min(max(0.0, least), float_down(Distance(problem=declared).exactly(release)))


def _truth(release: TablesRelease, truth: Tables) -> Mapping[str, Any]:
    """For private/truth.json: errors by table and level, and how many intervals hold the true count."""
    names = list(release.problem.declared.hierarchy.tables)
    errors: dict[str, list[int]] = {name: [] for name in names}
    inside: dict[str, list[float]] = {name: [] for name in names}
    for released, true, bounds in zip(release.counts, truth, release.bounds, strict=True):
        for name, a, b, (low, high) in zip(names, released, true, bounds, strict=True):
            flat: Ints = b.reshape(low.shape)
            errors[name].append(int(np.abs(a - b).sum()))
            inside[name].append(float(((low <= flat) & (flat <= high)).mean()))
    limits = release.problem.limits
    return {
        "individuals": int(truth[0][0].sum()),
        ERRORS: errors,
        INSIDE: inside,
        "regions_out_of_bounds": 0 if limits is None else len(limits.broken(numbers_of(truth))),
    }
