"""Problems that a strategy draws: a problem file, the files it names, and what must not leak from them."""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from attrs import evolve, field, frozen

from privopt.declare.toml_text import to_toml
from privopt.files.archive import npy_bytes

__all__ = ["GeneratedProblem", "Variant", "csv_bytes", "csv_text", "npy_bytes", "to_toml"]

FILE: Final = "problem.toml"
"""What the problem file of a generated problem is called."""
_SHOWN_LINES = 14


def csv_bytes(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Return a CSV file: header, then one line a row, numbers so that they read back as the same doubles.

    >>> csv_bytes(["id", "x"], [["a", 0.1]])
    b'id,x\\na,0.1\\n'
    """
    cells = [[repr(float(c)) if isinstance(c, (float, np.floating)) else str(c) for c in row] for row in rows]
    return csv_text([list(header), *cells])


def csv_text(
    table: list[list[str]], *, quoting: Literal[0, 1, 2, 3] = csv.QUOTE_MINIMAL, lineterminator: str = "\n"
) -> bytes:
    """Return a CSV file of header and rows, as the csv module writes it."""
    text = io.StringIO()
    csv.writer(text, quoting=quoting, lineterminator=lineterminator).writerows(table)
    return text.getvalue().encode()


@frozen(kw_only=True, eq=False)
class GeneratedProblem:
    """One problem, as its user would hand it in.

    >>> problem = GeneratedProblem(toml="[privacy]\\nepsilon = 0.1\\n")
    >>> print(problem.with_key("privacy.epsilon", 2).toml, end="")
    [privacy]
    epsilon = 2

    Attributes:
        toml: text of the problem file.
        files: contents of the files that it names, by the name it gives them.
        secrets: byte strings of the secret inputs, long enough not to occur by chance (seven digits or letters,
            say) and such that the mechanism may not publish them: none may be in a file outside ``private/``.
        facts: whatever the profile's own functions want to know of the problem.
    """

    toml: str
    files: Mapping[str, bytes] = field(factory=dict)
    secrets: tuple[bytes, ...] = field(default=(), converter=tuple[bytes, ...])
    facts: Mapping[str, Any] = field(factory=dict)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for equal problems."""
        return self.toml, tuple(sorted(self.files.items()))

    def tables(self) -> dict[str, Any]:
        """Return the problem file, parsed; numbers with a point are Decimals."""
        return tomllib.loads(self.toml, parse_float=Decimal)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key, ``"privacy.epsilon"`` say."""
        value: Any = self.tables()
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return default
            value = value[part]
        return value

    def with_key(self, key: str, value: object) -> GeneratedProblem:
        """Return the same problem with one key set."""
        tables = self.tables()
        *path, last = key.split(".")
        reduce(lambda inner, part: inner.setdefault(part, {}), path, tables)[last] = value
        return evolve(self, toml=to_toml(tables))

    def without_key(self, key: str) -> GeneratedProblem:
        """Return the same problem with one key omitted."""
        tables = self.tables()
        *path, last = key.split(".")
        reduce(lambda inner, part: inner.get(part, {}), path, tables).pop(last, None)
        return evolve(self, toml=to_toml(tables))

    def with_file(self, name: str, contents: bytes) -> GeneratedProblem:
        """Return the same problem with one file's contents replaced."""
        return evolve(self, files={**self.files, name: contents})

    def rows(self, name: str) -> list[list[str]]:
        """Return the cells of a CSV file of the problem, its header first."""
        text = self.files[name].decode("utf-8", "replace")
        return [row for row in csv.reader(io.StringIO(text, newline="")) if row]

    def write(self, folder: Path) -> Path:
        """Write the problem file and its files; returns the path of the problem file."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, contents in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents)
        path = folder / FILE
        path.write_text(self.toml, "utf-8")
        return path

    def show(self) -> str:
        """Return the problem as it can be read in a message: the TOML, then each file, long ones cut."""
        parts = [self.toml.strip("\n")]
        parts += [f"# {name}\n{_shown(contents)}" for name, contents in sorted(self.files.items())]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"GeneratedProblem({' / '.join(self.show().splitlines())})"


def _shown(contents: bytes) -> str:
    if contents.startswith(b"\x93NUMPY"):
        with suppress(ValueError, EOFError):
            return np.array2string(np.load(io.BytesIO(contents), allow_pickle=False), threshold=64)
    lines = contents.decode("utf-8", "replace").splitlines()
    cut = lines[:_SHOWN_LINES]
    return "\n".join(cut + [f"... {len(lines) - _SHOWN_LINES} lines more"] * (len(lines) > _SHOWN_LINES))


@frozen(kw_only=True)
class Variant:
    """A problem that says the same thing in another way.

    Attributes:
        problem: relabelled, reordered or in other units.
        factor: what its objective is of the first problem's: 4.0 where lengths, and the loss with them, are four
            times as large.
        change: what was changed, in words for the message.
    """

    problem: GeneratedProblem
    factor: float = 1.0
    change: str = ""
