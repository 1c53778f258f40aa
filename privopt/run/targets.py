"""Refuse a folder or a file that a command must not write, before any work."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from privopt.errors import UsageError
from privopt.files.release_folder import RESULT

__all__ = ["check_file", "check_files", "check_new", "check_parent", "check_target", "parents_made"]


def check_target(
    folder: Path, *, force: bool, called: tuple[str, str] = ("--out", "--force"), known_by: str = RESULT
) -> None:
    """Refuse a target that must not be replaced; ``called`` are the caller's names of folder and ``force``.

    A folder without a file ``known_by`` was not written by privopt.

    Raises:
        UsageError: it exists and ``force`` is not given, or privopt did not write it, or its folder cannot be made.
    """
    option, cure = called
    check_parent(folder, option)
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
    """Refuse a target whose folder is not there and cannot be made, or cannot be written."""
    nearest = next(folder for folder in target.absolute().parents if folder.exists() or folder.is_symlink())
    if not nearest.is_dir():
        raise UsageError(f"{option} {target}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"{option} {target}: the folder {nearest} cannot be written")


@contextmanager
def parents_made(target: Path) -> Iterator[None]:
    """Make the folders that a target lies in; those that were made go again where nothing came of it."""
    missing = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # it holds something meanwhile, a checkpoint say
                folder.rmdir()
        raise


def check_file(target: Path, *, force: bool, option: str = "--out") -> None:
    """Refuse a file that must not be written.

    Raises:
        UsageError: it exists and ``force`` is not given, or it is not a regular file, or its folder cannot be made.
    """
    check_parent(target, option)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise UsageError(f"{option} {target}: is not a regular file")
    if target.exists() and not force:
        raise UsageError(f"{option} {target}: exists already; --force replaces it")


def check_files(
    targets: Mapping[str, Path | None], *, force: bool, read: Iterable[Path] = (), folders: Iterable[Path] = ()
) -> None:
    """Refuse files to be written, by their options, that :func:`check_file` refuses, or that others need.

    Raises:
        UsageError: one is read, lies in a folder of a release, or is to be written twice.
    """
    held = {path.absolute().resolve() for path in read}
    options: dict[Path, str] = {}
    for option, target in targets.items():
        if target is None:
            continue
        check_file(target.absolute(), force=force, option=option)
        place = target.absolute().resolve()
        if place in held:
            raise UsageError(f"{option} {target}: is read, so nothing is written over it; name another file")
        for folder in folders:
            if place.is_relative_to(folder.absolute().resolve()):
                wanted = "which holds the release alone; name a file elsewhere"
                raise UsageError(f"{option} {target}: lies in {folder}, {wanted}")
        if options.setdefault(place, option) != option:
            raise UsageError(f"{option} {target}: is {options[place]} too; name two files")


def check_new(target: Path) -> None:
    """Refuse a folder that is there, or that cannot be made."""
    check_parent(target, "--out")
    if target.exists() or target.is_symlink():
        raise UsageError(f"--out {target}: exists already; name a new folder")
