"""The release: counts of every region and size, and the noisy values to which they were fitted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt.interfaces import Release
from privopt_hierarchical_dp.instance import PublishedHierarchy
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.noise_distributions import GEOMETRIC, NoiseDistribution, Scale
from privopt_hierarchical_dp.region_tables import Cells, read_levels, read_rows, write_arrays, write_rows
from privopt_hierarchical_dp.tree import Tree, past_sums

__all__ = ["ARTEFACT", "INTERVALS", "NOISY", "HierarchyRelease", "errors_of", "read_table", "violations"]

ARTEFACT: Final = "release.csv"
NOISY: Final = "noisy.npz"
INTERVALS: Final = "intervals.csv"
LEVELS: Final = "level_{}"
TOTALS: Final = "totals_{}"


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
        scales: of the noise on each level's values, exact, as it was drawn; variances of Gaussian noise; None of a
            level that was not measured, whose noisy values are the sums of the level below.
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
    scales: tuple[Scale, ...] = ()
    law: NoiseDistribution = GEOMETRIC
    bounds: list[tuple[Ints, Ints]] | None = field(default=None, repr=False)
    truth: list[Ints] | None = field(default=None, repr=False)
    first: int = 1

    def write(self, folder: Path) -> None:
        """Write release.csv, intervals.csv, and noisy.npz, whose rows are the level's regions sorted by name."""
        write_rows(folder / ARTEFACT, self.tree, self._cells, {"groups": self.counts})
        if self.bounds is not None:
            low, high = (list(side) for side in zip(*self.bounds, strict=True))
            write_rows(folder / INTERVALS, self.tree, self._cells, {"low": low, "high": high})
        arrays = {LEVELS: self.noisy, TOTALS: self.totals}
        write_arrays(folder / NOISY, self.tree, arrays, {self.law.stated: self.scales})

    @property
    def _cells(self) -> Cells:
        return _sizes(self.counts[0].shape[1], self.first)

    def write_private(self, folder: Path) -> None:
        """Write the true counts, in the form of the release."""
        if self.truth is not None:
            write_rows(folder / "counts.csv", self.tree, self._cells, {"groups": self.truth})

    @classmethod
    def read(cls, folder: Path, problem: PublishedHierarchy) -> HierarchyRelease:
        """Read release.csv, noisy.npz and, where there is one, intervals.csv back.

        Raises:
            InputError: a file is missing or malformed, regions form no tree, a size is missing.
        """
        hierarchy, law = problem.declared.hierarchy, problem.declared.privacy.law
        sizes, first = hierarchy.classes, hierarchy.first_size
        tree, (counts,) = read_table(folder / ARTEFACT, sizes, first=first)
        bounds = None
        if (folder / INTERVALS).exists():
            again, (low, high) = read_table(folder / INTERVALS, sizes, ("low", "high"), first=first)
            if again.names != tree.names:
                raise InputError([Fault(str(folder / INTERVALS), "region", "other regions", f"those of {ARTEFACT}")])
            bounds = list(zip(low, high, strict=True))
        arrays, scales = read_levels(
            folder / NOISY, tree, {LEVELS: (None,)}, TOTALS, {law.stated: tree.depth}, most=sizes
        )
        if len(arrays[TOTALS]) not in ((1, tree.depth) if problem.declared.relation.exact else (0,)):
            found, wanted = f"totals of {len(arrays[TOTALS])} levels", "those that privacy.relation has"
            raise InputError([Fault(str(folder / NOISY), "totals", found, wanted)])
        return cls(
            tree=tree,
            counts=counts,
            noisy=arrays[LEVELS],
            totals=arrays[TOTALS],
            scales=scales[law.stated],
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


def _sizes(count: int, first: int) -> Cells:
    return {"size": range(first, count + first)}


def read_table(
    path: Path, sizes: int, columns: Sequence[str] = ("groups",), *, first: int = 1
) -> tuple[Tree, list[list[Ints]]]:
    """Read regions, and for each column the numbers of every level (R_l, sizes), from a table like release.csv.

    Raises:
        InputError: a file that cannot be read or is not of that form.
    """
    return read_rows(path, _sizes(sizes, first), columns)
