"""The process in which a solver lives and dies: ``python -m privopt.backends._worker``.

Standard input: problems (npz), each behind its length in 8 bytes and with the module that solves it under ``solver``:
its ``answer(problem, say)`` solves a problem of arrays, and may ``say`` arrays meanwhile.
Standard output: what that module's ``answer`` has to say while it works, and its answer, which alone is marked
``last``; nothing else, for whatever a C library prints goes to the null device: standard output is handed to this
module alone before a solver is loaded. Ends when its input ends, or with the process that started it.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from importlib import import_module
from typing import IO, Any

import numpy as np

__all__ = ["main", "pack", "read_frame", "unpack", "write_frame"]


def read_frame(stream: IO[bytes]) -> bytes | None:
    """One message; None where the stream ended."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    size = int.from_bytes(head, "little")
    body = stream.read(size)
    return body if len(body) == size else None


def write_frame(stream: IO[bytes], body: bytes) -> None:
    """Send one message."""
    stream.write(len(body).to_bytes(8, "little"))
    stream.write(body)
    stream.flush()


def pack(arrays: dict[str, Any]) -> bytes:
    """Arrays as one message; what is None is left out."""
    packed = io.BytesIO()
    np.savez(packed, **{name: value for name, value in arrays.items() if value is not None})
    return packed.getvalue()


def unpack(body: bytes) -> dict[str, Any]:
    """The arrays of a message."""
    with np.load(io.BytesIO(body), allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def _private_output() -> int:
    """Keep the real standard output for answers; file descriptor 1 becomes the null device."""
    own = os.dup(1)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)
    return own


def _die_with_parent() -> None:
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def main() -> None:
    """Answer problems until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(_private_output(), "wb")
    _die_with_parent()

    def say(arrays: dict[str, Any]) -> None:
        write_frame(out, pack(arrays))

    while (frame := read_frame(sys.stdin.buffer)) is not None:
        problem = unpack(frame)
        library = import_module(str(problem.pop("solver")))
        say({**library.answer(problem, say), "last": True})
    # CBC's own tear-down may crash after the last answer is out
    os._exit(0)


if __name__ == "__main__":
    main()
