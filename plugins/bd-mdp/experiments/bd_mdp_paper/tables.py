"""The paper's tables, made of the sheets: mean and 1.96 standard deviations over the instances."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from bd_mdp_paper.runs import Runs
from bd_mdp_paper.sizes import Sizes
from experiments.tables import summary, write_rows
from privopt_bd_mdp.problem import PARTITIONS

__all__ = ["size_tables", "spread", "time_tables"]


def spread(values: Iterable[float], digits: int = 1) -> str:
    """``mean ± 1.96 sd``, or the one value there is."""
    numbers_given = list(values)
    if not numbers_given:
        return ""
    mean, deviation = summary(numbers_given)
    return f"{mean:.{digits}f}" + (f" ± {1.96 * deviation:.{digits}f}" if len(numbers_given) > 1 else "")


def size_tables(sizes: Sizes, folder: Path, kinds: Sequence[str], subsets: int) -> None:
    """``table-1.csv`` (blocks), ``table-2.csv`` (the master's components) and ``table-2-crossing.csv``."""
    for number, part in (("1", "block"), ("2", "component"), ("2-crossing", "crossing")):
        rows: list[dict[str, Any]] = []
        for pairs in ("all", "reduced"):
            for kind in kinds:
                for measure in ("mean", "max"):
                    rows_by_kind = {
                        name: sizes.sheet.where(kind=kind, subsets=subsets, pairs=pairs, partition=name)
                        for name in PARTITIONS
                    }
                    if any(rows_by_kind.values()):
                        cells = {
                            name: spread(float(row[f"{part}_{measure}"]) for row in kind_rows)
                            for name, kind_rows in rows_by_kind.items()
                        }
                        rows.append({"pairs": pairs, "data": kind, "size": measure, **cells})
        if rows:
            write_rows(folder / f"table-{number}.csv", ("pairs", "data", "size", *PARTITIONS), rows)


def _format_mean(rows: Sequence[dict[str, str]], column: str, digits: int) -> str:
    """Return the mean where every instance was solved; else ``> limit`` with the gaps reached."""
    if not rows:
        return ""
    stopped_rows = [row for row in rows if row["status"] != "optimal"]
    if not stopped_rows:
        return spread((float(row[column]) for row in rows if row[column] != ""), digits)
    if any(row["status"].startswith("failed") for row in stopped_rows):
        return stopped_rows[0]["status"]
    gaps = [float(row["gap"]) for row in stopped_rows if row["gap"] not in ("", "inf")]
    gap_text = f" (gap {100 * max(gaps):.2g} %)" if gaps else " (no bound)"
    return f"> {stopped_rows[0]['limit'] if column == 'seconds' else stopped_rows[0][column]}{gap_text}"


def time_tables(runs: Runs, folder: Path, kinds: Sequence[str], records: int) -> None:
    """``table-3.csv`` (seconds) and ``table-4.csv`` (rounds), by outputs, epsilon, method and partition."""
    rows = [row for row in runs.main.rows if row["records"] == str(records) and row["kind"] in kinds]
    columns = ("outputs", "epsilon", "data", "method", "partition", "subsets", "limit")
    names = sorted({tuple(row["kind" if c == "data" else c] for c in columns) for row in rows})
    for number, column, digits in ((3, "seconds", 1), (4, "rounds", 0)):
        table_rows: list[dict[str, Any]] = []
        for name in names:
            key = dict(zip(columns, name, strict=True))
            matching_rows = [row for row in rows if all(row["kind" if c == "data" else c] == v for c, v in key.items())]
            values = {"instances": len(matching_rows), column: _format_mean(matching_rows, column, digits)}
            if number == 4:
                values["found_by"] = " ".join(sorted({row["found_by"] for row in matching_rows}))
            table_rows.append({**key, **values})
        if table_rows:
            write_rows(folder / f"table-{number}.csv", list(table_rows[0]), table_rows)
