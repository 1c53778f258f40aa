"""Run a solver in a worker process, where it can crash, overrun its time limit or ignore interrupts without doing harm.

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
from typing import Any, Final

from attrs import define

from privopt.backends.raw import RejectedAnswerError
from privopt.backends.solver_process import solve_problem
from privopt.errors import PrivoptError, SolverDiedError, SolverError
from privopt.execution.clock import DaemonCall, clock
from privopt.execution.worker import DeadWorkerError, Worker, settle

MAX_SOLVES_PER_WORKER: Final = 200
"""The number of solves after which a worker process is replaced by a new one."""
MAX_IDLE_WORKERS: Final = 2
"""The largest number of idle workers to keep for each solver. Any others are closed."""
GRACE_SECONDS: Final = 2.0
"""The number of seconds by which a solve may exceed its time limit, for loading and cleaning up, before its worker is
killed."""


@define
class Reply:
    """A worker's reply to a problem.

    Attributes:
        answer: The solver's answer, or None if the worker was killed before it had one.
        latest: The last progress report that the worker sent before its answer, or None if it sent none.
        interrupted: Whether an interrupt ended the solve.
    """

    answer: dict[str, Any] | None = None
    latest: dict[str, Any] | None = None
    interrupted: bool = False


class _IdleWorkers:
    """The pool of idle workers in this process, grouped by solver.

    Attributes:
        lock: A lock that is held while the pool is read or changed.
        workers: The idle workers, keyed by the solver's name.
    """

    def __init__(self) -> None:
        """Create an empty pool. Workers are started as needed."""
        self.lock = threading.Lock()
        self.workers: dict[str, list[Worker]] = {}

    def has_worker(self, solver: str) -> bool:
        """Return whether the pool has an idle worker for the given solver that is still alive."""
        with self.lock:
            return any(worker.alive() for worker in self.workers.get(solver, []))

    def take_worker(self, solver: str, module: str) -> Worker:
        """Take an idle worker for a solver from the pool, or start one that imports ``module`` in the background."""
        with self.lock:
            waiting = self.workers.get(solver, [])
            while waiting:
                worker = waiting.pop()
                if worker.alive():
                    return worker
                worker.close()
        return Worker(quiet=True, module=module)

    def give_back(self, solver: str, worker: Worker) -> None:
        """Put a worker back into the pool for the solver's next problem.

        The worker is closed instead if it is dead or has solved many problems, or if too many workers are already idle.
        """
        with self.lock:
            waiting = self.workers.setdefault(solver, [])
            if worker.alive() and worker.answered < MAX_SOLVES_PER_WORKER and len(waiting) < MAX_IDLE_WORKERS:
                waiting.append(worker)
                return
        worker.close()

    def close(self) -> None:
        """Close all idle workers."""
        with self.lock:
            for worker in [w for waiting in self.workers.values() for w in waiting]:
                worker.close()
            self.workers.clear()

    def forget(self) -> None:
        """Empty the pool in a forked child process without closing the workers, which belong to the parent process."""
        # The old lock may be held by a thread that does not exist in the child.
        self.lock = threading.Lock()
        self.workers = {}


idle = _IdleWorkers()
"""The idle workers of this process."""
atexit.register(idle.close)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=idle.forget)


def start_worker(solver: str, module: str) -> None:
    """Start a worker for a solver, unless one is already idle.

    The worker imports the solver's module in the background while the caller compiles its model.
    """
    if not idle.has_worker(solver):
        idle.give_back(solver, Worker(quiet=True, module=module))


def ask(solver: str, problem: dict[str, Any], limit: float | None) -> Reply:
    """Solve a problem in a worker process, which is killed if it overruns its time limit.

    Args:
        solver: The solver's name. Each solver has its own workers, so two solvers never share a process.
        problem: The problem's arrays, keyed by name. The key ``solver`` names the module whose ``answer(problem)``
            solves it. Only the worker imports this module. The module can report better points with
            :func:`privopt.execution.child.send_progress`.
        limit: The solver's time limit in seconds, or None for no limit. The worker is killed GRACE_SECONDS after the
            limit.

    Returns:
        The reply. Its answer is None if the worker was killed at the limit or because of an interrupt.

    Raises:
        SolverDiedError: The worker process died.
        RejectedAnswerError: The solver aborted its process. Another attempt with other settings may succeed.
        SolverError: The solver rejected the problem.
        KeyboardInterrupt: The solve was interrupted before the solver had reported a point or an answer.
    """
    worker = idle.take_worker(solver, problem["solver"])
    answer: Future[dict[str, Any]] = Future()
    is_late, is_interrupted, scope = False, False, clock()
    # The call runs in another thread, so that this one can watch the clock and receive interrupts.
    DaemonCall(partial(settle, answer, worker.call, solve_problem, (problem,)))
    latest_end = math.inf if limit is None else time.monotonic() + limit + GRACE_SECONDS
    # The waits are short, because a signal may reach another thread first. They wait for the future, not the thread,
    # because a thread whose join was interrupted counts as ended.
    try:
        while not (answer.done() or is_late):
            wait([answer], timeout=min(0.2, max(latest_end - time.monotonic(), 0.0)))
            is_late = not answer.done() and (time.monotonic() >= latest_end or scope.is_cancelled)
    except KeyboardInterrupt:
        is_interrupted = True
    finally:
        # The solver must not outlive this call.
        if not answer.done():
            worker.process.kill()
    error, latest = answer.exception(), worker.latest
    is_dead = isinstance(error, DeadWorkerError)
    # This must be read before the worker is closed, because closing it also closes the file with its error output.
    death_text = worker.death() if is_dead and not (is_late or is_interrupted) else ""
    # A worker that was killed may look alive for a moment, so it must not be given back.
    if is_dead or is_late:
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
    # If there is an answer or a progress report, it is returned, with ``interrupted`` set.
    if is_interrupted and error is not None and latest is None:
        raise KeyboardInterrupt
    return Reply(answer=None if error is not None else answer.result(), latest=latest, interrupted=is_interrupted)
