"""Checks of a release beyond its sums: intervals, estimated totals and zeros, all computed again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.least_squares import SLACK, Ends, intervals
from privopt_hierarchical_dp.level_tables import read_regions
from privopt_hierarchical_dp.measurements import unmeasured_faults
from privopt_hierarchical_dp.methods import order_of
from privopt_hierarchical_dp.release import ARTEFACT, INTERVALS, NOISY, HierarchyRelease
from privopt_hierarchical_dp.totals import estimated_totals, total_complaint

__all__ = ["ends_of", "narrowed", "release_faults"]


def ends_of(design: Design, release: HierarchyRelease) -> list[Ends] | None:
    """Return intervals for every count, from what is published; none for the published chain."""
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


def release_faults(design: Design, release: HierarchyRelease) -> list[str]:
    """Return what a release fails of: valid where its method's always are, regions, bounds, zeros, estimated totals."""
    if beyond := release.past_sums():
        return beyond
    complaints = release.complaints()
    if not design.rule.valid and not any("negative" in line for line in complaints):
        complaints = []
    shapes = release.shape_faults(design.method, design.totals)
    if not shapes:
        if release.bounds is not None:
            complaints += narrowed(release, ends_of(design, release))
        complaints += [
            f"{NOISY}: level {level} is not measured, and its values are not the sums of the level below"
            for level in unmeasured_faults(release.noisy, [s is not None for s in release.scales], design.tree.start)
        ]
    for check in (_elsewhere, _impossible, _out_of_bounds):
        complaints += check(design, release)
    return complaints + (_misestimated(design, release) if design.rule.valid and not shapes else [])


def _impossible(design: Design, release: HierarchyRelease) -> list[str]:
    """Return groups that were released where none can be."""
    if design.zeros is None:
        return []
    return [
        f"{ARTEFACT}: region {names[r]!r} has groups of size {s + release.first}, which is impossible there"
        for names, level, zero in zip(release.tree.names, release.counts, design.zeros.levels, strict=True)
        for r, s in np.argwhere(zero & (level != 0)).tolist()[:1]
    ]


def _elsewhere(design: Design, release: HierarchyRelease) -> list[str]:
    """Return regions of the release that are not those of the public table, where there is one."""
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


def _out_of_bounds(design: Design, release: HierarchyRelease) -> list[str]:
    """Return numbers of groups that public bounds do not allow."""
    if design.limits is None:
        return []
    return [
        f"{ARTEFACT}: {where} has {own} groups; hierarchy.bounds allows {wanted}"
        for where, own, wanted in design.limits.broken([level.sum(axis=1) for level in release.counts])
    ]


def _misestimated(design: Design, release: HierarchyRelease) -> list[str]:
    """Return totals that are not those that the noisy values give where no one knows them."""
    tree, totals = release.tree, [level.sum(axis=1) for level in release.counts]
    relation, bounded = design.relation, design.limits is not None
    if design.totals or (relation.exact and not bounded):
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
    """Return where intervals differ from those that the noisy values give; whole ends may be rounded either way."""
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
