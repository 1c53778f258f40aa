"""Whether a release holds beyond its sums: intervals, estimated totals and zeros, all worked out again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.least_squares import SLACK, Ends, intervals
from privopt_hierarchical_dp.methods import order_of
from privopt_hierarchical_dp.public_tables import read_regions
from privopt_hierarchical_dp.release import ARTEFACT, INTERVALS, HierarchyRelease
from privopt_hierarchical_dp.totals import estimated_totals, total_complaint

__all__ = ["elsewhere", "ends_of", "impossible", "misestimated", "narrowed", "out_of_bounds"]


def ends_of(design: Design, release: HierarchyRelease) -> list[Ends] | None:
    """Intervals for every count, from what is published; none for the published chain."""
    if design.rule.query == "chain":
        return None
    size, zeros = release.counts[0].shape[1], design.zeros
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
        cumulative=design.rule.query == "cumulative",
        confidence=design.problem.settings.confidence,
        zeros=zeros,
    )
    return found if len(keep) == size else [ends.spread(keep, size) for ends in found]


def impossible(design: Design, release: HierarchyRelease) -> list[str]:
    """Groups that were released where none can be."""
    if design.zeros is None:
        return []
    return [
        f"{ARTEFACT}: region {names[r]!r} has groups of size {s + release.first}, which is impossible there"
        for names, level, zero in zip(release.tree.names, release.counts, design.zeros.levels, strict=True)
        for r, s in np.argwhere(zero & (level != 0)).tolist()[:1]
    ]


def elsewhere(design: Design, release: HierarchyRelease) -> list[str]:
    """Regions of the release that are not those of the public table, where there is one."""
    regions = design.problem.hierarchy.regions
    if regions is None:
        return []
    own, table = release.tree, read_regions(regions)[0].tree
    found, wanted = ({name for level in tree.names for name in level} for tree in (own, table))
    if found != wanted:
        name = min(found ^ wanted)
        return [f"{ARTEFACT}: region {name!r} is {'not ' * (name not in found)}there; hierarchy.regions says otherwise"]
    if own.names != table.names:
        return [f"{ARTEFACT}: regions have other parents than in hierarchy.regions"]
    return []


def out_of_bounds(design: Design, release: HierarchyRelease) -> list[str]:
    """Numbers of groups that public bounds do not allow."""
    if design.limits is None:
        return []
    return [
        f"{ARTEFACT}: {where} has {own} groups; hierarchy.bounds allows {wanted}"
        for where, own, wanted in design.limits.broken([level.sum(axis=1) for level in release.counts])
    ]


def misestimated(design: Design, release: HierarchyRelease) -> list[str]:
    """Totals that are not those that the noisy values give where nobody knows them."""
    tree, totals = release.tree, [level.sum(axis=1) for level in release.counts]
    relation, bounded = design.relation, design.limits is not None
    exact = design.totals
    if exact or release.shape_faults(design.method, totals=exact) or (relation.exact and not bounded):
        return []
    lines: list[str] = []
    known: dict[str, Any] = {
        "law": release.law,
        "scales": release.scales,
        "order": order_of(design.method, totals=False, relation=relation),
        "limits": design.limits,
    }
    root = int(totals[0][0])
    if not relation.exact:
        lines += total_complaint(tree, release.noisy, released=root, **known)
    keeps = bounded or design.rule.totals == "always"
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
