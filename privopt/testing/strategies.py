"""Hypothesis strategies of counts, scores and budgets; all of them shrink to something one can read."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

__all__ = ["count_vectors", "epsilons", "score_matrices", "sizes"]


def sizes(maximum: int) -> st.SearchStrategy[int]:
    """Draw 1 to ``maximum``, 2 first: most faults need two of a thing at least, and one is a case of its own."""
    return st.sampled_from([n for n in (2, 3, *range(4, maximum + 1)) if n <= maximum] + [1])


def epsilons(texts: Sequence[str] = ("1.0", "0.5", "2.0", "0.1", "0.3", "5.0")) -> st.SearchStrategy[str]:
    """Draw budgets as decimal texts: what is claimed is the rational of the text, 1/10 and not the nearest double."""
    return st.sampled_from(list(texts))


def count_vectors(count: int, maximum: int = 9) -> st.SearchStrategy[tuple[int, ...]]:
    """Draw people at each of ``count`` places, 0 to ``maximum``."""
    return st.lists(st.integers(0, maximum), min_size=count, max_size=count).map(tuple)


@st.composite
def score_matrices(draw: st.DrawFn, photos: int = 5, places: int = 4, impossible: bool = True) -> NDArray[np.float64]:
    """Draw log-probabilities (1 to photos, 2 to places) in quarters, with ties, and -infinity if ``impossible``."""
    shape = (draw(st.integers(1, photos)), draw(st.integers(2, places)))
    size = shape[0] * shape[1]
    quarters = st.integers(0, 12).map(lambda n: -n / 4)
    entries = st.one_of(quarters, st.just(-math.inf)) if impossible else quarters
    return np.array(draw(st.lists(entries, min_size=size, max_size=size)), dtype=np.float64).reshape(shape)
