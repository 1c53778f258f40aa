"""A time limit that holds for tasks which wait for each other, in whichever process of a machine they run."""

from __future__ import annotations

import platform
import time

from attrs import frozen

__all__ = ["Limit"]


@frozen
class Limit:
    """Seconds left when it was made, counted down on the machine that made it: its processes share a monotonic clock.

    >>> Limit.of(None).left() is None
    True
    >>> 0.0 <= Limit.of(5.0).left() <= 5.0
    True

    Attributes:
        seconds: left then; None without a limit.
        machine: name of where it was made.
        made: at this value of its ``time.monotonic``.
    """

    seconds: float | None
    machine: str
    made: float

    @classmethod
    def of(cls, seconds: float | None) -> Limit:
        """From seconds left now."""
        return cls(seconds, platform.node(), time.monotonic())

    def left(self) -> float | None:
        """Seconds left now, at least 0; elsewhere, whose clock is another, as many as when it was made."""
        if self.seconds is None or platform.node() != self.machine:
            return self.seconds
        return min(self.seconds, max(0.0, self.made + self.seconds - time.monotonic()))
