"""A table that grows row by row and outlives the run: what stands in it is not computed again."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privopt.errors import Fault, InputError

__all__ = ["Sheet", "write_rows"]


def write_rows(file: Path, columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
    """A CSV file, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    part = file.with_name(f".{file.name}.part")
    with part.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, columns)
        writer.writeheader()
        writer.writerows(rows)
    os.replace(part, file)


class Sheet:
    """A CSV file with key columns.

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
                    found = ",".join(reader.fieldnames or ())
                    raise InputError([Fault(str(file), "line 1", found, ",".join(self.columns))])
                self.rows = list(reader)
        self._known = {self._name(row) for row in self.rows}

    def _name(self, row: Mapping[str, Any]) -> tuple[str, ...]:
        return tuple(str(row[column]) for column in self.key)

    def has(self, row: Mapping[str, Any]) -> bool:
        """Whether there is a row of this key."""
        return self._name(row) in self._known

    def add(self, *rows: Mapping[str, Any]) -> None:
        """Append rows, on disk before this returns."""
        for row in rows:
            self.rows.append({column: str(row[column]) for column in self.columns})
            self._known.add(self._name(row))
        write_rows(self.file, self.columns, self.rows)

    def where(self, **wanted: Any) -> list[dict[str, str]]:
        """Rows with these values."""
        return [row for row in self.rows if all(row[name] == str(value) for name, value in wanted.items())]
