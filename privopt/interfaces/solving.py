"""The context of a solve (its options and limits), and the outcome returned by a mechanism."""

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
from privopt.execution.resources import GB, PROGRAM_BYTES, resident
from privopt.interfaces.release import Release

R_co = TypeVar("R_co", bound=Release, covariant=True)

Progress = Callable[[str, int, float | None, float | None], None]
"""A function ``progress(phase, round, lower, upper)`` that displays progress.

``phase`` is a string and ``round`` is the current round (0 for none). The bounds are in the objective's unit, or None
if they are unknown.
"""


class Proof(Protocol):
    """The proof of a bound, usually stored in ``proof.npz``, from which ``verify`` recomputes the bound."""

    def write(self, folder: Path) -> None:
        """Write the proof to the release folder. A proof is published, so it must not depend on secrets."""


@frozen(kw_only=True)
class Outcome(Generic[R_co]):
    """The return value of a mechanism's ``solve``.

    Attributes:
        release: The release to certify and publish.
        lower_bound: A rigorous bound on the objective of any release (an upper bound if the objective is maximised), or
            None if no bound is known. It is included in result.json if the mechanism can prove it from the folder
            (:class:`privopt.interfaces.abilities.ProvesBound`).
        bound_over: If the mechanism chose outputs, "chosen" if the bound covers only releases over the chosen outputs,
            or "all" if it covers releases over all candidates. It is None if no outputs were chosen.
        proof: The proof of the bound, to be written next to the release, or None if the release itself is sufficient.
        solver: ``name``, ``version``, ``iterations`` and further statistics about the search.
        details: Values for ``details.told`` in ``result.json``, which are not verified. If they include a program under
            ``lp`` (``value``, ``lower_bound``, ``gap``), ``--gap`` and the status refer to that program.
        stopped: Whether the search was ended early by a limit or an interrupt.
        seeded: Whether noise was drawn from a seed.
        truth: Values that depend on secrets. They are written to ``private/truth.json`` and nowhere else.
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
    """The options and limits of a solve: everything that is passed to a mechanism besides the problem.

    Attributes:
        method: The name of the method to run, which is one of the methods in the spec.
        solver: The name of the backend for models, such as ``"cbc"`` or ``"highs"``.
        gap: The requested relative gap.
        search_time: The time scope of the search. Repairing, proving and writing follow in the enclosing scope, and the
            search must leave enough time for these steps.
        memory: The maximum number of bytes that the process may use, or None for no limit.
        seed: The seed of the noise, for experiments only, because a release drawn with a seed is not private.
        executor: The executor for parallel work.
        progress: The function to call to show progress, or None.
        checkpoint: The folder in which a stopped run may save its state, created on first use, or None.
        resume: Whether to continue from the state in ``checkpoint``.
        copies: The folder for clean copies (:class:`privopt.interfaces.abilities.CopiesFiles`), or None for no copies.
        times: The time in seconds taken by each phase, recorded by :meth:`time_phase`.
    """

    method: str
    solver: str = "cbc"
    gap: float = 1e-6
    # A factory, so that the parent is the scope in which the context is created.
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
    def time_phase(self, phase: str) -> Iterator[None]:
        """Add the duration of a block to the time of a phase: ``build``, ``solve``, ``repair`` or ``verify``."""
        start = time.monotonic()
        try:
            yield
        finally:  # a block that fails also takes time
            self.times[phase] = self.times.get(phase, 0.0) + time.monotonic() - start

    @property
    def remaining(self) -> float | None:
        """The number of seconds until the search must end, or None if there is no time limit."""
        # The current scope may expire before the search does, because part of a search may get only part of its time.
        seconds = min(self.search_time.left, clock().left)
        return None if seconds == math.inf else seconds

    @property
    def free_memory(self) -> float:
        """The number of bytes that the process may still allocate, or infinity if there is no limit."""
        # The interpreter with its libraries counts as PROGRAM_BYTES even if less of it is currently resident.
        return float("inf") if self.memory is None else max(0.0, self.memory - max(resident(), PROGRAM_BYTES))

    def require_memory(self, byte_count: float, consumer: str) -> None:
        """Reject work that does not fit in memory, before the work begins.

        Args:
            byte_count: The number of bytes that the work will allocate.
            consumer: A plural noun phrase describing the work, for the error message.

        Raises:
            StoppedError: The work needs more memory than is free.
        """
        if byte_count > self.free_memory:
            # The advice adds 5 %, so that it is sufficient even if the process has grown slightly by then.
            enough = f"--memory {1.05 * (byte_count + max(resident(), PROGRAM_BYTES)) / GB:.2g}"
            raise StoppedError(
                f"not enough memory: {consumer} need {byte_count / GB:.2g} GB more than the program holds, "
                f"{self.free_memory / GB:.2g} GB are left, "
                f"nothing was begun or written; use {enough} at least"
            )

    def report(self, phase: str, iteration: int = 0, lower: float | None = None, upper: float | None = None) -> None:
        """Report progress to the display, if there is one."""
        if self.progress is not None:
            self.progress(phase, iteration, lower, upper)
