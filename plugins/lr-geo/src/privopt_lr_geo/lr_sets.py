"""LR (locally relevant) sets: the records near a user, with their pairs and distances (sections 3 and 4.1)."""

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
    """Path distances in the Geo-Ind graph (Definition 3.1), whose edges are required pairs that imply all others.

    If every pair is required and the metric satisfies the triangle inequality by construction, the distance itself is
    the path distance, and no graph is needed.

    Attributes:
        data: The map with its required pairs.
        direct: Whether distances are already path distances.
    """

    def __init__(self, data: MetricData) -> None:
        """Decide whether distances are already path distances. If not, the graph is built at the first request.

        Args:
            data: The map with its required pairs.
        """
        self.data = data
        # Distances between coordinates obey the triangle inequality, and so do those along roads. A table need not.
        self.direct = data.within is None and data.records.kind != "plain" and not _is_table(data)
        # Only metrics that measure along roads have an attribute `roads`.
        self.direct = self.direct or (data.within is None and hasattr(data.metric, "roads"))

    @cached_property
    def graph(self) -> csr_array:
        """The (N, N) graph of required pairs in both directions, in which an edge of length 0 is an explicit 0."""
        data = self.data
        return edge_matrix(len(data.records), *data.needed, both=True)

    def rows(self, records: Ints, limit: float = np.inf) -> Floats:
        """Return the path distances from the given records to all records.

        Args:
            records: (B,) The records to start from.
            limit: The distance at which the search for paths ends.

        Returns:
            (B, N) distances, which are infinite beyond the limit or where there is no path.
        """
        if self.direct:
            distances = self.data.metric.rows(records)
            return distances if np.isinf(limit) else np.where(distances <= limit, distances, np.inf)
        from scipy.sparse.csgraph import dijkstra

        return np.asarray(dijkstra(self.graph, directed=True, indices=records, limit=limit))


def _is_table(data: MetricData) -> bool:
    """Return whether distances come from a table, which can violate the triangle inequality."""
    from privopt_metric_dp.space.distance_table import MatrixMetric

    return isinstance(data.metric, MatrixMetric)


@frozen(kw_only=True, eq=False)
class LRSet:
    """A user's LR set: the n records within path distance Gamma of the user, for which its matrix has rows.

    Attributes:
        user: The user's record.
        records: (n,) The records in the set, ascending.
        user_row: The user's position in ``records``.
        pairs: (P, 2) The required pairs inside the LR set, as positions in ``records``.
        lengths: (P,) The distances between the records of these pairs.
    """

    user: int
    records: Ints
    user_row: int
    pairs: Ints
    lengths: Floats

    def matrix(self, weights: Unsigned, data: MetricData) -> MatrixRelease:
        """Return (n, K) weights as the user's own matrix, with the pairs that must be certified."""
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
        problem: The problem, which gives the radius Gamma.
        paths: Path distances on the problem's map.
        user: The user's record.
    """
    data, options = problem.data, problem.declared.lr_geo
    # A record at exactly the distance Gamma must not be lost to rounding errors in the sum along its path.
    limit = options.radius * (1.0 + PATH_TOLERANCE)
    distances = paths.rows(np.array([user]), limit)[0]
    records = np.flatnonzero(distances <= limit)
    pairs, lengths = pairs_inside(data, records)
    user_row = int(np.searchsorted(records, user))
    return LRSet(user=user, records=records, user_row=user_row, pairs=pairs, lengths=lengths)


def lr_sets(problem: LRGeoInstance) -> list[LRSet]:
    """Return each user's LR set, in the order of the records."""
    paths = PathDistances(problem.data)
    return [lr_set(problem, paths, user) for user in problem.users.tolist()]


def pairs_inside(data: MetricData, records: Ints) -> tuple[Ints, Floats]:
    """Return the required pairs among the given records, and the distances between their records.

    Args:
        data: The map.
        records: (n,) The records, ascending.

    Returns:
        (P, 2) pairs of positions in ``records``, and (P,) distances.
    """
    positions = np.full(len(data.records), -1, dtype=np.int64)
    positions[records] = np.arange(len(records))
    pairs = positions[data.pairs]
    is_inside = (pairs >= 0).all(axis=1)
    return pairs[is_inside], data.distances[is_inside]


def reach_of(data: MetricData, records: Ints) -> Floats:
    """Return distances from records to outputs that satisfy the triangle inequality between records.

    This means that the distances from two records to an output differ by at most the distance between the records.
    Distances between points and along roads have this property, but a table can violate it. Each of its entries is
    therefore replaced by the length of the shortest path over required pairs. This gives the largest table that has the
    property and is nowhere above the given one.

    Args:
        data: The map.
        records: (n,) The records.

    Returns:
        (n, K) distances.
    """
    if not _is_table(data):
        return data.metric.to_outputs(records)
    return consistent(data.to_outputs, data.pairs, data.distances)[records]
