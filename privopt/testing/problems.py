"""Generated problems, each with a problem file, the files it names, and the secrets that must not leak.

A problem is stored as the text and bytes that a user would supply, so that tests run the same code as the command line.
"""

from __future__ import annotations

import csv
import io
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import reduce
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
from attrs import evolve, field, frozen

from privopt.declare.toml_text import to_toml
from privopt.files.archive import npy_bytes

__all__ = ["GeneratedProblem", "Variant", "csv_bytes", "csv_text", "examples_near", "npy_bytes", "to_toml"]

FILE: Final = "problem.toml"
"""The name of the problem file in a generated problem."""
_SHOWN_LINES = 14
"""The maximum number of lines of a file shown in a message."""


def csv_bytes(header: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """Return the bytes of a CSV file with a header and one line per row.

    Doubles are written so that they read back unchanged.

    >>> csv_bytes(["id", "x"], [["a", 0.1]])
    b'id,x\\na,0.1\\n'
    """
    # repr returns the shortest text that is read back as the same double.
    cells = [[repr(float(c)) if isinstance(c, (float, np.floating)) else str(c) for c in row] for row in rows]
    return csv_text([list(header), *cells])


def csv_text(
    table: list[list[str]], *, quoting: Literal[0, 1, 2, 3] = csv.QUOTE_MINIMAL, lineterminator: str = "\n"
) -> bytes:
    """Format rows of cells as a CSV file, encoded in UTF-8.

    Args:
        table: The rows, starting with the header.
        quoting: The rule for quoting cells, which is one of the ``QUOTE_`` constants in :mod:`csv`.
        lineterminator: The characters that end each line.
    """
    text = io.StringIO()
    csv.writer(text, quoting=quoting, lineterminator=lineterminator).writerows(table)
    return text.getvalue().encode()


@frozen(kw_only=True, eq=False)
class GeneratedProblem:
    """A generated problem in the form in which a user would supply it.

    >>> problem = GeneratedProblem(toml="[privacy]\\nepsilon = 0.1\\n")
    >>> print(problem.with_key("privacy.epsilon", 2).toml, end="")
    [privacy]
    epsilon = 2

    Attributes:
        toml: The text of the problem file.
        files: The contents of the files that the problem file refers to, keyed by file name.
        secrets: Byte strings from the secret inputs that the mechanism must not publish, i.e. must not write to any
            file outside ``private/``. Each must be long enough not to occur by chance, for example seven digits or
            letters.
        facts: Additional data about the problem needed by the profile's functions, keyed by name.
    """

    toml: str
    files: Mapping[str, bytes] = field(factory=dict)
    secrets: tuple[bytes, ...] = field(default=(), converter=tuple[bytes, ...])
    facts: Mapping[str, Any] = field(factory=dict)

    @classmethod
    def of_file(cls, path: Path) -> GeneratedProblem:
        """Read a problem file, along with the files it refers to in the same folder."""
        text = path.read_text("utf-8")
        # Which keys name files depends on the mechanism, so every text that is the path of an existing file counts.
        names = sorted({name for name in _iter_texts(tomllib.loads(text)) if (path.parent / name).is_file()})
        return cls(toml=text, files={name: (path.parent / name).read_bytes() for name in names})

    @property
    def identity(self) -> tuple[Any, ...]:
        """A hashable key that is equal for equal problems."""
        return self.toml, tuple(sorted(self.files.items()))

    def tables(self) -> dict[str, Any]:
        """Parse the problem file, converting numbers with a decimal point to Decimals."""
        # If they were floats, to_toml could not write the numbers back unchanged.
        return tomllib.loads(self.toml, parse_float=Decimal)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of a key such as ``"privacy.epsilon"``, or ``default`` if the key does not exist."""
        value: Any = self.tables()
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return default
            value = value[part]
        return value

    def with_key(self, key: str, value: object) -> GeneratedProblem:
        """Return a copy of this problem with ``key`` set to ``value``."""
        tables = self.tables()
        *path, last = key.split(".")
        # This follows the path into the nested tables, and creates tables that are missing.
        reduce(lambda inner, part: inner.setdefault(part, {}), path, tables)[last] = value
        return evolve(self, toml=to_toml(tables))

    def without_key(self, key: str) -> GeneratedProblem:
        """Return a copy of this problem without ``key``."""
        tables = self.tables()
        *path, last = key.split(".")
        # If a table on the path is missing, the key is absent already, and only an unused empty dict is changed.
        reduce(lambda inner, part: inner.get(part, {}), path, tables).pop(last, None)
        return evolve(self, toml=to_toml(tables))

    def with_file(self, name: str, contents: bytes) -> GeneratedProblem:
        """Return a copy of this problem in which the file ``name`` is added or replaced."""
        return evolve(self, files={**self.files, name: contents})

    def rows(self, name: str) -> list[list[str]]:
        """Return the rows of one of the problem's CSV files, including the header but no empty lines."""
        text = self.files[name].decode("utf-8", "replace")
        return [row for row in csv.reader(io.StringIO(text, newline="")) if row]

    def write(self, folder: Path) -> Path:
        """Write the problem file and its accompanying files to a folder, and return the path of the problem file."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, contents in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(contents)
        path = folder / FILE
        path.write_text(self.toml, "utf-8")
        return path

    def show(self) -> str:
        """Format the problem for a message, as the TOML text followed by each file. Long files are truncated."""
        parts = [self.toml.strip("\n")]
        parts += [f"# {name}\n{_format_contents(contents)}" for name, contents in sorted(self.files.items())]
        return "\n".join(parts)

    def __repr__(self) -> str:
        return f"GeneratedProblem({' / '.join(self.show().splitlines())})"


def _iter_texts(value: object) -> Iterator[str]:
    """Yield each short, printable string in nested tables and lists."""
    # Longer texts are not file names.
    if isinstance(value, str) and 0 < len(value) < 200 and value.isprintable():
        yield value
    elif isinstance(value, Mapping | list):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from _iter_texts(inner)


def examples_near(file: str) -> tuple[GeneratedProblem, ...]:
    """Return the problem in a plugin project's ``example.toml``, for use in :attr:`privopt.testing.Profile.examples`.

    The file is expected next to the project's ``pyproject.toml``, which is searched for in the folders above ``file``
    and, in case the plugin is installed elsewhere, in the current folder. If there is no such file, the result is
    empty.

    Args:
        file: A file in the plugin's package, usually a module's ``__file__``.
    """
    package = Path(file).resolve().parent
    for folder in (*package.parents[:3], Path.cwd()):
        project, example = folder / "pyproject.toml", folder / "example.toml"
        # The project must mention the package, because the current folder may belong to another project.
        if project.is_file() and example.is_file() and package.name in project.read_text("utf-8"):
            return (GeneratedProblem.of_file(example),)
    return ()


def _format_contents(contents: bytes) -> str:
    """Format a file's contents for a message, either as the numbers of an array or as the first lines of text."""
    # Arrays are shown as numbers. A file that only begins like an array is shown as text, like any other file.
    if contents.startswith(b"\x93NUMPY"):
        with suppress(ValueError, EOFError):
            return np.array2string(np.load(io.BytesIO(contents), allow_pickle=False), threshold=64)
    lines = contents.decode("utf-8", "replace").splitlines()
    visible_lines = lines[:_SHOWN_LINES]
    return "\n".join(visible_lines + [f"... {len(lines) - _SHOWN_LINES} lines more"] * (len(lines) > _SHOWN_LINES))


@frozen(kw_only=True)
class Variant:
    """An equivalent form of a problem, for example with different ids, in a different order or in different units.

    Attributes:
        problem: The equivalent problem.
        factor: The ratio of the variant's objective to that of the original problem. For example, it is 4.0 if all
            lengths, and therefore the loss, are four times as large.
        change: A clause that describes the change in messages.
    """

    problem: GeneratedProblem
    factor: float = 1.0
    change: str = ""
