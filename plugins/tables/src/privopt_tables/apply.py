"""Apply a release to a table: from a file into a file, whole or as a batch that can be repeated; or in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import narwhals as nw
import numpy as np

from privopt.declare.column_texts import REPORT
from privopt.declare.table_files import ending_of
from privopt.errors import Fault, InputError, UsageError, number_of
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
    asked: ApplyOptions | None = None,
    *,
    force: bool = False,
    progress: Progress | None = None,
    announce: Callable[[str], object] | None = None,
) -> ApplySummary:
    """Write a table with a report in each row, in place of the columns that hold the secret.

    Args:
        folder: the release; it is checked before it is used.
        table: CSV or Parquet.
        out: the same, by its own ending; written completely or not at all.
        secret: the columns that hold it, of all positions.
        asked: how; None for no options.
        force: replace ``out``.
        progress: called with how many rows are done.
        announce: called with what a row costs its subject, before anything is charged.

    Raises:
        DoesNotHoldError: the release, or the ledger, does not hold.
        InputError: a table, or a ledger, that will not do.
        UsageError: a release without a matrix, positions that its records do not have, or no row with a report.
        StoppedError: interrupted, or ``out`` cannot be written; nothing was written.
    """
    asked, ending = asked or ApplyOptions(), ending_of(out, "--out")
    if asked.batch is not None and asked.charge is None:
        raise UsageError("--batch NAME must be used with --ledger FILE and --subject COLUMN, got it alone")
    with ExitStack() as stack:
        batch = None
        if asked.batch is not None and asked.charge is not None:
            batch = stack.enter_context(Batch(ledger=asked.charge.path, name=asked.batch, target=out).opened())
            if (counts := batch.counts) is not None:
                if batch.record.get("source") != _source_text(folder, table):
                    wanted = "of the table and release that it was finished with"
                    raise UsageError(f"batch {batch.name} must be {wanted}, got another or one that was written since")
                done = f"batch {asked.batch} is finished: {out} is as it was written, and nothing was charged again"
                return ApplySummary(**counts, notes=(done,), warnings=())
            batch.check_open()
            force = force or batch.left_target
        check_files({"--out": out}, force=force, read=[table], folders=[folder])
        if asked.charge is not None:
            asked.charge.check_apart(folder, table, out)
        source = GeoSource.of_file(table)
        if secret.geometry:
            secret.check(list(source.columns), source.name)
            if table.suffix.lower() == ".csv":
                found = "CSV, which holds no points in binary"
                raise InputError([Fault(source.name, f"column {secret.columns[0]}", found, "GeoParquet")])
        made = apply_parts(
            open_verified(folder),
            source,
            secret,
            asked,
            _file(out, ending, force, progress, batch),
            purpose=f"apply {table.name}",
            dashes="--",
            batch=batch,
            progress=progress,
            announce=announce,
        )
        if batch is not None:
            counts = {"rows": made.rows, "refused": dict(made.refused), "counts": dict(made.counts)}
            batch.finish(counts, _source_text(folder, table))
        return made


def _source_text(folder: Path, table: Path) -> str:
    """Describe the source of a finished batch without a digest of secrets: release, and name, size and time of a file.

    With a digest every candidate for a row's secret could be tried.
    """
    status = table.stat()
    return f"{sha256(folder / SUMS)} {table.name} {status.st_size} {status.st_mtime_ns}"


@contextmanager
def _file(
    out: Path, ending: str, force: bool, progress: Progress | None, batch: Batch | None
) -> Iterator[Callable[[nw.DataFrame[Any]], object]]:
    """Yield a writer of batches into a file that appears completely or not at all."""
    with new_file(out, force=force) as path:
        writer = TableWriter(path, ending)
        yield lambda made: writer.write(made.to_native())
        if progress is not None:
            progress("writing", 0, None, None)
        writer.finish()
        if batch is not None:
            batch.begin_writing(path)


def apply_in_memory(
    opened: OpenedFolder, table: T, columns: Mapping[str, str | None], asked: ApplyOptions
) -> tuple[T, list[str]]:
    """Return the same kind of table with reports in place of the secret's columns, and what its user must know.

    Args:
        opened: the release.
        table: of whatever library; or an array of ids or positions.
        columns: of the secret, by what they hold: ``id``, ``lat``, ``lon``, ``x``, ``y``, ``geometry``.
        asked: how.

    Raises:
        UsageError, InputError: as of :meth:`privopt.api.released.OpenRelease.apply`.
    """
    if isinstance(table, np.ndarray):
        reports, notes = _array(opened, table, asked)
        return cast("T", reports), notes
    source = GeoSource.of_memory(table)
    if source.active is not None and asked.text is None and not any(columns.values()):
        columns = {"geometry": source.active}
    frames: list[nw.DataFrame[Any]] = []
    secret = combine_secret(columns, asked.positions, asked.text)
    done = apply_parts(opened, source, secret, asked, nullcontext(frames.append))
    made, left, result = nw.concat(frames) if len(frames) > 1 else frames[0], done.rows - done.reported, opened.result
    notes = (
        [f"{left:,} of {number_of(done.rows, 'row')} without a report: {format_counts(done.refused)}"] if left else []
    )
    notes += describe_limits(result.guarantee)
    notes += [] if done.sequence is None else [done.sequence]
    notes += [f"this release: {result.mark}"] if result.mark else []
    notes += [f"this table: {SEEDED}"] if asked.seed is not None else []
    notes += done.warnings
    if isinstance(table, Mapping):
        return cast("T", made.to_dict(as_series=False)), notes
    native = _bare(made.to_native())
    if source.active is not None and isinstance(done.protector, PositionProtector):
        native = _with_points(table, native, source.active, done.protector)
    return native, notes


def _array(opened: OpenedFolder, array: NDArray[Any], asked: ApplyOptions) -> tuple[NDArray[Any], list[str]]:
    if asked.subject is not None:
        raise UsageError("table must be one with a column of subjects, got an array")
    if asked.text is not None or asked.prefix is not None or asked.positions:
        raise UsageError("text, prefix and positions must be omitted with an array: they name columns of a table")
    release, problem = matrix_of(opened)
    if array.ndim == 1:
        ids, notes = apply_in_memory(opened, {"id": array.tolist()}, {"id": "id"}, asked)
        return np.array(ids[REPORT], dtype=object), notes
    if array.ndim != 2 or array.shape[1] != 2:
        raise UsageError(f"table must be (B,) ids or (B, 2) positions, got an array of shape {array.shape}")
    ends = ("x", "y") if problem.data.records.kind == "planar" else ("lat", "lon")
    table = {end: array[:, axis].tolist() for axis, end in enumerate(ends)}
    made, notes = apply_in_memory(opened, table, dict(zip(ends, ends, strict=True)), asked)
    if f"{REPORT}_{ends[0]}" not in made:
        raise UsageError(f"table must be ids, got positions: the {len(release.outputs)} outputs have no coordinates")
    return np.array([made[f"{REPORT}_{end}"] for end in ends], dtype=np.float64).T, notes


def _bare(table: T) -> T:
    """Return a table without metadata: they may describe columns that are gone, to the box around all positions."""
    native: Any = table
    if nw.dependencies.is_pyarrow_table(native):
        schema = native.schema.remove_metadata()
        for place, column in enumerate(schema):
            schema = schema.set(place, column.remove_metadata())
        return cast("T", type(native).from_arrays(native.columns, schema=schema))
    if nw.dependencies.is_pandas_dataframe(native):
        native.attrs = {}
    return table


def _with_points(table: object, frame: T, column: str, protector: PositionProtector) -> T:
    """Return a GeoDataFrame again, its geometry the places of reports."""
    if protector.outputs is None:
        return frame
    before, native = cast("Any", table), cast("Any", frame)
    first, second = (
        nw.from_native(native, eager_only=True)[name].to_numpy().astype(np.float64)
        for name in protector.coordinate_columns(protector.report_columns[0])
    )
    degrees = protector.outputs.kind == "geographic"
    across, up = (second, first) if degrees else (first, second)
    points = type(before[column]).from_xy(across, up, index=native.index, crs=4326 if degrees else None)
    points[np.isnan(across)] = None
    return cast("T", type(before)(native.assign(**{column: points}), geometry=column))
