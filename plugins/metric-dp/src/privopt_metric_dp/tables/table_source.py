"""A table to protect, from a file or from memory, with the metadata that reveals positions."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Self

import narwhals as nw
import polars as pl
from attrs import evolve, field, frozen

from privopt.declare.column_texts import TABLE, naming
from privopt.declare.problems_in_memory import frame_of
from privopt.declare.table_files import TableSource, refuse_table
from privopt.errors import UsageError
from privopt_metric_dp.space.wkb import check_degrees, geometries_of
from privopt_metric_dp.tables.secret_columns import Secret

__all__ = ["GeoSource"]


@frozen(kw_only=True, eq=False)
class GeoSource(TableSource):
    """A table whose geometries may be the secret.

    Attributes:
        place: the table, for messages about all of it: a file's path.
        geo: GeoParquet's metadata, where it has any.
        geometries: columns of geometries that it says it has, and those of the boxes around them.
        active: a GeoDataFrame's own geometry.
        index: names of the levels of an index of pandas, which are not columns.
    """

    place: str = TABLE
    geo: str | bytes | None = None
    geometries: Mapping[str, tuple[str, ...]] = field(factory=dict)
    active: str | None = None
    index: tuple[str, ...] = ()

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Return a table in a file, CSV or Parquet.

        Raises:
            UsageError: its name ends otherwise.
            InputError: it cannot be read, or is not a table, or has metadata that cannot be read.
        """
        found, geo = super().of_file(path), None
        if path.suffix.lower() == ".parquet":
            with path.open("rb") as stream:
                geo = pl.read_parquet_metadata(stream).get("geo")
        try:
            named = geometries_of(geo)
        except ValueError as error:
            refuse_table(path, str(error), "GeoParquet, or a table without them")
        geometries = {name: boxes for name, boxes in named.items() if name in found.columns}
        return evolve(found, place=str(path), geo=geo, geometries=geometries)

    @classmethod
    def of_memory(cls, table: object) -> Self:
        """Return a table in memory, of whatever library."""
        found = cls.of_frame(frame_of(table, TABLE), TABLE)
        if nw.dependencies.is_pyarrow_table(table):
            geo = (table.schema.metadata or {}).get(b"geo")
            try:
                return evolve(found, geo=geo, geometries=geometries_of(geo))
            except ValueError as error:
                raise UsageError(f"{TABLE}: metadata must be GeoParquet's, or none, got {error}") from None
        if not nw.dependencies.is_pandas_dataframe(table):
            return found
        return evolve(
            found,
            geometries={str(name): () for name, dtype in table.dtypes.items() if str(dtype) == "geometry"},
            active=getattr(table, "_geometry_column_name", None),
            index=tuple(str(name) for name in table.index.names if name is not None),
        )

    def whole(self, secret: Secret) -> Secret:
        """Return the secret with all columns that reveal it: the boxes around its geometries too.

        Raises:
            InputError: geometries that would stay with ids or coordinates, or in another reference system than
                longitude and latitude, where the metadata name one: also of those that stay, as the metadata do not.
            UsageError: an index of pandas that says what the secret's columns say: it would stay.
        """
        with naming(self.name):
            whole = secret.with_geometries(self.geometries, active=self.active)
        for column in (*(whole.columns if whole.geometry else ()), *whole.geometries):
            check_degrees(self.geo, column, self.name)
        for name in self.index:
            if name in (*whole.columns, *whole.also):
                found = f"{TABLE}: index {name}: got an index of the secret's name, which would stay"
                raise UsageError(f"{found}; it must be another: reset_index(drop=True)")
        return whole
