"""The paper's partitioners (section 3.4 and supplement C), and one that yields few boundary records."""

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
"""A fixed seed, so that the partition depends only on the problem."""


@frozen(kw_only=True, eq=False)
class Records:
    """The partitioners' input: N records and their graph, whose E edges join records that constrain each other.

    Attributes:
        edges: (E, 2) The pairs of neighbouring records.
        lengths: (E,) The distance between the records of each pair, in the problem's unit.
        coordinates: (N, dim) The records' coordinates; None if the records have none.
        count: The number N of records.
    """

    edges: Ints
    lengths: Floats
    count: int
    coordinates: Floats | None = None

    @property
    def adjacency(self) -> csr_array:
        """The symmetric (N, N) adjacency matrix: 1 for each edge in both directions, and otherwise 0."""
        return edge_matrix(self.count, self.edges, both=True)

    def distance_vectors(self) -> Floats:
        """Return the (N, N) shortest-path distances from each record to all others (Equation (18))."""
        from scipy.sparse.csgraph import dijkstra

        table = np.asarray(dijkstra(edge_matrix(self.count, self.edges, self.lengths), directed=False))
        is_reachable = np.isfinite(table)
        # k-means needs finite numbers, so unreachable records are placed at twice the greatest finite distance.
        return np.where(is_reachable, table, 2.0 * float(table[is_reachable].max(initial=1.0)))


def partition(kind: str, records: Records, subsets: int) -> Ints:
    """Partition the records into subsets.

    Args:
        kind: One of :data:`privopt_bd_mdp.problem.PARTITIONS`.
        records: The records and their graph.
        subsets: The number of subsets, M. It is reduced to the number of records if it is larger.

    Returns:
        (N,) labels from 0. Some labels may be missing, because a partitioner may leave a subset empty.

    Raises:
        UnknownNameError: The kind is unknown.
    """
    count = min(subsets, records.count)
    if count <= 1:
        return np.zeros(records.count, dtype=np.int64)
    # Records without coordinates are clustered by their distances instead.
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
    """Return (N,) labels for the (N, dim) rows, from the best of four seeded k-means runs with ``count`` clusters."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # scikit-learn warns if there are fewer distinct rows than clusters. Some labels are then simply not used.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = KMeans(n_clusters=count, n_init=4, random_state=PARTITION_SEED).fit_predict(rows)
    return np.asarray(labels, dtype=np.int64)


def _cluster_spectrally(records: Records, count: int) -> Ints:
    """Return (N,) labels that assign the records to ``count`` clusters by spectral clustering (Equations (43) to (46)).

    The first eigenvectors of the graph Laplacian L = D - W form a matrix whose rows are clustered by k-means.
    """
    from scipy.linalg import eigh

    adjacency = records.adjacency.toarray()
    laplacian = np.diag(adjacency.sum(axis=1)) - adjacency
    _, vectors = eigh(laplacian, subset_by_index=(0, count - 1))
    # The sign of an eigenvector is arbitrary. Making its largest entry positive makes the partition reproducible.
    largest = np.abs(vectors).argmax(axis=0)
    return _k_means(vectors * np.sign(vectors[largest, np.arange(count)]), count)


def _partition_by_metis(records: Records, count: int) -> Ints:
    """Return (N,) labels that split the records' graph by METIS into ``count`` parts with a small boundary.

    A part can exceed the mean size by a fifth. If sizes had to be equal, the boundary on a grid would be nearly twice
    as large.
    """
    import pymetis

    if not len(records.edges):
        # Without edges, every partition has an empty boundary, so the records are simply distributed evenly.
        return np.arange(records.count, dtype=np.int64) % count
    matrix = records.adjacency
    neighbours = [matrix.indices[matrix.indptr[n] : matrix.indptr[n + 1]] for n in range(records.count)]
    # objtype=1 minimises METIS's communication volume, which counts each boundary record once for each part next to it.
    # ufactor=200 allows parts 20 % above the mean size.
    options = pymetis.Options(objtype=1, ufactor=200, ncuts=8, niter=30, seed=PARTITION_SEED)
    _, labels = pymetis.part_graph(count, adjacency=neighbours, recursive=False, options=options)
    return np.asarray(labels, dtype=np.int64)
