"""Refuse files and folders that a command must not write, before it begins to work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from privopt.errors import UsageError
from privopt.files.release_folder import RESULT

__all__ = ["check_file", "check_files", "check_parent", "check_target"]


def check_target(folder: Path, *, force: bool, option: str = "--out", known_by: str = RESULT) -> None:
    """Refuse a folder that must not be replaced.

    Args:
        folder: The folder to write.
        force: Whether an earlier result may be replaced.
        option: The caller's name of the folder.
        known_by: A file that every earlier result has. A folder without it was not written by privopt.

    Raises:
        UsageError: The folder exists and may not be replaced, or the folder around it cannot be written.
    """
    check_parent(folder, option)
    cure = "--force" if option.startswith("--") else "force=True"
    if folder.is_symlink():
        raise UsageError(f"{option} {folder}: is a link; name the folder itself")
    if not folder.exists():
        return
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if not force:
        raise UsageError(f"{option} {folder}: exists already; {cure} replaces it")
    if not (folder / known_by).is_file():
        raise UsageError(f"{option} {folder}: exists and was not written by privopt, so {cure} will not replace it")


def check_parent(target: Path, option: str = "--out") -> None:
    """Refuse a target whose folder does not exist and cannot be made, or cannot be written."""
    nearest = next(folder for folder in target.absolute().parents if folder.exists() or folder.is_symlink())
    if not nearest.is_dir():
        raise UsageError(f"{option} {target}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {target}: the folder {nearest} cannot be written")


def check_file(target: Path, *, force: bool, option: str = "--out") -> None:
    """Refuse a file that must not be written.

    Raises:
        UsageError: It exists and ``force`` is not given, it is not a regular file, or its folder cannot be made.
    """
    check_parent(target, option)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise UsageError(f"{option} {target}: is not a regular file")
    if target.exists() and not force:
        raise UsageError(f"{option} {target}: exists already; --force replaces it")


def check_files(
    targets: Mapping[str, Path | None], *, force: bool, read: Iterable[Path] = (), folders: Iterable[Path] = ()
) -> None:
    """Refuse files that :func:`check_file` refuses, or that something else needs.

    Args:
        targets: The files to write, by their options; None for an option that is not given.
        force: Whether existing files may be replaced.
        read: Files that the command reads.
        folders: Folders of releases, which hold nothing else.

    Raises:
        UsageError: A target is also read, lies in a folder of a release, or is named by two options.
    """
    input_paths = {path.absolute().resolve() for path in read}
    option_by_path: dict[Path, str] = {}
    for option, target in targets.items():
        if target is None:
            continue
        check_file(target.absolute(), force=force, option=option)
        path = target.absolute().resolve()
        if path in input_paths:
            raise UsageError(f"{option} {target}: is read, so nothing is written over it; name another file")
        for folder in folders:
            if path.is_relative_to(folder.absolute().resolve()):
                cure = "which holds the release alone; name a file elsewhere"
                raise UsageError(f"{option} {target}: lies in {folder}, {cure}")
        if option_by_path.setdefault(path, option) != option:
            raise UsageError(f"{option} {target}: is {option_by_path[path]} too; name two files")
