"""Measure distances, in integer steps, from points in a region to each output, for the private tests along traces.

A fresh report is drawn from the matrix row of a vertex, which is chosen at random for each row of the trace. The test
that decides whether to repeat the previous report uses the position itself instead. If it used the vertex, the rate of
repeated reports would reveal which of two nearby points is the true position.

The error of a floating-point distance is at most :data:`MOST_OFF` mm. Rounding down to integer steps of :data:`STEP_MM`
mm changes the difference between two distances by less than one step. If a path of d mm connects two positions, their
distances to an output therefore differ by at most d / STEP_MM + SLACK_STEPS steps.
"""

from __future__ import annotations

from functools import cached_property
from typing import Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import Fault, InputError
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.region.region import MM_PER_KM, Plane, Region, Streets
from privopt_metric_dp.region.snap_to_region import SimplexMixture, read_positions

__all__ = ["SLACK_STEPS", "STEP_MM", "Ways"]

STEP_MM: Final = 1
"""The length of a step in millimetres."""

SLACK_STEPS: Final = 2
"""The largest number of steps by which the difference between two positions' distances to an output may exceed the
length of a path between the positions."""

MOST_OFF: Final = 0.25
"""The largest error of a floating-point sum of lengths, in millimetres."""


@frozen(kw_only=True, eq=False, slots=False)
class Ways:
    """Distances from points in a region to K outputs.

    Attributes:
        region: The region. In a plane, distances are measured along straight lines, which are no longer than any path
            inside the region. On streets, they are path lengths.
        outputs: Array of shape (K, 2) with the positions of the outputs in mm, if the region is a plane. Empty
            otherwise.
        table: Array of shape (N, K) with the path lengths in mm from vertices to outputs, if the region consists of
            streets. Empty otherwise.
    """

    region: Region
    outputs: Ints = field(factory=lambda: np.zeros((0, 2), dtype=np.int64))
    table: Floats = field(factory=lambda: np.zeros((0, 0)))

    @classmethod
    def of(cls, data: MetricData) -> Ways:
        """Prepare the distances for a problem whose guarantee covers every point in a region.

        Raises:
            InputError: The outputs have no positions on the region's plane, or the paths are too long to be measured
                with the required precision.
        """
        region = data.region
        assert region is not None  # checked by the caller
        if isinstance(region, Plane):
            space = data.outputs
            if space.coordinates is None or space.kind not in ("planar", "geographic"):
                raise InputError([Fault(data.file, "outputs", f"{space.kind} places", "places on the region's plane")])
            projection = region.projection if space.kind == "geographic" else None
            return cls(region=region, outputs=read_positions(space.coordinates, projection))
        assert isinstance(region, Streets)
        distances = data.distance.to_outputs() * MM_PER_KM
        is_finite = np.isfinite(distances)
        max_distance = float(distances[is_finite].max(initial=0.0))
        # A path's length is the result of at most one addition per vertex, each with a relative rounding error below
        # 2^-52.
        if max(max_distance, float(region.km.max(initial=0.0)) * MM_PER_KM) * region.size * 2.0**-52 > MOST_OFF:
            steps = f"paths of {max_distance / MM_PER_KM:.3g} km over {region.size:,} junctions"
            raise InputError(
                [Fault(data.file, "privacy.everywhere", steps, "path lengths that doubles can hold to a millimetre")]
            )
        # Steps must be finite, so the largest finite distance is used for outputs that cannot be reached.
        return cls(region=region, table=np.where(is_finite, distances, max_distance))

    @cached_property
    def from_vertices(self) -> Floats:
        """The unrounded distances in steps from each vertex to each output, as an array of shape (N, K)."""
        if isinstance(self.region, Plane):
            return self._straight_lines(self.region.vertices.astype(np.float64)) / STEP_MM
        return self.table / STEP_MM

    @property
    def of_vertices(self) -> Ints:
        """The distances in steps from each vertex to each output, rounded down, as an array of shape (N, K)."""
        return np.floor(self.from_vertices).astype(np.int64)

    def covers(self, steps: Ints) -> bool:
        """Return whether stored distances agree with those computed here, up to rounding.

        The stored distances may have been computed on another machine. Before rounding down, both the stored and the
        recomputed distances are within :data:`MOST_OFF` of the exact distances. If this function returns True, each
        stored distance is therefore less than the exact distance by at most ``1 + 2 * MOST_OFF``, and exceeds it by at
        most ``2 * MOST_OFF``.

        Args:
            steps: Array of shape (N, K) with the stored distances in integer steps.
        """
        distances = self.from_vertices
        return bool(((steps >= distances - 1.0 - MOST_OFF) & (steps <= distances + MOST_OFF)).all())

    def of_points(self, points: SimplexMixture) -> Ints:
        """Return the distances in steps from B points to the outputs, rounded down, as an array of shape (B, K).

        Args:
            points: B points in the region, each expressed as a mixture of the vertices of its simplex.
        """
        linear = points.linear
        if isinstance(self.region, Plane):
            places = (linear[:, :, None] * self.region.vertices[points.corners]).sum(axis=1)
            return np.floor(self._straight_lines(places) / STEP_MM).astype(np.int64)
        assert isinstance(self.region, Streets)
        street_mm = self.region.km[points.streets] * MM_PER_KM
        # A path leaves the street at one of its ends. The distance from the point to that end is the length of the
        # street times the weight of the other end.
        endpoints = [self.table[points.corners[:, end]] + (street_mm * linear[:, 1 - end])[:, None] for end in (0, 1)]
        return np.floor(np.minimum(*endpoints) / STEP_MM).astype(np.int64)

    def _straight_lines(self, places: Floats) -> Floats:
        """Return the straight-line distances in mm from B places to the outputs, as an array of shape (B, K)."""
        offsets = places[:, None, :] - self.outputs[None].astype(np.float64)
        return np.hypot(offsets[..., 0], offsets[..., 1])
