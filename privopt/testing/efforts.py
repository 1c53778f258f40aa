"""How hard the kit tries: profiles dev, ci and nightly, chosen by PRIVOPT_PROFILE."""

from __future__ import annotations

import os
from typing import Final

import hypothesis
from attrs import frozen

from privopt.errors import UnknownNameError


@frozen(kw_only=True)
class Effort:
    """One profile.

    Attributes:
        name: dev, ci or nightly.
        examples: problems that each check draws at most.
        seconds: of a processor for all checks of all methods of a mechanism together, on top of what their first
            examples take: each check has its share, and draws no further problem after it, its least number aside.
        shrinking: seconds for finding a smaller example of a failure.
        draws: samples of each side for the statistical attack.
    """

    name: str
    examples: int
    seconds: float
    shrinking: float
    draws: int

    def settings(self) -> hypothesis.settings:
        """Return the profile as settings of Hypothesis: no database, no deadline, the kit's own clock instead."""
        return hypothesis.settings(
            max_examples=self.examples,
            phases=[hypothesis.Phase.generate, hypothesis.Phase.shrink],
            deadline=None,
            database=None,
            print_blob=False,
            report_multiple_bugs=False,
            suppress_health_check=list(hypothesis.HealthCheck),
        )


EFFORTS: Final = {
    made.name: made
    for made in (
        Effort(name="dev", examples=6, seconds=8.0, shrinking=4.0, draws=2_000),
        Effort(name="ci", examples=25, seconds=20.0, shrinking=8.0, draws=6_000),
        Effort(name="nightly", examples=400, seconds=1800.0, shrinking=60.0, draws=200_000),
    )
}


def effort(name: Effort | str | None = None) -> Effort:
    """Return an effort as it is, or the profile called so; where None, the one that PRIVOPT_PROFILE names, else ci."""
    if isinstance(name, Effort):
        return name
    wanted = name or os.environ.get("PRIVOPT_PROFILE") or "ci"
    if wanted not in EFFORTS:
        raise UnknownNameError("profile of the conformance kit", wanted, EFFORTS)
    return EFFORTS[wanted]
