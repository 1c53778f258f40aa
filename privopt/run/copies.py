"""Write clean copies of what a release lets out, in a folder that gets its name just before DIR does."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attrs import define

from privopt.errors import UsageError
from privopt.files.new_folder import flush_folder, make_parents, swap_into_place
from privopt.files.release_folder import RESULT
from privopt.files.targets import check_parent
from privopt.files.working_folder import claim_folder

__all__ = ["Copies", "new_copies"]


@define(kw_only=True)
class Copies:
    """Clean copies that are written to a hidden folder, which becomes a folder of its own.

    Attributes:
        target: The folder to make; None if no copies are made.
        workspace: The hidden folder next to it, into which the copies are written; None if no copies are made.
        is_published: Whether the folder has its name.
    """

    target: Path | None = None
    workspace: Path | None = None
    is_published: bool = False

    def publish(self) -> None:
        """Give the folder its name. This is the last step before DIR gets its own."""
        if self.target is None or self.workspace is None:
            return
        for path in [self.workspace, *self.workspace.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        flush_folder(self.workspace)
        replaced = swap_into_place(self.workspace, self.target, self.workspace)
        if replaced is not None:
            shutil.rmtree(replaced, ignore_errors=True)
        self.is_published = True


@contextmanager
def new_copies(target: Path | None, out: Path, *, force: bool = False) -> Iterator[Copies]:
    """Yield a hidden folder for copies; it becomes ``target`` once they are published, and vanishes if they are not.

    Args:
        target: A folder that does not exist or is empty; None to make no copies.
        out: DIR, whose result says that the copies are clean.
        force: Whether ``target`` may be replaced. It must then hold exactly the copies that an earlier DIR lists.

    Raises:
        UsageError: ``target`` holds anything else, or cannot be made.
        StoppedError: It could not be written.
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
    if target.exists() and any(target.iterdir()) and not (force and _hash_files(target) == _listed_hashes(out)):
        cure = "with --force it may hold the copies that DIR lists, unchanged, and nothing else"
        raise UsageError(f"--copy-to {target}: is not empty; {cure}")
    with make_parents(target), claim_folder(target) as workspace:
        copies = Copies(target=target, workspace=workspace)
        try:
            yield copies
        except BaseException:
            # Without DIR, nothing says that the copies are clean.
            if copies.is_published:
                shutil.rmtree(target, ignore_errors=True)
            raise


def _hash_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file of a folder by its path; ``""`` for a link."""
    paths = [path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir()]
    return {
        path.relative_to(folder).as_posix(): "" if path.is_symlink() else hashlib.sha256(path.read_bytes()).hexdigest()
        for path in paths
    }


def _listed_hashes(folder: Path) -> dict[str, str] | None:
    """Return the SHA-256 of each copy that a DIR lists, by its path; None if it lists none."""
    try:
        hashes = json.loads((folder / RESULT).read_text("utf-8"))["details"]["copies"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return hashes if isinstance(hashes, dict) else None
