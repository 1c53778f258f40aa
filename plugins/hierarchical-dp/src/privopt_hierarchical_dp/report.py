"""The report's body: the tree, tables with their intervals, the noise, and a paragraph of methods.

Only :meth:`CountsReport.report_truth`, the part for the owner, uses values that were computed from true counts.
"""

from __future__ import annotations

import json
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
from privopt.report import Section, figure_section, table_section, themed
from privopt.report.theme import INK, LINE, MARK, PALE, SOFT, axes_of, whole
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.instance import Instance
from privopt_hierarchical_dp.region_tables import Form
from privopt_hierarchical_dp.release import ERRORS, INSIDE, HierarchyRelease
from privopt_hierarchical_dp.tree import Tree

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["CountsReport", "cells_figure", "size_figure", "tree_figure"]

NOTIONS: Final = {
    "pure-dp": "epsilon-differential privacy with epsilon",
    "zcdp": "zero-concentrated differential privacy with rho",
    "approx-dp": "(epsilon, delta)-differential privacy with epsilon",
}
SHOWN_ROWS: Final = 2_000
"""The greatest number of rows of a table; if there are more, the report says so and names the file."""
SHOWN_CELLS: Final = 60
"""The greatest number of cells in a figure; larger tables have no figure."""
NARROW_SHARE: Final = 2e-4
"""Regions narrower than this share of the tree's width are not drawn."""


@themed
def tree_figure(tree: Tree, numbers: Sequence[Ints]) -> Figure:
    """Draw the hierarchy with one row for each level; the width of a region is its released number (R_l,)."""
    from matplotlib.patches import Rectangle

    figure, axes = axes_of(8.4, 0.7 + 0.75 * tree.depth)
    totals = [np.maximum(level, 0).astype(np.float64) for level in numbers]
    root_total = max(1.0, float(totals[0].sum()))
    left_edges: list[Floats] = [np.zeros(1)]
    for level in range(1, tree.depth):
        start = tree.start[level - 1]
        within = np.concatenate([np.cumsum([0.0, *totals[level][a:b]])[:-1] for a, b in pairwise(start.tolist())])
        left_edges.append(left_edges[-1][tree.parents(level)] + within)
    for level, names in enumerate(tree.names):
        shares, starts = totals[level] / root_total, left_edges[level] / root_total
        for region in np.flatnonzero((shares >= NARROW_SHARE) & tree.first_here(level)).tolist():
            box = Rectangle(
                (starts[region], -level), shares[region], -0.9, facecolor=PALE, edgecolor=SOFT, linewidth=0.6
            )
            axes.add_patch(box)
            label = f"{names[region]}\n{int(totals[level][region]):,}"
            if shares[region] > 0.012 * max(map(len, label.split("\n"))):
                middle = (starts[region] + shares[region] / 2, -level - 0.45)
                axes.text(*middle, label, ha="center", va="center", fontsize="small", color=INK)
    axes.set_xlim(0, 1)
    axes.set_ylim(-tree.depth, 0.02)
    axes.set_axis_off()
    return figure


@themed
def size_figure(release: HierarchyRelease) -> Figure:
    """Draw groups by size in the whole hierarchy, with intervals."""
    figure, axes = axes_of(5.6, 3.8)
    sizes = np.array(list(release.layout.forms[0].cells["size"]))
    if release.bounds is not None:
        lower, upper = (edge[0] for edge in release.bounds[0][0])
        axes.fill_between(sizes, lower, upper, step="mid", color=LINE, label="interval of the true count")
    axes.step(sizes, release.counts[0][0][0], where="mid", color=MARK, label="released")
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
    labels = [" / ".join(parts) for parts in _cell_labels(release.layout.forms[number])]
    counts = release.counts[number][0].reshape(-1)
    figure, axes = axes_of(6.4, 1.0 + 0.28 * len(labels))
    places = np.arange(len(labels))
    axes.barh(places, counts, color=LINE)
    lower, upper = (edge[0] for edge in (release.bounds or [])[number][0])
    axes.hlines(places, lower, upper, color=MARK, label="interval of the true count")
    axes.set_yticks(places, [label or "all" for label in labels])
    axes.invert_yaxis()
    axes.set_xlabel("individuals")
    axes.legend()
    return figure


def _cell_labels(form: Form) -> list[tuple[str, ...]]:
    """Return the values of the attributes of each cell, in the order in which they are published."""
    return list(zip(*(map(str, values) for values in form.cells.values()), strict=True)) or [()]


class CountsReport(Reporting[Instance, HierarchyRelease]):
    """The report of both mechanisms; for the owner also the errors of the release."""

    def figures(self, problem: Instance, release: HierarchyRelease, result: Result) -> Mapping[str, Figure]:
        """Draw the regions, and each table with few enough cells."""
        figures = {"tree": tree_figure(release.tree, release.numbers)}
        for number, form in enumerate(release.layout.forms):
            if not form.name:
                figures["sizes"] = size_figure(release)
            elif len(_cell_labels(form)) <= SHOWN_CELLS:
                figures[f"table-{form.name}"] = cells_figure(release, number)
        return figures

    def report(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[Section]:
        """Return the sections on the tree, the noise, the tables and the methods, from published values alone."""
        figures, noun = self.figures(problem, release, result), release.layout.noun
        lead = f"Each region is as wide as its released number of {noun}; regions add up to the one above."
        design = problem.design(result.method)
        sections = [figure_section("The hierarchy", figures["tree"], lead), _noise_section(design, release)]
        lead = f"In {release.tree.names[0][0]}. How far the release is off cannot be known without its secrets."
        if release.bounds is not None:
            probability = f"with a probability of {100 * problem.declared.confidence:g} %"
            lead += f" A true count lies in its interval {probability}: where, stands in {{file}}."
        for number, form in enumerate(release.layout.forms):
            name = f"table-{form.name}" if form.name else "sizes"
            if name in figures:
                sections.append(figure_section(form.title, figures[name], lead.format(file=form.intervals)))
            sections.append(_all_cells(release, number))
        return sections if release.bounds is None else [*sections, self._methods(design, release, result)]

    def report_truth(
        self, problem: Instance, release: HierarchyRelease, result: Result, private: Path
    ) -> Sequence[Section]:
        """Return the sections on the true errors of this release, and on the shares of its intervals that hold."""
        path = private / "truth.json"
        if not path.is_file():
            return []
        truth, noun = json.loads(path.read_text("utf-8")), release.layout.noun
        header = ["table", *(f"level {level}" for level in range(1, release.tree.depth + 1))]
        errors, hold_rates = ([[name, *values] for name, values in truth[key].items()] for key in (ERRORS, INSIDE))
        lead = f"Summed over all cells, in {noun}; there are {truth[noun]:,} in the input."
        promised = f"Of all intervals between low and high; {problem.declared.confidence:g} is promised."
        sections = [table_section("The truth: errors of this release", header, errors, lead)]
        if release.bounds is not None:
            sections.append(table_section("The truth: share of intervals that hold", header, hold_rates, promised))
        return sections

    def _methods(self, design: Design, release: HierarchyRelease, result: Result) -> Section:
        """Return a paragraph to copy: the relation, the budget of each part, exact numbers, and intervals."""
        privacy, law = design.problem.privacy, release.law
        measured_tables, invariant = design.in_words
        budget, amount = NOTIONS[privacy.kind], privacy.rho if privacy.epsilon is None else privacy.epsilon
        delta_clause = "" if privacy.delta is None else f" and delta = {exact_text(privacy.delta)}"
        spent, sums = [], []
        for level in range(release.tree.depth):
            for form, scales, budgets in zip(release.layout.forms, release.scales, design.budgets, strict=True):
                name, scale = form.part(level + 1), scales[level]
                if scale is None:
                    sums.append(name)
                else:
                    spent.append(f"{name} {exact_text(budgets[level])} ({law.word} {float(scale):.4g})")
        sentences = [
            f"Published with privopt {result.privopt}, mechanism {result.mechanism}, method {result.method}: "
            f"{measured_tables} were measured with {law.name} of sensitivity {design.delta}, under "
            f"{budget} = {exact_text(amount)}{delta_clause}; two inputs are neighbours where {result.guarantee.scope}.",
            f"Of the budget ({law.budget}) the measurements have: {'; '.join(spent)}.",
            *([f"Not measured, but sums of the level below: {', '.join(sums)}."] if sums else []),
            invariant,
            "The noisy values were made non-negative whole numbers that add up, which uses nothing but them and what "
            "is public, and costs no privacy.",
            f"An interval holds the true count with probability {design.problem.confidence:g}, each by itself, over "
            "the noise.",
        ]
        lead = "A paragraph to copy into a publication: everything in it is public."
        return Section(title="Methods", html=f"<p>{escape(' '.join(sentences))}</p>", lead=lead)


def _noise_section(design: Design, release: HierarchyRelease) -> Section:
    """Return the section on noise and widths of intervals, by table and level."""
    law = release.law
    header = ["table", "level", "regions", "cells a region", law.budget, f"share of {law.budget}", f"noise {law.word}"]
    rows: list[list[Any]] = []
    for number, form in enumerate(release.layout.forms):
        for level, width in enumerate(release.tree.widths):
            part, scale = design.budgets[number][level], release.scales[number][level]
            percentage = f"{100 * float(part / design.problem.privacy.budget):.4g} %"
            cells = int(np.prod(form.shape))
            row: list[Any] = [form.title, level + 1, width, cells, float(part), percentage, float(scale or 0)]
            if release.bounds is not None:
                lower, upper = release.bounds[number][level]
                row.append(float(f"{np.mean(upper - lower):.4g}"))
            rows.append(row)
    if release.bounds is not None:
        header.append(f"mean width of intervals ({release.layout.noun})")
    return table_section("Noise by level", header, rows, law.meaning)


def _all_cells(release: HierarchyRelease, number: int) -> Section:
    """Return the section with the cells of every region of a table, up to `SHOWN_ROWS` rows."""
    form, tree = release.layout.forms[number], release.tree
    cells, rows = _cell_labels(form), list[list[Any]]()
    level_bounds = None if release.bounds is None else release.bounds[number]
    for level, counts in enumerate(release.counts[number]):
        once = tree.first_here(level)
        # A leaf above the last level is repeated on the levels below, and listed only once.
        for region in (index for index in tree.by_name(level).tolist() if once[index]):
            if len(rows) >= SHOWN_ROWS:
                break
            sides = [
                counts[region].ravel(),
                *(column[region] for column in (level_bounds[level] if level_bounds else ())),
            ]
            rows += [
                [tree.names[level][region], *labels, *(int(column[k]) for column in sides)]
                for k, labels in enumerate(cells)
            ]
    row_count = sum(int(tree.first_here(level).sum()) for level in range(tree.depth)) * len(cells)
    lead = "As released."
    if row_count > len(rows):
        lead += f" The first {len(rows):,} of {row_count:,} rows; {form.file} has all."
    header = ["region", *form.cells, release.layout.noun, *(("low", "high") if level_bounds else ())]
    return table_section(f"{form.title}: every region", header, rows, lead)
