"""The context and the outcome of a solve: options for a mechanism, and what it returns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from attrs import Factory, define, field, frozen

from privopt.errors import StoppedError
from privopt.execution import Executor, serial
from privopt.execution.clock import Clock, clock
from privopt.execution.memory import GB, PROGRAM_BYTES, resident
from privopt.interfaces.release import Release

R_co = TypeVar("R_co", bound=Release, covariant=True)

Progress = Callable[[str, int, float | None, float | None], None]
"""``progress(phase, round, lower, upper)``: bounds in the objective's unit, None where unknown."""


class Proof(Protocol):
    """What a bound is evaluated from again, as ``proof.npz`` holds it."""

    def write(self, folder: Path) -> None:
        """Write it into DIR; public like all that lies there."""


@frozen(kw_only=True)
class Outcome(Generic[R_co]):
    """What a mechanism's ``solve`` returns.

    Attributes:
        release: what would be published.
        lower_bound: rigorous bound on the objective of any release (upper where it is maximised), or None. It is
            stated where :meth:`privopt.interfaces.Mechanism.proved` finds it again in DIR.
        bound_over: where the mechanism chose outputs: "chosen" where the bound speaks of releases over these, "all"
            where it speaks of releases over all that it chose from. None where it chose none.
        proof: what proves it, written next to the release; None where the release itself does.
        solver: ``name``, ``version``, ``iterations`` and what else describes the path taken.
        details: what else there is to say, for ``details.told`` of ``result.json``: no one checks it. Its ``lp``
            (``value``, ``lower_bound``, ``gap``), where there is one, is what ``--gap`` and the status mean.
        stopped: True where a limit or an interrupt ended it early.
        seeded: True where a seed drew the noise.
        truth: what depends on secrets: goes to ``private/truth.json`` and nowhere else.
    """

    release: R_co
    lower_bound: float | None = None
    bound_over: str | None = None
    proof: Proof | None = None
    solver: Mapping[str, Any] = field(factory=dict)
    details: Mapping[str, Any] = field(factory=dict)
    stopped: bool = False
    seeded: bool = False
    truth: Mapping[str, Any] | None = None


@define(kw_only=True)
class SolveContext:
    """How a mechanism shall work: everything that is not the problem.

    Attributes:
        method: name of one of the spec's methods.
        solver: backend for models: ``"cbc"`` or ``"highs"``.
        gap: relative gap asked for.
        search_time: the scope of time that a search is in; what comes after it (repair, proof, files) is in the
            scope around, and a search leaves it the time that it will take.
        memory: bytes that the process may hold, at most; None for no limit.
        seed: for experiments only; a release that it drew is not private.
        executor: where parallel work runs.
        progress: called by long work.
        checkpoint: folder that a stopped run may leave its state in (made when first used), or None.
        resume: whether to go on from what is in ``checkpoint``.
        copies: folder for clean copies (:class:`privopt.interfaces.abilities.CopiesFiles`), or None without copies.
        times: seconds by phase, filled by :meth:`timed`.
    """

    method: str
    solver: str = "cbc"
    gap: float = 1e-6
    search_time: Clock = Factory(lambda: Clock(None, clock()))
    memory: float | None = None
    seed: int | None = None
    executor: Executor = Factory(serial)
    progress: Progress | None = None
    checkpoint: Path | None = None
    resume: bool = False
    copies: Path | None = None
    times: dict[str, float] = field(factory=dict)

    @contextmanager
    def timed(self, phase: str) -> Iterator[None]:
        """Count the seconds of a block under ``build``, ``solve``, ``repair`` or ``verify``."""
        start = time.monotonic()
        try:
            yield
        finally:
            self.times[phase] = self.times.get(phase, 0.0) + time.monotonic() - start

    @property
    def remaining(self) -> float | None:
        """Seconds until the search has to end, at least 0; None without a limit."""
        left = min(self.search_time.left, clock().left)
        return None if left == math.inf else left

    @property
    def free_memory(self) -> float:
        """Bytes that may be taken on top of those that the loaded process holds; infinite without a limit."""
        return float("inf") if self.memory is None else max(0.0, self.memory - max(resident(), PROGRAM_BYTES))

    def need(self, needed: float, who: str) -> None:
        """Refuse what does not fit, before it is begun.

        Args:
            needed: bytes.
            who: takes them, in the plural.

        Raises:
            StoppedError: it needs more memory than there is.
        """
        if needed > self.free_memory:
            enough = f"--memory {1.05 * (needed + max(resident(), PROGRAM_BYTES)) / GB:.2g}"
            raise StoppedError(
                f"not enough memory: {who} need {needed / GB:.2g} GB more than the program holds, "
                f"{self.free_memory / GB:.2g} GB are left, "
                f"nothing was begun or written; use {enough} at least"
            )

    def report(self, phase: str, iteration: int = 0, lower: float | None = None, upper: float | None = None) -> None:
        """Report progress to the display, if there is one."""
        if self.progress is not None:
            self.progress(phase, iteration, lower, upper)
