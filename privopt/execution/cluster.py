"""Run tasks on a Dask cluster, and name the worker of each."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from privopt.errors import SolverError, UsageError
from privopt.execution.base import Executor, Held, WorkerExecutor
from privopt.execution.clock import Clock, Ticket

T = TypeVar("T")

#: Seconds: until a worker that the scheduler no longer names counts as lost; for a scheduler to answer.
_LOST_AFTER, _PATIENCE = 2.0, 10.0


class _Dask(WorkerExecutor):
    """Held values are scattered to a worker once."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self._names = self._alive()
        if not self._names:
            raise UsageError("the Dask cluster has no workers")
        super().__init__(len(self._names))
        self._scattered: dict[tuple[int, str], Any] = {}

    def _alive(self) -> list[str]:
        return sorted(self._client.scheduler_info(n_workers=-1)["workers"])

    def _call(self, place: int, function: Callable[..., T], arguments: Sequence[Any]) -> T:
        for _ in range(2):
            name = self._worker(place)
            sent = [self._send(name, a) if isinstance(a, Held) else a for a in arguments]
            future = self._client.submit(Ticket.now().call, function, *sent, workers=[name], pure=False)
            if self._settled(future, name):
                answer: T = future.result()
                return answer
            future.cancel()
            self._lost(name)
        raise SolverError(f"the Dask worker died in {getattr(function, '__qualname__', repr(function))}, twice")

    def _worker(self, place: int) -> str:
        """Return the worker of a place; if it has gone, the place moves to one that is there or comes back in time."""
        patience = Clock(_PATIENCE)
        while not (alive := self._alive()):
            if patience.left == 0.0:
                raise SolverError("the Dask cluster has no workers left")
            time.sleep(0.1)
        if self._names[place] not in alive:
            self._names[place] = alive[place % len(alive)]
        return self._names[place]

    def _send(self, name: str, held: Held) -> Any:
        for key in [key for key in list(self._scattered) if key[1] == name and key[0] not in self._live]:
            del self._scattered[key]  # no one holds it any more: the cluster may forget it
        if (held.number, name) not in self._scattered:
            [future] = self._client.scatter([held.value], workers=[name], hash=False)
            self._scattered[held.number, name] = future
        return self._scattered[held.number, name]

    def _lost(self, name: str) -> None:
        """Forget what a lost worker held: it is sent again."""
        for key in [key for key in list(self._scattered) if key[1] == name]:
            self._scattered.pop(key, None)

    def _settled(self, future: Any, name: str) -> bool:
        """Wait; False where the worker, or what it held, is lost before there is an answer."""
        from distributed import KilledWorker

        gone_since: float | None = None
        while not future.done():
            time.sleep(0.005)
            if name in self._client.scheduler_info(n_workers=-1)["workers"]:
                gone_since = None
                continue
            gone_since = gone_since or time.monotonic()
            if time.monotonic() - gone_since > _LOST_AFTER:
                return False
        if future.status in ("cancelled", "lost"):  # the cluster cancels what rested on a lost worker's data
            return False
        return not isinstance(future.exception() if future.status == "error" else None, KilledWorker)

    def close(self, *, wait: bool = True) -> None:
        super().close(wait=wait)
        self._client.close()


def connect(address: str) -> Executor:
    """Return the cluster whose scheduler listens at ``host:port``.

    Raises:
        UsageError: ``distributed`` is not installed, no one answers, or the cluster has no workers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise UsageError("a Dask cluster needs the package distributed: install privopt[dask]") from None
    try:
        client = Client(f"tcp://{address}", timeout=_PATIENCE, set_as_default=False)
    except (OSError, TimeoutError) as error:
        raise UsageError(f"no Dask scheduler answers at {address}: {error}") from error
    return _Dask(client)
