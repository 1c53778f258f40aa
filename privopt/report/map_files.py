"""Map results for geographic information systems: GeoJSON.

Geographic coordinates are degrees on WGS 84, as the format assumes. Planar ones have no place on Earth, and no reader
may take kilometres for degrees: the file names an engineering system as its ``crs`` (GDAL, and so QGIS, reads that;
``null`` it takes for degrees).
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


def point_features(
    ids: Sequence[str], coordinates: Floats, columns: Mapping[str, Any], *, geographic: bool
) -> list[Feature]:
    """Return a point for each id.

    Args:
        ids: (N,).
        coordinates: (N, 2), latitude and longitude in degrees, or x and y.
        columns: (N,) properties by name.
        geographic: whether the coordinates are degrees.
    """
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
    """Write a layer.

    Raises:
        UsageError: the file's name has the ending of another format.
    """
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--geo {path}: the ending must be {' or '.join(ENDINGS)}, got {path.suffix!r}")
    head: dict[str, Any] = {"type": "FeatureCollection"}
    if layer.kind == "planar":
        head["crs"] = {"type": "name", "properties": {"name": _plane(layer.unit)}}
        head["coordinates"] = f"planar, {layer.unit}: no place on Earth"
    head["features"] = [_feature(feature) for feature in layer.features]
    path.write_text(json.dumps(head, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n", "utf-8")


def _plane(unit: str) -> str:
    """Return a plane without a place, as well-known text."""
    length = 'LENGTHUNIT["kilometre",1000]' if unit == "km" else 'LENGTHUNIT["unknown",1]'
    axes = 'CS[Cartesian,2],AXIS["x",east],AXIS["y",north]'
    return f'ENGCRS["planar coordinates",EDATUM["none"],{axes},{length}]'


def _feature(feature: Feature) -> dict[str, Any]:
    """Return a point or a line as GeoJSON has it; a number that is not finite is null."""
    line = [list(position) for position in feature.path]
    return {
        "type": "Feature",
        "geometry": {"type": feature.shape, "coordinates": line[0] if len(line) == 1 else line},
        "properties": {
            name: None if isinstance(value, float) and not np.isfinite(value) else value
            for name, value in feature.properties.items()
        },
    }
