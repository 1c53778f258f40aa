"""Limit the threads of work, as ``--jobs`` says. Deadlines are in :mod:`privopt.execution.clock`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import copy_context
from typing import Final, TypeVar

from privopt.execution.base import spans
from privopt.execution.clock import check

T = TypeVar("T")

VARIABLES: Final = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""What libraries of linear algebra read as they are loaded."""


def allowed_threads() -> int:
    """Return how many threads work may use: ``OMP_NUM_THREADS`` if set, otherwise one per processor, 8 at most."""
    stated = os.environ.get(VARIABLES[0], "")
    return max(1, int(stated)) if stated.isdecimal() else min(8, os.cpu_count() or 1)


@contextmanager
def limited_to(jobs: int | None) -> Iterator[None]:
    """Limit threads of this process in a block, linear algebra included, loaded or not yet.

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


def in_threads(function: Callable[[int, int], T], count: int, *, min_span: int = 64) -> list[T]:
    """Call a function that releases the GIL on spans ``a, b`` of ``range(count)`` in threads; return results in order.

    Args:
        function: of the two ends; spans do not depend on each other.
        count: of all; 0 calls nothing.
        min_span: fewer than this are one span, in the caller's own thread.

    Raises:
        OutOfTime: the end of a scope around has come; spans that were not begun are not begun any more.
    """
    workers = allowed_threads()
    check()
    if count < min_span or workers == 1:
        return [function(0, count)] if count else []
    with ThreadPoolExecutor(workers) as pool:  # four a thread: spans may differ in length of work
        futures = [
            pool.submit(copy_context().run, _timely, function, first, end)
            for first, end in spans(count, count, 4 * workers)
        ]
        try:
            found = []
            for future in futures:
                found.append(future.result())
                check()
        finally:
            for future in futures:
                future.cancel()
    return found


def _timely(function: Callable[[int, int], T], first: int, end: int) -> T:
    check()
    return function(first, end)
