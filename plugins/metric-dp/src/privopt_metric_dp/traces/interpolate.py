"""Distances from any point of a region to every output, in whole steps, for tests of traces.

A test looks at the position itself, never at the vertex that a fresh report is drawn from. A vertex is drawn again for
each row, so the rate of kept reports would show at which of two near points a stay is.

Doubles give each distance within :data:`MOST_OFF` mm, and floor() to whole steps of :data:`STEP_MM` moves two distances
apart by less than one. So two positions on a path of d mm differ by d / STEP_MM + SLACK steps at most.
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
"""Length of a step."""

SLACK_STEPS: Final = 2
"""Steps by which distances of two positions to an output may differ next to the way between them."""

MOST_OFF: Final = 0.25
"""Millimetres by which a sum of lengths in doubles may be off."""


@frozen(kw_only=True, eq=False, slots=False)
class Ways:
    """Distances from points of a region to outputs.

    Attributes:
        region: planes are measured straight, which is at most the length of any path inside; streets along them.
        outputs: (K, 2) mm, on a plane; empty on streets.
        table: (N, K) mm from vertices along streets; empty on a plane.
    """

    region: Region
    outputs: Ints = field(factory=lambda: np.zeros((0, 2), dtype=np.int64))
    table: Floats = field(factory=lambda: np.zeros((0, 0)))

    @classmethod
    def of(cls, data: MetricData) -> Ways:
        """Return the ways of a problem whose guarantee holds at every point."""
        region = data.region
        assert region is not None  # the caller has looked
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
        if max(max_distance, float(region.km.max(initial=0.0)) * MM_PER_KM) * region.size * 2.0**-52 > MOST_OFF:
            steps = f"ways of {max_distance / MM_PER_KM:.3g} km over {region.size:,} junctions"
            raise InputError(
                [Fault(data.file, "privacy.everywhere", steps, "path lengths that doubles give to a millimetre")]
            )
        return cls(region=region, table=np.where(is_finite, distances, max_distance))

    @cached_property
    def from_vertices(self) -> Floats:
        """(N, K) steps from the vertices, before they are made whole."""
        if isinstance(self.region, Plane):
            return self._straight_lines(self.region.vertices.astype(np.float64)) / STEP_MM
        return self.table / STEP_MM

    @property
    def of_vertices(self) -> Ints:
        """(N, K) whole steps from the vertices."""
        return np.floor(self.from_vertices).astype(np.int64)

    def covers(self, steps: Ints) -> bool:
        """Check whether steps (N, K) from the vertices, maybe another machine's, keep what :data:`SLACK_STEPS` says.

        Within MOST_OFF of these, which are as near the truth: between 1 + 2 MOST_OFF below it and 2 MOST_OFF above.
        """
        distances = self.from_vertices
        return bool(((steps >= distances - 1.0 - MOST_OFF) & (steps <= distances + MOST_OFF)).all())

    def of_points(self, points: SimplexMixture) -> Ints:
        """Return (B, K) steps from points, given as what they are mixtures of."""
        linear = points.linear
        if isinstance(self.region, Plane):
            places = (linear[:, :, None] * self.region.vertices[points.corners]).sum(axis=1)
            return np.floor(self._straight_lines(places) / STEP_MM).astype(np.int64)
        assert isinstance(self.region, Streets)
        is_long = self.region.km[points.streets] * MM_PER_KM
        endpoints = [self.table[points.corners[:, end]] + (is_long * linear[:, 1 - end])[:, None] for end in (0, 1)]
        return np.floor(np.minimum(*endpoints) / STEP_MM).astype(np.int64)

    def _straight_lines(self, places: Floats) -> Floats:
        errors = places[:, None, :] - self.outputs[None].astype(np.float64)
        return np.hypot(errors[..., 0], errors[..., 1])
