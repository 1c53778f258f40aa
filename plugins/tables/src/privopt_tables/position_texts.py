"""Parse cells that contain only a position: "lat, lon", a geo: URI, a WKT or GeoJSON point, or a track as a JSON list.

Unlike :mod:`.position_codes`, this module does not search for positions inside longer strings.
"""

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
# RFC 5870: geo:latitude,longitude. An altitude and parameters may follow, and are ignored.
_GEO: Final = re.compile(rf"geo:({_NUMBER}),({_NUMBER})(?:,{_NUMBER})?(?:;[\w=.;-]*)?", re.ASCII | re.IGNORECASE)
# WKT and EWKT put longitude before latitude.
_WKT: Final = re.compile(rf"(?:SRID=4326;)?POINT\s*(?:Z\s*)?\(\s*({_NUMBER})\s+({_NUMBER})(?:\s+{_NUMBER})?\s*\)", re.I)

EMPTY: Final = (math.nan, math.nan)
"""The position returned for an empty track."""


def read_position(text: str) -> tuple[float, float] | None:
    """Parse a position and return its latitude and longitude in degrees, or None if the text is not a position.

    For a track (a JSON list of [longitude, latitude] pairs), the first position is returned, or two NaNs if the track
    is empty.

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
            return _read_json(json.loads(text))
        except (ValueError, RecursionError):
            return None
    if match := _WKT.fullmatch(text):
        # WKT puts longitude first.
        return _check_degrees(match[2], match[1])
    match = _GEO.fullmatch(text) or _PAIR.fullmatch(text)
    # A comma between whole numbers, without a blank, may be a decimal comma, so such a text is not accepted. A wrong
    # guess would draw a report for another place.
    if match is None or re.fullmatch(r"[-+]?\d+,\d+", text):
        return None
    return _check_degrees(match[1], match[2])


def _read_json(value: Any) -> tuple[float, float] | None:
    """Return the latitude and longitude in a GeoJSON point, a JSON object with lat and lon, or a track.

    A track is a list of [longitude, latitude] pairs, each optionally followed by an altitude. Its first position is
    returned, or two NaNs if it is empty. Returns None for any other value.
    """
    if isinstance(value, list):
        if not value:
            return EMPTY
        first_position = value[0]
        is_pair = isinstance(first_position, list) and len(first_position) in (2, 3)
        return _check_degrees(first_position[1], first_position[0]) if is_pair else None
    if not isinstance(value, Mapping):
        return None
    if value.get("type") == "Point":
        coordinates = value.get("coordinates")
        return (
            _check_degrees(coordinates[1], coordinates[0])
            if isinstance(coordinates, list) and len(coordinates) in (2, 3)
            else None
        )
    # Some programs capitalise the keys, others do not.
    keys_by_name = {str(name).lower(): name for name in value}
    lat = next((keys_by_name[name] for name in ("lat", "latitude") if name in keys_by_name), None)
    lon = next((keys_by_name[name] for name in ("lon", "lng", "longitude") if name in keys_by_name), None)
    return None if lat is None or lon is None else _check_degrees(value[lat], value[lon])


def _check_degrees(lat: Any, lon: Any) -> tuple[float, float] | None:
    """Convert two values to a latitude and a longitude in degrees, or return None if they are not valid degrees."""
    # float(True) is 1.0, but true is not a coordinate.
    if isinstance(lat, bool) or isinstance(lon, bool):
        return None
    try:
        position = float(lat), float(lon)
    except (TypeError, ValueError, OverflowError):
        return None
    return position if abs(position[0]) <= 90.0 and -180.0 <= position[1] <= 360.0 else None


def read_positions(texts: pl.Series) -> tuple[Floats, Floats]:
    """Parse each of the B strings in a column as a position.

    Args:
        texts: The cells.

    Returns:
        Two arrays. The first, of shape (B, 2), contains latitudes and longitudes in degrees, with NaN for cells without
        a position. The second, of shape (B,), is 1.0 for each cell that cannot be parsed and 0.0 otherwise. Empty cells
        and markers for missing values, such as NA, are not marked as unparsable.
    """
    # NULL, NA and similar words count as empty cells rather than wrong ones.
    is_empty = (texts.is_null() | is_null_word(texts)).to_list()
    positions, is_wrong = np.full((len(texts), 2), np.nan), np.zeros(len(texts))
    for row, text in enumerate(texts.to_list()):
        if is_empty[row]:
            continue
        position = read_position(text)
        if position is None:
            is_wrong[row] = 1.0
        else:
            positions[row] = position
    return positions, is_wrong
