"""Write a new folder or file: private at first, checked before it gets its name, complete or absent."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from attrs import frozen

from privopt.errors import UsageError
from privopt.files.regular import flush
from privopt.files.release_folder import PRIVATE, RESULT, SUMS, sums_text
from privopt.files.targets import check_file, check_target
from privopt.files.working_folder import claim_folder

__all__ = [
    "Workspace",
    "flush_folder",
    "make_parents",
    "new_file",
    "new_folder",
    "open_workspace",
    "remove_replaced",
    "replace_in_release",
    "swap_into_place",
]


@contextmanager
def new_file(target: Path, *, force: bool = False, option: str = "--out") -> Iterator[Path]:
    """Yield the path of a file that becomes ``target`` if the block succeeds, and vanishes if it fails.

    It lies in a hidden folder next to ``target``, which may hold other files meanwhile. A run that is killed leaves
    ``target`` as it was, and at worst that folder, which the next run that writes into the same place removes.

    Raises:
        UsageError: See :func:`privopt.files.targets.check_file`.
        StoppedError: It could not be written, or an interrupt came; nothing was written.
    """
    target = target.absolute()
    check_file(target, force=force, option=option)
    with make_parents(target), claim_folder(target) as workspace:
        path = workspace / target.name
        yield path
        flush_folder(workspace)
        check_file(target, force=force, option=option)  # another run may have finished meanwhile
        path.replace(target)


def replace_in_release(target: Path, contents: bytes, folder: Path) -> None:
    """Write a file of DIR that no sum covers.

    It is written next to DIR and renamed, because what a killed run left in DIR would make DIR invalid.

    Args:
        target: The file, in ``folder`` or in its ``private/``.
        contents: The bytes of the file.
        folder: DIR, absolute.

    Raises:
        UsageError: The file's folder cannot be written.
    """
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise UsageError(f"{target}: its folder cannot be written")
    parent = folder.parent if os.access(folder.parent, os.W_OK | os.X_OK) else target.parent
    with claim_folder(parent / folder.name) as workspace:
        path = workspace / target.name
        path.write_bytes(contents)
        is_private = target.parent.name == PRIVATE
        # A public file is for all who may read its folder.
        path.chmod(0o600 if is_private else 0o600 | target.parent.stat().st_mode & 0o044)
        path.replace(target)


@contextmanager
def new_folder(
    target: Path, *, force: bool = False, private: bool = False, option: str = "--out", known_by: str = RESULT
) -> Iterator[Path]:
    """Yield a folder to write into that becomes ``target`` if the block succeeds, and vanishes if it fails.

    Until then its owner alone can enter it; in the end files are 0644, and 0600 below ``private/``. A run that is
    killed leaves ``target`` as it was, and at worst a hidden folder next to it, which the next run that writes into the
    same place removes.

    Args:
        target: The folder to make.
        force: Whether an earlier result may be replaced.
        private: Whether the whole folder is its owner's own (0700).
        option: The caller's name of ``target``.
        known_by: A file that every earlier result has.

    Raises:
        UsageError: See :func:`privopt.files.targets.check_target`.
        StoppedError: It could not be written, or an interrupt came; nothing was written.
    """
    with open_workspace(target, force=force, option=option, known_by=known_by) as workspace:
        folder = workspace.new()
        yield folder
        workspace.complete(folder, private=private)
        workspace.publish(folder)


@frozen
class Workspace:
    """A hidden folder next to a target. A folder in it may become the target.

    Attributes:
        target: The folder to make.
        home: The hidden folder, which only this run uses.
        force: Whether an earlier result may be replaced.
        option: The caller's name of ``target``.
        known_by: A file that every earlier result has.
    """

    target: Path
    home: Path
    force: bool
    option: str
    known_by: str

    def new(self) -> Path:
        """Make an empty folder that its owner alone can enter."""
        return Path(tempfile.mkdtemp(dir=self.home))

    def complete(self, folder: Path, *, private: bool = False, check: Callable[[Path], None] | None = None) -> None:
        """Add sums to a written folder, check it, open its public files to others, and flush it to the disk."""
        for subfolder, is_private in ((folder, False), (folder / PRIVATE, True)):
            if subfolder.is_dir():
                text = sums_text(subfolder, private=is_private)
                (subfolder / SUMS).write_bytes(text.encode("utf-8", "surrogateescape"))
        if check is not None:
            check(folder)
        _open_up(folder, private=private)
        flush_folder(folder)

    def publish(self, folder: Path, warn: Callable[[str], None] | None = None) -> None:
        """Give a complete folder the target's name, and remove the one before; call ``warn`` if that fails.

        Raises:
            UsageError: Another run has made the target meanwhile.
        """
        check_target(self.target, force=self.force, option=self.option, known_by=self.known_by)
        replaced = swap_into_place(folder, self.target, self.home)
        if replaced is not None:
            remove_replaced(replaced, warn)


@contextmanager
def open_workspace(
    target: Path, *, force: bool = False, option: str = "--out", known_by: str = RESULT
) -> Iterator[Workspace]:
    """Yield a workspace; a folder in it may become ``target``, and the others vanish at the end of the block.

    Raises:
        UsageError: See :func:`privopt.files.targets.check_target`.
        StoppedError: The disk failed, or an interrupt came.
    """
    target = target.absolute()
    check_target(target, force=force, option=option, known_by=known_by)
    with make_parents(target), claim_folder(target) as home:
        yield Workspace(target, home, force, option, known_by)


@contextmanager
def make_parents(target: Path) -> Iterator[None]:
    """Make the folders around a target; if the block fails, those that were made are removed."""
    missing = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # another file is in it by now, for example a checkpoint
                folder.rmdir()
        raise


def _open_up(folder: Path, *, private: bool) -> None:
    """Let others read the public files, and set all dates to now. The folder itself comes last."""
    now = time.time_ns()
    for path in folder.rglob("*"):
        is_private = private or path.relative_to(folder).parts[0] == PRIVATE
        path.chmod((0o700 if is_private else 0o755) if path.is_dir() else (0o600 if is_private else 0o644))
        os.utime(path, ns=(now, now))
    folder.chmod(0o700 if private else 0o755)


def flush_folder(folder: Path) -> None:
    """Flush a folder and everything in it to the disk."""
    for path in [*folder.rglob("*"), folder]:
        flush(path)


def swap_into_place(folder: Path, target: Path, home: Path) -> Path | None:
    """Give a finished folder its name; return where the folder that had this name is now, if there was one."""
    if not target.exists() or not any(target.iterdir()):
        folder.rename(target)
        return None
    # The earlier folder keeps a name until the new one has its own.
    replaced = home.with_suffix(".replaced")
    target.rename(replaced)
    try:
        folder.rename(target)
    except BaseException:
        replaced.rename(target)
        raise
    return replaced


def remove_replaced(folder: Path, warn: Callable[[str], None] | None) -> None:
    """Remove a folder that was replaced; call ``warn`` if it could not be removed."""
    try:
        folder.chmod(0o700)
        shutil.rmtree(folder)
    except (OSError, KeyboardInterrupt):
        if warn is not None:
            warn(f"what was replaced could not be removed whole: {folder}")
