"""A published table in a release, and the sums of its counts that several claims compare."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

__all__ = ["Table", "measure", "project"]


class Table:
    """A published table in a release.

    Attributes:
        prefix: The prefix with which the names of its arrays in noisy.npz begin.
        file: Its file, relative to the release's folder.
        attributes: The indices (from 0, in the problem file's order) of the attributes that it counts by; empty for
            groups by size.
        cells: The attribute values, or the size, that identify each cell.
        counts: The counts of each region's cells.
        ends: The low and high ends of the intervals for each region's cells; empty without intervals.
        noisy: The noisy values by level, with a list for each of the level's regions, sorted by name.
        scales: The noise scale of each level, 0 if the level was not measured.
    """

    def __init__(self, prefix: str, file: str, attributes: tuple[int, ...], cells: list[tuple[str, ...]]) -> None:
        self.prefix, self.file, self.attributes, self.cells = prefix, file, attributes, cells
        self.counts: dict[str, list[int]] = {}
        self.ends: dict[str, list[list[int]]] = {}
        self.noisy: list[list[list[int]]] = []
        self.scales: list[Fraction] = []


def measure(counts: list[int], order: str) -> list[int]:
    """Return the values that a method measures in a region, computed from the region's counts by size.

    Args:
        counts: The count for each size.
        order: The meaning of the values, as :attr:`.counts.Counts.order` explains it.
    """
    if order == "counts":
        return counts
    if order == "more":
        return [*accumulate(reversed(counts))][::-1]
    sums = [*accumulate(counts)]
    return sums[:-1] if order == "inner" else sums


def project(table: Table, region: str, shared: set[int]) -> dict[tuple[str, ...], int]:
    """Return a region's counts summed over all attributes but the shared ones, keyed by these attributes' values.

    Args:
        table: The table.
        region: The region.
        shared: The indices of the attributes to keep.
    """
    axes = [axis for axis, attribute in enumerate(table.attributes) if attribute in shared]
    sums: dict[tuple[str, ...], int] = {}
    for cell, count in zip(table.cells, table.counts[region], strict=True):
        values = tuple(cell[axis] for axis in axes)
        sums[values] = sums.get(values, 0) + count
    return sums
