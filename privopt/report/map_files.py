"""Map results for geographic information systems: GeoJSON and GeoParquet, written with what is installed anyway.

Geographic coordinates are degrees on WGS 84, as both formats assume. Planar ones have no place on Earth, and no reader
may take kilometres for degrees: a GeoJSON file names an engineering system as its ``crs`` (GDAL, and so QGIS, reads
that; ``null`` it takes for degrees), a GeoParquet file has ``"crs": null``, as its standard wants.
"""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from privopt.arrays import Floats
from privopt.errors import UsageError
from privopt.interfaces.report_parts import Feature, Layer

__all__ = ["point_features", "write_layer"]

ENDINGS: Final = (".geojson", ".json", ".parquet", ".geoparquet")
VERSION: Final = "1.1.0"


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
    """Write a layer in the format that the file's ending names."""
    if path.suffix.lower() not in ENDINGS:
        raise UsageError(f"--geo {path}: the ending {path.suffix!r}, wanted one of {', '.join(ENDINGS)}")
    if path.suffix.lower() in (".parquet", ".geoparquet"):
        path.write_bytes(_parquet(layer))
    else:
        text = json.dumps(_collection(layer), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        path.write_text(text + "\n", "utf-8")


def _collection(layer: Layer) -> dict[str, Any]:
    head: dict[str, Any] = {"type": "FeatureCollection"}
    if layer.kind == "planar":
        head["crs"] = {"type": "name", "properties": {"name": _plane(layer.unit)}}
        head["coordinates"] = f"planar, {layer.unit}: no place on Earth"
    return head | {"features": [_feature(feature) for feature in layer.features]}


def _plane(unit: str) -> str:
    """A plane without a place, as well-known text."""
    length = 'LENGTHUNIT["kilometre",1000]' if unit == "km" else 'LENGTHUNIT["unknown",1]'
    axes = 'CS[Cartesian,2],AXIS["x",east],AXIS["y",north]'
    return f'ENGCRS["planar coordinates",EDATUM["none"],{axes},{length}]'


def _feature(feature: Feature) -> dict[str, Any]:
    line = [list(position) for position in feature.path]
    return {
        "type": "Feature",
        "geometry": {"type": feature.shape, "coordinates": line[0] if len(line) == 1 else line},
        "properties": {name: _plain(value) for name, value in feature.properties.items()},
    }


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not np.isfinite(value) else value


def _wkb(feature: Feature) -> bytes:
    """Well-known binary, little-endian: a byte, a type (1 a point, 2 a line), the positions."""
    flat = [coordinate for position in feature.path for coordinate in position]
    if feature.shape == "Point":
        return struct.pack("<BI2d", 1, 1, *flat)
    return struct.pack(f"<BII{len(flat)}d", 1, 2, len(feature.path), *flat)


def _parquet(layer: Layer) -> bytes:
    import polars as pl

    positions = np.array([position for feature in layer.features for position in feature.path])
    column: dict[str, Any] = {
        "encoding": "WKB",
        "geometry_types": sorted({feature.shape for feature in layer.features}),
        "bbox": [*positions.min(axis=0).tolist(), *positions.max(axis=0).tolist()],
    }
    if layer.kind == "planar":
        column["crs"] = None  # left out it would mean longitude and latitude
    geo = {"version": VERSION, "primary_column": "geometry", "columns": {"geometry": column}}
    names = list(layer.features[0].properties)
    table: dict[str, Any] = {name: [_plain(feature.properties[name]) for feature in layer.features] for name in names}
    table["geometry"] = pl.Series([_wkb(feature) for feature in layer.features], dtype=pl.Binary)
    metadata = {"geo": json.dumps(geo)}
    if layer.kind == "planar":
        metadata["coordinates"] = f"planar, {layer.unit}"
    out = io.BytesIO()
    pl.DataFrame(table).write_parquet(out, metadata=metadata)
    return out.getvalue()
