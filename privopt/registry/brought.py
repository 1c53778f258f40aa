"""Commands, names and checks of distributions that may not be installed: what the core asks for, and who brings it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, cast

from privopt.errors import UsageError
from privopt.registry.discovery import registry

BROUGHT_BY: Final = {
    "check": {
        "channel-of-weights": "privopt-metric-dp",
        "distances": "privopt-metric-dp",
        "epsilon-achieved": "privopt-metric-dp",
        "every-point": "privopt-metric-dp",
        "expected-loss": "privopt-metric-dp",
        "fresh-samples": "privopt-metric-dp",
        "input-order": "privopt-metric-dp",
        "reach": "privopt-estimate",
        "rows-sum-to-one": "privopt-metric-dp",
        "sampler": "privopt-metric-dp",
        "traces": "privopt-tables",
        "verify-catches-rows": "privopt-metric-dp",
        "zeros-on-both-sides": "privopt-metric-dp",
    },
    "command": {
        "apply": "privopt-tables",
        "budget": "privopt-ledger",
        "certify": "privopt-metric-dp",
        "curve": "privopt-studies",
        "disclose": "privopt-disclose",
        "estimate": "privopt-estimate",
        "explore": "privopt-studies",
        "export": "privopt-clients",
        "init": "privopt-studies",
    },
    "name": {
        "Charge": "privopt-ledger",
        "Ledger": "privopt-ledger",
        "certify": "privopt-metric-dp",
        "cost": "privopt-metric-dp",
        "curve": "privopt-studies",
        "distances": "privopt-metric-dp",
        "estimate_of": "privopt-estimate",
        "grid": "privopt-metric-dp",
        "mesh": "privopt-metric-dp",
        "metric_problem": "privopt-metric-dp",
        "records": "privopt-metric-dp",
        "roads": "privopt-metric-dp",
        "travel_cost": "privopt-metric-dp",
        "vectors": "privopt-metric-dp",
    },
}
"""Distributions by category and name, known here so that a message can say who brings what is missing."""


def absent(category: str, name: str) -> str:
    """Say which distribution brings what is not there; nothing where none is known to.

    >>> absent("command", "curve")
    'comes with privopt-studies, which is not installed'
    """
    owner = BROUGHT_BY[category].get(name)
    if owner is None:
        return ""
    reason = next((one.reason for one in registry().broken if one.plugin == owner), None)
    return f"comes with {owner}, which " + ("is not installed" if reason is None else f"cannot be loaded: {reason}")


def brought(name: str, asked: str) -> Callable[..., Any]:
    """Import a class or function that a plugin brings under a Python name (:class:`privopt.specs.NameSpec`).

    Args:
        name: one of :data:`BROUGHT_BY`.
        asked: the option or method that needs it, for the message.

    Raises:
        UsageError: the distribution that brings it is not installed, or is broken.
        RegistryError: it cannot be imported, or two distributions claim the name.
    """
    claimed_twice = any(one.clash == ("name", name) for one in registry().broken)
    if name not in registry().of("name") and not claimed_twice:
        raise UsageError(f"{asked} {absent('name', name)}")
    return cast("Callable[..., Any]", registry().imported("name", name))
