"""A disk without space: SQLite's own writes fail with ENOSPC after a number of bytes, as on a full disk."""

import _sqlite3
import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

WRITE = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64, use_errno=True
)
"""The type of pwrite and pwrite64, by one of which SQLite writes all of its files."""


class Vfs(ctypes.Structure):
    """The beginning of SQLite's sqlite3_vfs, as far as its table of system calls."""

    _fields_ = (
        *((name, ctypes.c_int) for name in ("version", "file_size", "path_size")),
        *((name, ctypes.c_void_p) for name in ("next", "name", "data")),
        # xOpen, xDelete, xAccess, xFullPathname, xDlOpen, xDlError, xDlSym, xDlClose, xRandomness, xSleep,
        # xCurrentTime, xGetLastError, xCurrentTimeInt64
        *((f"function_{number}", ctypes.c_void_p) for number in range(13)),
        ("set_call", ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)),
    )


def find_vfs() -> ctypes.c_void_p:
    """Return SQLite's file system; skip the test if its library cannot be called from here."""
    try:
        find = ctypes.CDLL(_sqlite3.__file__).sqlite3_vfs_find
    except (AttributeError, OSError):
        pytest.skip("the functions of SQLite are not exported")
    find.restype, find.argtypes = ctypes.c_void_p, [ctypes.c_char_p]
    return ctypes.c_void_p(find(None))


@contextmanager
def full_disk(free_bytes: int) -> Iterator[list[int]]:
    """Let all of SQLite's files together grow by a number of bytes in the block, and yield a list of the refusals."""
    vfs = find_vfs()
    set_call = Vfs.from_address(vfs.value).set_call
    remaining, refusals = free_bytes, []

    def write(file: int, data: int, size: int, offset: int) -> int:
        """Write as much as there is space for, or fail if there is none, as the system does."""
        nonlocal remaining
        # Overwriting needs no space.
        allowed = max(remaining, os.fstat(file).st_size - offset)
        if allowed <= 0:
            refusals.append(size)
            ctypes.set_errno(errno.ENOSPC)
            return -1
        before = os.fstat(file).st_size
        written = os.pwrite(file, ctypes.string_at(data, min(size, allowed)), offset)
        remaining -= max(os.fstat(file).st_size - before, 0)
        return written

    function = WRITE(write)
    for name in (b"pwrite", b"pwrite64"):
        set_call(vfs, name, ctypes.cast(function, ctypes.c_void_p))
    try:
        yield refusals
    finally:
        for name in (b"pwrite", b"pwrite64"):
            set_call(vfs, name, None)
