"""The report of several tables: the regions, every table with its intervals, its noise, a paragraph of methods.

Nothing here but :meth:`TablesReport.report_truth` sees a true count.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.interfaces import Result
from privopt.interfaces.reporting import Reporting
from privopt.report import Section, figure_section, table_section, themed
from privopt.report.theme import LINE, MARK, axes_of
from privopt_hierarchical_dp.methods_text import methods_section, methods_text
from privopt_hierarchical_dp.report import tree_figure
from privopt_hierarchical_dp.tables.instance import TablesRead
from privopt_hierarchical_dp.tables.release import ERRORS, FOLDER, INSIDE, TablesRelease, numbers_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
else:
    Figure = Any

__all__ = ["TablesReport", "cells_figure"]

ROWS: Final = 2_000
"""Rows of a table in the report; where there are more, the report says so and names the file."""
BARS: Final = 60
"""Cells that a figure shows; larger tables have none."""


@themed
def cells_figure(release: TablesRelease, number: int) -> Figure:
    """Draw the cells of a table in the whole hierarchy, with their intervals."""
    name = list(release.problem.declared.hierarchy.tables)[number]
    labels = [" / ".join(own) for own in _cells(release.problem, name)] or ["all"]
    counts = release.counts[0][number].reshape(-1)
    low, high = (side[0] for side in release.bounds[0][number])
    figure, axes = axes_of(6.4, 1.0 + 0.28 * len(labels))
    places = np.arange(len(labels))
    axes.barh(places, counts, color=LINE)
    axes.hlines(places, low, high, color=MARK, label="interval of the true count")
    axes.set_yticks(places, labels)
    axes.invert_yaxis()
    axes.set_xlabel("individuals")
    axes.legend()
    return figure


def _cells(problem: TablesRead, name: str) -> list[tuple[str, ...]]:
    """Return the values of the attributes of each cell, in the order in which they are published."""
    columns = problem.declared.cells(name)
    return list(zip(*(map(str, own) for own in columns.values()), strict=True))


class TablesReport(Reporting[TablesRead, TablesRelease]):
    """The same report as hierarchical-dp's, of several tables."""

    def figures(self, problem: TablesRead, release: TablesRelease, result: Result) -> Mapping[str, Figure]:
        """Return the regions, and each table whose cells can be drawn."""
        drawn = {"tree": tree_figure(release.tree, numbers_of(release.counts))}
        for number, (name, table) in enumerate(
            zip(problem.declared.hierarchy.tables, problem.declared.domain.tables, strict=True)
        ):
            if problem.declared.domain.cells(table) <= BARS:
                drawn[f"table-{name}"] = cells_figure(release, number)
        return drawn

    def report(self, problem: TablesRead, release: TablesRelease, result: Result) -> Sequence[Section]:
        """Regions, tables with intervals, noise, methods: from what is published alone."""
        lead = "Each region is as wide as its released number of individuals; regions add up to the one above them."
        drawn = self.figures(problem, release, result)
        made = [figure_section("The hierarchy", drawn["tree"], lead), _noise(problem, release)]
        often = f"{100 * problem.declared.hierarchy.confidence:g} %"
        for number, name in enumerate(problem.declared.hierarchy.tables):
            lead = f"In {problem.tree.names[0][0]}. A true count lies in its interval with a probability of {often}."
            if f"table-{name}" in drawn:
                made.append(figure_section(name, drawn[f"table-{name}"], lead))
            made.append(_all_cells(problem, release, number, name))
        return [*made, methods_section(methods_of(problem, release, result))]

    def report_truth(
        self, problem: TablesRead, release: TablesRelease, result: Result, private: Path
    ) -> Sequence[Section]:
        """Return the errors of this very release, and how many of its intervals hold."""
        path = private / "truth.json"
        if not path.is_file():
            return []
        told = json.loads(path.read_text("utf-8"))
        levels = [f"level {level}" for level in range(1, problem.tree.depth + 1)]
        errors, inside = (
            [[name, *told[key][name]] for name in problem.declared.hierarchy.tables] for key in (ERRORS, INSIDE)
        )
        lead = f"Summed over all cells, in individuals; there are {told['individuals']:,} in the input."
        promised = f"Of all intervals between low and high; {problem.declared.hierarchy.confidence:g} is promised."
        return [
            table_section("The truth: errors of this release", ["table", *levels], errors, lead),
            table_section("The truth: share of intervals that hold", ["table", *levels], inside, promised),
        ]


def methods_of(problem: TablesRead, release: TablesRelease, result: Result) -> str:
    """Return the paragraph of methods of a release."""
    declared = problem.declared
    names, budgets = list(declared.hierarchy.tables), declared.budgets(problem.tree.depth)
    tables = ", ".join(
        f"{name} (by {', '.join(declared.hierarchy.tables[name].by) or 'region alone'})" for name in names
    )
    return methods_text(
        declared.privacy,
        result,
        law=release.law,
        what=f"the tables {tables} of all individuals in every region of {problem.tree.depth} levels",
        parts=[
            (f"{name} on level {level}", scale, part)
            for level, (scales, parts) in enumerate(zip(release.scales, budgets, strict=True), start=1)
            for name, scale, part in zip(names, scales, parts, strict=True)
        ],
        sensitivity=declared.relation.sensitivity,
        invariant=declared.relation.public,
        confidence=declared.hierarchy.confidence,
    )


def _noise(problem: TablesRead, release: TablesRelease) -> Section:
    """Return noise and widths of intervals, by table and level."""
    law, declared = release.law, problem.declared
    budgets = declared.budgets(problem.tree.depth)
    rows = [
        [
            *(name, ", ".join(declared.hierarchy.tables[name].by) or "none", level + 1, width),
            *(declared.domain.cells(declared.margin(name)), str(budgets[level][number])),
            float(release.scales[level][number] or Fraction(0)),
            float(np.mean(release.bounds[level][number][1] - release.bounds[level][number][0])),
        ]
        for number, name in enumerate(declared.hierarchy.tables)
        for level, width in enumerate(problem.tree.widths)
    ]
    header = ["table", "by", "level", "regions", "cells a region", law.budget, f"noise {law.word}", "interval's width"]
    lead = f"{law.meaning} An interval is high less low, in individuals, mean over regions and cells."
    return table_section("Errors to expect, by table and level", header, rows, lead)


def _all_cells(problem: TablesRead, release: TablesRelease, number: int, name: str) -> Section:
    """Return every cell of every region of a table, as released; the first of them where they are more than a page."""
    cells, tree = _cells(problem, name) or [()], problem.tree
    rows: list[list[Any]] = []
    for level in range(tree.depth):
        counts = release.counts[level][number].reshape(tree.widths[level], -1)
        low, high = release.bounds[level][number]
        once = tree.first_here(level)
        for region in (place for place in tree.by_name(level).tolist() if once[place]):
            if len(rows) >= ROWS:
                break
            rows += [
                [tree.names[level][region], *own, int(counts[region, k]), int(low[region, k]), int(high[region, k])]
                for k, own in enumerate(cells)
            ]
    every = sum(int(tree.first_here(level).sum()) for level in range(tree.depth)) * len(cells)
    lead = "As released."
    if every > len(rows):
        lead += f" The first {len(rows):,} of {every:,} rows; {FOLDER}/{name}.csv has all."
    header = ["region", *problem.declared.cells(name), "individuals", "low", "high"]
    return table_section(f"{name}: every region", header, rows, lead)
