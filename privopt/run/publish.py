"""Write a new DIR or file: private at first, checked before it gets its name, complete or absent.

What a command must not write is refused before any work.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from attrs import define, frozen

from privopt.errors import UsageError
from privopt.files.regular import flush
from privopt.files.release_folder import PRIVATE, RESULT, SUMS, sums_text
from privopt.files.working_folder import claimed

CHECKPOINTS: Final = (".npz", ".json", ".part")
"""Endings of what DIR.partial holds; a folder with anything else in it is somebody's own."""


@contextmanager
def new_file(target: Path, *, force: bool = False, option: str = "--out") -> Iterator[Path]:
    """Yield the path of a file that becomes ``target`` when the block ends well, and vanishes when it does not.

    It lies in a hidden folder next to ``target`` that may hold other files meanwhile. A run that is killed leaves
    ``target`` as it was, and at worst that folder, which the next run that writes into the same place removes.

    Raises:
        UsageError: see :func:`check_file`.
        StoppedError: it could not be written, or an interrupt came; nothing was written.
    """
    target = target.absolute()
    check_file(target, force=force, option=option)
    with parents_made(target), claimed(target) as work:
        made = work / target.name
        yield made
        _flush(work)
        check_file(target, force=force, option=option)  # another run may have finished meanwhile
        made.replace(target)


def replace_in_release(target: Path, contents: bytes, folder: Path) -> None:
    """Write a file of DIR that no sum covers: next to DIR, then renamed, for what a kill left in DIR would be refused.

    Args:
        target: in ``folder`` or in its ``private/``.
        contents: of the file.
        folder: DIR, absolute.

    Raises:
        UsageError: its folder cannot be written.
    """
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{target}: its folder cannot be written")
    beside = folder.parent if os.access(folder.parent, os.W_OK | os.X_OK) else target.parent
    with claimed(beside / folder.name) as work:
        made = work / target.name
        made.write_bytes(contents)
        own = target.parent.name == PRIVATE  # else for anyone who may read the folder
        made.chmod(0o600 if own else 0o600 | target.parent.stat().st_mode & 0o044)
        made.replace(target)


@contextmanager
def new_folder(
    target: Path, *, force: bool = False, private: bool = False, option: str = "--out", known_by: str = RESULT
) -> Iterator[Path]:
    """Yield a folder to write into that becomes ``target`` when the block ends well, and vanishes when it does not.

    Until then its owner alone can enter it; in the end files are 0644, and 0600 below ``private/``. A run that is
    killed leaves ``target`` as it was, and at worst a hidden folder next to it, which the next run that writes into the
    same place removes.

    Args:
        target: folder to make.
        force: replace an earlier result.
        private: the whole folder is its owner's own (0700).
        option: the caller's name of ``target``.
        known_by: a file that an earlier result has.

    Raises:
        UsageError: see :func:`check_target`.
        StoppedError: it could not be written, or an interrupt came; nothing was written.
    """
    with hidden_folders(target, force=force, option=option, known_by=known_by) as place:
        work = place.new()
        yield work
        place.complete(work, private=private)
        place.publish(work)


@frozen
class Place:
    """Hidden folders next to a target; each may become it.

    Attributes:
        target: the folder to make.
        home: hidden, and this run's own.
        force, option, known_by: as of :func:`new_folder`.
    """

    target: Path
    home: Path
    force: bool
    option: str
    known_by: str

    def new(self) -> Path:
        """Return an empty folder that its owner alone can enter."""
        return Path(tempfile.mkdtemp(dir=self.home))

    def complete(self, work: Path, *, private: bool = False, check: Callable[[Path], None] | None = None) -> None:
        """Make a written folder whole: from here on it lacks nothing but its name."""
        for folder, own in ((work, False), (work / PRIVATE, True)):
            if folder.is_dir():
                (folder / SUMS).write_bytes(sums_text(folder, private=own).encode("utf-8", "surrogateescape"))
        if check is not None:
            check(work)
        _open_up(work, private=private)
        _flush(work)

    def publish(self, work: Path, warn: Callable[[str], None] | None = None) -> None:
        """Give a whole folder the target's name, and remove the one before; call ``warn`` if that cannot be removed.

        Raises:
            UsageError: another run has made the target meanwhile.
        """
        check_target(self.target, force=self.force, option=self.option, known_by=self.known_by)
        old = _swap(work, self.target, self.home)
        if old is not None:
            discard(old, warn)


@contextmanager
def hidden_folders(
    target: Path, *, force: bool = False, option: str = "--out", known_by: str = RESULT
) -> Iterator[Place]:
    """Yield a place for folders; one of them may become ``target``, the others vanish when the block ends.

    Raises:
        UsageError: see :func:`check_target`.
        StoppedError: the disk or an interrupt came in the way.
    """
    target = target.absolute()
    check_target(target, force=force, option=option, known_by=known_by)
    with parents_made(target), claimed(target) as home:
        yield Place(target, home, force, option, known_by)


@define(kw_only=True)
class Copies:
    """Clean copies that are written to a hidden folder, which becomes one of their own.

    Attributes:
        target: the folder to make; None without copies.
        work: hidden folder next to it to write them into.
        placed: whether they are there.
    """

    target: Path | None = None
    work: Path | None = None
    placed: bool = False

    def place(self) -> None:
        """Give the folder its name: the last thing before DIR gets its own."""
        if self.target is None or self.work is None:
            return
        for path in [self.work, *self.work.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        _flush(self.work)
        old = _swap(self.work, self.target, self.work)
        if old is not None:
            shutil.rmtree(old, ignore_errors=True)
        self.placed = True


@contextmanager
def new_copies(target: Path | None, out: Path, *, force: bool = False) -> Iterator[Copies]:
    """Yield a hidden folder for copies; it becomes ``target`` once they are placed, and vanishes if they are not.

    Args:
        target: a folder that is not there, or is empty; None: make no copies.
        out: DIR, which says of them that they are clean.
        force: where ``target`` holds the copies that an earlier DIR lists, unchanged, and nothing else, replace them.

    Raises:
        UsageError: ``target`` holds anything else, or cannot be made.
        StoppedError: it could not be written.
    """
    if target is None:
        yield Copies()
        return
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise UsageError(f"--copy-to {target}: is not a folder")
    target = target.absolute()
    check_parent(target, "--copy-to")
    if out.absolute() in (target, *target.parents):
        raise UsageError(f"--copy-to {target}: lies in --out {out}")
    if target.exists() and any(target.iterdir()) and not (force and _copied(target) == _listed(out)):
        more = "is not empty; with --force it may hold the copies that DIR lists, unchanged, and nothing else"
        raise UsageError(f"--copy-to {target}: {more}")
    with parents_made(target), claimed(target) as work:
        copies = Copies(target=target, work=work)
        try:
            yield copies
        except BaseException:
            if copies.placed:  # DIR, which says that they are clean, did not come to be
                shutil.rmtree(target, ignore_errors=True)
            raise


def _copied(folder: Path) -> dict[str, str]:
    """Names and SHA-256 of all files of a folder."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return {
        path.relative_to(folder).as_posix(): "" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def _listed(folder: Path) -> dict[str, str] | None:
    """Names and SHA-256 of the copies that a DIR lists; None where it lists none."""
    try:
        found = json.loads((folder / RESULT).read_text("utf-8"))["details"]["copies"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, dict) else None


def _open_up(work: Path, *, private: bool) -> None:
    """Let others read what is public, now that all is there, dated now; the folder itself last."""
    now = time.time_ns()
    for path in work.rglob("*"):
        own = private or path.relative_to(work).parts[0] == PRIVATE
        path.chmod((0o700 if own else 0o755) if path.is_dir() else (0o600 if own else 0o644))
        os.utime(path, ns=(now, now))
    work.chmod(0o700 if private else 0o755)


def _flush(folder: Path) -> None:
    for path in [*folder.rglob("*"), folder]:
        flush(path)


def _swap(work: Path, target: Path, home: Path) -> Path | None:
    """Give the finished folder its name; returns where the one before it lies now."""
    if not target.exists() or not any(target.iterdir()):
        work.rename(target)
        return None
    old = home.with_suffix(".replaced")
    target.rename(old)
    try:
        work.rename(target)
    except BaseException:
        old.rename(target)
        raise
    return old


def discard(old: Path, warn: Callable[[str], None] | None) -> None:
    """Remove what was replaced; call ``warn`` if it could not be removed."""
    try:
        old.chmod(0o700)
        shutil.rmtree(old)
    except (OSError, KeyboardInterrupt):
        if warn is not None:
            warn(f"what was replaced could not be removed whole: {old}")


def discard_partial(folder: Path, warn: Callable[[str], None]) -> None:
    """Remove the checkpoints of a run whose work is done; they may hold parts of private matrices."""
    if folder.is_symlink() or not folder.is_dir():
        return
    if all(path.suffix in CHECKPOINTS or (path.is_dir() and not path.is_symlink()) for path in folder.rglob("*")):
        discard(folder, warn)
    else:
        warn(f"{folder} holds other files than checkpoints, so it was left as it is")


def check_target(folder: Path, *, force: bool, option: str = "--out", known_by: str = RESULT) -> None:
    """Refuse a target that must not be replaced; ``option`` is the caller's name of it.

    A folder without a file ``known_by`` was not written by privopt.

    Raises:
        UsageError: it exists and ``force`` is not given, or privopt did not write it, or its folder cannot be made.
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
