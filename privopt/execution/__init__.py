"""Where work runs: here, in threads, in worker processes, or on a Dask cluster.

An :class:`Executor` takes ``submit(key, function, *arguments)`` and gives a :class:`concurrent.futures.Future`. Tasks
with the same key go to the same worker, one after another, so that a worker can keep warm what it built for that key
(:func:`worker_state`); any other worker can build it again. What a task returns depends on its arguments alone, never
on where it ran. A worker that dies is rebuilt and its task tried once more; if that kills it too, the task ends in
:class:`~privopt.errors.SolverError`.

>>> with serial() as executor:
...     executor.submit("block-0", max, 3, 7).result()
7
"""

from privopt.execution.base import Executor, Held, spans, worker_state
from privopt.execution.local import from_url, processes, serial, threads

__all__ = ["Executor", "Held", "from_url", "processes", "serial", "spans", "threads", "worker_state"]
