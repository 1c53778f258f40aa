"""Hypothesis strategies for what privacy mechanisms work on; all of them shrink to something one can read.

===================  ==========================================================================
`metric_spaces`      finite metric spaces: grids, points, paths, cliques, clusters, twins, islands
`priors`             probabilities, zeros and point masses among them
`costs`              loss matrices of small whole numbers
`count_vectors`      people at each place, zeros among them
`hierarchies`        trees of regions with groups by size in the leaves
`score_matrices`     log-probabilities, ties and minus infinity among them
`epsilons`           budgets as decimal texts, exact
===================  ==========================================================================
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from attrs import field, frozen
from hypothesis import strategies as st
from numpy.typing import NDArray

__all__ = ["Hierarchy", "count_vectors", "epsilons", "hierarchies", "score_matrices", "sizes"]


def sizes(most: int) -> st.SearchStrategy[int]:
    """1 to ``most``, 2 first: two of a thing are the least that most faults need, and one is a case of its own."""
    return st.sampled_from([n for n in (2, 3, *range(4, most + 1)) if n <= most] + [1])


def epsilons(texts: Sequence[str] = ("1.0", "0.5", "2.0", "0.1", "0.3", "5.0")) -> st.SearchStrategy[str]:
    """Budgets as decimal texts: what is claimed is the rational of the text, 1/10 and not the double nearest to it."""
    return st.sampled_from(list(texts))


def count_vectors(count: int, most: int = 9) -> st.SearchStrategy[tuple[int, ...]]:
    """People at each of ``count`` places, 0 to ``most``."""
    return st.lists(st.integers(0, most), min_size=count, max_size=count).map(tuple)


@frozen(kw_only=True, eq=False)
class Hierarchy:
    """A tree of regions whose leaves count groups by size.

    Attributes:
        leaves: path of names of each leaf, from the root's name to its own; all of one length L.
        groups: (leaves, N) number of groups of size 1 to N (N means "N or more") in each leaf.
    """

    leaves: tuple[tuple[str, ...], ...]
    groups: NDArray[np.int64] = field()

    @property
    def levels(self) -> int:
        """L."""
        return len(self.leaves[0])

    @property
    def sizes(self) -> int:
        """N."""
        return int(self.groups.shape[1])

    def table(self) -> tuple[list[str], list[list[Any]]]:
        """Header and rows: level_1, ..., level_L, size, groups; a row for each leaf and size."""
        header = [f"level_{n + 1}" for n in range(self.levels)] + ["size", "groups"]
        rows = [
            [*path, size + 1, int(self.groups[leaf, size])]
            for leaf, path in enumerate(self.leaves)
            for size in range(self.sizes)
        ]
        return header, rows


@st.composite
def hierarchies(draw: st.DrawFn, levels: int = 3, children: int = 3, sizes: int = 4, most: int = 5) -> Hierarchy:
    """Trees of at most ``levels`` levels and ``children`` children a node, sizes to ``sizes``, counts to ``most``.

    Shrinks to one region of one level, without groups.
    """
    depth = draw(st.integers(1, levels))
    paths: list[tuple[str, ...]] = [("R",)]
    for _ in range(depth - 1):
        paths = [(*path, f"{path[-1]}{'abcdefgh'[n]}") for path in paths for n in range(draw(st.integers(1, children)))]
    width = draw(st.integers(2, max(2, sizes)))
    flat = draw(st.lists(st.integers(0, most), min_size=len(paths) * width, max_size=len(paths) * width))
    return Hierarchy(leaves=tuple(paths), groups=np.array(flat, dtype=np.int64).reshape(len(paths), width))


@st.composite
def score_matrices(draw: st.DrawFn, photos: int = 5, places: int = 4, impossible: bool = True) -> NDArray[np.float64]:
    """(1 to photos, 2 to places) log-probabilities in quarters, with ties, and minus infinity where ``impossible``."""
    shape = (draw(st.integers(1, photos)), draw(st.integers(2, places)))
    size = shape[0] * shape[1]
    quarters = st.integers(0, 12).map(lambda n: -n / 4)
    entries = st.one_of(quarters, st.just(-math.inf)) if impossible else quarters
    return np.array(draw(st.lists(entries, min_size=size, max_size=size)), dtype=np.float64).reshape(shape)
