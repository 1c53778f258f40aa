"""Decode positions that are encoded in strings, for example as geohashes, map tiles, polylines or WKB.

Each reader yields every position that a string might encode. Whether a column's strings really encode positions is
decided from many rows in :mod:`.find_positions`. docs/adr/0035-own-readers-of-positions.md explains why privopt does
not use a library for these codes.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from privopt.arrays import Floats

__all__ = ["CODE_READERS", "MAX_READINGS", "STRICT_CODES", "Reading", "read_mgrs", "to_mercator", "to_utm"]

MAX_READINGS: Final = 200
"""Maximum number of readings used per cell. If there are more, half are taken from the start of the cell and half from
its end."""

# The lookahead requires either an even number of digits in one piece, or two pieces: first the digits of the easting,
# then those of the northing.
_MGRS: Final = re.compile(r"(?<!\d)\d{1,2}\s?[C-X]\s?[A-Z]{2}\s?(?=(?:\d\d){2,5}(?!\d)|\d+\s\d)(\d+)\s?(\d*)", re.ASCII)
# The alphabets of the codes. Geohashes leave out a, i, l and o. Plus codes (Open Location Code) leave out vowels and
# characters that look alike.
_GEOHASH: Final = "0123456789bcdefghjkmnpqrstuvwxyz"
_PLUS: Final = "23456789CFGHJMPQRVWX"


class Reading(NamedTuple):
    """One interpretation of a cell as a pair of coordinates, each with its maximum error.

    If it is not known which coordinate a number represents, the number is used for both.
    """

    first: float
    first_error: float
    second: float
    second_error: float


def _box_reading(south: float, west: float, height: float, width: float) -> Reading:
    """Return a reading at the centre of a box.

    The errors are 1.5 times the sides of the box, so the reading also matches points up to one side length outside the
    box.

    Args:
        south, west: The smallest coordinates of the box.
        height, width: The sides of the box, in the same units.
    """
    return Reading(south + height / 2, height * 1.5, west + width / 2, width * 1.5)


def _read_geohash(text: str) -> Iterator[Reading]:
    """Yield the boxes encoded by the geohashes in a string.

    A geohash has five bits per character. Bits with even indices, counted from 0, encode the longitude, and all others
    the latitude.
    """
    for code in re.findall(r"(?<![a-z0-9])[0-9bcdefghjkmnpqrstuvwxyz]{4,14}(?![a-z0-9])", text.lower()):
        bits = "".join(f"{_GEOHASH.index(sign):05b}" for sign in code)
        (south, height), (west, width) = _decode_bits(bits[1::2], 180.0), _decode_bits(bits[0::2], 360.0)
        yield _box_reading(south, west, height, width)


def _decode_bits(bits: str, size: float) -> tuple[float, float]:
    """Bisect [-size / 2, size / 2) once per bit, and return the lower end and width of the resulting interval."""
    width = size / 2 ** len(bits)
    return int(bits or "0", 2) * width - size / 2, width


def _read_plus_code(text: str) -> Iterator[Reading]:
    """Yield the boxes encoded by the full plus codes in a string.

    Characters after the tenth are ignored, as they would only make the box smaller.
    """
    for code in re.findall(rf"(?<![A-Z0-9])[{_PLUS}]{{8}}\+[{_PLUS}]{{0,5}}", text.upper()):
        south, west, size = -90.0, -180.0, 20.0
        characters = code.replace("+", "")
        for index in range(0, min(len(characters) // 2 * 2, 10), 2):
            south += _PLUS.index(characters[index]) * size
            west += _PLUS.index(characters[index + 1]) * size
            # Each pair of characters divides both sides by 20.
            size /= 20.0
        yield _box_reading(south, west, size * 20.0, size * 20.0)


def _read_short_plus_code(text: str) -> Iterator[Reading]:
    """Yield the positions encoded by the short plus codes in a string, modulo whole degrees.

    A short plus code lacks the first four characters, which would determine the multiples of 20 degrees and of 1
    degree.
    """
    for code in re.findall(rf"(?<![A-Z0-9])([{_PLUS}]{{4}})\+([{_PLUS}]{{2,5}})", text.upper()):
        # Three pairs of characters are left, which stand for 1/20, 1/400 and 1/8000 of a degree.
        characters = code[0] + code[1][:2]
        northward, eastward = (
            sum(_PLUS.index(characters[index + axis]) / 20.0 ** (index // 2 + 1) for index in (0, 2, 4))
            for axis in (0, 1)
        )
        size = 1.0 / 20.0**3
        yield _box_reading(northward, eastward, size, size)


def _read_quadkey(text: str) -> Iterator[Reading]:
    """Yield the boxes encoded by the quadkeys in a string.

    Each digit of a quadkey is one bit of the tile's x plus twice one bit of its y.
    """
    for code in re.findall(r"(?<!\d)[0-3]{8,24}(?!\d)", text):
        x, y = (int("".join("1" if int(sign) & bit else "0" for sign in code), 2) for bit in (1, 2))
        yield _tile_reading(len(code), x, y)


def _read_tile(text: str) -> Iterator[Reading]:
    """Yield the boxes of the map tiles in a string.

    Each tile is read both as zoom/x/y and as zoom/y/x, because both orders are in use.
    """
    for zoom, x, y in re.findall(r"(?<!\d)(\d{1,2})[/,;:_\s-]+(\d{1,8})[/,;:_\s-]+(\d{1,8})(?!\d)", text):
        if 6 <= int(zoom) <= 24 and max(int(x), int(y)) < 2 ** int(zoom):
            yield _tile_reading(int(zoom), int(x), int(y))
            yield _tile_reading(int(zoom), int(y), int(x))


def _tile_reading(zoom: int, x: int, y: int) -> Reading:
    """Return the box of a tile in the Web Mercator projection.

    Args:
        zoom: The zoom level. The world is 2^zoom tiles wide and high.
        x: The column, counted from the west.
        y: The row, counted from the north.
    """
    count = 2.0**zoom
    north, south = (math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * row / count)))) for row in (y, y + 1))
    return _box_reading(south, x / count * 360.0 - 180.0, north - south, 360.0 / count)


def _read_maidenhead(text: str) -> Iterator[Reading]:
    """Yield the boxes encoded by the Maidenhead locators in a string.

    Each pair of characters (longitude first) divides the sides of the box by 18, 10, 24, 10 and 24 in turn.
    """
    for code in re.findall(r"(?<![A-Z0-9])[A-R]{2}\d{2}(?:[A-X]{2}(?:\d{2}(?:[A-X]{2})?)?)?(?![A-Z0-9])", text.upper()):
        south, west, size = -90.0, -180.0, 10.0
        for index in range(0, len(code), 2):
            first_character = "A" if code[index].isalpha() else "0"
            # In degrees, boxes are twice as wide as they are high.
            west += (ord(code[index]) - ord(first_character)) * size * 2
            south += (ord(code[index + 1]) - ord(first_character)) * size
            # Pairs of letters and of digits alternate, so the kind of this pair determines by how much the next one
            # divides.
            height, size = size, size / (10.0 if first_character == "A" else 24.0)
        yield _box_reading(south, west, height, height * 2)


def _read_polyline(text: str) -> Iterator[Reading]:
    """Yield the points of the Google-encoded polylines in a string.

    Each point is decoded with 5, 6 and 7 decimal places, because the encoding does not state the precision.
    """
    # JSON writes a backslash in the code as two.
    for code in re.findall(r"[?-~]{4,}", text.replace("\\\\", "\\")):
        numbers, value, shift = [0, 0], 0, 0
        number_index = 0
        # A point takes fewer than 20 characters, so these are enough for MAX_READINGS points.
        for sign in code[: 20 * MAX_READINGS]:
            # Each character holds five bits of a number, the lowest first. The sixth bit (32) means that more follow.
            chunk = ord(sign) - 63
            value |= (chunk & 31) << shift
            shift += 5
            if chunk < 32:
                # A number is the difference from the previous number on the same axis. Its lowest bit is the sign.
                numbers[number_index % 2] += ~(value >> 1) if value & 1 else value >> 1
                value, shift, number_index = 0, 0, number_index + 1
                if number_index % 2 == 0:
                    for scale in (1e5, 1e6, 1e7):
                        yield Reading(numbers[0] / scale, 1.0 / scale, numbers[1] / scale, 1.0 / scale)


def _read_binary(text: str) -> Iterator[Reading]:
    """Yield the absolute values of the doubles that are encoded in hexadecimal in a string.

    Well-known binary (WKB), a format for geometries, stores coordinates as doubles. Doubles are decoded at every byte
    offset and in both byte orders, and numbers that are too small or too large for coordinates are skipped. As it is
    not known which coordinate a double represents, it is used for both.
    """
    for code in re.findall(r"(?:[0-9a-fA-F]{2}){16,4000}", text):
        raw = bytes.fromhex(code)
        for start in range(8):
            # The bytes after the offset are cut to a whole number of doubles.
            aligned_bytes = raw[start : start + (len(raw) - start) // 8 * 8]
            for order in ("<f8", ">f8"):
                values = np.frombuffer(aligned_bytes, dtype=order)
                # Bytes that are not doubles mostly give absurdly large or small numbers, which cannot be coordinates.
                sizes = np.abs(values[np.isfinite(values)])
                for value in sizes[(sizes > 1e-4) & (sizes < 1e9)].tolist():
                    yield Reading(value, 0.0, value, 0.0)


def read_mgrs(text: str) -> Iterator[Reading]:
    """Yield the positions encoded by the MGRS (Military Grid Reference System) references in a string.

    Each reading consists of a northing and an easting in metres within a 100 km square. The letters that identify the
    square are ignored.
    """
    for east, north in _MGRS.findall(text.upper()):
        digits = east + north
        half = len(digits) // 2
        if 2 <= half <= 5 and len(digits) % 2 == 0:
            unit = 10.0 ** (5 - half)
            # The northing and the easting of the middle of the square that the digits select.
            up, across = (int(part) * unit + unit / 2 for part in (digits[half:], digits[:half]))
            yield Reading(up, unit, across, unit)


STRICT_CODES: Final = "|".join(
    (
        # Geohash.
        r"\b(?:[b-hjkmnp-zB-HJKMNP-Z]+[0-9]|[0-9]+[b-hjkmnp-zB-HJKMNP-Z])[0-9b-hjkmnp-zB-HJKMNP-Z]{2,12}\b",
        # Plus code, short or full.
        r"(?i:[23456789CFGHJMPQRVWX]{4}\+[23456789CFGHJMPQRVWX]{2})",
        # Quadkey.
        r"\b[0-3]{8,24}\b",
        # Map tile.
        r"\b(?:[6-9]|1[0-9]|2[0-4])[/,;_][0-9]{1,8}[/,;_][0-9]{1,8}\b",
        # Maidenhead locator.
        r"\b[A-Ra-r]{2}[0-9]{2}(?:[A-Xa-x]{2}(?:[0-9]{2}(?:[A-Xa-x]{2})?)?)?\b",
        # Polyline.
        r"[?-~]{3}[?@\[\\\]^`{|}~][?-~]{2}|[?-~]{2}[?@\[\\\]^`{|}~][?-~]{3}",
        # Doubles as hexadecimal digits.
        r"\b(?:[0-9a-fA-F]{2}){16}",
        # MGRS reference.
        r"(?i:\b[0-9]{1,2} ?[C-X] ?[A-Z]{2} ?[0-9]{2,5} ?[0-9]{2,5}\b)",
    )
)
"""Regular expression that matches cells containing codes rather than words or numbers, in the Rust syntax used by
polars."""


CODE_READERS: Final[Mapping[str, Callable[[str], Iterator[Reading]]]] = {
    "a geohash": _read_geohash,
    "a plus code": _read_plus_code,
    "a short plus code": _read_short_plus_code,
    "a quadkey": _read_quadkey,
    "a map tile": _read_tile,
    "a Maidenhead locator": _read_maidenhead,
    "an encoded polyline": _read_polyline,
    "binary coordinates": _read_binary,
}
"""Readers of codes, keyed by the code's name in warnings. Each reader yields latitudes and longitudes in degrees,
except the one for binary coordinates, which yields absolute values that may belong to either axis."""


def to_mercator(positions: Floats) -> Floats:
    """Convert latitudes and longitudes in degrees to Web Mercator northings and eastings in metres.

    Args:
        positions: (N, 2) The latitudes and longitudes.

    Returns:
        (N, 2) The northings and eastings.
    """
    # The projection is infinite at the poles, so latitudes are clipped just short of them. It uses a sphere with the
    # Earth's equatorial radius, 6,378,137 m.
    latitudes = np.radians(np.clip(positions[:, 0], -89.9, 89.9))
    northings = 6378137.0 * np.log(np.tan(math.pi / 4 + latitudes / 2))
    return np.column_stack([northings, 6378137.0 * np.radians(positions[:, 1])])


def to_utm(positions: Floats, zone_shift: int) -> Floats:
    """Convert positions to UTM northings and eastings in metres, in their own zone or a neighbouring one.

    Args:
        positions: (N, 2) Latitudes and longitudes in degrees.
        zone_shift: 0 for each position's own zone, -1 or 1 for the zone west or east of it.

    Returns:
        (N, 2) The northings and eastings.

    Source:
        Karney, Transverse Mercator with an accuracy of a few nanometers, 2011, eq. 12 (third order: below 1 mm).
    """
    latitudes = np.radians(positions[:, 0])
    zones = np.floor((positions[:, 1] + 180.0) / 6.0) + zone_shift
    longitudes = np.radians(positions[:, 1] - (zones * 6.0 - 177.0))
    # The ellipsoid WGS 84.
    flattening = 1 / 298.257223563
    n = flattening / (2 - flattening)
    eccentricity = math.sqrt(flattening * (2 - flattening))
    radius = 6378137.0 / (1 + n) * (1 + n**2 / 4 + n**4 / 64)
    # The conformal latitude, then the Gauss-Schreiber coordinates xi and eta.
    tau = np.tan(latitudes)
    sigma = np.sinh(eccentricity * np.arctanh(eccentricity * np.sin(latitudes)))
    conformal = tau * np.sqrt(1 + sigma**2) - sigma * np.sqrt(1 + tau**2)
    xi = np.arctan2(conformal, np.cos(longitudes))
    eta = np.arcsinh(np.sin(longitudes) / np.hypot(conformal, np.cos(longitudes)))
    # Krüger's series corrects xi and eta for the ellipsoid.
    terms = (n / 2 - 2 * n**2 / 3 + 5 * n**3 / 16, 13 * n**2 / 48 - 3 * n**3 / 5, 61 * n**3 / 240)
    north = xi + sum(a * np.sin(2 * k * xi) * np.cosh(2 * k * eta) for k, a in enumerate(terms, start=1))
    east = eta + sum(a * np.cos(2 * k * xi) * np.sinh(2 * k * eta) for k, a in enumerate(terms, start=1))
    # UTM scales by 0.9996 and adds offsets (a false origin) that keep coordinates positive.
    false_north = np.where(positions[:, 0] < 0, 1e7, 0.0)
    return np.column_stack([0.9996 * radius * north + false_north, 5e5 + 0.9996 * radius * east])
