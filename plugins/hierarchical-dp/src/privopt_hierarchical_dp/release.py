"""The release: counts for every region and cell, their intervals, and the noisy values to which they were fitted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.files.archive import read_arrays
from privopt.files.regular import Unreadable, read_bytes
from privopt.interfaces import Release
from privopt_hierarchical_dp.noise_distributions import (
    GEOMETRIC,
    NoiseDistribution,
    Scale,
    read_scales,
    scale_texts,
)
from privopt_hierarchical_dp.region_tables import Layout, read_rows, write_rows
from privopt_hierarchical_dp.shares import Split
from privopt_hierarchical_dp.tree import Tree, past_sums, sum_axes

__all__ = [
    "ENDS",
    "ERRORS",
    "INSIDE",
    "NOISY",
    "PUBLICATION",
    "HierarchyRelease",
    "Tables",
    "errors_of",
    "numbers_of",
    "violations",
]

NOISY: Final = "noisy.npz"
"""The name of the file that contains the noisy values, the noise scales and the exact totals."""
LEVELS: Final = "level_{}"
TOTALS: Final = "totals_{}"
"""Templates for the names of arrays in noisy.npz. The placeholder stands for the level.

The table's name, if it has one, is prepended to ``LEVELS``.
"""
SPLIT: Final = ("split_levels", "split_tables")
"""The names of the arrays of budget shares in noisy.npz. They are absent if the problem file determines the shares."""
PUBLICATION: Final = "publish"
"""The folder of the tables for readers, in which cells that are too noisy are marked or suppressed."""
ENDS: Final = ("low", "high")
"""The names of the columns with the lower and upper ends of the intervals."""
ERRORS: Final = "l1_error_by_table_and_level"
INSIDE: Final = "share_of_intervals_that_hold_by_table_and_level"
"""Keys in private/truth.json. The value of each key lists, for every table, one number per level."""
Tables: TypeAlias = list[list[Ints]]
"""One array of shape (regions, ...) for each table and level. The outer list contains the tables."""


@frozen(kw_only=True, eq=False)
class HierarchyRelease(Release):
    """Tables of counts for every region, together with their intervals and the noisy values to which they were fitted.

    Attributes:
        tree: The region tree.
        layout: The files that make up the release, and how its tables are laid out in them.
        counts: For each table and level, an array of shape (regions, ...) with the counts of all cells.
        noisy: For each table and level, an array of shape (regions, ...) with the noisy values. If a table was not
            measured at a level, its values there are derived from other noisy values and exact totals.
        totals: The totals that are published exactly, as one array of shape (regions,) per level that has them, from
            the root down. Empty if no totals are published exactly.
        scales: The exact noise scale of each table at each level (a variance for Gaussian noise), or None where a table
            was not measured.
        law: The noise distribution.
        bounds: For each table and level, the lower and upper ends of the intervals, each of shape (regions, cells).
            They are computed from public values, at the problem's confidence level. None if the method provides no
            intervals.
        truth: The true counts, in the same form as ``counts``. They are written only to ``private/``. None if the
            release was read from files.
        publication: The reader-facing tables, in which overly noisy cells are marked or suppressed, as a mapping from
            path to file contents. Empty if the problem file requests no such tables.
        split: The budget shares of the levels and of the tables, as chosen by the search in :mod:`.plan`. They are
            stored with the release because the search may find other shares on another machine. None if the problem
            file fixes the shares.
    """

    tree: Tree
    layout: Layout
    counts: Tables
    noisy: Tables
    totals: list[Ints]
    scales: Sequence[Sequence[Scale]]
    law: NoiseDistribution = GEOMETRIC
    bounds: list[list[tuple[Ints, Ints]]] | None = field(default=None, repr=False)
    truth: Tables | None = field(default=None, repr=False)
    publication: Mapping[str, bytes] = field(factory=dict, repr=False)
    split: tuple[Split, Split] | None = None

    def write(self, folder: Path) -> None:
        """Write the release to a folder: tables and intervals as CSV files, and noisy values as ``noisy.npz``.

        In ``noisy.npz``, the array for a level has one row per region, sorted by region name.
        """
        for number, form in enumerate(self.layout.forms):
            files = {form.file: {form.count: self.counts[number]}}
            if self.bounds is not None:
                bound_columns = {name: [level[k] for level in self.bounds[number]] for k, name in enumerate(ENDS)}
                # Intervals are written to the same file as the counts or to a separate file.
                files[form.intervals] = files.get(form.intervals, {}) | bound_columns
            for name, columns in files.items():
                (folder / name).parent.mkdir(exist_ok=True)
                write_rows(folder / name, self.tree, form.cells, columns)
        # All noisy values go into a single archive, whose array names begin with the table's name.
        arrays = _by_name(TOTALS, self.tree, self.totals)
        for form, noisy, scales in zip(self.layout.forms, self.noisy, self.scales, strict=True):
            arrays |= _by_name(form.prefix + LEVELS, self.tree, noisy)
            arrays[form.prefix + self.law.scales_name] = scale_texts(scales)
        for name, shares in zip(SPLIT, self.split or (), strict=False):
            # A share of 0 is written as an empty string, like the scale of an unmeasured level.
            arrays[name] = scale_texts([share or None for share in shares])
        with (folder / NOISY).open("wb") as stream:
            np.savez_compressed(stream, **arrays)
        for name, contents in self.publication.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_bytes(contents)

    def write_private(self, folder: Path) -> None:
        """Write the true counts to the owner's private folder, in the same format as the released counts.

        Nothing is written if the release does not contain the true counts.
        """
        for form, truth in zip(self.layout.forms if self.truth else (), self.truth or (), strict=True):
            (folder / form.private).parent.mkdir(exist_ok=True)
            write_rows(folder / form.private, self.tree, form.cells, {form.count: truth})

    @property
    def numbers(self) -> list[Ints]:
        """The released total of every region at each level, computed from the first table."""
        return numbers_of(self.counts)

    @classmethod
    def read(cls, folder: Path, problem: tuple[Any, Tree | None]) -> HierarchyRelease:
        """Read a release written by :meth:`write`.

        Args:
            folder: The release folder.
            problem: The parsed problem file of either mechanism, and the region tree. If the tree is None, it is built
                from the released counts.

        Raises:
            InputError: A file is missing or malformed, or its rows do not match the problem's regions and values.
        """
        declared, tree = problem
        layout: Layout = declared.layout
        counts: Tables = []
        bounds: list[list[tuple[Ints, Ints]]] = []
        for form in layout.forms:
            has_intervals_inside = form.intervals == form.file
            # If the tree is not given, the first table defines it for all tables.
            tree, (count_levels, *bound_levels) = read_rows(
                folder / form.file, form.cells, (form.count, *ENDS * has_intervals_inside), tree
            )
            if not has_intervals_inside and (folder / form.intervals).exists():
                _, bound_levels = read_rows(folder / form.intervals, form.cells, ENDS, tree)
            counts.append([level.reshape(len(level), *form.shape) for level in count_levels])
            # A method without intervals has written none.
            bounds += [list(zip(*bound_levels, strict=True))] if bound_levels else []
        assert tree is not None  # there is at least one table
        noisy, scales, totals, split = _read_noisy(folder / NOISY, tree, layout, declared.privacy.law)
        return cls(
            tree=tree,
            layout=layout,
            counts=counts,
            noisy=noisy,
            totals=totals,
            scales=scales,
            law=declared.privacy.law,
            split=split,
            bounds=bounds or None,
            publication=_read_publication(folder) if declared.publish.coefficient_of_variation is not None else {},
        )

    def past_sums(self) -> list[str]:
        """Return a message for each file and level with values so large that their sums could overflow 64-bit integers.

        Call this before any other check, because an overflow would invalidate the other results.
        """
        levels_by_file = [(f"{NOISY}: {TOTALS}", [past_sums(level) for level in self.totals])]
        for form, counts, noisy in zip(self.layout.forms, self.counts, self.noisy, strict=True):
            levels_by_file.append((form.file, [past_sums(level) for level in counts]))
            # The checks add up noisy values within a region, but never across regions.
            levels_by_file.append((f"{NOISY}: {form.prefix}{LEVELS}", [past_sums(level, rows=True) for level in noisy]))
        complaint = f"has numbers that add up to 2^61 or more; no release has as many {self.layout.noun}"
        return [
            f"{file.format(n)}: level {n} {complaint}"
            for file, are_over_limit in levels_by_file
            for n, is_over_limit in enumerate(are_over_limit, 1)
            if is_over_limit
        ]

    def complaints(self) -> list[str]:
        """Return a message for each condition violated by a table at a level, naming the first region affected.

        Counts must be non-negative, children must add up to their parent, tables must agree on shared attributes, and
        exact totals must be preserved. If values are so large that sums could overflow, the messages of
        :meth:`past_sums` are returned instead.
        """
        # Sums of larger numbers could overflow, and a wrong release could then pass the checks below.
        if lines := self.past_sums():
            return lines
        forms, tree = self.layout.forms, self.tree
        for number, (form, levels) in enumerate(zip(forms, self.counts, strict=True)):
            for level, counts in enumerate(levels):
                # One row per region, with one column per cell.
                rows = counts.reshape(len(counts), -1)
                if rows.min(initial=0) < 0:
                    name = tree.name_of(level, int(np.argmin(rows.min(axis=1))))
                    lines.append(f"{form.file}: region {name!r} has a negative count")
                # Exact totals exist for the first levels, counted from the root: for none, some or all of them.
                if level < len(self.totals):
                    for region in np.flatnonzero(rows.sum(axis=1) != self.totals[level])[:1].tolist():
                        actual = f"has {int(rows[region].sum())} {self.layout.noun}"
                        exact = f"the total published is {int(self.totals[level][region])}"
                        lines.append(f"{form.file}: region {tree.name_of(level, region)!r} {actual}; {exact}")
                if level + 1 < tree.depth:
                    child_sums = np.add.reduceat(levels[level + 1], tree.start[level][:-1], axis=0).reshape(rows.shape)
                    wrong_cells = np.argwhere(child_sums != rows)
                    for region, cell in wrong_cells[:1].tolist():
                        first_place = f"the first in region {tree.name_of(level, region)!r}{form.cell(cell)}"
                        complaint = f"{len(wrong_cells)} counts of level {level + 1} are not the sums of their children"
                        lines.append(f"{form.file}: {complaint}, {first_place}")
                # Two tables must agree after both are summed over the attributes that they do not share.
                for other_form, other_levels in zip(forms[:number], self.counts, strict=False):
                    shared = tuple(attribute for attribute in form.margin if attribute in other_form.margin)
                    differences = sum_axes(counts, form.margin, shared) != sum_axes(
                        other_levels[level], other_form.margin, shared
                    )
                    for region in np.flatnonzero(differences.reshape(len(differences), -1).any(axis=1))[:1].tolist():
                        disagrees = f"does not agree with {other_form.name} on what they share"
                        lines.append(f"{form.file}: region {tree.name_of(level, region)!r} {disagrees}")
        return lines


def _read_publication(folder: Path) -> dict[str, bytes]:
    """Read the reader-facing tables from a release folder, and return a mapping from relative path to file contents.

    Raises:
        InputError: A file cannot be read.
    """
    contents = {}
    for path in sorted((folder / PUBLICATION).glob("*.csv")):
        name = f"{PUBLICATION}/{path.name}"
        try:
            contents[name] = read_bytes(path)
        except Unreadable as error:
            raise InputError([Fault(name, "", error.actual, "a table for readers")]) from None
    return contents


def _by_name(name: str, tree: Tree, levels: Sequence[Ints]) -> dict[str, Any]:
    """Return one named array per level, with the rows sorted by region name as in the release's files.

    Args:
        name: The name of each array, with a placeholder for the level number, which starts at 1.
        tree: The region tree.
        levels: For each level, an array of shape (regions, ...) in the order of the tree.
    """
    return {name.format(k): values[tree.by_name(k - 1)] for k, values in enumerate(levels, start=1)}


def _read_noisy(
    path: Path, tree: Tree, layout: Layout, law: NoiseDistribution
) -> tuple[Tables, list[tuple[Scale, ...]], list[Ints], tuple[Split, Split] | None]:
    """Read the noisy values, noise scales, exact totals and budget shares from ``noisy.npz``.

    Args:
        path: The path of the file.
        tree: The region tree.
        layout: The layout of the release's tables.
        law: The noise distribution, which determines the names of the arrays that contain the scales.

    Returns:
        A tuple of the noisy values by table and level, the scales by table and level, the exact totals by level from
        the root down, and the budget shares of levels and tables. The last item is None if the file contains no shares.

    Raises:
        InputError: The file cannot be read, it contains an unknown array or lacks a required one, an array has the
            wrong type or shape, or scales or shares are invalid.
    """
    widths, scales_name = list(enumerate(tree.widths, start=1)), law.scales_name
    required_arrays: dict[str, Any] = {form.prefix + scales_name: (np.str_, (tree.depth,)) for form in layout.forms}
    for form in layout.forms:
        level_name = form.prefix + LEVELS
        required_arrays |= {level_name.format(k): (np.int64, (width, *form.measured)) for k, width in widths}
    total_arrays: dict[str, Any] = {TOTALS.format(k): (np.int64, (width,)) for k, width in widths}
    split_arrays: dict[str, Any] = dict(
        zip(SPLIT, ((np.str_, (tree.depth,)), (np.str_, (len(layout.forms),))), strict=True)
    )
    # An array has at most 8 bytes per value, and the archive has some headers. A larger file is rejected without being
    # read.
    values = 1 + max(int(np.prod(form.shape)) for form in layout.forms)
    headers = 4096 * (len(required_arrays) + len(total_arrays) + len(split_arrays))
    optional_arrays = total_arrays | split_arrays
    arrays = read_arrays(path, required_arrays, optional=optional_arrays, largest=8 * values * tree.regions + headers)
    # Rows are stored in the order of names. The inverse permutation restores the order of the tree.
    row_orders = [np.argsort(tree.by_name(level)) for level in range(tree.depth)]
    noisy = [
        [arrays[(form.prefix + LEVELS).format(k)][rows] for k, rows in enumerate(row_orders, start=1)]
        for form in layout.forms
    ]
    scales = [read_scales(path, name, arrays[name]) for name in (form.prefix + scales_name for form in layout.forms)]
    totals = [arrays[name][rows] for name, rows in zip(total_arrays, row_orders, strict=True) if name in arrays]
    return noisy, scales, totals, _read_split(path, [arrays.get(name) for name in SPLIT])


def _read_split(path: Path, texts: Sequence[Any]) -> tuple[Split, Split] | None:
    """Parse the budget shares of levels and tables, which are stored as arrays of strings.

    Args:
        path: The path of the file that contains the arrays, for error messages.
        texts: The array of the levels' shares and the array of the tables' shares, each None if it is missing.

    Returns:
        The shares of the levels and of the tables, or None if both arrays are missing.

    Raises:
        InputError: Only one of the two arrays exists, or the shares are invalid. Valid shares are non-negative
            rationals that add up to 1.
    """
    if all(block is None for block in texts):
        return None
    blocks: list[Split] = []
    for name, block in zip(SPLIT, texts, strict=True):
        scales = () if block is None else read_scales(path, name, block)
        shares = tuple(Fraction(0) if share is None else share for share in scales)
        if sum(shares) != 1:
            raise InputError([Fault(str(path), name, "other values", "shares of the budget that add up to 1")])
        blocks.append(shares)
    return blocks[0], blocks[1]


def numbers_of(counts: Tables) -> list[Ints]:
    """Return the total of every region, computed from the first table, as one array of shape (regions,) per level."""
    return [level.reshape(len(level), -1).sum(axis=1) for level in counts[0]]


def errors_of(released: Ints, true: Ints, first_size: int = 1) -> dict[str, int]:
    """Compute three measures of the error in the released counts at one level, each summed over the level's regions.

    Args:
        released: Array of shape (regions, sizes) with the released counts.
        true: Array of shape (regions, sizes) with the true counts.
        first_size: The group size to which column 0 refers.

    Returns:
        ``l1_error``, the sum of the absolute errors of the counts; ``earth_movers``, the smallest total change in group
        sizes that turns the released counts into the true ones, ignoring errors in the totals; and ``individuals``, the
        absolute error in the number of individuals implied by the counts. For the last measure, every group in the
        open-ended last class ("N or more") is assumed to have N individuals.
    """
    errors = released - true
    # A group in the last class has N or more individuals. It counts as N here.
    individuals = np.abs(errors @ np.arange(first_size, errors.shape[1] + first_size))
    # In one dimension, the earth mover's distance is the sum of absolute differences between cumulative counts. The
    # last difference is that of the totals, which moves between sizes cannot correct.
    moved = np.abs(np.cumsum(errors, axis=1)[:, :-1])
    return {
        "l1_error": int(np.abs(errors).sum()),
        "earth_movers": int(moved.sum()),
        "individuals": int(individuals.sum()),
    }


def violations(tree: Tree, counts: Tables) -> int:
    """Count the cells whose value differs from the sum of that cell's values in the child regions.

    This is the number of constraint violations, called #CV by Fioretto et al. (2021).

    Args:
        tree: The region tree.
        counts: For each table and level, an array of shape (regions, ...) with the counts.
    """
    return sum(
        int(np.count_nonzero(np.add.reduceat(child_counts, start[:-1], axis=0) != counts_of_level))
        for levels in counts
        for start, counts_of_level, child_counts in zip(tree.start, levels, levels[1:], strict=False)
    )
