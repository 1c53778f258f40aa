"""``privopt apply``: from a file into a file, in one piece or as a batch that can be repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import narwhals as nw

from privopt.declare.table_files import TableWriter, ending_of
from privopt.errors import Fault, InputError, UsageError
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Progress
from privopt.ledger.batches import Batch
from privopt.run.publish import check_files, new_file
from privopt.run.verify import open_verified
from privopt_metric_dp.tables.application import Application
from privopt_metric_dp.tables.apply_table import ApplySummary, applied
from privopt_metric_dp.tables.secret_columns import GeoSource, Secret

__all__ = ["apply"]


def apply(
    folder: Path,
    table: Path,
    out: Path,
    secret: Secret,
    asked: Application | None = None,
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
    asked, ending = asked or Application(), ending_of(out, "--out")
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
        made = applied(
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
