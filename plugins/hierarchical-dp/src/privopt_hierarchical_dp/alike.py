"""Regions that have equal forecasts, so that a forecast for ten million regions is computed for a few hundred.

The noise on a value depends on its level alone. So the errors of two regions are equal if the trees below them have the
same shape, and their parents have equal errors too.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.tree import Tree

__all__ = ["AlikeRegions", "find_alike_regions"]


@frozen(kw_only=True, eq=False)
class AlikeRegions:
    """A small tree, each of whose regions represents all regions of a hierarchy that have equal errors.

    Attributes:
        tree: The small tree, without names.
        times: For each level, how many children of one and the same region (R_l, 1) each region represents; 1 for the
            root.
        counts: For each level, how many regions of the hierarchy (R_l,) each region represents.
    """

    tree: Tree
    times: tuple[Floats, ...]
    counts: tuple[Floats, ...]


def find_alike_regions(tree: Tree) -> AlikeRegions:
    """Return one region for all regions of a hierarchy that have equal errors, as a small tree.

    Args:
        tree: The hierarchy.
    """
    shapes = _number_shapes(tree)
    kinds = np.zeros(1, np.int64)
    starts: list[Ints] = []
    times, counts = [np.ones((1, 1))], [np.ones(1)]
    for level in range(1, tree.depth):
        # Regions are of one kind if their parents are and the trees below them have one shape.
        shape_count = int(shapes[level].max()) + 1
        keys = kinds[tree.parents(level)] * shape_count + shapes[level]
        distinct, kinds, members = np.unique(keys, return_inverse=True, return_counts=True)
        # Keys are in order, so children of a kind of parents are adjacent.
        parent_kinds = distinct // shape_count
        starts.append(np.searchsorted(parent_kinds, np.arange(len(counts[-1]) + 1)))
        times.append((members / counts[-1][parent_kinds])[:, None])
        counts.append(members.astype(np.float64))
    widths = list(map(len, counts))
    small_tree = Tree(
        columns=tuple(pl.Series([""]).new_from_index(0, width) for width in widths),
        start=tuple(starts),
        ranks=tuple(np.arange(width) for width in widths),
    )
    return AlikeRegions(tree=small_tree, times=tuple(times), counts=tuple(counts))


def _number_shapes(tree: Tree) -> list[Ints]:
    """Return a number (R_l,) for the shape of the tree below each region of each level.

    Two shapes are the same if they have the same number of children of each shape. The children's shapes are identified
    by the sum, modulo 2^64, of a random number for each of them. The probability that two of n different shapes have
    the same sum is about n^2 / 2^65, and would only make a forecast less precise.

    Args:
        tree: The hierarchy.
    """
    random = np.random.default_rng(0)
    shapes = [np.zeros(tree.widths[-1], np.int64)]
    for start in reversed(tree.start):
        numbers = random.integers(0, 2**64, int(shapes[0].max()) + 1, dtype=np.uint64)
        sums = np.add.reduceat(numbers[shapes[0]], start[:-1])
        shapes.insert(0, np.unique(sums, return_inverse=True)[1])
    return shapes
