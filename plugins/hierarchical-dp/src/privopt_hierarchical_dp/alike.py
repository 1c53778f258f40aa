"""Merging of regions with equal expected errors, which lets a forecast for ten million regions evaluate only hundreds.

The noise on a value depends only on its level. Two regions therefore have equal expected errors if the subtrees below
them have the same shape and their parents have equal expected errors.
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
    """A reduced tree, in which each region represents all regions of the full tree that have the same expected errors.

    Attributes:
        tree: The reduced tree, whose regions have empty names.
        times: For each level, a (regions, 1) array with the number of siblings that each region represents. Siblings
            are regions with the same parent in the full tree. The number is 1 for the root.
        counts: For each level, a (regions,) array with the number of regions of the full tree that each region
            represents.
    """

    tree: Tree
    times: tuple[Floats, ...]
    counts: tuple[Floats, ...]


def find_alike_regions(tree: Tree) -> AlikeRegions:
    """Merge all regions that have the same expected errors, and return the reduced tree.

    Args:
        tree: The full region tree.
    """
    shapes = _number_shapes(tree)
    kinds = np.zeros(1, np.int64)
    starts: list[Ints] = []
    times, counts = [np.ones((1, 1))], [np.ones(1)]
    for level in range(1, tree.depth):
        # Two regions are of the same kind if their parents are and if their subtrees have the same shape.
        shape_count = int(shapes[level].max()) + 1
        keys = kinds[tree.parents(level)] * shape_count + shapes[level]
        distinct, kinds, members = np.unique(keys, return_inverse=True, return_counts=True)
        # Keys are sorted by the parent's kind, so the children of each kind of parent are adjacent.
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
    """Assign ids to regions so that regions at the same level share an id if their subtrees have the same shape.

    Two subtrees have the same shape if their roots have the same number of children of each shape. Each shape is
    assigned a random number, and a region's shape is identified by the sum of its children's numbers modulo 2^64. The
    probability that two of n different shapes have the same sum is about n^2 / 2^65. Such a collision would only make a
    forecast less accurate.

    Args:
        tree: The region tree.

    Returns:
        For each level, a (regions,) array with the ids.
    """
    random = np.random.default_rng(0)
    shapes = [np.zeros(tree.widths[-1], np.int64)]
    for start in reversed(tree.start):
        numbers = random.integers(0, 2**64, int(shapes[0].max()) + 1, dtype=np.uint64)
        sums = np.add.reduceat(numbers[shapes[0]], start[:-1])
        shapes.insert(0, np.unique(sums, return_inverse=True)[1])
    return shapes
