"""A hidden working folder next to a target, which one run uses alone."""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from privopt.errors import StoppedError

OURS: Final = ".privopt"
"""Part of the names of hidden folders: no other program's are removed."""


@contextmanager
def claim_folder(target: Path) -> Iterator[Path]:
    """Create and lock a hidden folder next to ``target``. It is removed when the block ends."""
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
            shutil.rmtree(work, ignore_errors=True)  # what resists is hidden, 0700, and tried again by the next run
        if lock is not None:
            os.close(lock)


def _lock_folder(target: Path) -> tuple[Path, int]:
    """Create a hidden folder that is locked while this process lives, which shows other runs that it is in use."""
    while True:
        work = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=f"{OURS}.writing", dir=target.parent))
        with suppress(FileNotFoundError):  # another run took it for a leftover before it was locked
            lock = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            with suppress(OSError):  # a file system without locks, where no other run can take it for a leftover
                fcntl.flock(lock, fcntl.LOCK_EX)
            if work.exists():
                return work, lock
            os.close(lock)


def _remove_leftovers(target: Path) -> None:
    """Remove what killed runs left in the target's place: unlocked hidden folders of this user.

    Unfinished work for any target is removed, because it may hold drawn reports that no ledger counts twice, and the
    next run may have another target. A folder that a run was about to replace is removed for this target alone: until
    the next run for it, it is its owner's only copy.
    """
    random_part, ours = r"\.[a-z0-9_]{8}", re.escape(OURS)
    name = re.compile(
        rf"\..+{random_part}{ours}\.writing|\.{re.escape(target.name)}{random_part}{ours}\.replaced", re.DOTALL
    )
    with suppress(PermissionError), os.scandir(target.parent) as entries:
        for entry in entries:
            if not name.fullmatch(entry.name) or not entry.is_dir(follow_symlinks=False):
                continue
            with suppress(FileNotFoundError):  # its own run ended meanwhile
                if entry.stat(follow_symlinks=False).st_uid == os.geteuid():
                    _remove_if_free(Path(entry.path))


def _remove_if_free(folder: Path) -> None:
    """Remove a folder unless another run has locked it."""
    try:
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    except OSError:  # gone meanwhile
        return
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # in use, or locks are unknown here: it may be in use
        return
    else:
        shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)
