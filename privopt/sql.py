"""Register a release as a function of SQL, in DuckDB.

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
else:  # DuckDB may not be installed, and what solves is loaded late
    DuckDBPyConnection = OpenRelease = Ledger = Any

__all__ = ["register"]


def register(
    connection: DuckDBPyConnection,
    release: OpenRelease,
    name: str = "report",
    ledger: Ledger | Path | str | None = None,
) -> None:
    """Register a release as a function of SQL that draws a report for each row.

    ``report(lat, lon)`` is a structure ``{id, lat, lon}``, and NULL for a row without a report. Where records are in km
    it is ``report(x, y)``; where they have no places, ``report(id)``.

    Each row that a query selects is drawn for separately: DuckDB knows that the function has side effects. A view
    draws again at each query; a table that was made of reports does not. The function is for the owner of the data
    alone: a person who may write queries can average many reports of one row.

    Args:
        connection: to DuckDB.
        release: one of a matrix.
        name: of the function.
        ledger: charges each row, whatever its position, durably and before it is drawn. The function then has a third
            argument: the subject of the row. Rows without one, and rows that would pass the limit, give NULL.

    Raises:
        UsageError: no release, no connection to DuckDB, a name that is blank or taken, a release without a report for a
            row, or a ledger by the calendar.
        InputError, DoesNotHoldError: a ledger that will not do.
    """
    from privopt.api.released import OpenRelease
    from privopt.errors import UsageError

    if not isinstance(release, OpenRelease):
        raise UsageError(f"release must be one of privopt.solve or privopt.open, got {type(release).__name__}")
    release.add_to_duckdb(connection, name, ledger)
