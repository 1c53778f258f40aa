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
    found: dict[str, str] = {}
    left, seen = [plugin], {""}
    while left:
        name = left.pop()
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in seen:
            continue
        seen.add(key)
        try:
            told = distribution(name).metadata  # read once: it is parsed each time
        except PackageNotFoundError:  # of another system, or a mechanism that no distribution brought
            continue
        found[told["Name"]] = told["Version"]
        needed = told.get_all("Requires-Dist") or []
        left += [_NAME.match(text)[0] for text in needed if not _OTHERS.search(text)]  # type: ignore[index]
    return {"python": platform.python_version(), **{name: found[name] for name in sorted(found, key=str.lower)}}
