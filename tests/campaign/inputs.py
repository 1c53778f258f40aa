"""Bad inputs: every problem spoiled in every way that the lists below know, deterministically."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import numpy as np
from attrs import evolve, frozen
from problems import PROBLEMS, Given, npy

__all__ = ["Spoiled", "spoiled"]


@frozen(kw_only=True)
class Spoiled:
    """A spoiled problem, and how it was spoiled."""

    name: str
    given: Given


VALUES: Final[dict[str, Any]] = {
    "empty text": "",
    "text": "x",
    "path up": "../../nowhere.csv",
    "nul in text": "a\0b",
    "long text": "y" * 5000,
    "minus one": -1,
    "zero": 0,
    "half": 0.5,
    "huge": 10**30,
    "tiny": Decimal("1e-320"),
    "beyond doubles": Decimal("1e400"),
    "nan": math.nan,
    "inf": math.inf,
    "true": True,
    "empty list": [],
    "list of lists": [[1], ["a"]],
    "empty table": {},
    "table": {"rows": 1, "seed": "z"},
}
"""In place of each value of a problem file."""

CELLS: Final = {
    "empty": "",
    "text": "zz",
    "nan": "nan",
    "minus inf": "-inf",
    "beyond doubles": "1e999",
    "below doubles": "1e-999",
    "minus one": "-1",
    "fraction": "0.5",
    "decimal comma": '"1,5"',
    "thai digit": "\u0e53",
    "underscores": "1_000",
    "hexadecimal": "0x1A",
    "open quote": '"',
    "nul": "\0",
    "newline": '"a\nb"',
    "long": "9" * 400,
    "64 bits and one": str(2**64),
    "formula": "=1+1",
    "right to left": "\u202eabc",
}
"""In place of one cell of each column of a table."""

RAW: Final = {
    "empty file": lambda raw: b"",
    "one byte": lambda raw: b"\xff",
    "a nul at the end": lambda raw: raw + b"\0",
    "byte order mark": lambda raw: b"\xef\xbb\xbf" + raw,
    "UTF-16": lambda raw: raw.decode("utf-8", errors="replace").encode("utf-16"),
    "latin-1": lambda raw: raw + "é".encode("latin-1"),
    "carriage returns": lambda raw: raw.replace(b"\n", b"\r\n"),
    "old Macintosh": lambda raw: raw.replace(b"\n", b"\r"),
    "half of it": lambda raw: raw[: len(raw) // 2],
    "last byte missing": lambda raw: raw[:-2],
    "twice": lambda raw: raw + raw,
    "blank lines": lambda raw: raw.replace(b"\n", b"\n\n"),
    "zip magic": lambda raw: b"PK\x03\x04" + raw,
    "a megabyte of a": lambda raw: b"a" * 2**20,
}
"""Of any file."""

TOML: Final = {
    "deep list": b"a = " + b"[" * 5000 + b"]" * 5000 + b"\n",
    "deep table": b"a = " + b"{ b = " * 3000 + b"1" + b" }" * 3000 + b"\n",
    "deep key": b".".join([b"a"] * 5000) + b" = 1\n",
    "number of 5000 digits": b"a = " + b"9" * 5000 + b"\n",
    "exponent of 5000 digits": b"a = 1e" + b"9" * 5000 + b"\n",
    "date": b"[privacy]\nepsilon = 2020-01-01\n",
    "array of tables": b"[[privacy]]\nepsilon = 1\n",
    "dotted": b"privacy.epsilon = 1\n[privacy]\n",
    "lone surrogate": b'a = "\\ud800"\n',
    "control character": b'a = "\x01"\n',
}
"""In front of, or in place of, the problem file."""


def _leaves(tables: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, value in tables.items():
        yield (*path, name)
        if isinstance(value, Mapping):
            yield from _leaves(value, (*path, name))


def _change_key(tables: Mapping[str, Any], path: tuple[str, ...], *value: Any) -> dict[str, Any]:
    """Tables with one key set to a value, or left out where none is given."""
    new_tables = dict(tables)
    head, *rest = path
    if rest:
        new_tables[head] = _change_key(new_tables[head], tuple(rest), *value)
    elif value:
        new_tables[head] = value[0]
    else:
        new_tables.pop(head)
    return new_tables


def _keys(problem: Given) -> Iterator[Spoiled]:
    for path in _leaves(problem.tables):
        name = ".".join(path)
        yield Spoiled(name=f"{name} left out", given=evolve(problem, tables=_change_key(problem.tables, path)))
        for kind, value in VALUES.items():
            tables = _change_key(problem.tables, path, value)
            yield Spoiled(name=f"{name} = {kind}", given=evolve(problem, tables=tables))
        misspelt_path = (*path[:-1], path[-1] + "s")
        yield Spoiled(
            name=f"{name}s beside it", given=evolve(problem, tables=_change_key(problem.tables, misspelt_path, 1))
        )


def _texts(problem: Given) -> Iterator[Spoiled]:
    for kind, spoil in RAW.items():
        yield Spoiled(name=f"problem file: {kind}", given=evolve(problem, raw=spoil(problem.text)))
    for kind, text in TOML.items():
        yield Spoiled(name=f"problem file before: {kind}", given=evolve(problem, raw=text + problem.text))
        yield Spoiled(name=f"problem file instead: {kind}", given=evolve(problem, raw=text))


def _tables(problem: Given, name: str) -> Iterator[Spoiled]:
    header, *rows = [line.split(",") for line in problem.files[name].decode().splitlines()]

    def make_spoiled(kind: str, lines: list[list[str]]) -> Spoiled:
        text = "".join(",".join(line) + "\n" for line in lines)
        return Spoiled(name=f"{name}: {kind}", given=problem.with_file(name, text.encode()))

    yield make_spoiled("header alone", [header])
    yield make_spoiled("no header", rows)
    yield make_spoiled("first row twice", [header, rows[0], *rows])
    yield make_spoiled("last row missing", [header, *rows[:-1]])
    yield make_spoiled("rows reversed", [header, *rows[::-1]])
    yield make_spoiled("a cell more", [header, [*rows[0], "1"], *rows[1:]])
    yield make_spoiled("semicolons", [[";".join(line)] for line in [header, *rows]])
    for index, column in enumerate(header):
        yield make_spoiled(f"without column {column}", [line[:index] + line[index + 1 :] for line in [header, *rows]])
        yield make_spoiled(f"column {column} twice", [[*line, line[index]] for line in [header, *rows]])
        yield make_spoiled(f"column {column} renamed", [[*header[:index], column.upper(), *header[index + 1 :]], *rows])
        for kind, cell in CELLS.items():
            row = [*rows[-1][:index], cell, *rows[-1][index + 1 :]]
            yield make_spoiled(f"{column} = {kind}", [header, *rows[:-1], row])


def _arrays(problem: Given, name: str) -> Iterator[Spoiled]:
    import io

    array = np.load(io.BytesIO(problem.files[name]))
    spoiled: dict[str, bytes] = {
        "float16": npy(array.astype(np.float16)),
        "int8": npy(array.astype(np.int8)),
        "complex": npy(array.astype(complex)),
        "text": npy(array.astype("U")),
        "bool": npy(array.astype(bool)),
        "objects": npy(array.astype(object), allow_pickle=True),
        "records": npy(np.zeros(3, dtype=[("a", "f8"), ("b", "i4")])),
        "dates": npy(np.zeros(array.shape, dtype="M8[s]")),
        "big-endian": npy(array.astype(">f8")),
        "Fortran order": npy(np.asfortranarray(array)),
        "a number": npy(1.0),
        "flat": npy(array.ravel()),
        "one axis more": npy(array[None]),
        "no rows": npy(array[:0]),
        "no columns": npy(array[:, :0]),
        "a row less": npy(array[:-1]),
        "a column less": npy(array[:, :-1]),
        "transposed and shifted": npy(np.roll(array.T, 1)),
        "another format version": problem.files[name].replace(b"NUMPY\x01", b"NUMPY\x09"),
        "a claim of 10**15 rows": problem.files[name].replace(b"'shape': (", b"'shape': (9999999999999"),
        "a header that is no dictionary": problem.files[name].replace(b"'descr'", b"__import"),
    }
    for kind, number in {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "-1": -1.0, "1e308": 1e308, "-0": -0.0}.items():
        for at in (0, -1):
            copy = array.copy()
            copy.flat[at] = number
            spoiled[f"{kind} at {at}"] = npy(copy)
    for kind, contents in spoiled.items():
        yield Spoiled(name=f"{name}: {kind}", given=problem.with_file(name, contents))


def _flips(problem: Given, name: str, chance: random.Random, count: int) -> Iterator[Spoiled]:
    for number in range(count):
        contents = bytearray(problem.files[name])
        for _ in range(chance.randint(1, 4)):
            contents[chance.randrange(len(contents))] ^= 1 << chance.randrange(8)
        yield Spoiled(name=f"{name}: flipped bits {number}", given=problem.with_file(name, bytes(contents)))


def spoiled(chance: random.Random, flips: int = 6) -> Iterator[Spoiled]:
    """Every spoiled problem; ``chance`` decides random flips alone."""
    for problem in PROBLEMS:
        yield from _keys(problem)
        yield from _texts(problem)
        for name, contents in problem.files.items():
            yield Spoiled(name=f"{name}: missing", given=problem.without_file(name))
            for kind, spoil in RAW.items():
                yield Spoiled(name=f"{name}: {kind}", given=problem.with_file(name, spoil(contents)))
            if name.endswith(".csv"):
                yield from _tables(problem, name)
            elif name.endswith(".npy"):
                yield from _arrays(problem, name)
            yield from _flips(problem, name, chance, flips)
