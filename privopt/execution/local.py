"""Executors on this machine: in place, in threads, or in worker processes (:mod:`privopt.execution.worker`)."""

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
    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        future: Future[T] = Future()
        settle(future, function, *arguments)
        return future


class _Threads(WorkerExecutor):
    """For functions that release the interpreter lock (numba with nogil, LAPACK): nothing is copied."""

    def hold(self, value: object) -> object:
        return value

    def _call(self, place: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        return function(*arguments)


class _Processes(WorkerExecutor):
    def __init__(self, jobs: int) -> None:
        super().__init__(jobs)
        self._workers: list[Worker | None] = [None] * jobs
        self._closed = False

    def _call(self, place: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        for attempt in (1, 2):
            worker = self._workers[place]
            if worker is None:
                if self._closed:
                    raise SolverError("the executor was closed")
                worker = self._workers[place] = Worker()
            try:
                answer: T = worker.call(Ticket.now().call, (function, *arguments), self._live)
            except DeadWorkerError as error:
                worker.close()
                self._workers[place] = None
                if attempt == 2 or self._closed:
                    name = getattr(function, "__qualname__", repr(function))
                    raise SolverError(f"the worker process died in {name}, twice ({error})") from error
            else:
                return answer
        raise AssertionError

    def close(self, *, wait: bool = True) -> None:
        self._closed = True
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
    """Return an executor that runs everything at once in this thread, in the order of submission."""
    return _Serial()


def threads(jobs: int) -> Executor:
    """Return an executor with ``jobs`` threads of this process, at least one."""
    return _Threads(_at_least_one(jobs))


def processes(jobs: int) -> Executor:
    """Return an executor with ``jobs`` worker processes, at least one, started when first needed."""
    return _Processes(_at_least_one(jobs))


def _at_least_one(jobs: int) -> int:
    if jobs < 1:
        raise UsageError(f"jobs must be at least 1, got {jobs}")
    return jobs


def from_url(url: str | None, jobs: int = 1) -> Executor:
    """Return the executor that ``--executor`` and ``--jobs`` name.

    Args:
        url: None for this machine, or ``dask://host:port``.
        jobs: 1 runs here, more in that many worker processes; a Dask cluster has as many as it has workers.

    Raises:
        UsageError: an unknown scheme, a cluster that does not answer, or ``distributed`` is not installed.
    """
    if url is None:
        return serial() if jobs == 1 else processes(jobs)
    scheme, _, address = url.partition("://")
    if scheme != "dask" or not address:
        raise UsageError(f"executor must be dask://host:port, got {url!r}")
    from privopt.execution.cluster import connect

    return connect(address)
