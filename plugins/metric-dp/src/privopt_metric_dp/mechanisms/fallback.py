"""What is at hand before a long method begins: a release that is certified already, so that a stop finds it whole.

The exponential mechanism: where there is a limit first at half of epsilon, which takes least; at the largest share of
epsilon that certifies; then at greater ones, whose rows differ too much in their sums and are repaired, for as long as
the loss falls (street maps bear .7 of epsilon where .5 certifies).
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

import numpy as np
from attrs import define, evolve, field

from privopt.arrays import Floats
from privopt.errors import CertificationError, InputError, SolverError, StoppedError
from privopt.execution.limits import ending_at
from privopt.interfaces import SolveContext
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.proof import Proof
from privopt_metric_dp.solvers.exponential import exponential, largest_share

__all__ = ["UNWRITTEN", "Reserve"]

PATIENCE: Final = 10.0
"""Seconds for steeper ones; where there is a limit all takes at most the share below of what is left."""
SHARE_OF_TIME: Final = 0.15
SHARE_OF_PROOF: Final = 0.35
"""Of the time that is left, what a bound at hand may take: large problems on a busy machine alone need as much."""
STEPS: Final = (0.2, 0.4, 0.6, 0.8)
"""How far from the share that certifies towards all of epsilon."""
SMALL: Final = 100_000
"""Pairs times outputs below which every method takes moments, and steeper ones are not worth theirs."""
MODERATE: Final = 10_000_000
"""The same where there is no limit, so that only a method that fails or an interrupt brings the reserve to light."""
CLOSING: Final = 60.0
"""Repair, certificate, bound, writing and reading back take so many times what the reserve's repair took, where
multipliers are dense; they get that, or `SHARE_CLOSING` of the time that is left where it is more."""
SHARE_CLOSING: Final = 0.15
AGAIN: Final = 3.0
"""At least so many times, for what is found may need more repair than the reserve did."""
CALIBRATED: Final = 4e9
"""Pairs times outputs up to which the share is looked for here: beyond it half of epsilon has to do."""
UNWRITTEN: Final = "; nothing written"
"""What a stop says where there is nothing at hand."""
SPARE: Final = 2.0
"""To certify, write and read back a release that is there takes so many times that (.6 to 2.5 times were measured, at
200 to 2,000 records beside up to ten busy processes), and loading it again so many times what building took."""


@define(eq=False)
class Reserve:
    """The best certified release of those that take moments.

    Attributes:
        data: the problem's.
        context: as it is solved.
        bounded: whether a bound on every mechanism's loss is wanted beside it.
        release: the release; None before :meth:`make`, and where nothing could be made.
        path: what was made, in words.
        seconds: what its repair and certificate took.
        proved: a bound that is there in moments, and its proof (:mod:`privopt_metric_dp.proof.one_step_bound`); None
            before :meth:`keep`, and where there was no limit, no time or no room.
        tried: whether that bound was looked for, or there was no time to.
    """

    data: MetricData
    context: SolveContext
    bounded: bool = field(default=True, kw_only=True)
    release: MatrixRelease | None = None
    loss: float = np.inf
    path: str = ""
    seconds: float = 0.0
    proved: tuple[Proof, float] | None = None
    tried: bool = False
    _made: bool = field(default=False, init=False)

    def keep(self) -> float | None:
        """Have the one at half of epsilon at hand, which needs no search; before anything that may take long.

        Returns:
            As :meth:`make`.
        """
        if self.release is None and not self._made:
            self._at(0.5)
            self._prove()
        return self._closing()

    def make(self) -> float | None:
        """Make it, once.

        Returns:
            The deadline from now on, which leaves time to certify and write what comes of the rest; None for none.
        """
        if not self._made:
            if self.context.deadline is not None:
                self.keep()
            self._made = True
            self._make()
        return self._closing()

    @property
    def last(self) -> float | None:
        """When the repair of something better must have ended, so that this can still be written; None: no limit."""
        return None if self.context.end is None else self.context.end - self.writing

    @property
    def writing(self) -> float:
        """Seconds that it takes to certify, write and read back a release."""
        return SPARE * (self.seconds + self.context.times.get("build", 0.0))

    def _closing(self) -> float | None:
        if self.context.end is not None and self.context.deadline is not None:
            share = max(SHARE_CLOSING * (self.context.end - time.monotonic()), AGAIN * self.seconds)
            closing = min(CLOSING * self.seconds, share) + self.writing
            self.context.deadline = min(self.context.deadline, self.context.end - closing)
        return self.context.deadline

    def _at(self, share: float) -> bool:
        """Take the one at a share of epsilon; False where it cannot be had."""
        if not self.data.crossed:
            return False
        self.context.report("exponential mechanism")
        started = time.monotonic()
        try:
            z = exponential(self.data.to_outputs, float(self.data.epsilon), share=share)
            self._take(z, f"exponential ({share:.3g} of epsilon)")
        except (InputError, CertificationError, StoppedError, SolverError, MemoryError):
            return False  # outputs out of reach, no room or no time: there is no such mechanism, or not here
        self.seconds = time.monotonic() - started
        return True

    def _prove(self) -> None:
        """Prove what is proved in moments, in a share of the time that is left and that writing does not need."""
        from privopt_metric_dp.proof import prove_nearby

        left, last, now = self.context.remaining, self.last, time.monotonic()
        if not self.bounded or left is None or last is None:
            return
        self.tried, until = True, min(now + SHARE_OF_PROOF * left, last)
        if until <= now:
            return
        weighted = ExpectedLoss.of(self.data).weighted
        value, half = min(self.loss, float(weighted.sum())), (now + until) / 2
        with suppress(StoppedError, MemoryError), ending_at(until):
            self.proved = prove_nearby(self.data, weighted, value, room=self.context.room, until=half)

    def _make(self) -> None:
        data = self.data
        if not data.crossed:
            return
        share, until = 0.5, self._until()
        pairs, lengths = data.standing
        with ending_at(until):
            if len(pairs) * len(data.outputs) <= CALIBRATED:
                with suppress(InputError, StoppedError, MemoryError):
                    share = largest_share(data.to_outputs, float(data.epsilon), pairs, lengths)
            if (share > 0.5 or self.release is None) and not self._at(share):
                return
        self._steeper(share, min(until, time.monotonic() + PATIENCE))

    def _until(self) -> float:
        """When what is looked for beside the release at hand must be there; infinite without a limit."""
        left = self.context.remaining
        return time.monotonic() + (np.inf if left is None else SHARE_OF_TIME * left)

    def _take(self, z: Floats, name: str, deadline: float | None = None) -> bool:
        """Repair and certify a matrix; whether it is better than what was at hand."""
        release = MatrixRelease.from_matrix(z, self.data, evolve(self.context, end=deadline or self.context.end))
        loss = ExpectedLoss.of(self.data).evaluate(release)
        if loss >= self.loss:
            return False
        self.release, self.loss, self.path = release, loss, name
        return True

    def _steeper(self, share: float, until: float) -> None:
        left = self.context.remaining
        if len(self.data.standing[0]) * len(self.data.outputs) < (MODERATE if left is None else SMALL):
            return
        for step in STEPS:
            steep = share + step * (1.0 - share)
            if steep <= share or time.monotonic() + self.seconds >= until:
                return
            z = exponential(self.data.to_outputs, float(self.data.epsilon), share=steep)
            try:
                with ending_at(until):
                    if not self._take(z, f"exponential ({steep:.3g} of epsilon, repaired)", until):
                        return
            except (CertificationError, StoppedError, SolverError, MemoryError):
                return
