"""Columns that are named like coordinates: ``init`` takes them for positions, ``apply`` warns of those that stay."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

__all__ = ["LATITUDES", "LONGITUDES", "PLANES", "like_positions"]

LATITUDES: Final = ("lat", "latitude", "start_lat", "start_latitude", "pickup_latitude", "pickup_lat", "stop_lat")
LONGITUDES: Final = (
    *("lon", "lng", "long", "longitude", "start_lon", "start_lng", "start_longitude"),
    *("pickup_longitude", "pickup_lon", "pickup_lng", "stop_lon"),
)
PLANES: Final = (("x", "y"), ("x_km", "y_km"))

_DEGREES: Final = frozenset(
    {"lat", "lats", "latitude", "lon", "lng", "lons", "longitude", "latlon", "latlng", "lonlat"}
)
_WHOLE: Final = frozenset(
    {"geometry", "geom", "wkt", "wkb", "geohash", "coordinates", "coords", "position", "gps", "easting", "northing"}
)
_AXES: Final = frozenset({"x", "y", "long"})
_BESIDE: Final = frozenset(
    {"km", "m", "start", "end", "stop", "pickup", "dropoff", "pick", "drop", "up", "off", "from", "to", "origin"}
) | frozenset({"dest", "destination", "home", "work", "coord", "coordinate", "pos", "point", "utm", "1", "2"})
_REPORT: Final = re.compile(r"(?P<report>(?:.*_)?report)_(?:lat|lon|x|y)", re.DOTALL)


def like_positions(names: Sequence[str]) -> list[str]:
    """Those of a table's columns that are named like coordinates, but for where reports lie.

    >>> like_positions(["trip", "end_lat", "endLng", "x", "dropoff_y", "platform", "report", "report_lat"])
    ['end_lat', 'endLng', 'x', 'dropoff_y']
    """
    return [name for name in names if _like_position(name) and not _of_report(name, names)]


def _like_position(name: str) -> bool:
    words = re.findall(r"[a-z]+|[0-9]+", re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower())
    if _DEGREES & set(words) or _WHOLE & set(words):
        return True
    return bool(_AXES & set(words)) and set(words) <= _AXES | _BESIDE


def _of_report(name: str, names: Sequence[str]) -> bool:
    """Whether a column says where an earlier report lies, which is in the table too."""
    found = _REPORT.fullmatch(name)
    return found is not None and found["report"] in names
