"""A worker process, and the messages between the worker and its owner.

A worker is a child process started with ``python -c`` that exchanges pickles over a pipe. Unlike multiprocessing's
spawn and forkserver methods, it does not import the caller's ``__main__`` (a script without a ``__main__`` guard would
start itself again). Unlike a fork, it inherits no threads or locks. Functions must therefore be in an importable
module. A value held for several tasks (:class:`~privopt.execution.base.Held`) is sent once; later messages contain only
its number.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from traceback import format_exception
from typing import Any, Final, TypeVar

from attrs import frozen

from privopt.errors import PrivoptError, SolverError, UsageError
from privopt.execution.base import Held
from privopt.execution.resources import VARIABLES

T = TypeVar("T")

_LENGTH = struct.Struct("<Q")
"""The format of a length or a number of parts in a message: 8 bytes, little-endian."""
_STACK: Final = re.compile(r"\[0x[0-9a-f]+\]$|Getting stack trace")
"""Lines that CBC's signal handler writes after the message about what went wrong."""


class DeadWorkerError(Exception):
    """Raised if the pipe to a worker breaks."""


def settle(future: Future[T], function: Callable[..., T], *arguments: object) -> None:
    """Call a function, and store its result or its error in ``future``.

    This is what an executor of ``concurrent.futures`` does for a task. An interrupt (an error that is not an
    ``Exception``) is also raised here, because it is meant for this thread.
    """
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise


@cache
def _start_queue(process: int) -> SimpleQueue[Callable[[], None]]:
    """Return the queue of calls for a thread that starts workers and lives as long as this process.

    Linux kills a worker when the *thread* that started it ends (PR_SET_PDEATHSIG), so a short-lived thread must not
    start workers. The process id is the cache key, because a forked child does not have its parent's thread.
    """
    start_calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def serve_calls() -> None:
        """Run the calls in the queue one after another, forever."""
        while True:
            start_calls.get()()

    threading.Thread(target=serve_calls, name=f"privopt-start-{process}", daemon=True).start()
    return start_calls


def _worker_environ() -> dict[str, str]:
    """Return the environment of a worker, in which it can import what this process can, and uses one thread.

    PYTHONSAFEPATH keeps the current folder out of ``sys.path``, unless it is in the ``sys.path`` of this process.
    """
    # The folder with the package, in case that the caller found it in another way. An empty entry of sys.path stands
    # for the current folder.
    package_parent = str(Path(__file__).parents[2])
    path = dict.fromkeys([*(entry or os.getcwd() for entry in sys.path), package_parent])
    return os.environ | dict.fromkeys(VARIABLES, "1") | {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}


class Worker:
    """A child process and a record of the values that it has received.

    Attributes:
        process: The child process.
        answered: The number of answered calls.
        held: The numbers of the held values that the child has.
        latest: The last value that the current or last call sent with :func:`send_progress`; None before the first.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        """Start the process.

        Args:
            quiet: Whether to discard the child's standard output and keep its standard error for :meth:`death`. If
                False, both Python streams go to this process's standard error. Output of native libraries on standard
                output is always discarded.

        Raises:
            SolverError: There is no Python interpreter to run the worker.
        """
        if not sys.executable:
            raise SolverError("workers need a Python interpreter to run in, and sys.executable is empty")
        self.held: set[int] = set()
        self.latest: Any = None
        self.answered = 0
        self._errors = tempfile.TemporaryFile() if quiet else None  # noqa: SIM115

        def start() -> subprocess.Popen[bytes]:
            """Start the child, which runs `_serve` and communicates through its standard input and output."""
            return subprocess.Popen(
                [sys.executable, "-c", f"from privopt.execution.worker import _serve; _serve({quiet})"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_worker_environ(),
            )

        # Started by a thread that lives as long as this process, see `_start_queue`.
        started: Future[subprocess.Popen[bytes]] = Future()
        _start_queue(os.getpid()).put(partial(settle, started, start))
        try:
            self.process = started.result()
        except KeyboardInterrupt:
            # The other thread starts the process all the same; without this, nobody would end it.
            self.process = started.result()
            self.close()
            raise

    def call(self, function: Callable[..., T], arguments: Sequence[object], live: Container[int] = ()) -> T:
        """Run a task in the child, and return its result.

        Args:
            function: The function to call.
            arguments: The arguments. A :class:`Held` value is sent once, and later only its number.
            live: The numbers of held values that are still in use. The child forgets all others.

        Raises:
            DeadWorkerError: The process ended instead of answering.
        """
        # Held values are replaced by their numbers; those that the child does not have yet are sent along.
        new_values = {a.number: a.value for a in arguments if isinstance(a, Held) and a.number not in self.held}
        wire_arguments = [_Number(a.number) if isinstance(a, Held) else a for a in arguments]
        dropped_numbers = [number for number in self.held if number not in live]
        task = _pickle_parts((new_values, dropped_numbers, function, wire_arguments))
        self.latest = None
        try:
            _write_parts(self.process.stdin, task)
            succeeded, value = _read_value(self.process.stdout)
            # None marks progress, which comes before the answer.
            while succeeded is None:
                self.hear(value)
                succeeded, value = _read_value(self.process.stdout)
        except (OSError, EOFError, ValueError) as error:
            self.process.kill()
            raise DeadWorkerError(f"exit status {self.process.wait()}") from error
        self.answered += 1
        self.held.update(new_values)
        self.held.difference_update(dropped_numbers)
        if succeeded:
            answer: T = value
            return answer
        raise value.error()

    def hear(self, value: object) -> None:
        """Store a value that the running call sent before its answer (:func:`send_progress`)."""
        self.latest = value

    def alive(self) -> bool:
        """Return whether the process is still running, so that it can take another task."""
        return self.process.poll() is None

    def death(self) -> str:
        """Return a text on how the worker died: the signal or exit code, and a quiet worker's last line of errors."""
        code = self.process.wait()
        lines: list[str] = []
        if self._errors is not None:
            self._errors.seek(0)
            text = self._errors.read().decode(errors="replace")
            lines = [line for line in text.splitlines() if line.strip() and not _STACK.search(line)]
        names = {int(s): s.name for s in signal.Signals}
        cause = f"with exit code {code}" if code >= 0 else f"by {names.get(-code, f'signal {-code}')}"
        return f"{cause}{f': {lines[-1][:200]}' if lines else ''}"

    def close(self, *, wait: bool = False) -> None:
        """Stop the process, after its task if ``wait`` is True and otherwise immediately."""
        if not wait:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                with suppress(OSError):  # flushing fails if the process died with bytes unread; the stream is closed
                    stream.close()
        self.process.wait()


@frozen
class _RemoteError:
    """An error in the form in which a worker sends it to its owner.

    A pickled error would be rebuilt by calling its class with the message alone, which not every class accepts.
    """

    kind: type[Exception]
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    @classmethod
    def of(cls, error: Exception) -> _RemoteError:
        """Return an error in a form that can be sent. Unexpected errors get a note with their traceback."""
        if not isinstance(error, PrivoptError):
            error.add_note("in a worker process:\n" + "".join(format_exception(error)))
        return cls(type(error), error.args, dict(error.__dict__))

    def error(self) -> Exception:
        """Return the error, rebuilt without calling its ``__init__``."""
        error = self.kind.__new__(self.kind, *self.arguments)
        error.__dict__.update(self.state)
        return error


@frozen
class _Number:
    """A placeholder in messages for a value that the worker already has."""

    number: int


def _pickle_parts(value: Any) -> list[bytes | memoryview]:
    """Return a value as a pickle and its buffers.

    Arrays are out-of-band buffers (PEP 574), so that they are not copied.
    """
    buffers: list[pickle.PickleBuffer] = []
    try:
        body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(f"work for another process must be importable and picklable: {error}") from error
    return [body, *(buffer.raw() for buffer in buffers)]


def _write_parts(stream: Any, parts: Sequence[bytes | memoryview]) -> None:
    """Write a message to a pipe: the number of parts, and then each part preceded by its length in bytes."""
    stream.write(_LENGTH.pack(len(parts)))
    for part in parts:
        stream.write(_LENGTH.pack(len(part) if isinstance(part, bytes) else part.nbytes))
        stream.write(part)
    stream.flush()


def _read_exactly(stream: Any, size: int) -> bytearray:
    """Return ``size`` bytes from a pipe, which may deliver them in pieces.

    Raises:
        EOFError: The pipe was closed early.
    """
    data = bytearray(size)
    view, filled = memoryview(data), 0
    while filled < size:
        read_count = stream.readinto(view[filled:])
        if not read_count:
            raise EOFError
        filled += read_count
    return data


def _read_value(stream: Any) -> Any:
    """Return the value in a message that `_pickle_parts` created and `_write_parts` wrote."""
    (count,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    # Each part goes into its own bytearray, so that arrays built on the buffers can be written to.
    parts = [_read_exactly(stream, _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))[0]) for _ in range(count)]
    return pickle.loads(parts[0], buffers=parts[1:])


_owner: Any = None
"""The pipe to the owner, in a worker; None in other processes."""


def send_progress(value: object) -> None:
    """Send a value from a worker to its owner before the answer. It replaces any value sent earlier."""
    if _owner is not None:
        _send((None, value))


def _send(answer: tuple[bool | None, Any]) -> None:
    """Send a message from a worker to its owner: (True, result), (False, error) or (None, progress).

    A result that cannot be pickled is replaced by an error.
    """
    try:
        parts = _pickle_parts(answer)
    except UsageError as error:
        unsendable = SolverError(f"a worker's answer cannot be sent: {error}; it was {answer[1]!r}")
        parts = _pickle_parts((False, _RemoteError.of(unsendable)))
    try:
        _write_parts(_owner, parts)
    except BrokenPipeError:  # the owner has died or closed the pipe, so nobody needs this worker
        os._exit(1)


def _serve(quiet: bool) -> None:
    """Run the loop of a worker process, which reads a task, runs it and sends the answer.

    The process ends when its owner closes the pipe or dies. See :meth:`Worker.__init__` for ``quiet``.
    """
    global _owner
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole group; the owner handles it
    # Copies of the two ends of the pipe, because standard output is redirected below.
    incoming = os.fdopen(os.dup(0), "rb")
    _owner = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a solver prints must not reach the pipe
    if not quiet:
        sys.stdout = sys.stderr
    held_values: dict[int, Any] = {}
    while True:
        try:
            new_values, dropped_numbers, function, arguments = _read_value(incoming)
        except EOFError:
            os._exit(0)  # without tear-down, in which a native solver may crash after the last answer
        except Exception as error:
            refusal = UsageError(f"a worker process cannot load the work it was given: {error!r}")
            answer: tuple[bool, Any] = False, _RemoteError.of(refusal)
        else:
            held_values.update(new_values)
            for number in dropped_numbers:
                del held_values[number]
            answer = _run_task(function, [held_values[a.number] if isinstance(a, _Number) else a for a in arguments])
        _send(answer)


def _run_task(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[bool, Any]:
    """Run a task in a worker, and return the answer to send: (True, result) or (False, error)."""
    try:
        return True, function(*arguments)
    except Exception as error:
        return False, _RemoteError.of(error)


def _end_with_parent() -> None:
    """Make this process end when its parent does, so that no worker is left behind.

    On Linux, the kernel kills this process, even during a solve. On other systems, a thread checks for the parent twice
    a second.
    """
    parent = os.getppid()

    def watch() -> None:
        # An orphan gets another parent.
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if not sys.platform.startswith("linux"):
        threading.Thread(target=watch, daemon=True).start()
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG
    # The parent may have died before the call above took effect; then no signal comes.
    if os.getppid() != parent:
        os._exit(1)
