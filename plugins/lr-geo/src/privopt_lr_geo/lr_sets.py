"""Locally relevant (LR) sets: the records near each user, and the required pairs among them.

They are defined in Sections 3 and 4.1 of Qiu et al., PoPETs 2025.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints, Unsigned
from privopt.numbers.graphs import edge_matrix
from privopt_lr_geo.problem import PATH_TOLERANCE, LRGeoInstance
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.space.pairs import consistent

if TYPE_CHECKING:
    from scipy.sparse import csr_array
else:
    csr_array = Any

__all__ = ["LRSet", "PathDistances", "lr_set", "lr_sets", "pairs_inside", "reach_of"]


class PathDistances:
    """Path distances in the Geo-Ind graph (Definition 3.1).

    The edges of the graph are a subset of the required pairs whose constraints imply all others. If every pair is
    required and the metric is certain to satisfy the triangle inequality, the distance between two records is also
    their path distance, and no graph is built.

    Attributes:
        data: The map with its required pairs.
        direct: Whether distances between records are already path distances.
    """

    def __init__(self, data: MetricData) -> None:
        """Determine whether distances between records are path distances. If not, a graph will be built on first use.

        Args:
            data: The map with its required pairs.
        """
        self.data = data
        # Distances between coordinates satisfy the triangle inequality, and so do those along roads. A table's need
        # not.
        self.direct = data.within is None and data.records.kind != "plain" and not _is_table(data)
        # Only metrics that measure along roads have an attribute `roads`.
        self.direct = self.direct or (data.within is None and hasattr(data.metric, "roads"))

    @cached_property
    def graph(self) -> csr_array:
        """The sparse (N, N) matrix of edge lengths in both directions. Edges of length 0 are stored explicitly."""
        data = self.data
        return edge_matrix(len(data.records), *data.needed, both=True)

    def rows(self, records: Ints, limit: float = np.inf) -> Floats:
        """Return the path distances from the given records to all records.

        Args:
            records: (B,) The indices of the records to start from.
            limit: The largest distance of interest. Longer distances are returned as infinite.

        Returns:
            An array of shape (B, N). A distance is infinite if it exceeds the limit or if there is no path.
        """
        if self.direct:
            distances = self.data.metric.rows(records)
            return distances if np.isinf(limit) else np.where(distances <= limit, distances, np.inf)
        from scipy.sparse.csgraph import dijkstra

        return np.asarray(dijkstra(self.graph, directed=True, indices=records, limit=limit))


def _is_table(data: MetricData) -> bool:
    """Return whether distances come from a table supplied by the user, which may violate the triangle inequality."""
    from privopt_metric_dp.space.distance_table import MatrixMetric

    return isinstance(data.metric, MatrixMetric)


@frozen(kw_only=True, eq=False)
class LRSet:
    """A user's LR set: the n records within path distance Gamma of the user, for which the user's matrix has rows.

    Attributes:
        user: The index of the user's record on the map.
        records: (n,) The map indices of the records in the set, in ascending order.
        user_row: The position of the user's record in ``records``.
        pairs: (P, 2) The required pairs inside the LR set, as positions in ``records``.
        lengths: (P,) The distance between the two records of each pair.
    """

    user: int
    records: Ints
    user_row: int
    pairs: Ints
    lengths: Floats

    def matrix(self, weights: Unsigned, data: MetricData) -> MatrixRelease:
        """Return the user's matrix, together with the pairs for which it must be certified.

        Args:
            weights: (n, K) The integer weights of the records in the LR set.
            data: The map, which provides the ids of records and outputs.
        """
        ids = data.records.ids
        return MatrixRelease(
            weights=weights,
            records=np.array([ids[record] for record in self.records.tolist()], dtype=np.str_),
            outputs=np.asarray(data.outputs.ids, dtype=np.str_),
            pairs=self.pairs,
            distances=self.lengths,
        )


def lr_set(problem: LRGeoInstance, paths: PathDistances, user: int) -> LRSet:
    """Return a user's LR set: all records within path distance Gamma of the user (Definition 4.1).

    Args:
        problem: The problem, with the radius Gamma.
        paths: Path distances on the problem's map.
        user: The index of the user's record.
    """
    data, options = problem.data, problem.declared.lr_geo
    # The tolerance keeps a record at exactly the distance Gamma in the set despite rounding errors in the sum along its
    # path.
    limit = options.radius * (1.0 + PATH_TOLERANCE)
    distances = paths.rows(np.array([user]), limit)[0]
    records = np.flatnonzero(distances <= limit)
    pairs, lengths = pairs_inside(data, records)
    user_row = int(np.searchsorted(records, user))
    return LRSet(user=user, records=records, user_row=user_row, pairs=pairs, lengths=lengths)


def lr_sets(problem: LRGeoInstance) -> list[LRSet]:
    """Return the LR set of each user, in the order of the users' records."""
    paths = PathDistances(problem.data)
    return [lr_set(problem, paths, user) for user in problem.users.tolist()]


def pairs_inside(data: MetricData, records: Ints) -> tuple[Ints, Floats]:
    """Return the required pairs among the given records, with their distances.

    Args:
        data: The map with its required pairs.
        records: (n,) The indices of the records, in ascending order.

    Returns:
        A (P, 2) array of positions in ``records``, and a (P,) array of distances.
    """
    positions = np.full(len(data.records), -1, dtype=np.int64)
    positions[records] = np.arange(len(records))
    pairs = positions[data.pairs]
    is_inside = (pairs >= 0).all(axis=1)
    return pairs[is_inside], data.distances[is_inside]


def reach_of(data: MetricData, records: Ints) -> Floats:
    """Return distances from records to outputs, adjusted if necessary to satisfy the triangle inequality.

    The distances from two records to an output then differ by at most the distance between the records. Distances
    between points and along roads always have this property. Distances from a table may lack it, so they are replaced
    by shortest-path lengths over required pairs. The result is the largest table that has the property and does not
    exceed the given table in any entry.

    Args:
        data: The map with its required pairs.
        records: (n,) The indices of the records.

    Returns:
        An array of shape (n, K).
    """
    if not _is_table(data):
        return data.metric.to_outputs(records)
    return consistent(data.to_outputs, data.pairs, data.distances)[records]
