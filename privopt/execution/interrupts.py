"""Interrupts and SIGTERM: long work ends with its best result, and its caller learns of the request."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

_CAME: Final = threading.Event()


def asked_to_end() -> bool:
    """Return whether a signal has asked the work to end with what it has found."""
    return _CAME.is_set()


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Yield a list of the signals that came inside, each raised as KeyboardInterrupt; only in the main thread.

    Work inside may catch the interrupt and end with the result that it has; then only the list shows it. Handlers of
    the caller still run, after the signal was added to the list.
    """
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mine = [number for number, handler in before.items() if handler not in (None, signal.SIG_IGN)]

    def noted(number: int, frame: FrameType | None) -> None:
        came.append(number)
        _CAME.set()
        watching = before[signal.Signals(number)]
        if callable(watching):
            watching(number, frame)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():  # signals are somebody else's
        mine = []
    for number in mine:
        signal.signal(number, noted)
    try:
        yield came
    finally:
        for number in mine:
            signal.signal(number, before[number])
        if mine:
            _CAME.clear()
