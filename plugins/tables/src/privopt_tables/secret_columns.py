"""The columns of a table that hold the secret (a record's id or a position), and other columns that reveal it.

:class:`Secret` contains the names of these columns. :class:`GeoSource` is a table together with metadata about its
geometry columns, which may hold or reveal the secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, Self

import narwhals as nw
import numpy as np
import polars as pl
from attrs import evolve, field, frozen

from privopt.arrays import Floats
from privopt.declare.column_texts import TABLE, naming, texts_of
from privopt.declare.frames import list_columns
from privopt.declare.name_forms import normal_column
from privopt.declare.problems_in_memory import frame_of
from privopt.declare.table_files import TableSource, refuse_table
from privopt.errors import Fault, InputError, UsageError
from privopt.ledger.batches import secrets_of
from privopt_metric_dp.space.wkb import check_degrees, geometries_of, points_in
from privopt_tables.foreign_tables import FOREIGN_ENDINGS, read_foreign_table
from privopt_tables.position_texts import read_positions
from privopt_tables.row_forms import is_null_word

__all__ = ["DECIMAL_COMMA", "GeoSource", "Secret", "is_box", "positions_of"]

Kind = Literal["id", "geographic", "planar"]

DECIMAL_COMMA: Final = 2.0
"""The value in an array of faults that marks a position containing a number with a decimal comma."""

# GeoParquet 1.1 stores a geometry's bounding box in a structure with these fields.
_BOX_FIELDS: Final = frozenset({"xmin", "ymin", "xmax", "ymax"})


@frozen(kw_only=True)
class Secret:
    """The columns of a table that hold the secret, and other columns to omit from the protected table.

    Attributes:
        kind: The kind of secret: ``"id"`` for record ids, ``"geographic"`` for positions in degrees, or ``"planar"``
            for positions in km.
        columns: The names of the columns that hold the secret: one column of ids, two columns of coordinates (latitude
            and longitude, or x and y), or one column of geometries.
        also: Other columns that reveal the secret, such as the bounding boxes of its geometries. They are omitted too.
        geometries: Other geometry columns, which are kept so that a second ``apply`` can protect them.
        unwanted: The columns that the table's owner wants to omit. They may contain subjects or times, which are read
            before the columns are omitted.
    """

    kind: Kind
    columns: tuple[str, ...]
    also: tuple[str, ...] = ()
    geometries: tuple[str, ...] = ()
    unwanted: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        *,
        id: str | None = None,
        lat: str | None = None,
        lon: str | None = None,
        x: str | None = None,
        y: str | None = None,
        geometry: str | None = None,
    ) -> Secret:
        """Create a secret from one of the following: ``id``, ``lat`` and ``lon``, ``x`` and ``y``, or ``geometry``.

        Args:
            id: The column of record ids.
            lat, lon: The columns of latitudes and longitudes in degrees.
            x, y: The columns of planar coordinates in km.
            geometry: The column of points, either strings or geometries.

        Raises:
            UsageError: None or more than one of these is given, only one coordinate of a pair is given, or the same
                column is given for both coordinates.
        """
        choices: list[tuple[Kind, tuple[str | None, ...]]] = [
            ("id", (id,)),
            ("geographic", (lat, lon)),
            ("planar", (x, y)),
            ("geographic", (geometry,)),
        ]
        # A choice is only partly named if, for example, --lat is given without --lon.
        partly_named = [(kind, columns) for kind, columns in choices if any(column is not None for column in columns)]
        completely_named = [
            (kind, columns) for kind, columns in partly_named if all(column is not None for column in columns)
        ]
        if len(partly_named) != 1 or not completely_named:
            columns_by_option = {"id": id, "lat": lat, "lon": lon, "x": x, "y": y, "geometry": geometry}
            actual = ", ".join(name for name, column in columns_by_option.items() if column is not None) or "none"
            raise UsageError(
                "columns of the secret must be named by --id COLUMN, by --lat COLUMN --lon COLUMN, by --x COLUMN "
                f"--y COLUMN (km), by --geometry COLUMN or by --position NAME=COLUMN,COLUMN, got {actual}"
            )
        kind, columns = completely_named[0]
        if len(set(columns)) < len(columns):
            raise UsageError(f"columns of the secret must be two columns, got {columns[0]} twice")
        return cls(kind=kind, columns=tuple(normal_column(str(column)) for column in columns))

    @classmethod
    def at(cls, columns: Sequence[str], *, planar: bool) -> Secret:
        """Create a secret from either two columns of coordinates or one column of ids.

        Args:
            columns: The names of the columns: latitude and longitude, x and y, or an id.
            planar: Whether two columns are x and y rather than latitude and longitude.

        Raises:
            UsageError: No columns or more than two are given, or a column is named twice.
        """
        if len(columns) == 1:
            return cls.of(id=columns[0])
        if len(columns) != 2:
            raise UsageError(f"position must have two columns, or one of ids, got {len(columns)}")
        first, second = columns
        return cls.of(x=first, y=second) if planar else cls.of(lat=first, lon=second)

    @property
    def is_geometry(self) -> bool:
        """Whether the secret is a column of geometries."""
        return self.kind == "geographic" and len(self.columns) == 1

    @property
    def omitted(self) -> tuple[str, ...]:
        """The columns to omit in addition to those that are replaced by reports."""
        return (*self.also, *self.unwanted)

    def with_geometries(self, geometries: Mapping[str, Sequence[str]], *, active: str | None = None) -> Secret:
        """Return a copy that also lists the geometry columns and bounding boxes that reveal the secret.

        If the secret is a geometry column, other geometry columns, such as the other end of a trip, remain in the
        table, but their bounding boxes are omitted.

        Args:
            geometries: The table's geometry columns, each with the columns that hold its bounding boxes.
            active: The active geometry of a GeoDataFrame, which is always replaced by reports. None for other tables.

        Raises:
            InputError: The secret is an id or a pair of coordinates, but a geometry column that may reveal it exactly
                would remain.
        """
        # A GeoDataFrame needs its active geometry, so that column is replaced by the positions of the reports. It is
        # listed after the columns of the secret.
        replaced_columns = (*self.columns, *(() if active is None else (active,)))
        boxes = [box for boxes in geometries.values() for box in boxes]
        also = dict.fromkeys([*self.also, *replaced_columns[len(self.columns) :], *boxes])
        remaining = tuple(name for name in geometries if name not in (*replaced_columns, *also, *self.unwanted))
        # A geometry in the same row probably reveals the id or the coordinates.
        if remaining and not self.is_geometry:
            expectation = "no such geometries (drop the column first, or name it as the secret)"
            raise InputError([Fault(TABLE, f"column {remaining[0]}", "geometries that would stay", expectation)])
        return evolve(self, also=tuple(also), geometries=remaining)

    def without(self, frame: nw.DataFrame[Any]) -> nw.DataFrame[Any]:
        """Return a frame without the unwanted columns and without those that hold or reveal the secret.

        Raises:
            InputError: A column of bounding boxes would remain. This happens if there is no metadata that says which
                geometry the boxes belong to.
        """
        public_frame = frame.drop([name for name in frame.columns if name in self.columns or name in self.omitted])
        # The bounding box of a point is the point itself. Without metadata, it is not known to which geometry a box
        # belongs.
        for name in public_frame.columns:
            if is_box(public_frame[name]):
                expectation = "no such boxes (drop the column first, or leave it out of the table)"
                actual = "boxes (xmin, ymin, xmax, ymax) that would stay"
                raise InputError([Fault(TABLE, f"column {name}", actual, expectation)])
        return public_frame

    def check(self, names: list[str], table: str) -> None:
        """Check that a table has all columns of the secret, and that its column names are distinct.

        Args:
            names: The names of the table's columns.
            table: The table's name, used in error messages.

        Raises:
            InputError: A column of the secret is missing, or several columns have the same name. The error contains one
                fault per column.
        """
        available_columns = list_columns(names)
        faults = [
            Fault(
                table,
                f"column {name}",
                "no such column",
                f"one of {available_columns or 'none: the table has no columns'}",
            )
            for name in self.columns
            if name not in names
        ]
        # dict.fromkeys removes duplicates, so that each repeated name gets one fault.
        faults += [
            Fault(table, f"column {name}", "this name twice", "columns that differ in name")
            for name in dict.fromkeys(name for index, name in enumerate(names) if name in names[:index])
        ]
        if faults:
            raise InputError(faults)

    def bytes_of(self, frame: nw.DataFrame[Any]) -> list[bytes]:
        """Return each row's secret (an id or a pair of doubles) as canonical bytes, for use in a keyed hash."""
        if self.kind == "id":
            return secrets_of([texts_of(frame[name]).to_list() for name in self.columns])
        return secrets_of(positions_of(frame, self)[0].T.tolist())

    def check_other_columns(self, meanings: Mapping[str, str], names: list[str], table: str) -> None:
        """Check that other required columns exist, and that none of them holds or reveals the secret.

        Args:
            meanings: A description of each of these columns for error messages, such as "when each row was", keyed by
                column name.
            names: The names of the table's columns.
            table: The table's name, used in error messages.

        Raises:
            InputError: One of these columns is missing, or holds or reveals the secret. The error contains one fault
                per column.
        """
        faults = [
            Fault(
                table,
                f"column {name}",
                "the secret" if name in names else "no such column",
                f"a column that says {meaning}",
            )
            for name, meaning in meanings.items()
            if name not in names or name in (*self.columns, *self.also)
        ]
        if faults:
            raise InputError(faults)


def is_box(column: nw.Series[Any]) -> bool:
    """Return whether a column contains bounding boxes of geometries in GeoParquet format.

    Such boxes are structs with the fields xmin, ymin, xmax and ymax or, in pandas, dicts with these keys.
    """
    if isinstance(column.dtype, nw.Struct):
        return {field.name.lower() for field in column.dtype.fields} >= _BOX_FIELDS
    if column.dtype != nw.Object:
        return False
    # The first value is taken to represent the whole column.
    first_box = next((value for value in column if isinstance(value, Mapping)), {})
    return {str(name).lower() for name in first_box} >= _BOX_FIELDS


def _read_numbers(column: nw.Series[Any]) -> tuple[Floats, Floats]:
    """Read a column of B numbers, which may be stored as strings.

    Returns:
        Two arrays of shape (B,). The first contains the numbers, with NaN for every other cell. The second marks faulty
        cells: it contains :data:`DECIMAL_COMMA` for a number with a decimal comma, 1.0 for any other string that is
        neither a number nor a word for a missing value, and 0 for all other cells.
    """
    if column.dtype.is_numeric():
        values = column.cast(nw.Float64).to_numpy().astype(np.float64)
        return values, np.zeros(len(values))
    texts = texts_of(column)
    numbers = texts.cast(pl.Float64, strict=False)
    is_wrong = (numbers.is_null() & texts.is_not_null() & ~is_null_word(texts)).to_numpy()
    has_comma = texts.str.contains(r"^[+-]?\d+,\d+$").fill_null(False).to_numpy()
    # A number with a decimal comma is marked as a fault, because reading 45,5 as 455 or 45 would move the position.
    return numbers.fill_null(np.nan).to_numpy().copy(), np.where(has_comma, DECIMAL_COMMA, is_wrong * 1.0)


def _has_text(column: nw.Series[Any]) -> bool:
    """Return whether a column of Python objects contains strings, judging by its first value that is not None."""
    return isinstance(next((value for value in column if value is not None), None), str)


def positions_of(frame: nw.DataFrame[Any], secret: Secret) -> tuple[Floats, Floats]:
    """Return the positions in a table's rows, as latitude and longitude in degrees or as x and y in km.

    Args:
        frame: B rows of the table.
        secret: The columns of the position: two columns of coordinates, or one of geometries.

    Returns:
        Two arrays. The first, of shape (B, 2), contains the positions, latitude before longitude, with NaN for empty
        cells. The second, of shape (B,), marks faulty cells. It contains :data:`DECIMAL_COMMA` for a number with a
        decimal comma, 1.0 for any other non-empty cell that is neither a number nor a point, and 0 for all other cells.

    Raises:
        InputError: A column cannot be read as text, numbers or geometries.
    """
    if secret.is_geometry:
        column = frame[secret.columns[0]]
        # A column of geometries contains objects or bytes (WKB). A column of text contains positions in other forms.
        is_text = column.dtype == nw.String or (column.dtype == nw.Object and _has_text(column))
        return read_positions(texts_of(column)) if is_text else points_in(column)
    (first, first_fault), (second, second_fault) = (_read_numbers(frame[name]) for name in secret.columns)
    return np.column_stack([first, second]), np.maximum(first_fault, second_fault)


@frozen(kw_only=True, eq=False)
class GeoSource(TableSource):
    """A table and its metadata about geometry columns, which may hold or reveal the secret.

    Attributes:
        place: The table's name in messages that concern the whole table, such as the path of its file.
        geo: The GeoParquet metadata, or None if the table has none.
        geometries: The geometry columns, each with the columns that hold its bounding boxes.
        active: The name of a GeoDataFrame's active geometry. None for other tables.
        index: The names of the levels of a pandas index, which are not columns.
    """

    place: str = TABLE
    geo: str | bytes | None = None
    geometries: Mapping[str, tuple[str, ...]] = field(factory=dict)
    active: str | None = None
    index: tuple[str, ...] = ()

    @classmethod
    def of_file(cls, path: Path) -> Self:
        """Open a table stored in a CSV, Parquet, GeoJSON, GPX or tab-separated file.

        Args:
            path: The file to open.

        Raises:
            UsageError: The file has an unknown extension.
            InputError: The file cannot be read, is not a table, or has invalid metadata.
        """
        if path.suffix.lower() in FOREIGN_ENDINGS:
            frame = read_foreign_table(path)
            if frame is None:
                refuse_table(path, "text of another form", "GeoJSON, GPX, or fields between tabs")
            return evolve(cls.of_frame(nw.from_native(frame, eager_only=True), path.name), place=str(path))
        source, geo = super().of_file(path), None
        if path.suffix.lower() == ".parquet":
            with path.open("rb") as stream:
                geo = pl.read_parquet_metadata(stream).get("geo")
        try:
            boxes_by_geometry = geometries_of(geo)
        except ValueError as error:
            refuse_table(path, str(error), "GeoParquet, or a table without them")
        # Metadata may name columns that the file lacks, for example if it is a selection from a larger table.
        geometries = {name: boxes for name, boxes in boxes_by_geometry.items() if name in source.columns}
        return evolve(source, place=str(path), geo=geo, geometries=geometries)

    @classmethod
    def of_memory(cls, table: object) -> Self:
        """Create the source for an in-memory table from any library that :mod:`narwhals` supports.

        Raises:
            UsageError: The table has GeoParquet metadata that cannot be read.
        """
        source = cls.of_frame(frame_of(table, TABLE), TABLE)
        # Only Arrow tables carry GeoParquet's metadata in memory.
        if nw.dependencies.is_pyarrow_table(table):
            geo = (table.schema.metadata or {}).get(b"geo")
            try:
                return evolve(source, geo=geo, geometries=geometries_of(geo))
            except ValueError as error:
                raise UsageError(f"{TABLE}: metadata must be GeoParquet's, or none, got {error}") from None
        if not nw.dependencies.is_pandas_dataframe(table):
            return source
        return evolve(
            source,
            # Geometries in pandas have no columns of bounding boxes.
            geometries={str(name): () for name, dtype in table.dtypes.items() if str(dtype) == "geometry"},
            # Only GeoDataFrames have this attribute.
            active=getattr(table, "_geometry_column_name", None),
            index=tuple(str(name) for name in table.index.names if name is not None),
        )

    def complete_secret(self, secret: Secret) -> Secret:
        """Return a copy of ``secret`` that lists the geometry columns and bounding boxes that reveal it.

        Args:
            secret: The columns of the secret.

        Raises:
            InputError: Geometries would remain next to ids or coordinates, or the metadata specifies a reference system
                other than longitude and latitude. Geometries that stay in the table are checked for this too, because
                the metadata is removed.
            UsageError: The index of a pandas table, which cannot be dropped, has the same name as a column that is
                replaced or omitted.
        """
        with naming(self.name):
            completed = secret.with_geometries(self.geometries, active=self.active)
        for column in (*(completed.columns if completed.is_geometry else ()), *completed.geometries):
            # Coordinates in another system, if read as degrees, would be invalid or lie elsewhere.
            check_degrees(self.geo, column, self.name)
        # The index of a pandas table stays, because it is not a column that can be dropped.
        for name in self.index:
            if name in (*completed.columns, *completed.omitted):
                actual = f"{TABLE}: index {name}: got an index of the secret's name, which would stay"
                raise UsageError(f"{actual}; it must be another: reset_index(drop=True)")
        return completed
