"""The worker's side of a worker process: the loop that runs tasks, and the message format.

See :mod:`privopt.execution.worker` for the owner's side. A worker starts with only this module, which initially imports
nothing else from the project. Otherwise, imports would take up most of the time for small models. Other modules are
imported when needed, or while the worker waits for its first task (:func:`serve`).
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import struct
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from traceback import format_exception
from typing import Any, NamedTuple

_LENGTH = struct.Struct("<Q")
"""The format of lengths and part counts in messages: 8 bytes, little-endian."""


class RemoteError(NamedTuple):
    """A picklable description of an error, sent by a worker to the process that owns it.

    The error itself is not pickled, because unpickling would call its class with ``args``, which some classes do not
    accept.

    Attributes:
        kind: The error's class.
        arguments: The error's ``args``.
        state: The error's other attributes by name, such as its notes.
        is_task_lost: Whether the worker could not load its task, and therefore did not store any of the held values
            sent with it.
    """

    kind: type[Exception]
    arguments: tuple[Any, ...]
    state: dict[str, Any]
    is_task_lost: bool = False

    @classmethod
    def of(cls, error: Exception) -> RemoteError:
        """Convert an error to a form that can be sent. Unexpected errors get a note with the traceback."""
        from privopt.errors import PrivoptError

        if not isinstance(error, PrivoptError):
            error.add_note("in a worker process:\n" + "".join(format_exception(error)))
        return cls(type(error), error.args, dict(error.__dict__))

    def error(self) -> Exception:
        """Rebuild and return the error without calling its ``__init__``."""
        error = self.kind.__new__(self.kind, *self.arguments)
        error.__dict__.update(self.state)
        return error


class Number(NamedTuple):
    """A placeholder for a held value in a message. The worker looks up the value by its number."""

    number: int


def pickle_parts(value: Any) -> list[bytes | memoryview]:
    """Pickle a value, and return the pickle followed by the buffers of the arrays in the value.

    The buffers are not copied (PEP 574).

    Raises:
        UsageError: The value cannot be pickled.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        from privopt.errors import UsageError

        raise UsageError(f"work for another process must be importable and picklable: {error}") from error
    return [body, *(buffer.raw() for buffer in buffers)]


def write_parts(stream: Any, parts: Sequence[bytes | memoryview]) -> None:
    """Write a message to a pipe: the number of parts, followed by each part preceded by its length in bytes."""
    stream.write(_LENGTH.pack(len(parts)))
    for part in parts:
        stream.write(_LENGTH.pack(len(part) if isinstance(part, bytes) else part.nbytes))
        stream.write(part)
    stream.flush()


def _read_exactly(stream: Any, size: int) -> bytearray:
    """Read exactly ``size`` bytes from a pipe, which may deliver them in pieces.

    Raises:
        EOFError: The pipe was closed before that many bytes arrived.
    """
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        read_count = stream.readinto(view[filled:])
        if not read_count:
            raise EOFError
        filled += read_count
    return data


def read_value(stream: Any) -> Any:
    """Read a message created by `pickle_parts` and written by `write_parts`, and return the value in it."""
    (count,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    # Each part goes into its own bytearray, so that arrays built on the buffers can be written to.
    parts = [_read_exactly(stream, _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))[0]) for _ in range(count)]
    return pickle.loads(parts[0], buffers=parts[1:])


_owner: Any = None
"""In a worker, the pipe to its owner; in other processes, None."""


def send_progress(value: object) -> None:
    """Send a progress value from a worker to its owner process while a task runs.

    The owner keeps only the most recent value.
    """
    if _owner is not None:
        _send((None, value))


def _send(answer: tuple[bool | None, Any]) -> None:
    """Send a message from a worker to its owner: (True, result), (False, error) or (None, progress).

    If a result cannot be pickled, the error raised by pickling is sent instead.
    """
    try:
        parts = pickle_parts(answer)
    except Exception as error:  # pickling calls code of the answer's classes, which may raise any error
        from privopt.errors import SolverError

        unsendable = SolverError(f"a worker's answer cannot be sent: {error}; it was {answer[1]!r}")
        parts = pickle_parts((False, RemoteError.of(unsendable)))
    try:
        write_parts(_owner, parts)
    except BrokenPipeError:  # the owner has died or closed the pipe, so nobody needs this worker
        # Exit without cleanup, which could raise further errors.
        os._exit(1)


def serve(quiet: bool, module: str = "") -> None:
    """Run the main loop of a worker process, which reads tasks, runs them and sends back the results.

    The process ends when its owner closes the pipe or dies.

    Args:
        quiet: Whether to discard anything that Python code prints to standard output. If False, it goes to standard
            error.
        module: A module to import before the first task arrives, so that the import does not delay the task, or "" for
            none.
    """
    global _owner
    _end_with_parent()
    # Ctrl-C and the end of a terminal signal the whole process group. They are handled by the owner.
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Duplicate both ends of the pipe, because standard output is redirected below.
    incoming = os.fdopen(os.dup(0), "rb")
    _owner = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a solver prints must not reach the pipe
    if not quiet:
        sys.stdout = sys.stderr
    if module:
        with suppress(Exception):  # the task imports the module too, and reports the error
            import_module(module)
    held_values: dict[int, Any] = {}
    while True:
        try:
            new_values, dropped_numbers, function, arguments = read_value(incoming)
        except EOFError:
            os._exit(0)  # without teardown, during which a native solver may crash
        except Exception as error:  # unpickling imports the function's module, which may raise any error
            from privopt.errors import UsageError

            refusal = UsageError(f"a worker process cannot load the work it was given: {error!r}")
            answer: tuple[bool, Any] = False, RemoteError.of(refusal)._replace(is_task_lost=True)
        else:
            # Store new values. In this and later tasks, arguments of type Number refer to them.
            held_values.update(new_values)
            for number in dropped_numbers:
                # If the owner could not load the previous answer, it lists the dropped values again.
                held_values.pop(number, None)
            answer = _run_task(function, [held_values[a.number] if isinstance(a, Number) else a for a in arguments])
        _send(answer)


def _run_task(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[bool, Any]:
    """Run a task in a worker, and return the answer to send: (True, result) or (False, error)."""
    try:
        return True, function(*arguments)
    except Exception as error:  # the owner raises it
        return False, RemoteError.of(error)


def _end_with_parent() -> None:
    """Make this process end when its parent does, so that no workers are left behind.

    On Linux, the kernel kills this process, even during a solve. On other systems, a thread checks twice a second
    whether the parent still exists.
    """
    parent = os.getppid()

    def watch() -> None:
        """End this process once its parent process has changed, which means that the original parent has ended."""
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if not sys.platform.startswith("linux"):
        threading.Thread(target=watch, daemon=True).start()
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    # If the parent died before the call above took effect, no signal is sent.
    if os.getppid() != parent:
        os._exit(1)
