"""Write tables to CSV and Parquet files batch by batch, so that only one batch is in memory at a time."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from attrs import define, field

from privopt.declare.frames import type_name, without_far_dates
from privopt.errors import StoppedError, UsageError


@define
class TableWriter:
    """A writer that appends batches of rows to a CSV or Parquet file.

    For a Parquet file, batches are first written to separate files in a folder next to it, so that only one batch is in
    memory at a time.

    Attributes:
        path: The file to write.
        ending: The file's format, ``".csv"`` or ``".parquet"``.
        _parts: For Parquet, the files with the batches written so far.
        _is_begun: Whether a batch has been written. If so, the next one in a CSV file needs no header.
    """

    path: Path
    ending: str
    _parts: list[Path] = field(factory=list)
    _is_begun: bool = False

    def write(self, batch: pl.DataFrame) -> None:
        """Append a batch of rows.

        Raises:
            UsageError: A column has a type that CSV cannot represent.
            StoppedError: The file cannot be written.
        """
        with self._report_errors():
            self._write_batch(batch)

    def _write_batch(self, batch: pl.DataFrame) -> None:
        """Append a batch to the CSV file, or write it to a separate file to be combined into the Parquet file later."""
        if self.ending == ".csv":
            for name, column_type in batch.schema.items():
                if column_type.is_nested() or column_type in (pl.Binary, pl.Object):
                    fault = f"column {name}: got values of type {type_name(column_type)}, which CSV cannot hold"
                    raise UsageError(f"--out: {fault}; write .parquet, or omit the column")
            with self.path.open("ab") as stream:
                writable = pl.DataFrame([without_far_dates(batch[name]) for name in batch.columns])
                writable.write_csv(stream, include_header=not self._is_begun)
        else:
            # This name cannot clash with that of a table, because the name of a table's file has an ending.
            folder = self.path.with_name("parts")
            folder.mkdir(exist_ok=True)
            part = folder / f"{len(self._parts):06d}.parquet"
            # The parts are deleted soon, so fast compression matters more than small files.
            batch.write_parquet(part, compression="lz4")
            self._parts.append(part)
        self._is_begun = True

    def finish(self) -> None:
        """Combine the batches of a Parquet file and remove their separate files. A CSV file is already complete.

        Raises:
            StoppedError: The file cannot be written.
        """
        if self._parts:
            with self._report_errors():
                pl.scan_parquet(self._parts, glob=False, hive_partitioning=False).sink_parquet(self.path)
            shutil.rmtree(self._parts[0].parent)

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Convert errors from polars, such as those caused by a full disk, to :class:`StoppedError`."""
        try:
            yield
        except pl.exceptions.PolarsError as error:
            reason = str(error).strip().splitlines()[0]
            raise StoppedError(f"{self.path.name}: {reason}; nothing written") from None
