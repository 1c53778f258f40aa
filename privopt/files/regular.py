"""Read regular files of bounded size, reading each only once, and create private files."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import BinaryIO, Final

from privopt.errors import UsageError

LARGEST: Final = 8 * 2**30
"""The maximum size of a file, in bytes. Larger files are rejected before anything is read."""


class Unreadable(ValueError):  # noqa: N818 (a reason that callers turn into a fault)
    """Raised if a path cannot be read. The message gives the reason as a clause, such as ``which is a pipe``."""

    @property
    def actual(self) -> str:
        """The reason as a noun phrase, for use as :attr:`privopt.errors.Fault.actual` in a fault about the path."""
        if str(self) == _MISSING:
            return "no such file"
        clause = str(self)
        return clause.removeprefix("which is ") if clause.startswith("which is ") else f"a file {clause}"


_MISSING: Final = "which does not exist"
"""The message of :class:`Unreadable` for missing files."""


def what_it_is(mode: int) -> str:
    """Describe a file's type in words, such as "a folder", given its ``st_mode``."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
        stat.S_IFSOCK: "a socket",
        stat.S_IFLNK: "a link",
        stat.S_IFREG: "a file",
    }
    return kinds.get(stat.S_IFMT(mode), "no file")


@contextmanager
def open_regular(path: Path, *, largest: int = LARGEST, links: bool = True) -> Iterator[tuple[BufferedReader, int]]:
    """Open a regular file for reading, without ever blocking on a pipe or device.

    Args:
        path: The path of the file.
        largest: The maximum size in bytes.
        links: Whether the path may be a link to a regular file.

    Yields:
        The open file and its size in bytes.

    Raises:
        Unreadable: The file is missing, is not a regular file, is too large, or cannot be read.
    """
    try:
        # Check the path before opening it, because merely opening a device can have effects.
        _check_status(os.stat(path, follow_symlinks=links), largest)
        # With O_NONBLOCK, a pipe that has replaced the file in the meantime does not block.
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | (0 if links else os.O_NOFOLLOW))
    except FileNotFoundError:
        raise Unreadable(_MISSING) from None
    except OSError as error:
        raise Unreadable(f"which cannot be read ({error.strerror})") from None
    except Unreadable:  # a ValueError too, but not the one below
        raise
    except ValueError:  # the name contains a zero byte, or characters that cannot be encoded
        raise Unreadable("which no file can be called") from None
    with os.fdopen(handle, "rb") as stream:
        status = os.fstat(handle)
        # Check the open file too, because the file may have been replaced in the meantime.
        _check_status(status, largest)
        yield stream, status.st_size


def _check_status(status: os.stat_result, largest: int) -> None:
    """Raise :class:`Unreadable` if a file is not a regular file or has more than ``largest`` bytes."""
    if not stat.S_ISREG(status.st_mode):
        raise Unreadable(f"which is {what_it_is(status.st_mode)}")
    if status.st_size > largest:
        raise Unreadable(f"which has {status.st_size:,} bytes, more than the {largest:,} that are read")


def read_bytes(path: Path, *, largest: int = LARGEST, links: bool = True) -> bytes:
    """Return the bytes of a regular file of at most ``largest`` bytes. Links are followed only if ``links`` is True.

    Raises:
        Unreadable: The file is rejected by :func:`open_regular`, or its length changes while it is being read.
    """
    with open_regular(path, largest=largest, links=links) as (stream, size):
        return read_whole(stream, size)


def read_whole(stream: BufferedReader, size: int) -> bytes:
    """Return all bytes of a file that had ``size`` bytes when it was opened by :func:`open_regular`.

    Raises:
        Unreadable: The file cannot be read, or its length has changed.
    """
    try:
        # Read one byte more than expected, to notice a file that has grown.
        contents = stream.read(size + 1)
    except OSError as error:
        raise Unreadable(f"which cannot be read ({error.strerror})") from None
    if len(contents) != size:
        raise Unreadable("whose length changes while it is read")
    return contents


def private_folder(path: Path, *, closed: bool = False) -> None:
    """Create a folder that only its owner can enter, or restrict access to an existing folder.

    Args:
        path: The path of the folder. Missing parent folders are also created as private folders.
        closed: Whether to reject an existing folder that is accessible to other users, since they may have read or
            changed its files.

    Raises:
        UsageError: The path is not a folder or belongs to another user, or ``closed`` is True and the folder is
            accessible to other users.
    """
    # Create parents recursively, because mkdir(parents=True) would give them the default mode.
    if not path.parent.exists():
        private_folder(path.parent)
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        status = path.lstat()
        if not stat.S_ISDIR(status.st_mode):
            raise UsageError(f"{path} must be a folder for private files, got {what_it_is(status.st_mode)}") from None
        if status.st_uid != os.geteuid():
            raise UsageError(f"{path} must be a folder of your own, got one of another user") from None
        if closed and status.st_mode & 0o077:
            raise UsageError(f"{path} must have mode 0700, got {status.st_mode & 0o777:04o}") from None
        path.chmod(0o700)


@contextmanager
def open_private(path: Path) -> Iterator[BinaryIO]:
    """Yield a new file for writing, created so that only its owner can read it.

    If the block succeeds, the new file replaces any existing file at ``path``. If the block fails, the new file remains
    under a hidden name until the next call for this path removes it. Links are not followed.
    """
    part = path.with_name(f".{path.name}.part")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "wb") as stream:
        yield stream
        stream.flush()
        os.fsync(handle)
    os.replace(part, path)


def flush(path: Path) -> None:
    """Flush a file, or a folder's directory entries, to disk so that the changes survive a power failure."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
