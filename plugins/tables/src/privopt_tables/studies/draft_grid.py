"""The grid that ``init`` lays over a table of people."""

from __future__ import annotations

import math
from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Floats
from privopt.declare.tables import POINT
from privopt.errors import Fault, InputError
from privopt.numbers.distances import EARTH_RADIUS_KM

__all__ = ["digits", "grid_over"]


GRID_CELLS: Final = 400
"""Cells of a grid over a table that is not a list of places."""

MIN_POSITIONS: Final = 200
"""Positions; of fewer the extent tells more, and the draft says so."""

MARGIN_SHARE: Final = 0.01
"""Part of the positions at each end that no grid is laid over."""

WIDE_GRID_KM: Final = 1_000.0
"""km; of a grid that is wider it is said."""

LATTICE_DEGREES: Final = 0.05
"""Degrees to whose multiples a grid over positions is rounded outward."""

_DEGREE: Final = EARTH_RADIUS_KM * math.pi / 180.0
"""km of a degree of latitude."""


def grid_over(frame: pl.DataFrame, columns: dict[str, object], file: str) -> tuple[dict[str, object], str]:
    """Lay even cells over the middle 98 % of positions; return them and a sentence that says so.

    The problem file is public, the positions may be secret: its corner and cells follow from a coarse lattice alone.
    """
    up, across = (_finite(frame[str(columns[name])]) for name in ("lat", "lon"))
    if not up.size or not across.size:
        raise InputError([Fault(file, "", "no positions that are numbers", f"numbers{POINT.replace('its', 'their')}")])
    few = min(up.size, across.size)
    up, across = _degrees(up, -90, 90, columns["lat"], file), _degrees(across, -180, 360, columns["lon"], file)
    south, top = _extent(up)
    west, right = min(
        (_extent((across - turn) % 360.0 + turn) for turn in (-180.0, 0.0)), key=lambda ends: ends[1] - ends[0]
    )
    west, right = (west - 360.0, right - 360.0) if west > 180.0 else (west, right)
    tall, wide = (top - south) * _DEGREE, (right - west) * _DEGREE * math.cos(math.radians(south))
    cell = digits(max(math.sqrt(tall * wide / GRID_CELLS), max(tall, wide) / GRID_CELLS, 1e-3), up=True)
    rows, cols = (math.ceil(side / cell) + 1 for side in (tall, wide))
    grid: dict[str, object] = {"rows": rows, "cols": cols, "cell_km": cell}
    grid["south_west"] = [round(south, 6), round(west, 6)]
    said = f"the grid has {rows} x {cols} cells of {cell:g} km over the middle 98 % of the positions"
    said += f", rounded outward to {LATTICE_DEGREES:g} degrees: this file reveals that much of the table"
    if max(tall, wide) > WIDE_GRID_KM:
        said += f"; they spread over {max(tall, wide):,.0f} km, and cells so wide hide whole towns: are some wrong?"
    if few < MIN_POSITIONS:
        said += f"; of {few} positions that may be too much: state a grid of your own"
    return grid, said


def _degrees(side: Floats, min_degrees: int, max_degrees: int, column: object, file: str) -> Floats:
    """Return the numbers that are degrees."""
    good = (side >= min_degrees) & (side <= max_degrees)
    if (far := int((~good).sum())) > MARGIN_SHARE * side.size:
        found = f"{far:,} numbers outside {min_degrees} to {max_degrees}"
        raise InputError([Fault(file, f"column {column}", found, "degrees (are latitudes and longitudes swapped?)")])
    return side[good]


def _extent(side: Floats) -> tuple[float, float]:
    """Return the ends of the middle 98 % of degrees, rounded outward to two different multiples of the lattice."""
    low, high = np.quantile(side, [MARGIN_SHARE, 1.0 - MARGIN_SHARE]).tolist()
    first, last = math.floor(low / LATTICE_DEGREES), math.ceil(high / LATTICE_DEGREES)
    return first * LATTICE_DEGREES, max(last, first + 1) * LATTICE_DEGREES


def _finite(column: pl.Series) -> Floats:
    values: Floats = column.cast(pl.Float64, strict=False).drop_nulls().to_numpy()
    finite: Floats = values[np.isfinite(values)]
    return finite


def digits(value: float, up: bool) -> float:
    """Return the number to three digits, not below it or not above it."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{(math.ceil if up else math.floor)(value / scale) * scale:.3g}")
