"""The checks: the core's, in the order in which they are run, and those that plugins bring after them."""

from importlib import import_module

from privopt.registry import registry
from privopt.testing.checks.base import CHECKS, Check

ORDER = ("runs", "neighbours", "attack", "channel", "files", "forged", "secrets", "inputs", "loss")
"""Modules of the core's checks, which enter themselves as they are imported."""

for _name in ORDER:
    import_module(f"{__name__}.{_name}")


def checks() -> dict[str, Check]:
    """Return every check by name; those of plugins enter themselves as they are imported."""
    for entry in registry().of("check").values():
        entry.import_target()
    return CHECKS
