"""Whether a release holds beyond its sums: intervals, estimated totals and zeros, all worked out again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privopt_hierarchical_dp.bounds import limits_of
from privopt_hierarchical_dp.least_squares import SLACK, Ends, intervals
from privopt_hierarchical_dp.methods import METHODS, order_of
from privopt_hierarchical_dp.privacy import with_totals
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.public_tables import read_regions
from privopt_hierarchical_dp.relations import relation_of
from privopt_hierarchical_dp.release import ARTEFACT, INTERVALS, HierarchyRelease
from privopt_hierarchical_dp.totals import estimated_totals, total_complaint
from privopt_hierarchical_dp.zeros import zeros_of

__all__ = ["elsewhere", "ends_of", "impossible", "misestimated", "narrowed", "out_of_bounds"]


def ends_of(problem: HierarchyProblem, method: str, release: HierarchyRelease) -> list[Ends] | None:
    """Intervals for every count, from what is published; none for the published chain."""
    if METHODS[method].query == "chain":
        return None
    size, zeros = release.counts[0].shape[1], zeros_of(problem, release.tree)
    keep, noisy, counts = np.arange(size), release.noisy, release.counts
    if zeros is not None:
        keep, zeros = zeros.dropped()
        counts = [level[:, keep] for level in counts]
        noisy = [level[:, keep[: len(keep) - (level.shape[1] < size)]] for level in noisy]
    found = intervals(
        release.tree,
        noisy,
        counts,
        release.totals,
        noise=[release.law.moments(scale) for scale in release.scales],
        cumulative=METHODS[method].query == "cumulative",
        confidence=problem.settings.confidence,
        zeros=zeros,
    )
    return found if len(keep) == size else [ends.spread(keep, size) for ends in found]


def impossible(problem: HierarchyProblem, release: HierarchyRelease) -> list[str]:
    """Groups that were released where none can be."""
    zeros = zeros_of(problem, release.tree)
    if zeros is None:
        return []
    return [
        f"{ARTEFACT}: region {names[r]!r} has groups of size {s + release.first}, which is impossible there"
        for names, level, zero in zip(release.tree.names, release.counts, zeros.levels, strict=True)
        for r, s in np.argwhere(zero & (level != 0)).tolist()[:1]
    ]


def elsewhere(problem: HierarchyProblem, release: HierarchyRelease) -> list[str]:
    """Regions of the release that are not those of the public table, where there is one."""
    if problem.hierarchy.regions is None:
        return []
    own, table = release.tree, read_regions(problem.hierarchy.regions)[0].tree
    found, wanted = ({name for level in tree.names for name in level} for tree in (own, table))
    if found != wanted:
        name = min(found ^ wanted)
        return [f"{ARTEFACT}: region {name!r} is {'not ' * (name not in found)}there; hierarchy.regions says otherwise"]
    if own.names != table.names:
        return [f"{ARTEFACT}: regions have other parents than in hierarchy.regions"]
    return []


def out_of_bounds(problem: HierarchyProblem, release: HierarchyRelease) -> list[str]:
    """Numbers of groups that public bounds do not allow."""
    limits = limits_of(problem.hierarchy.bounds, release.tree)
    if limits is None:
        return []
    return [
        f"{ARTEFACT}: {where} has {own} groups; hierarchy.bounds allows {wanted}"
        for where, own, wanted in limits.broken([level.sum(axis=1) for level in release.counts])
    ]


def misestimated(problem: HierarchyProblem, method: str, release: HierarchyRelease) -> list[str]:
    """Totals that are not those that the noisy values give where nobody knows them."""
    tree, totals = release.tree, [level.sum(axis=1) for level in release.counts]
    limits, relation = limits_of(problem.hierarchy.bounds, tree), relation_of(problem)
    exact = with_totals(problem, method)
    bounded = limits is not None
    if exact or release.shape_faults(method, totals=exact) or (relation.exact and not bounded):
        return []
    lines: list[str] = []
    known: dict[str, Any] = {
        "law": release.law,
        "scales": release.scales,
        "order": order_of(method, totals=False, relation=relation),
        "limits": limits,
    }
    root = int(totals[0][0])
    if not relation.exact:
        lines += total_complaint(tree, release.noisy, released=root, **known)
    keeps = bounded or METHODS[method].totals == "always"
    again = estimated_totals(tree, release.noisy, root=root, **known) if keeps else []
    lines += [
        f"region {names[region]!r} has {int(own[region])} groups; the noisy values give {int(wanted[region])}"
        for names, own, wanted in zip(tree.names, totals, again, strict=False)
        for region in np.flatnonzero(own != wanted).tolist()[:1]
    ]
    return [f"{ARTEFACT}: {line}" for line in lines]


def narrowed(release: HierarchyRelease, again: Sequence[Ends] | None) -> list[str]:
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
                found, wanted = a[region, size], allowed[0][region, size]
                cell = f"region {names[region]!r}, size {size + release.first}"
                lines.append(f"{INTERVALS}: {cell}: {side} is {found}; the noisy values give {wanted}")
    return lines
