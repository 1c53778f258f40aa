"""Read positions that a text states: numbers, angles, and codes such as geohashes, tiles, polylines and WKB."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from privopt.arrays import Floats

__all__ = ["CODE_READERS", "Reading", "read_numbers", "to_mercator", "to_utm"]

MAX_READINGS: Final = 200
"""Numbers or positions that are read of one cell: half from its start, half from its end."""

_NUMBER: Final = re.compile(r"\d{1,40}(?:\.\d+)?(?:[eE][-+]?\d{1,2}(?!\d))?", re.ASCII)
_COMMA_NUMBER: Final = re.compile(r"\d{1,40},\d+", re.ASCII)
_SEXAGESIMAL: Final = re.compile(
    r"""(\d{1,3})\s*(?:[°ºd:]|deg|\s)\s*(\d{1,2}(?:[.,]\d+)?)\s*(?:(?:['′’m:]|\s)\s*(\d{1,2}(?:[.,]\d+)?)?)?""",
    re.ASCII,
)
_GEOHASH: Final = "0123456789bcdefghjkmnpqrstuvwxyz"
_PLUS: Final = "23456789CFGHJMPQRVWX"


class Reading(NamedTuple):
    """A number, or the two coordinates of a position, that a cell states: each with its largest error."""

    first: float
    first_error: float
    second: float
    second_error: float


def read_numbers(text: str) -> Iterator[Reading]:
    """Yield the numbers of a text without their signs, and angles in degrees, minutes and seconds."""
    for match in _NUMBER.finditer(text):
        yield _number(match.group())
    for match in _COMMA_NUMBER.finditer(text):
        yield _number(match.group().replace(",", "."))
    for match in _SEXAGESIMAL.finditer(text):
        degrees, minutes, seconds = (float((part or "0").replace(",", ".")) for part in match.groups())
        if minutes < 60.0 and seconds < 60.0:
            error = _unit(match.group(3)) / 3600.0 if match.group(3) else _unit(match.group(2)) / 60.0
            angle = degrees + minutes / 60.0 + seconds / 3600.0
            yield Reading(angle, error, angle, error)


def _number(text: str) -> Reading:
    value, error = float(text), _unit(text)
    return Reading(value, error, value, error)


def _unit(text: str) -> float:
    """Return the value of the last digit of a number."""
    mantissa, _, exponent = text.lower().replace(",", ".").partition("e")
    return float(10.0 ** (int(exponent or 0) - len(mantissa.partition(".")[2])))


def _box(south: float, west: float, height: float, width: float) -> Reading:
    """Return the middle of a box; a point beside the box by its own size is still taken for inside."""
    return Reading(south + height / 2, height * 1.5, west + width / 2, width * 1.5)


def _read_geohash(text: str) -> Iterator[Reading]:
    for code in re.findall(r"(?<![a-z0-9])[0-9bcdefghjkmnpqrstuvwxyz]{4,14}(?![a-z0-9])", text.lower()):
        bits = "".join(f"{_GEOHASH.index(sign):05b}" for sign in code)
        (south, height), (west, width) = _halve(bits[1::2], 180.0), _halve(bits[0::2], 360.0)
        yield _box(south, west, height, width)


def _halve(bits: str, size: float) -> tuple[float, float]:
    width = size / 2 ** len(bits)
    return int(bits or "0", 2) * width - size / 2, width


def _read_plus_code(text: str) -> Iterator[Reading]:
    for code in re.findall(rf"(?<![A-Z0-9])[{_PLUS}]{{8}}\+[{_PLUS}]{{0,5}}", text.upper()):
        south, west, size = -90.0, -180.0, 20.0
        signs = code.replace("+", "")
        for at in range(0, min(len(signs) // 2 * 2, 10), 2):
            south += _PLUS.index(signs[at]) * size
            west += _PLUS.index(signs[at + 1]) * size
            size /= 20.0
        yield _box(south, west, size * 20.0, size * 20.0)


def _read_short_plus_code(text: str) -> Iterator[Reading]:
    """Read codes without their first four signs, which leave out whole degrees: the position in its degree."""
    for code in re.findall(rf"(?<![A-Z0-9])([{_PLUS}]{{4}})\+([{_PLUS}]{{2,5}})", text.upper()):
        signs = code[0] + code[1][:2]
        up, across = (sum(_PLUS.index(signs[at + axis]) / 20.0 ** (at // 2 + 1) for at in (0, 2, 4)) for axis in (0, 1))
        size = 1.0 / 20.0**3
        yield _box(up, across, size, size)


def _read_quadkey(text: str) -> Iterator[Reading]:
    for code in re.findall(r"(?<!\d)[0-3]{8,24}(?!\d)", text):
        x, y = (int("".join("1" if int(sign) & bit else "0" for sign in code), 2) for bit in (1, 2))
        yield _tile(len(code), x, y)


def _read_tile(text: str) -> Iterator[Reading]:
    for zoom, x, y in re.findall(r"(?<!\d)(\d{1,2})[/,;:_\s-]+(\d{1,8})[/,;:_\s-]+(\d{1,8})(?!\d)", text):
        if 6 <= int(zoom) <= 24 and max(int(x), int(y)) < 2 ** int(zoom):
            yield _tile(int(zoom), int(x), int(y))
            yield _tile(int(zoom), int(y), int(x))


def _tile(zoom: int, x: int, y: int) -> Reading:
    count = 2.0**zoom
    north, south = (math.degrees(math.atan(math.sinh(math.pi * (1 - 2 * row / count)))) for row in (y, y + 1))
    return _box(south, x / count * 360.0 - 180.0, north - south, 360.0 / count)


def _read_maidenhead(text: str) -> Iterator[Reading]:
    for code in re.findall(r"(?<![A-Z0-9])[A-R]{2}\d{2}(?:[A-X]{2}(?:\d{2}(?:[A-X]{2})?)?)?(?![A-Z0-9])", text.upper()):
        south, west, size = -90.0, -180.0, 10.0
        for at in range(0, len(code), 2):
            first = "A" if code[at].isalpha() else "0"
            west += (ord(code[at]) - ord(first)) * size * 2
            south += (ord(code[at + 1]) - ord(first)) * size
            height, size = size, size / (10.0 if first == "A" else 24.0)
        yield _box(south, west, height, height * 2)


def _read_polyline(text: str) -> Iterator[Reading]:
    for code in re.findall(r"[?-~]{4,}", text.replace("\\\\", "\\")):
        numbers, value, shift = [0, 0], 0, 0
        at = 0
        for sign in code[: 20 * MAX_READINGS]:
            part = ord(sign) - 63
            value |= (part & 31) << shift
            shift += 5
            if part < 32:
                numbers[at % 2] += ~(value >> 1) if value & 1 else value >> 1
                value, shift, at = 0, 0, at + 1
                if at % 2 == 0:
                    for scale in (1e5, 1e6, 1e7):
                        yield Reading(numbers[0] / scale, 1.0 / scale, numbers[1] / scale, 1.0 / scale)


def _read_binary(text: str) -> Iterator[Reading]:
    """Read doubles at every place of bytes in hexadecimal digits, as WKB and its relatives have them."""
    for code in re.findall(r"(?:[0-9a-fA-F]{2}){16,4000}", text):
        raw = bytes.fromhex(code)
        for start in range(8):
            part = raw[start : start + (len(raw) - start) // 8 * 8]
            for order in ("<f8", ">f8"):
                values = np.frombuffer(part, dtype=order)
                sizes = np.abs(values[np.isfinite(values)])
                for value in sizes[(sizes > 1e-4) & (sizes < 1e9)].tolist():
                    yield Reading(value, 0.0, value, 0.0)


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
"""Readers of codes, by what a warning calls them. Each yields latitudes and longitudes in degrees."""


def to_mercator(positions: Floats) -> Floats:
    """Return (N, 2) northings and eastings in metres of the web's Mercator projection, of latitudes and longitudes."""
    up = np.radians(np.clip(positions[:, 0], -89.9, 89.9))
    north = 6378137.0 * np.log(np.tan(math.pi / 4 + up / 2))
    return np.column_stack([north, 6378137.0 * np.radians(positions[:, 1])])


def to_utm(positions: Floats, zone_shift: int) -> Floats:
    """Return (N, 2) northings and eastings in metres in each position's UTM zone, or in one beside it.

    Source:
        Karney, Transverse Mercator with an accuracy of a few nanometers, 2011, eq. 12 (third order: below 1 mm).
    """
    up = np.radians(positions[:, 0])
    zone = np.floor((positions[:, 1] + 180.0) / 6.0) + zone_shift
    across = np.radians(positions[:, 1] - (zone * 6.0 - 177.0))
    flattening = 1 / 298.257223563
    n = flattening / (2 - flattening)
    eccentricity = math.sqrt(flattening * (2 - flattening))
    radius = 6378137.0 / (1 + n) * (1 + n**2 / 4 + n**4 / 64)
    tau = np.tan(up)
    sigma = np.sinh(eccentricity * np.arctanh(eccentricity * np.sin(up)))
    conformal = tau * np.sqrt(1 + sigma**2) - sigma * np.sqrt(1 + tau**2)
    xi = np.arctan2(conformal, np.cos(across))
    eta = np.arcsinh(np.sin(across) / np.hypot(conformal, np.cos(across)))
    terms = (n / 2 - 2 * n**2 / 3 + 5 * n**3 / 16, 13 * n**2 / 48 - 3 * n**3 / 5, 61 * n**3 / 240)
    north = xi + sum(a * np.sin(2 * k * xi) * np.cosh(2 * k * eta) for k, a in enumerate(terms, start=1))
    east = eta + sum(a * np.cos(2 * k * xi) * np.sinh(2 * k * eta) for k, a in enumerate(terms, start=1))
    false_north = np.where(positions[:, 0] < 0, 1e7, 0.0)
    return np.column_stack([0.9996 * radius * north + false_north, 5e5 + 0.9996 * radius * east])
