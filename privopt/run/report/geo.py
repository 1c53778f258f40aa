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
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from attrs import frozen

from privopt.errors import UsageError

if TYPE_CHECKING:
    from privopt.metric.space.places import Space

__all__ = ["Feature", "Layer", "point_features", "write_layer"]

ENDINGS: Final = (".geojson", ".json", ".parquet", ".geoparquet")
VERSION: Final = "1.1.0"

Position = tuple[float, float]


@frozen(kw_only=True)
class Feature:
    """A point, or a line of two or more, and what is known of it.

    Attributes:
        path: (x, y), or (longitude, latitude) in degrees; one for a point.
        properties: name -> text, number, truth value or None; every feature of a layer has the same names.
    """

    path: tuple[Position, ...]
    properties: Mapping[str, Any]

    @property
    def shape(self) -> str:
        """The geometry's type in both formats."""
        return "Point" if len(self.path) == 1 else "LineString"


@frozen(kw_only=True)
class Layer:
    """What a mechanism hands to a map.

    Attributes:
        kind: geographic (degrees, WGS 84) or planar.
        features: in order.
        unit: of planar coordinates, where it is known.
    """

    kind: Literal["geographic", "planar"]
    features: Sequence[Feature]
    unit: str = "km"


def point_features(space: Space, columns: Mapping[str, Any]) -> list[Feature]:
    """A point for each of a space's ids; ``columns`` are (N,) properties by name.

    Raises:
        UsageError: the space has no coordinates on a map.
    """
    if space.coordinates is None or space.kind not in ("geographic", "planar"):
        raise UsageError(f"--geo: {space.source} has no coordinates on a map, only {space.kind} ones")
    values = space.coordinates[:, ::-1] if space.kind == "geographic" else space.coordinates
    named = {name: np.asarray(column).tolist() for name, column in columns.items()}
    return [
        Feature(
            path=((float(x), float(y)),),
            properties={"id": space.ids[row]} | {name: column[row] for name, column in named.items()},
        )
        for row, (x, y) in enumerate(values.tolist())
    ]


def write_layer(layer: Layer, path: Path) -> None:
    """Write a layer in the format that the file's ending names.

    Raises:
        UsageError: an ending of neither format.
    """
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
