"""Executors, which run tasks in the caller's thread, in other threads, in worker processes or on a Dask cluster.

``Executor.submit(key, function, *arguments)`` queues a task and returns a :class:`concurrent.futures.Future`. Tasks
with the same key run one after another on the same worker, so that the worker can cache data for the key
(:func:`worker_state`). Every other worker must be able to rebuild this data, because a task's result must depend only
on its arguments, never on where the task ran. A worker that dies is replaced, and its task is retried once. If the new
worker also dies, the task fails with :class:`~privopt.errors.SolverError`.

>>> from privopt.execution import serial
>>> with serial() as executor:
...     executor.submit("block-0", max, 3, 7).result()
7
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privopt.execution.base import Executor, Held, worker_state
    from privopt.execution.local import from_url, processes, serial, threads
    from privopt.execution.resources import spans

__all__ = ["Executor", "Held", "from_url", "processes", "serial", "spans", "threads", "worker_state"]

_HOMES = {
    "privopt.execution.base": ("Executor", "Held", "worker_state"),
    "privopt.execution.local": ("from_url", "processes", "serial", "threads"),
    "privopt.execution.resources": ("spans",),
}


# This does not use the package lazy-loader, for the reasons given in docs/adr/0008.
def __getattr__(name: str) -> Any:
    """Import a name listed in ``__all__`` from its module on first use.

    This lets worker processes start without importing all modules of the package.

    Raises:
        AttributeError: The name is not in ``__all__``.
    """
    for home, members in _HOMES.items():
        if name in members:
            return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
