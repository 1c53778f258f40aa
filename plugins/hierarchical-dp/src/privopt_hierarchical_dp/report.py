"""The body of a report: the region tree, tables with intervals, the noise, and a methods paragraph.

Only :meth:`CountsReport.report_truth`, whose sections are shown only to the owner, uses values computed from true
counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import evolve

from privopt.arrays import Figure, Floats, Ints
from privopt.declare.notebook import format_digits
from privopt.declare.toml_text import exact_text
from privopt.errors import number_of
from privopt.interfaces import Result
from privopt.interfaces.reporting import Reporting
from privopt.registry import registry
from privopt.report import Section, figure_section, table_section, use_theme
from privopt.report.charts import rows_of
from privopt.report.theme import INK, LINE, MARK, NARROW_WIDTH, PALE, SOFT, add_legend, axes_of, use_whole_ticks
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.instance import Instance
from privopt_hierarchical_dp.least_squares import Ends
from privopt_hierarchical_dp.publication import MARK as TOO_NOISY
from privopt_hierarchical_dp.publication import count_noisy_cells, describe_margins, find_noisy_cells, margins_of
from privopt_hierarchical_dp.region_tables import Form
from privopt_hierarchical_dp.release import ERRORS, INSIDE, HierarchyRelease
from privopt_hierarchical_dp.tree import Tree

__all__ = ["CountsReport", "cells_figure", "size_figure", "tree_figure"]

NOTIONS: Final = {
    "pure-dp": "epsilon-differential privacy with epsilon",
    "zcdp": "zero-concentrated differential privacy with rho",
    "approx-dp": "(epsilon, delta)-differential privacy with epsilon",
}
"""For each privacy notion, the words used to introduce the budget in the methods paragraph."""
SCOPES_IN_WORDS: Final = {
    "one individual moves one existing group by one size": "one person belongs to a group that exists without them",
    "one individual joins or leaves": "one individual is in the data",
}
"""Plain-language versions of some scopes, used in the headline for readers who may not know the technical terms."""
SHOWN_ROWS: Final = 10_000
"""The maximum number of rows to show from a table. If there are more, the page says so and names the file."""
SHOWN_CELLS: Final = 60
"""The maximum number of cells in a table drawn as a bar chart."""
UPRIGHT_CHARACTERS: Final = 10
"""The maximum length, in characters, of a label that fits when rotated by 90 degrees."""
NARROW_SHARE: Final = 2e-4
"""The fraction of the tree's width below which a region is too narrow to be drawn."""


@use_theme
def tree_figure(tree: Tree, numbers: Sequence[Ints], width: float = 8.4) -> Figure:
    """Draw the region tree with one row per level, in which each region's width is proportional to its released total.

    Args:
        tree: The region tree.
        numbers: For each level, an array of shape (regions,) with the released totals.
        width: The width of the figure in inches. A region that is too narrow for its name has no label.
    """
    figure, axes = axes_of(width, 0.7 + 0.75 * tree.depth)
    totals = [np.maximum(level, 0).astype(np.float64) for level in numbers]
    root_total = max(1.0, float(totals[0].sum()))
    left_edges: list[Floats] = [np.zeros(1)]
    for level in range(1, tree.depth):
        start = tree.start[level - 1]
        # The offset of each region from the left edge of its parent is the sum of its earlier siblings' totals.
        within = np.concatenate([np.cumsum([0.0, *totals[level][a:b]])[:-1] for a, b in pairwise(start.tolist())])
        left_edges.append(left_edges[-1][tree.parents(level)] + within)
    for level in range(tree.depth):
        shares, starts = totals[level] / root_total, left_edges[level] / root_total
        drawn = np.flatnonzero((shares >= NARROW_SHARE) & tree.first_here(level))
        style: dict[str, Any] = {"color": PALE, "edgecolor": SOFT, "linewidth": 0.6}
        label_style: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9, "color": INK}
        axes.barh(np.full(len(drawn), -level - 0.45), shares[drawn], 0.9, starts[drawn], **style)
        for region in drawn.tolist():
            label = f"{tree.name_of(level, region)}\n{int(totals[level][region]):,}"
            # A character is about a tenth of an inch wide, including some padding. Two lines are 0.3 inches high.
            characters, inches = max(map(len, label.split("\n"))), shares[region] * width
            if inches > min(0.1 * characters, 0.3 if characters <= UPRIGHT_CHARACTERS else math.inf):
                middle, rotation = starts[region] + shares[region] / 2, 90 * (inches <= 0.1 * characters)
                axes.text(middle, -level - 0.45, label, rotation=rotation, **label_style)
    axes.set_xlim(0, 1)
    axes.set_ylim(-tree.depth, 0.02)
    axes.set_axis_off()
    return figure


@use_theme
def size_figure(release: HierarchyRelease) -> Figure:
    """Draw the number of groups of each size in the whole hierarchy as a step line with intervals.

    This figure replaces the bar chart of :func:`cells_figure` if there are too many sizes.
    """
    figure, axes = axes_of(7.6, 3.8)
    sizes = np.array(list(release.layout.forms[0].cells["size"]))
    if release.bounds is not None:
        # Table 0 is the only table, level 0 is the root's, and row 0 is the root, its only region.
        lower, upper = (edge[0] for edge in release.bounds[0][0])
        axes.fill_between(sizes, lower, upper, step="mid", color=LINE, label="interval of the true count")
    axes.step(sizes, release.counts[0][0][0], where="mid", color=MARK, label="released")
    # The scale is logarithmic but linear near 0, because counts may be 0.
    axes.set_yscale("symlog")
    axes.set_ylim(bottom=0)
    use_whole_ticks(axes.xaxis)
    axes.set_xlabel("size of a group (the last: that many or more)")
    axes.set_ylabel("groups")
    add_legend(figure)
    return figure


@use_theme
def cells_figure(release: HierarchyRelease, number: int) -> Figure:
    """Draw a table's counts for the whole hierarchy as a bar chart with intervals.

    Args:
        release: The release whose counts are drawn.
        number: The index of the table.
    """
    form = release.layout.forms[number]
    labels = [" / ".join(parts) for parts in _cell_labels(form)]
    if not form.name:
        labels = [f"size {label}" for label in labels]
        labels[-1] += " or more"
    counts = release.counts[number][0].reshape(-1)
    figure, axes, places = rows_of([label or "all" for label in labels], release.layout.noun)
    axes.barh(places, counts, height=0.6, color=PALE, edgecolor=SOFT, linewidth=0.6, label="released")
    if release.bounds is not None:
        lower, upper = (edge[0].reshape(-1) for edge in release.bounds[number][0])
        axes.hlines(places, lower, upper, color=MARK, linewidth=2.4, label="interval of the true count")
        for ends in (lower, upper):
            axes.vlines(ends, places - 0.2, places + 0.2, color=MARK, linewidth=1.4)
    axes.set_xlim(left=0)
    add_legend(figure)
    return figure


def _heading_of(form: Form) -> str:
    """Return the heading for a table: its name in the problem file or, by default, its capitalised title."""
    return form.name or form.title[:1].upper() + form.title[1:]


def _cell_labels(form: Form) -> list[tuple[str, ...]]:
    """Return the values that identify each cell of a table, in the published order of cells."""
    # A table without attributes has a single cell, the number of all individuals, which has no label.
    return list(zip(*(map(str, values) for values in form.cells.values()), strict=True)) or [()]


class CountsReport(Reporting[Instance, HierarchyRelease]):
    """The report shared by both mechanisms. The owner's version also shows the true errors of the release."""

    def figures(self, problem: Instance, release: HierarchyRelease, result: Result) -> Mapping[str, Figure]:
        """Draw the region tree, and a bar chart of every table with at most `SHOWN_CELLS` cells.

        Larger tables are drawn as step lines if they count groups by size, and are otherwise omitted.

        Returns:
            The figures by name.
        """
        figures = {"tree": tree_figure(release.tree, release.numbers)}
        for number, form in enumerate(release.layout.forms):
            if len(_cell_labels(form)) <= SHOWN_CELLS:
                figures[f"table-{form.name}" if form.name else "sizes"] = cells_figure(release, number)
            elif not form.name:
                figures["sizes"] = size_figure(release)
        return figures

    def headline(self, problem: Instance, release: HierarchyRelease, result: Result) -> str:
        """Summarise what was counted, how wide the intervals are, and how often an attacker's guess can be right."""
        tree, noun = release.tree, release.layout.noun
        regions = sum(int(tree.first_here(level).sum()) for level in range(tree.depth))
        total = format_digits(float(release.numbers[0].sum()))
        # The root is named, because a bare "in 3 regions" would be read as three parts of the whole.
        where = tree.name_of(0, 0)
        if tree.depth > 1:
            within = number_of(regions - 1, "region")
            where += f" and in the {within} within it, on {tree.depth} levels"
        sentences = [f"About {total} {noun} are counted in {where}, with random noise in the numbers."]
        exact = problem.design(result.method).exact
        if exact:
            on_levels = "in each region" if exact == tree.depth else f"in the regions down to level_{exact}"
            on_levels = "in the whole" if exact == 1 < tree.depth else on_levels
            sentences.append(f"The number of {noun} {on_levels} is exact.")
        if release.bounds is not None:
            # The half-widths differ between tables, because a count in a coarse table is a sum of several noisy values.
            half_widths = sorted({math.ceil(np.median(upper - lower) / 2) for *_, (lower, upper) in release.bounds})
            # The smallest and the largest half-width, or the only one.
            ends = half_widths[:: len(half_widths) - 1 or 1]
            margins = " to ".join(f"\u00b1{format_digits(float(half_width))}" for half_width in ends)
            sure = f"{100 * problem.declared.confidence:g}\u00a0% probability"
            which = "Numbers of the smallest regions" if tree.depth > 1 else "Numbers"
            sentences.append(f"{which} are typically within {margins} {noun} of the truth ({sure}).")
        notion, scope = registry().kind("notion", result.guarantee.kind).load(), result.guarantee.scope
        in_words = evolve(result.guarantee, scope=SCOPES_IN_WORDS.get(scope, scope))
        return " ".join([*sentences, notion.describe_attack(in_words)])

    def report(self, problem: Instance, release: HierarchyRelease, result: Result) -> Sequence[Section]:
        """Return the sections on the region tree, the noise, the tables and the methods, based on published values."""
        figures, noun = self.figures(problem, release, result), release.layout.noun
        lead = (
            f"Each region is as wide as its released number of {noun}; regions add up to the one above. Those too "
            "narrow for a name are in the tables below."
            if release.tree.depth > 1
            else f"The released number of {noun}."
        )
        design = problem.design(result.method)
        narrow_tree = tree_figure(release.tree, release.numbers, NARROW_WIDTH)
        tree_section = figure_section("The regions", figures["tree"], lead, narrow=narrow_tree)
        sections = [tree_section, _noise_section(design, release)]
        lead = f"All of {release.tree.name_of(0, 0)}. The exact errors are secret."
        if release.bounds is not None:
            probability = f"{100 * problem.declared.confidence:g}\u00a0% probability"
            lead += f" Each interval, here and in {{file}}, contains the true count with {probability}."
        table_ends = None if release.bounds is None else design.compute_ends(release)
        for number, form in enumerate(release.layout.forms):
            # The name of the table's figure, which large tables do not have.
            name = f"table-{form.name}" if form.name else "sizes"
            if name in figures:
                sections.append(figure_section(_heading_of(form), figures[name], lead.format(file=form.intervals)))
            level_ends = None if table_ends is None else table_ends[number]
            sections.append(_cells_section(release, number, level_ends, problem.declared))
        return sections if release.bounds is None else [*sections, self._methods(design, release, result)]

    def report_truth(
        self, problem: Instance, release: HierarchyRelease, result: Result, private: Path
    ) -> Sequence[Section]:
        """Return the sections shown only to the owner: the true errors, and how many intervals contain the true count.

        Args:
            problem: The problem to which the release belongs.
            release: The release to report on.
            result: The contents of the release's result.json.
            private: The owner's private folder. If it contains no ``truth.json``, no sections are returned.
        """
        path = private / "truth.json"
        if not path.is_file():
            return []
        truth, noun = json.loads(path.read_text("utf-8")), release.layout.noun
        header = ["table", *(f"level {level}" for level in range(1, release.tree.depth + 1))]
        # One row per table, and one column per level.
        errors, hold_rates = ([[name, *values] for name, values in truth[key].items()] for key in (ERRORS, INSIDE))
        lead = f"Summed over all cells, in {noun}; there are {truth[noun]:,} in the input."
        promised = f"Of all intervals between low and high; {problem.declared.confidence:g} is promised."
        sections = [table_section("The truth: errors of this release", header, errors, lead)]
        if release.bounds is not None:
            sections.append(table_section("The truth: share of intervals that hold", header, hold_rates, promised))
        return sections

    def _methods(self, design: Design, release: HierarchyRelease, result: Result) -> Section:
        """Return a section with a methods paragraph that the owner can copy into a publication.

        The paragraph states the neighbouring relation, the budget spent on each measurement, which totals are exact,
        and what the intervals mean.
        """
        privacy, law = design.problem.privacy, release.law
        measured_tables, invariant = design.in_words
        budget, amount = NOTIONS[privacy.kind], privacy.rho if privacy.epsilon is None else privacy.epsilon
        delta_clause = "" if privacy.delta is None else f" and delta = {exact_text(privacy.delta)}"
        # The measured parts with their budgets, and the unmeasured parts, which are sums over the level below.
        spent, sums = [], []
        for level in range(release.tree.depth):
            for form, scales, budgets in zip(release.layout.forms, release.scales, design.budgets, strict=True):
                name, scale = form.part(level + 1), scales[level]
                if scale is None:
                    sums.append(name)
                else:
                    spent.append(f"{name} {exact_text(budgets[level])} ({law.word} {format_digits(float(scale), 4)})")
        sentences = [
            f"Published with privopt {result.privopt}, mechanism {result.mechanism}, method {result.method}: "
            f"{measured_tables} were measured with {law.name}, of {law.sensitivity_name} {design.delta} for each table "
            f"on each level, under {budget} = {exact_text(amount)}{delta_clause}; two inputs are neighbours if "
            f"{result.guarantee.scope}.",
            f"Of the budget ({law.budget}) the measurements have: {'; '.join(spent)}.",
            *([f"Not measured, but sums of the level below: {', '.join(sums)}."] if sums else []),
            invariant,
            "The noisy values were made non-negative whole numbers that add up, which uses nothing but them and what "
            "is public, and costs no privacy.",
            f"An interval holds the true count with probability {design.problem.confidence:g}, each by itself, over "
            "the noise.",
        ]
        lead = "A paragraph to copy into a publication: everything in it is public."
        return Section(title="Methods", lead=lead, paragraphs=[" ".join(sentences)])


def _noise_section(design: Design, release: HierarchyRelease) -> Section:
    """Return a section with the noise scale, budget and mean interval width for each table and level."""
    law = release.law
    header = ["table", "level", "regions", "cells a region", law.budget, f"share of {law.budget}", f"noise {law.word}"]
    rows: list[list[Any]] = []
    for number, form in enumerate(release.layout.forms):
        for level, width in enumerate(release.tree.widths):
            part, scale = design.budgets[number][level], release.scales[number][level]
            percentage = f"{format_digits(100 * float(part / design.problem.privacy.budget))} %"
            cells = int(np.prod(form.shape))
            # An unmeasured part is not shown as a scale of 0, which would mean that exact values were published.
            noise = "none: a sum" if scale is None else float(scale)
            row: list[Any] = [form.title, level + 1, width, cells, float(part), percentage, noise]
            if release.bounds is not None:
                lower, upper = release.bounds[number][level]
                # Four significant digits are enough for a table.
                row.append(float(f"{np.mean(upper - lower):.4g}"))
            rows.append(row)
    if release.bounds is not None:
        header.append(f"mean width of intervals ({release.layout.noun})")
    lead = law.meaning
    if any(scale is None for scales in release.scales for scale in scales):
        lead += " A sum adds up noisy numbers of the level below or of another table."
    return table_section("Noise by level", header, rows, lead, for_experts=True)


def _cells_section(release: HierarchyRelease, number: int, level_ends: Sequence[Ends] | None, declared: Any) -> Section:
    """Return a section that lists the cells of a table in every region, up to `SHOWN_ROWS` rows.

    Args:
        release: The release to report on.
        number: The index of the table.
        level_ends: The intervals at each level before rounding. None if the method provides no intervals.
        declared: The contents of the problem file, which may define when a cell is too noisy to use.
    """
    form, tree, rules = release.layout.forms[number], release.tree, declared.publish
    cells, rows = _cell_labels(form), list[list[Any]]()
    level_bounds = None if release.bounds is None else release.bounds[number]
    # Whether the table has a column "quality" because cells may be marked as too noisy.
    is_ruled = level_ends is not None and rules.coefficient_of_variation is not None
    for level, counts in enumerate(release.counts[number]):
        # True for the regions that do not repeat a leaf from the level above.
        once = tree.first_here(level)
        is_noisy = None
        if level_ends is not None and is_ruled:
            margins = margins_of(level_ends[level])
            is_noisy = find_noisy_cells(counts, margins, rules.coefficient_of_variation, declared.confidence)
        # A leaf above the last level is repeated on the levels below, but listed only once.
        for region in (index for index in tree.by_name(level).tolist() if once[index]):
            if len(rows) >= SHOWN_ROWS:
                break
            sides = [
                counts[region].ravel(),
                *(column[region] for column in (level_bounds[level] if level_bounds else ())),
            ]
            for k, labels in enumerate(cells):
                numbers: list[Any] = [int(column[k]) for column in sides]
                if is_noisy is not None:
                    noisy_here = bool(is_noisy[region, k])
                    if noisy_here and rules.too_noisy == "suppress":
                        numbers = ["" for _ in numbers]
                    numbers.append(TOO_NOISY if noisy_here else "")
                rows.append([tree.name_of(level, region), *labels, *numbers])
    row_count = sum(int(tree.first_here(level).sum()) for level in range(tree.depth)) * len(cells)
    lead = f"Published counts of {release.layout.noun}."
    if level_bounds:
        lead += f" The true one lies between low and high with {100 * declared.confidence:g} % probability."
    if level_ends is not None:
        lead += f" {describe_margins(level_ends, declared.confidence, release.layout.noun)}"
    if is_ruled:
        limit, count = 100 * float(rules.coefficient_of_variation), count_noisy_cells(release.publication, form)
        lead += (
            f" {count:,} of {row_count:,} cells have a standard error above {limit:g} % of their count and are "
            f"{'left out' if rules.too_noisy == 'suppress' else 'marked'} as too noisy to use, here and in publish/."
        )
    header = ["region", *form.cells, "count", *(["low", "high"] if level_bounds else []), *(["quality"] * is_ruled)]
    return table_section(f"{_heading_of(form)}: every region", header, rows, lead, total=row_count, file=form.file)
