"""Cells near a position: those whose centre is so near that their kept report is given again (mathematics T3).

Cells are fixed and public: each is all that one record, or one vertex, is nearest to. The circle is around the centre
of a cell and never around a position that was reported, which three renewals at known places would find.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from numbers import Real

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.errors import UsageError
from privopt.numbers.distances import EARTH_RADIUS_KM, directions
from privopt_metric_dp.space.places import Space

__all__ = ["near_cells"]


def near_cells(centres: Space, within: float, ids: Sequence[str] | None) -> Callable[[Floats, Ints], list[list[int]]]:
    """Return what finds the cells whose centre is near a position.

    Args:
        centres: of all cells.
        within: km.
        ids: of the cells that have a number, in its order; None for all, in their own order.

    Returns:
        Gives the numbers of the cells near each position (B, 2); none where a reason (B,) says why a row has none.

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
    tree = cKDTree(directions(points[placed]) if geographic else points[placed])  # on the globe of the unit sphere
    least = 0.0
    if len(placed) > 1:
        least = unit * float(np.median(tree.query(tree.data, k=2)[0][:, 1])) / math.sqrt(2.0)
    if number < least * (1 - 1e-6):
        raise UsageError(
            f"sticky-within must be at least half a cell's diagonal, {math.ceil(least * 1000) / 1000:g} km for "
            f"squares as wide as records are apart, and the noise of positions, got {number:g}"
        )
    reach = 2.0 * math.sin(min(math.pi, number / unit) / 2.0) if geographic else number

    def near(positions: Floats, reason: Ints) -> list[list[int]]:
        found: list[list[int]] = [[] for _ in reason]
        good = np.flatnonzero(reason < 0)
        if good.size:
            at = directions(positions[good]) if geographic else positions[good]
            for row, cells in zip(good.tolist(), tree.query_ball_point(at, reach), strict=True):
                found[row] = placed[sorted(cells)].tolist()
        return found

    return near
