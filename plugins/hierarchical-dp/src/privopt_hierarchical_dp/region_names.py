"""Check region names for totals listed next to their parts, and for codes or names that look alike.

A country may have ten million regions, so operations on whole columns first find the few names that need a closer look.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
import polars as pl

from privopt.declare.name_forms import MAX_WARNINGS, visible_text, warn_of_look_alikes
from privopt.declare.table_words import find_total_names, may_be_totals
from privopt.errors import Fault, Faults
from privopt_hierarchical_dp.tree import Tree

__all__ = [
    "KEEP",
    "check_totals_among_regions",
    "find_total_regions",
    "path_starts_with",
    "warn_of_alike_regions",
]

KEEP: Final = "keep"
"""The value of the ``totals`` key for treating values and regions named like totals as ordinary ones."""

_CODE: Final = r"^0*([0-9]+)(?:\.0*)?$"
"""A regular expression for a code: an integer, possibly with leading zeros or zeros after the decimal point."""

_UNUSUAL: Final = r"[^!-~ ]|  "
"""A regular expression for two consecutive spaces, or for a character that is neither a space nor visible ASCII.

If two names look alike, it matches at least one of them.
"""


def find_total_regions(paths: pl.DataFrame) -> list[tuple[str, ...]]:
    """Return the regions whose names suggest that they are totals of their siblings.

    Args:
        paths: A table with one row per leaf region. The row contains the region's path from the root, padded with empty
            names if it is short.

    Returns:
        The paths of these regions, sorted.
    """
    totals: list[tuple[str, ...]] = []
    for level, column in enumerate(paths.columns):
        above = paths.columns[:level]
        has_candidate = paths.filter(may_be_totals(paths[column]))
        if has_candidate.is_empty():
            continue
        # Only the siblings of such names need to be compared, so the other regions are left out.
        parents = has_candidate.select(above).unique()
        inside = paths.join(parents, on=above, how="semi") if above else paths
        children: dict[tuple[str, ...], list[str]] = {}
        for *parent, name in inside.select(*above, column).unique().sort(*above, column).iter_rows():
            if name:
                children.setdefault(tuple(parent), []).append(name)
        for parent_path, names in children.items():
            totals += [(*parent_path, name) for name in find_total_names(names, allow_letters=False)]
    return sorted(totals)


def check_totals_among_regions(paths: pl.DataFrame, file: str) -> None:
    """Check that no region's name suggests that it is the total of its siblings.

    Such a region would cause individuals to be counted twice.

    Args:
        paths: A table with one row per leaf region. The row contains the region's path from the root.
        file: The name of the file, for error messages.

    Raises:
        InputError: A region has such a name. There is one fault for each of these regions.
    """
    expectation = 'its parts alone, or totals = "keep" in [hierarchy] if it is a region like the others'
    Faults(
        Fault(file, f"region {' / '.join(path)}", "a total beside its parts, by its name", expectation)
        for path in find_total_regions(paths)
    ).check()


def warn_of_alike_regions(tree: Tree) -> list[str]:
    """Return warnings about regions that are probably the same region spelled differently.

    These are regions whose codes differ only in leading zeros or ``.0``, or whose names look alike.
    """
    groups = _find_alike_codes(tree)
    lines = [
        f"regions {' and '.join(map(repr, group[:3]))} are different, but their codes differ in leading zeros or .0 "
        "alone: write them alike if they are one"
        for group in groups[:MAX_WARNINGS]
    ]
    if len(groups) > MAX_WARNINGS:
        lines.append(f"{len(groups) - MAX_WARNINGS:,} more groups of regions have codes that differ in these alone")
    return lines + warn_of_look_alikes(_find_unusual_names(tree), "regions")


def _find_alike_codes(tree: Tree) -> list[list[str]]:
    """Group regions whose codes differ only in leading zeros or in zeros after the decimal point.

    Regions are grouped only if the codes of their ancestors are also the same or differ only in this way.

    Returns:
        The names of the regions in each group, in the order of the tree.
    """
    codes_by_level = [_normalize_codes(names) for names in tree.columns]
    # If no code changes when it is normalised, no two codes differ only in zeros.
    if not any((codes != _own_names(names)).any() for codes, names in zip(codes_by_level, tree.columns, strict=True)):
        return []
    groups: list[list[str]] = []
    # The keys of the regions on the level above. Regions that are alike have the same key, the position of the first of
    # them.
    parent_keys = np.zeros(1, np.int64)
    for level, (names, own_codes) in enumerate(zip(tree.columns, codes_by_level, strict=True)):
        keys = np.arange(len(names))
        above = parent_keys[tree.parents(level)] if level else parent_keys
        codes = pl.DataFrame({"above": above, "name": own_codes, "place": keys})
        is_alike = codes.select("above", "name").is_duplicated()
        if is_alike.any():
            alike = codes.filter(is_alike).group_by("above", "name", maintain_order=True).agg("place")
            for places in alike["place"].to_list():
                groups.append(names.gather(places).to_list())
                keys[places] = places[0]
        parent_keys = keys
    return groups


def _normalize_codes(names: pl.Series) -> pl.Series:
    """Return each region's own name, with integers in a canonical form.

    If a name is an integer such as ``007`` or ``7.0``, leading zeros and zeros after the decimal point are removed.
    """
    own_names = _own_names(names)
    code = own_names.str.extract(_CODE, 1).str.strip_chars_start("0")
    return code.replace("", "0").zip_with(code.is_not_null(), own_names)


def _own_names(names: pl.Series) -> pl.Series:
    """Return each region's own name, without the path prepended to names shared by several regions."""
    return names.str.extract(r"([^/]*)$", 1) if names.str.contains("/", literal=True).any() else names


def _find_unusual_names(tree: Tree) -> list[str]:
    """Return the names that might be confused with others.

    These are the names with easily overlooked characters, and any other names that look like one of them. The remaining
    names differ from one another in visible characters, so no two of them look alike.
    """
    names = pl.concat(tree.columns)
    is_unusual = names.str.contains(_UNUSUAL)
    if not is_unusual.any():
        return []
    unusual = names.filter(is_unusual).unique()
    seen = pl.Series([visible_text(name) for name in unusual.to_list()], dtype=pl.String)
    candidates: list[str] = names.filter(is_unusual | names.is_in(seen.implode())).to_list()
    return candidates


def path_starts_with(path: Sequence[str], prefixes: Iterable[tuple[str, ...]]) -> bool:
    """Return whether a region's path starts with any of the given prefixes."""
    return any(tuple(path[: len(prefix)]) == prefix for prefix in prefixes)
