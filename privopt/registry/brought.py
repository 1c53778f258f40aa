"""What the core asks of distributions that may not be installed, by Python name."""

from __future__ import annotations

from typing import Any, Final

from privopt.errors import UsageError
from privopt.registry.discovery import registry

BROUGHT_BY: Final = {
    "Charge": "privopt-ledger",
    "estimate_of": "privopt-estimate",
}
"""Distributions that bring what the core asks for: known here so that a message can say so where one is missing."""


def brought(name: str, asked: str) -> Any:
    """Import what a plugin brings under a Python name (:class:`privopt.specs.NameSpec`).

    Args:
        name: one of :data:`BROUGHT_BY`.
        asked: the option or method that needs it, for the message.

    Raises:
        UsageError: the distribution that brings it is not installed.
        RegistryError: it cannot be imported.
    """
    if name not in registry().of("name") and not registry().broken:
        raise UsageError(f"{asked} comes with {BROUGHT_BY[name]}, which is not installed")
    return registry().imported("name", name)
