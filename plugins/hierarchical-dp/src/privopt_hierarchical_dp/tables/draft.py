"""``privopt init hierarchical-tables``: a commented problem file from a table of individuals."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Final

import polars as pl

from privopt.declare import File
from privopt.declare.tables import Column, table_of
from privopt.errors import Fault, InputError, number_of
from privopt.files.new_folder import new_file
from privopt.files.targets import check_file
from privopt_hierarchical_dp.level_tables import LevelTable
from privopt_hierarchical_dp.tables.problem import RESERVED
from privopt_hierarchical_dp.tables.read import COUNT

__all__ = ["init"]

MOST_VALUES: Final = 50
"""Values of a column that is taken for an attribute, at most."""

PROBLEM: Final = """# Tables of individuals for every region, from {table}.
[hierarchy]
regions = {regions}       # public: read off the table; add regions that have nobody
records = {table}         # secret: one row an individual; a column count says how many alike
# budget = [1, 1]         # shares by level, the root's first; privopt plan hierarchical-tables shows the best

[hierarchy.attributes]    # public: read off the table, which told which values occur; add those that could
{attributes}
{tables}
[privacy]
epsilon = 1.0             # of one individual, over all tables and levels: whether or not one is in the file,
                          # every result is at most exp(1.0) = 2.72 times as likely
# kind = "zcdp"           # with rho = ... instead of epsilon
# relation = "individuals"  # one joins or leaves; "moves", "attributes": describe hierarchical-tables

# [plan]                  # what matters, for privopt plan
# errors = {{ people = {{ level_1 = 1 }} }}
"""


def init(table: Path, out: Path, *, force: bool) -> list[str]:
    """Write a problem file for a table of individuals, and the regions that it has next to it.

    Args:
        table: ``level_1, ..., level_L``, columns of attributes, and count where a row is of several alike.
        out: the problem file.
        force: whether existing files are replaced.

    Returns:
        What was guessed, a sentence each.

    Raises:
        InputError: the table has no levels, or cannot be read.
        UsageError: a file is there.
    """
    regions = out.with_name(f"{out.stem}-regions.csv")
    for target in (out, regions):
        check_file(target.absolute(), force=force)
    levels, paths, attributes, left, notes = _read(File.read(table, wanted="a table of individuals"))
    named = Path(os.path.relpath(table.resolve(), out.resolve().parent)).as_posix()
    tables = ["[hierarchy.tables.people]\nby = []                   # numbers of individuals"]
    tables += [f"[hierarchy.tables.by_{number}]\nby = [{_text(name)}]" for number, name in enumerate(attributes, 1)]
    text_of = PROBLEM.format(
        table=_text(named),
        regions=_text(regions.name),
        attributes="".join(
            f"{_text(name)} = [{', '.join(map(_text, values))}]\n" for name, values in attributes.items()
        ),
        tables="\n".join(tables) + "\n",
    )
    with new_file(out, force=force) as path, new_file(regions, force=force) as beside:
        path.write_text(text_of, "utf-8")
        pl.DataFrame(paths, schema=levels, orient="row").write_csv(beside, quote_style="necessary")
    notes = [
        f"{regions.name} has the {number_of(len(paths), 'smallest region')} of {table.name}, values of attributes are "
        "those that occur there: both will be public, so add what could be and is not",
        *notes,
    ]
    if left:
        why = f"having more than {MOST_VALUES} values, empty ones, or a name that is taken"
        notes.append(f"not taken for attributes, {why}: {', '.join(left)}")
    return notes


def _read(source: File) -> tuple[list[str], list[tuple[str, ...]], dict[str, list[str]], list[str], list[str]]:
    """Return level columns, leaf regions, values of attributes, columns that are none, and how rows are taken."""
    if "level_1" not in (header := table_of(source).columns):
        wanted = (
            "columns level_1, ..., level_L, the regions from the whole (the same name in every row) to the smallest: "
            f"rename yours, or add one. Others are attributes, and {COUNT} is how many individuals a row counts"
        )
        raise InputError([Fault(source.name, "header", ", ".join(header), wanted)])
    table = LevelTable.read(source)
    attributes: dict[str, list[str]] = {}
    left, rows = [], table.frame.height
    notes = [] if COUNT in header else [f"each of the {rows:,} rows is taken for one individual"]
    for name in header:
        if name in table.levels or name == COUNT:
            continue
        (own,) = table.checked(Column(name=name, kind="text"))
        values = own.unique().sort().to_list()
        taken = name in RESERVED or name.startswith("level_") or not name.isprintable() or '"' in name
        if taken or len(values) > MOST_VALUES or not all(values):
            left.append(name)
        elif COUNT not in header and len(values) > max(2, rows / 2) and all(map(str.isdecimal, values)):
            notes.append(
                f"column {name} is not taken for an attribute: it has {len(values):,} different numbers, and values of "
                f"attributes are published. If it is how many individuals a row counts, name it {COUNT}"
            )
        else:
            attributes[name] = values
    return list(table.levels), list(table.paths().unique().sort(table.levels).iter_rows()), attributes, left, notes


def _text(value: str) -> str:
    """Return a basic string of TOML."""
    return json.dumps(value, ensure_ascii=False)
