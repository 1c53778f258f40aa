"""The four kinds of data of the paper (section 4.1) as instances: grid maps, road nodes, words, Gaussian points."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.errors import Fault, InputError
from privopt.optimal.instance import Instance

__all__ = ["gaussian", "grid", "instance_of", "read_vectors", "roads", "train_vectors"]

Floats = NDArray[np.float64]

KM_PER_METRE: Final = 1e-3
DEGREE: Final = 8
"""Mean number of neighbours that the radius of points without a natural one is set for."""


def instance_of(
    distances: Floats, epsilon: float, within: float, cost: Floats, coordinates: Floats | None = None
) -> Instance:
    """An instance with a uniform prior: required pairs are those within a distance, implied ones left out."""
    from privopt.problem.pairs import reduce_pairs

    i, j = np.nonzero(np.triu(distances <= within, 1))
    pairs, lengths = np.column_stack([i, j]).astype(np.int64), distances[i, j]
    kept = reduce_pairs(pairs, lengths)
    return Instance(
        cost=cost / len(distances), pairs=pairs[kept], distances=lengths[kept], epsilon=epsilon, coordinates=coordinates
    )


def _table(points: Floats) -> Floats:
    from scipy.spatial.distance import cdist

    return np.asarray(cdist(points, points), dtype=np.float64)


def radius_for(distances: Floats, degree: float = DEGREE) -> float:
    """The least distance within which records have ``degree`` neighbours in the mean."""
    every = np.sort(distances[np.triu_indices(len(distances), 1)])
    return float(every[min(len(every) - 1, int(degree * len(distances) / 2))])


def grid(rows: int, cols: int, epsilon: float, outputs: Sequence[int] | None = None) -> Instance:
    """A grid of 1 km cells, pairs within 2 km, loss the distance."""
    places = np.array([(r, c) for r in range(rows) for c in range(cols)], dtype=np.float64)
    table = _table(places)
    return instance_of(table, epsilon, 2.0, table if outputs is None else table[:, outputs], places)


def gaussian(records: int, epsilon: float, seed: int = 0, dimensions: int = 3) -> Instance:
    """Points of a standard normal distribution; the radius is set for a mean degree."""
    points = np.random.default_rng(seed).normal(size=(records, dimensions))
    table = _table(points)
    return instance_of(table, epsilon, radius_for(table), table, points)


def roads(file: Path, records: int, epsilon: float, within: float = 2.0) -> Instance:
    """The nodes nearest to the centre of a road graph in the 9th DIMACS Challenge's format, symmetrised.

    Distances are shortest paths over the whole graph, lengths taken for metres; the loss is the distance.

    Raises:
        InputError: the file has no arcs.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    arcs = [line.split()[1:4] for line in file.read_text().splitlines() if line.startswith("a ")]
    if not arcs:
        raise InputError([Fault(file.name, "", "no line 'a FROM TO LENGTH'", "a road graph of the DIMACS Challenge")])
    tail, head, metres = np.array(arcs, dtype=np.int64).T
    n = int(max(tail.max(), head.max()))
    best: dict[tuple[int, int], float] = {}
    for a, b, length in zip((tail - 1).tolist(), (head - 1).tolist(), metres.tolist(), strict=True):
        ends = (min(a, b), max(a, b))
        best[ends] = min(best.get(ends, np.inf), max(length, 1) * KM_PER_METRE)
    i, j = np.array(list(best)).T
    graph = coo_array((np.array(list(best.values())), (i, j)), shape=(n, n)).tocsr()
    some = np.random.default_rng(0).choice(n, min(n, 64), replace=False)
    reach = dijkstra(graph, directed=False, indices=some)
    centre = int(np.where(np.isfinite(reach), reach, 0.0).max(axis=0).argmin())
    near = np.sort(np.argsort(dijkstra(graph, directed=False, indices=centre), kind="stable")[:records])
    table = dijkstra(graph, directed=False, indices=near)[:, near]
    table = np.minimum(table, table.T)
    return instance_of(table, epsilon, within, table)


def read_vectors(file: Path) -> tuple[list[str], Floats]:
    """Word vectors in the text form of word2vec (a first line with counts) or GloVe (without).

    Raises:
        InputError: lines of different lengths, or what is no number.
    """
    words, rows = [], []
    for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
        parts = line.rstrip().split(" ")
        if number == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
            continue
        try:
            rows.append([float(part) for part in parts[1:]])
        except ValueError as error:
            raise InputError([Fault(file.name, f"line {number}", str(error), "a word and numbers")]) from None
        if len(rows[-1]) != len(rows[0]):
            found = f"{len(rows[-1])} numbers"
            raise InputError([Fault(file.name, f"line {number}", found, f"{len(rows[0])}, as the first has")])
        words.append(parts[0])
    return words, np.array(rows)


def train_vectors(texts: Sequence[str], words: int, dimensions: int, window: int = 5) -> tuple[list[str], Floats]:
    """Vectors of the most frequent words: positive pointwise mutual information, then a singular value decomposition.

    (Levy and Goldberg 2014.) Vectors are scaled to length one.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.linalg import svds

    tokens: list[list[str]] = [re.findall(r"[a-z]{3,}", text.lower()) for text in texts]
    counts = Counter(token for text in tokens for token in text)
    chosen = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    context = {word: number for number, word in enumerate(chosen[: max(4 * words, 4 * dimensions)])}
    pairs: Counter[tuple[int, int]] = Counter()
    for text in tokens:
        ids = [context.get(token, -1) for token in text]
        for place, a in enumerate(ids):
            for b in ids[place + 1 : place + 1 + window]:
                if a >= 0 and b >= 0:
                    pairs[a, b] += 1
                    pairs[b, a] += 1
    i, j = np.array(list(pairs)).T
    together = np.array(list(pairs.values()), dtype=np.float64)
    total = together.sum()
    single = np.bincount(i, together, minlength=len(context))
    mutual = np.maximum(np.log(together * total / (single[i] * single[j])), 0.0)
    matrix: Any = coo_array((mutual, (i, j)), shape=(len(context), len(context))).tocsr()
    left, values, _ = svds(matrix, k=min(dimensions, len(context) - 1), v0=np.ones(len(context)))
    vectors = (left * np.sqrt(values))[:words]
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return chosen[:words], np.asarray(vectors)


def words(vectors: Floats, epsilon: float) -> Instance:
    """Words at the Euclidean distances of their vectors; the radius is set for a mean degree."""
    table = _table(vectors)
    return instance_of(table, epsilon, radius_for(table), table, vectors)
