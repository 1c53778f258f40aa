"""The copy of a problem's files in the release folder, which lets a recipient verify the release without other files.

Outside ``private/``, nothing may depend on a secret except through the mechanism. This module enforces that rule for
the problem's files. A file that the problem class declares secret is never written to ``problem/``, but a mechanism may
provide a public replacement for it. Columns of public tables that are never read, such as names or telephone numbers,
are left out.
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
    """A problem file and the files that it names, as written to the release folder (DIR).

    A file outside the problem's folder is copied to ``external/``, and its path in the copied problem file is changed
    accordingly.

    The keys of all mappings are the paths of the copied files relative to ``problem/``, with forward slashes.

    Attributes:
        name: The name of the problem file.
        contents: The contents of the copied problem file.
        files: The files named in the problem file.
        public: The public contents that replace some secret files in ``problem/``.
        renamed: The new names of those replacements whose names differ from the original files' names.
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
            declared: The problem read from ``source``, with the files it names.

        Raises:
            InputError: A file is declared both secret and public, or the path to a file outside the problem's folder
                cannot be replaced.
        """
        # Absent files are secret files that were not published, so there is nothing to copy.
        files = [file for file in files_of(declared) if not file.absent]
        # A file must not be published under one key if another key declares it secret.
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
        """The SHA-256 checksum of the copied problem file."""
        return hashlib.sha256(self.contents).hexdigest()

    def publishing(self, replaced: Mapping[str, bytes]) -> ProblemCopy:
        """Return a copy that also publishes replacements for some secret files.

        The replacements contain only what the mechanism publishes about its secrets. The secret files themselves are
        still written to ``private/`` only. A Parquet table is replaced by a CSV file, which has a different name.

        Args:
            replaced: The public contents, keyed by the file names in the problem.
        """
        public = {name: replaced[file.name] for name, file in self.files.items() if file.name in replaced}
        tables = [name for name in public if self.files[name].contents.startswith(PARQUET)]
        renamed = _csv_names(tables, {*self.files, self.name})
        contents = _replace_paths(self.name, self.contents, renamed) if renamed else self.contents
        return evolve(self, contents=contents, public=public, renamed=renamed)

    def write(self, work: Path) -> None:
        """Write the public files to ``problem/``, and the secret files to ``private/``.

        Public replacements for secret files go to ``problem/`` as well. Columns of public tables that were never read
        are left out.

        Args:
            work: The release folder being written.
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
    """Return the problem file with its public tables converted to CSV, or unchanged if there is nothing to convert.

    A table whose class has a method ``as_csv() -> Mapping[str, bytes]`` converts its own files. All other Parquet files
    are converted column by column.

    Args:
        source: The problem file.
        declared: The problem read from ``source``.
    """
    # Secret tables keep their format, because they go to private/, where only the owner reads them.
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
    """Return a public file as it is published: in canonical form, and without columns that were never read."""
    # ``seen.columns`` are the columns that were read. Others, such as people's names, have no purpose in a release.
    frame = _frame(file)
    if frame is not None:
        return csv_bytes(frame.select(name for name in frame.columns if name in file.seen.columns))
    return _in_one_form(file)


def _frame(file: File) -> pl.DataFrame | None:
    """Return a file as a data frame, or None if none of its columns were read."""
    return table_of(file) if file.seen.columns else None


def _in_one_form(file: File) -> bytes:
    """Return a public file in canonical form: arrays as written by NumPy, and tables as CSV in a fixed style.

    All programs read the canonical form in the same way, so a file cannot mean different things to different readers.
    """
    # The first bytes of every .npy file.
    if file.contents.startswith(b"\x93NUMPY"):
        return npy_as_written(file.contents)
    frame = _frame(file)
    if frame is not None:
        return csv_bytes(frame)
    # ``seen.instead`` holds contents to publish in place of the file, if the code that read the file has set it.
    return file.contents if file.seen.instead is None else file.seen.instead


def _csv_names(names: Iterable[str], used_names: set[str]) -> dict[str, str]:
    """Choose unique names that end in ``.csv`` for files that were converted to CSV.

    A name that already ends in ``.csv`` stays the same.

    Args:
        names: The current names of the files.
        used_names: Names that must not be given to another file.

    Returns:
        The new name of each file, keyed by its current name.
    """
    renamed: dict[str, str] = {}
    for name in sorted(names):
        renamed[name] = _unused_name(PurePosixPath(name).with_suffix(".csv"), {*used_names, *renamed.values()} - {name})
    return renamed


def _unused_name(path: PurePosixPath, used_names: set[str]) -> str:
    """Return a path as a string, with a number inserted before the suffix if the path is taken, as in ``a-2.csv``.

    ``used_names`` contains the paths that are taken.
    """
    name, number = path, 1
    while str(name) in used_names:
        number += 1
        name = path.with_name(f"{path.stem}-{number}{path.suffix}")
    return str(name)


def _tables_as_csv(declared: AttrsInstance) -> dict[str, bytes]:
    """Call the ``as_csv`` methods of a problem and its nested tables, and return the resulting CSV files by name."""
    convert = getattr(declared, "as_csv", None)
    csv_by_name = {} if convert is None else dict(convert())
    for attribute in attrs.fields(type(declared)):
        value = getattr(declared, attribute.name)
        if attrs.has(type(value)) and not isinstance(value, File):
            csv_by_name |= _tables_as_csv(value)
    return csv_by_name


def _file_identity(file: File) -> tuple[int, int] | str:
    """Return a value that identifies a file, even if the file has several names or is reached through links.

    This is the pair of its device and inode numbers or, for a file in memory, its name. Comparing names would not be
    enough, because a file that is declared secret under one name could then be published under another.
    """
    if file.path is None:
        return file.name
    file_status = os.stat(file.path)
    return file_status.st_dev, file_status.st_ino


def _write_file(path: Path, contents: bytes) -> None:
    """Write a file, creating its folder if necessary."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents)


def _is_inside(name: str) -> bool:
    """Return whether a file name stays inside the problem's folder, i.e. is relative and contains no ``..``."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts


def _choose_names(names: list[str], used_names: set[str]) -> dict[str, str]:
    """Choose unique names, in a separate folder, for files outside the problem's folder.

    Args:
        names: The paths of the files, as written in the problem file.
        used_names: The names of the problem's other files.

    Returns:
        The new name of each file, keyed by its path in the problem file.
    """
    # Find a folder name that no other file of the problem uses.
    folder = "external"
    while any(PurePosixPath(name).parts[0] == folder for name in used_names):
        folder += "-more"
    moved: dict[str, str] = {}
    for name in dict.fromkeys(names):
        moved[name] = _unused_name(PurePosixPath(folder, PurePosixPath(name).name), {*moved.values()})
    return moved


def _replace_paths(name: str, contents: bytes, new_names: Mapping[str, str]) -> bytes:
    """Replace some paths in the text of a problem file, and check that nothing else has changed.

    Args:
        name: The name of the problem file, for error messages.
        contents: The contents of the problem file.
        new_names: The new paths, keyed by the paths that they replace.

    Returns:
        The new contents of the problem file.

    Raises:
        InputError: A path to be replaced also occurs as a key.
    """
    text = contents.decode("utf-8-sig")

    # Edit the text instead of generating it anew, to keep the user's comments and layout.
    def replace_token(match: re.Match[str]) -> str:
        """Return the quoted new path if the token is a string to be replaced, and otherwise the unchanged token."""
        token = match.group()
        if token.startswith("#"):
            return token
        # Parse the token as a value, to resolve the escapes in the string.
        new_path = new_names.get(tomllib.loads(f"x = {token}")["x"])
        # JSON strings are valid TOML strings, except that TOML also requires DEL to be escaped.
        return token if new_path is None else json.dumps(new_path, ensure_ascii=False).replace("\x7f", "\\u007f")

    # A string equal to a path may also occur as a key. The comparison shows whether a key was replaced.
    renamed = _TOKEN.sub(replace_token, text)
    if _parse_toml(renamed) != _replace_values(_parse_toml(text), new_names):
        raise InputError([Fault(name, "", "a path outside its folder that is a key too", "files in its folder")])
    return renamed.encode()


def _parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML with floats as strings, so that ``1.0`` and ``1.00`` compare as different."""
    return tomllib.loads(text, parse_float=str)


def _replace_values(value: Any, new_names: Mapping[str, str]) -> Any:
    """Return a parsed TOML value with the strings in ``new_names`` replaced. The keys of tables are left unchanged."""
    if isinstance(value, dict):
        return {name: _replace_values(inner, new_names) for name, inner in value.items()}
    if isinstance(value, list):
        return [_replace_values(inner, new_names) for inner in value]
    return new_names.get(value, value) if isinstance(value, str) else value


def stray_files(folder: Path, declared: AttrsInstance, file: str) -> list[str]:
    """Return a complaint for each file in ``problem/`` that is not named by the problem or is not in canonical form.

    No claim covers such files, so they could contain anything, even secrets.

    Args:
        folder: The release folder.
        declared: The problem read from the folder.
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
