"""The same secret tables as other programs would write them: other row orders, other forms of the same numbers."""

from __future__ import annotations

import random
from collections.abc import Iterator

from attrs import AttrsInstance

from privopt.declare.schema import files_of
from privopt.testing.problems import GeneratedProblem, Variant, csv_text
from privopt.testing.profile import Profile
from privopt.testing.variants import export_again

Rows = list[list[str]]


def secret_files(declared: AttrsInstance) -> list[str]:
    """Return the names of the secret files of a problem."""
    return [file.name for file in files_of(declared) if file.secret]


def exports(profile: Profile, problem: GeneratedProblem, secret: list[str], chance: random.Random) -> Iterator[Variant]:
    """Yield a problem whose secret tables are written in other ways that mean the same.

    Rows are put into another order by the profile's variant ``"reordering"`` where that moves secret files alone; else
    the rows of secret CSV tables are shuffled, and sorted by size. Where the variant returns None their order means
    something, and where the problem names arrays these might have to move as well: then rows stay in their places.

    Args:
        profile: of the mechanism.
        problem: any.
        secret: names of its secret files; those that end in ``.csv`` and have a header are rewritten.
        chance: of the order.
    """
    tables = {name: table for name in secret if (table := csv_table(problem, name)) is not None}
    reorder = profile.variants.get("reordering")
    moved = None if reorder is None else reorder(problem, chance)
    if moved is not None and _changed(problem, moved.problem) <= set(secret):
        yield moved
    alone = not any(name.endswith((".npy", ".npz")) for name in problem.files)
    if tables and alone and (reorder is None or moved is not None):
        shuffled = {name: [head, *chance.sample(rows, len(rows))] for name, (head, *rows) in tables.items()}
        yield _written(problem, shuffled, "the rows of the secret table were shuffled")
        by_size = {name: [head, *sorted(rows, key=_size, reverse=True)] for name, (head, *rows) in tables.items()}
        yield _written(problem, by_size, "the rows of the secret table were sorted by size, largest first")
    if tables:
        yield _written(problem, {name: _other_numbers(table) for name, table in tables.items()}, "numbers were padded")
        again = export_again(*tables)(problem, chance)
        assert again is not None  # there is always such a form
        yield again


def _changed(one: GeneratedProblem, two: GeneratedProblem) -> set[str]:
    """Names of the files that differ."""
    return {name for name in {**one.files, **two.files} if one.files.get(name) != two.files.get(name)}


def csv_table(problem: GeneratedProblem, name: str) -> Rows | None:
    """Return header and rows of a CSV file of the problem; None if it is not a table."""
    if not name.endswith(".csv") or name not in problem.files:
        return None
    rows = problem.rows(name)
    return rows if len(rows) > 1 and all(len(row) == len(rows[0]) for row in rows) else None


def _written(problem: GeneratedProblem, tables: dict[str, Rows], change: str) -> Variant:
    for name, table in tables.items():
        problem = problem.with_file(name, csv_text(table))
    return Variant(problem=problem, change=change)


def _size(row: list[str]) -> tuple[float, str]:
    """Return the sort key of ``GROUP BY ... ORDER BY count DESC``: the last number of a row."""
    numbers = [number for cell in row if (number := number_in(cell)) is not None]
    return (numbers[-1] if numbers else 0.0), row[0]


def number_in(cell: str) -> float | None:
    """Return the number that a cell holds; None where it holds none."""
    try:
        return float(cell)
    except ValueError:
        return None


def _other_numbers(table: Rows) -> Rows:
    """Columns of numbers with a decimal point get a zero more; whole numbers, and ids, stay as they are."""
    head, *rows = table
    padded = [list(row) for row in rows]
    for column, name in enumerate(head):
        cells = [row[column] for row in rows]
        if name.strip().lower() == "id" or any(number_in(cell) is None for cell in cells):
            continue
        for row in padded:
            if "." in row[column] and "e" not in row[column].lower():
                row[column] += "0"
    return [head, *padded]
