"""Checks of regions' names: totals among their parts, and codes and names that look alike."""

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
"""``totals = "keep"``: values and regions that are called like totals are ordinary ones."""

_CODE: Final = re.compile(r"0*([0-9]+)(\.0*)?")


def find_total_regions(paths: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Find the regions that are called like a total and have siblings; return their paths.

    Args:
        paths: Of the leaf regions, root first.
    """
    children: dict[tuple[str, ...], dict[str, None]] = {}
    for path in paths:
        for level, name in enumerate(path):
            if name:
                children.setdefault(path[:level], {})[name] = None
    return [
        (*parent, name) for parent, names in children.items() for name in find_total_names(names, allow_letters=False)
    ]


def check_totals_among_regions(paths: Iterable[tuple[str, ...]], file: str) -> None:
    """Refuse regions that are called like the total of their siblings, because all individuals would count twice.

    Raises:
        InputError: A fault for each.
    """
    expectation = 'its parts alone, or totals = "keep" in [hierarchy] if it is a region like the others'
    Faults(
        Fault(file, f"region {' / '.join(path)}", "a total beside its parts, by its name", expectation)
        for path in find_total_regions(paths)
    ).check()


def leaf_paths(tree: Tree) -> list[tuple[str, ...]]:
    """Return the path of each leaf region, by the regions' own names."""
    paths: list[tuple[str, ...]] = [()]
    for level, names in enumerate(tree.names):
        parents = tree.parents(level).tolist() if level else [0] * len(names)
        paths = [(*paths[parent], _own_name(name)) for name, parent in zip(names, parents, strict=True)]
    return paths


def warn_of_alike_regions(tree: Tree) -> list[str]:
    """Warn of regions whose codes differ in leading zeros or ``.0`` alone, or whose names look alike."""
    groups: dict[tuple[str, ...], list[str]] = {}
    parent_keys: list[tuple[str, ...]] = [()]
    for level, names in enumerate(tree.names):
        parents = tree.parents(level).tolist() if level else [0] * len(names)
        keys = [(*parent_keys[parent], _plain_code(name)) for name, parent in zip(names, parents, strict=True)]
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


def _plain_code(name: str) -> str:
    """Return a region's own name; a whole number loses leading zeros and decimals."""
    own_name = _own_name(name)
    match = _CODE.fullmatch(own_name)
    return own_name if match is None else match[1].lstrip("0") or "0"


def _own_name(name: str) -> str:
    """Return a region's name without its parents, which are written before names that several regions have."""
    return name.rsplit("/", 1)[-1]


def path_starts_with(path: Sequence[str], prefixes: Iterable[tuple[str, ...]]) -> bool:
    """Return whether a path leads to, or into, one of some regions."""
    return any(tuple(path[: len(prefix)]) == prefix for prefix in prefixes)
