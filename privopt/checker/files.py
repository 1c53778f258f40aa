"""Checksums of a folder's files, and the problem in it (proof.md: Programs that check)."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import re
import stat
import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from privopt.checker.arrays import Array
from privopt.checker.exact import need

__all__ = ["Problem", "check_sums", "is_line"]

UNLISTED = {"SHA256SUMS", "SHA256SUMS.sig", "report.html"}
"""Files that the sums omit, next to those in ``private/``."""


def check_sums(folder: Path) -> list[str]:
    """Return the names of all files of a folder, whose sums are those in SHA256SUMS.

    No link, pipe or device is opened.

    Raises:
        RefusedError: a file is missing, is there and not listed, or is another; a name has line
            ends or backslashes.
    """
    need(folder.is_dir(), f"{folder}: no folder", 2)
    need((folder / "SHA256SUMS").exists(), f"{folder}: no SHA256SUMS: nothing that privopt wrote", 2)
    names: list[str] = []
    for path in folder.rglob("*"):
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
        is_file, is_folder = stat.S_ISREG(mode), stat.S_ISDIR(mode)
        full = is_folder and any(path.iterdir())
        need(is_file or full, f"{name!r}: expected a regular file")
        once = not {*name} & {"\\", "\n", "\r"}
        need(once, f"{name!r}: a name that sums can list in two ways", 2)
        if is_file:
            names.append(name)
    listed = sorted({name for name in names if not name.startswith("private/")} - UNLISTED)
    sums = [f"{_sum((folder / name).read_bytes())}  {name}\n" for name in listed]
    written = (folder / "SHA256SUMS").read_bytes().decode("utf-8", "surrogateescape")
    differing = set(written.splitlines(keepends=True)) ^ set(sums)
    odd = sorted({line[66:].strip() for line in differing})[:5]
    need(written == "".join(sums), f"not as SHA256SUMS lists them: {odd}")
    return names


def _sum(contents: bytes) -> str:
    return hashlib.sha256(contents).hexdigest()


class Problem:
    """The problem file in ``problem/``, and the files that it names.

    Attributes:
        folder: ``problem/``.
        tables: what the problem file says; decimals as they are written.
        used: names of the files that were read; others in ``problem/`` are of no use, and are
            refused.
        most_weights: as many weights as mechanism.npz could hold by its size: what a problem says
            is held to it before anything is made of it.
    """

    def __init__(self, folder: Path, stated: Mapping[str, Any], names: list[str]) -> None:
        """Read the problem file of a folder, whose files are ``names``, where result.json names it.

        Raises:
            RefusedError: it is not there, or not the one whose sum is stated.
        """
        self.folder, self.names, file = folder / "problem", names, str(stated["file"])
        self.most_weights = sum(p.stat().st_size // 8 for p in folder.glob("mechanism.npz"))
        there = f"problem/{file}" in names and "/" not in file
        need(there, f"problem.file: {file!r} is not in problem/", 2)
        raw, self.used = (self.folder / file).read_bytes(), {f"problem/{file}"}
        need(_sum(raw) == stated["sha256"], "problem.sha256: not that of the problem file")
        self.tables: dict[str, Any] = tomllib.loads(raw.decode("utf-8-sig"), parse_float=Decimal)

    def allow(self, tables: set[str]) -> None:
        """Refuse tables that are unknown here; a title and a purpose may precede them.

        Raises:
            RefusedError: another one is there.
        """
        heading = {name for name in ("title", "purpose") if is_line(self.tables.get(name))}
        odd = sorted(self.tables.keys() - tables - heading)
        need(not odd, f"problem: {odd}: unknown here", 2)

    def table(self, name: str, keys: str) -> dict[str, Any]:
        """Return a table that has no other keys than those named.

        Raises:
            RefusedError: another one is there.
        """
        odd = sorted(self.tables[name].keys() - {*keys.split()})
        need(not odd, f"[{name}]: {odd}: unknown here", 2)
        return dict(self.tables[name])

    def read(self, name: object) -> bytes:
        """Return the bytes of a file next to the problem file.

        Raises:
            RefusedError: it is not there.
        """
        there = f"problem/{name}" in self.names
        need(there, f"problem: expected the name of a file beside it, got {name!r}", 2)
        self.used.add(f"problem/{name}")
        return (self.folder / str(name)).read_bytes()

    def array(self, name: object, *shape: int) -> Array:
        """Return a matrix of doubles, none NaN, of that shape where one is given.

        Raises:
            RefusedError: it is none.
        """
        found = Array(self.read(name), f"problem/{name}")
        fits = len(found.shape) == 2 and found.shape == (shape or found.shape)
        fits = fits and found.kind.lstrip(">")[0] in "fiu"
        doubles = fits and all(float(x) == x < math.inf for x in found.flat)
        need(doubles, f"problem/{name}: expected doubles {shape}, got {found.shape}", 2)
        return found

    def columns(self, file: object) -> dict[Any, list[str]]:
        """Return the columns of a CSV file by the names in its header.

        A name that occurs twice cannot be asked for: its columns are under (name, number).

        Raises:
            RefusedError: the file has no row, or one that is not as long as the header.
        """
        text = io.StringIO(self.read(file).decode("utf-8-sig"), newline="\n")
        head, *rows = [list(map(_stripped, line)) for line in csv.reader(text, strict=True)]
        sound = rows and head and {*map(len, rows)} == {len(head)}
        need(sound, f"problem/{file}: expected rows like its header", 2)
        names = [n if head.count(n) == 1 else (n, k) for k, n in enumerate(head)]
        return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def is_line(text: object) -> bool:
    """Return whether it is one line of at most 200 printable characters, as titles are."""
    return isinstance(text, str) and bool(text.strip()) and text.isprintable() and len(text) <= 200


def _stripped(cell: str) -> str:
    """Return a cell without blanks around it; separators of files, groups and records stay."""
    return re.sub(r"^[^\S\x1c-\x1f]+|[^\S\x1c-\x1f]+\Z", "", cell)
