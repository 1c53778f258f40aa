"""The copy of a problem's files in DIR, which lets a recipient verify the release without any other file.

Outside ``private/``, nothing may depend on a secret except through the mechanism. This module enforces the rule for
the problem's files: a file that the problem class declares secret never reaches ``problem/``; a mechanism may provide a
public replacement instead. Columns of public tables that are never read, such as names or telephone numbers, are
omitted.
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

# Matches a comment, or a string in any of the four kinds of quotes that TOML has.
_TOKEN: Final = re.compile(
    r"""\#[^\n]*                              # comments may hold quotes that open nothing
      | \"{3}(?:\\.|[^\\])*?\"{3}(?!\") | '{3}.*?'{3}(?!')
      | "(?:\\.|[^"\\\n])*"             | '[^'\n]*'""",
    re.DOTALL | re.VERBOSE,
)


@frozen(kw_only=True)
class ProblemCopy:
    """A problem file and the files that it names, in the form that is written to the release folder (DIR).

    A file outside the problem's folder is copied to ``external/``, and its path in the copied problem file is changed
    accordingly.

    All mappings are keyed by the path of a copied file in ``problem/``, with slashes.

    Attributes:
        name: The name of the problem file.
        contents: The contents of the copied problem file.
        files: The files that the problem file names.
        public: The public contents that replace some secret files in ``problem/``.
        renamed: The new names of those replacements whose names change.
    """

    name: str
    contents: bytes = field(repr=False)
    files: Mapping[str, File]
    public: Mapping[str, bytes] = field(factory=dict, repr=False)
    renamed: Mapping[str, str] = field(factory=dict)

    @classmethod
    def of(cls, source: File, declared: AttrsInstance) -> ProblemCopy:
        """Plan the copy of a problem: choose a path for each file, and adapt the problem file to these paths.

        Args:
            source: The problem file.
            declared: The problem that was read from ``source``, with the files that it names.

        Raises:
            InputError: A file is named both as secret and as public, or a path cannot be renamed.
        """
        files = [file for file in files_of(declared) if not file.absent]
        # Publishing a file that another key declares secret would reveal it.
        secret = {_file_identity(file) for file in files if file.secret}
        faults = [
            Fault(source.name, "", f"{file.name!r} named as a public file and as a secret one", "two files")
            for file in files
            if not file.secret and _file_identity(file) in secret
        ]
        if faults:
            raise InputError(faults)
        # Files inside the problem's folder keep their paths. All others move to a separate folder.
        inner_names = {file.name for file in files if _is_inside(file.name)}
        moved = _choose_names(
            [file.name for file in files if file.name not in inner_names], {source.name, *inner_names}
        )
        return cls(
            name=source.name,
            contents=_replace_paths(source.name, source.contents, moved) if moved else source.contents,
            files={moved.get(file.name, file.name): file for file in files},
        )

    @property
    def sha256(self) -> str:
        """The SHA-256 of the copied problem file."""
        return hashlib.sha256(self.contents).hexdigest()

    def publishing(self, replaced: Mapping[str, bytes]) -> ProblemCopy:
        """Return a copy that also publishes replacements for some secret files.

        The replacements contain only what the mechanism publishes about its secrets. The secret files themselves are
        still written only to ``private/``. A Parquet table is replaced by a CSV file, so its name changes.

        Args:
            replaced: The public contents, keyed by the file names in the problem.
        """
        public = {name: replaced[file.name] for name, file in self.files.items() if file.name in replaced}
        tables = [name for name in public if self.files[name].contents.startswith(PARQUET)]
        renamed = _csv_names(tables, {*self.files, self.name})
        contents = _replace_paths(self.name, self.contents, renamed) if renamed else self.contents
        return evolve(self, contents=contents, public=public, renamed=renamed)

    def write(self, work: Path) -> None:
        """Write public files, with only the columns that were read, to ``problem/``, and secret files to ``private/``.

        Args:
            work: The release folder that is being written.
        """
        for name, file in self.files.items():
            if file.secret:
                _write_file(work / PRIVATE / PROBLEM / name, file.contents)
            if name in self.public:
                _write_file(work / PROBLEM / self.renamed.get(name, name), self.public[name])
            elif not file.secret:
                _write_file(work / PROBLEM / name, _as_read(file))
        _write_file(work / PROBLEM / self.name, self.contents)


def with_csv_tables(source: File, declared: AttrsInstance) -> File:
    """Return the problem with its public tables converted to CSV, or the unchanged problem if all of them are CSV.

    A table whose class has a method ``as_csv() -> Mapping[str, bytes]`` converts its own files. All other Parquet files
    are converted column by column.

    Args:
        source: The problem file.
        declared: The problem that was read from ``source``.
    """
    # Secret tables keep their form, because they go to private/, where only the owner reads them.
    files = {file.name: file for file in files_of(declared) if not file.absent}
    secret = {name for name, file in files.items() if file.secret}
    csv_by_name = {name: text for name, text in _tables_as_csv(declared).items() if name not in secret}
    for name in files.keys() - csv_by_name.keys() - secret:
        text = as_csv(files[name])
        if text is not None:
            csv_by_name[name] = text
    if not csv_by_name:
        return source
    renamed = _csv_names(csv_by_name, {*files, source.name})
    copies = {renamed.get(name, name): csv_by_name.get(name, file.contents) for name, file in files.items()}
    contents = _replace_paths(source.name, source.contents, renamed)
    return evolve(source, kept=contents, in_memory={**source.in_memory, **copies})


def _as_read(file: File) -> bytes:
    """Return the published version of a public file: its canonical form, without columns that were never read."""
    # Columns that nothing reads, such as people's names, have no purpose in a release.
    frame = _frame(file)
    if frame is not None:
        return csv_bytes(frame.select(name for name in frame.columns if name in file.seen.columns))
    return _in_one_form(file)


def _frame(file: File) -> pl.DataFrame | None:
    """Return a file as a data frame if any of its columns was read; otherwise None."""
    return table_of(file) if file.seen.columns else None


def _in_one_form(file: File) -> bytes:
    """Return a public file in canonical form: arrays as written by NumPy, and tables as CSV in a fixed style.

    All programs read the canonical form in the same way, so no file can mean different things to two readers.
    """
    # The first bytes of every .npy file.
    if file.contents.startswith(b"\x93NUMPY"):
        return npy_as_written(file.contents)
    frame = _frame(file)
    if frame is not None:
        return csv_bytes(frame)
    # ``seen.instead`` is set if the code that read the file stored other contents to be published in its place.
    return file.contents if file.seen.instead is None else file.seen.instead


def _csv_names(names: Iterable[str], used_names: set[str]) -> dict[str, str]:
    """Return distinct new names that end in ``.csv``, keyed by old name, for files that were converted to CSV.

    Names that already end in ``.csv`` do not change.

    Args:
        names: The current names of the files.
        used_names: Names that must not be given to another file.
    """
    renamed: dict[str, str] = {}
    for name in sorted(names):
        renamed[name] = _unused_name(PurePosixPath(name).with_suffix(".csv"), {*used_names, *renamed.values()} - {name})
    return renamed


def _unused_name(path: PurePosixPath, used_names: set[str]) -> str:
    """Return a path as a string. If it is in ``used_names``, add a number before the suffix, as in ``a-2.csv``."""
    name, number = path, 1
    while str(name) in used_names:
        number += 1
        name = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return str(name)


def _tables_as_csv(declared: AttrsInstance) -> dict[str, bytes]:
    """Return the CSV files, by name, that the ``as_csv`` methods of a problem and its nested tables produce."""
    convert = getattr(declared, "as_csv", None)
    csv_by_name = {} if convert is None else dict(convert())
    for attribute in attrs.fields(type(declared)):
        value = getattr(declared, attribute.name)
        if attrs.has(type(value)) and not isinstance(value, File):
            csv_by_name |= _tables_as_csv(value)
    return csv_by_name


def _file_identity(file: File) -> tuple[int, int] | str:
    """Return a key that is equal for two names that refer to the same file, even if one is a link.

    Comparing names would not be enough: a file that one key declares secret could be published under another key's
    public name. The returned key consists of device and inode; for a file in memory, it is the name.
    """
    if file.path is None:
        return file.name
    file_status = os.stat(file.path)
    return file_status.st_dev, file_status.st_ino


def _write_file(path: Path, contents: bytes) -> None:
    """Write a file, and create its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)


def _is_inside(name: str) -> bool:
    """Return whether a file name stays inside the problem's folder: it must be relative and contain no ``..``."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _choose_names(names: list[str], used_names: set[str]) -> dict[str, str]:
    """Return distinct new names, in a separate folder, for files from outside the problem's folder.

    Args:
        names: The paths of the files, as written in the problem file.
        used_names: The names of the problem's other files.
    """
    # A folder name that no other file of the problem uses.
    folder = "external"
    while any(PurePosixPath(name).parts[0] == folder for name in used_names):
        folder += "-more"
    moved: dict[str, str] = {}
    for name in dict.fromkeys(names):
        moved[name] = _unused_name(PurePosixPath(folder, PurePosixPath(name).name), {*moved.values()})
    return moved


def _replace_paths(name: str, contents: bytes, new_names: Mapping[str, str]) -> bytes:
    """Return the text of a problem file with some paths replaced, after checking that nothing else has changed.

    Args:
        name: The name of the problem file, for messages.
        contents: The bytes of the problem file.
        new_names: The new paths, keyed by the paths that they replace.

    Returns:
        The new contents of the problem file.

    Raises:
        InputError: A path to replace also occurs as a key.
    """
    text = contents.decode("utf-8-sig")

    # The text is edited instead of being written anew, so that comments and layout stay the user's.
    def replace_token(match: re.Match[str]) -> str:
        """Return the new path in quotes if the token is a path to replace; otherwise return the token unchanged."""
        token = match.group()
        if token.startswith("#"):
            return token
        # Parsed as the value of a key, so that escapes in the string are resolved.
        new_path = new_names.get(tomllib.loads(f"x = {token}")["x"])
        # A JSON string is also a TOML string, except that TOML requires the character DEL to be escaped.
        return token if new_path is None else json.dumps(new_path, ensure_ascii=False).replace("\x7f", "\\u007f")

    # A string equal to a path may be a key or another value; the comparison shows whether one was replaced as well.
    renamed = _TOKEN.sub(replace_token, text)
    if _parse_toml(renamed) != _replace_values(_parse_toml(text), new_names):
        raise InputError([Fault(name, "", "a path outside its folder that is a key too", "files in its folder")])
    return renamed.encode()


def _parse_toml(text: str) -> dict[str, Any]:
    """Parse a TOML file with floats as strings, so that ``1.0`` and ``1.00`` compare as different."""
    return tomllib.loads(text, parse_float=str)


def _replace_values(value: Any, new_names: Mapping[str, str]) -> Any:
    """Return a parsed TOML value in which the strings in ``new_names`` are replaced; keys of tables are unchanged."""
    if isinstance(value, dict):
        return {name: _replace_values(inner, new_names) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replace_values(inner, new_names) for inner in value]
    return new_names.get(value, value) if isinstance(value, str) else value


def stray_files(folder: Path, declared: AttrsInstance, file: str) -> list[str]:
    """Return a line for each file in ``problem/`` that the problem does not name or that is not in canonical form.

    No claim covers such a file, so it could contain anything, even a secret.

    Args:
        folder: The release folder.
        declared: The problem that was read from the folder.
        file: The name of the problem file.
    """
    files = [problem_file for problem_file in files_of(declared) if not (problem_file.secret or problem_file.absent)]
    unusual_names = dict.fromkeys(
        problem_file.name for problem_file in files if _in_one_form(problem_file) != problem_file.contents
    )
    lines = [f"{PROBLEM}/{name}: not in the form in which solve writes it" for name in unusual_names]
    named = {file, *(str(PurePosixPath(problem_file.name)) for problem_file in files_of(declared))}
    copied_names, _ = files_in(folder / PROBLEM)
    return lines + [f"{PROBLEM}/{name}: the problem names no such file" for name in copied_names if name not in named]
