"""Partitioners, which divide the records of a problem into subsets.

Most come from the paper (Qiu, IJCAI 2024, section 3.4 and supplement C). A further, multilevel partitioner keeps the
number of boundary records small.
"""

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
"""The seed for all partitioners. It is fixed so that the partition depends only on the problem."""


@frozen(kw_only=True, eq=False)
class Records:
    """The input to a partitioner: N records and a graph with an edge for each required pair of records.

    Attributes:
        edges: (E, 2) The indices of the two records of each required pair.
        lengths: (E,) The distance between the records of each pair, in the problem's unit.
        coordinates: (N, dim) The records' coordinates; None if the records have none.
        count: The number of records, N.
    """

    edges: Ints
    lengths: Floats
    count: int
    coordinates: Floats | None = None

    @property
    def adjacency(self) -> csr_array:
        """The graph's adjacency matrix: symmetric, sparse, of shape (N, N), with a 1 for each edge."""
        return edge_matrix(self.count, self.edges, both=True)

    def distance_vectors(self) -> Floats:
        """Return an (N, N) array of the shortest-path distances between all records (Equation (18)).

        If no path joins two records, their distance is replaced by twice the largest finite distance.
        """
        from scipy.sparse.csgraph import dijkstra

        table = np.asarray(dijkstra(edge_matrix(self.count, self.edges, self.lengths), directed=False))
        is_reachable = np.isfinite(table)
        # k-means needs finite numbers, so unreachable records are placed at twice the greatest finite distance.
        return np.where(is_reachable, table, 2.0 * float(table[is_reachable].max(initial=1.0)))


def partition(kind: str, records: Records, subsets: int) -> Ints:
    """Partition the records into subsets.

    Args:
        kind: One of :data:`privopt_bd_mdp.problem.PARTITIONS`.
        records: The records, and the graph of required pairs.
        subsets: The number of subsets, M. If it exceeds the number of records, that number is used instead.

    Returns:
        (N,) The label of each record's subset, from 0. Some labels may be unused, because a subset can be empty.

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
    """Return the (N,) cluster labels of the best of four seeded k-means runs.

    Args:
        rows: (N, dim) The points to cluster.
        count: The number of clusters.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # scikit-learn warns if there are fewer distinct rows than clusters. Some labels are then simply not used.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = KMeans(n_clusters=count, n_init=4, random_state=PARTITION_SEED).fit_predict(rows)
    return np.asarray(labels, dtype=np.int64)


def _cluster_spectrally(records: Records, count: int) -> Ints:
    """Return the (N,) labels of ``count`` clusters found by spectral clustering (Equations (43) to (46)).

    The graph Laplacian is L = D - W, where W is the adjacency matrix and D is the diagonal matrix of degrees. Its first
    ``count`` eigenvectors form the columns of a matrix, whose rows are clustered by k-means.
    """
    from scipy.linalg import eigh

    adjacency = records.adjacency.toarray()
    laplacian = np.diag(adjacency.sum(axis=1)) - adjacency
    _, vectors = eigh(laplacian, subset_by_index=(0, count - 1))
    # The sign of an eigenvector is arbitrary. Making its largest entry positive makes the partition reproducible.
    largest = np.abs(vectors).argmax(axis=0)
    return _k_means(vectors * np.sign(vectors[largest, np.arange(count)]), count)


def _partition_by_metis(records: Records, count: int) -> Ints:
    """Return the (N,) labels of a METIS partition of the graph into ``count`` parts with a small boundary.

    A part may exceed the mean size by a fifth. If all parts had to be equally large, the boundary for records on a grid
    would be nearly twice as large.
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
