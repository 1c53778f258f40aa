"""Derive a hierarchy from the paths of its leaves: its regions by level, and their names in files.

A path is a row of region names from the root to a leaf. If a leaf is above the last level, its path ends in empty
names. For speed, all operations are joins and comparisons of whole columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import polars as pl

from privopt.arrays import Bools, Ints
from privopt.errors import Fault, InputError, number_of

__all__ = ["as_frame", "number_regions"]

Levels: TypeAlias = list[tuple[pl.Series, Ints, Bools]]
"""The regions at each level: their names, the indices of their parents, and whether each region repeats its parent.

A leaf above the last level is repeated at every level below it.
"""


def as_frame(paths: Sequence[tuple[str, ...]] | pl.DataFrame, depth: int = 0) -> pl.DataFrame:
    """Return paths as a table with string columns ``level_1``, ..., ``level_L`` and no nulls.

    Args:
        paths: The paths from the root to a leaf, as tuples of any length or as the rows of a table.
        depth: The minimum number of columns. If there are fewer, columns of empty strings are added.
    """
    if not isinstance(paths, pl.DataFrame):
        length = max(map(len, paths), default=0)
        padded = [path + ("",) * (length - len(path)) for path in paths]
        paths = pl.DataFrame(padded, schema=[(f"level_{k + 1}", pl.String) for k in range(length)], orient="row")
    columns = {f"level_{k + 1}": column for k, column in enumerate(paths.get_columns())}
    empty = pl.Series([""], dtype=pl.String).new_from_index(0, paths.height)
    added = {f"level_{k + 1}": empty for k in range(paths.width, depth)}
    return pl.DataFrame({name: column.fill_null("") for name, column in columns.items()} | added)


def number_regions(paths: pl.DataFrame, file: str) -> tuple[Levels, Ints]:
    """Return the regions of a hierarchy by level, and the leaf at which each path ends.

    Args:
        paths: The distinct paths of the leaves, as returned by :func:`as_frame`.
        file: The file from which the paths were read, for error messages.

    Returns:
        The regions at each level, in any order, with the names used for them in files; and the index of each path's
        leaf at the last level.

    Raises:
        InputError: There are no paths, an empty name is followed by another name, a leaf has regions below it, there
            are two roots, or two regions would get the same name in files.
    """
    if paths.is_empty():
        raise InputError([Fault(file=file, where="", actual="no region", expectation="at least one leaf region")])
    while paths.width > 1 and (paths[:, -1] == "").all():
        paths = paths[:, :-1]
    prefixes, levels = _list_prefixes(paths)
    _check_gaps(paths, prefixes, levels, file)
    roots = prefixes[0].to_series()
    if len(roots) > 1:
        actual = f"the roots {', '.join(map(repr, roots.sort().head(3).to_list()))}"
        raise InputError([Fault(file=file, where="level_1", actual=actual, expectation="one root")])
    # On the last level, the prefixes are the paths themselves, in the same order.
    return _write_names(prefixes, levels, file), np.arange(paths.height)


def _list_prefixes(paths: pl.DataFrame) -> tuple[list[pl.DataFrame], Levels]:
    """Return the regions at each level, along with their parents.

    A region is a distinct prefix of the paths. If a leaf is above the last level, its path ends in empty names.

    Args:
        paths: The distinct paths from the root to a leaf.

    Returns:
        Two lists with one entry per level. Each entry of the first list contains the prefixes that end at that level.
        Each entry of the second contains the last name of each prefix, the index of its parent, and whether the prefix
        merely repeats its parent, because its last name is empty.
    """
    prefixes: list[pl.DataFrame] = []
    levels: Levels = []
    for depth in range(1, paths.width + 1):
        columns = paths.columns[:depth]
        prefix = paths.select(columns) if depth == paths.width else paths.select(columns).unique()
        parents = np.zeros(prefix.height, np.int64)
        if prefixes:
            above = prefixes[-1].with_columns(index=pl.int_range(prefixes[-1].height))
            parents = prefix.join(above, on=columns[:-1], how="left", maintain_order="left")["index"].to_numpy()
        names = prefix[columns[-1]]
        prefixes.append(prefix)
        levels.append((names, parents, (names == "").to_numpy()))
    return prefixes, levels


def _check_gaps(paths: pl.DataFrame, prefixes: Sequence[pl.DataFrame], levels: Levels, file: str) -> None:
    """Check that no empty name is followed by another name, and that no leaf has regions below it.

    Args:
        paths: The distinct paths from the root to a leaf.
        prefixes: The prefixes of the paths, by length.
        levels: The regions at each level, as returned by :func:`_list_prefixes`.
        file: The file from which the paths were read, for error messages.

    Raises:
        InputError: Some paths are invalid. There is one fault per invalid path, sorted by path.
    """
    columns = paths.columns
    has_gap = paths[columns[0]] == ""
    for name, following in pairwise(columns):
        has_gap |= (paths[name] == "") & (paths[following] != "")
    has_regions_below = np.zeros(paths.height, np.bool_)
    for depth, (_, parents, is_repeated) in enumerate(levels[1:], start=1):
        # A child with an empty name makes its parent a leaf. If the parent has another child, this leaf has regions
        # below it.
        is_inner = is_repeated & (np.bincount(parents)[parents] > 1)
        if is_inner.any():
            ends = prefixes[depth].filter(is_inner).with_columns(inner=True)
            joined = paths.join(ends, on=columns[: depth + 1], how="left", maintain_order="left")
            has_regions_below |= joined["inner"].fill_null(value=False).to_numpy()
    is_faulty = has_gap.to_numpy() | has_regions_below
    if not is_faulty.any():
        return
    marked = paths.with_columns(gap=has_gap).filter(is_faulty).sort(columns)
    faults = []
    for *path, is_gap in marked.iter_rows():
        length = number_of(sum(map(bool, path)), "level")
        where = f"region {' / '.join(path)}".rstrip(" /")
        if is_gap:
            actual = f"a leaf {length} deep with an empty name above it"
            faults.append(Fault(file, where, actual, "empty names after a leaf's alone, where its branch is short"))
        else:
            actual = f"a leaf {length} deep that has regions below it"
            faults.append(Fault(file, where, actual, "groups in leaf regions alone, whose sums the others are"))
    raise InputError(faults)


def _write_names(prefixes: Sequence[pl.DataFrame], levels: Levels, file: str) -> Levels:
    """Return the regions at each level, with the names used for them in files.

    If several regions share a name, each is named by its path below the root, with names joined by ``/``. If this path
    starts with the root's own name, it also includes the root, because otherwise the root and its child would have the
    same name.

    Args:
        prefixes: The prefixes of the paths, by length.
        levels: The regions at each level, with the last name in each region's path. This name is empty for repeated
            leaves.
        file: The file from which the paths were read, for error messages.

    Raises:
        InputError: Some regions would get the same name. For each name, there is one fault for each region except the
            first.
    """
    own_names = pl.concat([names.filter(~is_repeated) for names, _, is_repeated in levels])
    # Counting the distinct names first is worthwhile, because it takes half as long as marking the shared ones.
    has_shared = own_names.n_unique() < len(own_names)
    shared = own_names.is_duplicated() if has_shared else own_names[:0]
    written_levels: Levels = []
    # The number of entries of `shared` used so far, and the paths and file names of the level above.
    used, path, written = 0, own_names[:0], own_names[:0]
    for level, (names, parents, is_repeated) in enumerate(levels):
        is_new, count = ~is_repeated, int((~is_repeated).sum())
        level_written = names
        if has_shared:
            path = _extend_paths(path, names, parents, level)
            is_shared = np.zeros(len(names), np.bool_)
            is_shared[is_new] = shared[used : used + count].to_numpy()
            level_written = path.zip_with(pl.Series(is_shared), names)
        if is_repeated.any():
            level_written = level_written.zip_with(pl.Series(is_new), written.gather(parents))
        used, written = used + count, level_written.alias("name")
        written_levels.append((written, parents, is_repeated))
    if has_shared:
        _check_written_once(prefixes, written_levels, file)
    return written_levels


def _extend_paths(above: pl.Series, names: pl.Series, parents: Ints, level: int) -> pl.Series:
    """Return the path of each region at a level, with names joined by ``/``.

    Args:
        above: The paths of the regions at the level above.
        names: The names of the regions at this level.
        parents: (regions,) The index of each region's parent.
        level: The index of the level, which is 0 for the root.
    """
    if level == 0:
        return names
    frame = pl.DataFrame({"above": above.gather(parents), "name": names})
    joined = pl.col("above") + "/" + pl.col("name")
    if level == 1:
        # A path omits the root, unless its second name is the same as the root's.
        joined = pl.when(pl.col("above") == pl.col("name")).then(joined).otherwise("name")
    return frame.select(path=joined).to_series()


def _check_written_once(prefixes: Sequence[pl.DataFrame], levels: Levels, file: str) -> None:
    """Check that no two regions have the same name in files.

    Args:
        prefixes: The prefixes of the paths, by length.
        levels: The regions at each level, with their names in files.
        file: The file from which the paths were read, for error messages.

    Raises:
        InputError: Some regions have the same name. For each name, there is one fault for each region except the first,
            sorted by path.
    """
    written = pl.concat([names.filter(~is_repeated) for names, _, is_repeated in levels])
    if not written.is_duplicated().any():
        return
    repeated_names = written.filter(written.is_duplicated()).unique().implode()
    regions: list[tuple[tuple[str, ...], str]] = []
    for prefix, (names, _, is_repeated) in zip(prefixes, levels, strict=True):
        is_alike = names.is_in(repeated_names) & ~pl.Series(is_repeated)
        regions += zip(prefix.filter(is_alike).iter_rows(), names.filter(is_alike).to_list(), strict=True)
    first_by_name: dict[str, tuple[str, ...]] = {}
    faults = []
    for region, name in sorted(regions):
        first = first_by_name.setdefault(name, region)
        if first != region:
            description = f"regions {' / '.join(first)} and {' / '.join(region)}, both written {name!r}"
            faults.append(Fault(file, f"level_{len(region)}", description, "names that are unique over the tree"))
    raise InputError(faults)
