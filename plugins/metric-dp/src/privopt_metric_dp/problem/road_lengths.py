"""Compare the lengths of roads with the positions of their ends: no road is shorter than the straight line.

Overstated lengths (minutes, metres) weaken privacy: epsilon is per unit of length. What rounding explains is not
refused: a length may be rounded or cut at the last digit written, positions at the last digit of the table, and lengths
along the ellipsoid or a projected map differ a little from great circles.
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
"""Part of itself by which a straight line may be longer than a road along it. WGS 84 makes 0.56 % at most (north and
south near the equator), a UTM zone 0.04 %."""
UNITS: Final = (
    (0.0005, 0.0015, "the positions are in metres"),
    (0.55, 0.95, "the lengths are in miles (0.62 a km)"),
    (1.45, 20.0, "the lengths are minutes of travel, 2 a km at 30 km/h"),
    (20.0, 900.0, "the lengths are seconds of travel, 120 a km at 30 km/h"),
    (900.0, 1_500.0, "the lengths are in metres"),
    (1_500.0, 2_400.0, "the lengths are in metres, and the positions in miles"),
    (2_400.0, 5_000.0, "the lengths are in feet"),
)
"""Median ratios of length to straight line, from and below, with the likely reason. Streets of km have 1 to 1.45."""
DEGREES: Final = (80.0, 170.0, "the positions are in degrees")
"""The same for planar positions: a degree is 111 km."""


@frozen(kw_only=True, eq=False)
class _Lengths:
    """Roads whose two ends have positions.

    Attributes:
        rows: (E,) rows of the table, from 0.
        km: (E,) lengths, rounded down.
        straight: (E,) straight lines between the positions as they are written, km.
        min_straight: (E,) straight lines if the rounding of positions made them as long as possible.
    """

    rows: Ints
    km: Floats
    straight: Floats
    min_straight: Floats

    @property
    def ratio(self) -> float | None:
        """Median of length by straight line; None if no two positions differ."""
        is_apart = self.straight > 0
        return float(np.median(self.km[is_apart] / self.straight[is_apart])) if is_apart.any() else None


def compare_lengths(edges: File, records: Space) -> Iterator[str]:
    """Yield warnings of lengths that do not fit the positions, or look like another unit than km.

    Args:
        edges: A table from,to,km.
        records: Places, some or all of which the roads join.

    Raises:
        InputError: Roads are shorter than the straight line between their ends, by more than rounding explains.
    """
    if records.coordinates is None or records.kind not in ("planar", "geographic"):
        return
    table = road_table(edges)
    lengths = _measure_roads(table, records)
    ratio = lengths.ratio
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
    """Return roads that are shorter than their straight line, and those that the rounding of positions may explain."""
    suspects = np.flatnonzero(lengths.km < lengths.straight * (1.0 - MODEL_TOLERANCE))
    resolution = np.array([_last_digit(texts[row]) for row in lengths.rows[suspects].tolist()])
    max_km = lengths.km[suspects] + resolution
    is_short = max_km < lengths.straight[suspects] * (1.0 - MODEL_TOLERANCE)
    is_unexplained = max_km < lengths.min_straight[suspects]
    return suspects[is_unexplained].tolist(), suspects[is_short & ~is_unexplained].tolist()


def _likely_reason(ratio: float, kind: str) -> str | None:
    """Return what explains a median ratio of lengths to straight lines; None if km do."""
    units = (DEGREES, *UNITS) if kind == "planar" else UNITS
    return next((reason for lower, upper, reason in units if lower <= ratio < upper), None)


def _measure_roads(table: dict[str, Any], records: Space) -> _Lengths:
    """Return the roads between two records, with the straight lines between these."""
    assert records.coordinates is not None  # the caller checked
    number = {name: index for index, name in enumerate(records.ids)}
    tails, heads = (np.array([number.get(name, -1) for name in table[end].tolist()]) for end in ("from", "to"))
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
    """Return (E,) the shortest lines between planar points that round to these at a resolution, km."""
    return np.asarray(np.hypot(*np.maximum(np.abs(a - b) - resolution, 0.0).T))


def _great_circle(a: Floats, b: Floats, resolution: float) -> Floats:
    """Return (E,) the shortest great circles between points that round to these at a resolution in degrees, km."""
    latitude, longitude = np.abs(a - b).T
    longitude %= 360.0  # one end may be in -180 to 180 and the other in 0 to 360
    longitude = np.minimum(longitude, 360.0 - longitude)
    change = np.radians(np.maximum(np.column_stack([latitude, longitude]) - resolution, 0.0))
    # parallels are shorter towards the poles: both ends move there
    cosines = [np.cos(np.radians(np.minimum(np.abs(point[:, 0]) + resolution, 90.0))) for point in (a, b)]
    chord = np.sin(change[:, 0] / 2) ** 2 + cosines[0] * cosines[1] * np.sin(change[:, 1] / 2) ** 2
    return np.asarray(2.0 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(chord, 1.0))))


def _table_resolution(records: Space) -> float:
    """Return the last digit that any coordinate of the table has: writers omit zeros at the end of others.

    Two coordinates that are each rounded or cut there differ by at most that much more, or less, than written.
    """
    if records.corner is not None or records.coordinates is None:
        return 0.0  # cells of a grid are where the problem says
    texts: Iterable[str] = map(repr, records.coordinates.ravel().tolist())
    if records.written is not None:
        texts = records.written.ravel().tolist()
    return min(map(_last_digit, texts), default=0.0)


def _last_digit(text: str) -> float:
    """Return the value of the last digit of a decimal that is not 0: 0.01 of 1.50, 100 of 1200, 0 of a fraction.

    Of 0 itself the last digit counts.
    """
    try:
        number = Decimal(text)
    except InvalidOperation:
        return 0.0
    exponent = (number.normalize() if number else number).as_tuple().exponent
    return float(Decimal(1).scaleb(exponent)) if isinstance(exponent, int) else 0.0
