"""Versions of what made a release: Python, and every distribution that a plugin needs, directly or not."""

from __future__ import annotations

import platform
import re
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from typing import Final

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
_OTHERS: Final = re.compile(r";.*\bextra\b")
"""A requirement of something optional."""


@cache
def versions_behind(plugin: str) -> dict[str, str]:
    """Return the version of Python, and of every distribution that is installed for a plugin, by name.

    Args:
        plugin: name of its distribution.
    """
    versions: dict[str, str] = {}
    remaining, visited = [plugin], {""}
    while remaining:
        name = remaining.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in visited:
            continue
        visited.add(key)
        try:
            metadata = distribution(name).metadata  # read once: it is parsed each time
        except PackageNotFoundError:  # of another system, or a mechanism without a distribution
            continue
        except (ValueError, OSError):  # damaged: what it is and needs is not known
            versions[name] = "unknown"
            continue
        names, numbers = metadata.get_all("Name") or [name], metadata.get_all("Version") or ["unknown"]
        versions[names[0]] = numbers[0]
        matches = [_NAME.match(text) for text in metadata.get_all("Requires-Dist") or [] if not _OTHERS.search(text)]
        remaining += [match[0] for match in matches if match is not None]
    return {"python": platform.python_version(), **{name: versions[name] for name in sorted(versions, key=str.lower)}}
