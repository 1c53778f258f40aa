"""Random snapping, which replaces a position with a random vertex of the street or triangle that contains it.

The position is expressed as a mixture of the vertices, and the weights of the mixture are the vertices' probabilities.
In a triangle, the weights are barycentric coordinates. On a street, they are computed by :func:`far_share`. The weights
are rationals that are never rounded.

A position outside the region is first moved to the nearest point on the boundary or, for streets, to the nearest point
on any street. The guarantee applies to that point. The theorem and its proof are in docs/guide/everywhere.md. The drawn
vertex reveals more than a report does, so it is never released.
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
"""The value at which the reach (epsilon times a street's length) is capped in floating point.

Larger values give the same weights in double precision."""


def far_share(part: Fraction, reach: Fraction, steps: int) -> Fraction:
    """Return the exact probability that a position on a street is snapped to the far end.

    A street of length l is divided into 2n equal pieces. Let t = epsilon l / (2n) and a = 2 ((1 + t)^n - 1). For j up
    to n, the probability is ((1 + t)^j - 1) / a at the end of the j-th piece. It is linear on each piece, and the far
    half of the street mirrors the near half.

    If the rows of the two ends differ by at most a factor of 1 + a in every entry, their mixture changes by at most a
    factor of exp(epsilon d) over any distance d. If n = 0, snapping is linear: the probability equals the position, and
    a is epsilon l. See docs/guide/everywhere.md, "Streets".

    Args:
        part: The position on the street, from 0 at the near end to 1 at the far end.
        reach: Epsilon times the street's length.
        steps: The number of pieces in each half of the street, n, or 0 for linear snapping.

    >>> far_share(Fraction(1, 4), Fraction(1, 2), 0), far_share(Fraction(3, 4), Fraction(8), 2)
    (Fraction(1, 4), Fraction(7, 8))
    """
    if 2 * part > 1:
        return 1 - far_share(1 - part, reach, steps)
    if not steps or not reach:
        return part
    # The position in units of pieces. The weight is linear within each piece.
    piece = 2 * steps * part
    whole_pieces = piece.numerator // piece.denominator
    step = reach / (2 * steps)
    # `reach` is passed as epsilon together with a length of 1 km, because only the product of the two matters.
    return ((1 + step) ** whole_pieces * (1 + (piece - whole_pieces) * step) - 1) / street_growth(reach, 1.0, steps)


def far_shares(part: Floats, reach: Floats, steps: int) -> Floats:
    """Compute :func:`far_share` in floating point, with an error below 2**-40 for up to 16 steps.

    Args:
        part: Array of shape (B,) with the positions on the streets, from 0 at the near end to 1 at the far end.
        reach: Array of shape (B,) with epsilon times the length of each street. Infinite values are allowed.
        steps: The number of pieces in each half of a street, n, or 0 for linear snapping.

    Returns:
        Array of shape (B,) with the weights of the far ends.
    """
    if not steps:
        return part
    mirrored = np.minimum(part, 1.0 - part)
    step = np.minimum(reach, STEEPEST) / (2 * steps)
    whole_pieces = np.minimum(np.floor(2 * steps * mirrored), steps)
    # ((1 + t)^j (1 + r t) - 1) / (2 ((1 + t)^n - 1)) is computed with logarithms, because the powers may overflow.
    # Numerator and denominator are divided by (1 + t)^n.
    risen = whole_pieces * np.log1p(step) + np.log1p((2 * steps * mirrored - whole_pieces) * step)
    total = steps * np.log1p(step)
    normaliser = -2.0 * np.expm1(-total)
    # If the reach is so small that the formula would be 0 / 0, the weight is the position.
    near_share = np.divide(
        -np.expm1(-risen) * np.exp(risen - total), normaliser, out=mirrored.copy(), where=reach > 1e-15
    )
    shares: Floats = np.where(part > 0.5, 1.0 - near_share, near_share)
    return shares


def read_positions(positions: Floats, projection: Projection | None) -> Ints:
    """Convert positions to integer millimetres in the plane.

    Positions in km are rounded to millimetres, which can increase the distance between two positions by up to sqrt(2)
    mm. Positions in degrees are rounded to multiples of 1e-7 before the projection and to millimetres after it, which
    can increase the distance by up to sqrt(2) (11.12 + 1) < 17.2 mm.

    >>> read_positions(np.array([[0.25, -1e-6]]), None).tolist()
    [[250000, -1]]

    Args:
        positions: Array of shape (B, 2) with latitudes and longitudes in degrees if there is a projection, and with x
            and y in km otherwise.
        projection: The projection onto the plane, or None if positions are planar.

    Returns:
        Array of shape (B, 2) and type int64 with x and y in millimetres.
    """
    if projection is not None:
        return projection.to_plane(degrees_in_units(positions))
    return np.rint(np.clip(positions * MM_PER_KM, -FARTHEST, FARTHEST)).astype(np.int64)


@frozen(kw_only=True, eq=False)
class SimplexMixture:
    """Positions expressed as mixtures of the vertices of their simplices.

    Attributes:
        corners: Array of shape (B, m) with the vertex indices of each position's simplex.
        shares: Array of shape (B, m) with the linear weights of the corners as non-negative 64-bit or Python integers.
            Dividing each row by its sum normalises the weights.
        away: Array of shape (B,) with the distance in km from each position to the point in the region that replaces
            it. It is 0 for positions inside the region.
        streets: Array of shape (B,) with the index of each position's street. It is empty on a plane.
        reaches: Epsilon times the length of each street whose ends have known positions. It is empty if snapping is
            linear.
        reach: Two arrays of shape (B,), or None if snapping is linear. The first contains the index in ``reaches`` of
            each position's street, and the second contains this street's reach (epsilon times length) in floating
            point.
        steps: The number n in :func:`far_share`, or 0 for linear snapping.
    """

    corners: Ints
    shares: Any
    away: Floats
    streets: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    reaches: Sequence[Fraction] = ()
    reach: tuple[Ints, Floats] | None = None
    steps: int = 0

    def exact(self, row: int) -> list[Fraction]:
        """Return the exact probabilities of snapping the position with index ``row`` to each corner of its simplex."""
        weights = [int(weight) for weight in self.shares[row]]
        linear = [Fraction(weight, sum(weights)) for weight in weights]
        if self.reach is None:
            return linear
        # On a street, the linear weight of the far end is the position on the street.
        far_probability = far_share(linear[1], self.reaches[self.reach[0][row]], self.steps)
        return [1 - far_probability, far_probability]

    @property
    def linear(self) -> Floats:
        """Array of shape (B, m) with the linear weights of the corners in floating point."""
        shares: Floats = self.shares.astype(np.float64) / self.shares.sum(axis=1)[:, None].astype(np.float64)
        return shares

    @property
    def probabilities(self) -> Floats:
        """Array of shape (B, m) with the probabilities, as doubles, of snapping each position to its corners."""
        linear = self.linear
        if self.reach is None:
            return linear
        far_probability = far_shares(linear[:, 1], self.reach[1], self.steps)
        return np.stack([1.0 - far_probability, far_probability], axis=1)

    def draw(self, source: Source | None = None) -> Ints:
        """Draw one vertex per position, with exactly the probabilities returned by :meth:`exact`.

        Args:
            source: The source of random bytes, which is the operating system by default.

        Returns:
            Array of shape (B,) with the indices of the vertices drawn.
        """

        # Doubles decide nearly all draws. These rationals are computed only for draws that are too close to a
        # threshold.
        def exact_thresholds(row: int) -> list[Fraction]:
            """Return the exact cumulative probabilities of all corners but the last, for position ``row``."""
            parts = self.exact(row)
            return [sum(parts[: index + 1], Fraction(0)) for index in range(len(parts) - 1)]

        corner_numbers = choose(np.cumsum(self.probabilities[:, :-1], axis=1), exact_thresholds, source=source)
        vertices: Ints = self.corners[np.arange(len(corner_numbers)), corner_numbers]
        return vertices


@frozen(kw_only=True, eq=False, slots=False)
class Snapper:
    """A sampler that snaps positions to the vertices of a region.

    Attributes:
        simplices: Array of shape (S, 2) with the ends of each street, or of shape (S, 3) with the corners of each
            triangle.
        vertices: Array of shape (N, 2) with the positions of the vertices in mm.
        numbers: Array of shape (S,) with the index of each street in the region, which may also contain streets without
            coordinates. It is empty on a plane.
        reaches: Epsilon times the length of each of the S streets. It is empty if snapping is linear.
        steps: The number n in :func:`far_share`, or 0 for linear snapping.
        projection: The projection from degrees onto the plane, or None if positions are planar.
    """

    simplices: Ints
    vertices: Ints
    numbers: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    reaches: Sequence[Fraction] = ()
    steps: int = 0
    projection: Projection | None = None

    @classmethod
    def of(cls, region: Region, epsilon: Fraction) -> Snapper:
        """Create the snapper for a region.

        Streets are assumed to be straight lines between the positions of their ends. A street is left out if the
        position of either end is unknown.

        Args:
            region: The region.
            epsilon: Epsilon per km.

        Raises:
            UsageError: No street has known positions at both ends.
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
            # A node without a position gets the position of some other node. This has no effect, because no usable
            # street ends at such a node.
            vertices=read_positions(np.where(has_position[:, None], places, places[has_position][0]), projection),
            numbers=np.flatnonzero(is_usable),
            reaches=[epsilon * Fraction(km) for km in region.km[is_usable].tolist()] if region.steps else (),
            steps=region.steps,
            projection=projection,
        )

    @cached_property
    def _triangles(self) -> Triangles | None:
        """The triangles of the plane, or None for streets."""
        return Triangles(vertices=self.vertices, simplices=self.simplices) if self.simplices.shape[1] == 3 else None

    @cached_property
    def side_ends(self) -> Ints:
        """Array of shape (E, 2) with the vertices at the ends of each street or, on a plane, of each boundary side."""
        return self.simplices if self._triangles is None else self._triangles.rim

    @cached_property
    def _sides(self) -> Sides:
        """The sides in ``side_ends``, prepared for finding the nearest point to a position."""
        return Sides(tails=self.vertices[self.side_ends[:, 0]], heads=self.vertices[self.side_ends[:, 1]])

    @cached_property
    def _double_reaches(self) -> Floats:
        """Array of shape (S,) with the values of ``reaches`` in floating point, capped at :data:`STEEPEST`."""
        return np.array([float(reach) if reach < STEEPEST else STEEPEST for reach in self.reaches])

    def snap(self, positions: Floats) -> SimplexMixture:
        """Express positions as mixtures of the region's vertices.

        Args:
            positions: Array of shape (B, 2) with latitudes and longitudes in degrees if there is a projection, and with
                x and y in km otherwise.
        """
        return self.exactly(self.read(positions))

    def read(self, positions: Floats) -> Ints:
        """Convert positions in the format described in :meth:`snap` to integer millimetres in the plane."""
        return read_positions(positions, self.projection)

    def exactly(self, positions: Ints) -> SimplexMixture:
        """Express positions with integer coordinates as mixtures of the region's vertices (see :meth:`snap`).

        Args:
            positions: Integer array of shape (B, 2) with x and y in millimetres in the plane.
        """
        if self._triangles is None:
            side_numbers, shares, distances = self._sides.nearest(positions)
            return SimplexMixture(
                corners=self.side_ends[side_numbers],
                shares=shares,
                away=distances / MM_PER_KM,
                streets=self.numbers[side_numbers] if self.numbers.size else side_numbers,
                reaches=self.reaches,
                reach=(side_numbers, self._double_reaches[side_numbers]) if self.steps else None,
                steps=self.steps,
            )
        triangles, shares = self._triangles.locate(positions)
        corners, distances = self.simplices[triangles], np.zeros(len(positions))
        # A position outside the region becomes a mixture of the two ends of the nearest side, and the third corner gets
        # a share of 0. For these positions, the index -1 has selected the corners of an unrelated triangle above, which
        # are replaced here.
        outside_rows = np.flatnonzero(triangles < 0)
        if outside_rows.size:
            side_numbers, divided, outside_distances = self._sides.nearest(positions[outside_rows])
            # Weights on sides are Python integers if they do not fit into 64 bits.
            if divided.dtype == object:
                shares = shares.astype(object)
            corners[outside_rows, :2] = self.side_ends[side_numbers]
            corners[outside_rows, 2] = self.side_ends[side_numbers, 0]
            shares[outside_rows, :2], shares[outside_rows, 2] = divided, 0
            distances[outside_rows] = outside_distances / MM_PER_KM
        return SimplexMixture(corners=corners, shares=shares, away=distances)
