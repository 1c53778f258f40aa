"""This machine: here and now, threads, or worker processes.

Worker processes are plain ``python -c`` children that speak pickle over a pipe. They do not import the caller's
``__main__`` (as the spawn and forkserver methods of multiprocessing do, which makes every script without a
``__main__`` guard start itself again) and inherit no threads or locks (as fork does). So functions must live in an
importable module.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Container, Hashable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from traceback import format_exception
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from attrs import frozen

from privopt.errors import PrivoptError, SolverError, UsageError
from privopt.execution.base import Executor, Held

__all__ = ["processes", "serial", "threads"]

T = TypeVar("T")

_LENGTH = struct.Struct("<Q")


class _Serial(Executor):
    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        future: Future[T] = Future()
        _run(future, function, *arguments)
        return future


class _Threads(Executor):
    """For functions that release the interpreter lock (numba with nogil, LAPACK): nothing is copied."""

    def __init__(self, jobs: int) -> None:
        super().__init__()
        self.jobs = jobs
        self._pools = [ThreadPoolExecutor(1, thread_name_prefix=f"privopt-{n}") for n in range(jobs)]

    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        return self._pools[self._place(key)].submit(function, *arguments)

    def close(self, *, wait: bool = True) -> None:
        for pool in self._pools:
            pool.shutdown(wait=wait, cancel_futures=not wait)


def _run(future: Future[T], function: Callable[..., T], *arguments: object) -> None:
    """Settle ``future`` with what the call gives or raises."""
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise


class _DeadWorkerError(Exception):
    """The pipe to a worker broke."""


class _Worker:
    """One child process and the values it holds."""

    def __init__(self) -> None:
        self.held: set[int] = set()
        code = "from privopt.execution.local import _serve; _serve()"
        path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
        self.process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path},
        )

    def call(self, function: Callable[..., Any], arguments: Sequence[Any], live: Container[int]) -> Any:
        """Send one task and wait for its answer; values that nobody holds any more are forgotten there.

        Raises:
            _DeadWorkerError: the process ended instead of answering.
        """
        fresh = {a.number: a.value for a in arguments if isinstance(a, Held) and a.number not in self.held}
        plain = [_Number(a.number) if isinstance(a, Held) else a for a in arguments]
        gone = [number for number in self.held if number not in live]
        task = _dump((fresh, gone, function, plain))
        try:
            _write(self.process.stdin, task)
            succeeded, value = _read(self.process.stdout)
        except (OSError, EOFError) as error:
            self.process.kill()
            raise _DeadWorkerError(f"exit status {self.process.wait()}") from error
        self.held.update(fresh)
        self.held.difference_update(gone)
        if succeeded:
            return value
        raise value.error()

    def close(self, *, wait: bool) -> None:
        if not wait:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout):
            try:
                if stream is not None:
                    stream.close()
            except BrokenPipeError:
                continue  # it died with bytes unread: closed all the same
        self.process.wait()


@frozen
class _Raised:
    """An error on the wire: its own pickling would call its class with the message, which not every class bears."""

    kind: type[Exception]
    arguments: tuple[Any, ...]
    state: dict[str, Any]

    @classmethod
    def of(cls, error: Exception) -> _Raised:
        """What is needed to raise it again, with where it came from."""
        if not isinstance(error, PrivoptError):
            error.add_note("in a worker process:\n" + "".join(format_exception(error)))
        return cls(type(error), error.args, dict(error.__dict__))

    def error(self) -> Exception:
        """The error again."""
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


def _serve() -> None:
    """The loop of a worker process: ends when its parent closes the pipe or dies."""
    _end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle; it closes the pipe
    incoming = os.fdopen(os.dup(0), "rb")
    outgoing = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a solver prints must not reach the pipe
    held: dict[int, Any] = {}
    while True:
        try:
            fresh, gone, function, arguments = _read(incoming)
        except EOFError:
            return
        except Exception as error:
            refusal = UsageError(f"a worker process cannot load the work it was given: {error!r}")
            answer: tuple[bool, Any] = False, _Raised.of(refusal)
        else:
            held.update(fresh)
            for number in gone:
                del held[number]
            answer = _answer(function, [held[a.number] if isinstance(a, _Number) else a for a in arguments])
        try:
            parts = _dump(answer)
        except UsageError as error:
            unsendable = SolverError(f"a worker's answer cannot be sent: {error}; it was {answer[1]!r}")
            parts = _dump((False, _Raised.of(unsendable)))
        try:
            _write(outgoing, parts)
        except BrokenPipeError:
            os._exit(1)


def _answer(function: Callable[..., Any], arguments: Sequence[Any]) -> tuple[bool, Any]:
    try:
        return True, function(*arguments)
    except Exception as error:
        return False, _Raised.of(error)


def _end_with_parent() -> None:
    """On Linux ask the kernel to kill this process when its parent dies, even in the middle of a solve."""
    if not sys.platform.startswith("linux"):
        return
    parent = os.getppid()
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


class _Processes(Executor):
    def __init__(self, jobs: int) -> None:
        super().__init__()
        self.jobs = jobs
        # the thread feeds its worker and waits for it; PR_SET_PDEATHSIG counts the death of the starting *thread*,
        # so workers are started and kept by the threads that own them
        self._pools = [ThreadPoolExecutor(1, thread_name_prefix=f"privopt-{n}") for n in range(jobs)]
        self._workers: list[_Worker | None] = [None] * jobs
        self._closed = False
        self._live: WeakValueDictionary[int, Held] = WeakValueDictionary()

    def hold(self, value: Any) -> Any:
        held = Held(value, next(self._numbers))
        self._live[held.number] = held
        return held

    def submit(self, key: Hashable, function: Callable[..., T], *arguments: object) -> Future[T]:
        place = self._place(key)
        return self._pools[place].submit(self._call, place, function, arguments)

    def _call(self, place: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        for attempt in (1, 2):
            worker = self._workers[place]
            if worker is None:
                if self._closed:
                    raise SolverError("the executor was closed")
                worker = self._workers[place] = _Worker()
            try:
                answer: T = worker.call(function, arguments, self._live)
            except _DeadWorkerError as error:
                worker.close(wait=False)
                self._workers[place] = None
                if attempt == 2 or self._closed:
                    name = getattr(function, "__qualname__", repr(function))
                    raise SolverError(f"the worker process died in {name}, twice ({error})") from error
            else:
                return answer
        raise AssertionError

    def close(self, *, wait: bool = True) -> None:
        self._closed = True
        if not wait:
            for worker in self._workers:
                if worker is not None:
                    worker.process.kill()
        for pool in self._pools:
            pool.shutdown(wait=True, cancel_futures=not wait)
        for worker in self._workers:
            if worker is not None:
                worker.close(wait=wait)
        self._workers = [None] * self.jobs


def serial() -> Executor:
    """Everything here and now, in the order of submission."""
    return _Serial()


def threads(jobs: int) -> Executor:
    """``jobs`` threads of this process."""
    return _Threads(_at_least_one(jobs))


def processes(jobs: int) -> Executor:
    """``jobs`` worker processes, started when first needed."""
    return _Processes(_at_least_one(jobs))


def _at_least_one(jobs: int) -> int:
    if jobs < 1:
        raise UsageError(f"jobs is {jobs}; wanted at least 1")
    return jobs
