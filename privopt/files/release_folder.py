"""Read release folders (DIR) as untrusted input: file names, checksums and result.json.

DIR contains only regular files. A SHA256SUMS file lists all of them except itself, its signature and the report. DIR is
written by :mod:`privopt.run.publish`.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from privopt.errors import Fault, InputError, reason_of
from privopt.files.regular import LARGEST, Unreadable, open_regular, read_bytes, what_it_is

__all__ = [
    "LARGEST_TEXT",
    "PRIVATE",
    "PROBLEM",
    "PROOF",
    "REPORT",
    "RESULT",
    "SIGNATURE",
    "SUMS",
    "check_sums",
    "dump_json",
    "expect_release",
    "files_in",
    "jsonable",
    "read_document",
    "sha256",
    "sums_text",
]

# Names of files and folders in a release folder, DIR.
RESULT: Final = "result.json"
SUMS: Final = "SHA256SUMS"
PROBLEM: Final = "problem"
PROOF: Final = "proof.npz"
PRIVATE: Final = "private"
REPORT: Final = "report.html"
"""The name of the report in a release folder or its ``private/`` subfolder.

SHA256SUMS does not list the report, because it may be written later.
"""

SIGNATURE: Final = "SHA256SUMS.sig"
"""The name of the file that signs a release folder's SHA256SUMS, and therefore cannot be listed in SHA256SUMS."""

LARGEST_TEXT: Final = 64 * 2**20
"""The maximum size of a result.json or SHA256SUMS file, in bytes."""

MAX_JSON_DEPTH: Final = 32
"""The maximum nesting depth of objects and lists in result.json."""


Json: TypeAlias = "Mapping[str, Json] | list[Json] | str | int | float | None"
"""A value that can be represented in JSON."""


def jsonable(value: object) -> Json:
    """Convert a value to a form that can be represented in JSON, for result.json.

    NaN becomes null, infinite numbers become ``"inf"`` and ``"-inf"``, fractions become doubles, and arrays become
    lists.

    Raises:
        TypeError: A value cannot be represented in JSON.
    """
    if isinstance(value, Mapping):
        return {str(name): jsonable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(inner) for inner in value]
    if hasattr(value, "tolist"):  # NumPy arrays and numbers, recognised without importing NumPy
        return jsonable(value.tolist())
    if isinstance(value, Fraction):
        return jsonable(float(value))
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
    if value is None or isinstance(value, (str, int, float)):
        return value
    raise TypeError(f"{type(value).__name__} {value!r} cannot be written as JSON")


def dump_json(value: object) -> str:
    """Return a value as JSON text ending in a newline. The text never contains NaN or Infinity."""
    return json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def sha256(path: Path) -> str:
    """Return the SHA-256 of a regular file as hexadecimal digits.

    Raises:
        InputError: The path is not a regular file, or cannot be read.
    """
    try:
        with open_regular(path, links=False) as (stream, _):
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except Unreadable as error:
        raise InputError([Fault(str(path), "", error.actual, "a file that can be read")]) from None


def files_in(folder: Path) -> tuple[list[str], list[Fault]]:
    """Return the sorted relative paths of all regular files in a folder, and a fault for every other entry.

    Files in subfolders are included. Links, pipes, devices, sockets, empty subfolders and oversized files are reported
    as faults without being opened.

    Raises:
        InputError: A folder cannot be read.
    """
    files: list[str] = []
    faults: list[Fault] = []
    pending = [""]  # folders still to be read, as prefixes of names
    while pending:
        prefix = pending.pop()
        try:
            # A single scan returns names and kinds, so nothing has to be opened.
            with os.scandir(folder / prefix) as entries:
                status_by_name = {f"{prefix}{entry.name}": entry.stat(follow_symlinks=False) for entry in entries}
        except OSError as error:
            reason = f"a folder that cannot be read ({error.strerror})"
            raise InputError([Fault(str(folder / prefix), "", reason, "a folder of privopt")]) from None
        if prefix and not status_by_name:
            faults.append(Fault(prefix, "", "an empty folder", "folders that hold files"))
        for name, status in status_by_name.items():
            if stat.S_ISDIR(status.st_mode):
                pending.append(f"{name}/")
            elif not stat.S_ISREG(status.st_mode):
                faults.append(Fault(name, "", what_it_is(status.st_mode), "a regular file"))
            elif status.st_size > LARGEST:
                faults.append(Fault(name, "", f"{status.st_size:,} bytes", f"at most {LARGEST:,}"))
            else:
                files.append(name)
    return sorted(files), sorted(faults, key=str)


def sums_text(folder: Path, *, private: bool = False) -> str:
    """Return the text of the SHA256SUMS file for a folder, with one line per file in the format of ``sha256sum``.

    SHA256SUMS itself is not covered, nor are a release folder's report and signature.

    Args:
        folder: A release folder or its ``private/`` subfolder.
        private: Whether ``folder`` is ``private/``.
    """
    covered = {name for name in files_in(folder)[0] if private or not name.startswith(f"{PRIVATE}/")}
    covered -= {SUMS, REPORT} if private else {SUMS, REPORT, SIGNATURE}
    return "".join(_sum_line(name, sha256(folder / name)) for name in sorted(covered))


def _sum_line(name: str, digest: str) -> str:
    """Return a line in the format of ``sha256sum``. Line breaks in names are escaped, so no name can forge a line."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n"


def expect_release(folder: Path, name: str = RESULT) -> None:
    """Reject a folder that is not a release folder, before reading anything in it.

    Args:
        folder: The folder.
        name: The name of a file contained in every release folder.

    Raises:
        InputError: The folder does not exist or does not contain the file.
    """
    actual = f"no {name} in it" if folder.is_dir() else "a file" if folder.exists() else "no such folder"
    if not os.path.lexists(folder / name):
        raise InputError([Fault(str(folder), "", actual, "a folder that privopt solve has written")])


def check_sums(folder: Path) -> list[str]:
    """Compare the files in a release folder, and in its ``private/`` subfolder if there is one, with the checksums.

    Returns:
        One line for each file that was changed, removed or added. If :func:`files_in` reports faults, such as links,
        only those are listed, one per line. The list is empty if all checksums match.

    Raises:
        InputError: SHA256SUMS is missing, or the release folder cannot be read.
    """
    expect_release(folder, SUMS)
    # Look for links and pipes first, because computing their checksums could block or read outside the folder.
    _, faults = files_in(folder)
    if faults:
        return [str(fault) for fault in faults]
    complaints = _compare_sums(folder, private=False)
    if (folder / PRIVATE).is_dir():
        complaints += [f"{PRIVATE}/{line}" for line in _compare_sums(folder / PRIVATE, private=True)]
    return complaints


def _compare_sums(folder: Path, *, private: bool) -> list[str]:
    """Compare a folder's files with its SHA256SUMS, and return one line for each difference.

    Args:
        folder: A release folder or its ``private/`` subfolder.
        private: Whether ``folder`` is ``private/``.

    Raises:
        InputError: SHA256SUMS cannot be read.
    """
    try:
        written = read_bytes(folder / SUMS, largest=LARGEST_TEXT, links=False).decode("utf-8", "surrogateescape")
    except Unreadable as error:
        raise InputError([Fault(str(folder / SUMS), "", error.actual, "the checksums of a privopt folder")]) from None
    actual = sums_text(folder, private=private)
    if written == actual:
        return []
    recorded, computed = _digests_by_name(written), _digests_by_name(actual)
    lines = [
        f"{name}: changed" for name in sorted(recorded.keys() & computed.keys()) if recorded[name] != computed[name]
    ]
    lines += [f"{name}: missing" for name in sorted(recorded.keys() - computed.keys())]
    lines += [f"{name}: not listed in {SUMS}" for name in sorted(computed.keys() - recorded.keys())]
    # If all digests agree, the texts differ in order, spacing or repeated lines.
    return lines or [f"{SUMS}: not as it was written"]


def _digests_by_name(text: str) -> dict[str, str]:
    """Return the digests listed in the text of a SHA256SUMS file, keyed by file name.

    Names remain escaped, as written by :func:`_sum_line`.
    """
    return {name: digest for digest, _, name in (line.partition("  ") for line in text.split("\n") if line)}


def read_document(folder: Path) -> dict[str, Any]:
    """Return a release folder's result.json as a JSON object.

    Raises:
        InputError: The file is missing, is not a JSON object, repeats a name within an object, contains invalid
            characters or numbers that are not finite, or has more than :data:`MAX_JSON_DEPTH` levels.
    """
    path = folder / RESULT

    def refuse(got: str, expectation: str = "a result of privopt") -> NoReturn:
        """Raise an error that states what the file contains and what was expected."""
        raise InputError([Fault(str(path), "", got, expectation)])

    try:
        text = read_bytes(path, largest=LARGEST_TEXT, links=False).decode("utf-8")
        # Python's parser is too lenient, so these hooks reject NaN, numbers too large for doubles, and repeated names.
        result = json.loads(
            text, parse_constant=_no_constant, parse_float=_read_finite, object_pairs_hook=_unique_names
        )
    except Unreadable as error:
        refuse(error.actual, "a folder that privopt solve has written")
    except (ValueError, RecursionError) as error:
        refuse(f"text that is not JSON ({reason_of(error)})")
    if not isinstance(result, dict):
        refuse("JSON that is not an object")
    if not _is_writable(result):
        refuse("JSON nested too deeply, or invalid characters")
    return result


def _no_constant(constant: str) -> NoReturn:
    """Reject NaN and Infinity, which Python accepts although JSON does not define them."""
    raise ValueError(f"it contains {constant}")


def _read_finite(text: str) -> float:
    """Convert a number in JSON to a double, or raise a ValueError if it is too large."""
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"{text}, which no double can hold")
    return number


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Convert a JSON object to a dict, or raise a ValueError if a name occurs twice."""
    # Parsers differ in which of two equal names they use, so two programs could read different claims.
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} occurs twice in one object")
    return table


def _is_writable(value: Any) -> bool:
    """Return whether a JSON value has at most :data:`MAX_JSON_DEPTH` levels and contains only valid Unicode.

    Such a value can safely be traversed recursively and serialised again.
    """
    # Go level by level, because a deep document could exceed the limit on recursion.
    level = [value]
    for _ in range(MAX_JSON_DEPTH):
        texts = [inner for inner in level if isinstance(inner, str)]
        texts += [name for inner in level if isinstance(inner, dict) for name in inner]
        # Halves of surrogate pairs can be written in JSON, as \ud800, but not in UTF-8.
        if any("\ud800" <= sign <= "\udfff" for text in texts for sign in text if sign > "\ud7ff"):
            return False
        level = [
            child
            for inner in level
            if isinstance(inner, (dict, list))
            for child in (inner.values() if isinstance(inner, dict) else inner)
        ]
    return not level
