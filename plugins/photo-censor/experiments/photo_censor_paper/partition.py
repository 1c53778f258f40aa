"""Cells for a classifier of places, cut to where photos are: boxes of equal counts (the paper's 512), S2 cells."""

from __future__ import annotations

import numpy as np
import s2cell
from numpy.typing import NDArray

from privopt.arrays import Floats
from privopt_photo_censor.app.cells import Boxes, S2Cells

__all__ = ["equal_count", "s2_partition"]


def equal_count(latitudes: Floats, longitudes: Floats, count: int) -> Boxes:
    """Cut the globe into boxes that hold equally many photos, but for rounding (paper, section 5: 512 cells).

    A box is cut across its longer side (in km) so that the photos on either side are as the cells that go there; many
    photos at the very same place cannot be cut apart.

    Args:
        latitudes, longitudes: geotags, degrees, shape (photos,).
        count: number of cells.

    Raises:
        ValueError: fewer photos than cells.
    """
    if len(latitudes) < count:
        raise ValueError(f"{len(latitudes)} photos cannot fill {count} cells")
    points = np.stack([latitudes, (np.asarray(longitudes) + 180.0) % 360.0 - 180.0], axis=1)
    boxes: list[tuple[float, ...]] = []
    stack = [(points, count, (-90.0, -180.0, 90.0, 180.0))]
    while stack:
        inside, cells, (south, west, north, east) = stack.pop()
        if cells == 1:
            boxes.append((south, west, north, east))
            continue
        low = cells // 2
        spread = np.ptp(inside, axis=0) * [1.0, np.cos(np.radians(inside[:, 0].mean()))]
        axis = int(np.argmax(spread))
        inside = inside[np.argsort(inside[:, axis], kind="stable")]
        at = round(len(inside) * low / cells)
        edge = float((inside[at - 1, axis] + inside[at, axis]) / 2)
        at = int(np.searchsorted(inside[:, axis], edge, side="left"))
        at = min(max(at, low), len(inside) - (cells - low))
        if axis == 0:
            halves = (south, west, edge, east), (edge, west, north, east)
        else:
            halves = (south, west, north, edge), (south, edge, north, east)
        stack += [(inside[at:], cells - low, halves[1]), (inside[:at], low, halves[0])]
    return Boxes(edges=boxes)


def _parent(identifier: int, at: int) -> int:
    return identifier if at == 30 else int(s2cell.cell_id_to_parent_cell_id(identifier, at))


def s2_partition(latitudes: Floats, longitudes: Floats, most: int, deepest: int = 12) -> S2Cells:
    """S2 cells cut into four until none holds more than `most` photos; empty ones are left out."""
    leaves = np.array(
        [s2cell.lat_lon_to_cell_id(a, b) for a, b in zip(latitudes, longitudes, strict=True)], dtype=np.uint64
    )
    found: list[int] = []
    stack: list[tuple[int, NDArray[np.uint64]]] = [(0, leaves)]
    while stack:
        at, inside = stack.pop()
        parents = np.array([_parent(int(leaf), at) for leaf in inside], dtype=np.uint64)
        for identifier in np.unique(parents):
            held = inside[parents == identifier]
            if len(held) > most and at < deepest:
                stack.append((at + 1, held))
            else:
                found.append(int(identifier))
    return S2Cells(ids=tuple(sorted(found)))
