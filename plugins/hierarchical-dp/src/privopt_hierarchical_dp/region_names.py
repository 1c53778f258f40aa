"""Checks of region names: totals listed among their parts, and codes or names that look alike."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from privopt.declare.name_forms import MAX_WARNINGS, warn_of_look_alikes
from privopt.errors import Fault, Faults
from privopt_hierarchical_dp.tables.table_words import find_total_names
from privopt_hierarchical_dp.tree import Tree

__all__ = [
    "KEEP",
    "check_totals_among_regions",
    "find_total_regions",
    "leaf_paths",
    "path_starts_with",
    "warn_of_alike_regions",
]

KEEP: Final = "keep"
"""Value of ``totals`` by which values and regions named like totals are ordinary values and regions."""

_CODE: Final = re.compile(r"0*([0-9]+)(\.0*)?")
"""A whole number, perhaps with leading zeros or with zeros after the point, as spreadsheets write codes."""


def find_total_regions(paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Return the regions that have siblings and are named like a total of them.

    Args:
        paths: The paths of the leaf regions, root first.

    Returns:
        The paths of these regions.
    """
    # The names of the children of each region; a dict keeps their order.
    children: dict[tuple[str, ...], dict[str, None]] = {}
    for path in paths:
        for level, name in enumerate(path):
            if name:
                children.setdefault(path[:level], {})[name] = None
    return [
        (*parent, name) for parent, names in children.items() for name in find_total_names(names, allow_letters=False)
    ]


def check_totals_among_regions(paths: Iterable[tuple[str, ...]], file: str) -> None:
    """Raise InputError for regions named like a total of their siblings, because individuals would count twice.

    Args:
        paths: The paths of the leaf regions, root first.
        file: Name of the file, for faults.

    Raises:
        InputError: There are such regions. Each has a fault.
    """
    expectation = 'its parts alone, or totals = "keep" in [hierarchy] if it is a region like the others'
    Faults(
        Fault(file, f"region {' / '.join(path)}", "a total beside its parts, by its name", expectation)
        for path in find_total_regions(paths)
    ).check()


def leaf_paths(tree: Tree) -> list[tuple[str, ...]]:
    """Return the path of each leaf region, root first. Names are those of the input, before ``/`` makes them unique."""
    paths: list[tuple[str, ...]] = [()]
    for level, names in enumerate(tree.names):
        parents = tree.parents(level).tolist() if level else [0] * len(names)
        paths = [(*paths[parent], _own_name(name)) for name, parent in zip(names, parents, strict=True)]
    return paths


def warn_of_alike_regions(tree: Tree) -> list[str]:
    """Return warnings about regions whose codes differ only in leading zeros or ``.0``, or whose names look alike.

    Such regions are probably one region that is written in two ways.
    """
    groups: dict[tuple[str, ...], list[str]] = {}
    parent_keys: list[tuple[str, ...]] = [()]
    for level, names in enumerate(tree.names):
        parents = tree.parents(level).tolist() if level else [0] * len(names)
        # Regions are alike only if all regions above them are.
        keys = [(*parent_keys[parent], _normalize_code(name)) for name, parent in zip(names, parents, strict=True)]
        for name, key in zip(names, keys, strict=True):
            groups.setdefault(key, []).append(name)
        parent_keys = keys
    equal_names = [group for group in groups.values() if len(group) > 1]
    lines = [
        f"regions {' and '.join(map(repr, group[:3]))} are different, but their codes differ in leading zeros or .0 "
        "alone: write them alike if they are one"
        for group in equal_names[:MAX_WARNINGS]
    ]
    if len(equal_names) > MAX_WARNINGS:
        lines.append(
            f"{len(equal_names) - MAX_WARNINGS:,} more groups of regions have codes that differ in these alone"
        )
    return lines + warn_of_look_alikes((name for names in tree.names for name in names), "regions")


def _normalize_code(name: str) -> str:
    """Return a region's own name. If it is a whole number, leading zeros and decimal zeros are removed."""
    own_name = _own_name(name)
    match = _CODE.fullmatch(own_name)
    return own_name if match is None else match[1].lstrip("0") or "0"


def _own_name(name: str) -> str:
    """Return a region's name without the path that is written before names shared by several regions."""
    return name.rsplit("/", 1)[-1]


def path_starts_with(path: Sequence[str], prefixes: Iterable[tuple[str, ...]]) -> bool:
    """Return whether a path starts with one of the prefixes, which are paths of regions."""
    return any(tuple(path[: len(prefix)]) == prefix for prefix in prefixes)
