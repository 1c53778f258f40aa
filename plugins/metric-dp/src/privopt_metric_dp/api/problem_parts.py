"""The parts of a metric problem in memory: records, distances, losses, a prior, amounts with units."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from decimal import ROUND_FLOOR, Context, Decimal
from fractions import Fraction
from types import UnionType
from typing import Any, Final, cast

import narwhals as nw
import numpy as np
import polars as pl

from privopt.arrays import Floats
from privopt.declare.problems_in_memory import (
    NAME,
    Part,
    Problem,
    frame_of,
    keep,
    npy_bytes,
    problem,
    text_frame,
    values_of,
)
from privopt.declare.schema import File
from privopt.declare.tables import csv_bytes, plain_texts
from privopt.declare.toml import load_problem
from privopt.declare.toml_text import to_toml
from privopt.errors import Fault, Faults, InputError, UsageError, reason_of
from privopt_metric_dp.problem.data import space_of
from privopt_metric_dp.problem.declared import Places
from privopt_metric_dp.problem.kinds import MetricPrivacy
from privopt_metric_dp.space.wkb import points_in

__all__ = ["cost", "distances", "grid", "mesh", "metric_problem", "records", "roads", "travel_cost", "vectors"]

_QUANTITY: Final = re.compile(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(/|per\b)?\s*([A-Za-z]*)\s*")
_KM: Final[Mapping[str, Fraction]] = {"km": Fraction(1), "m": Fraction(1, 1000), "mi": Fraction("1.609344")}
_WEIGHTS: Final = ("p", "weight", "count")
_UNNAMED: Final = frozenset({"vectors", "count"})


def records(
    table: object,
    *,
    id: str | tuple[str, ...] = "id",
    lat: str | None = None,
    lon: str | None = None,
    x: str | None = None,
    y: str | None = None,
    geometry: str | None = None,
) -> Part:
    """Return records or outputs: the rows of a table.

    Args:
        table: the table; a dict of columns too.
        id: column of ids; several, joined by "/", if one is not unique.
        lat, lon: columns of degrees.
        x, y: columns of km.
        geometry: column of points: of a GeoDataFrame, or in well-known binary.

    Raises:
        InputError: columns that the table does not have.
        UsageError: no table.
    """
    frame = frame_of(table, "records")
    names = {"id": id, "lat": lat, "lon": lon, "x": x, "y": y}
    ids = (id,) if isinstance(id, str) else tuple(id)
    needed_columns = [*ids, *(name for name in (lat, lon, x, y, geometry) if name is not None)]
    _check_columns(frame, "records", needed_columns)
    text_columns = text_frame(frame.select([name for name in needed_columns if name != geometry]))
    if geometry is not None:
        places, _ = points_in(frame[geometry])
        names |= {"lat": f"{geometry} (latitude)", "lon": f"{geometry} (longitude)"}
        sides = [pl.Series(names[axis_name], places[:, axis]) for axis, axis_name in enumerate(("lat", "lon"))]
        text_columns = text_columns.with_columns(sides).fill_nan(None)
    renamed_columns = {key: name for key, name in names.items() if name and name != key}
    columns: dict[str, object] = {
        key: name if isinstance(name, str) else list(name) for key, name in renamed_columns.items()
    }
    values: dict[str, object] = {"points": "records.csv"}
    if columns:
        values["columns"] = columns
    return Part(values=values, files={"records.csv": csv_bytes(text_columns)})


def grid(rows: int, cols: int, cell_km: float, *, south_west: tuple[float, float] | None = None) -> Part:
    """Return records or outputs: even cells, ids "r-c", row 0 in the south.

    Args:
        rows, cols: how many.
        cell_km: side of a cell.
        south_west: (lat, lon) of the centre of "r0c0"; a plane by default.
    """
    cells: dict[str, object] = {"rows": rows, "cols": cols, "cell_km": cell_km}
    if south_west is not None:
        cells["south_west"] = list(south_west)
    return Part(values={"grid": cells})


def mesh(region: object, side_km: float, *, planar: bool = False) -> Part:
    """Return records or outputs: the corners of equilateral triangles that cover a region.

    Args:
        region: GeoJSON as a dict, or what gives it by ``__geo_interface__``: a GeoDataFrame, a polygon of shapely.
        side_km: of a triangle.
        planar: whether coordinates are x and y in km; else longitudes and latitudes.

    Raises:
        UsageError: no region.
    """
    shape = getattr(region, "__geo_interface__", region)
    if not isinstance(shape, Mapping):
        raise UsageError(f"region must be GeoJSON, or an object with a __geo_interface__, got {type(region).__name__}")
    values = {"mesh": {"region": "region.geojson", "side_km": side_km, "planar": planar}}
    try:
        text = json.dumps(shape)
    except (TypeError, ValueError, RecursionError) as error:
        raise UsageError(f"region must be GeoJSON of lists and numbers: {reason_of(error)}") from None
    return Part(values=values, files={"region.geojson": text.encode()})


def vectors(array: object, ids: object = None) -> Part:
    """Return records or outputs: (N, dim) vectors, and their ids (0, 1, ... by default).

    Raises:
        InputError: an id of more lines than one: ids are in a file, one a line.
    """
    files = {"vectors.npy": npy_bytes(array)}
    values: dict[str, object] = {"vectors": "vectors.npy"}
    if ids is not None:
        named = _to_texts(np.asarray(ids).ravel().tolist())
        faults = [
            Fault("ids", f"id {name!r}", "the end of a line inside it", "ids of one line each")
            for name in named
            if name and name.splitlines() != [name]
        ]
        if faults:
            Faults(faults).check()
        values["ids"] = "ids.txt"
        files["ids.txt"] = ("\n".join(named) + "\n").encode()
    return Part(values=values, files=files)


def _to_texts(names: Iterable[object]) -> list[str]:
    """Ids as they are in tables: a double that is whole without a point."""
    values = list(names)
    numbers = iter(plain_texts(pl.Series([name for name in values if isinstance(name, float)], dtype=pl.Float64)))
    return [next(numbers) if isinstance(name, float) else str(name) for name in values]


def roads(table: object, *, start: str = "from", end: str = "to", km: str = "km") -> Part:
    """Return a distance: the shortest path along undirected edges.

    Args:
        table: a table with a row for each edge.
        start, end: its columns of ids.
        km: its column of lengths.
    """
    edges = _rename_columns(table, "roads", {"from": start, "to": end, "km": km})
    return Part(values={"kind": "graph", "edges": "roads.csv"}, files={"roads.csv": edges})


def distances(array: object, to_outputs: object = None) -> Part:
    """Return a distance: an (N, N) array, symmetric, and for separate outputs also an (N, K) array to these."""
    values: dict[str, object] = {"kind": "matrix", "matrix": "distances.npy"}
    files = {"distances.npy": npy_bytes(array)}
    if to_outputs is not None:
        values["output_matrix"] = "output_distances.npy"
        files["output_distances.npy"] = npy_bytes(to_outputs)
    return Part(values=values, files=files)


def travel_cost(
    targets: object = None, *, id: str = "id", weight: str = "weight", edges: object = None, directed: bool = False
) -> Part:
    """Return a loss: the expected error in the travel distance to a random target.

    Args:
        targets: table of targets with their weights; every record, equally by default.
        id, weight: its columns.
        edges: table from, to, km of the roads that count; the distance's own by default.
        directed: whether those are one-way.
    """
    values: dict[str, object] = {"kind": "travel-cost"}
    files: dict[str, bytes] = {}
    if targets is not None:
        values["targets"] = keep(
            "targets.csv", _rename_columns(targets, "targets", {"id": id, "weight": weight}), files
        )
    if edges is not None:
        columns = {"from": "from", "to": "to", "km": "km"}
        values["edges"] = keep("travel.csv", _rename_columns(edges, "edges", columns), files)
        values["directed"] = directed
    return Part(values=values, files=files)


def cost(array: object) -> Part:
    """Return a loss: an (N, K) array, the loss of releasing output k for record i."""
    return Part(values={"kind": "matrix", "cost": "cost.npy"}, files={"cost.npy": npy_bytes(array)})


def _rename_columns(table: object, subject: str, columns: Mapping[str, str]) -> bytes:
    frame = frame_of(table, subject)
    _check_columns(frame, subject, columns.values())
    selection = frame.select([nw.col(name).alias(key) for key, name in columns.items()])
    return csv_bytes(text_frame(selection))


def _check_columns(frame: nw.DataFrame[Any], subject: str, needed: Iterable[str]) -> None:
    column_names = ", ".join(map(str, frame.columns))
    lacking = [name for name in needed if name not in frame.columns]
    if lacking:
        raise InputError(
            [Fault(subject, "header", f"no column {name!r}", f"one of {column_names}") for name in lacking]
        )


def metric_problem(
    places: Part,
    *,
    distance: str | Part,
    epsilon: str | float | Decimal | Fraction,
    utility: str | Part = "distance",
    prior: object = None,
    remap: bool = False,
    outputs: Part | None = None,
    neighbours_within: str | float | None = None,
    everywhere: bool = False,
    split_km: str | float | None = None,
    notion: str = "metric-dp",
    **tables: object,
) -> Problem:
    """Return a problem of metric DP.

    Args:
        places: the secrets: :func:`records`, :func:`grid` or :func:`vectors`.
        distance: name of a kind, ``"euclidean"`` or ``"haversine"`` say; :func:`roads` or :func:`distances`.
        epsilon: per unit of distance: ``"3/km"``, ``"0.003/m"``, or a plain number where the distance has no named unit
            or is in km.
        utility: name of a kind, :func:`travel_cost` or :func:`cost`.
        prior: how likely each record is: a mapping from ids to weights, a table with columns id and p, weight
            or count, or an array in the records' order; weights are divided by their sum. Uniform by default, and
            with ``everywhere`` anywhere in the region, equally.
        remap: whether each output is replaced by the best guess under the prior, which costs no privacy.
        outputs: what may be released; the records by default.
        neighbours_within: greatest distance of a pair that is promised anything: ``"2 km"``, ``"500 m"``; every pair
            by default.
        everywhere: whether the promise holds between any two points of the region, not only records.
        split_km: with it, the length up to which streets and sides of triangles stay whole.
        notion: of privacy.
        tables: of single mechanisms: ``lr_geo={"users": "all", ...}``.

    Raises:
        UsageError: amounts in a unit that the distance does not have, or values that no problem file can hold; a bare
            array in place of :func:`distances` or :func:`cost` of it.
        InputError: a prior that will not do.
    """
    of_places = "privopt.records of a table, privopt.vectors of an array, or privopt.grid"
    _check_type("places", places, Part, of_places)
    _check_type("outputs", outputs, Part | None, of_places)
    _check_type("distance", distance, str | Part, "the name of a kind, or privopt.distances(D) of an array")
    _check_type("utility", utility, str | Part, "the name of a kind, or privopt.cost(C) of an array")
    has_unit = not (_UNNAMED & places.values.keys()) and not (
        isinstance(distance, Part) and distance.values.get("kind") == "matrix"
    )
    privacy: dict[str, object] = {"epsilon": _parse_amount(epsilon, "epsilon", rate=True, has_unit=has_unit)}
    if neighbours_within is not None:
        privacy["neighbours_within"] = _parse_amount(
            neighbours_within, "neighbours_within", rate=False, has_unit=has_unit
        )
    if everywhere:
        privacy["everywhere"] = True
    if split_km is not None:
        privacy["split_km"] = _parse_amount(split_km, "split_km", rate=False, has_unit=has_unit)
    if notion != MetricPrivacy.kind:
        privacy = {"kind": notion, **privacy}
    loss = Part(values={"kind": utility}) if isinstance(utility, str) else utility
    files, utility_keys = dict(loss.files), dict[str, object]({"remap": True} if remap else {})
    if prior is not None:
        utility_keys["prior"] = keep("prior.csv", _prior_csv(prior, places), files)
    if outputs is not None:
        outputs = _with_folder(outputs, "outputs")
    return problem(
        records=places,
        outputs=outputs,
        distance=Part(values={"kind": distance}) if isinstance(distance, str) else distance,
        privacy=privacy,
        utility=Part(values={**loss.values, **utility_keys}, files=files),
        **cast("dict[str, Any]", tables),  # title and purpose are text, as they are checked there
    )


def _check_type(name: str, value: object, kinds: type | UnionType, expectation: str) -> None:
    if not isinstance(value, kinds):
        raise UsageError(f"{name} must be {expectation}, got {type(value).__name__}")


def _with_folder(part: Part, folder: str) -> Part:
    """Return the same under names of its own: records and outputs may both be points."""
    values = {
        key: f"{folder}-{value}" if isinstance(value, str) and value in part.files else value
        for key, value in part.values.items()
    }
    return Part(values=values, files={f"{folder}-{name}": raw for name, raw in part.files.items()})


def _parse_amount(value: object, name: str, *, rate: bool, has_unit: bool) -> object:
    """Return a number in the problem's unit, km or per km; text may name another."""
    example = "3/km" if rate else "2 km"
    if not isinstance(value, str):
        if isinstance(value, (np.integer, np.floating)):
            return _of_numpy(value, rate=rate)
        if isinstance(value, (bool, type(None))) or not isinstance(value, (int, float, Decimal, Fraction)):
            raise UsageError(f"{name} must be a number or text such as {example!r}, got {value!r}")
        return value
    match = _QUANTITY.fullmatch(value)
    if match is None:
        raise UsageError(f"{name} must be a number with a unit, such as {example!r}, got {value!r}")
    number, mark, unit = match.groups()
    if not unit:
        return Decimal(number)
    if unit not in _KM or bool(mark) != rate:
        units = "per km, per m or per mi" if rate else "km, m or mi"
        raise UsageError(f"{name} must be in {units}, such as {example!r}, got {value!r}")
    if not has_unit:
        raise UsageError(f"{name} must be a plain number, got {value!r}: this distance has no named unit")
    exact = Fraction(Decimal(number)) / _KM[unit] if rate else Fraction(Decimal(number)) * _KM[unit]
    if unit == "km":
        return Decimal(number)
    if not rate:
        return float(exact)
    return _decimal_below(exact)


def _of_numpy(value: np.integer[Any] | np.floating[Any], *, rate: bool) -> object:
    """Return a NumPy number as Python's; of single precision the more private of the number and its shortest text.

    ``np.float32(0.2)`` is 0.200000003: as an epsilon it is 0.2, as a distance within which people hide 0.200000003.
    """
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.float64) or not np.isfinite(value):
        return float(value)
    return (min if rate else max)(Decimal(float(value)), Decimal(str(value)))


def _decimal_below(exact: Fraction) -> Decimal:
    """Return the rational as a decimal; where it has none, one below it, which is more private."""
    return Context(prec=40, rounding=ROUND_FLOOR).divide(Decimal(exact.numerator), Decimal(exact.denominator))


def _prior_csv(prior: object, places: Part) -> bytes:
    """Return a prior as the problem file wants it: id, p."""
    prior = values_of(prior)
    if isinstance(prior, Mapping) and not any(isinstance(value, (list, tuple, np.ndarray)) for value in prior.values()):
        ids, weights = _to_texts(prior), _to_weights(list(prior.values()))
    elif isinstance(prior, (list, tuple, np.ndarray)):
        ids, weights = _ids_of(places), _to_weights(prior).ravel()
        if len(ids) != len(weights):
            raise InputError([Fault("prior", "", f"{len(weights)} weights", f"{len(ids)}, one for each record")])
    else:
        names = [name for name in _WEIGHTS if name in frame_of(prior, "prior").columns]
        of = names[0] if len(names) == 1 else " or ".join(_WEIGHTS)
        frame = pl.read_csv(_rename_columns(prior, "prior", {"id": "id", "p": of}), infer_schema=False)
        ids, weights = frame["id"].to_list(), frame["p"].cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    invalid_rows = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0))).tolist()
    expectation = "a finite weight of at least 0"
    Faults(Fault("prior", f"id {ids[row]}", str(weights[row]), expectation) for row in invalid_rows).check()
    total = float(weights.sum())
    if not 0 < total < np.inf:
        raise InputError([Fault("prior", "", f"weights that sum to {total:g}", "a finite sum above 0")])
    return csv_bytes(pl.DataFrame({"id": ids, "p": weights / total}))


def _to_weights(values: object) -> Floats:
    """Doubles, NaN where something is not a number, for the fault to name its id."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        doubles = [
            value if isinstance(value, (int, float)) else np.nan for value in np.asarray(values, dtype=object).ravel()
        ]
        return np.array(doubles, dtype=np.float64)


def _ids_of(places: Part) -> list[str]:
    """Return the ids of records in their order, as mechanisms will read them."""
    contents = to_toml(dict(places.values)).encode()
    declared = load_problem(Places, File(name=NAME, path=None, kept=contents, in_memory=places.files))
    return list(space_of(declared, "records", NAME, ids_alone=True).ids)
