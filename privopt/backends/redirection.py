"""Redirect the standard output of a process, including the output of native libraries, to a file."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def output_appended(path: str | None) -> Iterator[None]:
    """Append standard output to a file inside a ``with`` block, to capture the output of a native library.

    The redirection affects the whole process, so nothing else in the process should print in the meantime.

    Args:
        path: The path of the file. If None, standard output is not redirected.
    """
    if path is None:
        yield
        return
    # C's printf has a buffer of its own, which must be flushed separately.
    c_library = ctypes.CDLL(None if os.name == "posix" else "ucrtbase")
    sys.stdout.flush()
    c_library.fflush(None)
    original = os.dup(1)
    log_file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.dup2(log_file, 1)
        yield
    finally:
        sys.stdout.flush()
        c_library.fflush(None)
        os.dup2(original, 1)
        os.close(original)
        os.close(log_file)
