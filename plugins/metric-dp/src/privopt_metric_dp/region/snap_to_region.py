"""Random snapping: a position is a mixture of its street's or triangle's vertices, and one of them is drawn exactly.

In a triangle, the mixture's weights are barycentric coordinates; on a street, :func:`far_share` gives them. They are
rationals that are never rounded. A position outside the region is first moved to the nearest point on the boundary, and
a position off the streets to the nearest point on a street; the guarantee then holds for that point. The theorem and
its proof are in docs/guide/everywhere.md. The drawn vertex reveals more than a report does, so it is never released.
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
"""Largest reach (epsilon times a street's length) in floating point. A larger reach gives the same weights, to double
precision."""


def far_share(part: Fraction, reach: Fraction, steps: int) -> Fraction:
    """Return the exact weight of the far end in the mixture of a street's two ends.

    A street of length l is cut into 2n equal pieces. Let t = epsilon l / (2n) and a = 2 ((1 + t)^n - 1). The far end's
    weight at the end of the j-th piece is ((1 + t)^j - 1) / a for j up to n, and linear in between. The other half of
    the street mirrors the first. If the ends' rows satisfy z_b <= (1 + a) z_a and z_a <= (1 + a) z_b, their mixture
    changes by at most a factor exp(epsilon d) over any d km. With n = 0, snapping is linear: the weight is the
    position, and a = epsilon l. See docs/guide/everywhere.md, "Streets".

    Args:
        part: The position on the street, from 0 at the near end to 1 at the far end.
        reach: Epsilon times the street's length.
        steps: n, the number of pieces into which half a street is cut; 0 for linear snapping.

    >>> far_share(Fraction(1, 4), Fraction(1, 2), 0), far_share(Fraction(3, 4), Fraction(8), 2)
    (Fraction(1, 4), Fraction(7, 8))
    """
    if 2 * part > 1:
        return 1 - far_share(1 - part, reach, steps)
    if not steps or not reach:
        return part
    # The position counted in pieces: some whole ones, and a part of the next, on which the weight is linear.
    piece = 2 * steps * part
    whole_pieces = piece.numerator // piece.denominator
    step = reach / (2 * steps)
    # `reach` is passed as epsilon, with a street of 1 km, because only the product of the two matters.
    return ((1 + step) ** whole_pieces * (1 + (piece - whole_pieces) * step) - 1) / street_growth(reach, 1.0, steps)


def far_shares(part: Floats, reach: Floats, steps: int) -> Floats:
    """Compute :func:`far_share` in floating point, with an error below 2**-40 for up to 16 steps.

    Args:
        part: (B,) positions on the streets, from 0 at the near end to 1 at the far end.
        reach: (B,) epsilon times the streets' lengths, which may be infinite.
        steps: n, the number of pieces into which half a street is cut; 0 for linear snapping.

    Returns:
        (B,) the weights of the far ends.
    """
    if not steps:
        return part
    mirrored = np.minimum(part, 1.0 - part)
    step = np.minimum(reach, STEEPEST) / (2 * steps)
    whole_pieces = np.minimum(np.floor(2 * steps * mirrored), steps)
    # ((1 + t)^j (1 + r t) - 1) / (2 ((1 + t)^n - 1)) is computed with logarithms, since the powers may overflow.
    # Numerator and denominator are divided by (1 + t)^n.
    risen = whole_pieces * np.log1p(step) + np.log1p((2 * steps * mirrored - whole_pieces) * step)
    total = steps * np.log1p(step)
    normaliser = -2.0 * np.expm1(-total)
    # Where the reach is so small that the formula would be 0 / 0, the weight is the position.
    near_share = np.divide(
        -np.expm1(-risen) * np.exp(risen - total), normaliser, out=mirrored.copy(), where=reach > 1e-15
    )
    shares: Floats = np.where(part > 0.5, 1.0 - near_share, near_share)
    return shares


def read_positions(positions: Floats, projection: Projection | None) -> Ints:
    """Return positions rounded to integer millimetres in the plane.

    Rounding can increase the distance between two positions by sqrt(2) mm if they are in km, and by sqrt(2) (11.12 + 1)
    < 17.2 mm if they are in degrees: each coordinate is rounded by up to half of 1e-7 degrees, then by up to half a
    millimetre.

    >>> read_positions(np.array([[0.25, -1e-6]]), None).tolist()
    [[250000, -1]]

    Args:
        positions: (B, 2) in degrees (latitude first) if there is a projection, else in km.
        projection: The projection onto the plane, or None if positions are planar.
    """
    if projection is not None:
        return projection.to_plane(degrees_in_units(positions))
    return np.rint(np.clip(positions * MM_PER_KM, -FARTHEST, FARTHEST)).astype(np.int64)


@frozen(kw_only=True, eq=False)
class SimplexMixture:
    """Positions as mixtures of their simplices' vertices.

    Attributes:
        corners: (B, m) the vertices' indices.
        shares: (B, m) the linear weights as non-negative integers, to be divided by their sum. They are 64-bit or
            Python integers.
        away: (B,) the distance in km from each position to the point in the region that replaces it; 0 inside the
            region.
        streets: (B,) the index of each position's street; empty on a plane.
        reaches: Epsilon times the length, for every street with positions; empty if snapping is linear.
        reach: The index in ``reaches`` of each position's street (B,), and the street's reach (epsilon times length) in
            floating point (B,). None if snapping is linear.
        steps: n in :func:`far_share`; 0 for linear snapping.
    """

    corners: Ints
    shares: Any
    away: Floats
    streets: Ints = field(factory=lambda: np.zeros(0, dtype=np.int64))
    reaches: Sequence[Fraction] = ()
    reach: tuple[Ints, Floats] | None = None
    steps: int = 0

    def exact(self, row: int) -> list[Fraction]:
        """Return the exact probabilities of one position's corners."""
        weights = [int(weight) for weight in self.shares[row]]
        linear = [Fraction(weight, sum(weights)) for weight in weights]
        if self.reach is None:
            return linear
        # On a street, the linear weight of the far end is the position on the street.
        far_probability = far_share(linear[1], self.reaches[self.reach[0][row]], self.steps)
        return [1 - far_probability, far_probability]

    @property
    def linear(self) -> Floats:
        """(B, m) the linear weights in floating point: barycentric coordinates, or positions on streets."""
        shares: Floats = self.shares.astype(np.float64) / self.shares.sum(axis=1)[:, None].astype(np.float64)
        return shares

    @property
    def probabilities(self) -> Floats:
        """(B, m) the corners' probabilities in floating point."""
        linear = self.linear
        if self.reach is None:
            return linear
        far_probability = far_shares(linear[:, 1], self.reach[1], self.steps)
        return np.stack([1.0 - far_probability, far_probability], axis=1)

    def draw(self, source: Source | None = None) -> Ints:
        """Draw one vertex for each position, with exactly the probabilities from :meth:`exact`.

        Args:
            source: Source of random bytes; the operating system's by default.

        Returns:
            (B,) the vertices' indices.
        """

        # Doubles decide nearly all draws; these rationals are computed only for a draw too close to a threshold.
        def exact_thresholds(row: int) -> list[Fraction]:
            """Return the exact cumulative probabilities of a row's corners, except the last."""
            parts = self.exact(row)
            return [sum(parts[: index + 1], Fraction(0)) for index in range(len(parts) - 1)]

        corner_numbers = choose(np.cumsum(self.probabilities[:, :-1], axis=1), exact_thresholds, source=source)
        vertices: Ints = self.corners[np.arange(len(corner_numbers)), corner_numbers]
        return vertices


@frozen(kw_only=True, eq=False, slots=False)
class Snapper:
    """Snaps positions to a region's vertices.

    Attributes:
        simplices: The ends of each street (S, 2), or the corners of each triangle (S, 3).
        vertices: (N, 2) the vertices' positions, in mm.
        numbers: (S,) the index that each street has in the region, where streets without coordinates count too. Empty
            on a plane.
        reaches: S numbers, epsilon times the length of each street; empty if snapping is linear.
        steps: n in :func:`far_share`; 0 for linear snapping.
        projection: The projection that maps positions in degrees onto the plane, or None if positions are planar.
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

        Streets are taken to be straight lines between the positions of their ends. A street is omitted if one of its
        ends has no position.

        Args:
            region: The region.
            epsilon: Epsilon per km.

        Raises:
            UsageError: No street has positions at both ends.
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
            # A node without a position gets that of another one, which has no effect, as none of these streets ends
            # there.
            vertices=read_positions(np.where(has_position[:, None], places, places[has_position][0]), projection),
            numbers=np.flatnonzero(is_usable),
            reaches=[epsilon * Fraction(km) for km in region.km[is_usable].tolist()] if region.steps else (),
            steps=region.steps,
            projection=projection,
        )

    @cached_property
    def _triangles(self) -> Triangles | None:
        """The plane's triangles, or None for streets."""
        return Triangles(vertices=self.vertices, simplices=self.simplices) if self.simplices.shape[1] == 3 else None

    @cached_property
    def side_ends(self) -> Ints:
        """(E, 2) the vertices at the ends of each side of the plane's boundary, or at the ends of each street."""
        return self.simplices if self._triangles is None else self._triangles.rim

    @cached_property
    def _sides(self) -> Sides:
        """The sides that ``side_ends`` lists, on which the nearest point is searched for."""
        return Sides(tails=self.vertices[self.side_ends[:, 0]], heads=self.vertices[self.side_ends[:, 1]])

    @cached_property
    def _double_reaches(self) -> Floats:
        """(S,) ``reaches`` in floating point, at most :data:`STEEPEST`."""
        return np.array([float(reach) if reach < STEEPEST else STEEPEST for reach in self.reaches])

    def snap(self, positions: Floats) -> SimplexMixture:
        """Return each position as a mixture of vertices.

        Args:
            positions: (B, 2) latitudes and longitudes in degrees if there is a projection, else x and y in km.
        """
        return self.exactly(self.read(positions))

    def read(self, positions: Floats) -> Ints:
        """Return positions (B, 2), given as for :meth:`snap`, rounded to integer millimetres in the plane."""
        return read_positions(positions, self.projection)

    def exactly(self, positions: Ints) -> SimplexMixture:
        """Return each position (B, 2), given in integer millimetres in the plane, as a mixture of vertices."""
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
        # A position outside becomes a mixture of the two ends of the nearest side; the third corner's share is 0. The
        # index -1 has selected some other triangle's corners above, which are replaced.
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
