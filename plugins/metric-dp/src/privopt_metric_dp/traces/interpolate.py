"""Distances from any point in a region to every output, in whole steps, for the tests along traces.

A test that decides whether to repeat the last report uses the position itself, never the vertex from whose row a fresh
report is drawn. Vertices are drawn anew for each row, so if tests used them, the rate of repeated reports would reveal
which of two nearby points is the true position.

The error in a floating-point distance is at most :data:`MOST_OFF` mm, and rounding down to whole steps of
:data:`STEP_MM` mm changes the difference between two distances by less than one step. The steps of two positions that a
path of d mm joins therefore differ by at most d / STEP_MM + SLACK_STEPS.
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
"""Distances from two positions to an output may differ by this many steps more than the path between the two."""

MOST_OFF: Final = 0.25
"""Largest error in a floating-point sum of lengths, in millimetres."""


@frozen(kw_only=True, eq=False, slots=False)
class Ways:
    """Distances from points in a region to K outputs.

    Attributes:
        region: The region. On a plane, distances are straight lines, which are at most as long as any path inside the
            region. On streets, they are path lengths.
        outputs: (K, 2) the outputs' positions in mm on a plane; empty on streets.
        table: (N, K) the path lengths in mm from vertices to outputs along streets; empty on a plane.
    """

    region: Region
    outputs: Ints = field(factory=lambda: np.zeros((0, 2), dtype=np.int64))
    table: Floats = field(factory=lambda: np.zeros((0, 0)))

    @classmethod
    def of(cls, data: MetricData) -> Ways:
        """Return the distances for a problem whose guarantee covers every point in a region.

        Raises:
            InputError: Outputs have no position on the plane, or path lengths are too long for the required precision.
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
        # A path's length takes at most one addition for each vertex, with a relative rounding error below 2^-52 each.
        if max(max_distance, float(region.km.max(initial=0.0)) * MM_PER_KM) * region.size * 2.0**-52 > MOST_OFF:
            steps = f"paths of {max_distance / MM_PER_KM:.3g} km over {region.size:,} junctions"
            raise InputError(
                [Fault(data.file, "privacy.everywhere", steps, "path lengths that doubles can hold to a millimetre")]
            )
        # Steps must be finite, so an output that cannot be reached gets the largest distance to one that can.
        return cls(region=region, table=np.where(is_finite, distances, max_distance))

    @cached_property
    def from_vertices(self) -> Floats:
        """(N, K) the distances from the vertices in steps, not yet rounded down."""
        if isinstance(self.region, Plane):
            return self._straight_lines(self.region.vertices.astype(np.float64)) / STEP_MM
        return self.table / STEP_MM

    @property
    def of_vertices(self) -> Ints:
        """(N, K) the distances from the vertices in integer steps, rounded down."""
        return np.floor(self.from_vertices).astype(np.int64)

    def covers(self, steps: Ints) -> bool:
        """Return whether stored distances (N, K) in whole steps differ from those computed here only by rounding.

        The stored ones may come from another machine, and may be off by MOST_OFF before they are rounded down. Those
        computed here may be off by MOST_OFF too, so the steps that are accepted are at most 1 + 2 MOST_OFF below and 2
        MOST_OFF above the exact distances.
        """
        distances = self.from_vertices
        return bool(((steps >= distances - 1.0 - MOST_OFF) & (steps <= distances + MOST_OFF)).all())

    def of_points(self, points: SimplexMixture) -> Ints:
        """Return the distances (B, K) in whole steps from points to the outputs.

        Args:
            points: B points in the region, as mixtures of their simplices' vertices.
        """
        linear = points.linear
        if isinstance(self.region, Plane):
            places = (linear[:, :, None] * self.region.vertices[points.corners]).sum(axis=1)
            return np.floor(self._straight_lines(places) / STEP_MM).astype(np.int64)
        assert isinstance(self.region, Streets)
        street_mm = self.region.km[points.streets] * MM_PER_KM
        # A path leaves the street at one of its ends. The distance to an end is the street's length times the other
        # end's weight.
        endpoints = [self.table[points.corners[:, end]] + (street_mm * linear[:, 1 - end])[:, None] for end in (0, 1)]
        return np.floor(np.minimum(*endpoints) / STEP_MM).astype(np.int64)

    def _straight_lines(self, places: Floats) -> Floats:
        """Return the straight-line distances (B, K) in mm from places (B, 2) to the outputs."""
        offsets = places[:, None, :] - self.outputs[None].astype(np.float64)
        return np.hypot(offsets[..., 0], offsets[..., 1])
