"""The key ``[hierarchy] exact``, which names the levels whose totals are published exactly, without noise.

Totals are additive, so exact totals at one level make the totals at all levels above it exact. The key therefore
selects all levels from the root down to the deepest one named.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from privopt.errors import Fault, InputError

__all__ = ["EXACT_HELP", "check_level_names", "count_exact_levels", "list_exact_levels", "require_levels"]

LEVEL_NAME: Final = re.compile(r"level_([1-9][0-9]{0,2})")
EXACT_HELP: Final = (
    'as ["level_1"]: levels on which every region\'s number of {} is published exactly, without noise, and so on all '
    "levels above; inputs are neighbours only if these numbers agree; default: what the relation and the method say"
)
"""The help text of the key. The placeholder is replaced by the plural noun for what is counted."""


def check_level_names(value: Sequence[str]) -> str | None:
    """Return None if ``value`` is a valid list of level names, and a description of valid lists otherwise."""
    is_valid = value and len(set(value)) == len(value) and all(LEVEL_NAME.fullmatch(name) for name in value)
    return None if is_valid else "level_1, ..., level_L, each at most once"


def count_exact_levels(names: Sequence[str] | None) -> int:
    """Return the number of exact levels, from the root down to the deepest level named.

    >>> count_exact_levels(["level_2"]), count_exact_levels(None)
    (2, 0)
    """
    return max((int(name.removeprefix("level_")) for name in names or ()), default=0)


def list_exact_levels(count: int) -> list[str]:
    """Return the names of the top ``count`` levels, from the root down."""
    return [f"level_{level}" for level in range(1, count + 1)]


def require_levels(names: Sequence[str] | None, depth: int, file: str) -> None:
    """Check that the hierarchy has all of the named levels.

    Args:
        names: The value of the key ``exact``, or None if it is missing.
        depth: The number of levels in the hierarchy.
        file: The name of the problem file, used in error messages.

    Raises:
        InputError: The key names a level that does not exist.
    """
    if (count := count_exact_levels(names)) > depth:
        expectation = f"levels from level_1 to level_{depth}"
        raise InputError([Fault(file, "hierarchy.exact", f"level_{count}", expectation)])
