"""Check a folder's checksums, and read the problem in it (docs/reference/proof.md: Programs that check).

A part of the checker (the code that checks one kind of guarantee) reads the problem's files only through
:class:`Problem`, which records their names. After all claims have been checked, any file that the part did not read
causes an error, because readers could mistake it for part of the claim.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
import stat
import tomllib
from collections.abc import Mapping, Set
from decimal import Decimal
from pathlib import Path
from typing import Any

from privopt.checker.arrays import Array
from privopt.checker.exact import need

__all__ = ["Problem", "check_sums", "describe_sums", "is_line"]

UNLISTED = {"SHA256SUMS", "SHA256SUMS.sig", "report.html"}
"""Files that SHA256SUMS does not list, apart from those in ``private/``."""

PRIVATE = "private/"
"""The folder with the publisher's secrets, which has its own SHA256SUMS. Recipients do not have this folder."""

PRIVATE_UNLISTED = {"SHA256SUMS", "report.html"}
"""Files in ``private/`` that its SHA256SUMS does not list."""


def check_sums(folder: Path) -> list[str]:
    """Check a folder's files against its SHA256SUMS, and the files in ``private/`` against the SHA256SUMS there.

    Links, pipes and devices are never opened.

    Returns:
        The names of all files relative to the folder, including the files that SHA256SUMS never lists.

    Raises:
        RefusedError: A file is missing, is not listed or differs, an entry is neither a regular file nor a non-empty
            folder, or a name contains a line break or a backslash.
    """
    need(folder.is_dir(), f"{folder}: not a folder", 2)
    names: list[str] = []
    for path in folder.rglob("*"):
        # lstat does not follow links. Links are rejected because they could lead out of the folder or to a device.
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
        is_file, is_folder = stat.S_ISREG(mode), stat.S_ISDIR(mode)
        is_filled_folder = is_folder and any(path.iterdir())
        need(is_file or is_filled_folder, f"{name!r}: expected a regular file")
        is_unambiguous = not {*name} & {"\\", "\n", "\r"}
        need(is_unambiguous, f"{name!r}: a name that SHA256SUMS can list in two ways", 2)
        if is_file:
            names.append(name)
    public_names, private_names = _listed_names(names)
    _compare_sums(folder, "", public_names)
    if any(name.startswith(PRIVATE) for name in names):
        _compare_sums(folder, PRIVATE, private_names)
    return names


def describe_sums(names: list[str]) -> str:
    """Return a phrase that says how many files :func:`check_sums` compared, and which files it did not compare.

    >>> describe_sums(["SHA256SUMS", "result.json", "report.html"])
    '1 as SHA256SUMS lists it; not compared, because never listed: report.html'

    Args:
        names: The names returned by :func:`check_sums`.
    """
    public_names, private_names = _listed_names(names)
    text = f"{len(public_names)} as SHA256SUMS lists {'it' if len(public_names) == 1 else 'them'}"
    if private_names:
        text += f", {len(private_names)} as private/SHA256SUMS lists {'it' if len(private_names) == 1 else 'them'}"
    unread = {*names} - {*public_names, *private_names, "SHA256SUMS", f"{PRIVATE}SHA256SUMS"}
    return f"{text}; not compared, because never listed: {', '.join(sorted(unread))}" if unread else text


def _listed_names(names: list[str]) -> tuple[list[str], list[str]]:
    """Return the sorted names that SHA256SUMS must list, and the sorted names that ``private/SHA256SUMS`` must list."""
    private_names = {name for name in names if name.startswith(PRIVATE)}
    unlisted = {PRIVATE + name for name in PRIVATE_UNLISTED}
    return sorted({*names} - private_names - UNLISTED), sorted(private_names - unlisted)


def _compare_sums(folder: Path, prefix: str, listed: list[str]) -> None:
    """Compare files with a SHA256SUMS file, which must list exactly these files.

    Args:
        folder: The release's folder.
        prefix: "" for the folder's own SHA256SUMS, or :data:`PRIVATE` for the one in ``private/``.
        listed: The sorted names of the files that must be listed, relative to the release's folder.

    Raises:
        RefusedError: A file is missing, is not listed, or differs.
    """
    file = folder / f"{prefix}SHA256SUMS"
    need(file.exists(), f"{folder}: no {prefix}SHA256SUMS, so not a folder that privopt wrote", 2)
    sums = [f"{_sha256((folder / name).read_bytes())}  {name.removeprefix(prefix)}\n" for name in listed]
    sums_text = file.read_bytes().decode("utf-8", "surrogateescape")
    # The lines that occur in only one of the two texts. A line has 64 digits, two blanks and a name. At most 5 names
    # are shown.
    differing = set(sums_text.splitlines(keepends=True)) ^ set(sums)
    differing_names = sorted({prefix + line[66:].strip() for line in differing})[:5]
    need(sums_text == "".join(sums), f"not as {prefix}SHA256SUMS lists them: {differing_names}")


def _sha256(contents: bytes) -> str:
    """Return the SHA-256 digest of the contents in hexadecimal."""
    return hashlib.sha256(contents).hexdigest()


class Problem:
    """The problem file in a release's ``problem/`` folder, and the files that it names.

    Attributes:
        folder: The ``problem/`` folder.
        names: The names of all files in the release's folder.
        tables: The contents of the problem file, with decimals as :class:`~decimal.Decimal`.
        used: The names of the files that have been read so far. At the end, the check fails if ``problem/`` contains
            any other file.
        most_weights: The largest number of weights that the release's mechanism.npz can contain, given its size. Sizes
            stated in the problem are compared with this number before any array of that size is allocated.
    """

    def __init__(self, folder: Path, stated: Mapping[str, Any], names: list[str]) -> None:
        """Read the problem file named in result.json.

        Args:
            folder: The release's folder.
            stated: The ``problem`` table in result.json.
            names: The names of all files in the folder.

        Raises:
            RefusedError: The file is missing, or its checksum differs from the stated one.
        """
        self.folder, self.names, file = folder / "problem", names, str(stated["file"])
        self.most_weights = sum(p.stat().st_size // 8 for p in folder.glob("mechanism.npz"))
        is_listed = f"problem/{file}" in names and "/" not in file
        need(is_listed, f"problem.file: {file!r} is not in problem/", 2)
        contents, self.used = (self.folder / file).read_bytes(), {f"problem/{file}"}
        need(_sha256(contents) == stated["sha256"], "problem.sha256: not that of the problem file")
        self.tables: dict[str, Any] = tomllib.loads(contents.decode("utf-8-sig"), parse_float=Decimal)

    def allow(self, tables: set[str]) -> None:
        """Check that the problem contains no tables other than the given ones.

        A table unknown to the checker could change the meaning of the claim. A title and a purpose are always allowed
        if each is a single line.

        Args:
            tables: The names of the allowed tables.

        Raises:
            RefusedError: The problem contains another table.
        """
        heading = {name for name in ("title", "purpose") if is_line(self.tables.get(name))}
        unknown_tables = sorted(self.tables.keys() - tables - heading)
        need(not unknown_tables, f"problem: {unknown_tables}: unknown here", 2)

    def set_aside(self, tables: Set[str]) -> None:
        """Accept tables that do not affect any claim, and the files that they name.

        Such a table belongs to one mechanism and records how the release was found, for example the matrix that the
        search started from. No check uses its contents. Since any string in it may be a file name, all files named in
        it count as used.

        Args:
            tables: The names of tables in the problem. They may include ``title`` and ``purpose``, which are strings.

        Raises:
            RefusedError: The title or the purpose is not a single line of text, or another value is not a table.
        """
        for name in sorted(tables):
            value, is_heading = self.tables[name], name in ("title", "purpose")
            is_known = is_line(value) if is_heading else isinstance(value, dict)
            need(is_known, f"problem: {name}: expected {'one line of text' if is_heading else 'a table'}", 2)
        unread: list[Any] = [self.tables[name] for name in tables]
        while unread:
            value = unread.pop()
            if isinstance(value, dict):
                unread += value.values()
            elif isinstance(value, list):
                unread += value
            elif isinstance(value, str):
                self.used.add(f"problem/{value}")

    def table(self, name: str, keys: str) -> dict[str, Any]:
        """Return a table from the problem file, and check that it has only the given keys.

        Args:
            name: The table's name, such as ``"privacy"``.
            keys: The allowed keys, separated by spaces.

        Raises:
            RefusedError: The table has another key.
        """
        unknown_keys = sorted(self.tables[name].keys() - {*keys.split()})
        need(not unknown_keys, f"[{name}]: {unknown_keys}: unknown here", 2)
        return dict(self.tables[name])

    def read(self, name: object) -> bytes:
        """Return the bytes of a file next to the problem file.

        Raises:
            RefusedError: The folder has no such file.
        """
        is_listed = f"problem/{name}" in self.names
        need(is_listed, f"problem: expected the name of a file beside it, got {name!r}", 2)
        self.used.add(f"problem/{name}")
        return (self.folder / str(name)).read_bytes()

    def array(self, name: object, *shape: int) -> Array:
        """Read a matrix of numbers, each of which must be exactly representable as a double.

        NaN and plus infinity are not accepted.

        Args:
            name: The name of the ``.npy`` file.
            shape: The shape that the matrix must have. By default, any shape is accepted.

        Raises:
            RefusedError: The file is missing, or does not contain such a matrix.
        """
        matrix = Array(self.read(name), f"problem/{name}")
        # If no shape is given, the matrix is compared with its own shape, so any shape passes.
        has_shape = len(matrix.shape) == 2 and matrix.shape == (shape or matrix.shape)
        has_shape = has_shape and matrix.kind.lstrip(">")[0] in "fiu"
        # The comparison fails for integers that doubles cannot represent, for NaN (which differs from itself) and for
        # plus infinity.
        holds_doubles = has_shape and all(float(x) == x < math.inf for x in matrix.flat)
        need(holds_doubles, f"problem/{name}: expected doubles {shape}, got {matrix.shape}", 2)
        return matrix

    def columns(self, file: object) -> dict[Any, list[str]]:
        """Return the columns of a CSV file, keyed by the names in its header.

        A column whose name occurs more than once is stored under (name, position), with positions counted from 0. Lines
        of separators at the end of the file, with or without blanks, are ignored.

        Raises:
            RefusedError: The file has no rows below the header, a row that is not as long as the header, or an empty
                line at its end.
        """
        lines = self.read(file).decode("utf-8-sig").removesuffix("\n").split("\n")
        # Spreadsheets write lines of separators alone below a table, which are no rows.
        while len(lines) > 1 and "," in lines[-1] and not lines[-1].strip(", \t\r"):
            lines.pop()
        reader = csv.reader(io.StringIO("\n".join([*lines, ""]), newline="\n"), strict=True)
        header, *rows = [list(map(_strip_blanks, line)) for line in reader]
        is_table = rows and header and {*map(len, rows)} == {len(header)}
        need(is_table, f"problem/{file}: expected at least one row, and rows as long as the header", 2)
        names = [n if header.count(n) == 1 else (n, k) for k, n in enumerate(header)]
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def is_line(text: object) -> bool:
    """Return whether a value is a single line of at most 200 printable characters that are not all blanks."""
    return isinstance(text, str) and bool(text.strip()) and text.isprintable() and len(text) <= 200


def _strip_blanks(cell: str) -> str:
    """Strip surrounding whitespace from a cell of a CSV file.

    The characters 0x1C to 0x1F are kept, as in privopt itself.
    """
    # str.strip would also remove these separators, which Python counts as blanks.
    return re.sub(r"^[^\S\x1c-\x1f]+|[^\S\x1c-\x1f]+\Z", "", cell)
