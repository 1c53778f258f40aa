"""Code that runs a search, certifies candidates while it runs, and stops in time to write the best release.

The search runs in a thread and offers candidates and bounds to an :class:`~privopt.search.incumbent.Incumbent`. Their
promised values are checked when the incumbent certifies a candidate or proves a bound (the closing steps).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from time import process_time
from typing import Final, TypeVar

from privopt.errors import StoppedError
from privopt.execution.clock import Clock, DaemonCall, OutOfTime, clock
from privopt.execution.resources import return_freed_memory
from privopt.search.incumbent import Answer, Incumbent
from privopt.search.offers import is_within_gap

C = TypeVar("C")
P = TypeVar("P")
R = TypeVar("R")

SECONDS_PER_POLL: Final = 0.05
"""The number of seconds between successive checks on a search that has a time limit."""
MAX_HELD_FACTOR: Final = 2.0
"""The limit on the process's CPU time since the start of a search, as a multiple of the granted time.

Beyond this limit, held work is abandoned. Held work is work that the caller waits for even after the search's time is
up.
"""
HELD_PROOF_FACTOR: Final = 5.0
"""The time limit for the last proof, as a multiple of the granted time, if the search began with held work."""
MAX_CERTIFY_SHARE: Final = 0.1
"""The largest fraction of a search's time to spend on certifying and proving while it runs."""
MIN_CLOSING_SECONDS: Final = 2.0
"""The number of seconds that proofs and further candidates may take after the search, even if its time is up."""
MIN_GAP_GAIN: Final = 0.1
"""The fraction of the remaining gap that counts as a worthwhile gain.

During the search, and once the time is up, a bound is proved only if it is the first or closes more than this fraction.
After the search, candidates are certified while time is left, until the gap is reached or until no candidate promises
to close more than this fraction or to gain more than the requested gap.
"""


def run_search(
    search: Callable[[], object],
    incumbent: Incumbent[C, P, R],
    search_time: Clock,
    *,
    first_offers: Iterable[Callable[[], object]] = (),
    begins_held: bool = False,
) -> Answer[R]:
    """Run a search until it ends, or until the remaining time is needed for certifying, proving and writing.

    Certification may continue after the search's time is up, but proofs must finish within the time reserved for these
    closing steps. If there is no time limit, nothing is certified during the search, so that runs are exactly
    reproducible. The first interrupt ends the search, and the second ends certification.

    Args:
        search: A function that makes offers to the incumbent. If it does not return when its time is up, its thread is
            abandoned.
        incumbent: The incumbent, which certifies and proves offers. It must have been created outside ``search_time``.
        search_time: The time scope of the search.
        first_offers: Functions that each make a quick offer before the search.
        begins_held: Whether the search begins with work that the caller must wait for even after the search's time is
            up (:meth:`Clock.keep_waiting`).

    Returns:
        The best certified release and the best proved bound.

    Raises:
        StoppedError: Nothing had been certified when the time ran out or the search was interrupted.
        SolverError: The search ran to completion, but nothing was certified.
        Exception: The search raised an exception other than StoppedError or MemoryError.
    """
    scope, has_limit = Clock(None, search_time), search_time.left < math.inf
    was_interrupted = is_complete = False
    error: BaseException | None = None
    call: DaemonCall[bool] | None = None
    try:
        # These offers ensure that there is a release to publish even if the search finds nothing.
        for make_offer in first_offers:
            make_offer()
        # Other work, such as building the search's data, may already have been held.
        earlier_holds = search_time.begun_holds if begins_held else None
        # A search may simply return when its time is over, so the call returns whether there was time left.
        call = DaemonCall(lambda: (search(), clock().left > 0.0)[1], within=scope)
        _certify_during(call, incumbent, search_time, has_limit=has_limit, earlier_holds=earlier_holds)
        error = call.error
        is_complete = call.done and error is None and call.result()
        # If time or memory ran out, the offers so far still make a release. Any other error is a fault of the solver.
        if error is not None and not isinstance(error, StoppedError | MemoryError):
            raise error
    except KeyboardInterrupt:
        was_interrupted = True
    # The search may still be running in its thread, and ends when it next checks its clock.
    scope.cancel()
    if isinstance(error, StoppedError | MemoryError) and not isinstance(error, OutOfTime):
        incumbent.note(str(error) or "out of memory")
    if was_interrupted or not (is_complete or incumbent.path):
        incumbent.note("interrupted" if was_interrupted else "the time limit was reached")
    while True:
        try:
            # Certifying needs memory of its own, so a search that was just stopped gets a moment to free its memory.
            if call is not None and call.wait(SECONDS_PER_POLL):
                return_freed_memory()
            is_complete = _close(incumbent, search_time, begins_held=begins_held) and is_complete
            break
        except KeyboardInterrupt:
            # If this is the first interrupt, the best offer is still certified.
            incumbent.note("interrupted again" if was_interrupted else "interrupted")
            is_complete = False
            if was_interrupted:
                break
            was_interrupted = True
    return incumbent.answer(stopped=not is_complete)


def _certify_during(
    call: DaemonCall[bool],
    incumbent: Incumbent[C, P, R],
    search_time: Clock,
    *,
    has_limit: bool,
    earlier_holds: int | None,
) -> None:
    """Wait for a search to end, and certify and prove its offers in the meantime if it has a time limit.

    Certifying and proving take about a tenth of the time. A hold marks work that the caller waits for even after the
    search's time is up.

    Args:
        call: The running search.
        incumbent: The incumbent to which the search makes its offers.
        search_time: The time scope of the search. Its end must leave time for the incumbent's closing steps.
        has_limit: Whether ``search_time`` has an end. If not, the function only waits.
        earlier_holds: The number of holds on ``search_time`` that began before the search. If given, the function waits
            until the search begins a hold of its own or the granted time is over. If None, it does not wait for a hold.
    """
    last_time = start = search_time.now()
    cpu_start, granted_seconds = process_time(), search_time.granted_seconds

    def is_awaited() -> bool:
        """Return whether to wait past the deadline for a hold that the search has begun or is still expected to begin.

        The wait is abandoned if the search turns out to take much more CPU time than it was granted.
        """
        # Work that takes this much CPU time is not short after all. It may be ignoring the clock.
        if process_time() - cpu_start > MAX_HELD_FACTOR * granted_seconds:
            return False
        # Nor must the wait be endless if a method never begins such work.
        has_yet_to_begin = search_time.begun_holds == earlier_holds and search_time.now() < start + granted_seconds
        return search_time.hold_count > 0 or has_yet_to_begin

    while not call.done and (search_time.left > incumbent.closing_seconds or is_awaited()):
        if not has_limit:
            # The timeout does not matter, because the loop waits again and an interrupt ends the wait.
            call.wait(3600.0)
            continue
        if is_awaited():
            # Certify nothing in the meantime, because that would slow down work that will probably give a better offer.
            call.wait(SECONDS_PER_POLL)
            continue
        call.wait(min(SECONDS_PER_POLL, search_time.left))
        # A duration that includes compilation says nothing about the next step.
        known_steps = incumbent.step_seconds.keys() - incumbent.cold_steps
        step_seconds = sum(incumbent.step_seconds[step] for step in known_steps)
        # For example, steps that take 1 s are due every 10 s, so that they take a tenth of the time.
        is_due = search_time.now() - last_time >= step_seconds / MAX_CERTIFY_SHARE
        if not (is_due and incumbent.changed.is_set()):
            continue
        # Clear the event before certifying, so that offers made in the meantime are not missed.
        incumbent.changed.clear()
        incumbent.certify()
        proved_bound = incumbent.best_proved.bound
        # Always prove the first bound, but later ones only if they would close enough of the remaining gap.
        min_increase = MIN_GAP_GAIN * max(0.0, incumbent.best_certified.value - proved_bound)
        if proved_bound == -math.inf or incumbent.promised_bound > proved_bound + min_increase:
            incumbent.prove()
        last_time = search_time.now()


def _close(incumbent: Incumbent[C, P, R], search_time: Clock, *, begins_held: bool) -> bool:
    """Certify the best offer, then certify and prove others while time is left.

    At least one candidate is certified even if the time is up, because otherwise there would be no release.

    Args:
        incumbent: The incumbent with the offers of the search.
        search_time: The time scope of the search, whose remaining time is used for certifying and proving.
        begins_held: Whether the search began with work that is known to be short. If so, the proof is short too, and is
            given more time in case the machine is busy.

    Returns:
        Whether there was enough time.
    """
    incumbent.begin_closing(max(search_time.left, incumbent.closing_seconds, MIN_CLOSING_SECONDS))

    def has_time_for(step: str) -> bool:
        """Return whether enough time remains to run a step and then write the results."""
        # Writing takes about as long as certifying.
        return incumbent.closing_time.left > incumbent.step_seconds["certify"] + incumbent.step_seconds[step]

    has_certified, has_time = False, True
    while not _is_good_enough(incumbent):
        has_time = not has_certified or has_time_for("certify")
        if not has_time or not incumbent.certify():
            break
        has_certified = True
    while has_time_for("prove") and incumbent.prove():
        pass
    # A bound must not be lost because of the time limit, so the last proof may take the granted time once more, or a
    # multiple of it.
    if incumbent.has_unproved_bound(MIN_GAP_GAIN):
        factor = HELD_PROOF_FACTOR if begins_held else 1.0
        incumbent.prove_late(factor * search_time.granted_seconds)
    # ``ended_steps`` are the steps that were interrupted because their time was up.
    return has_time and has_time_for("prove") and not incumbent.ended_steps


def _is_good_enough(incumbent: Incumbent[C, P, R]) -> bool:
    """Return whether to stop certifying, either because the gap is reached or because little more could be gained."""
    value, bound = incumbent.best_certified.value, incumbent.promised_bound
    gain = value - incumbent.promised_value
    # A gain is small if it is at most the gap, and at most a tenth of the distance to the promised bound.
    is_small = math.isfinite(value) and gain <= min(incumbent.gap * abs(value), MIN_GAP_GAIN * (value - bound))
    return is_small or is_within_gap(value, bound, incumbent.gap, incumbent.noise)
