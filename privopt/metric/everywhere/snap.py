"""Random snapping: a position is a mixture of the vertices of its simplex, and one of them is drawn, exactly.

In a triangle the shares are barycentric coordinates, on a street they are those of :mod:`.curve`: rationals, never
rounded (mathematics C2, C4). A position outside the region is first taken to the nearest point of its rim, and one beside
the streets to the nearest point of a street: what is promised then holds for that point (C5). The vertex that was drawn
tells more than a report does and never leaves.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Ints
from privopt.exact.sample import Source, choose
from privopt.metric.everywhere.curve import far_share, far_shares
from privopt.metric.everywhere.locate import FARTHEST, Sides, Triangles

__all__ = ["KM", "Snapped", "Snapper", "millimetres"]

KM: Final = 1_000_000
"""Millimetres in a kilometre."""


def millimetres(km: Floats) -> Ints:
    """Positions as they are read: whole millimetres of the plane.

    >>> millimetres(np.array([[0.25, -1e-6]])).tolist()
    [[250000, -1]]

    Args:
        km: (B, 2) coordinates, none beyond :data:`.locate.FARTHEST` mm.
    """
    return np.rint(np.clip(km * KM, -FARTHEST, FARTHEST)).astype(np.int64)


@frozen(kw_only=True, eq=False)
class Snapped:
    """What positions are mixtures of.

    Attributes:
        corners: (B, m) numbers of vertices.
        shares: (B, m) whole numbers of at least 0, of 64 bits or Python's: linear shares times their sum.
        away: (B,) km from each position to the point of the region that it is taken for; 0 inside.
        reaches: (B,) of streets: epsilon times the length of each position's street. Empty where snapping is linear.
        steps: n of mathematics C2; 0 for linear snapping.
    """

    corners: Ints
    shares: Any
    away: Floats
    reaches: Sequence[Fraction] = ()
    steps: int = 0

    def exact(self, row: int) -> list[Fraction]:
        """The probability of each corner of one position, exactly."""
        whole = [int(share) for share in self.shares[row]]
        linear = [Fraction(share, sum(whole)) for share in whole]
        if not self.steps:
            return linear
        far = far_share(linear[1], self.reaches[row], self.steps)
        return [1 - far, far]

    @property
    def probabilities(self) -> Floats:
        """(B, m) the same in doubles, for losses."""
        linear = self.shares.astype(np.float64) / self.shares.sum(axis=1)[:, None].astype(np.float64)
        if not self.steps:
            return linear  # type: ignore[no-any-return]
        far = far_shares(linear[:, 1], np.array([float(reach) for reach in self.reaches]), self.steps)
        return np.stack([1.0 - far, far], axis=1)

    def draw(self, source: Source | None = None) -> Ints:
        """(B,) vertices, one drawn for each position with exactly its probabilities.

        Args:
            source: random bytes; the operating system's where left out.
        """

        def cuts(row: int) -> list[Fraction]:
            parts = self.exact(row)
            return [sum(parts[: place + 1], Fraction(0)) for place in range(len(parts) - 1)]

        place = choose(np.cumsum(self.probabilities[:, :-1], axis=1), cuts, source=source)
        drawn: Ints = self.corners[np.arange(len(place)), place]
        return drawn


@frozen(kw_only=True, eq=False, slots=False)
class Snapper:
    """Snaps positions to the vertices of a region.

    Attributes:
        triangles: of a plane; None for streets.
        sides: a plane's rim, or straight lines between the ends of streets.
        ends: (E, 2) vertices at the ends of each side.
        reaches: (E,) epsilon times the length of each street; empty where snapping is linear.
        steps: n of mathematics C2; 0 for linear snapping.
    """

    triangles: Triangles | None
    sides: Sides
    ends: Ints
    reaches: Sequence[Fraction] = field(default=())
    steps: int = 0

    @classmethod
    def plane(cls, vertices: Ints, simplices: Ints) -> Snapper:
        """For triangles: (N, 2) vertices in mm, (S, 3) simplices, counter-clockwise."""
        triangles = Triangles(vertices=vertices, simplices=simplices)
        ends = triangles.rim
        sides = Sides(tails=vertices[ends[:, 0]], heads=vertices[ends[:, 1]])
        return cls(triangles=triangles, sides=sides, ends=ends)

    @classmethod
    def streets(cls, places: Ints, simplices: Ints, reaches: Sequence[Fraction], steps: int) -> Snapper:
        """For streets: (N, 2) places of nodes in mm, (S, 2) streets, epsilon times their lengths, and n."""
        sides = Sides(tails=places[simplices[:, 0]], heads=places[simplices[:, 1]])
        return cls(triangles=None, sides=sides, ends=simplices, reaches=reaches if steps else (), steps=steps)

    def snap(self, positions: Ints) -> Snapped:
        """What each position is a mixture of.

        Args:
            positions: (B, 2) mm.
        """
        if self.triangles is None:
            side, shares, away = self.sides.nearest(positions)
            reaches = [self.reaches[number] for number in side.tolist()] if self.steps else ()
            return Snapped(
                corners=self.ends[side], shares=shares, away=away / KM, reaches=reaches, steps=self.steps
            )
        found, shares = self.triangles.locate(positions)
        corners, away = self.triangles.simplices[found], np.zeros(len(positions))
        out = np.flatnonzero(found < 0)
        if out.size:
            side, divided, far = self.sides.nearest(positions[out])
            if divided.dtype == object:
                shares = shares.astype(object)
            corners[out, :2], corners[out, 2] = self.ends[side], self.ends[side, 0]
            shares[out, :2], shares[out, 2] = divided, 0
            away[out] = far / KM
        return Snapped(corners=corners, shares=shares, away=away)
