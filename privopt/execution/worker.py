"""One worker process, and the messages between it and its owner.

A plain ``python -c`` child that speaks pickle over a pipe. It does not import the caller's ``__main__`` (as the spawn
and forkserver methods of multiprocessing do, which makes every script without a ``__main__`` guard start itself again)
and inherits no threads or locks (as fork does). So functions must live in an importable module.
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
from privopt.execution.limits import VARIABLES

T = TypeVar("T")

_LENGTH = struct.Struct("<Q")
_STACK: Final = re.compile(r"\[0x[0-9a-f]+\]$|Getting stack trace")
"""Lines that CBC's handler of signals writes behind what went wrong."""


class DeadWorkerError(Exception):
    """The pipe to a worker broke."""


def settle(future: Future[T], function: Callable[..., T], *arguments: object) -> None:
    """Settle ``future`` with what the call gives or raises."""
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise


@cache
def _starter(process: int) -> SimpleQueue[Callable[[], None]]:
    """Return a queue of calls for a thread that lasts as long as this process (a forked child has its own).

    Linux kills a worker at the death of the *thread* that started it (PR_SET_PDEATHSIG).
    """
    asked: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def serve() -> None:
        while True:
            asked.get()()

    threading.Thread(target=serve, name=f"privopt-start-{process}", daemon=True).start()
    return asked


def _environment() -> dict[str, str]:
    """Return a worker's environment: it imports what this process can import, and takes one thread."""
    home = str(Path(__file__).parents[2])
    path = dict.fromkeys([*(entry or os.getcwd() for entry in sys.path), home])
    return os.environ | dict.fromkeys(VARIABLES, "1") | {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}


class Worker:
    """One child process and the values it holds.

    Attributes:
        process: the child. answered: calls so far.
        latest: what the running or last call said last (:func:`send_progress`), None where nothing was.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        """Start it.

        Args:
            quiet: drop what is printed there, and keep what comes on standard error for :meth:`death`. Otherwise what
                Python prints goes to this process's standard error, as what comes on standard error does; what native
                libraries print on standard output is always dropped.

        Raises:
            SolverError: no Python interpreter was found to run it in.
        """
        if not sys.executable:
            raise SolverError("workers need a Python interpreter to run in, and sys.executable is empty")
        self.held: set[int] = set()
        self.latest: Any = None
        self.answered = 0
        self._errors = tempfile.TemporaryFile() if quiet else None  # noqa: SIM115

        def start() -> subprocess.Popen[bytes]:
            return subprocess.Popen(
                [sys.executable, "-c", f"from privopt.execution.worker import _serve; _serve({quiet})"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_environment(),
            )

        started: Future[subprocess.Popen[bytes]] = Future()
        _starter(os.getpid()).put(partial(settle, started, start))
        try:
            self.process = started.result()
        except KeyboardInterrupt:
            self.process = started.result()
            self.close()
            raise

    def call(self, function: Callable[..., T], arguments: Sequence[object], live: Container[int] = ()) -> T:
        """Send one task and wait for its answer; held values that are not ``live`` any more are forgotten there.

        Raises:
            DeadWorkerError: the process ended instead of answering.
        """
        fresh = {a.number: a.value for a in arguments if isinstance(a, Held) and a.number not in self.held}
        plain = [_Number(a.number) if isinstance(a, Held) else a for a in arguments]
        gone = [number for number in self.held if number not in live]
        task = _dump((fresh, gone, function, plain))
        self.latest = None
        try:
            _write(self.process.stdin, task)
            succeeded, value = _read(self.process.stdout)
            while succeeded is None:
                self.hear(value)
                succeeded, value = _read(self.process.stdout)
        except (OSError, EOFError, ValueError) as error:
            self.process.kill()
            raise DeadWorkerError(f"exit status {self.process.wait()}") from error
        self.answered += 1
        self.held.update(fresh)
        self.held.difference_update(gone)
        if succeeded:
            answer: T = value
            return answer
        raise value.error()

    def hear(self, value: object) -> None:
        """Take what a call says before its answer."""
        self.latest = value

    def alive(self) -> bool:
        """Check whether the worker can take another task."""
        return self.process.poll() is None

    def death(self) -> str:
        """Describe how a worker died: the signal or exit code, and the last line of a quiet worker's errors."""
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
        """End it; with ``wait`` after what it is doing."""
        if not wait:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                with suppress(OSError):  # it died with bytes unread: closed all the same
                    stream.close()
        self.process.wait()


@frozen
class _RemoteError:
    """An error on the wire: its own pickling would call its class with the message, which not every class takes."""

    kind: type[Exception]
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    @classmethod
    def of(cls, error: Exception) -> _RemoteError:
        """Pack an exception so that it can be raised again, with its origin."""
        if not isinstance(error, PrivoptError):
            error.add_note("in a worker process:\n" + "".join(format_exception(error)))
        return cls(type(error), error.args, dict(error.__dict__))

    def error(self) -> Exception:
        """Return the error again."""
        error = self.kind.__new__(self.kind, *self.arguments)
        error.__dict__.update(self.state)
        return error


@frozen
class _Number:
    """In place of a held value, on the wire."""

    number: int


def _dump(value: Any) -> list[bytes | memoryview]:
    """Pickle with arrays out of band, so that they are not copied: the pickle, then its buffers."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        body = pickle.dumps(value, protocol=5, buffer_callback=buffers.append)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise UsageError(f"work for another process must be importable and picklable: {error}") from error
    return [body, *(buffer.raw() for buffer in buffers)]


def _write(stream: Any, parts: Sequence[bytes | memoryview]) -> None:
    stream.write(_LENGTH.pack(len(parts)))
    for part in parts:
        stream.write(_LENGTH.pack(len(part) if isinstance(part, bytes) else part.nbytes))
        stream.write(part)
    stream.flush()


def _read_exactly(stream: Any, size: int) -> bytearray:
    data = bytearray(size)
    view, done = memoryview(data), 0
    while done < size:
        got = stream.readinto(view[done:])
        if not got:
            raise EOFError
        done += got
    return data


def _read(stream: Any) -> Any:
    (count,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    parts = [_read_exactly(stream, _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))[0]) for _ in range(count)]
    return pickle.loads(parts[0], buffers=parts[1:])


_owner: Any = None
"""In a worker: the pipe to its owner."""


def send_progress(value: object) -> None:
    """Send a value from a worker to its owner before the answer; each replaces the one before."""
    if _owner is not None:
        _send((None, value))


def _send(answer: tuple[bool | None, Any]) -> None:
    try:
        parts = _dump(answer)
    except UsageError as error:
        unsendable = SolverError(f"a worker's answer cannot be sent: {error}; it was {answer[1]!r}")
        parts = _dump((False, _RemoteError.of(unsendable)))
    try:
        _write(_owner, parts)
    except BrokenPipeError:
        os._exit(1)


def _serve(quiet: bool) -> None:
    """Run the loop of a worker process: it ends when its owner closes the pipe or dies."""
    global _owner
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the owner's to handle; it closes the pipe
    incoming = os.fdopen(os.dup(0), "rb")
    _owner = os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what a solver prints must not reach the pipe
    if not quiet:
        sys.stdout = sys.stderr
    held: dict[int, Any] = {}
    while True:
        try:
            fresh, gone, function, arguments = _read(incoming)
        except EOFError:
            os._exit(0)  # a solver's own tear-down may crash after the last answer is out
        except Exception as error:
            refusal = UsageError(f"a worker process cannot load the work it was given: {error!r}")
            answer: tuple[bool, Any] = False, _RemoteError.of(refusal)
        else:
            held.update(fresh)
            for number in gone:
                del held[number]
            answer = _answer(function, [held[a.number] if isinstance(a, _Number) else a for a in arguments])
        _send(answer)


def _answer(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[bool, Any]:
    try:
        return True, function(*arguments)
    except Exception as error:
        return False, _RemoteError.of(error)


def _end_with_parent() -> None:
    """Die when the parent does: on Linux by the kernel, even in the middle of a solve; elsewhere by looking."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    if not sys.platform.startswith("linux"):
        threading.Thread(target=watch, daemon=True).start()
        return
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
