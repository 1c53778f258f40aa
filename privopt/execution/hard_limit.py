"""The watchdog of a time limit: it ends the process if work ignores the clock, with nothing written.

Compiled and native code cannot be interrupted, and a busy machine may take seconds over what takes a tenth elsewhere.
A thread waits while the work runs, and behind it the kernel (:mod:`privopt.execution.kernel_timer`), for code that
holds the interpreter's lock; once anything has its name (:func:`settling`) they wait for nothing any more.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from privopt.execution.kernel_timer import KernelTimer

LOCK_GRACE_SECONDS: Final = 0.4
"""Seconds that the thread has after its time before the kernel takes it that the interpreter's lock is held."""

_LOCK = threading.RLock()
_waiting: dict[threading.Timer, KernelTimer] = {}
_standing: list[Callable[[], bool]] = []


def lived(stat: Path = Path("/proc/self/stat")) -> float:
    """Return the seconds that this process has lived, loading included; 0 if the system does not say."""
    try:
        ticks = int(stat.read_text().rpartition(")")[2].split()[19])
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK"))
    except (AttributeError, OSError, ValueError, IndexError):  # no Linux
        return 0.0


@contextmanager
def ended_after(seconds: float | None, end: Callable[[], object]) -> Iterator[None]:
    """Call ``end`` from another thread if the block is still running after ``seconds`` and nothing has settled.

    If no other thread can run (code holds the interpreter's lock), the process ends all the same, with exit code 5.

    Args:
        seconds: from now; None for no limit.
        end: ends the process.
    """
    if seconds is None:
        yield
        return

    def fire() -> None:
        with _LOCK:
            if timer in _waiting:
                end()

    timer = threading.Timer(max(0.0, seconds), fire)
    timer.daemon = True
    with _LOCK:
        _waiting[timer] = KernelTimer(max(0.0, seconds) + LOCK_GRACE_SECONDS)
    timer.start()
    try:
        yield
    finally:
        with _LOCK:
            _disarm(timer)


def _disarm(timer: threading.Timer) -> None:
    timer.cancel()
    behind = _waiting.pop(timer, None)
    if behind is not None:
        behind.cancel()


@contextmanager
def settling() -> Iterator[None]:
    """Protect the rename of a result: it is never interrupted, and nothing is ended once it is over."""
    with _LOCK:
        for timer in list(_waiting):
            _disarm(timer)
        yield


@contextmanager
def standing_by(publish: Callable[[], bool]) -> Iterator[None]:
    """Register a fallback that the watchdog publishes; ``publish`` says whether it did."""
    _standing.append(publish)
    try:
        yield
    finally:
        _standing.remove(publish)


def publish_what_stands_by() -> bool:
    """Publish the registered fallback, from any thread; return whether something was published."""
    with _LOCK:
        return bool(_standing) and _standing[-1]()
