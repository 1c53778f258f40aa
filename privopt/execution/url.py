"""The executor that ``--executor`` and ``--jobs`` name."""

from __future__ import annotations

from privopt.errors import UsageError
from privopt.execution.base import Executor
from privopt.execution.local import _at_least_one, processes, serial


def from_url(url: str | None, jobs: int = 1) -> Executor:
    """Return the executor that ``--executor`` and ``--jobs`` name.

    Args:
        url: None for this machine, or ``dask://host:port``.
        jobs: 1 runs here, more in that many worker processes; a Dask cluster has as many as it has workers.

    Raises:
        UsageError: an unknown scheme, a cluster that does not answer, or ``distributed`` is not installed.
    """
    if url is None:
        return serial() if _at_least_one(jobs) == 1 else processes(jobs)
    scheme, _, address = url.partition("://")
    if scheme != "dask" or not address:
        raise UsageError(f"executor must be dask://host:port, got {url!r}")
    from privopt.execution.cluster import connect

    return connect(address)
