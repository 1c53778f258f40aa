"""Functions that are compiled to machine code by numba, which is loaded when the first of them is called.

numba caches the compiled code so that later processes only need to load it. The cache is the folder named by
NUMBA_CACHE_DIR if that is set, and otherwise a folder next to the module or, failing that, the user's cache folder.
Since loading numba and the code takes half a second, a function can declare which calls are so short that interpreting
them is faster. If numba is not installed, all calls are interpreted, with the same results.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import update_wrapper, wraps
from typing import Any, Generic, ParamSpec, TypeVar, cast

__all__ = ["MAX_INTERPRETED_COSTS", "LazyJit", "compilations", "jit", "when_compiling"]

P = ParamSpec("P")
R = TypeVar("R")

_LOCK = threading.RLock()
_THREAD_STATE = threading.local()
MAX_INTERPRETED_CALLS = 250
"""The largest number of calls to a function that are interpreted.

The number is limited because many short calls add up to a long time.
"""
MAX_INTERPRETED_COSTS = 700
"""The largest number of costs (records times outputs) for which a solve and its proof are interpreted.

Interpreting a solve with 26 records and 26 outputs takes a few tenths of a second, whereas loading numba and the
compiled code takes half a second and 100 MiB of memory.
"""
_listeners: list[Callable[[str], object]] = []
"""The functions to call with a message at the next compilation."""
_listening = False
"""Whether numba reports its compilations to this module."""
_compilation_count = 0
"""The number of compilations reported by numba."""


class LazyJit(Generic[P, R]):
    """A function that is compiled when first called.

    Attributes:
        py_func: The original, uncompiled function.
        _interpreted: The number of calls that have been interpreted so far.
        _dispatcher_object: numba's callable for the compiled function, or None until it is needed.
        _ready: The same object, but set only once the compiled functions called by this one have been replaced by their
            dispatchers.
    """

    def __init__(
        self, function: Callable[P, R], options: dict[str, Any], few: Callable[..., bool] | None = None
    ) -> None:
        """Wrap a function without compiling it.

        Args:
            function: The function.
            options: Options for ``numba.njit``.
            few: A function that takes a call's positional arguments and returns whether the call is short enough to be
                interpreted. If None, no calls are interpreted.
        """
        self.py_func = function
        self._options = options
        self._is_short_call, self._interpreted = few, 0
        self._dispatcher_object: Callable[P, R] | None = None
        self._ready: Callable[P, R] | None = None
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the compiled function, or interpret the call if it is short and numba is not loaded yet."""
        if self._ready is None:
            # Inside an interpreted call, everything is interpreted (see `_interpret`).
            if getattr(_THREAD_STATE, "interpreting", False):
                return self.py_func(*args, **kwargs)
            may_interpret = self._interpreted < MAX_INTERPRETED_CALLS and "numba" not in sys.modules
            if may_interpret and self._is_short_call is not None and self._is_short_call(*args):
                return self._interpret(*args, **kwargs)
        return (self._ready or self.dispatcher())(*args, **kwargs)

    def _interpret(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Run the function in the interpreter, together with all compiled functions that it calls in this thread."""
        import numpy as np

        self._interpreted += 1  # up to MAX_INTERPRETED_CALLS
        _THREAD_STATE.interpreting = True  # also for the functions that this one calls
        try:
            with np.errstate(all="ignore"):  # like compiled code, which gives no NumPy warnings
                return self.py_func(*args, **kwargs)
        finally:
            _THREAD_STATE.interpreting = False

    def dispatcher(self) -> Callable[P, R]:
        """Return numba's dispatcher for the function, which compiles the function when it is first called.

        Each :class:`LazyJit` that the function may call is first replaced by its own dispatcher in the function's
        module, because numba cannot compile calls to a :class:`LazyJit`.
        """
        with _LOCK:
            if self._dispatcher_object is None:
                dispatcher_object = _make_dispatcher(self.py_func, self._options)
                # Set before the recursion below, because the functions may call one another.
                self._dispatcher_object = dispatcher_object
                module_names = self.py_func.__globals__
                compiled_names = {
                    name: value for name, value in list(module_names.items()) if isinstance(value, LazyJit)
                }
                # Replace them in a single update, because a thread that finds a compiled function must find all that it
                # calls.
                module_names.update({name: value.dispatcher() for name, value in compiled_names.items()})
                self._ready = dispatcher_object
        return self._dispatcher_object


def _make_dispatcher(function: Callable[P, R], options: dict[str, Any]) -> Callable[P, R]:
    """Return numba's dispatcher for a function, which compiles the function when it is first called.

    If numba is not installed, the function itself is returned, with NumPy's warnings silenced. ``options`` are passed
    to ``numba.njit``.
    """
    try:
        import numba
    except ModuleNotFoundError:  # interpreted code is much slower, but gives the same numbers
        return _silence_warnings(function)

    _listen_to_numba()
    try:
        return cast("Callable[P, R]", numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no cache folder is writable, so each process compiles again
        return cast("Callable[P, R]", numba.njit(**options)(function))


def _silence_warnings(function: Callable[P, R]) -> Callable[P, R]:
    """Wrap a function so that, like compiled code, it issues no warnings about overflow or invalid values."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function without NumPy's warnings about overflow or invalid values."""
        import numpy as np

        with np.errstate(all="ignore"):
            return function(*args, **kwargs)

    return call


def jit(*, few: Callable[..., bool] | None = None, **options: object) -> Callable[[Callable[P, R]], LazyJit[P, R]]:
    """Return a decorator that compiles a function to machine code.

    The compiled code is cached between runs and releases the GIL.

    Args:
        few: A function that takes a call's positional arguments and returns whether the call is short enough to be
            interpreted. If None, no calls are interpreted.
        options: Further options for ``numba.njit``.

    >>> @jit()
    ... def twice(x):
    ...     return 2 * x
    >>> twice.py_func(4)
    8
    """

    def decorate(function: Callable[P, R]) -> LazyJit[P, R]:
        """Wrap the function so that it is compiled when first called."""
        return LazyJit(function, {"nogil": True, **options}, few)

    return decorate


@contextmanager
def when_compiling(notify: Callable[[str], object]) -> Iterator[None]:
    """Call ``notify`` once with a message if the block compiles a function that is not in numba's cache."""
    _listeners[:] = [notify]
    try:
        yield
    finally:
        # A later command in the same process may not want the message.
        _listeners.clear()


def compilations() -> int:
    """Return the number of compilations started by this process, not counting loads from numba's cache."""
    return _compilation_count


def _listen_to_numba() -> None:
    """Register a listener that counts numba's compilations and notifies the function set by :func:`when_compiling`."""
    global _listening
    if _listening:
        return
    _listening = True
    from numba.core import event

    class CompilationListener(event.Listener):  # type: ignore[misc, name-defined, unused-ignore]
        def on_start(self, happened: event.Event) -> None:
            """Count the start of a compilation, and notify each listener once."""
            global _compilation_count
            _compilation_count += 1
            # Each listener is called only once, because a program has many functions and one message is enough.
            while _listeners:
                _listeners.pop()("compiling for this machine; later runs reuse the result")

        def on_end(self, happened: event.Event) -> None:
            """Do nothing. numba requires this method."""

    event.register("numba:compile", CompilationListener())
