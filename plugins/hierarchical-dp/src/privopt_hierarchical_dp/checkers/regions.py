"""Functions that read the regions from published tables, or from a public table of regions."""

from __future__ import annotations

import csv
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

from privopt.checker.exact import need
from privopt.checker.files import Problem

__all__ = ["Regions", "normalize", "read_rows", "written_regions"]


class Regions:
    """The region hierarchy of a published table.

    Attributes:
        parents: The parent of each region, which is "" for the root.
        levels: The names of the regions at each level, sorted by code points. A leaf above the last level is repeated
            at every level below it, because it is measured again at each of them.
        children: The children of each region that has any.
    """

    def __init__(self, parents: dict[str, str], file: str) -> None:
        """Check that the parents form a single tree, and list its levels.

        Args:
            parents: The parent of each region, which is "" for the root.
            file: The name of the file, used in error messages.

        Raises:
            RefusedError: There is not exactly one root, a parent is not a region, or regions form a cycle.
        """
        self.parents = parents
        self.children: dict[str, list[str]] = {}
        for name, parent in parents.items():
            need(name != "" and (parent == "" or parent in parents), f"{file}: parent {parent!r} without rows")
            self.children.setdefault(parent, []).append(name)
        roots = self.children.pop("", [])
        need(len(roots) == 1, f"{file}: {len(roots)} regions without a parent; expected one")
        self.levels = [roots]
        while any(name in self.children for name in self.levels[-1]):
            self.levels.append(sorted(below for name in self.levels[-1] for below in self.children.get(name, [name])))
        # Regions whose parents form a cycle are never reached from the root.
        reached = {name for level in self.levels for name in level}
        need(reached == parents.keys(), f"{file}: regions outside the tree")


def read_rows(path: Path, header: list[str], cells: list[tuple[str, ...]]) -> tuple[dict[str, str], dict[str, Any]]:
    """Read a CSV file whose columns are a region, its parent, the values that identify a cell, and counts.

    Args:
        path: The path of the CSV file.
        header: The names of all columns.
        cells: The values that identify each cell, in order. Every region has one row per cell.

    Returns:
        The parent of each region, and for each cell of each region, the list of integers in its row. Both are keyed by
        region.

    Raises:
        RefusedError: The header is wrong, the regions are not sorted, the cells of a region are not listed in order, or
            a value is not a non-negative integer.
    """
    name, width = path.name, len(header) - 2 - len(cells[0])
    with path.open(encoding="utf8", newline="") as file:
        reader = csv.reader(file, strict=True)
        need(next(reader, None) == header, f"{name}: expected the header {','.join(header)}", 2)
        parents: dict[str, str] = {}
        numbers: dict[str, Any] = {}
        for place, row in enumerate(reader):
            need(len(row) == len(header), f"{name}: row {place + 2}: expected {len(header)} cells")
            region, parent, *rest = row
            if place % len(cells) == 0:
                need(region not in parents, f"{name}: region {region!r} twice")
                # Regions must be sorted by name, because any other order could reveal something.
                need(not parents or next(reversed(parents)) < region, f"{name}: region {region!r} out of order")
                parents[region], numbers[region] = parent, []
            is_cell = parents.get(region) == parent and tuple(rest[: len(rest) - width]) == cells[place % len(cells)]
            is_whole = all(value.isascii() and value.isdigit() for value in rest[len(rest) - width :])
            need(is_cell and region == next(reversed(parents)), f"{name}: row {place + 2}: another cell or region")
            need(is_whole, f"{name}: row {place + 2}: expected whole numbers of at least 0")
            numbers[region].append([int(value) for value in rest[len(rest) - width :]])
    need(parents and all(len(rows) == len(cells) for rows in numbers.values()), f"{name}: cells are missing")
    return parents, numbers


def written_regions(problem: Problem, file: object) -> dict[str, str]:
    """Return the parent of each region in a public table, with regions named as they are in releases.

    If several regions share a name, each is named by its path below the root, joined by ``/``. A path that starts with
    the root's own name also includes the root.

    Args:
        problem: The problem file.
        file: The name of the table, which has the columns ``level_1``, ..., ``level_L``.

    Raises:
        RefusedError: The table is a Parquet file.
    """
    need(not problem.read(file).startswith(b"PAR1"), f"problem/{file}: a Parquet file cannot be read here", 2)
    columns = {str(name).casefold(): cells for name, cells in problem.columns(file).items()}
    depth = sum(name.startswith("level_") for name in columns)
    cells = [[normalize(cell) for cell in columns[f"level_{level + 1}"]] for level in range(depth)]
    paths = {tuple(name for name in path if name) for path in zip(*cells, strict=True)}
    regions = {path[:length] for path in paths for length in range(1, len(path) + 1)}
    times = Counter(region[-1] for region in regions)
    written = {}
    for region in regions:
        keeps_root = len(region) == 1 or region[0] == region[1]
        short = region if keeps_root else region[1:]
        written[region] = "/".join(short) if times[region[-1]] > 1 else region[-1]
    return {written[region]: written.get(region[:-1], "") for region in regions}


def normalize(name: str) -> str:
    """Return a region's name in Unicode normal form C, so that it can be compared with other names.

    Surrounding whitespace has already been removed by :meth:`.Problem.columns`, which strips cells as ``solve`` does.
    """
    return unicodedata.normalize("NFC", name)
