"""The distances that privopt brings: kinds of the table ``[distance]``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from attrs import frozen

from privopt.declare.schema import File, key
from privopt.declare.tables import read_array
from privopt.metric.kinds import DistanceKind
from privopt.metric.space.geometry import EuclideanMetric, HaversineMetric, MatrixMetric, Metric
from privopt.metric.space.places import Space
from privopt.metric.space.roads import RoadMetric, read_roads

__all__ = ["Euclidean", "Graph", "Haversine", "Table"]

_UNNAMED = "unit of distance"


@frozen(kw_only=True)
class Euclidean(DistanceKind):
    """Straight lines between planar points (km) or vectors."""

    kind: ClassVar[str] = "euclidean"

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """See :class:`EuclideanMetric`."""
        return EuclideanMetric(records, outputs)

    def unit(self, records: Space) -> str:
        """Kilometres on a plane; vectors have a unit without a name."""
        return _UNNAMED if records.kind == "vector" else "km"


@frozen(kw_only=True)
class Haversine(DistanceKind):
    """Great circles between geographic points, R = 6371.0 km."""

    kind: ClassVar[str] = "haversine"

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """See :class:`HaversineMetric`."""
        return HaversineMetric(records, outputs)


@frozen(kw_only=True)
class Graph(DistanceKind):
    """Shortest paths over undirected edges; records are nodes."""

    kind: ClassVar[str] = "graph"
    places: ClassVar[frozenset[str]] = frozenset({"grid", "points"})
    ids_alone: ClassVar[bool] = True
    path_metric: ClassVar[bool] = True

    edges: File = key(help="CSV: from,to,km; undirected")

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """See :class:`RoadMetric`."""
        return RoadMetric(read_roads(self.edges, directed=False), records, outputs)


@frozen(kw_only=True)
class Table(DistanceKind):
    """Distances read from a file."""

    kind: ClassVar[str] = "matrix"
    places: ClassVar[frozenset[str]] = frozenset({"grid", "points", "vectors", "count"})
    ids_alone: ClassVar[bool] = True

    matrix: File = key(help=".npy (N, N), symmetric, zero diagonal")
    output_matrix: File | None = key(None, help=".npy (N, K), with [outputs]")

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """See :class:`MatrixMetric`."""
        count = len(records)
        table = read_array(self.matrix, (count, count), what="distances", least=0.0)
        source = self.matrix.name
        if self.output_matrix is None or outputs is None:
            return MatrixMetric(table, source=source)
        crossed = read_array(self.output_matrix, (count, len(outputs)), what="distances to outputs", least=0.0)
        return MatrixMetric(table, crossed, source=source, output_source=self.output_matrix.name)

    def unit(self, records: Space) -> str:
        """A table has no named unit."""
        return _UNNAMED

    def faults(self, *, own: bool) -> Iterator[tuple[str, str, str]]:
        """Distances to outputs that there are not."""
        if self.output_matrix is not None and own:
            yield "output_matrix", "a file without [outputs]", "[outputs], or no such key"
