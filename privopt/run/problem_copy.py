"""Copy the problem's own files into DIR: what was read of them, and nothing secret outside ``private/``.

Columns of a public table that nothing reads (names, telephones) are omitted. Nothing outside ``private/`` may depend
on a secret but through the mechanism. The rule is kept here: files that a problem class declares secret never reach
``problem/`` (a mechanism may offer a public replacement).
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import attrs
from attrs import AttrsInstance, evolve, field, frozen

from privopt.declare import File, files_of
from privopt.declare.frames import PARQUET, as_csv, csv_bytes, table_of
from privopt.errors import Fault, InputError
from privopt.files.archive import npy_as_written
from privopt.files.release_folder import PRIVATE, PROBLEM, files_in

if TYPE_CHECKING:
    import polars as pl

_TOKEN: Final = re.compile(
    r"""\#[^\n]*                              # comments may hold quotes that open nothing
      | \"{3}(?:\\.|[^\\])*?\"{3}(?!\") | '{3}.*?'{3}(?!')
      | "(?:\\.|[^"\\\n])*"             | '[^'\n]*'""",
    re.DOTALL | re.VERBOSE,
)


@frozen(kw_only=True)
class ProblemCopy:
    """A problem file and what it names, as they will lie in DIR.

    A file named by a path that leaves the problem's folder goes to ``external/``, and the copied problem file names
    it there.

    Attributes:
        name: of the problem file.
        contents: of its copy.
        files: the files that it names, by their path in ``problem/``.
        public: contents that are in ``problem/`` in place of secret files, by the name in ``files``.
        renamed: how they are called there, where that is not the name of the secret file.
    """

    name: str
    contents: bytes = field(repr=False)
    files: Mapping[str, File]
    public: Mapping[str, bytes] = field(factory=dict, repr=False)
    renamed: Mapping[str, str] = field(factory=dict)

    @classmethod
    def of(cls, source: File, declared: AttrsInstance) -> ProblemCopy:
        """Plan the copy of a problem that was read from ``source``.

        Raises:
            InputError: one file is named both as a secret and as a public one, or a path cannot be renamed.
        """
        files = [file for file in files_of(declared) if not file.absent]
        secret = {_same(file) for file in files if file.secret}
        faults = [
            Fault(source.name, "", f"{file.name!r} named as a public file and as a secret one", "two files")
            for file in files
            if not file.secret and _same(file) in secret
        ]
        if faults:
            raise InputError(faults)
        inside = {file.name for file in files if _inside(file.name)}
        moved = _choose_names([file.name for file in files if file.name not in inside], {source.name, *inside})
        return cls(
            name=source.name,
            contents=_renamed(source.name, source.contents, moved) if moved else source.contents,
            files={moved.get(file.name, file.name): file for file in files},
        )

    @property
    def sha256(self) -> str:
        """The SHA-256 of the problem file as copied."""
        return hashlib.sha256(self.contents).hexdigest()

    def publishing(self, replaced: Mapping[str, bytes]) -> ProblemCopy:
        """Return the copy with public contents in place of secret files; a Parquet table becomes CSV, and is named so.

        Args:
            replaced: contents by the name that the problem gives the file.
        """
        public = {name: replaced[file.name] for name, file in self.files.items() if file.name in replaced}
        tables = [name for name in public if self.files[name].contents.startswith(PARQUET)]
        renamed = _csv_names(tables, {*self.files, self.name})
        contents = _renamed(self.name, self.contents, renamed) if renamed else self.contents
        return evolve(self, contents=contents, public=public, renamed=renamed)

    def write(self, work: Path) -> None:
        """Write what was read of public files to ``problem/``, all of secret ones to ``private/problem/``.

        Args:
            work: the DIR being written.
        """
        for name, file in self.files.items():
            if file.secret:
                _put(work / PRIVATE / PROBLEM / name, file.contents)
            if name in self.public:
                _put(work / PROBLEM / self.renamed.get(name, name), self.public[name])
            elif not file.secret:
                _put(work / PROBLEM / name, _as_read(file))
        _put(work / PROBLEM / self.name, self.contents)


def with_csv_tables(source: File, declared: AttrsInstance) -> File:
    """Return the problem with its public tables as CSV, whatever they were read from; itself where they are.

    A table of the problem class with a method ``as_csv() -> Mapping[str, bytes]`` knows how its files read so; every
    other Parquet file becomes the same columns.

    Args:
        source: the problem file.
        declared: what was read from it.
    """
    files = {file.name: file for file in files_of(declared) if not file.absent}
    secret = {name for name, file in files.items() if file.secret}
    made = {name: text for name, text in _known(declared).items() if name not in secret}
    for name in files.keys() - made.keys() - secret:
        text = as_csv(files[name])
        if text is not None:
            made[name] = text
    if not made:
        return source
    renamed = _csv_names(made, {*files, source.name})
    copies = {renamed.get(name, name): made.get(name, file.contents) for name, file in files.items()}
    contents = _renamed(source.name, source.contents, renamed)
    return evolve(source, kept=contents, in_memory={**source.in_memory, **copies})


def _as_read(file: File) -> bytes:
    """Return a public file as it is published: without columns of a table that nothing has read, and in one form."""
    frame = _frame(file)
    if frame is not None:
        return csv_bytes(frame.select(name for name in frame.columns if name in file.seen.columns))
    return _in_one_form(file)


def _frame(file: File) -> pl.DataFrame | None:
    """Return a file that was read as a table; None of any other."""
    return table_of(file) if file.seen.columns else None


def _in_one_form(file: File) -> bytes:
    """Return a public file in a form that every program reads alike: users' tables and arrays may have others."""
    if file.contents.startswith(b"\x93NUMPY"):
        return npy_as_written(file.contents)
    frame = _frame(file)
    if frame is not None:
        return csv_bytes(frame)
    return file.contents if file.seen.instead is None else file.seen.instead


def _csv_names(names: Iterable[str], taken: set[str]) -> dict[str, str]:
    """Return new names that end in ``.csv``, all different, for files that are CSV now; a name of its own may stay."""
    renamed: dict[str, str] = {}
    for name in sorted(names):
        renamed[name] = _unused(PurePosixPath(name).with_suffix(".csv"), {*taken, *renamed.values()} - {name})
    return renamed


def _unused(path: PurePosixPath, taken: set[str]) -> str:
    """Return a name, with a number if it is taken."""
    name, number = path, 1
    while str(name) in taken:
        number += 1
        name = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return str(name)


def _known(declared: AttrsInstance) -> dict[str, bytes]:
    """Files that the tables of a problem know to read as CSV."""
    convert = getattr(declared, "as_csv", None)
    found = {} if convert is None else dict(convert())
    for attribute in attrs.fields(type(declared)):
        value = getattr(declared, attribute.name)
        if attrs.has(type(value)) and not isinstance(value, File):
            found |= _known(value)
    return found


def _same(file: File) -> tuple[int, int] | str:
    """Equal for names of one file."""
    if file.path is None:
        return file.name
    found = os.stat(file.path)
    return found.st_dev, found.st_ino


def _put(path: Path, contents: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _choose_names(names: list[str], taken: set[str]) -> dict[str, str]:
    """Return new names, all different, for files from outside."""
    folder = "external"
    while any(PurePosixPath(name).parts[0] == folder for name in taken):
        folder += "-more"
    moved: dict[str, str] = {}
    for name in dict.fromkeys(names):
        moved[name] = _unused(PurePosixPath(folder, PurePosixPath(name).name), {*moved.values()})
    return moved


def _renamed(name: str, contents: bytes, new_names: Mapping[str, str]) -> bytes:
    """Return the problem file with every text that is one of these paths replaced, and nothing else changed."""
    text = contents.decode("utf-8-sig")

    def replaced(match: re.Match[str]) -> str:
        token = match.group()
        if token.startswith("#"):
            return token
        new = new_names.get(tomllib.loads(f"x = {token}")["x"])
        return token if new is None else json.dumps(new, ensure_ascii=False).replace("\x7f", "\\u007f")

    renamed = _TOKEN.sub(replaced, text)
    if _parsed(renamed) != _values(_parsed(text), new_names):
        raise InputError([Fault(name, "", "a path outside its folder that is a key too", "files in its folder")])
    return renamed.encode()


def _parsed(text: str) -> dict[str, Any]:
    return tomllib.loads(text, parse_float=str)


def _values(value: Any, new_names: Mapping[str, str]) -> Any:
    if isinstance(value, dict):
        return {name: _values(inner, new_names) for name, inner in value.items()}
    if isinstance(value, list):
        return [_values(inner, new_names) for inner in value]
    return new_names.get(value, value) if isinstance(value, str) else value


def stray_files(folder: Path, declared: AttrsInstance, file: str) -> list[str]:
    """Return a line for each file below ``problem/`` that ``file`` does not name, or that has another form."""
    files = [each for each in files_of(declared) if not (each.secret or each.absent)]
    odd = dict.fromkeys(each.name for each in files if _in_one_form(each) != each.contents)
    lines = [f"{PROBLEM}/{name}: not in the form in which solve writes it" for name in odd]
    named = {file, *(str(PurePosixPath(each.name)) for each in files_of(declared))}
    found, _ = files_in(folder / PROBLEM)
    return lines + [f"{PROBLEM}/{name}: the problem names no such file" for name in found if name not in named]
