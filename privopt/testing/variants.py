"""Equivalent problems: other ids, another order, the same tables as another program writes them."""

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
Change = Callable[[GeneratedProblem, random.Random], Variant | None]


def relabel(
    columns: Mapping[str, Sequence[str]], *, unless: Callable[[GeneratedProblem], bool] | None = None
) -> Change:
    """Make the variant ``"relabelling"``: every id is replaced by another, wherever it occurs.

    Args:
        columns: names of the columns that hold ids, by the table's name; tables and columns that a problem has not, and
            empty cells, are left.
        unless: recognises problems in which ids decide something, between equal costs say: these have no such variant.
    """

    def changed(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
        if unless is not None and unless(problem):
            return None
        tables = {name: problem.rows(name) for name in columns if name in problem.files}
        places = {name: [at for at, own in enumerate(rows[0]) if own in columns[name]] for name, rows in tables.items()}
        ids = {row[at] for name, rows in tables.items() for row in rows[1:] for at in places[name]} - {""}
        fresh = dict(zip(sorted(ids), chance.sample([f"place {n}" for n in range(len(ids))], len(ids)), strict=True))
        for name, (header, *rows) in tables.items():
            renamed = [[fresh.get(c, c) if at in places[name] else c for at, c in enumerate(row)] for row in rows]
            problem = problem.with_file(name, csv_text([header, *renamed]))
        return Variant(problem=problem, change="every id was replaced by another")

    return changed


def reorder(table: str, *, arrays: Mapping[str, Sequence[int]] | None = None) -> Change:
    """Make the variant ``"reordering"``: the rows of a table come in another order.

    Args:
        table: name of a CSV file.
        arrays: axes that the rows number, by the name of an ``.npy`` file next to it; a file that is absent is left.
    """

    def changed(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
        if table not in problem.files:
            return None
        header, *rows = problem.rows(table)
        order = chance.sample(range(len(rows)), len(rows))
        problem = problem.with_file(table, csv_text([header, *(rows[row] for row in order)]))
        for name, axes in (arrays or {}).items():
            if name in problem.files:
                array = np.load(io.BytesIO(problem.files[name]))
                for axis in axes:
                    array = np.take(array, order, axis=axis)
                problem = problem.with_file(name, npy_bytes(array))
        return Variant(problem=problem, change=f"the rows were put in the order {order}")

    return changed


def export_again(*tables: str) -> Change:
    """Make a variant in which tables are as another program writes them: quotes, CRLF, a byte order mark."""

    def changed(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
        for name in tables:
            if name in problem.files:
                text = csv_text(problem.rows(name), quoting=csv.QUOTE_ALL, lineterminator="\r\n")
                problem = problem.with_file(name, b"\xef\xbb\xbf" + text)
        return Variant(problem=problem, change="tables were written with quotes, CRLF and a byte order mark")

    return changed


def secret_files(declared: AttrsInstance) -> list[str]:
    """Return the names of the secret files of a problem."""
    return [file.name for file in files_of(declared) if file.secret]


def exports(profile: Profile, problem: GeneratedProblem, secret: list[str], chance: random.Random) -> Iterator[Variant]:
    """Yield a problem whose secret tables are as other programs would write them: in other orders, between quotes.

    Rows are in the order of the profile's variant ``"reordering"`` where that moves secret files alone, and sorted by
    size. Where the variant returns None their order means something, and where the problem names arrays these might
    have to move as well: then rows stay in their places.

    Args:
        profile: of the mechanism.
        problem: any.
        secret: names of its secret files; those that end in ``.csv`` and have a header are rewritten.
        chance: of the order.
    """
    tables = [name for name in secret if csv_table(problem, name) is not None]
    reordering = profile.variants.get("reordering")
    moved = None if reordering is None else reordering(problem, chance)
    if moved is not None and all(moved.problem.files.get(f) == problem.files[f] for f in {*problem.files} - {*secret}):
        yield moved
    alone = not any(name.endswith((".npy", ".npz")) for name in problem.files)
    if tables and alone and (reordering is None or moved is not None):
        by_size = problem
        for name in tables:
            head, *rows = problem.rows(name)
            by_size = by_size.with_file(name, csv_text([head, *sorted(rows, key=_size, reverse=True)]))
        yield Variant(problem=by_size, change="the rows of the secret table were sorted by size, largest first")
    if tables:
        yield from filter(None, [export_again(*tables)(problem, chance)])


def csv_table(problem: GeneratedProblem, name: str) -> Rows | None:
    """Return header and rows of a CSV file of the problem; None if it is not a table."""
    if not name.endswith(".csv") or name not in problem.files:
        return None
    rows = problem.rows(name)
    return rows if len(rows) > 1 and all(len(row) == len(rows[0]) for row in rows) else None


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
