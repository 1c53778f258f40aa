"""Cells near a position: those whose centre is so near that their kept report is given again (mathematics T3).

Cells are fixed and public: each is all that one record, or one vertex, is nearest to. The circle is around the centre
of a cell and never around a position that was reported, which three renewals at known places would find.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.numbers.distances import EARTH_RADIUS_KM, directions
from privopt_metric_dp.space.places import Space

if TYPE_CHECKING:
    from scipy.spatial import cKDTree as Tree
else:
    Tree = Any

__all__ = ["Near"]


@frozen(kw_only=True, eq=False)
class Near:
    """Finds the cells whose centre is near a position.

    Attributes:
        tree: of the centres; on the globe of points of the unit sphere.
        numbers: (C,) what each centre's cell is called.
        geographic: whether positions are degrees.
        reach: up to which distance in the tree a centre is near.
    """

    tree: Tree
    numbers: Ints
    geographic: bool
    reach: float

    @classmethod
    def of(cls, centres: Space, within: float, ids: Sequence[str] | None) -> Self:
        """Prepare for positions.

        Args:
            centres: of all cells.
            within: km.
            ids: of the cells that have a number, in its order; None for all, in their own order.

        Raises:
            UsageError: a distance of 0 or less, or one below half the diagonal of the cells: a cell would not reach its
                own corners.
        """
        from scipy.spatial import cKDTree

        given: object = within
        number = math.nan if isinstance(given, bool) or not isinstance(given, Real) else float(given)
        if not 0 < number < math.inf:
            raise UsageError(f"sticky-within must be a number of km above 0, got {given}")
        assert centres.coordinates is not None  # positions were asked for, so they lie somewhere
        chosen = np.arange(len(centres.ids)) if ids is None else np.array(centres.numbers(list(ids)), dtype=np.int64)
        points = centres.coordinates[chosen]
        placed = np.flatnonzero(np.isfinite(points).all(axis=1))
        geographic = centres.kind == "geographic"
        unit = EARTH_RADIUS_KM if geographic else 1.0
        tree = cKDTree(directions(points[placed]) if geographic else points[placed])
        least = 0.0
        if len(placed) > 1:
            least = unit * float(np.median(tree.query(tree.data, k=2)[0][:, 1])) / math.sqrt(2.0)
        if number < least * (1 - 1e-6):
            raise UsageError(
                f"sticky-within must be at least half a cell's diagonal, {math.ceil(least * 1000) / 1000:g} km for "
                f"squares as wide as records are apart, and the noise of positions, got {number:g}"
            )
        reach = 2.0 * math.sin(min(math.pi, number / unit) / 2.0) if geographic else number
        return cls(tree=tree, numbers=placed, geographic=geographic, reach=reach)

    def places_of(self, positions: Floats, reason: Ints) -> list[list[int]]:
        """Return the cells near each position; an empty list where a reason says that it is not one."""
        found: list[list[int]] = [[] for _ in reason]
        good = np.flatnonzero(reason < 0)
        if good.size:
            points = directions(positions[good]) if self.geographic else positions[good]
            for row, near in zip(good.tolist(), self.tree.query_ball_point(points, self.reach), strict=True):
                found[row] = self.numbers[sorted(near)].tolist()
        return found
