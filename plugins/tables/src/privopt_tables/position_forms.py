"""The forms in which numbers or codes may represent a position, such as degrees, radians, metres and geohashes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Final, Literal

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats
from privopt_tables.position_codes import CODE_READERS, Reading, read_mgrs, to_mercator, to_utm

__all__ = [
    "GEOGRAPHIC_CODES",
    "GEOGRAPHIC_FORMS",
    "PLANAR_CODES",
    "PLANAR_FORMS",
    "CodeForm",
    "NumberForm",
    "normal_longitudes",
]


@frozen(kw_only=True, eq=False)
class NumberForm:
    """A form in which two numbers represent a position, such as degrees, radians or metres. Signs are ignored.

    Attributes:
        name: The form's name in warnings.
        transform: A function that converts positions of shape (N, 2) to the numbers, also of shape (N, 2), that
            represent them in this form.
        width: The number of this form's units in one degree or, for planar positions, in one km.
        part: Which of a cell's numbers to read: all of them, or only the first two or the last two numbers of a path.
        max_numbers: The upper bound on both numbers. If None, the bounds are computed from the coordinates (see
            :meth:`bounds`).
    """

    name: str
    transform: Callable[[Floats], Floats]
    width: float
    part: Literal["all", "start", "end"] = "all"
    max_numbers: float | None = field(default=None)

    def bounds(self, corners: Floats) -> tuple[float, float]:
        """Return a lower and an upper bound on the numbers that represent positions in this form.

        The range is widened by one degree or km (:attr:`width`) to include numbers that are only close to a position.
        If :attr:`max_numbers` is set, the lower bound is -:attr:`width` and the upper bound is :attr:`max_numbers`.

        Args:
            corners: (2, 2) The smallest (first row) and largest (second row) absolute value of each coordinate.
        """
        if self.max_numbers is not None:
            return -self.width, self.max_numbers
        numbers = self.transform(corners)
        return float(numbers.min()) - self.width, float(numbers.max()) + self.width


@frozen(kw_only=True, eq=False)
class CodeForm(NumberForm):
    """A form in which a code, such as a geohash, represents a position.

    Attributes:
        reader: A function that yields the positions encoded in a string, in the same form as the numbers returned by
            ``transform``.
    """

    reader: Callable[[str], Iterator[Reading]]


def normal_longitudes(positions: Floats) -> Floats:
    """Normalise the longitudes of (N, 2) positions in degrees to the range from -180 to 180."""
    longitudes = positions[:, 1]
    is_beyond = np.abs(longitudes) > 180.0
    if not is_beyond.any():
        return positions
    normal = np.where(is_beyond, (longitudes + 180.0) % 360.0 - 180.0, longitudes)
    return np.column_stack([positions[:, 0], normal])


def _scale_sizes(factor: float) -> Callable[[Floats], Floats]:
    """Return a function that multiplies the absolute values of coordinates by a factor."""
    return lambda positions: np.abs(positions) * factor


def _to_eastward_degrees(positions: Floats) -> Floats:
    """Convert positions to absolute latitudes, and to longitudes from 0 to 360 degrees as used by some programs."""
    return np.column_stack([np.abs(positions[:, 0]), positions[:, 1] % 360.0])


def _to_utm_zone(zone_shift: int) -> Callable[[Floats], Floats]:
    """Return a function that converts positions to the absolute values of their UTM coordinates.

    Args:
        zone_shift: The shift from each position's own zone, as in :func:`to_utm`.
    """
    return lambda positions: np.abs(to_utm(positions, zone_shift))


def _pack_minutes(digits: int) -> Callable[[Floats], Floats]:
    """Return a function that packs degrees, minutes and optionally seconds into the decimal digits of one number.

    For example, 45.5 degrees becomes 4530 if ``digits`` is 2 (minutes), and 453000 if it is 4 (minutes and seconds).
    """

    def pack(positions: Floats) -> Floats:
        """Convert positions in degrees to unsigned packed numbers, both of shape (N, 2)."""
        sizes = np.abs(positions)
        whole_degrees = np.floor(sizes)
        minutes = (sizes - whole_degrees) * 60.0
        if digits == 2:
            return np.asarray(whole_degrees * 100.0 + minutes)
        # With four digits, only the seconds have decimals, and minutes are whole numbers.
        whole_minutes = np.floor(minutes)
        return np.asarray(whole_degrees * 1e4 + whole_minutes * 100.0 + (minutes - whole_minutes) * 60.0)

    return pack


# A degree of latitude is about 110 km long, hence the width of 1.1e5 for the forms in metres below.
_SEMICIRCLES: Final = 2.0**31 / 180.0
"""The number of semicircles in a degree. Garmin devices use this unit."""

GEOGRAPHIC_FORMS: Final = (
    NumberForm(name="coordinates", transform=_scale_sizes(1.0), width=1.0),
    # In this form longitudes go up to 360 degrees, however small the absolute values of the secret's longitudes.
    NumberForm(name="coordinates", transform=_to_eastward_degrees, width=1.0, max_numbers=361.0),
    NumberForm(name="the start of a path", transform=_scale_sizes(1.0), width=1.0, part="start"),
    NumberForm(name="the end of a path", transform=_scale_sizes(1.0), width=1.0, part="end"),
    *(
        NumberForm(name="coordinates as whole numbers", transform=_scale_sizes(10.0**power), width=10.0**power)
        for power in range(3, 8)
    ),
    NumberForm(name="coordinates in metres", transform=lambda positions: np.abs(to_mercator(positions)), width=1.1e5),
    *(
        # Northings are below 10,000 km in both hemispheres.
        NumberForm(name="UTM coordinates", transform=_to_utm_zone(shift), width=1.1e5, max_numbers=1.01e7)
        for shift in (0, -1, 1)
    ),
    NumberForm(name="degrees and minutes", transform=_pack_minutes(2), width=100.0),
    NumberForm(name="degrees, minutes and seconds", transform=_pack_minutes(4), width=1e4),
    NumberForm(name="radians", transform=_scale_sizes(math.radians(1.0)), width=math.radians(1.0)),
    NumberForm(name="seconds of arc", transform=_scale_sizes(3600.0), width=3600.0),
    NumberForm(name="semicircles", transform=_scale_sizes(_SEMICIRCLES), width=_SEMICIRCLES),
)
"""The forms in which numbers can represent positions on the Earth, given as latitudes and longitudes in degrees."""

PLANAR_FORMS: Final = (
    NumberForm(name="coordinates", transform=_scale_sizes(1.0), width=1.0),
    NumberForm(name="coordinates in metres", transform=_scale_sizes(1e3), width=1e3),
    NumberForm(name="coordinates in centimetres", transform=_scale_sizes(1e5), width=1e5),
    NumberForm(name="coordinates in millimetres", transform=_scale_sizes(1e6), width=1e6),
    NumberForm(name="coordinates in feet", transform=_scale_sizes(1e3 / 0.3048), width=1e3 / 0.3048),
    # A US survey foot is 1200 / 3937 m.
    NumberForm(name="coordinates in US survey feet", transform=_scale_sizes(3937.0 / 1.2), width=3937.0 / 1.2),
    NumberForm(name="coordinates in miles", transform=_scale_sizes(1 / 1.609344), width=1 / 1.609344),
    NumberForm(name="the start of a path", transform=_scale_sizes(1.0), width=1.0, part="start"),
    NumberForm(name="the end of a path", transform=_scale_sizes(1.0), width=1.0, part="end"),
)
"""The forms in which numbers can represent positions in the plane, given as x and y in kilometres."""


def _to_mgrs_square(zone_shift: int) -> Callable[[Floats], Floats]:
    """Return a function that converts positions to metres within a 100 km square of UTM, as in MGRS references."""
    return lambda positions: to_utm(positions, zone_shift) % 1e5


def _code_transform(name: str) -> Callable[[Floats], Floats]:
    """Return a function that converts positions to numbers comparable with the numbers yielded by a code's reader.

    For short plus codes, which lack whole degrees, the function drops whole degrees. For binary coordinates, which are
    read as absolute values, it drops signs. For all other codes, it returns positions unchanged.
    """
    if name == "a short plus code":
        return lambda positions: positions % 1.0
    return np.abs if name == "binary coordinates" else lambda positions: positions


GEOGRAPHIC_CODES: Final = (
    *(
        CodeForm(name=name, transform=_code_transform(name), width=1.0, reader=reader)
        for name, reader in CODE_READERS.items()
    ),
    *(
        CodeForm(name="an MGRS reference", transform=_to_mgrs_square(shift), width=1e5, reader=read_mgrs)
        for shift in (0, -1, 1)
    ),
)
"""The forms in which codes can represent positions on the Earth, given as latitudes and longitudes in degrees."""

PLANAR_CODES: Final = tuple(
    CodeForm(
        name=f"binary {name}", transform=_scale_sizes(factor), width=factor, reader=CODE_READERS["binary coordinates"]
    )
    for name, factor in (("coordinates", 1.0), ("coordinates in metres", 1e3))
)
"""The forms in which codes can represent positions in the plane, given as x and y in kilometres."""
