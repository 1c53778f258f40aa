"""Rows of a long experiment, on disk as soon as they are known, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["Ledger"]


class Ledger:
    """A CSV file that is written row by row.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "t.csv"
    >>> Ledger(path, ["k", "seconds"], keys=1).add(k=100, seconds="1.5")
    >>> Ledger(path, ["k", "seconds"], keys=1).has(100)
    True
    >>> Ledger(path, ["k", "seconds"], keys=1).has(100.0)  # as it would be written
    True

    Args:
        path: of the file; rows in it are taken over.
        columns: its header.
        keys: how many of the first columns name a row.
    """

    def __init__(self, path: Path, columns: Sequence[str], keys: int) -> None:
        self.path, self.columns, self.keys = path, list(columns), keys
        self.rows: list[dict[str, str]] = []
        if path.is_file():
            with path.open(newline="", encoding="utf-8") as stream:
                self.rows = list(csv.DictReader(stream))
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("w", newline="", encoding="utf-8") as stream:
                csv.writer(stream, lineterminator="\n").writerow(self.columns)

    def has(self, *key: Any) -> bool:
        """Whether the row of this key is there."""
        wanted = [_text(part) for part in key]
        return any([row[name] for name in self.columns[: self.keys]] == wanted for row in self.rows)

    def add(self, **values: Any) -> None:
        """Append a row; what is left out is empty, numbers get six digits."""
        row = {name: _text(values.get(name, "")) for name in self.columns}
        self.rows.append(row)
        with self.path.open("a", newline="", encoding="utf-8") as stream:
            csv.DictWriter(stream, self.columns, lineterminator="\n").writerow(row)


def _text(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
