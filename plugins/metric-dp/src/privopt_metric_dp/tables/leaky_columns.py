"""Find remaining columns whose values reveal the secret: nested coordinates, copies of the secret column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import narwhals as nw
from attrs import define, field

from privopt_metric_dp.tables.column_names import like_places, like_positions

__all__ = ["LeakyColumns"]

_NESTED: Final = (nw.List, nw.Array)


@define
class LeakyColumns:
    """What the values and types of a table's columns reveal, examined part by part.

    Attributes:
        positions: fields of structures that are named like coordinates, as ``column.field``.
        places: those that are named like places.
    """

    positions: list[str] = field(factory=list)
    places: list[str] = field(factory=list)
    _same: dict[str, set[Any]] | None = None
    """Columns that are equal to one of the secret's in all rows so far, with values of theirs: two are enough."""

    def look(self, left: nw.DataFrame[Any], secret: nw.DataFrame[Any]) -> None:
        """Look at some rows.

        Args:
            left: their columns that stay.
            secret: those that do not.
        """
        if self._same is None:
            for name in left.columns:
                fields = {path: path.rpartition(".")[2] for path in _fields(left[name], name)}
                self.positions += [path for path, last in fields.items() if like_positions([last])]
                self.places += [path for path, last in fields.items() if like_places([last])]
            self._same = {name: set() for name in left.columns if _plain(left[name])}
        plain = [secret[name] for name in secret.columns if _plain(secret[name])]
        for name, seen in list(self._same.items()):
            if any(_equal(left[name], other) for other in plain):
                if len(seen) < 2:
                    seen.update(left[name].unique().head(2).to_list())
            else:
                del self._same[name]

    @property
    def same(self) -> list[str]:
        """Columns that are a copy of the secret; not where all rows are alike, which any column may be."""
        return [name for name, seen in (self._same or {}).items() if len(seen) > 1]


def _fields(column: nw.Series[Any], name: str) -> Iterator[str]:
    """Paths of the fields of a structure, and of those in it; in pandas they are dicts."""
    if column.dtype == nw.Object:
        first = next((value for value in column if isinstance(value, Mapping)), {})
        yield from (f"{name}.{own}" for own in first)
        return
    waiting = [(name, column.dtype)]
    while waiting:
        path, dtype = waiting.pop()
        if isinstance(dtype, _NESTED):
            inner = dtype.inner
            waiting.append((path, inner() if isinstance(inner, type) else inner))
        elif isinstance(dtype, nw.Struct):
            for own in dtype.fields:
                below = own.dtype() if isinstance(own.dtype, type) else own.dtype
                yield f"{path}.{own.name}"
                waiting.append((f"{path}.{own.name}", below))


def _plain(column: nw.Series[Any]) -> bool:
    """Check whether values can be compared one by one: numbers, text, bytes."""
    if column.dtype == nw.Object:
        first = next((value for value in column if value is not None), None)
        return isinstance(first, (str, bytes))
    return column.dtype.is_numeric() or isinstance(column.dtype, (nw.String, nw.Binary))


def _equal(one: nw.Series[Any], other: nw.Series[Any]) -> bool:
    if one.dtype != other.dtype and not (one.dtype.is_numeric() and other.dtype.is_numeric()):
        return False
    return bool(((one == other).fill_null(False) | (one.is_null() & other.is_null())).all())
