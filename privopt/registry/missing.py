"""Messages about missing libraries and missing packages of this project, based on the core's metadata."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, requires
from typing import Final

CORE: Final = "privopt-core"
"""The distribution that contains the ``privopt`` package."""
INSTALL_ALL: Final = "pip install privopt"
"""The command that installs the core and all distributions of the project."""
EXTRA: Final = "all"
"""The extra of the core package that lists the project's distributions. It is defined in pyproject.toml."""

# Matches an extra's requirement, such as "name >=1; extra == 'tables'", and captures the distribution and the extra.
# All other requirements are installed together with the core.
_REQUIREMENT: Final = re.compile(r"([\w.-]+).*;.*\bextra\s*==\s*['\"]([\w.-]+)['\"].*", re.DOTALL)


def project_distributions() -> tuple[str, ...]:
    """Return the names of the project's packages other than the core.

    The result is empty if the core's metadata is missing or damaged.
    """
    return tuple(name for name, extra in _optional_requirements() if extra == EXTRA)


def describe_missing_library(error: ModuleNotFoundError) -> str | None:
    """Return a sentence that gives the command for installing a missing library.

    Returns None if the library is not an optional requirement of the core.

    Args:
        error: The error that was raised when the library was imported.
    """
    module = (error.name or "").partition(".")[0]
    extras = [extra for name, extra in _optional_requirements() if name == module and extra != EXTRA]
    return f"{module} is not installed; 'pip install {CORE}[{extras[0]}]' brings it" if extras else None


@cache
def _optional_requirements() -> tuple[tuple[str, str], ...]:
    """Return the requirements of the core's extras as pairs (package, extra), such as (polars, tables)."""
    try:
        requirements = requires(CORE) or []
    except (PackageNotFoundError, ValueError, OSError):  # metadata is missing (a copy of the sources) or damaged
        return ()
    matches = map(_REQUIREMENT.fullmatch, requirements)
    return tuple((match[1], match[2]) for match in matches if match is not None)


def describe_missing_distributions() -> list[str]:
    """Return a list containing one sentence that names the project's missing packages.

    The list is empty if no packages are missing.
    """
    missing = [name for name in project_distributions() if not _is_installed(name)]
    if not missing:
        return []
    return [f"not installed: {', '.join(missing)}; {INSTALL_ALL!r} brings all"]


def _is_installed(name: str) -> bool:
    """Return whether a distribution's metadata is installed. The distribution is not imported."""
    try:
        distribution(name)
    except PackageNotFoundError:
        return False
    return True
