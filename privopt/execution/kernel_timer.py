"""A kernel timer that ends this process with exit code 5, even while compiled code holds the GIL.

Signal 5 (SIGTRAP of Linux) comes when the time is over, and its handler is libc's ``_exit``, which a handler may call
and which takes the signal's number for the code. Python's own handlers wait for the lock, so they would come too late.
"""

from __future__ import annotations

import ctypes
import signal
import sys
from typing import Final

CLOCK_MONOTONIC: Final = 1
"""CLOCK_MONOTONIC of Linux."""


class _Event(ctypes.Structure):
    """``struct sigevent`` of Linux, of 64 bytes."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("number", ctypes.c_int),
        ("how", ctypes.c_int),  # 0: a signal to the process
        ("rest", ctypes.c_char * 48),
    )


class _Time(ctypes.Structure):
    """``struct itimerspec``: the time between, 0 for once, and the time until."""

    _fields_ = tuple((name, ctypes.c_long) for name in ("every", "every_nano", "until", "until_nano"))


class KernelTimer:
    """Runs from now; on Linux alone, elsewhere it does nothing."""

    def __init__(self, seconds: float) -> None:
        self._made: ctypes.c_void_p | None = None
        if sys.platform != "linux":
            return
        self._libc = ctypes.CDLL(None)
        self._libc.signal.restype = ctypes.c_void_p
        made, event = ctypes.c_void_p(), _Event(number=signal.SIGTRAP)
        if self._libc.timer_create(CLOCK_MONOTONIC, ctypes.byref(event), ctypes.byref(made)):
            return
        self._made = made
        self._before = self._signal(ctypes.cast(self._libc._exit, ctypes.c_void_p).value)
        nano = max(1, int(1e9 * seconds))
        self._libc.timer_settime(made, 0, ctypes.byref(_Time(0, 0, *divmod(nano, 10**9))), None)

    def _signal(self, handler: int | None) -> int | None:
        """Make this the handler of the signal; returns the one before."""
        before: int | None = self._libc.signal(int(signal.SIGTRAP), ctypes.c_void_p(handler))
        return before

    def cancel(self) -> None:
        """Stop it; once."""
        if self._made is not None:
            self._libc.timer_delete(self._made)
            self._signal(self._before)
            self._made = None
