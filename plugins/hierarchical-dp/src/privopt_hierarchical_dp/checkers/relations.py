"""The sensitivity and the wording of a guarantee, derived from the problem file.

The sensitivities are derived in docs/papers/hierarchical-dp.md and in the docstring of
``privopt_hierarchical_dp.relations``. They are repeated here because the checker shares no code with the mechanisms.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from privopt.checker.exact import need

__all__ = ["METHODS", "Promise", "promise_of_sizes", "promise_of_tables"]

METHODS = {
    "cumulative-smoothed": ("cumulative", "always"),
    "cumulative-chain": ("cumulative", "always"),
    "cumulative-dp": ("cumulative", "option"),
    "cumulative": ("cumulative", "option"),
    "hierarchical-dp": ("counts", "option"),
    "hierarchical": ("counts", "option"),
    "top-down": ("counts", "never"),
}
"""What each method of hierarchical-dp measures, and whether it publishes the number of groups in every region.

The second entry is "always", "option" (if the key ``region_totals`` is set) or "never". Methods whose releases can be
inconsistent are not listed.
"""


class Promise:
    """The properties of a guarantee that follow from the problem file and the name of the method.

    Attributes:
        sensitivity: The sensitivity of a table at one level. This is the largest L1 distance between its values for any
            two neighbouring inputs or, for Gaussian notions, the largest squared L2 distance.
        exact: The number of levels, counted from the root, at which totals are published exactly.
        scope: A description of the difference between neighbouring inputs.
        unit: The unit of the budget.
        has_totals: Whether the number of groups in every region is published exactly. If so, the last cumulative count
            is not measured, because it equals this number.
    """

    def __init__(self, sensitivity: int, exact: int, scope: str, unit: str, *, has_totals: bool = False) -> None:
        self.sensitivity, self.exact, self.scope, self.unit = sensitivity, exact, scope, unit
        self.has_totals = has_totals


def count_exact_levels(names: object) -> int:
    """Return the number of exact levels, from the root down to the deepest level named in ``hierarchy.exact``.

    Args:
        names: The value of ``hierarchy.exact``, or None if the key is missing, in which case no level is exact.

    Raises:
        RefusedError: The value is not a list of names ``level_1``, ``level_2``, ...
    """
    if names is None:
        return 0
    is_list = isinstance(names, list) and names and all(re.fullmatch(r"level_[1-9]\d{0,2}", str(n)) for n in names)
    need(is_list, f"problem: hierarchy.exact: {names!r}", 2)
    assert isinstance(names, list)
    return max(int(str(name)[6:]) for name in names)


def read_household(privacy: Mapping[str, Any]) -> int:
    """Return the maximum number of persons in a household, as required by the relation ``replaced``.

    Args:
        privacy: The ``[privacy]`` table of the problem file.

    Raises:
        RefusedError: The number is missing or is not a positive integer.
    """
    household = privacy.get("max_household")
    need(type(household) is int and household >= 1, f"problem: privacy.max_household: {household!r}", 2)
    assert isinstance(household, int)
    return household


def promise_of_sizes(tables: Mapping[str, Any], method: str, depth: int) -> Promise:
    """Return the properties of the guarantee for a release of groups by size.

    Args:
        tables: The contents of the problem file.
        method: The name of the method.
        depth: The number of levels.

    Raises:
        RefusedError: The method or the relation is unknown to the checker, a number is out of range, or the relation is
            not allowed in combination with exact totals or size 0.
    """
    need(method in METHODS, f"method {method!r}: unknown here", 2)
    query, totals = METHODS[method]
    hierarchy, settings = tables["hierarchy"], tables.get("hierarchical-dp", {})
    relation = tables["privacy"].get("relation", "sizes")
    levels, first_size = count_exact_levels(hierarchy.get("exact")), hierarchy.get("first_size", 1)
    classes, steps = hierarchy["sizes"] + 1 - first_size, settings.get("max_quantity", 1)
    need(type(steps) is int, f"problem: max_quantity: {steps!r}: expected a whole number", 2)
    need(first_size in (0, 1) and classes >= 1 and steps >= 1 and levels <= depth, "problem: sizes or levels", 2)
    # Under these relations, neighbours have the same number of groups in every region.
    keeps_numbers = relation in ("sizes", "replaced")
    are_all_exact = levels == depth
    if not levels:
        are_all_exact = keeps_numbers and (
            totals == "always" or (totals == "option" and bool(settings.get("region_totals")))
        )
    exact = depth if are_all_exact else levels or int(keeps_numbers)
    if relation == "sizes":
        # A group moves from one size to another, at most `steps` away.
        unit = "per individual in fixed units" if first_size == 0 else "per individual in fixed groups"
        scope = "one individual moves one existing group by one size"
        return Promise(2 if query == "counts" else steps, exact, scope, unit, has_totals=are_all_exact)
    if relation == "individuals":
        need(not levels and first_size == 1, "problem: relation individuals with exact numbers or size 0")
        unit = "per individual who joins or leaves"
        return Promise(
            2 if query == "counts" else steps, exact, "one individual joins or leaves", unit, has_totals=are_all_exact
        )
    if relation == "groups" and levels:
        # Both removing the old group and adding the new one change values. Within a region, changes that both have in
        # common cancel.
        cumulative = max(1, classes - 1) if are_all_exact else 2 * classes
        scope = f"one group is replaced by another of any size in its region of level_{levels}"
        unit = f"per group of the public numbers of level_{levels}"
        return Promise(2 if query == "counts" else cumulative, exact, scope, unit, has_totals=are_all_exact)
    if relation == "groups":
        scope = "one group of any size appears or vanishes"
        return Promise(1 if query == "counts" else classes, exact, scope, "per group", has_totals=are_all_exact)
    need(relation == "replaced", f"privacy.relation {relation!r}: unknown here", 2)
    household = read_household(tables["privacy"])
    # A change from size i to size j changes |i - j| cumulative counts. Without size 0, the smallest size is 1.
    cumulative = min(household, classes - 1) if first_size == 0 else min(household, classes) - 1
    unit = f"per household of at most {household} persons that is replaced"
    scope = "one household is replaced by another in its region"
    return Promise(2 if query == "counts" else max(1, cumulative), exact, scope, unit, has_totals=are_all_exact)


def promise_of_tables(tables: Mapping[str, Any], kind: str, depth: int) -> Promise:
    """Return the properties of the guarantee for a release of several tables of the same individuals.

    Args:
        tables: The contents of the problem file.
        kind: The privacy notion.
        depth: The number of levels.

    Raises:
        RefusedError: The relation is unknown to the checker, or an exact level does not exist.
    """
    privacy = tables["privacy"]
    relation, levels = privacy.get("relation", "individuals"), count_exact_levels(tables["hierarchy"].get("exact"))
    need(levels <= depth, "problem: hierarchy.exact: more levels than there are", 2)
    if relation == "replaced":
        most = read_household(privacy)
        # All persons in a household can have the same values, so one cell can lose `most` persons while another gains
        # as many.
        change = 2 * most if kind == "pure-dp" else 2 * most**2
        new = "one of as many persons in" if levels else "another in"
        scope = f"one household of at most {most} persons is replaced by {new} its region"
        unit = f"per household of at most {most} persons that is replaced" + " by one of as many" * (levels > 0)
        return Promise(change, levels, scope, unit)
    if relation == "attributes":
        scope = "the values of one individual are replaced by others in the same region"
        return Promise(2, depth, scope, "per individual of a region's public number")
    need(relation in ("individuals", "moves"), f"privacy.relation {relation!r}: unknown here", 2)
    if relation == "individuals" and not levels:
        return Promise(1, 0, "one individual joins or leaves", "per individual who joins or leaves")
    # One cell loses an individual and another gains one, both in the same region on the deepest exact level.
    if levels <= 1:
        scope = "the values of one individual, its region among them, are replaced by others"
        return Promise(2, 1, scope, "per individual of a public number")
    scope = f"the values of one individual are replaced by others in the same region of level_{levels}"
    return Promise(2, levels, scope, f"per individual of the public numbers of level_{levels}")
