"""Which of the kit's checks the suite has for methods of one family."""

from itertools import islice
from typing import Final

from attrs import evolve

from privopt.testing import Profile
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

BRIEF: Final = evolve(effort("dev"), examples=2, seconds=3.0)
"""How hard the suite tries a mechanism: with two problems a check; ``make slow`` tries it at ``dev`` or ``ci``."""

PLANTED: Final = evolve(effort("dev"), shrinking=0.0)
"""How hard a planted fault is looked for: the first problem that shows it will do; the smallest takes seconds more."""


def thin_neighbours(profile: Profile) -> Profile:
    """Return a profile with every third of the neighbours: problems have dozens of each kind, and each is loaded.

    ``make slow`` looks at all of them.
    """
    make = profile.neighbours
    assert make is not None
    return evolve(profile, neighbours=lambda problem: islice(make(problem), 0, None, 3))
