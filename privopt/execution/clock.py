"""Deadlines that apply to a block of code and to everything called inside it, in all threads and worker processes.

A time scope is a block of code with its own deadline, opened by ``with limit(seconds)``. Functions called inside it, at
any depth, get the remaining time from :func:`clock` or call :meth:`~Clock.check`, so deadlines need not be passed as
arguments. Scopes resemble the cancel scopes of trio and anyio (``move_on_after``), but without tasks. A scope
suppresses the error raised at its own deadline, but lets errors from outer scopes' deadlines propagate.
"""

from __future__ import annotations

import math
import platform
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from types import FrameType
from typing import Any, Final, Generic, NoReturn, TypeVar
from weakref import WeakSet

from attrs import frozen

from privopt.errors import StoppedError

__all__ = [
    "UNWRITTEN",
    "Clock",
    "DaemonCall",
    "OutOfTime",
    "Ticket",
    "asked_to_end",
    "cap_time_limit",
    "check",
    "clock",
    "interrupts",
    "left_behind",
    "limit",
    "slices",
    "within",
]


T = TypeVar("T")

SLICE_SECONDS: Final = 0.1
"""The target duration of each span of :func:`slices`, in seconds.

Compiled code takes about this long to notice that its deadline has passed.
"""

UNWRITTEN: Final = "the time limit was reached before a release was found; nothing written"
"""The default error message when a scope's deadline passes, used if the work does not say what is unfinished."""


class OutOfTime(StoppedError):  # noqa: N818 (users do not see this error, because its own scope suppresses it)
    """Raised when a time scope has expired or been cancelled. Mechanisms' methods must not catch this error.

    Attributes:
        clock: The scope that has expired.
    """

    def __init__(self, clock: Clock, unfinished: str = "") -> None:
        """Create the error for an expired scope. The message names the ``unfinished`` work."""
        super().__init__(f"the time limit was reached before {unfinished}" if unfinished else UNWRITTEN)
        self.clock = clock


class Clock:
    """A time scope: a block of code with an optional deadline, shared by all threads that work inside it.

    Attributes:
        now: A function that returns the time in seconds.
        end: The deadline, as a value of ``now()``, or infinity if there is none.
        parent: The enclosing scope, or None for an outermost scope.
        expired: Whether the block was stopped by the scope's own deadline.
        seconds: The time given to the scope, or infinity if it has no deadline.
        hold_count: The number of open blocks inside the scope for which other code must wait, even after the deadline
            (:meth:`keep_waiting`).
        begun_holds: The number of these blocks that have begun so far. Unlike ``hold_count``, it also reveals blocks
            that began and ended between two readings.
    """

    def __init__(
        self, seconds: float | None, parent: Clock | None = None, now: Callable[[], float] | None = None
    ) -> None:
        """Create a scope that expires after a number of seconds. Scopes are normally opened by :func:`limit`.

        Args:
            seconds: The time from now, or None for no deadline.
            parent: The enclosing scope, or None for an outermost scope.
            now: A function that returns the time in seconds. The default is ``parent.now``, or ``time.monotonic`` if
                there is no parent.
        """
        self.now: Callable[[], float] = now or (time.monotonic if parent is None else parent.now)
        self.parent = parent
        self.expired = False
        self.seconds = math.inf if seconds is None else seconds
        self.hold_count = 0
        self.begun_holds = 0
        self.end = math.inf if seconds is None else self.now() + seconds

    def cancel(self) -> None:
        """Make the scope expire immediately. Any thread may call this, for example when no more results are needed."""
        # Minus infinity is reserved for this, so that is_cancelled can distinguish it from a deadline that has passed.
        self.end = -math.inf

    @property
    def is_cancelled(self) -> bool:
        """Whether this scope or an enclosing one has been cancelled by :meth:`cancel`."""
        # Ask the parent instead of comparing its ``end``, because it may be a _HeldClock, which is cancelled along with
        # a scope that is not its parent.
        return self.end == -math.inf or (self.parent is not None and self.parent.is_cancelled)

    @property
    def left(self) -> float:
        """The number of seconds until the earliest deadline of this scope and its enclosing scopes.

        It is 0 once a deadline has passed, and infinity if there is no deadline.
        """
        end, scope = self.end, self.parent
        while scope is not None:
            end, scope = min(end, scope.end), scope.parent
        return end if end == math.inf else max(0.0, end - self.now())

    @property
    def over(self) -> Clock | None:
        """The outermost expired scope among this one and its enclosing scopes, or None if none has expired."""
        # Return the outermost scope, because the blocks of all scopes inside it must be left too.
        outer_scope = None if self.parent is None else self.parent.over
        return self if outer_scope is None and self.now() >= self.end else outer_scope

    def check(self, unfinished: str = "") -> None:
        """Raise an error if the time is up.

        Call this in long loops. A call takes only half a microsecond.

        Args:
            unfinished: The words that follow "the time limit was reached before" in the message, or "" for a generic
                message.

        Raises:
            OutOfTime: The deadline of this scope or of an enclosing one has passed.
        """
        scope = self.over
        if scope is not None:
            raise OutOfTime(scope, unfinished)

    @property
    def granted_seconds(self) -> float:
        """The full time granted to the outermost scope with a limit, or infinity if no scope has one.

        Unlike :attr:`left`, it does not depend on how busy the machine is, so it can be used to decide which method to
        run.
        """
        granted, scope = math.inf, self.parent
        if self.seconds < math.inf:
            granted = self.seconds
        while scope is not None:
            if scope.seconds < math.inf:
                granted = scope.seconds
            scope = scope.parent
        return granted

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Let a block run past the deadlines of this scope and its enclosing scopes, unless :meth:`cancel` ends it.

        Use this only for work that is short compared with the time granted, even on a busy machine. Code waiting for
        the scope's work checks :attr:`hold_count` before it stops waiting.
        """
        with self.keep_waiting(), self.without_deadline():
            yield

    def without_deadline(self) -> AbstractContextManager[None]:
        """Let a block run past the deadlines of this scope and its enclosing scopes.

        Unlike :meth:`hold`, this does not make other code wait for the block.
        """
        return within(_HeldClock(self))

    @contextmanager
    def keep_waiting(self) -> Iterator[None]:
        """Make any code that waits for this scope or an enclosing one keep waiting until the block ends.

        Such code checks :attr:`hold_count` before it stops waiting. The deadlines do not change. If the block contains
        several :meth:`hold` blocks, the waiting code also keeps waiting between them.
        """
        scopes: list[Clock] = []
        scope: Clock | None = self
        while scope is not None:
            scopes.append(scope)
            scope = scope.parent
        for held_scope in scopes:
            held_scope.hold_count += 1
            held_scope.begun_holds += 1
        try:
            yield
        finally:
            for held_scope in scopes:
                held_scope.hold_count -= 1

    def limit_to_share(self, part: float) -> AbstractContextManager[Clock]:
        """Open a scope with a fraction ``part`` of the remaining time, or with no limit if the time is unlimited."""
        return limit(part * self.left)


class _HeldClock(Clock):
    """A scope that ignores the deadlines of its enclosing scopes and expires only if one of them is cancelled."""

    def __init__(self, outer: Clock) -> None:
        """Create the scope inside ``outer``. The deadlines of ``outer`` and its enclosing scopes are ignored."""
        super().__init__(None, None, outer.now)
        self._outer = outer

    @property
    def is_cancelled(self) -> bool:
        """Whether an enclosing scope has been cancelled."""
        return self._outer.is_cancelled

    @property
    def over(self) -> Clock | None:
        """The outermost enclosing scope that has expired, or None if no enclosing scope has been cancelled."""
        return self._outer.over if self._outer.is_cancelled else None


_CLOCK: ContextVar[Clock] = ContextVar("_CLOCK", default=Clock(None))  # noqa: B039 (without a deadline it never changes)


def clock() -> Clock:
    """Return the caller's innermost time scope, or a scope that never expires if there is none."""
    return _CLOCK.get()


def check(unfinished: str = "") -> None:
    """Raise an error if the innermost scope's time is up, as described in :meth:`Clock.check`."""
    _CLOCK.get().check(unfinished)


@contextmanager
def limit(seconds: float | None, *, now: Callable[[], float] | None = None) -> Iterator[Clock]:
    """Open a scope that expires after a number of seconds, or earlier if an enclosing scope does.

    When the scope's own deadline passes, the block ends without an error and ``expired`` is set. Check ``expired``
    before using the results of a block that may have ended early.

    >>> with limit(0.0) as scope:
    ...     check("anything was done")
    >>> scope.expired
    True

    Args:
        seconds: The time from now, or None or infinity for no deadline.
        now: A function that returns the time in seconds, for tests.
    """
    scope = Clock(seconds, _CLOCK.get(), now)
    try:
        with within(scope):
            yield scope
    except OutOfTime as stop:
        if stop.clock is not scope:
            raise
        scope.expired = True


@contextmanager
def within(scope: Clock) -> Iterator[None]:
    """Enter an existing scope. Unlike :func:`limit`, this does not suppress the error raised at the scope's deadline.

    Args:
        scope: The scope to use as the block's innermost one. It need not lie inside the caller's scope.
    """
    token = _CLOCK.set(scope)
    try:
        yield
    finally:
        _CLOCK.reset(token)


def cap_time_limit(seconds: float | None = None) -> float | None:
    """Return the time limit to pass to a solver: ``seconds``, or the time remaining in the scopes if that is less.

    Call this function before each call to a solver that cannot check the clock itself.

    Args:
        seconds: The caller's own limit in seconds, or None for no limit.

    Returns:
        The limit in seconds, or None if there is no limit.

    Raises:
        OutOfTime: No time is left.
    """
    check()
    remaining_seconds = clock().left
    if remaining_seconds == math.inf:
        return seconds
    # The deadline may have passed since the check. The limit stays above 0, because some solvers read 0 as no limit.
    remaining_seconds = max(remaining_seconds, 1e-3)
    return remaining_seconds if seconds is None else min(seconds, remaining_seconds)


def slices(count: int) -> Iterator[tuple[int, int]]:
    """Yield half-open spans ``(a, b)`` that together cover ``range(count)``, checking the deadline before each span.

    Use this to split up work for compiled code, which cannot check the deadline itself. The spans grow until one takes
    a tenth of a second, so results must not depend on how the range is divided.

    Raises:
        OutOfTime: The deadline passed before the next span began.
    """
    start, size = 0, 1
    while start < count:
        check()
        started_at, end = time.perf_counter(), min(count, start + size)
        # The caller works on the span before it asks for the next one, so this measures the time of its work.
        yield start, end
        elapsed, start = time.perf_counter() - started_at, end
        # The size at most doubles, because the first spans can be too short to measure.
        if elapsed < SLICE_SECONDS:
            size = max(1, min(2 * size, int(size * SLICE_SECONDS / max(elapsed, 1e-9))))
        else:
            size = max(1, size // 2)


_CALLS: WeakSet[DaemonCall[Any]] = WeakSet()
"""All :class:`DaemonCall` objects that still exist, whether still running or done."""


def left_behind() -> bool:
    """Return whether any :class:`DaemonCall` is still running.

    If so, the process should exit without joining the threads of those calls.
    """
    return any(not call.done for call in list(_CALLS))


class DaemonCall(Generic[T]):
    """A call to a function without arguments, run in a daemon thread with a copy of the caller's context.

    Args:
        function: The function to run.
        within: The time scope in which the function runs, or None for the caller's scope.

    Attributes:
        thread: The thread. If the caller stops waiting, the thread ends when the function first checks its clock
            after the deadline, or at the latest when the process ends.
        error: The error raised by the function, or None if it has not raised one so far.
    """

    def __init__(self, function: Callable[[], T], within: Clock | None = None) -> None:
        """Start the thread."""
        # A list that is empty until the function has returned, because None is a possible result.
        self._value: list[T] = []
        self.error: BaseException | None = None
        context = copy_context()
        if within is not None:
            context.run(_CLOCK.set, within)

        def work() -> None:
            """Run the function in the thread, and store its result or error."""
            try:
                self._value.append(context.run(function))
            except BaseException as error:  # also KeyboardInterrupt and SystemExit, for result() to raise
                if isinstance(error, OutOfTime):
                    # The traceback would keep the arrays of the work that was given up as long as the error exists.
                    traceback.clear_frames(error.__traceback__)
                self.error = error

        self.thread = threading.Thread(target=work, name="privopt-work", daemon=True)
        _CALLS.add(self)
        self.thread.start()

    @property
    def done(self) -> bool:
        """Whether the function has returned or raised an error."""
        return bool(self._value) or self.error is not None

    def wait(self, seconds: float) -> bool:
        """Wait for up to the given number of seconds, and return whether the function is done.

        In the main thread, KeyboardInterrupt ends the wait early.
        """
        if not self.done:
            self.thread.join(max(0.0, min(seconds, threading.TIMEOUT_MAX)))
        return self.done

    def result(self) -> T:
        """Return the function's result or raise its error. The function must be done."""
        if self.error is not None:
            raise self.error
        return self._value[0]


@frozen
class Ticket:
    """The caller's remaining time, in a form that can be sent to a worker process.

    Attributes:
        seconds: The time in seconds that remained when the ticket was created, or infinity if there is no limit.
        machine: The name of the machine where the ticket was created.
        end: The deadline on that machine's ``time.monotonic`` clock, which all its processes share.
    """

    seconds: float
    machine: str
    end: float

    @classmethod
    def now(cls) -> Ticket:
        """Create a ticket for the innermost scope."""
        remaining_seconds = clock().left
        return cls(remaining_seconds, platform.node(), time.monotonic() + remaining_seconds)

    @property
    def seconds_left(self) -> float:
        """The number of seconds until the deadline.

        On another machine, whose clock cannot be compared, it is the number of seconds left when the ticket was
        created.
        """
        # The monotonic clock counts from the start of a machine, so its deadlines are meaningless on another one.
        return self.end - time.monotonic() if platform.node() == self.machine else self.seconds

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function in a worker, within the ticket's time limit.

        Raises:
            StoppedError: The deadline has passed. OutOfTime is not used, because it refers to a scope that exists only
                in the worker.
        """
        with limit(self.seconds_left):
            return function(*arguments)
        # Reached only if limit() suppressed the error at its own deadline.
        raise StoppedError(f"the time limit was reached before {getattr(function, '__qualname__', 'a task')} was done")


END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that ask a process to end: Ctrl-C, ``kill`` and the closing of its terminal."""

_SIGNAL_RECEIVED: Final = threading.Event()
"""An event that is set once an open :func:`interrupts` block has received a signal."""
_open_blocks = 0
"""The number of open :func:`interrupts` blocks that handle signals. Only the main thread changes it."""


def asked_to_end() -> bool:
    """Return whether a signal has asked for the work to end with its best result so far."""
    return _SIGNAL_RECEIVED.is_set()


@contextmanager
def interrupts() -> Iterator[list[int]]:
    """Turn :data:`END_SIGNALS` into KeyboardInterrupt in the block, and yield a list of the signals received.

    Code in the block may catch the interrupt and finish with its current result. The list then still shows that there
    was a signal, and :func:`asked_to_end` returns True in all threads until the outermost of these blocks ends.
    Existing signal handlers also run, after the signal has been added to the list. Outside the main thread, the context
    manager has no effect.
    """
    global _open_blocks
    signals_received: list[int] = []
    # If a handler was not set from Python (None), its signal is left alone, because Python could not restore it.
    original_handlers = {number: signal.getsignal(number) for number in END_SIGNALS}
    handled_signals = [number for number, handler in original_handlers.items() if handler not in (None, signal.SIG_IGN)]

    def note_signal(number: int, frame: FrameType | None) -> None:
        """Handle a signal: record it, call the original handler and raise KeyboardInterrupt."""
        signals_received.append(number)
        _SIGNAL_RECEIVED.set()
        original_handler = original_handlers[signal.Signals(number)]
        if callable(original_handler):
            original_handler(number, frame)
        raise KeyboardInterrupt

    # Python lets only the main thread set handlers. Ignored signals (SIG_IGN, as under nohup) stay ignored.
    if threading.current_thread() is not threading.main_thread():
        handled_signals = []
    for number in handled_signals:
        signal.signal(number, note_signal)
    _open_blocks += bool(handled_signals)
    try:
        yield signals_received
    finally:
        for number in handled_signals:
            signal.signal(number, original_handlers[number])
        _open_blocks -= bool(handled_signals)
        # A nested block must not clear the event, because the signal was meant for the blocks around it too.
        if handled_signals and not _open_blocks:
            _SIGNAL_RECEIVED.clear()


@contextmanager
def interrupts_on_end() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into KeyboardInterrupt in the block, so that cleanup code in the block can run.

    Only signals that would end the process immediately are handled. Ignored signals (as under nohup) stay ignored, and
    a program's own handlers stay in place. Unlike :func:`interrupts`, this context manager does not affect
    :func:`asked_to_end`. Outside the main thread, it has no effect at all.
    """

    def end_block(number: int, frame: FrameType | None) -> NoReturn:
        """Handle a signal by raising KeyboardInterrupt, which ends the current block."""
        raise KeyboardInterrupt

    handled_signals = [number for number in END_SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    if threading.current_thread() is not threading.main_thread():
        handled_signals = []
    for number in handled_signals:
        signal.signal(number, end_block)
    try:
        yield
    finally:
        for number in handled_signals:
            signal.signal(number, signal.SIG_DFL)
