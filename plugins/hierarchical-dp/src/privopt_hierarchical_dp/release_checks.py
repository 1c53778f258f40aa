"""Faults of a release: intervals, unmeasured levels and estimated totals, computed again."""

from __future__ import annotations

import numpy as np

from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.least_squares import SLACK_GROUPS
from privopt_hierarchical_dp.release import NOISY, HierarchyRelease

__all__ = ["release_faults"]


def release_faults(design: Design, release: HierarchyRelease) -> list[str]:
    """Return what a release fails of: valid where its method's always are, intervals, bounds, estimates."""
    if beyond := release.past_sums():
        return beyond
    complaints = release.complaints()
    if not design.valid and not any("negative" in line for line in complaints):
        complaints = []
    shapes = design.shape_faults(release)
    if not shapes:
        complaints += _narrowed(design, release) + _unmeasured(design, release)
    lines = [] if shapes else design.misestimated(release)
    for where, own, wanted in [] if design.limits is None else design.limits.broken(release.numbers):
        lines.append(f"{where} has {own} {release.layout.noun}; hierarchy.bounds allows {wanted}")
    return complaints + [f"{release.layout.forms[0].file}: {line}" for line in lines]


def _unmeasured(design: Design, release: HierarchyRelease) -> list[str]:
    """Return levels, not measured, that are not the sums of the level below."""
    wrong = {
        level
        for own, right in zip(release.noisy, design.summed(release.noisy, release.scales), strict=True)
        for level, (one, other) in enumerate(zip(own, right, strict=True), start=1)
        if (one != other).any()
    }
    what = "is not measured, and its values are not the sums of the level below"
    return [f"{NOISY}: level {level} {what}" for level in sorted(wrong)]


def _narrowed(design: Design, release: HierarchyRelease) -> list[str]:
    """Return where intervals differ from those that the noisy values give; whole ends may be rounded either way."""
    if release.bounds is None:
        return []
    again, lines = design.ends(release), []
    if again is None:
        return [f"{form.intervals}: the method has no intervals" for form in release.layout.forms]
    for form, bounds, own in zip(release.layout.forms, release.bounds, again, strict=True):
        for names, stated, ends in zip(release.tree.names, bounds, own, strict=True):
            wide, tight = (ends.rounded(by) for by in (SLACK_GROUPS, -SLACK_GROUPS))
            for side, a, *allowed in zip(("low", "high"), stated, wide, tight, strict=True):
                off = np.argwhere((a < np.minimum(*allowed)) | (a > np.maximum(*allowed)))
                for region, cell in off[:1].tolist():
                    where = f"region {names[region]!r}{form.cell(cell)}"
                    found = f"{side} is {a[region, cell]}; the noisy values give {allowed[0][region, cell]}"
                    lines.append(f"{form.intervals}: {where}: {found}")
    return lines
