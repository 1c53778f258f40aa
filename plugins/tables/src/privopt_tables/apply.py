"""Apply a release to a table in a file, optionally as a repeatable batch, or to a table in memory.

The reports themselves are drawn by :func:`.apply_parts.apply_parts`. This module opens and checks files, and converts
in-memory tables and arrays.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import narwhals as nw
import numpy as np
from attrs import asdict, evolve

from privopt.declare.column_texts import REPORT
from privopt.declare.table_files import ending_of
from privopt.errors import UsageError, cut, number_of
from privopt.files.new_folder import check_files, new_file
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Progress
from privopt.interfaces.result import SEEDED
from privopt.ledger.batches import Batch
from privopt.ledger.charge import check_apart
from privopt.run.verify import OpenedFolder, open_verified
from privopt_metric_dp.matrix.release import matrix_of
from privopt_tables.apply_parts import ApplySummary, apply_parts, combine_secret
from privopt_tables.clear_columns import describe_clear_ids, describe_hashes, read_column_key
from privopt_tables.options import ApplyOptions, describe_limits, format_counts
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import GeoSource, Secret
from privopt_tables.table_writer import TableWriter

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["apply", "apply_in_memory"]

T = TypeVar("T")

_OPTION_NAMES: Final = {
    "secret": "the columns of the secret",
    "hashed": "--hash",
    "positions": "--position",
    "forms": "--time-format and --null-names",
}
"""The names used in messages for the attributes of :class:`ApplyOptions` that are named differently from their
options."""


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
    """Write a copy of a table in which the columns that hold the secret are replaced by privatised reports.

    Args:
        folder: The release folder, which is verified before it is used.
        table: The file with the table, such as a CSV or Parquet file.
        out: The file to write, as CSV or Parquet depending on its suffix. It is written completely or not at all.
        secret: The columns that hold the secret, including the columns of every named position.
        options: How the release is applied. If None, the default options are used.
        force: Whether ``out`` may be replaced if it exists.
        progress: A function that is called with the progress so far, such as the number of protected rows.
        announce: A function that is called before anything is charged, with a sentence that states how much a subject
            is charged for each row.

    Returns:
        A summary with the number of rows, the number of reports, and notes and warnings for the table's owner.

    Raises:
        DoesNotHoldError: The release or the ledger fails verification.
        InputError: The table or the ledger is invalid or cannot be read.
        UsageError: The release has no matrix, its records do not have the given kind of position, or no row received a
            report.
        StoppedError: The run was interrupted, or ``out`` cannot be written. Nothing was written.
    """
    options, ending = options or ApplyOptions(), ending_of(out, "--out")
    if options.batch is not None and options.charge is None:
        raise UsageError("--batch NAME must be used with --ledger FILE and --subject COLUMN, got it alone")
    with ExitStack() as stack:
        batch = None
        if options.batch is not None and options.charge is not None:
            batch = stack.enter_context(Batch(ledger=options.charge.path, name=options.batch, target=out).open_folder())
            # Only a finished batch has counts.
            if (counts := batch.counts) is not None:
                _check_finished(batch, _describe_source(folder, table), _describe_options(secret, options))
                # The output of a finished batch is never written again. The key that determined its draws has been
                # deleted, so the reports would be different ones.
                note = f"batch {options.batch} is finished: {out} is as it was written, and nothing was charged again"
                return ApplySummary(**counts, notes=(note,), warnings=())
            # From here on, the batch is either new or continues an interrupted run.
            batch.check_open()
            # If an interrupted run of this batch has already given the file its final name, the file may be replaced.
            force = force or batch.left_target
        check_files({"--out": out}, force=force, read=[table], folders=[folder])
        if options.charge is not None:
            # If the ledger were inside the release, or were the table or the output itself, it could be published or
            # overwritten.
            options.charge.check_apart(folder, table, out)
        if options.hash_key is not None:
            check_apart("--hash-key", options.hash_key, folder, table, out)
        source = GeoSource.of_file(table)
        if secret.is_geometry:
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
            batch.finish(counts, _describe_source(folder, table), _describe_options(secret, options))
        return summary


def _check_finished(batch: Batch, source: str, options: dict[str, Any]) -> None:
    """Check that a finished batch is being repeated with the same table, release and options.

    The protected table of a finished batch is not written again, so new options would have no effect. For example, a
    column that only the new options drop would remain in the table.

    Args:
        batch: The finished batch, with a record of its inputs.
        source: The current table and release, as returned by :func:`_describe_source`.
        options: The current options, as returned by :func:`_describe_options`.

    Raises:
        UsageError: The table, the release or an option differs. If options differ, the message names them.
    """
    record = batch.record
    if record.get("source") != source:
        expected = "of the table and release that it was finished with"
        raise UsageError(f"batch {cut(batch.name)} must be {expected}, got another or one that was written since")
    recorded = record.get("options")
    recorded_options = recorded if isinstance(recorded, dict) else {}
    names = [name for name in options if name not in recorded_options or options[name] != recorded_options[name]]
    if names:
        raise UsageError(
            f"batch {cut(batch.name)} is finished, and its table stays as it was written, with other values of "
            f"{', '.join(names)}: repeat it with those, or name another batch, which is charged again"
        )


def _describe_options(secret: Secret, options: ApplyOptions) -> dict[str, Any]:
    """Return all options that determine a batch's output, keyed by the names used in messages.

    The secret columns are included. The values can be stored as JSON. The key for hashing columns is represented by its
    SHA-256 digest. The batch's name and ledger are omitted, because they identify the batch itself.
    """
    values = asdict(evolve(options, charge=None, subject=options.subject_column, hash_key=None))
    values["secret"] = asdict(secret)
    if options.hash_key is not None:
        # A missing key file counts as an empty key, which equals no real key. It must not be read, because
        # read_column_key would create it.
        key = read_column_key(options.hash_key) if options.hash_key.is_file() else b""
        values["hash_key"] = hashlib.sha256(key).hexdigest()
    values_by_option = {_OPTION_NAMES.get(name, f"--{name.replace('_', '-')}"): value for name, value in values.items()}
    del values_by_option["--batch"], values_by_option["--charge"]
    # The round trip through JSON turns tuples into lists, so that the result compares equal to a record read from its
    # file.
    return cast("dict[str, Any]", json.loads(json.dumps(values_by_option)))


def _describe_source(folder: Path, table: Path) -> str:
    """Return a string that identifies a batch's inputs (the release and the table file).

    A finished batch can be repeated only if this string is unchanged. The file is identified by its name, size and
    modification time rather than by a digest of its contents, because a digest could be used to test guesses at a row's
    secret.
    """
    status = table.stat()
    return f"{sha256(folder / SUMS)} {table.name} {status.st_size} {status.st_mtime_ns}"


@contextmanager
def _open_target(
    out: Path, ending: str, force: bool, progress: Progress | None, batch: Batch | None
) -> Iterator[Callable[[nw.DataFrame[Any]], object]]:
    """Yield a function that appends a part of a table to a file, which is created completely or not at all.

    Args:
        out: The file to write.
        ending: The suffix of the file name, which determines the format.
        force: Whether an existing file may be replaced.
        progress: A function that is called before the parts of the file are combined. None if progress is not reported.
        batch: The batch, which records that the file is about to get its final name. None if there is no batch.
    """
    with new_file(out, force=force) as path:
        writer = TableWriter(path, ending)
        yield lambda frame: writer.write(frame.to_native())
        if progress is not None:
            progress("writing", 0, None, None)
        # This combines the parts of a Parquet file, which may take a while.
        writer.finish()
        if batch is not None:
            # From here on, a repeated run may find the file under its final name, although the batch is not finished.
            batch.begin_writing(path)


def apply_in_memory(
    opened: OpenedFolder, table: T, columns: Mapping[str, str | None], options: ApplyOptions
) -> tuple[T, list[str]]:
    """Return a copy of an in-memory table in which the secret columns are replaced by privatised reports.

    Args:
        opened: The verified release.
        table: A table from any library supported by :mod:`narwhals`, a dict of columns, or an array of ids or
            positions.
        columns: The columns that hold the secret, keyed by what they contain: ``id``, ``lat``, ``lon``, ``x``, ``y`` or
            ``geometry``. Columns that are not given are None.
        options: How the release is applied.

    Returns:
        A table of the same type (a dict of lists for a dict), and notes to show to the user.

    Raises:
        UsageError: The columns or options do not match the release, or no row received a report.
        InputError: The columns or the ledger are invalid.
    """
    if isinstance(table, np.ndarray):
        reports, notes = _apply_to_array(opened, table, options)
        return cast("T", reports), notes
    if options.hash_key is not None:
        check_apart("hash_key", options.hash_key, opened.folder)
    source = GeoSource.of_memory(table)
    # If no column is named, the active geometry of a GeoDataFrame is the secret.
    if source.active is not None and options.text is None and not any(columns.values()):
        columns = {"geometry": source.active}
    # The parts of the protected table, in order.
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
    # A caller who names the subject column in code knows that it stays, so it needs no note. Other columns of ids are
    # recognised by their names.
    notes += describe_hashes([name for name in options.hashed if name in frame.columns])
    notes += describe_clear_ids(frame.columns, evolve(options, charge=None, subject=None))
    notes += summary.warnings
    if isinstance(table, Mapping):
        # A dict of columns is returned as a dict of lists.
        return cast("T", frame.to_dict(as_series=False)), notes
    native = _remove_metadata(frame.to_native())
    # A GeoDataFrame is returned as a GeoDataFrame whose geometries are the positions of the reports.
    if source.active is not None and isinstance(summary.protector, PositionProtector):
        native = _restore_geometry(table, native, source.active, summary.protector)
    return native, notes


def _apply_to_array(opened: OpenedFolder, array: NDArray[Any], options: ApplyOptions) -> tuple[NDArray[Any], list[str]]:
    """Return the reports for an array of ids of shape (B,), or of positions of shape (B, 2).

    Args:
        opened: The verified release.
        array: The ids or positions.
        options: How the release is applied. Options that refer to a table's columns are rejected.

    Returns:
        The reports, in an array with the same shape as the input, and notes to show to the user.

    Raises:
        UsageError: An option refers to columns, the array has a different shape, or positions are given although the
            outputs have no coordinates.
    """
    if options.subject is not None:
        raise UsageError("table must be one with a column of subjects, got an array")
    if options.text is not None or options.prefix is not None or options.positions:
        raise UsageError("text, prefix and positions must be omitted with an array: they name columns of a table")
    if options.drop or options.hashed:
        raise UsageError("drop and hash must be omitted with an array: they name columns of a table")
    release, problem = matrix_of(opened)
    if array.ndim == 1:
        # The array is handled as a table with one column.
        ids, notes = apply_in_memory(opened, {"id": array.tolist()}, {"id": "id"}, options)
        return np.array(ids[REPORT], dtype=object), notes
    if array.ndim != 2 or array.shape[1] != 2:
        raise UsageError(f"table must be (B,) ids or (B, 2) positions, got an array of shape {array.shape}")
    axes = ("x", "y") if problem.data.records.kind == "planar" else ("lat", "lon")
    table = {axis: array[:, index].tolist() for index, axis in enumerate(axes)}
    reports, notes = apply_in_memory(opened, table, dict(zip(axes, axes, strict=True)), options)
    # The outputs have ids only, so there are no positions to return.
    if f"{REPORT}_{axes[0]}" not in reports:
        raise UsageError(f"table must be ids, got positions: the {len(release.outputs)} outputs have no coordinates")
    return np.array([reports[f"{REPORT}_{axis}"] for axis in axes], dtype=np.float64).T, notes


def _remove_metadata(table: T) -> T:
    """Return an Arrow or pandas table without its metadata, or any other table unchanged.

    Metadata may reveal values of dropped columns. For example, GeoParquet metadata contains the bounding box of all
    positions.
    """
    native: Any = table
    if nw.dependencies.is_pyarrow_table(native):
        schema = native.schema.remove_metadata()
        # Each field may have metadata of its own.
        for index, column in enumerate(schema):
            schema = schema.set(index, column.remove_metadata())
        return cast("T", type(native).from_arrays(native.columns, schema=schema))
    if nw.dependencies.is_pandas_dataframe(native):
        # pandas has copied `attrs` from the original table.
        native.attrs = {}
    return table


def _restore_geometry(table: object, frame: T, column: str, protector: PositionProtector) -> T:
    """Return a GeoDataFrame whose geometries are the positions of the reports.

    If the outputs have no coordinates, ``frame`` is returned unchanged.

    Args:
        table: The GeoDataFrame that was protected.
        frame: The protected table, with the coordinates of the reports in columns.
        column: The name of the geometry column.
        protector: The protector of the table, which knows the coordinate columns and their unit.
    """
    if protector.outputs is None:
        return frame
    original, native = cast("Any", table), cast("Any", frame)
    first_coordinates, second_coordinates = (
        nw.from_native(native, eager_only=True)[name].to_numpy().astype(np.float64)
        for name in protector.coordinate_columns(protector.report_columns[0])
    )
    # Coordinates in degrees come in the order lat, lon, but a point has (x, y) = (lon, lat). 4326 is the EPSG code of
    # WGS 84.
    degrees = protector.outputs.kind == "geographic"
    x, y = (second_coordinates, first_coordinates) if degrees else (first_coordinates, second_coordinates)
    points = type(original[column]).from_xy(x, y, index=native.index, crs=4326 if degrees else None)
    # Rows without a report get no geometry.
    points[np.isnan(x)] = None
    return cast("T", type(original)(native.assign(**{column: points}), geometry=column))
