"""Deadlines: scopes of time in a context variable, shared by all threads and worker processes inside.

A block is in ``with limit(seconds)``; what runs inside, however deep, asks :func:`clock` how much is left or has it
:meth:`~Clock.check`. No function takes a deadline. The pattern is that of cancel scopes in trio and anyio
(``move_on_after``), without tasks: a scope swallows its own end, and lets that of a scope around it go on up.
"""

from __future__ import annotations

import math
import platform
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar, copy_context
from typing import Any, Final, Generic, TypeVar
from weakref import WeakSet

from attrs import frozen

from privopt.errors import StoppedError

__all__ = [
    "UNWRITTEN",
    "Clock",
    "DaemonCall",
    "OutOfTime",
    "Ticket",
    "check",
    "clock",
    "granted",
    "left_behind",
    "limit",
    "slices",
    "within",
]

T = TypeVar("T")

SLICE_SECONDS: Final = 0.1
"""Seconds that a slice of compiled work takes, about: so soon it sees that its time is over."""

UNWRITTEN: Final = "the time limit came before a release was found; nothing written"


class OutOfTime(StoppedError):  # noqa: N818 (no error where it is caught: the scope whose end it is swallows it)
    """The end of a scope has come; methods let it pass.

    Attributes:
        clock: the scope whose end it is.
    """

    def __init__(self, clock: Clock, unfinished: str = "") -> None:
        super().__init__(f"the time limit came before {unfinished}" if unfinished else UNWRITTEN)
        self.clock = clock


class Clock:
    """A scope of time: one object, shared by all threads that work inside it.

    Attributes:
        end: in seconds of ``now()``; infinite without a limit.
        parent: the scope around it.
        expired: whether its own end stopped its block.
    """

    def __init__(
        self, seconds: float | None, parent: Clock | None = None, now: Callable[[], float] | None = None
    ) -> None:
        self.now: Callable[[], float] = now or (time.monotonic if parent is None else parent.now)
        self.parent = parent
        self.expired = False
        self.end = math.inf if seconds is None else self.now() + seconds

    def cancel(self) -> None:
        """End it now, from any thread: an interrupt, or a caller that has seen enough."""
        self.end = -math.inf

    @property
    def cancelled(self) -> bool:
        """Whether this scope, or one around it, was ended before its time."""
        scope: Clock | None = self
        while scope is not None and scope.end != -math.inf:
            scope = scope.parent
        return scope is not None

    @property
    def left(self) -> float:
        """Seconds until the nearest end around; infinite without one, 0 once one has come."""
        end, scope = self.end, self.parent
        while scope is not None:
            end, scope = min(end, scope.end), scope.parent
        return end if end == math.inf else max(0.0, end - self.now())

    @property
    def over(self) -> Clock | None:
        """The outermost scope whose end has come; None while there is time."""
        found, now = None, self.now()
        scope: Clock | None = self
        while scope is not None:
            if now >= scope.end:
                found = scope
            scope = scope.parent
        return found

    def check(self, unfinished: str = "") -> None:
        """Raise StoppedError if the time is over. Call it inside long loops; it takes half a microsecond.

        Args:
            unfinished: what is not done yet, in words.

        Raises:
            OutOfTime: the end of this scope, or of one around it, has come.
        """
        scope = self.over
        if scope is not None:
            raise OutOfTime(scope, unfinished)

    def share(self, part: float) -> AbstractContextManager[Clock]:
        """Open a scope of so much of what is left; without a limit it has none."""
        return limit(part * self.left)


_CLOCK: ContextVar[Clock] = ContextVar("_CLOCK", default=Clock(None))  # noqa: B039 (without an end no one changes it)


def clock() -> Clock:
    """Return the innermost scope."""
    return _CLOCK.get()


def check(unfinished: str = "") -> None:
    """Stop where the innermost scope's time is over; see :meth:`Clock.check`."""
    _CLOCK.get().check(unfinished)


@contextmanager
def limit(seconds: float | None, *, now: Callable[[], float] | None = None) -> Iterator[Clock]:
    """Open a scope that ends after a number of seconds, or earlier with the scope around it.

    Its own end leaves the block quietly and sets ``expired``. Check that before you read results of a block that may
    have ended early.

    >>> with limit(0.0) as scope:
    ...     check("anything was done")
    >>> scope.expired
    True

    Args:
        seconds: from now; None or infinite for no limit of its own.
        now: a clock, for tests.
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
    """Enter a scope that was made before. Unlike :func:`limit`, the block does not swallow the scope's end.

    Args:
        scope: The innermost scope of the block. It need not lie inside the caller's scope.
    """
    token = _CLOCK.set(scope)
    try:
        yield
    finally:
        _CLOCK.reset(token)


def granted(seconds: float | None = None) -> float | None:
    """Return the time limit of a solver: ``seconds``, or what is left of the scopes around if that is less.

    Returns:
        Seconds; None without a limit.

    Raises:
        OutOfTime: nothing is left.
    """
    check()
    left = clock().left
    if seconds is None:
        return None if left == math.inf else max(left, 1e-3)
    return min(seconds, left)


def slices(count: int) -> Iterator[tuple[int, int]]:
    """Yield spans ``a, b`` of ``range(count)``, each after a look at the clock.

    They grow until one takes a tenth of a second. The results of the work must not depend on the spans.

    Raises:
        OutOfTime: the end came between two of them.
    """
    first, size = 0, 1
    while first < count:
        check()
        began, end = time.perf_counter(), min(count, first + size)
        yield first, end
        taken, first = time.perf_counter() - began, end
        if taken < SLICE_SECONDS:
            size = max(1, min(2 * size, int(size * SLICE_SECONDS / max(taken, 1e-9))))
        else:
            size = max(1, size // 2)


_RUNNING: WeakSet[DaemonCall[Any]] = WeakSet()


def left_behind() -> bool:
    """Return whether any :class:`DaemonCall` still runs; a process then does better not to wait for it."""
    return any(not running.done for running in list(_RUNNING))


class DaemonCall(Generic[T]):
    """A function without arguments that runs in a daemon thread, in a copy of the caller's context.

    Args:
        function: to run.
        within: its scope of time; None for the caller's.

    Attributes:
        thread: that runs it. A caller that does not wait leaves it behind: it looks at a clock, or ends with the
            process.
    """

    def __init__(self, function: Callable[[], T], within: Clock | None = None) -> None:
        self._value: list[T] = []
        self.error: BaseException | None = None
        context = copy_context()
        if within is not None:
            context.run(_CLOCK.set, within)

        def work() -> None:
            try:
                self._value.append(context.run(function))
            except BaseException as error:
                self.error = error

        self.thread = threading.Thread(target=work, name="privopt-work", daemon=True)
        _RUNNING.add(self)
        self.thread.start()

    @property
    def done(self) -> bool:
        """Whether it has returned or raised."""
        return bool(self._value) or self.error is not None

    def wait(self, seconds: float) -> bool:
        """Wait so long at most; whether it is done. An interrupt of the main thread ends the wait."""
        if not self.done:
            self.thread.join(max(0.0, min(seconds, threading.TIMEOUT_MAX)))
        return self.done

    def result(self) -> T:
        """Return what a function that is done returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return self._value[0]


@frozen
class Ticket:
    """The caller's remaining time, as it is sent to a worker process.

    Attributes:
        seconds: left when it was made; infinite without a limit.
        machine: name of where it was made.
        end: at this value of its ``time.monotonic``: the processes of a machine share that clock.
    """

    seconds: float
    machine: str
    end: float

    @classmethod
    def now(cls) -> Ticket:
        """Make one of the innermost scope."""
        left = clock().left
        return cls(left, platform.node(), time.monotonic() + left)

    @property
    def left(self) -> float:
        """Seconds left here: until the same end on the same machine, as many as there were then elsewhere."""
        return self.end - time.monotonic() if platform.node() == self.machine else self.seconds

    def call(self, function: Callable[..., T], *arguments: object) -> T:
        """Call a function, in a worker, inside the caller's limit.

        Raises:
            StoppedError: the end came; it travels, where a scope would not.
        """
        with limit(self.left):
            return function(*arguments)
        raise StoppedError(f"the time limit came before {getattr(function, '__qualname__', 'a task')} was done")
