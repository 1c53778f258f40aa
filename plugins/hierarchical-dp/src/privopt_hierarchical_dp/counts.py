"""Reading counts and unit records: CSV or Parquet, streamed by polars, never held as Python objects.

A file is read in a few passes over its columns: one for the hierarchy (its distinct paths), one for
values that will not do, one for the numbers. Unit records are added up by the engine in slices of
units, so that no more than the file itself, as it was read, has to fit into memory.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.declare import File
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.tree import Tree, add_up, named

__all__ = ["Groups", "check_totals", "read_bounds", "read_cells", "read_counts", "read_regions", "read_units"]

MOST_FAULTS = 20
UNITS_AT_ONCE = 8_000_000
_GROUPS_LIMIT = 2**50
_EXACT_DOUBLES = 2.0**53


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


def _scan(source: Path | File, name: str) -> pl.LazyFrame:
    file = File.read(source, name) if isinstance(source, Path) else source
    contents = io.BytesIO(file.contents)
    try:
        if file.name.lower().endswith((".parquet", ".pq")):
            frame = pl.scan_parquet(contents)
        else:
            frame = pl.scan_csv(contents, infer_schema=False)
        frame.collect_schema()
    except (pl.exceptions.PolarsError, OSError):  # whose words may quote a cell
        raise InputError([Fault(name, "", "a file that cannot be read", "CSV or Parquet")]) from None
    return frame


def _collect(frame: pl.LazyFrame, name: str) -> pl.DataFrame:
    try:
        return frame.collect(engine="streaming")
    except (pl.exceptions.PolarsError, OSError):
        raise InputError([Fault(name, "", "rows that cannot be read", "a table, UTF-8")]) from None


def _columns(frame: pl.LazyFrame, name: str, values: Sequence[str]) -> tuple[pl.LazyFrame, list[str]]:
    """The frame with stripped column names, and its level columns in order."""
    schema = frame.collect_schema()
    stripped = {column: column.strip() for column in schema.names()}
    if len(set(stripped.values())) == len(stripped):
        frame = frame.rename(stripped)
    found = list(stripped.values())
    levels = [column for column in found if column.startswith("level_")]
    wanted = [f"level_{index + 1}" for index in range(max(1, len(levels)))]
    faults = [
        Fault(name, "header", f"no column {column!r}", f"columns level_1, ..., level_L, {', '.join(values)}")
        for column in (*wanted, *values)
        if column not in found
    ]
    if faults:
        raise InputError(faults)
    return frame, wanted


def _whole(frame: pl.LazyFrame, column: str) -> pl.Expr:
    """The column as integers, null where it is none; 3.0 is 3, as programs export it."""
    kind = frame.collect_schema()[column]
    value = pl.col(column)
    if kind == pl.String:
        text = value.str.strip_chars()
        return pl.coalesce(text.cast(pl.Int64, strict=False), _rounded(text.cast(pl.Float64, strict=False)))
    if kind.is_float():
        return _rounded(value)
    if kind.is_integer():
        return value.cast(pl.Int64, strict=False)
    return pl.lit(None, dtype=pl.Int64)


def _rounded(value: pl.Expr) -> pl.Expr:
    """Whole numbers among doubles, as integers."""
    whole = value.is_finite() & (value == value.round()) & (value.abs() < _EXACT_DOUBLES)
    return pl.when(whole).then(value).cast(pl.Int64, strict=False)


def _names(levels: Sequence[str]) -> list[pl.Expr]:
    return [pl.col(level).cast(pl.String).str.strip_chars().fill_null("").alias(level) for level in levels]


def _bad_rows(
    frame: pl.LazyFrame, name: str, column: str, bad: pl.Expr, wanted: str, levels: Sequence[str]
) -> list[Fault]:
    """The first rows whose ``column`` will not do."""
    header = 1 if not name.lower().endswith((".parquet", ".pq")) else 0
    rows = _collect(
        frame.with_row_index("_row").filter(bad).select("_row", pl.col(column).cast(pl.String), levels[-1]), name
    ).head(MOST_FAULTS)
    return [
        Fault(name, f"row {row + header + 1}, column {column}", f"{value or 'nothing'} in {region!r}", wanted)
        for row, value, region in rows.iter_rows()
    ]


def _survey(
    frame: pl.LazyFrame, levels: Sequence[str], bad: dict[str, pl.Expr], name: str
) -> tuple[list[tuple[str, ...]], dict[str, int]]:
    """One pass: the distinct paths, sorted, and how many rows will not do."""
    table = _collect(
        frame.select(*_names(levels), *(flag.alias(f"_{column}") for column, flag in bad.items()))
        .group_by(levels)
        .agg(pl.col(f"_{column}").sum() for column in bad)
        .sort(levels),
        name,
    )
    if table.height == 0:
        raise InputError([Fault(name, "", "a header alone", "at least one row")])
    return list(table.select(levels).iter_rows()), {column: int(table[f"_{column}"].sum()) for column in bad}


def _place(tree: Tree, paths: Sequence[tuple[str, ...]], levels: Sequence[str]) -> tuple[pl.LazyFrame, list[str]]:
    """From a leaf's columns to its place, and the columns that tell leaves apart: one, but where names repeat."""
    places = {name: place for place, name in enumerate(tree.names[-1])}
    leaves = {path: places[own[-1]] for path, own in zip(paths, named(paths), strict=True)}
    keys = [levels[-1]] if len({path[-1] for path in leaves}) == len(leaves) else list(levels)
    columns = dict(zip(levels, zip(*leaves, strict=True), strict=True))
    table = {key: pl.Series(columns[key], dtype=pl.String) for key in keys}
    return pl.DataFrame({**table, "_leaf": np.array(list(leaves.values()), dtype=np.int64)}).lazy(), keys


def _limited(faults: list[Fault], name: str) -> None:
    if faults:
        shown = faults[:MOST_FAULTS]
        if len(faults) > MOST_FAULTS:
            shown.append(Fault(name, "", "more faults of these kinds", "none"))
        raise InputError(shown)


def read_counts(source: Path | File, sizes: int, *, first: int = 1, name: str | None = None) -> Groups:
    """Read ``level_1, ..., level_L, size, groups``: one row a leaf region and size, absent pairs are 0.

    Args:
        source: CSV or Parquet.
        sizes: N.
        first: the least size, 0 or 1.
        name: what faults call the file.

    Raises:
        InputError: a column is missing, a count is negative or fractional, a size lies outside ``first`` to
            N, a pair stands twice, or the regions form no tree.
    """
    name = name or source.name
    classes = sizes + 1 - first
    frame, levels = _columns(_scan(source, name), name, ("size", "groups"))
    size, groups = _whole(frame, "size"), _whole(frame, "groups")
    bad_size = (size.is_null() | (size < first) | (size > sizes)).fill_null(value=True)
    bad_groups = (groups.is_null() | (groups < 0) | (groups >= _GROUPS_LIMIT)).fill_null(value=True)
    paths, wrong = _survey(frame, levels, {"size": bad_size, "groups": bad_groups}, name)
    faults: list[Fault] = []
    if wrong["size"]:
        faults += _bad_rows(frame, name, "size", bad_size, f"a whole number from {first} to {sizes} (sizes)", levels)
    if wrong["groups"]:
        faults += _bad_rows(
            frame, name, "groups", bad_groups, "a whole number of groups, 0 or more, below 2^50", levels
        )
    _limited(faults, name)
    tree = Tree.from_paths(paths, file=name)
    place, keys = _place(tree, paths, levels)
    cells = _collect(
        frame.select(*_names(keys), (size - first).alias("_size"), groups.alias("_groups"))
        .join(place, on=keys, how="left")
        .select((pl.col("_leaf") * classes + pl.col("_size")).alias("_cell"), "_groups"),
        name,
    )
    at = cells["_cell"].to_numpy()
    leaves = np.zeros(tree.widths[-1] * classes, np.int64)
    leaves[at] = cells["_groups"].to_numpy()
    if (whole := float(leaves.sum(dtype=np.float64))) >= _GROUPS_LIMIT:
        raise InputError([Fault(name, "column groups", f"{whole:.6g} groups in all", "fewer than 2^50")])
    if int(np.bincount(at).max()) > 1:
        _limited(_twice(at, tree, classes, first, name), name)
    return Groups(tree=tree, leaves=leaves.reshape(tree.widths[-1], classes))


def read_regions(source: Path | File) -> tuple[Tree, bool]:
    """The hierarchy of the regions in ``level_1, ..., level_L``, and whether the table has size and groups too.

    Raises:
        InputError: a column is missing, or the regions form no tree.
    """
    name = source.name
    frame, levels = _columns(_scan(source, name), name, ())
    counted = {"size", "groups"} <= set(frame.collect_schema().names())
    return Tree.from_paths(_survey(frame, levels, {}, name)[0], file=name), counted


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


def read_units(source: Path | File, sizes: int, *, most: int = 1, first: int = 1, name: str | None = None) -> Groups:
    """Read ``level_1, ..., level_L, unit, quantity``: one row an individual; a group is a unit of a leaf region.

    Args:
        source: CSV or Parquet.
        sizes: N; larger groups count as N.
        most: Q, the largest quantity of one individual.
        first: the least size; 0 makes units whose quantities add up to 0 (vacant ones, a row of quantity 0) a class.
        name: what faults call the file.

    Raises:
        InputError: a column is missing, a quantity is negative, fractional or above ``most``, a
            unit has no name, or the regions form no tree.
    """
    name = name or source.name
    frame, levels = _columns(_scan(source, name), name, ("unit", "quantity"))
    quantity = _whole(frame, "quantity")
    unit = pl.col("unit").cast(pl.String).str.strip_chars()
    bad_quantity = (quantity.is_null() | (quantity < 0) | (quantity > most)).fill_null(value=True)
    bad_unit = (unit.is_null() | (unit == "")).fill_null(value=True)
    paths, wrong = _survey(frame, levels, {"quantity": bad_quantity, "unit": bad_unit}, name)
    faults: list[Fault] = []
    if wrong["quantity"]:
        wanted = f"a whole number from 0 to {most} (max_quantity)"
        faults += _bad_rows(frame, name, "quantity", bad_quantity, wanted, levels)
    if wrong["unit"]:
        faults += _bad_rows(frame, name, "unit", bad_unit, "the unit's id", levels)
    _limited(faults, name)
    tree = Tree.from_paths(paths, file=name)
    place, keys = _place(tree, paths, levels)
    rows = int(_collect(frame.select(pl.len()), name).item())
    slices = -(-rows // UNITS_AT_ONCE)
    records = frame.select(*_names(keys), unit.alias("unit"), quantity.alias("_quantity"))
    leaves = np.zeros((tree.widths[-1], sizes + 1 - first), np.int64)
    empty = 0
    for part in range(slices):
        own = records if slices == 1 else records.filter(pl.col("unit").hash() % slices == part)
        table = _collect(
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
    frame = _stripped(_scan(source, name))
    if "size" not in frame.collect_schema().names():
        raise InputError([Fault(name, "header", "no column 'size'", "columns region, size; or size alone")])
    if "region" not in frame.collect_schema().names():
        frame = frame.with_columns(region=pl.lit(""))
    size = _whole(frame, "size")
    bad = (size.is_null() | (size < first) | (size > last)).fill_null(value=True)
    _limited(_bad_rows(frame, name, "size", bad, f"a whole number from {first} to {last}", ["region"]), name)
    table = _collect(frame.select(_names(["region"])[0], (size - first).alias("size")), name)
    places = {"": (0, 0)} | _places(tree)
    _limited(
        [
            Fault(name, f"row {row}, column region", repr(region), "a region of the hierarchy, or nothing for all")
            for row, region in enumerate(table["region"].to_list(), start=2)
            if region not in places
        ],
        name,
    )
    return [(*tree.leaf_range(*places[region]), column) for region, column in table.iter_rows()]


def read_bounds(source: File, tree: Tree) -> list[tuple[int, int, int | None, int | None]]:
    """Read ``region, at_least, at_most``, public bounds on numbers of groups; an empty cell bounds nothing.

    Returns:
        For each row the region's level and place, and the two numbers.

    Raises:
        InputError: a column is missing, a region is none of the hierarchy or stands twice, a number is none.
    """
    name = source.name
    frame = _stripped(_scan(source, name))
    sides = ("at_least", "at_most")
    held = frame.collect_schema().names()
    if "region" not in held or not set(sides) & set(held) or set(held) - {"region", *sides}:
        wanted = (
            "columns region, and at_least or at_most or both: bounds are on a region's number of groups of all sizes"
        )
        raise InputError([Fault(name, "header", ", ".join(held), wanted)])
    given = [side for side in sides if side in held]
    for side in given:
        said = pl.col(side).cast(pl.String).str.strip_chars().fill_null("") != ""
        number = _whole(frame, side)
        bad = said & (number.is_null() | (number < 0) | (number >= _GROUPS_LIMIT)).fill_null(value=True)
        _limited(_bad_rows(frame, name, side, bad, "a whole number of groups, 0 or more, or nothing", ["region"]), name)
    numbers = [(_whole(frame, side) if side in given else pl.lit(None, pl.Int64)).alias(side) for side in sides]
    table = _collect(frame.select(_names(["region"])[0], *numbers), name)
    places, regions = _places(tree), table["region"].to_list()
    faults = []
    for row, (region, low, high) in enumerate(table.iter_rows(), start=2):
        if region not in places:
            faults.append(Fault(name, f"row {row}, column region", repr(region), "a region of the hierarchy"))
        elif regions.index(region) != row - 2:
            faults.append(Fault(name, f"row {row}, column region", f"{region!r} again", "one row for each region"))
        elif low is not None and high is not None and low > high:
            faults.append(Fault(name, f"row {row}, column at_most", str(high), f"at_least, {low}, or more"))
    _limited(faults, name)
    return [(*places[region], low, high) for region, low, high in table.iter_rows()]


def _places(tree: Tree) -> dict[str, tuple[int, int]]:
    """Level and place of each region: the first level where one stands on several."""
    return {
        region: (level, place)
        for level, names in reversed(list(enumerate(tree.names)))
        for place, region in enumerate(names)
    }


def _stripped(frame: pl.LazyFrame) -> pl.LazyFrame:
    """The frame with column names without spaces around them."""
    names = frame.collect_schema().names()
    return frame.rename({name: name.strip() for name in names})


def check_totals(source: Path | File, groups: Groups, *, name: str | None = None) -> None:
    """Check ``region, total`` (numbers of groups) against the sums of the leaves.

    Raises:
        InputError: a region that is unknown or stands twice, a total that is no whole number or not
            the sum of the leaves below it: the fault says by how much.
    """
    name = name or source.name
    frame = _stripped(_scan(source, name))
    missing = [column for column in ("region", "total") if column not in frame.collect_schema().names()]
    if missing:
        raise InputError([Fault(name, "header", f"no column {c!r}", "columns region, total") for c in missing])
    total = _whole(frame, "total")
    bad = (total.is_null() | (total < 0)).fill_null(value=True)
    _limited(_bad_rows(frame, name, "total", bad, "a whole number of groups, 0 or more", ["region"]), name)
    table = _collect(frame.select(_names(["region"])[0], total.alias("total")), name)
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
    _limited(faults, name)
