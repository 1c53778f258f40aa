"""Which of the kit's checks the suite has for methods of one family."""

from typing import Final

from attrs import evolve

from privopt.testing.efforts import effort

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

BRIEF: Final = evolve(effort("dev"), examples=3, seconds=4.0)
"""How hard the suite tries what another mechanism of the same kind is tried for at ``dev``; ``make slow`` tries it at
``ci``."""
