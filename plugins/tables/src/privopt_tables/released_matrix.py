"""Python handles for releases, which protect tables in memory and in DuckDB, Polars, Spark and Dask.

:class:`ReleasedRows` is the handle for any release that can draw a report for a row. :class:`ReleasedMatrix` is the
handle for an obfuscation matrix. Both protect tables with :mod:`.apply`, as the ``apply`` command does. For DuckDB,
Polars, Spark and Dask, :class:`ReleasedMatrix` uses :mod:`.row_reports` and :mod:`.partitions`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import narwhals as nw
import numpy as np
import polars as pl
from attrs import frozen

from privopt.api.draws import Draw
from privopt.api.released import OpenRelease, warn_all
from privopt.errors import InputError, UnknownNameError, UsageError, cut
from privopt.ledger.charge import Charge
from privopt.ledger.ledger import Ledger
from privopt_metric_dp.matrix.release import PositionRelease, matrix_of
from privopt_tables.apply import apply_in_memory
from privopt_tables.apply_parts import combine_secret
from privopt_tables.options import ApplyOptions
from privopt_tables.partitioned_batch import PartitionedBatch
from privopt_tables.partitions import Partitions
from privopt_tables.row_forms import RowForms
from privopt_tables.row_reports import RowReports
from privopt_tables.rows.anywhere import wrap_longitudes
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import Secret

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from matplotlib.figure import Figure
    from polars import Expr
else:
    DuckDBPyConnection = Expr = Figure = Any

__all__ = ["ReleasedMatrix", "ReleasedRows", "add_to_duckdb", "expression"]

T = TypeVar("T")

# DuckDB's names for column types.
_SQL_TYPES: Final = {pl.Float64: "DOUBLE", pl.String: "VARCHAR"}


def add_to_duckdb(connection: DuckDBPyConnection, name: str, rows: RowReports) -> None:
    """Register a DuckDB function that draws a report for each row.

    DuckDB passes rows to the function in Arrow batches. The function is registered as having side effects, so the
    optimiser neither repeats calls nor shares their results.

    Args:
        connection: The connection to register the function in.
        name: The function's name in SQL.
        rows: The object that draws the reports.

    Raises:
        UsageError: The connection is not a DuckDB connection, the name is invalid or in use, or DuckDB or pyarrow is
            not installed.
    """
    try:
        import duckdb
        import pyarrow as pa
    except ImportError as error:
        cause = f"{error.name} is not installed; 'pip install privopt[sql]' brings it"
        raise UsageError(f"sql.register: {cause}") from error
    if not isinstance(connection, duckdb.DuckDBPyConnection):
        raise UsageError(f"connection must be one to DuckDB, got {type(connection).__name__}")
    if not isinstance(name, str) or not name.strip():
        raise UsageError(f"name must be that of a function, got {cut(repr(name))}")
    query = "SELECT 1 FROM duckdb_functions() WHERE lower(function_name) = lower(?) LIMIT 1"
    # The query runs in a separate cursor, because the connection may have a result that has not been read yet.
    if connection.cursor().execute(query, [name]).fetchall():
        raise UsageError(
            f"name must be one that the connection has no function of, got {name}: give another name, or "
            f"connection.remove_function({name!r}) before"
        )
    types = {pl.Float64: pa.float64(), pl.String: pa.string()}
    report_type = pa.struct([(field_name, types[column_type]) for field_name, column_type in rows.fields.items()])
    # If nothing is charged, only the outputs' indices are drawn, and the reports are looked up in this array.
    report_of_output = rows.report_of_output.to_arrow().cast(report_type)

    def report(*columns: pa.Array) -> pa.Array:
        """Return the reports for a batch of rows as an Arrow struct array, given one array per argument."""
        columns_by_argument = zip(rows.arguments, columns, strict=True)
        batch = pl.DataFrame({argument: pl.from_arrow(column) for argument, column in columns_by_argument})
        if rows.draws_only:
            return report_of_output.take(pa.array(rows.draw_outputs(batch)))
        return rows(batch).to_arrow().cast(report_type)

    parameters = [Parameter(argument, Parameter.POSITIONAL_ONLY) for argument in rows.arguments]
    # DuckDB takes the number of parameters from the signature, but *columns does not show it.
    report.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    # With null_handling="special", rows without a position reach the function too, and are charged and counted like
    # others.
    connection.create_function(
        name,
        report,
        [_SQL_TYPES[column_type] for column_type in rows.arguments.values()],
        duckdb.struct_type({field_name: _SQL_TYPES[column_type] for field_name, column_type in rows.fields.items()}),
        type="arrow",
        null_handling="special",
        # By default DuckDB may evaluate a function only once for equal arguments, but each row needs its own draw.
        side_effects=True,
    )


def expression(rows: RowReports, columns: Sequence[str]) -> pl.Expr:
    """Return a Polars expression that draws a report for each row.

    Args:
        rows: The object that draws the reports.
        columns: The names of the columns that hold the position or id, followed by the subject column if there is a
            ledger.

    Raises:
        UsageError: The number of columns does not match what ``rows`` expects: one for an id or two for a position,
            plus one for the subject if there is a ledger.
    """
    if len(columns) != len(rows.arguments):
        expectation = ", ".join(rows.arguments)
        raise UsageError(f"expr must have a column each for {expectation}, got {', '.join(columns) or 'none'}")

    def report(row_structs: pl.Series) -> pl.Series:
        """Return the reports for a batch of rows, which Polars passes as a single struct column."""
        try:
            return rows(row_structs.struct.unnest().select(*rows.arguments))
        except InputError as error:
            # Polars recreates an error from its text, which is not possible for an InputError.
            raise UsageError(str(error)) from None

    # If an expression occurs twice in a query, Polars 2.1 evaluates it only once, and both columns have the same
    # reports. An untyped null in the expression prevents that.
    unshared = pl.lit(None).alias("")
    row_columns = pl.struct(unshared, **dict(zip(rows.arguments, map(pl.col, columns), strict=True)))
    return row_columns.map_batches(report, return_dtype=pl.Struct(dict(rows.fields)), is_elementwise=True).alias(
        "report"
    )


@frozen(kw_only=True, eq=False, slots=False)
class ReleasedRows(OpenRelease):
    """A handle for a certified release that can draw a report for each row of a table."""

    def apply(  # noqa: D102 (help() shows the docstring of OpenRelease.apply, with all options)
        self,
        table: T,
        *,
        id: str | None = None,
        lat: str | None = None,
        lon: str | None = None,
        x: str | None = None,
        y: str | None = None,
        geometry: str | None = None,
        max_snap: float | None = None,
        seed: int | None = None,
        ledger: Ledger | Path | str | None = None,
        subject: str | None = None,
        time: str | None = None,
        sticky: bool = False,
        prefix: str | None = None,
        positions: Mapping[str, Sequence[str]] | None = None,
        sticky_within: float | None = None,
        time_format: str | None = None,
        null_names: bool = False,
        text: str | None = None,
        unknown: Literal["drop", "mask"] = "drop",
        keep: Sequence[str] = (),
        drop: Sequence[str] = (),
        hash: Sequence[str] = (),
        hash_key: Path | str | None = None,
    ) -> T:
        if (ledger is not None and subject is None) or (sticky and ledger is None):
            raise UsageError("apply: ledger and subject must be given together: reports are charged to subjects")
        charge = None
        if ledger is not None:
            charge = Charge(ledger=ledger, subject=subject, sticky=sticky, within=sticky_within)
        elif sticky_within is not None:
            raise UsageError("apply: sticky_within must be given with a ledger and sticky: it repeats kept reports")
        options = ApplyOptions(
            max_snap=max_snap,
            seed=seed,
            charge=charge,
            subject=subject,
            time=time,
            prefix=prefix,
            positions=positions or {},
            text=text,
            unknown=unknown,
            keep=tuple(keep),
            drop=tuple(drop),
            hashed=tuple(hash),
            hash_key=hash_key,
            forms=RowForms(time_format, null_names),
        )
        columns = {"id": id, "lat": lat, "lon": lon, "x": x, "y": y, "geometry": geometry}
        protected_table, notes = apply_in_memory(self.opened, table, columns, options)
        warn_all(notes)
        return protected_table

    def draws_at(
        self, position: tuple[float, float], *, degrees: bool, note: Callable[[str], None] | None = None
    ) -> Draw:
        """Return a function that draws a given number of reports for a position.

        Args:
            position: The latitude and longitude in degrees.
            degrees: Whether the position is in degrees. It must be True.
            note: Not used, because no position is replaced by a record.

        Raises:
            UsageError: The release does not draw reports for positions, ``degrees`` is False, or the position does not
                consist of two numbers. The returned function also raises this error if the numbers are not a latitude
                and a longitude.
        """
        release = self.opened.release
        if not isinstance(release, PositionRelease):
            return super().draws_at(position, degrees=degrees, note=note)
        if not degrees:
            raise UsageError("xy must be omitted: this release draws for positions on Earth, in degrees")
        coordinates = _to_pair(position, "at")

        def draw(count: int) -> list[str]:
            """Return the ids of ``count`` reports for the position."""
            latitude, longitude = coordinates
            # The condition is also false for NaN. The message does not quote the position, because it is the secret.
            if not (abs(latitude) <= 90.0 and -180.0 <= longitude <= 360.0):
                raise UsageError("the position must be a latitude from -90 to 90 and a longitude from -180 to 360")
            return release.draw(np.full(count, latitude), wrap_longitudes(np.full(count, longitude)))[0]

        return draw


@frozen(kw_only=True, eq=False, slots=False)
class ReleasedMatrix(ReleasedRows):
    """A handle for a certified obfuscation matrix."""

    def map(self, record: str | None = None) -> Figure:
        """Draw a map of the records' expected losses, or of the probabilities of one record's reports.

        Args:
            record: The id of the record whose reports to show. If None, the map shows the expected losses of all
                records.

        Raises:
            UsageError: ``record`` is None, but the release has matrix rows for only some of the records.
            UnknownNameError: The release has no row for a record with this id.
        """
        from privopt_metric_dp.matrix.expected_loss import costs_of
        from privopt_metric_dp.report.figures import loss_map, spread_from

        release, problem = matrix_of(self.opened)
        known_ids = release.records.tolist()
        if record is None:
            if len(known_ids) != len(problem.data.records):
                raise UsageError(f"map: must be given one of the {len(known_ids):,} records that have rows, got none")
            # A mechanism may define another loss than the table [utility] of the problem.
            loss = self.opened.mechanism.utility(self.opened.problem, self.result.method)
            return loss_map(release, costs_of(loss, problem.data) or problem.data)
        if record not in known_ids:
            raise UnknownNameError("record", record, known_ids)
        return spread_from(release, problem.data, record)

    def add_to_duckdb(  # noqa: D102 (help() shows the docstring of OpenRelease.add_to_duckdb)
        self, connection: DuckDBPyConnection, name: str, ledger: Ledger | Path | str | None
    ) -> None:
        rows = RowReports.of(self.opened, f"sql {name}", ledger)
        add_to_duckdb(connection, name, rows)
        warn_all(rows.notes)

    def expr(self, *columns: str, ledger: Ledger | Path | str | None = None, subject: str | None = None) -> Expr:
        """Return a Polars expression that draws a report for each row of an eager, lazy or streaming frame.

        The expression evaluates to structs with the report's id and position, or null for a row without a report. Each
        occurrence in a query draws one report per row, so collecting a lazy frame twice draws the reports twice. If all
        of the columns are literals in the query, Polars draws a single report and uses it for all rows.

        Args:
            columns: The names of the columns that hold the secret: latitude and longitude, x and y in km, or an id,
                depending on the records.
            ledger: The ledger. Each row with a subject is durably charged to it before the row's report is drawn,
                whatever the position. Rows that would exceed the limit get no report.
            subject: The column that names each row's subject.

        Raises:
            UsageError: The columns do not match the records, the release reports traces, only one of ``ledger`` and
                ``subject`` is given, or the ledger has a calendar limit.
            InputError: The ledger's file or its key file is invalid.
            DoesNotHoldError: The ledger was changed after it was written.
        """
        if (ledger is None) != (subject is None):
            raise UsageError("expr must have both ledger and subject, or neither, got one of them")
        rows = RowReports.of(self.opened, "expr", ledger)
        drawing = expression(rows, [*columns, *([] if subject is None else [subject])])
        warn_all(rows.notes)
        return drawing

    @contextmanager
    def batch(
        self,
        name: str,
        *,
        ledger: Ledger | Path | str,
        subject: str,
        row: str,
        id: str | None = None,
        lat: str | None = None,
        lon: str | None = None,
        x: str | None = None,
        y: str | None = None,
        positions: Mapping[str, Sequence[str]] | None = None,
        max_snap: float | None = None,
        keep: Sequence[str] = (),
    ) -> Iterator[PartitionedBatch]:
        """Open a batch over a partitioned table in the Spark or Dask driver.

        In the first pass, apply the batch's ``tally`` to each partition, and pass all the results to the batch's
        ``charge``, which returns a plan. In the second pass, apply :meth:`map_arrow` to each partition with this plan.
        When the ``with`` block ends, the batch's key is deleted, so neither the batch nor the plan can be used again.
        If the block raises an error, run the same code again: each row gets the same report, and nothing is charged
        twice.

        Args:
            name: The name of the batch. The name of a batch that has ended cannot be used again.
            ledger: The ledger. Each row with a subject is charged to it before any report is drawn, whatever the row's
                position.
            subject: The column that names each row's subject. All rows of a subject must be in one partition.
            row: The column of row ids, which must be distinct among the rows of a subject.
            id, lat, lon, x, y: The columns of the secret: an id, latitude and longitude, or x and y in km.
            positions: The columns of each position, keyed by the position's name, if a row has several positions.
            max_snap: The maximum distance in km between a position and its nearest record. Positions that are farther
                away get no report. If None, there is no limit.
            keep: The columns to keep even if they reveal the secret. The first pass searches all columns for the
                position or record of each row. ``charge`` warns about each column that contains it. The second pass
                drops such a column unless it is listed here or is the ``row`` column. A column whose name suggests a
                position or a place is also kept if it contains the secret in fewer than half of the rows.

        Raises:
            UsageError: The release reports traces, the batch has ended or is running in another process, or the ledger
                has a calendar limit.
            InputError: The ledger's file, its key file or the batch's key file is invalid.
            DoesNotHoldError: The ledger was changed, the batch's record is invalid, or the key of a batch that has
                begun is missing.
        """
        secret = combine_secret({"id": id, "lat": lat, "lon": lon, "x": x, "y": y}, positions or {})
        options = ApplyOptions(max_snap=max_snap, positions=positions or {}, keep=tuple(keep))
        charge = Charge(ledger=ledger, subject=subject)
        with PartitionedBatch.open_batch(self.opened, name, charge, row, secret, options) as batch:
            yield batch

    @staticmethod
    def map_arrow(batches: T, plan: Partitions) -> T:
        """Draw the reports for a partition, for use with Spark's ``mapInArrow`` or Dask's ``map_partitions``.

        Args:
            batches: An iterator of Arrow batches, or a pandas frame. The result has the same type.
            plan: The plan returned by the batch's ``charge`` (see :meth:`batch`). It can be pickled, and can draw
                reports until the batch's ``with`` block ends.

        Raises:
            InputError: A column is missing, or a row has no id.
            DoesNotHoldError: The rows differ from those that were charged. The error names the id of the row that
                differs or, if that is not known, the ids of up to five of the subject's rows.
            UsageError: The plan was not returned by ``charge``, the batch's ``with`` block has ended, or the worker
                cannot read the ledger's folder.
        """
        return plan.reports(batches)

    def draws_at(
        self, position: tuple[float, float], *, degrees: bool, note: Callable[[str], None] | None = None
    ) -> Draw:
        """Return a function that draws a given number of reports for a position.

        The position is replaced by its nearest record. If the guarantee covers every point in a region, the position is
        instead replaced by a vertex, and a new vertex is drawn for each report.

        Args:
            position: Latitude and longitude, or x and y in km.
            degrees: Whether the position is in degrees.
            note: A function to call with each note for the owner of the position, before any reports are returned.

        Raises:
            UsageError: The position does not consist of two numbers, the release has no matrix, or its records have no
                coordinates of this kind. The returned function also raises this error if no report can be drawn for the
                position.
        """
        coordinates = _to_pair(position, "at" if degrees else "xy")
        release, problem = matrix_of(self.opened)
        names = ("lat", "lon") if degrees else ("x", "y")
        protector = PositionProtector.of(release, problem.data, Secret.at(names, planar=not degrees), ApplyOptions())
        pending_notes = [note] if note is not None else []

        def draw(count: int) -> list[str]:
            """Return the ids of ``count`` reports, drawn as ``apply`` would draw them for a table of identical rows."""
            rows = pl.DataFrame(
                {name: np.full(count, coordinate) for name, coordinate in zip(names, coordinates, strict=True)}
            )
            reported_frame = protector.protect(nw.from_native(rows, eager_only=True))
            if protector.refusals:
                # All rows are equal, so there is only one reason.
                reason = next(iter(protector.refusals))
                raise UsageError(f"the position must be {' and '.join(names)} of a record's row, got {reason}")
            # The notes are sent once, with the first draw.
            while pending_notes:
                send_note = pending_notes.pop()
                for sentence in protector.notes(self.opened.result.guarantee):
                    send_note(sentence)
                if protector.strays.stray_count:
                    finding = "the position lies far from every record"
                    cure = "are its numbers swapped? (this note is for its owner alone)"
                    send_note(f"{finding} and is drawn for as the nearest: {cure}")
            reports: list[str] = reported_frame[protector.report_columns[0]].to_list()
            return reports

        return draw


def _to_pair(position: object, name: str) -> tuple[float, float]:
    """Convert a user-supplied position to a pair of numbers.

    Args:
        position: The position, which may be any value.
        name: The argument's name, used in the error message.

    Raises:
        UsageError: The value does not consist of two numbers.
    """
    try:
        first, second = map(float, np.asarray(position, dtype=np.float64))
    except (TypeError, ValueError):
        raise UsageError(f"{name} must be two numbers, got another value") from None
    return first, second
