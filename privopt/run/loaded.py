"""Versions of what is loaded: what made a release, by name."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from importlib.metadata import packages_distributions, version
from typing import Final

__all__ = ["loaded_versions"]

WORKERS: Final[Mapping[str, str]] = {"privopt.backends.cbc": "mip"}
"""Modules here -> distributions that they load in processes of their own."""


def loaded_versions() -> dict[str, str]:
    """The version of Python, and of every distribution of which a module is loaded, by name."""
    names = {name.partition(".")[0] for name in sys.modules}
    known = packages_distributions()
    found = {made for name in names for made in known.get(name, ())}
    found |= {made for module, made in WORKERS.items() if module in sys.modules}
    return {"python": platform.python_version(), **{name: version(name) for name in sorted(found, key=str.lower)}}
