"""Export of map layers as GeoJSON, for geographic information systems.

Geographic coordinates are in WGS 84 degrees, as the format requires. Planar coordinates are not tied to a location on
Earth, and programs must not mistake kilometres for degrees. A file with planar coordinates therefore has an engineering
coordinate system as its ``crs``, which GDAL (and hence QGIS) can read. With a ``crs`` of ``null``, GDAL would assume
degrees.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats
from privopt.errors import UsageError
from privopt.interfaces.reporting import Feature, Layer

ENDINGS: Final = (".geojson", ".json")
"""The file extensions accepted for GeoJSON, in lower case."""
DEGREE_DECIMALS: Final = 7
"""The number of decimals for coordinates in degrees, which gives a precision of about 1 cm (RFC 7946, section 11.2)."""
PLANAR_DIGITS: Final = 9
"""The precision of planar coordinates, in significant digits of the layer's extent.

The number of decimals is not fixed, because the coordinates can be in any unit.
"""
PROPERTY_DIGITS: Final = 10
"""The number of significant digits in properties that are not integers."""


def point_features(
    ids: Sequence[str], coordinates: Floats, columns: Mapping[str, Any], *, geographic: bool
) -> list[Feature]:
    """Return a list of map features, one point per id, each with its id and additional values as properties.

    Args:
        ids: The N ids.
        coordinates: (N, 2) The points' latitudes and longitudes in degrees, or their x and y coordinates.
        columns: The points' additional properties, as N values per name.
        geographic: Whether the coordinates are in degrees.
    """
    # GeoJSON puts longitude first (RFC 7946, section 3.1.1), while privopt puts latitude first everywhere else.
    values = coordinates[:, ::-1] if geographic else coordinates
    named = {name: np.asarray(column).tolist() for name, column in columns.items()}
    return [
        Feature(
            path=((float(x), float(y)),),
            properties={"id": ids[row]} | {name: column[row] for name, column in named.items()},
        )
        for row, (x, y) in enumerate(values.tolist())
    ]


def write_layer(layer: Layer, path: Path) -> None:
    """Write a map layer to a file as GeoJSON.

    Raises:
        UsageError: The file's extension is not one of :data:`ENDINGS`.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--geo {path}: the ending must be {' or '.join(ENDINGS)}, got {path.suffix!r}")
    head: dict[str, Any] = {"type": "FeatureCollection"}
    if layer.kind == "planar":
        head["crs"] = {"type": "name", "properties": {"name": _plane(layer.unit)}}
        head["coordinates"] = f"planar, {layer.unit}: no place on Earth"
    # JSON has no infinity or NaN. In properties they become null, and in coordinates allow_nan=False rejects them.
    decimals = _coordinate_decimals(layer)
    head["features"] = [_feature(feature, decimals) for feature in layer.features]
    path.write_text(json.dumps(head, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n", "utf-8")


def _plane(unit: str) -> str:
    """Return the WKT 2 definition of a planar coordinate system that is not tied to a location on Earth.

    Args:
        unit: The unit of length. "km" is written as kilometres, and any other unit as "unknown".
    """
    length = 'LENGTHUNIT["kilometre",1000]' if unit == "km" else 'LENGTHUNIT["unknown",1]'
    axes = 'CS[Cartesian,2],AXIS["x",east],AXIS["y",north]'
    return f'ENGCRS["planar coordinates",EDATUM["none"],{axes},{length}]'


def _coordinate_decimals(layer: Layer) -> int:
    """Return the number of decimals to which all coordinates of a layer are rounded."""
    if layer.kind == "geographic":
        return DEGREE_DECIMALS
    positions = [position for feature in layer.features for position in feature.path]
    # The extent in each direction, which is 0 for a layer with a single place.
    extents = [max(axis) - min(axis) for axis in zip(*positions, strict=True)]
    extent = max(filter(math.isfinite, extents), default=0.0)
    return DEGREE_DECIMALS if extent == 0.0 else PLANAR_DIGITS - 1 - math.floor(math.log10(extent))


def _round_property(value: Any) -> Any:
    """Return a property's value for GeoJSON, with non-integers rounded and non-finite numbers replaced by None."""
    if not isinstance(value, float):
        return value
    if not math.isfinite(value):
        return None
    return value if value.is_integer() else float(f"{value:.{PROPERTY_DIGITS}g}")


def _feature(feature: Feature, decimals: int) -> dict[str, Any]:
    """Convert a point or line to a GeoJSON object.

    Args:
        feature: The point or line.
        decimals: The number of decimals in its coordinates. If negative, they are rounded to tens, hundreds and so on.
    """
    # Adding 0.0 turns -0.0 into 0.0.
    line = [[round(number, decimals) + 0.0 for number in position] for position in feature.path]
    return {
        "type": "Feature",
        "geometry": {"type": feature.shape, "coordinates": line[0] if len(line) == 1 else line},
        "properties": {name: _round_property(value) for name, value in feature.properties.items()},
    }
