"""The conformance kit's effort levels: quick, ci and full.

``privopt check --effort`` selects a level. The environment variable PRIVOPT_PROFILE sets the default, both for the
command and under pytest.

An effort limits the number of examples and the CPU time. A higher effort finds rarer faults, but does not change what
counts as a fault.
"""

from __future__ import annotations

import os
from typing import Final

import hypothesis
from attrs import frozen

from privopt.errors import UnknownNameError


@frozen(kw_only=True)
class Effort:
    """Limits on how thoroughly the kit searches for faults.

    Attributes:
        name: quick, ci or full.
        examples: The largest number of problems drawn by each check.
        seconds: The CPU time, in seconds, available for all checks of all methods of a mechanism, not counting each
            check's first example. The time is divided equally among the checks. A check that has used up its share
            stops as soon as it has drawn its minimum number of problems.
        shrinking: The time limit, in seconds, for finding a smaller example of a failure.
        draws: The number of samples for statistical checks. Some checks use a multiple of this number.
    """

    name: str
    examples: int
    seconds: float
    shrinking: float
    draws: int

    def settings(self) -> hypothesis.settings:
        """Return the Hypothesis settings for this effort.

        Hypothesis's deadlines are turned off, because the kit has its own time limits. The database of earlier failures
        is turned off as well.
        """
        # Suppress the health checks, because solving a problem takes longer than Hypothesis expects of an example.
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
"""The predefined efforts, by name."""

FORMER_NAMES: Final = {"dev": "quick", "nightly": "full"}
"""Maps the former names of efforts, which workflow files may still use, to the current names."""


def effort(name: Effort | str | None = None) -> Effort:
    """Return the effort with a given name, or the argument itself if it is an :class:`Effort`.

    Args:
        name: quick, ci, full or an :class:`Effort`. The former names "dev" and "nightly" mean quick and full. If None,
            the effort is read from the environment variable PRIVOPT_PROFILE, with ci as the default.

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
