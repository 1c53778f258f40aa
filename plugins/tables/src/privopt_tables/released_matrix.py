"""A release in Python that reports rows of tables, DuckDB, Polars, Spark, Dask, and one position."""

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
from privopt.errors import InputError, UsageError, cut
from privopt.ledger.charge import Charge
from privopt.ledger.ledger import Ledger
from privopt_metric_dp.matrix.release import matrix_of
from privopt_tables.apply import apply_in_memory
from privopt_tables.apply_parts import combine_secret
from privopt_tables.options import ApplyOptions
from privopt_tables.partitions import PartitionedBatch, Partitions
from privopt_tables.row_forms import RowForms
from privopt_tables.row_reports import RowReports
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import Secret

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from polars import Expr
else:
    DuckDBPyConnection = Expr = Any

__all__ = ["ReleasedMatrix", "ReleasedRows", "add_to_duckdb", "expression"]

T = TypeVar("T")

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
        missing = f"{error.name} is not installed: the extra sql of privopt-tables has it"
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


@frozen(kw_only=True, eq=False, slots=False)
class ReleasedRows(OpenRelease):
    """A certified release that can draw for each row of a table."""

    def apply(
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
    ) -> T:
        """Return a table with a report in each row in place of the secret's columns; the same kind of table comes back.

        Rows without a report have none, and are counted by reason in a :class:`PrivoptWarning`; where the release
        promises less than privacy between all records, another says so. A position is reported as its nearest record,
        and what holds is between records; where the scope is "everywhere" it is reported as that very point. Metadata
        (of Arrow schemas, ``attrs`` of pandas) are omitted. A release that draws for itself takes ids of a table.

        Args:
            table: pandas, polars, pyarrow, a GeoDataFrame, a dict of columns; or an array: (B,) ids, for which the ids
                of reports come back, or (B, 2) positions, for which those of reports do.
            id, lat, lon, x, y, geometry: columns of the secret, one choice of them; a GeoDataFrame's own geometry where
                none is named. None for arrays.
            max_snap: km from every record, or from the region, beyond which a position has no report; a refusal reveals
                something of the position.
            seed: for experiments: what it draws is not private, and marked so.
            ledger: charges each row with a subject, whatever its position, durably and before anything is drawn; rows
                that would pass its limit have no report.
            subject: column that says whom each row is about: for a ledger, or where the release reports traces.
            time: column by which a subject's rows are ordered, for such a release; omitted if they are in order. For a
                ledger whose limit is by the calendar: when each row was, and so the period that it is
                charged to; rows without a usable time have no report.
            sticky: keep and repeat the first report of each subject's place, charged once: charges and refusals then
                reveal which visits shared a place.
            prefix: what the names of the added columns begin with: ``"end"`` for ``end_report``, ``end_report_lat``,
                ..., next to reports that are in the table already; each report of a row spends epsilon.
            positions: several positions of each row, in place of ``id``, ``lat`` and so on: the columns of each, two
                coordinates or one id, by the name that its added columns begin with. A row gets all its reports, or
                none, and is charged epsilon for each column of reports, whatever can be used.
            sticky_within: km from the centre of its cell up to which a kept report is repeated, with ``sticky``.
            time_format: the form of ``time``: ``DD/MM/YYYY HH:MM`` and the like, or ``unix``, ``unix-ms``, ``unix-us``,
                ``unix-ns``; ISO 8601 by default.
            null_names: whether NULL, NA, None and the like are names of subjects; such rows are about nobody otherwise.
            text: column of sentences, in place of ``id`` and so on, where records are words.
            keep: columns that stay although their values state the row's own position or record. Other such columns are
                dropped, and a :class:`PrivoptWarning` names them.
            unknown: "drop" or "mask", for words of sentences that the release does not know.

        Raises:
            UsageError: a release without a matrix, positions that its records do not have, no table, no row that
                could be reported, or one of ``ledger`` and ``subject`` without the other.
            InputError: columns, or a ledger, that will not do.
        """
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
            forms=RowForms(time_format, null_names),
        )
        columns = {"id": id, "lat": lat, "lon": lon, "x": x, "y": y, "geometry": geometry}
        made, notes = apply_in_memory(self.opened, table, columns, options)
        warn_all(notes)
        return made


@frozen(kw_only=True, eq=False, slots=False)
class ReleasedMatrix(ReleasedRows):
    """A certified obfuscation matrix."""

    def add_to_duckdb(self, connection: DuckDBPyConnection, name: str, ledger: Ledger | Path | str | None) -> None:
        """Register a function that draws reports: see :func:`privopt.sql.register`."""
        rows = RowReports.of(self.opened, f"sql {name}", ledger)
        add_to_duckdb(connection, name, rows)
        warn_all(rows.notes)

    def expr(self, *columns: str, ledger: Ledger | Path | str | None = None, subject: str | None = None) -> Expr:
        """Return an expression of Polars that draws a report for each row, eager, lazy or streaming.

        It is a structure of the report's id and place, null for a row without a report. Each use in a query draws once
        for each row; a lazy frame that is collected twice draws twice. Where all its columns are literals, Polars asks
        for one report and gives it to all rows.

        Args:
            columns: latitude and longitude, or x and y in km, or the id, as the release's records have them.
            ledger: charges each row with a subject, whatever its position, durably and before it is drawn. Rows that
                would pass its limit have no report.
            subject: column of the subject of each row.

        Raises:
            UsageError: other columns, a release of traces, one of ``ledger`` and ``subject`` without the other, or a
                ledger by the calendar.
            InputError, DoesNotHoldError: a ledger that will not do.
        """
        if (ledger is None) != (subject is None):
            raise UsageError("expr must have both ledger and subject, or neither, got one of them")
        rows = RowReports.of(self.opened, "expr", ledger)
        made = expression(rows, [*columns, *([] if subject is None else [subject])])
        warn_all(rows.notes)
        return made

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
    ) -> Iterator[PartitionedBatch]:
        """Open a batch over a table in partitions, for the driver of Spark or Dask.

        ``tally`` is the first pass over the partitions; ``charge`` takes what it gave for all of them and returns a
        plan; :meth:`map_arrow` with the plan is the second pass. Batch and plan end with the block, and the key is
        deleted. After an error in the block run the same again: each row has the same report, and nothing is charged
        twice.

        Args:
            name: of the batch; a name is used once.
            ledger: charges each row with a subject, whatever its position, before any report is drawn.
            subject: column of the subject of each row; all rows of a subject must be in one partition.
            row: column of ids, which differ among the rows of a subject.
            id, lat, lon, x, y, positions, max_snap: as of :meth:`apply`.

        Raises:
            UsageError: a release of traces, a batch that is over or that another process runs, or a ledger by the
                calendar.
            InputError, DoesNotHoldError: a ledger, or a batch, that will not do.
        """
        secret = combine_secret({"id": id, "lat": lat, "lon": lon, "x": x, "y": y}, positions or {})
        options = ApplyOptions(max_snap=max_snap, positions=positions or {})
        charge = Charge(ledger=ledger, subject=subject)
        with PartitionedBatch.opened(self.opened, name, charge, row, secret, options) as made:
            yield made

    @staticmethod
    def map_arrow(batches: T, plan: Partitions) -> T:
        """Draw the reports of a partition: for ``mapInArrow`` of Spark and ``map_partitions`` of Dask.

        Args:
            batches: an iterator of Arrow batches, or a frame of pandas; what comes back is of the same kind.
            plan: from ``charge`` of a :meth:`batch`. It can be pickled, and draws until the block of the batch ends.

        Raises:
            InputError: a column is missing, or a row has no id.
            DoesNotHoldError: rows are not those that were charged; names the id of one.
            UsageError: the batch's ``partitions``, for which nothing was charged, in place of a plan; a plan whose
                block has ended; or a worker that cannot read the folder of the ledger.
        """
        return plan.reports(batches)

    def draws_at(
        self, position: tuple[float, float], *, degrees: bool, note: Callable[[str], None] | None = None
    ) -> Draw:
        """Return the function that draws reports for a position: its nearest record's, or those at that very point.

        Args:
            position: latitude and longitude, or x and y in km.
            degrees: which of the two.
            note: called with each sentence that the position's owner should know, before the first draw is given.

        Raises:
            UsageError: the position is not two numbers, the release has no matrix, or its records no such coordinates.
                Drawing raises it where no record, and no point, is at the position.
        """
        at = _pair(position, "at" if degrees else "xy")
        release, problem = matrix_of(self.opened)
        names = ("lat", "lon") if degrees else ("x", "y")
        protector = PositionProtector.of(release, problem.data, Secret.at(names, planar=not degrees), ApplyOptions())
        unsaid = [note] if note is not None else []

        def draw(count: int) -> list[str]:
            rows = pl.DataFrame({name: np.full(count, side) for name, side in zip(names, at, strict=True)})
            made = protector.protect(nw.from_native(rows, eager_only=True))
            if protector.refusals:
                found = next(iter(protector.refusals))
                raise UsageError(f"the position must be {' and '.join(names)} of a record's row, got {found}")
            while unsaid:
                say = unsaid.pop()
                for sentence in protector.notes(self.opened.result.guarantee):
                    say(sentence)
                if protector.strays.rows:
                    far = "the position lies far from every record"
                    cure = "are its numbers swapped? (this note is for its owner alone)"
                    say(f"{far} and is drawn for as the nearest: {cure}")
            drawn: list[str] = made[protector.report_columns[0]].to_list()
            return drawn

        return draw


def _pair(position: object, name: str) -> tuple[float, float]:
    """Two numbers of a position."""
    try:
        first, second = map(float, np.asarray(position, dtype=np.float64))
    except (TypeError, ValueError):
        raise UsageError(f"{name} must be two numbers, got another value") from None
    return first, second
