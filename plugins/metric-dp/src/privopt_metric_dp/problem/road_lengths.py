"""Check that roads are no shorter than the straight lines between their ends, and that lengths are probably in km.

Lengths that are too large, such as metres or minutes, would weaken privacy, because epsilon is per unit of length.
Differences that rounding can explain are accepted: a length may have been rounded or truncated at its last digit, and a
position at the last decimal place used in its table. Lengths along the ellipsoid or on a projected map also differ
slightly from great-circle distances.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints
from privopt.declare.schema import File
from privopt.declare.tables import road_table
from privopt.errors import Faults, number_of
from privopt.numbers.distances import EARTH_RADIUS_KM
from privopt_metric_dp.space.places import Space

__all__ = ["compare_lengths"]

MODEL_TOLERANCE: Final = 0.01
"""The relative amount by which the straight line between a road's ends may exceed the road's length.

The difference between a sphere and the WGS 84 ellipsoid explains at most 0.56 % (for roads from north to south near the
equator), and the projection in a UTM zone at most 0.04 %.
"""
UNITS: Final = (
    (0.0005, 0.0015, "the positions are in metres"),
    (0.55, 0.95, "the lengths are in miles (0.62 a km)"),
    (1.45, 20.0, "the lengths are minutes of travel, 2 a km at 30 km/h"),
    (20.0, 900.0, "the lengths are seconds of travel, 120 a km at 30 km/h"),
    (900.0, 1_500.0, "the lengths are in metres"),
    (1_500.0, 2_400.0, "the lengths are in metres, and the positions in miles"),
    (2_400.0, 5_000.0, "the lengths are in feet"),
)
"""Ranges of the median ratio of road length to straight-line distance, each with its likely cause.

For streets in km, the ratio is usually between 1 and 1.45."""
DEGREES: Final = (80.0, 170.0, "the positions are in degrees")
"""An additional range like those in :data:`UNITS`, for planar positions only. A degree of latitude is 111 km long."""


@frozen(kw_only=True, eq=False)
class _Lengths:
    """The lengths of E roads whose ends both have positions.

    Attributes:
        rows: Array of shape (E,) with the row index of each road in the table, counted from 0.
        km: Array of shape (E,) with the length of each road in km, rounded down.
        straight: Array of shape (E,) with the distance in km between the positions of the two ends.
        min_straight: Array of shape (E,) with lower bounds in km on the distance between the true positions of the two
            ends. The bounds allow for rounded coordinates and for errors in the model of the earth.
    """

    rows: Ints
    km: Floats
    straight: Floats
    min_straight: Floats

    @property
    def ratio(self) -> float | None:
        """The median ratio of road length to straight-line distance, or None if all straight lines have length 0."""
        is_apart = self.straight > 0
        return float(np.median(self.km[is_apart] / self.straight[is_apart])) if is_apart.any() else None


def compare_lengths(edges: File, records: Space) -> Iterator[str]:
    """Yield warnings about roads that seem too short, and about lengths that are probably not in km.

    Lengths are compared with the straight lines between the positions of the roads' ends.

    Args:
        edges: The file that lists the roads, with the columns ``from``, ``to`` and ``km``.
        records: The places, some of which are the ends of roads.

    Raises:
        InputError: Some roads are shorter than the straight line between their ends by more than rounding can explain.
    """
    if records.coordinates is None or records.kind not in ("planar", "geographic"):
        return
    table = road_table(edges)
    lengths = _measure_roads(table, records)
    ratio = lengths.ratio
    # The median reveals the unit. Single roads may be long detours, but if lengths are in km, the median road is only a
    # little longer than its straight line.
    reason = None if ratio is None else _likely_reason(ratio, records.kind)
    times = "" if ratio is None else f"{ratio:.3g}" if ratio < 1000 else f"{ratio:,.0f}"
    too_short, doubtful = _find_short(lengths, table["km written"])
    faults = Faults()
    for index in too_short:
        row = int(lengths.rows[index])
        actual = f"{table['km written'][row]} km from {table['from'][row]} to {table['to'][row]}"
        expectation = f"at least the straight line between these positions, {lengths.straight[index]:.4g} km"
        expectation += f" (the median road is {times} times as long as its line: {reason}?)" if reason else ""
        faults.add(edges.name, f"row {row + 2}, column km", actual, expectation)
    faults.check()
    if doubtful:
        row = int(lengths.rows[doubtful[0]])
        example = f"{table['from'][row]} to {table['to'][row]}, {table['km written'][row]} km"
        yield (
            f"{edges.name}: {number_of(len(doubtful), 'road')} shorter than the straight line between the ends, which "
            f"the few digits of the positions may explain: {example} beside {lengths.straight[doubtful[0]]:.4g} km"
        )
    if reason:
        yield (
            f"{edges.name}: the median road is {times} times as long as the straight line between its ends. Check "
            f"that lengths are km: it may be that {reason}. Epsilon and loss are per unit of these lengths"
        )


def _find_short(lengths: _Lengths, texts: NDArray[np.str_]) -> tuple[list[int], list[int]]:
    """Find the roads that are shorter than the straight line between their ends.

    Args:
        lengths: The lengths of the roads and of the straight lines between their ends.
        texts: The length of the road in each row of the table, as written.

    Returns:
        Two lists of indices into ``lengths``: roads that are certainly too short, and roads that may seem too short
        only because positions were rounded.
    """
    suspects = np.flatnonzero(lengths.km < lengths.straight * (1.0 - MODEL_TOLERANCE))
    resolution = np.array([_last_digit(texts[row]) for row in lengths.rows[suspects].tolist()])
    # A length of 0 does not show at which digit it was rounded, because programs write it as 0.0. The other lengths do.
    is_zero = lengths.km[suspects] == 0.0
    if is_zero.any():
        digits = [_last_digit(text) for text in texts.tolist() if not _is_zero(text)]
        resolution[is_zero] = min(digits) if digits else resolution[is_zero]
    # A length may have been rounded or truncated at its last digit, so the road may be longer by that much.
    max_km = lengths.km[suspects] + resolution
    is_short = max_km < lengths.straight[suspects] * (1.0 - MODEL_TOLERANCE)
    is_unexplained = max_km < lengths.min_straight[suspects]
    return suspects[is_unexplained].tolist(), suspects[is_short & ~is_unexplained].tolist()


def _likely_reason(ratio: float, kind: str) -> str | None:
    """Return the likely cause of an implausible ratio of road length to straight-line distance.

    Args:
        ratio: The median ratio over all roads.
        kind: The kind of places, "planar" or "geographic". Degrees are a possible cause only for planar positions.

    Returns:
        The cause in words, or None if the ratio is plausible.
    """
    units = (DEGREES, *UNITS) if kind == "planar" else UNITS
    return next((reason for lower, upper, reason in units if lower <= ratio < upper), None)


def _measure_roads(table: dict[str, Any], records: Space) -> _Lengths:
    """Return the lengths and straight-line distances of the roads that connect two different records.

    Args:
        table: The columns ``from``, ``to`` and ``km`` of the table of roads.
        records: The records, which must have coordinates.
    """
    assert records.coordinates is not None  # the caller checked
    number = {name: index for index, name in enumerate(records.ids)}
    tails, heads = (np.array([number.get(name, -1) for name in table[end].tolist()]) for end in ("from", "to"))
    # A road that ends at a node that is not a record (-1) has no straight line to compare with, and the straight line
    # of a loop is 0.
    rows = np.flatnonzero((tails >= 0) & (heads >= 0) & (tails != heads))
    endpoints = records.coordinates[tails[rows]], records.coordinates[heads[rows]]
    resolution = _table_resolution(records)
    measure = _great_circle if records.kind == "geographic" else _straight_line
    return _Lengths(
        rows=rows,
        km=table["km"][rows],
        straight=measure(*endpoints, 0.0),
        min_straight=measure(*endpoints, resolution) * (1.0 - MODEL_TOLERANCE),
    )


def _straight_line(a: Floats, b: Floats, resolution: float) -> Floats:
    """Return the smallest possible distances in km between planar points whose rounded coordinates are ``a`` and ``b``.

    Args:
        a, b: Arrays of shape (E, 2) with x and y in km.
        resolution: The largest error in the difference between two rounded coordinates, in km.

    Returns:
        Array of shape (E,) with distances.
    """
    return np.asarray(np.hypot(*np.maximum(np.abs(a - b) - resolution, 0.0).T))


def _great_circle(a: Floats, b: Floats, resolution: float) -> Floats:
    """Return the smallest possible great-circle distances in km between points whose rounded coordinates are given.

    Args:
        a, b: Arrays of shape (E, 2) with latitudes and longitudes in degrees.
        resolution: The largest error in the difference between two rounded coordinates, in degrees.

    Returns:
        Array of shape (E,) with distances.
    """
    latitude, longitude = np.abs(a - b).T
    longitude %= 360.0  # one end may be in -180 to 180 and the other in 0 to 360
    longitude = np.minimum(longitude, 360.0 - longitude)
    change = np.radians(np.maximum(np.column_stack([latitude, longitude]) - resolution, 0.0))
    # Circles of latitude are shorter towards the poles, so moving both ends polewards gives the smallest distance.
    cosines = [np.cos(np.radians(np.minimum(np.abs(point[:, 0]) + resolution, 90.0))) for point in (a, b)]
    # The haversine formula.
    chord = np.sin(change[:, 0] / 2) ** 2 + cosines[0] * cosines[1] * np.sin(change[:, 1] / 2) ** 2
    return np.asarray(2.0 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(chord, 1.0))))


def _table_resolution(records: Space) -> float:
    """Return the place value of the last decimal place used by any coordinate, such as 0.001.

    This bounds the error in the difference between two coordinates that were rounded or truncated at that place. All
    coordinates are considered because programs omit trailing zeros.
    """
    if records.corner is not None or records.coordinates is None:
        return 0.0  # the cells of a grid have exact positions
    texts: Iterable[str] = map(repr, records.coordinates.ravel().tolist())
    if records.written is not None:
        texts = records.written.ravel().tolist()
    return min(map(_last_digit, texts), default=0.0)


def _is_zero(text: str) -> bool:
    """Return whether a string is a decimal number equal to 0."""
    try:
        return not Decimal(text)
    except InvalidOperation:
        return False


def _last_digit(text: str) -> float:
    """Return the place value of the last non-zero digit of a decimal number, such as 0.1 for "1.50" and 100 for "1200".

    For a number equal to 0, return the place value of its last digit. If the string is not a finite decimal number,
    return 0.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        return 0.0
    exponent = (number.normalize() if number else number).as_tuple().exponent
    return float(Decimal(1).scaleb(exponent)) if isinstance(exponent, int) else 0.0
