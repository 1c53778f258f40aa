"""Readers of what the experiments draw records from: road graphs, OpenStreetMap extracts, word vectors, texts."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.errors import Fault, InputError, UsageError

__all__ = ["Graph", "read_nodes", "read_road_graph", "read_streets", "read_vectors", "train_vectors"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KM_PER_METRE: Final = 1e-3
NO_STREET: Final = {"platform", "elevator", "corridor", "construction", "proposed", "steps", "crossing"}
"""Values of OpenStreetMap's ``highway`` that are left out."""


@frozen(kw_only=True, eq=False)
class Graph:
    """An undirected graph with lengths.

    Attributes:
        edges: (E, 2) nodes from 0, each pair once. lengths: (E,) km, above 0.
        count: of nodes.
        coordinates: (N, 2) as (longitude, latitude), or None where the file has none.
    """

    edges: Ints
    lengths: Floats
    count: int
    coordinates: Floats | None = None

    @classmethod
    def of(cls, arcs: Iterable[tuple[int, int, float]], count: int, coordinates: Floats | None = None) -> Graph:
        """From arcs with lengths in km: directions forgotten, the shortest of parallel arcs, loops left out."""
        best: dict[tuple[int, int], float] = {}
        for a, b, length in arcs:
            pair = (min(a, b), max(a, b))
            if a != b:
                best[pair] = min(best.get(pair, np.inf), max(length, 1e-6))
        return cls(
            edges=np.array(list(best), dtype=np.int64).reshape(-1, 2),
            lengths=np.array(list(best.values()), dtype=np.float64),
            count=count,
            coordinates=coordinates,
        )

    def paths(self, sources: Any = None) -> Floats:
        """Shortest paths from some nodes, or from all, to all; infinite where there is none."""
        from scipy.sparse import coo_array
        from scipy.sparse.csgraph import dijkstra

        table = coo_array((self.lengths, (self.edges[:, 0], self.edges[:, 1])), shape=(self.count, self.count))
        return np.asarray(dijkstra(table.tocsr(), directed=False, indices=sources))


def read_road_graph(file: Path) -> Graph:
    """Return a road graph in the 9th DIMACS Challenge's format; lengths are taken for metres.

    Raises:
        InputError: the file has no arcs.
    """
    arcs = [line.split()[1:4] for line in file.read_text().splitlines() if line.startswith("a ")]
    if not arcs:
        raise InputError([Fault(file.name, "", "no line 'a FROM TO LENGTH'", "a road graph of the DIMACS Challenge")])
    table = np.array(arcs, dtype=np.int64)
    arc_lengths = ((a - 1, b - 1, max(metres, 1) * KM_PER_METRE) for a, b, metres in table.tolist())
    return Graph.of(arc_lengths, int(table[:, :2].max()))


def read_streets(file: Path) -> Graph:
    """Streets and paths of an OpenStreetMap extract (``.osm.pbf``); nodes are points of ways, lengths haversine.

    Raises:
        UsageError: the package osmium is not installed.
        InputError: no streets.
    """
    from privopt.numbers.distances import haversine

    try:
        import osmium
    except ImportError:
        raise UsageError("OpenStreetMap extracts are read by the package osmium: install it") from None
    read: Iterable[Any] = osmium.FileProcessor(str(file), osmium.osm.NODE | osmium.osm.WAY).with_locations()
    ways = [
        [(n.ref, n.lon, n.lat) for n in node_refs.nodes if n.location.valid()]
        for node_refs in read
        if node_refs.is_way() and node_refs.tags.get("highway", "platform") not in NO_STREET
    ]
    number: dict[int, int] = {}
    places: list[tuple[float, float]] = []
    for node_refs in ways:
        for ref, lon, lat in node_refs:
            if ref not in number:
                number[ref] = len(places)
                places.append((lon, lat))
    if not places:
        raise InputError([Fault(file.name, "", "no way with a key highway", "an extract with streets")])
    points = np.array(places)
    node_pairs = [(number[a[0]], number[b[0]]) for node_refs in ways for a, b in pairwise(node_refs)]
    tails, heads = np.array(node_pairs).T
    km = haversine(points[tails, ::-1], points[heads, ::-1])
    return Graph.of(zip(tails.tolist(), heads.tolist(), km.tolist(), strict=True), len(points), points)


def read_nodes(file: Path) -> Floats:
    """(N, 2) longitude and latitude from a CSV file with columns ``lon`` and ``lat``.

    Raises:
        InputError: a column is missing, or holds no number.
    """
    with file.open(newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    try:
        return np.array([[float(row["lon"]), float(row["lat"])] for row in rows])
    except (KeyError, ValueError) as error:
        raise InputError([Fault(file.name, "", str(error), "numbers in columns lon and lat")]) from None


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
            actual = f"{len(rows[-1])} numbers"
            raise InputError([Fault(file.name, f"line {number}", actual, f"{len(rows[0])} numbers, as the first has")])
        words.append(parts[0])
    return words, np.array(rows)


def train_vectors(texts: Sequence[str], words: int, dimensions: int, window: int = 5) -> tuple[list[str], Floats]:
    """Vectors of the most frequent words: positive pointwise mutual information, then a singular value decomposition.

    (Levy and Goldberg 2014.) Vectors are scaled to length one. Commands of LaTeX are no words. The matrix is
    symmetric, so that its singular vectors are its eigenvectors: 2,000 contexts take seconds.
    """
    from scipy.linalg import eigh

    tokens: list[list[str]] = [re.findall(r"[a-z]{3,}", re.sub(r"\\[a-zA-Z]+", " ", text).lower()) for text in texts]
    counts = Counter(token for text in tokens for token in text)
    frequent_words = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0]))]
    context = {word: number for number, word in enumerate(frequent_words[: max(4 * words, 4 * dimensions)])}
    size = len(context)
    together = np.zeros((size, size))
    for text in tokens:
        ids = np.array([context.get(token, -1) for token in text])
        for step in range(1, window + 1):
            a, b = ids[:-step], ids[step:]
            are_known = (a >= 0) & (b >= 0)
            np.add.at(together, (a[are_known], b[are_known]), 1.0)
    together += together.T
    single = np.maximum(together.sum(axis=1), 1.0)
    mutual = np.log(np.maximum(together * together.sum() / np.outer(single, single), 1.0))
    values, left_vectors = eigh(mutual)
    strongest = np.argsort(-np.abs(values), kind="stable")[: min(dimensions, size - 1)]
    vectors = (left_vectors[:, strongest] * np.sqrt(np.abs(values[strongest])))[:words]
    vectors /= np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    return frequent_words[:words], np.asarray(vectors)
