"""Public tables of a hierarchy: its regions, cells that cannot be, bounds."""

from __future__ import annotations

import numpy as np
import polars as pl
from attrs import frozen

from privopt.declare import File
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.reading import (
    GROUPS_LIMIT,
    as_text,
    bad_rows,
    collect,
    levels_of,
    limited,
    rows_named,
    scan,
    survey,
    whole,
)
from privopt_hierarchical_dp.tree import Regions, Tree
from privopt_hierarchical_dp.zeros import Zeros

__all__ = ["Bound", "note_like", "read_bounds", "read_cells", "read_regions", "zeros_of"]


@rows_named
def read_regions(source: File) -> tuple[Regions, bool]:
    """The hierarchy of the regions in ``level_1, ..., level_L``, and whether the table has size and groups too.

    Raises:
        InputError: a column is missing, or the regions form no tree.
    """
    name = source.name
    frame = scan(source)
    levels = levels_of(frame, name, ())
    source.seen.columns.update(levels)
    counted = {"size", "groups"} <= set(frame.collect_schema().names())
    return Regions.of(survey(frame, levels, {}, name)[0], file=name), counted


def note_like(source: File) -> None:
    """Note what ``privopt plan`` reads of counts like the secret ones: ``solve`` publishes that and reads nothing."""
    held = scan(source).collect_schema().names()
    source.seen.columns.update(["size", "groups", *(name for name in held if name.startswith("level_"))])


@rows_named
def read_cells(source: File, tree: Tree, *, first: int, last: int) -> list[tuple[int, int, int]]:
    """Read ``region, size``, or ``size`` alone for all regions: cells of a public table.

    Args:
        source: CSV or Parquet; a region of any level stands for the leaves below it, an empty one for all.
        tree: the hierarchy.
        first: the least size.
        last: N.

    Returns:
        For each row the leaf regions, from the first to before the second, and the column of the size.

    Raises:
        InputError: a column is missing, a region is none of the hierarchy, a size lies outside ``first`` to N.
    """
    name = source.name
    frame = scan(source)
    if "size" not in frame.collect_schema().names():
        raise InputError([Fault(name, "header", "no column 'size'", "columns region, size; or size alone")])
    if "region" not in frame.collect_schema().names():
        frame = frame.with_columns(region=pl.lit(""))
    source.seen.columns.update(["region", "size"])
    size = whole(frame, "size")
    bad = (size.is_null() | (size < first) | (size > last)).fill_null(value=True)
    limited(bad_rows(frame, name, "size", bad, f"a whole number from {first} to {last}", ["region"]), name)
    table = collect(frame.select(as_text(["region"])[0], (size - first).alias("size")), name)
    places = {"": (0, 0)} | tree.places()
    limited(
        [
            Fault(name, f"row {row}, column region", repr(region), "a region of the hierarchy, or nothing for all")
            for row, region in enumerate(table["region"].to_list(), start=2)
            if region not in places
        ],
        name,
    )
    return [(*tree.leaf_range(*places[region]), column) for region, column in table.iter_rows()]


def zeros_of(problem: HierarchyProblem, tree: Tree) -> Zeros | None:
    """What ``hierarchy.impossible`` says, for a tree; None where a problem has none.

    Raises:
        InputError: a region that is none of the tree's, a size that is none, or nothing that is possible.
    """
    table = problem.hierarchy
    if table.impossible is None:
        return None
    name = table.impossible.name
    cells = read_cells(table.impossible, tree, first=table.first_size, last=table.sizes)
    leaves = np.zeros((tree.widths[-1], table.classes), dtype=bool)
    for low, high, size in cells:
        leaves[low:high, size] = True
    if leaves.all():
        raise InputError([Fault(name, "", "every size of every region", "one that a group can have")])
    levels = [leaves]
    for start in reversed(tree.start):
        levels.insert(0, np.logical_and.reduceat(levels[0], start[:-1], axis=0))
    return Zeros(levels=levels)


@frozen
class Bound:
    """A row of a table of bounds.

    Attributes:
        level, place: of its region.
        least, most: numbers of groups; None bounds nothing.
    """

    level: int
    place: int
    least: int | None
    most: int | None


@rows_named
def read_bounds(source: File, tree: Tree) -> list[Bound]:
    """Read ``region, at_least, at_most``, public bounds on numbers of groups; an empty cell bounds nothing.

    Args:
        source: CSV or Parquet.
        tree: the hierarchy.

    Raises:
        InputError: a column is missing, a region is none of the hierarchy or stands twice, a number is none, or the
            least is above the most; no row at all.
    """
    name = source.name
    frame = scan(source)
    sides = ("at_least", "at_most")
    held = frame.collect_schema().names()
    if "region" not in held or not set(sides) & set(held) or set(held) - {"region", *sides}:
        wanted = "columns region, and at_least or at_most or both: bounds on groups of all sizes together"
        raise InputError([Fault(name, "header", ", ".join(held), wanted)])
    given = [column for column in sides if column in held]
    for column in given:
        said = pl.col(column).cast(pl.String).str.strip_chars().fill_null("") != ""
        number, wanted = whole(frame, column), "a whole number of groups, 0 or more, or nothing"
        bad = said & (number.is_null() | (number < 0) | (number >= GROUPS_LIMIT)).fill_null(value=True)
        limited(bad_rows(frame, name, column, bad, wanted, ["region"]), name)
    numbers = [(whole(frame, column) if column in given else pl.lit(None, pl.Int64)).alias(column) for column in sides]
    table = collect(frame.select(as_text(["region"])[0], *numbers), name)
    if not table.height:
        raise InputError([Fault(name, "", "a header alone", "at least one row")])
    places = tree.places()
    faults, seen = [], set()
    for row, (region, low, high) in enumerate(table.iter_rows(), start=2):
        if region not in places:
            faults.append(Fault(name, f"row {row}, column region", repr(region), "a region of the hierarchy"))
        elif region in seen:
            faults.append(Fault(name, f"row {row}, column region", f"{region!r} again", "one row for each region"))
        elif low is not None and high is not None and low > high:
            faults.append(Fault(name, f"row {row}, column at_most", str(high), f"at_least, {low}, or more"))
        seen.add(region)
    limited(faults, name)
    return [Bound(*places[region], low, high) for region, low, high in table.iter_rows()]
