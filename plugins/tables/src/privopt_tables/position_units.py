"""Detect positions in units other than those of the records, such as metres or degrees times 1e7."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

import numpy as np
from attrs import define, field

from privopt.arrays import Floats
from privopt.errors import cut
from privopt_tables.position_codes import to_mercator, to_utm

__all__ = ["UnitSearch"]

MIN_SHARE: Final = 0.5
"""Minimum fraction of a table's positions that must fit a unit for a note to name that unit."""

# Powers of ten by which some programs multiply degrees. The better-known ones have a remark, which follows the unit's
# name.
_POWERS: Final = {7: " (E7, as Google writes them)", 6: " (microdegrees)", 5: "", 4: "", 3: ""}


def _times(factor: float) -> Callable[[Floats], Floats]:
    """Return a function that multiplies positions by a factor."""
    return lambda positions: positions * factor


_DEGREES: Final[Mapping[str, Callable[[Floats], Floats]]] = {
    **{f"degrees times 1e{power}{note}": _times(10.0**power) for power, note in _POWERS.items()},
    "semicircles (as Garmin writes them)": _times(2.0**31 / 180.0),
    "seconds of arc": _times(3600.0),
    "milliseconds of arc": _times(3.6e6),
    "radians": np.radians,
    "metres of Web Mercator": to_mercator,
    "metres of UTM": lambda positions: to_utm(positions, 0),
}
"""Functions that convert latitudes and longitudes in degrees to other units, keyed by the unit's name."""

_KILOMETRES: Final[Mapping[str, Callable[[Floats], Floats]]] = {
    "metres": _times(1e3),
    "centimetres": _times(1e5),
    "millimetres": _times(1e6),
    "feet": _times(1e3 / 0.3048),
    "miles": _times(1 / 1.609344),
}
"""Functions that convert x and y in km to other units, keyed by the unit's name."""

_MAX_DEGREES: Final = np.array([[85.0, 180.0], [-85.0, -180.0]])
"""Two opposite corners, in degrees, of the box within which positions on the Earth are assumed to lie. The box ends at
latitudes of 85 degrees, near the edge of Web Mercator maps."""


@define(kw_only=True)
class UnitSearch:
    """A search for the unit of a table's positions, which may differ from the unit of the records.

    For each of several units, the search assumes that the table's numbers are in that unit, and counts the positions
    that would then be among the records. A position is among the records if it lies in their bounding box, widened on
    each side by the size of the box.

    Attributes:
        columns: The names of the columns of a position.
        records: (N, 2) The positions of the records, in degrees or km.
        is_geographic: Whether the records' positions are in degrees.
        position_count: The number of rows so far with two numeric coordinates.
        fitting_counts: The number of these rows whose position would be among the records, keyed by the assumed unit.
            The key for the records' own unit is "".
        possible_counts: The number of these rows whose numbers would be a position on the Earth, with the same keys as
            ``fitting_counts``. Empty for planar records.
    """

    columns: tuple[str, ...]
    records: Floats
    is_geographic: bool
    position_count: int = 0
    fitting_counts: Counter[str] = field(factory=Counter)
    possible_counts: Counter[str] = field(factory=Counter)

    def add_positions(self, positions: Floats) -> None:
        """Add the positions in B rows to the counts.

        Args:
            positions: (B, 2) The numbers in the rows, in an unknown unit, with NaN for missing numbers.
        """
        numbers = positions[np.isfinite(positions).all(axis=1)]
        records = self.records[np.isfinite(self.records).all(axis=1)]
        if not len(records) or not len(numbers):
            return
        self.position_count += len(numbers)
        # The records are converted to each unit and compared with the unconverted numbers of the rows.
        for unit, convert in {"": _times(1.0), **(_DEGREES if self.is_geographic else _KILOMETRES)}.items():
            self.fitting_counts[unit] += _count_inside(numbers, convert(records), 1.0)
            if self.is_geographic:
                self.possible_counts[unit] += _count_inside(numbers, convert(_MAX_DEGREES), 0.0)

    @property
    def notes(self) -> tuple[str, ...]:
        """A one-element tuple with a note that tells the table's owner which units the positions are probably in.

        The tuple is empty if at least half of the positions fit the records' unit, or if no other unit fits.
        """
        least = MIN_SHARE * max(1, self.position_count)
        if self.fitting_counts[""] >= least:
            return ()
        units = [unit for unit, count in self.fitting_counts.most_common() if count >= least]
        # If the numbers fit the records in no unit, the note names the units in which they can at least be positions on
        # the Earth.
        if not units and self.is_geographic and self.possible_counts[""] < least:
            # Radians are not named, because small numbers always fit them.
            units = [unit for unit, count in self.possible_counts.items() if count >= least and unit != "radians"]
        if not units:
            return ()
        names = " and ".join(map(cut, self.columns))
        subject = f"columns {names}" if len(self.columns) > 1 else f"column {names}"
        expected = "degrees" if self.is_geographic else "km"
        return (
            f"{subject}: most numbers are not among the records in {expected}; likely they are {' or '.join(units)}",
        )


def _count_inside(numbers: Floats, corners: Floats, margin: float) -> int:
    """Count the positions in the bounding box of a set of points, widened on each side by a multiple of its size.

    Args:
        numbers: (B, 2) The positions.
        corners: (N, 2) The points.
        margin: The amount by which to widen the box on each side, as a multiple of its size.
    """
    low, high = corners.min(axis=0), corners.max(axis=0)
    # If all points are on a line, or there is only one, the box may have no extent along an axis. Its size along each
    # axis is taken to be at least 2 % of the coordinate.
    pad = margin * np.maximum(high - low, 0.02 * np.maximum(np.abs(low), np.abs(high)))
    return int(((numbers >= low - pad) & (numbers <= high + pad)).all(axis=1).sum())
