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
    some = list(values)
    if not some:
        return ""
    mean, deviation = summary(some)
    return f"{mean:.{digits}f}" + (f" ± {1.96 * deviation:.{digits}f}" if len(some) > 1 else "")


def size_tables(sizes: Sizes, folder: Path, kinds: Sequence[str], subsets: int) -> None:
    """``table-1.csv`` (blocks), ``table-2.csv`` (the master's components) and ``table-2-crossing.csv``."""
    for number, what in (("1", "block"), ("2", "component"), ("2-crossing", "crossing")):
        rows: list[dict[str, Any]] = []
        for pairs in ("all", "reduced"):
            for kind in kinds:
                for measure in ("mean", "max"):
                    found = {
                        name: sizes.sheet.where(kind=kind, subsets=subsets, pairs=pairs, partition=name)
                        for name in PARTITIONS
                    }
                    if any(found.values()):
                        cells = {
                            name: spread(float(row[f"{what}_{measure}"]) for row in some)
                            for name, some in found.items()
                        }
                        rows.append({"pairs": pairs, "data": kind, "size": measure, **cells})
        if rows:
            write_rows(folder / f"table-{number}.csv", ("pairs", "data", "size", *PARTITIONS), rows)


def _shown(rows: Sequence[dict[str, str]], column: str, digits: int) -> str:
    """Return the mean where every instance was solved; else ``> limit`` with the gaps reached."""
    if not rows:
        return ""
    late = [row for row in rows if row["status"] != "optimal"]
    if not late:
        return spread((float(row[column]) for row in rows if row[column] != ""), digits)
    if any(row["status"].startswith("failed") for row in late):
        return late[0]["status"]
    gaps = [float(row["gap"]) for row in late if row["gap"] not in ("", "inf")]
    reached = f" (gap {100 * max(gaps):.2g} %)" if gaps else " (no bound)"
    return f"> {late[0]['limit'] if column == 'seconds' else late[0][column]}{reached}"


def time_tables(runs: Runs, folder: Path, kinds: Sequence[str], records: int) -> None:
    """``table-3.csv`` (seconds) and ``table-4.csv`` (rounds), by outputs, epsilon, method and partition."""
    rows = [row for row in runs.main.rows if row["records"] == str(records) and row["kind"] in kinds]
    columns = ("outputs", "epsilon", "data", "method", "partition", "subsets", "limit")
    names = sorted({tuple(row["kind" if c == "data" else c] for c in columns) for row in rows})
    for number, column, digits in ((3, "seconds", 1), (4, "rounds", 0)):
        made: list[dict[str, Any]] = []
        for name in names:
            key = dict(zip(columns, name, strict=True))
            own = [row for row in rows if all(row["kind" if c == "data" else c] == v for c, v in key.items())]
            more = {"instances": len(own), column: _shown(own, column, digits)}
            if number == 4:
                more["found_by"] = " ".join(sorted({row["found_by"] for row in own}))
            made.append({**key, **more})
        if made:
            write_rows(folder / f"table-{number}.csv", list(made[0]), made)
