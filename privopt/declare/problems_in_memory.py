"""Problems in memory, with tables and arrays in place of the files named in a problem file.

A problem consists of the text of a problem file and the bytes of the files named in that text. All later steps,
including checks and messages, are the same for problems on disk and in memory.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import narwhals as nw
import numpy as np
from attrs import evolve, field, frozen

from privopt.arrays import DataFrame, Series
from privopt.declare.schema import File
from privopt.declare.tables import csv_bytes
from privopt.declare.toml_text import to_toml
from privopt.errors import Fault, InputError, UsageError, cut, reason_of
from privopt.files.archive import npy_bytes

__all__ = [
    "NAME",
    "Part",
    "Problem",
    "frame_of",
    "keep",
    "npy_bytes",
    "problem",
    "read_problem",
    "table",
    "text_frame",
    "values_of",
]

NAME: Final = "problem.toml"
"""The name of the problem file for a problem in memory, and for any problem written to a folder."""


@frozen(kw_only=True, eq=False)
class Part:
    """A table for a problem file, together with the contents of the files named in it.

    Attributes:
        values: The values by key. If a key names a file, its value is the file's name.
        files: The contents of the files, by name.
    """

    values: Mapping[str, object]
    files: Mapping[str, bytes] = field(factory=dict, repr=False)


@frozen(kw_only=True, eq=False)
class Problem:
    """A problem, consisting of the text of a problem file and the files named in it.

    Attributes:
        source: The problem file, together with the contents of the files that it names.
    """

    source: File

    @property
    def toml(self) -> str:
        """The text of the problem file."""
        return self.source.contents.decode("utf-8-sig")

    def write(self, folder: Path | str) -> Path:
        """Write the problem file and the files that it names to a folder, which is created if necessary.

        Args:
            folder: The folder to write to.

        Returns:
            The path of the problem file.

        Raises:
            UsageError: A file to be written already exists, or the problem names a file by a path that contains ``..``.
        """
        folder = Path(folder)
        outer_names = (
            []
            if self.source.path is None
            else [name for name in _list_named_files(self.source) if ".." in Path(name).parts]
        )
        if outer_names:
            raise UsageError(
                f"{self.source.path}: files must be inside its folder to be written with it, got "
                f"{', '.join(outer_names)}"
            )
        contents = {NAME: self.source.contents, **self.source.in_memory}
        # If one of the files exists, nothing is written, so that no incomplete problem is left behind.
        existing = [name for name in contents if (folder / name).exists()]
        if existing:
            raise UsageError(f"{folder} must be a folder without {', '.join(existing)}, which would be overwritten")
        for name, raw in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(raw)
        return folder / NAME

    def __repr__(self) -> str:
        """Return a line with the problem's declared kinds, its epsilon and the names of its files."""
        tables = tomllib.loads(self.toml)
        parts = [
            f"{name} {table['kind']}" for name, table in tables.items() if isinstance(table, dict) and "kind" in table
        ]
        privacy = tables.get("privacy")
        if isinstance(privacy, dict) and "epsilon" in privacy:
            parts.append(f"epsilon {privacy['epsilon']}")
        parts += sorted(self.source.in_memory)
        return f"<Problem {self.source.name}: {cut(', '.join(map(str, parts)))}>"

    def _repr_html_(self) -> str:
        """Return the problem file as HTML, for display in notebooks."""
        from html import escape

        return f"<pre>{escape(self.toml)}</pre>"


def read_problem(path: Path | str) -> Problem:
    """Read a problem file, together with the files in its folder that it refers to.

    These files are kept in memory, so that :meth:`Problem.write` can copy them.

    Args:
        path: The problem file, in TOML.

    Raises:
        InputError: The problem file is not TOML, or one of the files (including the problem file itself) cannot be
            read.
    """
    path = Path(path)
    source = File.read(path, expectation="a problem file in TOML")
    inner_names = [
        name for name in _list_named_files(source) if not Path(name).is_absolute() and ".." not in Path(name).parts
    ]
    files = {name: File.read(path.parent / name, name).contents for name in inner_names}
    return Problem(source=evolve(source, in_memory=files))


def _list_named_files(source: File) -> list[str]:
    """Return the names of all files that a problem file refers to, in alphabetical order."""
    assert source.path is not None
    try:
        values = tomllib.loads(source.contents.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError([Fault(source.name, "", f"text that is not TOML: {reason_of(error)}", "TOML 1.0")]) from None
    # Which keys name files depends on the mechanism, which is not known here. Any text that is the path of an existing
    # file therefore counts.
    return sorted({text for text in _iter_texts(values) if _is_file(source.path.parent, text)})


def _is_file(folder: Path, name: str) -> bool:
    """Return whether a string, which need not be a valid file name, names a file in a folder."""
    try:
        return (folder / name).is_file()
    except (OSError, ValueError):  # the text is too long for a name, or contains a zero byte
        return False


def _iter_texts(value: object) -> Iterator[str]:
    """Yield every string in a TOML value, which may be a string, a number, or nested tables and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _iter_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _iter_texts(inner)


def problem(*, title: str | None = None, purpose: str | None = None, **tables: object) -> Problem:
    """Build a problem for any mechanism from tables and top-level keys, with data in place of file names.

    ``title`` and ``purpose`` are public and appear at the top of the report.

    ::

        po.problem(hierarchy={"counts": counts, "sizes": 12}, privacy={"epsilon": 0.1})
        po.problem(answers=["yes", "no"], privacy={"epsilon": 1.0})  # a key outside any table

    Underscores in table names become hyphens. A mapping becomes a table in the problem file; any other value becomes a
    top-level key. Values can be TOML values, rationals or data to be stored in files: tables (from pandas, polars or
    pyarrow), arrays for .npy files, or bytes for any other kind of file. Pass a dict of columns as
    ``po.table(columns)``.

    Raises:
        UsageError: A value cannot be stored in a problem file.
    """
    files: dict[str, bytes] = {}
    heading = {"title": title, "purpose": purpose}
    values: dict[str, object] = {name: text for name, text in heading.items() if text is not None}
    for name, table_values in tables.items():
        # None stands for an omitted table, so that callers can pass on optional arguments.
        if table_values is None:
            continue
        if not isinstance(table_values, Part | Mapping):
            # Like keys in tables, keys outside tables keep their underscores.
            values[name] = _store_value(name, values_of(table_values), files)
            continue
        where = name.replace("_", "-")
        part = table_values if isinstance(table_values, Part) else Part(values=table_values)
        files |= part.files
        # Files are named after their keys, so that equal problems have equal files.
        values[where] = {key: _store_value(f"{where}-{key}", value, files) for key, value in part.values.items()}
    # In TOML, a key after a table's header belongs to that table, so top-level keys come first.
    top_level = {name: value for name, value in values.items() if not isinstance(value, Mapping)}
    contents = to_toml(top_level | values).encode()
    return Problem(source=File(name=NAME, path=None, kept=contents, in_memory=files))


def _store_value(where: str, value: object, files: dict[str, bytes]) -> object:
    """Convert a value to one that a problem file can contain.

    Tables, arrays and bytes are added to ``files`` as new files and replaced by the names of these files.

    Args:
        where: The key, preceded by the names of the tables that contain it. File names are derived from it.
        value: The value to store.
        files: A mapping to which the contents of each new file are added under the file's name.
    """
    if isinstance(value, Mapping):
        return {str(key): _store_value(f"{where}-{key}", inner, files) for key, inner in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, bytes):
        return keep(f"{where}.txt", value, files)
    if isinstance(value, Part):
        files |= value.files
        return {str(key): inner for key, inner in value.values.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        return keep(f"{where}.npy", npy_bytes(value), files)
    # pass_through returns values that are not tables unchanged.
    if isinstance(nw.from_native(value, eager_only=True, pass_through=True), nw.DataFrame):
        return keep(f"{where}.csv", csv_bytes(table(value)), files)
    return value  # if the problem file cannot hold the value, to_toml() raises an error


def keep(name: str, raw: bytes, files: dict[str, bytes]) -> str:
    """Add a file with the contents ``raw`` to ``files``, and return its name for use in the problem file."""
    files[name] = raw
    return name


def frame_of(data: object, what: str) -> nw.DataFrame[Any]:
    """Convert any kind of table, or a dict of columns, to a narwhals frame.

    Args:
        data: A table from pandas, polars, pyarrow or narwhals, or a dict that maps names to lists or arrays.
        what: The name of the table in error messages.

    Raises:
        UsageError: ``data`` is not a table, its columns differ in length, a name is not a string, or two columns have
            the same name.
    """
    import polars as pl

    if isinstance(data, nw.DataFrame):
        return data
    if isinstance(data, Mapping):
        for name, column in data.items():
            # Text is also iterable, but using its characters as a column would be a mistake.
            if isinstance(column, (str, bytes)) or not isinstance(column, Iterable):
                actual = f"{type(column).__name__} as column {name}"
                raise UsageError(
                    f"{what} must have a list or an array for each column, {{{str(name)!r}: [...]}}, got {actual}"
                )
        columns = [
            _make_column(str(name), list(column)) for name, column in data.items() if isinstance(column, Iterable)
        ]
        lengths = sorted({len(column) for column in columns})
        if len(lengths) > 1:
            raise UsageError(
                f"{what} must have the same number of rows in each column, got {lengths[0]} to {lengths[-1]} rows"
            )
        return nw.from_native(pl.DataFrame(columns), eager_only=True)
    # pandas allows column names that are not texts, and several columns with the same name.
    if nw.dependencies.is_pandas_dataframe(data):
        invalid_name = next((name for name in data.columns if not isinstance(name, str)), None)
        if invalid_name is not None:
            raise UsageError(f"{what} must have texts as names of columns, got {invalid_name!r}")
        if not data.columns.is_unique:
            repeated_name = data.columns[data.columns.duplicated()][0]
            raise UsageError(f"{what} must have columns that differ in name, got {repeated_name} twice")
    if nw.dependencies.is_pyarrow_table(data):
        data = _without_views(data)
    # pass_through returns values that are not tables unchanged.
    frame = nw.from_native(data, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        hint = "; a lazy one is to be collected first" if hasattr(data, "collect") else ""
        raise UsageError(
            f"{what} must be a table (pandas, polars, pyarrow or a dict of columns), got {type(data).__name__}{hint}"
        )
    return frame


def _without_views(table: Any) -> Any:
    """Return an Arrow table in which views and run-end encoded columns are converted to plain columns.

    pyarrow cannot select rows of such columns.
    """
    import pyarrow as pa
    import pyarrow.compute

    for index, column in enumerate(table.columns):
        plain_column = column
        if pa.types.is_run_end_encoded(column.type):
            plain_column = pa.chunked_array(
                [pa.compute.run_end_decode(chunk) for chunk in column.chunks], column.type.value_type
            )
        if pa.types.is_string_view(plain_column.type):
            plain_column = plain_column.cast(pa.large_string())
        elif pa.types.is_binary_view(plain_column.type):
            plain_column = plain_column.cast(pa.large_binary())
        if plain_column is not column:
            table = table.set_column(index, table.field(index).name, plain_column)
    return table


def values_of(data: object) -> object:
    """Convert a single column, such as a pandas Series, to a list. Any other value is returned unchanged."""
    column = nw.from_native(data, series_only=True, pass_through=True)
    return column.to_list() if isinstance(column, nw.Series) else data


def table(data: object) -> DataFrame:
    """Convert a dict of columns, or any other kind of table, to a table that :func:`problem` accepts.

    Args:
        data: A dict of columns, or a table from pandas, polars, pyarrow or GeoPandas.
    """
    return text_frame(frame_of(data, "table"))


def text_frame(frame: nw.DataFrame[Any]) -> DataFrame:
    """Convert a table to a polars frame. Categories and columns of mixed types become strings."""
    import polars as pl

    columns = []
    for name in frame.columns:
        native = frame[name].to_native()
        values = native if isinstance(native, pl.Series) else _to_series(name, frame[name])
        columns.append(values.cast(pl.String) if values.dtype in (pl.Categorical, pl.Enum) else values)
    return pl.DataFrame(columns)


def _to_series(name: str, column: nw.Series[Any]) -> Series:
    """Convert a column from any library to a polars series. Missing values, including NaN in pandas, become null."""
    missing = column.is_null().to_list()
    return _make_column(
        name, [None if is_missing else value for value, is_missing in zip(column.to_list(), missing, strict=True)]
    )


def _make_column(name: str, values: list[Any]) -> Series:
    """Convert values to a polars series.

    Values that polars cannot store together, such as mixed types or very large integers, become strings.
    """
    import polars as pl

    try:
        return pl.Series(name, values)
    except (TypeError, OverflowError):
        return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)
