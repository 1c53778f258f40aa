"""A table in memory, of whatever library, with a report in each row; or an array of ids or positions."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import narwhals as nw
import numpy as np
from attrs import evolve, frozen

from privopt.errors import UsageError
from privopt.interfaces import Result
from privopt.interfaces.result import SEEDED
from privopt.metric.space.wkb import check_degrees, geometries_of
from privopt.run.ledger.ledger import Ledger
from privopt.run.verify import Opened
from privopt.tables.apply import matrix_of
from privopt.tables.charged import Charging, cost_of
from privopt.tables.problems import frame_of
from privopt.tables.protect import REPORT, Protector, limits_of, words_of
from privopt.tables.secret import Secret
from privopt.tables.traces import check_subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Application", "protected"]

T = TypeVar("T")


@frozen(kw_only=True)
class Application:
    """How a release is applied to a table: see :meth:`privopt.tables.released.Released.apply`.

    Attributes:
        columns: of the secret, by what they hold: ``id``, ``lat``, ``lon``, ``x``, ``y``, ``geometry``.
        max_snap, seed, ledger, subject, time, sticky, prefix: as there.
    """

    columns: Mapping[str, str | None]
    max_snap: float | None = None
    seed: int | None = None
    ledger: Ledger | Path | str | None = None
    subject: str | None = None
    time: str | None = None
    sticky: bool = False
    prefix: str | None = None


def protected(opened: Opened, table: T, asked: Application) -> tuple[T, list[str]]:
    """The same kind of table with reports in place of the secret's columns, and what its user must know.

    Raises:
        UsageError, InputError: as of :meth:`privopt.tables.released.Released.apply`.
    """
    release, problem = matrix_of(opened)
    if (asked.ledger is not None and asked.subject is None) or (asked.sticky and asked.ledger is None):
        raise UsageError("apply: found one of ledger and subject, wanted both: reports are charged to subjects")
    check_subject(release, asked.subject, asked.time, charged=asked.ledger is not None, dashes="")
    if isinstance(table, np.ndarray):
        if asked.subject is not None:
            raise UsageError("table: found an array, wanted a table with a column of subjects")
        return _array(opened, table, asked)  # type: ignore[return-value]
    own, columns = getattr(table, "_geometry_column_name", None), dict(asked.columns)
    if own is not None and not any(columns.values()):
        columns["geometry"] = own
    frame = frame_of(table, "table")
    secret = Secret.of(**columns).with_geometries(_geometries(table), active=own)
    if nw.dependencies.is_pyarrow_table(table):
        for column in (*(secret.columns if secret.geometry else ()), *secret.beside):
            check_degrees((table.schema.metadata or {}).get(b"geo"), column, "table")
    _check_index(table, secret)
    charges: Any = nullcontext()
    if asked.ledger is not None:
        cost = cost_of(opened.folder, opened.result, "apply")
        charges = Charging.to(asked.ledger, str(asked.subject), cost, sticky=asked.sticky)
    with charges as charging:
        protector = Protector.of(
            release,
            problem.data,
            secret,
            max_snap=asked.max_snap,
            seed=asked.seed,
            charging=charging,
            subject=asked.subject,
            time=asked.time,
            prefix=asked.prefix,
        )
        protector.check(list(frame.columns), "table")
        made = protector.protect(frame)
        notes = _notes(protector, len(frame), opened.result)
        notes += protector.warnings([*frame.columns, *_index_names(table)])
    if isinstance(table, Mapping):
        return made.to_dict(as_series=False), notes  # type: ignore[return-value]
    native = _bare(made.to_native())
    if own is not None:
        native = _with_points(table, native, own, protector)
    return native, notes


def _array(opened: Opened, given: NDArray[Any], asked: Application) -> tuple[NDArray[Any], list[str]]:
    release, problem = matrix_of(opened)
    if given.ndim == 1:
        ids, notes = protected(opened, {"id": given.tolist()}, evolve(asked, columns={"id": "id"}, prefix=None))
        return np.array(ids[REPORT], dtype=object), notes
    if given.ndim != 2 or given.shape[1] != 2:
        raise UsageError(f"table: found an array of shape {given.shape}, wanted (B,) ids or (B, 2) positions")
    ends = ("x", "y") if problem.data.records.kind == "planar" else ("lat", "lon")
    table = {end: given[:, axis].tolist() for axis, end in enumerate(ends)}
    made, notes = protected(opened, table, evolve(asked, columns=dict(zip(ends, ends, strict=True)), prefix=None))
    if f"{REPORT}_{ends[0]}" not in made:
        raise UsageError(f"table: found positions, wanted ids: the {len(release.outputs)} outputs lie nowhere")
    return np.array([made[f"{REPORT}_{end}"] for end in ends], dtype=np.float64).T, notes


def _notes(protector: Protector, rows: int, result: Result) -> list[str]:
    """What is to be said of a table's reports.

    Raises:
        UsageError: there is none.
    """
    refused, charging = protector.refused, protector.charging
    left = sum(refused.values())
    if left == rows:
        raise protector.nothing("table")
    notes = [f"{left:,} of {rows:,} rows without a report: {words_of(refused)}"] if left else []
    notes += limits_of(result.guarantee)
    notes += [charging.sequence] if charging is not None and charging.sticky is not None else []
    notes += [f"this release: {result.mark}"] if result.mark else []
    return notes + ([f"this table: {SEEDED}"] if protector.marked else [])


# --- what a table brings beside its columns -------------------------------------------------------------


def _geometries(table: object) -> dict[str, tuple[str, ...]]:
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


def _check_index(table: object, secret: Secret) -> None:
    """Refuse a table of pandas whose index says what its secret columns say: it would stay."""
    for name in _index_names(table):
        if name in (*secret.columns, *secret.also):
            found = f"table: index {name}: found an index of the secret's name, which would stay"
            raise UsageError(f"{found}, wanted another: reset_index(drop=True)")


def _index_names(table: object) -> list[str]:
    """Names of what stands beside a table's columns: the levels of an index of pandas."""
    if not nw.dependencies.is_pandas_dataframe(table):
        return []
    return [str(name) for name in table.index.names if name is not None]


def _bare(table: T) -> T:
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


def _with_points(table: object, made: T, column: str, protector: Protector) -> T:
    """A GeoDataFrame again, its geometry the places of reports."""
    if protector.outputs is None:
        return made
    before, native = cast(Any, table), cast(Any, made)
    first, second = (
        nw.from_native(native, eager_only=True)[name].to_numpy().astype(np.float64) for name in protector.places
    )
    degrees = protector.outputs.kind == "geographic"
    across, up = (second, first) if degrees else (first, second)
    points = type(before[column]).from_xy(across, up, index=native.index, crs=4326 if degrees else None)
    points[np.isnan(across)] = None
    return cast(T, type(before)(native.assign(**{column: points}), geometry=column))
