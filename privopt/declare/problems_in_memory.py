"""Problems in memory: tables and arrays take the places in which a problem file names files.

A problem is the text of a problem file and the bytes of the files that it names. All later steps, checks and messages
included, are the same for problems on disk and in memory.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import evolve, field, frozen

from privopt.declare.schema import File
from privopt.declare.tables import csv_bytes
from privopt.declare.toml_text import to_toml
from privopt.errors import Fault, InputError, UsageError, reason_of
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


@frozen(kw_only=True, eq=False)
class Part:
    """A table of a problem file, and the files that it names.

    Attributes:
        values: key -> value, or name of a file.
        files: name -> bytes.
    """

    values: Mapping[str, object]
    files: Mapping[str, bytes] = field(factory=dict, repr=False)


@frozen(kw_only=True, eq=False)
class Problem:
    """A problem: the text of its file, and the files next to it.

    Attributes:
        source: what mechanisms read.
    """

    source: File

    @property
    def toml(self) -> str:
        """The text of the problem file."""
        return self.source.contents.decode("utf-8-sig")

    def write(self, folder: Path | str) -> Path:
        """Write the problem file and the files that it names into a folder, which is created if needed.

        Returns:
            The problem file.

        Raises:
            UsageError: a file that would be written is there already, or one that the problem names lies outside the
                folder of its file.
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
        existing = [name for name in contents if (folder / name).exists()]
        if existing:
            raise UsageError(f"{folder} must be a folder without {', '.join(existing)}, which would be overwritten")
        for name, raw in contents.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(raw)
        return folder / NAME

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.toml)}</pre>"


def read_problem(path: Path | str) -> Problem:
    """Read a problem file and the files next to it that it names, so that :meth:`Problem.write` can write them.

    Raises:
        InputError: it cannot be read, or is not TOML.
    """
    path = Path(path)
    source = File.read(path, wanted="a problem file in TOML")
    inner_names = [
        name for name in _list_named_files(source) if not Path(name).is_absolute() and ".." not in Path(name).parts
    ]
    files = {name: File.read(path.parent / name, name).contents for name in inner_names}
    return Problem(source=evolve(source, in_memory=files))


def _list_named_files(source: File) -> list[str]:
    """Return the files that a problem file names, in alphabetical order."""
    assert source.path is not None
    try:
        values = tomllib.loads(source.contents.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError([Fault(source.name, "", f"text that is not TOML: {reason_of(error)}", "TOML 1.0")]) from None
    # Any text of the file that is the path of a file counts: keys of all mechanisms are read alike.
    return sorted({text for text in _iter_texts(values) if _is_file(source.path.parent, text)})


def _is_file(folder: Path, name: str) -> bool:
    try:
        return (folder / name).is_file()
    except (OSError, ValueError):  # a text too long for a name, or with a zero byte
        return False


def _iter_texts(value: object) -> Iterator[str]:
    """Yield every text in nested tables and lists."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for inner in value.values():
            yield from _iter_texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _iter_texts(inner)


def problem(*, title: str | None = None, purpose: str | None = None, **tables: object) -> Problem:
    """Build a problem of any mechanism from mappings, one for each table, with tables and arrays in place of files.

    ``title`` and ``purpose`` are lines at the head of its report, and public.

    ::

        po.problem(hierarchy={"counts": counts, "sizes": 12}, privacy={"epsilon": 0.1})

    Underscores in names of tables become hyphens. A value may be what TOML holds, a rational, a table of any kind
    (pandas, polars, pyarrow; a dict of columns as ``po.table(columns)``), or an array, which becomes a .npy file.

    Raises:
        UsageError: a value that no problem file can hold.
    """
    files: dict[str, bytes] = {}
    heading = {"title": title, "purpose": purpose}
    values: dict[str, object] = {name: text for name, text in heading.items() if text is not None}
    for name, table_values in tables.items():
        if table_values is None:
            continue
        where = name.replace("_", "-")
        if not isinstance(table_values, Part | Mapping):
            raise UsageError(f"{where} must be a mapping from keys to values, got {type(table_values).__name__}")
        part = table_values if isinstance(table_values, Part) else Part(values=table_values)
        files |= part.files
        values[where] = {key: _store_value(f"{where}-{key}", value, files) for key, value in part.values.items()}
    contents = to_toml(values).encode()
    return Problem(source=File(name=NAME, path=None, kept=contents, in_memory=files))


def _store_value(where: str, value: object, files: dict[str, bytes]) -> object:
    """Convert a value to one that a problem file can have. Tables and arrays become files."""
    if isinstance(value, Mapping):
        return {str(key): _store_value(f"{where}-{key}", inner, files) for key, inner in value.items()}
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Part):
        files |= value.files
        return {str(key): inner for key, inner in value.values.items()}
    if isinstance(value, np.ndarray) and value.ndim:
        return keep(f"{where}.npy", npy_bytes(value), files)
    if isinstance(nw.from_native(value, eager_only=True, pass_through=True), nw.DataFrame):
        return keep(f"{where}.csv", csv_bytes(table(value)), files)
    return value  # what no problem file can hold is refused when it is written


def keep(name: str, raw: bytes, files: dict[str, bytes]) -> str:
    """Store a file of a problem, and return its name."""
    files[name] = raw
    return name


def frame_of(data: object, what: str) -> nw.DataFrame[Any]:
    """Convert any kind of table, or a dict of columns, to a narwhals frame.

    Raises:
        UsageError: it is not a table.
    """
    if isinstance(data, nw.DataFrame):
        return data
    if isinstance(data, Mapping):
        for name, column in data.items():
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
    if nw.dependencies.is_pandas_dataframe(data):
        invalid_name = next((name for name in data.columns if not isinstance(name, str)), None)
        if invalid_name is not None:
            raise UsageError(f"{what} must have texts as names of columns, got {invalid_name!r}")
        if not data.columns.is_unique:
            repeated_name = data.columns[data.columns.duplicated()][0]
            raise UsageError(f"{what} must have columns that differ in name, got {repeated_name} twice")
    frame = nw.from_native(data, eager_only=True, pass_through=True)
    if not isinstance(frame, nw.DataFrame):
        hint = "; a lazy one is to be collected first" if hasattr(data, "collect") else ""
        raise UsageError(
            f"{what} must be a table (pandas, polars, pyarrow or a dict of columns), got {type(data).__name__}{hint}"
        )
    return frame


def values_of(data: object) -> object:
    """Convert a single column, for example of pandas, to a list. Other values are unchanged."""
    column = nw.from_native(data, series_only=True, pass_through=True)
    return column.to_list() if isinstance(column, nw.Series) else data


def table(data: object) -> pl.DataFrame:
    """Convert a dict of columns, or any other kind of table, to a table for :func:`problem`."""
    return text_frame(frame_of(data, "table"))


def text_frame(frame: nw.DataFrame[Any]) -> pl.DataFrame:
    """Convert a table's columns to polars. Values that are not text, number or truth value become text."""
    columns = []
    for name in frame.columns:
        native = frame[name].to_native()
        values = native if isinstance(native, pl.Series) else _to_series(name, frame[name])
        columns.append(values.cast(pl.String) if values.dtype in (pl.Categorical, pl.Enum) else values)
    return pl.DataFrame(columns)


def _to_series(name: str, column: nw.Series[Any]) -> pl.Series:
    missing = column.is_null().to_list()
    return _make_column(
        name, [None if is_missing else value for value, is_missing in zip(column.to_list(), missing, strict=True)]
    )


def _make_column(name: str, values: list[Any]) -> pl.Series:
    """Convert values to a column. Mixed types become text, so that a fault can name the wrong value."""
    try:
        return pl.Series(name, values)
    except TypeError:
        return pl.Series(name, [None if value is None else str(value) for value in values], dtype=pl.String)
