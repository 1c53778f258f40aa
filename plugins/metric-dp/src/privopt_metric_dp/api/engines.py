"""Make a release a function of DuckDB, and an expression of Polars."""

from __future__ import annotations

from collections.abc import Sequence
from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from privopt.errors import InputError, UsageError, cut
from privopt_metric_dp.tables.row_reports import RowReports

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
else:  # may not be installed
    DuckDBPyConnection = Any

__all__ = ["add_to_duckdb", "expression"]

_SQL: Final = {pl.Float64: "DOUBLE", pl.String: "VARCHAR"}


def add_to_duckdb(connection: DuckDBPyConnection, name: str, rows: RowReports) -> None:
    """Register a function over Arrow batches that no optimiser may repeat or share.

    Raises:
        UsageError: no connection to DuckDB, a name that will not do or is taken, or DuckDB or pyarrow is not installed.
    """
    try:
        import duckdb
        import pyarrow as pa
    except ImportError as error:
        missing = f"{error.name} is not installed: the extra sql of privopt-metric-dp has it"
        raise UsageError(f"sql.register: {missing}") from error
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        raise UsageError(f"connection must be one to DuckDB, got {type(connection).__name__}")
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"name must be that of a function, got {cut(repr(name))}")
    taken = "SELECT 1 FROM duckdb_functions() WHERE lower(function_name) = lower(?) LIMIT 1"
    if connection.cursor().execute(taken, [name]).fetchall():  # a result of the connection's own may be unread
        raise UsageError(
            f"name must be one that the connection has no function of, got {name}: give another name, or "
            f"connection.remove_function({name!r}) before"
        )
    types = {pl.Float64: pa.float64(), pl.String: pa.string()}
    form = pa.struct([(part, types[kind]) for part, kind in rows.fields.items()])

    def report(*columns: pa.Array) -> pa.Array:
        given = zip(rows.arguments, columns, strict=True)
        return rows(pl.DataFrame({argument: pl.from_arrow(column) for argument, column in given})).to_arrow().cast(form)

    own = [Parameter(argument, Parameter.POSITIONAL_ONLY) for argument in rows.arguments]
    report.__signature__ = Signature(own)  # type: ignore[attr-defined]  # DuckDB counts its parameters
    connection.create_function(
        name,
        report,
        [_SQL[kind] for kind in rows.arguments.values()],
        duckdb.struct_type({part: _SQL[kind] for part, kind in rows.fields.items()}),
        type="arrow",
        null_handling="special",
        side_effects=True,
    )


def expression(rows: RowReports, columns: Sequence[str]) -> pl.Expr:
    """Return an expression that draws a report for each row.

    Raises:
        UsageError: another number of columns than the release's records and ledger have.
    """
    if len(columns) != len(rows.arguments):
        wanted = ", ".join(rows.arguments)
        raise UsageError(f"expr must have a column each for {wanted}, got {', '.join(columns) or 'none'}")

    def report(ids: pl.Series) -> pl.Series:
        try:
            return rows(ids.struct.unnest().select(*rows.arguments))
        except InputError as error:  # Polars makes an error again from its text; this one is made of faults
            raise UsageError(str(error)) from None

    # Polars shares no expression with an untyped null in it: without one the same expression, standing twice in a
    # query, was drawn once for both (Polars 2.1).
    unshared = pl.lit(None).alias("")
    given = pl.struct(unshared, **dict(zip(rows.arguments, map(pl.col, columns), strict=True)))
    return given.map_batches(report, return_dtype=pl.Struct(dict(rows.fields)), is_elementwise=True).alias("report")
