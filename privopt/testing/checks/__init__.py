"""The checks: the core's, in the order in which they are run, and those that plugins bring after them."""

from privopt.registry import registry
from privopt.testing.checks import runs, evidence, matrix, neighbours, attack, channel
from privopt.testing.checks import loss, files, forged, secrets, inputs, same
from privopt.testing.checks.base import CHECKS, Check, CheckFailedError, Trial

__all__ = [
    "CHECKS",
    "Check",
    "CheckFailedError",
    "Trial",
    "attack",
    "channel",
    "checks",
    "evidence",
    "files",
    "forged",
    "inputs",
    "loss",
    "matrix",
    "neighbours",
    "runs",
    "same",
    "secrets",
]


def checks() -> dict[str, Check]:
    """Return every check by name; those of plugins enter themselves as they are imported."""
    for brought in registry().of("check").values():
        brought.imported(brought.spec.target)
    return CHECKS
