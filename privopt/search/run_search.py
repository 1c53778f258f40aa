"""Run a search in a thread, certify its candidates meanwhile, and end it in time to certify and write the best."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Final, TypeVar

from privopt.errors import StoppedError
from privopt.execution.clock import Clock, DaemonCall, OutOfTime, clock
from privopt.search.incumbent import Answer, Incumbent
from privopt.search.offers import is_within_gap

C = TypeVar("C")
P = TypeVar("P")
R = TypeVar("R")

SECONDS_PER_POLL: Final = 0.05
"""Interval at which a search under a limit is checked."""
MAX_CERTIFY_SHARE: Final = 0.1
"""Largest share of the time that is spent on certifying and proving during the search."""
MIN_CLOSING_SECONDS: Final = 2.0
"""Seconds that proofs and further candidates may take in any case after the search."""
MIN_GAP_GAIN: Final = 0.1
"""Share of the gap that a bound must gain to be proved during the search, and a promise to be certified after it."""


def run_search(
    search: Callable[[], object],
    incumbent: Incumbent[C, P, R],
    search_time: Clock,
    *,
    first_offers: Iterable[Callable[[], object]] = (),
) -> Answer[R]:
    """Run a search until it ends, or until the rest of its time is needed for certifying, proving and writing.

    Certifying is not broken off at the end of the search's time; proving is, at the end of the reserved time. Without a
    limit nothing is certified during the search, so that runs repeat exactly. An interrupt ends the search, and a
    second one ends certifying.

    Args:
        search: Makes offers to the incumbent. If its time is over and it does not end, its thread is abandoned.
        incumbent: Certifies and proves. It was created outside ``search_time``.
        search_time: The time scope of the search.
        first_offers: Functions that make an offer each, in moments, before the search. Under a limit each is certified
            at once, which measures how long closing takes.

    Returns:
        The best certified release and the best proved bound.

    Raises:
        StoppedError: Nothing was certified, because the time was over or an interrupt came.
        SolverError: Nothing was certified.
        Exception: The search raised it, and it is not the end of its time.
    """
    scope, has_limit = Clock(None, search_time), search_time.left < math.inf
    was_interrupted = is_complete = False
    error: BaseException | None = None
    try:
        for make_offer in first_offers:
            make_offer()
            if has_limit:
                incumbent.certify()
        call = DaemonCall(lambda: (search(), clock().left > 0.0)[1], within=scope)
        _certify_during(call, incumbent, search_time, has_limit=has_limit)
        error = call.error
        is_complete = call.done and error is None and call.result()
        if error is not None and not isinstance(error, StoppedError | MemoryError):
            raise error
    except KeyboardInterrupt:
        was_interrupted = True
    scope.cancel()
    if isinstance(error, StoppedError | MemoryError) and not isinstance(error, OutOfTime):
        incumbent.note(str(error) or "out of memory")
    if was_interrupted or not (is_complete or incumbent.path):
        incumbent.note("interrupted" if was_interrupted else "the time was over")
    try:
        is_complete = _close(incumbent, search_time) and is_complete
    except KeyboardInterrupt:
        incumbent.note("interrupted again")
    return incumbent.answer(stopped=not is_complete)


def _certify_during(
    call: DaemonCall[bool], incumbent: Incumbent[C, P, R], search_time: Clock, *, has_limit: bool
) -> None:
    """Wait for a search; under a limit, certify and prove what it offers if that costs a tenth of the time at most."""
    last_time = search_time.now()
    while not call.done and search_time.left > incumbent.closing_seconds:
        if not has_limit:
            call.wait(3600.0)
            continue
        call.wait(min(SECONDS_PER_POLL, search_time.left))
        known_steps = incumbent.step_seconds.keys() - incumbent.cold_steps
        step_seconds = sum(incumbent.step_seconds[step] for step in known_steps)
        is_due = search_time.now() - last_time >= step_seconds / MAX_CERTIFY_SHARE
        if not (is_due and incumbent.changed.is_set()):
            continue
        incumbent.changed.clear()  # before certifying, so that an offer that comes meanwhile is not missed
        incumbent.certify()
        proved_bound = incumbent.best_proved.bound
        min_gain = MIN_GAP_GAIN * max(0.0, incumbent.best_certified.value - proved_bound)
        if proved_bound == -math.inf or incumbent.promised_bound > proved_bound + min_gain:
            incumbent.prove()
        last_time = search_time.now()


def _close(incumbent: Incumbent[C, P, R], search_time: Clock) -> bool:
    """Certify the best offer, and further ones and proofs while there is time; return whether there was enough."""
    incumbent.begin_closing(max(search_time.left, incumbent.closing_seconds, MIN_CLOSING_SECONDS))

    def has_time_for(step: str) -> bool:
        # Writing, which follows, takes about as long as certifying.
        return incumbent.closing_time.left > incumbent.step_seconds["certify"] + incumbent.step_seconds[step]

    has_certified, has_time = False, True
    while not _is_good_enough(incumbent):
        has_time = not has_certified or has_time_for("certify")
        if not has_time or not incumbent.certify():
            break
        has_certified = True
    while has_time_for("prove") and incumbent.prove():
        pass
    return has_time and has_time_for("prove") and not incumbent.ended_steps


def _is_good_enough(incumbent: Incumbent[C, P, R]) -> bool:
    """Return whether the certified value reaches the gap, or no offer promises to gain much of what is missing."""
    value, bound = incumbent.best_certified.value, incumbent.promised_bound
    gain = value - incumbent.promised_value
    is_small = math.isfinite(value) and gain <= min(incumbent.gap * abs(value), MIN_GAP_GAIN * (value - bound))
    return is_small or is_within_gap(value, bound, incumbent.gap, incumbent.noise)
