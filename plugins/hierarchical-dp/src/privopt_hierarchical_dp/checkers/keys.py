"""The keys allowed in problem files for counts. Like ``verify``, the checker rejects any other key."""

from __future__ import annotations

from typing import Any

from privopt.checker.exact import need
from privopt.checker.files import Problem

__all__ = ["BUDGETS", "check_keys"]

SIZES_KEYS = "counts units regions totals like bounds exact sizes first_size"
"""The keys of ``[hierarchy]`` for groups by size."""

TABLES_KEYS = "regions records count persons totals attributes tables bounds exact budget confidence"
"""The keys of ``[hierarchy]`` for several tables of individuals."""

TABLE_KEYS = "by share"
"""The keys of ``[hierarchy.tables.NAME]``, which declares a table of individuals called NAME."""

PRIVACY_KEYS = "kind epsilon rho delta relation max_household"
"""The keys of ``[privacy]``. Each notion and relation allows only some of them."""

OPTIONAL_TABLES = {
    "hierarchical-dp": "budget level_weights region_totals confidence max_quantity",
    "plan": "errors",
    "publish": "coefficient_of_variation too_noisy",
}
"""The allowed keys of each optional table in a problem file."""

BUDGETS = {"pure-dp": ("epsilon",), "zcdp": ("rho",), "approx-dp": ("epsilon", "delta")}
"""The keys of ``[privacy]`` that state the budget, for each notion."""


def check_keys(problem: Problem, *, is_of_sizes: bool) -> None:
    """Check that a problem file for counts has only known tables, keys and attribute names.

    Args:
        problem: The problem file.
        is_of_sizes: Whether the file declares groups by size rather than several tables of individuals.

    Raises:
        RefusedError: A table, key or attribute is unknown, a key is not allowed with the problem's notion or relation,
            or a table counts by the same attribute twice.
    """
    problem.allow({"hierarchy", "privacy", *OPTIONAL_TABLES})
    hierarchy = problem.table("hierarchy", SIZES_KEYS if is_of_sizes else TABLES_KEYS)
    privacy = problem.table("privacy", PRIVACY_KEYS)
    for name, keys in OPTIONAL_TABLES.items():
        # In a problem with several tables, [hierarchical-dp] is meant for the other mechanism, and no claim depends on
        # it.
        if name in problem.tables and (is_of_sizes or name != "hierarchical-dp"):
            problem.table(name, keys)
    kind = privacy.get("kind", "pure-dp")
    need(kind in BUDGETS, f"problem: privacy.kind {kind!r}: unknown here", 2)
    household = {"max_household"} if privacy.get("relation") == "replaced" else set()
    others = sorted(privacy.keys() - {"kind", "relation", *BUDGETS[kind]} - household)
    need(not others, f"[privacy]: {others}: not with this kind and relation", 2)
    if not is_of_sizes:
        _check_tables(hierarchy)


def _check_tables(hierarchy: dict[str, Any]) -> None:
    """Check that each table ``[hierarchy.tables.NAME]`` has only known keys and known, distinct attributes.

    Args:
        hierarchy: The ``[hierarchy]`` table of a problem with several tables of individuals.

    Raises:
        RefusedError: A table has an unknown key, an unknown attribute, or the same attribute twice.
    """
    attributes = hierarchy.get("attributes", {})
    for name, table in hierarchy["tables"].items():
        where = f"[hierarchy.tables.{name}]"
        unknown_keys = sorted(table.keys() - {*TABLE_KEYS.split()})
        need(not unknown_keys, f"{where}: {unknown_keys}: unknown here", 2)
        by = table["by"]
        is_list = isinstance(by, list) and all(isinstance(attribute, str) for attribute in by)
        need(is_list and {*by} <= attributes.keys(), f"{where}: by: expected attributes, got {by!r}", 2)
        need(len({*by}) == len(by), f"{where}: by: an attribute twice in {by!r}", 2)
