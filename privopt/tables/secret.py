"""Which columns of a table hold the secret, and what they say: a record's id, or a position."""

from __future__ import annotations

from typing import Any, Literal

import narwhals as nw
import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Floats
from privopt.errors import Fault, InputError, UsageError
from privopt.metric.space.wkb import points_of

__all__ = ["Secret", "positions_of", "texts_of"]

Kind = Literal["id", "geographic", "planar"]


@frozen(kw_only=True)
class Secret:
    """The columns of a table that hold the secret.

    Attributes:
        kind: ``"id"`` of a record, ``"geographic"`` positions in degrees, or ``"planar"`` ones in km.
        columns: one for ids; latitude and longitude, or x and y; one for geometries.
    """

    kind: Kind
    columns: tuple[str, ...]

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
        """The columns named by exactly one of ``id``, ``lat`` and ``lon``, ``x`` and ``y``, ``geometry``.

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
                f"columns of the secret: found {found}, wanted one of id; lat and lon; x and y (km); geometry"
            )
        kind, columns = whole[0]
        return cls(kind=kind, columns=tuple(str(column) for column in columns))

    @property
    def geometry(self) -> bool:
        """Whether they are one column of geometries."""
        return self.kind == "geographic" and len(self.columns) == 1

    def check(self, names: list[str], table: str) -> None:
        """Refuse a table that lacks the columns, or has two of one name.

        Raises:
            InputError: a fault for each.
        """
        known = ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")
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


def texts_of(column: nw.Series[Any]) -> pl.Series:
    """A column as text, stripped; null where it is missing or blank. A whole number has no decimal point.

    >>> texts_of(nw.new_series("id", [7.0, None, 3.5], backend="polars")).to_list()
    ['7', None, '3.5']
    """
    if column.dtype.is_float():  # pandas has no whole numbers beside missing ones
        values = column.to_numpy().astype(np.float64).tolist()
        whole = [None if value != value else f"{value:.0f}" if value.is_integer() else repr(value) for value in values]
        return pl.Series(column.name, whole, dtype=pl.String)
    native = column.to_native()
    if not isinstance(native, pl.Series):
        missing = column.is_null().to_list()
        texts = [None if gone else str(value) for value, gone in zip(column.to_list(), missing, strict=True)]
        native = pl.Series(column.name, texts, dtype=pl.String)
    text = native.cast(pl.String).str.strip_chars()
    return pl.select(pl.when(text != "").then(text)).to_series().alias(column.name)


def _numbers(column: nw.Series[Any]) -> tuple[Floats, Floats]:
    """Doubles (NaN where there is none), and 1.0 where something stands that is no number."""
    if column.dtype.is_numeric():
        values = column.cast(nw.Float64).to_numpy().astype(np.float64)
        return values, np.zeros(len(values))
    text = texts_of(column)
    numbers = text.cast(pl.Float64, strict=False)
    return numbers.fill_null(np.nan).to_numpy().copy(), (numbers.is_null() & text.is_not_null()).to_numpy() * 1.0


def positions_of(frame: nw.DataFrame[Any], secret: Secret) -> tuple[Floats, Floats]:
    """Positions in a table, as records have them.

    Returns:
        (B, 2) doubles, latitude before longitude, NaN where nothing stands; and (B,) 1.0 where what stands there is
        neither a number nor a point.
    """
    if secret.geometry:
        return _points(frame[secret.columns[0]])
    (first, wrong), (second, also) = (_numbers(frame[name]) for name in secret.columns)
    return np.column_stack([first, second]), np.maximum(wrong, also)


def _points(column: nw.Series[Any]) -> tuple[Floats, Floats]:
    """Points of geometries: a GeoSeries, or well-known binary."""
    native = column.to_native()
    if not hasattr(native, "geom_type"):
        values = native if isinstance(native, pl.Series) else pl.Series(column.name, column.to_list())
        return points_of(values, "table")
    if native.crs is not None:  # a GeoSeries: what geopandas knows of it is asked of itself
        native = native.to_crs(4326)
    given = native.notna().to_numpy()
    point = (native.geom_type == "Point").to_numpy() & given & ~native.is_empty.to_numpy()
    flat = np.full((len(native), 2), np.nan)
    flat[point, 0], flat[point, 1] = native[point].y.to_numpy(), native[point].x.to_numpy()
    return flat, (given & ~point & ~native.is_empty.to_numpy()) * 1.0
