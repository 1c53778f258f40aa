"""The door that all parallel work goes through."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

from attrs import field, frozen

__all__ = ["Executor", "Held", "map_ordered", "spans", "worker_state"]

T = TypeVar("T")

_local = threading.local()


def worker_state() -> dict[Hashable, Any]:
    """What the current worker keeps between tasks; empty in a worker that was just built.

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
    """Stands for a value in submit and travels to each worker at most once; made by :meth:`Executor.hold`."""

    value: Any = field(repr=False)
    number: int


class Executor(ABC):
    """Single-worker executors behind one door, chosen by key.

    Attributes:
        jobs: how many tasks can run at once.
    """

    jobs: int = 1

    def __init__(self) -> None:
        self._numbers = iter(range(1 << 62))
        self._places: dict[Hashable, int] = {}

    @abstractmethod
    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        """Run ``function(*arguments)`` on the worker of ``key``, after what was submitted there before."""

    def hold(self, value: object) -> object:
        """Give ``value`` to submit as often as wanted; it is sent to each worker once."""
        return value

    def close(self, *, wait: bool = True) -> None:  # noqa: B027 - nothing to end is a fine answer
        """End the workers; with ``wait=False`` at once, whatever they are doing."""

    def map(self, function: Callable[..., T], *columns: Iterable[Any]) -> Iterator[T]:
        """As the built-in map, in order; element n runs under key n modulo jobs."""
        futures = [
            self.submit(("map", n % self.jobs), function, *row) for n, row in enumerate(zip(*columns, strict=True))
        ]
        return (future.result() for future in futures)

    def _place(self, key: Hashable) -> int:
        """The worker of ``key``: round robin in order of first sight, so the same program places the same way."""
        return self._places.setdefault(key, len(self._places) % self.jobs)

    def __enter__(self) -> Executor:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: object, trace: object) -> None:
        self.close(wait=kind is None)


def map_ordered(executor: Executor | None, function: Callable[..., T], *columns: Iterable[Any]) -> list[T]:
    """``executor.map`` as a list, or the plain loop where there is no executor."""
    if executor is None:
        return [function(*row) for row in zip(*columns, strict=True)]
    return list(executor.map(function, *columns))
