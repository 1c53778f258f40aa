"""Export map results as GeoJSON for geographic information systems.

Geographic coordinates are degrees on WGS 84, as the format assumes. Planar coordinates have no place on Earth, and no
program must mistake kilometres for degrees. Therefore a file with planar coordinates names an engineering coordinate
system as its ``crs``, which GDAL (and so QGIS) reads. With ``null``, GDAL would assume degrees.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats
from privopt.errors import UsageError
from privopt.interfaces.reporting import Feature, Layer

ENDINGS: Final = (".geojson", ".json")
"""The extensions of GeoJSON files, in lower case."""


def point_features(
    ids: Sequence[str], coordinates: Floats, columns: Mapping[str, Any], *, geographic: bool
) -> list[Feature]:
    """Return a map feature for each id: a point with the id and further properties.

    Args:
        ids: (N,) ids.
        coordinates: (N, 2) coordinates, latitude and longitude in degrees, or x and y.
        columns: (N,) properties by name.
        geographic: Whether the coordinates are degrees.
    """
    # GeoJSON has longitude first (RFC 7946, section 3.1.1), whereas privopt has latitude first everywhere else.
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
        UsageError: The file's extension is that of another format.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--geo {path}: the ending must be {' or '.join(ENDINGS)}, got {path.suffix!r}")
    head: dict[str, Any] = {"type": "FeatureCollection"}
    if layer.kind == "planar":
        head["crs"] = {"type": "name", "properties": {"name": _plane(layer.unit)}}
        head["coordinates"] = f"planar, {layer.unit}: no place on Earth"
    # _feature replaces properties that are not finite, which JSON cannot express. allow_nan=False refuses such
    # coordinates.
    head["features"] = [_feature(feature) for feature in layer.features]
    path.write_text(json.dumps(head, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n", "utf-8")


def _plane(unit: str) -> str:
    """Return a planar coordinate system without a place on Earth, as well-known text (WKT 2).

    Args:
        unit: The unit of length. Kilometres are named; any other unit is written as "unknown".
    """
    length = 'LENGTHUNIT["kilometre",1000]' if unit == "km" else 'LENGTHUNIT["unknown",1]'
    axes = 'CS[Cartesian,2],AXIS["x",east],AXIS["y",north]'
    return f'ENGCRS["planar coordinates",EDATUM["none"],{axes},{length}]'


def _feature(feature: Feature) -> dict[str, Any]:
    """Return a point or line as a GeoJSON object.

    Numbers that are not finite become null, because JSON cannot express them.
    """
    line = [list(position) for position in feature.path]
    return {
        "type": "Feature",
        "geometry": {"type": feature.shape, "coordinates": line[0] if len(line) == 1 else line},
        "properties": {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in feature.properties.items()
        },
    }
