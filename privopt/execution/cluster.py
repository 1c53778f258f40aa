"""The executor for Dask clusters, which pins each task to the worker for its key.

By default, Dask places tasks freely, and reruns them elsewhere if a worker dies. Here, each task names its worker,
because the worker's memory contains data left by earlier tasks with the same key. This module itself replaces lost
workers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from privopt.errors import SolverError, UsageError
from privopt.execution.base import Executor, Held, WorkerExecutor
from privopt.execution.clock import Clock, Ticket

T = TypeVar("T")

_LOST_AFTER_SECONDS = 2.0
"""The number of seconds after which a worker that the scheduler no longer lists is considered lost."""
_PATIENCE_SECONDS = 10.0
"""The number of seconds to wait for a scheduler to answer, or for a worker to join a cluster without workers."""


class _Dask(WorkerExecutor):
    """An executor that uses the workers of a Dask cluster.

    A held value (:class:`Held`) is sent to each worker only once.

    Attributes:
        _client: The ``distributed.Client``.
        _names: The name (address) of each slot's worker. A slot is the index of a worker in this executor.
        _scattered: The Dask future for each held value on each worker, keyed by the value's number and the worker's
            name.
    """

    def __init__(self, client: Any) -> None:
        """Create an executor for the workers that currently belong to a cluster.

        Args:
            client: A ``distributed.Client``.

        Raises:
            UsageError: The cluster has no workers.
        """
        self._client = client
        self._names = self._live_workers()
        if not self._names:
            raise UsageError("the Dask cluster has no workers")
        super().__init__(len(self._names))
        self._scattered: dict[tuple[int, str], Any] = {}

    def _live_workers(self) -> list[str]:
        """Return the sorted names (addresses) of the workers currently known to the scheduler."""
        return sorted(self._client.scheduler_info(n_workers=-1)["workers"])

    def _call(self, slot: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        """Call a function on the worker in a slot. If the worker is lost, try once more on another worker.

        Args:
            slot: The slot in which to run the function. All tasks in a slot go to the same worker as long as that
                worker lives.
            function: The function to call.
            arguments: The arguments. A value held by reference (:class:`Held`) is sent only if the worker does not
                already have it.

        Raises:
            SolverError: The second worker was also lost, so the task is probably the cause.
        """
        for _ in range(2):
            name = self._worker_name(slot)
            sent_arguments = [self._send(name, a) if isinstance(a, Held) else a for a in arguments]
            # The ticket carries the caller's time limit to the worker. With pure=True, Dask would run two tasks with
            # equal arguments only once.
            future = self._client.submit(Ticket.now().call, function, *sent_arguments, workers=[name], pure=False)
            if self._wait_for_answer(future, name):
                answer: T = future.result()
                return answer
            future.cancel()
            self._forget_worker(name)
        raise SolverError(f"the Dask worker died in {getattr(function, '__qualname__', repr(function))}, twice")

    def _worker_name(self, slot: int) -> str:
        """Return the name of the worker in a slot. If the worker is gone, assign another one to the slot.

        If the cluster has no workers, wait until one joins.

        Raises:
            SolverError: No worker joined within :data:`_PATIENCE_SECONDS`.
        """
        patience = Clock(_PATIENCE_SECONDS)
        while not (live_workers := self._live_workers()):
            if patience.left == 0.0:
                raise SolverError("the Dask cluster has no workers left")
            time.sleep(0.1)
        if self._names[slot] not in live_workers:
            self._names[slot] = live_workers[slot % len(live_workers)]
        return self._names[slot]

    def _send(self, name: str, held: Held) -> Any:
        """Return the Dask future for a held value on the worker called ``name``, sending the value first if needed."""
        for key in [key for key in list(self._scattered) if key[1] == name and key[0] not in self._live_values]:
            # The caller dropped its reference to the value. Without this future, the cluster frees the data.
            del self._scattered[key]
        if (held.number, name) not in self._scattered:
            [future] = self._client.scatter([held.value], workers=[name], hash=False)
            self._scattered[held.number, name] = future
        return self._scattered[held.number, name]

    def _forget_worker(self, name: str) -> None:
        """Forget which values a lost worker had received, so that they will be sent again."""
        for key in [key for key in list(self._scattered) if key[1] == name]:
            self._scattered.pop(key, None)

    def _wait_for_answer(self, future: Any, name: str) -> bool:
        """Wait for a task to finish, and return True once it has finished.

        Return False if the task's worker, or data needed by the task, is lost first.
        """
        from distributed import KilledWorker

        # Keep asking the scheduler, because Dask lets a task that names a lost worker wait forever.
        gone_since: float | None = None
        while not future.done():
            time.sleep(0.005)
            if name in self._client.scheduler_info(n_workers=-1)["workers"]:
                gone_since = None
                continue
            # A worker may be missing for a moment, so it counts as lost only after some time.
            gone_since = gone_since or time.monotonic()
            if time.monotonic() - gone_since > _LOST_AFTER_SECONDS:
                return False
        if future.status in ("cancelled", "lost"):  # the cluster cancels tasks whose data were on a lost worker
            return False
        return not isinstance(future.exception() if future.status == "error" else None, KilledWorker)

    def close(self, *, wait: bool = True) -> None:
        """Stop the executor's threads and disconnect from the cluster, which keeps running."""
        super().close(wait=wait)
        self._client.close()


def connect(address: str) -> Executor:
    """Return an executor for the cluster whose scheduler listens at ``host:port``.

    Raises:
        UsageError: ``distributed`` is not installed, no scheduler responds, or the cluster has no workers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError(
            "a Dask cluster needs the package distributed: 'pip install privopt[dask]' brings it"
        ) from None
    try:
        client = Client(f"tcp://{address}", timeout=_PATIENCE_SECONDS, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {error}") from error
    return _Dask(client)
