"""The executor interface used for all parallel work, and a base class for its implementations.

:class:`Executor` resembles :class:`concurrent.futures.Executor`, but each task also has a key that selects the worker.
A task can therefore use data that earlier tasks with the same key left in the worker's memory.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from itertools import count
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from attrs import field, frozen

from privopt.errors import StoppedError
from privopt.execution.clock import check

T = TypeVar("T")

_local = threading.local()


def worker_state() -> dict[Hashable, Any]:
    """Return a dictionary that persists between the current worker's tasks. It is empty in a new worker.

    Use it only as a cache: a task must be able to rebuild everything that it looks up here.
    """
    # Thread-local, because an executor with threads has several workers in one process.
    if not hasattr(_local, "state"):
        _local.state = {}
    state: dict[Hashable, Any] = _local.state
    return state


@frozen(eq=False)
class Held:
    """A reference, returned by :meth:`Executor.hold`, to a value that is sent to each worker at most once.

    Attributes:
        value: The value.
        number: The number identifying the value in messages to workers.
    """

    value: Any = field(repr=False)
    number: int


class Executor(ABC):
    """Abstract base class for executors, which run tasks on workers. Each task's key determines its worker.

    Attributes:
        jobs: The number of tasks that can run at the same time.
    """

    jobs: int = 1

    @abstractmethod
    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Queue ``function(*arguments)`` on the worker for ``key``, and return a future for the result.

        The task runs after all earlier tasks on the same worker, and within the caller's time limits.
        """

    def hold(self, value: object) -> object:
        """Return a reference to ``value`` that can be passed as an argument to any number of tasks.

        Each worker receives the value only once, no matter how many tasks use it.
        """
        return value

    def close(self, *, wait: bool = True) -> None:  # noqa: B027 - an executor may have nothing to stop
        """Stop the workers once they have finished their tasks, or immediately if ``wait`` is False."""

    def map(self, function: Callable[..., T], *columns: Iterable[Any]) -> Iterator[T]:
        """Call a function in parallel, like :func:`map`, and return an iterator over the results in order.

        The n-th call receives the n-th element of each of ``columns``, which must all have the same length. The calls
        cycle through ``jobs`` different keys, and all are submitted immediately.
        """
        futures = [
            self.submit(("map", n % self.jobs), function, *row) for n, row in enumerate(zip(*columns, strict=True))
        ]
        return (future.result() for future in futures)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: object) -> None:
        self.close(wait=kind is None)


class WorkerExecutor(Executor):
    """Base class for executors with several workers.

    Each worker has a slot (its index) and, in this process, a dedicated thread that passes tasks to it in order.
    """

    def __init__(self, jobs: int) -> None:
        """Create a pool with one thread for each of ``jobs`` workers."""
        self.jobs = jobs
        # The next number for a held value (numbers are never reused), and the slot of each key.
        self._numbers, self._slots = count(), dict[Hashable, int]()
        self._pools = [ThreadPoolExecutor(1, thread_name_prefix=f"privopt-{n}") for n in range(jobs)]
        # Weak references, so that workers can forget a value once the caller has dropped its reference.
        self._live_values: WeakValueDictionary[int, Held] = WeakValueDictionary()

    def hold(self, value: object) -> object:
        """Return a reference to a value. Workers keep the value for as long as the reference exists."""
        reference = Held(value, next(self._numbers))
        self._live_values[reference.number] = reference
        return reference

    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Queue a call on the worker for ``key``, and return a future for its result (see :class:`Executor`)."""
        # Keys are assigned round-robin in order of first use, so that a program always places its tasks in the same
        # way.
        slot = self._slots.setdefault(key, len(self._slots) % self.jobs)
        # The copied context carries the caller's time scopes to the slot's thread.
        return self._pools[slot].submit(copy_context().run, self._call_in_time, slot, function, arguments)

    def _call_in_time(self, slot: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Call a function on the worker in a slot, within the caller's time limits.

        Raises:
            OutOfTime: One of the caller's time limits expired before or during the call.
            StoppedError: The worker was stopped for another reason.
        """
        check()
        try:
            return self._call(slot, function, arguments)
        except StoppedError:
            # Another process does not know the caller's time scopes. If one of them has expired, check() raises the
            # OutOfTime error that belongs to it.
            check()
            raise

    def close(self, *, wait: bool = True) -> None:
        """Stop the workers' threads once they have finished their tasks.

        If ``wait`` is False, queued tasks are cancelled, and the method returns without waiting for running tasks.
        """
        for pool in self._pools:
            pool.shutdown(wait=wait, cancel_futures=not wait)

    @abstractmethod
    def _call(self, slot: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Call a function on the worker in a slot, and wait for its result."""
