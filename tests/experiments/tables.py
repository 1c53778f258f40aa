"""Tables of a long experiment: rows are on disk as soon as they are known, and are not computed again."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from privopt.errors import Fault, InputError

__all__ = ["Row", "Sheet", "number", "read_rows", "split", "summary", "write_rows"]

Row = Mapping[str, Any]


def text(value: Any) -> str:
    """As a table shows it: nothing for None, nine digits of a number."""
    if value is None:
        return ""
    return f"{value:.9g}" if isinstance(value, float) else str(value)


def number(cell: str) -> float:
    """Return the number in a table; not a number where there is none, as in ``> 120``."""
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def summary(values: Iterable[float]) -> tuple[float, float]:
    """Mean and standard deviation of the values that are numbers; 0 is the deviation of a single one."""
    numbers_found = np.array(list(values), dtype=np.float64)
    numbers_found = numbers_found[np.isfinite(numbers_found)]
    mean = float(numbers_found.mean()) if numbers_found.size else float("nan")
    return mean, float(numbers_found.std(ddof=1)) if numbers_found.size > 1 else 0.0


def split(rows: Iterable[Mapping[str, str]], column: str) -> dict[str, list[Mapping[str, str]]]:
    """Rows by their value in a column, in the order of first appearance."""
    rows_by_value: dict[str, list[Mapping[str, str]]] = {}
    for row in rows:
        rows_by_value.setdefault(row[column], []).append(row)
    return rows_by_value


def read_rows(file: Path) -> list[dict[str, str]]:
    """Rows of a CSV file; none where there is no file."""
    if not file.is_file():
        return []
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def write_rows(file: Path, columns: Sequence[str], rows: Iterable[Row]) -> None:
    """Write a CSV file, whole or not at all. What a row lacks is empty.

    Raises:
        ValueError: a row has a value for no column.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    with part.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows({name: text(value) for name, value in row.items()} for row in rows)
    os.replace(part, file)


class Sheet:
    """A CSV file that grows row by row.

    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "t.csv"
    >>> Sheet(file, ["cells"], ["seconds"]).add({"cells": 100, "seconds": 1.5})
    >>> Sheet(file, ["cells"], ["seconds"]).has(cells=100.0)  # as it would be written
    True

    Args:
        file: it is read where it is there.
        key: columns that name a row.
        values: the other columns.

    Raises:
        InputError: the file has other columns.
    """

    def __init__(self, file: Path, key: Sequence[str], values: Sequence[str]) -> None:
        self.file, self.key, self.columns = file, tuple(key), (*key, *values)
        self.rows: list[dict[str, str]] = []
        if file.exists():
            with file.open(newline="", encoding="utf-8") as stream:
                reader = csv.DictReader(stream)
                if tuple(reader.fieldnames or ()) != self.columns:
                    header = ",".join(reader.fieldnames or ())
                    raise InputError([Fault(str(file), "line 1", header, ",".join(self.columns))])
                self.rows = list(reader)

    def where(self, **values: Any) -> list[dict[str, str]]:
        """Rows with these values."""
        cells = {name: text(value) for name, value in values.items()}
        return [row for row in self.rows if all(row[name] == value for name, value in cells.items())]

    def has(self, **values: Any) -> bool:
        """Whether there is a row with these values."""
        return bool(self.where(**values))

    def add(self, *rows: Row) -> None:
        """Append rows, on disk before this returns; what a row lacks is empty.

        Raises:
            ValueError: a row has a value for no column.
        """
        for row in rows:
            unknown = [name for name in row if name not in self.columns]
            if unknown:
                raise ValueError(f"{self.file.name} has no column {unknown[0]!r}")
            self.rows.append({name: text(row.get(name)) for name in self.columns})
        write_rows(self.file, self.columns, self.rows)

    def once(self, key: Row, make: Callable[[], Iterable[Row]]) -> None:
        """Add the rows that ``make`` returns, each with ``key`` put in, unless there are rows of this key."""
        if not self.has(**key):
            self.add(*({**key, **row} for row in make()))
