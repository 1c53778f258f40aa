"""Show a solver's log on standard error while the solver runs, even if it runs in a worker process.

Solvers in worker processes have no console. Every solver therefore appends its log to a file, and a thread in the
calling process copies the file to standard error.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from privopt.execution.clock import DaemonCall

SECONDS_BETWEEN_CHECKS = 0.2
"""Number of seconds between checks for new text in the log file."""


@contextmanager
def show_log() -> Iterator[str]:
    """Create a log file that is copied to standard error as it grows during the ``with`` block, and yield its path."""
    with tempfile.TemporaryDirectory(prefix="privopt-log-") as folder:
        path = os.path.join(folder, "solver.log")
        has_ended = threading.Event()
        Path(path).touch()
        copier = DaemonCall(partial(_copy_log, path, has_ended))
        try:
            yield path
        finally:
            has_ended.set()
            copier.thread.join()


def _copy_log(path: str, has_ended: threading.Event) -> None:
    """Copy text appended to the file ``path`` to standard error until ``has_ended`` is set."""
    with open(path, encoding="utf-8", errors="replace") as file:
        is_last = False
        while not is_last:
            # The event is checked before reading, so that all text written before the end is copied.
            is_last = has_ended.wait(SECONDS_BETWEEN_CHECKS)
            if text := file.read():
                sys.stderr.write(text)
                sys.stderr.flush()
