"""Public bounds on the number of groups or individuals in each region, such as its number of dwellings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final

import numpy as np
import polars as pl
from attrs import field, frozen

from privopt.arrays import Ints, read_only
from privopt.declare import File
from privopt.declare.tables import Column, read_table, table_of
from privopt.errors import Fault, InfeasibleError, InputError
from privopt_hierarchical_dp.level_tables import region_faults
from privopt_hierarchical_dp.tree import Tree

__all__ = ["UNBOUNDED", "Limits", "check_limits", "nearest_within", "read_limits"]

UNBOUNDED: Final = 1 << 50
"""The upper bound on a region's total if none is given. A file of counts must contain fewer groups than this."""


SHOWN_VIOLATIONS: Final = 20
"""The maximum number of regions listed in an error message about violated bounds."""


def _to_levels(arrays: Iterable[Ints]) -> tuple[Ints, ...]:
    """Return read-only int64 copies of the arrays, so that bounds cannot be changed."""
    return tuple(read_only(np.array(array, dtype=np.int64)) for array in arrays)


@frozen(kw_only=True, eq=False)
class Limits:
    """Public bounds on the number of groups or individuals in every region.

    A bound is tightened if the bounds on the region's children add up to a stricter one.

    Attributes:
        tree: The region tree.
        lower: For each level, a (regions,) array with the smallest allowed totals.
        upper: For each level, a (regions,) array with the largest allowed totals.
    """

    tree: Tree
    lower: tuple[Ints, ...] = field(converter=_to_levels)
    upper: tuple[Ints, ...] = field(converter=_to_levels)

    @property
    def root(self) -> tuple[int, int]:
        """The lower and upper bounds on the total of the whole hierarchy."""
        return int(self.lower[0][0]), int(self.upper[0][0])

    def with_exact(self, known: Sequence[Ints]) -> Limits:
        """Return a copy in which the bounds for the top levels are replaced with exact totals.

        Args:
            known: For each of the top levels, a (regions,) array with the exact totals, which must satisfy the bounds.
        """
        return Limits(
            tree=self.tree,
            lower=[*known, *self.lower[len(known) :]],
            upper=[*known, *self.upper[len(known) :]],
        )

    def find_violations(self, totals: Sequence[Ints]) -> list[tuple[str, int, str]]:
        """Describe the regions whose totals are out of bounds, for use in error messages.

        Args:
            totals: For each level from the root down, a (regions,) array with the totals. The lowest levels may be
                missing.

        Returns:
            For each violation, a tuple of a description of the region, its total, and a description of the bounds.
        """
        return [
            (f"region {region!r}", number, f"from {lower} to {upper}")
            for _, region, number, lower, upper in self.list_violations(totals)
        ]

    def list_violations(self, totals: Sequence[Ints]) -> list[tuple[int, str, int, int, int]]:
        """List the regions whose totals are out of bounds, as tuples (level, name, total, lower bound, upper bound).

        Args:
            totals: For each level from the root down, a (regions,) array with the totals. The lowest levels may be
                missing.
        """
        return [
            (level, self.tree.name_of(level, index), int(numbers[index]), int(lower[index]), int(upper[index]))
            for level, (numbers, lower, upper) in enumerate(zip(totals, self.lower, self.upper, strict=False))
            for index in np.flatnonzero((numbers < lower) | (numbers > upper)).tolist()
        ]


def read_limits(source: File | None, tree: Tree) -> Limits | None:
    """Read the bounds from ``hierarchy.bounds``, or return None if the problem has no bounds.

    Args:
        source: The table of bounds, or None if there is none.
        tree: The region tree.

    Raises:
        InputError: A region is unknown or listed twice, or a cell is not a number.
        InfeasibleError: A region's bounds contradict those of its children.
    """
    if source is None:
        return None
    # Regions without given bounds can have any total from 0 to UNBOUNDED.
    lower_bounds, upper_bounds = ([np.full(width, value) for width in tree.widths] for value in (0, UNBOUNDED))
    levels, places, region_lower, region_upper = _read_bounds(source, tree)
    for level in range(tree.depth):
        is_here = levels == level
        lower_bounds[level][places[is_here]] = region_lower[is_here]
        upper_bounds[level][places[is_here]] = region_upper[is_here]
    # From the leaves up, each region's bounds are tightened by the sums of its children's bounds.
    for level, start in reversed(list(enumerate(tree.start))):
        child_lower, child_upper = (_sum_children(bound[level + 1], start) for bound in (lower_bounds, upper_bounds))
        clashing = np.flatnonzero((lower_bounds[level] > child_upper) | (child_lower > upper_bounds[level])).tolist()
        if clashing:
            first_clash = clashing[0]
            own_bounds, child_bounds = (
                _in_words(lower_bounds[level][first_clash], upper_bounds[level][first_clash]),
                _in_words(child_lower[first_clash], child_upper[first_clash]),
            )
            region = tree.name_of(level, first_clash)
            raise InfeasibleError(
                f"{source.name}: region {region!r} has {own_bounds}, the regions in it {child_bounds} together"
            )
        lower_bounds[level], upper_bounds[level] = (
            np.maximum(lower_bounds[level], child_lower),
            np.minimum(upper_bounds[level], child_upper),
        )
    return Limits(tree=tree, lower=lower_bounds, upper=upper_bounds)


def _read_bounds(source: File, tree: Tree) -> tuple[Ints, Ints, Ints, Ints]:
    """Read a table with the columns ``region``, ``at_least`` and ``at_most``, in which an empty cell means no bound.

    Args:
        source: The table of bounds.
        tree: The region tree.

    Returns:
        Four (rows,) arrays: the level of each row's region, its position within this level, and its lower and upper
        bounds.

    Raises:
        InputError: A column is missing, a region is unknown or listed twice, a cell is not a number, ``at_least``
            exceeds ``at_most``, or there are no rows.
    """
    # Empty cells are read as bounds that every total satisfies.
    header, blanks = table_of(source).columns, {"at_least": 0, "at_most": UNBOUNDED}
    if not {"region"} < set(header) <= {"region", *blanks}:
        expectation = "columns region, and at_least or at_most or both (bounds on groups of all sizes together)"
        raise InputError([Fault(source.name, "header", ", ".join(header), expectation)])
    columns = [Column(name="region", kind="id")]
    for name, blank in blanks.items():
        columns.append(Column(name=name, kind="count", least=0.0, most=UNBOUNDED, optional=True, blank=blank))
    table = read_table(source, columns)
    regions = table["region"]
    lows, highs = (np.asarray(table.get(name, np.full(len(regions), blank))) for name, blank in blanks.items())
    levels, places = tree.find_regions(pl.Series(regions, dtype=pl.String))
    faults = region_faults(source.name, regions.tolist(), places >= 0)
    for row in np.flatnonzero(lows > highs).tolist():
        # Row 1 is the header, so the first row of data is row 2.
        faults.add(source.name, f"row {row + 2}, column at_most", "a smaller number", "at_least of that row or more")
    faults.check()
    return levels, places, lows, highs


def _sum_children(bounds: Ints, start: Ints) -> Ints:
    """Return the sum of the bounds on each region's children, capped at `UNBOUNDED` + 1.

    Sums are computed in double precision, because int64 sums could overflow.

    Args:
        bounds: (children,) The bounds at the level below.
        start: The index of each region's first child, followed by the total number of children.
    """
    return np.minimum(np.add.reduceat(bounds.astype(np.float64), start[:-1], axis=0), UNBOUNDED + 1).astype(np.int64)


def _in_words(lower: int, upper: int) -> str:
    """Describe bounds in words, omitting the upper bound if it is `UNBOUNDED` or more."""
    return f"at least {lower}" + ("" if upper >= UNBOUNDED else f" and at most {upper}")


def check_limits(limits: Limits, totals: Sequence[Ints], name: str, noun: str, published_levels: int = 0) -> None:
    """Check that totals satisfy the bounds.

    This may only be called for totals that are the same in all neighbouring inputs. For any other totals, the error
    itself would reveal something about an individual.

    Args:
        limits: The bounds.
        totals: For each level from the root down, a (regions,) array with the totals. The lowest levels may be missing.
        name: The name of the file that the totals were read from, used in error messages.
        noun: The plural noun for what is counted, such as ``groups``.
        published_levels: The number of levels, from the root down, for which every release publishes the totals. Error
            messages may quote only these totals.

    Raises:
        InfeasibleError: Totals are out of bounds. The message names the regions and, at published levels, says how far
            out of bounds they are.
    """
    lines = []
    for level, region, number, lower, upper in limits.list_violations(totals):
        expectation = f"expected {_in_words(lower, upper)}, as hierarchy.bounds has it"
        # Totals on other levels may be secret, so they are not quoted.
        actual = f"got another number of {noun}"
        if level < published_levels:
            actual = f"got exactly {number} {noun}, which is off by {max(lower - number, number - upper)}"
        lines.append(f"{name}: region {region!r}: {expectation}, {actual}")
    if lines:
        shown_lines = lines[:SHOWN_VIOLATIONS]
        if len(lines) > len(shown_lines):
            shown_lines.append(f"... and {len(lines) - len(shown_lines)} more")
        raise InfeasibleError("\n".join(shown_lines))


def nearest_within(totals: Sequence[Ints], limits: Limits) -> list[Ints]:
    """Return adjusted totals that satisfy the bounds and add up over the tree.

    The root's total is clipped to its bounds. Then, from the root down, the totals of each region's children are
    shifted by a common amount and clipped to their bounds, so that they add up to the region's new total. Any units
    left over from rounding go to the first children that can take them. For each set of siblings, no other integers
    within the bounds and with the same sum have a smaller squared distance from the given totals.

    Args:
        totals: For each level, a (regions,) array with the totals.
        limits: The bounds on the totals.

    Returns:
        For each level, a (regions,) array with the new totals.
    """
    fitted = [np.clip(totals[0], limits.lower[0], limits.upper[0])]
    for level, start in enumerate(limits.tree.start, start=1):
        children, lower, upper = totals[level].copy(), limits.lower[level], limits.upper[level]
        # Children that satisfy their bounds and add up to their parent are left unchanged.
        is_consistent = np.add.reduceat(children, start[:-1]) == fitted[-1]
        is_consistent &= np.logical_and.reduceat((children >= lower) & (children <= upper), start[:-1])
        for parent, (begin, end) in enumerate(pairwise(start.tolist())):
            if not is_consistent[parent]:
                siblings = slice(begin, end)
                children[siblings] = _shift_into_bounds(
                    children[siblings], lower[siblings], upper[siblings], int(fitted[-1][parent])
                )
        fitted.append(children)
    return fitted


def _shift_into_bounds(given: Ints, lower: Ints, upper: Ints, total: int) -> Ints:
    """Return the integers nearest to ``given`` that lie within bounds and add up to ``total``.

    The same shift, which is found by bisection, is added to all of the given integers before they are clipped to their
    bounds.

    Args:
        given: (children,) The given integers.
        lower: (children,) The lower bounds.
        upper: (children,) The upper bounds.
        total: The required sum, which must lie between the sum of the lower bounds and the sum of the upper bounds,
            inclusive.
    """
    min_shift, max_shift = int((lower - given).min()) - 1, int((upper - given).max()) + 1
    # The sum is at least the total at max_shift. At min_shift it is less than the total, or all integers are at their
    # lower bounds.
    while max_shift - min_shift > 1:
        middle = (min_shift + max_shift) // 2
        reached = np.clip(given + middle, lower, upper).sum(dtype=np.float64)  # sums below 2^53 are exact
        min_shift, max_shift = (min_shift, middle) if reached >= total else (middle, max_shift)
    shifted, shifted_less = np.clip(given + max_shift, lower, upper), np.clip(given + min_shift, lower, upper)
    # Going from min_shift to max_shift may raise more children than needed, so the last ones raised are lowered again.
    is_rounded_up = shifted > shifted_less
    later_count = np.cumsum(is_rounded_up[::-1])[::-1]
    return np.asarray(shifted - (is_rounded_up & (later_count <= shifted.sum() - total)))
