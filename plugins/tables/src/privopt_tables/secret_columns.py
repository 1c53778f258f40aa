"""Find the columns of a table that contain the secret, a record's id or a position, and what else reveals it."""

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
"""Marks a position one of whose numbers has a comma before its decimals."""

_BOX: Final = frozenset({"xmin", "ymin", "xmax", "ymax"})


@frozen(kw_only=True)
class Secret:
    """The columns of a table that hold the secret.

    Attributes:
        kind: ``"id"`` of a record, ``"geographic"`` positions in degrees, or ``"planar"`` ones in km.
        columns: one for ids; latitude and longitude, or x and y; one for geometries.
        also: further columns that reveal it, such as the box around each geometry.
        geometries: other columns of geometries, which stay for a second apply.
    """

    kind: Kind
    columns: tuple[str, ...]
    also: tuple[str, ...] = ()
    geometries: tuple[str, ...] = ()

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
        """Return the columns named by exactly one of ``id``, ``lat`` and ``lon``, ``x`` and ``y``, ``geometry``.

        Raises:
            UsageError: another choice.
        """
        choices: list[tuple[Kind, tuple[str | None, ...]]] = [
            ("id", (id,)),
            ("geographic", (lat, lon)),
            ("planar", (x, y)),
            ("geographic", (geometry,)),
        ]
        named = [(kind, columns) for kind, columns in choices if any(column is not None for column in columns)]
        whole = [(kind, columns) for kind, columns in named if all(column is not None for column in columns)]
        if len(named) != 1 or not whole:
            given = {"id": id, "lat": lat, "lon": lon, "x": x, "y": y, "geometry": geometry}
            found = ", ".join(name for name, column in given.items() if column is not None) or "none"
            raise UsageError(
                f"columns of the secret must be one of id; lat and lon; x and y (km); geometry; positions, got {found}"
            )
        kind, columns = whole[0]
        if len(set(columns)) < len(columns):
            raise UsageError(f"columns of the secret must be two columns, got {columns[0]} twice")
        return cls(kind=kind, columns=tuple(normal_column(str(column)) for column in columns))

    @classmethod
    def at(cls, columns: Sequence[str], *, planar: bool) -> Secret:
        """Return the columns of a position, two coordinates or one id.

        Args:
            columns: latitude and longitude, or x and y; or one column of ids.
            planar: whether two columns are x and y.

        Raises:
            UsageError: another number of columns, or one of them twice.
        """
        if len(columns) == 1:
            return cls.of(id=columns[0])
        if len(columns) != 2:
            raise UsageError(f"position must have two columns, or one of ids, got {len(columns)}")
        first, second = columns
        return cls.of(x=first, y=second) if planar else cls.of(lat=first, lon=second)

    @property
    def geometry(self) -> bool:
        """Whether they are one column of geometries."""
        return self.kind == "geographic" and len(self.columns) == 1

    def with_geometries(self, geometries: Mapping[str, Sequence[str]], *, active: str | None = None) -> Secret:
        """Return the secret with what reveals it besides its columns: boxes around geometries, a frame's geometry.

        Next to a secret that is a geometry, others stay without their boxes: a trip's other end, say.

        Args:
            geometries: a table's columns of geometries, and the columns with their boxes.
            active: the one that is replaced in any case.

        Raises:
            InputError: columns of geometries in addition to ids or coordinates, whose place they may reveal exactly.
        """
        gone = (*self.columns, *(() if active is None else (active,)))
        boxes = [box for boxes in geometries.values() for box in boxes]
        also = dict.fromkeys([*self.also, *gone[len(self.columns) :], *boxes])
        left = tuple(name for name in geometries if name not in (*gone, *also))
        if left and not self.geometry:
            wanted = "no such geometries (drop the column first, or name it as the secret)"
            raise InputError([Fault(TABLE, f"column {left[0]}", "geometries that would stay", wanted)])
        return evolve(self, also=tuple(also), geometries=left)

    def without(self, frame: nw.DataFrame[Any]) -> nw.DataFrame[Any]:
        """Return the table without the columns that reveal the secret.

        Raises:
            InputError: boxes around geometries remain, and no metadata name the geometries.
        """
        left = frame.drop([name for name in frame.columns if name in self.columns or name in self.also])
        for name in left.columns:
            if is_box(left[name]):
                wanted = "no such boxes (drop the column first, or leave it out of the table)"
                found = "boxes (xmin, ymin, xmax, ymax) that would stay"
                raise InputError([Fault(TABLE, f"column {name}", found, wanted)])
        return left

    def check(self, names: list[str], table: str) -> None:
        """Refuse a table that lacks the columns, or has two of one name.

        Raises:
            InputError: a fault for each.
        """
        known = list_columns(names)
        faults = [
            Fault(table, f"column {name}", "no such column", f"one of {known or 'none: the table has no columns'}")
            for name in self.columns
            if name not in names
        ]
        faults += [
            Fault(table, f"column {name}", "this name twice", "columns that differ in name")
            for name in dict.fromkeys(name for place, name in enumerate(names) if name in names[:place])
        ]
        if faults:
            raise InputError(faults)

    def bytes_of(self, frame: nw.DataFrame[Any]) -> list[bytes]:
        """Return canonical bytes of each row's secret: an id's text, or a position's two doubles."""
        if self.kind == "id":
            return secrets_of([texts_of(frame[name]).to_list() for name in self.columns])
        return secrets_of(positions_of(frame, self)[0].T.tolist())

    def check_other_columns(self, says: Mapping[str, str], names: list[str], table: str) -> None:
        """Refuse a table that lacks columns needed in addition to the secret's, or in which these are the secret.

        Args:
            says: what each of them says of a row.
            names: the table's columns.
            table: its name, for faults.

        Raises:
            InputError: a fault for each.
        """
        faults = [
            Fault(
                table,
                f"column {name}",
                "the secret" if name in names else "no such column",
                f"a column that says {what}",
            )
            for name, what in says.items()
            if name not in names or name in (*self.columns, *self.also)
        ]
        if faults:
            raise InputError(faults)


def is_box(column: nw.Series[Any]) -> bool:
    """Check whether a column holds boxes as GeoParquet writes them; in pandas they are dicts."""
    if isinstance(column.dtype, nw.Struct):
        return {field.name.lower() for field in column.dtype.fields} >= _BOX
    if column.dtype != nw.Object:
        return False
    first = next((value for value in column if isinstance(value, Mapping)), {})
    return {str(name).lower() for name in first} >= _BOX


def _numbers(column: nw.Series[Any]) -> tuple[Floats, Floats]:
    """Return doubles, NaN if the cell is empty or a word for that; and :data:`DECIMAL_COMMA`, or 1.0 for other text."""
    if column.dtype.is_numeric():
        values = column.cast(nw.Float64).to_numpy().astype(np.float64)
        return values, np.zeros(len(values))
    text = texts_of(column)
    numbers = text.cast(pl.Float64, strict=False)
    is_wrong = (numbers.is_null() & text.is_not_null() & ~is_null_word(text)).to_numpy()
    has_comma = text.str.contains(r"^[+-]?\d+,\d+$").fill_null(False).to_numpy()
    return numbers.fill_null(np.nan).to_numpy().copy(), np.where(has_comma, DECIMAL_COMMA, is_wrong * 1.0)


def _holds_text(column: nw.Series[Any]) -> bool:
    return isinstance(next((value for value in column if value is not None), None), str)


def positions_of(frame: nw.DataFrame[Any], secret: Secret) -> tuple[Floats, Floats]:
    """Return positions in a table, as records have them.

    Returns:
        (B, 2) doubles, latitude before longitude, NaN for an empty cell; and (B,) :data:`DECIMAL_COMMA` for a number
        with a comma, 1.0 for another cell that is neither a number nor a point, else 0.
    """
    if secret.geometry:
        column = frame[secret.columns[0]]
        is_text = column.dtype == nw.String or (column.dtype == nw.Object and _holds_text(column))
        return read_positions(texts_of(column)) if is_text else points_in(column)
    (first, wrong), (second, also) = (_numbers(frame[name]) for name in secret.columns)
    return np.column_stack([first, second]), np.maximum(wrong, also)


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
        """Return a table in a file: CSV, Parquet, GeoJSON, GPX, or text with tabs between fields.

        Raises:
            UsageError: its name ends otherwise.
            InputError: it cannot be read, or is not a table, or has metadata that cannot be read.
        """
        if path.suffix.lower() in FOREIGN_ENDINGS:
            frame = read_foreign_table(path)
            if frame is None:
                refuse_table(path, "text of another form", "GeoJSON, GPX, or fields between tabs")
            return evolve(cls.of_frame(nw.from_native(frame, eager_only=True), path.name), place=str(path))
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
