"""Compute the grid of places proposed by ``init`` for a table of people's positions.

The problem file is public, but the positions may be secret. The grid therefore depends only on the extent of the
central 98 % of the positions, rounded to a coarse lattice, and reveals no more than this rounded extent.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Floats
from privopt.declare.tables import POINT
from privopt.errors import Fault, InputError, number_of
from privopt.numbers.distances import EARTH_RADIUS_KM

__all__ = ["describe_skipped_cells", "lay_grid", "round_to_digits"]


GRID_CELLS: Final = 400
"""Approximate number of cells in the grid."""

MIN_POSITIONS: Final = 200
"""Number of positions below which a note warns that the extent of the positions may reveal too much about each of
them."""

MARGIN_SHARE: Final = 0.01
"""Fraction of positions that the grid may leave out at each end of each axis."""

WIDE_GRID_KM: Final = 1_000.0
"""Width or height of the grid, in km, above which a note asks whether any positions are wrong."""

LATTICE_DEGREES: Final = 0.05
"""Spacing, in degrees, of the lattice to which the grid's extent is rounded outwards."""

_KM_PER_DEGREE: Final = EARTH_RADIUS_KM * math.pi / 180.0
"""Length of a degree of latitude, in km."""


def lay_grid(frame: pl.DataFrame, columns: dict[str, object], file: str) -> tuple[dict[str, object], str]:
    """Return a grid of square cells that covers the central 98 % of the positions on each axis.

    The problem file is public, so the grid depends only on the extent of the positions, rounded to a coarse lattice.

    Args:
        frame: The table of positions.
        columns: The names of the latitude and longitude columns, under the keys ``lat`` and ``lon``.
        file: The table's name, used in error messages.

    Returns:
        The keys and values of the TOML table ``[records.grid]``, and a sentence on what the grid covers and reveals.

    Raises:
        InputError: There are no numeric positions, or more than 1 % of the numbers are not valid degrees.
    """
    latitudes, longitudes = (_finite_numbers(frame[str(columns[name])]) for name in ("lat", "lon"))
    if not latitudes.size or not longitudes.size:
        raise InputError([Fault(file, "", "no positions that are numbers", f"numbers{POINT.replace('its', 'their')}")])
    position_count = min(latitudes.size, longitudes.size)
    latitudes, longitudes = (
        _check_degrees(latitudes, -90, 90, columns["lat"], file),
        _check_degrees(longitudes, -180, 360, columns["lon"], file),
    )
    south, north = _rounded_extent(latitudes)
    # Longitudes are converted both to -180..180 and to 0..360. The conversion with the shorter extent is used, because
    # there the positions are not separated by the jump at the range's ends.
    west, east = min(
        (_rounded_extent((longitudes - offset) % 360.0 + offset) for offset in (-180.0, 0.0)),
        key=lambda interval: interval[1] - interval[0],
    )
    # The west end is converted back to -180..180.
    west, east = (west - 360.0, east - 360.0) if west > 180.0 else (west, east)
    # A grid's width is measured along its southern row, where degrees of longitude are shorter by the cosine.
    height_km, width_km = (
        (north - south) * _KM_PER_DEGREE,
        (east - west) * _KM_PER_DEGREE * math.cos(math.radians(south)),
    )
    # The first term gives about 400 cells. The second limits long, narrow grids to about 400 cells in a row. The third
    # makes cells at least a metre wide.
    cell_km = round_to_digits(
        max(math.sqrt(height_km * width_km / GRID_CELLS), max(height_km, width_km) / GRID_CELLS, 1e-3), up=True
    )
    # The south-west end is the centre of the first cell, not its corner, so one more row and column are needed.
    rows, cols = (math.ceil(length / cell_km) + 1 for length in (height_km, width_km))
    grid: dict[str, object] = {"rows": rows, "cols": cols, "cell_km": cell_km}
    grid["south_west"] = [round(south, 6), round(west, 6)]
    note = f"the grid has {rows} x {cols} cells of {cell_km:g} km over the middle 98 % of the positions"
    note += f", rounded outward to {LATTICE_DEGREES:g} degrees: this file reveals that much of the table"
    if max(height_km, width_km) > WIDE_GRID_KM:
        extent = f"{max(height_km, width_km):,.0f} km"
        note += f"; they spread over {extent}, and cells this wide hide whole towns: are some positions wrong?"
    if position_count < MIN_POSITIONS:
        note += f"; of {position_count} positions that may be too much: state a grid of your own"
    return grid, note


def describe_skipped_cells(frame: pl.DataFrame, columns: Sequence[str], file: str) -> list[str]:
    """Return a note for the table's owner on each coordinate column that has cells without a finite number.

    The notes do not quote any cells.

    Args:
        frame: The table to examine.
        columns: The latitude and longitude columns.
        file: The table's name.
    """
    lines = []
    for name in columns:
        numbers = frame[name].cast(pl.Float64, strict=False)
        # Strings that are not numbers have become null.
        rows = (numbers.is_null() | ~numbers.is_finite()).fill_null(value=True).arg_true()
        if len(rows):
            count = number_of(len(rows), "cell")
            lines.append(f"{file}: {count} of column {name} without a number (row {int(rows[0]) + 2:,}) did not count")
    return lines


def _check_degrees(values: Floats, min_degrees: int, max_degrees: int, column: object, file: str) -> Floats:
    """Return the numbers in a column that are within a range of degrees, after checking that at most 1 % are outside.

    Args:
        values: The numbers in the column.
        min_degrees, max_degrees: The valid range in degrees.
        column: The column's name.
        file: The table's name.

    Raises:
        InputError: More than 1 % of the numbers are outside the range.
    """
    is_valid = (values >= min_degrees) & (values <= max_degrees)
    if (invalid_count := int((~is_valid).sum())) > MARGIN_SHARE * values.size:
        actual = f"{invalid_count:,} numbers outside {min_degrees} to {max_degrees}"
        raise InputError([Fault(file, f"column {column}", actual, "degrees (are latitudes and longitudes swapped?)")])
    return values[is_valid]


def _rounded_extent(values: Floats) -> tuple[float, float]:
    """Return the range of the central 98 % of values in degrees, rounded outwards to multiples of the lattice spacing.

    The ends of the range are at least one spacing apart.
    """
    lower, upper = np.quantile(values, [MARGIN_SHARE, 1.0 - MARGIN_SHARE]).tolist()
    first_multiple, last_multiple = math.floor(lower / LATTICE_DEGREES), math.ceil(upper / LATTICE_DEGREES)
    return first_multiple * LATTICE_DEGREES, max(last_multiple, first_multiple + 1) * LATTICE_DEGREES


def _finite_numbers(column: pl.Series) -> Floats:
    """Return the finite numbers in a column, ignoring all other cells."""
    values: Floats = column.cast(pl.Float64, strict=False).drop_nulls().to_numpy()
    finite: Floats = values[np.isfinite(values)]
    return finite


def round_to_digits(value: float, up: bool) -> float:
    """Round a positive number up or down to three significant digits."""
    scale = 10.0 ** (math.floor(math.log10(value)) - 2)
    return float(f"{(math.ceil if up else math.floor)(value / scale) * scale:.3g}")
