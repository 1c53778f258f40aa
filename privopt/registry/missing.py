"""The distributions of this project, as the core's own metadata list them, and which of them are not installed."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, requires
from typing import Final

from privopt.specs import GROUP

EXTRA: Final = "all"
"""Extra of the core under which its pyproject.toml lists the project's distributions."""

_REQUIREMENT: Final = re.compile(rf"([\w.-]+).*;.*\bextra\s*==\s*['\"]{EXTRA}['\"].*", re.DOTALL)


@cache
def project_distributions() -> tuple[str, ...]:
    """Return the names of the project's distributions besides the core; none if the core's metadata are damaged."""
    try:
        requirements = requires(GROUP) or []
    except (PackageNotFoundError, ValueError, OSError):  # a copy of the sources without metadata, or damaged ones
        return ()
    matches = map(_REQUIREMENT.fullmatch, requirements)
    return tuple(match[1] for match in matches if match is not None)


def describe_missing_distributions() -> list[str]:
    """Return a sentence on the project's distributions that are not installed; an empty list if all are."""
    missing = [name for name in project_distributions() if not _is_installed(name)]
    if not missing:
        return []
    return [f"not installed: {', '.join(missing)} (the extra {EXTRA!r} of {GROUP} has them)"]


def _is_installed(name: str) -> bool:
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
