"""Functions that build a metric problem in memory from records, distances, losses and a prior.

Most functions return a :class:`privopt.declare.problems_in_memory.Part`, which contains keys for a problem file and the
contents of the files named by these keys. :func:`metric_problem` combines parts into a problem.
"""

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
from privopt.numbers.exp_log_bounds import float_up
from privopt_metric_dp.problem.data import space_of
from privopt_metric_dp.problem.declared import MetricPrivacy, Places
from privopt_metric_dp.space.wkb import points_in

__all__ = ["cost", "distances", "grid", "mesh", "metric_problem", "records", "roads", "travel_cost", "vectors"]

# A number, optionally followed by "/" or "per" and by a unit, as in "3/km" or "500 m".
_QUANTITY: Final = re.compile(r"\s*((?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*(/|per\b)?\s*([A-Za-z]*)\s*")
# The number of kilometres in each unit of length.
_KM: Final[Mapping[str, Fraction]] = {"km": Fraction(1), "m": Fraction(1, 1000), "mi": Fraction("1.609344")}
# The names that a prior's column of weights may have.
_WEIGHTS: Final = ("p", "weight", "count")
# The keys that declare records whose distances have no named unit.
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
    """Declare the rows of a table as records or outputs.

    Args:
        table: A data frame, or a dict of columns.
        id: The column with the ids, or several columns whose values are joined by "/".
        lat, lon: The columns with latitudes and longitudes in degrees.
        x, y: The columns with planar coordinates in km.
        geometry: The column with points, which is either the geometry column of a GeoDataFrame or a column of bytes in
            WKB (well-known binary) format.

    Raises:
        InputError: A column is missing.
        UsageError: The object is not a table.
    """
    frame = frame_of(table, "records")
    names = {"id": id, "lat": lat, "lon": lon, "x": x, "y": y}
    ids = (id,) if isinstance(id, str) else tuple(id)
    needed_columns = [*ids, *(name for name in (lat, lon, x, y, geometry) if name is not None)]
    _check_columns(frame, "records", needed_columns)
    text_columns = text_frame(frame.select([name for name in needed_columns if name != geometry]))
    if geometry is not None:
        # Values that are not points get NaN as coordinates. NaN becomes an empty cell, which is reported with its row
        # when the table is read.
        places, _ = points_in(frame[geometry])
        names |= {"lat": f"{geometry} (latitude)", "lon": f"{geometry} (longitude)"}
        coordinates = [pl.Series(names[axis_name], places[:, axis]) for axis, axis_name in enumerate(("lat", "lon"))]
        text_columns = text_columns.with_columns(coordinates).fill_nan(None)
    # The problem file lists only the names that differ from the keys.
    renamed_columns = {key: name for key, name in names.items() if name and name != key}
    columns: dict[str, object] = {
        key: name if isinstance(name, str) else list(name) for key, name in renamed_columns.items()
    }
    values: dict[str, object] = {"points": "records.csv"}
    if columns:
        values["columns"] = columns
    return Part(values=values, files={"records.csv": csv_bytes(text_columns)})


def grid(rows: int, cols: int, cell_km: float, *, south_west: tuple[float, float] | None = None) -> Part:
    """Declare the centres of a regular grid's cells as records or outputs, with ids such as "r0c1".

    Args:
        rows, cols: The numbers of rows and columns.
        cell_km: The side length of a cell in km.
        south_west: The centre of cell "r0c0" as (latitude, longitude) in degrees. By default, the grid is planar.
    """
    cells: dict[str, object] = {"rows": rows, "cols": cols, "cell_km": cell_km}
    if south_west is not None:
        cells["south_west"] = list(south_west)
    return Part(values={"grid": cells})


def mesh(region: object, side_km: float, *, planar: bool = False) -> Part:
    """Cover a region with equilateral triangles, and declare their corners as records or outputs.

    Args:
        region: A GeoJSON dict, or an object with ``__geo_interface__`` such as a GeoDataFrame or a Shapely polygon.
        side_km: The side length of the triangles in km.
        planar: Whether coordinates are x and y in km rather than longitude and latitude in degrees.

    Raises:
        UsageError: The object is not GeoJSON and has no ``__geo_interface__``.
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
    """Declare vectors as records or outputs.

    Args:
        array: Array of shape (N, dim) with one vector per row.
        ids: The id of each vector. The default ids are 0, 1, ...

    Raises:
        InputError: An id contains a line break, which cannot be represented in a file with one id per line.
    """
    files = {"vectors.npy": npy_bytes(array)}
    values: dict[str, object] = {"vectors": "vectors.npy"}
    if ids is not None:
        # With one id per line, a line break inside an id would assign all later ids to the wrong vectors.
        named = _to_texts(np.asarray(ids).ravel().tolist())
        faults = [
            Fault("ids", f"id {name!r}", "a line break in it", "ids of one line each")
            for name in named
            if name and name.splitlines() != [name]
        ]
        if faults:
            Faults(faults).check()
        values["ids"] = "ids.txt"
        files["ids.txt"] = ("\n".join(named) + "\n").encode()
    return Part(values=values, files=files)


def _to_texts(names: Iterable[object]) -> list[str]:
    """Convert ids to strings as they would appear in a CSV file. Integer-valued floats get no decimal point."""
    values = list(names)
    numbers = iter(plain_texts(pl.Series([name for name in values if isinstance(name, float)], dtype=pl.Float64)))
    return [next(numbers) if isinstance(name, float) else str(name) for name in values]


def roads(table: object, *, start: str = "from", end: str = "to", km: str = "km") -> Part:
    """Declare that distance is measured along two-way roads, as the length of the shortest path between two nodes.

    Args:
        table: A table with one row per road.
        start, end: The columns with the ids of the two nodes connected by each road.
        km: The column with the lengths in km.
    """
    edges = _rename_columns(table, "roads", {"from": start, "to": end, "km": km})
    return Part(values={"kind": "graph", "edges": "roads.csv"}, files={"roads.csv": edges})


def distances(array: object, to_outputs: object = None) -> Part:
    """Declare the distances between places explicitly, as a matrix.

    Args:
        array: Symmetric array of shape (N, N) with the distances between records.
        to_outputs: Array of shape (N, K) with the distances from records to outputs, if the outputs are not the
            records.
    """
    values: dict[str, object] = {"kind": "matrix", "matrix": "distances.npy"}
    files = {"distances.npy": npy_bytes(array)}
    if to_outputs is not None:
        values["output_matrix"] = "output_distances.npy"
        files["output_distances.npy"] = npy_bytes(to_outputs)
    return Part(values=values, files=files)


def travel_cost(
    targets: object = None, *, id: str = "id", weight: str = "weight", edges: object = None, directed: bool = False
) -> Part:
    """Declare the loss to be the expected error in the travel distance to a random target.

    Args:
        targets: A table of the targets with their weights. By default, all records are targets with equal weights.
        id: The column with the ids of the targets, each of which must be a record.
        weight: The column with the weights of the targets.
        edges: A table of roads with the columns ``from``, ``to`` and ``km``. By default, the problem's distance is used
            for travel.
        directed: Whether the roads in ``edges`` are one-way.
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
    """Declare the loss explicitly, as a matrix of costs.

    Args:
        array: Array of shape (N, K). Entry (i, k) is the loss from releasing output k for record i.
    """
    return Part(values={"kind": "matrix", "cost": "cost.npy"}, files={"cost.npy": npy_bytes(array)})


def _rename_columns(table: object, subject: str, columns: Mapping[str, str]) -> bytes:
    """Select and rename columns of a table, and return the contents of a CSV file with these columns.

    Args:
        table: A data frame, or a dict of columns.
        subject: The name of the argument that contains the table, for error messages.
        columns: A mapping from the column names in the CSV file to those in the table.

    Raises:
        InputError: A column is missing.
    """
    frame = frame_of(table, subject)
    _check_columns(frame, subject, columns.values())
    selection = frame.select([nw.col(name).alias(key) for key, name in columns.items()])
    return csv_bytes(text_frame(selection))


def _check_columns(frame: nw.DataFrame[Any], subject: str, needed: Iterable[str]) -> None:
    """Check that a table contains all required columns.

    Args:
        frame: The table to check.
        subject: The name of the argument that contains the table, for error messages.
        needed: The names of the required columns.

    Raises:
        InputError: Columns are missing. There is one fault for each of them.
    """
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
    """Build a metric DP problem from its parts.

    Args:
        places: The secret places, from :func:`records`, :func:`grid`, :func:`mesh` or :func:`vectors`.
        distance: The kind of distance, such as ``"euclidean"`` or ``"haversine"``, or the result of :func:`roads` or
            :func:`distances`.
        epsilon: Epsilon per unit of distance, such as ``"3/km"`` or ``"0.003/m"``. A plain number is per km if
            distances are in km.
        utility: The kind of loss, or the result of :func:`travel_cost` or :func:`cost`.
        prior: The prior probabilities of the records, as a mapping from ids to weights, as a table with the column
            ``id`` and either ``p``, ``weight`` or ``count``, or as an array in the order of the records. Weights are
            divided by their sum. By default, the prior is uniform over the records or, with ``everywhere``, over the
            region.
        remap: Whether to replace each output by the best guess that an observer can make from it under the prior. This
            post-processing costs no privacy.
        outputs: The places that may be released. By default, these are the records.
        neighbours_within: The largest distance at which the guarantee covers a pair of records, such as ``"2 km"`` or
            ``"500 m"``. By default, it covers every pair.
        everywhere: Whether the guarantee covers any two points of the region between the records, rather than only the
            records.
        split_km: The maximum length of a piece of street or of a triangle's side. Longer pieces and sides are divided.
            This requires ``everywhere``.
        notion: The name of the privacy notion.
        tables: Tables with options for individual mechanisms, such as ``lr_geo={"users": "all", ...}``.

    Raises:
        UsageError: An amount has a unit that does not fit the distance, a value cannot be written to a problem file, or
            an argument has the wrong type, such as an array that is not wrapped in :func:`distances` or :func:`cost`.
        InputError: The prior is invalid.
    """
    of_places = "privopt.records of a table, privopt.vectors of an array, or privopt.grid"
    _check_type("places", places, Part, of_places)
    _check_type("outputs", outputs, Part | None, of_places)
    _check_type("distance", distance, str | Part, "the name of a kind, or privopt.distances(D) of an array")
    _check_type("utility", utility, str | Part, "the name of a kind, or privopt.cost(C) of an array")
    # Vectors, numbered records and tables of distances have no unit of length.
    has_unit = not (_UNNAMED & places.values.keys()) and not (
        isinstance(distance, Part) and distance.values.get("kind") == "matrix"
    )
    # The contents of the problem file's [privacy] table.
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
        # The files of records and outputs would otherwise have the same names.
        outputs = _with_folder(outputs, "outputs")
    return problem(
        records=places,
        outputs=outputs,
        distance=Part(values={"kind": distance}) if isinstance(distance, str) else distance,
        privacy=privacy,
        utility=Part(values={**loss.values, **utility_keys}, files=files),
        **cast("dict[str, Any]", tables),  # problem() checks that title and purpose are strings
    )


def _check_type(name: str, value: object, kinds: type | UnionType, expectation: str) -> None:
    """Check the type of an argument.

    Args:
        name: The name of the argument.
        value: The value of the argument.
        kinds: The allowed type, or a union of types.
        expectation: A description of valid values for the error message.

    Raises:
        UsageError: The value does not have an allowed type.
    """
    if not isinstance(value, kinds):
        raise UsageError(f"{name} must be {expectation}, got {type(value).__name__}")


def _with_folder(part: Part, folder: str) -> Part:
    """Add a prefix to all file names in a part, so that records and outputs have different files."""
    values = {
        key: f"{folder}-{value}" if isinstance(value, str) and value in part.files else value
        for key, value in part.values.items()
    }
    return Part(values=values, files={f"{folder}-{name}": raw for name, raw in part.files.items()})


def _parse_amount(value: object, name: str, *, rate: bool, has_unit: bool) -> object:
    """Convert a distance or an epsilon to the problem's unit.

    Args:
        value: A number in the problem's unit, or a string with a number and a unit.
        name: The name of the argument, for error messages.
        rate: Whether the amount is an epsilon, which is given per unit of distance.
        has_unit: Whether distances are in km. If so, a string may use any unit of length.

    Returns:
        A number in the problem's unit. If it has to be rounded, it is rounded in favour of privacy.

    Raises:
        UsageError: The value is neither a number nor a string with a number and a unit, or the unit does not fit the
            distance.
    """
    example = "3/km" if rate else "2 km"
    if not isinstance(value, str):
        if isinstance(value, (np.integer, np.floating)):
            return _from_numpy(value, rate=rate)
        # True is an int in Python, but not an amount.
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
    # Rounding must not weaken privacy, so epsilon is rounded down and the distance within which records are protected
    # is rounded up.
    return _decimal_below(exact) if rate else float_up(exact)


def _from_numpy(value: np.integer[Any] | np.floating[Any], *, rate: bool) -> object:
    """Convert a NumPy number to a Python number.

    The author of a single-precision number may have meant its exact value or its shortest decimal representation, so
    the more private of the two is returned. For example, ``np.float32(0.2)`` is about 0.200000003. As an epsilon, it
    becomes 0.2. As a distance within which records are protected, it keeps its exact value.

    Args:
        value: The NumPy number to convert.
        rate: Whether the number is an epsilon rather than a distance.
    """
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, np.float64) or not np.isfinite(value):
        return float(value)
    # The exact value, or the shortest decimal that denotes it.
    return (min if rate else max)(Decimal(float(value)), Decimal(str(value)))


def _decimal_below(exact: Fraction) -> Decimal:
    """Round an epsilon down to a decimal of at most 40 digits, because a smaller epsilon is more private."""
    return Context(prec=40, rounding=ROUND_FLOOR).divide(Decimal(exact.numerator), Decimal(exact.denominator))


def _prior_csv(prior: object, places: Part) -> bytes:
    """Convert a prior to the contents of a CSV file with the columns ``id`` and ``p``, scaling it to sum to 1.

    Args:
        prior: A mapping from ids to weights, an array of weights in the order of the records, or a table.
        places: The records, whose ids are used if the prior is an array.

    Raises:
        InputError: A weight is invalid, the sum of weights is not positive and finite, the number of weights differs
            from the number of records, or a column is missing.
    """
    prior = values_of(prior)
    # A mapping contains weights by id, unless its values are columns, which makes it a table.
    if isinstance(prior, Mapping) and not any(isinstance(value, (list, tuple, np.ndarray)) for value in prior.values()):
        ids, weights = _to_texts(prior), _to_weights(list(prior.values()))
    elif isinstance(prior, (list, tuple, np.ndarray)):
        ids, weights = _ids_of(places), _to_weights(prior).ravel()
        if len(ids) != len(weights):
            raise InputError([Fault("prior", "", f"{len(weights)} weights", f"{len(ids)}, one for each record")])
    else:
        # If there is no column of weights, or more than one, a column "p or weight or count" is requested, which does
        # not exist, so that the error message names all three.
        names = [name for name in _WEIGHTS if name in frame_of(prior, "prior").columns]
        weight_column = names[0] if len(names) == 1 else " or ".join(_WEIGHTS)
        frame = pl.read_csv(_rename_columns(prior, "prior", {"id": "id", "p": weight_column}), infer_schema=False)
        ids, weights = frame["id"].to_list(), frame["p"].cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    invalid_rows = np.flatnonzero(~(np.isfinite(weights) & (weights >= 0))).tolist()
    expectation = "a finite weight of at least 0"
    Faults(Fault("prior", f"id {ids[row]}", str(weights[row]), expectation) for row in invalid_rows).check()
    total = float(weights.sum())
    if not 0 < total < np.inf:
        raise InputError([Fault("prior", "", f"weights that sum to {total:g}", "a finite sum above 0")])
    return csv_bytes(pl.DataFrame({"id": ids, "p": weights / total}))


def _to_weights(values: object) -> Floats:
    """Convert weights to doubles. Values that are not numbers become NaN, so that their ids can be reported later."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        doubles = [
            value if isinstance(value, (int, float)) else np.nan for value in np.asarray(values, dtype=object).ravel()
        ]
        return np.array(doubles, dtype=np.float64)


def _ids_of(places: Part) -> list[str]:
    """Return the ids of the records, in the order in which mechanisms read them."""
    contents = to_toml(dict(places.values)).encode()
    # The places are read in the way a mechanism reads them, so that the ids are in the same order.
    declared = load_problem(Places, File(name=NAME, path=None, kept=contents, in_memory=places.files))
    return list(space_of(declared, "records", NAME, ids_alone=True).ids)
