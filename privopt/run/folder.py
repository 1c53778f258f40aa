"""DIR: written whole or not at all, read back with its sums checked.

Nothing outside ``private/`` may depend on a secret but through the mechanism. The rule is kept here:
files that a problem class declares secret never reach ``problem/`` (a mechanism may offer a public
replacement), and what an :class:`~privopt.interfaces.Outcome` calls its truth goes to
``private/truth.json`` alone.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np

from privopt.declare import File, files_of
from privopt.errors import Fault, InputError, UsageError

__all__ = [
    "PRIVATE",
    "PROBLEM",
    "REPORT",
    "RESULT",
    "SUMS",
    "check_sums",
    "check_target",
    "dump_json",
    "jsonable",
    "new_folder",
    "read_result",
    "sha256",
    "sums_text",
    "write_problem",
]

RESULT: Final = "result.json"
SUMS: Final = "SHA256SUMS"
PROBLEM: Final = "problem"
PRIVATE: Final = "private"
REPORT: Final = "report.html"
"""In DIR or in private/: made after the fact, so no sum covers it."""


def jsonable(value: Any) -> Any:
    """A value as result.json holds it: unknown is null, infinite is ``"inf"``, arrays are lists."""
    if isinstance(value, Mapping):
        return {str(name): jsonable(inner) for name, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [jsonable(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return jsonable(value.tolist())
    if isinstance(value, np.generic):
        return jsonable(value.item())
    if isinstance(value, Fraction):
        return jsonable(float(value))
    if isinstance(value, float):
        if math.isnan(value):
            return None
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
    return value


def dump_json(value: Any) -> str:
    """One JSON document, without NaN or Infinity, ending in a newline."""
    return json.dumps(jsonable(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def sha256(path: Path) -> str:
    """Hexadecimal SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _summed(folder: Path, *, private: bool) -> list[Path]:
    return [
        path
        for path in sorted(folder.rglob("*"), key=lambda p: p.relative_to(folder).as_posix())
        if (path.is_file() or path.is_symlink())
        and (relative := path.relative_to(folder)).as_posix() not in {SUMS, REPORT}
        and (private or relative.parts[0] != PRIVATE)
    ]


def sums_text(folder: Path, *, private: bool = False) -> str:
    """``sha256sum``'s lines for all the files of a folder that its SHA256SUMS covers."""
    return "".join(
        f"{sha256(path)}  {path.relative_to(folder).as_posix()}\n" for path in _summed(folder, private=private)
    )


def check_sums(folder: Path) -> list[str]:
    """Compare a DIR with its SHA256SUMS, and ``private/`` with its own where it is there.

    Returns:
        One line for each file that changed, is missing or is new; empty where all sums hold.

    Raises:
        InputError: there is no SHA256SUMS to compare with.
    """
    complaints = _compare(folder, private=False)
    if (folder / PRIVATE).is_dir():
        complaints += [f"{PRIVATE}/{line}" for line in _compare(folder / PRIVATE, private=True)]
    return complaints


def _compare(folder: Path, *, private: bool) -> list[str]:
    try:
        written = (folder / SUMS).read_bytes()
    except OSError:
        raise InputError([Fault(str(folder / SUMS), "", "no such file", "the sums of a privopt folder")]) from None
    actual = sums_text(folder, private=private)
    if written == actual.encode():
        return []
    before, after = (_entries(text) for text in (written.decode(errors="replace"), actual))
    lines = [f"{name}: changed" for name in sorted(before.keys() & after.keys()) if before[name] != after[name]]
    lines += [f"{name}: missing" for name in sorted(before.keys() - after.keys())]
    lines += [f"{name}: not listed in {SUMS}" for name in sorted(after.keys() - before.keys())]
    return lines or [f"{SUMS}: not as it was written"]


def _entries(text: str) -> dict[str, str]:
    return {name: digest for digest, _, name in (line.partition("  ") for line in text.splitlines())}


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} stands in it")


def read_result(folder: Path) -> dict[str, Any]:
    """The result.json of a DIR.

    Raises:
        InputError: there is none, or it is no JSON object.
    """
    path = folder / RESULT
    try:
        result = json.loads(path.read_text("utf-8"), parse_constant=_refuse)
    except RecursionError:
        raise InputError([Fault(str(path), "", "JSON nested too deeply", "a result of privopt")]) from None
    except OSError:
        raise InputError([Fault(str(path), "", "no such file", "a folder that privopt solve has written")]) from None
    except ValueError as error:
        raise InputError([Fault(str(path), "", f"text that is not JSON ({error})", "a result of privopt")]) from None
    if not isinstance(result, dict):
        raise InputError([Fault(str(path), "", "JSON that is no object", "a result of privopt")])
    return result


def check_target(folder: Path, *, force: bool) -> None:
    """Refuse a target that must not be replaced.

    Raises:
        UsageError: it exists and ``force`` is not given, or it is nothing privopt wrote, or its parent is missing.
    """
    if not folder.parent.is_dir():
        raise UsageError(f"--out {folder}: the folder {folder.parent} does not exist")
    if not os.access(folder.parent, os.W_OK):
        raise UsageError(f"--out {folder}: the folder {folder.parent} cannot be written")
    if not folder.exists() and not folder.is_symlink():
        return
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if not force:
        raise UsageError(f"--out {folder}: exists already; --force replaces it")
    if not (folder / RESULT).is_file():
        raise UsageError(f"--out {folder}: exists and is no result of privopt, so --force will not replace it")


@contextmanager
def new_folder(target: Path, *, force: bool = False) -> Iterator[Path]:
    """A folder to write into that becomes ``target`` when the block ends well, and vanishes when it does not.

    A run that is killed leaves ``target`` as it was, and at worst a hidden folder beside it, which a later
    run removes.
    """
    target = target.absolute()
    check_target(target, force=force)
    for stale in target.parent.glob(f".{target.name}.*.writing"):
        if not _alive(stale):
            shutil.rmtree(stale, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=f".{target.name}.{os.getpid()}.", suffix=".writing", dir=target.parent))
    work.chmod(0o755)
    try:
        yield work
        (work / SUMS).write_text(sums_text(work), "utf-8")
        if (work / PRIVATE).is_dir():
            (work / PRIVATE).chmod(0o700)
            (work / PRIVATE / SUMS).write_text(sums_text(work / PRIVATE, private=True), "utf-8")
        _flush(work)
        _swap(work, target)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _alive(stale: Path) -> bool:
    owner = stale.name.split(".")[-3]
    return owner.isdigit() and Path(f"/proc/{owner}").exists()


def _flush(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _swap(work: Path, target: Path) -> None:
    if target.exists() and any(target.iterdir()):
        old = work.with_suffix(".replaced")
        target.rename(old)
        work.rename(target)
        shutil.rmtree(old)
    else:
        work.rename(target)


# --- the problem's own files ------------------------------------------------------------------------


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and path.name != ""


def write_problem(source: Path, problem: Any, work: Path, public: Mapping[str, bytes]) -> str:
    """Copy the problem file and what it names: public files to ``problem/``, secret ones to ``private/problem/``.

    A file named by a path that leaves the problem's folder is stored under ``external/``, and the copied
    problem file names it there.

    Args:
        source: the problem file.
        problem: read from it.
        work: the DIR being written.
        public: contents that stand in ``problem/`` in place of secret files, by name.

    Returns:
        SHA-256 of the problem file as copied.
    """
    folder = work / PROBLEM
    folder.mkdir()
    text = source.read_text("utf-8-sig")
    taken: set[str] = set()
    verbatim = True
    for file in files_of(problem):
        name = file.name
        if not _inside(name):
            name = _external(PurePosixPath(name).name, taken)
            text, verbatim = _renamed(text, file.name, name, source.name), False
        if name in taken:
            continue
        taken.add(name)
        _copy(file, name, work, public)
    target = folder / source.name
    if verbatim:
        shutil.copyfile(source, target)
    else:
        target.write_text(text, "utf-8")
    return sha256(target)


def _external(name: str, taken: set[str]) -> str:
    candidate, number = f"external/{name}", 1
    while candidate in taken:
        number += 1
        candidate = f"external/{number}-{name}"
    return candidate


def _renamed(text: str, old: str, new: str, file: str) -> str:
    pattern = re.compile(rf"""(["']){re.escape(old)}\1""")
    text, count = pattern.subn(f'"{new}"', text)
    if count == 0:
        raise InputError([Fault(file, "", f"the path {old!r} in escaped form", "paths written without escapes")])
    return text


def _copy(file: File, name: str, work: Path, public: Mapping[str, bytes]) -> None:
    if file.secret:
        private = work / PRIVATE / PROBLEM / name
        private.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file.here, private)
    target = work / PROBLEM / name
    target.parent.mkdir(parents=True, exist_ok=True)
    if file.name in public:
        target.write_bytes(public[file.name])
    elif not file.secret:
        shutil.copyfile(file.here, target)
