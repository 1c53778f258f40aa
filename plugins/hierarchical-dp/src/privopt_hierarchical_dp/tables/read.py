"""Reading individuals: CSV or Parquet, checked against what is declared, never held as Python objects."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Ints
from privopt.declare.tables import Column
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.level_tables import GROUPS_LIMIT, LevelTable
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tree import Regions

__all__ = ["COUNT", "read_individuals"]

COUNT: Final = "count"


def read_individuals(problem: TablesProblem, regions: Regions, file: str) -> tuple[tuple[Ints, ...], tuple[str, ...]]:
    """Read true counts (R_L, ...) of every table from the records; and what is not read.

    Raises:
        InputError: records, a column, a region, a value or a count that will not do: no cell is quoted.
    """
    source, attributes, domain = problem.hierarchy.records, problem.hierarchy.attributes, problem.domain
    if source is None:
        raise InputError([Fault(file, "hierarchy.records", "nothing", "the table of individuals")])
    table = LevelTable.read(source, *attributes, optional=COUNT, quoted=False)
    has_count = COUNT in table.frame.columns
    columns = [Column(name=name, kind="text", one_of=values) for name, values in attributes.items()]
    counted = [Column(name=COUNT, kind="count", least=0, most=GROUPS_LIMIT - 1, unit="individuals")] * has_count
    found = table.checked(*columns, *counted)
    _, leaf = table.placed(regions)
    number = found.pop().to_numpy() if has_count else np.ones(len(leaf), np.int64)
    if float(number.sum(dtype=np.float64)) >= GROUPS_LIMIT:
        raise InputError([Fault(source.name, f"column {COUNT}", "too many individuals in all", "fewer than 2^50")])
    codes = [
        own.replace_strict(list(values), range(len(values)), return_dtype=pl.Int64).to_numpy()
        for own, values in zip(found, attributes.values(), strict=True)
    ]
    counts = []
    for margin in domain.tables:
        leaves = np.zeros((regions.tree.widths[-1], *domain.shape(margin)), np.int64)
        np.add.at(leaves, (leaf.to_numpy(), *(codes[own] for own in margin)), number)
        counts.append(leaves)
    read = {*table.levels, *attributes, *([COUNT] * has_count)}
    table.note(*read)
    unread = [column for column in table.frame.columns if column not in read]
    lines = [f"{source.name}: not read: {', '.join(unread)}"] if unread else []
    if lines and not has_count:
        lines[0] += f"; it has no column {COUNT}, so each of its rows is one individual"
    return tuple(counts), tuple(lines)
