"""What is published: counts of every region and size, and the noisy values that they were fitted to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.files.archive import read_npz
from privopt.interfaces import Release
from privopt_hierarchical_dp.laws import GEOMETRIC, Law, stated_scales
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.tree import Tree, past_sums

if TYPE_CHECKING:
    from privopt_hierarchical_dp.instance import PublishedHierarchy
else:
    PublishedHierarchy = Any

__all__ = ["ARTEFACT", "INTERVALS", "NOISY", "HierarchyRelease", "errors_of", "read_table", "violations"]

ARTEFACT = "release.csv"
NOISY = "noisy.npz"
INTERVALS = "intervals.csv"
ROWS_AT_ONCE = 1_000_000
"""Rows of a table that are laid out in memory before they are written."""


@frozen(kw_only=True, eq=False)
class HierarchyRelease(Release):
    """Counts of groups of every size in every region.

    Attributes:
        tree: the regions.
        counts: for each level (R_l, N) groups of each size, from the least that is a class.
        noisy: for each level the noisy values of what the method measured: counts (R_l, N), or
            cumulative counts (R_l, N) or (R_l, N - 1).
        totals: exact totals that are published: for each level (R_l,), or the root's alone; none where the relation
            of neighbours lets groups appear and vanish.
        scales: of the noise on each level's values, exact, as it was drawn; variances of Gaussian noise.
        law: of that noise.
        bounds: for each level low and high (R_l, N), between which a true count lies with the problem's confidence,
            worked out from public values; None for methods without them.
        truth: the true counts, for each level (R_l, N); written to ``private/`` alone, None when read back.
        first: the least size that is a class, 0 or 1.
    """

    tree: Tree
    counts: list[Ints]
    noisy: list[Ints]
    totals: list[Ints]
    scales: tuple[Fraction, ...] = ()
    law: Law = GEOMETRIC
    bounds: list[tuple[Ints, Ints]] | None = field(default=None, repr=False)
    truth: list[Ints] | None = field(default=None, repr=False)
    first: int = 1

    def write(self, folder: Path) -> None:
        """Write release.csv, intervals.csv, and noisy.npz, whose rows are the level's regions sorted by name."""
        _write_table(folder / ARTEFACT, self.tree, {"groups": self.counts}, self.first)
        if self.bounds is not None:
            low, high = (list(side) for side in zip(*self.bounds, strict=True))
            _write_table(folder / INTERVALS, self.tree, {"low": low, "high": high}, self.first)
        by_name = [self.tree.by_name(level) for level in range(self.tree.depth)]
        arrays: dict[str, Any] = {
            f"level_{level}": values[order]
            for level, (values, order) in enumerate(zip(self.noisy, by_name, strict=True), start=1)
        }
        arrays |= {
            f"totals_{level}": values[order]
            for level, (values, order) in enumerate(zip(self.totals, by_name, strict=False), start=1)
        }
        arrays[self.law.stated] = np.array([str(scale) for scale in self.scales], dtype=np.str_)
        with (folder / NOISY).open("wb") as stream:
            np.savez_compressed(stream, **arrays)

    def facts(self) -> Mapping[str, Any]:
        """Sizes, and what was released of the whole; no true count."""
        return {
            "levels": self.tree.depth,
            "regions by level": self.tree.widths,
            "sizes": int(self.counts[0].shape[1]),
            "groups in all, as released": int(self.counts[0].sum()),
            "children that do not add up": violations(self.tree, self.counts),
        }

    def write_private(self, folder: Path) -> None:
        """Write the true counts, in the form of the release."""
        if self.truth is not None:
            _write_table(folder / "counts.csv", self.tree, {"groups": self.truth}, self.first)

    @classmethod
    def read(cls, folder: Path, problem: PublishedHierarchy) -> HierarchyRelease:
        """Read release.csv, noisy.npz and, where there is one, intervals.csv back.

        Raises:
            InputError: a file is missing or malformed, regions form no tree, a size is missing.
        """
        hierarchy, law = problem.declared.hierarchy, problem.declared.privacy.law
        sizes, first, exact = hierarchy.classes, hierarchy.first_size, problem.declared.relation.exact
        tree, (counts,) = read_table(folder / ARTEFACT, sizes, first=first)
        bounds = None
        if (folder / INTERVALS).exists():
            again, (low, high) = read_table(folder / INTERVALS, sizes, ("low", "high"), first=first)
            if again.names != tree.names:
                raise InputError([Fault(str(folder / INTERVALS), "region", "other regions", f"those of {ARTEFACT}")])
            bounds = list(zip(low, high, strict=True))
        path = folder / NOISY
        wanted = f"arrays level_1 to level_{tree.depth}{' and totals_1' * exact} of integers, one row a region"
        headers = 2 * 1024
        largest = sum(8 * width * (sizes + 1) + headers for width in tree.widths)
        arrays = read_npz(path, wanted, largest=largest)
        known = 0 if not exact else tree.depth if "totals_2" in arrays else 1
        shapes = {f"level_{level + 1}": (2, level) for level in range(tree.depth)}
        shapes |= {f"totals_{level + 1}": (1, level) for level in range(known)}
        faults = [
            Fault(str(path), name, "an array that nothing reads", wanted)
            for name in arrays
            if name not in shapes and name != law.stated
        ]
        for name, (axes, level) in shapes.items():
            found = arrays.get(name)
            if found is None:
                faults.append(Fault(str(path), name, "no such array", wanted))
            elif found.ndim != axes or found.shape[0] != tree.widths[level] or found.dtype.kind != "i":
                what = f"{found.dtype} of shape {found.shape}"
                faults.append(Fault(str(path), name, what, f"integers, {tree.widths[level]} rows"))
        if faults:
            raise InputError(faults)
        back = [np.argsort(tree.by_name(level)) for level in range(tree.depth)]
        return cls(
            tree=tree,
            counts=counts,
            noisy=[arrays[f"level_{level + 1}"].astype(np.int64)[back[level]] for level in range(tree.depth)],
            totals=[arrays[f"totals_{level + 1}"].astype(np.int64)[back[level]] for level in range(known)],
            scales=stated_scales(path, law.stated, arrays.get(law.stated), tree.depth),
            law=law,
            bounds=bounds,
            first=first,
        )

    def shape_faults(self, method: str, totals: bool) -> list[str]:
        """Whether as many values were measured as the method measures; one line for each that fails."""
        width = self.counts[0].shape[1]
        if METHODS[method].query == "cumulative" and totals:
            width -= 1
        lines = []
        if totals and len(self.totals) != self.tree.depth:
            lines.append(f"{NOISY}: totals of {len(self.totals)} levels; the method publishes all {self.tree.depth}")
        return lines + [
            f"{NOISY}: level_{level + 1} has {values.shape[1]} columns; the method measures {width}"
            for level, values in enumerate(self.noisy)
            if values.shape[1] != width
        ]

    def past_sums(self) -> list[str]:
        """Files whose numbers no sum in 64 bits can be trusted with; a line each."""
        found = [(f"{ARTEFACT}: level {n}", past_sums(own)) for n, own in enumerate(self.counts, start=1)]
        found += [(f"{NOISY}: level_{n}", past_sums(own, rows=True)) for n, own in enumerate(self.noisy, start=1)]
        found += [(f"{NOISY}: totals_{n}", past_sums(own)) for n, own in enumerate(self.totals, start=1)]
        wanted = "has numbers that add up to 2^61 or more; no release has as many groups"
        return [f"{where} {wanted}" for where, off in found if off]

    def complaints(self) -> list[str]:
        """Conditions of a valid release that fail: non-negative, children adding up, exact totals met."""
        if lines := self.past_sums():
            return lines
        for names, level in zip(self.tree.names, self.counts, strict=True):
            if level.min(initial=0) < 0:
                lines.append(f"{ARTEFACT}: region {names[int(np.argmin(level.min(axis=1)))]!r} has a negative count")
        for names, level, totals in zip(self.tree.names, self.counts, self.totals, strict=False):
            off = np.flatnonzero(level.sum(axis=1) != totals)
            if off.size:
                region = int(off[0])
                lines.append(
                    f"{ARTEFACT}: region {names[region]!r} has {int(level[region].sum())} groups; the total published "
                    f"is {int(totals[region])}"
                )
        for parent, (start, below) in enumerate(zip(self.tree.start, self.counts[1:], strict=True)):
            wrong = np.argwhere(np.add.reduceat(below, start[:-1], axis=0) != self.counts[parent])
            if len(wrong):
                region, size = wrong[0].tolist()
                lines.append(
                    f"{ARTEFACT}: {len(wrong)} counts of level {parent + 1} are not the sums of their children, "
                    f"the first in region {self.tree.names[parent][region]!r}, size {size + self.first}"
                )
        return lines


def errors_of(released: Ints, true: Ints, first: int = 1) -> dict[str, int]:
    """Errors of one level (R, N), each summed over its regions.

    ``l1_error``: counts, in groups. ``earth_movers``: groups times sizes that they have to be moved. ``individuals``:
    individuals that the counts imply, where size N counts N.
    """
    off = released - true
    individuals = np.abs(off @ np.arange(first, off.shape[1] + first))
    moved = np.abs(np.cumsum(off, axis=1)[:, :-1])
    return {
        "l1_error": int(np.abs(off).sum()),
        "earth_movers": int(moved.sum()),
        "individuals": int(individuals.sum()),
    }


def violations(tree: Tree, counts: Sequence[Ints]) -> int:
    """Subtrees that violate consistency (the paper's #CV): (region, size) whose children do not add up to it."""
    return sum(
        int(np.count_nonzero(np.add.reduceat(below, start[:-1], axis=0) != own))
        for start, own, below in zip(tree.start, counts, counts[1:], strict=False)
    )


def _write_table(path: Path, tree: Tree, columns: Mapping[str, Sequence[Ints]], first: int) -> None:
    """``region, parent, size`` and columns of (R_l, N): regions sorted by name, sizes ascending."""
    import polars as pl

    sizes = next(iter(columns.values()))[0].shape[1]
    names = [name for level in tree.names for name in level]
    above: list[str | None] = [None] * len(names)
    for level in range(1, tree.depth):
        begin = sum(tree.widths[:level])
        above[begin : begin + tree.widths[level]] = [tree.names[level - 1][p] for p in tree.parents(level).tolist()]
    values = {name: np.concatenate(list(levels)) for name, levels in columns.items()}
    once = np.concatenate([tree.first_here(level) for level in range(tree.depth)])
    order = sorted(np.flatnonzero(once).tolist(), key=names.__getitem__)
    step = max(1, ROWS_AT_ONCE // sizes)
    with path.open("wb") as stream:
        for begin in range(0, len(order), step):
            block = order[begin : begin + step]
            rows = np.repeat(np.arange(len(block)), sizes)
            pl.DataFrame(
                [
                    pl.Series("region", [names[place] for place in block], dtype=pl.String).gather(rows),
                    pl.Series("parent", [above[place] for place in block], dtype=pl.String).gather(rows),
                    pl.Series("size", np.tile(np.arange(first, sizes + first), len(block))),
                    *(pl.Series(name, column[block].ravel()) for name, column in values.items()),
                ]
            ).write_csv(stream, include_header=begin == 0, quote_style="necessary", null_value="")


def read_table(
    path: Path, sizes: int, columns: Sequence[str] = ("groups",), *, first: int = 1
) -> tuple[Tree, list[list[Ints]]]:
    """Regions, and for each column the numbers of every level (R_l, sizes), from a table in the form of release.csv.

    Raises:
        InputError: a file that cannot be read or is not of that form.
    """
    import polars as pl

    from privopt_hierarchical_dp.reading import read_back

    keys = dict.fromkeys(("region", "parent"), pl.String)
    table = read_back(path, {**keys, **dict.fromkeys(("size", *columns), pl.Int64)})
    height = table.height
    size = table["size"].to_numpy()
    if height == 0 or height % sizes or any(table[name].null_count() for name in ("size", *columns)):
        raise InputError([Fault(str(path), "", f"{height} rows", f"{sizes} rows with numbers for each region")])
    region = table["region"].gather(np.arange(0, height, sizes)).to_list()
    blocks = table["region"].to_numpy().reshape(-1, sizes)
    if (size.reshape(-1, sizes) != np.arange(first, sizes + first)).any() or (blocks != blocks[:, :1]).any():
        raise InputError(
            [
                Fault(
                    str(path), "", "sizes out of order", f"sizes {first} to {sizes + first - 1} for each region in turn"
                )
            ]
        )
    parent = table["parent"].gather(np.arange(0, height, sizes)).fill_null("").to_list()
    tree, place = _tree_of(region, parent, path)
    rows = [[place[name] for name in names] for names in tree.names]
    numbers = [table[name].to_numpy().reshape(-1, sizes) for name in columns]
    return tree, [[np.ascontiguousarray(values[row]) for row in rows] for values in numbers]


def _tree_of(region: list[str], parent: list[str], path: Path) -> tuple[Tree, dict[str, int]]:
    above = dict(zip(region, parent, strict=True))
    place = {name: row for row, name in enumerate(region)}
    if len(above) != len(region):
        raise InputError([Fault(str(path), "region", "a region that stands twice", "each region once")])
    inner = set(parent)
    leaves = [name for name in region if name not in inner]
    paths = []
    for leaf in leaves:
        chain = [leaf]
        while above.get(chain[-1]):
            chain.append(above[chain[-1]])
            if len(chain) > len(region):
                raise InputError([Fault(str(path), "parent", f"a circle through {leaf!r}", "a tree")])
        paths.append(tuple(reversed(chain)))
    tree = Tree.from_paths(paths, file=str(path))
    missing = [name for level in tree.names for name in level if name not in place]
    if missing or len({name for level in tree.names for name in level}) != len(region):
        found = f"parent {missing[0]!r} without rows" if missing else "regions outside the tree"
        raise InputError([Fault(str(path), "parent", found, "a tree whose regions all have rows")])
    return tree, place
