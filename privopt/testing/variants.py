"""Functions that make equivalent problems, with different ids, a different row order, or a different table format.

Equivalent problems must have the same loss, and a mechanism's public files must not reveal which of them it was given.
"""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
from attrs import AttrsInstance

from privopt.declare.schema import files_of
from privopt.testing.problems import GeneratedProblem, Variant, csv_text, npy_bytes
from privopt.testing.profile import Profile

Rows = list[list[str]]
"""The rows of a CSV file, starting with the header. Each row is a list of cells."""
Change = Callable[[GeneratedProblem, random.Random], Variant | None]
"""A function that takes a problem and a random number generator, and returns a variant, or None if there is none."""


def relabel(
    columns: Mapping[str, Sequence[str]], *, unless: Callable[[GeneratedProblem], bool] | None = None
) -> Change:
    """Return a function that makes the ``"relabelling"`` variant, in which the ids in all tables are replaced.

    The returned function can be used in ``Profile.variants``.

    Args:
        columns: The names of the columns that contain ids, keyed by table. Missing tables and columns, and empty cells,
            are skipped.
        unless: A function that returns True for problems whose result depends on the ids, for example because they
            break ties between equal costs. Such a problem has no variant.
    """

    def relabel_ids(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
        """Return the problem with new ids in a random order, or None if ``unless`` returns True for it."""
        if unless is not None and unless(problem):
            return None
        tables = {name: problem.rows(name) for name in columns if name in problem.files}
        # The indices of the columns that contain ids, keyed by table.
        id_columns = {
            name: [column for column, column_name in enumerate(rows[0]) if column_name in columns[name]]
            for name, rows in tables.items()
        }
        ids = {row[column] for name, rows in tables.items() for row in rows[1:] for column in id_columns[name]} - {""}
        # The ids are sorted, because the order of a set differs between processes, whereas variants must be
        # reproducible.
        new_ids = dict(zip(sorted(ids), chance.sample([f"place {n}" for n in range(len(ids))], len(ids)), strict=True))
        for name, (header, *rows) in tables.items():
            renamed = [
                [new_ids.get(c, c) if column in id_columns[name] else c for column, c in enumerate(row)] for row in rows
            ]
            problem = problem.with_file(name, csv_text([header, *renamed]))
        return Variant(problem=problem, change="every id was replaced by another")

    return relabel_ids


def reorder(table: str, *, arrays: Mapping[str, Sequence[int]] | None = None) -> Change:
    """Return a function that makes the ``"reordering"`` variant, in which the rows of a table are in a different order.

    The returned function can be used in ``Profile.variants``.

    Args:
        table: The name of a CSV file.
        arrays: The axes of each ``.npy`` file that correspond to the table's rows, keyed by file name. These axes are
            reordered in the same way. Missing files are skipped.
    """

    def reorder_rows(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
        """Return the problem with the table's rows in a random order, or None if the table is absent."""
        if table not in problem.files:
            return None
        header, *rows = problem.rows(table)
        order = chance.sample(range(len(rows)), len(rows))
        problem = problem.with_file(table, csv_text([header, *(rows[row] for row in order)]))
        for name, axes in (arrays or {}).items():
            if name in problem.files:
                array = np.load(io.BytesIO(problem.files[name]))
                # In a matrix of distances, both axes correspond to the table's rows.
                for axis in axes:
                    array = np.take(array, order, axis=axis)
                problem = problem.with_file(name, npy_bytes(array))
        return Variant(problem=problem, change=f"the rows were put in the order {order}")

    return reorder_rows


def export_again(*tables: str) -> Change:
    """Return a function that rewrites tables as some programs do, with quotes, CRLF line endings and a byte order mark.

    Args:
        tables: The names of CSV files. Missing files are skipped.
    """

    def quote_tables(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
        """Return the problem with the tables rewritten. ``chance`` is not used."""
        for name in tables:
            if name in problem.files:
                text = csv_text(problem.rows(name), quoting=csv.QUOTE_ALL, lineterminator="\r\n")
                problem = problem.with_file(name, b"\xef\xbb\xbf" + text)  # the byte order mark of UTF-8
        return Variant(problem=problem, change="tables were written with quotes, CRLF and a byte order mark")

    return quote_tables


def secret_files(declared: AttrsInstance) -> list[str]:
    """Return the names of a problem's secret files."""
    return [file.name for file in files_of(declared) if file.secret]


def exports(profile: Profile, problem: GeneratedProblem, secret: list[str], chance: random.Random) -> Iterator[Variant]:
    """Yield variants of a problem in which the secret tables are written in another order or format.

    1. The profile's ``"reordering"`` variant, unless it changes files that are not secret.
    2. The rows sorted by size. This variant is left out if the profile's ``"reordering"`` function returns no variant,
       which means that the order matters. It is also left out if the problem has arrays, which might need the same
       reordering.
    3. The same rows in another CSV format.

    Args:
        profile: The mechanism's profile.
        problem: The problem to vary.
        secret: The names of the problem's secret files. Only CSV files with a header and data rows are rewritten.
        chance: The random number generator used to determine the order.
    """
    tables = [name for name in secret if csv_table(problem, name) is not None]
    reordering = profile.variants.get("reordering")
    reordered = None if reordering is None else reordering(problem, chance)
    # The variant must not change public files, because their order may be visible in the release.
    if reordered is not None and all(
        reordered.problem.files.get(f) == problem.files[f] for f in {*problem.files} - {*secret}
    ):
        yield reordered
    has_no_arrays = not any(name.endswith((".npy", ".npz")) for name in problem.files)
    if tables and has_no_arrays and (reordering is None or reordered is not None):
        # A query with GROUP BY often ends with ORDER BY count DESC, so that the row order reveals the counts.
        by_size = problem
        for name in tables:
            header, *rows = problem.rows(name)
            by_size = by_size.with_file(name, csv_text([header, *sorted(rows, key=_size_key, reverse=True)]))
        yield Variant(problem=by_size, change="the rows of the secret table were sorted by size, largest first")
    if tables:
        yield from filter(None, [export_again(*tables)(problem, chance)])


def csv_table(problem: GeneratedProblem, name: str) -> Rows | None:
    """Return the header and rows of a problem's CSV file, or None if it is missing, ragged or has no data rows."""
    if not name.endswith(".csv") or name not in problem.files:
        return None
    rows = problem.rows(name)
    return rows if len(rows) > 1 and all(len(row) == len(rows[0]) for row in rows) else None


def _size_key(row: list[str]) -> tuple[float, str]:
    """Return a row's sort key, which consists of its last number and its first cell.

    Sorting by this key imitates a query with ``GROUP BY ... ORDER BY count DESC``. The number is 0 if the row has none.
    """
    numbers = [number for cell in row if (number := number_in(cell)) is not None]
    return (numbers[-1] if numbers else 0.0), row[0]


def number_in(cell: str) -> float | None:
    """Convert a cell to a number, or return None if it does not contain one."""
    try:
        return float(cell)
    except ValueError:
        return None
