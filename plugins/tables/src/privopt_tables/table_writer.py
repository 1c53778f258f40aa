"""Write tables as CSV and Parquet files batch by batch, so that no more than a batch is in memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl
from attrs import define, field

from privopt.errors import StoppedError, UsageError


@define
class TableWriter:
    """Writes a table that comes in batches.

    Parquet is gathered from parts in a folder next to it, so that no more than a batch is in memory.

    Attributes:
        path: of the file; parts lie next to it until :meth:`finish`.
        ending: ``".csv"`` or ``".parquet"``.
    """

    path: Path
    ending: str
    _parts: list[Path] = field(factory=list)
    _begun: bool = False

    def write(self, batch: pl.DataFrame) -> None:
        """Add rows."""
        with self._report_errors():
            self._add(batch)

    def _add(self, batch: pl.DataFrame) -> None:
        if self.ending == ".csv":
            for name, kind in batch.schema.items():
                if kind.is_nested() or kind in (pl.Binary, pl.Object):
                    found = f"column {name}: got values of type {kind}, which CSV cannot hold"
                    raise UsageError(f"--out: {found}; write .parquet, or omit the column")
            with self.path.open("ab") as stream:
                batch.write_csv(stream, include_header=not self._begun)
        else:
            folder = self.path.with_name("parts")  # no table's name: it has no ending
            folder.mkdir(exist_ok=True)
            part = folder / f"{len(self._parts):06d}.parquet"
            batch.write_parquet(part, compression="lz4")
            self._parts.append(part)
        self._begun = True

    def finish(self) -> None:
        """Finish the file: it appears whole, under its own name."""
        if self._parts:
            with self._report_errors():
                pl.scan_parquet(self._parts, glob=False, hive_partitioning=False).sink_parquet(self.path)
            shutil.rmtree(self._parts[0].parent)

    @contextmanager
    def _report_errors(self) -> Iterator[None]:
        """Report a system error, such as a full disk, in one sentence; Python's own writers report theirs."""
        try:
            yield
        except pl.exceptions.PolarsError as error:
            reason = str(error).strip().splitlines()[0]
            raise StoppedError(f"{self.path.name}: {reason}; nothing written") from None
