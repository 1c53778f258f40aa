"""The best bound that can be proved in the time that a solve has left."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.errors import StoppedError
from privopt.execution.limits import ending_at
from privopt.interfaces import SolveContext
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof.make_proof import prove
from privopt_metric_dp.proof.multipliers import NO_PAIRS, Multipliers
from privopt_metric_dp.proof.one_step_bound import prove_nearby
from privopt_metric_dp.proof.proof_file import Proof

if TYPE_CHECKING:
    from privopt_metric_dp.mechanisms.answer import Matrix
else:
    Matrix = Any

__all__ = ["prove_in_time"]

PROVING: Final = 0.5
"""Share of the time that is left, once a release can be written, in which its bound is proved."""
HASTE: Final = 0.5
"""Share of the time kept for writing that proves at least that no record pays less than its cheapest output: 5,000
vectors were written and read back in .6 of that time with this, in .3 without (at a load of 5 on two processors)."""
UNPROVED: Final = "no time to prove a bound"


def _share(share: float, last: float | None) -> float | None:
    """The time that a share of what is left before the last has come at; None without a limit."""
    now = time.monotonic()
    return None if last is None else now + share * (last - now)


def prove_in_time(
    found: Matrix, data: MetricData, loss: ExpectedLoss, release: MatrixRelease, context: SolveContext
) -> tuple[Proof | None, float | None, str]:
    """What multipliers prove, in time for whoever reads it back to prove it again; and what fell short, in words.

    By the method's own multipliers; where they miss the gap also by what is there in moments
    (:mod:`privopt_metric_dp.proof.one_step_bound`), whichever proves more; at last by none, which prove every record's
    cheapest output. Where writing the release needs all the time that is left, nothing is proved.
    """
    assert found.multipliers is not None  # the caller asks where there are some
    context.report("bound")
    writing = 2.0 * context.times.get("build", 0.0) if found.reserve is None else found.reserve.writing
    value, last = loss.state(release)[0] or 0.0, None if context.end is None else context.end - writing
    of = partial(prove, data=data, weighted=loss.weighted, value=value, gap=context.gap, room=context.room)
    best = None if found.reserve is None else found.reserve.proved
    tried = found.reserve is not None and found.reserve.tried and best is None
    if best is not None and (best[1] > value or not np.array_equal(loss.weighted, data.weighted)):
        best = None
    until, short = _share(PROVING, last), ""
    if best is None and last is not None and time.monotonic() >= last + HASTE * writing:
        return None, None, UNPROVED
    with context.timed("verify"):
        missed = found.stopped if found.bound is None else value - found.bound > context.gap * abs(value)
        if missed and best is None and not tried:
            with suppress(StoppedError), ending_at(until):
                half = _share(PROVING / 2, last)
                best = prove_nearby(data, loss.weighted, value, room=context.room, until=half)
        if best is None or found.bound is None or found.bound > best[1]:
            short = "no time to prove more than nearby records do"
            with suppress(StoppedError), ending_at(until):
                seconds = None if until is None else until - time.monotonic()
                made = of(found.multipliers, over=found.over, near=found.bound, seconds=seconds)
                best, short = (made if best is None or made[1] > best[1] else best), ""
        if best is not None:
            return *best, short
        with suppress(StoppedError):
            nothing = of(Multipliers.zero(0, len(data.outputs)), over=NO_PAIRS)
            return *nothing, "no time to prove more than every record's cheapest output"
    return None, None, UNPROVED  # the release is certified: it is worth more than its bound
