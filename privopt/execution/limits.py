"""How many threads work may take, and until when: what ``--jobs`` and ``--time-limit`` say, wherever the work runs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, TypeVar

from privopt.errors import StoppedError
from privopt.execution.base import spans

__all__ = [
    "EXIT",
    "GRACE",
    "OVER",
    "VARIABLES",
    "allowed_threads",
    "check_end",
    "ending_at",
    "in_threads",
    "limited_to",
    "seconds_left",
]

T = TypeVar("T")

OVER, GRACE = 1.1, 5.0
"""A command with a limit ends by so many times that and so many seconds, counted from its process's start."""
EXIT = 0.8
"""Of these seconds what the last resort leaves for the process to end in: at a load of 15 it took up to .6."""

VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What libraries of linear algebra read as they are loaded."""

_END: ContextVar[float | None] = ContextVar("_END", default=None)


@contextmanager
def ending_at(end: float | None) -> Iterator[None]:
    """A block whose long loops stop once ``time.monotonic()`` reaches ``end``, or an earlier end around them."""
    around = _END.get()
    token = _END.set(end if around is None or (end is not None and end < around) else around)
    try:
        yield
    finally:
        _END.reset(token)


def check_end(before: str = "") -> None:
    """What long loops call now and then.

    Args:
        before: what is not done yet, in words, where a caller has something to fall back on.

    Raises:
        StoppedError: the end of :func:`ending_at` has come.
    """
    end = _END.get()
    if end is not None and time.monotonic() >= end:
        if before:
            raise StoppedError(f"the time limit came before {before}")
        raise StoppedError(
            "the time limit, and what it leaves to end in, came before a release was certified and written; nothing "
            "written"
        )


def seconds_left(before: str = "") -> float | None:
    """What a solver that takes a limit of its own may take: up to the end of :func:`ending_at`; None without one.

    Args:
        before: as of :func:`check_end`.

    Raises:
        StoppedError: the end has come.
    """
    check_end(before)
    end = _END.get()
    return None if end is None else max(1e-3, end - time.monotonic())


def allowed_threads() -> int:
    """Threads that work may take now: ``OMP_NUM_THREADS`` where it is set, else a processor each, 8 at most."""
    stated = os.environ.get(VARIABLES[0], "")
    return max(1, int(stated)) if stated.isdecimal() else min(8, os.cpu_count() or 1)


@contextmanager
def limited_to(jobs: int | None) -> Iterator[None]:
    """A block in which work of this process takes at most so many threads, linear algebra too, loaded or not yet.

    None limits nothing (:func:`allowed_threads` says what is taken then). It holds for the whole process: the threads
    of a pool would not know a variable of the thread that made it.
    """
    if jobs is None:
        yield
        return
    from threadpoolctl import threadpool_limits

    before = {name: os.environ.get(name) for name in VARIABLES}
    os.environ.update(dict.fromkeys(VARIABLES, str(jobs)))
    try:
        with threadpool_limits(limits=jobs):
            yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def in_threads(function: Callable[[int, int], T], count: int, *, least: int = 64) -> list[T]:
    """What a function that leaves the interpreter's lock gives for spans ``a, b`` of ``range(count)``, in order.

    Args:
        function: of the two ends; spans do not depend on each other.
        count: of all; 0 calls nothing.
        least: fewer than this are one span, in the caller's own thread.

    Raises:
        StoppedError: the end of :func:`ending_at` has come.
    """
    workers = allowed_threads()
    check_end()
    if count < least or workers == 1:
        return [function(0, count)] if count else []
    with ThreadPoolExecutor(workers) as pool:  # four a thread: spans may differ in length of work
        futures = [pool.submit(function, *span) for span in spans(count, count, 4 * workers)]
        try:
            found = []
            for future in futures:
                found.append(future.result())
                check_end()
        finally:
            for future in futures:
                future.cancel()
    return found
