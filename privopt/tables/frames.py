"""What a table in memory brings beside its columns: geometries, an index, metadata."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import narwhals as nw
import numpy as np

from privopt.errors import UsageError
from privopt.metric.space.wkb import geometries_of
from privopt.tables.protect import Protector
from privopt.tables.secret import Secret

T = TypeVar("T")

__all__ = ["bare", "check_index", "geometries", "index_names", "with_points"]


def geometries(table: object) -> dict[str, tuple[str, ...]]:
    """Columns of geometries that a table in memory says it has, and those of the boxes around them.

    Raises:
        UsageError: metadata that cannot be read.
    """
    if nw.dependencies.is_pyarrow_table(table):
        try:
            return geometries_of((table.schema.metadata or {}).get(b"geo"))
        except ValueError as error:
            raise UsageError(f"table: found {error}, wanted GeoParquet's, or none") from None
    if nw.dependencies.is_pandas_dataframe(table):
        return {str(name): () for name, dtype in table.dtypes.items() if str(dtype) == "geometry"}
    return {}


def check_index(table: object, secret: Secret) -> None:
    """Refuse a table of pandas whose index says what its secret columns say: it would stay."""
    for name in index_names(table):
        if name in (*secret.columns, *secret.also):
            found = f"table: index {name}: found an index of the secret's name, which would stay"
            raise UsageError(f"{found}, wanted another: reset_index(drop=True)")


def index_names(table: object) -> list[str]:
    """Names of what stands beside a table's columns: the levels of an index of pandas."""
    if not nw.dependencies.is_pandas_dataframe(table):
        return []
    return [str(name) for name in table.index.names if name is not None]


def bare(table: T) -> T:
    """A table without metadata: they may describe columns that are gone, to the box around all positions."""
    native: Any = table
    if nw.dependencies.is_pyarrow_table(native):
        schema = native.schema.remove_metadata()
        for place, column in enumerate(schema):
            schema = schema.set(place, column.remove_metadata())
        return cast(T, type(native).from_arrays(native.columns, schema=schema))
    if nw.dependencies.is_pandas_dataframe(native):
        native.attrs = {}
    return table


def with_points(table: object, protected: T, column: str, protector: Protector) -> T:
    """A GeoDataFrame again, its geometry the places of reports."""
    if protector.outputs is None:
        return protected
    before, native = cast(Any, table), cast(Any, protected)
    first, second = (
        nw.from_native(native, eager_only=True)[name].to_numpy().astype(np.float64) for name in protector.places
    )
    degrees = protector.outputs.kind == "geographic"
    across, up = (second, first) if degrees else (first, second)
    points = type(before[column]).from_xy(across, up, index=native.index, crs=4326 if degrees else None)
    points[np.isnan(across)] = None
    return cast(T, type(before)(native.assign(**{column: points}), geometry=column))
