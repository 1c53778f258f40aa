"""The checks of the core, in the order in which they run, followed by the checks of plugins."""

from importlib import import_module

from privopt.registry import registry
from privopt.testing.checks.base import CHECKS, Check

ORDER = (
    "runs",
    "neighbours",
    "attack",
    "outcomes",
    "channel",
    "matrix",
    "fresh",
    "files",
    "forged",
    "secrets",
    "inputs",
    "loss",
)
"""Modules of the core's checks, which register themselves when they are imported."""

for _name in ORDER:
    import_module(f"{__name__}.{_name}")


def checks() -> dict[str, Check]:
    """Return all checks by name. Importing a plugin's module registers its checks."""
    for entry in registry().of("check").values():
        entry.import_target()
    return CHECKS
