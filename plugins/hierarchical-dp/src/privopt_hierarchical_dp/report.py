"""The report's body: the tree with totals, groups by size with their intervals, noise scales; for the owner the truth.

Nothing here but :func:`truth_sections` sees a true count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.interfaces import Result
from privopt.interfaces.reporting import Reporting
from privopt.report import (
    Section,
    drawing,
    figure_section,
    table,
    table_section,
    themed,
)
from privopt.report.theme import INK, LINE, MARK, PALE, SOFT, WARM, axes_of, whole
from privopt_hierarchical_dp.instance import PublishedHierarchy
from privopt_hierarchical_dp.methods_text import methods_section, methods_text
from privopt_hierarchical_dp.release import INTERVALS, HierarchyRelease, errors_of, read_table
from privopt_hierarchical_dp.tree import Tree

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = Any

__all__ = ["HierarchyReport", "size_figure", "tree_figure"]

ROWS: Final = 200
NARROW: Final = 2e-4
"""Regions narrower than this share of the tree's width are not drawn."""


@themed
def tree_figure(tree: Tree, numbers: Sequence[Ints]) -> Figure:
    """Draw the hierarchy, one row a level, each region as wide as its released number (R_l,)."""
    from matplotlib.patches import Rectangle

    figure, axes = axes_of(8.4, 0.7 + 0.75 * tree.depth)
    totals = [np.maximum(level, 0).astype(np.float64) for level in numbers]
    whole = max(1.0, float(totals[0].sum()))
    left: list[Floats] = [np.zeros(1)]
    for level in range(1, tree.depth):
        start = tree.start[level - 1]
        within = np.concatenate([np.cumsum([0.0, *totals[level][a:b]])[:-1] for a, b in pairwise(start.tolist())])
        left.append(left[-1][tree.parents(level)] + within)
    for level, names in enumerate(tree.names):
        shares, starts = totals[level] / whole, left[level] / whole
        for place in np.flatnonzero((shares >= NARROW) & tree.first_here(level)).tolist():
            box = Rectangle((starts[place], -level), shares[place], -0.9, facecolor=PALE, edgecolor=SOFT, linewidth=0.6)
            axes.add_patch(box)
            label = f"{names[place]}\n{int(totals[level][place]):,}"
            if shares[place] > 0.012 * max(map(len, label.split("\n"))):
                middle = (starts[place] + shares[place] / 2, -level - 0.45)
                axes.text(*middle, label, ha="center", va="center", fontsize="small", color=INK)
    axes.set_xlim(0, 1)
    axes.set_ylim(-tree.depth, 0.02)
    axes.set_axis_off()
    return figure


@themed
def size_figure(release: HierarchyRelease, truth: Ints | None = None) -> Figure:
    """Draw groups by size in the whole hierarchy, with their intervals; ``truth`` are the true ones (for the owner)."""
    figure, axes = axes_of(5.6, 3.8)
    released = release.counts[0][0]
    sizes = np.arange(release.first, len(released) + release.first)
    if release.bounds is not None:
        low, high = (side[0] for side in release.bounds[0])
        axes.fill_between(sizes, low, high, step="mid", color=LINE, label="interval of the true count")
    axes.step(sizes, released, where="mid", color=MARK, label="released")
    if truth is not None:
        axes.step(sizes, truth, where="mid", color=WARM, linestyle="--", label="true")
    axes.set_yscale("symlog")
    axes.set_ylim(bottom=0)
    whole(axes.xaxis)
    axes.set_xlabel("size of a group (the last: that many or more)")
    axes.set_ylabel("groups")
    axes.legend()
    return figure


def _numbers(release: HierarchyRelease) -> list[Ints]:
    return [level.sum(axis=1) for level in release.counts]


class HierarchyReport(Reporting[PublishedHierarchy, HierarchyRelease]):
    """The tree with totals, sizes with their intervals, noise scales; to the owner the errors of this very release."""

    def figures(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Mapping[str, Figure]:
        """Tree and sizes."""
        return {"tree": tree_figure(release.tree, _numbers(release)), "sizes": size_figure(release)}

    def report(self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> Sequence[Section]:
        """Tree, sizes with intervals, noise: from what is published alone."""
        lead = "Each region is as wide as its released number of groups; regions add up to the one above them."
        made = [figure_section("The hierarchy", tree_figure(release.tree, _numbers(release)), lead)]
        lead = "How far the release is off cannot be known without its secrets."
        if release.bounds is not None:
            often = f"{100 * problem.declared.settings.confidence:g} %"
            lead += f" A true count lies in its interval with a probability of {often}: where, stands in {INTERVALS}."
        made.append(figure_section("Groups by size", size_figure(release), lead))
        made += [_noise(problem, release, result.method), _regions(release)]
        return made if release.bounds is None else [*made, methods_section(methods_of(problem, release, result))]

    def report_truth(
        self, problem: PublishedHierarchy, release: HierarchyRelease, result: Result, private: Path
    ) -> Sequence[Section]:
        """Return this release's real errors; nothing where ``private`` holds no true counts."""
        path = private / "counts.csv"
        return truth_sections(problem, release, path) if path.is_file() else []


def _noise(problem: PublishedHierarchy, release: HierarchyRelease, method: str) -> Section:
    design = problem.design(method, release.tree)
    law, budget, budgets = design.law, design.problem.privacy.budget, design.budgets
    header = ["level", "regions", law.budget, f"share of {law.budget}", f"noise {law.word}"]
    rows: list[list[Any]] = [
        [level, width, float(part), f"{100 * float(part / budget):.4g} %", float(scale or 0)]
        for level, (width, part, scale) in enumerate(
            zip(release.tree.widths, budgets, release.scales, strict=True), start=1
        )
    ]
    if release.bounds is not None:
        header.append("mean width of intervals (groups)")
        for row, (low, high) in zip(rows, release.bounds, strict=False):
            row.append(float(f"{np.mean(high - low):.4g}"))
    return table_section("Noise by level", header, rows, law.meaning)


def _regions(release: HierarchyRelease) -> Section:
    tree = release.tree
    size = np.arange(release.first, release.counts[0].shape[1] + release.first)
    rows = []
    for level, (names, counts) in enumerate(zip(tree.names, release.counts, strict=True)):
        above = [""] * len(names) if not level else [tree.names[level - 1][p] for p in tree.parents(level).tolist()]
        once = tree.by_name(level)[tree.first_here(level)[tree.by_name(level)]]
        for place in once.tolist()[:ROWS]:
            groups = counts[place]
            rows.append((names[place], above[place], level + 1, int(groups.sum()), int((groups * size).sum())))
    lead = "As released." + (f" The first {ROWS} of {tree.regions}." if tree.regions > ROWS else "")
    header = ("region", "in", "level", "groups", "individuals at least")
    return table_section("Totals", header, rows[:ROWS], lead)


def methods_of(problem: PublishedHierarchy, release: HierarchyRelease, result: Result) -> str:
    """Return the paragraph of methods of a release."""
    design = problem.design(result.method, release.tree)
    name = "unit" if design.relation.vacant else "group"
    exact = {0: f"No number of {name}s is exact.", 1: f"The number of all {name}s is exact."}
    return methods_text(
        design.problem.privacy,
        result,
        law=release.law,
        what=f"{'counts' if design.rule.query == 'counts' else 'cumulative counts'} of {name}s by size in every region",
        parts=[
            (f"level {level}", scale, part)
            for level, (scale, part) in enumerate(zip(release.scales, design.budgets, strict=True), start=1)
        ],
        sensitivity=design.delta,
        invariant=exact.get(len(release.totals), f"Every region's number of {name}s is exact."),
        confidence=design.problem.settings.confidence,
    )


def truth_sections(problem: PublishedHierarchy, release: HierarchyRelease, path: Path) -> list[Section]:
    """Compare a release with the true counts of a file."""
    tree, (truth,) = read_table(path, problem.declared.hierarchy.classes, first=release.first)
    place = [{name: row for row, name in enumerate(names)} for names in tree.names]
    true = [
        level[[rows[name] for name in names]]
        for level, rows, names in zip(truth, place, release.tree.names, strict=True)
    ]
    picture = drawing("True and released groups by size", size_figure(release, true[0][0]))
    rows = []
    for level, (names, a, b) in enumerate(zip(release.tree.names, release.counts, true, strict=True)):
        off = np.abs(a - b)
        for region in np.argsort(-off.sum(axis=1), kind="stable")[:5].tolist():
            size = int(off[region].argmax())
            both = (int(b[region, size]), int(a[region, size]))
            rows.append((level + 1, names[region], int(off[region].sum()), size + release.first, *both))
    header = ("level", "region", "error (groups)", "worst size", "true", "released")
    return [
        Section(title="The truth: groups by size", html=picture),
        _by_size(release, true),
        Section(title="The truth: worst regions", html=table("Worst regions", header, rows)),
    ]


def _by_size(release: HierarchyRelease, true: Sequence[Ints]) -> Section:
    """Real errors by level and by the true number of groups of a region, a row a power of ten."""
    rows: list[list[Any]] = []
    for level, (a, b) in enumerate(zip(release.counts, true, strict=True), start=1):
        groups = b.sum(axis=1)
        tens = np.floor(np.log10(np.maximum(groups, 1))).astype(int)
        for ten in sorted(set(tens.tolist()), reverse=True):
            own = tens == ten
            errors = errors_of(a[own], b[own], release.first)
            share = 100 * errors["l1_error"] / max(1, int(groups[own].sum()))
            rows.append(
                [level, f"{10**ten if ten else 0:,} and more", int(own.sum()), *errors.values(), f"{share:.2g} %"]
            )
    lead = (
        "Summed over regions of about as many groups. Earth mover's distance: groups times the sizes that they would "
        "have to be moved. Individuals: how far the numbers that the counts imply are off, size N counted as N."
    )
    header = [
        "level",
        "groups of a region",
        "regions",
        "L1 error",
        "earth mover's",
        "individuals",
        "L1, share of groups",
    ]
    return table_section("The truth: errors by size of region", header, rows, lead)
