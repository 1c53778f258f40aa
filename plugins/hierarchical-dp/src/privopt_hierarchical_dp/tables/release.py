"""The release: every table for every region, with intervals, and the noisy values to which they were fitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Bools, Ints
from privopt.errors import Fault, InputError
from privopt.interfaces import Release
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC, NoiseDistribution, Scale
from privopt_hierarchical_dp.region_tables import read_levels, read_rows, write_arrays, write_rows
from privopt_hierarchical_dp.tables.fit import Tables
from privopt_hierarchical_dp.tables.instance import TablesRead
from privopt_hierarchical_dp.tables.margins import summed
from privopt_hierarchical_dp.tree import Tree, add_up, past_sums

__all__ = ["ERRORS", "FOLDER", "INSIDE", "NOISY", "TablesRelease", "numbers_of"]

FOLDER: Final = "tables"
NOISY: Final = "noisy.npz"
TOTALS: Final = "totals.{}"
ERRORS: Final = "l1_error_by_table_and_level"
INSIDE: Final = "share_of_intervals_that_hold_by_table_and_level"
"""Keys of private/truth.json."""


@frozen(kw_only=True, eq=False)
class TablesRelease(Release):
    """Tables of individuals for every region.

    Attributes:
        problem: what everybody knows: regions, attributes, tables.
        counts: for each level, for each table (R_l, ...) individuals.
        noisy: likewise the noisy values.
        totals: numbers of individuals that are published exactly: for each level (R_l,), the root's alone, or none.
        scales: of the noise, for each level for each table, exact, as it was drawn; variances of Gaussian noise.
        law: of that noise.
        bounds: for each level, for each table, low and high (R_l, cells), between which a true count lies.
        truth: the true counts, as ``counts``; written to ``private/`` alone, None when read back.
    """

    problem: TablesRead
    counts: Tables
    noisy: Tables
    totals: list[Ints]
    scales: list[tuple[Scale, ...]]
    law: NoiseDistribution = GEOMETRIC
    bounds: list[list[tuple[Ints, Ints]]] = field(factory=list, repr=False)
    truth: Tables | None = field(default=None, repr=False)

    @property
    def tree(self) -> Tree:
        """The regions."""
        return self.problem.tree

    def write(self, folder: Path) -> None:
        """Write tables/NAME.csv, and noisy.npz, whose rows are a level's regions sorted by name."""
        (folder / FOLDER).mkdir()
        declared = self.problem.declared
        for number, name in enumerate(declared.hierarchy.tables):
            columns = {
                "count": [level[number] for level in self.counts],
                "low": [level[number][0] for level in self.bounds],
                "high": [level[number][1] for level in self.bounds],
            }
            write_rows(folder / FOLDER / f"{name}.csv", self.tree, declared.cells(name), columns)
        arrays = {
            f"noisy.{name}.{{}}": [level[number] for level in self.noisy]
            for number, name in enumerate(declared.hierarchy.tables)
        }
        scales = {f"{self.law.stated}.{level}": own for level, own in enumerate(self.scales, start=1)}
        write_arrays(folder / NOISY, self.tree, {**arrays, TOTALS: self.totals}, scales)

    def write_private(self, folder: Path) -> None:
        """Write the true counts, in the form of the release."""
        if self.truth is not None:
            (folder / FOLDER).mkdir()
            for number, name in enumerate(self.problem.declared.hierarchy.tables):
                columns = {"count": [level[number] for level in self.truth]}
                write_rows(folder / FOLDER / f"{name}.csv", self.tree, self.problem.declared.cells(name), columns)

    @classmethod
    def read(cls, folder: Path, problem: TablesRead) -> TablesRelease:
        """Read tables/NAME.csv and noisy.npz back.

        Raises:
            InputError: a file is missing or malformed, or has other rows than the problem's regions and values.
        """
        declared, tree, law = problem.declared, problem.tree, problem.declared.privacy.law
        domain, names = declared.domain, list(declared.hierarchy.tables)
        counts: Tables = [[] for _ in range(tree.depth)]
        bounds: list[list[tuple[Ints, Ints]]] = [[] for _ in range(tree.depth)]
        for name, table in zip(names, domain.tables, strict=True):
            path = folder / FOLDER / f"{name}.csv"
            _, numbers = read_rows(path, declared.cells(name), ("count", "low", "high"), tree)
            for level, (own, low, high) in enumerate(zip(*numbers, strict=True)):
                counts[level].append(own.reshape(len(own), *domain.shape(table)))
                bounds[level].append((low, high))
        shapes = {f"noisy.{name}.{{}}": domain.shape(table) for name, table in zip(names, domain.tables, strict=True)}
        stated = [f"{law.stated}.{level + 1}" for level in range(tree.depth)]
        arrays, scales = read_levels(folder / NOISY, tree, shapes, TOTALS, dict.fromkeys(stated, len(names)))
        totals = arrays[TOTALS]
        exact = tree.depth if declared.relation.exact is None else declared.relation.exact
        if len(totals) != exact:
            wanted = f"those of {exact}, as privacy.relation has it"
            raise InputError([Fault(str(folder / NOISY), "totals", f"totals of {len(totals)} levels", wanted)])
        return cls(
            problem=problem,
            counts=counts,
            noisy=[[arrays[name][level] for name in shapes] for level in range(tree.depth)],
            totals=totals,
            scales=[scales[own] for own in stated],
            law=law,
            bounds=bounds,
        )

    def past_sums(self) -> list[str]:
        """Files whose numbers no sum in 64 bits can be trusted with; a line each."""
        wanted = "numbers that add up to 2^61 or more; no release has as many individuals"
        names = list(self.problem.declared.hierarchy.tables)
        lines = [
            f"{file} on level {level} has {wanted}"
            for level, (counts, noisy) in enumerate(zip(self.counts, self.noisy, strict=True), start=1)
            for name, own, drawn in zip(names, counts, noisy, strict=True)
            for file, off in (
                (f"{FOLDER}/{name}.csv", past_sums(own)),
                (f"{NOISY}: noisy.{name}", past_sums(drawn, rows=True)),
            )
            if off
        ]
        off = [level for level, totals in enumerate(self.totals, start=1) if past_sums(totals)]
        return lines + [f"{NOISY}: totals on level {level} has {wanted}" for level in off]

    def complaints(self) -> list[str]:
        """Conditions that fail: non-negative, children adding up, tables agreeing, exact totals met; a line each."""
        if beyond := self.past_sums():
            return beyond
        names, tables = list(self.problem.declared.hierarchy.tables), self.problem.declared.domain.tables
        lines: list[str] = []
        zeros = {table: ~able for table, able in self.problem.declared.domain.allowed(self.problem.zeros).items()}

        def tell(level: int, number: int, off: Bools, what: str) -> None:
            if off.any():
                region = self.tree.names[level][int(np.argwhere(off.reshape(len(off), -1).any(axis=1))[0, 0])]
                lines.append(f"{FOLDER}/{names[number]}.csv: region {region!r} {what}")

        for level, counts in enumerate(self.counts):
            for number, (values, table) in enumerate(zip(counts, tables, strict=True)):
                tell(level, number, values < 0, "has a negative count")
                tell(level, number, zeros[table] & (values != 0), "has individuals in an impossible cell")
                if level < len(self.totals):
                    off = summed(values, table, ()) != self.totals[level]
                    tell(level, number, off, "has not the number of individuals that is published exactly")
                if level + 1 < self.tree.depth:
                    below = np.add.reduceat(self.counts[level + 1][number], self.tree.start[level][:-1], axis=0)
                    tell(level, number, below != values, "has counts that are not the sums of its children's")
                for other in range(number):
                    shared = tuple(own for own in table if own in tables[other])
                    off = summed(values, table, shared) != summed(counts[other], tables[other], shared)
                    tell(level, number, off, f"does not agree with {names[other]} on what they share")
        limits = self.problem.limits
        for where, own, wanted in [] if limits is None else limits.broken(numbers_of(self.counts)):
            lines.append(f"{FOLDER}: {where} has {own} individuals; hierarchy.bounds allows {wanted}")
        return lines


def numbers_of(counts: Tables) -> list[Ints]:
    """For each level (R_l,) numbers of individuals, by its first table."""
    return [level[0].reshape(len(level[0]), -1).sum(axis=1) for level in counts]


def true_tables(tree: Tree, leaves: Sequence[Ints]) -> Tables:
    """Return counts of every level, for each table, from the leaf regions'."""
    levels = [add_up(tree, table) for table in leaves]
    return [[table[level] for table in levels] for level in range(tree.depth)]
