"""The checks; importing this package enters all of them into :data:`CHECKS`, in the order they are run."""

from privopt.testing.checks import runs, evidence, matrix, distances, points, neighbours, attack  # noqa: I001  (in order)
from privopt.testing.checks import traces, loss, files, forged, secrets, inputs, same
from privopt.testing.checks.base import CHECKS, Check, CheckFailedError, Trial

__all__ = [
    "CHECKS",
    "Check",
    "CheckFailedError",
    "Trial",
    "attack",
    "distances",
    "evidence",
    "files",
    "forged",
    "inputs",
    "loss",
    "matrix",
    "neighbours",
    "points",
    "runs",
    "same",
    "secrets",
    "traces",
]
