"""Write folders and files atomically: build each one in a private hidden folder, check it, and move it into place.

Targets that must not be written are rejected before work starts (:func:`check_target`, :func:`check_file`). Each run
writes into its own hidden folder next to the target (:func:`claim_folder`).
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final, NoReturn

from attrs import frozen

from privopt.errors import StoppedError, UsageError, cut
from privopt.files.regular import flush
from privopt.files.release_folder import PRIVATE, RESULT, SUMS, sums_text

__all__ = [
    "Workspace",
    "check_file",
    "check_files",
    "check_files_folder",
    "check_location",
    "check_name",
    "check_parent",
    "check_target",
    "claim_folder",
    "flush_folder",
    "is_same_file",
    "make_parents",
    "new_file",
    "new_folder",
    "open_workspace",
    "remove_replaced",
    "replace_in_release",
    "swap_into_place",
]

OURS: Final = ".privopt"
"""The string included in the names of all hidden folders created by privopt, so that no other folders are removed."""

FOLDER_NAME_BYTES: Final = 255
"""The maximum length of a name on common file systems, in bytes."""

TARGET_NAME_BYTES: Final = FOLDER_NAME_BYTES - len(f"..12345678{OURS}.replaced")
"""The maximum length of a target's name, in bytes. The names of hidden folders next to the target include its name."""

PATH_BYTES: Final = 4096 - 2 * (FOLDER_NAME_BYTES + 1)
"""The maximum length of a target's path, in bytes.

Linux allows 4,096 bytes, but the path of a file in a hidden folder is longer than the target's.
"""


def check_target(
    folder: Path, *, force: bool, option: str = "--out", known_by: str = RESULT, read: Iterable[Path] = ()
) -> None:
    """Reject a target folder that exists and must not be replaced, or that cannot be written.

    Args:
        folder: The folder to write.
        force: Whether an existing result may be replaced.
        option: The prefix of error messages: the option that specifies the folder, or the Python method that was called
            (``"save:"``).
        known_by: The name of a file contained in every result. A folder without this file is assumed not to have been
            written by privopt.
        read: The files and folders read by the command. The folder must neither be nor contain any of them.

    Raises:
        UsageError: The folder exists and may not be replaced, or its parent folder cannot be written.
    """
    check_parent(folder, option)
    cure = _describe_force(option)
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
    for path in read:
        if any(is_same_file(folder, around) for around in (path, *_resolve(path).parents)):
            raise UsageError(f"{option} {folder}: holds {path}, which is read; name a folder elsewhere")


def _describe_force(option: str) -> str:
    """Return the option that allows a target to be replaced: ``--force``, or ``force=True`` in Python."""
    return "--force" if option.startswith("--") else "force=True"


def check_parent(target: Path, option: str = "--out") -> None:
    """Reject a target that lies in a release folder, or whose parent folder cannot be created or written.

    Args:
        target: The file or folder to write.
        option: The option that specifies the target, for error messages.

    Raises:
        UsageError: The target cannot be written, or its name is too long.
    """
    subject = f"{option} {target}"
    check_location(target, subject)
    _check_writable(target.absolute().parents, subject)


def check_files_folder(folder: Path, option: str) -> None:
    """Reject a folder that cannot be created, or in which files cannot be written.

    The folder may already exist, and may contain other files.

    Args:
        folder: The folder to write files to.
        option: The option that specifies the folder, for error messages.

    Raises:
        UsageError: The folder cannot be written, is a release folder, or is inside one.
    """
    subject = f"{option} {folder}"
    # Any file name will do, because no file may be added to a release folder.
    check_location(folder / "file", subject)
    _check_writable([folder.absolute(), *folder.absolute().parents], subject)


def check_location(target: Path, subject: str) -> None:
    """Reject a path that is too long (:func:`check_name`) or lies inside a release folder.

    Writing into a release folder would make it invalid, because its checksums must cover every file in it except the
    report and the signature.

    Args:
        target: The file or folder to write.
        subject: The prefix of error messages, such as ``--out FILE``.

    Raises:
        UsageError: The path must not be written.
    """
    check_name(target, subject)
    path = target.absolute()
    # The target itself is not resolved, because a link in its place is rejected or replaced, not followed.
    for folder in (_resolve(path.parent) / path.name).parents:
        if all(os.path.isfile(folder / name) for name in (RESULT, SUMS)):
            _refuse_inside(folder, subject)


def check_name(target: Path, subject: str) -> None:
    """Reject a path that is too long for a file system, or that has a component that is too long.

    Args:
        target: The file or folder to write.
        subject: The prefix of error messages, such as ``--out FILE``.

    Raises:
        UsageError: The path or a component is too long.
    """
    path = target.absolute()
    # The first part of an absolute path is the root, and the last one is the target's own name.
    for number, part in enumerate(path.parts[1:], 2):
        limit = TARGET_NAME_BYTES if number == len(path.parts) else FOLDER_NAME_BYTES
        size = len(os.fsencode(part))
        if size > limit:
            raise UsageError(f"{cut(subject)}: a name must have at most {limit} bytes here, got {size:,}")
    size = len(os.fsencode(path))
    if size > PATH_BYTES:
        raise UsageError(f"{cut(subject)}: a path must have at most {PATH_BYTES:,} bytes, got {size:,}")


def _refuse_inside(folder: Path, subject: str) -> NoReturn:
    """Raise the error for a path inside a release folder."""
    raise UsageError(f"{subject}: lies in {folder}, which holds the release alone; name a path elsewhere")


def _resolve(path: Path) -> Path:
    """Return a path with links and ``..`` resolved, except for circular links, which are left unchanged."""
    return Path(os.path.realpath(path))


def _check_writable(folders: Sequence[Path], subject: str) -> None:
    """Reject a path unless its nearest existing ancestor folder is writable.

    Args:
        folders: The path's ancestor folders, innermost first.
        subject: The prefix of error messages.

    Raises:
        UsageError: No ancestor exists, or the nearest existing one is not a folder or cannot be written.
    """
    nearest = next((folder for folder in folders if os.path.lexists(folder)), None)
    if nearest is None:
        raise UsageError(f"{subject}: is the root of the file system, which cannot be written; name a path in it")
    if not nearest.is_dir():
        raise UsageError(f"{subject}: {nearest} is not a folder")
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise UsageError(f"{subject}: the folder {nearest} cannot be written")


def is_same_file(a: Path, b: Path) -> bool:
    """Return whether two paths refer to the same file or folder, even if the paths differ in links or letter case."""
    if _resolve(a) == _resolve(b):
        return True
    try:
        return os.path.samefile(a, b)
    except OSError:  # one of them does not exist
        return False


def check_file(target: Path, *, force: bool, option: str = "--out") -> None:
    """Reject a file that must not be written.

    Args:
        target: The file to write.
        force: Whether an existing file may be replaced.
        option: The option that specifies the file, for error messages, as in :func:`check_target`.

    Raises:
        UsageError: The file exists and ``force`` is False, it is not a regular file, or its folder cannot be created.
    """
    check_parent(target, option)
    if target.is_symlink() or (target.exists() and not target.is_file()):
        raise UsageError(f"{option} {target}: is not a regular file")
    if target.exists() and not force:
        raise UsageError(f"{option} {target}: exists already; {_describe_force(option)} replaces it")


def check_files(
    targets: Mapping[str, Path | Sequence[Path] | None],
    *,
    force: bool,
    read: Iterable[Path | None] = (),
    folders: Iterable[Path] = (),
) -> None:
    """Reject target files that must not be written.

    In addition to passing the checks of :func:`check_file`, a target must not be one of the files read by the command,
    must not lie in a release folder, and must not be specified by two different options.

    Args:
        targets: The files to write, keyed by the option that specifies them, with None for options that are not given.
        force: Whether existing files may be replaced.
        read: The files read by the command, with None for options that are not given.
        folders: Release folders. No target may lie in any of them, even if the release is damaged.

    Raises:
        UsageError: A target fails one of the checks.
    """
    input_paths = [path for path in read if path is not None]
    option_by_path: dict[Path, str] = {}
    for option, target in _options_and_paths(targets):
        # Check this first, because even --force does not allow a command to overwrite a file that it reads.
        if any(is_same_file(target, path) for path in input_paths):
            raise UsageError(f"{option} {target}: this file is an input, so it is not overwritten; name another file")
        check_file(target.absolute(), force=force, option=option)
        path = _resolve(target)
        for folder in folders:
            if path.is_relative_to(_resolve(folder)):
                _refuse_inside(folder, f"{option} {target}")
        other_option = next((name for known, name in option_by_path.items() if is_same_file(known, path)), option)
        if other_option != option:
            raise UsageError(f"{option} {target}: is {other_option} too; name two files")
        option_by_path[path] = option


def _options_and_paths(targets: Mapping[str, Path | Sequence[Path] | None]) -> Iterator[tuple[str, Path]]:
    """Yield each target together with the option that specifies it. An option may specify any number of targets."""
    for option, paths in targets.items():
        for path in () if paths is None else (paths,) if isinstance(paths, Path) else paths:
            yield option, path


@contextmanager
def claim_folder(target: Path) -> Iterator[Path]:
    """Create and lock a hidden folder next to ``target``, yield its path, and remove it when the block ends.

    Anything left behind by killed runs is removed first.

    Raises:
        StoppedError: An I/O error occurred, or the run was interrupted.
    """
    work = lock = None
    try:
        _remove_leftovers(target)
        work, lock = _lock_folder(target)
        yield work
    except OSError as error:
        path, reason = error.filename or target, error.strerror or str(error) or type(error).__name__
        raise StoppedError(f"{path}: {reason}; nothing written") from error
    except KeyboardInterrupt:
        raise StoppedError(f"{target}: interrupted; nothing written") from None
    finally:
        if work is not None:
            # If the folder cannot be removed, it stays hidden and private, and the next run tries again.
            shutil.rmtree(work, ignore_errors=True)
        if lock is not None:
            os.close(lock)


def _lock_folder(target: Path) -> tuple[Path, int]:
    """Create a hidden folder, and lock it until this process ends, so that other runs can tell that it is in use.

    Returns:
        The path of the folder and the file descriptor that holds the lock.
    """
    while True:
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=f"{OURS}.writing", dir=target.parent))
        # Until the folder is locked, another run may take it for a leftover and remove it. In that case, try again.
        with suppress(FileNotFoundError):
            lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            with suppress(OSError):  # on a file system without locks, no run removes leftovers
                fcntl.flock(lock, fcntl.LOCK_EX)
            if work.exists():
                return work, lock
            os.close(lock)


def _remove_leftovers(target: Path) -> None:
    """Remove anything that killed runs have left next to a target, i.e. unlocked hidden folders belonging to this user.

    Folders with unfinished work are removed even if they belong to another target. They may contain drawn reports, and
    there may never be another run that writes to that target. A folder that was being replaced by a killed run is
    removed only if it belongs to this target. A replaced folder that belongs to another target may be its owner's only
    copy.
    """
    # The names that _lock_folder creates, in which mkdtemp adds eight random characters between prefix and suffix.
    random_part, ours = r"\.[a-z0-9_]{8}", re.escape(OURS)
    name = re.compile(
        rf"\..+{random_part}{ours}\.writing|\.{re.escape(target.name)}{random_part}{ours}\.replaced", re.DOTALL
    )
    with suppress(PermissionError), os.scandir(target.parent) as entries:
        for entry in entries:
            if not name.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(FileNotFoundError):  # the run that owned it has just ended
                if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    _remove_if_free(Path(entry.path))


def _remove_if_free(folder: Path) -> None:
    """Remove a folder unless it is locked by another run."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # another process has just removed it
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # the folder is in use, or the file system has no locks to tell
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


@contextmanager
def new_file(target: Path, *, force: bool = False, option: str = "--out") -> Iterator[Path]:
    """Yield the path of a file that becomes ``target`` if the block succeeds and is removed if the block fails.

    The file is in a hidden folder next to ``target``, where the block may also write other files. If the run is killed,
    ``target`` is unchanged, but the hidden folder may be left behind. It is removed by the next run that writes to the
    same location.

    Args:
        target: The file to create.
        force: Whether an existing file may be replaced.
        option: The option that specifies ``target``, for error messages.

    Raises:
        UsageError: The target is rejected by :func:`privopt.files.new_folder.check_file`.
        StoppedError: Writing failed or was interrupted. The target is unchanged.
    """
    target = target.absolute()
    check_file(target, force=force, option=option)
    # Write in the target's folder, because a rename is atomic only within one file system.
    with make_parents(target), claim_folder(target) as workspace:
        path = workspace / target.name
        yield path
        flush_folder(workspace)
        check_file(target, force=force, option=option)  # another run may have finished in the meantime
        path.replace(target)


def replace_in_release(target: Path, contents: bytes, folder: Path) -> None:
    """Write a file that is not covered by the checksums, such as the report, into a release folder.

    The file is written next to the release folder and then renamed, because anything that a killed run left in the
    folder would make the release invalid. If the folder's parent is not writable, the file is written next to
    ``target`` instead.

    Args:
        target: The file, located in ``folder`` or in its ``private/`` subfolder.
        contents: The bytes to write.
        folder: The absolute path of the release folder.

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
        # A public file can be read by everyone who may read its folder.
        path.chmod(0o600 if is_private else 0o600 | target.parent.stat().st_mode & 0o044)
        path.replace(target)


@contextmanager
def new_folder(
    target: Path, *, force: bool = False, private: bool = False, option: str = "--out", known_by: str = RESULT
) -> Iterator[Path]:
    """Yield a folder to write into, which becomes ``target`` if the block succeeds and is removed if the block fails.

    Only the owner can enter the folder until the block ends. Its files then get mode 0644, or 0600 if they are in
    ``private/`` or the whole folder is private. If the run is killed, ``target`` is unchanged, but a hidden folder may
    be left next to it. It is removed by the next run that writes to the same location.

    Args:
        target: The folder to create.
        force: Whether an existing result may be replaced.
        private: Whether only the owner may enter the folder (mode 0700).
        option: The option that specifies ``target``, for error messages.
        known_by: The name of a file contained in every result.

    Raises:
        UsageError: The target is rejected by :func:`privopt.files.new_folder.check_target`.
        StoppedError: Writing failed or was interrupted. The target is unchanged.
    """
    with open_workspace(target, force=force, option=option, known_by=known_by) as workspace:
        folder = workspace.new()
        yield folder
        workspace.complete(folder, private=private)
        workspace.publish(folder)


@frozen
class Workspace:
    """A hidden folder next to a target folder, in which candidates for the target can be created.

    Attributes:
        target: The folder to create.
        home: The hidden folder, which is used only by this run.
        force: Whether an existing result may be replaced.
        option: The option that specifies ``target``, for error messages.
        known_by: The name of a file contained in every result.
    """

    target: Path
    home: Path
    force: bool
    option: str
    known_by: str

    def new(self) -> Path:
        """Create an empty folder that only its owner can enter, and return its path."""
        return Path(tempfile.mkdtemp(dir=self.home))

    def complete(self, folder: Path, *, private: bool = False, check: Callable[[Path], None] | None = None) -> None:
        """Prepare a written folder for publication: add checksums, check it, make it accessible and flush it to disk.

        Args:
            folder: The folder, with all its files.
            private: Whether only the owner may read the folder.
            check: A function to call with the folder before others can read it. If the function raises an error, the
                folder remains inaccessible to others.
        """
        for subfolder, is_private in ((folder, False), (folder / PRIVATE, True)):
            if subfolder.is_dir():
                text = sums_text(subfolder, private=is_private)
                (subfolder / SUMS).write_bytes(text.encode("utf-8", "surrogateescape"))
        # Run the check while others cannot enter the folder, so that a folder that fails is never public.
        if check is not None:
            check(folder)
        _open_up(folder, private=private)
        flush_folder(folder)

    def publish(self, folder: Path, warn: Callable[[str], None] | None = None) -> None:
        """Move a complete folder to the target's path, and remove any folder that it replaces.

        If the replaced folder cannot be removed, ``warn`` is called with a message.

        Raises:
            UsageError: Another run has created the target in the meantime.
        """
        check_target(self.target, force=self.force, option=self.option, known_by=self.known_by)
        replaced = swap_into_place(folder, self.target, self.home)
        if replaced is not None:
            remove_replaced(replaced, warn)


@contextmanager
def open_workspace(
    target: Path, *, force: bool = False, option: str = "--out", known_by: str = RESULT
) -> Iterator[Workspace]:
    """Yield a hidden workspace next to ``target``. One folder in it may become ``target``, and the rest are removed.

    Args:
        target: The folder to create.
        force: Whether an existing result may be replaced.
        option: The option that specifies ``target``, for error messages.
        known_by: The name of a file contained in every result.

    Raises:
        UsageError: The target is rejected by :func:`privopt.files.new_folder.check_target`.
        StoppedError: An I/O error occurred, or the run was interrupted.
    """
    target = target.absolute()
    check_target(target, force=force, option=option, known_by=known_by)
    with make_parents(target), claim_folder(target) as home:
        yield Workspace(target, home, force, option, known_by)


@contextmanager
def make_parents(target: Path) -> Iterator[None]:
    """Create a target's missing parent folders, and remove them again if the block fails."""
    # The innermost folder is first, so that it is removed before the folders that contain it.
    missing = [folder for folder in target.parents if not folder.exists()]
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield
    except BaseException:
        for folder in missing:
            with suppress(OSError):  # it now contains another file, for example a checkpoint
                folder.rmdir()
        raise


def _open_up(folder: Path, *, private: bool) -> None:
    """Make a folder's public files readable by others, and set the modification times of all files to now.

    Equal times conceal when each file was written. The folder itself is made accessible last.

    Args:
        folder: The folder.
        private: Whether only the owner may enter the folder. If so, no files are made readable.
    """
    now = time.time_ns()
    for path in folder.rglob("*"):
        is_private = private or path.relative_to(folder).parts[0] == PRIVATE
        path.chmod((0o700 if is_private else 0o755) if path.is_dir() else (0o600 if is_private else 0o644))
        os.utime(path, ns=(now, now))
    folder.chmod(0o700 if private else 0o755)


def flush_folder(folder: Path) -> None:
    """Flush a folder and everything in it to disk."""
    for path in [*folder.rglob("*"), folder]:
        flush(path)


def swap_into_place(folder: Path, target: Path, home: Path) -> Path | None:
    """Move a finished folder to its target path, first moving any existing folder there out of the way.

    Args:
        folder: The finished folder.
        target: The new path of the folder.
        home: The hidden folder of this run. A folder moved out of the way gets this folder's name with the suffix
            ``.replaced``.

    Returns:
        The new path of the folder moved out of the way, or None if there was no such folder or it was empty.
    """
    if not target.exists() or not any(target.iterdir()):
        folder.rename(target)  # this replaces an empty folder
        return None
    # The earlier folder is kept under another name until the new one is in place.
    replaced = home.with_suffix(".replaced")
    target.rename(replaced)
    try:
        folder.rename(target)
    except BaseException:
        replaced.rename(target)
        raise
    return replaced


def remove_replaced(folder: Path, warn: Callable[[str], None] | None) -> None:
    """Remove a folder that has been replaced by a new result. If that fails, call ``warn`` with a message."""
    try:
        folder.chmod(0o700)
        shutil.rmtree(folder)
    except (OSError, KeyboardInterrupt):  # the result is already in place, so an interrupt must not fail the run
        if warn is not None:
            warn(f"{folder} is no longer needed, but could not be removed completely")
