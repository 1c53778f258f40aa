"""The built-in kinds of distance. A problem file names one of them in ``[distance]``."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import frozen

from privopt.declare.schema import File, key
from privopt.declare.tables import read_array
from privopt.errors import Fault, InputError
from privopt_metric_dp.problem.declared import DistanceKind, RegionVertices
from privopt_metric_dp.space.distance_table import MatrixMetric
from privopt_metric_dp.space.metrics import EuclideanMetric, HaversineMetric, Metric
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.road_metric import RoadMetric
from privopt_metric_dp.space.roads import Roads, read_roads

__all__ = ["Euclidean", "Graph", "Haversine", "Table"]

_UNNAMED = "unit of distance"
"""The name used for the unit of distance if the problem does not specify one."""


@frozen(kw_only=True)
class Euclidean(DistanceKind):
    """Straight-line distance between vectors or between planar points. Planar coordinates are in km by default."""

    kind: ClassVar[str] = "euclidean"
    places: ClassVar[frozenset[str]] = frozenset({"grid", "points", "vectors", "mesh"})

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """Return the Euclidean metric in the same units as the coordinates (by default, km for points)."""
        return EuclideanMetric(records, outputs)

    def ground(self, records: Space, epsilon: Fraction, split_km: float | None, file: str) -> RegionVertices:
        """Triangulate the records, and return the triangles as the region covered by ``privacy.everywhere``.

        Args:
            records: The records, which become the first vertices of the region.
            epsilon: Unused, because triangles do not depend on it.
            split_km: The largest allowed side length of a triangle in km, or None for no limit. Triangles with longer
                sides are refined.
            file: The name of the problem file, for error messages.

        Raises:
            InputError: The records are not planar points, or cannot be triangulated.
        """
        if records.kind == "vector":
            expectation = "points, a grid or a mesh"
            raise InputError([Fault(file, "privacy.everywhere", "true over records.vectors", expectation)])
        if records.kind != "planar":
            EuclideanMetric(records)  # raises an InputError that names the kind of places
        return _triangulate_plane(records, split_km, EuclideanMetric, file)

    def unit(self, records: Space) -> str:
        """Return the unit of planar coordinates, or a generic name for vectors, whose unit is unknown."""
        return _UNNAMED if records.kind == "vector" else records.unit

    def way(self, records: Space) -> str:
        """Return the phrase that messages append to the unit of distance.

        The phrase is "as the crow flies" for distances in km and "between vectors" for vectors. It is empty for planar
        points in other units.
        """
        ways = {"vector": "between vectors", "planar": "as the crow flies" if records.unit == "km" else ""}
        return ways.get(records.kind, "as the crow flies")


@frozen(kw_only=True)
class Haversine(DistanceKind):
    """Great-circle distance between geographic points on a sphere with a radius of 6371.0 km."""

    kind: ClassVar[str] = "haversine"

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """Return the metric of great-circle distances in km."""
        return HaversineMetric(records, outputs)

    def ground(self, records: Space, epsilon: Fraction, split_km: float | None, file: str) -> RegionVertices:
        """Triangulate the projected records, and return the region covered by ``privacy.everywhere``.

        Projected distances never exceed great-circle distances, so a guarantee per km in the plane also holds per km on
        the earth. See :meth:`DistanceKind.ground` for the arguments.
        """
        HaversineMetric(records)  # raises an InputError for planar points
        return _triangulate_plane(records, split_km, HaversineMetric, file)

    def way(self, records: Space) -> str:
        """Return the phrase "as the crow flies", which messages append to the unit of distance."""
        return "as the crow flies"


@frozen(kw_only=True)
class Graph(DistanceKind):
    """Shortest-path distance along undirected roads. Records and outputs are nodes of the road network."""

    kind: ClassVar[str] = "graph"
    places: ClassVar[frozenset[str]] = frozenset({"grid", "points"})
    ids_alone: ClassVar[bool] = True
    path_metric: ClassVar[bool] = True

    edges: File = key(help="CSV: from,to,km, or u,v,length (metres) of OSMnx; undirected")

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """Return the metric of shortest-path lengths, in km, along the roads in ``edges``."""
        return RoadMetric(read_roads(self.edges, directed=False), records, outputs)

    def ground(self, records: Space, epsilon: Fraction, split_km: float | None, file: str) -> RegionVertices:
        """Return all streets as the region covered by ``privacy.everywhere``.

        Args:
            records: The records, each at a node of the road network.
            epsilon: Epsilon per km, which determines the default of ``split_km``.
            split_km: The length in km above which a street is divided into pieces, or None for the default.
            file: The name of the problem file, for error messages.
        """
        from privopt_metric_dp.region.streets import streets_of

        vertices, region = streets_of(self.edges, records, epsilon, split_km, file)
        # Losses are measured along the pieces of the divided streets, because the added vertices need distances too.
        names = np.asarray(vertices.ids, dtype=np.str_)[region.simplices]
        roads = Roads(names[:, 0], names[:, 1], region.km, source=self.edges.name)
        return RegionVertices(
            region=region, records=vertices, metric=lambda outputs: RoadMetric(roads, vertices, outputs)
        )

    def way(self, records: Space) -> str:
        """Return the phrase "by road", which messages append to the unit of distance."""
        return "by road"


@frozen(kw_only=True)
class Table(DistanceKind):
    """Distances read from a file that contains a matrix."""

    kind: ClassVar[str] = "matrix"
    places: ClassVar[frozenset[str]] = frozenset({"grid", "points", "vectors", "count"})
    ids_alone: ClassVar[bool] = True

    matrix: File = key(help=".npy (N, N), symmetric, zero diagonal")
    output_matrix: File | None = key(None, help=".npy (N, K), with [outputs]")

    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """Read the distance matrices and return them as a metric.

        If ``output_matrix`` is omitted or the outputs are the records, the metric contains only the distances between
        records.

        Raises:
            InputError: An array has the wrong shape or contains invalid numbers, or the matrix is not symmetric.
        """
        count = len(records)
        table = read_array(self.matrix, (count, count), what="distances", minimum=0.0)
        source = self.matrix.name
        if self.output_matrix is None or outputs is None:
            return MatrixMetric(table, source=source)
        crossed = read_array(self.output_matrix, (count, len(outputs)), what="distances to outputs", minimum=0.0)
        return MatrixMetric(table, crossed, source=source, output_source=self.output_matrix.name)

    def unit(self, records: Space) -> str:
        """Return a generic name, because a distance matrix does not state its unit."""
        return _UNNAMED

    def way(self, records: Space) -> str:
        """Return the phrase "by a table of distances", which messages append to the unit of distance."""
        return "by a table of distances"

    def faults(self, *, own_outputs: bool) -> Iterator[tuple[str, str, str]]:
        """Yield a fault (key, actual, expected) if ``output_matrix`` is present but the problem lists no outputs."""
        if self.output_matrix is not None and own_outputs:
            yield "output_matrix", "a file without [outputs]", "[outputs], or no such key"


def _triangulate_plane(
    records: Space, split_km: float | None, kind: type[EuclideanMetric] | type[HaversineMetric], file: str
) -> RegionVertices:
    """Return a region of triangles between places, with a metric for the losses at its vertices.

    Args:
        records: The places in a plane or on the earth. Places on the earth are projected onto a plane.
        split_km: The largest allowed side length of a triangle in km, or None for no limit. Triangles with longer sides
            are refined.
        kind: The class of the metric for losses.
        file: The name of the problem file, for error messages.
    """
    from privopt_metric_dp.region.mesh import refined_places

    vertices, region = refined_places(records, split_km, file)
    return RegionVertices(region=region, records=vertices, metric=lambda outputs: kind(vertices, outputs))
