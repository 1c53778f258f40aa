"""The checks; importing this package enters all of them into :data:`CHECKS`, in the order they are run."""

from privopt.testing.checks import runs, evidence, matrix, points  # noqa: I001  (in order)
from privopt.testing.checks import traces, attack, loss, files, forged, secrets, inputs, same
from privopt.testing.checks.base import CHECKS, Check, CheckFailedError, Trial

__all__ = [
    "CHECKS",
    "Check",
    "CheckFailedError",
    "Trial",
    "attack",
    "evidence",
    "files",
    "forged",
    "inputs",
    "loss",
    "matrix",
    "points",
    "runs",
    "same",
    "secrets",
    "traces",
]
