"""Which of the kit's checks the suite has for methods of one family."""

from typing import Final

OF_SOLVING: Final = (
    "solves",
    "certificate-holds",
    "epsilon-achieved",
    "objective-reported",
    "expected-loss",
    "lower-bound",
    "backends-agree",
)
"""What depends on how a method solves: one method of a family is held to all checks, the others to these, and in ``make
slow`` to all."""
