"""The executor interface, which all parallel work uses, and a base class for its implementations.

:class:`Executor` resembles :class:`concurrent.futures.Executor`, but each task also has a key that selects the worker.
A task can therefore use what earlier tasks with the same key left in the worker's memory.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from attrs import field, frozen

from privopt.errors import StoppedError
from privopt.execution.clock import check

T = TypeVar("T")

_local = threading.local()


def worker_state() -> dict[Hashable, Any]:
    """Return a dictionary that the current worker keeps between tasks. It is empty in a new worker.

    Use it only as a cache: a task must be able to rebuild everything that it looks up.
    """
    # Thread-local, because an executor in threads has several workers in one process.
    if not hasattr(_local, "state"):
        _local.state = {}
    state: dict[Hashable, Any] = _local.state
    return state


@frozen(eq=False)
class Held:
    """A reference, returned by :meth:`Executor.hold`, to a value that each worker receives at most once."""

    value: Any = field(repr=False)
    number: int


class Executor(ABC):
    """Runs tasks on workers that are chosen by key.

    Attributes:
        jobs: The number of tasks that can run at the same time.
    """

    jobs: int = 1

    @abstractmethod
    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Queue ``function(*arguments)`` on the worker of ``key``, and return the future of its result.

        The task runs after the earlier tasks of the worker, within the caller's time scopes.
        """

    def hold(self, value: object) -> object:
        """Return a reference to ``value`` that can be passed as an argument to any number of tasks.

        Each worker receives the value only once, however many tasks use it.
        """
        return value

    def close(self, *, wait: bool = True) -> None:  # noqa: B027 - an executor may have nothing to stop
        """Stop the workers, after their tasks or, if ``wait`` is False, immediately."""

    def map(self, function: Callable[..., T], *columns: Iterable[Any]) -> Iterator[T]:
        """Call a function in parallel on the elements of each row of some columns, and return the results in order.

        All tasks are submitted immediately. Row n has the key n modulo ``jobs``.
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
    """The base class of executors with several workers, each fed in order by a thread of its own."""

    def __init__(self, jobs: int) -> None:
        """Create a pool with one thread for each of ``jobs`` workers."""
        self.jobs = jobs
        # Numbers of held values, which are never reused; the slot (number of the worker) of each key.
        self._numbers, self._slots = iter(range(1 << 62)), dict[Hashable, int]()
        self._pools = [ThreadPoolExecutor(1, thread_name_prefix=f"privopt-{n}") for n in range(jobs)]
        # Weak, so that workers can forget a value once the caller has dropped its reference.
        self._live_values: WeakValueDictionary[int, Held] = WeakValueDictionary()

    def hold(self, value: object) -> object:
        """Return a reference to a value, which workers keep as long as the reference exists."""
        reference = Held(value, next(self._numbers))
        self._live_values[reference.number] = reference
        return reference

    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Queue a call for the worker of ``key``, and return the future of its result; see :class:`Executor`."""
        # Round robin in the order of first use, so that the same program places its tasks in the same way.
        slot = self._slots.setdefault(key, len(self._slots) % self.jobs)
        return self._pools[slot].submit(copy_context().run, self._call_in_time, slot, function, arguments)

    def _call_in_time(self, slot: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Call the function on the worker of a slot, within the caller's time scopes.

        If the deadline stopped the worker, the error of the caller's scope is raised.
        """
        check()
        try:
            return self._call(slot, function, arguments)
        except StoppedError:
            # A scope cannot travel to another process. If the caller's scope has ended, check() raises its OutOfTime.
            check()
            raise

    def close(self, *, wait: bool = True) -> None:
        """Stop the threads that feed the workers after their tasks. If ``wait`` is False, cancel queued tasks."""
        for pool in self._pools:
            pool.shutdown(wait=wait, cancel_futures=not wait)

    @abstractmethod
    def _call(self, slot: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Call the function on the worker of a slot, and wait for its result."""
