"""Tables in files, CSV and Parquet: read in batches that fit memory, written batch by batch.

Cells of a CSV file are text and stay what they are, to the letter: an id 007 is none 7, and 1.10 no 1.1.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NoReturn

import polars as pl
from attrs import define, field, frozen

from privopt.errors import Fault, InputError, UsageError
from privopt.files import Unreadable, open_regular
from privopt.metric.space.wkb import check_degrees

__all__ = ["ENDINGS", "TableFile", "TableWriter", "ending_of"]

ENDINGS: Final = (".csv", ".parquet")

LARGEST: Final = 1 << 50
"""Bytes of the largest table; it is never held whole."""

BATCH_BYTES: Final = 64 * 2**20
"""Size of a batch in memory, about."""

BATCH_ROWS: Final = 500_000
"""Rows of a batch, at most."""

SAMPLE: Final = 1_000
"""Rows from which the size of one is guessed."""


def ending_of(path: Path, option: str) -> str:
    """``".csv"`` or ``".parquet"``.

    Raises:
        UsageError: another ending.
    """
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise UsageError(f"{option} {path}: the ending {path.suffix!r}, wanted {' or '.join(ENDINGS)}")
    return ending


@frozen(kw_only=True)
class TableFile:
    """A table in a file, read batch by batch.

    Attributes:
        path: where it lies.
        ending: ``".csv"`` or ``".parquet"``.
        columns: their names, in order.
    """

    path: Path
    ending: str
    columns: tuple[str, ...]

    @classmethod
    def of(cls, path: Path) -> TableFile:
        """Open a table and read the names of its columns.

        Raises:
            UsageError: its name ends otherwise.
            InputError: it cannot be read, or is no table.
        """
        ending = ending_of(path, "TABLE")
        try:
            with open_regular(path, largest=LARGEST) as (stream, size):
                if not size:
                    _refuse(path, "an empty file", "a header and rows" if ending == ".csv" else "a Parquet file")
                head = stream.readline(1 << 20) if ending == ".csv" else b""
        except Unreadable as error:
            raise InputError([Fault(path.name, "", error.found, "a table")]) from None
        if ending == ".csv":
            columns = _header(path, head)
        else:
            try:
                columns = tuple(pl.scan_parquet(path).collect_schema().names())
            except (pl.exceptions.PolarsError, OSError) as error:
                _refuse(path, f"a file that is no Parquet ({str(error).splitlines()[0]})", "a Parquet file")
        return cls(path=path, ending=ending, columns=columns)

    def check_geometry(self, column: str) -> None:
        """Refuse geometries in another reference system than longitude and latitude, where the file names one.

        Raises:
            InputError: it does.
        """
        if self.ending != ".parquet":
            found = f"{self.ending[1:].upper()}, which holds no points in binary"
            raise InputError([Fault(self.path.name, f"column {column}", found, "GeoParquet")])
        check_degrees(pl.read_parquet_metadata(self.path).get("geo"), column, self.path.name)

    def batches(self) -> Iterator[pl.DataFrame]:
        """Its rows, in order.

        Raises:
            InputError: a row, or bytes, that are no table.
        """
        lazy = self._scan()
        try:
            row = lazy.head(SAMPLE).collect()
            size = row.estimated_size() / max(1, len(row))
            rows = int(min(BATCH_ROWS, max(SAMPLE, BATCH_BYTES / max(1.0, size))))
            yield from lazy.collect_batches(chunk_size=rows, maintain_order=True)
        except pl.exceptions.PolarsError as error:
            reason = str(error).splitlines()[0]
            if self.ending == ".csv":
                raise InputError([_csv_fault(self.path, reason)]) from None
            _refuse(self.path, f"a file that is no Parquet ({reason})", "a Parquet file")

    def _scan(self) -> pl.LazyFrame:
        return pl.scan_csv(self.path, infer_schema=False) if self.ending == ".csv" else pl.scan_parquet(self.path)


def _refuse(path: Path, found: str, wanted: str) -> NoReturn:
    raise InputError([Fault(path.name, "", found, wanted)])


def _header(path: Path, line: bytes) -> tuple[str, ...]:
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        _refuse(path, f"byte 0x{line[error.start]:02x} in the header", "text in UTF-8")
    names = next(csv.reader([text]), [])
    if not names:
        _refuse(path, "an empty header", "names of columns")
    return tuple(names)


def _csv_fault(path: Path, reason: str) -> Fault:
    """The first row that is no row, found by reading the file again, slowly."""
    with path.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError as error:
                return Fault(path.name, f"row {number}", f"byte 0x{line[error.start]:02x}", "text in UTF-8")
    with path.open(encoding="utf-8-sig", newline="") as text, suppress(csv.Error):
        rows = csv.reader(text)
        width = len(next(rows))
        for number, row in enumerate(rows, start=2):
            if len(row) > width:
                return Fault(path.name, f"row {number}", f"{len(row)} fields", f"{width}, as the header has")
    return Fault(path.name, "", f"text that is no table ({reason})", "comma-separated values")


@define
class TableWriter:
    """Writes a table that comes in batches.

    Parquet is gathered from parts beside it, so that no more than a batch is in memory.

    Attributes:
        path: of the file; parts lie beside it until :meth:`finish`.
        ending: ``".csv"`` or ``".parquet"``.
    """

    path: Path
    ending: str
    _parts: list[Path] = field(factory=list)
    _begun: bool = False

    def write(self, batch: pl.DataFrame) -> None:
        """Add rows."""
        if self.ending == ".csv":
            with self.path.open("ab") as stream:
                batch.write_csv(stream, include_header=not self._begun)
        else:
            part = self.path.with_name(f"part-{len(self._parts):06d}.parquet")
            batch.write_parquet(part, compression="lz4")
            self._parts.append(part)
        self._begun = True

    def finish(self) -> None:
        """Make the file whole."""
        if self._parts:
            pl.scan_parquet(self._parts).sink_parquet(self.path)
        for part in self._parts:
            part.unlink()
