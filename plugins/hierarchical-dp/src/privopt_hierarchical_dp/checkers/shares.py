"""The shares of the budget that a problem file gives to each table and level."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from privopt.checker.exact import need, number

__all__ = ["stated_parts"]

LEAF_PARTS = 127
"""The leaf level's weight divided by the number of levels above it, if the problem file gives shares only for tables.

Each level above the leaves has weight 1. The leaves therefore get 127/128 of the budget, and the other levels divide
the rest evenly.
"""


def stated_parts(
    tables: Mapping[str, Any], depth: int, are_exact: list[list[bool]], *, is_of_sizes: bool
) -> list[list[Fraction]] | None:
    """Return the fraction of the budget that the problem file allots to each table at each level.

    The fractions sum to 1.

    Args:
        tables: The contents of the problem file.
        depth: The number of levels.
        are_exact: For each table and level, whether the table contains only exact totals there. Such a table gets no
            budget at that level. The level's budget is divided among the other tables.
        is_of_sizes: Whether the problem is about groups by size.

    Returns:
        One list of fractions per table, ordered by level, or None if the file does not state any shares.

    Raises:
        RefusedError: A share is negative, the share of the leaves or of all tables is 0, the number of shares differs
            from the number of levels, or nothing is measured.
    """
    hierarchy = tables["hierarchy"]
    budget = (tables.get("hierarchical-dp", {}) if is_of_sizes else hierarchy).get("budget")
    shares = [Fraction(1)] if is_of_sizes else [number(t.get("share", 1)) for t in hierarchy["tables"].values()]
    if budget is None and all(share == 1 for share in shares):
        return None
    levels = [Fraction(1)] * (depth - 1) + [Fraction(max(1, LEAF_PARTS * (depth - 1)))]
    if budget is not None:
        need(isinstance(budget, list) and len(budget) == depth, f"problem: budget: expected {depth} shares", 2)
        levels = [number(share) for share in budget]
    need(min(levels) >= 0 and levels[-1] > 0, "problem: budget: expected shares of at least 0, the last above 0", 2)
    need(min(shares) >= 0 and max(shares) > 0, "problem: share: expected shares of at least 0, one above 0", 2)
    parts = [[Fraction(0)] * depth for _ in shares]
    for level, level_share in enumerate(levels):
        measured = [0 if exact[level] else share for share, exact in zip(shares, are_exact, strict=True)]
        for table, share in enumerate(measured):
            parts[table][level] = level_share * share / sum(measured) if share else Fraction(0)
    total = sum(map(sum, parts), Fraction(0))
    need(total, "problem: no table has anything to measure", 2)
    return [[part / total for part in table_parts] for table_parts in parts]
