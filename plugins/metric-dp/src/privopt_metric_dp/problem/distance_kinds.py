"""The built-in distances: kinds of the table ``[distance]``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import frozen

from privopt.declare.schema import File, key
from privopt.declare.tables import read_array
from privopt.errors import Fault, InputError
from privopt_metric_dp.problem.kinds import DistanceKind, RegionVertices
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.metrics import EuclideanMetric, HaversineMetric, Metric
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.road_metric import RoadMetric
from privopt_metric_dp.space.roads import Roads, read_roads

__all__ = ["Euclidean", "Graph", "Haversine", "Table"]

_UNNAMED = "unit of distance"


@frozen(kw_only=True)
class Euclidean(DistanceKind):
    """Straight lines between planar points (km) or vectors."""

    kind: ClassVar[str] = "euclidean"
    places: ClassVar[frozenset[str]] = frozenset({"grid", "points", "vectors", "mesh"})

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """See :class:`EuclideanMetric`."""
        return EuclideanMetric(records, outputs)

    def ground(self, records: Space, epsilon: Fraction, split_km: float | None, file: str) -> RegionVertices:
        """Return the triangulated plane between planar points."""
        if records.kind == "vector":
            expectation = "points, a grid or a mesh"
            raise InputError([Fault(file, "privacy.everywhere", "true over records.vectors", expectation)])
        if records.kind != "planar":
            EuclideanMetric(records)  # its error names the kind of places that was given
        return _triangulate_plane(records, split_km, EuclideanMetric, file)

    def unit(self, records: Space) -> str:
        """Return "km" for points of a plane; the unit of vectors has no name."""
        return _UNNAMED if records.kind == "vector" else "km"

    def way(self, records: Space) -> str:
        """Return that distances are straight lines."""
        return "between vectors" if records.kind == "vector" else "as the crow flies"


@frozen(kw_only=True)
class Haversine(DistanceKind):
    """Great circles between geographic points, R = 6371.0 km."""

    kind: ClassVar[str] = "haversine"

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """See :class:`HaversineMetric`."""
        return HaversineMetric(records, outputs)

    def ground(self, records: Space, epsilon: Fraction, split_km: float | None, file: str) -> RegionVertices:
        """Return the plane onto which the points are projected; its distances do not exceed great circles."""
        HaversineMetric(records)  # refuses planar points
        return _triangulate_plane(records, split_km, HaversineMetric, file)

    def way(self, records: Space) -> str:
        """Return that distances are great circles."""
        return "as the crow flies"


@frozen(kw_only=True)
class Graph(DistanceKind):
    """Shortest paths over undirected edges; records are nodes."""

    kind: ClassVar[str] = "graph"
    places: ClassVar[frozenset[str]] = frozenset({"grid", "points"})
    ids_alone: ClassVar[bool] = True
    path_metric: ClassVar[bool] = True

    edges: File = key(help="CSV: from,to,km, or u,v,length (metres) of OSMnx; undirected")

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """See :class:`RoadMetric`."""
        return RoadMetric(read_roads(self.edges, directed=False), records, outputs)

    def ground(self, records: Space, epsilon: Fraction, split_km: float | None, file: str) -> RegionVertices:
        """Return the streets between all nodes, long ones divided."""
        from privopt_metric_dp.region.streets import streets_of

        vertices, region = streets_of(self.edges, records, epsilon, split_km, file)
        names = np.asarray(vertices.ids, dtype=np.str_)[region.simplices]
        roads = Roads(names[:, 0], names[:, 1], region.km, source=self.edges.name)
        return RegionVertices(
            region=region, records=vertices, metric=lambda outputs: RoadMetric(roads, vertices, outputs)
        )

    def way(self, records: Space) -> str:
        """Return that distances are path lengths along roads."""
        return "by road"


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
        table = read_array(self.matrix, (count, count), what="distances", minimum=0.0)
        source = self.matrix.name
        if self.output_matrix is None or outputs is None:
            return MatrixMetric(table, source=source)
        crossed = read_array(self.output_matrix, (count, len(outputs)), what="distances to outputs", minimum=0.0)
        return MatrixMetric(table, crossed, source=source, output_source=self.output_matrix.name)

    def unit(self, records: Space) -> str:
        """Return the generic name, because a table does not name its unit."""
        return _UNNAMED

    def way(self, records: Space) -> str:
        """Return that distances come from a table."""
        return "by a table of distances"

    def faults(self, *, own_outputs: bool) -> Iterator[tuple[str, str, str]]:
        """Yield a fault if there are distances to outputs, but no separate outputs."""
        if self.output_matrix is not None and own_outputs:
            yield "output_matrix", "a file without [outputs]", "[outputs], or no such key"


def _triangulate_plane(
    records: Space, split_km: float | None, kind: type[EuclideanMetric] | type[HaversineMetric], file: str
) -> RegionVertices:
    """Return the triangles between points, refined if ``split_km`` is given."""
    from privopt_metric_dp.region.mesh import refined_places

    vertices, region = refined_places(records, split_km, file)
    return RegionVertices(region=region, records=vertices, metric=lambda outputs: kind(vertices, outputs))
