"""Look up solver backends by name. Every class registered under the role ``"solver"`` is a backend."""

from __future__ import annotations

from privopt.backends.base import Backend
from privopt.registry import registry


def names() -> tuple[str, ...]:
    """Return the names of the backends, starting with the default."""
    return registry().names("solver")


def get(name: str) -> Backend:
    """Create the backend registered under the given name.

    >>> get("cbc").name
    'cbc'
    """
    backend: Backend = registry().kind("solver", name).load()()
    return backend
