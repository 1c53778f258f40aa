"""One published table of a release, and the sums of its counts that other claims compare."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

__all__ = ["Table", "measure", "project"]


class Table:
    """One published table.

    Attributes:
        prefix: The beginning of the names of its arrays in noisy.npz.
        file: Its file, relative to the release's folder.
        attributes: The numbers (from 0, in the problem file's order) of the attributes that it counts by; none for
            groups by size.
        cells: The values of each cell's columns.
        counts: The counts (cells) of each region.
        ends: The low and high ends of each region's cells; empty without intervals.
        noisy: The noisy values by level: a list for each region of the level, sorted by name.
        scales: The noise scale of each level, 0 if the level was not measured.
    """

    def __init__(self, prefix: str, file: str, attributes: tuple[int, ...], cells: list[tuple[str, ...]]) -> None:
        self.prefix, self.file, self.attributes, self.cells = prefix, file, attributes, cells
        self.counts: dict[str, list[int]] = {}
        self.ends: dict[str, list[list[int]]] = {}
        self.noisy: list[list[list[int]]] = []
        self.scales: list[Fraction] = []


def measure(counts: list[int], order: str) -> list[int]:
    """Return the values of a region that a method measures, from its counts by size.

    Args:
        counts: The counts of each size.
        order: What is measured, as :attr:`.counts.Counts.order` explains.
    """
    if order == "counts":
        return counts
    if order == "more":
        return [*accumulate(reversed(counts))][::-1]
    sums = [*accumulate(counts)]
    return sums[:-1] if order == "inner" else sums


def project(table: Table, region: str, shared: set[int]) -> dict[tuple[str, ...], int]:
    """Return a region's counts summed over all attributes but the shared ones, by their values.

    Args:
        table: The table.
        region: The region.
        shared: The attributes to keep.
    """
    axes = [axis for axis, attribute in enumerate(table.attributes) if attribute in shared]
    sums: dict[tuple[str, ...], int] = {}
    for cell, count in zip(table.cells, table.counts[region], strict=True):
        values = tuple(cell[axis] for axis in axes)
        sums[values] = sums.get(values, 0) + count
    return sums
