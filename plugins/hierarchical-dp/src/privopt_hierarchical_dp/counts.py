"""Reading counts and unit records: CSV or Parquet, streamed by polars, never held as Python objects.

A file is read in a few passes over its columns: one for the hierarchy (its distinct paths), one for
values that will not do, one for the numbers. Unit records are added up by the engine in slices of
units, so that no more than the file itself, as it was read, has to fit into memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.declare import File
from privopt.errors import Fault, InputError
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
from privopt_hierarchical_dp.tree import Regions, Tree, add_up

__all__ = ["Groups", "check_totals", "read_counts", "read_units"]

UNITS_AT_ONCE = 8_000_000


@frozen(kw_only=True, eq=False)
class Groups:
    """What a file of counts or units holds.

    Attributes:
        tree: hierarchy of its regions.
        leaves: (R_L, N) groups of each size in each leaf region, from the least size that is a class (0 or 1); the
            last column is "N or more".
        empty: unit records only: groups whose quantities add up to 0 where they are no groups of any size.
    """

    tree: Tree
    leaves: Ints
    empty: int = 0


def _place(
    frame: pl.LazyFrame,
    levels: Sequence[str],
    bad: Mapping[str, tuple[pl.Expr, str]],
    name: str,
    listed: Regions | None,
) -> tuple[Tree, pl.LazyFrame, list[str]]:
    """The hierarchy, from a leaf's columns to its place, and the columns that tell leaves apart.

    One column does, but where names repeat.

    Args:
        frame: the table.
        levels: its level columns.
        bad: of other columns which rows will not do, and what is wanted.
        name: of the file.
        listed: the regions where they are public; None: those of the table.

    Raises:
        InputError: rows that will not do, regions that form no tree, or that are not listed.
    """
    paths, wrong = survey(
        frame, levels, {column: flag for column, (flag, _) in bad.items()}, name, empty=listed is not None
    )
    some = ((column, flag, wanted) for column, (flag, wanted) in bad.items() if wrong[column])
    limited([fault for about in some for fault in bad_rows(frame, name, *about, levels)], name)
    if listed is not None:
        limited(listed.unlisted(paths, name), name)
    regions = listed or Regions.of(paths, file=name)
    keys = [levels[-1]] if len({path[-1] for path in paths}) == len(paths) else list(levels)
    columns = {key: [path[levels.index(key)] for path in paths] for key in keys}
    places = {**columns, "_leaf": [regions.place(path) for path in paths]}
    return regions.tree, pl.DataFrame(places, schema={**dict.fromkeys(keys, pl.String), "_leaf": pl.Int64}).lazy(), keys


@rows_named
def read_counts(source: File, sizes: int, *, first: int = 1, listed: Regions | None = None) -> Groups:
    """Read ``level_1, ..., level_L, size, groups``: one row a leaf region and size, absent pairs are 0.

    Args:
        source: CSV or Parquet.
        sizes: N.
        first: the least size, 0 or 1.
        listed: the regions where a public table has them; left out: those of the file.

    Raises:
        InputError: a column is missing, a count is negative or fractional, a size lies outside ``first`` to
            N, a pair stands twice, the regions form no tree, or are not listed.
    """
    name = source.name
    classes = sizes + 1 - first
    frame = scan(source)
    levels = levels_of(frame, name, ("size", "groups"))
    size, groups = whole(frame, "size"), whole(frame, "groups")
    bad_size = (size.is_null() | (size < first) | (size > sizes)).fill_null(value=True)
    bad_groups = (groups.is_null() | (groups < 0) | (groups >= GROUPS_LIMIT)).fill_null(value=True)
    bad = {
        "size": (bad_size, f"a whole number from {first} to {sizes} (sizes)"),
        "groups": (bad_groups, "a whole number of groups, 0 or more, below 2^50"),
    }
    tree, place, keys = _place(frame, levels, bad, name, listed)
    cells = collect(
        frame.select(*as_text(keys), (size - first).alias("_size"), groups.alias("_groups"))
        .join(place, on=keys, how="left")
        .select((pl.col("_leaf") * classes + pl.col("_size")).alias("_cell"), "_groups"),
        name,
    )
    at = cells["_cell"].to_numpy()
    leaves = np.zeros(tree.widths[-1] * classes, np.int64)
    leaves[at] = cells["_groups"].to_numpy()
    if (in_all := float(leaves.sum(dtype=np.float64))) >= GROUPS_LIMIT:
        raise InputError([Fault(name, "column groups", f"{in_all:.6g} groups in all", "fewer than 2^50")])
    if int(np.bincount(at).max(initial=0)) > 1:
        limited(_twice(at, tree, classes, first, name), name)
    return Groups(tree=tree, leaves=leaves.reshape(tree.widths[-1], classes))


def _twice(cells: NDArray[Any], tree: Tree, classes: int, first: int, name: str) -> list[Fault]:
    unique, counts = np.unique(cells, return_counts=True)
    return [
        Fault(
            name,
            f"region {tree.names[-1][cell // classes]!r}, size {cell % classes + first}",
            f"{count} rows",
            "one row for each leaf region and size",
        )
        for cell, count in zip(unique[counts > 1].tolist(), counts[counts > 1].tolist(), strict=True)
    ]


@rows_named
def read_units(source: File, sizes: int, *, most: int = 1, first: int = 1, listed: Regions | None = None) -> Groups:
    """Read ``level_1, ..., level_L, unit, quantity``: one row an individual; a group is a unit of a leaf region.

    Args:
        source: CSV or Parquet.
        sizes: N; larger groups count as N.
        most: Q, the largest quantity of one individual.
        first: the least size; 0 makes units whose quantities add up to 0 (vacant ones, a row of quantity 0) a class.
        listed: the regions where a public table has them; left out: those of the file.

    Raises:
        InputError: a column is missing, a quantity is negative, fractional or above ``most``, a
            unit has no name, the regions form no tree, or are not listed.
    """
    name = source.name
    frame = scan(source)
    levels = levels_of(frame, name, ("unit", "quantity"))
    quantity = whole(frame, "quantity")
    unit = pl.col("unit").cast(pl.String).str.strip_chars()
    bad_quantity = (quantity.is_null() | (quantity < 0) | (quantity > most)).fill_null(value=True)
    bad_unit = (unit.is_null() | (unit == "")).fill_null(value=True)
    bad = {
        "quantity": (bad_quantity, f"a whole number from 0 to {most} (max_quantity)"),
        "unit": (bad_unit, "the unit's id"),
    }
    tree, place, keys = _place(frame, levels, bad, name, listed)
    rows = int(collect(frame.select(pl.len()), name).item())
    slices = -(-rows // UNITS_AT_ONCE)
    records = frame.select(*as_text(keys), unit.alias("unit"), quantity.alias("_quantity"))
    leaves = np.zeros((tree.widths[-1], sizes + 1 - first), np.int64)
    empty = 0
    for part in range(slices):
        own = records if slices == 1 else records.filter(pl.col("unit").hash() % slices == part)
        table = collect(
            own.group_by(*keys, "unit")
            .agg(pl.col("_quantity").sum())
            .select(*keys, pl.col("_quantity").clip(0, sizes).alias("_size"))
            .group_by(*keys, "_size")
            .agg(pl.len().cast(pl.Int64).alias("_groups"))
            .join(place, on=keys, how="left")
            .select("_leaf", "_size", "_groups"),
            name,
        )
        at, size, groups = (table[column].to_numpy() for column in ("_leaf", "_size", "_groups"))
        some = size >= first
        empty += int(groups[~some].sum())
        np.add.at(leaves, (at[some], size[some] - first), groups[some])
    return Groups(tree=tree, leaves=leaves, empty=empty)


@rows_named
def check_totals(source: File, groups: Groups) -> None:
    """Check ``region, total`` (numbers of groups) against the sums of the leaves.

    Raises:
        InputError: a region that is unknown or stands twice, a total that is no whole number or not
            the sum of the leaves below it: the fault says by how much.
    """
    name = source.name
    frame = scan(source)
    missing = [column for column in ("region", "total") if column not in frame.collect_schema().names()]
    if missing:
        raise InputError([Fault(name, "header", f"no column {c!r}", "columns region, total") for c in missing])
    source.seen.columns.update(["region", "total"])
    total = whole(frame, "total")
    bad = (total.is_null() | (total < 0)).fill_null(value=True)
    limited(bad_rows(frame, name, "total", bad, "a whole number of groups, 0 or more", ["region"]), name)
    table = collect(frame.select(as_text(["region"])[0], total.alias("total")), name)
    sums = add_up(groups.tree, groups.leaves.sum(axis=1))
    known = {
        region: int(value)
        for names, level in zip(groups.tree.names, sums, strict=True)
        for region, value in zip(names, level, strict=True)
    }
    faults: list[Fault] = []
    seen: set[str] = set()
    for row, (region, value) in enumerate(table.iter_rows(), start=2):
        if region not in known:
            faults.append(Fault(name, f"row {row}, column region", repr(region), "a region of the hierarchy"))
        elif region in seen:
            faults.append(Fault(name, f"row {row}, column region", f"{region!r} again", "one row for each region"))
        elif value != known[region]:
            short = value - known[region]
            side = f"{abs(short)} short of it" if short > 0 else f"{abs(short)} more"
            wanted = f"{known[region]}, the sum over its leaves, which fall {side}"
            if short < 0:
                wanted = f"{known[region]}, the sum over its leaves, {side}"
            faults.append(Fault(name, f"row {row}, region {region!r}", str(value), wanted))
        seen.add(region)
    limited(faults, name)
