"""Equivalent problems for :attr:`Profile.variants`: other ids, another order, another program."""

from __future__ import annotations

import csv
import io
import random
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from privopt.testing.problems import GeneratedProblem, Variant, csv_text, npy_bytes

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
