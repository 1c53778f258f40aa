"""What is published: every table for every region, with intervals, and the noisy values that they were fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Bools, Ints
from privopt.errors import Fault, InputError
from privopt.files.archive import read_npz
from privopt.interfaces import Release
from privopt_hierarchical_dp.laws import GEOMETRIC, Law, stated_scales
from privopt_hierarchical_dp.several.fit import Tables
from privopt_hierarchical_dp.several.margins import summed
from privopt_hierarchical_dp.several.read import TablesRead
from privopt_hierarchical_dp.tree import Tree, add_up, past_sums

if TYPE_CHECKING:
    import polars as pl
else:
    pl = Any

__all__ = ["FOLDER", "NOISY", "TablesRelease", "numbers_of"]

FOLDER: Final = "tables"
NOISY: Final = "noisy.npz"


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
    scales: list[tuple[Fraction, ...]]
    law: Law = GEOMETRIC
    bounds: list[list[tuple[Ints, Ints]]] = field(factory=list, repr=False)
    truth: Tables | None = field(default=None, repr=False)

    @property
    def tree(self) -> Tree:
        """The regions."""
        return self.problem.tree

    def write(self, folder: Path) -> None:
        """Write tables/NAME.csv, and noisy.npz, whose rows are a level's regions sorted by name."""
        (folder / FOLDER).mkdir()
        for number, name in enumerate(self.problem.declared.hierarchy.tables):
            columns = {
                "count": [level[number] for level in self.counts],
                "low": [level[number][0] for level in self.bounds],
                "high": [level[number][1] for level in self.bounds],
            }
            _lines(self.problem, name, columns).write_csv(folder / FOLDER / f"{name}.csv", quote_style="necessary")
        arrays: dict[str, Any] = {}
        for level, (tables, scales) in enumerate(zip(self.noisy, self.scales, strict=True), start=1):
            order = self.tree.by_name(level - 1)
            for name, values in zip(self.problem.declared.hierarchy.tables, tables, strict=True):
                arrays[f"noisy.{name}.{level}"] = values[order]
            arrays[f"{self.law.stated}.{level}"] = np.array([str(scale) for scale in scales], dtype=np.str_)
        for level, values in enumerate(self.totals, start=1):
            arrays[f"totals.{level}"] = values[self.tree.by_name(level - 1)]
        with (folder / NOISY).open("wb") as stream:
            np.savez_compressed(stream, **arrays)

    def write_private(self, folder: Path) -> None:
        """Write the true counts, in the form of the release."""
        if self.truth is not None:
            (folder / FOLDER).mkdir()
            for number, name in enumerate(self.problem.declared.hierarchy.tables):
                lines = _lines(self.problem, name, {"count": [level[number] for level in self.truth]})
                lines.write_csv(folder / FOLDER / f"{name}.csv", quote_style="necessary")

    def facts(self) -> Mapping[str, Any]:
        """Sizes, and what was released of the whole; no true count."""
        domain = self.problem.declared.domain
        return {
            "regions by level": self.tree.widths,
            "cells by table": dict(
                zip(self.problem.declared.hierarchy.tables, map(domain.cells, domain.tables), strict=True)
            ),
            "individuals in all, as released": int(self.counts[0][0].sum()),
        }

    @classmethod
    def read(cls, folder: Path, problem: TablesRead) -> TablesRelease:
        """Read tables/NAME.csv and noisy.npz back.

        Raises:
            InputError: a file is missing or malformed, or has other rows than the problem's regions and values.
        """
        declared, tree, law = problem.declared, problem.tree, problem.declared.privacy.law
        domain, names = declared.domain, list(declared.hierarchy.tables)
        exact = tree.depth if declared.relation.exact is None else declared.relation.exact
        counts: Tables = [[] for _ in range(tree.depth)]
        bounds: list[list[tuple[Ints, Ints]]] = [[] for _ in range(tree.depth)]
        shapes: dict[str, tuple[int, ...]] = {}
        for name, table in zip(names, domain.tables, strict=True):
            numbers = _read_lines(folder / FOLDER / f"{name}.csv", problem, name)
            for level, (own, low, high) in enumerate(zip(*numbers, strict=True)):
                counts[level].append(own.reshape(len(own), *domain.shape(table)))
                bounds[level].append((low, high))
                shapes[f"noisy.{name}.{level + 1}"] = (len(own), *domain.shape(table))
        shapes |= {f"totals.{level + 1}": (tree.widths[level],) for level in range(exact)}
        stated = [f"{law.stated}.{level + 1}" for level in range(tree.depth)]
        wanted = f"integers of every table and level, {law.stated} by level" + ", totals" * bool(exact)
        largest = 8 * sum(int(np.prod(shape)) for shape in shapes.values()) + 4096 * (len(shapes) + len(stated) + 1)
        arrays = read_npz(folder / NOISY, wanted, only={*shapes, *stated}, largest=largest)
        for name, shape in shapes.items():
            found = arrays.get(name)
            if found is None or found.shape != shape or found.dtype.kind != "i":
                what = "no such array" if found is None else f"{found.dtype} of shape {found.shape}"
                raise InputError([Fault(str(folder / NOISY), name, what, f"integers of shape {shape}")])
        back = [np.argsort(tree.by_name(level)) for level in range(tree.depth)]
        noisy = [
            [arrays[f"noisy.{name}.{level + 1}"].astype(np.int64)[back[level]] for name in names]
            for level in range(tree.depth)
        ]
        return cls(
            problem=problem,
            counts=counts,
            noisy=noisy,
            totals=[arrays[f"totals.{level + 1}"].astype(np.int64)[back[level]] for level in range(exact)],
            scales=[stated_scales(folder / NOISY, own, arrays.get(own), len(names)) for own in stated],
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


def _places(tree: Tree) -> list[tuple[str, str, int, int]]:
    """Name, parent, level and place of every region that files list, sorted by name."""
    found = []
    for level, names in enumerate(tree.names):
        above = tree.names[level - 1] if level else ()
        parents = [above[parent] for parent in tree.parents(level).tolist()] if level else [""]
        once = tree.first_here(level).tolist()
        found += [(names[r], parents[r], level, r) for r in range(len(names)) if once[r]]
    return sorted(found)


def _lines(problem: TablesRead, name: str, columns: Mapping[str, Sequence[Ints]]) -> pl.DataFrame:
    """A table in the form in which it is published: regions by name, cells in the order of the values declared."""
    import polars as pl

    declared, places = problem.declared, _places(problem.tree)
    margin, domain = declared.margin(name), declared.domain
    cells = domain.cells(margin)
    rows = np.repeat(np.arange(len(places)), cells)
    made = [
        pl.Series("region", [place[0] for place in places], dtype=pl.String).gather(rows),
        pl.Series("parent", [place[1] or None for place in places], dtype=pl.String).gather(rows),
    ]
    at = np.indices(domain.shape(margin)).reshape(len(margin), cells)
    for axis, own in enumerate(margin):
        attribute, values = list(declared.hierarchy.attributes.items())[own]
        made.append(pl.Series(attribute, list(values), dtype=pl.String).gather(np.tile(at[axis], len(places))))
    for column, levels in columns.items():
        flat = [level.reshape(len(level), -1) for level in levels]
        made.append(pl.Series(column, np.concatenate([flat[level][r] for _, _, level, r in places])))
    return pl.DataFrame(made)


def _read_lines(path: Path, problem: TablesRead, name: str) -> list[list[Ints]]:
    """Numbers of a published table: for each of its columns count, low, high for each level (R_l, cells).

    Raises:
        InputError: a file that cannot be read, or of other rows than it would be written with.
    """
    import polars as pl

    from privopt_hierarchical_dp.reading import read_back

    numbers = ("count", "low", "high")
    cells = problem.declared.domain.cells(problem.declared.margin(name))
    blank = [np.zeros((width, cells), np.int64) for width in problem.tree.widths]
    wanted = _lines(problem, name, dict.fromkeys(numbers, blank))
    keys = [column for column in wanted.columns if column not in numbers]
    found = read_back(path, {**dict.fromkeys(keys, pl.String), **dict.fromkeys(numbers, pl.Int64)})
    if not found.select(keys).equals(wanted.select(keys)) or found.select(numbers).null_count().sum_horizontal()[0]:
        rows = f"{wanted.height} rows, with numbers: the problem's regions by name, its values in their order"
        raise InputError([Fault(str(path), "", "other rows, or cells without a number", rows)])
    place = {region: row for row, (region, *_) in enumerate(_places(problem.tree))}
    rows_of = [np.array([place[region] for region in names]) for names in problem.tree.names]
    return [[found[column].to_numpy().reshape(-1, cells)[rows] for rows in rows_of] for column in numbers]


def true_tables(tree: Tree, leaves: Sequence[Ints]) -> Tables:
    """Counts of every level, for each table, from the leaf regions'."""
    levels = [add_up(tree, table) for table in leaves]
    return [[table[level] for table in levels] for level in range(tree.depth)]
