"""A published table of a release, and sums of its counts that several checks need."""

from __future__ import annotations

from fractions import Fraction
from itertools import accumulate

__all__ = ["Table", "measure", "project"]


class Table:
    """A published table of a release, with its counts, intervals and noisy values.

    Attributes:
        prefix: The prefix of the names of the table's arrays in noisy.npz.
        file: The table's file, relative to the release folder.
        attributes: The indices of the attributes that the table counts by, in the order of the problem file. Empty for
            groups by size.
        cells: The attribute values or the size that identify each cell.
        counts: The counts of the cells, keyed by region.
        ends: The lower and upper ends of the cells' intervals, keyed by region. Empty if there are no intervals.
        noisy: For each level, one list of noisy values per region, with regions sorted by name.
        scales: The noise scale at each level, which is 0 if the level was not measured.
    """

    def __init__(self, prefix: str, file: str, attributes: tuple[int, ...], cells: list[tuple[str, ...]]) -> None:
        self.prefix, self.file, self.attributes, self.cells = prefix, file, attributes, cells
        self.counts: dict[str, list[int]] = {}
        self.ends: dict[str, list[list[int]]] = {}
        self.noisy: list[list[list[int]]] = []
        self.scales: list[Fraction] = []


def measure(counts: list[int], order: str) -> list[int]:
    """Return the values that a method measures in a region, given the region's counts by size.

    Args:
        counts: The count for each size.
        order: The meaning of the measured values, as documented in :attr:`.counts.Counts.order`.
    """
    if order == "counts":
        return counts
    if order == "more":
        return [*accumulate(reversed(counts))][::-1]
    sums = [*accumulate(counts)]
    return sums[:-1] if order == "inner" else sums


def project(table: Table, region: str, shared: set[int]) -> dict[tuple[str, ...], int]:
    """Return a region's counts by the values of the shared attributes, summed over all other attributes.

    Args:
        table: The table.
        region: The name of the region.
        shared: The indices of the attributes to keep.
    """
    axes = [axis for axis, attribute in enumerate(table.attributes) if attribute in shared]
    sums: dict[tuple[str, ...], int] = {}
    for cell, count in zip(table.cells, table.counts[region], strict=True):
        values = tuple(cell[axis] for axis in axes)
        sums[values] = sums.get(values, 0) + count
    return sums
