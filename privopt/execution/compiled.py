"""Functions compiled to machine code by numba, which is loaded where the first of them is called.

numba keeps the code in the folder that NUMBA_CACHE_DIR names, else next to the module, else in the user's cache folder,
so that later processes only read it. To load numba and that code takes half a second: a function may say which calls
are so few steps that the interpreter is done before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Generic, ParamSpec, TypeVar, cast

__all__ = ["LazyJit", "compilations", "jit", "when_compiling"]

P = ParamSpec("P")
R = TypeVar("R")

_LOCK = threading.RLock()
_HERE = threading.local()
MAX_INTERPRETED_CALLS = 100
"""Times that a function is interpreted, at most: many short calls are a long one."""
_listeners: list[Callable[[str], object]] = []
_listening = False
_begun = 0


class LazyJit(Generic[P, R]):
    """A function that is compiled when it is first called.

    Attributes:
        py_func: the function itself, not compiled.
    """

    def __init__(
        self, function: Callable[P, R], options: dict[str, Any], few: Callable[..., bool] | None = None
    ) -> None:
        self.py_func = function
        self._options = options
        self._few, self._interpreted = few, 0
        self._made: Callable[P, R] | None = None
        self._ready: Callable[P, R] | None = None  # the same, once those that it calls are made
        update_wrapper(self, function)

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call it: compiled, but for few steps while numba is not loaded."""
        if self._ready is None:
            if getattr(_HERE, "interpreting", False):
                return self.py_func(*args, **kwargs)
            fresh = self._interpreted < MAX_INTERPRETED_CALLS and "numba" not in sys.modules
            if fresh and self._few is not None and self._few(*args):
                return self._interpret(*args, **kwargs)
        return (self._ready or self.dispatcher())(*args, **kwargs)

    def _interpret(self, *args: P.args, **kwargs: P.kwargs) -> R:
        import numpy as np

        self._interpreted += 1
        _HERE.interpreting = True  # what it calls is no longer
        try:
            with np.errstate(all="ignore"):  # as compiled
                return self.py_func(*args, **kwargs)
        finally:
            _HERE.interpreting = False

    def dispatcher(self) -> Callable[P, R]:
        """Return numba's own object; those that the function calls take their place in its module first."""
        with _LOCK:
            if self._made is None:
                made = _dispatcher(self.py_func, self._options)
                self._made = made  # before those that it calls: they may call it
                names = self.py_func.__globals__
                called = {name: value for name, value in list(names.items()) if isinstance(value, LazyJit)}
                # at once: a thread that finds one by name must find all that this one calls
                names.update({name: value.dispatcher() for name, value in called.items()})
                self._ready = made
        return self._made


def _dispatcher(function: Callable[P, R], options: dict[str, Any]) -> Callable[P, R]:
    import numba

    _listen()
    try:
        return cast("Callable[P, R]", numba.njit(cache=True, **options)(function))
    except RuntimeError:  # no folder can be written: compiled again in each process
        return cast("Callable[P, R]", numba.njit(**options)(function))


def jit(*, few: Callable[..., bool] | None = None, **options: object) -> Callable[[Callable[P, R]], LazyJit[P, R]]:
    """Compile to machine code, kept between runs, without the interpreter's lock; numba's options in addition.

    ``few`` gets the arguments of a call and says whether it is so short that the interpreter may do it.

    >>> @jit()
    ... def twice(x):
    ...     return 2 * x
    >>> twice.py_func(4)
    8
    """

    def decorate(function: Callable[P, R]) -> LazyJit[P, R]:
        return LazyJit(function, {"nogil": True, **options}, few)

    return decorate


def when_compiling(notify: Callable[[str], object]) -> None:
    """Have ``notify`` called once, with a sentence, where a function is compiled that no earlier run has kept."""
    _listeners[:] = [notify]


def compilations() -> int:
    """Return how many compilations this process has begun; loading from numba's cache is not one."""
    return _begun


def _listen() -> None:
    global _listening
    if _listening:
        return
    _listening = True
    from numba.core import event

    class First(event.Listener):  # type: ignore[misc, name-defined, unused-ignore]
        def on_start(self, happened: event.Event) -> None:
            global _begun
            _begun += 1
            while _listeners:
                _listeners.pop()("compiling for this machine; later runs find it done")

        def on_end(self, happened: event.Event) -> None:
            pass

    event.register("numba:compile", First())
