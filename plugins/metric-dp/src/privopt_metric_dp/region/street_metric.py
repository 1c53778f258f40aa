"""The shortest-path metric along a region's edges.

Metric DP between the vertices under this metric covers every point in the region.
"""

from __future__ import annotations

from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from privopt.arrays import Floats, read_only
from privopt_metric_dp.region.region import Region
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.pairs import consistent
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.space.road_metric import RoadMetric
from privopt_metric_dp.space.roads import Roads

__all__ = ["EdgeMetric"]


class EdgeMetric(RoadMetric):
    """A metric of shortest-path distances along a region's edges, with the lengths returned by :meth:`Region.lengths`.

    A mechanism that satisfies epsilon in this metric also satisfies epsilon between any two points in the region, with
    distances measured along paths inside it (docs/guide/everywhere.md). All methods for metric DP over a graph can
    therefore be used.

    Args:
        region: The region.
        epsilon: Epsilon per km.
        vertices: The region's vertices.
        outputs: The outputs, or None if they are the vertices.
        output_metric: The distances from vertices to outputs that are not vertices, or None if all outputs are
            vertices.
    """

    def __init__(
        self, region: Region, epsilon: Fraction, vertices: Space, outputs: Space | None, output_metric: Metric | None
    ) -> None:
        """Build the road network that consists of the region's edges.

        Args:
            region: The region.
            epsilon: Epsilon per km, which determines the lengths of the edges.
            vertices: The region's vertices.
            outputs: The outputs, or None if they are the vertices.
            output_metric: The distances from vertices to outputs that are not vertices, or None if all outputs are
                vertices.
        """
        edges, lengths = region.edges, region.lengths(epsilon)
        # A vertex whose only streets are loops has no edge. A loop of length 0 makes it a node of the road network.
        isolated = np.setdiff1d(np.arange(region.size), edges)
        names = np.asarray(vertices.ids, dtype=np.str_)
        road_ends = np.concatenate([edges, np.column_stack([isolated, isolated])])
        roads = Roads(
            names[road_ends[:, 0]], names[road_ends[:, 1]], np.concatenate([lengths, np.zeros(len(isolated))])
        )
        super().__init__(roads, vertices, outputs if output_metric is None else None)
        self._edges, self._output_metric = edges, output_metric
        if output_metric is not None:
            # The road metric was created without outputs, so its number of outputs must be replaced.
            self.output_size, self.own_outputs = output_metric.output_size, False

    def upper_distances(self, distances: Floats) -> Floats:
        """Return upper bounds on exact path lengths, given path lengths computed from rounded edge lengths."""
        return super().upper_distances(distances) * (1.0 + 2.0**-50)

    def to_outputs(self, i: npt.ArrayLike | None = None) -> Floats:
        """Return the distances in km from B given vertices to all K outputs, as an array of shape (B, K).

        By default, the distances from all vertices are returned. Distances to outputs that are not vertices are reduced
        wherever they would violate the triangle inequality with the edges (see
        :func:`privopt_metric_dp.space.pairs.consistent`).
        """
        if self._output_metric is None:
            return super().to_outputs(i)
        return self._output_distances if i is None else self._output_distances[np.asarray(i, dtype=np.int64)]

    @cached_property
    def _output_distances(self) -> Floats:
        """Array of shape (N, K) with the distances to outputs, reduced to satisfy the triangle inequality."""
        assert self._output_metric is not None  # checked by the caller
        lengths = self.between(self._edges[:, 0], self._edges[:, 1])
        return read_only(consistent(self._output_metric.to_outputs(), self._edges, lengths))
