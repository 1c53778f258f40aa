"""Partitioners, which divide the records of a problem into subsets.

All but one come from the paper (Qiu, IJCAI 2024, section 3.4 and supplement C). The exception is a multilevel
partitioner, which keeps the number of boundary records small.
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
"""The seed of all partitioners, which is fixed so that the partition depends only on the problem."""


@frozen(kw_only=True, eq=False)
class Records:
    """The input to a partitioner: N records, and a graph whose edges are the required pairs.

    Attributes:
        edges: (E, 2) The indices of the two records in each required pair.
        lengths: (E,) The distance between the records of each pair, in the problem's unit of distance.
        count: The number N of records.
        coordinates: (N, dim) The coordinates of the records, or None if the records have no coordinates.
    """

    edges: Ints
    lengths: Floats
    count: int
    coordinates: Floats | None = None

    @property
    def adjacency(self) -> csr_array:
        """The graph's adjacency matrix, a symmetric (N, N) sparse array with a 1 for each edge."""
        return edge_matrix(self.count, self.edges, both=True)

    def distance_vectors(self) -> Floats:
        """Return an (N, N) array of the shortest-path distances between all records (Equation (18)).

        If two records are not connected, their distance is set to twice the largest finite distance.
        """
        from scipy.sparse.csgraph import dijkstra

        table = np.asarray(dijkstra(edge_matrix(self.count, self.edges, self.lengths), directed=False))
        is_reachable = np.isfinite(table)
        # k-means needs finite numbers.
        return np.where(is_reachable, table, 2.0 * float(table[is_reachable].max(initial=1.0)))


def partition(kind: str, records: Records, subsets: int) -> Ints:
    """Divide the records into subsets.

    Args:
        kind: The partitioner, one of :data:`privopt_bd_mdp.problem.PARTITIONS`.
        records: The records and the graph of required pairs.
        subsets: The number M of subsets. If it exceeds the number of records, the number of records is used instead.

    Returns:
        (N,) The label of each record's subset, counted from 0. Some labels may be unused, because subsets can be empty.

    Raises:
        UnknownNameError: ``kind`` is not the name of a partitioner. This is not checked if there is only one subset.
    """
    count = min(subsets, records.count)
    if count <= 1:
        return np.zeros(records.count, dtype=np.int64)
    # Records without coordinates are clustered by their distances to all records instead.
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
    """Return the (N,) cluster labels from the best of four k-means runs with a fixed seed.

    Args:
        rows: (N, dim) The points to cluster.
        count: The number of clusters.
    """
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    with warnings.catch_warnings():
        # scikit-learn warns if there are fewer distinct rows than clusters. This is harmless here: some labels are
        # unused.
        warnings.simplefilter("ignore", ConvergenceWarning)
        labels = KMeans(n_clusters=count, n_init=4, random_state=PARTITION_SEED).fit_predict(rows)
    return np.asarray(labels, dtype=np.int64)


def _cluster_spectrally(records: Records, count: int) -> Ints:
    """Return the (N,) labels of ``count`` clusters found by spectral clustering (Equations (43) to (46)).

    The graph Laplacian is L = D - W, where W is the adjacency matrix and D the diagonal matrix of degrees. The
    eigenvectors of L for its ``count`` smallest eigenvalues form the columns of a matrix, whose rows are clustered by
    k-means.
    """
    from scipy.linalg import eigh

    adjacency = records.adjacency.toarray()
    laplacian = np.diag(adjacency.sum(axis=1)) - adjacency
    _, vectors = eigh(laplacian, subset_by_index=(0, count - 1))
    # Eigenvectors are unique only up to sign. Making each one's largest entry positive makes the partition
    # reproducible.
    largest = np.abs(vectors).argmax(axis=0)
    return _k_means(vectors * np.sign(vectors[largest, np.arange(count)]), count)


def _partition_by_metis(records: Records, count: int) -> Ints:
    """Return the (N,) labels of a METIS partition of the graph into ``count`` parts with a small boundary.

    Parts may be up to 20 % larger than average. Requiring equal sizes would nearly double the boundary for records on a
    grid.
    """
    import pymetis

    if not len(records.edges):
        # Without edges, every partition has an empty boundary, so the records are simply spread evenly.
        return np.arange(records.count, dtype=np.int64) % count
    matrix = records.adjacency
    neighbours = [matrix.indices[matrix.indptr[n] : matrix.indptr[n + 1]] for n in range(records.count)]
    # objtype=1 minimises the communication volume, in which each boundary record counts once per adjacent part.
    # ufactor=200 allows parts that are 20 % larger than average.
    options = pymetis.Options(objtype=1, ufactor=200, ncuts=8, niter=30, seed=PARTITION_SEED)
    _, labels = pymetis.part_graph(count, adjacency=neighbours, recursive=False, options=options)
    return np.asarray(labels, dtype=np.int64)
