"""Executors on this machine, which run tasks in the caller's thread, in other threads, or in worker processes.

:func:`from_url` selects one according to ``--executor`` and ``--jobs``. Worker processes are implemented in
:mod:`privopt.execution.worker`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

from privopt.errors import SolverError, UsageError
from privopt.execution.base import Executor, WorkerExecutor
from privopt.execution.clock import Ticket
from privopt.execution.worker import DeadWorkerError, Worker, settle

T = TypeVar("T")


class _Serial(Executor):
    """An executor that runs each task immediately, in the thread that submitted it."""

    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Call the function immediately, and return a future that is already done."""
        future: Future[T] = Future()
        settle(future, function, *arguments)
        return future


class _Threads(WorkerExecutor):
    """An executor that runs tasks in threads, for functions that release the GIL (numba, LAPACK).

    Arguments are not copied.
    """

    def hold(self, value: object) -> object:
        """Return the value itself, because all threads share it."""
        return value

    def _call(self, slot: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Call the function in the current thread, which is the thread of the slot."""
        return function(*arguments)


class _Processes(WorkerExecutor):
    """An executor that runs tasks in worker processes, which are started on first use and replaced if they die.

    Attributes:
        _workers: The worker in each slot, or None before the slot's first task or after its worker's death.
        _closed: Whether the executor has been closed, so that no more workers may be started.
    """

    def __init__(self, jobs: int) -> None:
        """Create slots for ``jobs`` worker processes. Each process is started on first use."""
        super().__init__(jobs)
        self._workers: list[Worker | None] = [None] * jobs
        self._closed = False

    def _call(self, slot: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Call a function in a slot's worker process. If the process dies, try once more in a new one.

        Raises:
            SolverError: The second process also died, or the executor was closed before a process could be started.
        """
        # A worker may die by chance, for example if memory is short. If a second one dies too, the task is probably the
        # cause.
        for attempt in (1, 2):
            worker = self._workers[slot]
            if worker is None:
                if self._closed:
                    raise SolverError("the executor was closed")
                worker = self._workers[slot] = Worker()
            try:
                # The ticket carries the caller's time limit to the process.
                answer: T = worker.call(Ticket.now().call, (function, *arguments), self._live_values)
            except DeadWorkerError as error:
                worker.close()
                self._workers[slot] = None
                if attempt == 2:
                    name = getattr(function, "__qualname__", repr(function))
                    raise SolverError(f"the worker process died in {name}, twice ({error})") from error
            else:
                return answer
        raise AssertionError  # not reached: the second attempt returns or raises an error

    def close(self, *, wait: bool = True) -> None:
        """Stop the worker processes once all queued tasks are done, or immediately if ``wait`` is False."""
        self._closed = True
        # Kill the workers first, because the pools' threads cannot end while they wait for answers.
        if not wait:
            for worker in self._workers:
                if worker is not None:
                    worker.process.kill()
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=not wait)
        for worker in self._workers:
            if worker is not None:
                worker.close(wait=wait)
        self._workers = [None] * self.jobs


def serial() -> Executor:
    """Return an executor that runs each task immediately, in the thread that submitted it."""
    return _Serial()


def threads(jobs: int) -> Executor:
    """Return an executor that runs tasks in ``jobs`` threads (at least 1) of this process."""
    return _Threads(_at_least_one(jobs))


def processes(jobs: int) -> Executor:
    """Return an executor with ``jobs`` worker processes (at least 1). Each process is started on first use."""
    return _Processes(_at_least_one(jobs))


def _at_least_one(jobs: int) -> int:
    """Return the number of jobs unchanged, or raise a UsageError if it is below 1."""
    if jobs < 1:
        raise UsageError(f"jobs must be at least 1, got {jobs}")
    return jobs


def from_url(url: str | None, jobs: int = 1) -> Executor:
    """Return the executor selected by the ``--executor`` and ``--jobs`` options.

    Args:
        url: None for this machine, or ``dask://host:port``.
        jobs: The number of worker processes, or 1 to run tasks in the caller's thread. A Dask cluster ignores this
            argument and uses all of its workers.

    Raises:
        UsageError: The scheme is unknown, ``jobs`` is below 1, the cluster does not respond or has no workers, or
            ``distributed`` is not installed.
    """
    if url is None:
        return serial() if jobs == 1 else processes(jobs)
    scheme, _, address = url.partition("://")
    if scheme != "dask" or not address:
        raise UsageError(f"executor must be dask://host:port, got {url!r}")
    from privopt.execution.cluster import connect

    return connect(address)
