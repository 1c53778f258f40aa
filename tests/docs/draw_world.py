"""Write the outline of the world's land for the page anywhere.html: ``python tests/docs/draw_world.py``.

The outline is Natural Earth's (https://www.naturalearthdata.com, 1:110m, public domain), of which pyogrio brings the
countries among its tests' files. Countries are joined, small islands are dropped, and corners are rounded to a quarter
of a degree. It is one line: the path of an SVG, x is the longitude and y minus the latitude, in quarters of a degree.
"""

from __future__ import annotations

from pathlib import Path

import geopandas
import numpy as np
import pyogrio

from privopt_clients.export import CLIENT

SOURCE = Path(pyogrio.__file__).parent / "tests" / "fixtures" / "naturalearth_lowres" / "naturalearth_lowres.shp"
OUTLINE = CLIENT / "world-outline.txt"
UNITS = 4
"""Units a degree."""
MIN_AREA = 1.5
"""Smallest island that is drawn, in square degrees."""
TOLERANCE = 0.2
"""How far the outline may be from the original, in degrees."""


def ring_path(ring: np.ndarray) -> str:
    """Return a closed SVG path of a ring (N, 2) of longitudes and latitudes, in relative steps."""
    points = np.rint(ring * [UNITS, -UNITS]).astype(int)
    steps = np.diff(points, axis=0)
    moved = steps[np.any(steps != 0, axis=1)][:-1]  # z closes the ring
    first = f"M{points[0][0]} {points[0][1]}"
    return first + "l" + " ".join(f"{x} {y}" for x, y in moved.tolist()) + "z"


def outline() -> str:
    """Return the path of all land."""
    # A hair is added, so that neighbouring countries meet. Degrees are taken for units of a plane, as on the page.
    land = (
        geopandas.read_file(SOURCE)
        .set_crs(None, allow_override=True)
        .geometry.buffer(0.05)
        .union_all()
        .simplify(TOLERANCE)
    )
    polygons = [part for part in land.geoms if part.area >= MIN_AREA]
    rings = [ring for part in polygons for ring in (part.exterior, *part.interiors)]
    return "".join(ring_path(np.asarray(ring.coords)[:, :2].clip([-180, -90], [180, 90])) for ring in rings)


if __name__ == "__main__":
    OUTLINE.write_text(outline() + "\n", "utf-8")
    print(f"{OUTLINE}: {OUTLINE.stat().st_size:,} bytes")
