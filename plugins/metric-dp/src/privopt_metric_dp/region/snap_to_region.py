"""Random snapping: a position is a mixture of the vertices of its simplex, and one of them is drawn, exactly.

In a triangle the shares are barycentric coordinates, on a street those of :func:`far_share`: rationals, never rounded
(mathematics C2, C4). A position outside the region is first taken to the nearest point of its rim, and one next to the
streets to the nearest point of a street: what is promised then holds for that point (C5). The vertex that was drawn
reveals more than a report does and is never released.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.numbers.sampling import Source, choose
from privopt_metric_dp.region.locate import FARTHEST, Sides, Triangles
from privopt_metric_dp.region.region import MM_PER_KM, Plane, Region, Streets, street_growth
from privopt_metric_dp.space.projection import Projection, degrees_in_units

__all__ = ["SimplexMixture", "Snapper", "far_share", "far_shares", "read_positions"]

STEEPEST: Final = 2.0**56
"""Reaches above this have the same shares, to double precision."""


def far_share(part: Fraction, reach: Fraction, steps: int) -> Fraction:
    """Return the far end's share on a street, exactly (mathematics C2).

    A street of length l is cut into 2n equal pieces. Let t = epsilon l / (2n) and a = 2 ((1 + t)^n - 1). The far end's
    share at the j-th of the first n breakpoints is ((1 + t)^j - 1) / a, linear between; the other half mirrors the
    first. Two end rows with z_b <= (1 + a) z_a and z_a <= (1 + a) z_b then have a mixture that changes by at most
    exp(epsilon d) over any d km.

    With n = 0 it is linear snapping: the share is the part of the street passed, and a = epsilon
    l.

    Args:
        part: of the street passed towards the far end, from 0 to 1.
        reach: epsilon times the street's length.
        steps: n.

    >>> far_share(Fraction(1, 4), Fraction(1, 2), 0), far_share(Fraction(3, 4), Fraction(8), 2)
    (Fraction(1, 4), Fraction(7, 8))
    """
    if 2 * part > 1:
        return 1 - far_share(1 - part, reach, steps)
    if not steps or not reach:
        return part
    piece = 2 * steps * part
    gone = piece.numerator // piece.denominator
    step = reach / (2 * steps)
    return ((1 + step) ** gone * (1 + (piece - gone) * step) - 1) / street_growth(reach, 1.0, steps)


def far_shares(part: Floats, reach: Floats, steps: int) -> Floats:
    """Compute :func:`far_share` of many in doubles: off by less than 2**-40 for up to 16 steps.

    Args:
        part: (B,) of the street passed towards the far end.
        reach: (B,) epsilon times the streets' lengths; infinite ones are as good as large ones.
        steps: n.
    """
    if not steps:
        return part
    mirrored = np.minimum(part, 1.0 - part)
    step = np.minimum(reach, STEEPEST) / (2 * steps)
    gone = np.minimum(np.floor(2 * steps * mirrored), steps)
    risen = gone * np.log1p(step) + np.log1p(
        (2 * steps * mirrored - gone) * step
    )  # logarithms: powers may be no doubles
    total = steps * np.log1p(step)
    normaliser = -2.0 * np.expm1(-total)
    near_share = np.divide(
        -np.expm1(-risen) * np.exp(risen - total), normaliser, out=mirrored.copy(), where=reach > 1e-15
    )
    shares: Floats = np.where(part > 0.5, 1.0 - near_share, near_share)
    return shares


def read_positions(positions: Floats, projection: Projection | None) -> Ints:
    """Round positions to whole millimetres of the plane.

    Two positions in km come at most 2^.5 mm farther apart so, two in degrees at most 2^.5 (11.12 + 1) < 17.2 mm: each
    coordinate is first off by half of 1e-7 degrees, then by half a millimetre.

    >>> read_positions(np.array([[0.25, -1e-6]]), None).tolist()
    [[250000, -1]]

    Args:
        positions: (B, 2) degrees (latitude first) where there is a projection, else km.
        projection: onto the plane.
    """
    if projection is not None:
        return projection.to_plane(degrees_in_units(positions))
    return np.rint(np.clip(positions * MM_PER_KM, -FARTHEST, FARTHEST)).astype(np.int64)


@frozen(kw_only=True, eq=False)
class SimplexMixture:
    """What positions are mixtures of.

    Attributes:
        corners: (B, m) numbers of vertices.
        shares: (B, m) whole numbers of at least 0, of 64 bits or Python's: linear shares times their sum.
        away: (B,) km from each position to the point of the region that it is taken for; 0 inside.
        streets: (B,) the street of each; empty on a plane.
        reaches: epsilon times the length of each street that there is; empty where snapping is linear.
        reach: (B,) the place of each position's street in ``reaches``, and its reach in doubles; None where linear.
        steps: n of mathematics C2; 0 for linear snapping.
    """

    corners: Ints
    shares: Any
    away: Floats
    streets: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    reaches: Sequence[Fraction] = ()
    reach: tuple[Ints, Floats] | None = None
    steps: int = 0

    def exact(self, row: int) -> list[Fraction]:
        """Return the probability of each corner of one position, exactly."""
        weights = [int(weight) for weight in self.shares[row]]
        linear = [Fraction(weight, sum(weights)) for weight in weights]
        if self.reach is None:
            return linear
        far_probability = far_share(linear[1], self.reaches[self.reach[0][row]], self.steps)
        return [1 - far_probability, far_probability]

    @property
    def linear(self) -> Floats:
        """(B, m) barycentric coordinates, or shares of the way, in doubles."""
        shares: Floats = self.shares.astype(np.float64) / self.shares.sum(axis=1)[:, None].astype(np.float64)
        return shares

    @property
    def probabilities(self) -> Floats:
        """(B, m) the probability of each corner in doubles."""
        linear = self.linear
        if self.reach is None:
            return linear
        far_probability = far_shares(linear[:, 1], self.reach[1], self.steps)
        return np.stack([1.0 - far_probability, far_probability], axis=1)

    def draw(self, source: Source | None = None) -> Ints:
        """Draw (B,) vertices, one for each position with exactly its probabilities.

        Args:
            source: random bytes; the operating system's by default.
        """

        def exact_thresholds(row: int) -> list[Fraction]:
            parts = self.exact(row)
            return [sum(parts[: index + 1], Fraction(0)) for index in range(len(parts) - 1)]

        corner_numbers = choose(np.cumsum(self.probabilities[:, :-1], axis=1), exact_thresholds, source=source)
        vertices: Ints = self.corners[np.arange(len(corner_numbers)), corner_numbers]
        return vertices


@frozen(kw_only=True, eq=False, slots=False)
class Snapper:
    """Snaps positions to the vertices of a region.

    Attributes:
        simplices: (S, 2) streets or (S, 3) triangles.
        vertices: (N, 2) mm.
        numbers: (S,) of the streets in their region; streets without coordinates are omitted. Empty on a plane.
        reaches: (S,) epsilon times the length of each street; empty where snapping is linear.
        steps: n of mathematics C2; 0 for linear snapping.
        projection: how positions in degrees come onto the plane; None where they are planar.
    """

    simplices: Ints
    vertices: Ints
    numbers: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    reaches: Sequence[Fraction] = ()
    steps: int = 0
    projection: Projection | None = None

    @classmethod
    def of(cls, region: Region, epsilon: Fraction) -> Snapper:
        """Make one for a region and its epsilon, per km.

        Streets are straight lines between the positions of their ends; those with an end that has none are omitted.
        """
        if isinstance(region, Plane):
            return cls(simplices=region.simplices, vertices=region.vertices, projection=region.projection)
        assert isinstance(region, Streets)
        places = np.full((region.size, 2), np.nan) if region.positions is None else region.positions
        has_position = np.asarray(~np.isnan(places).any(axis=1))
        is_usable = has_position[region.simplices].all(axis=1)
        if not is_usable.any():
            raise UsageError("columns of the secret must be id, got positions: no street has coordinates at both ends")
        projection = Projection.of(places[has_position], "records") if region.geographic else None
        return cls(
            simplices=region.simplices[is_usable],
            vertices=read_positions(np.where(has_position[:, None], places, places[has_position][0]), projection),
            numbers=np.flatnonzero(is_usable),
            reaches=[epsilon * Fraction(km) for km in region.km[is_usable].tolist()] if region.steps else (),
            steps=region.steps,
            projection=projection,
        )

    @cached_property
    def _triangles(self) -> Triangles | None:
        return Triangles(vertices=self.vertices, simplices=self.simplices) if self.simplices.shape[1] == 3 else None

    @cached_property
    def ends(self) -> Ints:
        """(E, 2) vertices at the ends of a plane's rim, or of streets."""
        return self.simplices if self._triangles is None else self._triangles.rim

    @cached_property
    def _sides(self) -> Sides:
        return Sides(tails=self.vertices[self.ends[:, 0]], heads=self.vertices[self.ends[:, 1]])

    @cached_property
    def _double_reaches(self) -> Floats:
        """(S,) of the streets, in doubles."""
        return np.array([float(reach) if reach < STEEPEST else STEEPEST for reach in self.reaches])

    def snap(self, positions: Floats) -> SimplexMixture:
        """Return the vertices and weights that make up each position.

        Args:
            positions: (B, 2) latitudes and longitudes in degrees where there is a projection, else x and y in km.
        """
        return self.exactly(self.read(positions))

    def read(self, positions: Floats) -> Ints:
        """Round (B, 2) positions as :meth:`snap` takes them, in whole mm of the plane."""
        return read_positions(positions, self.projection)

    def exactly(self, positions: Ints) -> SimplexMixture:
        """Snap positions in whole millimetres of the plane."""
        if self._triangles is None:
            side_numbers, shares, distances = self._sides.nearest(positions)
            return SimplexMixture(
                corners=self.ends[side_numbers],
                shares=shares,
                away=distances / MM_PER_KM,
                streets=self.numbers[side_numbers] if self.numbers.size else side_numbers,
                reaches=self.reaches,
                reach=(side_numbers, self._double_reaches[side_numbers]) if self.steps else None,
                steps=self.steps,
            )
        triangles, shares = self._triangles.locate(positions)
        corners, distances = self.simplices[triangles], np.zeros(len(positions))
        outside_rows = np.flatnonzero(triangles < 0)
        if outside_rows.size:
            side_numbers, divided, outside_distances = self._sides.nearest(positions[outside_rows])
            if divided.dtype == object:
                shares = shares.astype(object)
            corners[outside_rows, :2], corners[outside_rows, 2] = self.ends[side_numbers], self.ends[side_numbers, 0]
            shares[outside_rows, :2], shares[outside_rows, 2] = divided, 0
            distances[outside_rows] = outside_distances / MM_PER_KM
        return SimplexMixture(corners=corners, shares=shares, away=distances)
