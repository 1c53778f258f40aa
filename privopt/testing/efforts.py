"""The conformance kit's efforts: quick, ci and full.

``privopt check --effort`` selects one, and so does the environment variable PRIVOPT_PROFILE, for the command and
pytest.

An effort limits the number of examples and the CPU time. More effort finds rarer faults, but never changes what counts
as a fault.
"""

from __future__ import annotations

import os
from typing import Final

import hypothesis
from attrs import frozen

from privopt.errors import UnknownNameError


@frozen(kw_only=True)
class Effort:
    """Limits on how long the kit searches for faults.

    Attributes:
        name: quick, ci or full.
        examples: The largest number of problems that each check draws.
        seconds: The CPU seconds for all checks on all of a mechanism's methods, not counting each check's first
            example. Each check has an equal share. Once its share is used up, a check draws no problems beyond its
            minimum number.
        shrinking: The time limit, in seconds, for the search for a smaller example of a failure.
        draws: The number of samples for statistical checks. Some checks take a multiple of it.
    """

    name: str
    examples: int
    seconds: float
    shrinking: float
    draws: int

    def settings(self) -> hypothesis.settings:
        """Return the Hypothesis settings. They use no database, and no deadline, because the kit has its own clock."""
        # Health checks are off, because solving a problem takes longer than Hypothesis expects an example to take.
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
    profile.name: profile
    for profile in (
        Effort(name="quick", examples=6, seconds=8.0, shrinking=4.0, draws=2_000),
        Effort(name="ci", examples=25, seconds=20.0, shrinking=8.0, draws=6_000),
        Effort(name="full", examples=400, seconds=1800.0, shrinking=60.0, draws=200_000),
    )
}
"""The efforts by name."""

FORMER_NAMES: Final = {"dev": "quick", "nightly": "full"}
"""The present name for each former name, which workflow files may still use."""


def effort(name: Effort | str | None = None) -> Effort:
    """Return the effort with a given name. An Effort is returned unchanged.

    Args:
        name: quick, ci or full, or an effort. "dev" and "nightly" are former names for quick and full. None for the
            effort that the environment variable PRIVOPT_PROFILE names, or else ci.

    Raises:
        UnknownNameError: No effort has that name.
    """
    if isinstance(name, Effort):
        return name
    stated_name = name or os.environ.get("PRIVOPT_PROFILE") or "ci"
    effort_name = FORMER_NAMES.get(stated_name, stated_name)
    if effort_name not in EFFORTS:
        raise UnknownNameError("effort of the conformance kit", effort_name, EFFORTS)
    return EFFORTS[effort_name]
