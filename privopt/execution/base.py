"""The executor interface, which all parallel work uses."""

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
    """Return what the current worker keeps between tasks; empty in a worker that was just built.

    Use it as a cache only: a task must be able to build again whatever it looks for here.
    """
    if not hasattr(_local, "state"):
        _local.state = {}
    state: dict[Hashable, Any] = _local.state
    return state


def spans(count: int, block: int, parts: int = 1) -> list[tuple[int, int]]:
    """Cut ``range(count)`` into spans of at most ``block``, at least ``parts`` of them where there is that much.

    >>> spans(10, 4, 2)
    [(0, 4), (4, 8), (8, 10)]
    """
    size = max(1, min(block, -(-count // max(1, parts))))
    return [(start, min(count, start + size)) for start in range(0, count, size)]


@frozen(eq=False)
class Held:
    """A reference to a value that is sent to each worker at most once; made by :meth:`Executor.hold`."""

    value: Any = field(repr=False)
    number: int


class Executor(ABC):
    """Single-worker executors behind one door, chosen by key.

    Attributes:
        jobs: how many tasks can run at once.
    """

    jobs: int = 1

    @abstractmethod
    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Run ``function(*arguments)`` on the worker of ``key``, after what was submitted there before.

        The caller's scopes of time hold there too.
        """

    def hold(self, value: object) -> object:
        """Return a reference to ``value`` for any number of submits; it is sent to each worker once."""
        return value

    def close(self, *, wait: bool = True) -> None:  # noqa: B027 - nothing to end is a fine answer
        """End the workers; with ``wait=False`` at once, whatever they are doing."""

    def map(self, function: Callable[..., T], *columns: Iterable[Any]) -> Iterator[T]:
        """Map as the built-in does, results in order; element n runs under key n modulo jobs."""
        futures = [
            self.submit(("map", n % self.jobs), function, *row) for n, row in enumerate(zip(*columns, strict=True))
        ]
        return (future.result() for future in futures)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: object) -> None:
        self.close(wait=kind is None)


class WorkerExecutor(Executor):
    """Workers elsewhere, each fed by a thread of its own, which keeps its tasks in order."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self._numbers, self._places = iter(range(1 << 62)), dict[Hashable, int]()
        self._pools = [ThreadPoolExecutor(1, thread_name_prefix=f"privopt-{n}") for n in range(jobs)]
        self._live: WeakValueDictionary[int, Held] = WeakValueDictionary()

    def hold(self, value: object) -> object:
        """Hold a value; workers keep it until no one holds it any more."""
        held = Held(value, next(self._numbers))
        self._live[held.number] = held
        return held

    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        """See :class:`Executor`."""
        # round robin in order of first use, so that the same program places the same way
        place = self._places.setdefault(key, len(self._places) % self.jobs)
        return self._pools[place].submit(copy_context().run, self._timely, place, function, arguments)

    def _timely(self, place: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Have it done; where a worker says that its time was over, that is the end of the scope here."""
        check()
        try:
            return self._call(place, function, arguments)
        except StoppedError:
            check()
            raise

    def close(self, *, wait: bool = True) -> None:
        """See :class:`Executor`."""
        for pool in self._pools:
            pool.shutdown(wait=wait, cancel_futures=not wait)

    @abstractmethod
    def _call(self, place: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Have the worker of a place do it, and wait."""
