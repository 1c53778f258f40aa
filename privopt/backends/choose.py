"""Backends by name: those that are registered as kinds of role ``"solver"``."""

from __future__ import annotations

from privopt.backends.base import Backend
from privopt.registry import registry


def names() -> tuple[str, ...]:
    """Return names of the backends, the default first."""
    return registry().names("solver")


def get(name: str) -> Backend:
    """Return the backend called so.

    >>> get("cbc").name
    'cbc'
    """
    made: Backend = registry().kind("solver", name).load()()
    return made
