"""Split a release folder's public files into parts that can be compared between runs."""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from privopt.files.release_folder import PRIVATE, RESULT, SUMS

NAMED: Final = ("filename", "date_time", "comment", "extra")
"""The attributes of a zip archive member that describe the stored file."""
PACKED: Final = ("external_attr", "compress_type", "flag_bits", "create_system")
"""The attributes of a zip archive member that describe how it was packed."""

NUMBER: Final = re.compile(rb"(?<![\w-])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?(?![\w-])")
"""Matches a number in text, unless it is part of a word or a name."""


def public_bytes(folder: Path, *, private: bool = False) -> Iterator[tuple[str, bytes]]:
    """Yield the name and contents of each file in a release folder.

    If a file is a zip archive, each of its members is also yielded, under the name ``file:member``.

    Args:
        folder: The release folder.
        private: Whether to include the files in ``private/``.
    """
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or (name.split("/")[0] == PRIVATE and not private):
            continue
        contents = path.read_bytes()
        yield name, contents
        if _is_zip(contents):
            with zipfile.ZipFile(io.BytesIO(contents)) as archive:
                for member in archive.namelist():
                    yield f"{name}:{member}", archive.read(member)


def artefact(folder: Path, *, private: bool = False) -> dict[str, bytes]:
    """Return the contents of a release's files by name, excluding result.json and the checksums.

    Archives are represented by their members, so that it does not matter how they were packed. The files in
    ``private/`` are included only if ``private`` is True.
    """
    files = dict(public_bytes(folder, private=private))
    # Members are named ``archive:member``.
    archives = {name.partition(":")[0] for name in files if ":" in name}
    return {name: contents for name, contents in files.items() if name not in {SUMS, RESULT} | archives}


def read_public_parts(folder: Path) -> dict[str, bytes]:
    """Return the values in result.json, except for times, keyed by their locations in the document.

    A list is included both as a whole and element by element.
    """
    result = json.loads((folder / RESULT).read_text("utf-8"))
    result.pop("time", None)  # times differ between any two runs
    return {f"{RESULT}: {location}": json.dumps(value).encode() for location, value in _iter_leaves(result, "")}


def _iter_leaves(value: Any, location: str) -> Iterator[tuple[str, Any]]:
    """Yield the location and value of each part of a JSON document.

    The parts are each object's list of keys, each list as a whole, each list's elements, and each single value.

    Args:
        value: The document, or a part of it.
        location: The location of ``value``, such as ``details.plans[2]``, or "" for the whole document.
    """
    if isinstance(value, Mapping):
        yield f"the keys of {location}" if location else "its keys", list(value)
        for key, inner in value.items():
            yield from _iter_leaves(inner, f"{location}.{key}" if location else key)
        return
    yield location, value
    if isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _iter_leaves(inner, f"{location}[{number}]")


def split_public_files(folder: Path) -> dict[str, bytes]:
    """Return a release's public contents, split into named parts that can be compared between runs.

    The parts are whole files, table columns, text files without their numbers, archive metadata, and the values in
    result.json. Parts that may legitimately differ between runs on the same input (times, and checksums that depend on
    them) are omitted.
    """
    files = artefact(folder)
    archive_facts = {
        f"{name}, of its members": _archive_facts(contents)
        for name, contents in public_bytes(folder)
        if _is_zip(contents)
    }
    parts = {"the list of public files": "\n".join(files).encode(), **files}
    for name, contents in files.items():
        if name.endswith(".csv"):
            rows = [row for row in csv.reader(io.StringIO(contents.decode("utf-8", "replace"))) if row]
            # Split tables by column, so that a difference names its column. All rows are cut to the shortest row's
            # length.
            for number, cells in enumerate(zip(*rows, strict=False), start=1):
                parts[f"{name}, column {number}"] = "\n".join(cells).encode()
        elif b"\x00" not in contents:
            parts[f"{name}, its numbers left out"] = NUMBER.sub(b"#", contents)
    return parts | archive_facts | read_public_parts(folder)


def _is_zip(contents: bytes) -> bool:
    """Return whether a file's contents are a zip archive."""
    return zipfile.is_zipfile(io.BytesIO(contents))


def _archive_facts(contents: bytes) -> bytes:
    """Return an archive's metadata as bytes.

    The metadata consists of the archive's comment and, for each member in order, its name, date, mode, comment and
    compression.
    """
    with zipfile.ZipFile(io.BytesIO(contents)) as archive:
        rows = [[getattr(member, name) for name in NAMED + PACKED] for member in archive.infolist()]
        return repr((archive.comment, rows)).encode()
