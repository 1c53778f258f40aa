"""Whether somebody interrupts: a mechanism that says it was stopped may say so by itself."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["interrupts"]


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Numbers of the signals that came inside, each raised as KeyboardInterrupt; none but in the main thread."""
    came: list[int] = []
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    mine = [number for number, handler in before.items() if handler not in (None, signal.SIG_IGN)]

    def noted(number: int, frame: FrameType | None) -> None:
        came.append(number)
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
