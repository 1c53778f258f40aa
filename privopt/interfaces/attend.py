"""Wait for a thread that works: certify candidates meanwhile, and abandon the thread when the time is over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from privopt.errors import StoppedError
from privopt.execution.clock import Clock, DaemonCall, OutOfTime, clock
from privopt.interfaces.incumbent import MARGIN_WRITING, Answer, Incumbent
from privopt.interfaces.offers import near

C = TypeVar("C")
P = TypeVar("P")
R = TypeVar("R")

SECONDS_PER_POLL: Final = 0.05
"""Seconds between two looks at work under a limit."""
MAX_CERTIFY_SHARE: Final = 0.1
"""Share of the time that certifying on the way takes, at most."""
MIN_GAP_GAIN: Final = 0.1
"""Share of the gap that a bound has to gain to be proved on the way, and a promise to be certified at the end."""


def attend(
    work: Callable[[], object],
    incumbent: Incumbent[C, P, R],
    soft: Clock,
    *,
    first: Iterable[Callable[[], object]] = (),
    stand_by: Callable[[Answer[R]], object] | None = None,
) -> Answer[R]:
    """Run a search in a thread until it ends, its time is over, or the rest is needed to certify and write.

    The caller must be outside the search's scope of time: closing must not end with it. Without a limit nothing is
    certified on the way, so that runs repeat exactly. An interrupt ends the search, a second one ends closing.

    Args:
        work: offers what it finds to the incumbent.
        incumbent: made in the caller's scope of time.
        soft: the search's scope of time.
        first: each offers something that takes moments, before the search; under a limit it is certified at once.
        stand_by: writes what is certified where it can be published; called under a limit, when it has become better.

    Returns:
        What is certified and proved.

    Raises:
        StoppedError: nothing is certified, for the time was over or an interrupt came.
        SolverError: nothing is certified.
        Exception: what the search raised, where that is not an end of its time.
    """
    attending = _SearchMonitor(incumbent, soft, stand_by)
    interrupted = ended = False
    error: BaseException | None = None
    try:
        for entry in first:
            attending.enter(entry)
        running = DaemonCall(lambda: (work(), clock().left > 0.0)[1], within=soft)
        while not (running.done or soft.left == 0.0 or incumbent.hard.left <= incumbent.needs):
            running.wait(min(SECONDS_PER_POLL, soft.left) if attending.limited else 3600.0)
            attending.look()
        error = running.error
        ended = running.done and error is None and running.result()
        if error is not None and not isinstance(error, StoppedError | MemoryError):
            raise error
    except KeyboardInterrupt:
        interrupted = True
    if not ended:
        soft.cancel()
    if isinstance(error, StoppedError | MemoryError) and not isinstance(error, OutOfTime):
        incumbent.note(str(error) or "out of memory")
    if interrupted or not (ended or incumbent.path):
        incumbent.note("interrupted" if interrupted else "the time was over")
    try:
        ended = attending.close() and ended
    except KeyboardInterrupt:
        incumbent.note("interrupted again")
    return incumbent.answer(stopped=not ended)


class _SearchMonitor:
    """What the caller of a search does meanwhile, and after."""

    def __init__(
        self, incumbent: Incumbent[C, P, R], soft: Clock, stand_by: Callable[[Answer[R]], object] | None
    ) -> None:
        self.incumbent, self.limited = incumbent, soft.left < math.inf
        self._stand_by = stand_by if self.limited else None
        self._last, self._stands = time.monotonic(), math.inf

    def enter(self, entry: Callable[[], object]) -> None:
        """Make an offer, certify it and write it as a fallback."""
        entry()
        if self.limited:
            self.incumbent.certify()
            self._renew()

    def look(self) -> None:
        """Certify and prove on the way, where a tenth of the time pays for it."""
        incumbent, cost = self.incumbent, self.incumbent.cost
        if not self.limited or not incumbent.changed.is_set():
            return
        spent = sum(cost[what] for what in ("certify", "prove") if what not in incumbent.cold)
        if time.monotonic() - self._last < spent / MAX_CERTIFY_SHARE:
            return
        incumbent.changed.clear()
        incumbent.certify()
        known = incumbent.proved[0]
        if incumbent.bound > known + MIN_GAP_GAIN * max(0.0, incumbent.certified[0] - known) or known == -math.inf:
            incumbent.prove()
        self._renew()
        self._last = time.monotonic()

    def close(self) -> bool:
        """Certify and prove what was found, while that leaves time to write; return whether there was enough."""
        incumbent, cost = self.incumbent, self.incumbent.cost
        while (enough := self._fits(cost["certify"])) and not self._content and incumbent.certify():
            pass
        while (proved := self._fits(cost["prove"])) and incumbent.prove():
            pass
        return enough and proved and not incumbent.late

    @property
    def _content(self) -> bool:
        """Whether what is certified reaches the gap, or no promise would gain much of what is left of it."""
        incumbent, value = self.incumbent, self.incumbent.certified[0]
        gain, left = value - incumbent.value, value - incumbent.bound
        small = math.isfinite(value) and gain <= min(incumbent.gap * abs(value), MIN_GAP_GAIN * left)
        return small or near(value, incumbent.bound, incumbent.gap, incumbent.noise)

    def _fits(self, seconds: float) -> bool:
        return self.incumbent.hard.left > MARGIN_WRITING * self.incumbent.cost["write"] + seconds

    def _renew(self) -> None:
        """Write what is certified as a fallback, if it is better and writing costs no more than certifying did."""
        incumbent, stand_by = self.incumbent, self._stand_by
        value = incumbent.certified[0]
        cheap = math.isinf(self._stands) or incumbent.cost["write"] <= incumbent.cost["certify"]
        if stand_by is None or value >= self._stands or not cheap:
            return
        answer = incumbent.answer(stopped=True)
        try:
            incumbent.measured("write", lambda: stand_by(answer))
        except StoppedError as error:  # what stood by before still does; the end has its own turn at writing
            incumbent.note(f"the better release was not written as a fallback: {error}")
            self._stand_by = None
            return
        self._stands = value
