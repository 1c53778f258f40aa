"""Partitions of the records (paper, section 3.4 and supplement C), and one with few boundary records."""

from __future__ import annotations

import warnings
from typing import Final

import numpy as np
from attrs import frozen
from scipy.sparse import csr_array

from privopt.arrays import Floats, Ints
from privopt.errors import UnknownNameError
from privopt.numbers.graphs import edge_matrix
from privopt_bd_mdp.problem import PARTITIONS

__all__ = ["Records", "partition"]

PARTITION_SEED: Final = 0
"""A fixed seed, so that the partition is a function of the problem."""


@frozen(kw_only=True, eq=False)
class Records:
    """The input of the partitioners: N records and E edges of the mDP graph.

    Attributes:
        edges: (E, 2) The neighbouring records.
        lengths: (E,) Their distances.
        coordinates: (N, dim) The records' coordinates; None if they have none.
        count: N.
    """

    edges: Ints
    lengths: Floats
    count: int
    coordinates: Floats | None = None

    @property
    def adjacency(self) -> csr_array:
        """The (N, N) adjacency matrix."""
        return edge_matrix(self.count, self.edges, both=True)

    def distance_vectors(self) -> Floats:
        """Return the (N, N) lengths of shortest paths from each record to all others (Equation (18))."""
        from scipy.sparse.csgraph import dijkstra

        table = np.asarray(dijkstra(edge_matrix(self.count, self.edges, self.lengths), directed=False))
        is_reachable = np.isfinite(table)
        return np.where(is_reachable, table, 2.0 * float(table[is_reachable].max(initial=1.0)))


def partition(kind: str, records: Records, subsets: int) -> Ints:
    """Partition the records into subsets.

    Args:
        kind: One of :data:`privopt_bd_mdp.problem.PARTITIONS`.
        records: The records and their graph.
        subsets: The number of subsets, M; at most one for each record is used.

    Returns:
        (N,) labels from 0. Some labels may be missing, because a partitioner may leave a subset empty.

    Raises:
        UnknownNameError: The kind is unknown.
    """
    count = min(subsets, records.count)
    if count <= 1:
        return np.zeros(records.count, dtype=np.int64)
    if kind == "records" and records.coordinates is not None:
        return _k_means(records.coordinates, count)
    if kind in ("distance-vector", "records"):
        return _k_means(records.distance_vectors(), count)
    if kind == "adjacency":
        return _k_means(records.adjacency.toarray(), count)
    if kind == "spectral":
        return _cluster_spectrally(records, count)
    if kind == "minimum-boundary":
        return _partition_by_metis(records, count)
    raise UnknownNameError("partition", kind, PARTITIONS)


def _k_means(rows: Floats, count: int) -> Ints:
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # fewer distinct rows than subsets: fewer subsets
        labels = KMeans(n_clusters=count, n_init=4, random_state=PARTITION_SEED).fit_predict(rows)
    return np.asarray(labels, dtype=np.int64)


def _cluster_spectrally(records: Records, count: int) -> Ints:
    """Cluster the rows of the first eigenvectors of the Laplacian L = D - W by k-means (Equations (43) to (46))."""
    from scipy.linalg import eigh

    adjacency = records.adjacency.toarray()
    laplacian = np.diag(adjacency.sum(axis=1)) - adjacency
    _, vectors = eigh(laplacian, subset_by_index=(0, count - 1))
    # Eigenvectors have no sign; it is fixed by the largest entry, so that the partition is reproducible.
    largest = np.abs(vectors).argmax(axis=0)
    return _k_means(vectors * np.sign(vectors[largest, np.arange(count)]), count)


def _partition_by_metis(records: Records, count: int) -> Ints:
    """Partition by METIS into parts of similar size with a small boundary ("communication volume").

    The sizes of parts may differ by a fifth. With equal sizes METIS leaves nearly twice the boundary on a grid.
    """
    import pymetis

    if not len(records.edges):
        return np.arange(records.count, dtype=np.int64) % count
    matrix = records.adjacency
    neighbours = [matrix.indices[matrix.indptr[n] : matrix.indptr[n + 1]] for n in range(records.count)]
    options = pymetis.Options(objtype=1, ufactor=200, ncuts=8, niter=30, seed=PARTITION_SEED)
    _, labels = pymetis.part_graph(count, adjacency=neighbours, recursive=False, options=options)
    return np.asarray(labels, dtype=np.int64)
