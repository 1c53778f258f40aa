"""The report's body: the tree, tables with their intervals, noise, a paragraph of methods; for the owner the truth.

Nothing here but :meth:`report_truth` sees a true count.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.declare.exact_text import exact_text
from privopt.interfaces import Result
from privopt.interfaces.reporting import Reporting
from privopt.report import Section, drawing, figure_section, table_section, themed
from privopt.report.theme import INK, LINE, MARK, PALE, SOFT, WARM, axes_of, whole
from privopt_hierarchical_dp.instance import Instance, SizesInstance, TablesInstance
from privopt_hierarchical_dp.region_tables import Form
from privopt_hierarchical_dp.release import ERRORS, INSIDE, HierarchyRelease, errors_of, read_true
from privopt_hierarchical_dp.tree import Tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["HierarchyReport", "TablesReport", "cells_figure", "size_figure", "tree_figure"]

NOTIONS: Final = {
    "pure-dp": "epsilon-differential privacy with epsilon",
    "zcdp": "zero-concentrated differential privacy with rho",
    "approx-dp": "(epsilon, delta)-differential privacy with epsilon",
}
SHOWN_REGIONS: Final = 200
SHOWN_ROWS: Final = 2_000
"""Rows of a table in the report; where there are more, the report says so and names the file."""
SHOWN_CELLS: Final = 60
"""Cells that a figure shows; larger tables have none."""
NARROW_SHARE: Final = 2e-4
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
        for place in np.flatnonzero((shares >= NARROW_SHARE) & tree.first_here(level)).tolist():
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
    """Draw groups by size in the whole hierarchy, with intervals; for the owner the true ones, ``truth``."""
    figure, axes = axes_of(5.6, 3.8)
    sizes = np.array(list(release.layout.forms[0].cells["size"]))
    if release.bounds is not None:
        low, high = (side[0] for side in release.bounds[0][0])
        axes.fill_between(sizes, low, high, step="mid", color=LINE, label="interval of the true count")
    axes.step(sizes, release.counts[0][0][0], where="mid", color=MARK, label="released")
    if truth is not None:
        axes.step(sizes, truth, where="mid", color=WARM, linestyle="--", label="true")
    axes.set_yscale("symlog")
    axes.set_ylim(bottom=0)
    whole(axes.xaxis)
    axes.set_xlabel("size of a group (the last: that many or more)")
    axes.set_ylabel("groups")
    axes.legend()
    return figure


@themed
def cells_figure(release: HierarchyRelease, number: int) -> Figure:
    """Draw the cells of a table in the whole hierarchy, with their intervals."""
    labels = [" / ".join(own) for own in _cells(release.layout.forms[number])]
    counts = release.counts[number][0].reshape(-1)
    figure, axes = axes_of(6.4, 1.0 + 0.28 * len(labels))
    places = np.arange(len(labels))
    axes.barh(places, counts, color=LINE)
    low, high = (side[0] for side in (release.bounds or [])[number][0])
    axes.hlines(places, low, high, color=MARK, label="interval of the true count")
    axes.set_yticks(places, [label or "all" for label in labels])
    axes.invert_yaxis()
    axes.set_xlabel("individuals")
    axes.legend()
    return figure


def _cells(form: Form) -> list[tuple[str, ...]]:
    """Return the values of the attributes of each cell, in the order in which they are published."""
    return list(zip(*(map(str, own) for own in form.cells.values()), strict=True)) or [()]


class _CountsReport(Reporting[Instance, HierarchyRelease]):
    """The tree with numbers, tables with their intervals, noise, methods."""

    @abstractmethod
    def drawn(self, problem: Instance, release: HierarchyRelease) -> Mapping[str, Figure]:
        """Draw tables."""

    @abstractmethod
    def tables(
        self, problem: Instance, release: HierarchyRelease, drawn: Mapping[str, Figure], often: str
    ) -> Sequence[Section]:
        """Return sections of tables; a true count lies in its interval with a probability of ``often``."""

    @abstractmethod
    def measured(self, problem: Instance, release: HierarchyRelease, method: str) -> tuple[str, str]:
        """Return what was measured, and what is exact, for the paragraph of methods."""

    def figures(self, problem: Instance, release: HierarchyRelease, result: Result) -> Mapping[str, Figure]:
        """Return the regions and the tables."""
        return {"tree": tree_figure(release.tree, release.numbers), **self.drawn(problem, release)}

    def report(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[Section]:
        """Return tree, noise, tables with intervals, methods: from what is published alone."""
        drawn = self.figures(problem, release, result)
        lead = (
            f"Each region is as wide as its released number of {release.layout.noun}; regions add up to the one above."
        )
        made = [figure_section("The hierarchy", drawn["tree"], lead), _noise(problem, release, result.method)]
        made += self.tables(problem, release, drawn, f"{100 * problem.declared.confidence:g} %")
        if release.bounds is None:
            return made
        return [*made, self._methods(problem, release, result)]

    def _methods(self, problem: Instance, release: HierarchyRelease, result: Result) -> Section:
        """Return a paragraph to copy: relation, budget by part, what is exact, what intervals mean."""
        privacy, design, law = problem.declared.privacy, problem.design(result.method, release.tree), release.law
        what, invariant = self.measured(problem, release, result.method)
        budget, amount = NOTIONS[privacy.kind], privacy.rho if privacy.epsilon is None else privacy.epsilon
        beside = "" if privacy.delta is None else f" and delta = {exact_text(privacy.delta)}"
        spent, sums = [], []
        for level in range(release.tree.depth):
            for form, scales, budgets in zip(release.layout.forms, release.scales, design.budgets, strict=True):
                name, scale = form.part(level + 1), scales[level]
                if scale is None:
                    sums.append(name)
                else:
                    spent.append(f"{name} {exact_text(budgets[level])} ({law.word} {float(scale):.4g})")
        sentences = [
            f"Published with privopt {result.privopt}, mechanism {result.mechanism}, method {result.method}: {what} "
            f"were measured with {law.name} of sensitivity {design.delta}, under {budget} = {exact_text(amount)}"
            f"{beside}; two inputs are neighbours where {result.guarantee.scope}.",
            f"Of the budget ({law.budget}) the measurements have: {'; '.join(spent)}.",
            *([f"Not measured, but sums of the level below: {', '.join(sums)}."] if sums else []),
            invariant,
            "The noisy values were made non-negative whole numbers that add up, which uses nothing but them and what "
            "is public, and costs no privacy.",
            f"An interval holds the true count with probability {problem.declared.confidence:g}, each by itself, over "
            "the noise.",
        ]
        lead = "A paragraph to copy into a publication: everything in it is public."
        return Section(title="Methods", html=f"<p>{escape(' '.join(sentences))}</p>", lead=lead)


def _noise(problem: Instance, release: HierarchyRelease, method: str) -> Section:
    """Return noise and widths of intervals, by table and level."""
    design, law = problem.design(method, release.tree), release.law
    header = ["table", "level", "regions", "cells a region", law.budget, f"share of {law.budget}", f"noise {law.word}"]
    rows: list[list[Any]] = []
    for number, form in enumerate(release.layout.forms):
        for level, width in enumerate(release.tree.widths):
            part, scale = design.budgets[number][level], release.scales[number][level]
            share = f"{100 * float(part / problem.declared.privacy.budget):.4g} %"
            cells = int(np.prod(form.shape))
            row: list[Any] = [form.name or "sizes", level + 1, width, cells, float(part), share, float(scale or 0)]
            if release.bounds is not None:
                low, high = release.bounds[number][level]
                row.append(float(f"{np.mean(high - low):.4g}"))
            rows.append(row)
    if release.bounds is not None:
        header.append(f"mean width of intervals ({release.layout.noun})")
    return table_section("Noise by level", header, rows, law.meaning)


class HierarchyReport(_CountsReport):
    """Groups by size; to the owner the errors of this very release."""

    def drawn(self, problem: Instance, release: HierarchyRelease) -> Mapping[str, Figure]:
        """Draw groups by size."""
        return {"sizes": size_figure(release)}

    def measured(self, problem: Instance, release: HierarchyRelease, method: str) -> tuple[str, str]:
        """Return counts, or cumulative ones; numbers of groups."""
        assert isinstance(problem, SizesInstance)  # of hierarchical-dp
        design = problem.design(method, release.tree)
        name = "unit" if design.relation.vacant else "group"
        exact = {0: f"No number of {name}s is exact.", 1: f"The number of all {name}s is exact."}
        what = "counts" if design.rule.query == "counts" else "cumulative counts"
        invariant = exact.get(len(release.totals), f"Every region's number of {name}s is exact.")
        return f"{what} of {name}s by size in every region", invariant

    def tables(
        self, problem: Instance, release: HierarchyRelease, drawn: Mapping[str, Figure], often: str
    ) -> Sequence[Section]:
        """Return sizes with intervals; totals of regions."""
        lead = "How far the release is off cannot be known without its secrets."
        if release.bounds is not None:
            file = release.layout.forms[0].intervals
            lead += f" A true count lies in its interval with a probability of {often}: where, stands in {file}."
        return [figure_section("Groups by size", drawn["sizes"], lead), _regions(release)]

    def report_truth(
        self, problem: Instance, release: HierarchyRelease, result: Result, private: Path
    ) -> Sequence[Section]:
        """Return this release's real errors; nothing where ``private`` holds no true counts."""
        if not (private / release.layout.forms[0].private).is_file():
            return []
        (true,) = read_true(private, release.layout, release.tree)
        picture = drawing("True and released groups by size", size_figure(release, true[0][0]))
        return [
            Section(title="The truth: groups by size", html=picture),
            _by_size(release.counts[0], true, int(release.layout.forms[0].cells["size"][0])),
        ]


def _regions(release: HierarchyRelease) -> Section:
    tree, size = release.tree, np.array(list(release.layout.forms[0].cells["size"]))
    rows = []
    for level, (names, counts) in enumerate(zip(tree.names, release.counts[0], strict=True)):
        above = [""] * len(names) if not level else [tree.names[level - 1][p] for p in tree.parents(level).tolist()]
        once = tree.by_name(level)[tree.first_here(level)[tree.by_name(level)]]
        for place in once.tolist()[:SHOWN_REGIONS]:
            groups = counts[place]
            rows.append((names[place], above[place], level + 1, int(groups.sum()), int((groups * size).sum())))
    lead = "As released." + (f" The first {SHOWN_REGIONS} of {tree.regions}." if tree.regions > SHOWN_REGIONS else "")
    header = ("region", "in", "level", "groups", "individuals at least")
    return table_section("Totals", header, rows[:SHOWN_REGIONS], lead)


def _by_size(released: Sequence[Ints], true: Sequence[Ints], first: int) -> Section:
    """Return real errors by level and by the true number of groups of a region, a row a power of ten."""
    rows: list[list[Any]] = []
    for level, (a, b) in enumerate(zip(released, true, strict=True), start=1):
        groups = b.sum(axis=1)
        tens = np.floor(np.log10(np.maximum(groups, 1))).astype(int)
        for ten in sorted(set(tens.tolist()), reverse=True):
            own = tens == ten
            errors = errors_of(a[own], b[own], first)
            share = 100 * errors["l1_error"] / max(1, int(groups[own].sum()))
            label = f"{10**ten if ten else 0:,} and more"
            rows.append([level, label, int(own.sum()), *errors.values(), f"{share:.2g} %"])
    lead = (
        "Summed over regions of about as many groups. Earth mover's distance: groups times the sizes that they would "
        "have to be moved. Individuals: how far the numbers that the counts imply are off, size N counted as N."
    )
    errors_are = ["L1 error", "earth mover's", "individuals", "L1, share of groups"]
    header = ["level", "groups of a region", "regions", *errors_are]
    return table_section("The truth: errors by size of region", header, rows, lead)


class TablesReport(_CountsReport):
    """Every table with its intervals; to the owner errors, and how many intervals hold."""

    def drawn(self, problem: Instance, release: HierarchyRelease) -> Mapping[str, Figure]:
        """Return each table whose cells can be drawn."""
        return {
            f"table-{form.name}": cells_figure(release, number)
            for number, form in enumerate(release.layout.forms)
            if len(_cells(form)) <= SHOWN_CELLS
        }

    def measured(self, problem: Instance, release: HierarchyRelease, method: str) -> tuple[str, str]:
        """Return the tables; what the relation makes public."""
        assert isinstance(problem, TablesInstance)  # of hierarchical-tables
        named = problem.declared.hierarchy.tables.items()
        tables = ", ".join(f"{name} (by {', '.join(own.by) or 'region alone'})" for name, own in named)
        what = f"the tables {tables} of all individuals in every region of {release.tree.depth} levels"
        return what, problem.declared.relation.public

    def tables(
        self, problem: Instance, release: HierarchyRelease, drawn: Mapping[str, Figure], often: str
    ) -> Sequence[Section]:
        """Return each table: the whole hierarchy's picture, and every cell of every region."""
        made = []
        for number, form in enumerate(release.layout.forms):
            lead = f"In {release.tree.names[0][0]}. A true count lies in its interval with a probability of {often}."
            if f"table-{form.name}" in drawn:
                made.append(figure_section(form.name, drawn[f"table-{form.name}"], lead))
            made.append(_all_cells(release, number))
        return made

    def report_truth(
        self, problem: Instance, release: HierarchyRelease, result: Result, private: Path
    ) -> Sequence[Section]:
        """Return the errors of this very release, and how many of its intervals hold."""
        path = private / "truth.json"
        if not path.is_file():
            return []
        told = json.loads(path.read_text("utf-8"))
        header = ["table", *(f"level {level}" for level in range(1, release.tree.depth + 1))]
        errors, inside = (
            [[form.name, *told[key][form.name]] for form in release.layout.forms] for key in (ERRORS, INSIDE)
        )
        lead = f"Summed over all cells, in individuals; there are {told['individuals']:,} in the input."
        promised = f"Of all intervals between low and high; {problem.declared.confidence:g} is promised."
        return [
            table_section("The truth: errors of this release", header, errors, lead),
            table_section("The truth: share of intervals that hold", header, inside, promised),
        ]


def _all_cells(release: HierarchyRelease, number: int) -> Section:
    """Return the cells of every region of a table, up to `SHOWN_ROWS`."""
    form, tree = release.layout.forms[number], release.tree
    cells, rows = _cells(form), list[list[Any]]()
    for level in range(tree.depth):
        counts = release.counts[number][level].reshape(tree.widths[level], -1)
        low, high = (release.bounds or [])[number][level]
        once = tree.first_here(level)
        for region in (place for place in tree.by_name(level).tolist() if once[place]):
            if len(rows) >= SHOWN_ROWS:
                break
            rows += [
                [tree.names[level][region], *own, int(counts[region, k]), int(low[region, k]), int(high[region, k])]
                for k, own in enumerate(cells)
            ]
    every = sum(int(tree.first_here(level).sum()) for level in range(tree.depth)) * len(cells)
    lead = "As released."
    if every > len(rows):
        lead += f" The first {len(rows):,} of {every:,} rows; {form.file} has all."
    return table_section(
        f"{form.name}: every region", ["region", *form.cells, "individuals", "low", "high"], rows, lead
    )
