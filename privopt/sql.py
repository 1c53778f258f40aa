"""Register a release as an SQL function in DuckDB.

::

    privopt.sql.register(connection, release)
    connection.execute("CREATE TABLE safe AS SELECT trip, report(lat, lon) AS place FROM trips")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from privopt.api.released import OpenRelease
    from privopt.ledger.ledger import Ledger
else:  # DuckDB may not be installed, and the other modules are imported only when needed
    DuckDBPyConnection = OpenRelease = Ledger = Any

__all__ = ["register"]


def register(
    connection: DuckDBPyConnection,
    release: OpenRelease,
    name: str = "report",
    ledger: Ledger | Path | str | None = None,
) -> None:
    """Register a release as an SQL function that draws a report for each row.

    ``report(lat, lon)`` returns a structure ``{id, lat, lon}``, or NULL for a row that gets no report. The function is
    ``report(x, y)`` if the records have positions in km, and ``report(id)`` if they have no positions.

    The function is registered as having side effects, so a report is drawn separately for each row that a query
    selects. A view draws new reports with each query, but a table created from reports does not. Only the owner of the
    data should be able to call the function, because anyone who can write queries can average many reports for the same
    row.

    Args:
        connection: The connection to DuckDB.
        release: A release of an obfuscation matrix.
        name: The name of the SQL function.
        ledger: A ledger, or its path, that records the privacy budget used by each person. If None, no budget is
            recorded. With a ledger, the function has an additional last argument, the subject (the person that the row
            is about). Each row is charged durably before its report is drawn, and the charge does not depend on the
            row's position. Rows without a subject, and rows that would exceed the limit, return NULL.

    Raises:
        UsageError: An argument has the wrong type, the name is blank or taken, the release has no report for a row, or
            the ledger limits budgets per calendar period.
        InputError, DoesNotHoldError: The ledger cannot be read, or was changed.
    """
    from privopt.api.released import OpenRelease
    from privopt.errors import UsageError

    if not isinstance(release, OpenRelease):
        raise UsageError(f"release must be one of privopt.solve or privopt.open, got {type(release).__name__}")
    release.add_to_duckdb(connection, name, ledger)
