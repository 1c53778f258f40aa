"""Solve in a worker process, so that a solver's crash, overrun or ignored interrupt does no harm.

Idle workers are reused, because starting one takes longer than most solves.
"""

from __future__ import annotations

import atexit
import math
import os
import signal
import threading
import time
from concurrent.futures import Future, wait
from functools import partial
from importlib import import_module
from typing import Any, Final

from attrs import define

from privopt.backends.raw import RejectedAnswerError
from privopt.errors import PrivoptError, SolverDiedError, SolverError
from privopt.execution.clock import DaemonCall, clock
from privopt.execution.worker import DeadWorkerError, Worker, settle

MAX_SOLVES_PER_WORKER: Final = 200
"""After so many solves a worker is replaced."""
MAX_IDLE_WORKERS: Final = 2
"""So many workers wait for the next solve."""
GRACE_SECONDS: Final = 2.0
"""What a solve may take beyond its limit, for loading and tear-down, before the worker is killed."""


@define
class Reply:
    """The result of asking a worker.

    Attributes:
        answer: of the solver; None if the worker was ended before.
        latest: the last thing said before the answer, None if nothing was.
        interrupted: whether an interrupt ended it.
    """

    answer: dict[str, Any] | None = None
    latest: dict[str, Any] | None = None
    interrupted: bool = False


class _Idle:
    """Workers that wait for their next problem, by solver."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.workers: dict[str, list[Worker]] = {}

    def take_worker(self, solver: str) -> Worker:
        """Return a living worker of a solver, or start one."""
        with self.lock:
            waiting = self.workers.get(solver, [])
            while waiting:
                worker = waiting.pop()
                if worker.alive():
                    return worker
                worker.close()
        return Worker(quiet=True)

    def give_back(self, solver: str, worker: Worker) -> None:
        """Keep a worker for the next problem, or close it if it is dead, used up or one too many."""
        with self.lock:
            waiting = self.workers.setdefault(solver, [])
            if worker.alive() and worker.answered < MAX_SOLVES_PER_WORKER and len(waiting) < MAX_IDLE_WORKERS:
                waiting.append(worker)
                return
        worker.close()

    def close(self) -> None:
        """Close all waiting workers."""
        with self.lock:
            for worker in [w for waiting in self.workers.values() for w in waiting]:
                worker.close()
            self.workers.clear()

    def forget(self) -> None:
        """Drop the workers in a forked child, because they belong to the parent."""
        self.lock = threading.Lock()
        self.workers = {}


idle = _Idle()
atexit.register(idle.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=idle.forget)


def _solve_problem(problem: dict[str, Any]) -> dict[str, Any]:
    """Solve a problem with its solver's module (runs in the worker)."""
    answer: dict[str, Any] = import_module(problem["solver"]).answer(problem)
    return answer


def ask(solver: str, problem: dict[str, Any], limit: float | None) -> Reply:
    """Solve a problem in a worker process.

    Args:
        solver: in words; each has workers of its own, for solvers do not share a process.
        problem: arrays, and under ``solver`` the module whose ``answer(problem)`` solves them; it may
            :func:`privopt.execution.worker.send_progress` a better point meanwhile, and is loaded in the worker alone.
        limit: seconds of wall time that the solver was given; GRACE_SECONDS later the worker is killed.

    Returns:
        The answer; none, where the worker was killed at the limit or by an interrupt.

    Raises:
        SolverDiedError: the process died.
        RejectedAnswerError: the solver ended its process itself, by abort: other settings may do.
        SolverError: the solver refused the problem.
        KeyboardInterrupt: an interrupt came, and the solver had nothing to hand over.
    """
    worker = idle.take_worker(solver)
    answer: Future[dict[str, Any]] = Future()
    is_late, is_interrupted, scope = False, False, clock()
    DaemonCall(partial(settle, answer, worker.call, _solve_problem, (problem,)))
    latest_end = math.inf if limit is None else time.monotonic() + limit + GRACE_SECONDS
    try:  # short waits, on the future: a signal may reach another thread, and an interrupted join takes ours for ended
        while not (answer.done() or is_late):
            wait([answer], timeout=min(0.2, max(latest_end - time.monotonic(), 0.0)))
            is_late = not answer.done() and (time.monotonic() >= latest_end or scope.cancelled)
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        if not answer.done():  # no solver outlives the call
            worker.process.kill()
    error, latest = answer.exception(), worker.latest
    is_dead = isinstance(error, DeadWorkerError)
    # Read before the worker is closed, which closes the file of its errors.
    death_text = worker.death() if is_dead and not (is_late or is_interrupted) else ""
    if is_dead or is_late:  # one that was killed may still look alive for a moment
        worker.close()
    else:
        idle.give_back(solver, worker)
    if death_text:
        is_aborted = worker.process.returncode == -signal.SIGABRT
        raise (RejectedAnswerError if is_aborted else SolverDiedError)(f"{solver} died {death_text}")
    if isinstance(error, PrivoptError):
        raise error
    if error is not None and not is_dead:
        raise SolverError(f"{solver} failed: {error!r}") from error
    if is_interrupted and error is not None and latest is None:
        raise KeyboardInterrupt
    return Reply(answer=None if error is not None else answer.result(), latest=latest, interrupted=is_interrupted)
