"""Apply a release to a table: from a file into a file, as a batch that can be repeated, or in memory.

Both ways use :func:`.apply_parts.apply_parts`; here are the checks of files and the conversions of tables in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import narwhals as nw
import numpy as np

from privopt.declare.column_texts import REPORT
from privopt.declare.table_files import ending_of
from privopt.errors import UsageError, number_of
from privopt.files.new_folder import new_file
from privopt.files.release_folder import SUMS, sha256
from privopt.files.targets import check_files
from privopt.interfaces import Progress
from privopt.interfaces.claims import SEEDED
from privopt.ledger.batches import Batch
from privopt.run.verify import OpenedFolder, open_verified
from privopt_metric_dp.matrix.release import matrix_of
from privopt_tables.apply_parts import ApplySummary, apply_parts, combine_secret
from privopt_tables.options import ApplyOptions, describe_limits, format_counts
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import GeoSource, Secret
from privopt_tables.table_writer import TableWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["apply", "apply_in_memory"]

T = TypeVar("T")


def apply(
    folder: Path,
    table: Path,
    out: Path,
    secret: Secret,
    options: ApplyOptions | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    announce: Callable[[str], object] | None = None,
) -> ApplySummary:
    """Write a table with a report in each row, in place of the columns that hold the secret.

    Args:
        folder: The release; it is verified before it is used.
        table: A file of CSV or Parquet.
        out: The file to write, CSV or Parquet by its own ending. It is written completely or not at all.
        secret: The columns that hold the secret, of all positions.
        options: How the release is applied; None for no options.
        force: Whether ``out`` may be replaced.
        progress: Called with the number of rows that are done.
        announce: Called with what a row costs its subject, before anything is charged.

    Raises:
        DoesNotHoldError: The release, or the ledger, does not hold.
        InputError: A table, or a ledger, that cannot be used.
        UsageError: A release without a matrix, positions that its records do not have, or no row with a report.
        StoppedError: Interrupted, or ``out`` cannot be written; nothing was written.
    """
    options, ending = options or ApplyOptions(), ending_of(out, "--out")
    if options.batch is not None and options.charge is None:
        raise UsageError("--batch NAME must be used with --ledger FILE and --subject COLUMN, got it alone")
    with ExitStack() as stack:
        batch = None
        if options.batch is not None and options.charge is not None:
            batch = stack.enter_context(Batch(ledger=options.charge.path, name=options.batch, target=out).opened())
            if (counts := batch.counts) is not None:
                if batch.record.get("source") != _describe_source(folder, table):
                    expected = "of the table and release that it was finished with"
                    raise UsageError(
                        f"batch {batch.name} must be {expected}, got another or one that was written since"
                    )
                note = f"batch {options.batch} is finished: {out} is as it was written, and nothing was charged again"
                return ApplySummary(**counts, notes=(note,), warnings=())
            batch.check_open()
            force = force or batch.left_target
        check_files({"--out": out}, force=force, read=[table], folders=[folder])
        if options.charge is not None:
            options.charge.check_apart(folder, table, out)
        source = GeoSource.of_file(table)
        if secret.geometry:
            secret.check(list(source.columns), source.name)
        summary = apply_parts(
            open_verified(folder),
            source,
            secret,
            options,
            _open_target(out, ending, force, progress, batch),
            purpose=f"apply {table.name}",
            dashes="--",
            batch=batch,
            progress=progress,
            announce=announce,
        )
        if batch is not None:
            counts = {"rows": summary.rows, "refused": dict(summary.refused), "counts": dict(summary.counts)}
            batch.finish(counts, _describe_source(folder, table))
        return summary


def _describe_source(folder: Path, table: Path) -> str:
    """Describe what a finished batch was made of: the release, and the name, size and time of the table's file.

    A digest of the table would let anyone who reads it try candidates for a row's secret.
    """
    status = table.stat()
    return f"{sha256(folder / SUMS)} {table.name} {status.st_size} {status.st_mtime_ns}"


@contextmanager
def _open_target(
    out: Path, ending: str, force: bool, progress: Progress | None, batch: Batch | None
) -> Iterator[Callable[[nw.DataFrame[Any]], object]]:
    """Open a file that appears completely or not at all, and yield a function that writes parts into it."""
    with new_file(out, force=force) as path:
        writer = TableWriter(path, ending)
        yield lambda frame: writer.write(frame.to_native())
        if progress is not None:
            progress("writing", 0, None, None)
        writer.finish()
        if batch is not None:
            batch.begin_writing(path)


def apply_in_memory(
    opened: OpenedFolder, table: T, columns: Mapping[str, str | None], options: ApplyOptions
) -> tuple[T, list[str]]:
    """Put reports in place of the secret's columns of a table in memory.

    Args:
        opened: The release.
        table: A table of any library that :mod:`narwhals` knows, or an array of ids or positions.
        columns: Columns of the secret, by what they hold: ``id``, ``lat``, ``lon``, ``x``, ``y``, ``geometry``.
        options: How the release is applied.

    Returns:
        The same kind of table, and sentences that its user must know.

    Raises:
        UsageError, InputError: As of :meth:`.released_matrix.ReleasedRows.apply`.
    """
    if isinstance(table, np.ndarray):
        reports, notes = _apply_to_array(opened, table, options)
        return cast("T", reports), notes
    source = GeoSource.of_memory(table)
    if source.active is not None and options.text is None and not any(columns.values()):
        columns = {"geometry": source.active}
    frames: list[nw.DataFrame[Any]] = []
    secret = combine_secret(columns, options.positions, options.text)
    summary = apply_parts(opened, source, secret, options, nullcontext(frames.append))
    frame, result = nw.concat(frames) if len(frames) > 1 else frames[0], opened.result
    unreported, notes = summary.rows - summary.reported, []
    if unreported:
        rows = f"{unreported:,} of {number_of(summary.rows, 'row')}"
        notes.append(f"{rows} without a report: {format_counts(summary.refused)}")
    notes += describe_limits(result.guarantee)
    notes += [] if summary.sequence is None else [summary.sequence]
    notes += [f"this release: {result.mark}"] if result.mark else []
    notes += [f"this table: {SEEDED}"] if options.seed is not None else []
    notes += summary.warnings
    if isinstance(table, Mapping):
        return cast("T", frame.to_dict(as_series=False)), notes
    native = _remove_metadata(frame.to_native())
    if source.active is not None and isinstance(summary.protector, PositionProtector):
        native = _restore_geometry(table, native, source.active, summary.protector)
    return native, notes


def _apply_to_array(opened: OpenedFolder, array: NDArray[Any], options: ApplyOptions) -> tuple[NDArray[Any], list[str]]:
    """Return reports for an array: their ids (B,) for ids (B,), or their places (B, 2) for positions (B, 2)."""
    if options.subject is not None:
        raise UsageError("table must be one with a column of subjects, got an array")
    if options.text is not None or options.prefix is not None or options.positions:
        raise UsageError("text, prefix and positions must be omitted with an array: they name columns of a table")
    release, problem = matrix_of(opened)
    if array.ndim == 1:
        ids, notes = apply_in_memory(opened, {"id": array.tolist()}, {"id": "id"}, options)
        return np.array(ids[REPORT], dtype=object), notes
    if array.ndim != 2 or array.shape[1] != 2:
        raise UsageError(f"table must be (B,) ids or (B, 2) positions, got an array of shape {array.shape}")
    axes = ("x", "y") if problem.data.records.kind == "planar" else ("lat", "lon")
    table = {axis: array[:, index].tolist() for index, axis in enumerate(axes)}
    reports, notes = apply_in_memory(opened, table, dict(zip(axes, axes, strict=True)), options)
    if f"{REPORT}_{axes[0]}" not in reports:
        raise UsageError(f"table must be ids, got positions: the {len(release.outputs)} outputs have no coordinates")
    return np.array([reports[f"{REPORT}_{axis}"] for axis in axes], dtype=np.float64).T, notes


def _remove_metadata(table: T) -> T:
    """Return a table without metadata, which may describe omitted columns, down to the box around all positions."""
    native: Any = table
    if nw.dependencies.is_pyarrow_table(native):
        schema = native.schema.remove_metadata()
        for index, column in enumerate(schema):
            schema = schema.set(index, column.remove_metadata())
        return cast("T", type(native).from_arrays(native.columns, schema=schema))
    if nw.dependencies.is_pandas_dataframe(native):
        native.attrs = {}
    return table


def _restore_geometry(table: object, frame: T, column: str, protector: PositionProtector) -> T:
    """Return a GeoDataFrame whose geometry is the places of the reports."""
    if protector.outputs is None:
        return frame
    original, native = cast("Any", table), cast("Any", frame)
    first, second = (
        nw.from_native(native, eager_only=True)[name].to_numpy().astype(np.float64)
        for name in protector.coordinate_columns(protector.report_columns[0])
    )
    degrees = protector.outputs.kind == "geographic"
    across, up = (second, first) if degrees else (first, second)
    points = type(original[column]).from_xy(across, up, index=native.index, crs=4326 if degrees else None)
    points[np.isnan(across)] = None
    return cast("T", type(original)(native.assign(**{column: points}), geometry=column))
