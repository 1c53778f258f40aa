"""A worker process, and the messages between the worker and its owner.

A worker is a child process that is started with ``python -c`` and exchanges pickles over a pipe. Unlike
multiprocessing's spawn and forkserver methods, it does not import the caller's ``__main__``, which would rerun a script
that has no ``__main__`` guard. Functions must therefore be in an importable module. Unlike a fork, a worker inherits no
threads or locks. A value that is held for several tasks (:class:`~privopt.execution.base.Held`) is sent only once.
Later messages contain just its number.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Container, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import cache, partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from privopt.errors import SolverError
from privopt.execution.base import Held
from privopt.execution.child import Number, pickle_parts, read_value, write_parts
from privopt.execution.resources import VARIABLES

T = TypeVar("T")

_STACK: Final = re.compile(r"\[0x[0-9a-f]+\]$|Getting stack trace")
"""Matches the lines of the stack trace that CBC's signal handler writes after the error message."""


class DeadWorkerError(Exception):
    """Raised if a worker process ends, or its pipe breaks, before it has responded."""


def settle(future: Future[T], function: Callable[..., T], *arguments: object) -> None:
    """Call a function, and store its result or error in ``future``.

    This is what executors in ``concurrent.futures`` do with a task. In addition, an error that is not an ``Exception``,
    such as KeyboardInterrupt, is re-raised, because it is meant for the current thread.
    """
    try:
        future.set_result(function(*arguments))
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise


@cache
def _start_queue(process: int) -> SimpleQueue[Callable[[], None]]:
    """Start a thread that runs calls from a queue until this process ends, and return the queue.

    All workers are started by this thread. Linux kills a worker when the *thread* that started it ends
    (PR_SET_PDEATHSIG), so a short-lived thread must not start workers. The process id ``process`` serves as the cache
    key, because a forked child does not inherit its parent's threads.
    """
    start_calls: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def serve_calls() -> None:
        """Run the calls from the queue, one after another, forever."""
        while True:
            start_calls.get()()

    threading.Thread(target=serve_calls, name=f"privopt-start-{process}", daemon=True).start()
    return start_calls


def _worker_environ() -> dict[str, str]:
    """Return the environment variables for a worker, which uses one thread and can import whatever this process can.

    PYTHONSAFEPATH keeps the current folder out of the worker's ``sys.path``, unless it is in this process's
    ``sys.path``.
    """
    # Add the folder that contains the package, in case the package was not found through sys.path. An empty entry of
    # sys.path means the current folder.
    package_parent = str(Path(__file__).parents[2])
    path = dict.fromkeys([*(entry or os.getcwd() for entry in sys.path), package_parent])
    return os.environ | dict.fromkeys(VARIABLES, "1") | {"PYTHONPATH": os.pathsep.join(path), "PYTHONSAFEPATH": "1"}


class Worker:
    """A worker: a child process together with a record of the values it has received.

    Attributes:
        process: The child process.
        answered: The number of answered calls.
        held: The numbers identifying the held values in the child's memory.
        latest: The last value that the most recent call sent with :func:`privopt.execution.child.send_progress`, or
            None if it has not sent any.
    """

    def __init__(self, *, quiet: bool = False, module: str = "") -> None:
        """Start the process.

        Args:
            quiet: Whether to discard the child's standard output and keep its standard error for :meth:`death`. If
                False, both Python streams go to this process's standard error. Anything that native libraries print to
                standard output is always discarded.
            module: A module for the child to import while it waits for its first task, or "" for none.

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
            """Start the child, which runs `serve` and communicates through its standard input and output."""
            return subprocess.Popen(
                [sys.executable, "-c", f"from privopt.execution.child import serve; serve({quiet}, {module!r})"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                env=_worker_environ(),
            )

        # Start it in a thread that lives as long as this process (see `_start_queue`).
        started: Future[subprocess.Popen[bytes]] = Future()
        _start_queue(os.getpid()).put(partial(settle, started, start))
        try:
            self.process = started.result()
        except KeyboardInterrupt:
            # The other thread starts the process regardless of the interrupt, so it must be stopped here.
            self.process = started.result()
            self.close()
            raise

    def call(self, function: Callable[..., T], arguments: Sequence[object], live: Container[int] = ()) -> T:
        """Run a task in the child, and return its result or raise its error.

        Args:
            function: The function to call.
            arguments: The arguments. The value of a :class:`Held` reference is sent only once. Later calls send just
                its number.
            live: The numbers of the held values that are still in use. The child discards all others.

        Raises:
            DeadWorkerError: The process ended instead of responding.
            UsageError: The function or an argument cannot be pickled, or the child cannot load it.
        """
        # Replace held values with their numbers, and send along those that the child does not have yet.
        new_values = {a.number: a.value for a in arguments if isinstance(a, Held) and a.number not in self.held}
        wire_arguments = [Number(a.number) if isinstance(a, Held) else a for a in arguments]
        dropped_numbers = [number for number in self.held if number not in live]
        task = pickle_parts((new_values, dropped_numbers, function, wire_arguments))
        self.latest = None
        try:
            write_parts(self.process.stdin, task)
            succeeded, value = read_value(self.process.stdout)
            # None marks a progress value, of which there may be several before the answer.
            while succeeded is None:
                self.hear(value)
                succeeded, value = read_value(self.process.stdout)
        except (OSError, EOFError, ValueError) as error:
            self.process.kill()
            raise DeadWorkerError(f"exit status {self.process.wait()}") from error
        self.answered += 1
        # If the child could not load the task, it has neither stored nor dropped any values.
        if succeeded or not value.is_task_lost:
            self.held.update(new_values)
            self.held.difference_update(dropped_numbers)
        if succeeded:
            answer: T = value
            return answer
        raise value.error()

    def hear(self, value: object) -> None:
        """Store a progress value that the running call sent with :func:`privopt.execution.child.send_progress`."""
        self.latest = value

    def alive(self) -> bool:
        """Return whether the process is still running and can therefore take another task."""
        return self.process.poll() is None

    def death(self) -> str:
        """Wait for the process to end, and describe how it ended: its signal or exit code, and its last error line.

        The error line is included only if the worker is quiet, because its standard error is otherwise not kept.
        """
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
        """Stop the process immediately, or after its current task if ``wait`` is True."""
        if not wait:
            self.process.kill()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            if stream is not None:
                with suppress(OSError):  # flushing fails if the process died with unread bytes, but closes the stream
                    stream.close()
        self.process.wait()
