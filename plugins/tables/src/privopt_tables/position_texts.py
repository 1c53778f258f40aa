"""Read the position that a whole cell states: "lat, lon", geo:, WKT and GeoJSON points, tracks as JSON lists."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import polars as pl

from privopt.arrays import Floats
from privopt_tables.row_forms import is_null_word

__all__ = ["read_position", "read_positions"]

_NUMBER: Final = r"[-+]?\d{1,3}(?:\.\d+)?"
_PAIR: Final = re.compile(rf"\(?\s*({_NUMBER})\s*°?\s*[,;]\s*({_NUMBER})\s*°?\s*\)?", re.ASCII)
_GEO: Final = re.compile(rf"geo:({_NUMBER}),({_NUMBER})(?:,{_NUMBER})?(?:;[\w=.;-]*)?", re.ASCII | re.IGNORECASE)
_WKT: Final = re.compile(rf"(?:SRID=4326;)?POINT\s*(?:Z\s*)?\(\s*({_NUMBER})\s+({_NUMBER})(?:\s+{_NUMBER})?\s*\)", re.I)

EMPTY: Final = (math.nan, math.nan)


def read_position(text: str) -> tuple[float, float] | None:
    """Return the latitude and longitude of a text; NaN twice for an empty track, and None if it states no position.

    Of a list of positions, each [longitude, latitude], the first one counts.

    >>> read_position("45.5, -7.25"), read_position("geo:45.5,-7.25"), read_position("45.5°, -7.25°")
    ((45.5, -7.25), (45.5, -7.25), (45.5, -7.25))
    >>> read_position("POINT (-7.25 45.5)"), read_position("[[-7.25, 45.5], [-7.5, 45.5]]")
    ((45.5, -7.25), (45.5, -7.25))
    >>> read_position("45,5"), read_position("Via Roma 3, 5")
    (None, None)
    """
    text = text.strip()
    if text[:1] in ("[", "{"):
        try:
            return _of_json(json.loads(text))
        except (ValueError, RecursionError):
            return None
    if match := _WKT.fullmatch(text):
        return _checked(match[2], match[1])
    match = _GEO.fullmatch(text) or _PAIR.fullmatch(text)
    # a comma between whole numbers without a blank may be a decimal comma: nothing is guessed
    if match is None or re.fullmatch(r"[-+]?\d+,\d+", text):
        return None
    return _checked(match[1], match[2])


def _of_json(value: Any) -> tuple[float, float] | None:
    if isinstance(value, list):
        if not value:
            return EMPTY
        first = value[0]
        is_pair = isinstance(first, list) and len(first) in (2, 3)
        return _checked(first[1], first[0]) if is_pair else None
    if not isinstance(value, Mapping):
        return None
    if value.get("type") == "Point":
        place = value.get("coordinates")
        return _checked(place[1], place[0]) if isinstance(place, list) and len(place) in (2, 3) else None
    names = {str(name).lower(): name for name in value}
    lat = next((names[name] for name in ("lat", "latitude") if name in names), None)
    lon = next((names[name] for name in ("lon", "lng", "longitude") if name in names), None)
    return None if lat is None or lon is None else _checked(value[lat], value[lon])


def _checked(lat: Any, lon: Any) -> tuple[float, float] | None:
    """Return degrees as doubles; None for what is no latitude and longitude."""
    if isinstance(lat, bool) or isinstance(lon, bool):
        return None
    try:
        position = float(lat), float(lon)
    except (TypeError, ValueError, OverflowError):
        return None
    return position if abs(position[0]) <= 90.0 and -180.0 <= position[1] <= 360.0 else None


def read_positions(texts: pl.Series) -> tuple[Floats, Floats]:
    """Return (B, 2) latitudes and longitudes, NaN for an empty cell; and (B,) 1.0 for text that states no position."""
    is_empty = (texts.is_null() | is_null_word(texts)).to_list()
    positions, wrong = np.full((len(texts), 2), np.nan), np.zeros(len(texts))
    for row, text in enumerate(texts.to_list()):
        if is_empty[row]:
            continue
        position = read_position(text)
        if position is None:
            wrong[row] = 1.0
        else:
            positions[row] = position
    return positions, wrong
